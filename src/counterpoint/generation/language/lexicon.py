"""The lexicon: what the words of captions mean, which of them mean the same, and which cannot.

All words are lemmas in lower case ("mouse", "look at"); some are several words. A noun before a
noun ("a brick wall") describes it: look it up as ADJ. The word lists are in `words/`, one meaning
per line (lists.py describes the format).

Two kinds of questions are kept apart, because a mistake has another cost in each:

- `synonyms` and `rivals` make texts: in doubt they give nothing.
- `may_be_same` checks texts: in doubt it says yes. It is never true together with `exclude`.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from operator import attrgetter
from types import MappingProxyType
from typing import Final, NamedTuple

from counterpoint.generation.language.lists import Meaning, read_folder, read_meanings

NARROWER: Final = "narrower"  # the doubt about a narrower word: crimson for red
_KINDS: Final = "kind"  # the field of kinds.toml, where `also` are other names of a kind


class Synonym(NamedTuple):
    """A word that may replace another; `doubt` says why it may be false, or is empty."""

    text: str
    doubt: str


@dataclass(frozen=True, slots=True)
class _Index:
    """Meanings by number, and what follows from them."""

    meanings: tuple[Meaning, ...]
    version: str
    offered: Mapping[str, tuple[int, ...]]  # by a word that stands for the meaning
    sure: Mapping[str, frozenset[int]]  # by one that stands for it beyond doubt, if it has such
    known: Mapping[str, frozenset[int]]  # by that, or by a word that may be true of it
    same: tuple[frozenset[int], ...]  # itself, near, above and below
    against: tuple[frozenset[int], ...]  # contradict it
    opposite: tuple[frozenset[int], ...]
    above: tuple[frozenset[int], ...]  # its kinds, their kinds, ...


@functools.cache
def _index() -> _Index:
    files = read_folder("words")
    found = read_meanings(files.values())
    digest = sha256("\0".join(part for pair in files.items() for part in pair).encode())
    numbers: dict[tuple[str, str], list[int]] = defaultdict(list)
    offered: dict[str, list[int]] = defaultdict(list)
    known: dict[str, set[int]] = defaultdict(set)
    for number, meaning in enumerate(found):
        numbers[meaning.subtype, meaning.head].append(number)
        for word in meaning.offered:
            offered[word].append(number)
        for word in (*meaning.offered, *meaning.also):
            known[word].add(number)

    def named(heads: Iterable[str], meaning: Meaning) -> set[int]:
        return {number for head in heads for number in numbers[meaning.subtype, head]}

    def opposed(meaning: Meaning) -> set[int]:
        """Senses apart: "tall" is the opposite of one "short", "long" of the other."""
        opposites = [numbers[meaning.subtype, head] for head in meaning.opposites]
        return set[int]().union(*(_closest(meaning, senses, found) for senses in opposites))

    members: dict[str, set[int]] = defaultdict(set)
    for number, meaning in enumerate(found):
        members[meaning.field].add(number)
    scales = [{n for n in members[m.field] if found[n].scale == m.scale} for m in found]
    opposite = _both_ways([opposed(meaning) for meaning in found])
    above = _closure([named(meaning.kinds, meaning) for meaning in found])
    near = _both_ways([named(meaning.near, meaning) for meaning in found])
    # Objects on other scales of a field may be one: a man may be a surfer and a brother.
    elsewhere = [
        members[meaning.field] - scale if meaning.subtype == "obj" else set[int]()
        for meaning, scale in zip(found, scales, strict=True)
    ]
    same = _both_ways([{i, *near[i], *above[i], *elsewhere[i]} for i in range(len(found))])
    against = [
        (opposite[i] | (scales[i] - {i} if found[i].contrast == "exclusive" else set())) - same[i]
        for i in range(len(found))
    ]
    return _Index(
        meanings=found,
        version=digest.hexdigest()[:12],
        offered={word: tuple(places) for word, places in offered.items()},
        sure={
            word: frozenset(i for i in places if word in found[i].words) or frozenset(places)
            for word, places in offered.items()
        },
        known={word: frozenset(places) for word, places in known.items()},
        same=same,
        against=tuple(map(frozenset, against)),
        opposite=opposite,
        above=tuple(map(frozenset, above)),
    )


def _closest(meaning: Meaning, senses: Sequence[int], found: Sequence[Meaning]) -> list[int]:
    """Of the senses of a word, those on the meaning's scale; else of its field; else all."""
    field = [i for i in senses if found[i].field == meaning.field]
    return [i for i in field if found[i].scale == meaning.scale] or field or list(senses)


