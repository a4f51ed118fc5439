"""Images inside tables and images in pieces: the right pixels, one key a content, or a sentence."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engine_support import build
from hypothesis import given
from hypothesis import strategies as st
from models_for_tests import Judge, Towers, choice, is_sentence, noise, pixels, run_engine
from PIL import Image
from support import FEW

from counterpoint.cases import ImageRef
from counterpoint.errors import ImageError
from counterpoint.scoring import image_tables, pictures
from counterpoint.scoring.image_shuffles import PIECES, shuffled
from counterpoint.scoring.pictures import Picture
from counterpoint.scoring.store import Store

Box = tuple[int, int, int, int]
HOW = list(PIECES)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store") as opened:
        yield opened


@pytest.fixture(autouse=True)
def nothing_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test has read from a table is not what the next one reads."""
    monkeypatch.setattr(image_tables, "_GROUPS", image_tables._Groups())


def encoded(image: Image.Image) -> bytes:
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


def write_table(
    path: Path, seeds: Sequence[int | None], group: int = 3, column: str = "image"
) -> Path:
    """A table as the hub publishes it: a picture a seed, row groups of `group` rows."""
    cells = [
        None if seed is None else {"bytes": encoded(noise(seed)), "path": f"{seed}.png"}
        for seed in seeds
    ]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    table = pa.table({"id": list(range(len(seeds))), column: pa.array(cells, kind)})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=group)
    return path


def picture(root: Path | None, path: str, box: Box | None = None) -> Picture:
    return Picture(ImageRef(path, box), root)


def shown(root: Path | None, path: str, box: Box | None = None) -> np.ndarray:
    image = picture(root, path, box).open()
    assert image.mode == "RGB"
    return np.asarray(image)


def same(found: np.ndarray, image: Image.Image) -> bool:
    return found.shape == np.asarray(image).shape and bool((found == np.asarray(image)).all())


def refusal(root: Path, path: str, store: Store, *, key: bool = True) -> str:
    """Why there is no such image; `key` says whether its key is refused for the same reason."""
    with pytest.raises(ImageError) as error:
        picture(root, path).open()
    assert is_sentence(error.value), str(error.value)
    if key:
        with pytest.raises(ImageError) as no_key:
            picture(root, path).key(store)
        assert str(no_key.value) == str(error.value)
    return str(error.value)


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
    assert len(image_tables._GROUPS._held) <= image_tables._HELD


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
    with pytest.raises(ImageError, match="leads out of"):
        picture(root, "parquet:../t.parquet#image/0").open()


@pytest.mark.parametrize("column", ["image", "an image", "images/left", "0", "a.b"])
@pytest.mark.parametrize("name", ["a.parquet", "a#b.parquet", "#.parquet", "a b/c#1/d.parquet"])
def test_names_of_files_and_columns_may_have_signs_in_them(
    tmp_path: Path, name: str, column: str
) -> None:
    write_table(tmp_path / name, [3, 4], column=column)
    reference = f"parquet:{name}#{column}/1"
    assert same(shown(tmp_path, reference), noise(4))
    assert picture(tmp_path, reference).file() == tmp_path / name


def test_a_column_of_plain_bytes_is_read_too(tmp_path: Path) -> None:
    cells = pa.array([encoded(noise(1)), encoded(noise(2))], pa.binary())
    pq.write_table(pa.table({"jpg": cells}), tmp_path / "t.parquet")
    assert same(shown(tmp_path, "parquet:t.parquet#jpg/1"), noise(2))


def test_a_crop_of_a_cell_is_those_pixels(tmp_path: Path) -> None:
    write_table(tmp_path / "t.parquet", [1])
    found = shown(tmp_path, "parquet:t.parquet#image/0", (2, 1, 3, 4))
    assert (found == np.asarray(noise(1))[1:5, 2:5]).all()


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
    ("cell", "why"),
    [
        ("none.parquet#image/0", "no such file"),
        ("no/folder/t.parquet#image/0", "no such file"),
        ("t.parquet#picture/0", "no such cell"),
        ("t.parquet#image/5", "no such cell"),
        ("t.parquet#image/99999999999999999999", "no such cell"),
        ("t.parquet#image/1", "holds no image"),  # null
        ("t.parquet#id/0", "holds no image"),
        ("t.parquet#image/2", ""),  # bytes that are no picture
    ],
)
def test_what_is_not_there_is_refused(tmp_path: Path, store: Store, cell: str, why: str) -> None:
    cells = [{"bytes": data, "path": "x"} for data in (encoded(noise(0)), None, b"text")]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    cells = [cells[0], None, cells[2], cells[1]]
    table = pa.table({"id": [0, 1, 2, 3], "image": pa.array(cells, kind)})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=2)
    found = refusal(tmp_path, f"parquet:{cell}", store, key=bool(why))
    assert why in found
    assert "t.parquet" in found or "none.parquet" in found
    refusal(tmp_path, "parquet:t.parquet#image/3", store)  # a cell, but no bytes in it


