"""Each caption with all its texts, from one or more pairs files, and the image paths of an export.

Negatives and positives are made by two commands, so they are in two files: captions are joined by
their id, text and image. `sampled` keeps some of the texts:

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

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import polars as pl

from counterpoint._util.errors import DataError
from counterpoint._util.progress import Progress, Quiet
from counterpoint._util.tables import read_table
from counterpoint._util.untrusted import shown
from counterpoint.cases import ImageRef, shared_ends
from counterpoint.generation.pairs import (
    KINDS,
    SUBTYPES,
    Kind,
    read_pairs,
    root_of,
    stable_random,
)
from counterpoint.images import scheme_of

_KEY: Final = ("source", "caption", "image")  # two inputs may have the same source ids
_OTHERS: Final = ("box", "text", "kind", "type", "subtype", "text_image")

QUIET: Final = Quiet()
LeftOut = Counter[str]
Neighbours = dict[str, list[str]]  # the nearest other images of an image


@dataclass(frozen=True, slots=True)
class ImagePaths:
    """Turns image paths of a pairs file into image paths of an export. Folders are absolute.

    In a pairs file, `image` is a path under the image folder of the input, and `text_image` one
    under the folder of the pairs file. Images of a case file are found relative to its own folder.
    So a path is written relative to the folder of the export if the image is below it, and else as
    an absolute path, which works only on this machine. With `root`, paths are relative to `root`,
    for a file that will be moved there.
    """

    images: str
    text_images: str
    out: str
    root: str | None = None

    @classmethod
    def of(
        cls, pairs: Path, out: Path, *, images: Path | None = None, root: Path | None = None
    ) -> ImagePaths:
        """The paths of a pairs file: under `images`, or the root that it names, or its folder."""
        own, below = _full(pairs.parent), None if root is None else _full(root)
        return cls(_full(images or root_of(pairs)), own, _full(out), below)

    @classmethod
    def between(cls, images: Path, out: Path) -> ImagePaths:
        """The paths of images below one folder, for an export into another."""
        return cls(_full(images), _full(images), _full(out))

    def image(self, path: str) -> str:
        return scheme_of(path).with_path(path, partial(self._moved, self.images))

    def text_image(self, path: str) -> str:
        return scheme_of(path).with_path(path, partial(self._moved, self.text_images))

    def _moved(self, folder: str, path: str) -> str:
        if ".." in path.split("/"):
            return path  # never opened: a path may not lead out of its folder
        full = os.path.normpath(f"{folder}/{path}" if path[:1] != "/" else path)
        base = self.root or self.out
        if full.startswith(f"{base}/"):
            return full[len(base) + 1 :]
        if self.root is not None:
            raise DataError(
                "E-PATH-OUTSIDE",
                f"image {shown(path)} is at {shown(full)}, which is not below {self.root!r}; "
                "name another folder with --root, or say with --images where the images are.",
            )
        return full


def _full(path: Path) -> str:
    """The absolute path; links are not resolved."""
    return os.path.abspath(path).rstrip("/")  # noqa: PTH100


class Text(NamedTuple):
    """A text made from the caption; `image` is an image that it is true of, if there is one."""

    text: str
    label: str
    image: str | None

    @property
    def type(self) -> str:
        return self.label.partition("/")[0]

    @property
    def subtype(self) -> str:
        return self.label.partition("/")[2]


@dataclass(slots=True)
class Group:
    """A caption and its texts, each once, in the order of the files.

    `path` is the image's path in the pairs file, `image` the reference in the export.
    """

    source: str
    path: str | None
    image: ImageRef | None
    caption: str
    positives: list[Text]
    negatives: list[Text]

    def columns(self) -> dict[str, Any]:
        """As a row of a training file."""
        box = None if self.image is None or self.image.box is None else list(self.image.box)
        return {
            "image": None if self.image is None else self.image.path,
            "box": box,
            "caption": self.caption,
            "positives": [text.text for text in self.positives],
            "positive_types": [text.type for text in self.positives],
            "negatives": [text.text for text in self.negatives],
            "negative_types": [text.type for text in self.negatives],
            "negative_images": [text.image for text in self.negatives],
        }


def read_groups(
    files: Sequence[Path],
    folder: Path,
    left_out: LeftOut,
    *,
    images: Path | None = None,
    root: Path | None = None,
    progress: Progress = QUIET,
) -> Iterator[Group]:
    """All captions of the files with their texts; `left_out` counts dropped texts by the reason.

    `folder` is that of the export, `images` and `root` are those of `ImagePaths`. A repeated text
    is kept once. A text that is both a positive and a negative of a caption is dropped, because one
    of the two is wrong.
    """
    paths = [ImagePaths.of(file, folder, images=images, root=root) for file in files]
    table = pl.concat(
        read_pairs(file).select(*_KEY, *_OTHERS, file=pl.lit(number))
        for number, file in enumerate(files)
    )
    advance = progress.start("pairs", len(table))
    groups = table.group_by(_KEY, maintain_order=True).agg(pl.all())
    for source, caption, image, *columns in groups.iter_rows():
        yield _group(source, caption, image, zip(*columns, strict=True), left_out, paths)
        advance(len(columns[0]))


def _group(
    source: str,
    caption: str,
    image: str | None,
    rows: Iterable[tuple[Any, ...]],
    left_out: LeftOut,
    paths: Sequence[ImagePaths],
) -> Group:
    texts: dict[str, dict[str, Text]] = {kind: {} for kind in KINDS}
    reference = None
    for box, text, kind, type, subtype, own, number in rows:
        if image is not None and reference is None:  # as the first row has it
            reference = ImageRef(paths[number].image(image), None if box is None else tuple(box))
        known = texts[kind]
        if text in known:
            left_out["texts that were there twice"] += 1
        if text not in known or (known[text].image is None and own is not None):
            moved = None if own is None else paths[number].text_image(own)
            known[text] = Text(text, f"{type}/{subtype}" if subtype else type, moved)
    negatives, positives = texts["negative"], texts["positive"]
    for text in [text for text in positives if text in negatives]:
        left_out["texts called a positive and a negative of one caption"] += 1
        del positives[text], negatives[text]
    return Group(
        source, image, reference, caption, list(positives.values()), list(negatives.values())
    )


def read_neighbours(path: Path, images: Iterable[str | None], source: str) -> Neighbours:
    """The nearest images of each image, from the table of `generate neighbours`.

    `images`, those of `source`, are read up to a match. If none of them is in the table, it was
    made for other paths, and nothing would come of it.
    """
    table = read_table(path, {"image": pl.String(), "neighbours": pl.List(pl.String())})
    neighbours = dict(zip(table["image"].to_list(), table["neighbours"].to_list(), strict=True))
    here = ""
    for image in images:
        if image in neighbours:
            return neighbours
        here = here or image or ""
    raise DataError(
        "E-NEIGHBOURS-OTHER",
        f"{path}: has no neighbours of any image of {source} ({shown(here)} there, "
        f"{shown(next(iter(neighbours), ''))} here); make it with `generate neighbours {source}`.",
    )


# --- samples -----------------------------------------------------------------------------------

KEYS: Final = ("type", "word", "edit")
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


Groups = Callable[[LeftOut], Iterator[Group]]  # reads all captions, as often as it is called
_Draw = Callable[[Group, Kind, Text], int]
_Dropped = dict[tuple[Kind, int], str]  # why a text is left out, by its kind and its draw


def sampled(groups: Groups, path: Path, seed: int, *, cap: str = "", balance: str = "") -> Groups:
    """The captions with the texts that are kept of each; the others are counted by the reason.

    They are read once to decide, so that every later reading keeps the same texts.
    """
    caps, balanced = read_caps(cap), read_balance(balance)
    if caps and balanced:
        raise DataError(
            "E-OPTION-INVALID",
            "cap and balance exclude each other; give a cap of the type instead of balance.",
        )
    if not caps and balanced is None:
        return groups

    def draw(group: Group, kind: Kind, text: Text) -> int:
        if balanced:
            return stable_random(seed, "text", group.source, group.caption, text.text)
        return stable_random(seed, kind, group.source, group.path or "", group.caption, text.text)

    texts = ((group, kind, text) for group in groups(LeftOut()) for kind, text in _texts(group))
    if balanced:
        step, dropped = "balancing", _above_the_rarest(texts, balanced, draw, path)
    else:
        step, dropped = "the caps", _above_a_cap(texts, caps, draw, path)

    def kept(left_out: LeftOut) -> Iterator[Group]:
        for group in groups(left_out):
            mine: dict[Kind, list[Text]] = {kind: [] for kind in KINDS}
            for kind, text in _texts(group):
                if reason := dropped.get((kind, draw(group, kind, text))):
                    left_out[reason] += 1
                else:
                    mine[kind].append(text)
            if any(mine.values()):
                yield replace(group, positives=mine["positive"], negatives=mine["negative"])
            else:
                left_out[f"captions without a text, after {step}"] += 1

    return kept


def _texts(group: Group) -> Iterator[tuple[Kind, Text]]:
    yield from (("positive", text) for text in group.positives)
    yield from (("negative", text) for text in group.negatives)


def _above_the_rarest(
    texts: Iterable[tuple[Group, Kind, Text]], wanted: Balance, draw: _Draw, path: Path
) -> _Dropped:
    """The texts that a subtype has above the number of the rarest, drawn by the seed."""
    draws: dict[tuple[Kind, str], list[int]] = {
        (kind, subtype): [] for kind in wanted.kinds for subtype in wanted.subtypes
    }
    for group, kind, text in texts:
        if (kind, text.subtype) in draws:
            draws[kind, text.subtype].append(draw(group, kind, text))
    dropped: _Dropped = {}
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
    return dropped


def _above_a_cap(
    texts: Iterable[tuple[Group, Kind, Text]], caps: Caps, draw: _Draw, path: Path
) -> _Dropped:
    """The texts of which a key is full."""
    entries: dict[Kind, list[_Entry]] = {kind: [] for kind in KINDS}
    for group, kind, text in texts:
        entries[kind].append(_Entry(draw(group, kind, text), _keys(group, text)))
    dropped: _Dropped = {}
    for kind, mine in entries.items():
        _refuse_impossible(mine, caps, kind, path)
        for each, key in _left_out(sorted(mine), caps).items():
            dropped[kind, each] = f"{kind}s {_NAMES[key]} above its cap"
    return dropped


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
