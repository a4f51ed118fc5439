"""Files of cases, JSON Lines and Parquet: what they keep, and what is refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from case_support import build, some_case
from errors import raises
from hypothesis import given, strategies as st
from models_for_tests import is_sentence
from support import FEW, case, square, table, write_lines

from counterpoint._util.errors import CaseError
from counterpoint.benchmarks.registry import load_benchmark
from counterpoint.cases import (
    SCHEMA,
    Case,
    Cases,
    ImageRef,
    caption_case,
    files,
    read_cases,
    write_cases,
)

LINE = {"id": "a", "images": ["x.jpg"], "captions": ["yes", "no"], "truth": [[1, 0]]}


def read_line(folder: Path, **changes: object) -> Cases:
    good = json.dumps({**LINE, "id": "good"})
    path = write_lines(folder / "cases.jsonl", good, json.dumps({**LINE, **changes}))
    return read_cases(path)


def test_a_file_is_read_some_rows_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors name the row of the file, and only some rows need have an optional column."""
    monkeypatch.setattr(files, "CHUNK", 2)
    rows = [{**LINE, "id": id} for id in "abcde"] + [{**LINE, "id": "f", "grades": [[1, 2]]}]
    path = write_lines(tmp_path / "cases.jsonl", *map(json.dumps, rows))
    found = read_cases(path)
    assert found.ids.to_list() == list("abcdef")
    assert found.graded().tolist() == [False] * 5 + [True]
    write_lines(path, *map(json.dumps, [*rows, rows[1]]))
    with raises("E-CASE-DUPLICATE", "rows 2 and 7", "b"):
        read_cases(path)
    write_lines(path, *map(json.dumps, [*rows[:3], {**LINE, "captions": ["", "y"]}]))
    with raises("E-CAPTION-EMPTY", "row 4"):
        read_cases(path)


# --- JSON Lines --------------------------------------------------------------------------------


def test_lines_are_read_with_their_defaults(tmp_path: Path) -> None:
    found = read_line(
        tmp_path,
        images=["x.jpg", {"path": "y.jpg", "box": [1, 2, 3, 4]}],
        truth=[[True, False], [0, 1]],
        groups=["swap/obj"],
    )
    expected = Case(
        "a",
        (ImageRef("x.jpg"), ImageRef("y.jpg", (1, 2, 3, 4))),
        ("yes", "no"),
        ((True, False), (False, True)),
        ("swap/obj",),
        "x.jpg",  # the first image is the cluster if none is named
    )
    assert found.case(1) == expected
    assert found.case(0).groups == ()
    assert found.root == tmp_path


def test_blank_lines_are_skipped_and_counted(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "c.jsonl", "", json.dumps(LINE), "  ", '{"id": ')
    with raises("E-JSON-INVALID", f"{path}: line 4"):
        read_cases(path)
    assert len(read_cases(write_lines(path, "", json.dumps(LINE), " "))) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"truth": [1, 0]},
        {"truth": None},
        {"images": [None]},
        {"images": [{"box": [1, 2, 3, 4]}]},
        {"images": [{"path": "x", "box": [1, 2, 3]}]},
        {"images": [{"path": "x", "box": ["a", 1, 2, 3]}]},
        {"captions": None},
        {"captions": ["yes", None]},
        {"groups": "replace/obj"},
        {"id": None},
    ],
    ids=str,
)
def test_a_line_that_is_no_case_is_refused(changes: dict, tmp_path: Path) -> None:
    with raises("E-CASE-MALFORMED", 2):
        read_line(tmp_path, **changes)


def test_a_line_of_another_shape_is_refused(tmp_path: Path) -> None:
    with raises("E-TRUTH-SHAPE", 2):
        read_line(tmp_path, truth=[[1, 0, 0]])
    with raises("E-CASE-NO-IMAGE", 2):
        read_line(tmp_path, images=[], truth=[])


@pytest.mark.parametrize("key", ["id", "images", "captions", "truth"])
def test_a_missing_key_is_named(key: str, tmp_path: Path) -> None:
    line = json.dumps({name: value for name, value in LINE.items() if name != key})
    with raises("E-CASE-MALFORMED", 1, key):
        read_cases(write_lines(tmp_path / "c.jsonl", line))


def test_a_null_cluster_is_none_at_all(tmp_path: Path) -> None:
    """Cases without a cluster are independent; as one cluster they would have no interval."""
    assert read_line(tmp_path, cluster=None).case(1).cluster == "x.jpg"


def test_a_file_of_another_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "latin.jsonl"
    line = json.dumps({**LINE, "captions": ["un café", "no"]}, ensure_ascii=False)
    path.write_bytes(line.encode("latin-1"))
    with raises("E-TEXT-ENCODING", path):
        read_cases(path)


# --- files -------------------------------------------------------------------------------------


def test_a_missing_file_and_a_wrong_suffix_are_named(tmp_path: Path) -> None:
    with raises("E-FILE-MISSING", tmp_path / "none.parquet"):
        read_cases(tmp_path / "none.parquet")
    with raises("E-FILE-FORMAT", tmp_path / "c.csv"):
        read_cases(write_lines(tmp_path / "c.csv", "id"))
    with raises("E-FILE-MISSING"):
        read_cases(tmp_path)


