"""The positives that come with the package: keyed by case id, one a case."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import polars as pl
import pytest

from counterpoint.benchmarks import BENCHMARKS

FILES = sorted(Path(str(resources.files("counterpoint.benchmarks") / "shipped")).glob("*.parquet"))


def test_they_are_of_benchmarks_whose_licence_allows_it() -> None:
    ids = {id.replace("/", "-"): id for id in BENCHMARKS.names()}
    assert {path.stem for path in FILES} == {"aro-coco-order", "sugarcrepe", "vl-checklist"}
    for path in FILES:
        licence = BENCHMARKS.get(ids[path.stem]).licence
        assert licence == "MIT" or licence.startswith("CC BY")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_they_are_small_and_whole(path: Path) -> None:
    assert path.stat().st_size < 512 * 1024
    table = pl.read_parquet(path)
    assert table.schema == {"case_id": pl.String, "text": pl.String}
    assert len(table) > 4_000
    assert table["case_id"].is_unique().all()
    assert table["text"].str.strip_chars().str.len_chars().min() > 2