@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"this is no table\n" * 10, b"PAR1" + b"x" * 100 + b"PAR1"]
)
def test_what_is_no_table_is_refused(tmp_path: Path, store: Store, content: bytes) -> None:
    (tmp_path / "t.parquet").write_bytes(content)
    assert "t.parquet" in refusal(tmp_path, "parquet:t.parquet#image/0", store)


@pytest.mark.parametrize("share", [0.2, 0.6, 0.95])
def test_a_table_that_was_cut_short_is_refused(tmp_path: Path, store: Store, share: float) -> None:
    path = write_table(tmp_path / "t.parquet", range(6))
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    assert "t.parquet" in refusal(tmp_path, "parquet:t.parquet#image/0", store)


def test_a_folder_is_no_table(tmp_path: Path, store: Store) -> None:
    (tmp_path / "t.parquet").mkdir()
    assert "t.parquet" in refusal(tmp_path, "parquet:t.parquet#image/0", store)


def test_a_name_with_a_null_character_is_no_table(tmp_path: Path, store: Store) -> None:
    refusal(tmp_path, "parquet:t\0.parquet#image/0", store, key=False)


@pytest.mark.parametrize(
    "reference",
    [
        "parquet:",
        "parquet:t.parquet",
        "parquet:t.parquet#image",
        "parquet:t.parquet#image/",
        "parquet:t.parquet#image/x",
        "parquet:t.parquet#image/-1",
        "parquet:t.parquet#/0",
        "parquet:#image/0",
        "parquet:t.parquet/0",
    ],
)
def test_a_malformed_cell_is_refused(tmp_path: Path, store: Store, reference: str) -> None:
    write_table(tmp_path / "t.parquet", [0])
    found = refusal(tmp_path, reference, store)
    assert repr(reference) in found and "parquet:FILE#COLUMN/ROW" in found


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


# --- keys --------------------------------------------------------------------------------------


def test_the_same_bytes_have_the_same_key(tmp_path: Path, store: Store) -> None:
    write_table(tmp_path / "a.parquet", [1, 2, 1], 1)
    write_table(tmp_path / "b" / "c.parquet", [9, 9, 9, 1], 4)
    noise(1).save(tmp_path / "1.png")
    assert (tmp_path / "1.png").read_bytes() == encoded(noise(1))
    keys = [
        picture(tmp_path, path).key(store)
        for path in (
            "1.png",
            "parquet:a.parquet#image/0",
            "parquet:a.parquet#image/2",
            "parquet:b/c.parquet#image/3",
        )
    ]
    assert len(set(keys)) == 1
    others = [
        picture(tmp_path, "parquet:a.parquet#image/1").key(store),
        picture(tmp_path, "parquet:a.parquet#image/0", (0, 0, 2, 2)).key(store),
        picture(tmp_path, "parquet:b/c.parquet#image/0").key(store),
    ]
    assert len({keys[0], *others}) == 4


def test_every_shuffle_has_its_own_key(tmp_path: Path, store: Store) -> None:
    noise(1).save(tmp_path / "a.png")
    noise(2).save(tmp_path / "b.png")
    shutil.copy(tmp_path / "a.png", tmp_path / "copy.png")
    references = [
        "a.png",
        "b.png",
        *(f"shuffle-{how}:{seed}:a.png" for how in HOW for seed in (0, 1, 11)),
        "shuffle-rows:1:b.png",
        "shuffle-rows:1:shuffle-rows:1:a.png",
        "shuffle-rows:1:shuffle-columns:1:a.png",
    ]
    keys = {picture(tmp_path, path).key(store) for path in references}
    assert len(keys) == len(references)
    cropped = picture(tmp_path, "shuffle-rows:1:a.png", (0, 0, 2, 2)).key(store)
    assert cropped not in keys
    copies = {
        picture(tmp_path, f"shuffle-rows:1:{path}").key(store)
        for path in ("a.png", "copy.png", str(tmp_path / "a.png"))
    }
    assert len(copies) == 1 and copies < keys


