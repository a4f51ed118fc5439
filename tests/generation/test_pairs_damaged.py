"""Pairs files that others have made or changed: every verb reads them, or says one sentence."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from errors import raises

from counterpoint._util.errors import DataError
from counterpoint._util.progress import Quiet
from counterpoint._util.store import Store
from counterpoint.cases.table import ImageRef
from counterpoint.generation.export import export_benchmark, export_training
from counterpoint.generation.export.hub import export_hub
from counterpoint.generation.images.backends import DrawSettings
from counterpoint.generation.images.candidates import make_images
from counterpoint.generation.images.world import WorldBackend
from counterpoint.generation.pairs import Pair, read_about, read_pairs, tabulate, write_pairs
from counterpoint.generation.refinement import RefineSettings, refine
from counterpoint.scoring.kinds import Work

SCENE = "world:0.508;small,orange,solid,triangle,0.519,0.505;large,yellow,dotted,heart,0.843,0.817"
PAIR = ("negative", "replace", "obj", "m", "1", 5)


@pytest.fixture
def frame() -> pl.DataFrame:
    image = ImageRef(SCENE, (0, 0, 9, 9))
    return tabulate([Pair(f"{n}", image, "a dog", f"a cat {n}", *PAIR) for n in range(4)])


def _refine(pairs: Path, out: Path) -> None:
    with Store(out.parent / "store") as store:
        refine(pairs, out, RefineSettings(("length",)), Work(store, 8, Quiet()))


def _images(pairs: Path, out: Path) -> None:
    make_images(pairs, out, WorldBackend(DrawSettings(), Quiet()), None)


VERBS: dict[str, Callable[[Path, Path], object]] = {
    "benchmark": lambda pairs, out: export_benchmark([pairs], out, Counter()),
    "training": lambda pairs, out: export_training([pairs], out, Counter()),
    "hub": lambda pairs, out: export_hub([pairs], out.with_suffix(""), Counter()),
    "refine": _refine,
    "images": _images,
}


@pytest.mark.parametrize("verb", VERBS)
def test_what_must_be_there_is_named_with_its_row(
    tmp_path: Path, frame: pl.DataFrame, verb: str
) -> None:
    for column in ("source", "caption", "text", "kind", "type"):
        bad = pl.when(pl.col("text") == "a cat 2").then(None).otherwise(column)
        write_pairs(tmp_path / "p.parquet", [frame.with_columns(bad.alias(column))], {})
        with raises("E-ROW-MALFORMED", tmp_path / "p.parquet", 3, column):
            VERBS[verb](tmp_path / "p.parquet", tmp_path / "out.parquet")
        assert not (tmp_path / "out.parquet").exists()


@pytest.mark.parametrize("verb", VERBS)
def test_nulls_that_do_not_matter_are_empty(tmp_path: Path, frame: pl.DataFrame, verb: str) -> None:
    names = ["image", "box", "subtype", "start", "end", "method", "version", "seed", "refused"]
    names += ["checks", "scores", "text_images", "text_image"]
    if verb == "benchmark":
        names.remove("image")
    write_pairs(
        tmp_path / "p.parquet", [frame.with_columns(pl.lit(None).alias(n) for n in names)], {}
    )
    VERBS[verb](tmp_path / "p.parquet", tmp_path / "out.parquet")
    table = read_pairs(tmp_path / "p.parquet")
    assert set(table["method"]) == {""} and len(table) == 4


@pytest.mark.parametrize("verb", VERBS)
def test_nulls_in_lists_are_left_out(tmp_path: Path, frame: pl.DataFrame, verb: str) -> None:
    lists = {"checks": ["x", None], "scores": [None, {"name": None, "value": None}]}
    lists["text_images"] = [None, {"path": None, "seed": None, "score": None}]
    columns = [
        pl.Series(name, [value] * 4, dtype=frame[name].dtype) for name, value in lists.items()
    ]
    write_pairs(tmp_path / "p.parquet", [frame.with_columns(columns)], {})
    VERBS[verb](tmp_path / "p.parquet", tmp_path / "sub" / "out.parquet")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (pl.lit("neutral").alias("kind"), "E-ROW-MALFORMED"),
        (
            pl.Series("box", [[1, 2, None, 4]] * 4, dtype=pl.Array(pl.Int32, 4)),
            "E-ROW-MALFORMED",
        ),
        (pl.lit("many").alias("seed"), "E-FILE-MALFORMED"),
        (pl.lit(2**40).alias("start"), "E-FILE-MALFORMED"),
        (pl.lit("x").alias("checks"), "E-FILE-MALFORMED"),
    ],
)
def test_values_of_another_kind(
    tmp_path: Path, frame: pl.DataFrame, change: Any, code: str
) -> None:
    frame.with_columns(change).write_parquet(tmp_path / "p.parquet")
    with raises(code, tmp_path / "p.parquet") as caught:
        read_pairs(tmp_path / "p.parquet")
    assert len(str(caught.value)) < 500


METADATA = [
    b"[",
    b"\xff",
    b"5",
    b"[[" * 50_000,
    b'{"a": "\\ud800"}',
    b'{"counts": 5}',
    b'{"counts": [["a", "b"]]}',
    b'{"counts": [["a", "b", "c"]]}',
    b'{"refined": 5}',
    b'{"refined": [5]}',
    json.dumps(["x" * 1_000_000]).encode(),
]


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_metadata_that_nobody_wrote(tmp_path: Path, frame: pl.DataFrame, verb: str) -> None:
    path = tmp_path / "p.parquet"
    write_pairs(path, [frame], {})
    table = pq.read_table(path)
    for about in METADATA:
        pq.write_table(table.replace_schema_metadata({b"counterpoint": about}), path)
        with pytest.raises(DataError, match="its metadata") as caught:
            VERBS[verb](path, tmp_path / "out.parquet")
        assert len(str(caught.value)) < 500
        with pytest.raises(DataError):
            read_about(path)


@pytest.mark.parametrize("verb", VERBS)
def test_other_parquet_files(tmp_path: Path, verb: str) -> None:
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "p.parquet")
    with raises("E-COLUMN-MISSING", "source"):
        VERBS[verb](tmp_path / "p.parquet", tmp_path / "out.parquet")
