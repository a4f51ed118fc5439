"""The store: what is put is kept, by any number of processes, and damage is said in a sentence."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from errors import raises
from hypothesis import given, strategies as st
from models_for_tests import WIDTH, Towers, is_sentence
from support import FEW

from counterpoint import evaluate, load_run
from counterpoint._util.errors import StoreError
from counterpoint._util.store import DIGEST, Store, default_store, digest
from counterpoint.runs import Run

FILE = "results.sqlite"
ITEM = 3000
CHECKSUM = 8  # bytes


def key(*parts: object) -> bytes:
    return digest(*map(str, parts))


def fill(folder: Path, count: int = 300) -> Path:
    """A store of several hundred pages; returns its data file."""
    with Store(folder) as opened:
        for start in range(0, count, 10):
            opened.put({key(n): bytes([n % 256]) * ITEM for n in range(start, start + 10)})
    return folder / FILE


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


def test_many_keys_are_found_in_the_order_asked_for(tmp_path: Path) -> None:
    """More than one statement takes, repeated ones, absent ones, and some that wait."""
    with Store(tmp_path) as opened:
        opened.put({key(n): bytes([n % 256]) for n in range(0, 1700, 2)})
        opened.remember(key(3), b"waits")
        asked = [*range(1200), *range(900, 1700), 3, 3, 2]
        expected = [b"waits" if n == 3 else None if n % 2 else bytes([n % 256]) for n in asked]
        assert opened.get([key(n) for n in asked]) == expected
        absent = dict.fromkeys(n for n in asked if n % 2 and n != 3)
        assert opened.missing([key(n) for n in asked]) == [key(n) for n in absent]


def test_a_put_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    with Store(tmp_path) as opened:
        with raises("E-STORE-UNUSABLE", tmp_path, "full") as error:
            with opened._connection:
                opened._connection.execute("PRAGMA max_page_count = 25")
            opened.put({key(1): b"good", key("large"): bytes(1_000_000), key(2): b"good"})
        assert is_sentence(error.value)
        assert opened.missing([key(1), key(2)]) == [key(1), key(2)]
        opened.put({key(1): b"later"})
        assert opened.has(key(1))


@pytest.mark.slow
def test_threads_may_read_and_write_at_once(tmp_path: Path) -> None:
    """The engine's workers note the digests of files while the main thread commits batches."""
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
import sys, time
from pathlib import Path
from counterpoint._util import store
key = lambda *parts: store.digest(*map(str, parts))
with store.Store(Path(sys.argv[1])) as opened:
    print("ready", flush=True)
    for n in range(50):
        opened.put({key("child", n, i): bytes([i]) * int(sys.argv[2]) for i in range(3)})
    while not opened.has(key("parent", 20)):  # what the other process writes is seen
        time.sleep(0.001)
"""


@pytest.mark.slow
def test_two_processes_write_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CHILD, str(tmp_path), str(ITEM)]
    with (
        Store(tmp_path) as opened,
        subprocess.Popen(command, stdout=subprocess.PIPE) as child,
    ):
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        opened.put({key("parent", 0): bytes(ITEM)})
        mine = 1
        while child.poll() is None or mine < 30:
            opened.put({key("parent", mine): bytes(ITEM)})
            mine += 1
            halves = [opened.missing(key("child", n, i) for i in range(3)) for n in range(50)]
            assert {len(absent) for absent in halves} <= {0, 3}  # a commit is seen whole
        assert child.returncode == 0
        expected = [bytes([i]) * ITEM for _ in range(50) for i in range(3)]
        assert opened.get([key("child", n, i) for n in range(50) for i in range(3)]) == expected
    with Store(tmp_path) as opened:
        assert opened.missing(key("parent", n) for n in range(mine)) == []


# --- damage ------------------------------------------------------------------------------------


def spoil(folder: Path, change: str) -> None:
    """Change what is in the table, behind the store's back."""
    with closing(sqlite3.connect(folder / FILE)) as connection, connection:
        connection.execute(f"UPDATE results SET {change} WHERE key = ?", (key(7),))


@pytest.mark.parametrize(
    "change",
    [
        "value = substr(value, 1, length(value) - 1) || x'FF'",
        "value = x'00' || substr(value, 2)",  # in the checksum
        "value = substr(value, 1, 5)",
        "value = x''",
        "value = NULL",
        "value = 3.5",
        "value = 'a text'",
        "value = (SELECT value FROM results WHERE key != x'00' LIMIT 1)",  # of another key
    ],
)
def test_a_damaged_value_counts_as_missing_and_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: str
) -> None:
    fill(tmp_path, 20)
    spoil(tmp_path, change)
    with Store(tmp_path) as opened:
        assert opened.missing([key(6), key(7), key(8)]) == [key(7)]
        assert not opened.has(key(7))  # asked twice, counted once
        opened.put({key(7): b"again"})
        assert opened.get([key(7)]) == [b"again"]
    [told] = caplog.messages
    assert told.startswith("1 stored result") and str(tmp_path) in told and is_sentence(told)


