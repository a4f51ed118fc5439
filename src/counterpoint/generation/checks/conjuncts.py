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

from counterpoint.generation.language import lexicon
from counterpoint.generation.language.lists import WORDS
from counterpoint.generation.language.words import forms, genera, lemmas, role

Part = tuple[str, ...]

_PHRASE: Final = frozenset({"determiner", "number", "adjective", "noun"})


class Context(NamedTuple):
    """`left first middle second right`; `marks` are the gaps of the whole caption."""

    left: Part
    first: Part
    middle: Part
    second: Part
    right: Part
    marks: Part

    def left_gap(self) -> str:
        """What stands before the first part and its determiner."""
        return self.marks[len(bare_end(self.left))]

    def right_gap(self) -> str:
        return self.marks[len(self.marks) - 1 - len(self.right)].strip()


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


def stand_alone(context: Context) -> bool:
    """Whether the exchange of two conjuncts is sure to change nothing but their order."""
    parts = context.first + context.second
    if not WORDS.coordinators.isdisjoint(parts) or _one_of_more(context):
        return False
    if is_verbal(context.first) or is_verbal(context.second):
        return is_verbal(context.first) and is_verbal(context.second) and _actions(context)
    if two_adjectives(context):
        return _adjectives(context)
    if not (is_phrase(context.first) and is_phrase(context.second)):
        return _clauses(context)
    if not WORDS.referring.isdisjoint(context.first + context.second):
        return False
    return _keep_their_words(context) and _starts(context) and _ends(context)


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


def two_adjectives(context: Context) -> bool:
    return (
        len(context.first) == len(context.second) == 1
        and context.middle == bare_end(context.middle)
        and role(context.first[0]) == role(context.second[0]) == "adjective"
    )


@lru_cache(maxsize=1 << 12)
def lively(part: Part) -> bool | None:
    """Whether a phrase is about a person or animal; None if that is not known."""
    if not _is_listed(part[-1:]):
        return None
    readings = forms(part[-1:])
    return not {"person", "animal"}.isdisjoint({*readings, *genera(readings)})


def _one_of_more(context: Context) -> bool:
    """Whether another "and" stands beside them: "black and [white toilet] and [a floor]"."""
    before = bool(context.left) and context.left[-1] in WORDS.coordinators
    after = (
        bool(context.right) and context.right[0] in WORDS.coordinators and not context.right_gap()
    )
    listing = WORDS.coordinators.isdisjoint(context.middle)  # "[a sink], [a tub] and a toilet"
    return before or (after and not listing)


def _actions(context: Context) -> bool:
    """ "wearing glasses and holding a bottle", to the end: one verb each, of the same subject."""
    first, second = context.first, context.second
    if not _closed(context) or not WORDS.referring.isdisjoint(second):
        return False
    if any(role(word) in ("verb", "auxiliary") for word in first[1:] + second[1:]):
        return False
    # "standing next to and cutting a cake", "holding and petting a dog": the end is shared
    return len(first) > 1 and role(first[-1]) not in ("preposition", "determiner")


def _adjectives(context: Context) -> bool:
    """ "a blue and white clock", not "a dark blue and white clock"."""
    if context.left and not is_mark(context.left_gap()):
        before = context.left[-1]
        if role(before) in ("adjective", "adverb", "noun"):
            return False
    return _closed(context) or role(context.right[0]) in ("noun", "adjective", "verb")


def _keep_their_words(context: Context) -> bool:
    """Whether no article, number, modifier or last noun may be said of both."""
    first, second = bare_start(context.first), bare_start(context.second)
    if len(second) < len(context.second) or context.middle != bare_end(context.middle):
        return True  # "a white toilet and a sink"
    own = context.first[: len(context.first) - len(first)]
    before = own or context.left[len(bare_end(context.left)) :] or _numbers_at_end(context.left)
    if any(role(word) == "number" for word in before) or (len(first) > 1) != (len(second) > 1):
        return False  # "two dogs and cats", "a white toilet and sink", "street and traffic lights"
    if len(second) > 1 and (_is_compound(second) or _is_compound(first) > _is_plural(first[-1])):
        return False  # "a tan toilet and sink combination", "a chain link and electric fence"
    if own:  # "the woman and children": "children and the woman" may be other children
        return WORDS.definite.isdisjoint(own)
    return not ("a" in before and _is_plural(second[-1]))


