"""ADD negatives, SugarCrepe's third kind: a thing or an attribute that no caption mentions.

No text can show that what was added is not in the image. Three things make it improbable:

- What is added is salient: people who describe an image with a dog or a piano mention it.
- It is rare of that noun or in that scene: "a pink bus", not "a white bus".
- Neither the caption nor the image's other captions (if the input has them) mention it, or a word
  that may be true of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import islice
from random import Random
from typing import Final, NamedTuple

from counterpoint.cases import normal
from counterpoint.generation.language import lexicon
from counterpoint.generation.language.sentences import (
    FINITE,
    NOUNS,
    Put,
    Sentence,
    lemma,
    rewrite,
    word_set,
)
from counterpoint.generation.language.wordnet import Vocabulary
from counterpoint.generation.registry import Draft, Rule, Ways
from counterpoint.generation.rules import fitting
from counterpoint.generation.rules.phrases import (
    ABSTRACT,
    STATES,
    Range,
    noun_phrase_after,
    things,
    whole,
)
from counterpoint.generation.rules.siblings import name_of

_TRIES: Final = 3  # of many, the most plausible is always the same
_START: Final = 4  # letters that words of one thing share
_TRIED: Final = 8  # additions of which these are the first that no caption mentions
Option = tuple[Put, str]  # what is put, and the thing or attribute that it adds


def _phrases(*rows: str) -> tuple[tuple[str, str], ...]:
    """Rows of `PHRASES: THINGS` as pairs of a phrase and the thing that it adds."""
    found = []
    for row in rows:
        words, _, nouns = row.partition(": ")
        for before in words.split(", "):
            found += [(f"{before} {noun}", noun) for noun in nouns.split(", ")]
    return tuple(found)


# Behind a person: what they have with them.
_WITH_PEOPLE: Final = _phrases(
    "with: a dog, a baby, a flag, a balloon, a bicycle, a guitar, a large suitcase, a parrot",
    "holding: a red umbrella, a baby, a puppy, a camera, a balloon, a guitar, a bouquet of flowers",
    "wearing: a santa hat, a mask, a tuxedo, a wedding dress, a crown, a cowboy hat, a red scarf",
)
# Behind an animal.
_WITH_ANIMALS: Final = _phrases(
    "and: a goat, a monkey, a rabbit, a duck, a little girl, a small child",
    "next to: a bicycle, a goat, a child, a wheelbarrow, a blue truck, a tent",
    "with: a red ribbon, a bell, a bird on its back",
)
# At the end, by the place that the caption names.
_OUTSIDE: Final = _phrases(
    "next to, near: a fountain, a statue, a horse, a tent, a tractor",
    "near: a hot air balloon, a police officer",
    "next to: a yellow school bus, a man with a camera, a little girl in a pink dress",
)
_ON_BEACH: Final = (*_OUTSIDE, *_phrases("near: a lighthouse, a shipwreck"))
_ON_SNOW: Final = _phrases(
    "next to, near: a red tent, a horse, a snowman, a sled, a wooden cabin",
    "near: a hot air balloon, a helicopter",
    "next to: a man with a camera, a little girl in a pink dress",
)
_ON_WATER: Final = _phrases(
    "next to, near: a dolphin, a sailboat, a yellow kayak, a whale, a red buoy, a jet ski",
    "near: a lighthouse, a cruise ship, a shipwreck, a hot air balloon",
)
_INDOORS: Final = _phrases(
    "with, next to: a piano, a fireplace, a bird cage, a rocking chair, a bicycle, a guitar",
    "with: a christmas tree, a chandelier, a large fish tank, a stuffed bear",
)
_AT_TABLE: Final = _phrases(
    "next to: a teddy bear, a bouquet of roses, a toy car, a violin, a pineapple, a gift box",
    "next to: a pair of scissors, a bird cage, a chess board, a small cactus, a jar of honey",
)
_IN_BATHROOM: Final = _phrases(
    "with, next to: a bicycle, a guitar, a rocking chair, a stack of books, a stuffed bear",
    "with: a chandelier, a large fish tank",
)
_SCENES: Final = (
    (word_set("snow slope mountain ski skier"), _ON_SNOW),
    (word_set("beach"), _ON_BEACH),
    (word_set("bathroom toilet"), _IN_BATHROOM),
    (word_set("room kitchen bedroom office hallway couch bed sink"), _INDOORS),
    (word_set("plate bowl tray food pizza cake sandwich table counter desk"), _AT_TABLE),
    (
        word_set(
            """street road sidewalk field grass park hill track forest yard garden building
            fence tree branch station parking"""
        ),
        _OUTSIDE,
    ),
    (word_set("wave ocean sea surfer surfboard"), _ON_WATER),
)
_OPEN: Final = (_ON_SNOW, _ON_BEACH, _OUTSIDE)
_HOLDING: Final = word_set(
    "hold carry wear hand swing throw play ride surf swim ski snowboard skate skateboard with in"
)

# Attributes that people mention where they are true; what is often left unsaid (a colour, an age,
# that a sheep is wet) may well be true.
_ATTRIBUTES: Final = fitting.table(
    {
        "baby": "crying",
        "boy, girl, child": "shirtless, crying, barefoot",
        "man": "shirtless",
        "woman": "pregnant",
        "dog, cat, horse, puppy, kitten, pig": "muddy",
        "truck, car, bus, van, boat, bicycle, motorcycle": "rusty, pink, purple",
        "train, airplane, tractor": "rusty, pink, purple, orange",
        "house, building": "abandoned, pink",
        "field, road, street, path, sidewalk": "flooded",
        "beach": "rocky, deserted",
        "room": "flooded",
        "chair, bench": "broken",
        "couch, refrigerator, fence": "pink, purple",
        "window, mirror": "broken",
        "pizza, sandwich, bread, cake": "burnt",
        "apple, banana, orange": "rotten",
        "laptop, computer, television, phone, camera": "broken",
        "toilet, sink": "broken, golden, pink",
        "tree": "dead",
    }
)


def _add(sentence: Sentence, words: Vocabulary, rng: Random) -> Iterator[Ways]:
    said = _said(sentence, words.true)
    for subtype, found in (("obj", _objects), ("att", _attributes)):
        options = list(found(sentence))
        some = rng.sample(options, min(_TRIED, len(options)))
        new = (put for put, thing in some if is_new(thing, said))
        yield [Draft(rewrite(sentence, (put,)), "add", subtype) for put in islice(new, _TRIES)]


class Said(NamedTuple):
    """The words of the image's captions that may speak of a thing, also in the singular."""

    words: frozenset[str]
    starts: frozenset[str]  # of these words: "mud", "muddy"
    listed: frozenset[str]  # the words that the lexicon has


