"""The kinds of campaign: what is asked of a case, the instructions, and what an answer means.

They are the three campaigns of BiVLC (Miranda et al. 2024, appendix I), the ranking of the
hard-positives paper (Kamath et al. 2024, section 4) and the comparison of two sets of negatives of
SugarCrepe (Hsieh et al. 2023, appendix E.2), with instructions in our own words, and a question of
ours about images and their re-renderings.

An answer is stored as a text. `2` is the option of that number, counted from 0 in the item's order
(not the order on the screen). `none` and `both` are answers. `1,1,2` is one rank per option, 1 the
best, without gaps. `skip` is no judgement: the item goes to another annotator.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from counterpoint._util.errors import CaseError, CounterpointError, NotFoundError
from counterpoint._util.registry import did_you_mean
from counterpoint.cases import Case, ImageRef
from counterpoint.images import Picture

Options = Literal["images", "captions"]
NONE: Final = "none"
BOTH: Final = "both"
ANY: Final = "any"
SKIP: Final = "skip"


class AnswerError(CounterpointError):
    """A form holds no answer to its question."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One sort of question, and its answers. `least` and `most` bound the number of options."""

    name: str
    question: str
    options: Options
    most: int
    instructions: Sequence[str]
    important: Sequence[str]
    extra: str = ""  # none or both
    extra_label: str = ""
    ranked: bool = False
    least: int = 2
    compares: str = ""  # of two texts without an image: in what one may be better

    def read(self, value: str, options: int) -> str:
        """An answer in its one form, or AnswerError."""
        if self.ranked:
            return _ranks(value, options)
        if value == self.extra and value:
            return value
        if value in map(str, range(options)):
            return value
        raise AnswerError("E-ANSWER-MISSING", "Choose one of the answers first.")

    def is_right(self, value: str, right: Sequence[int]) -> bool:
        """Whether an answer is the known one: the right option, or all right ones ranked first.

        With no right option, `none` (of renderings: `both`) is the right answer.
        """
        if not self.ranked:
            return value == (str(right[0]) if right else self.extra) if len(right) < 2 else False
        ranks = ranks_of(value)
        wrong = [rank for option, rank in enumerate(ranks) if option not in right]
        return bool(right) and max(ranks[i] for i in right) < min(wrong, default=len(ranks) + 1)

    def accepts(self, value: str, right: Sequence[int]) -> bool:
        """Whether an answer speaks for keeping the item in a filtered file.

        Of the best of some images, any will do: what counts is that there is one.
        """
        return value != NONE if self.extra == NONE else self.is_right(value, right)


def ranks_of(value: str) -> list[int]:
    return [int(rank) for rank in value.split(",")]


def _ranks(value: str, options: int) -> str:
    parts = value.split(",")
    known = {str(rank) for rank in range(1, options + 1)}
    if len(parts) != options or not known.issuperset(parts):
        raise AnswerError("E-ANSWER-MISSING", "Give every caption a rank first.")
    order = sorted({int(part) for part in parts})
    return ",".join(str(order.index(int(part)) + 1) for part in parts)


@dataclass(frozen=True, slots=True)
class CampaignKind:
    """A kind of campaign: its name, and the sorts of question that it asks of a case."""

    name: str
    title: str
    asks: tuple[Ask, ...]
    needs: str  # what a source must have

    @property
    def any_or_none(self) -> bool:
        """Agreement is first of all on whether there is an image at all, as in BiVLC."""
        return any(ask.extra == NONE for ask in self.asks)

    @property
    def compares(self) -> bool:
        """Two texts without an image are compared, and neither is right."""
        return any(ask.compares for ask in self.asks)


_TEXTS: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
ASKS: Final = {name: Ask(name, **entry) for name, entry in _TEXTS["asks"].items()}
BEST, WHICH, SAME = ASKS["best-image"], ASKS["which-image"], ASKS["renderings"]
TO_TEXT, RANK = ASKS["image-to-text"], ASKS["rank"]
KINDS: Final = {
    name: CampaignKind(
        name, entry["title"], tuple(ASKS[ask] for ask in entry["asks"]), entry["needs"]
    )
    for name, entry in _TEXTS["kinds"].items()
}


def find_kind(name: str) -> CampaignKind:
    if name not in KINDS:
        raise NotFoundError("E-CAMPAIGN-KIND", did_you_mean("kind of campaign", name, KINDS))
    return KINDS[name]


def any_or_none(value: str) -> str:
    """What BiVLC counts agreement on: some image, or none."""
    return NONE if value == NONE else ANY


# --- cases as questions: what one screen shows, and which of its options are right ------------


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


def questions_of(subject: JudgedCase, ask: Ask) -> Iterator[tuple[int, AnnotationQuestion]]:
    """The questions that a case gives, each with the number of its image or caption.

    CaseError says why it gives none.
    """
    case = subject.case
    if "\0" in case.id:
        raise CaseError("E-CASE-ID", "the id holds a NUL character, which no database keeps")
    if ask.compares:
        _refuse_number(len(case.captions), "text", ask)
        context = case.images[0].text or ""
        yield 0, AnnotationQuestion((), case.captions, (), context)
        return
    if any(image.text is not None for image in case.images):
        raise CaseError("E-CASE-LAYOUT", "a text stands in the image's place")
    shown = tuple(subject.shown(number) for number in range(len(case.images)))
    files = [image.picture().file() for image in shown]
    if not all(file is None or file.is_file() for file in files):
        raise CaseError("E-IMAGE-MISSING", "an image is missing")
    if ask in (TO_TEXT, RANK):
        _refuse_number(len(case.captions), "caption", ask)
        for place, line in enumerate(case.truth):
            right = tuple(number for number, cell in enumerate(line) if cell)
            yield place, _asked(ask, AnnotationQuestion((shown[place],), case.captions, right))
        return
    if ask is SAME:
        true = [image for image, line in zip(shown, case.truth, strict=True) if line[0]]
        _refuse_number(len(true), "image", ask)
        yield 0, AnnotationQuestion(tuple(true), case.captions[:1], ())
        return
    _refuse_number(len(shown), "image", ask)
    for place, caption in enumerate(case.captions[:1] if ask is WHICH else case.captions):
        right = tuple(number for number, line in enumerate(case.truth) if line[place])
        yield place, _asked(ask, AnnotationQuestion(shown, (caption,), right))


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
