"""What differs between a caption and a text, and the checks of its size and its form.

A text is a small edit of the claimed type, and it must look like its caption: case, spaces and
marks must not reveal which is which, and it may not have a slip that the caption does not have.
Everything is found from the two texts alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from counterpoint._util.english import fits
from counterpoint.cases import normal, read_words, shared_ends
from counterpoint.generation.language import lexicon
from counterpoint.generation.language.lists import WORDS
from counterpoint.generation.language.words import is_known, lemmas
from counterpoint.generation.pairs import Kind, Type

Part = tuple[str, ...]

SLOT: Final = 4  # words on either side of a replacement
ADDED: Final = 8  # words of an addition
REWORDED: Final = 0.5  # share of the longer text's words that a paraphrase may edit
TURNED: Final = 4  # edits of a short text told from the other side: "riding", "being ridden by"
_LONGEST: Final = 400  # words whose edit distance is computed; beyond, only their number counts
_LOST_BLANK: Final = re.compile(r"[,;:!?](?=[^\W\d_])|(?<=[^\W\d_.]{2})\.(?=[^\W\d_]{2})")
_SHARED: Final = 3  # letters that a broken word shares with the original
_BLANKS: Final = re.compile(r"\s+")
_STRAY: Final = re.compile(r"\s+(?=[.,;:!?](?:\s|$))")
_FINAL: Final = re.compile(r"[\s.,;:!?…]*$")
_MARKS: Final = ".!?…"
_END: Final = re.compile(rf"[{_MARKS}]*\s*$")


class Claim(NamedTuple):
    """What a pair claims to be, and what else is known about its caption.

    `others` are other true captions of the same image, `seen` the texts that this caption has
    already, both as `normal` gives them.
    """

    kind: Kind
    type: Type
    others: Collection[Part] = ()
    seen: Collection[Part] = ()


class TextChange:
    """The difference of two texts: the words between what they share at both ends."""

    def __init__(self, caption: str, text: str) -> None:
        self.caption, self.text = caption, text
        self.old, self.new = read_words(caption), read_words(text)
        old, new = self.old.words, self.new.words
        self.start, self.tail = shared_ends(old, new)
        self.removed = old[self.start : len(old) - self.tail]
        self.inserted = new[self.start : len(new) - self.tail]

    @property
    def size(self) -> int:
        """The number of changed words, on the longer side."""
        return max(len(self.removed), len(self.inserted))

    @property
    def before(self) -> tuple[str, ...]:
        """The words that both start with."""
        return self.old.words[: self.start]

    @property
    def after(self) -> tuple[str, ...]:
        """The words that both end with."""
        return self.old.words[len(self.old.words) - self.tail :]

    @cached_property
    def same_bag(self) -> bool:
        """Whether both have the same words, each equally often."""
        return len(self.removed) == len(self.inserted) and (
            sorted(self.removed) == sorted(self.inserted)
        )

    @cached_property
    def lost(self) -> Counter[str]:
        """Words that the caption has and the text has not, or less often."""
        return Counter(self.removed) - Counter(self.inserted)

    @cached_property
    def gained(self) -> Counter[str]:
        """Words that the text has and the caption has not, or less often."""
        return Counter(self.inserted) - Counter(self.removed)


def distance(old: Sequence[str], new: Sequence[str], limit: int) -> int:
    """The edit distance in words; any number above `limit` if it is larger than that."""
    start, tail = shared_ends(old, new)
    old, new = old[start : len(old) - tail], new[start : len(new) - tail]
    if abs(len(old) - len(new)) > limit:
        return limit + 1
    row = list(range(len(new) + 1))
    for i, word in enumerate(old, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(new, 1):
            here = diagonal if word == other else 1 + min(diagonal, row[j], row[j - 1])
            diagonal, row[j] = row[j], here
        if min(row) > limit:
            return limit + 1
    return row[-1]


def is_within(short: Sequence[str], long: Sequence[str]) -> bool:
    """Whether one sequence is a subsequence of the other."""
    rest = iter(long)
    return all(word in rest for word in short)


# --- the size of a change -------------------------------------------------------------------------


def changed(change: TextChange, _claim: Claim) -> str:
    """Rejects the caption itself, apart from case, spaces, marks and a/an."""
    if not change.new.words:
        return "no words"
    return "the caption itself" if normal(change.caption) == normal(change.text) else ""


def duplicate(change: TextChange, claim: Claim) -> str:
    """Rejects a text that this caption already has, as `normal` gives it."""
    return "made before" if claim.seen and normal(change.text) in claim.seen else ""


def minimal(change: TextChange, claim: Claim) -> str:
    """Rejects a larger change than a text of its type may make."""
    return _SIZES[claim.type](change)


def _reordered(change: TextChange) -> str:
    return "" if change.same_bag else "bag changed"


def _replaced(change: TextChange) -> str:
    if change.size > SLOT:
        return "slot too long"
    if change.same_bag:
        return "words moved"
    # "to the left of" -> "on the right of" is one slot; "cat on mat" -> "dog on rug" is two.
    inner_old, inner_new = change.removed[1:-1], change.inserted[1:-1]
    return "two slots" if {*inner_old} & {*inner_new} - {"the"} else ""


def _added(change: TextChange) -> str:
    if not is_within(change.removed, change.inserted):
        return "words lost"
    if not change.gained:
        return "nothing added"
    new = sum(count for word, count in change.gained.items() if word not in WORDS.negation_frame)
    return "addition too long" if new > ADDED else ""


def _negated(change: TextChange) -> str:
    sides = _split(change.removed), _split(change.inserted)
    if len({sum(word in WORDS.negations for word in side) for side in sides}) == 1:
        return "no negation"
    old, new = ([w for w in side if w not in WORDS.negation_frame] for side in sides)
    same = len(old) == len(new) and all(
        lemmas(a) & lemmas(b) for a, b in zip(old, new, strict=True)
    )
    return "" if same else "more than a negation"


def _split(words: Part) -> list[str]:
    """With "isn't" as "is", "not"."""
    parts = []
    for word in words:
        stem = word.removesuffix("n't")
        parts += [stem, "not"] if stem != word else [word]
    return parts


def _paraphrased(change: TextChange) -> str:
    limit = int(REWORDED * max(len(change.old.words), len(change.new.words)))
    if change.size > _LONGEST:
        return "too much reworded"
    edited = distance(change.removed, change.inserted, limit)
    if edited <= limit:
        return ""
    limit = max(limit, TURNED)
    sides = (change.removed, change.inserted), (change.old.words, change.new.words)
    edited = min(1 + distance(*_turned_back(*both), limit) for both in sides)
    return "too much reworded" if edited > limit else ""


def _turned_back(old: Part, new: Part) -> tuple[Part, Part]:
    """What differs apart from two exchanged parts ("A left of B", "B right of A")."""
    most = min(len(old), len(new))
    first = next((n for n in range(most, 0, -1) if old[:n] == new[len(new) - n :]), 0)
    rest = most - first
    second = next((n for n in range(rest, 0, -1) if new[:n] == old[len(old) - n :]), 0)
    return old[first : len(old) - second], new[second : len(new) - first]


_SIZES: Final[dict[Type, Callable[[TextChange], str]]] = {
    "swap": _reordered,
    "shuffle": _reordered,
    "replace": _replaced,
    "add": _added,
    "negate": _negated,
    "paraphrase": _paraphrased,
}


# --- form -----------------------------------------------------------------------------------------


def uniform(text: str) -> str:
    """BiVLC's first step: a capital, single spaces, exactly one full stop; not all capitals.

    The authors' code looks at the last character before it strips spaces: ". " becomes "..".
    """
    text = _STRAY.sub("", _BLANKS.sub(" ", text).strip())
    text = _FINAL.sub("", text)
    if not text:
        return ""
    if _shouts(text):
        text = text.lower()
    return _recased(text, str.upper) + "."


def like(caption: str, text: str) -> str:
    """The text in its caption's format: case of the first letter, spaces, final mark."""
    body = text.strip()
    if not re.search(r"\s\s|[^\S ]", caption.strip()):
        body = _BLANKS.sub(" ", body)
    if not _STRAY.search(caption.strip()):
        body = _STRAY.sub("", body)
    if _shouts(caption) != _shouts(body):
        body = body.upper() if _shouts(caption) else body.lower()
    if _starts_high(caption):
        body = _recased(body, str.upper)
    elif _starts_high(body) and not _is_name(body):
        body = _recased(body, str.lower)
    final, own = _END.search(caption), _END.search(body)
    assert final is not None and own is not None  # both may be empty and still match
    lead = caption[: len(caption) - len(caption.lstrip())]
    return lead + body[: own.start()] + final[0]


