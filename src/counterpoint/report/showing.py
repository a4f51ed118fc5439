"""Examples as a page shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from counterpoint.cases import PROMPTS
from counterpoint.report.gathering import Scored
from counterpoint.report.thumbnails import Thumbnail
from counterpoint.wording import is_baseline

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Told:
    """A caption under its letter, and what it is of this case.

    `pieces` make up its text, each with whether its words differ from those of the original.
    """

    letter: str
    pieces: list[tuple[str, bool]]
    role: str


@dataclass(frozen=True, slots=True)
class Scores:
    """The outcome and the scores of a model."""

    model: str
    outcome: str
    values: list[str]


@dataclass(frozen=True, slots=True)
class Shown:
    """One case: what there is to see, and for each model its outcome and its scores.

    `pictures` have a text for each image that says what is true of it. `places` names the scores,
    each with its truth. `blind` are the baselines that are right.
    """

    id: str
    pictures: list[tuple[Thumbnail, str]]
    captions: list[Told]
    more_captions: int
    places: list[tuple[str, bool]]
    models: list[Scores]
    baselines: list[Scores]
    blind: list[str]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model puts first for an image of a gallery."""

    model: str
    outcome: str
    text: str
    score: str


@dataclass(frozen=True, slots=True)
class Asked:
    """One image of a gallery, what is true of it, and what each model answers."""

    id: str
    picture: Thumbnail
    captions: list[str]
    answers: list[Answer]
    baselines: list[Answer]
    blind: list[str]


@dataclass(frozen=True, slots=True)
class Example:
    kind: str
    title: str
    case: Shown | Asked

    @property
    def is_query(self) -> bool:
        return isinstance(self.case, Asked)


@dataclass(frozen=True, slots=True)
class GroupExamples:
    group: str
    cases: int
    examples: list[Example]
    unit: str = "cases"


def apart(told: Sequence[T], runs: Sequence[Scored]) -> tuple[list[T], list[T]]:
    """What is told of models, and what of baselines; baselines alone are told as models are."""
    kinds = [is_baseline(run.run.model) for run in runs]
    if all(kinds):
        return list(told), []
    pairs = list(zip(told, kinds, strict=True))
    return [one for one, kind in pairs if not kind], [one for one, kind in pairs if kind]


def caption_text(caption: str) -> str:
    """A class stands for its prompts: the first is shown."""
    return caption.split(PROMPTS)[0]