def _both_ways(links: Sequence[set[int]]) -> tuple[frozenset[int], ...]:
    both = [set(targets) for targets in links]
    for source, targets in enumerate(links):
        for target in targets:
            both[target].add(source)
    return tuple(map(frozenset, both))


def _closure(links: Sequence[set[int]]) -> list[set[int]]:
    """Everything that can be reached."""
    reached = [set(targets) for targets in links]
    grown = True
    while grown:
        grown = False
        for targets in reached:
            more = set[int]().union(*(links[target] for target in targets)) - targets
            targets |= more
            grown = grown or bool(more)
    return reached


def version() -> str:
    """Changes with the word lists; it is part of the version of every pair made from them."""
    return _index().version


@functools.cache
def fields() -> Mapping[str, tuple[Meaning, ...]]:
    """All meanings by field, in the order of the files."""
    by_field = groupby(_index().meanings, attrgetter("field"))
    return MappingProxyType({field: tuple(members) for field, members in by_field})


@functools.lru_cache(maxsize=1 << 15)
def meanings(word: str, pos: str | None = None) -> tuple[Meaning, ...]:
    """The meanings for which the word can stand."""
    index = _index()
    found = (index.meanings[number] for number in index.offered.get(word, ()))
    return tuple(meaning for meaning in found if pos is None or meaning.pos == pos)


def is_listed(word: str) -> bool:
    """Whether the word stands for a meaning, or may be true of one."""
    return word in _index().known


def share_meaning(words: Iterable[str], others: Iterable[str]) -> bool:
    """Whether one of the words stands for a meaning that one of the others has or may have.

    Or the other way round. "In" (a shirt) may be wearing; but what may be having is not therefore
    wearing.
    """
    index = _index()
    offered, known = (
        [{number for word in side for number in table.get(word, ())} for side in (words, others)]
        for table in (index.offered, index.known)
    )
    return bool(offered[0] & known[1] or offered[1] & known[0])


@functools.lru_cache(maxsize=1 << 16)
def synonyms(word: str, pos: str, noun: str = "") -> tuple[Synonym, ...]:
    """What may replace the word, with the noun that it describes or that is its object.

    Empty if it is not clear which meaning the word has.
    """
    senses = _senses(word, pos, noun)
    fitting = [meaning for meaning in senses if fits(meaning, noun)]
    if len(fitting) != 1 or (not noun and len(senses) > 1):
        return ()
    (meaning,) = fitting
    if word not in meaning.words:  # a doubt is the same in both directions; a wider word is true
        why = meaning.doubtful.get(word, "")
        return tuple(Synonym(other, why) for other in meaning.words)
    return (
        *(Synonym(other, "") for other in meaning.words if other != word),
        *(Synonym(other, NARROWER) for other, ns in meaning.narrower.items() if _among(noun, ns)),
        *(
            Synonym(other, "" if _may_stand(meaning.sure.get(other), noun) else doubt)
            for other, doubt in meaning.doubtful.items()
        ),
    )


def _may_stand(nouns: frozenset[str] | None, noun: str) -> bool:
    """Whether a doubtful word is true in place of a sure one: "bike" of any bicycle."""
    return nouns is not None and (not nouns or _among(noun, nouns))


@functools.lru_cache(maxsize=1 << 14)
def doubt(word: str, other: str) -> str | None:
    """Why `other` may be false where `word` is true; empty if it is not, None if unknown.

    It is unknown if no meaning has both. A word leaves no doubt about itself: "is repairing" and
    "repairs" say the same, although to repair is narrower than to fix.
    """
    if word == other:
        return ""
    shared = [meaning for meaning in meanings(other) if word in meaning.offered]
    found = [_doubt(meaning, word, other) for meaning in shared]
    return "" if "" in found else next(iter(found), None)


