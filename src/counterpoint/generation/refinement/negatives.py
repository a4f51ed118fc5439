"""The negatives of a pairs file: what refinement needs to know about them, and which are kept."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from counterpoint._util.errors import DataError, NotFoundError
from counterpoint._util.registry import did_you_mean
from counterpoint.generation.pairs import SCHEMA, read_pairs
from counterpoint.generation.refinement.scores import SIDES

BY: Final = ("type", "subtype")  # like SugarCrepe's subsets, which were refined separately
GROUPING: Final = tuple(name for name, kind in SCHEMA.items() if kind == pl.String)
# What identifies a pair, wherever it is in the file.
_IDENTITY: Final = (
    *("source", "image", "caption", "text"),
    *("type", "subtype", "method", "version", "seed"),
)
_NEGATIVE: Final = pl.col("kind") == "negative"


@dataclass(frozen=True, slots=True)
class Negatives:
    """All negatives of a file, in its order."""

    groups: np.ndarray  # numbers into `names`
    names: tuple[str, ...]
    keys: np.ndarray  # random by seed, the same for the same pair
    positives: int
    rejected: int

    def __len__(self) -> int:
        return len(self.groups)


def gather(path: Path, by: Sequence[str], seed: int) -> Negatives:
    """Read the file once; texts are not kept."""
    for name in by:
        if name not in GROUPING:
            raise NotFoundError(
                "E-COLUMN-UNKNOWN", did_you_mean("column to group by", name, GROUPING), name=name
            )
    labels, keys, positives, rejected = [], [np.zeros(0, dtype=np.uint64)], 0, 0
    for frame in read_pairs(path, rejected=True):
        usable = frame.filter(pl.col("refused") == "")
        mine = usable.filter(_NEGATIVE)
        rejected += len(frame) - len(usable)
        positives += len(usable) - len(mine)
        labels.append(_labels(mine, by))
        keys.append(random_keys(mine, seed))
    groups = pl.concat(labels) if labels else pl.Series([], dtype=pl.String)
    names = groups.unique().sort()
    numbers = groups.replace_strict(names, pl.int_range(len(names), eager=True))
    return Negatives(
        numbers.to_numpy().astype(np.int64),
        tuple(names.to_list()),
        np.concatenate(keys),
        positives,
        rejected,
    )


def pieces(path: Path) -> Iterator[pl.DataFrame]:
    """The negatives that the checks have not rejected."""
    for frame in read_pairs(path):
        yield frame.filter(_NEGATIVE)


def kept_pairs(
    path: Path, kept: np.ndarray, scores: Mapping[str, np.ndarray]
) -> Iterator[pl.DataFrame]:
    """The file without the negatives that are not kept, with new `scores` for those that are.

    `scores` are (n, 2), of captions and texts, by name. Positives are copied unchanged.
    """
    start = 0
    for frame in read_pairs(path):
        negative = frame.select(_NEGATIVE).to_series().to_numpy()
        end = start + int(negative.sum())
        if end > len(kept):
            raise changed(path)
        stays = np.ones(len(frame), dtype=bool)
        stays[negative] = kept[start:end]
        found = {}
        for name, values in scores.items():
            for place, side in enumerate(SIDES):
                column = np.full(len(frame), np.nan, dtype=np.float32)
                column[negative] = values[start:end, place]
                found[f"{name}/{side}"] = column[stays]
        yield _with_scores(frame.filter(stays), found)
        start = end
    if start != len(kept):
        raise changed(path)


def changed(path: Path) -> DataError:
    return DataError("E-FILE-CHANGED", f"{path} changed while it was read; start again.", path=path)


def _with_scores(pairs: pl.DataFrame, scores: Mapping[str, np.ndarray]) -> pl.DataFrame:
    if not scores:
        return pairs
    old = pl.element().filter(~pl.element().struct.field("name").is_in(list(scores)))
    new = [
        pl.struct(pl.lit(name).alias("name"), pl.Series("value", values))
        for name, values in scores.items()
    ]
    both = pl.concat_list(pl.col("scores").fill_null([]).list.eval(old), pl.concat_list(new))
    merged = pl.when(_NEGATIVE).then(both).otherwise(pl.col("scores"))
    return pairs.with_columns(merged.cast(SCHEMA["scores"]).alias("scores"))


def _labels(pairs: pl.DataFrame, by: Sequence[str]) -> pl.Series:
    """ "replace/obj"; what is empty is left out."""
    if not by:
        return pl.Series("group", [""], dtype=pl.String).new_from_index(0, len(pairs))
    columns = [pl.when(pl.col(name) != "").then(pl.col(name)) for name in by]
    label = pl.concat_str(columns, separator="/", ignore_nulls=True)
    return pairs.select(label.alias("group")).to_series()


def random_keys(pairs: pl.DataFrame, seed: int) -> np.ndarray:
    """One pseudo-random number per pair, from its content and the seed."""
    parts = [pl.col(name).cast(pl.String).fill_null("") for name in _IDENTITY]
    identities = pairs.select(pl.concat_str(parts, separator="\x1f")).to_series().to_list()
    start = hashlib.blake2b(digest_size=8, key=seed.to_bytes(8, "little"))
    found = bytearray()
    for identity in identities:
        state = start.copy()
        state.update(identity.encode())
        found += state.digest()
    return np.frombuffer(bytes(found), dtype="<u8")
