"""Words replaced by words that say the same, and how often common edits are made.

Without limits the edits of a few common words would be most texts of a method.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from operator import itemgetter
from random import Random
from typing import Final, NamedTuple

from counterpoint._util.english import article
from counterpoint.generation.language import lexicon
from counterpoint.generation.language.lexicon import Vocabulary
from counterpoint.generation.language.lists import TABLES, WORDS
from counterpoint.generation.language.sentences import (
    ADJECTIVES,
    DETERMINERS,
    NOUNS,
    Phrases,
    Put,
    Range,
    Sentence,
)
from counterpoint.generation.language.words import is_plural
from counterpoint.generation.pairs import Draft
from counterpoint.generation.registry import Ways, rule
from counterpoint.generation.rules.clauses import is_alive, is_counted, is_person, phrase_at
from counterpoint.generation.rules.replacement import relation_slot

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
        Draft(sentence.rewrite((edit.put,)), "replace", subtype, edit.doubt, common=rate > SHARE)
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
    return any(sentence.word(i) in WORDS.colour_joints for i in (place - 1, place + 1))


_NAMES: Final = NOUNS | ADJECTIVES


# --- synonyms of the lexicon ----------------------------------------------------------------------


_SPARE: Final = 4.0  # of a hundred captions, those that may get an edit if they get no other text


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


@rule("synonyms", "positive", "5")
def synonyms(sentence: Sentence, words: Vocabulary, rng: Random) -> Iterator[Ways]:
    """a synonym of the lexicon"""
    for subtype, found in edits(sentence, words):
        yield drafts(sentence, found, subtype, rng, _SPARE)


def _thing_synonyms(sentence: Sentence, words: Vocabulary) -> Iterator[Rewording]:
    for i in sentence.things():
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
            before = sentence.word(where[0] - 1)
            others = before in ("business", "snow", "police") or "woman" in sentence.lemmas
            if not (others and synonym.text == "guy"):
                yield from _put(sentence, where, name, synonym, tag)


def _name(sentence: Sentence, noun: int) -> tuple[Range | None, str]:
    """The noun with its name: "cell phone", "pants"; none for a part of a compound."""
    token, lemma = sentence.tokens[noun], sentence.lemmas[noun]
    pair = f"{sentence.word(noun - 1)} {lemma}"
    if lexicon.meanings(pair):
        inside = sentence.at(noun - 2).tag in NOUNS
        return (None if inside else (noun - 1, noun + 1)), pair
    if _in_compound(sentence, noun):
        return None, ""
    plural = token.tag == "NNS" and lexicon.meanings(token.lower, "NOUN")
    return (noun, noun + 1), token.lower if plural else lemma


def _in_compound(sentence: Sentence, noun: int) -> bool:
    """ "fire truck" is not "fire lorry", "baby blue" is a colour."""
    if sentence.at(noun - 1).tag in (*NOUNS, "VB", "VBP"):
        return True
    adjective, after = sentence.at(noun + 1), sentence.at(noun + 2)
    return adjective.tag in ADJECTIVES and after.tag in (*NOUNS, "CC")


def _other_sense(sentence: Sentence, where: Range, name: str) -> bool:
    """Whether a noun stands for something else here, or in a set phrase."""
    start, lemmas = where[0], sentence.lemmas
    before, after = sentence.word(start - 1), sentence.word(where[1])
    if name == "night":
        return before != "at"  # not "a dark nighttime"
    if name == "ocean":
        return "at" in (before, sentence.word(start - 2))
    if name in ("center", "centre"):
        return sentence.word(start - 2) != "in" or before != "the"
    if name == "tie":
        return before == "and"  # "a suit and tie"
    if name == "luggage":
        return "bag" in lemmas
    if name == "counter":
        return not sentence.has(("on",), max(0, start - 3), start)
    if name == "car":
        return not WORDS.rails.isdisjoint(lemmas)  # those of a train
    if name in ("father", "mother", "dad", "mom"):
        return any("animal" in lexicon.kinds(lemma) for lemma in lemmas)
    if name == "glasses":
        return "wear" not in lemmas
    if name in ("man", "woman", "lady"):
        return after in ("of", "and", "'s") or before in ("and", "old", "elderly", "older")
    return name == "drink" and after == "of"


def _adjective_synonyms(sentence: Sentence, words: Vocabulary) -> Iterator[Rewording]:
    for i in sentence.attributes():
        described = sentence.said_of(i)
        lemma = sentence.lemmas[i]
        if not described or _is_fixed(sentence, i, described) or is_joined(sentence, i):
            continue
        for synonym in words.synonyms(lemma, "ADJ", described):
            yield from _put(sentence, (i, i + 1), lemma, synonym)


def _is_fixed(sentence: Sentence, place: int, noun: str) -> bool:
    """ "the back ground", "middle aged", "medium sized"; no "littler", no "a little help"."""
    lemma = sentence.lemmas[place]
    before, after = sentence.word(place - 1), sentence.word(place + 1)
    if lemma in ("back", "rear") or sentence.tokens[place].tag in ("JJR", "JJS"):
        return True
    if after in ("sized", "size", "colored", "coloured", "haired"):
        return True
    if before in ("middle", "well", "very", "so", "too", "wide"):
        return True
    if lemma == "assorted" and before in ("some", "other", "all"):
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
        if sentence.at(slot.where[1]).tag in NOUNS and slot.word in WORDS.before_bare_nouns:
            continue  # "inside case of", "under construction"
        if sentence.word(i - 1) == "from" and slot.pos == "ADP":
            continue  # "from inside a car"
        if slot.word in WORDS.other_methods:
            continue
        if slot.word == "up against" and i and sentence.lemmas[i - 1] == "line":
            continue
        if slot.word == "lay" and (token.lower == "laid" or sentence.starts_phrase(slot.where[1])):
            continue  # "laid out", "laying bricks"
        if slot.word.startswith(("crouch", "squat")) and not is_person(
            sentence.lemmas[max(0, i - 1)]
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
        return sentence.has(("outdoor",))
    return word == "next to" and synonym == "near"  # one of the map


@cache
def _first_words(pos: str, doubtful: bool) -> frozenset[str]:
    """The first words of the relations of the lexicon that have synonyms."""
    found = set[str]()
    for meaning in (meaning for field in lexicon.fields().values() for meaning in field):
        sure = (*meaning.words, *meaning.narrower)
        if meaning.pos == pos and (doubtful or meaning.sure or len(sure) > 1):
            found.update(word.partition(" ")[0] for word in (meaning.offered if doubtful else sure))
    return frozenset(found)


def _put(
    sentence: Sentence, where: Range, word: str, synonym: lexicon.Synonym, tag: str | None = None
) -> Iterator[Rewording]:
    token, start = sentence.tokens[where[0]], where[0]
    form = token.form_of(synonym.text, tag)
    if form and token.tag in ADJECTIVES and sentence.tokens[start - 1].lower in ("a", "an"):
        start, form = start - 1, f"{article(form)} {form}"  # it stays: "a wood table"
    if word == "lie" and synonym.text == "lay":
        return
    if is_repeated(sentence, where, word, synonym.text):
        return
    if form and form.lower() != "lied":  # "laid": the forms of that other "to lie"
        yield Rewording(Put(start, where[1], form), word, synonym.text, synonym.doubt)


# --- how many -------------------------------------------------------------------------------------


_NUMBERS: Final[dict[str, str]] = TABLES["figures"]
_DIGITS: Final = {digit: word for word, digit in _NUMBERS.items()}
_AMOUNTS: Final[dict[str, list[str]]] = TABLES["amounts_before_plurals"]
_ANYWHERE: Final[dict[str, list[str]]] = TABLES["anywhere"]
# Of captions with these words, the share in which they are replaced.
_KEPT: Final = {"two": 0.2, "three": 0.5, "several": 0.5}
_PHRASES: Final = (*_AMOUNTS, *_ANYWHERE, *_NUMBERS, *_DIGITS)
_KNOWN: Final = Phrases(_PHRASES)
_FIRST: Final = frozenset(phrase.split()[0] for phrase in _PHRASES) - {"a", "an"}
_SECOND: Final = frozenset(p.split()[1] for p in _PHRASES if p.startswith(("a ", "an ")))


@rule("determiners", "positive", "2")
def determiners(sentence: Sentence, _words: Vocabulary, rng: Random) -> Iterator[Ways]:
    """other words for how many: "two dogs", "2 dogs", "a pair of dogs" """
    puts: list[tuple[Put, float]] = []
    place = 0
    while place < len(sentence.tokens):
        where = _KNOWN.at(sentence, place) if _may_start(sentence, place) else None
        if where is not None:
            puts += _amounts(sentence, *where)
        place = place + 1 if where is None else where[1]
    rng.shuffle(puts)
    drafts = [(put, rng.random() > keep) for put, keep in puts]
    drafts.sort(key=itemgetter(1))
    yield (Draft(sentence.rewrite((p,)), "replace", "att", common=common) for p, common in drafts)


def _may_start(sentence: Sentence, place: int) -> bool:
    """Every caption has an "a": a look at the next word saves most of the search."""
    word = sentence.word(place)
    return sentence.word(place + 1) in _SECOND if word in ("a", "an") else word in _FIRST


def _amounts(sentence: Sentence, start: int, end: int) -> Iterator[tuple[Put, float]]:
    tokens = sentence.tokens
    name = sentence.words(start, end)
    before, after = sentence.at(start - 1), sentence.at(end).tag
    if before.lower in ("so", "too", "how", "as", "very"):
        return  # "so many"
    if start == 0 and name in _DIGITS:
        return  # a figure does not say whether a sentence begins with a capital
    if name.endswith(" of") and name in _ANYWHERE and any(t.pos == "VERB" for t in tokens[:start]):
        return  # "taking a picture of"
    others: Sequence[str]
    if name in _ANYWHERE:
        others = _ANYWHERE[name]
    elif after in ("", "HYPH") or before.tag in ("HYPH", "DT", "PRP$"):
        return
    else:
        others = _of_plural(sentence, name, end)
    if name == "all of the" and after not in (*NOUNS, *ADJECTIVES):
        return
    for other in others:
        text = other.upper() if sentence.text.isupper() else other
        yield Put(start, end, text), _KEPT.get(name, 1.0)


def _of_plural(sentence: Sentence, name: str, place: int) -> Sequence[str]:
    """What may replace an amount before this noun phrase."""
    phrase = phrase_at(sentence, place)
    if phrase is None or not is_counted(sentence, phrase.noun):
        return ()
    if sentence.tokens[place].tag in (*DETERMINERS, "IN", "TO"):
        return ()
    alive = is_alive(sentence.lemmas[phrase.noun])
    number = _NUMBERS.get(name, _DIGITS.get(name, ""))
    if sum(token.tag == "CD" for token in sentence.tokens) > 1:
        number = ""  # not "three cats and 2 dogs"
    after = sentence.word(phrase.end)
    pair = alive and after not in ("and", ",", "or")  # "two men and a woman"
    others = _AMOUNTS.get(name, ()) if name not in WORDS.pairs or pair else ()
    # A sentence does not begin with a figure.
    return (*others, number) if number and (place > 1 or name in _DIGITS) else others
