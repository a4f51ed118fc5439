"""Each caption with all its texts, from one or more pairs files, and the image paths of an export.

Negatives and positives are made by two commands, so they are in two files. Both have the same
captions in the same order. So the files are read side by side, and only incomplete captions are
held in memory. Files in another order are joined correctly, too, but need more memory.
"""

from __future__ import annotations

import os
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from counterpoint._util.errors import DataError
from counterpoint._util.progress import Progress, Quiet
from counterpoint._util.tables import read_table
from counterpoint._util.untrusted import shown
from counterpoint.cases import ImageRef
from counterpoint.generation.pairs import count_pairs, read_pairs, root_of
from counterpoint.images import scheme_of

_KEY: Final = ("source", "caption", "image")  # two inputs may have the same source ids
_COLUMNS: Final = (*_KEY, "box", "text", "kind", "type", "subtype", "text_image")

QUIET: Final = Quiet()
LeftOut = Counter[str]
Key = tuple[str, str, str | None]
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


def read_groups(
    files: Sequence[Path],
    left_out: LeftOut,
    moves: Sequence[ImagePaths],
    progress: Progress = QUIET,
) -> Iterator[Group]:
    """All captions of the files with their texts; `left_out` counts dropped texts by the reason.

    `moves` are the image paths of each file. A repeated text is kept once. A text that is both a
    positive and a negative of a caption is dropped, because one of the two is wrong.
    """
    held: OrderedDict[Key, list[tuple[Any, ...]]] = OrderedDict()  # fast at both ends
    wanted: dict[Key, int] = {}
    advance = progress.start("pairs", sum(map(count_pairs, files)))
    for number, frame, expected in _side_by_side(files):
        for row, count in zip(frame.iter_rows(), expected, strict=True):
            key = (row[0], row[1], row[2])
            held.setdefault(key, []).append((number, *row))
            wanted[key] = count
        advance(len(frame))
        while held:  # in the order of the first row of each caption
            key = next(iter(held))
            if len(held[key]) < wanted[key]:
                break
            del wanted[key]
            yield _group(held.pop(key), left_out, moves)
    for rows in held.values():  # two keys had the same hash, so too many rows were expected
        yield _group(rows, left_out, moves)


def _hashed(frame: pl.DataFrame) -> np.ndarray:
    return frame.select(pl.struct(_KEY).hash()).to_series().to_numpy()


def _side_by_side(files: Sequence[Path]) -> Iterator[tuple[int, pl.DataFrame, list[int]]]:
    """Tables with the number of their file, and for each row the rows of its caption in all files.

    The next table is always from the file of which the smallest share was read.
    """
    hashes = [[_hashed(frame) for frame in read_pairs(file)] for file in files]
    known, counts = np.unique(
        np.concatenate([np.zeros(0, np.uint64), *(part for parts in hashes for part in parts)]),
        return_counts=True,
    )
    sizes = [max(sum(map(len, parts)), 1) for parts in hashes]
    del hashes
    streams = {number: read_pairs(file) for number, file in enumerate(files)}
    read = [0] * len(files)
    while streams:
        number = min(streams, key=lambda n: (read[n] / sizes[n], n))
        frame = next(streams[number], None)
        if frame is None:
            del streams[number]
            continue
        read[number] += len(frame)
        expected = counts[np.searchsorted(known, _hashed(frame))]
        yield number, frame.select(_COLUMNS), expected.tolist()


def _group(rows: list[tuple[Any, ...]], left_out: LeftOut, moves: Sequence[ImagePaths]) -> Group:
    number, source, caption, image, box, *_ = rows[0]
    reference = None
    if image is not None:
        reference = ImageRef(moves[number].image(image), None if box is None else tuple(box))
    texts: dict[str, dict[str, Text]] = {"positive": {}, "negative": {}}
    for number, *_, text, kind, type_, subtype, own in rows:
        known = texts[kind]
        if text in known:
            left_out["texts that were there twice"] += 1
        if text not in known or (known[text].image is None and own is not None):
            moved = None if own is None else moves[number].text_image(own)
            known[text] = Text(text, f"{type_}/{subtype}" if subtype else type_, moved)
    for text in [text for text in texts["positive"] if text in texts["negative"]]:
        left_out["texts called a positive and a negative of one caption"] += 1
        del texts["positive"][text], texts["negative"][text]
    positives, negatives = (list(texts[kind].values()) for kind in ("positive", "negative"))
    return Group(source, image, reference, caption, positives, negatives)


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
