"""CREPE's negations: a verb, a possession or the whole is denied."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from counterpoint.generation.language.lexicon import Vocabulary
from counterpoint.generation.language.lists import WORDS
from counterpoint.generation.language.phrases import noun_phrase_after, noun_phrase_before
from counterpoint.generation.language.sentences import (
    FINITE,
    NOUNS,
    Put,
    Sentence,
    inflected,
    plain,
    rewrite,
)
from counterpoint.generation.registry import Draft, Rule, Ways
from counterpoint.generation.rules.clauses import (
    clause,
    has_article,
    is_alive,
    is_counted,
    is_person,
    phrase_at,
)

_DO: Final = {"VBZ": "does not", "VBP": "do not", "VBD": "did not"}


def _negate(sentence: Sentence, words: Vocabulary, rng: Random) -> Iterator[Ways]:
    del words
    if any(token.lower in WORDS.denials for token in sentence.tokens):
        return  # a second negation would make it true again
    for subtype, found in (("rel", _verbs), ("obj", _possessions), ("obj", _existence)):
        puts = list(found(sentence))
        rng.shuffle(puts)
        yield [Draft(rewrite(sentence, way), "negate", subtype) for way in puts]


def _verbs(sentence: Sentence) -> Iterator[list[Put]]:
    """ "is not sitting", "does not sit", "there is no dog"."""
    if sentence.tokens[0].lower in WORDS.quantities:
        return  # "some people are not sitting" may be true of others
    for i, token in enumerate(sentence.tokens):
        before = sentence.tokens[i - 1] if i else None
        if token.tag not in (*FINITE, "MD", "VBG") or _is_open(sentence, i):
            continue
        if token.tag in (*FINITE, "MD") and (token.pos == "AUX" or sentence.lemma(i) == "be"):
            yield [_after_auxiliary(sentence, i)]
        elif token.tag == "VBG" and before is not None and before.tag in NOUNS:
            yield from _participle(sentence, i)
        elif token.pos == "VERB" and token.tag in FINITE and not _helped(sentence, i):
            if token.tag == "VBP" and before is not None and before.tag == "NN":
                continue  # "a bathroom counter" is no sentence
            base = inflected(sentence.lemma(i), "VB")
            yield [Put(i, i + 1, f"{_DO[token.tag]} {base}")]


def _after_auxiliary(sentence: Sentence, verb: int) -> Put:
    """ "is not", but "there is no dog", which is said more often than "there is not a dog"."""
    there = verb > 0 and sentence.tokens[verb - 1].lower == "there"
    after = sentence.tokens[verb + 1 :]
    if there and after and not any(token.tag == "CC" for token in after):
        if after[0].lower in ("a", "an"):
            return Put(verb + 1, verb + 2, "no")
        if after[0].tag in NOUNS:
            return Put(verb + 1, verb + 1, "no")
    return Put(verb + 1, verb + 1, "not")


def _participle(sentence: Sentence, verb: int) -> Iterator[list[Put]]:
    """ "a dog sitting" becomes "a dog is not sitting" or "a dog that is not sitting".

    "A dog not sitting" is rare, and language models recognise it.
    """
    said, phrase = clause(sentence), noun_phrase_before(sentence, verb)
    detail, alive = _is_detail(sentence, verb), is_alive(sentence.lemma(verb - 1))
    if said is not None and said.copula < 0 and not said.there:
        subject, between = said.subject, sentence.tokens[said.subject.end : verb]
        joined = any(token.tag in ("CC", ",") for token in between)
        does = verb == said.head or not (alive or joined or detail)  # "a man on a board riding"
        if does and has_article(sentence, subject):
            yield [Put(verb, verb, f"{'are' if subject.plural else 'is'} not")]
            return
    if detail or phrase is None:
        return
    both = phrase[0] > 0 and sentence.tokens[phrase[0] - 1].tag == "CC"  # "a cat and dog"
    be = "are" if both or is_counted(sentence, verb - 1) else "is"
    if alive or both or phrase[0] == 0:
        yield [Put(verb, verb, f"{_relative(sentence, verb - 1)} {be} not")]
    else:
        yield [Put(verb, verb, "not")]


def _relative(sentence: Sentence, noun: int) -> str:
    return "who" if is_person(sentence.lemma(noun)) else "that"


def _is_open(sentence: Sentence, verb: int) -> bool:
    """Whether it is not clear what is denied: "all are", "sits and eats"."""
    tokens = sentence.tokens
    if verb and tokens[verb - 1].lower in WORDS.quantities:
        return True
    if any(token.lower == "some" for token in tokens[verb + 1 :]):
        return True  # "does not have some graffiti"
    joints = (i for i in range(verb + 1, len(tokens) - 1) if tokens[i].tag == "CC")
    return any(tokens[i + 1].pos in ("VERB", "AUX") for i in joints)


def _is_detail(sentence: Sentence, verb: int) -> bool:
    """ "with a plunger sitting next to it", or no verb: "kite flying, bathing, walking"."""
    tokens = sentence.tokens
    phrase = noun_phrase_before(sentence, verb)
    if phrase is None or (phrase[0] and tokens[phrase[0] - 1].lower in ("with", "of", "for")):
        return True
    ends = verb + 1 == len(tokens) or tokens[verb + 1].tag in ("CC", ",", ".")
    return ends and tokens[verb - 1].tag == "NN" and tokens[phrase[0]].tag not in ("DT", "PRP$")


def _helped(sentence: Sentence, verb: int) -> bool:
    before = verb - 1
    while before > 0 and sentence.tokens[before].tag == "RB":
        before -= 1
    return before >= 0 and sentence.tokens[before].pos == "AUX"


def _possessions(sentence: Sentence) -> Iterator[list[Put]]:
    """ "with a hat" becomes "who does not have a hat", or "without a hat" behind another noun."""
    for i, token in enumerate(sentence.tokens[:-1]):
        after = sentence.tokens[i + 1]
        before = sentence.tokens[i - 1] if i else None
        noun = before is not None and before.tag in NOUNS
        if token.lower == "with" and noun and after.lower in ("a", "an", "the"):
            phrase = noun_phrase_after(sentence, i + 1)
            rest = sentence.tokens[phrase[1] : phrase[1] + 1] if phrase else ()
            if any(token.tag in ("CC", ",") for token in rest):
                continue  # "without a banana and two oranges"
            yield [Put(i, i + 1, _lacking(sentence, i))]


def _lacking(sentence: Sentence, place: int) -> str:
    """What says that the noun before "with" has not what follows."""
    there = sentence.tokens[0].lower == "there"
    owner = phrase_at(sentence, 2 if there else 0)
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
    if noun is None or sentence.lemma(noun) in WORDS.abstract or _is_view(sentence):
        return  # "there is no picture of a cat" says nothing of the cat
    phrase = noun_phrase_after(sentence, 0)
    if phrase is None or any(token.tag == "CC" for token in sentence.tokens):
        return  # "there is no man and a woman"
    if first.lower in ("a", "an"):
        yield [Put(0, 1, "there is no")]
    elif first.tag == "NNS":
        yield [Put(0, 1, f"there are no {plain(sentence, 0)}")]


def _is_view(sentence: Sentence) -> bool:
    """ "a close up of a cat", "a black and white photo of a cat"."""
    words = [token.lower for token in sentence.tokens]
    start = words[: words.index("of")] if "of" in words else []
    return not WORDS.views_and_scenes.isdisjoint(start)


NEGATE: Final = Rule(
    "crepe-negate", "negative", "3", "a verb, a possession or the whole caption denied", _negate
)
