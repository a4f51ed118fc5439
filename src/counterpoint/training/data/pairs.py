"""A training file or pairs files with a folder of images.

`counterpoint export PAIRS --as training` writes a training file (Parquet or JSON Lines). It may
have more columns: `dense` and `dense_negatives` (lists of texts, the second one with nulls), and
`positive_types` and `negative_types` (one type per text), which `only` needs. Pairs files are read
as that export reads them, and have types.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image

from counterpoint._util.errors import DataError
from counterpoint._util.random_numbers import order
from counterpoint._util.tables import parquet_columns, parquet_frames
from counterpoint.cases import ImageRef
from counterpoint.generation import phrases_of
from counterpoint.generation.export import ImagePaths, read_groups
from counterpoint.images import Picture
from counterpoint.training.data.loading import Setting
from counterpoint.training.data.samples import Record, Samples, SampleSource, open_picture
from counterpoint.training.leaks import refuse_leaks
from counterpoint.training.recipe import DataConfig

_TEXTS: Final = pa.list_(pa.string())
_LISTS: Final = ("positives", "negatives", "negative_images", "neighbours")
_TYPES: Final = {"positives": "positive_types", "negatives": "negative_types"}
_TEXT_LISTS: Final = ("positives", "negatives", "dense", "dense_negatives")
_EXTRA: Final = ("dense", "dense_negatives", *_TYPES.values())
_SCHEMA: Final = pa.schema(
    [
        ("image", pa.string()),
        ("box", pa.list_(pa.int32())),
        ("caption", pa.string()),
        *((name, _TEXTS) for name in (*_LISTS, *_EXTRA)),
    ]
)
_CHUNK: Final = 20_000
_DIGESTED: Final = 100_000  # rows at a time


def open_pairs(setting: Setting) -> Samples:
    """Read the file's table (images stay where they are) and say what of it cannot be used."""
    config, problems = setting.config, Counter[str]()
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
    _refuse_uneven(table, config, paths[0])
    _refuse_empty(table, config, paths[0])
    folder = root or paths[0].parent
    if config.keep_out:
        frame = pl.from_arrow(table)
        assert isinstance(frame, pl.DataFrame)
        refuse_leaks(frame, config.keep_out, folder, paths[0], setting.progress)
    data = Samples(setting, _Table(table, folder, str(paths[0]), config))
    data.problems.counts.update(problems)
    return data


def _is_pairs(path: Path) -> bool:
    if not path.is_file():
        raise DataError("E-FILE-MISSING", f"{path}: no such file.")
    return path.suffix == ".parquet" and {"text", "kind"} <= set(parquet_columns(path))


def _from_pairs(
    paths: list[Path], images: Path | None, problems: Counter[str], setting: Setting
) -> pa.Table:
    moves = [ImagePaths.of(path, paths[0].parent, images=images) for path in paths]
    groups = read_groups(paths, problems, moves, setting.progress)
    rows = (
        {
            "image": None if group.image is None else group.image.path,
            "box": None if group.image is None else group.image.box,
            "caption": group.caption,
            "positives": [text.text for text in group.positives],
            "negatives": [text.text for text in group.negatives],
            "negative_images": [text.image for text in group.negatives],
            "neighbours": [],
            "dense": [],
            "dense_negatives": [],
            "positive_types": [text.type for text in group.positives],
            "negative_types": [text.type for text in group.negatives],
        }
        for group in groups
    )
    return pa.concat_tables([_SCHEMA.empty_table(), *_chunks(rows)])


def _chunks(rows: Iterable[dict[str, Any]]) -> Iterator[pa.Table]:
    stream = iter(rows)
    while chunk := list(islice(stream, _CHUNK)):
        yield pa.Table.from_pylist(chunk, schema=_SCHEMA)


def _read_training(path: Path) -> pa.Table:
    """The columns of a training file, with empty lists for those it has not."""
    try:
        if path.suffix == ".parquet":
            used = [name for name in parquet_columns(path) if name in _SCHEMA.names]
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
            for field in _SCHEMA
        ]
        return pa.table(columns, schema=_SCHEMA)
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
    found = dict(zip(once, phrases_of(once), strict=True))
    for name, values in (("dense", [found[c] for c in captions]), ("dense_negatives", None)):
        column = pa.nulls(len(table), _TEXTS) if values is None else pa.array(values, _TEXTS)
        table = table.set_column(table.column_names.index(name), name, column)
    return table.combine_chunks()


def _refuse_uneven(table: pa.Table, config: DataConfig, path: Path) -> None:
    """Lists that go with each other must be as long, in every row."""
    pairs = [("negatives", "negative_images"), ("dense", "dense_negatives")]
    if config.only:
        wanted = {"positives": config.positives, "negatives": config.negatives}
        pairs += [(texts, _TYPES[texts]) for texts, asked in wanted.items() if asked]
    for texts, beside in pairs:
        one, two = (pc.fill_null(pc.list_value_length(table[c]), 0) for c in (texts, beside))
        uneven = pc.and_(pc.not_equal(one, two), pc.greater(two, 0))
        if (row := pc.index(uneven, True).as_py()) >= 0:
            raise DataError(
                "E-FILE-MALFORMED",
                f"{path}: row {row + 1} (of those with an image) has {one[row]} {texts} and "
                f"{two[row]} {beside}; they must be as many.",
            )
    sizes = pc.fill_null(pc.list_value_length(table["box"]), 4)
    if (row := pc.index(pc.not_equal(sizes, 4), True).as_py()) >= 0:
        raise DataError(
            "E-FILE-MALFORMED",
            f"{path}: row {row + 1} (of those with an image): a box is four numbers (x, y, width, "
            f"height), not {sizes[row]}.",
        )


