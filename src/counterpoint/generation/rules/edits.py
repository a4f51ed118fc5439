"""Edits of one place in a caption, how often common ones are made, and phrases that say the same.

Without limits the edits of a few common words would be most texts of a method.

A saying ("filled with" and "full of") has old and new words, and what has to stand around them. "~"
marks a verb, which keeps its form: "~do" matches "does" and "doing". Nouns are looked up with their
kinds: "animal" is said of every dog. Each saying is true both for what the photograph shows and for
every caption that meets its conditions: a pair that only holds most of the time has no place here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import Any, Final, NamedTuple

from counterpoint.generation.language import lexicon
from counterpoint.generation.language.lists import TABLES, WORDS
from counterpoint.generation.language.phrases import Range, object_of
from counterpoint.generation.language.sentences import (
    ADJECTIVES,
    NOUNS,
    Put,
    Sentence,
    in_form_of,
    rewrite,
)
from counterpoint.generation.registry import Draft, Ways

SHARE: Final = 0.5  # of a hundred captions, those in which an edit is made
# In how many of a hundred captions of COCO and Flickr8k an edit could be made, where this is more
# than `SHARE` (studies/edit_shares.py --rates).
RATES: Final[dict[str, float]] = TABLES["rates"]


class Rewording(NamedTuple):
    """What is replaced, the words before and after, and why the new text may be false."""

    put: Put
    old: str
    new: str
    doubt: str = ""

    @property
    def name(self) -> str:
        return f"{self.old} > {self.new}"


def drafts(
    sentence: Sentence, edits: list[Rewording], subtype: str, rng: Random, spare: float
) -> Ways:
    """The drafts of these edits, rare ones first, and common ones marked or left out.

    An edit is made with the probability that gives it a small share of all captions, and marked as
    common in others up to `spare` of a hundred. It depends on the caption alone, so pieces can be
    made in any order.
    """
    rng.shuffle(edits)
    found = [(edit, rng.random() * RATES.get(edit.name, 0)) for edit in edits]
    if any(rate > SHARE for edit, rate in found if not edit.doubt):
        found = [(edit, rate) for edit, rate in found if not edit.doubt]  # doubts are no way out
    found = [(edit, rate) for edit, rate in found if rate <= spare]
    found.sort(key=lambda one: (bool(one[0].doubt), one[1] > SHARE))  # stable
    return (
        Draft(rewrite(sentence, (edit.put,)), "replace", subtype, edit.doubt, common=rate > SHARE)
        for edit, rate in found  # written when they are asked for: most are not
    )


def is_repeated(sentence: Sentence, where: Range, word: str, synonym: str) -> bool:
    """Whether the caption would name one thing by two words: "a hot dog and a hotdog"."""
    others = [t.lower for t in (*sentence.tokens[: where[0]], *sentence.tokens[where[1] :])]
    rest = f" {' '.join(others)} "
    if f" {synonym} " in rest or f" {synonym}s " in rest:
        return True
    named = sentence.tokens[where[0]].tag in _NAMES
    return named and (f" {word} " in rest or f" {word}s " in rest)


def is_joined(sentence: Sentence, place: int) -> bool:
    """A part of "black and white", of "dark blue" or of "blue-green"."""
    tokens = sentence.tokens
    around = [tokens[i].lower for i in (place - 1, place + 1) if 0 <= i < len(tokens)]
    return any(word in WORDS.colour_joints for word in around)


_NAMES: Final = NOUNS | ADJECTIVES


class Saying(NamedTuple):
    """Old words, new words, the kind of change, and conditions.

    `subject`: kinds of the noun before, with "is" between or not; "*" for any noun. `object`: kinds
    of the noun of the phrase that follows. `follows`: the next word ("" for the end). `after`: what
    the word before is, or its lemma. `verb`: the closest verb before. `needs`: one of these lemmas
    is in the caption. `unless`: the word before is one of these.
    """

    old: str
    new: str
    subtype: str
    subject: frozenset[str] = frozenset()
    object: frozenset[str] = frozenset()
    follows: frozenset[str] = frozenset()
    after: frozenset[str] = frozenset()
    verb: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    unless: frozenset[str] = frozenset()


def _read(subtype: str, row: Mapping[str, Any]) -> Iterator[Saying]:
    olds = [row["old"]] if isinstance(row["old"], str) else row["old"]
    said = {name: WORDS.words(row[name]) for name in _CONDITIONS if name in row}
    for old in olds:
        yield Saying(old, row["new"], subtype, **said)
        if "both" in row:
            yield Saying(row["new"], old, subtype, **said)


_CONDITIONS: Final = Saying._fields[3:]
SAYINGS: Final = [
    saying
    for subtype, found in TABLES["sayings"].items()
    for row in found
    for saying in _read(subtype, row)
]


def _by_first() -> dict[str, list[tuple[list[str], Saying]]]:
    found: dict[str, list[tuple[list[str], Saying]]] = {}
    for saying in sorted(SAYINGS, key=lambda saying: -len(saying.old.split())):
        words = saying.old.split()
        found.setdefault(words[0], []).append((words, saying))
    return found


_BY_FIRST: Final = _by_first()
_VERBS: Final = {first[1:]: found for first, found in _BY_FIRST.items() if first[0] == "~"}


@lru_cache(1)  # asked for each subtype
def sayings(sentence: Sentence) -> tuple[tuple[str, Rewording], ...]:
    """The edits that fit a caption, each with its subtype."""
    return tuple(_found(sentence))


def _found(sentence: Sentence) -> Iterator[tuple[str, Rewording]]:
    lemmas = sentence.lemmas
    for place, token in enumerate(sentence.tokens):
        known = _VERBS.get(lemmas[place]) if token.pos == "VERB" else None
        for words, saying in known or _BY_FIRST.get(token.lower) or ():
            if _matches(sentence, place, words):
                edit = _edit(sentence, place, place + len(words), saying)
                if edit is not None:
                    yield saying.subtype, edit
                    break  # the longest


def _matches(sentence: Sentence, place: int, words: Sequence[str]) -> bool:
    tokens = sentence.tokens
    return place + len(words) <= len(tokens) and all(
        tokens[place + i].lower == words[i] for i in range(1, len(words))
    )


def _edit(sentence: Sentence, start: int, end: int, saying: Saying) -> Rewording | None:
    token = sentence.tokens[start]
    new = saying.new
    if new[0] == "~":
        old = saying.old.split()[0].removeprefix("~")
        if in_form_of(token, old).lower() != token.lower:
            return None  # the tag is wrong, and so the form of the new verb would be
        new = in_form_of(token, new[1:])
    elif len(token.text) > 1 and token.text.isupper():
        new = new.upper()
    if not new or not _suits(sentence, start, end, saying):
        return None
    if is_repeated(sentence, (start, end), saying.old, saying.new.lstrip("~")):
        return None
    return Rewording(Put(start, end, new), saying.old.lstrip("~"), saying.new.lstrip("~"))


def _suits(sentence: Sentence, start: int, end: int, saying: Saying) -> bool:
    tokens = sentence.tokens
    if saying.object and not _is(object_of(sentence, end), saying.object):
        return False
    if saying.follows:
        after = tokens[end] if end < len(tokens) else None
        if saying.follows.isdisjoint((sentence.word(end), after.tag if after else "")):
            return False
    if saying.needs and saying.needs.isdisjoint(sentence.lemmas):
        return False
    if start and tokens[start - 1].lower in saying.unless:
        return False
    if saying.verb and _verb_before(sentence, start) not in saying.verb:
        return False
    before = tokens[start - 1] if start else None
    if saying.after and (
        before is None
        or saying.after.isdisjoint((before.pos, before.lower, sentence.lemma(start - 1)))
    ):
        return False
    return not saying.subject or _is_subject(sentence, start, saying.subject)


def _verb_before(sentence: Sentence, place: int) -> str:
    verbs = (i for i in range(place - 1, -1, -1) if sentence.tokens[i].pos == "VERB")
    return sentence.lemma(next(verbs, place))


def _is(noun: str, names: frozenset[str]) -> bool:
    return noun not in ("", "lot", "lots") and (
        "*" in names or not names.isdisjoint(lexicon.kinds(noun))
    )


def _is_subject(sentence: Sentence, place: int, names: frozenset[str]) -> bool:
    """Whether such a noun stands before, with "is" between or not."""
    tokens = sentence.tokens
    before = place - 1
    while before > 0 and tokens[before].pos in ("AUX", "ADV") and tokens[before].lower != "being":
        before -= 1
    return before >= 0 and tokens[before].tag in NOUNS and _is(sentence.lemma(before), names)
