"""Stored samples as a table: a row per caption, with its texts and where its image is.

`counterpoint export PAIRS --as training` writes a training file (Parquet or JSON Lines). It may
have more columns: `dense` and `dense_negatives` (lists of texts, the second one with nulls), and
`positive_types` and `negative_types` (one type per text), which `only` needs. Pairs files are read
as that export reads them, and have types; shards by `shards.py`. Arrow keeps the table: a million
Python objects would be copied by every worker as soon as it counts references to them.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image

from counterpoint._util.errors import DataError, ImageError
from counterpoint._util.random_numbers import order
from counterpoint._util.tables import parquet_columns, parquet_frames
from counterpoint.cases import ImageRef
from counterpoint.generation import phrases_of
from counterpoint.generation.export import read_groups
from counterpoint.images import MAX_RATIO, PLAIN, Picture, decode as decode_image
from counterpoint.training.data.loading import Setting
from counterpoint.training.leaks import refuse_leaks
from counterpoint.training.recipe import DataConfig

_TEXTS: Final = pa.list_(pa.string())
TEXT_LISTS: Final = ("positives", "negatives", "dense", "dense_negatives")
TYPES: Final = {"positives": "positive_types", "negatives": "negative_types"}
_LISTS: Final = (*TEXT_LISTS, "negative_images", "neighbours", *TYPES.values())
SCHEMA: Final = pa.schema(
    [
        ("image", pa.string()),
        ("box", pa.list_(pa.int32())),
        ("caption", pa.string()),
        *((name, _TEXTS) for name in _LISTS),
    ]
)
_CHUNK: Final = 20_000
_DIGESTED: Final = 100_000  # rows at a time


@dataclass(slots=True)
class Record:
    """A caption with its texts. `negative_images` and `dense_negatives` go with the list before."""

    caption: str
    positives: list[str] = field(default_factory=list)
    negatives: list[str] = field(default_factory=list)
    negative_images: list[str | None] = field(default_factory=list)
    dense: list[str] = field(default_factory=list)
    dense_negatives: list[str | None] = field(default_factory=list)


class SampleTable:
    """Numbered samples, 0 to size - 1. Survives a fork: no threads, no open handles."""

    lists_pictures = True  # whether all images are known before training

    def __init__(self, table: pa.Table, root: Path, name: str, config: DataConfig) -> None:
        self.root, self.name, self.size, self.config = root, name, len(table), config
        self.columns = {n: table[n].combine_chunks() for n in table.column_names}
        # What no sample is asked for stays in Arrow.
        self.asked = [
            *(("positives",) if config.positives else ()),
            *(("negatives",) if config.negatives else ()),
            *(("negative_images",) if config.negative_images else ()),
            *(("dense", "dense_negatives") if config.dense else ()),
            *(TYPES.values() if config.only else ()),
        ]
        self.rows: dict[str, list[int]] = {}
        if config.hard_images:
            for number, image in enumerate(table["image"].to_pylist()):
                self.rows.setdefault(image, []).append(number)

    def contents(self) -> dict[str, str]:
        """A digest of each part that samples are made of; images are not looked at."""
        near = ["neighbours"] if self.config.hard_images else []
        read = ("image", "box", "caption", *self.asked, *near)
        return {name: column_digest(self.columns[name]) for name in read}

    def all_texts(self) -> Iterator[list[str]]:
        """All texts that samples may give, some at a time."""
        for name in ("caption", *(n for n in self.asked if n in TEXT_LISTS)):
            values = self.columns[name]
            values = values if name == "caption" else pc.list_flatten(values)
            if self.config.only and name in TYPES:
                types = pc.list_flatten(self.columns[TYPES[name]])
                values = values.filter(pc.equal(types, self.config.only))
            once = pc.unique(values).drop_null()
            for start in range(0, len(once), _CHUNK):
                yield once.slice(start, _CHUNK).to_pylist()

    def order(self, seed: int, epoch: int) -> np.ndarray:
        """All samples of an epoch, shuffled."""
        return order(seed, epoch, self.size)

    def record(self, number: int) -> Record:
        """Raises DataError."""
        lists = defaultdict[str, list[Any]](list)
        lists |= {name: self._get(name, number) or [] for name in self.asked}
        chosen = {name: self._of_type(lists, name) for name in TYPES}
        pictures: list[str | None] = lists["negative_images"] or [None] * len(lists["negatives"])
        return Record(
            self._get("caption", number),
            [lists["positives"][i] for i in chosen["positives"]],
            [lists["negatives"][i] for i in chosen["negatives"]],
            [pictures[i] for i in chosen["negatives"]],
            lists["dense"],
            lists["dense_negatives"],
        )

    def image(self, number: int, side: int) -> Image.Image:
        """Raises ImageError."""
        return open_picture(self.picture(number), side)

    def picture(self, number: int) -> Picture:
        """The image of a sample, one of `pictures`."""
        box = self._get("box", number)
        reference = ImageRef(self._get("image", number), None if box is None else tuple(box))
        return Picture(reference, self.root)

    def picture_at(self, path: str) -> Picture:
        """The image of a negative, one of `pictures`."""
        return Picture(ImageRef(path), self.root)

    def pictures(self) -> list[Picture]:
        """All images, those of negatives included."""
        made: list[str | None] = []
        if self.config.negative_images:
            made = pc.unique(pc.list_flatten(self.columns["negative_images"])).to_pylist()
        names = pl.DataFrame({name: self.columns[name] for name in ("image", "box")})
        box = pl.col("box").cast(pl.List(pl.String())).list.join(",")  # null where there is none
        firsts = names.with_columns(box).with_row_index().unique(["image", "box"], keep="first")
        own = (self.picture(number) for number in firsts["index"].sort().to_list())
        others = (self.picture_at(path) for path in made if path is not None)
        return list(dict.fromkeys((*own, *others)))

    def image_name(self, number: int) -> str:
        """The same for all samples of an image, or of a part of one."""
        return f"{self._get('image', number)} {self._get('box', number)}"

    def neighbours(self, number: int, most: int) -> list[list[int]]:
        """Of each of the nearest images, the samples that it has."""
        near = (self._get("neighbours", number) or [])[:most]
        return [self.rows[image] for image in near if image in self.rows]

    def _get(self, column: str, number: int) -> Any:
        return self.columns[column][number].as_py()

    def _of_type(self, lists: dict[str, list[Any]], name: str) -> list[int]:
        only, types = self.config.only, lists[TYPES[name]]
        return [i for i in range(len(lists[name])) if only is None or types[i] == only]


# --- training files and pairs files ---------------------------------------------------------------


def read_pairs(setting: Setting, problems: Counter[str]) -> SampleTable:
    """The file's table (images stay where they are); what cannot be used is counted."""
    config = setting.config
    paths, root = config.paths, config.images
    if _is_pairs(paths[0]):
        table = _from_pairs(paths, root, problems, setting)
        root = None  # paths are already what they are from the file's folder
    elif len(paths) > 1:
        raise DataError(
            "E-FILES-MIXED", f"{paths[1]}: several files can only be given if all are pairs files."
        )
    else:
        table = _read_training(paths[0])
    table = _usable(table, paths[0], problems)
    if config.phrases:
        table = _with_phrases(table)
    refuse_uneven(table, config, paths[0])
    refuse_empty(table, config, paths[0])
    folder = root or paths[0].parent
    if config.keep_out:
        frame = pl.from_arrow(table)
        assert isinstance(frame, pl.DataFrame)
        refuse_leaks(frame, config.keep_out, folder, paths[0], setting.progress)
    return SampleTable(table, folder, str(paths[0]), config)


