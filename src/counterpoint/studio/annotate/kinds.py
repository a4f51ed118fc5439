"""The kinds of campaign: what is asked, the instructions, and what an answer means.

They are the three campaigns of BiVLC (Miranda et al. 2024, appendix I), the ranking of the
hard-positives paper (Kamath et al. 2024, section 4) and the comparison of two sets of negatives of
SugarCrepe (Hsieh et al. 2023, appendix E.2), with instructions in our own words, and a question of
ours about images and their re-renderings.

An answer is stored as a text. `2` is the option of that number, counted from 0 in the item's order
(not the order on the screen). `none` and `both` are answers. `1,1,2` is one rank per option, 1 the
best, without gaps. `skip` is no judgement: the item goes to another annotator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from counterpoint._util.errors import CounterpointError, NotFoundError
from counterpoint._util.registry import did_you_mean

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
    instructions: tuple[str, ...]
    important: tuple[str, ...]
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


_BLEMISHES: Final = "Do not mind blemishes such as odd faces or hands: what is shown counts."

BEST: Final = Ask(
    "best-image",
    "Which image shows what the description says?",
    "images",
    4,
    (
        "You see a description and up to four images that were made from it.",
        "Choose one image that shows what the description says. If several do, choose any one "
        "of them.",
        "If no image does, choose “None of them”.",
    ),
    ("Everything that the description says must be in the image.", _BLEMISHES),
    NONE,
    "None of them",
    least=1,
)
WHICH: Final = Ask(
    "which-image",
    "Which image fits the description better?",
    "images",
    2,
    (
        "You see a description and two images.",
        "Choose the image that fits the description better.",
        "If both fit it equally well, choose “Both equally”.",
    ),
    (_BLEMISHES,),
    BOTH,
    "Both equally",
)
SAME: Final = Ask(
    "renderings",
    "Does the description fit both images equally well?",
    "images",
    2,
    (
        "You see a description and two images. One was changed, or is of another moment.",
        "If the description is true of both images, choose “Both equally”.",
        "If it is true of one of them only, or clearly fits one better, choose that one.",
    ),
    (
        "Only what the description says counts: not which image is nicer, sharper or brighter.",
        "If it fits neither image, choose “Both equally” and flag the item.",
    ),
    BOTH,
    "Both equally",
)
TO_TEXT: Final = Ask(
    "image-to-text",
    "Which description fits the image best?",
    "captions",
    2,
    (
        "You see an image and two descriptions.",
        "Choose the description that fits the image best.",
    ),
    ("Mind the order of the words: often only that is different.",),
)
TO_IMAGE: Final = Ask(
    "text-to-image",
    "Which image fits the description best?",
    "images",
    2,
    (
        "You see a description and two images.",
        "Choose the image that fits the description best.",
    ),
    (_BLEMISHES,),
)
RANK: Final = Ask(
    "rank",
    "How well does each description fit the image?",
    "captions",
    6,
    (
        "You see an image and some descriptions.",
        "Give each description a rank: 1 to the one that fits best, 2 to the next, and so on.",
        "Descriptions that fit equally well get the same rank. All may have the same.",
    ),
    ("Judge only what is said of the image, not how well it is said.",),
    ranked=True,
)
_TWO_TEXTS: Final = "You see two sentences that were made from one description of a photograph."
SENSE: Final = Ask(
    "more-sense",
    "Which sentence makes more sense?",
    "captions",
    2,
    (
        _TWO_TEXTS,
        "Choose the one that describes the more plausible scene.",
        "If both are equally plausible, choose “Both equally”.",
    ),
    ("Do not mind grammar here, and not whether the sentence fits the description.",),
    BOTH,
    "Both equally",
    compares="commonsense",
)
GRAMMAR: Final = Ask(
    "better-grammar",
    "Which sentence has the better grammar?",
    "captions",
    2,
    (
        _TWO_TEXTS,
        "Choose the one that is better English.",
        "If both are equally good, choose “Both equally”.",
    ),
    ("Do not mind here whether what is said makes sense.",),
    BOTH,
    "Both equally",
    compares="grammar",
)
ASKS: Final = {
    ask.name: ask for ask in (BEST, WHICH, SAME, TO_TEXT, TO_IMAGE, RANK, SENSE, GRAMMAR)
}


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


KINDS: Final = {
    kind.name: kind
    for kind in (
        CampaignKind("best-image", "Best image, or none", (BEST,), "images made for the texts"),
        CampaignKind("which-image", "Which image, or both", (WHICH,), "two images for a caption"),
        CampaignKind(
            "renderings", "Image and re-rendering", (SAME,), "two images that a caption is true of"
        ),
        CampaignKind("image-to-text", "Image to text", (TO_TEXT,), "two captions for an image"),
        CampaignKind("text-to-image", "Text to image", (TO_IMAGE,), "two images for a caption"),
        CampaignKind(
            "both-ways", "Both directions", (TO_TEXT, TO_IMAGE), "two images and two captions"
        ),
        CampaignKind("rank", "Rank the captions", (RANK,), "two to six captions for an image"),
        CampaignKind(
            "compare-texts",
            "Compare two texts",
            (SENSE, GRAMMAR),
            "two pairs files with negatives of the same captions",
        ),
    )
}


def find_kind(name: str) -> CampaignKind:
    if name not in KINDS:
        raise NotFoundError("E-CAMPAIGN-KIND", did_you_mean("kind of campaign", name, KINDS))
    return KINDS[name]


def any_or_none(value: str) -> str:
    """What BiVLC counts agreement on: some image, or none."""
    return NONE if value == NONE else ANY
