"""What the templates show: cases, and tables of numbers.

A case has letters for captions, numbers for images and colours for scores. Every number of a table
links to its cases.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from counterpoint.cases import PROMPTS, Case, Cases, ImageRef
from counterpoint.images import scheme_of
from counterpoint.metrics import (
    ALL,
    METRICS,
    PART_MARK,
    PART_NOTE,
    TIES_MARK,
    depends_on_ties,
    heading,
    interval_text,
    intervals_note,
)
from counterpoint.runs import Row, part_size, percent
from counterpoint.studio.browse.library import Index, Library, Listed
from counterpoint.studio.security import StudioError
from counterpoint.studio.web import url

SHADES: Final = 10  # of the heat map: shade 0 is the case's lowest score, the last its highest
_FEW: Final = 6  # captions and images of a case that the list shows
_BEST: Final = 10  # captions of a gallery's image


# --- scores as a heat map -----------------------------------------------------------------------


class HeatCell(NamedTuple):
    """A score as the heat map shows it."""

    text: str
    shade: int
    is_true: bool


def heat(scores: np.ndarray, truth: np.ndarray, shades: np.ndarray | None = None) -> list[HeatCell]:
    """Flat scores, coloured between the lowest and the highest of them."""
    digits = digits_for(scores)
    shades = shades_of(scores) if shades is None else shades
    return [
        HeatCell(f"{score:.{digits}f}".replace("-", "−"), int(shade), bool(true))
        for score, shade, true in zip(scores.tolist(), shades, truth, strict=True)
    ]


def shades_of(scores: np.ndarray) -> np.ndarray:
    low, high = float(scores.min()), float(scores.max())
    if high == low:
        return np.full(scores.shape, SHADES // 2)
    return np.round((scores - low) / (high - low) * SHADES).astype(int)


def digits_for(scores: np.ndarray) -> int:
    """Enough digits to tell the scores of one case apart, but not endlessly many."""
    found = np.unique(scores.astype(np.float64))
    if (found == found.round()).all():
        return 0
    for digits in (2, 3, 4, 5):
        if len(np.unique(found.round(digits))) == len(found):
            return digits
    return 6


def cells_of(index: Index, row: int) -> list[list[HeatCell]]:
    """The scores of a case, a line per caption and a cell per image, as every page shows them."""
    images, captions = index.shape(row)
    truth = np.zeros(images * captions, dtype=bool)
    truth[index.part.cases.frame["truth"][row].to_numpy()] = True
    cells = heat(index.scores(row), truth)
    return [cells[number::captions] for number in range(captions)]


# --- a case --------------------------------------------------------------------------------------


class ImageView(NamedTuple):
    """An image, or the text that stands in its place. The address names the case, not the path."""

    number: int
    address: str
    text: str | None
    alt: str
    drawn: bool  # few pixels, which are shown as they are


class CaptionView(NamedTuple):
    letter: str
    text: str
    kind: str  # original, positive or negative; of several images "true of image 1"
    is_true: bool


@dataclass(frozen=True, slots=True)
class CaseView:
    """A case as the list shows it, with the scores of the run that is looked at."""

    row: int
    id: str
    outcome: str
    groups: tuple[str, ...]
    images: list[ImageView]
    captions: list[CaptionView]
    cells: list[list[HeatCell]]  # for each caption shown, its scores by image
    hidden_images: int
    hidden_captions: int


def case_view(run: Listed, index: Index, row: int) -> CaseView:
    """A case for the list; of a large one the beginning."""
    start = _head(index.part.cases, row)
    lines = [] if index.is_large(row) else cells_of(index, row)[:_FEW]
    images, captions = index.shape(row)
    return CaseView(
        row,
        index.part.cases.ids[row],
        str(index.outcomes[row]),
        tuple(start.groups),
        image_views(run, index, row, start),
        caption_views(start),
        [line[: len(start.images)] for line in lines],
        images - len(start.images),
        captions - len(start.captions),
    )


def _head(cases: Cases, row: int) -> Case:
    """The case, or its first few images and captions."""
    values = cases.frame[row]
    k, m = len(values["images"][0]), len(values["captions"][0])
    if k <= _FEW and m <= _FEW:
        return cases.case(row)
    few, columns = min(k, _FEW), min(m, _FEW)
    true = set(values["truth"][0].to_list())
    return Case(
        values["id"][0],
        Cases(values.with_columns(values["images"].list.head(few)), cases.root).case(0).images,
        tuple(values["captions"].list.head(columns)[0]),
        tuple(tuple(i * m + j in true for j in range(columns)) for i in range(few)),
        tuple(values["groups"][0]),
        values["cluster"][0],
    )


def image_views(run: Listed, index: Index, row: int, case: Case) -> list[ImageView]:
    return [image_view(run, index, row, i, image) for i, image in enumerate(case.images)]


def image_view(run: Listed, index: Index, row: int, number: int, image: ImageRef) -> ImageView:
    """An image by its number from 0."""
    place = f"/browse/picture/{run.key}/{row}/{number}"
    return ImageView(
        number + 1,
        url(place, benchmark=index.part.benchmark),
        image.text,
        f"Image {number + 1} of case {index.part.cases.ids[row]}",
        scheme_of(image.path).drawn,
    )


def caption_views(case: Case) -> list[CaptionView]:
    views: list[CaptionView] = []
    for number, caption in enumerate(case.captions):
        true = [str(i + 1) for i, line in enumerate(case.truth) if line[number]]
        kind = "negative"
        if true and len(case.images) > 1:
            kind = f"true of {' and '.join(true)}"
        elif true:
            kind = "positive" if any(view.is_true for view in views) else "original"
        views.append(CaptionView(letter(number), spoken(caption), kind, bool(true)))
    return views


def spoken(caption: str) -> str:
    """A caption that stands for several prompts shows them all."""
    return caption.replace(PROMPTS, " · ")


def letter(number: int) -> str:
    """A, B ... Z, then A2, B2 ..."""
    turn, place = divmod(number, 26)
    return chr(ord("A") + place) + (str(turn + 1) if turn else "")


class Query(NamedTuple):
    """One image of a gallery: the captions that a model likes best, and its true ones."""

    number: int
    total: int
    image: ImageView
    answers: list[tuple[int, str, HeatCell]]  # the place, from 1


def gallery_query(run: Listed, index: Index, row: int, number: int) -> Query:
    """An image of a gallery, by its number from 0."""
    images, captions = index.shape(row)
    scores = index.scores(row).reshape(images, captions)[number]
    values = index.part.cases.frame[row]
    cells = values["truth"][0].to_numpy()
    true = np.sort(cells[cells // captions == number] % captions)
    order = np.argsort(-scores, kind="stable")
    places = np.empty(captions, dtype=np.int64)
    places[order] = np.arange(captions)
    shown = sorted({*order[:_BEST].tolist(), *true.tolist()}, key=lambda c: int(places[c]))
    scored = heat(scores[shown], np.isin(shown, true), shades_of(scores)[shown])
    texts = values["captions"][0]
    answers = [
        (int(places[c]) + 1, spoken(texts[c]), cell) for c, cell in zip(shown, scored, strict=True)
    ]
    reference = ImageRef(values["images"][0][number]["path"])
    return Query(number, images, image_view(run, index, row, number, reference), answers)


# --- numbers -------------------------------------------------------------------------------------


class LinkedNumber(NamedTuple):
    """A value with its interval, in per cent, and where its cases are."""

    value: str
    interval: str
    address: str


@dataclass(frozen=True, slots=True)
class RunLine:
    """One run's numbers, or why it has none. `part` names the cases that they are made from,

    if these are not all: those without positives have a line of their own.
    """

    run: Listed
    address: str
    cases: str
    numbers: dict[str, LinkedNumber]
    part: str = ""
    failure: str = ""


@dataclass(frozen=True, slots=True)
class NumbersTable:
    benchmark: str
    headings: dict[str, str]  # by metric
    lines: list[RunLine]
    chance: dict[str, str]
    ties: bool  # whether some number depends on them
    parts: bool  # whether some run is not over the whole benchmark

    @property
    def note(self) -> str:
        part = f" {PART_MARK} {PART_NOTE}" if self.parts else ""
        return f"{intervals_note(self.headings)}{part}"


def numbers_table(library: Library, benchmark: str) -> NumbersTable:
    """Every run's main numbers; a run that cannot be read says why."""
    lines: list[RunLine] = []
    found: list[Row] = []
    parts = False
    for run in library.having(benchmark):
        try:
            rows = [row for row in library.numbers(run, benchmark) if METRICS[row.metric].main]
        except StudioError as error:
            address = url("/browse", run=run.key, benchmark=benchmark)
            lines.append(RunLine(run, address, f"{run.cases(benchmark):,}", {}, "", str(error)))
            continue
        size = part_size(library.index(run, benchmark).part, run.manifest.get("options", {}))
        parts |= bool(size)
        found += rows
        for group in dict.fromkeys(row.group for row in rows):
            lines.append(_line(run, group, [row for row in rows if row.group == group], size))
    names = {row.metric for row in found}
    headings = {name: heading(name) for name in METRICS if name in names}
    chance = {r.metric: percent(r.chance) for r in found if r.chance and r.group == ALL}
    ties = any(map(depends_on_ties, found))
    return NumbersTable(benchmark, headings, lines, chance, ties, parts)


def _line(run: Listed, part: str, rows: list[Row], size: str) -> RunLine:
    group = "" if part == ALL else part
    place = {"run": run.key, "benchmark": rows[0].benchmark, "group": group}
    numbers = {
        row.metric: LinkedNumber(
            f"{percent(row.value)}{TIES_MARK if depends_on_ties(row) else ''}",
            interval_text(row.value, row.ci_low, row.ci_high, percent),
            # Of a gallery, which is one case with many queries, this is the case.
            url("/browse", **place, metric=row.metric),
        )
        for row in rows
    }
    cases = f"{max(row.n for row in rows):,}" if group or not size else size
    mark = PART_MARK if size else ""
    return RunLine(run, url("/browse", **place), f"{cases}{mark}", numbers, group)
