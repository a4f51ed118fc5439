"""Two parts of a caption were exchanged: is the meaning the same?

    a dog and a cat                    conjuncts of one coordination: the same
    a small dog next to a big dog      arguments of a symmetric relation: the same
    a big red bus                      adjectives of one noun: the same
    a black dog and a white cat        (black, white) belong to different nouns: not the same

Without a parse some cases stay open ("a dog and a cat with a hat": whose hat?). They are *doubtful*
and rejected whatever the pair claims to be: neither a sure negative nor a sure positive.

Each judge answers why the meaning may be the same, and whether that is sure; None means no.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from counterpoint.cases import shared_ends
from counterpoint.generation.checks.change import Part, TextChange
from counterpoint.generation.checks.conjuncts import (
    Exchange,
    bare_end,
    bare_start,
    find_exchange,
    is_mark,
    is_verbal,
    lively,
    same_form,
    stand_alone,
    two_adjectives,
)
from counterpoint.generation.language import lexicon
from counterpoint.generation.language.lists import WORDS
from counterpoint.generation.language.words import forms, key, lemmas, role


class Same(NamedTuple):
    """Why an exchange may leave the meaning as it is."""

    reason: str
    sure: bool


CONJUNCTS: Final = Same("conjuncts", True)
PERHAPS_CONJUNCTS: Final = Same("perhaps conjuncts", False)


def _may_start(change: Exchange) -> bool:
    """May the first part be a whole conjunct at its left end?"""
    if is_verbal(change.first) and is_verbal(change.second):
        return True  # "a man wearing glasses and holding a bottle"
    left, bare = change.before, bare_end(change.before)
    if not bare or is_mark(change.marks[len(left)]):
        return True
    if left != bare and two_adjectives(change):
        return True  # "a bed with some pillows a blue and white quilt"
    kind = "verb" if bare[-1] in WORDS.frames else role(bare[-1])
    if kind in ("noun", "adjective", "number"):
        # "a black dog and a cat": black moves. "a black dog and cat": perhaps both were black.
        return not change.has_article and left == bare
    mixed = {lively(change.first), lively(change.second)} == {True, False}
    # "a boy on a skateboard and a girl": the girl is no part of what the boy is on.
    return not mixed or bare[-1] in WORDS.frames - {"of"}


def _may_end(change: Exchange) -> bool:
    """May the second part be a whole conjunct at its right end, with nothing of its own behind?"""
    if change.is_closed:
        return True
    word = change.after[0]
    kind = role(word)
    if is_verbal(change.first) and is_verbal(change.second):
        return kind not in ("determiner", "noun", "adjective", "number")
    if two_adjectives(change):
        return True  # "a blue and white stained glass clock"
    if word in WORDS.prepositions or kind in _AFTER_PHRASE:
        return word != "of"
    # "a dog and cat bed"; "a man and a child hold hands", where "hold" looks like a noun
    own = change.has_article
    return not own and len(bare_start(change.first)) == len(bare_start(change.second)) == 1


_AFTER_PHRASE: Final = ("joint", "auxiliary", "adverb", "side", "pronoun", "verb")


def judge_symmetric(change: Exchange) -> Same | None:
    left = bare_end(change.before)
    if left and left[-1] not in WORDS.frames:
        return None  # "holding a kitten next to a fence": what is held would change
    if left[-1:] == ("of",) and not WORDS.pictures.issuperset(left[-2:-1]):
        return None  # "the side of a lake by a tree"
    sure = not left or left[-1] in ("is", "are", "of")
    if not _both_may(change):
        return None
    if role(change.first[0]) == "verb" or role(change.first[-1]) in ("preposition", "verb"):
        return None
    if not change.is_closed:
        if not _may_be_of_both(change.after[0]):
            return None
        sure = False
    sure = sure and bool(symmetric(bare_end(change.between)))
    return Same("symmetric" if sure else "perhaps symmetric", sure)


def _may_be_of_both(word: str) -> bool:
    """Whether what follows may be said of both: "a truck near a plane with people around it"."""
    if word in WORDS.prepositions or word in ("that", "which", "who"):
        return word != "of"
    return role(word) == "verb" and word.endswith("ing")


def _both_may(change: Exchange) -> bool:
    """Whether each could do what the other does: a ball does not play with a girl."""
    core = _relation(bare_end(change.between))
    alive = {lively(change.first), lively(change.second)}
    if symmetric(core):
        return True
    verb, rest = _verb(core)
    if verb and _is_symmetric(rest):
        of_things = len(rest) == len(core) - 1 and not WORDS.things_do.isdisjoint(lemmas(verb))
        return of_things or alive != {True, False}
    return alive == {True}


def _relation(core: Part) -> Part:
    """Without what links it to a noun: "that is next to"."""
    while core and core[0] in WORDS.links:
        core = core[1:]
    return core


@lru_cache(maxsize=1 << 12)
def symmetric(core: Part) -> bool | None:
    """Whether A and B may change sides: yes, perhaps (False), or no (None)."""
    core = _relation(core)
    readings = forms(*core)
    if any(lexicon.is_symmetric(form) for form in readings):
        return True
    # "hugging" is mutual as a rule; "standing next to" is but for who stands.
    if any(lexicon.may_be_symmetric(form) for form in readings):
        return False
    verb, rest = _verb(core)
    if not verb or (rest == ("by",) and not lemmas(verb) & (WORDS.relation_verbs - WORDS.going)):
        return None  # "passing by", "followed by"
    return False if _is_symmetric(rest) or lexicon.may_be_symmetric(" ".join(rest)) else None


def _verb(core: Part) -> tuple[str, Part]:
    """A verb and what follows it and its particle: "curled up next to", "shaking hands with"."""
    if len(core) < 2 or not (lemmas(core[0]) & WORDS.relation_verbs or role(core[0]) == "verb"):
        return "", ()
    rest = core[1:]
    return core[0], rest[1:] if len(rest) > 1 and rest[0] in WORDS.relation_particles else rest


def _is_symmetric(relation: Part) -> bool:
    name = " ".join(relation)
    return name in WORDS.together or lexicon.is_symmetric(name)


_SHARED: Final = 3  # words on either side that both parts may share
_ITEM: Final = 4  # words of an item in the middle of a list


def reordered(change: TextChange) -> Same | None:
    """Why the same words in another order may say the same, but for a relation turned round."""
    old, new = change.removed, change.inserted
    if not change.same_bag:
        old, new = tuple(map(key, old)), tuple(map(key, new))
    exchange = find_exchange(change.before, old, new, change.after, change.old.gaps)
    if exchange is None:
        return same_list(change) or fronted(change)
    if _one_phrase(exchange):
        return Same("same phrase", True)
    if _garbled(exchange) or _two_details(exchange):
        return Same("perhaps same phrase", False)
    if _fronted(exchange):
        return Same("same phrase", True)
    for wider, gaps in _widened(exchange):
        joint, same = bare_end(wider.between), None
        if _joins_conjuncts(joint, gaps, exchange.first):
            if _may_start(wider) and _may_end(wider):
                return CONJUNCTS if stand_alone(wider) else PERHAPS_CONJUNCTS
        elif joint and not (joint[0] in WORDS.coordinators or is_mark(gaps[0])):
            same = judge_symmetric(wider) if symmetric(joint) is not None else None
        if same:
            return same
    return same_list(change) or fronted(change)


def _widened(change: Exchange) -> Iterator[tuple[Exchange, Part]]:
    """Both parts with words that they share before and behind them, and the gaps between them.

    In "a small dog next to a big dog" `dog` is shared, in "two sinks next to two mirrors" `two`.
    """
    before, between, after, marks = change.before, change.between, change.after, change.marks
    left = min(shared_ends(before[::-1], between[::-1])[0], _SHARED)
    right = min(shared_ends(between[: len(between) - left], after)[0], _SHARED)
    place = len(before) + len(change.first)
    for shared in range(right, -1, -1):
        for known in range(left, -1, -1):
            rest, start = before[: len(before) - known], before[len(before) - known :]
            first, second = (
                start + part + after[:shared] for part in (change.first, change.second)
            )
            inner = between[shared : len(between) - known]
            gaps = marks[place + shared : place + len(between) - known + 1]
            yield Exchange(rest, first, inner, second, after[shared:], marks), gaps


def fronted(change: TextChange) -> Same | None:
    """Whether only the place was put first: "on a bench sits a dog", "in a park, a dog runs"."""
    old, new = change.old.words, change.new.words
    if not new or not (role(new[0]) in _OF_PLACE or new[0].endswith(("ing", "ed"))):
        return None
    exchange = find_exchange((), old, new, (), change.old.gaps)
    if exchange is None or exchange.before or len(exchange.between) > 1:
        return None
    first, second, verb = exchange.first, exchange.second, exchange.between
    place = second[1:] if verb and second[0].endswith(("ing", "ed")) else second
    if not place or role(place[0]) not in _OF_PLACE or not _is_place(place[1:]):
        return None
    if verb:
        linked = verb[0] in ("is", "are") or bool(lemmas(verb[0]) & WORDS.postures)
        return FRONTED if linked and _is_place(first) else None
    verbs = [i for i, word in enumerate(first) if role(word) == "verb"]
    clear = len(verbs) == 1 and _is_place(first[verbs[0] + 1 :])
    return FRONTED if clear or not any(role(word) == "preposition" for word in first) else None


FRONTED: Final = Same("place first", True)
_OF_PLACE: Final = ("preposition", "side")


def _is_place(words: Part) -> bool:
    """Whether words are one noun phrase, with "in front of" and "a cup of coffee"."""
    known = ("determiner", "number", "adjective", "noun", "side")
    return all(
        role(word) in known
        or word in ("of", "to", "and")
        or (role(word) == "verb" and (word.endswith(("ing", "ed")) or place + 1 == len(words)))
        for place, word in enumerate(words)  # "a parking lot", "a skate park"
    )


def same_list(change: TextChange) -> Same | None:
    """Whether only the items of a list were put in another order: of the whole text, or a part."""
    marks = change.old.gaps[change.start : len(change.old.words) - change.tail]
    if WORDS.coordinators.isdisjoint(change.removed) and not any(map(is_mark, marks)):
        return None
    whole = _items(change.old.words, change.old.gaps, 0)
    if len(whole) > 1 and _alike(whole, _items(change.new.words, change.new.gaps, 0)):
        return CONJUNCTS if same_form(whole) else PERHAPS_CONJUNCTS
    old = _items(change.removed, change.old.gaps, change.start)
    new = _items(change.inserted, change.new.gaps, change.start)
    if len(old) < 3 or not _alike(old, new) or max(len(_plain(item)) for item in old) > _ITEM:
        return None
    if len({role(item[-1]) for item in old}) > 1:
        return None  # "brown, leather seats and a red wall": brown and red are no items
    ends = Exchange(change.before, old[0], ("and",), old[-1], change.after, change.old.gaps)
    if not (_may_start(ends) and _may_end(ends)):
        return None
    return CONJUNCTS if same_form(old) and stand_alone(ends) else PERHAPS_CONJUNCTS


def _items(words: Part, gaps: Part, start: int) -> list[Part]:
    """A run of words cut at every "and", "or" and comma."""
    items: list[list[str]] = [[]]
    for word, gap in zip(words, gaps[start:], strict=False):
        if (word in WORDS.coordinators or is_mark(gap)) and items[-1]:
            items.append([])
        if word not in WORDS.coordinators:
            items[-1].append(word)
    return [tuple(item) for item in items if not WORDS.determiners.issuperset(item)]


def _alike(old: list[Part], new: list[Part]) -> bool:
    """Whether the items are the same, articles aside."""
    return sorted(map(_plain, old)) == sorted(map(_plain, new))


def _plain(item: Part) -> Part:
    return tuple(word for word in item if word not in WORDS.determiners)


def _one_phrase(change: Exchange) -> bool:
    """Adjectives side by side: "a big red bus", "a red, big bus"."""
    words = change.first + change.between + change.second
    if len(change.first) != 1 or len(change.second) != 1 or not change.after:
        return False
    return all(role(w) == "adjective" and w not in WORDS.shades_of_colours for w in words)


def _garbled(change: Exchange) -> bool:
    """Two words of one phrase side by side: "a metal sink", "a sink metal" name one thing.

    Or an adverb and its neighbour: "running quickly", "quickly running".
    """
    pair = (*change.first, *change.between, *change.second)
    place = len(change.before) + 1
    if len(pair) != 2 or not change.marks[place].isspace():
        return False
    roles = {role(word) for word in pair}
    return roles <= {"noun", "adjective"} or "adverb" in roles


def _fronted(change: Exchange) -> bool:
    """The place first or last, and nothing else: "in a park a man sleeps", "outside he eats"."""
    if change.before or change.between or change.after:
        return False
    pair = (change.first, change.second)
    for part, other in (pair, pair[::-1]):
        if part[0] in WORDS.prepositions - {"of"} or (len(part) == 1 and role(part[0]) == "adverb"):
            return role(other[0]) in ("determiner", "number", "noun", "adjective")
    return False


def _two_details(change: Exchange) -> bool:
    """Two details of one subject: "a girl in a red dress with a balloon"."""
    side_by_side = bool(change.before) and not change.between and change.is_closed
    return side_by_side and {change.first[0], change.second[0]} <= WORDS.details


def _joins_conjuncts(core: Part, gaps: Part, first: Part) -> bool:
    """Whether two parts are joined by "and", by a mark, or by a list."""
    if not core:
        return any(map(is_mark, gaps))
    if " ".join(core) in WORDS.joined_by or all(word in WORDS.coordinators for word in core):
        return True
    return (core[0] in WORDS.coordinators or is_mark(gaps[0])) and _is_list(core, gaps, first)


def _is_list(core: Part, gaps: Part, first: Part) -> bool:
    """Whether what stands between are whole items: ", toilet and" of "sink, toilet and shower".

    Not ", leather furniture and a" of "brown, leather furniture and a red wall".
    """
    if role(first[-1]) == "adjective" and any(role(word) == "noun" for word in core):
        return False
    if not (core[-1] in WORDS.coordinators or is_mark(gaps[len(core)])):
        return False
    size = 0
    for word, gap in zip(core, gaps, strict=False):
        size = 0 if word in WORDS.coordinators else 1 if is_mark(gap) else size + 1
        if size > _ITEM or role(word) in ("preposition", "verb", "auxiliary"):
            return False
    return True