@pytest.mark.parametrize("name", SCHEMA.names())
def test_a_missing_column_is_named(name: str, tmp_path: Path) -> None:
    path = tmp_path / "c.parquet"
    table(4).frame.drop(name).write_parquet(path)
    with raises("E-COLUMN-MISSING", path, name):
        read_cases(path)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_file_is_refused(share: float, tmp_path: Path) -> None:
    path = tmp_path / "c.parquet"
    write_cases(table(50), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with raises("E-FILE-MALFORMED", path):
        read_cases(path)


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.parquet"
    table(4).frame.clear().write_parquet(path)
    with raises("E-BENCHMARK-EMPTY", str(path)):
        read_cases(path)


def test_parquet_keeps_everything(tmp_path: Path) -> None:
    boxed = replace(case(7), images=(ImageRef("é.jpg", (0, 1, 20, 30)),), groups=("a/b", "c"))
    before = build(case(0), square(1), boxed, replace(case(3), cluster="elsewhere"))
    write_cases(before, tmp_path / "c.parquet")
    after = read_cases(tmp_path / "c.parquet")
    assert after.frame.equals(before.frame)
    assert after.case(2) == replace(boxed, cluster="é.jpg")
    assert after.content_hash() == before.content_hash()


def test_parquet_written_with_other_widths_is_read(tmp_path: Path) -> None:
    """Other writers use large integers and add columns."""
    path = tmp_path / "c.parquet"
    before = table(6).frame
    wide = before.with_columns(pl.col("truth").cast(pl.List(pl.Int64())), more=pl.lit(1))
    wide.select("more", *reversed(SCHEMA.names())).write_parquet(path)
    assert read_cases(path).frame.equals(before)


def as_line(found: Case) -> str:
    images = [{"path": i.path, "box": i.box} for i in found.images]
    values = {"id": found.id, "images": images, "captions": found.captions, "truth": found.truth}
    return json.dumps({**values, "groups": found.groups, "cluster": found.cluster})


@pytest.mark.slow
@FEW
@given(found=st.lists(some_case(), min_size=1, max_size=4))
def test_any_case_survives_a_table_and_both_files(
    found: list[Case], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("files")
    numbered = [replace(one, id=str(i)) for i, one in enumerate(found)]
    built = build(*numbered)
    write_cases(built, folder / "c.parquet")
    lines = write_lines(folder / "c.jsonl", *map(as_line, numbered))
    for cases in (built, read_cases(folder / "c.parquet"), read_cases(lines)):
        assert [cases.case(i) for i in range(len(cases))] == numbered


# --- hostile lines -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("truth", "said"),
    [
        ([["true", "false"]], "'true'"),
        ([[1.0, 0.0]], "1.0"),
        ([[2, 0]], "2"),
        ([[None, True]], "None"),
        ([[[], True]], r"\[\]"),
    ],
)
def test_truth_is_true_or_false(truth: object, said: str, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "c.jsonl", json.dumps(LINE | {"truth": truth}))
    with raises("E-CASE-MALFORMED", 1, "truth"):
        read_cases(path)


def test_truth_may_be_zeros_and_ones(tmp_path: Path) -> None:
    numbers = json.dumps(LINE | {"truth": [[1, 0]], "captions": ["a", "b"]})
    words = json.dumps(LINE | {"truth": [[True, False]], "captions": ["a", "b"]})
    one, two = (
        read_cases(write_lines(tmp_path / f"{n}.jsonl", line))
        for n, line in enumerate([numbers, words])
    )
    assert one.frame.equals(two.frame)


@pytest.mark.parametrize(
    "line",
    [
        '{"id": "\\ud800"}',
        "[" * 100_000,
        '{"id": ' + "9" * 5000 + "}",
        json.dumps(LINE | {"images": [{"path": "a.png", "box": [0, 0, 1, 2**31]}]}),
        json.dumps(LINE | {"images": [{"path": "a.png", "box": [-(2**31) - 1, 0, 1, 1]}]}),
        json.dumps(LINE | {"images": [{"path": "a.png", "box": [0] * 100_000}]}),
        json.dumps(LINE | {"captions": "x" * 1_000_000}),
        json.dumps(LINE | {"truth": [[True]] * 100_000}),
    ],
    ids=range(8),
)
def test_hostile_lines_are_refused_in_a_short_sentence(line: str, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "c.jsonl", line)
    with pytest.raises(CaseError) as error:
        read_cases(path)
    assert is_sentence(error.value) and len(str(error.value)) < 1000


def test_cases_that_the_table_cannot_hold_are_named() -> None:
    good = [caption_case(str(n), ImageRef("a.png"), ["yes"], ["no"]) for n in range(3)]
    for bad in (
        caption_case("bad", ImageRef("a.png", (0, 0, 1, 2**40)), ["yes"], ["no"]),
        caption_case("bad", ImageRef("a.png"), ["\ud800"], ["no"]),
    ):
        with raises("E-CASE-MALFORMED", "bad") as error:
            Cases.build([*good, bad, *good], source="the test")
        assert is_sentence(error.value)


def test_a_mark_before_the_first_line_is_accepted(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "c.jsonl", json.dumps(LINE))
    expected = read_cases(path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_cases(path).frame.equals(expected.frame)


@pytest.mark.parametrize("name", ["cases.json", "cases.csv", "cases.tsv"])
def test_another_ending_is_told_which_there_are(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("[]")
    with raises("E-FILE-FORMAT", tmp_path / name):
        load_benchmark(str(tmp_path / name))


def test_texts_that_are_not_utf_8_are_refused(tmp_path: Path) -> None:
    """pyarrow writes and reads them, and polars would take them for texts."""
    path = tmp_path / "c.parquet"
    frame = table(4).frame
    captions = frame["captions"].list.eval(pl.lit("MARK")).alias("captions")
    frame.with_columns(captions).write_parquet(path, compression="uncompressed")
    path.write_bytes(path.read_bytes().replace(b"MARK", b"M\xff\xfeK"))
    with raises("E-FILE-MALFORMED", path):
        read_cases(path)
