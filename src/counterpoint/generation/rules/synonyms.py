"""Synonyms, which keep the meaning: one word is replaced by another that says the same.

`hard-positives` uses the synonyms of the paper: whole words only, in every tense (the published
data was made by replacing letters: "covecrimson"), and not where a word has another sense ("in a
red shirt" is not "within a red shirt"). `synonyms` uses the lexicon.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final, NamedTuple

from counterpoint.benchmarks import SYNONYMS
from counterpoint.generation.language import lexicon
from counterpoint.generation.language.sentences import (
    ADJECTIVES,
    NOUNS,
    Put,
    Sentence,
    article,
    in_form_of,
    rewrite,
    word_set,
)
from counterpoint.generation.language.wordnet import Vocabulary
from counterpoint.generation.registry import Draft, Rule, Ways
from counterpoint.generation.rules.clauses import is_alive, is_person, kinds
from counterpoint.generation.rules.phrases import (
    ABSTRACT,
    Phrases,
    Range,
    attributes,
    is_place_for,
    is_worn,
    noun_described,
    noun_phrase_after,
    object_of,
    said_of,
    starts_phrase,
    things,
)
from counterpoint.generation.rules.replacement import relation_slot

_SHARE: Final = 1.0  # of a hundred captions, those in which one word may be replaced
# In how many of a hundred captions of COCO and Flickr8k a word could be.
_RATES: Final = {
    "in": 20.1,
    "young": 4.5,
    "sit": 4.2,
    "child": 4.0,
    "next to": 3.9,
    "large": 3.5,
    "on": 3.4,
    "small": 3.2,
    "street": 2.5,
    "near": 2.5,
    "wear": 2.2,
    "by": 1.6,
    "on top of": 1.5,
    "behind": 1.3,
    "car": 1.3,
    "wooden": 1.1,
    "road": 1.1,
}
_AMOUNTS: Final = word_set(
    "amount array assortment body collection crowd flock herd quantity selection"
)
# The verbs of the map, by their dictionary forms.
_VERBS: Final = {
    "hold": "grasp",
    "hang": "dangle",
    "walk": "stroll",
    "eat": "ingest",
    "look": "gaze",
    "ride on": "travel on",
    "ride": "travel on",
}
_BE: Final = {"VBZ": "is", "VBP": "are", "VBD": "was"}
_PREPOSITIONS: Final = Phrases(
    ("on top of", "next to", "behind", "near", "under", "above", "by", "in")
)
# What has a border that keeps things in.
_BORDERED: Final = word_set("cage corral enclosure fence frame pen compound perimeter exhibit")
_STAYING: Final = word_set("sit stand lie lay park pose wait rest hang sleep eat stop play graze")
_FIRST: Final = word_set("on next behind near under above by in")
# Verbs, also before a noun: "a sitting man" is the same edit as "a man sitting".
_ADJECTIVES: Final = {
    word: synonym
    for word, synonym in SYNONYMS["attributes"].items()
    if word not in ("eating", "hanging", "looking", "sitting", "walking")
}
# What the map says of more than the word means: made if doubtful texts are asked for.
_DOUBTS: Final = {
    **dict.fromkeys(("black", "blue", "brown", "green", "red", "white"), lexicon.NARROWER),
    "young": "also: of those who only look it",
    "small": "very small",
    "wet": "a little wet",
    "silver": "any colour of metal",
    "long": "said of times and texts rather than of things",
    "smiling": "one may smile and not be happy",
    "standing": "also: of things that could lie",
    "above": "of what touches",
    "clear": "a rare word",
    "near": "not always as close",
    "hold": "firmly, with the hand",
    "hang": "loosely",
    "walk": "slowly, for pleasure",
    "look": "for a long time",
    "eat": "a doctor's word",
    "ride": "of vehicles rather than horses",
    "ride on": "of vehicles rather than horses",
}


class _Edit(NamedTuple):
    """A word that is replaced, how it is listed, and why the new text may be false."""

    put: Put
    word: str
    doubt: str = ""


def _paper(sentence: Sentence, words: Vocabulary, rng: Random) -> Iterator[Ways]:
    for subtype, found in (("att", _attribute_edits), ("rel", _relation_edits)):
        edits = [edit for edit in found(sentence) if words.doubtful or not edit.doubt]
        rng.shuffle(edits)
        yield _drafts(sentence, edits, subtype, rng)


def _drafts(sentence: Sentence, edits: list[_Edit], subtype: str, rng: Random) -> Ways:
    """The drafts of these edits, rare ones first, and those of common words marked.

    A common word is kept with the probability that gives each edit the same small share of all
    captions. It depends on the caption alone, so pieces can be made in any order.
    """
    common = {edit: rng.random() * _RATES.get(edit.word, 0) > _SHARE for edit in edits}
    if any(common[edit] for edit in edits if not edit.doubt):
        edits = [edit for edit in edits if not edit.doubt]  # a doubtful word is no way out
    edits.sort(key=lambda edit: (bool(edit.doubt), common[edit]))  # stable
    return (
        Draft(rewrite(sentence, (edit.put,)), "replace", subtype, edit.doubt, common=common[edit])
        for edit in edits  # written when they are asked for: most are not
    )


def _attribute_edits(sentence: Sentence) -> Iterator[_Edit]:
    for i, token in enumerate(sentence.tokens):
        synonym = _ADJECTIVES.get(token.lower)
        if synonym is None or _joined(sentence, i) or (i and token.text[:1].isupper()):
            continue  # "Big Ben"
        if _is_repeated(sentence, (i, i + 1), token.lower, synonym):
            continue
        noun = said_of(sentence, i)
        if noun and token.tag in ("JJ", "NN", "VBG", "VBN", "NNP") and _fits(token.lower, noun):
            put = Put(i, i + 1, in_form_of(token, synonym, "JJ"))
            yield _Edit(put, token.lower, _DOUBTS.get(token.lower, "") or _odd(token.lower, noun))


def _odd(word: str, noun: str) -> str:
    """Why the map's synonym is not said of this noun: "an aged sign", "a big number"."""
    if word == "old" and not is_person(noun):
        return "of people rather than of things"
    if word in ("big", "large") and not lexicon.meanings(noun, "NOUN"):
        return "perhaps not of a thing"  # "a big hug"
    return "of things rather than of numbers" if noun in ABSTRACT | _AMOUNTS else ""