def _doubt(meaning: Meaning, word: str, other: str) -> str:
    if other in meaning.narrower:
        return NARROWER
    if other in meaning.sure and word in meaning.words:
        return ""  # the rules know with which nouns
    return meaning.doubtful.get(other) or meaning.doubtful.get(word, "")


def _senses(word: str, pos: str, noun: str) -> list[Meaning]:
    """The meanings that the word can have here: the sure ones, if there are any.

    A doubtful one counts beside them if it lies in another field and asks for such a noun: "little"
    is small, but of a girl it may well be young.
    """
    found = meanings(word, pos)
    sure = [meaning for meaning in found if word in meaning.words]
    known = {meaning.field for meaning in sure}
    return [
        meaning
        for meaning in found
        if not sure
        or word in meaning.words
        or (meaning.field not in known and _among(noun, meaning.only_with))
    ]


@functools.lru_cache(maxsize=1 << 16)
def opposites(word: str, pos: str) -> tuple[str, ...]:
    """Heads of the opposite meanings, those of the same part of speech."""
    index = _index()
    found: list[str] = []
    for number in sorted(index.sure.get(word, ())):
        meaning = index.meanings[number]
        if meaning.pos == pos:
            others = [index.meanings[other] for other in sorted(index.opposite[number])]
            others.sort(key=lambda other: other.head not in meaning.opposites)
            found += [other.head for other in others if other.pos == pos]
    return tuple(head for head in dict.fromkeys(found) if not may_be_same(word, head))


@functools.lru_cache(maxsize=1 << 16)
def rivals(word: str, pos: str, noun: str = "") -> tuple[str, ...]:
    """Heads that make the statement false if they take the word's place; opposites first.

    With a noun, only those that can be said of it; a name of two words ("hot dog") has none.
    """
    if noun and f"{word} {noun}" in _index().known:
        return ()
    senses = _senses(word, pos, noun)
    fitting = [m for m in senses if not m.only_with or _among(noun, m.only_with)] if noun else []
    # A sense that asks for this very noun goes before those that take any.
    found: list[str] = []
    for meaning in [m for m in fitting if m.only_with] or fitting or senses:
        found += [head for head in opposites(word, pos) if _opposed(meaning, head)]
        found += [*_neighbours(meaning, noun), *meaning.instead]
    return tuple(head for head in dict.fromkeys(found) if not may_be_same(word, head))


def _neighbours(meaning: Meaning, noun: str) -> list[str]:
    """Heads of its field and scale that can be said of the noun; those of like kind first."""
    if meaning.contrast == "none":
        return []
    found = [
        other
        for other in fields()[meaning.field]
        if other.scale == meaning.scale and (not other.only_with or _among(noun, other.only_with))
    ]
    found.sort(key=lambda other: -len(set(meaning.kinds).intersection(other.kinds)))
    return [other.head for other in found]


def _opposed(meaning: Meaning, head: str) -> bool:
    index = _index()
    others = index.opposite[index.meanings.index(meaning)]
    return any(index.meanings[other].head == head for other in others)


def fits(meaning: Meaning, noun: str) -> bool:
    """Whether the word can have this meaning with the noun; an unknown noun rules out little."""
    if meaning.only_with and not _among(noun, meaning.only_with):
        return False
    return not _among(noun, meaning.not_with)


def may_describe(adjective: str, noun: str) -> bool:
    """Whether no sense of an adjective, or one that fits, is known: no "pregnant boy"."""
    senses = meanings(adjective, "ADJ")
    return not senses or any(fits(meaning, noun) for meaning in senses)


def _among(noun: str, names: frozenset[str]) -> bool:
    """Whether a noun is one of these, or of a kind that is."""
    return bool(noun and names) and not names.isdisjoint(_kinds(noun))


@functools.lru_cache(maxsize=1 << 14)
def _kinds(noun: str) -> frozenset[str]:
    """The noun, what it also is called, and every kind it belongs to."""
    index = _index()
    found = {noun, noun.rpartition(" ")[2]}
    for number in index.known.get(noun, ()):
        if index.meanings[number].pos == "NOUN":
            found |= {index.meanings[number].head}
            found |= {index.meanings[kind].head for kind in index.above[number]}
    return frozenset(found)


