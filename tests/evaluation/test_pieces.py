"""Tables in pieces: whatever the size of a piece, a run has the same bytes and the same numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from columns_support import zoo
from errors import raises
from hypothesis import given, settings, strategies as st
from models_for_tests import Judge, Reader, Towers, naive_vector, write_images
from support import FEW, part, random_scores, run_of, write_lines

from counterpoint import evaluate, load_run
from counterpoint.cases import spilling
from counterpoint.cases.files import read_cases, write_cases
from counterpoint.cases.spilling import SpillingTable
from counterpoint.cases.table import Case, Cases, ImageRef
from counterpoint.metrics import protocols
from counterpoint.runs import Run, compare, rows
from counterpoint.runs.columns import columns_of
from counterpoint.runs.folders import save_run
from counterpoint.runs.packed import PackedTable
from counterpoint.runs.results import members_in

COUNT = 23
FILES = ("cases.parquet", "scores.parquet")
WHOLE = 1000  # more cases than any table here has


@pytest.fixture(autouse=True)
def whole_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test sets is set back."""
    monkeypatch.setattr(spilling, "PIECE", WHOLE)


class ExactTowers(Towers):
    """Its vectors do not depend on the batch, as those of a network do in their last bits."""

    def _encode(self, contents: Sequence[str]) -> np.ndarray:
        return np.stack([naive_vector(content) for content in contents]).astype(np.float32)


MODELS = {"dual": lambda: ExactTowers(context=9), "pair": Judge, "blind": Reader}


def mixed(folder: Path) -> Path:
    """A case file with shapes that alternate, long captions, shared captions, and a lost image."""
    names = [f"{n}.png" for n in range(7)]
    write_images(folder, *names)
    rng, made = np.random.default_rng(3), []
    for number in range(COUNT):
        k, m = [(1, 2), (1, 3), (2, 2), (1, 5)][number % 4]
        images = tuple(ImageRef(names[i]) for i in rng.choice(len(names), k, replace=False))
        if number == 13:
            images = (ImageRef("lost.png"), *images[1:])
        texts = [" ".join(["so"] * (n % 7)) + f" caption {n}" for n in rng.choice(12, m, False)]
        truth = [[i == j or (m == 3 and j == 1) for j in range(m)] for i in range(k)]
        groups = (f"kind/{number % 3}",) if number % 5 else ()
        cells = tuple(map(tuple, truth))
        made.append(Case(f"case {number}", images, tuple(texts), cells, groups))
    for name, some in (("mixed", made), ("small", made[:4]), ("few", made[5:8])):
        write_cases(Cases.build(some, root=folder, source="test"), folder / f"{name}.parquet")
    return folder / "mixed.parquet"


def evaluated(path: Path, kind: str, piece: int, **options: Any) -> Run:
    spilling.PIECE = piece
    place = path.parent / f"{kind}-{piece}"
    benchmarks = [path.with_name("small.parquet"), path, path.with_name("few.parquet")]
    return evaluate(
        (kind, MODELS[kind]()),
        benchmarks,
        out=place / "run",
        store=place / "store",
        progress=None,
        **options,
    )


def told(run: Run) -> str:
    assert run.folder is not None
    return json.dumps(json.loads((run.folder / "run.json").read_text())["benchmarks"])


def same(one: Run, two: Run) -> None:
    assert one.folder is not None and two.folder is not None
    for name in FILES:
        assert (one.folder / name).read_bytes() == (two.folder / name).read_bytes()
    assert told(one) == told(two)
    assert repr(rows(one, resamples=20)) == repr(rows(two, resamples=20))


