"""What makes texts from captions, by name. Adding a method is a file and a line here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from counterpoint._util.progress import Progress
from counterpoint._util.registry import Registry
from counterpoint.generation.pairs import Kind, Type

if TYPE_CHECKING:
    from counterpoint.generation.language.tagging import Sentence
    from counterpoint.generation.language.wordnet import Vocabulary


class Draft(NamedTuple):
    """A text that a method has made; the checks have not seen it yet."""

    text: str
    type: Type
    subtype: str = ""


class Rejection(NamedTuple):
    """Why a method has made nothing where one might have expected a text; counted."""

    reason: str


# A rule tries several things with a caption (swap two nouns, swap two adjectives, ...), and for
# each of them there are several ways: the first that passes the checks is taken.
Ways = Iterable[Draft]
Make = Callable[["Sentence", "Vocabulary", Random], Iterable[Ways]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A method that needs nothing but the parsed caption, words and chance.

    `version` changes when the same caption and seed would give another text.
    """

    name: str
    kind: Kind
    version: str
    summary: str
    make: Make


class BatchMethod(Protocol):
    """A method that is asked for many captions at once, such as a language model."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> Kind: ...

    @property
    def version(self) -> str: ...

    @property
    def origin(self) -> str:
        """Where its texts come from: work begun with another origin is not gone on with."""

    def make(
        self, captions: Sequence[str], seeds: Sequence[int], progress: Progress
    ) -> list[list[Draft | Rejection]]:
        """What it makes of each caption, and why not more."""


_HOME: Final = "counterpoint.generation.rules"

RULES: Final = Registry(
    "rule",
    "counterpoint.rules",
    {
        "conjuncts": f"{_HOME}.reversal:CONJUNCTS",
        "converse": f"{_HOME}.reversal:CONVERSE",
        "crepe-negate": f"{_HOME}.negation:NEGATE",
        "crepe-replace": f"{_HOME}.replacement:CREPE",
        "crepe-swap": f"{_HOME}.swaps:CREPE",
        "hard-positives": f"{_HOME}.synonyms:PAPER",
        "negclip": f"{_HOME}.swaps:NEGCLIP",
        "shuffle": f"{_HOME}.shuffles:SHUFFLE",
        "svlc": f"{_HOME}.replacement:SVLC",
        "synonyms": f"{_HOME}.synonyms:LEXICON",
    },
)
