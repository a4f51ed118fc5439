"""The studies run against the package as it is: they are imported, planned and tabled."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import polars as pl
import pytest

STUDIES = Path(__file__).parents[1] / "studies"
NAMES = sorted(path.stem for path in STUDIES.glob("*.py"))
BENCHMARK, METRICS = "hard-positives/replace", ("original_accuracy", "augmented_accuracy")


@pytest.fixture(autouse=True)
def found_by_name(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(STUDIES))
    yield
    for name in NAMES:
        sys.modules.pop(name, None)


@pytest.mark.slow
def test_every_study_can_be_imported_and_is_in_the_readme() -> None:
    readme = (STUDIES / "README.md").read_text()
    for name in NAMES:
        assert import_module(name).__doc__ and f"{name}.py" in readme


@pytest.mark.slow
def test_a_study_keeps_what_it_evaluates_out_and_tables_the_means_over_its_seeds(
    tmp_path: Path,
) -> None:
    study, photo, tables = map(import_module, ("study", "photo_study", "photo_tables"))
    given = {"data": tmp_path / "data", "photographs": tmp_path, "out": tmp_path, "base": "base"}
    given |= {"towers": "hf:TOWERS", "steps": None, "change": [], "workers": 0}
    planned = photo.study_of(argparse.Namespace(**given))
    for row in planned.rows:
        command = study.training(planned, row, 1, argparse.Namespace(**given))
        assert all(name in " ".join(command) for name in import_module("photo_data").EVALUATED)
    values = {"hn-0": [1, 0, 0, 0], "hn-1": [1, 0, 1, 1], "hp-hn-0": [1] * 4, "hp-hn-1": [1] * 4}
    (tmp_path / "values").mkdir()
    for name, right in values.items():
        arrays = {
            "values": np.array([[1, one] for one in right], dtype=np.float32),
            "clusters": np.arange(4),
            "metrics": np.array(METRICS),
            "pooled": np.array([False, False]),
            "in/all": np.arange(4),
            "numbers/all": np.array([np.nan, np.nan]),
        }
        named = {f"{BENCHMARK}/{key}": array for key, array in arrays.items()}
        np.savez_compressed(tmp_path / "values" / f"{name}.npz", **named)
    tables.write_tables(tmp_path, planned, tables.SECTIONS, tables.SHORT)
    found = pl.read_csv(tmp_path / "table.csv").filter(row="hn", metric="augmented_accuracy")
    assert found["value"].item() == pytest.approx((1 / 4 + 3 / 4) / 2)
    assert found["differences"].item().startswith("hp-hn: -0.5000 [")


def test_the_judgements_of_the_docs_are_whole() -> None:
    judged_columns = ("label", "english", "possible")
    for path in sorted((STUDIES.parent / "docs" / "generate" / "reading").glob("*.csv")):
        judged = pl.read_csv(path)
        assert judged.select(pl.col(judged_columns).is_in([0, 1]).all()).row(0) == (True,) * 3, path
        wrong = pl.any_horizontal(pl.col(judged_columns) == 0)
        assert judged.filter(wrong & pl.col("cause").is_null()).is_empty(), path
