"""Two conjuncts were exchanged: are both complete phrases with clear borders?

    A giraffe and a zebra stand side by side   "zebra stand" is not a phrase
    black and white toilet and a tiled floor   "white toilet" is a part of a longer phrase
    a man and a girl in a bikini               whose bikini?
    a plate of food and wine glasses           a plate of which?
    a white toilet and sink                    is the sink white?

Words alone do not answer such questions. So only cases without such a question are sure.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from counterpoint.generation.checks.change import Part
from counterpoint.generation.language import lexicon
from counterpoint.generation.language.lists import WORDS
from counterpoint.generation.language.words import forms, genera, lemmas, role

_PHRASE: Final = frozenset({"determiner", "number", "adjective", "noun"})


class Exchange(NamedTuple):
    """`caption = before first between second after`, `text = before second between first after`.

    All are ranges of the caption's words; `between` may be empty. `marks` are the caption's gaps.
    """

    before: Part
    first: Part
    between: Part
    second: Part
    after: Part
    marks: Part

    @property
    def starts_with_mark(self) -> bool:
        """Whether a mark stands before the first part and its determiner."""
        return is_mark(self.marks[len(bare_end(self.before))])

    @property
    def is_closed(self) -> bool:
        """Whether nothing follows the second part, or a mark does."""
        return not self.after or bool(self.marks[-1 - len(self.after)].strip())

    @property
    def is_started(self) -> bool:
        """Whether the second part has an article or a number of its own."""
        return self.has_article or len(bare_start(self.second)) < len(self.second)

    @property
    def has_article(self) -> bool:
        """Whether a determiner of the second part stands before it."""
        return not WORDS.determiners.isdisjoint(self.between[-1:])


def find_exchange(before: Part, old: Part, new: Part, after: Part, marks: Part) -> Exchange | None:
    """The shortest ranges at both ends of `old` whose exchange makes `new`."""
    size = len(old)
    for last in range(1, size):
        if new[:last] != old[size - last :]:
            continue
        for first in range(1, size - last + 1):
            between = old[first : size - last]
            if old[:first] == new[size - first :] and between == new[last : size - first]:
                return Exchange(before, old[:first], between, old[size - last :], after, marks)
    return None


def bare_end(words: Part) -> Part:
    """Without determiners at the end, which belong to what comes next."""
    while words and words[-1] in WORDS.determiners:
        words = words[:-1]
    return words


def bare_start(part: Part) -> Part:
    """Without the determiners and numbers before it."""
    while len(part) > 1 and (part[0] in WORDS.determiners or role(part[0]) == "number"):
        part = part[1:]
    return part


def is_mark(gap: str) -> bool:
    return gap != " " and any(mark in gap for mark in ",&/+;")


def stand_alone(change: Exchange) -> bool:
    """Whether the exchange of two conjuncts is sure to change nothing but their order."""
    parts = change.first, change.second
    words = change.first + change.second
    if not WORDS.coordinators.isdisjoint(words) or _one_of_more(change):
        return False
    if any(map(is_verbal, parts)):
        return all(map(is_verbal, parts)) and _actions(change)
    if two_adjectives(change):
        return _adjectives(change)
    if not all(map(is_phrase, parts)):
        return _clauses(change)
    if not WORDS.referring.isdisjoint(words):
        return False
    return _keep_their_words(change) and _starts(change) and _ends(change)


def same_form(items: list[Part]) -> bool:
    """Whether no item has a modifier that others may share: "white tub, sink and toilet"."""
    bare = [bare_start(item) for item in items]
    started = all(len(one) < len(item) for one, item in zip(bare, items, strict=True))
    return all(map(is_phrase, items)) and (started or len({len(one) > 1 for one in bare}) == 1)


def is_phrase(part: Part) -> bool:
    """ "two dogs", "a sliding glass door"; not "a zebra stand", "a man eating"."""
    roles = [role(word) for word in part]
    if part[0] in WORDS.determiners and _is_listed(part[-1:]):
        roles[-1] = "noun"  # "a red square"
    before = roles[: roles.index("noun")] if "noun" in roles else roles
    after = roles[len(before) :]
    return roles[-1] == "noun" and {*after} <= _PHRASE and {*before} <= _PHRASE | {"verb"}


def is_verbal(part: Part) -> bool:
    return role(part[0]) == "verb"


def two_adjectives(change: Exchange) -> bool:
    return (
        len(change.first) == len(change.second) == 1
        and not change.has_article
        and role(change.first[0]) == role(change.second[0]) == "adjective"
    )


@lru_cache(maxsize=1 << 12)
def lively(part: Part) -> bool | None:
    """Whether a phrase is about a person or animal; None if that is not known."""
    if not _is_listed(part[-1:]):
        return None
    readings = forms(*part[-1:])
    return not {"person", "animal"}.isdisjoint({*readings, *genera(readings)})


def _one_of_more(change: Exchange) -> bool:
    """Whether another "and" stands beside them: "black and [white toilet] and [a floor]"."""
    if not WORDS.coordinators.isdisjoint(change.before[-1:]):
        return True
    joined = not change.is_closed and change.after[0] in WORDS.coordinators
    # not "[a sink], [a tub] and a toilet"
    return joined and not WORDS.coordinators.isdisjoint(change.between)


def _actions(change: Exchange) -> bool:
    """ "wearing glasses and holding a bottle", to the end: one verb each, of the same subject."""
    first, second = change.first, change.second
    if not change.is_closed or not WORDS.referring.isdisjoint(second):
        return False
    if any(role(word) in ("verb", "auxiliary") for word in first[1:] + second[1:]):
        return False
    # "standing next to and cutting a cake", "holding and petting a dog": the end is shared
    return len(first) > 1 and role(first[-1]) not in ("preposition", "determiner")


def _adjectives(change: Exchange) -> bool:
    """ "a blue and white clock", not "a dark blue and white clock"."""
    before = role(change.before[-1]) if change.before else ""
    if before in ("adjective", "adverb", "noun") and not change.starts_with_mark:
        return False
    return change.is_closed or role(change.after[0]) in ("noun", "adjective", "verb")


def _keep_their_words(change: Exchange) -> bool:
    """Whether no article, number, modifier or last noun may be said of both."""
    first, second = bare_start(change.first), bare_start(change.second)
    if len(second) < len(change.second) or change.has_article:
        return True  # "a white toilet and a sink"
    own = change.first[: len(change.first) - len(first)]
    before = own or change.before[len(bare_end(change.before)) :]
    numbered = any(role(word) == "number" for word in before or change.before[-1:])
    if numbered or (len(first) > 1) != (len(second) > 1):
        return False  # "two dogs and cats", "a white toilet and sink", "street and traffic lights"
    if len(second) > 1 and (_is_compound(second) or _is_compound(first) > _is_plural(first[-1])):
        return False  # "a tan toilet and sink combination", "a chain link and electric fence"
    if own:  # "the woman and children": "children and the woman" may be other children
        return WORDS.definite.isdisjoint(own)
    return not ("a" in before and _is_plural(second[-1]))


def _starts(change: Exchange) -> bool:
    """Whether the first phrase is the start of what is joined."""
    left, bare = change.before, bare_end(change.before)
    if not bare or change.starts_with_mark:
        return True
    if {lively(change.first), lively(change.second)} == {True, False}:
        return False  # "a woman with a bag and a dog": the dog may be no part of what she has
    gap = change.marks[len(left) + len(change.first)]
    if is_mark(gap) and change.between[:1] == ("and",):
        return False  # "a bed with a quilt, and a border": the comma may close the bed
    word = bare[-1]
    started = left != bare or len(bare_start(change.first)) < len(change.first)
    if word == "of":
        mixed = not (started or change.is_started or WORDS.mixtures.isdisjoint(bare[-2:-1]))
        return mixed or not WORDS.pictures.isdisjoint(bare[-2:-1])
    if word in WORDS.having:  # "a room has a table with chairs and a couch": who has the couch?
        marked = any(map(is_mark, change.marks[: len(bare)]))
        return WORDS.having.isdisjoint(bare[:-1]) and not marked
    if word in WORDS.frames:
        return True
    # "a man on a horse and a dog", "boats on water and trees": who is on what?
    if role(word) not in ("verb", "preposition") or change.is_started:
        return False
    return left != bare or (role(word) == "verb" and not started and lively(change.second) is False)


def _ends(change: Exchange) -> bool:
    """Whether nothing follows the second phrase that is said of it, and not of the first."""
    right = change.after
    if change.is_closed or right[0] in WORDS.coordinators:
        return True
    bare = bare_end(change.before)
    if bare:  # "a table with a cup and a plate on it"; not "with a lid and a sink behind it"
        there = len(right) == 2 and right[1] in ("it", "them") and bare[-1] in WORDS.having
        around = right[0] in WORDS.prepositions and not change.is_started
        return there and (around or right[0] in ("on", "in"))
    readings = lemmas(right[0])
    if right[0] in WORDS.plural_verbs or (right[0] in WORDS.postures and readings == {right[0]}):
        # "a man and a woman are", "a dog and a cat sit"; not "a kitchen and the walls are white"
        sides = change.before + change.first, change.between + change.second
        return len({WORDS.definite.isdisjoint(words) for words in sides}) == 1
    if readings & WORDS.postures and role(right[0]) == "verb" and not right[0].endswith("s"):
        return lively(change.first) == lively(change.second)  # "a dog and a cat sitting"
    of_place = not {"place", "room"}.isdisjoint(genera(forms(*right[-1:])))
    return right[0] == "in" and is_phrase(right[1:] or right) and of_place


def _clauses(change: Exchange) -> bool:
    """ "a dog on a bed and a cat on a chair": all of the caption, and each has what is its own."""
    closed = not bare_end(change.before) and not change.after
    started = change.first[0] in WORDS.determiners or bool(change.before)
    other = change.second[0] in WORDS.determiners or change.has_article
    own = all(
        any(role(word) in ("verb", "preposition") for word in part)
        for part in (change.first, change.second)
    )
    return closed and started and other and own and WORDS.referring.isdisjoint(change.second)


def _is_compound(phrase: Part) -> bool:
    """ "sink combination"; "bow tie" is a word of its own."""
    return role(phrase[-2]) == "noun" and not _is_listed(phrase[-2:])


def _is_listed(words: Part) -> bool:
    """Whether the lexicon has this as a noun: "square", "bow tie"."""
    return any(lexicon.meanings(form, "NOUN") for form in forms(*words))


def _is_plural(word: str) -> bool:
    return word.endswith("s") and any(lemma != word for lemma in lemmas(word))