def _said(sentence: Sentence, others: Sequence[str]) -> Said:
    words = {token.lower for token in sentence.tokens}.union(*map(normal, others))
    found = frozenset[str]().union(*map(_content, words))
    starts = frozenset(word[:_START] for word in found)
    return Said(found, starts, frozenset(filter(lexicon.is_listed, found)))


_PLURAL_ENDINGS: Final = ("s", "men", "ren", "ice", "ese", "eet", "ople")


@lru_cache(1 << 15)
def _content(word: str) -> frozenset[str]:
    """A word and its singular; nothing for "next", "with" and other words of grammar."""
    # Other words are no plurals, and to look them up is slow.
    forms = {word, lemma(word, "NOUN")} if word.endswith(_PLURAL_ENDINGS) else {word}
    of_things = any(fitting.fields_of(form, pos) for form in forms for pos in ("NOUN", "ADJ"))
    known = of_things or not any(lexicon.is_listed(form) for form in forms)
    return frozenset(forms) if known and len(word) > 2 else frozenset()


def is_new(thing: str, said: Said) -> bool:
    """Whether no caption of the image mentions the thing or the like: "a bird cage", "a pet".

    Nor a word that makes it likely: "rain" for "flooded".
    """
    if not _LIKELY.get(thing, frozenset()).isdisjoint(said.words):
        return False
    words = thing.split()
    parts = [word for word in words if word not in _SUPPORT] or words  # "pink" by itself counts
    return not any(part[:_START] in said.starts or _is_said(part, said.listed) for part in parts)


def _is_said(part: str, listed: frozenset[str]) -> bool:
    same, different = _compared(part)
    if not same.isdisjoint(listed):
        return True
    for word in listed - different:
        if lexicon.may_be_same(word, part):
            same.add(word)
            return True
        different.add(word)
    return False


@cache
def _compared(part: str) -> tuple[set[str], set[str]]:
    """The words that it was compared with: those that may be the same, and the others.

    Sets, because a caption asks for twenty words of its image at once.
    """
    del part
    return set(), set()


_VAGUE: Final = word_set("sky body portion trick writing game figure")
_SUPPORT: Final = word_set("a an of on in its back red pink blue yellow large small little pair")


# --- things ---------------------------------------------------------------------------------------


