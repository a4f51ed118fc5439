"""Samples of generated texts that readers judge, and what is kept of their judgements."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from counterpoint.generation.pairs import Pair, tabulate, write_pairs

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def reading() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "reading.py"))


def pair(number: int, method: str, refused: str = "") -> Pair:
    caption, text = f"a red dog number {number}", f"a blue dog number {number}"
    kind = "replace"
    return Pair(
        str(number), None, caption, text, "negative", kind, "att", method, "1", 0, (), refused
    )


def test_a_sample_has_as_many_of_each_method_and_does_not_depend_on_the_order(tmp_path, reading):
    made = [pair(n, method) for method in ("one", "two") for n in range(30)]
    made += [pair(n, "two", "meaning: near") for n in range(30, 60)]
    for name, order in (("a", made), ("b", made[::-1])):
        write_pairs(tmp_path / f"{name}.parquet", [tabulate(order)], {})
    one, two = (reading["sample"]([tmp_path / f"{name}.parquet"], 7) for name in "ab")
    assert one.equals(two)
    assert one.group_by("method").len().sort("method").rows() == [("one", 7), ("two", 7)]
    assert one.filter(pl.col("source").cast(pl.Int64) >= 30).is_empty()


def test_what_is_kept_has_the_change_and_no_caption(tmp_path, reading):
    write_pairs(tmp_path / "p.parquet", [tabulate([pair(n, "one") for n in range(4)])], {})
    sampled = reading["sample"]([tmp_path / "p.parquet"], 4)
    judged = pl.DataFrame(
        {"number": [0, 1, 2, 3], "label": [1, 1, 1, 0], "english": [1, 1, 0, 1],
         "possible": [1, 1, 1, 1], "cause": ["", "", "article", "same"]}
    )  # fmt: skip
    kept = reading["keep"](sampled, [judged])
    assert set(kept["edit"]) == {"red > blue"} and "caption" not in kept.columns
    assert "| negative | one | 4 | 3 | 3 | 4 | 2 | 50 % |" in reading["count"](kept)
    with pytest.raises(SystemExit, match="1 of 4"):
        reading["keep"](sampled, [judged.head(3)])


@pytest.mark.parametrize("name", ["coco", "coco-before", "flickr8k", "reference"])
def test_the_judgements_of_the_docs_are_whole(reading, name):
    judged = pl.read_csv(ROOT / "docs" / "generate" / "reading" / f"{name}.csv")
    assert judged.select(pl.col(*reading["JUDGED"]).is_in([0, 1]).all()).row(0) == (True,) * 3
    wrong = pl.any_horizontal(pl.col(*reading["JUDGED"]) == 0)
    assert judged.filter(wrong & pl.col("cause").is_null()).is_empty()
