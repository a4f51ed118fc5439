"""Which noun may stand in the place of another: false for the image, and possible there."""

from __future__ import annotations

from typing import Final, NamedTuple

from counterpoint.generation.language import lexicon, plausibility
from counterpoint.generation.language.lists import WORDS
from counterpoint.generation.language.phrases import Range, things, whole
from counterpoint.generation.language.sentences import (
    ADJECTIVES,
    Sentence,
    Token,
    in_form_of,
)
from counterpoint.generation.rules import fitting

_LIKELIEST: Final = 12  # nouns that are tried in the place of one
_BEFORE_NOUNS: Final = ("DT", "CD", "PRP$")


class Slot(NamedTuple):
    """Words that can be replaced, with their part of speech."""

    where: Range
    word: str
    pos: str
    subtype: str
    noun: str = ""  # what it is said of


Choice = tuple[Slot, str]  # a slot and a dictionary form that can take its place


def name_of(sentence: Sentence, noun: int) -> str:
    """A noun as the lexicon has it: a compound ("hot dog") is one thing, in the singular."""
    start, _ = whole(sentence, noun)
    if start == noun and noun:
        name = f"{sentence.tokens[noun - 1].lower} {sentence.lemma(noun)}"
        if fitting.is_noun(name):
            return name
    before = "".join(f"{token.lower} " for token in sentence.tokens[start:noun])
    name = before + sentence.lemma(noun)
    return name if not before or fitting.is_noun(name) else sentence.lemma(noun)


def siblings(sentence: Sentence) -> list[Choice]:
    """A compound is one thing: what replaces a "bat" need not replace a "baseball bat"."""
    found = []
    tokens, lemmas = sentence.tokens, sentence.lemmas
    heads = things(sentence)
    for noun in heads:
        where = whole(sentence, noun)
        before = "".join(f"{token.lower} " for token in tokens[where[0] : noun])
        slot = Slot(where, before + lemmas[noun], "NOUN", "obj")
        of = noun + 1 < len(tokens) and tokens[noun + 1].lower == "of"  # "a cup of": a measure
        name = noun and lexicon.is_listed(f"{tokens[noun - 1].lower} {lemmas[noun]}")  # "hot dog"
        odd = where[0] and tokens[where[0] - 1].lower == "a" and tokens[noun].tag == "NNS"
        if of or name or odd or lemmas.count(lemmas[noun]) > 1 or not fitting.is_thing(slot.word):
            continue
        fits = _Surroundings.of(sentence, slot)
        bound = fits.listed or "its" in lemmas or fitting.is_any(slot.word, WORDS.grounds)
        if bound and not fitting.is_any(slot.word, WORDS.animate):
            continue  # "cars and a bus": a motorcycle may be there, too
        if fitting.is_held_by(slot.word, fits.before, (lemmas[i] for i in heads if i != noun)):
            continue
        company = _Company.of(sentence, where)
        found += [
            (slot, other)
            for other in lexicon.rivals(slot.word, "NOUN")[:_LIKELIEST]
            if lemmas[noun] not in other.split()
            and other not in slot.word
            and fits.let(other)
            and company.knows(other)
        ]
    return found


