"""The negatives of a pairs file: what refinement needs to know about them, and which are kept.

Which: SugarCrepe's adversarial refinement, on a grid of any number of dimensions. The gap of a pair
is the score of its caption minus the score of its text, by one blind model. The gaps of D models
put the pair into a cell of a D-dimensional grid. A model that sees nothing else does well where a
cell holds more pairs than its mirror, the cell with all signs changed. So the larger of the two is
reduced to the size of the smaller. What is left is symmetric about 0: each of the D models, any odd
function of their gaps, and any vote among them, is right as often as wrong.

Which pairs of a cell are kept is decided by the rank of a random key of each pair. So neither the
order of the pairs nor the content of other cells matters. Sorting is all the work: O(n log n).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Self, get_args

import numpy as np
import polars as pl

from counterpoint._util.errors import DataError, NotFoundError
from counterpoint._util.registry import did_you_mean
from counterpoint.cases import normal
from counterpoint.generation.llm.templates import PREFIX
from counterpoint.generation.pairs import FINISHED, SCHEMA, SENTENCE

SIDES: Final = ("caption", "text")
Scale = Literal["max", "rank"]
SCALES: Final[tuple[Scale, ...]] = get_args(Scale)
BY: Final = ("type", "subtype")  # like SugarCrepe's subsets, which were refined separately
GROUPING: Final = tuple(name for name, kind in SCHEMA.items() if kind == pl.String)
# What identifies a pair, wherever it is in the file.
_IDENTITY: Final = (
    *("source", "image", "caption", "text"),
    *("type", "subtype", "method", "version", "seed"),
)
_ROWS: Final = 50_000  # written at a time: lists of scores take much memory
_NEGATIVE: Final = pl.col("kind") == "negative"
BINS: Final = 50  # from 0 to 1, as SugarCrepe's authors
ZERO_BINS: Final = 10  # the same for pairs with a gap of exactly 0 to some model


@dataclass(frozen=True, slots=True)
class Negatives:
    """The negatives of a file, in its order."""

    pairs: pl.DataFrame
    groups: np.ndarray  # numbers into `names`
    names: tuple[str, ...]
    keys: np.ndarray  # random by seed, the same for the same pair

    def __len__(self) -> int:
        return len(self.groups)

    @classmethod
    def of(cls, pairs: pl.DataFrame, by: Sequence[str], seed: int) -> Self:
        for name in by:
            if name not in GROUPING:
                raise NotFoundError(
                    "E-COLUMN-UNKNOWN", did_you_mean("column to group by", name, GROUPING)
                )
        mine = pairs.filter(_NEGATIVE)
        groups = _labels(mine, by)
        names = groups.unique().sort()
        numbers = groups.replace_strict(names, pl.int_range(len(names), eager=True))
        keys = random_keys(mine, seed)
        return cls(mine, numbers.to_numpy().astype(np.int64), tuple(names.to_list()), keys)


def kept_pairs(
    pairs: pl.DataFrame, kept: np.ndarray, scores: Mapping[str, np.ndarray]
) -> Iterator[pl.DataFrame]:
    """The pairs without the negatives that are not kept, with new `scores` for those that are.

    `scores` are (n, 2), of captions and texts, by name. Positives are copied unchanged.
    """
    start = 0
    for frame in pairs.iter_slices(_ROWS):
        negative = frame.select(_NEGATIVE).to_series().to_numpy()
        end = start + int(negative.sum())
        stays = np.ones(len(frame), dtype=bool)
        stays[negative] = kept[start:end]
        columns = {}
        for name, values in scores.items():
            for place, side in enumerate(SIDES):
                column = np.full(len(frame), np.nan, dtype=np.float32)
                column[negative] = values[start:end, place]
                columns[f"{name}/{side}"] = column[stays]
        yield _with_scores(frame.filter(stays), columns)
        start = end


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
    identities = pairs.select(pl.concat_str(parts, separator="\x1f")).to_series()
    start = hashlib.blake2b(digest_size=8, key=seed.to_bytes(8, "little"))
    keys = bytearray()
    for identity in identities:
        state = start.copy()
        state.update(identity.encode())
        keys += state.digest()
    return np.frombuffer(bytes(keys), dtype="<u8")


def is_probability(scores: np.ndarray) -> bool:
    """Whether all scores lie within [0, 1]: then their gaps need no scaling."""
    return bool(((scores >= 0) & (scores <= 1)).all())


def scaled(gaps: np.ndarray, groups: np.ndarray, scale: Scale) -> np.ndarray:
    """One model's gaps (n,), scaled into [-1, 1] within each group: monotone, odd, and 0 stays 0.

    `max` divides by the group's largest |gap|, so that cells have equal widths. `rank` takes the
    share of the group's non-zero gaps that are not larger, so that cells have equal numbers.
    """
    shares = np.zeros(len(gaps))
    for rows in _rows_by_group(groups):
        rows = rows[gaps[rows] != 0]
        if len(rows):
            sizes = np.abs(gaps[rows])
            ranks = np.searchsorted(np.sort(sizes), sizes, side="right") / len(rows)
            shares[rows] = np.sign(gaps[rows]) * (ranks if scale == "rank" else sizes / sizes.max())
    return shares


def _rows_by_group(groups: np.ndarray) -> list[np.ndarray]:
    """The numbers of the rows of each group."""
    order = np.argsort(groups, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(groups[order])) + 1)


def top(scores: np.ndarray, groups: np.ndarray, share: float) -> np.ndarray:
    """Which rows are in the best `share` of their group by every column of `scores` (n, D).

    At or above the (1 - share) quantile, interpolated linearly between neighbours as NumPy and
    pandas do by default; ties are kept. All columns must agree, so fewer than `share` are left
    unless they order the texts in the same way. TROHN-Img used 0.355 of Vera and of CoLA, of each
    subtype.
    """
    kept = np.ones(len(scores), dtype=bool)
    for rows in _rows_by_group(groups):
        if len(rows):
            limits = np.quantile(scores[rows].astype(np.float64), 1 - share, axis=0)
            kept[rows] = (scores[rows] >= limits).all(axis=1)
    return kept


def sentences(pairs: pl.DataFrame) -> np.ndarray:
    """Which texts end in a final mark and are not questions (TROHN-Img, step 2).

    Of a language model's text, the model's own answer counts: the text is written like its caption.
    """
    asked = pl.col("method").str.starts_with(PREFIX)
    answered = pl.col("checks").list.contains(SENTENCE)
    ends = pl.when(asked).then(answered).otherwise(pl.col("text").str.contains(FINISHED))
    return pairs.select(ends).to_series().to_numpy()


def unique(
    texts: pl.Series, captions: pl.Series, candidates: np.ndarray, keys: np.ndarray
) -> np.ndarray:
    """Which candidates are left if every text may occur once, and none that is a caption.

    Texts are compared without case, blanks, punctuation and a/an. The captions are all of the file:
    a text that is a caption of another image is as natural as a caption, and one that is another
    caption of its own image is true. Of equal texts, the one with the lowest key is kept.
    """
    forms = _forms(texts)
    kept = candidates & ~np.isin(forms, _forms(captions.unique()))
    order = np.lexsort((keys, forms))
    order = order[kept[order]]
    once = np.zeros(len(forms), dtype=bool)
    once[order[_changes(forms[order, None])]] = True
    return once


def _forms(texts: pl.Series) -> np.ndarray:
    """A number for the normal form of each text."""
    joined = ("\x1f".join(normal(text)).encode("utf-8", "surrogatepass") for text in texts)
    digests = b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in joined)
    return np.frombuffer(digests, dtype="<u8")


def cells(
    gaps: np.ndarray,
    bins: int = BINS,
    zero_bins: int = ZERO_BINS,
    groups: np.ndarray | None = None,
) -> np.ndarray:
    """The cell (n, D) of each row of gaps (n, D) within [-1, 1].

    sign(g) * (floor(bins * |g|) + 1), and 0 for a gap of exactly 0. |g| = 1 is in the last cell,
    `bins`. A row in which some gaps are 0 and others are not has `zero_bins` instead: there are few
    of them, and the zero separates their cells from all others. A model whose gaps are 0 in a whole
    group says nothing there, and its zeros do not count.
    """
    size = np.abs(gaps)
    if not (size <= 1).all():  # false for NaN, too
        bad = int((~(size <= 1)).any(axis=1).sum())
        raise DataError(
            "E-GAP-INVALID", f"{bad:,} of {len(gaps):,} pairs have a gap outside [-1, 1] or none."
        )
    group = np.zeros(len(gaps), dtype=np.int64) if groups is None else groups
    says = np.column_stack([np.bincount(group, column != 0) > 0 for column in gaps.T])
    count = np.where(((gaps == 0) & says[group]).any(axis=1), zero_bins, bins)[:, None]
    numbers = np.minimum(np.floor(size * count) + 1, count)
    numbered: np.ndarray = (np.sign(gaps) * numbers).astype(np.int64)
    return numbered


def balanced(
    gaps: np.ndarray,
    keys: np.ndarray,
    groups: np.ndarray | None = None,
    *,
    bins: int = BINS,
    zero_bins: int = ZERO_BINS,
) -> np.ndarray:
    """Which rows of `gaps` (n, D) are kept: a mask (n,).

    Of every cell and its mirror, within each of `groups`, as many as the smaller of the two holds:
    those with the lowest `keys` (n,). Rows without any gap are their own mirror and all kept.
    """
    group = np.zeros(len(gaps), dtype=np.int64) if groups is None else np.asarray(groups)
    cell = cells(gaps, bins, zero_bins, group)
    side = np.zeros(len(cell), dtype=np.int64)  # the first sign of a row; of mirrors, the opposite
    for column in cell.T:
        side = np.where(side == 0, np.sign(column), side)
    canonical = cell * side[:, None]
    order = np.lexsort((keys, side, *canonical.T, group))
    where = np.column_stack((group, canonical))[order]
    new_cell = _changes(where)
    new_side = new_cell | _changes(side[order, None])
    number = np.cumsum(new_cell) - 1  # of the cell, mirrors taken together
    places = np.arange(len(order))
    rank = places - np.maximum.accumulate(np.where(new_side, places, 0))
    ahead = np.bincount(number[side[order] > 0], minlength=len(order))
    behind = np.bincount(number[side[order] < 0], minlength=len(order))
    kept = np.empty(len(order), dtype=bool)
    kept[order] = (rank < np.minimum(ahead, behind)[number]) | (side[order] == 0)
    return kept


def _changes(rows: np.ndarray) -> np.ndarray:
    """Where a row differs from the one before it; the first does."""
    return np.concatenate(([True], (rows[1:] != rows[:-1]).any(axis=1)))[: len(rows)]