def test_damage_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill(tmp_path, 20)
    spoil(tmp_path, "value = NULL")
    with Store(tmp_path) as opened:
        opened.get([key(7)])
        [note] = opened.notes()
        assert "damaged" in note and opened.notes() == []
    assert caplog.messages == []


def test_an_evaluation_computes_what_was_damaged_again(tmp_path: Path) -> None:
    def run() -> tuple[Run, Towers]:
        model = Towers()
        [found] = evaluate(
            [("towers", model)],
            "world-swap:size=8",
            store=tmp_path / "store",
            out=tmp_path / "run",
        )
        return found, model

    clean, _ = run()
    with closing(sqlite3.connect(tmp_path / "store" / FILE)) as connection, connection:
        connection.execute(
            "UPDATE results SET value = x'00' || substr(value, 2) WHERE length(value) = ?",
            (CHECKSUM + 4 * WIDTH,),
        )
    again, model = run()
    [one], [two] = clean.parts.values(), again.parts.values()
    np.testing.assert_array_equal(one.scores, two.scores)
    assert len(model.images) == 8 and len(model.captions) > 8
    [note] = load_run(tmp_path / "run").manifest["model_info"]["notes"]
    assert str(len(model.images) + len(model.captions)) in note
    assert run()[0].manifest["model_info"] == {}  # and it is mended


@pytest.mark.parametrize("garbage", [b"garbage" * 100, bytes(200_000), b"\xff" * 200_000])
def test_garbage_instead_of_the_data_is_refused(tmp_path: Path, garbage: bytes) -> None:
    fill(tmp_path, 20).write_bytes(garbage)
    with raises("E-STORE-DAMAGED", tmp_path) as error:
        Store(tmp_path)
    assert is_sentence(error.value)


@pytest.mark.slow
def test_damaged_bytes_never_give_another_value(tmp_path: Path) -> None:
    """Anywhere in the file: the right value, none at all, or a refusal."""
    chance, file = random.Random(1), fill(tmp_path, 60)
    whole, keys = file.read_bytes(), [key(n) for n in range(60)]
    refused = 0
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(chance.choice([1, 1, 1, 20])):
            data[chance.choice([chance.randrange(100), chance.randrange(len(data))])] ^= (
                1 << chance.randrange(8)
            )
        file.write_bytes(data if chance.random() < 0.8 else data[: chance.randrange(len(data))])
        try:
            with Store(tmp_path) as opened:
                for n, value in enumerate(opened.get(keys)):
                    assert value in (None, bytes([n]) * ITEM)
                opened.put({key(n): bytes([n]) * ITEM for n in range(70)})
                for n, value in enumerate(opened.get(keys)):
                    assert value in (None, bytes([n]) * ITEM)
        except StoreError as error:
            assert is_sentence(error) and str(tmp_path) in str(error)
            refused += 1
        (tmp_path / f"{FILE}-journal").unlink(missing_ok=True)
    assert 0 < refused < 150


# --- a disk that cannot be used ------------------------------------------------------------------


def test_a_read_only_store_can_be_read_and_says_why_it_is_not_written(tmp_path: Path) -> None:
    fill(tmp_path, 20)
    with Store(tmp_path) as opened:
        opened._connection.execute("PRAGMA query_only = ON")  # file modes do not stop root
        assert opened.get([key(7)]) == [bytes([7]) * ITEM]
        with raises("E-STORE-UNUSABLE", tmp_path, "read-only") as error:
            opened.put({key(7): b"other"})
        assert is_sentence(error.value)
        opened.remember(key("file"), b"what may be lost does not end the run")


@pytest.mark.parametrize("below", ["", "store"])
def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path, below: str) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    with raises("E-STORE-UNUSABLE", file / below) as error:
        Store(file / below)
    assert is_sentence(error.value)
    assert file.read_text() == "not a folder"


@pytest.mark.parametrize(
    ("owner", "name", "failure", "cause"),
    [
        (Path, "mkdir", PermissionError(13, "Permission denied"), "permission denied"),
        (Path, "mkdir", OSError(28, "No space left on device"), "disk is full"),
        (Path, "mkdir", OSError(30, "Read-only file system"), "read-only"),
        (sqlite3, "connect", sqlite3.OperationalError("unable to open"), ""),
    ],
)
def test_a_folder_that_cannot_be_had_is_said(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: object,
    name: str,
    failure: Exception,
    cause: str,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(owner, name, refuse)  # file modes would not stop a test run by root
    code = "E-STORE-UNUSABLE" if cause else "E-STORE-DAMAGED"
    with raises(code, tmp_path / "store", cause) as error:
        Store(tmp_path / "store")
    assert is_sentence(error.value)


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