@functools.lru_cache(maxsize=1 << 14)
def kinds(noun: str) -> frozenset[str]:
    """The noun, and the heads of all that it surely is a kind of."""
    index = _index()
    own = (n for n in index.offered.get(noun, ()) if index.meanings[n].pos == "NOUN")
    return frozenset({noun, *(index.meanings[kind].head for n in own for kind in index.above[n])})


@functools.lru_cache(maxsize=1 << 14)
def wider(word: str) -> frozenset[str]:
    """The names of every kind that the word may be of: a sedan is a car, so it is a vehicle."""
    index = _index()
    found: set[str] = set()
    for number in index.known.get(word, ()):
        for kind in index.above[number]:
            meaning = index.meanings[kind]
            found.update(meaning.offered, meaning.also if meaning.field == _KINDS else ())
    return frozenset(found)


@functools.lru_cache(maxsize=1 << 17)
def may_be_same(a: str, b: str) -> bool:
    """Whether both words may be true of one thing: the same, doubtful, near, a kind of the other.

    In any meaning and part of speech. Words that the lexicon does not know are the same only if
    they are equal.
    """
    if a == b or a in wider(b) or b in wider(a):
        return True
    index = _index()
    nothing = frozenset[int]()
    for one, other in ((a, b), (b, a)):
        if not index.known.get(one, nothing).isdisjoint(index.offered.get(other, ())):
            return True
    # What a word is near to, or a kind of, follows only from what it surely means.
    others = index.sure.get(b, nothing)
    return any(not index.same[number].isdisjoint(others) for number in index.sure.get(a, nothing))


@functools.lru_cache(maxsize=1 << 17)
def exclude(a: str, b: str) -> bool:
    """Whether the words contradict each other: opposites, or two places on one exclusive scale."""
    if may_be_same(a, b):
        return False
    index = _index()
    other = index.known.get(b, frozenset())
    return any(not index.against[n].isdisjoint(other) for n in index.known.get(a, ()))


@functools.lru_cache(maxsize=1 << 12)
def is_symmetric(relation: str) -> bool:
    """Whether "A relation B" always means "B relation A"."""
    index = _index()
    found = [index.meanings[number] for number in index.sure.get(relation, ())]
    symmetric = [meaning.symmetric for meaning in found if meaning.subtype == "rel"]
    return bool(symmetric) and all(symmetric)


def may_be_symmetric(relation: str) -> bool:
    """Whether "B relation A" often holds too, as of hugging: no safe negative, no safe positive."""
    return any(meaning.symmetric or meaning.mutual for meaning in meanings(relation))


@functools.lru_cache(maxsize=1 << 12)
def converse(relation: str) -> str:
    """The relation for which "B converse A" means "A relation B"; empty if there is none."""
    found = [meaning for meaning in meanings(relation) if meaning.converse]
    found.sort(key=lambda meaning: relation in meaning.doubtful)  # stable: a sure meaning first
    if not found:
        return ""
    meaning = found[0]
    (other,) = (m for m in fields()[meaning.field] if m.head == meaning.converse)
    aligned = len(meaning.words) == len(other.words) and relation in meaning.words
    return other.words[meaning.words.index(relation)] if aligned else other.head


@functools.cache
def relations() -> tuple[str, ...]:
    """Every word that stands for a relation, the longest first, so that the first match is best."""
    found = {w for m in _index().meanings if m.subtype == "rel" for w in m.offered}
    return tuple(sorted(found, key=lambda word: (-len(word.split()), -len(word), word)))


@dataclass(frozen=True)
class Vocabulary:
    """The words that rules use. `doubtful`: also narrower words, and others that may be false.

    `true` are other true captions of the image: what they say must not be added to a negative.
    """

    doubtful: bool = False
    true: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        return f"lexicon={version()}"

    def synonyms(self, word: str, pos: str, noun: str) -> tuple[Synonym, ...]:
        """Words that say the same of this noun."""
        found = synonyms(word, pos, noun)
        return tuple(synonym for synonym in found if self.doubtful or not synonym.doubt)
