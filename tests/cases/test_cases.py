"""The case table: what it refuses, what it keeps, and how much memory it takes."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from case_support import build, some_case
from errors import raises
from hypothesis import given, strategies as st
from support import FEW, case, square, table

from counterpoint._util.errors import CaseError
from counterpoint.cases import (
    SCHEMA,
    Case,
    Cases,
    ImageRef,
    caption_case,
    read_cases,
    table as module,
)

ROW = {
    "id": "bad",
    "images": [{"path": "x.jpg", "box": None}],
    "captions": ["yes", "no"],
    "truth": [0],
    "groups": ["g"],
    "cluster": "x",
}


def read_rows(folder: Path, *rows: dict) -> Cases:
    """Write rows to Parquet as they are, so that only reading can refuse them."""
    path = folder / "cases.parquet"
    pl.DataFrame(rows, schema=SCHEMA).write_parquet(path)
    return read_cases(path)


# --- refusals ----------------------------------------------------------------------------------

MALFORMED = json.loads(Path(__file__).with_name("malformed_rows.json").read_text())


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_row_is_refused_and_named(what: str, tmp_path: Path) -> None:
    changes, code = MALFORMED[what]
    bad = {**ROW, **changes}
    rows = [{**ROW, "id": f"good-{i}"} for i in range(3)]
    with raises(code, str(tmp_path / "cases.parquet"), 4, bad["id"]):
        read_rows(tmp_path, *rows, bad)


def test_the_first_bad_row_is_named_whatever_is_wrong_with_it(tmp_path: Path) -> None:
    no_caption, no_truth = {**ROW, "captions": ["", "no"]}, {**ROW, "id": "first", "truth": []}
    with raises("E-CASE-NO-POSITIVE", 2, "first"):
        read_rows(tmp_path, {**ROW, "id": "good"}, no_truth, no_caption)


def test_rows_are_numbered_over_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 2)
    rows = [{**ROW, "id": f"good-{i}"} for i in range(5)]
    with raises("E-CAPTION-EMPTY", 6, "bad"):
        read_rows(tmp_path, *rows, {**ROW, "captions": ["", "no"]})
    with raises("E-CAPTION-EMPTY", 4, "case-3"):
        build(case(0), case(1), case(2), replace(case(3), captions=("a", "", "c")))


def test_what_is_null_is_refused_or_usable(tmp_path: Path) -> None:
    """Groups and clusters that are null must not break what comes later."""
    for changes in ({"groups": None}, {"cluster": None}, {"cluster": ""}):
        try:
            found = read_rows(tmp_path, {**ROW, **changes})
        except CaseError:
            continue
        assert found.frame["groups"].null_count() == 0
        assert found.case(0).cluster


@pytest.mark.parametrize(
    "truth", [((True, False),) * 2, ((True,),), ((True, False, False),), (), ((True, False), ())]
)
def test_truth_of_another_shape_is_refused(truth: tuple) -> None:
    bad = Case("odd", (ImageRef("x"),), ("yes", "no"), truth)
    with raises("E-TRUTH-SHAPE", "odd"):
        build(case(0), bad)


def test_a_case_without_images_is_refused() -> None:
    with raises("E-CASE-NO-IMAGE", 2, "odd"):
        build(case(0), Case("odd", (), ("yes", "no"), ()))


def test_a_repeated_id_is_refused_with_both_rows() -> None:
    with raises("E-CASE-DUPLICATE", "case-1"):
        build(case(0), case(1), case(2), case(1))


def test_no_cases_are_refused() -> None:
    with raises("E-BENCHMARK-EMPTY", "the test"):
        build()


# --- the table ---------------------------------------------------------------------------------


def test_a_caption_case_has_its_original_first() -> None:
    made = caption_case("a", ImageRef("x"), ["c", "p"], ["n"], ("g",))
    assert made.captions == ("c", "p", "n")
    assert made.truth == ((True, True, False),)
    assert build(made).case(0).cluster == "x"


def mixed() -> Cases:
    return build(case(0), square(1), case(2), case(3, negatives=2), square(4), case(5))


def test_blocks_hold_every_case_once_with_its_truth() -> None:
    found = {block.truth.shape[1:]: block for block in mixed().blocks()}
    assert {shape: block.rows.tolist() for shape, block in found.items()} == {
        (1, 3): [0, 2, 5],
        (1, 4): [3],
        (2, 2): [1, 4],
    }
    assert found[1, 4].truth.tolist() == [[[True, True, False, False]]]
    assert found[2, 2].truth.tolist() == [[[True, False], [False, True]]] * 2


@pytest.mark.slow
@FEW
@given(found=st.lists(some_case(), min_size=1, max_size=6))
def test_blocks_agree_with_the_cases_one_by_one(found: list[Case]) -> None:
    cases = build(*(replace(one, id=str(i)) for i, one in enumerate(found)))
    seen = {}
    for block in cases.blocks():
        for row, truth in zip(block.rows.tolist(), block.truth.tolist(), strict=True):
            seen[row] = tuple(tuple(line) for line in truth)
    assert seen == {i: one.truth for i, one in enumerate(found)}
    flat = [cell for one in found for line in one.truth for cell in line]
    assert cases.truth_flat().tolist() == flat


def test_pairs_are_numbered_case_by_case_image_by_image() -> None:
    cases = build(case(0, 1, 1), square(1), case(2))
    assert cases.pair_offsets.tolist() == [0, 2, 6, 9]
    assert cases.pairs().captions.tolist() == [0, 1, 2, 3, 2, 3, 4, 5, 6]
    layout = cases.layout()
    assert layout.lines(np.array([2, 1])).tolist() == [1, 2, 3]
    found = layout.pairs(np.array([3, 1, 2]))
    assert found.cases.tolist() == [2, 2, 2, 1, 1, 1, 1]
    assert found.images.tolist() == [3, 3, 3, 1, 1, 2, 2]
    assert found.captions.tolist() == [4, 5, 6, 2, 3, 2, 3]
    assert found.places.tolist() == [6, 7, 8, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("most", "pairs", "expected"),
    [(9, 99, [[0, 1, 2, 3]]), (2, 99, [[0, 1], [2, 3]]), (9, 4, [[0], [1, 2], [3]]), (1, 1, None)],
)
def test_lines_come_in_pieces(most: int, pairs: int, expected: list[list[int]] | None) -> None:
    layout = build(case(0, 1, 1), square(1), case(2)).layout()
    found = [piece.tolist() for piece in layout.pieces(np.arange(4), most, pairs)]
    assert found == (expected or [[0], [1], [2], [3]])


def test_keeping_some_rows() -> None:
    cases = mixed()
    kept = cases.keep(np.array([True, False, True, False, False, True]))
    assert kept.ids.to_list() == ["case-0", "case-2", "case-5"]


# --- limits ------------------------------------------------------------------------------------


def shares(cases: Cases) -> dict[str, float]:
    counts = Counter(label for labels in cases.frame["groups"].to_list() for label in labels)
    return {label: count / len(cases) for label, count in counts.items()}


def in_groups(labels: list[str]) -> Cases:
    return build(*(case(i, group=label) for i, label in enumerate(labels)))


@pytest.mark.parametrize("count", [10, 34, 50, 99])
def test_a_limit_keeps_the_shares_of_sorted_groups(count: int) -> None:
    cases = in_groups(["a"] * 50 + ["b"] * 30 + ["c"] * 20)
    limited = cases.limit(count)
    assert len(limited) == count
    assert limited.ids.n_unique() == count
    for label, share in shares(cases).items():
        assert shares(limited)[label] == pytest.approx(share, abs=1.5 / count)


@pytest.mark.parametrize("count", [10, 34, 50])
def test_a_limit_keeps_the_shares_of_groups_that_take_turns(count: int) -> None:
    """Many files list an image's cases one after another; even steps may always hit one kind."""
    cases = in_groups([label for _ in range(33) for label in "abc"] + ["a"])
    limited = shares(cases.limit(count))
    for label, share in shares(cases).items():
        assert limited.get(label, 0) == pytest.approx(share, abs=3 / count), label


