"""The store: what is put is kept, by any number of processes, and damage is said in a sentence."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import lmdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models_for_tests import is_sentence
from support import FEW

from counterpoint.errors import StoreError
from counterpoint.scoring import store as store_module
from counterpoint.scoring.store import DIGEST, Store, default_store, digest

SMALL = 1 << 16  # bytes: a map that is full soon
ITEM = 3000


def key(*parts: object) -> bytes:
    return digest(*map(str, parts))


def fill(folder: Path, count: int = 300) -> Path:
    """A store of several hundred pages; returns its data file."""
    with Store(folder) as opened:
        for start in range(0, count, 10):
            opened.put({key(n): bytes([n % 256]) * ITEM for n in range(start, start + 10)})
    return folder / "data.mdb"


# --- one process -------------------------------------------------------------------------------


def test_what_is_put_is_found(tmp_path: Path) -> None:
    with Store(tmp_path) as opened:
        opened.put({key(1): b"one", key(2): b"", key(3): bytes(range(256))})
        assert opened.get([key(3), key(9), key(1), key(2)]) == [
            bytes(range(256)),
            None,
            b"one",
            b"",
        ]
        assert opened.has(key(2)) and not opened.has(key(9))
        opened.put({key(1): b"other"})
        assert opened.get([key(1)]) == [b"other"]
        opened.put({})
        assert opened.get([]) == []


def test_missing_names_each_key_once_in_order(tmp_path: Path) -> None:
    with Store(tmp_path) as opened:
        opened.put({key(2): b""})
        asked = [key(n) for n in (5, 2, 1, 5, 3, 1)]
        assert opened.missing(iter(asked)) == [key(5), key(1), key(3)]


@FEW
@given(st.lists(st.dictionaries(st.binary(min_size=1, max_size=3), st.binary(max_size=9))))
def test_a_store_is_a_dictionary_that_lasts(
    tmp_path_factory: pytest.TempPathFactory, puts: list[dict[bytes, bytes]]
) -> None:
    folder, expected = tmp_path_factory.mktemp("store"), dict[bytes, bytes]()
    for items in puts:
        with Store(folder) as opened:
            opened.put(items)
        expected |= items
    with Store(folder) as opened:
        assert opened.get(list(expected)) == list(expected.values())


def test_the_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    fill(folder, 10)
    with Store(folder) as opened:
        assert opened.get([key(7)]) == [bytes([7]) * ITEM]


def test_it_grows_past_its_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_START_SIZE", SMALL)
    file = fill(tmp_path)
    assert file.stat().st_size > 10 * SMALL
    with Store(tmp_path) as opened:
        assert opened.get([key(n) for n in range(300)]) == [
            bytes([n % 256]) * ITEM for n in range(300)
        ]


def test_one_value_may_be_larger_than_the_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_START_SIZE", SMALL)
    value = os.urandom(20 * SMALL)
    with Store(tmp_path) as opened:
        opened.put({key("small"): b"1", key("large"): value, key("after"): b"2"})
        assert opened.get([key("small"), key("large"), key("after")]) == [b"1", value, b"2"]


def test_a_put_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    with Store(tmp_path) as opened:
        with pytest.raises(StoreError) as error:
            opened.put({key(1): b"good", b"": b"LMDB takes no empty key", key(2): b"good"})
        assert is_sentence(error.value) and str(tmp_path) in str(error.value)
        assert opened.missing([key(1), key(2)]) == [key(1), key(2)]
        opened.put({key(1): b"later"})
        assert opened.has(key(1))


def test_threads_may_write_while_it_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's workers note the digests of files while the main thread commits batches."""
    monkeypatch.setattr(store_module, "_START_SIZE", SMALL)
    failures: list[BaseException] = []

    def work(opened: Store, thread: int) -> None:
        try:
            for n in range(60):
                opened.put({key(thread, n): bytes([thread]) * ITEM})
                assert opened.has(key(thread, n))
                opened.get([key(other, n) for other in range(8)])
        except BaseException as error:
            failures.append(error)

    with Store(tmp_path) as opened:
        threads = [threading.Thread(target=work, args=(opened, n)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert opened.missing(key(t, n) for t in range(8) for n in range(60)) == []


def test_the_default_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERPOINT_CACHE", "elsewhere")
    assert default_store() == Path("elsewhere/store")
    monkeypatch.setenv("COUNTERPOINT_CACHE", "")
    assert default_store().parts[-2:] == ("counterpoint", "store")


# --- two processes -----------------------------------------------------------------------------

CHILD = """
import sys
from pathlib import Path
from counterpoint.scoring import store
store._START_SIZE = int(sys.argv[2])
key = lambda *parts: store.digest(*map(str, parts))
with store.Store(Path(sys.argv[1])) as opened:
    print("ready", flush=True)
    for n in range(150):
        opened.put({key("child", n, i): bytes([i]) * int(sys.argv[3]) for i in range(3)})
    print(sum(opened.has(key("parent", n)) for n in range(1000)))
"""


def test_two_processes_write_and_grow_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_START_SIZE", SMALL)
    command = [sys.executable, "-c", CHILD, str(tmp_path), str(SMALL), str(ITEM)]
    with (
        Store(tmp_path) as opened,
        subprocess.Popen(command, stdout=subprocess.PIPE) as child,
    ):
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        opened.put({key("parent", 0): bytes(ITEM)})
        mine = 1
        while child.poll() is None or mine < 100:
            opened.put({key("parent", mine): bytes(ITEM)})
            mine += 1
            halves = [opened.missing(key("child", n, i) for i in range(3)) for n in range(150)]
            assert {len(absent) for absent in halves} <= {0, 3}  # a commit is seen whole
        assert child.returncode == 0
        assert int(child.stdout.read()) > 0  # the child sees what this process wrote
        expected = [bytes([i]) * ITEM for _ in range(150) for i in range(3)]
        assert opened.get([key("child", n, i) for n in range(150) for i in range(3)]) == expected
    with Store(tmp_path) as opened:
        assert opened.missing(key("parent", n) for n in range(mine)) == []


# --- damage ------------------------------------------------------------------------------------

READ = """
import sys
from pathlib import Path
from counterpoint.errors import StoreError
from counterpoint.scoring.store import Store, digest
try:
    with Store(Path(sys.argv[1])) as opened:
        if sys.argv[2] == "missing":
            opened.missing([digest(str(n)) for n in range(300)])
        elif sys.argv[2] == "get":
            opened.get([digest(str(n)) for n in range(300)])
        elif sys.argv[2] == "has":
            [opened.has(digest(str(n))) for n in range(300)]
        else:
            opened.put({digest(str(n)): bytes(3000) for n in range(300)})
except StoreError as error:
    print(error)
"""


def use(folder: Path, how: str) -> tuple[int, str, str]:
    """Use a damaged store in another process, which the damage may kill; returns what it says."""
    command = [sys.executable, "-c", READ, str(folder), how]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def refused(answer: tuple[int, str, str], folder: Path) -> bool:
    status, out, errors = answer
    return status == 0 and errors == "" and is_sentence(out.rstrip("\n")) and str(folder) in out


@pytest.mark.parametrize("garbage", [b"garbage" * 100, bytes(200_000), b"\xff" * 200_000])
def test_garbage_instead_of_the_data_is_refused(tmp_path: Path, garbage: bytes) -> None:
    fill(tmp_path).write_bytes(garbage)
    with pytest.raises(StoreError) as error:
        Store(tmp_path)
    assert is_sentence(error.value)
    assert str(tmp_path) in str(error.value) and "delete the folder" in str(error.value)


@pytest.mark.parametrize("how", ["missing", "get", "has"])
def test_garbage_behind_a_good_header_is_refused(tmp_path: Path, how: str) -> None:
    file = fill(tmp_path)
    data = bytearray(file.read_bytes())
    data[8192:] = b"x" * (len(data) - 8192)  # two pages of header stay
    file.write_bytes(data)
    assert refused(use(tmp_path, how), tmp_path)


@pytest.mark.parametrize("size", [1, 100, 4096])
def test_a_file_cut_within_its_header_is_refused(tmp_path: Path, size: int) -> None:
    os.truncate(fill(tmp_path), size)
    assert refused(use(tmp_path, "get"), tmp_path)


@pytest.mark.parametrize("how", ["get", "put"])
@pytest.mark.parametrize("share", [0.01, 0.5])
def test_a_file_cut_behind_its_header_is_refused(tmp_path: Path, share: float, how: str) -> None:
    """Pages that are not there must not be touched: that is a bus error, and kills the process."""
    file = fill(tmp_path)
    os.truncate(file, max(8192, int(file.stat().st_size * share) // 4096 * 4096))
    assert refused(use(tmp_path, how), tmp_path)


def test_an_empty_file_is_an_empty_store(tmp_path: Path) -> None:
    os.truncate(fill(tmp_path), 0)
    with Store(tmp_path) as opened:
        assert opened.missing([key(1)]) == [key(1)]
        opened.put({key(1): b"new"})
        assert opened.get([key(1)]) == [b"new"]


@pytest.mark.parametrize("below", ["", "store"])
def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path, below: str) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    with pytest.raises(StoreError) as error:
        Store(file / below)
    assert is_sentence(error.value) and str(file) in str(error.value)
    assert file.read_text() == "not a folder"


@pytest.mark.parametrize(
    ("owner", "name", "failure"),
    [
        (Path, "mkdir", PermissionError(13, "Permission denied")),
        (lmdb, "open", lmdb.Error("data.mdb: Permission denied")),
        (lmdb, "open", OSError(30, "Read-only file system")),
    ],
)
def test_no_permission_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, failure: Exception
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(owner, name, refuse)  # file modes would not stop a test run by root
    with pytest.raises(StoreError) as error:
        Store(tmp_path / "store")
    assert is_sentence(error.value) and str(tmp_path) in str(error.value)


# --- keys --------------------------------------------------------------------------------------

PARTS = st.lists(
    st.sampled_from([b"", b"a", b"b", b"ab", b"\0", b"a\0b", "a", "ab", "é"]) | st.text()
)


@FEW
@given(PARTS, PARTS)
def test_only_equal_parts_share_a_key(first: list[str | bytes], second: list[str | bytes]) -> None:
    same = [_bytes(part) for part in first] == [_bytes(part) for part in second]
    assert (digest(*first) == digest(*second)) == same
    assert len(digest(*first)) == DIGEST


def _bytes(part: str | bytes) -> bytes:
    return part.encode() if isinstance(part, str) else part


def test_parts_are_not_run_together() -> None:
    splits = [("ab", "c"), ("a", "bc"), ("abc",), ("abc", ""), ("", "abc"), ("a", "b", "c"), ()]
    assert len({digest(*parts) for parts in splits}) == len(splits)
    # A part that spells another's length and content must not pass for it.
    assert digest("a", "b") != digest(b"a" + (1).to_bytes(8, "little") + b"b")
