"""Pairs as a benchmark and as a training set: files of captions with all their texts.

**A benchmark** is a case file that `counterpoint eval -b` reads.

- One case per negative: the image, its caption, one positive if there are any, the negative.
- The positives of a caption are used in turn for its negatives. The first is drawn by the seed for
  each caption, so that no method is favoured where captions have one negative each.
- A negative with its own image is a case of two images and two captions, as in BiVLC.
- With `all_negatives`, one case per caption: the caption, all positives, all negatives.

A case is in the group `type/subtype`; its cluster is the image.

**A training set** has one row per caption, with all its texts, or one row per negative.

| column          | type                    | meaning |
|-----------------|-------------------------|---------|
| source          | str                     | the caption's id |
| image           | str or null             | its path |
| box             | list of int or null     | x, y, width, height |
| caption         | str                     | |
| positives       | list of str             | |
| positive_types  | list of str             | replace, swap, ..., of each |
| negatives       | list of str             | |
| negative_types  | list of str             | of each |
| negative_images | list of (str or null)   | of each negative, an image that it is true of |
| neighbours      | list of str             | the nearest other images, if a file of them is given |

Parquet and JSON Lines hold all of it. CSV and TSV are NegCLIP's: `title`, `filepath`, `neg_caption`
(a Python list) and, with neighbours, `neg_image` (a list of row numbers of this file). Captions
without a negative and captions of a crop have no row there: the format cannot hold them.

With `per="negative"`, a caption has a row for each of its negatives, with all its positives: then
an epoch of training sees every negative once, as in TROHN. A caption without a negative has none.

With `validation`, a share of the images goes to a second file, `OUT-validation.SUFFIX`. A side is
drawn for each image by the seed and the path in the pairs file, so it stays the same when captions
or texts are added. Images that belong together (an image of a text, shared by texts of several
images) are on one side, and neighbours on the other side are left out.

Of both, `balance` (training only) and `cap` keep some of the texts (groups.py).
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from counterpoint._util.errors import DataError
from counterpoint._util.progress import Progress
from counterpoint._util.writing import whole_file
from counterpoint.cases import Case, Cases, ImageRef, caption_case, write_cases
from counterpoint.generation.export.groups import (
    QUIET,
    Group,
    Groups,
    ImagePaths,
    LeftOut,
    Neighbours,
    read_groups,
    read_neighbours,
    sampled,
)
from counterpoint.generation.pairs import (
    UniqueIds,
    read_pairs,
    require_parquet,
    root_of,
    stable_random,
)
from counterpoint.images import Picture

if TYPE_CHECKING:
    from counterpoint.models.detector import LabelledItems

_SQUARE: Final = ((True, False), (False, True))  # each text is true of its own image
Record = dict[str, Any]
Rows = Callable[[LeftOut], Iterator[Record]]
_CHUNK: Final = 20_000
_WHOLE: Final = 2**64  # above every random number
VALIDATION: Final = "captions that are in the validation file"
Per = Literal["caption", "negative"]


def export_benchmark(
    pairs: Sequence[Path],
    out: Path,
    left_out: LeftOut,
    *,
    images: Path | None = None,
    root: Path | None = None,
    all_negatives: bool = False,
    cap: str = "",
    seed: int = 0,
    progress: Progress = QUIET,
) -> int:
    """Write a case file; returns the number of cases. `left_out` counts what is not in it."""
    require_parquet(out, "cases")

    def read(counts: LeftOut) -> Iterator[Group]:
        return read_groups(pairs, out.parent, counts, images=images, root=root, progress=progress)

    groups = sampled(read, pairs[0], seed, cap=cap)(left_out)
    cases = chain.from_iterable(_cases(group, left_out, all_negatives, seed) for group in groups)
    unique = UniqueIds()
    named = [replace(case, id=unique(case.id)) for case in cases]
    if not named:
        raise DataError("E-PAIRS-EMPTY", f"{pairs[0]}: no caption with an image has a negative.")
    write_cases(Cases.build(named, source=str(pairs[0])), out)
    return len(named)


def _cases(group: Group, left_out: LeftOut, together: bool, seed: int) -> Iterator[Case]:
    if group.image is None:
        left_out["captions without an image"] += 1
        return
    if not group.negatives:
        left_out["captions with positives only"] += 1
        return
    positives = [text.text for text in group.positives]
    if together:
        labels = tuple(dict.fromkeys(text.label for text in group.negatives))
        true, false = [group.caption, *positives], [text.text for text in group.negatives]
        if unused := sum(text.image is not None for text in group.negatives):
            left_out["images of texts, which a case of one image has no place for"] += unused
        yield caption_case(group.source, group.image, true, false, labels)
        return
    start = stable_random(f"{seed} {group.source}") % max(len(positives), 1)
    for number, negative in enumerate(group.negatives):
        id = f"{group.source}/{number}"
        if negative.image is not None:
            images = (group.image, ImageRef(negative.image))
            yield Case(id, images, (group.caption, negative.text), _SQUARE, (negative.label,))
            continue
        chosen = [positives[(start + number) % len(positives)]] if positives else []
        true = [group.caption, *chosen]
        yield caption_case(id, group.image, true, [negative.text], (negative.label,))


# --- training ----------------------------------------------------------------------------------


def validation_file(out: Path) -> Path:
    """The second file of a split: `train.parquet` has `train-validation.parquet`."""
    return out.with_stem(f"{out.stem}-validation")


def export_training(
    pairs: Sequence[Path],
    out: Path,
    left_out: LeftOut,
    *,
    images: Path | None = None,
    root: Path | None = None,
    neighbours: Path | None = None,
    validation: float = 0,
    per: Per = "caption",
    balance: str = "",
    cap: str = "",
    seed: int = 0,
    progress: Progress = QUIET,
) -> int:
    """Write a training set in the format of the file name; returns the number of rows.

    Rows of the validation file are counted in `left_out` under `VALIDATION`.
    """
    if out.suffix not in _WRITERS:
        raise DataError(
            "E-FILE-FORMAT", f"{out}: the name of a training set ends in {', '.join(_WRITERS)}."
        )
    if not 0 <= validation < 1:
        raise DataError(
            "E-OPTION-INVALID",
            f"validation is a share of the images, from 0 to below 1, not {validation}.",
        )
    near: Neighbours = {}
    if neighbours is not None:
        own = (image for file in pairs for image in read_pairs(file)["image"])
        near = read_neighbours(neighbours, own, str(pairs[0]))
    paths = ImagePaths.of(pairs[0], out.parent, images=images, root=root)

    def read(counts: LeftOut) -> Iterator[Group]:
        return read_groups(pairs, out.parent, counts, images=images, root=root, progress=progress)

    groups = sampled(read, pairs[0], seed, cap=cap, balance=balance)
    if per == "negative":
        groups = partial(_per_negative, groups)
    held_out = _held_out(groups(LeftOut()), validation, seed) if validation else None
    files = {False: out} if held_out is None else {True: validation_file(out), False: out}
    written = {}
    with ExitStack() as stack:
        drafts = {side: stack.enter_context(whole_file(file)) for side, file in files.items()}
        for side, draft in drafts.items():

            def rows(counts: LeftOut, side: bool = side) -> Iterator[Record]:
                captions = groups(LeftOut() if side else counts)  # both sides read the same texts
                if held_out is None:
                    return _rows(captions, counts, paths, near)
                mine = (group for group in captions if held_out[_image(group)] == side)
                records = _rows(mine, counts, paths, near)
                return (_without_others(row, held_out, side, counts) for row in records)

            written[side] = _WRITERS[out.suffix](draft, rows, left_out, bool(near))
            if not written[side]:
                _refuse_empty(pairs[0], validation)
    if held_out is not None:
        left_out[VALIDATION] = written[True]
    return written[False]


def _refuse_empty(pairs: Path, validation: float) -> None:
    if validation:
        raise DataError(
            "E-SPLIT-EMPTY",
            f"{pairs}: with validation={validation:g}, one of the two files would have no caption; "
            "give more images, or another share or seed.",
        )
    raise DataError("E-PAIRS-EMPTY", f"{pairs}: has no pairs to train on.")


def _per_negative(groups: Groups, left_out: LeftOut) -> Iterator[Group]:
    for group in groups(left_out):
        yield from (replace(group, negatives=[text]) for text in group.negatives)
        if not group.negatives:
            left_out["captions without a negative"] += 1


def _image(group: Group) -> str:
    """What a caption is kept together by: its image, or itself if it has none."""
    return f"\0{group.caption}" if group.image is None else group.image.path


def _held_out(groups: Iterator[Group], share: float, seed: int) -> dict[str, bool]:
    """Whether each image is in the validation file."""
    parents: dict[str, str] = {}

    def top(name: str) -> str:
        while parents.setdefault(name, name) != name:
            parents[name] = name = parents[parents[name]]
        return name

    names: dict[str, str] = {}  # as in the pairs file: it does not depend on where OUT is
    for group in groups:
        own = _image(group)
        names.setdefault(own, group.path or own)
        for text in group.negatives:
            if text.image is not None:
                parents[top(text.image)] = top(own)
        top(own)
    first: dict[str, str] = {}
    for image, name in names.items():
        first[top(image)] = min(first.get(top(image), name), name)
    sides = {
        key: stable_random(seed, "image", name) < share * _WHOLE for key, name in first.items()
    }
    return {image: sides[top(image)] for image in parents}


def _without_others(
    row: Record, held_out: dict[str, bool], side: bool, left_out: LeftOut
) -> Record:
    """The row without neighbours that are on the other side. Unknown images have no side."""
    kept = [image for image in row["neighbours"] if held_out.get(image, side) == side]
    if dropped := len(row["neighbours"]) - len(kept):
        left_out["neighbours on the other side of the split"] += dropped
    return {**row, "neighbours": kept}


def _rows(
    groups: Iterator[Group], left_out: LeftOut, paths: ImagePaths, near: Neighbours
) -> Iterator[Record]:
    for group in groups:
        neighbours = near.get(group.path or "", [])
        if near and not neighbours:
            left_out["neighbours: captions of an image that has none"] += 1
        found = [paths.image(path) for path in neighbours]
        yield {"source": group.source, **group.columns(), "neighbours": found}


def _parquet(path: Path, rows: Rows, left_out: LeftOut, near: bool) -> int:
    import pyarrow as pa  # slow to import
    import pyarrow.parquet as pq

    del near  # without neighbours, the lists are empty
    texts = pa.list_(pa.string())
    schema = pa.schema(
        [
            *((name, pa.string()) for name in ("source", "image")),
            ("box", pa.list_(pa.int32(), 4)),
            ("caption", pa.string()),
            *((name, texts) for name in ("positives", "positive_types")),
            *((name, texts) for name in ("negatives", "negative_types", "negative_images")),
            ("neighbours", texts),
        ]
    )
    written, stream = 0, rows(left_out)
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        while chunk := list(islice(stream, _CHUNK)):
            writer.write_table(pa.Table.from_pylist(chunk, schema=schema))
            written += len(chunk)
    return written


def _jsonl(path: Path, rows: Rows, left_out: LeftOut, near: bool) -> int:
    del near
    written = 0
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for row in rows(left_out):
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            written += 1
    return written


def _negclip(separator: str, path: Path, rows: Rows, left_out: LeftOut, near: bool) -> int:
    """In two passes, because `neg_image` refers to rows of the file itself."""
    numbers: dict[str, int] = {}
    if near:
        for number, row in enumerate(_fit(rows(LeftOut()), LeftOut())):
            numbers.setdefault(row["image"], number)
    written = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, delimiter=separator, lineterminator="\n")
        table.writerow(["", "title", "filepath", "neg_caption", *(["neg_image"] if near else [])])
        for row in _fit(rows(left_out), left_out):
            others = [numbers[image] for image in row["neighbours"] if image in numbers]
            cells = [written, row["caption"], row["image"], row["negatives"]]
            table.writerow([*cells, others] if near else cells)
            written += 1
    return written


def _fit(rows: Iterator[Record], left_out: LeftOut) -> Iterator[Record]:
    """The rows that NegCLIP's format can hold."""
    for row in rows:
        if row["image"] is None:
            left_out["captions without an image"] += 1
        elif row["box"] is not None:
            left_out["captions of a crop"] += 1
        elif not row["negatives"]:
            left_out["captions with positives only"] += 1
        else:
            yield row


