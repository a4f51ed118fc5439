"""`hard-positives`: attributes and relations in other words.

The words are the map of the Hard Positives paper, where they surely say the same: whole words only,
in every tense (the published data was made by replacing letters: "covecrimson"), and not where a
word has another sense ("in a red shirt" is not "within a red shirt").

To these come sayings ("filled with" and "full of"). "~" marks a verb, which keeps its form: "~do"
matches "does" and "doing". Nouns are looked up with their kinds: "animal" is said of every dog.
Each saying is true for every caption that meets its conditions, not only most of the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any, Final, NamedTuple

from counterpoint.benchmarks import SYNONYMS
from counterpoint.generation.language import lexicon
from counterpoint.generation.language.lexicon import Vocabulary
from counterpoint.generation.language.lists import TABLES, WORDS
from counterpoint.generation.language.sentences import NOUNS, Phrases, Put, Sentence
from counterpoint.generation.registry import Ways, rule
from counterpoint.generation.rules.clauses import is_alive, is_person
from counterpoint.generation.rules.synonyms import Rewording, drafts, is_joined, is_repeated

# Of a hundred captions, those that may get an edit if they get no other text. There are fewer edits
# than those of `synonyms`, and alone a few of them would be most texts.
_SPARE: Final = 2.0
_VERBS: Final[dict[str, str]] = TABLES["map_verbs"]
_BE: Final = {"VBZ": "is", "VBP": "are", "VBD": "was"}
_PREPOSITIONS: Final = Phrases(
    ("on top of", "next to", "behind", "near", "under", "above", "by", "in", "beneath")
)
_RELATIONS: Final = {**SYNONYMS["relations"], "beneath": "under"}
# Verbs, also before a noun: "a sitting man" is the same edit as "a man sitting".
_ADJECTIVES: Final = {
    word: synonym
    for word, synonym in SYNONYMS["attributes"].items()
    if word not in ("eating", "hanging", "looking", "sitting", "walking")
}
_DOUBTS: Final[dict[str, str]] = TABLES["map_doubts"]


def edits(sentence: Sentence, words: Vocabulary) -> Iterator[tuple[str, list[Rewording]]]:
    """The edits of a caption, by subtype."""
    said = list(sayings(sentence))
    for subtype, of_map in (("att", _attribute_edits), ("rel", _relation_edits)):
        found = [edit for edit in of_map(sentence) if words.doubtful or not edit.doubt]
        found += [edit for of_type, edit in said if of_type == subtype]
        if found:
            yield subtype, found


@rule("hard-positives", "positive", "4")
def hard_positives(sentence: Sentence, words: Vocabulary, rng: Random) -> Iterator[Ways]:
    """attributes and relations in other words: the Hard Positives paper's map, and phrases"""
    for subtype, found in edits(sentence, words):
        yield drafts(sentence, found, subtype, rng, _SPARE)


def _attribute_edits(sentence: Sentence) -> Iterator[Rewording]:
    for i, token in enumerate(sentence.tokens):
        word = token.lower
        synonym = _ADJECTIVES.get(word)
        if synonym is None or is_joined(sentence, i) or (i and token.text[:1].isupper()):
            continue  # "Big Ben"
        noun = sentence.said_of(i)
        if not noun or is_repeated(sentence, (i, i + 1), word, synonym):
            continue
        if token.tag in ("JJ", "NN", "VBG", "VBN", "NNP") and lexicon.may_describe(word, noun):
            put = Put(i, i + 1, token.form_of(synonym, "JJ"))
            yield Rewording(put, word, synonym, _DOUBTS.get(word, "") or _odd(word, noun))


def _odd(word: str, noun: str) -> str:
    """Why the map's synonym is not said of this noun: "an aged sign", "a big number"."""
    if word == "old" and (noun == "model" or not is_person(noun)):
        return "of people rather than of things"
    if word in ("big", "large") and not lexicon.meanings(noun, "NOUN"):
        return "perhaps not of a thing"  # "a big hug"
    return "of things rather than of numbers" if noun in WORDS.unsized else ""


def _relation_edits(sentence: Sentence) -> Iterator[Rewording]:
    for i, token in enumerate(sentence.tokens):
        if token.lower == "wearing" and token.pos == "VERB":  # "wears" is the only verb
            if _may_be_in(sentence, i):
                yield Rewording(Put(i, i + 1, token.form_of("in", "IN")), "wear", "in")
        elif token.lower == "seated":
            if _may_be_sitting(sentence, i):
                yield Rewording(Put(i, i + 1, token.form_of("sitting", "IN")), "seated", "sit")
        elif token.pos == "VERB" or token.lower in ("sitting", "riding", "holding"):
            yield from _verb_edits(sentence, i)
        elif token.lower in WORDS.map_prepositions:
            if token.lower == "in" and _is_wearing(sentence, i):
                yield Rewording(Put(i, i + 1, token.form_of("wearing", "IN")), "in", "wear")
            yield from _preposition_edits(sentence, i)