def test_a_limit_beyond_the_table_is_no_limit() -> None:
    cases = table(10)
    assert cases.limit(10).frame.equals(cases.frame)
    assert len(cases.limit(1000)) == 10
    assert cases.limit(1).ids.to_list()[0] in cases.ids.to_list()


# --- the hash ----------------------------------------------------------------------------------

CHANGES = {
    "id": {"id": "other"},
    "image": {"images": (ImageRef("other.jpg"),)},
    "box": {"images": (ImageRef("images/0.jpg", (0, 0, 1, 1)),)},
    "caption": {"captions": ("true caption 0 of 0", "true caption 1 of 0", "other")},
    "caption order": {
        "captions": ("true caption 1 of 0", "true caption 0 of 0", "false caption 0 of 0")
    },
    "truth": {"truth": ((True, False, False),)},
    "group": {"groups": ("other",)},
    "cluster": {"cluster": "other"},
}


@pytest.mark.parametrize("what", CHANGES)
def test_the_hash_changes_with_anything(what: str) -> None:
    changed = build(replace(case(0), **CHANGES[what]), case(1))
    assert changed.content_hash() != build(case(0), case(1)).content_hash()


def test_the_hash_changes_with_order_and_length() -> None:
    hashes = {
        build(*made).content_hash() for made in ([case(0), case(1)], [case(1), case(0)], [case(0)])
    }
    assert len(hashes) == 3


