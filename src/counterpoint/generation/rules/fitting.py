"""Which words fit a place in a caption: by what things are, by grammar, and by what captions say.

A replacement that is false but cannot be photographed ("a beige sky", "a zebra above a giraffe")
gives itself away. So each table says what is possible; what no table knows is not offered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Final

from counterpoint.generation.language import lexicon, plausibility
from counterpoint.generation.language.lists import TABLES, WORDS, Table, rows

_KNOWN: Final = 1 << 15
_LEAST: Final = 4  # a word that captions have less often is rare, and gives itself away
_CHANCES: Final = 3  # two words that should have met so often, and never did, do not fit


@lru_cache(_KNOWN)
def fields_of(word: str, pos: str) -> frozenset[str]:
    return frozenset(meaning.field for meaning in lexicon.meanings(word, pos))


@lru_cache(_KNOWN)
def kinds_of(noun: str) -> tuple[str, ...]:
    """The noun, its head word, and every kind it belongs to, the closest first."""
    head = noun.rpartition(" ")[2]
    own, of_head = ({m.field for m in lexicon.meanings(name, "NOUN")} for name in (noun, head))
    named = own and own.isdisjoint(of_head)  # a hot dog is no dog
    kinds = dict.fromkeys((noun,) if named else (noun, head))
    edge = [noun if own else head]
    while edge:
        meanings = lexicon.meanings(edge.pop(0), "NOUN")
        sure = [meaning for meaning in meanings if meaning.contrast != "none"] or meanings
        for meaning in sure[:1]:
            new = [name for name in (meaning.head, *meaning.kinds) if name not in kinds]
            kinds |= dict.fromkeys(new)
            edge += dict.fromkeys(new)
    return tuple(kinds)


def row_of(table: Table, noun: str) -> frozenset[str] | None:
    """The row of the noun, or of its closest kind that has one."""
    return next((table[kind] for kind in kinds_of(noun) if kind in table), None)


@lru_cache(_KNOWN)
def is_any(noun: str, kinds: frozenset[str]) -> bool:
    return not kinds.isdisjoint(kinds_of(noun))


# --- what captions say -------------------------------------------------------------------------


@lru_cache(_KNOWN)
def is_usual(words: str) -> bool:
    """Whether captions have each of these words."""
    return all(plausibility.shipped().count(word) >= _LEAST for word in words.split())


@lru_cache(_KNOWN)
def never_meet(first: str, second: str) -> bool:
    """Whether two frequent words never follow each other, though chance alone would bring it."""
    model = plausibility.shipped()
    first, second = first.rpartition(" ")[2], second.partition(" ")[0]
    if model.count(first, second):
        return False
    phrases = 2 * max(model.count("a"), 1)  # about as many as there are nouns
    return model.count(first) * model.count(second) >= _CHANCES * phrases


@lru_cache(_KNOWN)
def is_in_captions(adjective: str, noun: str) -> bool:
    """Whether captions have the adjective before the noun or its plural."""
    count = plausibility.shipped().count
    return any(count(adjective, form) for form in (noun, f"{noun}s", f"{noun}es"))


@lru_cache(_KNOWN)
def follows(before: str, noun: str) -> bool:
    """Whether captions have this noun behind these words: "in the kitchen", "cup of coffee"."""
    word, head = before.split()[-1], noun.split()[0]
    count = plausibility.shipped().count
    if word == "of":
        return count(*before.split(), head) > 0
    return any(count(word, article, head) for article in ("a", "the")) or count(word, head) > 0


# --- attributes --------------------------------------------------------------------------------

COLOURS: Final = rows("colours")
MATERIALS: Final = rows("materials")
OTHERS: Final = rows("other_attributes")
_CATEGORIES: Final[Mapping[str, Table]] = {
    "colour": COLOURS,
    "material": MATERIALS,
    **dict.fromkeys(("weather", "pattern", "shape", "ground"), OTHERS),
}


@lru_cache(_KNOWN)
def attributes_for(word: str, noun: str) -> tuple[str, ...]:
    """Attributes that make another statement about this noun, and that it can have."""
    return tuple(
        other
        for other in dict.fromkeys(_attributes_for(word, noun))
        if not lexicon.may_be_same(word, other)
        and not {word, other} <= WORDS.mineral
        and is_usual(other)
        and is_said_of(other, noun)
    )


def _attributes_for(word: str, noun: str) -> Iterator[str]:
    found = [meaning for meaning in lexicon.meanings(word, "ADJ") if lexicon.fits(meaning, noun)]
    sure = [meaning for meaning in found if word in meaning.words] or found
    sizes = any(meaning.field in WORDS.size_fields for meaning in sure)
    if noun in ("", "light") or (sizes and is_any(noun, WORDS.people)):
        return  # "a large girl", "a dark light"
    for meaning in sure:
        table = _CATEGORIES.get(meaning.field)
        if table is not None:
            yield from sorted(row_of(table, noun) or _unknown(meaning.field, noun))
        if table is None or meaning.field in ("weather", "ground"):
            opposites = [o for o in lexicon.opposites(word, "ADJ") if o not in WORDS.hardly_seen]
            yield from [
                other
                for other in opposites
                if is_usual(other)
                and is_said_of(other, noun)
                and (meaning.field in WORDS.scale_fields or is_in_captions(other, noun))
            ][:1]


def _unknown(field: str, noun: str) -> frozenset[str]:
    """What is tried with a noun that the lexicon does not have."""
    known = field != "colour" or any(lexicon.meanings(name, "NOUN") for name in kinds_of(noun))
    return frozenset() if known else COLOURS["thing"]


@lru_cache(_KNOWN)
def is_said_of(adjective: str, noun: str) -> bool:
    """Whether the lexicon and the captions allow an adjective with a noun."""
    meanings = lexicon.meanings(adjective, "ADJ")
    tables = [_CATEGORIES[m.field] for m in meanings if m.field in ("colour", "material")]
    rows = [row for table in tables if (row := row_of(table, noun)) is not None]
    if any(rows):
        return any(adjective in row for row in rows)
    if rows:  # "red tomatoes", not "blue bread"
        return is_in_captions(adjective, noun)
    return lexicon.may_describe(adjective, noun) and not never_meet(adjective, noun)


# --- relations of place ------------------------------------------------------------------------

# Only what cannot be true at once: who is next to a dog may be in front of it, too, and a sign on
# a street is next to it.
_PLACES: Final = {
    word: {other: WORDS.words(nouns) for other, nouns in places.items()}
    for word, places in TABLES["places_for"].items()
}


def places_for(word: str, noun: str, subject: str, verb: str) -> Iterator[str]:
    """Prepositions that say something else of a thing ("a cat on a table") and are possible."""
    found = [m for m in lexicon.meanings(word, "ADP") if m.field == "place"]
    heads = [m.head for m in sorted(found, key=lambda meaning: word not in meaning.words)]
    if not heads or (is_any(noun, WORDS.homes) and not is_any(subject, WORDS.movable)):
        return  # "a sink next to a bathroom"
    moves = heads[0] in ("up", "down", "toward", "away from", "into", "out of")
    if verb and not moves and verb not in WORDS.staying:
        return
    person, large = is_any(subject, WORDS.people), is_any(subject, WORDS.large_kinds)
    for_people = {"on": WORDS.ridden, "under": WORDS.shelter}
    for other, nouns in _PLACES.get(heads[0], {}).items():
        carried = other in ("on", "under", "inside", "above", "below")
        if not is_any(noun, nouns) or (carried and large):
            continue
        if not person or other not in for_people or is_any(noun, for_people[other]):
            yield other


# --- what people and animals do ----------------------------------------------------------------

DOES: Final = rows("does")
_DONE_ON: Final = rows("done_on")
DONE_TO: Final = rows("done_to")


def verbs_for(verb: str, noun: str, subject: str) -> Iterator[str]:
    """Verbs with an object that this subject can do to this noun, and not at the same time."""
    row = row_of(DONE_TO, noun) or frozenset()
    if verb not in {*row, "carry", "use", "wear", "eat"}:
        return  # who looks at a dog may chase it, and who holds a cup may drink from it
    if is_any(subject, WORDS.people):
        yield from sorted(row)
    elif is_any(subject, WORDS.animate) and is_any(noun, WORDS.animate):
        yield from sorted(WORDS.animals_do)


def doings_for(verb: str, subject: str, after: str, place: str) -> Iterator[str]:
    """Verbs without an object: postures and movements that are possible in that place."""
    row = row_of(DOES, subject) or frozenset()
    if verb not in {*row, "rest", "lay", "crouch"}:
        return
    if after in WORDS.paths:
        row &= {"walk", "run"} if verb in ("walk", "run") else frozenset()
    elif after == "at":
        row &= {"sit", "stand"}
    elif (carried := row_of(_DONE_ON, place)) is not None:
        row &= carried
    elif after == "on" and not is_any(place, WORDS.ground):
        row &= {"sit", "stand"}
    if is_any(subject, WORDS.people) and not (after in ("on", "in") and is_any(place, WORDS.lain)):
        row -= {"lie", "sleep", "kneel"}
    yield from sorted(row)


# --- things ------------------------------------------------------------------------------------


_ALIKE: Final = rows("alike")


@cache
def is_thing(noun: str) -> bool:
    """Whether another thing can stand for it: not for "group", "hand", "slice", "sky"."""
    meanings = lexicon.meanings(noun, "NOUN") if noun not in WORDS.alone else ()
    return bool(meanings) and not any(
        meaning.field in WORDS.fixed_fields or meaning.scale == "role" for meaning in meanings
    )


def is_countable(noun: str) -> bool | None:
    """Whether it has a plural and an article: not "bread". None if it is said both ways."""
    last = noun.rpartition(" ")[2]
    if not WORDS.either_count.isdisjoint((noun, last)):
        return None
    return WORDS.uncountable.isdisjoint((noun, last))


@lru_cache(_KNOWN)
def can_replace(noun: str, other: str) -> bool:
    """Whether both can be held, or neither; both swim, fly, or neither.

    So a thing on a table is replaced by a thing that can be on one.
    """
    if other in WORDS.never_new:
        return False
    # A boat is not replaced by a car, nor a bed by a counter.
    alike = row_of(_ALIKE, noun) == row_of(_ALIKE, other)
    return alike and is_any(noun, WORDS.small) == is_any(other, WORDS.small)


def is_held_by(noun: str, before: str, rest: Iterable[str]) -> bool:
    """Whether what else the caption says goes with this noun alone: a toilet with a bathroom."""
    if is_any(noun, frozenset({"room"})):
        return any(is_any(other, WORDS.in_rooms) for other in rest)
    return before in ("on", "in") and is_any(noun, frozenset({"appliance"}))


def can_take(verb: str, noun: str, other: str) -> bool:
    """Whether a verb that has this noun as its object can have the other."""
    row, taken = (row_of(DONE_TO, name) or frozenset() for name in (noun, other))
    return verb not in row or verb in taken
