"""The cases behind the numbers: pictures, captions, scores, and what a blind baseline would say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from counterpoint.cases import Case
from counterpoint.progress import Progress, Quiet
from counterpoint.report.choosing import Choice, Outcomes, blind_right, outcomes, telling
from counterpoint.report.gallery_examples import gallery_examples
from counterpoint.report.gathering import Material, Scored
from counterpoint.report.numbers import competing
from counterpoint.report.sharing import without_folders
from counterpoint.report.showing import (
    Example,
    GroupExamples,
    Scores,
    Shown,
    Told,
    apart,
    caption_text,
)
from counterpoint.report.thumbnails import Album
from counterpoint.report.wording import score
from counterpoint.statistics import ALL
from counterpoint.wording import changed_words

COUNT: Final = 2  # examples of a kind and group
_GROUPS: Final = 12  # of a benchmark
_CAPTIONS: Final = 8  # of a case
_IMAGES: Final = 4

Chooser = Callable[[Outcomes, int], tuple[list[Choice], list[str]]]


@dataclass(frozen=True, slots=True)
class BenchmarkExamples:
    benchmark: str
    groups: list[GroupExamples]
    said: list[str]  # what there is none of, and why


def examples(
    material: Material,
    album: Album,
    *,
    count: int = COUNT,
    chooser: Chooser | None = None,
    progress: Progress | None = None,
) -> list[BenchmarkExamples]:
    """Of every benchmark and group; `chooser` says which kinds, else `telling` does."""
    advance = (progress or Quiet()).start("choosing examples", len(material.benchmarks))
    made = []
    for benchmark, several in material.benchmarks.items() if count else ():
        groups, said = _of_benchmark(several, album, count, chooser or _telling)
        made.append(BenchmarkExamples(benchmark, groups, said))
        advance(1)
    return made


def _telling(found: Outcomes, count: int) -> tuple[list[Choice], list[str]]:
    rivals = competing(found.runs)
    judged = [number for number, run in enumerate(found.runs) if run.label in rivals]
    return telling(found, judged, count)


def _of_benchmark(
    several: list[Scored], album: Album, count: int, chooser: Chooser
) -> tuple[list[GroupExamples], list[str]]:
    groups, said = gallery_examples(several, album, count)
    found = outcomes(several)
    if found is None:
        return groups, said
    choices, missing = chooser(found, count)
    blind = blind_right(found.cases, several[0].protocol, found.metric)
    labels = found.cases.frame["groups"].list.first().fill_null(ALL)
    sizes = labels.value_counts()
    large = dict(zip(*(sizes[name].to_list() for name in ("groups", "count")), strict=True))
    names = sorted({group for choice in choices for group in choice.found})
    shown = sorted(sorted(names, key=lambda name: -large[name])[:_GROUPS])
    for group in shown:
        mine = [
            Example(choice.kind, choice.title, _shown(found, case, album, blind))
            for choice in choices
            for case in choice.found.get(group, [])
        ]
        groups.append(GroupExamples(group, large[group], mine))
    if len(names) > len(shown):
        missing = [*missing, f"{len(names) - len(shown)} smaller groups are not shown."]
    return groups, [*said, *missing]


def _shown(found: Outcomes, number: int, album: Album, blind: dict[str, np.ndarray]) -> Shown:
    case = found.cases.case(number)
    images = range(min(len(case.images), _IMAGES))
    captions = range(min(len(case.captions), _CAPTIONS))
    scores = [
        Scores(
            run.label, found.said(number, place), _scores(found, number, place, images, captions)
        )
        for place, run in enumerate(found.runs)
    ]
    models, baselines = apart(scores, found.runs)
    return Shown(
        without_folders(case.id),
        [(album.picture(case.images[i], found.cases.root), _alternative(case, i)) for i in images],
        [Told(_letter(j), _pieces(case, j), _role(case, j)) for j in captions],
        len(case.captions) - len(captions),
        [_place(case, i, j) for i in images for j in captions],
        models,
        baselines,
        [name for name, right in blind.items() if right[number]],
    )


def _original(case: Case) -> int:
    """The first caption that is true of the first image."""
    return next((j for j, cell in enumerate(case.truth[0]) if cell), 0)


def _pieces(case: Case, caption: int) -> list[tuple[str, bool]]:
    original, text = (caption_text(case.captions[j]) for j in (_original(case), caption))
    return changed_words(original, text)


def _alternative(case: Case, image: int) -> str:
    """What to read out for an image: the first caption that is true of it."""
    true = [
        caption_text(c) for c, cell in zip(case.captions, case.truth[image], strict=True) if cell
    ]
    return f"Image: {true[0]}" if true else "An image of which no caption is true"


def _letter(number: int) -> str:
    return chr(ord("A") + number)


def _place(case: Case, image: int, caption: int) -> tuple[str, bool]:
    """What a score is of, and whether the caption is true of the image."""
    name = _letter(caption) if len(case.images) == 1 else f"{image + 1}{_letter(caption)}"
    return name, case.truth[image][caption]


def _role(case: Case, caption: int) -> str:
    """Original, positive or negative; with several images, of which it is true."""
    truth = [line[caption] for line in case.truth]
    if len(case.images) > 1:
        true = [str(i + 1) for i, cell in enumerate(truth) if cell]
        return f"true of {', '.join(true)}" if true else "negative"
    if not truth[0]:
        return "negative"
    return "positive" if any(case.truth[0][:caption]) else "original"


def _scores(
    found: Outcomes, number: int, place: int, images: Sequence[int], captions: Sequence[int]
) -> list[str]:
    run, row = found.runs[place], int(found.rows[number, place])
    if row < 0:
        return ["" for _ in images for _ in captions]
    start = int(run.part.cases.pair_offsets[row]) if row else 0
    width = len(found.cases.frame["captions"][number])
    return [score(float(run.part.scores[start + i * width + j])) for i in images for j in captions]