class Reads:
    """Counts what is read from files and from tables."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        read, cell = pictures._read, pictures._cell_bytes

        def of_file(path: Path) -> bytes:
            self.names.append(path.name)
            return read(path)

        def of_cell(path: Path, column: str, row: int) -> bytes:
            self.names.append(f"{path.name} {row}")
            return cell(path, column, row)

        monkeypatch.setattr(pictures, "_read", of_file)
        monkeypatch.setattr(pictures, "_cell_bytes", of_cell)


def test_a_warm_store_reads_nothing_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_table(tmp_path / "t.parquet", range(4), 2)
    noise(9).save(tmp_path / "a.png")
    names = [f"parquet:t.parquet#image/{row}" for row in range(4)]
    names += [f"shuffle-{how}:{seed}:a.png" for how in HOW for seed in (1, 2)]
    names.append("shuffle-rows:1:parquet:t.parquet#image/0")
    cases = build(*(choice(name, name, "yes", "no") for name in names), root=tmp_path)
    reads = Reads(monkeypatch)
    first, again = Towers(), Towers()
    cold = run_engine(first, {"bench": cases}, tmp_path / "store")["bench"]
    assert cold.left_out == {}
    expected = {pixels(picture(tmp_path, name).open()) for name in names}
    assert sorted(first.images) == sorted(expected)
    reads.names.clear()
    warm = run_engine(again, {"bench": cases}, tmp_path / "store")["bench"]
    assert reads.names == [] and again.images == []
    np.testing.assert_array_equal(warm.scores, cold.scores)
    judged = run_engine(Judge(), {"bench": cases}, tmp_path / "store")["bench"]
    reads.names.clear()
    run_engine(Judge(), {"bench": cases}, tmp_path / "store")
    assert reads.names == [] and np.isfinite(judged.scores).all()


def test_the_seeds_of_a_picture_are_read_for_one_digest(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise(9).save(tmp_path / "a.png")
    reads = Reads(monkeypatch)
    for seed in range(5):
        picture(tmp_path, f"shuffle-rows:{seed}:a.png").key(store)
    assert reads.names == ["a.png"]


# --- shuffles ----------------------------------------------------------------------------------


def cut(square: np.ndarray, how: str) -> list[bytes]:
    """The pieces of a square, from left to right and top to bottom."""
    down, across = {"rows": (4, 1), "columns": (1, 4), "patches": (3, 3)}[how]
    height, width = len(square) // down, len(square) // across
    return [
        square[i * height : (i + 1) * height, j * width : (j + 1) * width].tobytes()
        for i in range(down)
        for j in range(across)
    ]


def middle(image: Image.Image) -> np.ndarray:
    """The square from the middle of a picture."""
    width, height = image.size
    side = min(width, height)
    x, y = (width - side) // 2, (height - side) // 2
    return np.asarray(image)[y : y + side, x : x + side]


@pytest.mark.parametrize("how", HOW)
@FEW
@given(st.integers(0, 1000), st.integers(9, 40), st.integers(9, 40))
def test_the_pieces_are_those_of_the_middle_square(
    how: str, seed: int, width: int, height: int
) -> None:
    image = noise(seed, (width, height))
    found = np.asarray(shuffled(image, how, seed))
    square = middle(image)
    assert found.shape == square.shape and found.dtype == np.uint8
    assert sorted(cut(found, how)) == sorted(cut(square, how))
    # What does not divide is black, and nothing else is changed.
    down, across = PIECES[how]
    side = len(square)
    assert not found[side // down * down :].any() and not found[:, side // across * across :].any()


@pytest.mark.parametrize("how", HOW)
def test_a_seed_is_an_order(how: str) -> None:
    image = noise(3, (24, 24))
    first, again = (np.asarray(shuffled(image, how, 5)) for _ in range(2))
    assert (first == again).all()
    orders = {np.asarray(shuffled(image, how, seed)).tobytes() for seed in range(30)}
    assert len(orders) > 15  # of 24 orders, or of 9!
    # The order is the seed's, whatever the picture shows.
    other = noise(4, (24, 24))
    places = [
        cut(np.asarray(other), how).index(p) for p in cut(np.asarray(shuffled(other, how, 5)), how)
    ]
    assert [cut(np.asarray(image), how)[i] for i in places] == cut(first, how)


@pytest.mark.parametrize("how", HOW)
def test_a_shuffle_is_a_reference_like_any_other(tmp_path: Path, how: str) -> None:
    noise(8, (31, 20)).save(tmp_path / "a.png")
    write_table(tmp_path / "t.parquet", [8])
    reference = f"shuffle-{how}:7:a.png"
    expected = np.asarray(shuffled(noise(8, (31, 20)), how, 7))
    assert (shown(tmp_path, reference) == expected).all()
    assert (shown(tmp_path, reference, (3, 2, 9, 8)) == expected[2:10, 3:12]).all()
    inside = np.asarray(shuffled(noise(8), how, 7))
    assert (shown(tmp_path, f"shuffle-{how}:7:parquet:t.parquet#image/0") == inside).all()
    twice = np.asarray(shuffled(shuffled(noise(8, (31, 20)), "rows", 1), how, 7))
    assert (shown(tmp_path, f"shuffle-{how}:7:shuffle-rows:1:a.png") == twice).all()
    assert picture(tmp_path, reference).file() == tmp_path / "a.png"
    inner = picture(tmp_path, f"shuffle-{how}:7:parquet:t.parquet#image/0")
    assert inner.file() == tmp_path / "t.parquet"


def test_a_world_can_be_shuffled(store: Store) -> None:
    from counterpoint.world.scene import sample_scene

    code = f"world:{sample_scene(np.random.default_rng(0)).code()}"
    plain, mixed = picture(None, code), picture(None, f"shuffle-patches:1:{code}")
    expected = np.asarray(shuffled(plain.open(), "patches", 1))
    assert (np.asarray(mixed.open()) == expected).all()
    assert plain.key(store) != mixed.key(store) and mixed.file() is None


@pytest.mark.parametrize(
    "reference",
    [
        "shuffle-",
        "shuffle-rows",
        "shuffle-rows:",
        "shuffle-rows:1",
        "shuffle-rows:1:",
        "shuffle-rows::a.png",
        "shuffle-rows:x:a.png",
        "shuffle-rows:-1:a.png",
        "shuffle-rows:1.5:a.png",
        "shuffle-:1:a.png",
        "shuffle-pixels:1:a.png",
        "shuffle-Rows:1:a.png",
        "shuffle-rows:1:shuffle-pixels:1:a.png",
    ],
)
def test_a_malformed_shuffle_is_refused(tmp_path: Path, store: Store, reference: str) -> None:
    noise(0).save(tmp_path / "a.png")
    found = refusal(tmp_path, reference, store)
    assert reference[-12:] in found and "shuffle-rows|columns|patches:SEED:REFERENCE" in found


@pytest.mark.parametrize(
    ("inner", "why"),
    [
        ("gone.png", "no such file"),
        ("../a.png", "leads out of"),
        ("parquet:gone.parquet#image/0", "no such file"),
        ("parquet:a.png", "parquet:FILE#COLUMN/ROW"),
    ],
)
def test_a_shuffle_of_nothing_is_refused(
    tmp_path: Path, store: Store, inner: str, why: str
) -> None:
    assert why in refusal(tmp_path, f"shuffle-rows:1:{inner}", store)


def test_a_shuffle_of_a_broken_picture_is_refused(tmp_path: Path, store: Store) -> None:
    (tmp_path / "b.png").write_bytes(encoded(noise(0))[:60])
    refusal(tmp_path, "shuffle-rows:1:b.png", store, key=False)


# --- texts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["a dog", "a/b", "..", "one\nand two", "x" * 5000, "ends here."])
def test_a_text_is_no_picture(tmp_path: Path, store: Store, text: str) -> None:
    found = refusal(tmp_path, f"text:{text}", store)
    assert "text" in found and "no such file" not in found
    assert picture(tmp_path, f"text:{text}").file() is None
