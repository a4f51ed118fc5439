"""Images inside tables: the right pixels, also of tables that change, or a sentence."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from errors import raises
from image_support import encoded, nothing_held, picture, refusal, same, shown, store, write_table
from models_for_tests import noise

from counterpoint._util.store import Store
from counterpoint.images import files

__all__ = ["nothing_held", "store"]  # fixtures

# --- tables ------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [1, 3, 4, 100])
def test_a_cell_is_the_picture_of_its_row(tmp_path: Path, group: int) -> None:
    write_table(tmp_path / "deep" / "t.parquet", range(10), group)
    assert pq.ParquetFile(tmp_path / "deep" / "t.parquet").metadata.num_row_groups == -(
        -10 // group
    )
    for row in np.random.default_rng(0).permutation(10).tolist():
        assert same(shown(tmp_path, f"parquet:deep/t.parquet#image/{row}"), noise(row))


def test_cells_of_several_files_and_columns(tmp_path: Path) -> None:
    """More row groups than are held at a time, asked for in turns."""
    for file in range(3):
        write_table(tmp_path / f"{file}.parquet", range(10 * file, 10 * file + 6), 2)
    two = pq.read_table(tmp_path / "0.parquet").append_column(
        "other", pq.read_table(tmp_path / "1.parquet")["image"]
    )
    pq.write_table(two, tmp_path / "two.parquet", row_group_size=2)
    for row in (0, 5, 2, 0):
        for file in range(3):
            assert same(
                shown(tmp_path, f"parquet:{file}.parquet#image/{row}"), noise(10 * file + row)
            )
        assert same(shown(tmp_path, f"parquet:two.parquet#image/{row}"), noise(row))
        assert same(shown(tmp_path, f"parquet:two.parquet#other/{row}"), noise(10 + row))
    assert len(files._GROUPS._held) <= files._GROUPS_HELD


def test_a_table_may_lie_anywhere_that_a_file_may(tmp_path: Path) -> None:
    root = tmp_path / "data"
    write_table(tmp_path / "t.parquet", [7])
    root.mkdir()
    (root / "link.parquet").symlink_to("../t.parquet")
    for found in (
        shown(None, f"parquet:{tmp_path / 't.parquet'}#image/0"),
        shown(root, f"parquet:{tmp_path / 't.parquet'}#image/0"),
        shown(root, "parquet:link.parquet#image/0"),
    ):
        assert same(found, noise(7))
    with raises("E-PATH-OUTSIDE", "../t.parquet"):
        picture(root, "parquet:../t.parquet#image/0").open()


def test_names_of_files_and_columns_may_have_signs_in_them(tmp_path: Path) -> None:
    for name in ("a.parquet", "a#b.parquet", "#.parquet", "a b/c#1/d.parquet"):
        for column in ("image", "an image", "images/left", "0", "a.b"):
            write_table(tmp_path / name, [3, 4], column=column)
            reference = f"parquet:{name}#{column}/1"
            assert same(shown(tmp_path, reference), noise(4))
            assert picture(tmp_path, reference).file() == tmp_path / name
    cells = pa.array([encoded(noise(1)), encoded(noise(2))], pa.binary())
    pq.write_table(pa.table({"jpg": cells}), tmp_path / "bytes.parquet")
    assert same(shown(tmp_path, "parquet:bytes.parquet#jpg/1"), noise(2))


@pytest.mark.slow
def test_threads_read_what_they_ask_for(tmp_path: Path) -> None:
    """Many more row groups than are held, and eight threads that ask in their own order."""
    for file in range(2):
        write_table(tmp_path / f"{file}.parquet", range(100 * file, 100 * file + 24), 2)

    def wrong(seed: int) -> list[tuple[int, int]]:
        rng = np.random.default_rng(seed)
        asked = [(int(rng.integers(2)), int(rng.integers(24))) for _ in range(40)]
        return [
            (file, row)
            for file, row in asked
            if not same(
                shown(tmp_path, f"parquet:{file}.parquet#image/{row}"), noise(100 * file + row)
            )
        ]

    with ThreadPoolExecutor(8) as pool:
        assert [error for found in pool.map(wrong, range(8)) for error in found] == []


def test_a_row_group_is_read_once_for_rows_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_table(tmp_path / "t.parquet", range(12), 4)
    read, groups = pq.ParquetFile.read_row_group, []

    def counted(self: pq.ParquetFile, number: int, **options: object) -> pa.Table:
        groups.append(number)
        return read(self, number, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
    for row in range(12):
        picture(tmp_path, f"parquet:t.parquet#image/{row}").open()
    assert groups == [0, 1, 2]


# --- what is no cell ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cell",
    [
        "none.parquet#image/0",
        "no/folder/t.parquet#image/0",
        "t.parquet#picture/0",
        "t.parquet#image/5",
        "t.parquet#image/99999999999999999999",
        "t.parquet#image/1",  # null
        "t.parquet#id/0",
        "t.parquet#image/3",  # no bytes in it
    ],
)
def test_what_is_not_there_is_refused(tmp_path: Path, store: Store, cell: str) -> None:
    cells = [{"bytes": data, "path": "x"} for data in (encoded(noise(0)), None, b"text")]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    cells = [cells[0], None, cells[2], cells[1]]
    table = pa.table({"id": [0, 1, 2, 3], "image": pa.array(cells, kind)})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=2)
    assert refusal(tmp_path, f"parquet:{cell}", store) == "E-IMAGE-MISSING"
    found = refusal(tmp_path, "parquet:t.parquet#image/2", store, key=False)
    assert found == "E-IMAGE-BROKEN"  # bytes that are no picture


def test_what_is_no_whole_table_is_refused(tmp_path: Path, store: Store) -> None:
    whole = write_table(tmp_path / "t.parquet", range(6)).read_bytes()
    cut = (whole[: int(len(whole) * share)] for share in (0.2, 0.6, 0.95))
    for content in (b"", b"PAR1", b"PAR1" + b"x" * 100 + b"PAR1", *cut):
        (tmp_path / "t.parquet").write_bytes(content)
        assert refusal(tmp_path, "parquet:t.parquet#image/0", store) == "E-IMAGE-UNREADABLE"


def test_a_malformed_cell_is_refused(tmp_path: Path, store: Store) -> None:
    write_table(tmp_path / "t.parquet", [0])
    ends = ("", "#image", "#image/", "#image/x", "#image/-1", "#/0", "/0")
    for reference in ("parquet:", "parquet:#image/0", *(f"parquet:t.parquet{end}" for end in ends)):
        assert refusal(tmp_path, reference, store) == "E-IMAGE-REFERENCE"


# --- tables that change ------------------------------------------------------------------------


def test_a_table_that_changes_is_read_again(tmp_path: Path, store: Store) -> None:
    write_table(tmp_path / "t.parquet", [1, 2])
    reference = "parquet:t.parquet#image/0"
    before = picture(tmp_path, reference).key(store)
    assert same(shown(tmp_path, reference), noise(1))
    write_table(tmp_path / "t.parquet", [3, 2, 5])
    assert same(shown(tmp_path, reference), noise(3))
    assert picture(tmp_path, reference).key(store) != before
    write_table(tmp_path / "t.parquet", [1, 2])
    assert picture(tmp_path, reference).key(store) == before


def test_a_change_is_seen_although_size_and_time_stay(tmp_path: Path, store: Store) -> None:
    """Archives unpack with the times of their making, so the modification time proves nothing."""
    path, reference = tmp_path / "t.parquet", "parquet:t.parquet#image/0"
    tables = {seed: write_table(path, [seed]).read_bytes() for seed in range(20)}
    one, two = next(
        (a, b) for a in tables for b in tables if a < b and len(tables[a]) == len(tables[b])
    )
    path.write_bytes(tables[one])
    times = path.stat()
    before = picture(tmp_path, reference).key(store)
    path.write_bytes(tables[two])
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert picture(tmp_path, reference).key(store) != before
    assert same(shown(tmp_path, reference), noise(two))
