"""Which parts of a caption can change places so that the text could still be a caption.

Each function says why two parts cannot; an empty answer means that they can. Without ranking
(`--plausible none`) such texts are made all the same, as the authors of the methods do.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from counterpoint.generation.language import lexicon, plausibility
from counterpoint.generation.language.lists import WORDS, keys_of
from counterpoint.generation.language.sentences import ADJECTIVES, NOUNS, Range, Sentence
from counterpoint.generation.rules import fitting

_UNLIKE: Final = "implausible: unlike kinds"
_PART: Final = "implausible: part of a phrase"
_ARTICLE: Final = "implausible: article"
_LIST: Final = "implausible: a list"
_SAME: Final = "implausible: the same kind"
_LINKED: Final = "implausible: one holds the other"
_MUTUAL: Final = "implausible: may be true both ways"
_PRONOUN: Final = "implausible: pronoun"
_UNFIT: Final = "implausible: adjective of another noun"
_ADVERB: Final = "implausible: adverb"
_VERB: Final = "implausible: verb of another phrase"

_KINDS: Final = keys_of("kinds_of_fields")
_BOUND: Final = 0.35  # share of a word's uses before one noun that makes a name of the two
SEEN: Final = 2


def unlike_nouns(sentence: Sentence, first: Range, second: Range) -> str:
    """Why two nouns, or two noun phrases, cannot change places."""
    tags = [sentence.tokens[where[1] - 1].tag for where in (first, second)]
    if tags[0] != tags[1] or tags[0] not in NOUNS:
        return _UNLIKE
    kinds = kind_of(sentence, first), kind_of(sentence, second)
    if kinds[0] not in WORDS.placed_kinds or (
        kinds[0] != kinds[1] and not WORDS.actors.issuperset(kinds)
    ):
        return _UNLIKE
    if _is_same(sentence, first, second):
        return _SAME
    if _is_part(sentence, first) or _is_part(sentence, second):
        return _PART
    if why := _linked(sentence, first, second, kinds):
        return why
    if "person" in kinds and (why := _unlike_persons(sentence, first, second, kinds)):
        return why
    fit = _takes(sentence, first, second) and _takes(sentence, second, first)
    return "" if fit else _ARTICLE


def _unlike_persons(sentence: Sentence, first: Range, second: Range, kinds: tuple[str, str]) -> str:
    """Why persons cannot change places: each has to fit what is said of the other."""
    if sentence.has(WORDS.gendered):
        return _PRONOUN
    names = [sentence.lemmas[where[1] - 1] for where in (first, second)]
    anybody = all(
        kind != "person" or name in WORDS.anybody for kind, name in zip(kinds, names, strict=True)
    )
    if not (anybody and WORDS.of_some.isdisjoint(sentence.lemmas)):
        return _UNLIKE
    for where, name in ((first, names[1]), (second, names[0])):
        place = where[0] - 1
        while sentence.at(place).tag in ADJECTIVES:
            word = sentence.lemmas[place]
            grown = name not in WORDS.young and "size" in fitting.fields_of(word, "ADJ")
            if grown or not fitting.is_said_of(word, name):
                return _UNFIT  # "a small adult", "an old kid"
            place -= 1
    return ""


@lru_cache(256)
def kind_of(sentence: Sentence, where: Range) -> str:
    """The kind of things that a noun with its modifiers stands for; empty if it is not known."""
    noun = where[1] - 1
    words = [*(token.lower for token in sentence.tokens[where[0] : noun]), sentence.lemmas[noun]]
    names = (" ".join(words[place:]) for place in range(max(0, len(words) - 2), len(words)))
    return next((kind for name in names if (kind := _kind(name))), "")


@lru_cache(1 << 14)
def _kind(noun: str) -> str:
    found = lexicon.meanings(noun, "NOUN")
    sure = [meaning for meaning in found if noun in meaning.words] or found
    kinds = {_KINDS.get(meaning.field, "") for meaning in sure}
    return kinds.pop() if len(kinds) == 1 else ""


def _is_part(sentence: Sentence, where: Range) -> bool:
    """Whether the words belong to their neighbours: "glass of", "polar bear", "dog's"."""
    (start, end), after = where, sentence.at(where[1])
    if after.lower == "of" or after.tag in (*NOUNS, "HYPH", "POS"):
        return True
    if sentence.lemmas[end - 1] in WORDS.abstract:
        return True
    if start and sentence.tokens[start].tag in NOUNS and is_name(sentence, start - 1):
        return True
    place = phrase_start(sentence, start)
    if sentence.word(place - 1) == "of":
        return place < 2 or sentence.lemmas[place - 2] not in WORDS.abstract
    return False


def is_name(sentence: Sentence, place: int) -> bool:
    """Whether a word and the noun after it name one thing: "polar bear", "living room"."""
    tokens = sentence.tokens
    if tokens[place].tag in (*NOUNS, "NNP", "HYPH"):
        return True
    if tokens[place].tag not in (*ADJECTIVES, "VBG", "VBN"):
        return False
    return _is_name(tokens[place].lower, tokens[place + 1].lower, sentence.lemmas[place + 1])


@lru_cache(1 << 14)
def _is_name(word: str, noun: str, lemma: str) -> bool:
    if lexicon.is_listed(f"{word} {lemma}"):
        return True
    model = plausibility.shipped()
    both, alone = model.count(word, noun), model.count(word)
    return both >= 5 and both >= _BOUND * alone


def phrase_start(sentence: Sentence, start: int) -> int:
    """Where the phrase of a noun begins: before its adjectives and its article."""
    while sentence.at(start - 1).tag in (*ADJECTIVES, *NOUNS, "VBN", "CD", "HYPH"):
        start -= 1
    while sentence.at(start - 1).tag in ("DT", "PRP$", "PDT"):
        start -= 1
    return start


def _is_same(sentence: Sentence, first: Range, second: Range) -> bool:
    """Whether one is a kind of the other: "street" and "road", "table" and "dinner table".

    Or whether one is said twice: "a boy and a girl beside another boy".
    """
    one, two = (sentence.lemmas[where[1] - 1] for where in (first, second))
    nouns = {i: sentence.lemmas[i] for i, token in enumerate(sentence.tokens) if token.tag in NOUNS}
    others = (noun for i, noun in nouns.items() if i not in (first[1] - 1, second[1] - 1))
    if not {one, two}.isdisjoint(others) or sentence.has(WORDS.again):
        return True
    mine, theirs = ({nouns[i] for i in range(*where) if i in nouns} for where in (first, second))
    return mine <= theirs or theirs <= mine or lexicon.may_be_same(one, two)


def _linked(sentence: Sentence, first: Range, second: Range, kinds: tuple[str, str]) -> str:
    """Why the words between two phrases forbid that they change places."""
    places = range(first[1], phrase_start(sentence, second[0]))
    between = [sentence.tokens[place] for place in places]
    lemmas = {sentence.lemmas[place] for place in places}
    listed = ("CCONJ", "PUNCT", "DET", "NOUN", "ADJ")
    if all(
        token.pos in listed or _kind(sentence.lemmas[place]) == kinds[0]
        for place, token in zip(places, between, strict=True)
    ):
        return "" if kinds[0] == "clothes" and _differ(sentence, first, second) else _LIST
    if kinds[0] == "clothes":
        if not WORDS.of_some.isdisjoint(sentence.lemmas[w[1] - 1] for w in (first, second)):
            return _UNFIT
        return "" if _differ(sentence, first, second) else _SAME
    if is_mutual(sentence, first[1], places.stop):
        return _MUTUAL
    if _is_carrier(sentence, first) or _is_carrier(sentence, second):
        return _LINKED
    if _are_places(sentence, first, second):
        return ""
    verbs = {sentence.lemmas[place] for place in places if sentence.tokens[place].pos == "VERB"}
    alone = bool(verbs) and not any(token.tag in NOUNS for token in between)
    if alone and verbs <= WORDS.watching:
        return _MUTUAL  # who is looked at may look back
    if kinds[0] != kinds[1]:  # a person and an animal
        return "" if alone and verbs <= WORDS.chasing else _LINKED
    if kinds[0] not in WORDS.loose_kinds or lemmas & {"as", "like"}:
        return _LINKED
    young = any(sentence.lemmas[where[1] - 1] in WORDS.young for where in (first, second))
    if lemmas & WORDS.care and young:
        return _LINKED
    if kinds[0] == "vehicle" and lemmas & WORDS.hauling:
        return _LINKED
    if kinds[0] not in WORDS.actors and any(token.tag in NOUNS for token in between):
        near = _before(sentence, places.stop) in WORDS.swapped_near
        return "" if near or kinds[0] in WORDS.stacked_kinds else _MUTUAL  # both are in the scene
    still = kinds[0] == "vehicle" or not any(token.pos in ("NOUN", "VERB") for token in between)
    held = still and lemmas & WORDS.containing and kinds[0] not in WORDS.stacked_kinds
    return _LINKED if held else ""


def _is_carrier(sentence: Sentence, where: Range) -> bool:
    """Whether something rides on an animal or in a vehicle: "a man on a horse", "riding a bus"."""
    place = phrase_start(sentence, where[0]) - 1
    if place < 0:
        return False
    if kind_of(sentence, where) == "animal" and sentence.tokens[place].lower in ("on", "onto"):
        return True
    return sentence.lemmas[place] in WORDS.riding


def is_mutual(sentence: Sentence, start: int, end: int) -> bool:
    """Whether the words from `start` to `end` may hold the other way round.

    "a truck parked on a road near a plane", "a woman sitting down with a child". Not where the
    first has something of its own: "a woman holding an umbrella next to a man".
    """
    tokens = sentence.tokens
    last = range(max(start, end - 3), end)
    words = [sentence.lemmas[i] if tokens[i].pos == "VERB" else tokens[i].lower for i in last]
    names = [" ".join(words[place:]) for place in range(len(words))]
    if not any(lexicon.may_be_symmetric(name) for name in names):
        return False
    if words[-1] == "with":
        return True
    if words[-1] == "by" and end - 2 >= start and tokens[end - 2].tag == "VBN":
        return False  # "scared by"
    verbs = (i for i in range(start, end - 1) if tokens[i].pos == "VERB")
    doing = (i for i in verbs if sentence.lemmas[i] not in WORDS.grazing)
    if any(_object(sentence, i + 1) == "object" for i in doing):
        return False
    worn = sentence.noun_phrase_after(start + 1) if tokens[start].lower == "in" else None
    return worn is None or not sentence.is_worn(worn[1] - 1)


def _differ(sentence: Sentence, first: Range, second: Range) -> bool:
    """Whether each has an adjective of its own: "a red shirt and a blue hat"."""
    one, two = (sentence.at(where[0] - 1) for where in (first, second))
    return one.lower != two.lower and one.tag in ADJECTIVES and two.tag in ADJECTIVES


def _are_places(sentence: Sentence, first: Range, second: Range) -> bool:
    """Whether something is on the one and near the other: "on a car behind a bus"."""
    found = [_before(sentence, phrase_start(sentence, where[0])) for where in (first, second)]
    return any(found[i] in WORDS.swapped_on and found[1 - i] in WORDS.swapped_near for i in (0, 1))


def _before(sentence: Sentence, place: int) -> str:
    """The preposition before a phrase; the longest that is listed."""
    words = [token.lower for token in sentence.tokens[max(0, place - 3) : place]]
    names = (" ".join(words[start:]) for start in range(len(words)))
    listed = WORDS.swapped_on | WORDS.swapped_near
    return next((name for name in names if name in listed), "")


def _takes(sentence: Sentence, where: Range, other: Range) -> bool:
    """Whether the article before `where` fits the noun of `other`, which comes there."""
    tokens = sentence.tokens
    mine, its = _determiner(sentence, where), _determiner(sentence, other)
    if mine == its or tokens[where[0]].tag in ("DT", "PRP$", "CD"):
        return True
    if "none" in (mine, its):
        return tokens[where[1] - 1].tag == "NNS"
    noun = tokens[other[1] - 1].lower
    return mine != "one" or plausibility.shipped().count("a", noun) >= SEEN


def _determiner(sentence: Sentence, where: Range) -> str:
    place = phrase_start(sentence, where[0])
    word = sentence.tokens[place].lower
    return "one" if word in WORDS.one else "named" if word in WORDS.named else "none"


def unlike_adverbs(_sentence: Sentence, _first: Range, _second: Range) -> str:
    """Adverbs hardly ever change places: "very close up", "down the road together"."""
    return _ADVERB


def unlike_verbs(sentence: Sentence, first: Range, second: Range) -> str:
    """Why two verbs cannot change places: like subjects, and both with an object or without."""
    tokens = sentence.tokens
    if first[1] - first[0] > 1 or second[1] - second[0] > 1:
        return _VERB
    tag = tokens[first[0]].tag
    if tag != tokens[second[0]].tag or tag not in ("VBG", "VBZ", "VBP"):
        return _VERB
    if not all(lexicon.meanings(sentence.lemmas[where[0]], "VERB") for where in (first, second)):
        return _VERB
    subjects = [_subject(sentence, where[0]) for where in (first, second)]
    if subjects[0] not in WORDS.actors or subjects[0] != subjects[1]:
        return _VERB
    followed = [_object(sentence, where[1]) for where in (first, second)]
    if followed[0] != followed[1] or followed[0] == "particle":
        return _VERB
    if followed[0] != "object":
        return ""
    phrases = [sentence.noun_phrase_after(where[1]) for where in (first, second)]
    kinds = [kind_of(sentence, phrase) if phrase else "" for phrase in phrases]
    return "" if kinds[0] == kinds[1] != "" else _VERB  # "wearing a boy holding a tie"


def _subject(sentence: Sentence, verb: int) -> str:
    """The kind of what does something, if it stands before the verb."""
    place = verb - 1
    while sentence.at(place).pos == "AUX":
        place -= 1
    return kind_of(sentence, (place, place + 1)) if place >= 0 else ""


def _object(sentence: Sentence, place: int) -> str:
    """What follows a verb: an object, a preposition, a particle or nothing."""
    token = sentence.at(place)
    if token.tag in ("RP", "RB") or token.lower in WORDS.particles:
        return "particle"
    if token.tag in ("IN", "TO"):  # "looks at her" stays
        return "particle" if sentence.at(place + 1).tag == "PRP" else token.lower
    return "object" if token.pos in ("DET", "NOUN", "ADJ", "NUM", "PRON") else "end"


# --- adjectives --------------------------------------------------------------------------------


def unlike_adjectives(sentence: Sentence, first: Range, second: Range) -> str:
    """Why two adjectives cannot change places: each has to fit the noun of the other."""
    one, two = first[0], second[0]
    nouns = sentence.noun_described(one), sentence.noun_described(two)
    if -1 in nouns or nouns[0] == nouns[1]:
        return _UNFIT
    if _is_shaded(sentence, one) or _is_shaded(sentence, two):
        return _PART
    words = sentence.lemmas[one], sentence.lemmas[two]
    if not lexicon.exclude(*words):
        return _UNLIKE  # "a white sink in a small bathroom": both may be true of both
    if any(has_one_colour(sentence, noun) for noun in nouns):
        return _UNFIT
    fields = [fitting.fields_of(word, "ADJ") for word in words]
    if not (_joins(sentence, one, fields[1]) and _joins(sentence, two, fields[0])):
        return _UNLIKE
    same = sentence.lemmas[nouns[0]] == sentence.lemmas[nouns[1]]
    if same and is_mutual(sentence, nouns[0] + 1, phrase_start(sentence, two)):
        return _MUTUAL  # "a young man riding with an older man"
    if _describes(sentence, words[1], nouns[0]) or _describes(sentence, words[0], nouns[1]):
        return _SAME
    fit = fits(sentence, words[1], nouns[0]) and fits(sentence, words[0], nouns[1])
    return "" if fit else _UNFIT


def has_one_colour(sentence: Sentence, noun: int) -> bool:
    """Whether a thing has a colour of its own: a stop sign, a traffic light."""
    return sentence.lemmas[noun] == "light" or sentence.tokens[max(noun - 1, 0)].lower == "stop"


def _joins(sentence: Sentence, place: int, fields: frozenset[str]) -> bool:
    """Whether what comes to a place is like the adjective with which "and" joins it."""
    for step in (-1, 1):
        near, other = place + step, place + 2 * step
        beside = sentence.at(near).tag in ADJECTIVES  # "a green white truck"
        if beside and fields & fitting.fields_of(sentence.lemmas[near], "ADJ"):
            return False
        joined = sentence.word(near) in ("and", ",") and sentence.at(other).tag in ADJECTIVES
        if joined and not fields & fitting.fields_of(sentence.lemmas[other], "ADJ"):
            return False
    return True


def _describes(sentence: Sentence, word: str, noun: int) -> bool:
    """Whether a word stands before a noun already: "a black and white dog, a black frisbee"."""
    place = noun - 1
    while sentence.at(place).tag in (*ADJECTIVES, *NOUNS, "CC", ",", "VBN"):
        if sentence.lemmas[place] == word:
            return True
        place -= 1
    return False


def _is_shaded(sentence: Sentence, place: int) -> bool:
    """ "light blue", "black and white", "red-haired", "polar bear"."""
    after = sentence.at(place + 1)
    if sentence.word(place - 1) in WORDS.shades or sentence.in_hyphens(place):
        return True
    if not after.text or after.lower.endswith(("colored", "coloured")):
        return True
    if {"black", "white"} <= {sentence.word(near) for near in range(place - 2, place + 3)}:
        return True
    return after.tag in NOUNS and is_name(sentence, place)


def fits(sentence: Sentence, adjective: str, noun: int) -> bool:
    """Whether an adjective is said of a noun; one of no usual kind, if captions say so."""
    usual = not WORDS.usual_fields.isdisjoint(fitting.fields_of(adjective, "ADJ"))
    if not usual and not plausibility.shipped().count(adjective, sentence.tokens[noun].lower):
        return False  # "a residential jet"
    return fitting.is_said_of(adjective, sentence.name_of(noun))