def _is_pairs(path: Path) -> bool:
    if not path.is_file():
        raise DataError("E-FILE-MISSING", f"{path}: no such file.")
    return path.suffix == ".parquet" and {"text", "kind"} <= set(parquet_columns(path))


def _from_pairs(
    paths: list[Path], images: Path | None, problems: Counter[str], setting: Setting
) -> pa.Table:
    folder, progress = paths[0].parent, setting.progress
    groups = read_groups(paths, folder, problems, images=images, progress=progress)
    rows = (group.columns() for group in groups)
    return pa.concat_tables([SCHEMA.empty_table(), *_chunks(rows)])


def _chunks(rows: Iterable[dict[str, Any]]) -> Iterator[pa.Table]:
    stream = iter(rows)
    while chunk := list(islice(stream, _CHUNK)):
        yield pa.Table.from_pylist(chunk, schema=SCHEMA)


def _read_training(path: Path) -> pa.Table:
    """The columns of a training file; those that it has not are null."""
    try:
        if path.suffix == ".parquet":
            used = [name for name in parquet_columns(path) if name in SCHEMA.names]
            found = pl.concat(parquet_frames(path, columns=used)).to_arrow()
        elif path.suffix in (".jsonl", ".ndjson"):
            found = pl.read_ndjson(path, infer_schema_length=None).to_arrow()
        else:
            raise DataError("E-FILE-ENDING", f"{path}: a training file ends in .parquet or .jsonl.")
        missing = [name for name in ("image", "caption") if name not in found.column_names]
        if missing:
            raise DataError(
                "E-COLUMN-MISSING",
                f"{path}: the column {missing[0]!r} is missing; "
                "write a training file with `counterpoint export PAIRS --as training`.",
            )
        columns = [
            found[field.name].cast(field.type)
            if field.name in found.column_names
            else pa.nulls(len(found), field.type)
            for field in SCHEMA
        ]
        return pa.table(columns, schema=SCHEMA)
    except (pa.ArrowException, pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(
            "E-FILE-MALFORMED", f"{path}: not a readable training file: {why}."
        ) from None


def _usable(table: pa.Table, path: Path, problems: Counter[str]) -> pa.Table:
    """The rows with an image and a caption."""
    keep = pc.and_(pc.is_valid(table["image"]), pc.is_valid(table["caption"]))
    left_out = len(table) - (pc.sum(keep).as_py() or 0)
    if left_out:
        problems["captions without an image: left out"] += left_out
    if left_out == len(table):
        raise DataError("E-DATA-EMPTY", f"{path}: no caption has an image.")
    return table.filter(keep).combine_chunks()


def _with_phrases(table: pa.Table) -> pa.Table:
    """With the noun phrases of each caption as its dense captions; each caption is tagged once."""
    captions = table["caption"].to_pylist()
    once = list(dict.fromkeys(captions))
    phrases = dict(zip(once, phrases_of(once), strict=True))
    for name, column in (
        ("dense", pa.array([phrases[caption] for caption in captions], _TEXTS)),
        ("dense_negatives", pa.nulls(len(table), _TEXTS)),
    ):
        table = table.set_column(table.column_names.index(name), name, column)
    return table.combine_chunks()


# --- what a table must hold ----------------------------------------------------------------------


def refuse_uneven(table: pa.Table, config: DataConfig, path: Path) -> None:
    """Lists that go with each other must be as long, in every row."""
    pairs = [("negatives", "negative_images"), ("dense", "dense_negatives")]
    if config.only:
        wanted = {"positives": config.positives, "negatives": config.negatives}
        pairs += [(texts, TYPES[texts]) for texts, asked in wanted.items() if asked]
    for texts, beside in pairs:
        one, two = (pc.fill_null(pc.list_value_length(table[c]), 0) for c in (texts, beside))
        uneven = pc.and_(pc.not_equal(one, two), pc.greater(two, 0))
        if (row := pc.index(uneven, True).as_py()) >= 0:
            raise _malformed(
                path, row, f" has {one[row]} {texts} and {two[row]} {beside}; they must be as many"
            )
    sizes = pc.fill_null(pc.list_value_length(table["box"]), 4)
    if (row := pc.index(pc.not_equal(sizes, 4), True).as_py()) >= 0:
        what = f": a box is four numbers (x, y, width, height), not {sizes[row]}"
        raise _malformed(path, row, what)


def _malformed(path: Path, row: int, what: str) -> DataError:
    return DataError("E-FILE-MALFORMED", f"{path}: row {row + 1} (of those with an image){what}.")


def refuse_empty(table: pa.Table, config: DataConfig, path: Path) -> None:
    """A term of the loss that no sample takes part in would be trained in silence."""
    asked = {
        "positives": config.positives and not config.joined,
        "negatives": config.negatives and not config.joined,
        "negative_images": config.negative_images,
        "neighbours": config.hard_images,
        "dense": config.dense,
    }
    for column in (name for name, wanted in asked.items() if wanted):
        values, of = pc.list_flatten(table[column]), ""
        if config.only and column in TYPES:
            types, of = pc.list_flatten(table[TYPES[column]]), f" of type {config.only}"
            if len(values) and len(types) != len(values):
                raise DataError(
                    "E-DATA-UNTYPED",
                    f"{path}: only={config.only} needs a type for each text in the column "
                    f"{TYPES[column]!r}; give the pairs file itself as the path.",
                )
            values = values.filter(pc.equal(types, config.only))
        if column == "neighbours":  # images of the file itself
            values = values.filter(pc.is_in(values, value_set=table["image"]))
        if not pc.any(pc.is_valid(values)).as_py():
            setting = "hard_images" if column == "neighbours" else column
            raise DataError(
                "E-DATA-EMPTY", f"{path}: holds no {column}{of}; turn {setting} off or add them."
            )


# --- pictures: decoded no larger than the model needs --------------------------------------------


def open_picture(picture: Picture, side: int) -> Image.Image:
    """A picture for a model that looks at `side` x `side` pixels. Raises ImageError."""
    if picture.ref.box is not None or picture.scheme is not PLAIN:
        return picture.open()
    try:
        data = picture.path().read_bytes()
    except (OSError, ValueError):
        return picture.open()  # says what is wrong
    return decode(data, picture.ref.path, side)


def decode(data: bytes, name: str, side: int) -> Image.Image:
    """The same for the bytes of a file."""
    image = decode_image(data, name, side=side)
    if max(image.size) > MAX_RATIO * min(image.size):
        raise ImageError(
            "E-IMAGE-NARROW", f"image {name}: {image.width} x {image.height} pixels are too narrow."
        )
    return image


# --- digests by column, which a resumed run compares: of the rows, so that a file that is written
# again with the same rows is the same data


def column_digest(column: pa.Array) -> str:
    """Of texts, of whole numbers, or of lists of them; null is a value of its own."""
    state = hashlib.blake2b(digest_size=16)
    for start in range(0, len(column), _DIGESTED):
        _update(state, column.slice(start, _DIGESTED))
    return state.hexdigest()


def _update(state: Any, values: pa.Array) -> None:
    if pa.types.is_list(values.type):
        state.update(_numbers(pc.list_value_length(values)))
        _update(state, pc.list_flatten(values))
    elif pa.types.is_string(values.type):
        state.update(_numbers(pc.binary_length(values)))
        there = values.drop_null()
        if len(there):
            _, starts, letters = there.buffers()
            places = np.frombuffer(starts, np.int32)
            first, end = places[there.offset], places[there.offset + len(there)]
            state.update(memoryview(letters)[first:end])
    else:
        state.update(_numbers(values))


def _numbers(values: pa.Array) -> bytes:
    plain = pc.fill_null(values.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    return bytes(plain.astype("<i8").tobytes())
