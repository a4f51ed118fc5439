"""Balanced sampling: equally many texts of some subtypes, or no key with more than its share.

**Balance.** `att,rel`: of each kind (positive, negative), as many texts of each of these subtypes
as the rarest has; `positive:att,rel` of one kind. A kind that has one of them and lacks another
cannot be balanced, which is an error.

**Caps.** No type, no new word and no edit has more than its share of the texts. A share is one of
what is kept, of positives and of negatives apart. Texts are taken in an order that the seed draws
by content, each unless one of its keys is full. What is full depends on how many are kept, so this
is repeated with fewer until both agree; a key may always have one text. The order of the files does
not matter.

| key    | of a text |
|--------|-----------|
| `type` | its group: `replace/obj`, `add/att` |
| `word` | what is new in it: "blue", "in front of", of an addition its last word |
| `edit` | what was replaced by what: "red" by "blue" |

A text of the same words in another order (a swap, a shuffle) has no new word and no edit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from counterpoint._util.errors import DataError
from counterpoint.cases import shared_ends
from counterpoint.generation.export.groups import Group, LeftOut, Text
from counterpoint.generation.pairs import KINDS, SUBTYPES, Kind, stable_random

KEYS: Final = ("type", "word", "edit")
WHOLE: Final = 2**64
_ARTICLES: Final = frozenset({"a", "an"})
_MARKS: Final = ".,!?;:\"'()"
_NAMES: Final = {"type": "of a type", "word": "with a new word", "edit": "with an edit"}

Caps = Mapping[str, float]  # the largest share of each key


class Balance(NamedTuple):
    """Which subtypes get equally many texts, of which kinds."""

    kinds: tuple[Kind, ...]
    subtypes: tuple[str, ...]


class _Entry(NamedTuple):
    """A text that can be taken: when, and its keys in the order of `KEYS`; empty: none."""

    drawn: int
    keys: tuple[str, str, str]


def read_caps(text: str) -> Caps:
    """`type=0.4,word=0.02` as shares; an empty text has none."""
    caps: dict[str, float] = {}
    for part in text.split(",") if text else ():
        name, _, value = part.strip().partition("=")
        try:
            share = float(value)
        except ValueError:
            share = 0.0
        if name not in KEYS or name in caps or not 0 < share <= 1:
            raise DataError(
                "E-OPTION-INVALID",
                f"cap: {part.strip()!r} is not type=, word= or edit= with a share above 0 and up "
                "to 1, once each; write for example word=0.02,edit=0.01.",
            )
        caps[name] = share
    return caps


def read_balance(text: str) -> Balance | None:
    """`att,rel`, of one kind `positive:att,rel`; None where the text is empty."""
    if not text:
        return None
    kind, colon, rest = text.rpartition(":")
    subtypes = tuple(name.strip() for name in rest.split(","))
    kinds = tuple(known for known in KINDS if not colon or known == kind.strip())
    if not kinds or not set(subtypes) <= set(SUBTYPES) - {""} or len(set(subtypes)) < 2:
        known = ", ".join(name for name in SUBTYPES if name)
        raise DataError(
            "E-OPTION-INVALID",
            f"balance: {text!r} is not two or more of {known}; write att,rel, or of one kind "
            "positive:att,rel.",
        )
    return Balance(kinds, tuple(dict.fromkeys(subtypes)))


def changed_words(caption: str, text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words of the caption that are not in the text's place, and those that are instead."""
    old, new = ([w.strip(_MARKS) for w in each.lower().split()] for each in (caption, text))
    old, new = ([w for w in each if w and w not in _ARTICLES] for each in (old, new))
    if sorted(old) == sorted(new):
        return (), ()
    start, tail = shared_ends(old, new)
    return tuple(old[start : len(old) - tail]), tuple(new[start : len(new) - tail])


def _keys(group: Group, text: Text) -> tuple[str, str, str]:
    removed, inserted = changed_words(group.caption, text.text)
    word = " ".join(inserted[-1:] if text.type == "add" else inserted)
    edit = f"{' '.join(removed)} -> {' '.join(inserted)}" if removed or inserted else ""
    return text.label, word, edit


