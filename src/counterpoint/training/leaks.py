"""Training data that is also evaluated on: found, refused, or taken out.

    table, leaks = without_leaks(table, ["sugarcrepe", "hard-positives/replace"], images="photos")

A row of a training table leaks if a benchmark has its photograph or one of its texts. Photographs
are the same if they

- have the same number of COCO or Flickr in their names (`val2017/000000397133.jpg` and
  `COCO_val2014_000000397133.jpg`; `1000268201_693b08cb0e.jpg` and `1000268201.jpg`), or one path,
- have the same bytes, or
- look the same (`images.look`), as copies in another size or quality do.

The last two need the photographs. Texts are the same but for case, blanks, punctuation and a/an.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from counterpoint._util.errors import DataError, ImageError
from counterpoint._util.progress import Progress, Quiet
from counterpoint._util.store import Store, default_store
from counterpoint._util.tables import parquet_columns
from counterpoint._util.untrusted import shown
from counterpoint.benchmarks import load_benchmark
from counterpoint.cases import ImageRef, normal
from counterpoint.evaluation import pictures_and_texts
from counterpoint.images import LOOK, Picture, look_of, photograph_names, same_looks
from counterpoint.scoring import in_threads

_IMAGES: Final = ("image", "negative_images")
_TEXTS: Final = ("caption", "positives", "negatives", "dense", "dense_negatives")
BY_NAME, BY_CONTENT, BY_LOOK, BY_TEXT = (
    *("photographs by their name", "photographs by their bytes", "photographs by their look"),
    "texts",
)


class Leak(NamedTuple):
    """A row of a training table, what of it leaks, and where it is evaluated on."""

    row: int
    how: str  # BY_NAME, BY_CONTENT, BY_LOOK or BY_TEXT
    what: str
    where: str


@dataclass(slots=True)
class _KeptOut:
    """What must not be trained on: photographs and texts, each with where it comes from."""

    pictures: dict[Picture, str] = field(default_factory=dict)
    texts: dict[tuple[str, ...], str] = field(default_factory=dict)

    def add(self, source: str, pictures: Sequence[Picture], texts: Sequence[str]) -> None:
        for picture in pictures:
            self.pictures.setdefault(picture, f"{picture.ref.path} of {source}")
        for text in texts:
            self.texts.setdefault(normal(text), source)


def find_leaks(
    table: pl.DataFrame,
    keep_out: Sequence[str | Path],
    *,
    images: str | Path = ".",
    data: str | Path | None = None,
    progress: Progress | None = None,
) -> list[Leak]:
    """What of a training table is also in `keep_out`, in the order of rows.

    `keep_out` names benchmarks (ids, or case files; `data` is their data root) and training files.
    `images` is where the table's image paths start. A row may have several leaks.
    """
    kept = _kept_out(keep_out, data)
    own: dict[Picture, list[int]] = {}
    for row, path in _values(table, _IMAGES):
        own.setdefault(Picture(ImageRef(path), Path(images)), []).append(row)
    with Store(default_store()) as store:
        found = _same_photographs(list(own), kept.pictures, store, progress or Quiet())
    leaks = {
        (row, picture.ref.path): Leak(row, how, picture.ref.path, where)
        for picture, (how, where) in found.items()
        for row in own[picture]
    }
    for row, text in _values(table, _TEXTS):
        where = kept.texts.get(normal(text))
        if where is not None:
            leaks.setdefault((row, text), Leak(row, BY_TEXT, text, where))
    return sorted(leaks.values(), key=lambda leak: leak.row)


def without_leaks(
    table: pl.DataFrame,
    keep_out: Sequence[str | Path],
    *,
    images: str | Path = ".",
    data: str | Path | None = None,
    progress: Progress | None = None,
) -> tuple[pl.DataFrame, list[Leak]]:
    """The rows of a training table that do not leak, and the leaks of the others."""
    leaks = find_leaks(table, keep_out, images=images, data=data, progress=progress)
    rows = pl.Series(sorted({leak.row for leak in leaks}), dtype=pl.UInt32)
    kept = table.with_row_index("_row").filter(~pl.col("_row").is_in(rows.implode())).drop("_row")
    return kept, leaks


def refuse_leaks(
    table: pl.DataFrame, keep_out: Sequence[str], images: Path, name: Path, progress: Progress
) -> None:
    """A DataError with the counts and an example, if the table of this name leaks."""
    leaks = find_leaks(table, keep_out, images=images, progress=progress)
    if not leaks:
        return
    counts = Counter(leak.how for leak in leaks)
    hows = (how for how in (BY_NAME, BY_CONTENT, BY_LOOK, BY_TEXT) if counts[how])
    told = ", ".join(f"{counts[how]:,} {how}" for how in hows)
    first, rows = leaks[0], len({leak.row for leak in leaks})
    where = first.where if first.how == BY_TEXT else shown(first.where)
    raise DataError(
        "E-DATA-LEAK",
        f"{name}: {rows:,} of {table.height:,} rows are in data.keep_out ({told}), for instance "
        f"{shown(first.what)} is in {where}; take them out with "
        "counterpoint.training.without_leaks.",
    )


# --- both sides ----------------------------------------------------------------------------------


def _values(table: pl.DataFrame, names: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The texts of columns of texts or of lists of them, each with its row."""
    for name in names:
        if name not in table.columns:
            continue
        column = table.select(pl.int_range(pl.len()).alias("row"), pl.col(name).alias("value"))
        if isinstance(column["value"].dtype, pl.List):
            column = column.explode("value")
        yield from column.drop_nulls().iter_rows()


