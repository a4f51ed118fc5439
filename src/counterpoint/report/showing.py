"""Examples as a page shows them."""

from __future__ import annotations

from dataclasses import dataclass

from counterpoint.report.thumbnails import Thumbnail


@dataclass(frozen=True, slots=True)
class Told:
    """A caption under its letter, and what it is of this case."""

    letter: str
    text: str
    role: str


@dataclass(frozen=True, slots=True)
class Shown:
    """One case: what there is to see, and for each model its outcome and its scores.

    `places` names the scores, each with its truth. `blind` are the baselines that are right.
    """

    id: str
    pictures: list[Thumbnail]
    captions: list[Told]
    more_captions: int
    places: list[tuple[str, bool]]
    models: list[tuple[str, str, list[str]]]
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
