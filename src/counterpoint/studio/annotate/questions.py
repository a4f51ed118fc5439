"""Cases as questions: what one screen shows, and which of its options are right."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from counterpoint._util.errors import CaseError
from counterpoint.cases import Case, ImageRef
from counterpoint.images import Picture
from counterpoint.studio.annotate.kinds import BEST, RANK, SAME, TO_TEXT, WHICH, Ask


class ShownImage(NamedTuple):
    """An image to show: a reference, and the folder that a relative path starts from."""

    ref: ImageRef
    root: str | None

    def picture(self) -> Picture:
        return Picture(self.ref, None if self.root is None else Path(self.root))

    def as_json(self) -> dict[str, Any]:
        return {"path": self.ref.path, "box": self.ref.box, "root": self.root}

    @classmethod
    def of(cls, values: dict[str, Any]) -> ShownImage:
        box = values["box"]
        return cls(ImageRef(values["path"], None if box is None else tuple(box)), values["root"])


@dataclass(frozen=True, slots=True)
class AnnotationQuestion:
    """One screen. `right` are the options that are true, as far as the source says.

    `context` is a description that the options were made from.
    """

    images: tuple[ShownImage, ...]
    captions: tuple[str, ...]
    right: tuple[int, ...]
    context: str = ""

    def options(self, ask: Ask) -> int:
        return len(self.images if ask.options == "images" else self.captions)

    def as_json(self) -> dict[str, Any]:
        images = [image.as_json() for image in self.images]
        options = {"images": images, "captions": list(self.captions), "right": list(self.right)}
        return {**options, "context": self.context} if self.context else options

    @classmethod
    def of(cls, values: dict[str, Any]) -> AnnotationQuestion:
        images = tuple(ShownImage.of(image) for image in values["images"])
        context = values.get("context", "")
        return cls(images, tuple(values["captions"]), tuple(values["right"]), context)


@dataclass(frozen=True, slots=True)
class JudgedCase:
    """What is judged: a case and the folders of its images. `rows` are those of a pairs file.

    Of a case made from pairs, `rows[n]` is the row that caption n came from, or -1.
    """

    case: Case
    roots: tuple[str | None, ...]
    rows: tuple[int, ...] = ()

    def shown(self, image: int) -> ShownImage:
        return ShownImage(self.case.images[image], self.roots[image])

    def as_json(self) -> dict[str, Any]:
        case = self.case
        images = [self.shown(number).as_json() for number in range(len(case.images))]
        return {
            "id": case.id,
            "images": images,
            "captions": list(case.captions),
            "truth": [list(line) for line in case.truth],
            "groups": list(case.groups),
            "cluster": case.cluster,
        }

    @classmethod
    def of(cls, values: dict[str, Any], origin: dict[str, Any]) -> JudgedCase:
        images = [ShownImage.of(image) for image in values["images"]]
        case = Case(
            values["id"],
            tuple(image.ref for image in images),
            tuple(values["captions"]),
            tuple(tuple(line) for line in values["truth"]),
            tuple(values["groups"]),
            values["cluster"],
        )
        return cls(case, tuple(image.root for image in images), tuple(origin.get("rows", ())))


class Placed(NamedTuple):
    """A question about a case: of its image, or its caption, number `place`."""

    place: int
    question: AnnotationQuestion


def questions_of(subject: JudgedCase, ask: Ask) -> Iterator[Placed]:
    """The questions that a case gives; CaseError says why it gives none."""
    case = subject.case
    if "\0" in case.id:
        raise CaseError("E-CASE-ID", "the id holds a NUL character, which no database keeps")
    if ask.compares:
        _refuse_number(len(case.captions), "text", ask)
        context = case.images[0].text or ""
        yield Placed(0, AnnotationQuestion((), case.captions, (), context))
        return
    if any(image.text is not None for image in case.images):
        raise CaseError("E-CASE-LAYOUT", "a text stands in the image's place")
    shown = tuple(subject.shown(number) for number in range(len(case.images)))
    for image in shown:
        _refuse_missing(image)
    if ask in (TO_TEXT, RANK):
        _refuse_number(len(case.captions), "caption", ask)
        for place, line in enumerate(case.truth):
            right = tuple(number for number, cell in enumerate(line) if cell)
            yield Placed(
                place, _asked(ask, AnnotationQuestion((shown[place],), case.captions, right))
            )
        return
    if ask is SAME:
        true = [image for image, line in zip(shown, case.truth, strict=True) if line[0]]
        _refuse_number(len(true), "image", ask)
        yield Placed(0, AnnotationQuestion(tuple(true), case.captions[:1], ()))
        return
    _refuse_number(len(shown), "image", ask)
    for place, caption in enumerate(case.captions[:1] if ask is WHICH else case.captions):
        right = tuple(number for number, line in enumerate(case.truth) if line[place])
        yield Placed(place, _asked(ask, AnnotationQuestion(shown, (caption,), right)))


def _refuse_missing(image: ShownImage) -> None:
    file = image.picture().file()
    if file is not None and not file.is_file():
        raise CaseError("E-IMAGE-MISSING", "an image is missing")


def _refuse_number(count: int, what: str, ask: Ask) -> None:
    if not ask.least <= count <= ask.most:
        wanted = str(ask.least) if ask.least == ask.most else f"{ask.least} to {ask.most}"
        raise CaseError("E-CASE-LAYOUT", f"not {wanted} {what}s")


def _asked(ask: Ask, question: AnnotationQuestion) -> AnnotationQuestion:
    """A choice has one right option; of a ranking and of the best image, several may be."""
    if ask not in (BEST, RANK) and len(question.right) != 1:
        raise CaseError("E-CASE-NO-TRUTH", "not one right answer")
    return question


def lasting(case: Case) -> Case:
    """With its cluster named, as the table would name it."""
    return replace(case, cluster=case.cluster or (case.images[0].path if case.images else ""))


def chance(seed: int, *parts: object) -> np.random.Generator:
    """Random numbers that depend only on these values."""
    digest = hashlib.sha256(repr((seed, *parts)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "big"))
