"""Scores from elsewhere become a run like any other."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np
import polars as pl

from counterpoint.benchmarks import load_benchmark
from counterpoint.benchmarks.completeness import absent_from
from counterpoint.cases import Cases
from counterpoint.command_line import recorded_command
from counterpoint.errors import DataError
from counterpoint.evaluation import prepare, slug
from counterpoint.importing_wide import read_wide
from counterpoint.protocols import get_protocol
from counterpoint.runs import Part, Run, file_digest, question, refuse_other, save_run
from counterpoint.tables import read_table
from counterpoint.untrusted import shown

COLUMNS = {
    "case_id": pl.String(),
    "image": pl.Int64(),
    "caption": pl.Int64(),
    "score": pl.Float64(),
}


def import_scores(
    path: str | Path,
    benchmark: str,
    name: str,
    *,
    data: str | Path | None = None,
    out: str | Path | None = None,
    protocol: str | None = None,
    overwrite: bool = False,
) -> Run:
    """A run from a table of scores: case_id, image, caption, score.

    Or one row per case, with a column for each pair (see `importing_wide`). `image` and `caption`
    count from 0 within the case. Every pair of the benchmark must be there once; no image is
    needed. The scores are taken as made under the official protocol. A folder that holds a run of
    another model or benchmark is refused unless `overwrite` says so.
    """
    path = Path(path)
    folder = Path(out) if out else Path("runs") / f"{slug(name)}-{slug(benchmark)}-imported"
    known, cases = load_benchmark(benchmark, None if data is None else Path(data))
    chosen = get_protocol(protocol or known.protocol)
    asked = question(name, {benchmark: chosen.name}, {})
    refuse_other(folder, asked, overwrite=overwrite)
    absent = absent_from(benchmark, cases, chosen)
    cases = prepare(cases, chosen, None)
    table = read_wide(path)
    if table is None:
        table = read_table(path, COLUMNS).select(*COLUMNS)
    scores = _scores(table, cases, path)
    manifest = {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": recorded_command(),
        "options": {},
        "fingerprint": f"imported {file_digest(path)}",
        "model_info": {"imported_from": path.name},
        "versions": {"counterpoint": version("counterpoint")},
    }
    part = Part(benchmark, cases, scores, chosen, absent=absent)
    return save_run(Run(name, {benchmark: part}, manifest), folder, overwrite=overwrite)


def _scores(table: pl.DataFrame, cases: Cases, path: Path) -> np.ndarray:
    """The scores in the order of the cases' pairs."""
    _refuse(table.filter(pl.any_horizontal(pl.all().is_null())), "lack a value", path)
    _refuse(table.filter(~pl.col("score").is_finite()), "have a non-finite score", path)
    large = pl.col("score").abs() > float(np.finfo(np.float32).max)
    _refuse(table.filter(large), "have a score too large to be kept", path)
    rows = pl.DataFrame({"case_id": cases.ids}).with_row_index("row")
    placed = table.join(rows, on="case_id", how="left", maintain_order="left")
    _refuse(placed.filter(pl.col("row").is_null()), "have a case_id that is not in it", path)
    row = placed["row"].to_numpy()
    image, caption = placed["image"].to_numpy(), placed["caption"].to_numpy()
    k, m = cases.image_counts[row], cases.caption_counts[row]
    outside = (image < 0) | (image >= k) | (caption < 0) | (caption >= m)
    _refuse(table.filter(pl.Series(outside)), "point outside the images or captions", path)
    place = cases.pair_offsets[row] + image * m + caption
    counts = np.bincount(place, minlength=cases.pair_offsets[-1])
    _refuse(table.filter(pl.Series(counts[place] > 1)), "name a pair more than once", path)
    if (counts == 0).any():
        raise _missing(cases, np.flatnonzero(counts == 0), path)
    scores = np.empty(len(counts), dtype=np.float32)
    scores[place] = placed["score"].to_numpy()
    return scores


def _refuse(bad: pl.DataFrame, what: str, path: Path) -> None:
    if not bad.is_empty():
        first = "; ".join(_shown(row) for row in bad.select(*COLUMNS).head(3).iter_rows())
        raise DataError(f"{path}: {bad.height:,} rows {what}; the first: {first}.")


def _missing(cases: Cases, places: np.ndarray, path: Path) -> DataError:
    starts, width = cases.pair_offsets, cases.caption_counts
    rows = np.searchsorted(starts, places[:3], side="right") - 1
    named = [
        _shown((cases.ids[int(row)], *divmod(int(place - starts[row]), int(width[row]))))
        for row, place in zip(rows, places[:3], strict=True)
    ]
    return DataError(
        f"{path}: {len(places):,} of {starts[-1]:,} pairs are missing; the first: "
        f"{'; '.join(named)}."
    )


def _shown(row: tuple[object, ...]) -> str:
    return ", ".join(f"{name} {shown(value)}" for name, value in zip(COLUMNS, row, strict=False))
