"""Fit a plausibility model, by which `counterpoint generate` ranks its texts.

    python scripts/fit_plausibility.py CAPTIONS... -o FILE.npz

CAPTIONS is anything that `counterpoint generate` takes. `--column FILE=NAME` names the column of
its captions. n-grams that occur only once are left out of the model.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from counterpoint._util.writing import whole_file
from counterpoint.generation.inputs import CaptionOptions, open_captions
from counterpoint.generation.language.plausibility import (
    BORDER,
    CHAINS,
    FORMAT,
    LEAST,
    WORD,
    class_of,
    is_kept,
    load,
    words_of,
)
from counterpoint.generation.language.sentences import Sentence, tagged, unreadable

VOCABULARY: Final = 60_000  # the commonest words; numbers of the classes come after theirs
MOST: Final = (1 << 16) - 1  # stands for a word that is not kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("captions", nargs="+")
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--column", action="append", default=[], metavar="FILE=NAME")
    asked = parser.parse_args()
    columns = dict(entry.rpartition("=")[::2] for entry in asked.column)
    texts = []
    for name in asked.captions:
        options = CaptionOptions(caption=columns.get(name))
        found = [source.caption for source in open_captions(name, None, options=options)]
        texts += [text for text in found if not unreadable(text)]
        print(f"{name}: {len(found):,} captions")
    write(asked.out, fit(texts))
    size = asked.out.stat().st_size / 1e6
    print(f"{asked.out}: {len(texts):,} captions, {size:.2f} MB, version {load(asked.out).version}")


def fit(captions: Iterable[str]) -> dict[str, np.ndarray]:
    """The arrays of a model of these captions."""
    read = [_tagged_words(sentence) for sentence in tagged(captions)]
    tags: dict[str, Counter[str]] = {}
    for text in read:
        for word, tag in text:
            tags.setdefault(word, Counter())[tag] += 1
    main = {word: max(sorted(found), key=found.__getitem__) for word, found in tags.items()}
    names = {word: class_of(word, tag) for word, tag in main.items()}
    often = Counter({word: n for word in tags if (n := tags[word].total()) >= LEAST})
    ranks = sorted(often, key=lambda word: (-often[word], word))
    known = [BORDER, *sorted(ranks[:VOCABULARY])]
    # A class that only words seen once have would show them.
    shown = Counter(names[word] for word in known[1:])
    names = {word: name if name in shown else "/NN" for word, name in names.items()}
    names[BORDER] = BORDER
    classes = [BORDER, *sorted({*shown, "/NN"})]
    numbers = {word: number for number, word in enumerate(known)}
    kinds = {name: number for number, name in enumerate(classes)}
    arrays = {
        "format": _lines([FORMAT]),
        "words": _lines(known),
        "classes": _lines(classes),
        "word_class": np.array([kinds[names[word]] for word in known], dtype=np.uint16),
    }
    for name in CHAINS:
        texts = [[word for word, _ in text] for text in read]
        if name == "skeleton":
            texts = [[word for word in text if is_kept(names[word])] for text in texts]
        chains = [[BORDER, *text, BORDER] for text in texts]
        as_words = [[numbers.get(word, MOST) for word in chain] for chain in chains]
        as_kinds = [[kinds[names[word]] for word in chain] for chain in chains]
        arrays |= _counted(f"{name}/words", as_words) | _counted(f"{name}/classes", as_kinds)
    return arrays


def _tagged_words(sentence: Sentence) -> list[tuple[str, str]]:
    """The words that are scored, each with the tag of its last token ("t", "-", "shirt")."""
    tag_at = {token.end: token.tag for token in sentence.tokens}
    return [
        (word, tag_at.get(match.end(), "NN"))
        for match in WORD.finditer(sentence.text)
        for word in words_of(match[0])
    ]


def _counted(name: str, chains: Iterable[Sequence[int]]) -> dict[str, np.ndarray]:
    """Sorted n-grams (n, k) and their counts. Nothing with an unknown word is kept."""
    found: tuple[Counter[tuple[int, ...]], ...] = (Counter(), Counter(), Counter())
    for chain in chains:
        for size, table in enumerate(found, 1):
            # By itself, a border is counted where a text ends: as often as where one begins.
            places = range(size == 1, len(chain) - size + 1)
            table.update(tuple(chain[i : i + size]) for i in places)
    arrays = {}
    for size, table in enumerate(found, 1):
        rows = sorted((k, n) for k, n in table.items() if n >= LEAST and MOST not in k)
        keys = np.array([key for key, _ in rows], dtype=np.uint16).reshape(-1, size)
        arrays[f"{name}{size}"] = np.ascontiguousarray(keys.T)
        arrays[f"{name}{size}/n"] = np.array([n for _, n in rows], dtype=np.uint32)
    return arrays


def _lines(lines: Sequence[str]) -> np.ndarray:
    return np.frombuffer("\n".join(lines).encode(), dtype=np.uint8)


def write(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a model."""
    with whole_file(path) as draft, draft.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
