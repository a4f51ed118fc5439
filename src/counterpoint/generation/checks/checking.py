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

from collections.abc import Callable, Collection, Iterable
from itertools import pairwise, product
from typing import Final, NamedTuple

from counterpoint.cases import normal
from counterpoint.generation.checks.change import (
    Claim,
    Part,
    TextChange,
    articles,
    changed,
    duplicate,
    like,
    looks_alike,
    minimal,
    uniform,
    whole_words,
)
from counterpoint.generation.checks.reordered import reordered
from counterpoint.generation.checks.replaced import (
    bad_slot,
    doubt,
    same_slot,
    say_the_same,
    unrelated,
)
from counterpoint.generation.checks.statements import (
    converse_exchange,
    moved_attribute,
    passive,
    said_by_another,
    turned,
)
from counterpoint.generation.language import lexicon
from counterpoint.generation.language.lists import WORDS
from counterpoint.generation.language.words import forms, key, lemmas, negations, numbers, role
from counterpoint.generation.pairs import Kind, Type

__all__ = ["CHECKS", "CheckResult", "Claim", "TextChange", "check", "like", "normal", "reasons"]
__all__ += ["uniform"]
_WHOLE: Final = 40  # with more changed words, no single slot or exchange is searched
_CONTENT: Final = frozenset({"noun", "adjective", "verb", "number"})
_NEW_WORDS: Final = ("replace", "add")  # types whose texts may say what another caption says


class CheckResult(NamedTuple):
    """The checks that were passed, in order, and the first that was not: `NAME: REASON`.

    `doubt` says why a positive that passed them all may still be false: `narrower` (crimson for
    red), or what the lexicon says of the new word.
    """

    passed: tuple[str, ...]
    rejected: str
    doubt: str = ""


def check(
    caption: str,
    text: str,
    kind: Kind,
    type: Type,
    others: Collection[Part] = (),
    seen: Collection[Part] = (),
) -> CheckResult:
    """Run the checks on a text until one fails. See `Claim`."""
    change, claim = TextChange(caption, text), Claim(kind, type, others, seen)
    for number, (name, find_fault) in enumerate(CHECKS.items()):
        fault = find_fault(change, claim)
        if fault:
            return CheckResult(tuple(CHECKS)[:number], f"{name}: {fault}")
    return CheckResult(tuple(CHECKS), "", doubt(change) if kind == "positive" else "")


def reasons(caption: str, text: str, claim: Claim) -> dict[str, str]:
    """Every check that a text fails, with the reason; to count what is wrong with a file."""
    change = TextChange(caption, text)
    faults = {name: find_fault(change, claim) for name, find_fault in CHECKS.items()}
    return {name: fault for name, fault in faults.items() if fault}


def meaning(change: TextChange, claim: Claim) -> str:
    """Why a negative may be true of the image, or a positive false; empty if nothing says so."""
    if claim.kind == "positive":
        return disguised_negative(change)
    if claim.others and normal(change.text) in claim.others:
        return "another caption"
    fault = ""
    if claim.type == "negate" or negations(change.new.words) != negations(change.old.words):
        fault = _denial(change)
    elif claim.type == "add":
        fault = "says it twice" if _says_twice(change) else ""
    elif change.same_bag or _same_keys(change):
        same = reordered(change)
        if same is not None:  # a shuffle may only be bad grammar
            bad = claim.type == "shuffle" and same.reason == "perhaps same phrase"
            fault = "" if bad else same.reason
        elif converse_exchange(change):
            fault = "symmetric"
    elif change.size <= _WHOLE:
        if converse_exchange(change):
            fault = "converse"
        elif voice := passive(change):
            fault = "passive" if voice == "same" else ""
        else:
            fault = same_slot(change)
    if not fault and claim.others and claim.type in _NEW_WORDS:
        return "said by another caption" if said_by_another(change, claim.others) else ""
    return fault


