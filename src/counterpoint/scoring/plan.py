"""What has to be computed, the unique images and captions of all benchmarks, and what is left out.

First the plan, then the scores of a benchmark with the cases that are left out, and the reasons.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import index
from pathlib import Path
from typing import Final, NamedTuple, SupportsIndex, overload

import numpy as np
import polars as pl

from counterpoint._util.errors import ImageError
from counterpoint._util.progress import Progress
from counterpoint.cases import PICTURE, PROMPTS, TEXT, Cases, ImageRef, Layout, is_gallery, offsets
from counterpoint.images import Picture
from counterpoint.metrics import Overlong

_LINES: Final = 20_000  # images whose vectors are in memory at a time
_PAIRS: Final = 2_000_000  # pairs that are numbered at a time
_FEWER: Final = 250_000  # the same, where vectors are not compared
_FEW: Final = 200  # rows of a column that are faster one by one


class Pairs(NamedTuple):
    """Pairs of images and captions (numbers into a plan), and their places among the scores."""

    images: np.ndarray
    captions: np.ndarray
    places: np.ndarray


class Texts(Sequence[str]):
    """Texts in one column: a third of the memory of a list. What is read of it is new each time."""

    def __init__(self, texts: Sequence[str] | pl.Series) -> None:
        self._column = pl.Series(texts, dtype=pl.String())

    def __len__(self) -> int:
        return len(self._column)

    @overload
    def __getitem__(self, place: SupportsIndex) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: SupportsIndex | slice) -> str | list[str]:
        if isinstance(place, slice):
            return self._column[place].to_list()
        return str(self._column[index(place)])

    def __iter__(self) -> Iterator[str]:
        return iter(self._column)

    def take(self, numbers: np.ndarray) -> list[str]:
        if len(numbers) < _FEW:
            return [self[number] for number in numbers.tolist()]
        return list(self._column.gather(numbers))

    def only(self, numbers: np.ndarray) -> Texts:
        return Texts(self._column.gather(numbers))


class Pictures(Sequence[Picture]):
    """The unique images of a plan in columns. A `Picture` is made when it is asked for."""

    def __init__(
        self, paths: pl.Series, boxes: np.ndarray, roots: np.ndarray, folders: list[Path | None]
    ) -> None:
        """`boxes` have a width of 0 where an image is not cropped; `roots` count `folders`."""
        self._paths, self._boxes, self._roots, self._folders = paths, boxes, roots, folders

    def __len__(self) -> int:
        return len(self._paths)

    @overload
    def __getitem__(self, place: SupportsIndex) -> Picture: ...
    @overload
    def __getitem__(self, place: slice) -> Pictures: ...
    def __getitem__(self, place: SupportsIndex | slice) -> Picture | Pictures:
        if isinstance(place, slice):
            return self.only(np.arange(*place.indices(len(self))))
        number = index(place)
        x, y, width, height = self._boxes[number].tolist()
        box = (x, y, width, height) if width else None
        return Picture(ImageRef(self._paths[number], box), self._folders[self._roots[number]])

    def only(self, numbers: np.ndarray) -> Pictures:
        paths, boxes, roots = (
            self._paths.gather(numbers),
            self._boxes[numbers],
            self._roots[numbers],
        )
        return Pictures(paths, boxes, roots, self._folders)

    def are_crops(self) -> np.ndarray:
        """Marks the images of which a part is used."""
        found: np.ndarray = self._boxes[:, 2] > 0
        return found

    def are_texts(self) -> np.ndarray:
        """Marks the images in whose place a text stands."""
        return self._paths.str.starts_with(TEXT).to_numpy()


@dataclass(frozen=True, slots=True)
class Share:
    """One benchmark's part of a plan: its images and captions as numbers into the plan's lists."""

    images: np.ndarray
    captions: np.ndarray
    layout: Layout

    def pairs(self, lines: np.ndarray) -> Pairs:
        """All pairs of some lines (images of a case, with all its captions), line by line."""
        pairs = self.layout.pairs(lines)
        return Pairs(self.images[pairs.images], self.captions[pairs.captions], pairs.places)

    def images_of(self, row: int) -> np.ndarray:
        return self.images[self.layout.images[row] : self.layout.images[row + 1]]

    def captions_of(self, row: int) -> np.ndarray:
        return self.captions[self.layout.captions[row] : self.layout.captions[row + 1]]

    def cases_with_image(self, marked: np.ndarray) -> np.ndarray:
        """Which cases use an image that is marked (a boolean for each of the plan's images)."""
        return _any_in(marked[self.images], self.layout.images)

    def cases_with_caption(self, marked: np.ndarray) -> np.ndarray:
        return _any_in(marked[self.captions], self.layout.captions)


@dataclass(frozen=True, slots=True)
class Plan:
    """The unique images and captions, and where each benchmark uses them.

    `texts` are the texts that a model reads: the captions, split into prompts if they have several.
    The prompts of caption i are `prompts[starts[i] : starts[i + 1]]`, numbers into `texts`.
    `pictured` has the image of each caption in whose place an image stands.
    """

    pictures: Pictures
    captions: Texts
    shares: dict[str, Share]
    texts: Texts
    prompts: np.ndarray
    starts: np.ndarray
    pictured: dict[int, int] = field(default_factory=dict)

    def pictured_texts(self) -> dict[int, int]:
        """`pictured` by the numbers of texts."""
        return {int(self.prompts[self.starts[i]]): image for i, image in self.pictured.items()}

    def prompts_of(self, captions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The prompts of some captions, one after the other, and where each caption's begin."""
        sizes = np.diff(self.starts)[captions]
        begins = offsets(sizes)[:-1]
        places = np.repeat(self.starts[captions] - begins, sizes) + np.arange(sizes.sum())
        return self.prompts[places], begins


def make_plan(benchmarks: Mapping[str, Cases]) -> Plan:
    folders = list(dict.fromkeys(cases.root for cases in benchmarks.values()))
    images = pl.concat([_images(cases, folders.index(cases.root)) for cases in benchmarks.values()])
    captions = pl.concat([cases.frame["captions"].explode() for cases in benchmarks.values()])
    as_captions = _pictured(benchmarks, folders)
    images = pl.concat([images, as_captions]) if len(as_captions) else images
    image_codes, image_firsts = _codes(images.select(_image_key()).to_series())
    caption_codes, caption_firsts = _codes(captions)
    shares, image_start, caption_start = {}, 0, 0
    for name, cases in benchmarks.items():
        layout = cases.layout()
        image_end = image_start + layout.images[-1]
        caption_end = caption_start + layout.captions[-1]
        shares[name] = Share(
            image_codes[image_start:image_end], caption_codes[caption_start:caption_end], layout
        )
        image_start, caption_start = image_end, caption_end
    chosen = images[image_firsts]
    boxes = chosen.select(pl.col("box").arr.get(i).fill_null(0).alias(f"{i}") for i in range(4))
    pictures = Pictures(chosen["path"], boxes.to_numpy(), chosen["root"].to_numpy(), folders)
    unique = Texts(captions.gather(caption_firsts))
    pictured = {}
    if len(as_captions):
        marked = caption_codes[captions.str.starts_with(PICTURE).to_numpy()]
        pictured = dict(zip(marked.tolist(), image_codes[-len(marked) :].tolist(), strict=True))
    return Plan(pictures, unique, shares, *_texts(unique), pictured)


def _pictured(benchmarks: Mapping[str, Cases], folders: list[Path | None]) -> pl.DataFrame:
    """The images that stand in the place of captions, one for each such caption."""
    found = []
    for cases in benchmarks.values():
        captions = cases.frame["captions"].explode()
        paths = captions.filter(captions.str.starts_with(PICTURE)).str.strip_prefix(PICTURE)
        root = pl.lit(folders.index(cases.root), dtype=pl.Int32())
        box = pl.lit(None, dtype=pl.Array(pl.Int32(), 4))
        found.append(
            paths.alias("path").to_frame().select("path", box.alias("box"), root.alias("root"))
        )
    return pl.concat(found)


def _texts(captions: Texts) -> tuple[Texts, np.ndarray, np.ndarray]:
    if not any(PROMPTS in caption for caption in captions):
        return captions, np.arange(len(captions)), np.arange(len(captions) + 1)
    parts = [caption.split(PROMPTS) for caption in captions]
    numbers_of: dict[str, int] = {}
    prompts = [numbers_of.setdefault(text, len(numbers_of)) for texts in parts for text in texts]
    starts = offsets(np.array([len(texts) for texts in parts]))
    return Texts(list(numbers_of)), np.array(prompts), starts


def _images(cases: Cases, root: int) -> pl.DataFrame:
    fields = cases.frame["images"].explode().struct.unnest()
    return fields.select("path", "box", pl.lit(root, dtype=pl.Int32()).alias("root"))


def _image_key() -> pl.Expr:
    sides = (pl.col("box").arr.get(i).fill_null(-1) for i in range(4))
    return pl.concat_str("root", "path", *sides, separator="\0")


def _codes(values: pl.Series) -> tuple[np.ndarray, np.ndarray]:
    """Each value's number in order of first appearance, and the row where each number appears."""
    first = _first_rows(values, values.hash().to_numpy())
    firsts = np.flatnonzero(first == np.arange(len(first)))
    return np.searchsorted(firsts, first).astype(np.int32), firsts


def _first_rows(values: pl.Series, hashes: np.ndarray) -> np.ndarray:
    """The row where each value is first. Sorting hashes takes less memory than grouping texts."""
    order = np.argsort(hashes, kind="stable")
    begins = np.append(True, hashes[order[1:]] != hashes[order[:-1]])
    others = np.flatnonzero(~begins)
    if not (values.gather(order[others]) == values.gather(order[others - 1])).all():
        numbered = values.to_frame("value").with_row_index("row")  # two values of one hash
        return numbered.select(pl.col("row").min().over("value")).to_series().to_numpy()
    starts = np.flatnonzero(begins)
    first = np.empty(len(values), dtype=np.int64)
    first[order] = np.repeat(order[starts], np.diff(np.append(starts, len(values))))
    return first


def _any_in(marks: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Whether any of each case's marks is set; no case is empty."""
    return np.logical_or.reduceat(marks, starts[:-1])


# --- Scores, and what is left out ---------------------------------------------------------------


@dataclass(slots=True)
class Scored:
    """A benchmark's scores: one per pair, flat, NaN where something is left out.

    Of a gallery, single images can be left out; any other case is left out as a whole.
    """

    scores: np.ndarray
    left_out: dict[int, str] = field(default_factory=dict)  # row of the case: why
    left_out_images: dict[int, dict[int, str]] = field(default_factory=dict)  # row: image: why
    cut_captions: int = 0


def unscored(benchmarks: Mapping[str, Cases]) -> dict[str, Scored]:
    """No scores yet, of any pair."""
    return {
        name: Scored(np.full(cases.pair_offsets[-1], np.nan, dtype=np.float32))
        for name, cases in benchmarks.items()
    }


def kept_pairs(
    plan: Plan, scored: Mapping[str, Scored], *, fewer: bool = False
) -> Iterator[tuple[str, Pairs]]:
    """The pairs that are not left out, some at a time, with their benchmark's name.

    `fewer` at a time take less memory; a product of matrices may depend on how many they are.
    """
    most = _FEWER if fewer else _PAIRS
    for name, share in plan.shares.items():
        for lines in share.layout.pieces(_kept_lines(share, scored[name]), _LINES, most):
            if len(lines):
                yield name, share.pairs(lines)


def _kept_lines(share: Share, scored: Scored) -> np.ndarray:
    layout = share.layout
    kept = np.ones(layout.images[-1], dtype=bool)
    if scored.left_out:
        kept[layout.lines(np.array(list(scored.left_out)))] = False
    for row, images in scored.left_out_images.items():
        kept[layout.images[row] + np.array(list(images))] = False
    return np.flatnonzero(kept)


def used_images(plan: Plan, scored: Mapping[str, Scored]) -> np.ndarray:
    """The numbers of the images that are needed for what is not left out."""
    used = np.zeros(len(plan.pictures), dtype=bool)
    for name, share in plan.shares.items():
        used[share.images[_kept_lines(share, scored[name])]] = True
    if plan.pictured:
        captions = used_captions(plan, scored).tolist()
        used[[plan.pictured[i] for i in captions if i in plan.pictured]] = True
    return np.flatnonzero(used)


def used_captions(plan: Plan, scored: Mapping[str, Scored]) -> np.ndarray:
    used = np.zeros(len(plan.captions), dtype=bool)
    for name, share in plan.shares.items():
        cases = np.zeros(len(share.layout.captions) - 1, dtype=bool)
        cases[share.layout.line_cases[_kept_lines(share, scored[name])]] = True
        used[share.captions[np.repeat(cases, np.diff(share.layout.captions))]] = True
    return np.flatnonzero(used)


def leave_out_overlong(
    limit: int | None,
    plan: Plan,
    captions: np.ndarray,
    images: np.ndarray,
    overlong: Mapping[str, Overlong],
    scored: Mapping[str, Scored],
) -> None:
    """`limit` is how many tokens the model takes; `captions` and `images` have how many each of the
    plan's has, 0 for what is no text."""
    if limit is None or max(captions.max(initial=0), images.max(initial=0)) <= limit:
        return
    for name, share in plan.shares.items():
        long_captions, long_images = captions > limit, images > limit
        if overlong[name] == "cut":
            cut = np.unique(share.captions[long_captions[share.captions]])
            texts = np.unique(share.images[long_images[share.images]])
            scored[name].cut_captions = len(cut) + len(texts)
            continue
        marked = share.cases_with_caption(long_captions) | share.cases_with_image(long_images)
        for row in np.flatnonzero(marked).tolist():
            longest = max(*captions[share.captions_of(row)], *images[share.images_of(row)])
            scored[name].left_out[row] = (
                f"caption too long: {longest} tokens, the model takes {limit}."
            )


def announce_left_out(plan: Plan, scored: Mapping[str, Scored], progress: Progress) -> None:
    """Announce the benchmarks of which most cases, or images of a gallery, will be left out."""
    gone = np.array([_is_missing(picture) for picture in plan.pictures], dtype=bool)
    for name, share in plan.shares.items():
        images, missing = len(share.images), int(gone[share.images].sum())
        left_out = np.zeros(len(share.layout.images) - 1, dtype=bool)
        left_out[list(scored[name].left_out)] = True
        overlong = int(left_out.sum())
        if is_gallery(images, len(share.captions)) and len(left_out) == 1:
            if missing * 2 > images:
                progress.note(f"on {name}: {missing:,} of {images:,} images are not there.")
            continue
        left_out |= share.cases_with_image(gone)
        if left_out.sum() * 2 > len(left_out):
            progress.note(
                f"on {name}: {left_out.sum():,} of {len(left_out):,} cases will be left out "
                f"(cases with a caption too long for the model: {overlong:,}; images that are not "
                f"there: {missing:,} of {images:,})."
            )


def _is_missing(picture: Picture) -> bool:
    try:
        file = picture.file()
    except ImageError:
        return True
    return file is not None and not file.is_file()


def leave_out_items(
    plan: Plan, refused: Mapping[tuple[int, ...], str], scored: Mapping[str, Scored]
) -> None:
    """`refused`: why the model does not score an image (the first number) with some texts."""
    items_of: dict[int, list[tuple[int, ...]]] = {}
    for item in refused:
        items_of.setdefault(item[0], []).append(item)
    marked = np.zeros(len(plan.pictures), dtype=bool)
    marked[list(items_of)] = True
    for name, share in plan.shares.items():
        for row in np.flatnonzero(share.cases_with_image(marked)).tolist():
            texts = set(plan.prompts_of(share.captions_of(row))[0].tolist())
            found = (
                (place, next((i for i in items_of.get(image, ()) if texts.issuperset(i[1:])), None))
                for place, image in enumerate(share.images_of(row).tolist())
            )
            reasons = {n: refused[item] for n, item in found if item}
            _leave_out(share, row, reasons, scored[name])


def leave_out_captions(
    plan: Plan, failures: Mapping[int, str], scored: Mapping[str, Scored]
) -> None:
    """`failures`: why some of the plan's captions cannot be scored. Galleries need them all."""
    failed = np.zeros(len(plan.captions), dtype=bool)
    failed[list(failures)] = True
    for name, share in plan.shares.items():
        for row in np.flatnonzero(share.cases_with_caption(failed)).tolist():
            first = next(i for i in share.captions_of(row).tolist() if failed[i])
            scored[name].left_out_images.pop(row, None)
            scored[name].left_out.setdefault(row, failures[first])


def leave_out_images(plan: Plan, failures: Mapping[int, str], scored: Mapping[str, Scored]) -> None:
    """`failures`: why some of the plan's images cannot be read."""
    failed = np.zeros(len(plan.pictures), dtype=bool)
    failed[list(failures)] = True
    for name, share in plan.shares.items():
        for row in np.flatnonzero(share.cases_with_image(failed)).tolist():
            images = enumerate(share.images_of(row).tolist())
            failed_here = {place: failures[i] for place, i in images if i in failures}
            _leave_out(share, row, failed_here, scored[name])
    captions = {i: failures[image] for i, image in plan.pictured.items() if image in failures}
    if captions:
        leave_out_captions(plan, captions, scored)


def _leave_out(share: Share, row: int, reasons: Mapping[int, str], scored: Scored) -> None:
    """Leave out some images of a gallery, or any other case as a whole; `reasons` by image."""
    if not reasons:
        return
    count, images = len(share.images_of(row)), {**scored.left_out_images.get(row, {}), **reasons}
    if is_gallery(count, len(share.captions_of(row))) and len(images) < count:
        scored.left_out_images[row] = images
    else:
        scored.left_out_images.pop(row, None)
        scored.left_out.setdefault(row, next(iter(reasons.values())))
