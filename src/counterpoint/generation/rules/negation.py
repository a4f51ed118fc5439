"""Denials: made, which turns a caption into a negative, and put in other words, which does not.

`crepe-negate` are CREPE's negations: a verb, a possession or the whole is denied.

`denials`: "with no people", "without any people"; "is not", "isn't". The denial stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import Final

from counterpoint.generation.language.lexicon import Vocabulary
from counterpoint.generation.language.lists import WORDS
from counterpoint.generation.language.sentences import DETERMINERS, FINITE, NOUNS, Put, Sentence
from counterpoint.generation.language.words import inflected
from counterpoint.generation.pairs import Draft
from counterpoint.generation.registry import Ways, rule
from counterpoint.generation.rules.clauses import (
    Clause,
    clause,
    has_article,
    is_alive,
    is_counted,
    is_person,
    phrase_at,
)

_DO: Final = {"VBZ": "does not", "VBP": "do not", "VBD": "did not"}


@rule("crepe-negate", "negative", "3")
def crepe_negate(sentence: Sentence, _words: Vocabulary, rng: Random) -> Iterator[Ways]:
    """a verb, a possession or the whole caption denied"""
    if sentence.has(WORDS.denials):
        return  # a second negation would make it true again
    ways = (_verbs(sentence, clause(sentence)), _possessions(sentence), _existence(sentence))
    for subtype, found in zip(("rel", "obj", "obj"), ways, strict=True):
        puts = list(found)
        rng.shuffle(puts)
        yield [Draft(sentence.rewrite(way), "negate", subtype) for way in puts]


def _verbs(sentence: Sentence, said: Clause | None) -> Iterator[list[Put]]:
    """ "is not sitting", "does not sit", "there is no dog"."""
    if sentence.tokens[0].lower in WORDS.quantities:
        return  # "some people are not sitting" may be true of others
    for i, token in enumerate(sentence.tokens):
        before = sentence.at(i - 1).tag
        if token.tag not in (*FINITE, "MD", "VBG") or _is_open(sentence, i):
            continue
        if token.tag != "VBG" and (token.pos == "AUX" or sentence.lemmas[i] == "be"):
            yield [_after_auxiliary(sentence, i)]
        elif token.tag == "VBG" and before in NOUNS:
            yield from _participle(sentence, i, said)
        elif token.pos == "VERB" and token.tag in FINITE and not _helped(sentence, i):
            if (token.tag, before) == ("VBP", "NN"):
                continue  # "a bathroom counter" is no sentence
            base = inflected(sentence.lemmas[i], "VB")
            yield [Put(i, i + 1, f"{_DO[token.tag]} {base}")]


def _after_auxiliary(sentence: Sentence, verb: int) -> Put:
    """ "is not", but "there is no dog", which is said more often than "there is not a dog"."""
    after = sentence.at(verb + 1)
    joined = any(token.tag == "CC" for token in sentence.tokens[verb + 1 :])
    if sentence.word(verb - 1) == "there" and not joined:
        if after.lower in ("a", "an"):
            return Put(verb + 1, verb + 2, "no")
        if after.tag in NOUNS:
            return Put(verb + 1, verb + 1, "no")
    return Put(verb + 1, verb + 1, "not")


def _participle(sentence: Sentence, verb: int, said: Clause | None) -> Iterator[list[Put]]:
    """ "a dog sitting" becomes "a dog is not sitting" or "a dog that is not sitting".

    "A dog not sitting" is rare, and language models recognise it.
    """
    phrase = sentence.noun_phrase_before(verb)
    detail, alive = _is_detail(sentence, verb), is_alive(sentence.lemmas[verb - 1])
    if said is not None and said.copula < 0 and not said.there:
        subject, between = said.subject, sentence.tokens[said.subject.end : verb]
        joined = any(token.tag in ("CC", ",") for token in between)
        does = verb == said.head or not (alive or joined or detail)  # "a man on a board riding"
        if does and has_article(sentence, subject):
            yield [Put(verb, verb, f"{'are' if subject.plural else 'is'} not")]
            return
    if detail or phrase is None:
        return
    both = sentence.at(phrase[0] - 1).tag == "CC"  # "a cat and dog"
    be = "are" if both or is_counted(sentence, verb - 1) else "is"
    if alive or both or phrase[0] == 0:
        yield [Put(verb, verb, f"{_relative(sentence, verb - 1)} {be} not")]
    else:
        yield [Put(verb, verb, "not")]


def _relative(sentence: Sentence, noun: int) -> str:
    return "who" if is_person(sentence.lemmas[noun]) else "that"


def _is_open(sentence: Sentence, verb: int) -> bool:
    """Whether it is not clear what is denied: "all are", "sits and eats"."""
    if sentence.word(verb - 1) in WORDS.quantities:
        return True
    if sentence.has(("some",), verb + 1):
        return True  # "does not have some graffiti"
    after = sentence.tokens[verb + 1 :]
    return any(a.tag == "CC" and b.pos in ("VERB", "AUX") for a, b in pairwise(after))


def _is_detail(sentence: Sentence, verb: int) -> bool:
    """ "with a plunger sitting next to it", or no verb: "kite flying, bathing, walking"."""
    tokens = sentence.tokens
    phrase = sentence.noun_phrase_before(verb)
    if phrase is None or sentence.word(phrase[0] - 1) in ("with", "of", "for"):
        return True
    ends = sentence.at(verb + 1).tag in ("CC", ",", ".", "")
    return ends and tokens[verb - 1].tag == "NN" and tokens[phrase[0]].tag not in ("DT", "PRP$")


def _helped(sentence: Sentence, verb: int) -> bool:
    before = verb - 1
    while before > 0 and sentence.tokens[before].tag == "RB":
        before -= 1
    return sentence.at(before).pos == "AUX"


def _possessions(sentence: Sentence) -> Iterator[list[Put]]:
    """ "with a hat" becomes "who does not have a hat", or "without a hat" behind another noun."""
    for i, token in enumerate(sentence.tokens[:-1]):
        noun = sentence.at(i - 1).tag in NOUNS
        if token.lower == "with" and noun and sentence.word(i + 1) in WORDS.articles:
            phrase = sentence.noun_phrase_after(i + 1)
            if phrase and sentence.at(phrase[1]).tag in ("CC", ","):
                continue  # "without a banana and two oranges"
            yield [Put(i, i + 1, _lacking(sentence, i))]


def _lacking(sentence: Sentence, place: int) -> str:
    """What says that the noun before "with" has not what follows."""
    owner = phrase_at(sentence, 2 if sentence.word(0) == "there" else 0)
    rest = sentence.tokens[place + 1 :]
    beside = any(t.tag == "VBG" or t.lower in WORDS.behind for t in rest)
    if owner is None or owner.end != place or beside:
        return "without"
    return f"{_relative(sentence, owner.noun)} {'do' if owner.plural else 'does'} not have"


def _existence(sentence: Sentence) -> Iterator[list[Put]]:
    """ "There is no dog on a bench", of a caption that is one noun phrase."""
    first = sentence.tokens[0]
    if any(token.tag in (*FINITE, "MD") for token in sentence.tokens) or len(sentence.tokens) < 2:
        return
    noun = next((i for i, token in enumerate(sentence.tokens) if token.tag in NOUNS), None)
    if noun is None or sentence.lemmas[noun] in WORDS.abstract or _is_view(sentence):
        return  # "there is no picture of a cat" says nothing of the cat
    phrase = sentence.noun_phrase_after(0)
    if phrase is None or any(token.tag == "CC" for token in sentence.tokens):
        return  # "there is no man and a woman"
    if first.lower in ("a", "an"):
        yield [Put(0, 1, "there is no")]
    elif first.tag == "NNS":
        yield [Put(0, 1, f"there are no {sentence.plain(0)}")]


def _is_view(sentence: Sentence) -> bool:
    """ "a close up of a cat", "a black and white photo of a cat"."""
    of = next((i for i, token in enumerate(sentence.tokens) if token.lower == "of"), 0)
    return sentence.has(WORDS.views_and_scenes, 0, of)


# --- denials in other words -----------------------------------------------------------------------


@rule("denials", "positive", "1")
def denials(sentence: Sentence, _words: Vocabulary, rng: Random) -> Iterator[Ways]:
    """a denial in other words: "with no people", "without any people" """
    if not sentence.has(WORDS.denying):
        return
    puts = [put for i in range(len(sentence.tokens) - 1) for put in _denied(sentence, i)]
    rng.shuffle(puts)
    yield [Draft(sentence.rewrite((put,)), "paraphrase") for put in puts]


def _denied(sentence: Sentence, place: int) -> Iterator[Put]:
    tokens = sentence.tokens
    first, second = tokens[place], tokens[place + 1]
    both = f"{first.lower} {second.lower}"
    if first.text.isupper() and len(first.text) > 1:
        return
    if both == "with no" and _noun_at(sentence, place + 2):
        yield Put(place, place + 2, "without any")
    elif first.lower == "without":
        yield from _without(sentence, place)
    elif first.lower in WORDS.contracted and second.lower in ("not", "n't"):
        short = second.lower == "n't"
        yield Put(place, place + 2, f"{first.text} not" if short else f"{first.text}n't")
    elif both in ("are no", "is no") and sentence.word(place - 1) == "there":
        if _noun_at(sentence, place + 2) == "many":
            yield Put(place, place + 2, f"{first.text}n't any")
    elif both == "no one":
        yield Put(place, place + 2, "nobody")


def _without(sentence: Sentence, place: int) -> Iterator[Put]:
    after = sentence.tokens[place + 1]
    if (after.lower == "any" and _noun_at(sentence, place + 2)) or (
        after.lower in ("a", "an") and phrase_at(sentence, place + 1) is not None
    ):
        yield Put(place, place + 2, "with no")
    elif _noun_at(sentence, place + 1) == "many":
        yield Put(place, place + 1, "with no")


def _noun_at(sentence: Sentence, place: int) -> str:
    """Whether a noun phrase without an article begins here: "many", "mass", or none."""
    token = sentence.at(place)
    if token.tag in (*DETERMINERS, "IN", "TO", "") or token.lower in WORDS.much:
        return ""
    phrase = phrase_at(sentence, place)
    if phrase is None:
        return ""
    if sentence.tokens[phrase.noun].tag == "NNS":
        return "many"
    return "mass" if sentence.lemmas[phrase.noun] in WORDS.denied_mass else ""
