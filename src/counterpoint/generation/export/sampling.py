"""Balanced sampling: no type, no new word and no edit has more than its share of the texts.

A share is one of what is kept, of positives and of negatives apart. Texts are taken in an order
that the seed draws by content, each unless one of its keys is full. What is full depends on how
many are kept, so this is repeated with fewer until both agree; a key may always have one text. The
order of the files does not matter.

| key    | of a text |
|--------|-----------|
| `type` | its group: `replace/obj`, `add/att` |
| `word` | what is new in it: "blue", "in front of", of an addition its last word |
| `edit` | what was replaced by what: "red" by "blue" |

A text of the same words in another order (a swap, a shuffle) has no new word and no edit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

from counterpoint._util.errors import DataError
from counterpoint.generation.export.groups import Group, LeftOut, Text

KEYS: Final = ("type", "word", "edit")
_ARTICLES: Final = frozenset({"a", "an"})
_MARKS: Final = ".,!?;:\"'()"
_NAMES: Final = {"type": "of a type", "word": "with a new word", "edit": "with an edit"}

Caps = Mapping[str, float]  # the largest share of each key


class _Entry(NamedTuple):
    """A text that can be taken: when, and its keys in the order of `KEYS`; empty: none."""

    drawn: int
    keys: tuple[str, str, str]


def read_caps(text: str) -> Caps:
    """`type=0.4,word=0.02` as shares; an empty text has none."""
    found: dict[str, float] = {}
    for part in text.split(",") if text else ():
        name, _, value = part.strip().partition("=")
        try:
            share = float(value)
        except ValueError:
            share = 0.0
        if name not in KEYS or name in found or not 0 < share <= 1:
            raise DataError(
                "E-OPTION-INVALID",
                f"cap: {part.strip()!r} is not type=, word= or edit= with a share above 0 and up "
                "to 1, once each; write for example word=0.02,edit=0.01.",
                option="cap",
            )
        found[name] = share
    return found


def changed_words(caption: str, text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words of the caption that are not in the text's place, and those that are instead."""
    old, new = ([w.strip(_MARKS) for w in each.lower().split()] for each in (caption, text))
    old, new = ([w for w in each if w and w not in _ARTICLES] for each in (old, new))
    if sorted(old) == sorted(new):
        return (), ()
    shorter = min(len(old), len(new))
    start = next((i for i in range(shorter) if old[i] != new[i]), shorter)
    rest = shorter - start
    tail = next((i for i in range(rest) if old[-1 - i] != new[-1 - i]), rest)
    return tuple(old[start : len(old) - tail]), tuple(new[start : len(new) - tail])


def _entry(group: Group, kind: str, text: Text, seed: int) -> _Entry:
    removed, inserted = changed_words(group.caption, text.text)
    word = " ".join(inserted[-1:] if text.type == "add" else inserted)
    edit = f"{' '.join(removed)} -> {' '.join(inserted)}" if removed or inserted else ""
    return _Entry(drawn(group, kind, text, seed), (text.label, word, edit))


def drawn(group: Group, kind: str, text: Text, seed: int) -> int:
    parts = [str(seed), kind, group.source, group.path or "", group.caption, text.text]
    said = "\0".join(parts).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(said, digest_size=8).digest())


class CappedSample:
    """Which texts are left out, and because of which key."""

    def __init__(self, groups: Iterable[Group], caps: Caps, seed: int, path: Path) -> None:
        self.seed = seed
        self.full: dict[int, str] = {}  # by the draw of a text: the first of its keys that is full
        found: dict[str, list[_Entry]] = {"positive": [], "negative": []}
        for group in groups:
            for kind, text in _texts(group):
                found[kind].append(_entry(group, kind, text, seed))
        for kind, entries in found.items():
            _refuse_impossible(entries, caps, kind, path)
            self.full |= _left_out(sorted(entries), caps)

    def of(self, groups: Iterable[Group], left_out: LeftOut) -> Iterator[Group]:
        """The groups with the texts that are kept; `left_out` counts the others by their key."""
        for group in groups:
            kept: dict[str, list[Text]] = {"positive": [], "negative": []}
            for kind, text in _texts(group):
                key = self.full.get(drawn(group, kind, text, self.seed))
                if key is None:
                    kept[kind].append(text)
                else:
                    left_out[f"{kind}s {_NAMES[key]} above its cap"] += 1
            if kept["positive"] or kept["negative"]:
                yield replace(group, positives=kept["positive"], negatives=kept["negative"])
            else:
                left_out["captions without a text, after the caps"] += 1


def _texts(group: Group) -> Iterator[tuple[str, Text]]:
    for text in group.positives:
        yield "positive", text
    for text in group.negatives:
        yield "negative", text


def _refuse_impossible(entries: list[_Entry], caps: Caps, kind: str, path: Path) -> None:
    for place, name in enumerate(KEYS):
        values = {entry.keys[place] for entry in entries}
        if entries and "" not in values and caps.get(name, 1) * len(values) < 1:
            raise DataError(
                "E-CAP-IMPOSSIBLE",
                f"{path}: {name}={caps[name]:g} cannot hold: the {kind}s have {len(values)} "
                f"different values of it, so give a share of {1 / len(values):.3g} or more.",
                path=path,
                cap=name,
            )


def _left_out(entries: list[_Entry], caps: Caps) -> dict[int, str]:
    """The texts that are not taken, by their draws, in one order until shares and caps agree."""
    size = len(entries)
    while True:
        most = [max(1, int(caps.get(name, 1) * size + 1e-9)) for name in KEYS]
        taken: Counter[tuple[int, str]] = Counter()
        full: dict[int, str] = {}
        for entry in entries:
            places = [place for place, key in enumerate(entry.keys) if key]
            over = [place for place in places if taken[place, entry.keys[place]] >= most[place]]
            if over:
                full[entry.drawn] = KEYS[over[0]]
            else:
                taken.update((place, entry.keys[place]) for place in places)
        kept = len(entries) - len(full)
        if kept >= size:  # the caps are shares of no more than is kept
            return full
        size = kept
