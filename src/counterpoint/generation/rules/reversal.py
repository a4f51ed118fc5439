"""Reversals, which keep the meaning: what stands around "and", a relation, the place first.

A relation without a converse is told from its place: "a cat on a chair", "a chair with a cat on
it".
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from counterpoint.generation.language import lexicon
from counterpoint.generation.language.lexicon import Vocabulary
from counterpoint.generation.language.lists import WORDS
from counterpoint.generation.language.sentences import (
    ADJECTIVES,
    FINITE,
    NOUNS,
    Put,
    Range,
    Sentence,
    prepositions,
)
from counterpoint.generation.pairs import Draft
from counterpoint.generation.registry import Ways, rule
from counterpoint.generation.rules.clauses import (
    Clause,
    NounPhrase,
    clause,
    exist_plural,
    has_article,
    is_counted,
    is_open,
    is_person,
    is_scene,
    is_verb,
    last_place,
    may_be_verb,
    phrase_at,
)

_ARTICLES: Final = frozenset({"DT", "PRP$", "CD"})
_LEADING: Final = frozenset({"VBG", "VBN", "VBZ", "VBP", "VBD", "VB", ",", "CC", "DT", "EX"})
_NUMBER: Final = {"is": "are", "are": "is", "was": "were", "were": "was"}


@rule("conjuncts", "positive", "3")
def conjuncts(sentence: Sentence, _words: Vocabulary, rng: Random) -> Iterator[Ways]:
    """what stands around "and" reversed"""
    inside = range(1, len(sentence.tokens) - 1)
    joints = [place for place in inside if sentence.word(place) in WORDS.joints]
    ways = [way for place in joints if (way := _reversed(sentence, place))]
    rng.shuffle(ways)
    yield [Draft(text, "swap") for text in ways]


def _reversed(sentence: Sentence, joint: int) -> str:
    """The caption with both sides of a conjunction reversed; empty if that may change it."""
    tokens = sentence.tokens
    before, after = tokens[joint - 1], tokens[joint + 1]
    if f"{before.lower} {after.lower}" in WORDS.idioms:
        return ""
    if before.tag in ADJECTIVES and after.tag in ADJECTIVES:
        return _adjectives(sentence, joint)
    if after.tag in ("VBG", "VBN"):
        return _participles(sentence, joint)
    return _noun_phrases(sentence, joint)


def _adjectives(sentence: Sentence, joint: int) -> str:
    """ "a blue and white clock"; in "red and white striped" it is unclear what is red."""
    end = joint + 2
    if sentence.at(end).tag not in (*NOUNS, ".", "VBN", "VBG", ""):
        return ""  # "clean and ready for us"
    if sentence.at(joint - 2).tag in (*ADJECTIVES, "RB", ",", "HYPH"):
        return ""  # "dark blue and white"
    return _exchange(sentence, (joint - 1, joint), (joint + 1, end))


def _noun_phrases(sentence: Sentence, joint: int) -> str:
    right = sentence.noun_phrase_after(joint + 1) or _mistagged(sentence, joint + 1)
    left = sentence.noun_phrase_before(joint)
    if left is None or right is None or not _ends_well(sentence, left, right):
        return _clauses(sentence, joint, right)
    if _bound(sentence, right) or lexicon.meanings(sentence.lemmas[joint - 1], "ADJ"):
        return ""  # "a small gold and black tower": gold is a colour here
    if _shares_noun(sentence, right) or is_verb(sentence, right[1] - 1):
        return ""
    if _part_of_more(sentence, left, right) or _shared_adjective(sentence, left, right):
        return ""
    left, right = _without_shared_article(sentence, left, right)
    return "" if _loses_article(sentence, left, right) else _exchange(sentence, left, right)


def _mistagged(sentence: Sentence, place: int) -> Range | None:
    """ "a sink, toilet and shower": at the end of a list the tagger takes a noun for a verb."""
    last = sentence.at(place + 1).tag in ("", ".")
    return (place, place + 1) if last and sentence.tokens[place].tag in ("VB", "VBP") else None


def _clauses(sentence: Sentence, joint: int, right: Range | None) -> str:
    """ "a lady wearing skis and a man holding skis": both sides are a whole caption."""
    tokens = sentence.tokens
    end = sentence.end
    if right is None or right[1] >= end or tokens[right[1]].tag != "VBG":
        return ""
    left = sentence.noun_phrase_after(0)
    if left is None or tokens[left[1]].tag != "VBG" or _bound(sentence, (joint + 1, end)):
        return ""
    listed = {*WORDS.joints, ","}
    if sentence.has(listed, 0, joint) or sentence.has(listed, joint + 1, end):
        return ""
    return _exchange(sentence, (0, joint), (joint + 1, end))


def _participles(sentence: Sentence, joint: int) -> str:
    """ "wearing glasses and holding a wine bottle", to the end of the caption."""
    tokens = sentence.tokens
    end = sentence.end
    tag = tokens[joint + 1].tag
    starts = [i for i in range(joint) if tokens[i].tag == tag and tokens[i].pos == "VERB"]
    if len(starts) != 1 or starts[0] == 0 or tokens[joint + 1].pos != "VERB" or tag != "VBG":
        return ""
    between = tokens[starts[0] + 1 : joint]
    if any(t.lower in (*WORDS.joints, ",") or t.pos in ("VERB", "AUX", "SCONJ") for t in between):
        return ""
    after = tokens[joint + 1 : end]
    if any(t.lower in (*WORDS.joints, ",", "while", "as") or t.tag in FINITE for t in after):
        return ""
    if _bound(sentence, (joint + 1, end)) or tokens[joint - 1].pos == "VERB":
        return ""
    return _exchange(sentence, (starts[0], joint), (joint + 1, end))


def _ends_well(sentence: Sentence, left: Range, right: Range) -> bool:
    """Whether what follows the last conjunct is said of both, or of neither."""
    after = sentence.at(right[1])
    if after.tag in ("", "."):
        return True
    if after.tag in ("VBZ", "VBP"):
        return left[0] == 0  # "a girl and a guy are": both are its subject
    if sentence.word(right[1] - 1) in WORDS.verbs_like_nouns:
        return False  # "a zebra and a giraffe stand in a zoo"
    if after.lower not in WORDS.after_conjuncts:
        return False
    if left[0] > 0:  # "with trees and bushes near them", not "has a floor and wood on the wall"
        return sentence.at(right[1] + 1).tag == "PRP"
    place = sentence.noun_phrase_after(right[1] + 1)
    return not (place and sentence.is_worn(place[1] - 1))  # "a dog and a person in a jacket"


def _bound(sentence: Sentence, where: Range) -> bool:
    return sentence.has(WORDS.bound, *where)


def _shares_noun(sentence: Sentence, right: Range) -> bool:
    """ "a cheese and pepperoni pizza" is one pizza."""
    tags = [token.tag for token in sentence.tokens[right[0] : right[1]]]
    return tags[-2:] == ["NN", "NN"] and tags[0] not in _ARTICLES and tags[0] == "NN"


def _part_of_more(sentence: Sentence, left: Range, right: Range) -> bool:
    """Whether the left phrase is the end of a longer one.

    In "next to a bench and a man" the man may be beside the bench, or the subject of the caption.
    In "in a white shirt and black tie" both belong to the preposition, because they have one form.
    """
    tokens = sentence.tokens
    if left[0] == 0:
        return False
    before = tokens[left[0] - 1]
    bare = [
        tokens[start].tag not in _ARTICLES and tokens[start].lower not in WORDS.several
        for start, _ in (left, right)
    ]
    if before.lower == "of":  # "a mixture of rice and broccoli", not "cream of wheat and milk"
        return bare[0] != bare[1] or sentence.lemmas[left[0] - 2] not in WORDS.mixed
    if before.tag == ",":
        return bare[0] != bare[1]  # "a phone, watch and a pen"
    if before.lower == "with":  # not "filled with furniture and a window"
        return bare[0] != bare[1] and tokens[left[0] - 2].tag in ("VBN", "VBD")
    if before.tag in ("IN", "TO"):
        return not bare[1]
    # "a wall mounted white toilet": what is tagged a verb is part of the phrase
    return (bare[0] and before.tag in ("VBD", "VBN")) or before.tag not in _LEADING


def _shared_adjective(sentence: Sentence, left: Range, right: Range) -> bool:
    """ "a white toilet and sink": the sink may be white as well."""
    tags = [[t.tag for t in sentence.tokens[start:end]] for start, end in (left, right)]
    return tags[1][0] not in _ARTICLES and any(
        tag in (*ADJECTIVES, "VBN") for tag in tags[0]
    ) > any(tag in (*ADJECTIVES, "VBN", "CD") for tag in tags[1])


def _without_shared_article(sentence: Sentence, left: Range, right: Range) -> tuple[Range, Range]:
    """ "a [white shirt] and [black tie]": an article that stands for both stays in front."""
    first, second, last = (sentence.tokens[i] for i in (left[0], right[0], right[1] - 1))
    shared = first.tag in ("DT", "PRP$") and second.tag not in _ARTICLES
    alike = (last.tag == "NNS") == (sentence.tokens[left[1] - 1].tag == "NNS")
    if shared and alike and last.lower not in WORDS.without_article:
        return (left[0] + 1, left[1]), right
    return left, right


def _loses_article(sentence: Sentence, left: Range, right: Range) -> bool:
    """ "the woman and children": "children and the woman" may be other children."""
    first, second = sentence.tokens[left[0]], sentence.tokens[right[0]]
    definite = first.lower not in ("a", "an", "some") and first.tag in ("DT", "PRP$")
    return definite and second.tag not in _ARTICLES


def _exchange(sentence: Sentence, left: Range, right: Range) -> str:
    first, second = (sentence.span_text(*where) for where in (left, right))
    return "" if first.lower() == second.lower() else sentence.swap(left, right)


@rule("converse", "positive", "3")
def converse(sentence: Sentence, _words: Vocabulary, rng: Random) -> Iterator[Ways]:
    """a relation told from its other side: "a cup left of a plate", "a plate right of a cup" """
    found = [draft for draft in (_sides_turned(sentence), _place_turned(sentence)) if draft]
    rng.shuffle(found)
    yield found


def _sides_turned(sentence: Sentence) -> Draft | None:
    for place in range(1, len(sentence.tokens) - 1):
        where = prepositions().at(sentence, place)
        if where is not None:
            return _turned(sentence, where)
    return None  # with two relations it is unclear what belongs to which


def _turned(sentence: Sentence, relation: Range) -> Draft | None:
    """Only for a caption of two things and a relation: other words might belong to one of them."""
    tokens = sentence.tokens
    name = sentence.words(*relation)
    symmetric = lexicon.is_symmetric(name)
    other = name if symmetric else lexicon.converse(name)
    if not other:
        return None
    copula = relation[0] - 1 if tokens[relation[0] - 1].lower in WORDS.all_copulas else None
    left = sentence.noun_phrase_before(relation[0] if copula is None else copula)
    right = sentence.noun_phrase_after(relation[1])
    end = sentence.end
    if left is None or right is None or left[0] != 0 or right[1] != end:
        return None
    if any(token.tag == "PRP$" for token in tokens[right[0] : right[1]]):
        return None  # "a man next to his dog"
    last = left[1] - 1
    if last and (may_be_verb(sentence, last) or is_verb(sentence, last)):
        return None  # "a bus drives near a park"
    puts = [
        Put(*left, sentence.span_text(*right)),
        Put(*relation, tokens[relation[0]].form_of(other, "IN")),
        Put(*right, sentence.span_text(*left)),
    ]
    plural = [tokens[where[1] - 1].tag == "NNS" for where in (left, right)]
    if copula is not None and plural[0] != plural[1]:
        puts.append(Put(copula, copula + 1, _NUMBER[tokens[copula].lower]))
    return Draft(sentence.rewrite(puts), "swap" if symmetric else "paraphrase", "rel")


def _place_turned(sentence: Sentence) -> Draft | None:
    """ "a cat sitting on a chair", "a chair with a cat sitting on it", and back."""
    said = clause(sentence)
    if said is None or said.there:
        return None
    if said.said == "with":
        return _without_pronoun(sentence, said)
    where = last_place(sentence, said)
    if where is None or sentence.words(*where) not in WORDS.turned:
        return None
    posture = where[0] == said.head + 1 and sentence.lemmas[said.head] in WORDS.still
    if not (where[0] == said.head or (posture and said.said in ("doing", "done"))):
        return None
    place = phrase_at(sentence, where[1])
    if place is None or not (is_open(sentence, place) and is_open(sentence, said.subject)):
        return None
    pronoun = _pronoun(sentence, place)
    if not pronoun or sentence.tokens[place.start].lower == "other":
        return None
    if sentence.lemmas[place.noun] in WORDS.abstract:
        return None  # "standing in a row"
    link = ("have" if place.plural else "has") if said.copula >= 0 else "with"
    what = sentence.span_text(said.subject.start, said.subject.end)
    text = f"{sentence.span_text(where[1], said.end)} {link} {what} "
    text += f"{sentence.span_text(said.head, where[1])} {pronoun}"
    return Draft(sentence.rewrite((Put(0, said.end, text),)), "paraphrase", "rel")


def _without_pronoun(sentence: Sentence, said: Clause) -> Draft | None:
    """ "a plate with a sandwich on it", "a sandwich on a plate"."""
    what = phrase_at(sentence, said.head + 1)
    if what is None or sentence.word(said.end - 1) not in ("it", "them"):
        return None
    place = what.end
    if sentence.at(place).tag in ("VBG", "VBN") and sentence.lemmas[place] in WORDS.still:
        place += 1
    where = prepositions().at(sentence, place) if place < said.end - 1 else None
    if where is None or where[1] != said.end - 1 or sentence.words(*where) not in WORDS.turned:
        return None
    if not (is_open(sentence, said.subject) and is_open(sentence, what)):
        return None
    text = sentence.span_text(said.head + 1, where[1])
    text += f" {sentence.span_text(said.subject.start, said.subject.end)}"
    return Draft(sentence.rewrite((Put(0, said.end, text),)), "paraphrase", "rel")


def _pronoun(sentence: Sentence, phrase: NounPhrase) -> str:
    lemma = sentence.lemmas[phrase.noun]
    if phrase.plural:
        return "them"
    if is_counted(sentence, phrase.noun):
        return ""  # "a pair of shoes": it or them
    if lemma in WORDS.him | WORDS.her:
        return "him" if lemma in WORDS.him else "her"
    return "" if is_person(lemma) or phrase.noun + 1 < phrase.end else "it"


# --- the place first ------------------------------------------------------------------------------


_BOUND: Final = frozenset({"PRP", "PRP$", "WDT", "WP", "EX"})


@rule("fronted", "positive", "1")
def fronted(sentence: Sentence, _words: Vocabulary, rng: Random) -> Iterator[Ways]:
    """the place first: "in a kitchen, a man is cooking", "on a bench sits a dog" """
    found = clause(sentence)
    if found is None or found.there or any(t.tag in _BOUND for t in sentence.tokens):
        return
    if not has_article(sentence, found.subject):
        return
    ways = [*_inverted(sentence, found), *_place_first(sentence, found)]
    rng.shuffle(ways)
    yield ways


def _inverted(sentence: Sentence, said: Clause) -> Iterator[Draft]:
    """What is said, then the subject."""
    tokens, subject = sentence.tokens, said.subject
    where = last_place(sentence, said)
    if where is None or tokens[subject.start].lower in ("the", "this", "these"):
        return
    be = "are" if subject.joined or exist_plural(sentence, subject) else "is"
    be = tokens[said.copula].lower if said.copula >= 0 else be
    start = said.head
    if said.said == "place" and where[0] == said.head:
        verb = be
    elif where[0] != said.head + 1 or sentence.lemmas[said.head] not in WORDS.resting:
        return
    elif said.said == "does":
        start, verb = where[0], tokens[said.head].lower
    elif said.said in ("doing", "done"):
        verb = be
    else:
        return
    who = sentence.span_text(subject.start, subject.end)
    yield _moved(sentence, said, f"{sentence.span_text(start, said.end)} {verb} {who}")


def _moved(sentence: Sentence, said: Clause, text: str) -> Draft:
    same = said.copula >= 0 or said.said == "does"  # no word is new
    return Draft(sentence.rewrite((Put(0, said.end, text),)), "swap" if same else "paraphrase")


def _place_first(sentence: Sentence, said: Clause) -> Iterator[Draft]:
    """The place, a comma, and all else: only a place of all that is spoken of."""
    tokens = sentence.tokens
    where = last_place(sentence, said)
    if said.said not in ("doing", "does", "done") or where is None:
        return
    noun = phrase_at(sentence, where[1])
    if noun is None or not is_scene(sentence.lemmas[noun.noun]):
        return
    if sentence.words(*where) not in WORDS.settings or not _is_whole(sentence, said, where[0]):
        return
    verb = tokens[said.head].text
    if said.copula < 0 and said.said != "does":
        verb = f"{'are' if said.subject.plural else 'is'} {verb}"
    elif said.copula >= 0:
        verb = f"{tokens[said.copula].text} {verb}"
    middle = f" {sentence.span_text(said.head + 1, where[0])}" if said.head + 1 < where[0] else ""
    who = sentence.span_text(said.subject.start, said.subject.end)
    place = sentence.span_text(where[0], said.end)
    yield _moved(sentence, said, f"{place}, {who} {verb}{middle}")


def _is_whole(sentence: Sentence, said: Clause, place: int) -> bool:
    """Whether subject and verb stand without the place: "grazing", "riding a horse"."""
    if place == said.head + 1:
        lemma = sentence.lemmas[said.head]
        return lemma not in WORDS.resting | WORDS.copulas | WORDS.shown
    if sentence.lemmas[said.head] not in WORDS.contact:
        return False
    object_ = phrase_at(sentence, said.head + 1)
    if sentence.lemmas[said.end - 1] in WORDS.skies:
        return False
    return object_ is not None and object_.end == place