def looks_alike(change: TextChange, _claim: Claim) -> str:
    """Rejects another initial or end, or a space or capital that the caption would not have."""
    caption, text = _look(change.caption), _look(change.text)
    for (fault, mine), its in zip(caption.items(), text.values(), strict=True):
        if mine != its and (fault != "initial capital" or not _named(change)):
            return fault
    return "capital inside" if not text["all capitals"] and _capital_inside(change) else ""


@lru_cache(maxsize=4096)
def _look(text: str) -> Mapping[str, object]:
    """What has to be alike, by the fault if it is not."""
    inner = text.strip()
    return {
        "all capitals": _shouts(text),
        "initial capital": _starts_high(text),
        "final mark": text.rstrip()[len(text.rstrip().rstrip(_MARKS)) :],
        "blanks": (
            inner != text and text[:1].isspace(),
            inner != text and text[-1:].isspace(),
            "  " in inner,
            bool(_STRAY.search(inner)),
        ),
    }


def _named(change: TextChange) -> bool:
    """Whether a text starts with a number, or with a name that always has a capital."""
    first = change.new.raw[0] if change.new.raw else ""
    known = first[:1].isupper() and first in change.old.raw[1:]
    return known or not first[:1].isalpha() or _is_name(first)


def _capital_inside(change: TextChange) -> bool:
    """A capital that was carried along from the start of the caption, or left at a new start."""
    old, new = change.old, change.new
    high = [word for word in new.raw[1:] if word[0].isupper() and word != "I"]
    if not high:
        return False
    own = {word.casefold() for word in old.raw[1:] if word[0].isupper()}
    plain = {word for word in old.raw[1:] if word[0].islower()}
    plain.add(old.raw[0].casefold() if old.raw else "")
    return any(word.casefold() not in own and word.casefold() in plain for word in high)