def _is_wearing(sentence: Sentence, place: int) -> bool:
    """ "a man in a suit", "men in suits", but not "men in uniform"."""
    clothes = sentence.noun_phrase_after(place + 1)
    if clothes is None or place == 0 or "wear" in sentence.lemmas:
        return False
    start, last = clothes[0], clothes[1] - 1
    specific = sentence.tokens[last].tag == "NNS" or last > start
    return specific and is_alive(sentence.lemmas[place - 1]) and sentence.is_worn(last)


def _may_be_in(sentence: Sentence, verb: int) -> bool:
    """ "a man wearing a shirt" is in a shirt; not "sitting and wearing a watch"."""
    before, clothes = sentence.at(verb - 1), sentence.noun_phrase_after(verb + 1)
    return (
        (before.tag in NOUNS or before.pos == "AUX")
        and (clothes is None or sentence.is_worn(clothes[1] - 1))
        and not sentence.has(("while",))
        and not sentence.has(("in",), 0, verb)  # "in jeans in a tie"
    )


def _may_be_sitting(sentence: Sentence, place: int) -> bool:
    """ "people seated at a table", not "a seated man" and not "a table where they are seated"."""
    after = sentence.at(place + 1)
    ends = after.tag == "IN" or after.lower in ("next", ".", "")
    return place > 0 and ends and is_alive(_sitter(sentence, place))


def _verb_edits(sentence: Sentence, place: int) -> Iterator[Rewording]:
    token = sentence.tokens[place]
    lemma = sentence.lemmas[place] if token.pos == "VERB" else token.lower.removesuffix("ing")
    after = sentence.word(place + 1)
    if lemma in ("sit", "sitt"):
        form = "seated" if token.tag == "VBG" or token.pos != "VERB" else ""
        form = f"{_BE[token.tag]} seated" if token.tag in _BE else form
        sitter = _sitter(sentence, place)
        if form and after not in ("down", "up", "and", ",") and is_alive(sitter):
            doubt = "of people and pets" if WORDS.seated.isdisjoint(lexicon.kinds(sitter)) else ""
            put = Put(place, place + 1, token.form_of(form, "IN"))
            yield Rewording(put, "sit", "seated", doubt)
        return
    if lemma == "look" and (after in ("for", "like", "after", "as") or token.tag == "VB"):
        return
    if lemma in ("walk", "hang") and _has_object(sentence, place):
        return  # "walking a dog", "hanging a picture"
    word, end = f"{lemma} {after}", place + 2
    if word not in _VERBS:
        word, end = lemma, place + 1
    if word == "ride" and not _has_object(sentence, place):
        return
    if word in _VERBS:
        put = Put(place, end, token.form_of(_VERBS[word]))
        sure = _is_sure(sentence, word, place, end)
        yield Rewording(put, word, _VERBS[word], "" if sure else _DOUBTS.get(word, ""))


def _is_sure(sentence: Sentence, word: str, place: int, end: int) -> bool:
    """Whether a verb of the map surely says the same: to ride a bus is to travel on it."""
    if word not in ("ride", "ride on"):
        return False
    doer = _doer(sentence, place)
    travels = sentence.object_of(end) in WORDS.travelled
    return travels and doer >= 0 and is_person(sentence.lemmas[doer])


def _doer(sentence: Sentence, verb: int) -> int:
    """The token before a verb and what helps it, where its subject may be; else -1."""
    before = verb - 1
    while sentence.at(before).pos in ("AUX", "ADV"):
        before -= 1
    return before


def _sitter(sentence: Sentence, verb: int) -> str:
    """Who sits: a plate on a table is not seated."""
    inside = verb == 0 or sentence.tokens[verb - 1].tag == "DT"
    noun = sentence.noun_described(verb) if inside else -1
    noun = _doer(sentence, verb) if noun < 0 else noun
    return sentence.lemmas[noun] if noun >= 0 else ""


def _has_object(sentence: Sentence, verb: int) -> bool:
    """ "a man riding a horse", but not "a walking man"."""
    inside = sentence.at(verb - 1).tag in ("DT", "JJ", "IN", "PRP$", "CD", "")
    return sentence.starts_phrase(verb + 1) and not (inside and sentence.at(verb + 1).tag in NOUNS)