class TextSample(NamedTuple):
    """The texts that are kept of each caption; the others are counted by the reason.

    `dropped` has the reasons by the kind of a text and its draw.
    """

    step: str  # what the sample does
    draw: Callable[[Group, Kind, Text], int]
    dropped: Mapping[tuple[Kind, int], str]

    def of(self, groups: Iterable[Group], left_out: LeftOut) -> Iterator[Group]:
        """The groups with the texts that are kept."""
        for group in groups:
            kept: dict[Kind, list[Text]] = {"positive": [], "negative": []}
            for kind, text in _texts(group):
                if reason := self.dropped.get((kind, self.draw(group, kind, text))):
                    left_out[reason] += 1
                else:
                    kept[kind].append(text)
            if kept["positive"] or kept["negative"]:
                yield replace(group, positives=kept["positive"], negatives=kept["negative"])
            else:
                left_out[f"captions without a text, after {self.step}"] += 1


def balanced_sample(groups: Iterable[Group], wanted: Balance, seed: int, path: Path) -> TextSample:
    """As many texts of each subtype as of the rarest, drawn by the seed."""

    def draw(group: Group, kind: Kind, text: Text) -> int:
        return stable_random(seed, "text", group.source, group.caption, text.text)

    draws: dict[tuple[Kind, str], list[int]] = {
        (kind, subtype): [] for kind in wanted.kinds for subtype in wanted.subtypes
    }
    for group in groups:
        for kind, text in _texts(group):
            if (kind, text.subtype) in draws:
                draws[kind, text.subtype].append(draw(group, kind, text))
    dropped: dict[tuple[Kind, int], str] = {}
    for kind in wanted.kinds:
        sizes = {subtype: len(draws[kind, subtype]) for subtype in wanted.subtypes}
        least = min(sizes.values())
        if least == 0 and (any(sizes.values()) or not any(draws.values())):
            there = ", ".join(f"{size:,} of {subtype}" for subtype, size in sizes.items())
            raise DataError(
                "E-BALANCE-EMPTY",
                f"{path}: the {kind}s cannot be balanced, there are {there}; make the missing "
                "ones, or balance one kind (`positive:att,rel`).",
            )
        for subtype in sizes:
            reason = f"{kind}s of the subtype {subtype}, to balance"
            dropped |= {(kind, each): reason for each in sorted(draws[kind, subtype])[least:]}
    return TextSample("balancing", draw, dropped)


def capped_sample(groups: Iterable[Group], caps: Caps, seed: int, path: Path) -> TextSample:
    """Texts whose keys are not full."""

    def draw(group: Group, kind: Kind, text: Text) -> int:
        return stable_random(seed, kind, group.source, group.path or "", group.caption, text.text)

    entries: dict[Kind, list[_Entry]] = {"positive": [], "negative": []}
    for group in groups:
        for kind, text in _texts(group):
            entries[kind].append(_Entry(draw(group, kind, text), _keys(group, text)))
    dropped: dict[tuple[Kind, int], str] = {}
    for kind, mine in entries.items():
        _refuse_impossible(mine, caps, kind, path)
        for each, key in _left_out(sorted(mine), caps).items():
            dropped[kind, each] = f"{kind}s {_NAMES[key]} above its cap"
    return TextSample("the caps", draw, dropped)


def _texts(group: Group) -> Iterator[tuple[Kind, Text]]:
    for text in group.positives:
        yield "positive", text
    for text in group.negatives:
        yield "negative", text


def _refuse_impossible(entries: list[_Entry], caps: Caps, kind: str, path: Path) -> None:
    for place, name in enumerate(KEYS):
        values = {entry.keys[place] for entry in entries}
        if entries and "" not in values and caps.get(name, 1) * len(values) < 1:
            raise DataError(
                "E-CAP-IMPOSSIBLE",
                f"{path}: {name}={caps[name]:g} cannot hold: the {kind}s have {len(values)} "
                f"different values of it, so give a share of {1 / len(values):.3g} or more.",
            )


def _left_out(entries: list[_Entry], caps: Caps) -> dict[int, str]:
    """The texts that are not taken, by their draws, in one order until shares and caps agree."""
    size = len(entries)
    while True:
        most = [max(1, int(caps.get(name, 1) * size + 1e-9)) for name in KEYS]
        taken: Counter[tuple[int, str]] = Counter()
        full: dict[int, str] = {}
        for entry in entries:
            places = [place for place, key in enumerate(entry.keys) if key]
            over = [place for place in places if taken[place, entry.keys[place]] >= most[place]]
            if over:
                full[entry.drawn] = KEYS[over[0]]
            else:
                taken.update((place, entry.keys[place]) for place in places)
        kept = len(entries) - len(full)
        if kept >= size:  # the caps are shares of no more than is kept
            return full
        size = kept
