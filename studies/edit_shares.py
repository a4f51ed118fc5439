"""Which edits the rules for positives make, and how large a share of a method each one is.

    python studies/edit_shares.py captions.json --limit 5000
    python studies/edit_shares.py captions.json --limit 5000 --method hard-positives
    python studies/edit_shares.py captions.json --limit 12000 --rates 0.5

An edit is the words that were replaced and those that replaced them, as dictionary forms: "in >
within". The texts are those of `counterpoint generate positives`, of all rules together or of the
methods given. With `--rates` nothing is capped: in how many of a hundred captions each edit could
be made, if they are more than the number given. The captions are a JSON file of images with
captions, in the order of a hash.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from reading import changed

from counterpoint.generation.drafts import TextSettings, make_by_rules
from counterpoint.generation.inputs.captions import SourceCaption
from counterpoint.generation.language.lexicon import Vocabulary
from counterpoint.generation.language.sentences import tagged
from counterpoint.generation.language.words import lemma
from counterpoint.generation.registry import RULES
from counterpoint.generation.pairs import Pair
from counterpoint.generation.rules import hard_positives, synonyms

_POS: Final = {"obj": "NOUN", "att": "ADJ", "rel": "VERB"}
_CAPPED: Final = {"hard-positives": hard_positives.edits, "synonyms": synonyms.edits}
_TOP: Final = 10


def captions(path: Path, limit: int) -> list[str]:
    """`limit` different captions of a file."""
    found = dict.fromkeys(_texts(json.loads(path.read_text(encoding="utf-8"))))
    return sorted(found, key=lambda text: blake2b(text.encode()).digest())[:limit]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        said = value.get("captions") or value.get("caption") or []
        yield from (said,) if isinstance(said, str) else said
    else:
        for part in value:
            yield from _texts(part)


def edit(pair: Pair) -> str:
    """What was changed, as dictionary forms without articles."""
    old, new = changed(_plain(pair.caption), _plain(pair.text))
    pos = _POS.get(pair.subtype, "NOUN")
    return " > ".join(" ".join(lemma(word, pos) for word in side.split()) for side in (old, new))


def _plain(text: str) -> str:
    words = (word.strip(".,;!").lower() for word in text.split())
    return " ".join(word for word in words if word not in ("a", "an"))


def shares(said: list[str], methods: tuple[str, ...]) -> str:
    """A line for each method: the share of its largest edit, and of its ten largest."""
    sources = [SourceCaption(str(number), None, caption) for number, caption in enumerate(said)]
    made = make_by_rules(sources, TextSettings("positive", methods)).pairs
    lines = []
    for method in methods:
        counts = Counter(edit(pair) for pair in made if pair.method == method)
        top = counts.most_common(_TOP)
        if texts := counts.total():
            first, ten = (100 * sum(n for _, n in top[:k]) / texts for k in (1, _TOP))
            lines.append(
                f"| {method} | {texts} | {len(counts)} | {first:.1f} % | {ten:.1f} % | "
                f"{', '.join(name for name, _ in top[:3])} |"
            )
    without = 100 * (1 - len({pair.source for pair in made}) / len(said))
    return "\n".join([*lines, f"captions without a text: {without:.1f} %"])


def rates(said: list[str], least: float) -> str:
    """In how many of a hundred captions an edit could be made."""
    words = Vocabulary()
    counts: Counter[str] = Counter()
    for sentence in tagged(said):
        for edits in _CAPPED.values():
            counts.update({one.name for _, found in edits(sentence, words) for one in found})
    found = {name: 100 * count / len(said) for name, count in counts.most_common()}
    return "\n".join(f'    "{name}": {rate:.1f},' for name, rate in found.items() if rate > least)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("captions", type=Path)
    parser.add_argument("--limit", type=int, default=5000)
    parser.add_argument("--method", action="append")
    parser.add_argument("--rates", type=float)
    given = parser.parse_args()
    said = captions(given.captions, given.limit)
    every = tuple(name for name in RULES.names() if RULES.get(name).kind == "positive")
    if given.rates is not None:
        print(rates(said, given.rates))
        return
    print(shares(said, tuple(given.method or every)))


if __name__ == "__main__":
    main()