@pytest.mark.parametrize("kind", list(MODELS))
@pytest.mark.parametrize("protocol", ["strict", "crepe"])
def test_any_piece_gives_the_same_run(
    tmp_path: Path, kind: str, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = mixed(tmp_path)
    monkeypatch.setattr(protocols, "_ONLY", {})  # CREPE's cuts captions; its cases are others
    whole = evaluated(path, kind, WHOLE, protocol=protocol)
    assert bool(whole.left_out) == (kind != "blind")
    other = evaluated(path, "pair", WHOLE, protocol=protocol)
    expected = repr(compare(whole, other, resamples=20))
    for piece in (2, 9, COUNT - 1):
        run = evaluated(path, kind, piece, protocol=protocol)
        same(run, whole)
        assert repr(compare(load_run(run.folder), other, resamples=20)) == expected  # type: ignore[arg-type]


def test_cut_captions_are_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = mixed(tmp_path)
    monkeypatch.setattr(protocols, "_ONLY", {})
    whole = evaluated(path, "dual", WHOLE, protocol="crepe")
    assert whole.parts[str(path)].cut_captions == 1  # of twelve
    assert evaluated(path, "dual", 2, protocol="crepe").parts[str(path)].cut_captions == 1


@pytest.mark.parametrize("limit", [1, 4, 11])
def test_a_limit_takes_the_same_cases(tmp_path: Path, limit: int) -> None:
    path = mixed(tmp_path)
    same(*(evaluated(path, "dual", piece, limit=limit) for piece in (3, WHOLE)))


def test_no_step_reads_a_large_table_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = SpillingTable.whole

    def whole(self: SpillingTable) -> Any:
        assert len(self) <= spilling.PIECE, "all cases are in memory"
        return right(self)

    monkeypatch.setattr(SpillingTable, "whole", whole)
    path = mixed(tmp_path)
    run = evaluated(path, "dual", 4)
    run.results(groups=True, resamples=50)
    again = load_run(run.folder)  # type: ignore[arg-type]
    again.results(resamples=50)
    run.compare(again, resamples=50)
    with pytest.raises(AssertionError, match="in memory"):
        _ = again.parts[str(path)].cases.frame


def test_models_of_whole_tables_are_not_cut(tmp_path: Path) -> None:
    """Random scores are drawn for a table, in order."""
    path = mixed(tmp_path)
    found = []
    for piece in (2, WHOLE):
        spilling.PIECE = piece
        place = tmp_path / f"random-{piece}"
        found.append(evaluate("random", path, out=place, store=tmp_path / "store", progress=None))
    same(*found)


# --- the table -----------------------------------------------------------------------------------


@FEW
@given(piece=st.integers(1, 9), sizes=st.lists(st.integers(0, 7), min_size=1, max_size=6))
def test_rows_come_back_in_pieces_as_they_were_added(piece: int, sizes: list[int]) -> None:
    spilling.PIECE, frame, start = piece, zoo().frame, 0
    table = SpillingTable()
    frame = Cases(frame).frame[np.arange(sum(sizes)) % len(frame)]
    for number, size in enumerate(sizes):
        some = frame[start : start + size]
        table.add(some.drop("groups") if number % 2 else some)
        start += size
    expected = frame.with_columns(groups=frame["groups"])
    whole = table.whole()
    pieces = list(table.pieces())
    assert [len(one) for one in pieces[:-1]] == [piece] * (len(pieces) - 1)
    assert sum(map(len, pieces)) == len(table) == len(whole) == sum(sizes)
    assert whole.drop("groups").equals(expected.drop("groups"))
    assert spilling.joined(pieces).equals(whole)
    ids = [one["id"] for one in table.pieces(columns=["id"])]
    assert [id for one in ids for id in one] == expected["id"].to_list()


@FEW
@given(piece=st.integers(1, 30), chosen=st.sets(st.integers(0, COUNT - 1)))
def test_cases_in_pieces_are_the_table(
    piece: int, chosen: set[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    spilling.PIECE = WHOLE
    path = mixed(tmp_path_factory.mktemp("cases"))
    whole = read_cases(path)
    spilling.PIECE = piece
    cases = read_cases(path)
    assert cases.content_hash() == whole.content_hash()
    assert cases.ids.to_list() == whole.frame["id"].to_list()
    for name in ("image_counts", "caption_counts", "pair_offsets"):
        assert np.array_equal(getattr(cases, name), getattr(whole, name))
    assert np.array_equal(cases.truth_flat(), whole.truth_flat())
    rows = np.array(sorted(chosen), dtype=np.int64)
    assert cases.take(rows).frame.equals(whole.frame[rows])
    assert cases.limit(7).frame.equals(whole.limit(7).frame)
    assert cases.frame.equals(whole.frame)


def line(id: str, **more: Any) -> str:
    case = {"id": id, "images": ["a.jpg"], "captions": ["x", "y"], "truth": [[True, False]]}
    return json.dumps({**case, **more})


@pytest.mark.parametrize("piece", [1, 2, WHOLE])
def test_rows_of_the_file_are_named(tmp_path: Path, piece: int) -> None:
    spilling.PIECE = piece
    ids = ["a", "b", "c", "b", "d", "a", "a"]
    path = write_lines(tmp_path / "repeated.jsonl", *map(line, ids))
    with raises("E-CASE-DUPLICATE", "a") as caught:
        read_cases(path)
    assert "5 rows share an id" in str(caught.value)
    path = write_lines(tmp_path / "bad.jsonl", *map(line, "abc"), line("d", captions=["", "y"]))
    with raises("E-CAPTION-EMPTY", 4, "d"):
        read_cases(path)


def test_ids_of_one_hash_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import polars as pl

    monkeypatch.setattr(pl.Series, "hash", lambda self: pl.zeros(len(self), pl.UInt64, eager=True))
    spilling.PIECE = 2
    path = write_lines(tmp_path / "cases.jsonl", *map(line, "abcde"))
    assert read_cases(path).ids.to_list() == list("abcde")
    path = write_lines(tmp_path / "twice.jsonl", *map(line, "abcdc"))
    with raises("E-CASE-DUPLICATE", "c"):
        read_cases(path)


def test_no_room_for_the_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spilling.PIECE = 2
    monkeypatch.setattr(spilling.tempfile, "tempdir", str(tmp_path / "nowhere"))
    path = write_lines(tmp_path / "cases.jsonl", *map(line, "abcde"))
    with raises("E-OUTPUT-UNWRITABLE", str(tmp_path / "nowhere")):
        read_cases(path)


# --- numbers -------------------------------------------------------------------------------------


@settings(FEW, max_examples=10)
@given(piece=st.integers(1, 8), seed=st.integers(0, 99))
def test_every_kind_of_case_is_measured_alike(piece: int, seed: int) -> None:
    spilling.PIECE = WHOLE
    cases = zoo()
    whole = part(cases, random_scores(cases, seed, 40))
    expected, members = columns_of(whole, "half"), members_in(cases, whole.protocol)
    spilling.PIECE = piece
    found = columns_of(whole, "half")
    assert found.metrics == expected.metrics
    for name in ("values", "ties", "chance", "cases", "clusters"):
        one, two = getattr(found, name)[:], getattr(expected, name)[:]
        assert np.array_equal(one, two, equal_nan=True)
    again = members_in(cases, whole.protocol)
    assert list(again) == list(members)
    assert all(np.array_equal(again[label], members[label]) for label in members)


def test_a_saved_run_is_the_same_file(tmp_path: Path) -> None:
    cases = zoo()
    run = run_of(
        part(cases, random_scores(cases, 1)), part(cases, random_scores(cases, 2), name="b")
    )
    saved = []
    for piece in (3, WHOLE):
        spilling.PIECE = piece
        saved.append(save_run(run, tmp_path / str(piece)))
    same(*saved)


NUMBERS = st.sampled_from([0.0, 0.5, 1.0, np.nan, 1 / 3, 0.1, float(np.float32(0.1)), -2.0])


@FEW
@given(parts=st.lists(st.lists(NUMBERS, max_size=9), min_size=1, max_size=4), data=st.data())
def test_packed_numbers_are_the_numbers(parts: list[list[float]], data: st.DataObject) -> None:
    table = PackedTable(2)
    for some in parts:
        table.add([np.array(some), np.arange(len(some)) / 3])
    flat = [np.concatenate(parts), np.concatenate([np.arange(len(some)) / 3 for some in parts])]
    plain = np.stack(flat, axis=1)
    assert table.shape == plain.shape
    place = st.integers(0, max(0, len(plain) - 1))
    rows = np.array(data.draw(st.lists(place)) if len(plain) else [], dtype=np.int64)
    for one in (rows, np.sort(rows), slice(None), slice(1, 3), plain[:, 1] > 0):
        for column in (0, 1, slice(None), [1], [True, False]):
            expected = plain[one][:, column]
            assert np.array_equal(table[one, column], expected, equal_nan=True)
    assert np.array_equal(table[rows], plain[rows], equal_nan=True)


def test_many_values_are_packed_exactly() -> None:
    rng = np.random.default_rng(0)
    columns = [
        rng.normal(size=5000),
        rng.normal(size=5000).astype(np.float32).astype(float),
        np.repeat([0.0, 7.0], [4999, 1]),  # the last value is seen late
    ]
    table = PackedTable(3)
    table.add(columns)
    assert np.array_equal(table[:], np.stack(columns, axis=1))
