"""Run folders that somebody else made: their hashes fit, and their content is not believed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from case_support import build
from changed_runs import change_manifest, change_table
from errors import raises
from fuzz_targets_core import some_run
from models_for_tests import is_sentence
from support import gallery, owned, part, run_of

from counterpoint.runs import load_run, rows, save_run, score_files

Change = Callable[[Any], Any]


@pytest.fixture(scope="module")
def right_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return some_run(tmp_path_factory.mktemp("right") / "run")


@pytest.fixture
def folder(right_run: Path, tmp_path: Path) -> Path:
    """A copy, to be damaged."""
    return Path(shutil.copytree(right_run, tmp_path / "run"))


def refuse(folder: Path, file: str = "run.json", **data: object) -> None:
    with raises("E-RUN-DAMAGED", folder / file, *data.values()) as error:
        load_run(folder)
    assert is_sentence(error.value) and len(str(error.value)) < 1000


# --- the manifest ------------------------------------------------------------------------------


def at(*path: str, to: Any) -> Change:
    """A change of one field."""

    def change(manifest: Any) -> None:
        for key in path[:-1]:
            manifest = manifest[key]
        manifest[path[-1]] = to

    return change


def without(key: str) -> Change:
    return lambda manifest: manifest["benchmarks"]["one"].pop(key)


ONE = ("benchmarks", "one")
DEEP: Any = []
for _ in range(400):
    DEEP = [DEEP]


WRONG_FIELDS: list[Change] = [
    at("files", to=[]),
    at("files", to={"cases.parquet": 3}),
    at("model", to=3),
    at("benchmarks", to=[]),
    at("benchmarks", to={"one": None}),
    at("created", to={}),
    at("command", to="counterpoint"),
    at("command", to=[1]),
    at("options", to=[]),
    at("fingerprint", to=None),
    at("model_info", to=[]),
    at("model_info", to={"notes": "x"}),
    at("model_info", to={"notes": [3]}),
    at("versions", to={"python": 3}),
    at("platform", to=DEEP),
    at(*ONE, "cases", to="5"),
    at(*ONE, "scored", to=True),
    at(*ONE, "pairs", to=-1),
    at(*ONE, "pairs", to=2**70),
    at(*ONE, "cut_captions", to=0.5),
    at(*ONE, "left_out", to={}),
    at(*ONE, "left_out", to=[["lost", "why"]]),
    at(*ONE, "left_out", to=[{"case_id": 3, "reason": "why"}]),
    at(*ONE, "left_out", to=[{"reason": "why"}]),
    at(*ONE, "lost_images", to=7),
    at(*ONE, "absent", to=[{"what": "file", "reason": "why"}]),
    at(*ONE, "absent", to=[{"what": "file", "reason": "why", "cases": -1}]),
    at(*ONE, "absent", to=[{"what": "file", "reason": "why", "cases": 1, "more": 1}]),
    at(*ONE, "data_hash", to=None),
    at(*ONE, "root", to=3),
    at(*ONE, "protocol", to="strict"),
    at(*ONE, "protocol", "tie", to="lucky"),
    at(*ONE, "protocol", "average", to="median"),
    at(*ONE, "protocol", "averages", to=["median"]),
    at(*ONE, "protocol", "averages", to="micro"),
    at(*ONE, "protocol", "caption_format", to="verse"),
    at(*ONE, "protocol", "exclude", to=[[]]),
    at(*ONE, "protocol", "min_count", to=None),
    at(*ONE, "protocol", "overlong", to=DEEP),
    at(*ONE, "protocol", "unknown", to=1),
    *map(without, ("protocol", "left_out", "cut_captions")),
]


def test_a_field_of_another_type_is_refused(folder: Path) -> None:
    right = (folder / "run.json").read_bytes()
    for change in WRONG_FIELDS:
        (folder / "run.json").write_bytes(right)
        change_manifest(folder, change)
        refuse(folder)


HOSTILE: list[str | bytes] = [
    '{"format": 1, "model": "m", "files": ' + "[" * 100_000,
    '{"format": ' + "9" * 5000 + "}",
    '{"format": 1, "model": "\\ud800"}',
    b"\xff\xfe",
    *("null", "", "{", "[]", "3", "{}", '{"format": 1}', '{"format": 1, "model": "m"}'),
]


def test_hostile_json_is_refused(folder: Path) -> None:
    for text in HOSTILE:
        (folder / "run.json").write_bytes(text if isinstance(text, bytes) else text.encode())
        refuse(folder)


def test_what_the_first_runs_did_not_have_may_be_missing(folder: Path) -> None:
    def strip(manifest: Any) -> None:
        for key in set(manifest) - {"format", "model", "files", "benchmarks"}:
            del manifest[key]
        for about in manifest["benchmarks"].values():
            del about["lost_images"], about["protocol"]["skip"]

    change_manifest(folder, strip)
    assert len(rows(load_run(folder), resamples=3)) > 0


def test_counts_must_be_those_of_the_tables(folder: Path) -> None:
    right = (folder / "run.json").read_bytes()
    for name in ("cases", "scored", "pairs"):
        (folder / "run.json").write_bytes(right)
        change_manifest(folder, at(*ONE, name, to=4))
        refuse(folder, "cases.parquet", field=name)


# --- the cases ---------------------------------------------------------------------------------


def with_lists(name: str, values: list[Any]) -> Change:
    """The same list in every row."""

    def change(table: pl.DataFrame) -> pl.DataFrame:
        return table.with_columns(pl.Series(name, [values] * len(table), table.schema[name]))

    return change


CASES: dict[str, Change] = {
    "a column less": lambda table: table.drop("truth"),
    "a column of another type": lambda table: table.with_columns(cluster=pl.lit(3)),
    "truth outside its shape": with_lists("truth", [99]),
    "truth below zero": with_lists("truth", [-1]),
    "no truth": with_lists("truth", []),
    "null truth": lambda table: table.with_columns(truth=pl.lit(None, dtype=pl.List(pl.Int32()))),
    "a null caption": with_lists("captions", [None, "b", "c"]),
    "a case twice": lambda table: pl.concat([table, table[:1]]),
    "a case less": lambda table: table[1:],
    "one id": lambda table: table.with_columns(id=pl.lit("same")),
    "another benchmark": lambda table: table.with_columns(benchmark=pl.lit("three")),
    "no benchmark": lambda table: table.with_columns(benchmark=pl.lit(None, dtype=pl.String())),
    "nothing": lambda table: table.clear(),
}


@pytest.mark.parametrize("what", CASES)
def test_cases_that_are_malformed_are_refused(what: str, folder: Path) -> None:
    change_table(folder, "cases.parquet", CASES[what])
    refuse(folder, "cases.parquet")


def test_captions_that_a_protocol_left_empty_are_kept(folder: Path) -> None:
    """ARO's clean-up leaves nothing of a caption of full stops."""
    change_table(
        folder,
        "cases.parquet",
        lambda table: table.with_columns(
            captions=pl.col("captions").list.eval(
                pl.when(pl.element() == "b a").then(pl.lit("")).otherwise(pl.element())
            )
        ),
    )
    load_run(folder)


