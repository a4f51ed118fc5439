"""One run of words (a slot) replaces another: may both be true of the same thing?"""

from __future__ import annotations

from functools import cache, lru_cache
from itertools import product
from typing import Final

from counterpoint.generation.checks.change import Part, TextChange
from counterpoint.generation.language import lexicon
from counterpoint.generation.language.lists import TABLES, WORDS, keys_of
from counterpoint.generation.language.words import forms, genera, lemmas, numbers, role, spelling

_FORMS: Final = 24  # readings of a phrase that are looked up


def same_slot(change: TextChange) -> str:
    """Why the inserted words may be true where the removed ones are; empty if they are not."""
    amounts = same_amount(change.removed, change.inserted)
    if amounts is not None:
        return amounts
    old, new = _content(change.removed), _content(change.inserted)
    if not old and not new:
        return "article"
    if not new:  # "a red bus", "a bus"; but not "several birds", "a bird"
        return "" if "a" in change.inserted and _amount(old) else "says less"
    if "".join(map(spelling, old)) == "".join(map(spelling, new)):
        return "spelling"
    if len(old) == len(new) and all(lemmas(a) & lemmas(b) for a, b in zip(old, new, strict=True)):
        return "same word"
    if _halved(change):
        return "near"
    first, second = readings(change.removed, change), readings(change.inserted, change)
    found = _likeness(first, second)
    if not found and len(old) == len(new) > 1:
        found = _word_by_word(old, new)
    return found or ("perhaps both" if _both_true(first, second) else "")


def _likeness(old: Part, new: Part) -> str:
    """How close the readings of two slots are: "kind", "near", "synonym" or not at all."""
    same = any(lexicon.may_be_same(a, b) for a, b in product(old, new))
    if not same or lexicon.exclude(old[0], new[0]):
        return ""  # as they stand; "spotted" excludes "plain", though a spot may be a plain
    if genera(old) & set(new) or genera(new) & set(old):
        return "kind"
    return "near" if _only_near(old, new) else "synonym"


def _word_by_word(old: Part, new: Part) -> str:
    """The same for phrases of several words: "light brown" and "pale brown".

    Two words that are only near make another statement: "sitting on", "leaning against".
    """
    pairs = zip(old, new, strict=True)
    found = [_likeness(forms(a), forms(b)) for a, b in pairs if not lemmas(a) & lemmas(b)]
    if not all(found) or found.count("near") > 1:
        return ""
    return next((reason for reason in ("near", "kind") if reason in found), "synonym")


def _halved(change: TextChange) -> bool:
    """Whether both are halves of one scale: "half full" and "half empty", "partly sunny"."""
    old, new = change.removed, change.inserted
    if change.before and change.before[-1] in WORDS.halves:
        return len(old) == len(new) == 1
    cut = [w[0].partition("-") for w in (old, new) if len(w) == 1]
    return len(cut) == 2 and all(first in WORDS.halves and rest for first, _, rest in cut)


@lru_cache(maxsize=1 << 14)
def _both_true(old: Part, new: Part) -> bool:
    """Whether two attributes are of different sorts, so that one thing may have both.

    "wooden" and "brown" may; "wooden" and "metal" may not. A word that is more than an attribute
    ("orange", "open") is compared with its like only.
    """
    senses = [
        [m for form in side for m in lexicon.meanings(form) if form in m.words]
        for side in (old, new)
    ]
    others = [{m.subtype for m in side} - {"att"} for side in senses]
    if others[0] & others[1]:
        return False
    first, second = ({_SORTS.get(m.field) for m in s if m.subtype == "att"} for s in senses)
    if not first or not second or None in second or first & second:
        return False
    # A colourful kite may be red; but a red one is hardly called colourful.
    colourful = any(meaning.head == "colourful" for meaning in senses[0])
    return None not in first or (second == {"colour"} and colourful)


_SORTS: Final = keys_of("sorts")


def same_amount(old: Part, new: Part) -> str | None:
    """Why two amounts may be the same: "same number", or "near" (three, some); None: no amounts."""
    while old and new and role(old[-1]) == "noun" and lemmas(old[-1]) & lemmas(new[-1]):
        old, new = old[:-1], new[:-1]  # "a single banana", "several bananas"
    first, second = _amount(old), _amount(new)
    if first is None or second is None:
        return None
    if (first == second and first[0] == first[1]) or 0 < sum(numbers(old)) == sum(numbers(new)):
        return "same number"  # also "two" and "a couple of", which may be three
    if {"few"} & {*old, *new} and WORDS.large_amounts & {*old, *new}:
        return ""
    return "near" if first[0] <= second[1] and second[0] <= first[1] else ""


_AMOUNTS: Final = {
    word: (least, most)
    for words, (least, most) in TABLES["amount_words"].items()
    for word in words.split()
}