def _preposition_edits(sentence: Sentence, place: int) -> Iterator[Rewording]:
    where = _PREPOSITIONS.at(sentence, place)
    if where is None or where[1] == len(sentence.tokens):
        return
    name = sentence.words(*where)
    if not _other_sense(sentence, name, *where):
        synonym = _RELATIONS[name]
        form = sentence.tokens[place].form_of(synonym, "IN")
        doubt = _DOUBTS.get(name, "") or _stiff(name, sentence.object_of(where[1]))
        yield Rewording(Put(*where, form), name, synonym, doubt)


def _stiff(name: str, noun: str) -> str:
    """Why the map's word is not said of this place: "within a field", "to the rear of a fence"."""
    if name == "in" and noun not in WORDS.bordered:
        return "a formal word"
    if name == "on top of" and noun not in WORDS.flat:
        return "also: on another part"  # on a bus, on a mountain
    return ""


def _other_sense(sentence: Sentence, name: str, place: int, end: int) -> bool:
    before, first = sentence.at(place - 1), sentence.at(end)
    if not sentence.starts_phrase(end):
        return True  # "walking by", "parked in between"
    if first.tag == "NN" and name in ("under", "beneath"):
        return True  # "under water", "under construction"
    if name == "by":
        # "bitten on the nose by a kitten": the one who does it may stand far behind
        deed = any(t.tag == "VBN" or t.lower == "being" for t in sentence.tokens[:place])
        itself = first.tag == "PRP"  # "by itself"
        if deed or itself or before.lower in ("side", "up", "setup", ""):
            return True
        if sentence.object_of(end) in WORDS.abstract:
            return True  # "by the side of the road"
        moving = sentence.lemmas[place - 1] not in WORDS.staying_near
        return before.pos == "VERB" and moving  # "passing by"
    if name == "in":
        said = before.tag in ("VBN", "VBD") or before.lower == "while"  # "dressed in"
        return said or not sentence.is_place_for(end)
    if name == "next to":
        return before.lower in ("right", "directly", "just")
    return before.lower == "from" and name in ("above", "behind", "under")


# --- sayings --------------------------------------------------------------------------------------


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
_BY_VERB: Final = {first[1:]: found for first, found in _BY_FIRST.items() if first[0] == "~"}


def sayings(sentence: Sentence) -> Iterator[tuple[str, Rewording]]:
    """The edits that fit a caption, each with its subtype."""
    lemmas = sentence.lemmas
    for place, token in enumerate(sentence.tokens):
        known = _BY_VERB.get(lemmas[place]) if token.pos == "VERB" else None
        for words, saying in known or _BY_FIRST.get(token.lower) or ():
            if all(sentence.word(place + i) == words[i] for i in range(1, len(words))):
                edit = _edit(sentence, place, place + len(words), saying)
                if edit is not None:
                    yield saying.subtype, edit
                    break  # the longest


def _edit(sentence: Sentence, start: int, end: int, saying: Saying) -> Rewording | None:
    token = sentence.tokens[start]
    new = saying.new
    if new[0] == "~":
        old = saying.old.split()[0].removeprefix("~")
        if token.form_of(old).lower() != token.lower:
            return None  # the tag is wrong, and so the form of the new verb would be
        new = token.form_of(new[1:])
    elif len(token.text) > 1 and token.text.isupper():
        new = new.upper()
    if not new or not _suits(sentence, start, end, saying):
        return None
    if is_repeated(sentence, (start, end), saying.old, saying.new.lstrip("~")):
        return None
    return Rewording(Put(start, end, new), saying.old.lstrip("~"), saying.new.lstrip("~"))


def _suits(sentence: Sentence, start: int, end: int, saying: Saying) -> bool:
    if saying.object and not _is(sentence.object_of(end), saying.object):
        return False
    before, after = sentence.at(start - 1), sentence.at(end)
    if start and before.lower in saying.unless:
        return False
    said = {
        "follows": (after.lower, after.tag),
        "needs": sentence.lemmas,
        "verb": (_verb_before(sentence, start),),
        "after": (before.pos, before.lower, sentence.lemmas[start - 1]) if start else (),
    }
    for condition, words in said.items():
        asked: frozenset[str] = getattr(saying, condition)
        if asked and asked.isdisjoint(words):
            return False
    return not saying.subject or _is_subject(sentence, start, saying.subject)


def _verb_before(sentence: Sentence, place: int) -> str:
    verbs = (i for i in range(place - 1, -1, -1) if sentence.tokens[i].pos == "VERB")
    return sentence.lemmas[next(verbs, place)]


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
    return sentence.at(before).tag in NOUNS and _is(sentence.lemmas[before], names)