def _objects(sentence: Sentence) -> Iterator[Option]:
    tokens = sentence.tokens
    first = noun_phrase_after(sentence, 0)
    if first is not None and _can_be_followed(sentence, first):
        name = name_of(sentence, first[1] - 1)
        held = not _HOLDING.isdisjoint(sentence.lemmas)
        rows: tuple[tuple[str, str], ...] = ()
        if fitting.is_any(name, fitting.PEOPLE):
            rows = _WITH_PEOPLE
        elif fitting.is_any(name, fitting.ANIMATE):
            rows = _WITH_ANIMALS
        several = tokens[first[1] - 1].tag == "NNS"
        left_out: tuple[str, ...] = ("hold", "wear") if held or several else ()
        left_out += ("with",) if held else ()
        if not several and tokens[first[1]].tag in FINITE:
            left_out += ("and",)  # "a cow and a goat stands"
        for phrase, thing in rows:
            if not phrase.startswith(left_out):
                yield Put(first[1], first[1], phrase), thing
    end = len(tokens) - (tokens[-1].text in (".", "!"))
    if end > 2 and tokens[end - 1].tag in NOUNS and _is_solid(sentence.lemma(end - 1)):
        yield from _at_end(sentence, end)


def _is_solid(noun: str) -> bool:
    """Whether a thing can stand next to it: not "rain", "pollution", "background"."""
    meanings = lexicon.meanings(noun, "NOUN")
    vague = any(meaning.field in _VAGUE for meaning in meanings)
    return bool(meanings) and not vague and noun not in ABSTRACT | STATES


def _can_be_followed(sentence: Sentence, phrase: Range) -> bool:
    """Whether a phrase may come behind the first one: not in "a man and", "a group of"."""
    tokens, end = sentence.tokens, phrase[1]
    if end >= len(tokens) or tokens[phrase[0]].tag not in ("DT", "CD", "NN", "NNS", "JJ"):
        return False
    after = tokens[end]
    if "alone" in sentence.lemmas:
        return False
    return after.pos in ("VERB", "AUX") and after.tag != "VBN"


def _at_end(sentence: Sentence, end: int) -> Iterator[Option]:
    """ "... on a beach near a lighthouse": by the last place or thing that the caption names."""
    names = [kind for i in things(sentence) for kind in fitting.kinds_of(name_of(sentence, i))]
    scenes = [rows for words, rows in _SCENES if not words.isdisjoint(names)]
    outside = {rows in _OPEN for rows in scenes}
    if "inside" in sentence.lemmas or len(outside) > 1 or _ON_WATER in scenes[1:]:
        return  # bananas among branches: neither what is on a table nor what is in a street
    rows = scenes[0] if scenes else ()
    tokens = [token.lower for token in sentence.tokens]
    taken = {word for word in ("and", "with", "near", "next", "under") if word in tokens}
    last = fitting.kinds_of(name_of(sentence, end - 1))
    for phrase, thing in rows:
        start = phrase.partition(" ")[0]
        if start not in taken and not (start == "and" and "people" in last):
            # before the full stop
            yield Put(end - 1, end, f"{sentence.tokens[end - 1].text} {phrase}"), thing


# --- attributes -----------------------------------------------------------------------------------


def _attributes(sentence: Sentence) -> Iterator[Option]:
    tokens = sentence.tokens
    for noun in things(sentence):
        start = whole(sentence, noun)[0]
        before = tokens[start - 1] if start else None
        if before is None or before.tag not in ("DT", "CD", "PRP$"):
            continue  # it has an adjective, or no article to carry one
        if not ABSTRACT.isdisjoint(sentence.lemmas[start:noun]):
            continue  # "an orange couple shelves"
        name = name_of(sentence, noun)
        row = fitting.row_of(_ATTRIBUTES, name) or frozenset()
        for adjective in sorted(row):
            if _can_be(adjective, name):
                yield Put(start, start, adjective), adjective


def _can_be(adjective: str, noun: str) -> bool:
    """Whether the lexicon allows it: no "pregnant boy"."""
    meanings = lexicon.meanings(adjective, "ADJ")
    return not meanings or any(lexicon.fits(meaning, noun) for meaning in meanings)


_WATER: Final = word_set(
    "water rain snow bath swim ocean beach river lake pond wave surf surfing sea"
)
_LIKELY: Final = {
    "flooded": _WATER,
    "shirtless": _WATER | word_set("shirt suit jacket coat shirts"),
    "barefoot": _WATER | word_set("shoes"),
    "pregnant": word_set("elderly old"),
}


ADD: Final = Rule(
    "add",
    "negative",
    "2",
    "a thing or an attribute added that no caption of the image mentions",
    _add,
)