def _refuse_empty(table: pa.Table, config: DataConfig, path: Path) -> None:
    """A term of the loss that no sample takes part in would be trained in silence."""
    asked = {
        "positives": config.positives and not config.joined,
        "negatives": config.negatives and not config.joined,
        "negative_images": config.negative_images,
        "neighbours": config.hard_images,
        "dense": config.dense,
    }
    for column in (name for name, wanted in asked.items() if wanted):
        values = pc.list_flatten(table[column])
        if config.only and column in _TYPES:
            types = pc.list_flatten(table[_TYPES[column]])
            if len(values) and len(types) != len(values):
                raise DataError(
                    "E-DATA-UNTYPED",
                    f"{path}: only={config.only} needs a type for each text in the column "
                    f"{_TYPES[column]!r}; give the pairs file itself as the path.",
                )
            values = values.filter(pc.equal(types, config.only))
        if column == "neighbours":  # images of the file itself
            values = values.filter(pc.is_in(values, value_set=table["image"]))
        if not pc.any(pc.is_valid(values)).as_py():
            of = f" of type {config.only}" if config.only and column in _TYPES else ""
            setting = {"neighbours": "hard_images", "dense": "dense"}.get(column, column)
            raise DataError(
                "E-DATA-EMPTY", f"{path}: holds no {column}{of}; turn {setting} off or add them."
            )


class _Table(SampleSource):
    """Rows of a training table. Arrow keeps them: a million Python objects would be copied by
    every worker as soon as it counts references to them."""

    lists_pictures = True

    def __init__(self, table: pa.Table, root: Path, name: str, config: DataConfig) -> None:
        self.root, self.name, self.size, self.config = root, name, len(table), config
        self.columns = {n: table[n].combine_chunks() for n in table.column_names}
        # What no sample is asked for stays in Arrow.
        self.asked = [
            *(("positives",) if config.positives else ()),
            *(("negatives",) if config.negatives else ()),
            *(("negative_images",) if config.negative_images else ()),
            *(("dense", "dense_negatives") if config.dense else ()),
            *(_TYPES.values() if config.only else ()),
        ]
        self.rows: dict[str, list[int]] = {}
        if config.hard_images:
            for number, image in enumerate(table["image"].to_pylist()):
                self.rows.setdefault(image, []).append(number)

    def contents(self) -> dict[str, str]:
        near = ["neighbours"] if self.config.hard_images else []
        read = ("image", "box", "caption", *self.asked, *near)
        return {name: column_digest(self.columns[name]) for name in read}

    def all_texts(self) -> Iterator[list[str]]:
        for name in ("caption", *(n for n in self.asked if n in _TEXT_LISTS)):
            values = self.columns[name]
            values = values if name == "caption" else pc.list_flatten(values)
            if self.config.only and name in _TYPES:
                types = pc.list_flatten(self.columns[_TYPES[name]])
                values = values.filter(pc.equal(types, self.config.only))
            once = pc.unique(values).drop_null()
            for start in range(0, len(once), _CHUNK):
                yield once.slice(start, _CHUNK).to_pylist()

    def order(self, seed: int, epoch: int) -> np.ndarray:
        return order(seed, epoch, self.size)

    def record(self, number: int) -> Record:
        lists = defaultdict[str, list[Any]](list)
        lists |= {name: self._get(name, number) or [] for name in self.asked}
        pictures: list[str | None] = lists["negative_images"] or [None] * len(lists["negatives"])
        negatives = self._of_type(lists["negative_types"], len(lists["negatives"]))
        return Record(
            self._get("caption", number),
            [
                lists["positives"][i]
                for i in self._of_type(lists["positive_types"], len(lists["positives"]))
            ],
            [lists["negatives"][i] for i in negatives],
            [pictures[i] for i in negatives],
            lists["dense"],
            lists["dense_negatives"],
        )

    def image(self, number: int, side: int) -> Image.Image:
        return open_picture(self.picture(number), side)

    def image_at(self, path: str, side: int) -> Image.Image:
        return open_picture(self.picture_at(path), side)

    def picture(self, number: int) -> Picture:
        box = self._get("box", number)
        reference = ImageRef(self._get("image", number), None if box is None else tuple(box))
        return Picture(reference, self.root)

    def picture_at(self, path: str) -> Picture:
        return Picture(ImageRef(path), self.root)

    def pictures(self) -> list[Picture]:
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
        near = (self._get("neighbours", number) or [])[:most]
        return [self.rows[image] for image in near if image in self.rows]

    def _get(self, column: str, number: int) -> Any:
        return self.columns[column][number].as_py()

    def _of_type(self, types: list[str], size: int) -> list[int]:
        only = self.config.only
        return [i for i in range(size) if only is None or types[i] == only]


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