def test_the_hash_is_pinned_and_defined_by_the_content() -> None:
    """Runs of other versions hold it: it is the same whatever library writes the lines."""
    odd = Case(
        "é/1",
        (ImageRef('a b/"1".jpg', (1, 2, 3, 4)), ImageRef("text:x\\y")),
        ("a\u2028b\x07\t\n\U0001f600", "one\x1etwo", "</b>\x7f"),
        ((True, False, True), (False, False, False)),
        ("g", "h"),
    )
    plain = build(odd, case(0))
    graded = plain.frame.with_columns(
        grades=pl.Series([[0.5, 0.1], None], dtype=pl.List(pl.Float32)),
        query=pl.Series(["q", None]),
        queries=pl.Series([[0, 2], None], dtype=pl.List(pl.Int32)),
        questions=pl.Series([2, None], dtype=pl.Int32),
    )
    for cases, expected in (
        (plain, "93c01fec3a1ff02317b6b869ad26e0b594d24716f0da8be1ac055ff02aed3d46"),
        (Cases(graded), "a08f4ae192a5cd438b5cace6f6d8d5b7a55bf72fa9cf6a9a618abf0cd9c488c3"),
    ):
        rows = cases.frame.to_dicts()
        for row in rows:
            if row.get("grades"):
                row["grades"] = [float(str(np.float32(grade))) for grade in row["grades"]]
        lines = (json.dumps(row, separators=(",", ":"), ensure_ascii=False) for row in rows)
        defined = "".join(f"{line}\n" for line in lines).encode()
        assert cases.content_hash() == hashlib.sha256(defined).hexdigest() == expected


def test_the_hash_is_that_of_the_content_not_of_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = table(20)
    pieces = Cases(pl.concat([whole.frame[:7], whole.frame[7:]], rechunk=False), Path("elsewhere"))
    expected = whole.content_hash()
    assert pieces.frame.n_chunks() == 2
    assert pieces.content_hash() == expected
    monkeypatch.setattr(module, "CHUNK", 3)
    assert pieces.content_hash() == expected
    assert table(20).content_hash() == expected


# --- memory ------------------------------------------------------------------------------------

MILLION = 1_000_000
READ = """
import resource, sys
from pathlib import Path
from counterpoint.cases.files import read_cases
count = len(read_cases(Path(sys.argv[1])))
status = Path("/proc/self/status")
if status.exists():  # getrusage would count what the parent held when it started this process
    peak = 1024 * int(status.read_text().split("VmHWM:")[1].split()[0])
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(count, peak)
"""


def many(count: int) -> pl.DataFrame:
    """One image, an original, a hard positive and a hard negative to a case."""
    number, image = pl.col("number"), pl.col("number") // 3
    captions = [
        pl.format(f"a small red {noun} to the left of a striped ball, number {{}}", number)
        for noun in ("cube", "block", "cone")
    ]
    no_box = pl.lit(None, dtype=pl.Array(pl.Int32(), 4)).alias("box")
    return pl.DataFrame({"number": pl.int_range(count, eager=True)}).select(
        pl.format("case-{}", number).alias("id"),
        pl.concat_list(pl.struct(pl.format("images/{}.jpg", image).alias("path"), no_box)).alias(
            "images"
        ),
        pl.concat_list(captions).alias("captions"),
        pl.concat_list(pl.lit(i, dtype=pl.Int32()) for i in (0, 1)).alias("truth"),
        pl.concat_list(pl.format("replace/{}", number % 5)).alias("groups"),
        pl.format("image-{}", image).alias("cluster"),
    )


@pytest.mark.slow
def test_a_million_cases_fit_in_a_gibibyte(tmp_path: Path) -> None:
    """In a process of its own, since the peak of this one belongs to other tests."""
    path = tmp_path / "many.parquet"
    many(MILLION).write_parquet(path)
    command = [sys.executable, "-c", READ, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    count, peak = map(int, done.stdout.split())
    assert count == MILLION
    assert peak < 2**30