class _Company(NamedTuple):
    """The verb, or the preposition and what it belongs to, on both sides of a noun."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    token: Token
    tag: str

    @classmethod
    def of(cls, sentence: Sentence, where: Range) -> _Company:
        tokens, (start, end) = sentence.tokens, where
        left = [token for token in tokens[:start] if _is_bone(token)][-2:]
        right = [token for token in tokens[end:] if _is_bone(token)][:2]
        before: tuple[str, ...] = ()
        after: tuple[str, ...] = ()
        if left and left[-1].tag in ("IN", "TO", "RP"):
            before = tuple(token.lower for token in left)
        elif left and left[-1].pos == "VERB":
            before = (left[-1].lower,)
        if right and tokens[end] == right[0] and right[0].tag == "IN":
            after = tuple(token.lower for token in right)
        elif right and right[0].pos == "VERB":
            after = (right[0].lower,)
        return cls(before, after, tokens[start], tokens[end - 1].tag)

    def knows(self, other: str) -> bool:
        """Whether captions have another noun in its place: no "train crosses a sidewalk".

        People do everything, so a person stands for a person anywhere, and so do cats and dogs.
        """
        if fitting.is_any(other, WORDS.do_all):
            return True
        form = in_form_of(self.token, other, self.tag).lower().split() or [other]
        return all(
            plausibility.shipped().count(*chain, chain="skeleton")
            for chain in ((*self.before, form[0]), (form[-1], *self.after))
        )


def _is_bone(token: Token) -> bool:
    """Whether a word is in the skeleton of its caption (plausibility.py)."""
    return token.tag.startswith(("NN", "VB", "IN", "RP", "TO", "CC")) and token.pos != "AUX"


class _Surroundings(NamedTuple):
    """The words that a noun has to go with."""

    noun: str
    countable: bool | None  # None: either
    adjectives: tuple[str, ...]
    before: str  # the preposition that governs it, or empty
    verb: str  # the verb whose object it is, or empty
    neutral: bool  # no person's pronoun
    listed: bool  # beside other things

    @classmethod
    def of(cls, sentence: Sentence, slot: Slot) -> _Surroundings:
        tokens, start = sentence.tokens, slot.where[0]
        while start and tokens[start - 1].tag in (*ADJECTIVES, "VBN", "RB", "HYPH", "CD"):
            start -= 1
        if start > 1 and tokens[start - 1].tag == "VBG" and tokens[start - 2].tag in _BEFORE_NOUNS:
            start -= 1  # "a rolling suitcase"
        described = range(start, slot.where[0])
        adjectives = tuple(
            tokens[i].lower for i in described if tokens[i].tag in (*ADJECTIVES, "VBG", "VBN")
        )
        determiner = sentence.word(start - 1)
        headline = not any(token.lower in ("a", "an", "the") for token in tokens)
        countable: bool | None = determiner in ("a", "an") or None
        if tokens[slot.where[1] - 1].tag == "NN" and not headline:
            bare = start == 0 or tokens[start - 1].tag not in ("DT", "PRP$", "POS")
            countable = False if bare or determiner == "some" else countable
        elif tokens[slot.where[1] - 1].tag == "NNS":
            countable = True
        if start and tokens[start - 1].tag in ("DT", "PRP$"):
            start -= 1
        governor = tokens[start - 1] if start else None
        return cls(
            slot.word,
            countable,
            adjectives,
            _preposition(sentence, start - 1) if governor and governor.tag == "IN" else "",
            sentence.lemma(start - 1) if governor and governor.pos == "VERB" else "",
            not any(token.lower in WORDS.gendered for token in tokens),
            _is_listed(sentence, start, slot.where[1]),
        )

    def let(self, other: str) -> bool:
        """Whether another noun can stand here."""
        counted = fitting.is_countable(other)
        if counted is not None and self.countable not in (None, counted):
            return False
        if not self.neutral and fitting.is_any(other, WORDS.people):
            return False  # "a woman with his dog"
        return (
            fitting.is_usual(other)
            and fitting.can_replace(self.noun, other)
            and not (self.countable and other in WORDS.plural_nouns)
            and all(_fits(adjective, other) for adjective in self.adjectives)
            and (not self.before or fitting.follows(self.before, other))
            and fitting.can_take(self.verb, self.noun, other)
        )


def _is_listed(sentence: Sentence, start: int, end: int) -> bool:
    """Whether a phrase is one of several, or only said to be there: "a desk next to a printer"."""
    tokens = sentence.tokens
    before = sentence.word(start - 1)
    if before == "to" and start > 1:
        before = tokens[start - 2].lower
    after = sentence.word(end)
    return before in WORDS.beside or before == "," or after in ("and", "or", ",")


def _fits(adjective: str, noun: str) -> bool:
    """As the lexicon says, and for a participle, as captions do: no "rolling pitcher"."""
    if lexicon.meanings(adjective, "ADJ"):
        return fitting.is_said_of(adjective, noun)
    return fitting.is_in_captions(adjective, noun)


def _preposition(sentence: Sentence, place: int) -> str:
    """A preposition, "of" with the word before it: "cup of"."""
    word = sentence.tokens[place].lower
    return f"{sentence.tokens[place - 1].lower} of" if word == "of" and place else word
