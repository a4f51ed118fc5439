"""All checks of a text that was made from a caption, in order.

Each check is a pure function of the two texts and of what the pair claims to be. It never sees how
the text was made (by rules, a language model, a file), so no check depends on the code that it
checks.

| check         | rejects |
|---------------|---------|
| `changed`     | the caption again |
| `duplicate`   | a text that this caption already has |
| `minimal`     | a larger change than a text of its type may make |
| `whole-words` | a word that was cut into ("covecrimson") |
| `articles`    | a wrong a/an, a doubled word, a lost blank that the caption had not |
| `format`      | another case, final mark or blanks than the caption's |
| `meaning`     | a negative that may be true, a positive that may be false |
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from counterpoint.cases import normal
from counterpoint.generation.checks.change import TextChange, changed, duplicate, minimal
from counterpoint.generation.checks.meaning import disguised_negative, disguised_positive
from counterpoint.generation.checks.slots import Thesaurus, doubt
from counterpoint.generation.checks.surface import articles, like, looks_alike, uniform, whole_words
from counterpoint.generation.pairs import Kind, Type

__all__ = [
    "CHECKS",
    "CheckResult",
    "Claim",
    "TextChange",
    "check",
    "like",
    "normal",
    "reasons",
    "uniform",
]


Normal = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Claim:
    """What a pair claims to be, and what else is known about its caption.

    `others` are other true captions of the same image, `seen` the texts that this caption has
    already, both as `normal` gives them; `thesaurus` is a second opinion on words, such as WordNet.
    """

    kind: Kind
    type: Type
    others: Collection[Normal] = ()
    seen: Collection[Normal] = ()
    thesaurus: Thesaurus | None = None


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The checks that were passed, in order, and the first that was not: `NAME: REASON`.

    `doubt` says why a positive that passed them all may still be false: `narrower` (crimson for
    red), or what the lexicon says of the new word.
    """

    passed: tuple[str, ...]
    rejected: str
    doubt: str = ""


def _meaning(change: TextChange, claim: Claim) -> str:
    if claim.kind == "positive":
        return disguised_negative(change)
    return disguised_positive(change, claim.type, claim.others, claim.thesaurus)


# The cheapest first; a reason is one of a few fixed texts, so that rejections can be counted.
CHECKS: Final[dict[str, Callable[[TextChange, Claim], str]]] = {
    "changed": lambda change, claim: changed(change),
    "duplicate": lambda change, claim: duplicate(change, claim.seen),
    "minimal": lambda change, claim: minimal(change, claim.type),
    "whole-words": lambda change, claim: whole_words(change),
    "articles": lambda change, claim: articles(change, claim.type),
    "format": lambda change, claim: looks_alike(change),
    "meaning": _meaning,
}
_ALL: Final = tuple(CHECKS)


def check(
    caption: str,
    text: str,
    kind: Kind,
    type: Type,
    others: Collection[Normal] = (),
    seen: Collection[Normal] = (),
    thesaurus: Thesaurus | None = None,
) -> CheckResult:
    """Run the checks on a text until one fails. See `Claim`."""
    change, claim = TextChange(caption, text), Claim(kind, type, others, seen, thesaurus)
    for number, (name, find_fault) in enumerate(CHECKS.items()):
        fault = find_fault(change, claim)
        if fault:
            return CheckResult(_ALL[:number], f"{name}: {fault}")
    return CheckResult(_ALL, "", doubt(change) if kind == "positive" else "")


def reasons(caption: str, text: str, claim: Claim) -> dict[str, str]:
    """Every check that a text fails, with the reason; to count what is wrong with a file."""
    change = TextChange(caption, text)
    faults = {name: find_fault(change, claim) for name, find_fault in CHECKS.items()}
    return {name: fault for name, fault in faults.items() if fault}