def _fits(word: str, noun: str) -> bool:
    """Whether the lexicon knows no reason why a word has another sense with this noun."""
    meanings = lexicon.meanings(word, "ADJ")
    return not meanings or any(lexicon.fits(meaning, noun) for meaning in meanings)


def _joined(sentence: Sentence, place: int) -> bool:
    """A part of "black and white", of "dark blue" or of "blue-green"."""
    tokens = sentence.tokens
    around = [tokens[i].lower for i in (place - 1, place + 1) if 0 <= i < len(tokens)]
    shades = {"and", "-", "dark", "light", "bright", "pale", "&", "or"}
    return any(word in shades for word in around)


def _relation_edits(sentence: Sentence) -> Iterator[_Edit]:
    for i, token in enumerate(sentence.tokens):
        if token.lower == "wearing" and token.pos == "VERB":  # "wears" is the only verb
            if _may_be_in(sentence, i):
                yield _Edit(Put(i, i + 1, in_form_of(token, "in", "IN")), "wear")
        elif token.pos == "VERB" or token.lower in ("sitting", "riding", "holding"):
            yield from _verb_edits(sentence, i)
        elif token.lower in _FIRST:
            yield from _preposition_edits(sentence, i)


def _may_be_in(sentence: Sentence, verb: int) -> bool:
    """ "a man wearing a shirt" is in a shirt; not "sitting and wearing a watch"."""
    before = sentence.tokens[verb - 1] if verb else None
    clothes = noun_phrase_after(sentence, verb + 1)
    return (
        before is not None
        and (before.tag in NOUNS or before.pos == "AUX")
        and (clothes is None or is_worn(sentence, clothes[1] - 1))
        and not any(token.lower == "while" for token in sentence.tokens)
        and not any(token.lower == "in" for token in sentence.tokens[:verb])  # "in jeans in a tie"
    )