def disguised_negative(change: TextChange) -> str:
    """Why a text that should be as true as its caption may be false."""
    old, new = change.old.words, change.new.words
    if negations(old) != negations(new):
        return "" if _denies_opposite(change) else "negation"
    if numbers(old) != numbers(new):
        return "number"
    if _reframed(change) or change.size > _WHOLE:
        return ""
    voice = passive(change)
    if voice:
        return "" if voice == "same" else "arguments swapped"
    if converse_exchange(change):
        return ""
    if change.same_bag or _same_keys(change):
        same = reordered(change)
        if same is None:
            return "words moved"
        return "" if same.sure else same.reason
    if _sides(old) != _sides(new):
        return "left or right"
    return turned(change) or bad_slot(change) or _contradiction(change)


def _reframed(change: TextChange) -> bool:
    """ "a man riding", "a man who is riding", "a man rides": the same clause in another form."""
    removed, inserted = (
        [word for word in side if word not in WORDS.empty_words]
        for side in (change.removed, change.inserted)
    )
    if not removed and not inserted:
        return True
    if len(removed) != 1 or len(inserted) != 1:
        return False
    doing = removed[0] if removed[0].endswith("ing") else inserted[0]
    same = not lemmas(removed[0]).isdisjoint(lemmas(inserted[0]))
    return same and doing.endswith("ing") and role(doing) == "verb"


def _contradiction(change: TextChange) -> str:
    """In a text reworded in several places."""
    if moved_attribute(change):
        return "attribute moved"
    lost, gained = _content(change.lost), _content(change.gained)
    exclude = lexicon.exclude
    pairs = product(map(forms, lost), map(forms, gained))
    if any(exclude(a, b) for old, new in pairs for a, b in product(old, new)):
        return "excluded"
    if len(lost) == len(gained) == 1 and role(lost[0]) == role(gained[0]):
        # "walking in snow" and "chewing snow": one word of content for one.
        return "other word" if unrelated(forms(lost[0]), forms(gained[0])) else ""
    return ""


def _content(words: Iterable[str]) -> list[str]:
    return [word for word in words if role(word) in _CONTENT]


def _sides(words: tuple[str, ...]) -> list[str]:
    return sorted(word for word in words if word in ("left", "right"))


def _same_keys(change: TextChange) -> bool:
    """Whether the same words are there, but for number and tense ("two men", "a man")."""
    old, new = change.removed, change.inserted
    return 1 < len(old) == len(new) and sorted(map(key, old)) == sorted(map(key, new))


def _denies_opposite(change: TextChange) -> bool:
    """Whether a word became "not" and a word that excludes it: "dirty", "not clean"."""
    new = change.new.words
    lost, gained = _content(change.lost), _content(change.gained)
    if len(lost) != 1 or len(gained) != 1 or ("not", gained[0]) not in pairwise(new):
        return False
    return any(lexicon.exclude(a, b) for a, b in product(forms(lost[0]), forms(gained[0])))


def _denial(change: TextChange) -> str:
    if _denies_opposite(change):
        return "denies the opposite"
    if negations(change.old.words) and negations(change.new.words) > negations(change.old.words):
        return "double negation"
    pairs = set(pairwise(change.new.words))
    kept = not pairs.isdisjoint(product(("not",), ("only", "just", "merely")))
    return "denies nothing" if kept else ""


def _says_twice(change: TextChange) -> bool:
    """Whether each word that was added repeats one that stands beside it ("a big large dog")."""
    new = change.new.words
    added = _content(change.gained)
    places = [(w, new.index(w)) for w in added]
    return bool(places) and all(
        any(
            say_the_same(word, near)
            for near in (*new[max(0, place - 2) : place], *new[place + 1 : place + 3])
            if near not in added and role(near) in _CONTENT
        )
        for word, place in places
    )


# The cheapest first; a reason is one of a few fixed texts, so that rejections can be counted.
CHECKS: Final[dict[str, Callable[[TextChange, Claim], str]]] = {
    "changed": changed,
    "duplicate": duplicate,
    "minimal": minimal,
    "whole-words": whole_words,
    "articles": articles,
    "format": looks_alike,
    "meaning": meaning,
}
