"""Scores with one row per case, a column for each pair of a caption and an image."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from errors import raises
from support import square, write_lines

from counterpoint.cases.table import Cases
from counterpoint.evaluation.importing import import_scores

FIELDS = ("C0I0", "C0I1", "C1I0", "C1I1")
SCORES = [[0.9, 0.2, 0.4, 0.7], [0.1, 0.3, 0.5, 0.6]]


@pytest.fixture
def benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Cases.build([square(0), square(1)], source="test").frame.write_parquet("squares.parquet")
    return "squares.parquet"


def written(path: str, names: tuple[str, ...] = FIELDS, id: str = "id") -> Path:
    table = pl.DataFrame({id: ["square-0", "square-1"], "tag": ["Negation, Scope", ""]})
    table = table.hstack(pl.DataFrame(SCORES, schema=list(names), orient="row"))
    file = Path(path)
    if file.suffix == ".parquet":
        table.write_parquet(file)
    elif file.suffix == ".txt":
        lines = [table.columns, *([str(value) for value in row] for row in table.rows())]
        write_lines(file, *("\u00a0".join(line) for line in lines))
    else:
        table.write_csv(file, separator="\t" if file.suffix == ".tsv" else ",")
    return file


def imported(path: Path, benchmark: str) -> np.ndarray:
    [part] = import_scores(path, benchmark, "m", out="run").parts.values()
    return part.scores.reshape(2, 2, 2)  # case, image, caption


# Image 1 with caption 0 is C0I1, the second column; rows of the block are images.
EXPECTED = np.array([[[0.9, 0.4], [0.2, 0.7]], [[0.1, 0.5], [0.3, 0.6]]], dtype=np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "txt"])
def test_a_row_per_case_is_read_by_the_names_of_its_columns(ending: str, benchmark: str) -> None:
    assert np.array_equal(imported(written(f"wide.{ending}"), benchmark), EXPECTED)


@pytest.mark.slow
@pytest.mark.parametrize("id", ["case_id", "ID", "id"])
@pytest.mark.parametrize(
    "form", ["c{0}_i{1}", "i{1}_c{0}", "I{1}C{0}", "caption_{0}_image_{1}", "score_c{0}_i{1}"]
)
def test_columns_have_many_names(form: str, id: str, benchmark: str) -> None:
    names = tuple(form.format(*pair) for pair in ("00", "01", "10", "11"))
    assert np.array_equal(imported(written("wide.csv", names, id), benchmark), EXPECTED)


def test_the_order_of_the_columns_does_not_matter(benchmark: str) -> None:
    file = written("wide.csv")
    pl.read_csv(file).select("C1I1", "C0I1", "id", "C1I0", "C0I0").write_csv(file)
    assert np.array_equal(imported(file, benchmark), EXPECTED)


@pytest.mark.parametrize(
    ("change", "code", "data"),
    [
        (("square-1", "square-9"), "E-CASE-UNKNOWN", {"first": "square-9"}),
        (("0.3", "n/a"), "E-SCORE-INVALID", {"column": "C0I1", "case": "square-1"}),
        (("C1I1", "C1I7"), "E-PAIR-UNKNOWN", {"count": 2}),
        (("C1I1", "c1_i0"), "E-COLUMN-REPEATED", {}),
        (("id,", "name,"), "E-COLUMN-MISSING", {"column": "case_id"}),
        ((",C1I1", ",other"), "E-PAIR-MISSING", {"count": 2}),
    ],
)
def test_what_is_wrong_is_named(
    change: tuple[str, str], code: str, data: dict[str, object], benchmark: str
) -> None:
    file = written("wide.csv")
    file.write_text(file.read_text().replace(*change))
    with raises(code, file, *data.values()):
        imported(file, benchmark)


def test_a_text_file_with_uneven_lines_is_refused(benchmark: str) -> None:
    file = write_lines(Path("wide.txt"), "id\tC0I0", "square-0\t1\t2")
    with raises("E-FILE-MALFORMED", 2):
        imported(file, benchmark)


def test_a_long_table_is_read_as_before(benchmark: str) -> None:
    rows = [
        {"case_id": f"square-{n}", "image": i, "caption": c, "score": float(EXPECTED[n, i, c])}
        for n in (0, 1)
        for i in (0, 1)
        for c in (0, 1)
    ]
    pl.DataFrame(rows).write_csv("long.csv")
    assert np.array_equal(imported(Path("long.csv"), benchmark), EXPECTED)
