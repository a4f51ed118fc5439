"""Examples as a page shows them, with small copies of their images."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from PIL import Image

from counterpoint._util.errors import ImageError
from counterpoint.cases import PROMPTS, ImageRef
from counterpoint.images import Picture
from counterpoint.metrics import is_baseline
from counterpoint.reports.gathering import ScoredPart, without_folders

# --- small copies of images ---------------------------------------------------------------------


_SIDE: Final = 288  # pixels of the longer side
SMALL: Final = 128  # pixels up to which a picture is shown larger, with its pixels sharp
BUDGET: Final = 6_000_000  # bytes of all pictures of a page


@dataclass(frozen=True, slots=True)
class Thumbnail:
    """A picture as a data address; else a text in its place, or why there is none."""

    uri: str = ""
    width: int = 0
    height: int = 0
    text: str = ""
    why: str = ""

    @property
    def small(self) -> bool:
        return max(self.width, self.height) <= SMALL


@dataclass(slots=True)
class Album:
    """The pictures of one page. Each is made once; `lost` counts those that could not be read."""

    left: int = BUDGET
    lost: int = 0
    full: int = 0
    _made: dict[tuple[ImageRef, str], Thumbnail] = field(default_factory=dict)

    def picture(self, ref: ImageRef, root: Path | None) -> Thumbnail:
        if ref.text is not None:
            return Thumbnail(text=ref.text)
        key = (ref, str(root))
        if key not in self._made:
            self._made[key] = self._make(ref, root)
        elif self._made[key].uri:
            self.left -= len(self._made[key].uri)  # it is in the page once more
        return self._made[key]

    def _make(self, ref: ImageRef, root: Path | None) -> Thumbnail:
        if self.left <= 0:
            self.full += 1
            return Thumbnail(why="left out: the page has no room for more pictures")
        try:
            image = Picture(ref, root).open()
        except ImageError as error:
            self.lost += 1
            return Thumbnail(why=without_folders(str(error)))
        image.thumbnail((_SIDE, _SIDE), Image.Resampling.LANCZOS)
        uri = _encoded(image)
        self.left -= len(uri)
        return Thumbnail(uri, *image.size)


def _encoded(image: Image.Image) -> str:
    """As JPEG or PNG, whichever is smaller: photographs or drawings. No metadata goes along."""
    kinds: list[tuple[str, dict[str, Any]]] = [("png", {"optimize": True})]
    if max(image.size) > SMALL:  # a small one is drawn larger, and would show what JPEG loses
        kinds.append(("jpeg", {"quality": 80}))
    found = []
    for kind, options in kinds:
        data = io.BytesIO()
        image.save(data, kind, **options)
        found.append((len(data.getvalue()), kind, data.getvalue()))
    _, kind, content = min(found)
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


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
class ScoresOfModel:
    """The outcome and the scores of a model."""

    model: str
    outcome: str
    values: list[str]


@dataclass(frozen=True, slots=True)
class CaseExample:
    """One case: what there is to see, and for each model its outcome and its scores.

    `pictures` have a text for each image that says what is true of it. `places` names the scores,
    each with its truth. `blind` are the baselines that are right.
    """

    id: str
    pictures: list[tuple[Thumbnail, str]]
    captions: list[Told]
    more_captions: int
    places: list[tuple[str, bool]]
    models: list[ScoresOfModel]
    baselines: list[ScoresOfModel]
    blind: list[str]


@dataclass(frozen=True, slots=True)
class GalleryAnswer:
    """What a model puts first for an image of a gallery."""

    model: str
    outcome: str
    text: str
    score: str


@dataclass(frozen=True, slots=True)
class QueryExample:
    """One image of a gallery, what is true of it, and what each model answers."""

    id: str
    picture: Thumbnail
    captions: list[str]
    answers: list[GalleryAnswer]
    baselines: list[GalleryAnswer]
    blind: list[str]


@dataclass(frozen=True, slots=True)
class ReportExample:
    kind: str
    title: str
    case: CaseExample | QueryExample

    @property
    def is_query(self) -> bool:
        return isinstance(self.case, QueryExample)


@dataclass(frozen=True, slots=True)
class GroupExamples:
    group: str
    cases: int
    examples: list[ReportExample]
    unit: str = "cases"


def apart(told: Sequence[T], runs: Sequence[ScoredPart]) -> tuple[list[T], list[T]]:
    """What is told of models, and what of baselines; baselines alone are told as models are."""
    kinds = [is_baseline(run.run.model) for run in runs]
    if all(kinds):
        return list(told), []
    pairs = list(zip(told, kinds, strict=True))
    return [one for one, kind in pairs if not kind], [one for one, kind in pairs if kind]


def caption_text(caption: str) -> str:
    """A class stands for its prompts: the first is shown."""
    return caption.split(PROMPTS)[0]