def _kept_out(names: Sequence[str | Path], data: str | Path | None) -> _KeptOut:
    kept = _KeptOut()
    for name in names:
        path = Path(name)
        if path.is_file() and (table := _training_table(path)) is not None:
            pictures = [Picture(ImageRef(p), path.parent) for _, p in _values(table, _IMAGES)]
            kept.add(path.name, pictures, [text for _, text in _values(table, _TEXTS)])
            continue
        cases: Any = load_benchmark(name, data).cases
        kept.add(str(name), *pictures_and_texts(cases))
    return kept


def _training_table(path: Path) -> pl.DataFrame | None:
    """A file of images and captions; None if it is another."""
    if path.suffix == ".parquet":
        columns = set(parquet_columns(path))
        return pl.read_parquet(path) if {"image", "caption"} <= columns else None
    if path.suffix in (".jsonl", ".ndjson"):
        try:
            table = pl.read_ndjson(path, infer_schema_length=None)
        except (pl.exceptions.PolarsError, OSError):
            return None  # the loader of case files says what is wrong
        return table if {"image", "caption"} <= set(table.columns) else None
    return None


# --- photographs ---------------------------------------------------------------------------------


class _Sight(NamedTuple):
    content: bytes | None
    look: np.ndarray | None


def _same_photographs(
    own: Sequence[Picture], kept: dict[Picture, str], store: Store, progress: Progress
) -> dict[Picture, tuple[str, str]]:
    """Which of the pictures are kept out: how that is known, and where they are."""
    named = {name: where for picture, where in kept.items() for name in photograph_names(picture)}
    found: dict[Picture, tuple[str, str]] = {}
    for picture in own:
        where = next((named[name] for name in photograph_names(picture) if name in named), None)
        if where is not None:
            found[picture] = (BY_NAME, where)
    rest = [picture for picture in own if picture not in found]
    if not rest or not kept:
        return found
    sides = (rest, list(kept))
    advance = progress.start("photographs", sum(map(len, sides)))

    def sight(picture: Picture) -> _Sight:
        try:
            content = picture.key(store)
            return _Sight(content, None if picture.scheme.drawn else look_of(picture, store))
        except ImageError:
            return _Sight(None, None)  # it is not here, or cannot be opened
        finally:
            advance(1)

    mine, theirs = (list(in_threads(sight, side)) for side in sides)
    wheres = list(kept.values())
    bytes_of = {s.content: where for s, where in zip(theirs, wheres, strict=True) if s.content}
    for picture, one in zip(rest, mine, strict=True):
        if one.content in bytes_of:
            found[picture] = (BY_CONTENT, bytes_of[one.content])
    (rows, ones), (places, others) = _looks(mine), _looks(theirs)
    for row, place in same_looks(ones, others):
        found.setdefault(rest[rows[row]], (BY_LOOK, wheres[places[place]]))
    return found


def _looks(sights: Sequence[_Sight]) -> tuple[list[int], np.ndarray]:
    """The looks of those that have one, and which they are."""
    there = {n: one.look for n, one in enumerate(sights) if one.look is not None}
    return list(there), np.array(list(there.values()), dtype=np.uint8).reshape(len(there), LOOK)