@lru_cache(maxsize=1 << 12)
def _amount(part: Part) -> tuple[int, int] | None:
    """The least and the largest number that a phrase may mean: "a group of", "two", "a dozen"."""
    words = [word for word in part if word not in WORDS.around_amounts]
    if len(words) == 2 and words[1] == "dozen":
        times = {"half": 0.5}.get(words[0]) or sum(numbers((words[0],)))
        return (int(12 * times),) * 2 if times else None
    if len(words) != 1:
        return None
    exact = 1 if words[0] in ("one", "single", "1") else sum(numbers((words[0],)))
    return _AMOUNTS.get(words[0]) or ((exact, exact) if exact else None)


def bad_slot(change: TextChange) -> str:
    """Why the inserted words may be false where the removed ones are true; empty if they are not.

    Where a narrower word replaces a wider one: a dog need not be a puppy.
    """
    if not change.removed or not change.inserted:
        return ""
    if _other_number(change):
        return "number"
    old, new = readings(change.removed, change), readings(change.inserted, change)
    if any(lexicon.exclude(a, b) for a, b in product(old, new)) and not any_same(old, new):
        return "excluded"
    bare, other = forms(*_bare(change.removed)), forms(*_bare(change.inserted))
    if genera(other) & set(bare) and not genera(bare) & set(other):
        return "narrower"
    if _only_near(old, new):
        return "only near"
    return "other word" if unrelated(old, new) else ""


def unrelated(old: Part, new: Part) -> bool:
    """Whether the lexicon has both and no link between them."""
    both = any(map(lexicon.is_listed, old)) and any(map(lexicon.is_listed, new))
    return both and not any_same(old, new)


def _only_near(old: Part, new: Part) -> bool:
    """Whether words are near to others, but neither synonyms nor wider."""
    if not any_same(old, new) or set(old) & set(new) or genera(old) & set(new):
        return False
    return not lexicon.share_meaning(old, new)


def doubt(change: TextChange) -> str:
    """Why the inserted words may be false where the removed ones are true."""
    whole = _doubt(readings(change.removed, change), readings(change.inserted, change))
    if whole is not None:
        return whole
    pairs = product(change.lost, change.gained)  # a text reworded in several places
    return next(filter(None, (_doubt(forms(a), forms(b)) for a, b in pairs)), "")


def _doubt(old: Part, new: Part) -> str | None:
    """Of all readings the least doubtful; None if the lexicon has no meaning of both."""
    found = (lexicon.doubt(a, b) for a, b in product(old, new))
    return min((one for one in found if one is not None), default=None)


def say_the_same(a: str, b: str) -> bool:
    """Whether two words are forms of one word, or of synonyms."""
    return bool(lemmas(a) & lemmas(b)) or lexicon.share_meaning(forms(a), forms(b))


def any_same(old: Part, new: Part) -> bool:
    return any(lexicon.may_be_same(a, b) for a, b in product(old, new))


def readings(part: Part, change: TextChange) -> Part:
    """What a slot may be looked up as: alone, and with the shared words of its relation.

    Of "on [top] of" and "in [front] of" the shared words belong to both.
    """
    return _readings(part, change.before[-2:], change.after[:2])


@lru_cache(maxsize=1 << 12)
def _readings(part: Part, before: Part, after: Part) -> Part:
    bare, listed = _bare(part), _relation_words()

    def in_relation(words: Part) -> bool:
        """Whether each word is in some relation of several words."""
        return not any(lemmas(word).isdisjoint(listed) for word in words)

    found = dict.fromkeys((*forms(*bare), *forms(*part)))
    if len(bare) > 2 and bare[0] in WORDS.pieces and bare[1] == "of":
        found |= dict.fromkeys(forms(*bare[2:]))
    if in_relation(part):
        for left in range(len(before) + 1):
            for right in range(len(after) + 1):
                start, end = before[len(before) - left :], after[:right]
                phrase = start + part + end
                if phrase != part and in_relation(start + end) and _is_relation(phrase):
                    found |= dict.fromkeys(forms(*phrase))
    return tuple(found)[:_FORMS]


@cache
def _relation_words() -> frozenset[str]:
    return frozenset(
        w for relation in lexicon.relations() if " " in relation for w in relation.split()
    )


@lru_cache(maxsize=1 << 14)
def _is_relation(phrase: Part) -> bool:
    return phrase[0] not in WORDS.determiners and any(
        m.subtype == "rel" for form in forms(*phrase) for m in lexicon.meanings(form)
    )


def _other_number(change: TextChange) -> bool:
    """Whether one noun was made plural or singular, and nothing else."""
    old, new = _bare(change.removed), _bare(change.inserted)
    return (
        len(old) == len(new) == 1
        and old != new
        and role(old[0]) == role(new[0]) == "noun"
        and spelling(old[0]) != spelling(new[0])
        and bool(lemmas(old[0]) & lemmas(new[0]))
    )


def _content(part: Part) -> Part:
    """Without articles and auxiliaries at its start: "is sleeping" says what "sleeps" says."""
    while part and part[0] in WORDS.determiners | WORDS.auxiliaries:
        part = part[1:]
    return part


def _bare(part: Part) -> Part:
    """Without the determiners at its ends."""
    while part and part[0] in WORDS.determiners:
        part = part[1:]
    while part and part[-1] in WORDS.determiners:
        part = part[:-1]
    return part