_WRITERS: Final[dict[str, Callable[[Path, Rows, LeftOut, bool], int]]] = {
    ".parquet": _parquet,
    ".jsonl": _jsonl,
    ".csv": partial(_negclip, ","),
    ".tsv": partial(_negclip, "\t"),
}


def detector_items(pairs: Path, images: Path | None = None) -> LabelledItems:
    """What a detector of synthetic images and captions learns from.

    Each negative with a chosen image gives four examples, as BiVLC's authors took them from
    TROHN-Img: the caption and its image are natural, the negative and its image synthetic.
    `images` is the folder of the captions' images, if not the one PAIRS names.
    """
    from counterpoint.models.detector import LabelledItems  # imports torch

    items, root = LabelledItems([], []), images or root_of(pairs)
    for row in read_pairs(pairs).iter_rows(named=True):
        if row["kind"] != "negative" or not row["image"] or not row["text_image"]:
            continue
        box = None if row["box"] is None else tuple(row["box"])
        natural = Picture(ImageRef(row["image"], box), root)
        drawn = Picture(ImageRef(row["text_image"]), pairs.parent)
        items.images.extend([(natural, 0), (drawn, 1)])
        items.captions.extend([(row["caption"], 0), (row["text"], 1)])
    if not items.captions:
        raise DataError(
            "E-EXAMPLES-FEW",
            f"{pairs}: no negative has an image of its caption and a drawn one of its own; "
            "draw them with `counterpoint generate images`.",
        )
    return items