def _first_letter(text: str) -> int:
    return next((i for i, c in enumerate(text) if c.isalnum()), len(text))


def _starts_high(text: str) -> bool:
    return text[_first_letter(text) :][:1].isupper()


def _is_name(text: str) -> bool:
    """A first word with its own capitals ("TV", "I", "McDonald's") says nothing about format."""
    word = text.split(maxsplit=1)[0] if text.split() else ""
    letters = "".join(c for c in word if c.isalpha())
    return letters == "I" or any(c.isupper() for c in letters[1:])


def _recased(text: str, case: Callable[[str], str]) -> str:
    """With another case of the first letter."""
    place = _first_letter(text)
    return text[:place] + case(text[place : place + 1]) + text[place + 1 :]


def _shouts(text: str) -> bool:
    """Whether all letters are capitals, and there are enough of them."""
    return text.isupper() and sum(c.isalpha() for c in text) > 4


def articles(change: TextChange, claim: Claim) -> str:
    """Rejects a wrong a/an, a doubled word or a lost space that the caption does not have.

    A shuffle is not expected to be grammatical, so it always passes.
    """
    if claim.type == "shuffle":
        return ""
    for fault, find in _SLIPS:
        found = find(change.text)
        if found and Counter(found) - Counter(find(change.caption)):
            return fault
    return ""


@lru_cache(maxsize=4096)
def _wrong_articles(text: str) -> tuple[str, ...]:
    """Each a or an that does not fit the word after it."""
    words, raw, gaps = read_words(text)
    shouts = text.isupper()
    return tuple(
        f"{raw[i]} {raw[i + 1]}".lower()
        for i, word in enumerate(words[:-1])
        if word == "a"
        and gaps[i + 1].isspace()
        and not fits(raw[i], raw[i + 1].lower() if shouts else raw[i + 1])
    )


@lru_cache(maxsize=4096)
def _doubled(text: str) -> tuple[str, ...]:
    """Each word that follows itself."""
    words, _, gaps = read_words(text)
    if len(set(words)) == len(words):
        return ()
    pairs = zip(pairwise(words), gaps[1:-1], strict=True)
    return tuple(first for (first, second), gap in pairs if first == second and not gap.strip())


@lru_cache(maxsize=4096)
def _lost_blanks(text: str) -> tuple[str, ...]:
    return tuple(_LOST_BLANK.findall(text))


_SLIPS: Final[tuple[tuple[str, Callable[[str], tuple[str, ...]]], ...]] = (
    ("a or an", _wrong_articles),
    ("doubled word", _doubled),
    ("lost blank", _lost_blanks),
)


def whole_words(change: TextChange, _claim: Claim) -> str:
    """Rejects a broken word: "covered" to "covecrimson", "wetsuit" to "dampsuit"."""
    if change.same_bag:
        return ""
    # Parts of "four-wheelers" are words of their own: "two-wheelers" is whole.
    old = {part for word in change.old.words for part in word.split("-")}
    new = {part for word in change.inserted for part in word.split("-")} - old
    for word in new:
        if len(word) > _SHARED and not is_known(word) and any(_damaged(w, word) for w in old):
            return "a word is broken"
    return ""


def _damaged(was: str, word: str) -> bool:
    """Whether a part of `was` was replaced by a related word."""
    head, tail = shared_ends(was, word)
    if head + tail < _SHARED:
        return False
    for start in range(head + 1):
        for end in range(tail + 1):
            old, new = was[start : len(was) - end], word[start : len(word) - end]
            if min(len(old), len(new)) >= _SHARED and _related(old, new):
                return True
    return False


def _related(a: str, b: str) -> bool:
    return a != b and (lexicon.may_be_same(a, b) or lexicon.exclude(a, b))
