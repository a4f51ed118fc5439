"""The health of a benchmark: missing images, defects of its cases, what captions alone give away.

Defects are published cases that cannot be solved, that repeat, or that were broken. Official
protocols keep them in; `with_clean` leaves them out, so that both numbers stand side by side.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from counterpoint._util.errors import ImageError
from counterpoint._util.progress import Progress, Quiet
from counterpoint._util.store import digest
from counterpoint.benchmarks import (
    BENCHMARKS,
    Benchmark,
    absent_from,
    base_id,
    load_benchmark,
    published_counts,
)
from counterpoint.cases import Absent, Cases, ImageRef, formatted, gallery_rows
from counterpoint.data import Damage, damaged_files, data_root
from counterpoint.images import Picture, scheme_of
from counterpoint.metrics import PROTOCOLS, Protocol, Tie
from counterpoint.models.blind import BagOfWords, Format, Length, Ngrams, by_pair
from counterpoint.runs import Part, Run, measure, members_in
from counterpoint.scoring import in_threads

Finder = Callable[[Cases], np.ndarray]

_TIES: Final[tuple[Tie, ...]] = ("wrong", "half")
_NAMED: Final = 5  # cases of each defect that are named


@dataclass(frozen=True, slots=True)
class ImageHealth:
    """The images of a benchmark: how many it needs, and which are missing or unreadable."""

    needed: int
    missing: dict[str, str]
    unreadable: dict[str, str]
    cases_without: int  # cases that lack one of them


@dataclass(frozen=True, slots=True)
class Defect:
    what: str
    cases: int
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BlindAccuracy:
    """What baselines that see no image get right in a group, as shares of its cases.

    `*_half` counts a tie as half right. `bow_ceiling` is the most that any bag of words can get,
    ties half: two captions of the same words look alike to it.
    """

    group: str
    n: int
    same_bag: int
    bow_ceiling: float
    length: float
    length_half: float
    format: float
    format_half: float
    bow: float
    ngram: float
    ngram_half: float
    ties: dict[str, int]  # by baseline: cases in which a negative has the original's score
    ngram_where_bow_ties: float | None  # ties half; None where a bag of words never ties


@dataclass(frozen=True, slots=True)
class Health:
    """Everything that was found."""

    benchmark: str
    folder: str
    cases: int
    expected: int | None
    absent: tuple[Absent, ...]  # of the published benchmark: not in the data, or beyond it
    damaged: tuple[Damage, ...]
    images: ImageHealth
    defects: tuple[Defect, ...]
    gaps: tuple[str, ...]  # numbers that are missing from the ids
    blind: tuple[BlindAccuracy, ...]
    note: str = ""  # about the loader


def examine(
    benchmark: str,
    data: str | Path | None = None,
    *,
    images: bool = True,
    progress: Progress | None = None,
) -> Health:
    """Examine a benchmark; without `images`, files are looked for and not opened."""
    root = data_root(data)
    known, loaded = load_benchmark(benchmark, root)
    # As models see them: the authors' clean-up can make a negative equal to its original.
    cases = formatted(loaded, PROTOCOLS[known.protocol].caption_format)
    return Health(
        benchmark,
        str(cases.root or root),
        len(cases),
        published_counts(benchmark, PROTOCOLS["strict"]).get("cases"),
        absent_from(benchmark, loaded, PROTOCOLS["strict"]),
        damaged_files(base_id(benchmark), root),
        _look_at_images(cases, images, progress or Quiet()),
        tuple(_defects(cases, benchmark)),
        tuple(_gaps(cases)) if known.numbered else (),
        tuple(_blind(known, cases)),
        known.note,
    )


def _look_at_images(cases: Cases, open_them: bool, progress: Progress) -> ImageHealth:
    fields = cases.frame["images"].explode().struct.unnest()
    paths = fields["path"].unique(maintain_order=True).to_list()
    paths = [path for path in paths if scheme_of(path).in_file]
    pictures = [Picture(ImageRef(path), cases.root) for path in paths]
    if not pictures:
        return ImageHealth(0, {}, {}, 0)
    advance = progress.start("images", len(pictures))

    def look(picture: Picture) -> tuple[bool, str]:
        """Whether it is there, and what is wrong with it."""
        try:
            file = picture.file()
            there = file is None or file.is_file()
            if there and open_them:
                picture.open()
        except ImageError as error:
            return True, str(error)
        finally:
            advance(1)
        return there, "" if there else "no such file"

    found = dict(zip(paths, in_threads(look, pictures), strict=True))
    missing = {path: why for path, (there, why) in found.items() if not there}
    unreadable = {path: why for path, (there, why) in found.items() if there and why}
    bad, rows = missing | unreadable, cases.frame["images"].to_list()
    without = sum(any(image["path"] in bad for image in images) for images in rows)
    return ImageHealth(len(paths), missing, unreadable, without)


def _defects(cases: Cases, benchmark: str) -> Iterator[Defect]:
    for what, marks in find_defects(cases, benchmark).items():
        rows = np.flatnonzero(marks)
        yield Defect(what, len(rows), tuple(cases.ids[int(row)] for row in rows[:_NAMED]))


def _gaps(cases: Cases) -> Iterator[str]:
    """Numbers that are missing from ids which otherwise count up: `swap_obj/108`."""
    numbers: dict[str, set[int]] = {}
    for id in cases.ids.to_list():
        prefix, slash, last = id.rpartition("/")
        if last.isdecimal():
            numbers.setdefault(prefix + slash, set()).add(int(last))
    for prefix, found in numbers.items():
        lacking = max(found) - min(found) + 1 - len(found)
        if 0 < lacking < len(found):  # else the ids are not row numbers
            absent = sorted(set(range(min(found), max(found))) - found)
            yield from (f"{prefix}{number}" for number in absent)


def _blind(known: Benchmark, cases: Cases) -> Iterator[BlindAccuracy]:
    """Baselines by group, over the cases with one image, whose captions compete."""
    competing = (cases.image_counts == 1) & (cases.caption_counts > 1)
    competing &= ~gallery_rows(cases) & ~cases.of_texts() & (cases.questions() == 0)
    chosen = cases.keep(competing)
    if not len(chosen):
        return
    protocol = replace(PROTOCOLS["strict"], exclude=frozenset())
    scores = _blind_scores(chosen)
    found = {name: _accuracy(chosen, mine, protocol) for name, mine in scores.items()}
    leads = {name: _leads(chosen, mine) for name, mine in scores.items()}
    same = _same_bag(chosen)
    for label, rows in members_in(chosen, protocol).items():
        alike, n = int(same[rows].sum()), len(rows)
        left = leads["ngram"][rows[leads["bow"][rows] == 0]]  # of the cases that a bag ties on
        yield BlindAccuracy(
            label,
            n,
            alike,
            1 - alike / n / 2,
            found["length"]["wrong"][label],
            found["length"]["half"][label],
            found["format"]["wrong"][label],
            found["format"]["half"][label],
            found["bow"]["wrong"][label],
            found["ngram"]["wrong"][label],
            found["ngram"]["half"][label],
            {name: int((mine[rows] == 0).sum()) for name, mine in leads.items()},
            float((np.sign(left) / 2 + 0.5).mean()) if len(left) else None,
        )


def _blind_scores(cases: Cases) -> dict[str, np.ndarray]:
    texts = cases.frame["captions"].explode().to_list()
    return {
        "length": by_pair(cases, Length().score_captions(texts)),
        "format": by_pair(cases, Format().score_captions(texts)),
        "bow": BagOfWords().score_cases(cases),
        "ngram": Ngrams().score_cases(cases),
    }


def _accuracy(cases: Cases, scores: np.ndarray, protocol: Protocol) -> dict[str, dict[str, float]]:
    """Original accuracy by tie policy and group."""
    part = Part("blind", cases, scores, protocol)
    found: dict[str, dict[str, float]] = {}
    for tie in _TIES:
        measured = measure(part, tie=tie)
        column = measured.metric("original_accuracy")
        means = measured.means(measured.columns.values)
        found[tie] = {label: float(values[column]) for label, values in means.items()}
    return found


def _leads(cases: Cases, scores: np.ndarray) -> np.ndarray:
    """Of each case, by how much the original's score is above the best negative's."""
    truth, starts = cases.frame["truth"], cases.pair_offsets[:-1]
    others = scores.astype(float)
    others[np.repeat(starts, truth.list.len().to_numpy()) + truth.explode().to_numpy()] = -np.inf
    return scores[starts + truth.list.first().to_numpy()] - np.maximum.reduceat(others, starts)


def _same_bag(cases: Cases) -> np.ndarray:
    """Cases whose original has the same words as one of its negatives."""
    marks = np.zeros(len(cases), dtype=bool)
    for number, (captions, truth) in enumerate(cases.frame.select("captions", "truth").iter_rows()):
        true = set(truth)
        bags = [Counter(re.findall(r"[\w']+", text.lower())) for text in captions]
        original = bags[truth[0]]
        marks[number] = any(bag == original for i, bag in enumerate(bags) if i not in true)
    return marks


# --- defects -----------------------------------------------------------------------------------


def find_defects(cases: Cases, benchmark: str) -> dict[str, np.ndarray]:
    """For each defect that occurs, a mark for each case."""
    name = base_id(benchmark)
    known = BENCHMARKS.get(name) if name in BENCHMARKS.names() else None
    finders = {**GENERAL, **(known.defects if isinstance(known, Benchmark) else {})}
    found = {what: find(cases) for what, find in finders.items()}
    return {what: marks for what, marks in found.items() if marks.any()}


def with_clean(runs: Sequence[Run]) -> list[Run]:
    """The runs with every benchmark twice: as published, and `NAME (clean)`, without defects.

    A benchmark in which nothing is wrong stays alone.
    """
    found = []
    for run in runs:
        both = [each for part in run.parts.values() for each in (part, _clean_part(part))]
        found.append(replace(run, parts={part.benchmark: part for part in both}))
    return found


def _clean_part(part: Part) -> Part:
    found = find_defects(part.cases, part.benchmark)
    sound = ~np.logical_or.reduce([*found.values(), np.zeros(len(part.cases), dtype=bool)])
    if sound.all():
        return part
    return replace(part.keep(sound), benchmark=f"{part.benchmark} (clean)", whole=None)


def _any_line(cases: Cases, wrong: Callable[[list[str], list[str]], bool]) -> np.ndarray:
    """Which cases have an image whose positives and negatives (texts, in order) are `wrong`."""
    found = np.zeros(len(cases), dtype=bool)
    skipped = gallery_rows(cases)
    rows = cases.frame.select("images", "captions", "truth").iter_rows()
    for number, (images, captions, truth) in enumerate(rows):
        if skipped[number] or len(set(captions)) == len(captions):
            continue  # texts that all differ are never wrong, and usual
        width, true = len(captions), set(truth)
        for start in range(0, len(images) * width, width):
            line = [start + place in true for place in range(width)]
            positives = [text for text, is_true in zip(captions, line, strict=True) if is_true]
            negatives = [text for text, is_true in zip(captions, line, strict=True) if not is_true]
            found[number] |= bool(positives) and wrong(positives, negatives)
    return found


def negative_is_original(cases: Cases) -> np.ndarray:
    """No model can put a caption above itself."""
    return _any_line(cases, lambda positives, negatives: positives[0] in negatives)


def negative_is_positive(cases: Cases) -> np.ndarray:
    return _any_line(
        cases, lambda positives, negatives: not set(positives[1:]).isdisjoint(negatives)
    )


def positive_is_original(cases: Cases) -> np.ndarray:
    """A positive that rewords nothing."""
    return _any_line(cases, lambda positives, negatives: positives[0] in positives[1:])


def duplicates(cases: Cases) -> np.ndarray:
    """Cases that an earlier one equals in images, captions and truth."""
    marked = np.zeros(len(cases), dtype=bool)
    seen: set[bytes] = set()
    for number, row in enumerate(cases.frame.select("images", "captions", "truth").iter_rows()):
        key = digest(repr(row))
        marked[number] = key in seen
        seen.add(key)
    return marked


GENERAL: Final[Mapping[str, Finder]] = {
    "a negative equals the original": negative_is_original,
    "a negative equals another positive": negative_is_positive,
    "a positive equals the original": positive_is_original,
    "repeats an earlier case": duplicates,
}
