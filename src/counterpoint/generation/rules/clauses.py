"""The clause that a caption is, found by tags: of whom or what it speaks, and what it says.

"A man in a hat | riding a horse", "Two dogs | are | sleeping on a bed", "There is | a cup | on a
table". Rules that reword a whole caption share this reading. In doubt there is none.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Final, Literal, NamedTuple

from counterpoint.generation.language import lexicon
from counterpoint.generation.language.lists import WORDS
from counterpoint.generation.language.sentences import (
    ADJECTIVES,
    DETERMINERS,
    FINITE,
    NOUNS,
    Range,
    Sentence,
    Token,
    prepositions,
)
from counterpoint.generation.language.words import lemma

Said = Literal["doing", "done", "does", "place", "with"]

_BEFORE: Final = frozenset({"JJ", "JJR", "JJS", "VBN", "VBG", "HYPH", "RB", "NNP", "CD"})
_ODD: Final = frozenset('"“”;:?!()/')


class NounPhrase(NamedTuple):
    """A noun phrase: its end, and the noun that decides about number and kind."""

    start: int
    end: int
    noun: int
    plural: bool
    joined: bool = False


class Clause(NamedTuple):
    """What a caption says of its subject. `copula` is its token, or -1."""

    there: bool
    subject: NounPhrase
    copula: int
    head: int
    said: Said
    end: int  # without the final mark


def is_person(noun: str) -> bool:
    return "people" in lexicon.kinds(noun)


def is_alive(noun: str) -> bool:
    return not lexicon.kinds(noun).isdisjoint(("people", "animal"))


def is_scene(noun: str) -> bool:
    """Whether a noun is a place that holds all that a caption speaks of."""
    return "place" in lexicon.kinds(noun) or noun in WORDS.scenes


def is_enclosed(noun: str) -> bool:
    """Whether a noun is a place with bounds: things are within it."""
    return not lexicon.kinds(noun).isdisjoint(("place", "room", *WORDS.holders))


def phrase_at(sentence: Sentence, start: int) -> NounPhrase | None:
    """The noun phrase at a token, with what "of" adds: "a red and white bus", "a group of men"."""
    found = _simple(sentence, start)
    if found is None or sentence.word(found.end) != "of":
        return found
    inner = _simple(sentence, found.end + 1)
    name = sentence.lemmas[found.noun]
    if inner is None or name in WORDS.not_heads - {"lot"} or sentence.word(inner.end) == "of":
        return None
    if sentence.tokens[found.noun - 1].tag in NOUNS and found.noun > start:
        return None  # "a parking lot of a store"
    if name in WORDS.measures:
        many = inner.plural or name in WORDS.plural_measures
        if name in WORDS.single_measures and not is_alive(sentence.lemmas[inner.noun]):
            many = False  # "a row of boats is"
        return NounPhrase(start, inner.end, inner.noun, many)
    return found._replace(end=inner.end) if name in WORDS.contents else None


def _simple(sentence: Sentence, start: int) -> NounPhrase | None:
    tokens, place, noun = sentence.tokens, start, -1
    while sentence.at(place).tag in DETERMINERS:
        place += 1
    while tag := sentence.at(place).tag:
        if tag in NOUNS:
            noun = place
        elif tag == "POS" and noun >= 0:
            noun = -1
        elif noun >= 0 or not (tag in _BEFORE or _joins_adjectives(sentence, place)):
            break
        place += 1
    if noun > start and is_verb(sentence, noun) and tokens[noun - 1].tag in NOUNS:
        noun, place = noun - 1, place - 1
    if noun < 0 or noun + 1 != place or is_verb(sentence, noun):
        return None
    plural = is_counted(sentence, noun)
    inside = {t.lower for t in tokens[start:noun] if t.tag == "NNS"} - WORDS.compound
    if inside and tokens[start].lower in WORDS.articles:
        return None  # "a hydrant shoots water"
    if plural != _is_many(tokens[start:place], plural):
        return None  # "a hydrant waits": the tagger takes the verb for a noun
    return NounPhrase(start, place, noun, plural)


def is_counted(sentence: Sentence, noun: int) -> bool:
    """Whether a noun is a plural; not "broccoli", which the tagger takes for one."""
    token = sentence.tokens[noun]
    return token.tag == "NNS" and (
        token.lower != sentence.lemmas[noun] or token.lower in WORDS.plural_as_singular
    )


def is_verb(sentence: Sentence, noun: int) -> bool:
    """ "a zebra standing", "a player playing tennis": the tagger takes the verb for a noun."""
    tokens = sentence.tokens
    return any(
        tokens[i].lower.endswith("ing")
        and tokens[i].lower not in WORDS.ing_subjects
        and not lexicon.meanings(tokens[i].lower, "NOUN")
        for i in range(noun, 0, -1)
        if tokens[i].tag == "NN" and (i == noun or tokens[i - 1].tag in NOUNS)
    )


def _is_many(tokens: tuple[Token, ...], plural: bool) -> bool:
    first = tokens[0]
    if first.lower in ("a", "an", "one", "another", "this", "that", "each", "every", "1"):
        return False
    return plural or first.tag == "CD" or first.lower in ("these", "those", *WORDS.many)


def _joins_adjectives(sentence: Sentence, place: int) -> bool:
    """The "and" of "a red and white bus", the comma of "a big, red bus"."""
    if sentence.word(place) not in ("and", "&", ","):
        return False
    return all(sentence.at(i).tag in (*ADJECTIVES, "") for i in (place - 1, place + 1))


@lru_cache(1)  # several rules ask in turn
def clause(sentence: Sentence) -> Clause | None:
    """The clause of a caption; None if it is not clear."""
    tokens = sentence.tokens
    end = sentence.end
    if end < 3 or any(t.lower in WORDS.unsaid or t.tag == "." for t in tokens[:end]):
        return None
    if not _ODD.isdisjoint(sentence.text) or tokens[0].text[:1].isdigit():
        return None  # a figure does not say whether a sentence begins with a capital
    there = tokens[0].lower == "there" and tokens[1].lower in WORDS.copulas
    subject = _subject(sentence, 2 if there else 0)
    if subject is None or subject.end >= end:
        return None
    place = subject.end
    copula = place if tokens[place].lower in WORDS.copulas else -1
    place += copula >= 0
    if place >= end or (there and copula >= 0):
        return None
    if any(may_be_verb(sentence, i) for i in range(place + 1, end - 1)):
        return None
    said = _said(sentence, place, copula >= 0 or there)
    if said is None or not _ends(sentence, place + 1, end):
        return None
    return Clause(there, subject, copula, place, said, end)


def _subject(sentence: Sentence, start: int) -> NounPhrase | None:
    """The first noun phrase, with another one joined to it, or with what a person is dressed in."""
    first = phrase_at(sentence, start)
    if first is None or sentence.lemmas[first.noun] in WORDS.not_heads:
        return None
    if sentence.word(first.end) == "in":
        clothes = phrase_at(sentence, first.end + 1)
        if clothes is not None and sentence.is_worn(clothes.noun):
            return first._replace(end=clothes.end)
    if sentence.word(first.end) == "and":
        second = phrase_at(sentence, first.end + 1)
        tags = sentence.tokens[start].tag, sentence.tokens[first.end + 1].tag
        if second is None or (tags[0] in DETERMINERS) != (tags[1] in DETERMINERS):
            return None
        return NounPhrase(start, second.end, second.noun, True, True)
    return first


def _said(sentence: Sentence, place: int, copula: bool) -> Said | None:
    token = sentence.tokens[place]
    if token.tag == "VBG" and (token.pos == "VERB" or _is_passive(sentence, place)):
        return "doing"
    if is_verb(sentence, place):
        return "doing"
    if token.tag == "VBN" and token.pos == "VERB" and token.lower != "been":
        return "done"
    if token.tag == "VBD" and (copula or token.lower in WORDS.done):
        return "done"
    if token.tag in ("VBZ", "VBP") and token.pos == "VERB" and not copula:
        return "does"
    if sentence.words(place, place + 2) in ("full of", "about to", "ready to", "ready for"):
        return "done"
    if token.lower == "with" and not copula:
        return "with"
    where = prepositions().at(sentence, place)
    if where is None or token.tag not in ("IN", "JJ", "RB"):
        return None
    name = sentence.words(*where)
    after = phrase_at(sentence, where[1])
    if name not in WORDS.places or after is None:
        return None
    if name == "at" and sentence.lemmas[after.noun] in WORDS.states:
        return None  # "lights at night"
    if name == "in" and not _holds(sentence, place, after.noun):
        return None
    return "place"


def _holds(sentence: Sentence, place: int, noun: int) -> bool:
    """ "a man in a kitchen", "soup in a bowl"; not "a man in a helmet", "a dog in a blur"."""
    name = sentence.lemmas[noun]
    before = range(place - 1, -1, -1)
    subject = next((i for i in before if sentence.tokens[i].tag in NOUNS), -1)
    if is_scene(name) or not lexicon.kinds(name).isdisjoint(WORDS.holders):
        return True
    return bool(lexicon.meanings(name, "NOUN")) and not is_alive(sentence.lemmas[subject])


def _is_passive(sentence: Sentence, place: int) -> bool:
    return sentence.word(place) == "being" and sentence.at(place + 1).tag == "VBN"


def is_open(sentence: Sentence, phrase: NounPhrase) -> bool:
    """Whether a phrase is spoken of for the first time: "a dog", "two dogs", "dogs"."""
    first = sentence.tokens[phrase.start]
    if first.tag == "PDT":  # "half a dozen"
        return False
    known = first.lower in ("a", "an", "some", *WORDS.many) or first.tag == "CD"
    return known or (first.tag not in DETERMINERS and has_article(sentence, phrase))


def has_article(sentence: Sentence, phrase: NounPhrase) -> bool:
    """Or needs none; not the "man" of "man riding a horse", the "group" of "group of men"."""
    tokens = sentence.tokens
    if tokens[phrase.start].tag in DETERMINERS:
        return True
    of = next((i for i in range(phrase.start, phrase.noun) if tokens[i].lower == "of"), -1)
    return phrase.plural and (of < 0 or tokens[of - 1].tag == "NNS")


def exists(sentence: Sentence) -> NounPhrase | None:
    """The first phrase of a caption without a verb of its own: "there is" can stand before it."""
    tokens = sentence.tokens
    end = sentence.end
    first = _simple(sentence, 0)
    if first is None or not is_open(sentence, first):
        return None
    if first.end == end or tokens[first.end].lower in ("and", "&", ",", "or"):
        return None
    if sentence.lemmas[first.noun] in WORDS.not_heads or tokens[0].text[:1].isdigit():
        return None
    if not _ODD.isdisjoint(sentence.text) or any(t.tag == "." for t in tokens[:end]):
        return None
    clear = not any(may_be_verb(sentence, i) for i in range(1, end - 1))
    return first if clear and _ends(sentence, first.end, end) else None


def is_view(sentence: Sentence) -> bool:
    """Whether the caption names itself: "a black and white photo of a couple"."""
    tokens = sentence.tokens
    end = sentence.end
    of = next((i for i in range(1, end) if tokens[i].lower == "of"), end)
    if tokens[0].lower not in ("a", "an") or tokens[of - 1].lower not in WORDS.views or of == end:
        return False
    if any(t.tag in ("IN", "CD", *FINITE) or t.tag == "NNS" for t in tokens[:of]):
        return False
    clear = not any(may_be_verb(sentence, i) for i in range(1, end - 1))
    return clear and not any(t.tag == "." for t in tokens[:end]) and _ends(sentence, of, end)


def may_be_verb(sentence: Sentence, place: int) -> bool:
    """ "a cat on a bed stares at a bird": the tagger takes the verb for a noun."""
    before, token, after = sentence.tokens[place - 1 : place + 2]
    return (
        token.tag == "NNS"
        and (before.tag in NOUNS or sentence.tokens[place - 2].lower in ("a", "an"))
        and after.tag in ("IN", "DT", "PRP$", "RB", "RP", "TO", "CD")
        and bool(lexicon.meanings(lemma(token.lower, "VERB"), "VERB"))
    )


def _ends(sentence: Sentence, start: int, end: int) -> bool:
    """Whether no second clause stands beside the first: "a man sits and a dog barks"."""
    tokens = sentence.tokens[start:end]
    open_ = False
    for token in tokens:
        verb = token.tag in FINITE or token.pos == "AUX" or token.tag == "MD"
        if token.lower in WORDS.subordinate:
            open_ = True
        elif (verb and not open_) or (open_ and token.lower in ("and", "but", "or")):
            return False
    return tokens == () or tokens[-1].tag not in (",", "CC", "IN", "DT")


@lru_cache(1)
def last_place(sentence: Sentence, said: Clause) -> Range | None:
    """The preposition of the phrase that ends the caption."""
    for place in range(said.end - 2, said.head - 1, -1):
        where = prepositions().at(sentence, place)
        if where is not None and sentence.words(*where) in WORDS.places:
            inner = prepositions().at(sentence, place - 1)  # "on" of "on top of"
            where = inner if inner is not None and inner[1] >= where[1] else where
            after = phrase_at(sentence, where[1])
            return where if after is not None and after.end == said.end else None
    return None


def exist_plural(sentence: Sentence, subject: NounPhrase) -> bool:
    """ "there is a group of people", "there are a couple of people"."""
    if sentence.word(subject.start) not in ("a", "an"):
        return subject.plural
    return sentence.has(WORDS.plural_measures, subject.start, subject.noun)


def verbs_joined(sentence: Sentence, start: int, end: int) -> bool:
    """ "sitting on a bench and reading": a second verb has the form of the first."""
    tokens = sentence.tokens
    return any(
        joint.lower in ("and", "or", "but", ",") and after.pos in ("VERB", "ADV")
        for joint, after in pairwise(tokens[start:end])
    )
