"""Import: a table of scores that were computed elsewhere becomes a run.

A table has one row per pair (case_id, image, caption, score), or one row per case with a column for
each pair, as tables are published for Winoground:

    id  ...  C0I0  C0I1  C1I0  C1I1

`C0I1` is the score of caption 0 with image 1. It may be written `c0_i1`, `i1_c0`, `score_c0_i1` or
`caption_0_image_1`. A `.txt` file has non-breaking blanks or tabs between its fields.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from counterpoint._util.errors import DataError
from counterpoint._util.tables import read_table
from counterpoint._util.untrusted import recorded_command, shown
from counterpoint.benchmarks import absent_from, load_benchmark, whole_size
from counterpoint.cases import Cases
from counterpoint.evaluation.evaluating import prepare, slug
from counterpoint.runs import Part, Run, file_digest, question, refuse_other, save_run

COLUMNS: Final = {
    "case_id": pl.String(),
    "image": pl.Int64(),
    "caption": pl.Int64(),
    "score": pl.Float64(),
}
# The columns of a table with one row per case: a score for each pair.
_CAPTION: Final = r"c(?:aption)?_?(?P<caption>\d+)"
_IMAGE: Final = r"i(?:mage)?_?(?P<image>\d+)"
_FORMS: Final = [
    re.compile(rf"(?:s(?:core)?_)?{one}_?{two}", re.IGNORECASE)
    for one, two in ((_CAPTION, _IMAGE), (_IMAGE, _CAPTION))
]
_IDS: Final = ("case_id", "id")


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

    Or one row per case, with a column for each pair. `image` and `caption` count from 0 within the
    case. Every pair of the benchmark must be there once; no image is needed. The scores are taken
    as made under the official protocol. A folder that holds a run of another model or benchmark is
    refused unless `overwrite` is true.
    """
    path = Path(path)
    folder = Path(out) if out else Path("runs") / f"{slug(name)}-{slug(benchmark)}-imported"
    loaded = load_benchmark(benchmark, None if data is None else Path(data), protocol=protocol)
    chosen, cases = loaded.read_by(protocol), loaded.cases
    asked = question(name, {benchmark: chosen.name}, {})
    refuse_other(folder, asked, overwrite=overwrite)
    absent = absent_from(benchmark, cases, chosen)
    whole = whole_size(benchmark, cases, chosen, absent)
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
    part = Part(benchmark, cases, scores, chosen, absent=absent, whole=whole)
    return save_run(Run(name, {benchmark: part}, manifest), folder, overwrite=overwrite)


def _scores(table: pl.DataFrame, cases: Cases, path: Path) -> np.ndarray:
    """The scores in the order of the cases' pairs."""
    _refuse(
        table.filter(pl.any_horizontal(pl.all().is_null())), "E-VALUE-MISSING", "lack a value", path
    )
    _refuse(
        table.filter(~pl.col("score").is_finite()),
        "E-SCORE-NON-FINITE",
        "have a non-finite score",
        path,
    )
    large = pl.col("score").abs() > float(np.finfo(np.float32).max)
    _refuse(table.filter(large), "E-SCORE-TOO-LARGE", "have a score too large to be kept", path)
    rows = pl.DataFrame({"case_id": cases.ids}).with_row_index("row")
    placed = table.join(rows, on="case_id", how="left", maintain_order="left")
    _refuse(
        placed.filter(pl.col("row").is_null()),
        "E-CASE-UNKNOWN",
        "have a case_id that is not in it",
        path,
    )
    row = placed["row"].to_numpy()
    image, caption = placed["image"].to_numpy(), placed["caption"].to_numpy()
    k, m = cases.image_counts[row], cases.caption_counts[row]
    outside = (image < 0) | (image >= k) | (caption < 0) | (caption >= m)
    _refuse(
        table.filter(pl.Series(outside)),
        "E-PAIR-UNKNOWN",
        "point outside the images or captions",
        path,
    )
    place = cases.pair_offsets[row] + image * m + caption
    counts = np.bincount(place, minlength=cases.pair_offsets[-1])
    _refuse(
        table.filter(pl.Series(counts[place] > 1)),
        "E-PAIR-REPEATED",
        "name a pair more than once",
        path,
    )
    if (counts == 0).any():
        raise _missing(cases, np.flatnonzero(counts == 0), path)
    scores = np.empty(len(counts), dtype=np.float32)
    scores[place] = placed["score"].to_numpy()
    return scores


