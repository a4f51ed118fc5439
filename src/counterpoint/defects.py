"""What is wrong with published cases: rows that cannot be solved, that repeat, that were broken.

Official protocols keep them in; a clean run leaves them out, so that both numbers can stand side by
side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from counterpoint.benchmarks import BENCHMARKS, Benchmark, base_id
from counterpoint.cases import Cases
from counterpoint.galleries import gallery_rows
from counterpoint.runs import Part, Run
from counterpoint.scoring.store import digest

Finder = Callable[[Cases], np.ndarray]


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


def find_defects(cases: Cases, benchmark: str) -> dict[str, np.ndarray]:
    """By what is wrong: a mark for each case. Only what occurs is named."""
    name = base_id(benchmark)
    known = BENCHMARKS.get(name) if name in BENCHMARKS.names() else None
    finders = {**GENERAL, **(known.defects if isinstance(known, Benchmark) else {})}
    found = {what: find(cases) for what, find in finders.items()}
    return {what: marks for what, marks in found.items() if marks.any()}


def with_clean(runs: Sequence[Run]) -> list[Run]:
    """The runs with every benchmark twice: as published, and `NAME (clean)`, without defects.

    A benchmark in which nothing is wrong stays alone.
    """
    return [replace(run, parts=_both(run)) for run in runs]


def _both(run: Run) -> dict[str, Part]:
    both = [each for part in run.parts.values() for each in (part, _clean_part(part))]
    return {part.benchmark: part for part in both}


def _clean_part(part: Part) -> Part:
    found = find_defects(part.cases, part.benchmark)
    sound = ~np.logical_or.reduce([*found.values(), np.zeros(len(part.cases), dtype=bool)])
    pairs = np.repeat(sound, part.cases.image_counts * part.cases.caption_counts)
    if sound.all():
        return part
    return replace(
        part,
        benchmark=f"{part.benchmark} (clean)",
        cases=part.cases.keep(sound),
        scores=part.scores[pairs],
    )
