"""Scores of captions and of what was made from them, as the page shows them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from counterpoint.errors import CounterpointError
from counterpoint.studio.browse.outcomes import outcome_of_one
from counterpoint.studio.browse.views import Cell, digits_for, shades_of, written
from counterpoint.studio.trying.models import Models
from counterpoint.studio.trying.texts import Family, Made
from counterpoint.studio.trying.uploads import AnyPicture


@dataclass(frozen=True, slots=True)
class Line:
    """A text, and its score by each model that could be asked."""

    made: Made | None  # None for the caption itself
    text: str
    cells: list[Cell]


@dataclass(frozen=True, slots=True)
class Block:
    """A caption with its texts; `outcomes` by model, empty where there is no negative."""

    caption: str
    lines: list[Line]
    outcomes: list[str]


@dataclass(frozen=True, slots=True)
class Tried:
    """What the page shows: the models that answered, and why others did not."""

    models: list[str]
    blocks: list[Block]
    failures: list[tuple[str, str]]


def tried(models: Models, ids: list[str], picture: AnyPicture, found: list[Family]) -> Tried:
    """Every model's scores of every caption and text."""
    texts = [text for family in found for text in family.texts]
    scores: dict[str, np.ndarray] = {}
    failures = []
    for id in ids:
        try:
            scores[id] = models.scores(id, picture, texts)
        except CounterpointError as error:
            failures.append((id, str(error)))
    columns = {id: _cells(values) for id, values in scores.items()}
    blocks, start = [], 0
    for family in found:
        blocks.append(_block(family, columns, scores, start))
        start += len(family.texts)
    return Tried(list(scores), blocks, failures)


def _cells(scores: np.ndarray) -> list[Cell]:
    if not len(scores):
        return []
    shades, digits = shades_of(scores), digits_for(scores)
    return [
        Cell(written(score, digits), int(shade), False)
        for score, shade in zip(scores.tolist(), shades, strict=True)
    ]


def _block(
    family: Family, columns: dict[str, list[Cell]], scores: dict[str, np.ndarray], start: int
) -> Block:
    rows = [None, *family.made]
    lines = [
        Line(made, text, [cells[start + number] for cells in columns.values()])
        for number, (made, text) in enumerate(zip(rows, family.texts, strict=True))
    ]
    truth = np.array([made is None or made.kind == "positive" for made in rows])
    mine = slice(start, start + len(rows))
    outcomes = [outcome_of_one(values[mine], truth) for values in scores.values()]
    return Block(family.caption, lines, outcomes)