def _refuse(bad: pl.DataFrame, code: str, what: str, path: Path) -> None:
    """Raise an error that counts the bad rows and shows the first three."""
    if not bad.is_empty():
        rows = list(bad.select(*COLUMNS).head(3).iter_rows())
        named = "; ".join(_shown(row) for row in rows)
        raise DataError(code, f"{path}: {bad.height:,} rows {what}; the first: {named}.")


def _missing(cases: Cases, places: np.ndarray, path: Path) -> DataError:
    starts, width = cases.pair_offsets, cases.caption_counts
    rows = np.searchsorted(starts, places[:3], side="right") - 1
    pairs = [
        (cases.ids[int(row)], *divmod(int(place - starts[row]), int(width[row])))
        for row, place in zip(rows, places[:3], strict=True)
    ]
    return DataError(
        "E-PAIR-MISSING",
        f"{path}: {len(places):,} of {starts[-1]:,} pairs are missing; the first: "
        f"{'; '.join(map(_shown, pairs))}.",
    )


def _shown(row: tuple[object, ...]) -> str:
    return ", ".join(f"{name} {shown(value)}" for name, value in zip(COLUMNS, row, strict=False))


def read_wide(path: Path) -> pl.DataFrame | None:
    """case_id, image, caption, score of a table with one row per case; None if it is another."""
    table = _read_text(path) if path.suffix == ".txt" else read_table(path, {})
    places = {name: place for name in table.columns if (place := _place(name)) is not None}
    names = {name.lower(): name for name in table.columns}
    id = next((names[name] for name in _IDS if name in names), None)
    if not places or "score" in names:
        return None
    if id is None:
        raise DataError(
            "E-COLUMN-MISSING",
            f"{path}: the scores {', '.join(places)} need a column case_id or id.",
        )
    if len(set(places.values())) < len(places):
        raise DataError(
            "E-COLUMN-REPEATED",
            f"{path}: two of the columns {', '.join(places)} are of the same pair.",
        )
    pieces = [
        table.select(
            case_id=pl.col(id).cast(pl.String()),
            image=pl.lit(image),
            caption=pl.lit(caption),
            score=_numbers(table, name, id, path),
        )
        for name, (image, caption) in places.items()
    ]
    return pl.concat(pieces)


def _place(name: str) -> tuple[int, int] | None:
    """The image and the caption that the name of a column says."""
    for form in _FORMS:
        if found := form.fullmatch(re.sub(r"[\s_-]+", "_", name.strip())):
            return int(found["image"]), int(found["caption"])
    return None


def _numbers(table: pl.DataFrame, name: str, id: str, path: Path) -> pl.Series:
    numbers = table[name].cast(pl.Float64(), strict=False)
    bad = table.filter(numbers.is_null() & table[name].is_not_null())
    if not bad.is_empty():
        raise DataError(
            "E-SCORE-INVALID",
            f"{path}: {bad.height:,} rows have no number in the column {name}; the first: "
            f"{id} {shown(bad[id][0])}, {shown(bad[name][0])}.",
        )
    return numbers


def _read_text(path: Path) -> pl.DataFrame:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError("E-FILE-UNREADABLE", f"{path}: not a readable table: {error}.") from None
    rows = [line.split("\u00a0" if "\u00a0" in line else "\t") for line in lines if line.strip()]
    if not rows or len(set(rows[0])) < len(rows[0]):
        raise DataError(
            "E-FILE-MALFORMED", f"{path}: the first line should name the columns, each once."
        )
    for number, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            raise DataError(
                "E-FILE-MALFORMED",
                f"{path}: line {number} has {len(row)} fields and the header {len(rows[0])}.",
            )
    return pl.DataFrame(rows[1:], schema=dict.fromkeys(rows[0], pl.String()), orient="row")
