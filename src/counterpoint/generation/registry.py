"""What a method is, and the rules by name. A new rule needs one file and one line here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from counterpoint._util.registry import Registry
from counterpoint.generation.pairs import Kind, Type

if TYPE_CHECKING:
    from counterpoint.generation.language.lexicon import Vocabulary
    from counterpoint.generation.language.sentences import Sentence


class Draft(NamedTuple):
    """A text that a method made and that was not checked yet.

    `doubt` says why a positive may be false, if the method knows. A `common` draft is the edit of
    many captions: it is used only for a caption that gets no other text. `odd` says why a negative
    is hardly plausible; such a draft comes after all others of its kind of change, and is rejected
    unless texts are not ranked. `sentence`: what a language model answered ended as a sentence.
    """

    text: str
    type: Type
    subtype: str = ""
    doubt: str = ""
    common: bool = False
    odd: str = ""
    sentence: bool = False


class Rejection(NamedTuple):
    """Why a method made no text. Reasons are counted."""

    reason: str


# A rule makes several kinds of change (swap two nouns, swap two adjectives, ...). For each kind it
# gives several drafts; the first that passes the checks is taken.
Ways = Iterable[Draft]
Make = Callable[["Sentence", "Vocabulary", Random], Iterable[Ways]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A method that needs only the tagged caption, words and random numbers.

    `version` changes when the same caption and seed give another text.
    """

    name: str
    kind: Kind
    version: str
    summary: str
    make: Make


def rule(name: str, kind: Kind, version: str) -> Callable[[Make], Rule]:
    """The rule that a function is; its docstring is the summary."""
    return lambda make: Rule(name, kind, version, (make.__doc__ or "").strip(), make)


_HOME: Final = "counterpoint.generation.rules"

RULES: Final = Registry(
    "rule",
    "counterpoint.rules",
    {
        "add": f"{_HOME}.additions:add",
        "bind": f"{_HOME}.swaps:bind",
        "conjuncts": f"{_HOME}.reversal:conjuncts",
        "converse": f"{_HOME}.reversal:converse",
        "crepe-negate": f"{_HOME}.negation:crepe_negate",
        "crepe-replace": f"{_HOME}.replacement:crepe_replace",
        "crepe-swap": f"{_HOME}.swaps:crepe_swap",
        "denials": f"{_HOME}.negation:denials",
        "determiners": f"{_HOME}.synonyms:determiners",
        "framing": f"{_HOME}.framing:framing",
        "fronted": f"{_HOME}.reversal:fronted",
        "hard-positives": f"{_HOME}.hard_positives:hard_positives",
        "negclip": f"{_HOME}.swaps:negclip",
        "passive": f"{_HOME}.framing:passive",
        "relative": f"{_HOME}.framing:relative",
        "shuffle": f"{_HOME}.swaps:shuffle",
        "svlc": f"{_HOME}.replacement:svlc",
        "synonyms": f"{_HOME}.synonyms:synonyms",
    },
)


class GraphMethod(NamedTuple):
    """One of ARO's templates."""

    kinds: tuple[Kind, ...]
    version: str
    summary: str


GRAPH_METHODS: Final = {
    "vg-attribution": GraphMethod(
        ("negative", "positive"), "1", '"the A1 O1 and the A2 O2", attributes swapped or reversed'
    ),
    "vg-relation": GraphMethod(("negative",), "1", '"the X is REL the Y", the two swapped'),
}
