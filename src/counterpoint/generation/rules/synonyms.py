"""`synonyms`: one word of a caption is replaced by a synonym of the lexicon."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Final

from counterpoint._util.english import article
from counterpoint.generation.language import lexicon
from counterpoint.generation.language.lexicon import Vocabulary
from counterpoint.generation.language.lists import WORDS
from counterpoint.generation.language.phrases import (
    Range,
    attributes,
    said_of,
    starts_phrase,
    things,
)
from counterpoint.generation.language.sentences import (
    ADJECTIVES,
    NOUNS,
    Put,
    Sentence,
    in_form_of,
    is_plural,
)
from counterpoint.generation.registry import Rule, Ways
from counterpoint.generation.rules.clauses import is_person
from counterpoint.generation.rules.edits import Rewording, drafts, is_joined, is_repeated
from counterpoint.generation.rules.replacement import relation_slot

_SPARE: Final = 4.0  # of a hundred captions, those that may get an edit if they get no other text
_PARTS: Final = NOUNS | {"VB", "VBP"}


def edits(sentence: Sentence, words: Vocabulary) -> Iterator[tuple[str, list[Rewording]]]:
    """The edits of a caption, by subtype."""
    for subtype, of_words in (
        ("obj", _thing_synonyms),
        ("att", _adjective_synonyms),
        ("rel", _relation_synonyms),
    ):
        found = list(of_words(sentence, words))
        if found:
            yield subtype, found


def _lexicon(sentence: Sentence, words: Vocabulary, rng: Random) -> Iterator[Ways]:
    for subtype, found in edits(sentence, words):
        yield drafts(sentence, found, subtype, rng, _SPARE)


def _thing_synonyms(sentence: Sentence, words: Vocabulary) -> Iterator[Rewording]:
    for i in things(sentence):
        where, name = _name(sentence, i)
        if where is None or _other_sense(sentence, where, name):
            continue
        token = sentence.tokens[i]
        several = name == token.lower and token.tag == "NNS"
        tag = "NN" if several and not is_plural(name) else token.tag  # "a tennis racquet"
        for synonym in words.synonyms(name, "NOUN", ""):
            # Not "a pair of pair of scissors"; a plural is replaced by a plural.
            if name in synonym.text.split() or (is_plural(name) != is_plural(synonym.text)):
                continue
            if not _odd(sentence, where, synonym.text):
                yield from _put(sentence, where, name, synonym, tag)


def _name(sentence: Sentence, noun: int) -> tuple[Range | None, str]:
    """The noun with its name: "cell phone", "pants"; none for a part of a compound."""
    tokens, lemma = sentence.tokens, sentence.lemma(noun)
    if noun and (tokens[noun - 1].lower, lemma) in _pairs():
        inside = noun > 1 and tokens[noun - 2].tag in NOUNS
        return (None if inside else (noun - 1, noun + 1)), f"{tokens[noun - 1].lower} {lemma}"
    if _in_compound(sentence, noun):
        return None, ""
    plural = tokens[noun].tag == "NNS" and lexicon.meanings(tokens[noun].lower, "NOUN")
    return (noun, noun + 1), tokens[noun].lower if plural else lemma


@cache
def _pairs() -> frozenset[tuple[str, str]]:
    """The nouns of two words in the lexicon."""
    every = (word for field in lexicon.fields().values() for m in field for word in m.offered())
    names = (tuple(word.split()) for word in every)
    return frozenset((name[0], name[1]) for name in names if len(name) == 2)


def _in_compound(sentence: Sentence, noun: int) -> bool:
    """ "fire truck" is not "fire lorry", "baby blue" is a colour."""
    tokens = sentence.tokens
    if noun and tokens[noun - 1].tag in _PARTS:
        return True
    after = tokens[noun + 1 : noun + 3]
    colour = len(after) == 2 and after[0].tag in ADJECTIVES
    return colour and (after[1].tag in NOUNS or after[1].tag == "CC")


def _other_sense(sentence: Sentence, where: Range, name: str) -> bool:
    """Whether a noun stands for something else here, or in a set phrase."""
    start, end = where
    tokens, lemmas = sentence.tokens, sentence.lemmas
    after = sentence.word(end)
    before = sentence.word(start - 1)
    if name == "night":
        return before != "at"  # not "a dark nighttime"
    if name == "ocean":
        return before == "at" or (start > 1 and tokens[start - 2].lower == "at")
    if name in ("center", "centre"):
        return start < 2 or tokens[start - 2].lower != "in" or before != "the"
    if name == "tie":
        return before == "and"  # "a suit and tie"
    if name == "luggage":
        return "bag" in lemmas
    if name == "counter":
        return "on" not in {token.lower for token in tokens[max(0, start - 3) : start]}
    if name == "car":
        return not WORDS.rails.isdisjoint(lemmas)  # those of a train
    if name in ("father", "mother", "dad", "mom"):
        return any("animal" in lexicon.kinds(lemma) for lemma in lemmas)
    if name == "glasses":
        return "wear" not in lemmas
    if name in ("man", "woman", "lady"):
        return after in ("of", "and", "'s") or before in ("and", "old", "elderly", "older")
    return name == "drink" and after == "of"


def _odd(sentence: Sentence, where: Range, synonym: str) -> bool:
    """Whether the new word does not fit the words around it."""
    before = sentence.word(where[0] - 1)
    if synonym == "guy":
        return before in ("business", "snow", "police") or "woman" in sentence.lemmas
    return False


def _adjective_synonyms(sentence: Sentence, words: Vocabulary) -> Iterator[Rewording]:
    for i in attributes(sentence):
        described = said_of(sentence, i)
        lemma = sentence.lemma(i)
        if not described or _is_fixed(sentence, i, described) or is_joined(sentence, i):
            continue
        for synonym in words.synonyms(lemma, "ADJ", described):
            yield from _put(sentence, (i, i + 1), lemma, synonym)


def _is_fixed(sentence: Sentence, place: int, noun: str) -> bool:
    """ "the back ground", "middle aged", "medium sized"; no "littler", no "a little help"."""
    tokens, lemma = sentence.tokens, sentence.lemma(place)
    after = sentence.word(place + 1)
    if lemma in ("back", "rear") or tokens[place].tag in ("JJR", "JJS"):
        return True
    if after in ("sized", "size", "colored", "coloured", "haired") or (
        place and tokens[place - 1].lower in ("middle", "well", "very", "so", "too", "wide")
    ):
        return True
    if lemma == "assorted" and place and tokens[place - 1].lower in ("some", "other", "all"):
        return True
    if lemma in WORDS.sizes and noun in WORDS.amounts:
        return True
    if lemma in ("huge", "giant") and is_person(noun):
        return True  # a giant is tall, too
    return lemma == "little" and not lexicon.meanings(noun, "NOUN")


def _relation_synonyms(sentence: Sentence, words: Vocabulary) -> Iterator[Rewording]:
    verbs, prepositions = _first_words("VERB", words.doubtful), _first_words("ADP", words.doubtful)
    for i, token in enumerate(sentence.tokens):
        if token.pos == "VERB":
            if sentence.lemmas[i] not in verbs:
                continue
        elif token.lower not in prepositions:
            continue
        slot = relation_slot(sentence, i)
        if slot is None or (token.tag in ("VBN", "VBD") and lexicon.meanings(token.lower, "ADJ")):
            continue  # "a closed door", "a door closed by a man": one edit has one subtype
        after = sentence.tokens[slot.where[1]] if slot.where[1] < len(sentence.tokens) else None
        if after is not None and after.tag in NOUNS and slot.word in WORDS.before_bare_nouns:
            continue  # "inside case of", "under construction"
        if i and sentence.tokens[i - 1].lower == "from" and slot.pos == "ADP":
            continue  # "from inside a car"
        if slot.word in WORDS.other_methods:
            continue
        if slot.word == "up against" and i and sentence.lemma(i - 1) == "line":
            continue
        if slot.word == "lay" and (token.lower == "laid" or starts_phrase(sentence, slot.where[1])):
            continue  # "laid out", "laying bricks"
        if slot.word.startswith(("crouch", "squat")) and not is_person(
            sentence.lemma(max(0, i - 1))
        ):
            continue
        for synonym in words.synonyms(slot.word, slot.pos, slot.noun):
            if synonym.text.endswith(" of") and slot.word in ("in", "inside", "outside"):
                continue  # "inside of a room"
            if _misplaced(sentence, slot.word, synonym.text, slot.noun):
                continue
            tag = "IN" if slot.pos == "ADP" else None
            yield from _put(sentence, slot.where, slot.word, synonym, tag)


def _misplaced(sentence: Sentence, word: str, synonym: str, noun: str) -> bool:
    if synonym == "underneath":
        return noun in ("sky", "sun", "moon")
    if synonym == "atop":
        return "topped" in sentence.text  # "atop a table topped with fruits"
    if synonym == "inside":
        return any(token.lower == "outdoor" for token in sentence.tokens)
    return word == "next to" and synonym == "near"  # one of the map


@cache
def _first_words(pos: str, doubtful: bool) -> frozenset[str]:
    """The first words of the relations of the lexicon that have synonyms."""
    found = set[str]()
    for meaning in (meaning for field in lexicon.fields().values() for meaning in field):
        sure = (*meaning.words, *meaning.narrower)
        if meaning.pos == pos and (doubtful or meaning.sure or len(sure) > 1):
            found.update(
                word.partition(" ")[0] for word in (meaning.offered() if doubtful else sure)
            )
    return frozenset(found)


def _put(
    sentence: Sentence, where: Range, word: str, synonym: lexicon.Synonym, tag: str | None = None
) -> Iterator[Rewording]:
    token, start = sentence.tokens[where[0]], where[0]
    form = in_form_of(token, synonym.text, tag)
    if form and token.tag in ADJECTIVES and sentence.tokens[start - 1].lower in ("a", "an"):
        start, form = start - 1, f"{article(form)} {form}"  # it stays: "a wood table"
    if word == "lie" and synonym.text == "lay":
        return
    if is_repeated(sentence, where, word, synonym.text):
        return
    if form and form.lower() != "lied":  # "laid": the forms of that other "to lie"
        yield Rewording(Put(start, where[1], form), word, synonym.text, synonym.doubt)


LEXICON: Final = Rule("synonyms", "positive", "5", "a synonym of the lexicon", _lexicon)