# --- the scores --------------------------------------------------------------------------------


def with_scores(value: float | None) -> Change:
    return lambda table: table.with_columns(
        score=pl.when(pl.int_range(pl.len()) == 3).then(value).otherwise("score").cast(pl.Float32())
    )


SCORES: dict[str, Change] = {
    "rows in another order": lambda table: table.reverse(),
    "two rows exchanged": lambda table: table[[1, 0, *range(2, len(table))]],
    "ids in another order": lambda table: table.with_columns(table["case_id"].reverse()),
    "another id": lambda table: table.with_columns(
        case_id=pl.col("case_id").str.replace("square", "circle")
    ),
    "another image": lambda table: table.with_columns(pl.col("image") + 1),
    "another caption": lambda table: table.with_columns(pl.lit(0, pl.Int32()).alias("caption")),
    "another benchmark": lambda table: table.with_columns(benchmark=pl.lit("one")),
    "a row less": lambda table: table[:-1],
    "a row more": lambda table: pl.concat([table, table[-1:]]),
    "none": lambda table: table.clear(),
    "a column less": lambda table: table.drop("image"),
    "scores of another type": lambda table: table.with_columns(score=pl.lit("high")),
    "ids of another type": lambda table: table.with_columns(case_id=pl.lit(3)),
    "no number": with_scores(float("nan")),
    "infinity": with_scores(float("inf")),
    "a missing score": with_scores(None),
    "a missing id": lambda table: table.with_columns(case_id=pl.lit(None, dtype=pl.String())),
}


@pytest.mark.parametrize("what", SCORES)
def test_scores_that_are_not_those_of_the_cases_are_refused(what: str, folder: Path) -> None:
    change_table(folder, "scores.parquet", SCORES[what])
    refuse(folder, "scores.parquet")


@pytest.mark.slow
@pytest.mark.parametrize("piece", [1, 2, 7, 1000])
def test_scores_are_written_and_compared_in_pieces_of_any_size(
    piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(score_files, "_GROUP", piece)
    monkeypatch.setattr(score_files, "_READ", max(1, piece // 2))
    cases = build(gallery(owned(6, 3)), gallery(owned(5, 2), id="other"))
    scores = np.arange(cases.pair_offsets[-1], dtype=np.float32)
    saved = save_run(run_of(part(cases, scores, "strict", "gallery")), tmp_path / "run")
    found = load_run(saved.folder or tmp_path).parts["gallery"]
    np.testing.assert_array_equal(found.scores, scores)
    change_table(
        tmp_path / "run", "scores.parquet", lambda table: table[[*range(1, len(table)), 0]]
    )
    refuse(tmp_path / "run", "scores.parquet")
