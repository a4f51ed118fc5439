"""REPLACE, the benchmark of the Hard Positives paper, made from VL-CheckList (section 3.4, A.1).

    annotations of Visual Genome -> the most common words of each part -> their synonyms -> cases

A row of VL-CheckList is a caption and a negative with one word or phrase replaced. Of each part
(spatial relations, colours, ...) the ten most common words are counted. Those that have a synonym
in the list get a positive: the same caption with the synonym. The other rows are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import polars as pl

from counterpoint._util.errors import DataError
from counterpoint._util.tables import read_table
from counterpoint.benchmarks import REPLACED, load_benchmark
from counterpoint.cases import Case, Cases, ImageRef, caption_case, write_cases
from counterpoint.generation.export.groups import ImagePaths

MOST_COMMON: Final = 10
_KINDS: Final = {"Relation": "relations", "Attribute": "attributes"}
_ARTICLES: Final = frozenset({"a", "an", "the"})
_VERBS: Final = "relations/action"  # counted by the verb: "sitting on" and "sitting in" are one
Synonyms = Mapping[str, Mapping[str, str]]  # by part: "relations/spatial"


class ChecklistRow(NamedTuple):
    """A row of VL-CheckList; `replaced` are the words of the caption that its negative has not."""

    id: str
    image: ImageRef
    caption: str
    negative: str
    replaced: str


class CommonWord(NamedTuple):
    """One of the most common words of a part, and the cases that were made of it."""

    part: str
    word: str
    rows: int
    synonym: str  # empty if the list has none
    cases: int


@dataclass(slots=True)
class ReplaceCounts:
    """What was made, and what was left out by the reason."""

    words: list[CommonWord] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def make_replace(
    data: Path, out: Path, *, words: Path | None = None, most_common: int = MOST_COMMON
) -> ReplaceCounts:
    """Write the case file `out`: the caption, its positive and VL-CheckList's negative.

    `words` is a table of synonyms (part, word, synonym); by default those of the paper are taken.
    A word with an empty synonym is left out, and so are phrases with it: "on" is not replaced in
    "on top of" if that has none.
    """
    synonyms = _paper() if words is None else _read(words)
    _, checklist = load_benchmark("vl-checklist", data)
    parts: dict[str, list[ChecklistRow]] = {}
    paths = ImagePaths.between(checklist.root or data, out.parent)
    for part, row in _rows(checklist, paths):
        parts.setdefault(part, []).append(row)
    counts, cases = ReplaceCounts(), list[Case]()
    for part, rows in sorted(parts.items(), reverse=True):  # relations first, as published
        counted = Counter(_word(part, row.replaced.lower()) for row in rows if row.replaced)
        common = dict(counted.most_common(most_common))
        mine = {w: s for w, s in synonyms.get(part, {}).items() if _word(part, w) in common}
        made = [found for row in rows if (found := _case(part, row, mine, counts.left_out))]
        cases += [case for _, case in made]
        of = Counter(_word(part, word) for word, _ in made)
        meant = {_word(part, word): synonym for word, synonym in mine.items()}
        counts.words += [
            CommonWord(part, word, number, meant.get(word, ""), of[word])
            for word, number in common.items()
        ]
    if not cases:
        raise DataError(
            "E-REPLACE-EMPTY",
            f"{data / 'vl_checklist'}: no row of Relation/vg or Attribute/vg has a word with a "
            "synonym; get the files with `counterpoint data get vl-checklist`.",
        )
    write_cases(Cases.build(cases, source="vl-checklist"), out)
    return counts


def _paper() -> Synonyms:
    return {f"{kind}/{part}": of for kind, parts in REPLACED.items() for part, of in parts.items()}


def _read(path: Path) -> Synonyms:
    table = read_table(path, dict.fromkeys(("part", "word", "synonym"), pl.String()))
    found: dict[str, dict[str, str]] = {}
    for part, word, synonym in table.select("part", "word", "synonym").iter_rows():
        if part and word:
            found.setdefault(part, {})[word] = synonym or ""
    return found


def _rows(checklist: Cases, paths: ImagePaths) -> Iterator[tuple[str, ChecklistRow]]:
    """The rows of Visual Genome with their parts: `Relation/vg/spatial/7` is one of spatial's."""
    for case in checklist.frame.iter_rows(named=True):
        kind, *places = case["id"].split("/")
        if kind not in _KINDS or places[0] != "vg":
            continue
        caption, negative = case["captions"]
        kept = set(negative.split())
        replaced = " ".join(word for word in caption.split() if word not in kept)
        image = ImageRef(paths.image(case["images"][0]["path"]))
        yield (
            f"{_KINDS[kind]}/{places[1]}",
            ChecklistRow(case["id"], image, caption, negative, replaced),
        )


def _word(part: str, phrase: str) -> str:
    """What a replaced phrase is counted as."""
    words = phrase.split()
    while len(words) > 1 and words[-1] in _ARTICLES:
        words.pop()
    return words[0] if part == _VERBS else " ".join(words)


def _case(
    part: str, row: ChecklistRow, synonyms: Mapping[str, str], left_out: Counter[str]
) -> tuple[str, Case] | None:
    """The case of a row, with its word."""
    kind = part.partition("/")[0]
    if row.caption == row.negative:
        left_out["rows whose negative is the caption"] += 1
        return None
    found = (_relation if kind == "relations" else _attribute)(row, synonyms)
    if found is None:
        left_out["rows without a common word that has a synonym"] += 1
        return None
    word, (caption, positive, negative) = found
    if positive == negative:
        left_out["rows whose negative has the synonym"] += 1
        return None
    label = f"{kind}/{word}"
    return word, caption_case(row.id, row.image, (caption, positive), (negative,), (label,))


Reworded = tuple[str, tuple[str, str, str]]  # the word; the caption, its positive, its negative


def _relation(row: ChecklistRow, synonyms: Mapping[str, str]) -> Reworded | None:
    """A relation stands between two things. VL-CheckList writes some in capitals: all are small."""
    caption, replaced = row.caption.lower(), f" {row.replaced.lower()} "
    there = [word for word in synonyms if f" {word} " in caption]
    word = min(there, key=lambda word: (f" {word} " not in replaced, -len(word)), default="")
    if not synonyms.get(word):
        return None
    positive = caption.replace(f" {word} ", f" {synonyms[word]} ")
    return word, (caption, positive, row.negative.lower())


def _attribute(row: ChecklistRow, synonyms: Mapping[str, str]) -> Reworded | None:
    """The negative replaces this word and no other."""
    word = row.replaced
    if not synonyms.get(word):
        return None
    words = (synonyms[word] if one == word else one for one in row.caption.split(" "))
    return word, (row.caption, " ".join(words), row.negative)