def _is_started(context: Context) -> bool:
    """Whether the second phrase has an article or a number of its own."""
    return len(bare_start(context.second)) < len(context.second) or (
        context.middle != bare_end(context.middle)
    )


def _starts(context: Context) -> bool:
    """Whether the first phrase is the start of what is joined."""
    left, bare = context.left, bare_end(context.left)
    if not bare or is_mark(context.left_gap()):
        return True
    if {lively(context.first), lively(context.second)} == {True, False}:
        return False  # "a woman with a bag and a dog": the dog may be no part of what she has
    gap = context.marks[len(left) + len(context.first)]
    if is_mark(gap) and context.middle[:1] == ("and",):
        return False  # "a bed with a quilt, and a border": the comma may close the bed
    word = bare[-1]
    started = left != bare or len(bare_start(context.first)) < len(context.first)
    if word == "of":
        whole = bare[-2:-1] and bare[-2] in WORDS.pictures
        mixed = (
            bare[-2:-1] and bare[-2] in WORDS.mixtures and not started and not _is_started(context)
        )
        return bool(whole or mixed)
    if word in WORDS.having:  # "a room has a table with chairs and a couch": who has the couch?
        return WORDS.having.isdisjoint(bare[:-1]) and not any(
            map(is_mark, context.marks[: len(bare)])
        )
    if word in WORDS.frames:
        return True
    # "a man on a horse and a dog", "boats on water and trees": who is on what?
    if role(word) not in ("verb", "preposition") or _is_started(context):
        return False
    return left != bare or (
        role(word) == "verb" and not started and lively(context.second) is False
    )


def _ends(context: Context) -> bool:
    """Whether nothing follows the second phrase that is said of it, and not of the first."""
    right = context.right
    if _closed(context) or right[0] in WORDS.coordinators:
        return True
    bare = bare_end(context.left)
    if bare:  # "a table with a cup and a plate on it"; not "with a lid and a sink behind it"
        there = len(right) == 2 and right[1] in ("it", "them") and bare[-1] in WORDS.having
        around = right[0] in WORDS.prepositions and not _is_started(context)
        return there and (around or right[0] in ("on", "in"))
    if right[0] in WORDS.plural_verbs or (
        right[0] in WORDS.postures and lemmas(right[0]) == {right[0]}
    ):
        # "a man and a woman are", "a dog and a cat sit"; not "a kitchen and the walls are white"
        return _is_definite(context.left + context.first) == _is_definite(
            context.middle + context.second
        )
    if (
        lemmas(right[0]) & WORDS.postures
        and role(right[0]) == "verb"
        and not right[0].endswith("s")
    ):
        return lively(context.first) == lively(context.second)  # "a dog and a cat sitting"
    return right[0] == "in" and is_phrase(right[1:] or right) and _is_place(right)


def _clauses(context: Context) -> bool:
    """ "a dog on a bed and a cat on a chair": all of the caption, and each has what is its own."""
    closed = not bare_end(context.left) and not context.right
    started = context.first[0] in WORDS.determiners or bool(context.left)
    other = context.second[0] in WORDS.determiners or context.middle != bare_end(context.middle)
    own = all(
        any(role(word) in ("verb", "preposition") for word in part)
        for part in (context.first, context.second)
    )
    return closed and started and other and own and WORDS.referring.isdisjoint(context.second)


def _closed(context: Context) -> bool:
    return not context.right or bool(context.right_gap())


def _numbers_at_end(words: Part) -> Part:
    return words[-1:] if words and role(words[-1]) == "number" else ()


def _is_compound(phrase: Part) -> bool:
    """ "sink combination"; "bow tie" is a word of its own."""
    return role(phrase[-2]) == "noun" and not _is_listed(phrase[-2:])


def _is_definite(words: Part) -> bool:
    return not WORDS.definite.isdisjoint(words)


def _is_listed(words: Part) -> bool:
    """Whether the lexicon has this as a noun: "square", "bow tie"."""
    return any(lexicon.meanings(form, "NOUN") for form in forms(words))


def _is_plural(word: str) -> bool:
    return word.endswith("s") and any(lemma != word for lemma in lemmas(word))


def _is_place(words: Part) -> bool:
    return not {"place", "room"}.isdisjoint(genera(forms(words[-1:])))