def _verb_edits(sentence: Sentence, place: int) -> Iterator[_Edit]:
    token = sentence.tokens[place]
    lemma = sentence.lemma(place) if token.pos == "VERB" else token.lower.removesuffix("ing")
    after = sentence.tokens[place + 1].lower if place + 1 < len(sentence.tokens) else ""
    if lemma in ("sit", "sitt"):
        form = "seated" if token.tag == "VBG" or token.pos != "VERB" else ""
        form = f"{_BE[token.tag]} seated" if token.tag in _BE else form
        if form and after not in ("down", "up", "and", ",") and _sitter(sentence, place):
            yield _Edit(Put(place, place + 1, in_form_of(token, form, "IN")), "sit")
        return
    if lemma == "look" and (after in ("for", "like", "after", "as") or token.tag == "VB"):
        return
    if lemma in ("walk", "hang") and _has_object(sentence, place):
        return  # "walking a dog", "hanging a picture"
    phrase = f"{lemma} {after}"
    end = place + 2 if phrase in _VERBS else place + 1
    word = phrase if phrase in _VERBS else lemma
    if word == "ride" and not _has_object(sentence, place):
        return
    if word in _VERBS:
        put = Put(place, end, in_form_of(token, _VERBS[word]))
        yield _Edit(put, word, _DOUBTS.get(word, ""))


def _sitter(sentence: Sentence, verb: int) -> bool:
    """Whether people or animals sit: a plate on a table is not seated."""
    tokens = sentence.tokens
    noun = noun_described(sentence, verb) if verb == 0 or tokens[verb - 1].tag == "DT" else -1
    if noun < 0:
        before = verb
        while before and tokens[before - 1].pos in ("AUX", "ADV"):
            before -= 1
        noun = before - 1
    return noun >= 0 and is_alive(sentence.lemma(noun))


def _has_object(sentence: Sentence, verb: int) -> bool:
    """ "a man riding a horse", but not "a walking man"."""
    tokens = sentence.tokens
    if verb + 1 == len(tokens) or tokens[verb + 1].tag == "IN":
        return False
    inside = verb == 0 or tokens[verb - 1].tag in ("DT", "JJ", "IN", "PRP$", "CD")
    return starts_phrase(sentence, verb + 1) and not (inside and tokens[verb + 1].tag in NOUNS)


def _preposition_edits(sentence: Sentence, place: int) -> Iterator[_Edit]:
    tokens = sentence.tokens
    where = _PREPOSITIONS.at(sentence, place)
    if where is None or where[1] == len(tokens):
        return
    name = " ".join(token.lower for token in tokens[place : where[1]])
    if not _other_sense(sentence, name, *where):
        form = in_form_of(tokens[place], SYNONYMS["relations"][name], "IN")
        doubt = _DOUBTS.get(name, "") or _stiff(name, object_of(sentence, where[1]))
        yield _Edit(Put(*where, form), name, doubt)


def _stiff(name: str, noun: str) -> str:
    """Why the map's word is not said of this place: "within a field", "to the rear of a fence"."""
    if name == "in" and noun not in _BORDERED:
        return "a formal word"
    if name == "behind" and kinds(noun).isdisjoint(("vehicle", "building")):
        return "of what has a rear"
    if name == "on top of" and not any(
        synonym.text == name for synonym in lexicon.synonyms("on", "ADP", noun)
    ):
        return "also: on another part"  # on a bus, on a mountain
    return ""


def _other_sense(sentence: Sentence, name: str, place: int, end: int) -> bool:
    before = sentence.tokens[place - 1] if place else None
    if not starts_phrase(sentence, end):
        return True  # "walking by", "parked in between"
    if name == "by":
        # "bitten on the nose by a kitten": the one who does it may stand far behind
        deed = any(token.tag == "VBN" for token in sentence.tokens[:place])
        itself = sentence.tokens[end].tag == "PRP"  # "by itself"
        if before is None or deed or itself or before.lower in ("side", "up", "setup"):
            return True
        return before.pos == "VERB" and sentence.lemma(place - 1) not in _STAYING  # "passing by"
    if name == "in":
        said = before is not None and before.tag in ("VBN", "VBD")  # "dressed in", "covered in"
        return said or not is_place_for(sentence, end)
    if name == "next to":
        return before is not None and before.lower in ("right", "directly", "just")
    return before is not None and before.lower == "from" and name in ("above", "behind", "under")


def _lexicon(sentence: Sentence, words: Vocabulary, rng: Random) -> Iterator[Ways]:
    for subtype, found in (
        ("obj", _thing_synonyms),
        ("att", _adjective_synonyms),
        ("rel", _relation_synonyms),
    ):
        edits = list(found(sentence, words))
        rng.shuffle(edits)
        yield _drafts(sentence, edits, subtype, rng)


def _thing_synonyms(sentence: Sentence, words: Vocabulary) -> Iterator[_Edit]:
    for i in things(sentence):
        if _in_compound(sentence, i):
            continue
        lemma = sentence.lemma(i)
        for synonym in words.synonyms(lemma, "NOUN", ""):
            # Not "a pair of pair of scissors", "a beverage of water", "behind the countertop".
            if lemma not in synonym.text.split() and not _set_phrase(sentence, i, lemma):
                yield from _put(sentence, (i, i + 1), lemma, synonym)


def _in_compound(sentence: Sentence, noun: int) -> bool:
    """ "fire truck" is not "fire lorry", "baby blue" is a colour."""
    before, after = sentence.tokens[noun - 1 : noun], sentence.tokens[noun + 1 : noun + 3]
    colour = len(after) == 2 and after[0].tag in ADJECTIVES and after[1].tag in (*NOUNS, "CC")
    return colour or any(token.tag in (*NOUNS, "VB", "VBP") for token in before)


def _set_phrase(sentence: Sentence, noun: int, lemma: str) -> bool:
    after = sentence.tokens[noun + 1].lower if noun + 1 < len(sentence.tokens) else ""
    before = {token.lower for token in sentence.tokens[max(0, noun - 3) : noun]}
    if lemma == "night":
        return sentence.tokens[noun - 1].lower != "at"  # not "a dark nighttime"
    return (lemma == "drink" and after == "of") or (lemma == "counter" and "on" not in before)


def _adjective_synonyms(sentence: Sentence, words: Vocabulary) -> Iterator[_Edit]:
    for i in attributes(sentence):
        described = said_of(sentence, i)
        lemma = sentence.lemma(i)
        # "the back ground", "a rear view mirror"; no "littler"
        middle = i > 0 and sentence.tokens[i - 1].lower == "middle"  # "middle aged"
        fixed = middle or lemma in ("back", "rear") or sentence.tokens[i].tag in ("JJR", "JJS")
        # "a little help"
        fixed |= lemma == "little" and not lexicon.meanings(described, "NOUN")
        if described and not fixed and not _joined(sentence, i):
            for synonym in words.synonyms(lemma, "ADJ", described):
                yield from _put(sentence, (i, i + 1), lemma, synonym)


def _relation_synonyms(sentence: Sentence, words: Vocabulary) -> Iterator[_Edit]:
    for i, token in enumerate(sentence.tokens):
        slot = relation_slot(sentence, i)
        if slot is None or (token.tag in ("VBN", "VBD") and lexicon.meanings(token.lower, "ADJ")):
            continue  # "a closed door", "a door closed by a man": one edit has one subtype
        bare = slot.where[1] < len(sentence.tokens) and sentence.tokens[slot.where[1]].tag in NOUNS
        for synonym in words.synonyms(slot.word, slot.pos, slot.noun):
            if bare and slot.word in ("in", "on"):
                continue  # "inside case of", "on top of bed"
            if synonym.text.endswith(" of") and slot.word in ("in", "inside", "outside"):
                continue  # "inside of a room"
            tag = "IN" if slot.pos == "ADP" else None
            yield from _put(sentence, slot.where, slot.word, synonym, tag)


def _put(
    sentence: Sentence, where: Range, word: str, synonym: lexicon.Synonym, tag: str | None = None
) -> Iterator[_Edit]:
    token, start = sentence.tokens[where[0]], where[0]
    form = in_form_of(token, synonym.text, tag)
    if form and token.tag in ADJECTIVES and sentence.tokens[start - 1].lower in ("a", "an"):
        start, form = start - 1, f"{article(form)} {form}"  # it stays: "a wood table"
    if word == "lie" and synonym.text == "lay":
        return
    if _is_repeated(sentence, where, word, synonym.text):
        return
    if form and form.lower() != "lied":  # "laid": the forms of that other "to lie"
        yield _Edit(Put(start, where[1], form), word, synonym.doubt)


def _is_repeated(sentence: Sentence, where: Range, word: str, synonym: str) -> bool:
    """Whether the caption would name one thing by two words: "a hot dog and a hotdog"."""
    others = [t.lower for t in (*sentence.tokens[: where[0]], *sentence.tokens[where[1] :])]
    if sentence.tokens[where[0]].tag in (*NOUNS, *ADJECTIVES) and (
        word in others or f"{word}s" in others
    ):
        return True
    rest = f" {' '.join(others)} "
    return f" {synonym} " in rest or f" {synonym}s " in rest


PAPER: Final = Rule(
    "hard-positives", "positive", "3", "a synonym of the Hard Positives paper's map", _paper
)
LEXICON: Final = Rule("synonyms", "positive", "4", "a synonym of the lexicon", _lexicon)
