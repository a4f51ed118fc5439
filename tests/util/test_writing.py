"""The writer: whole or not at all, whoever writes at the same time and whenever it is killed."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from errors import raises
from models_for_tests import is_sentence
from processes import ended, start
from support import random_run, table
from writers import (
    DIED,
    FILES,
    Write,
    die_locked,
    killed_at,
    write_file,
    write_folder,
    write_often,
)

from counterpoint._util import writing
from counterpoint._util.errors import RunError
from counterpoint._util.writing import left_by_kills, locked, recover, whole_file, whole_folder
from counterpoint.runs import find_runs, load_run, save_run

LONG = "n" * 255


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def read(place: Path) -> str | None:
    """What a whole file or a whole folder says; None if it is not there."""
    if place.is_file():
        return place.read_text()
    if not place.is_dir():
        return None
    assert names(place) == [str(number) for number in range(FILES)]
    [text] = {(place / str(number)).read_text() for number in range(FILES)}
    return text


WRITERS = pytest.mark.parametrize("write", [write_file, write_folder])


# --- one writer ----------------------------------------------------------------------------------


@WRITERS
def test_what_is_written_takes_the_place_of_the_older_and_nothing_else_stays(
    write: Write, tmp_path: Path
) -> None:
    place = tmp_path / "deep" / "place.parquet"
    for text in ("one", "two"):
        write(place, text)
        assert read(place) == text
        assert names(place.parent) == [place.name]


def test_the_draft_has_the_ending_of_its_place(tmp_path: Path) -> None:
    with whole_file(tmp_path / "a.parquet") as draft:
        assert draft.suffix == ".parquet" and draft.parent == tmp_path.resolve()
        draft.touch()


@WRITERS
@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_a_failure_leaves_what_was_there(
    write: Write, failure: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "place", "old")

    def fail(path: Path) -> None:
        raise failure

    monkeypatch.setattr(writing, "_to_disk", fail)
    with pytest.raises(failure):
        write(tmp_path / "place", "new")
    assert read(tmp_path / "place") == "old"
    assert names(tmp_path) == ["place"]


@WRITERS
@pytest.mark.parametrize("name", [LONG, "a." + "b" * 253, "[1]*?", "..a", "\udcff", "é" * 127])
def test_any_name_of_a_file_will_do(write: Write, name: str, tmp_path: Path) -> None:
    for text in ("one", "two"):
        write(tmp_path / name, text)
        assert read(tmp_path / name) == text
    assert names(tmp_path) == [name]


@WRITERS
def test_a_link_is_followed(write: Write, tmp_path: Path) -> None:
    write(tmp_path / "target", "old")
    (tmp_path / "link").symlink_to("target")
    write(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and read(tmp_path / "target") == "new"
    assert names(tmp_path) == ["link", "target"]


# --- places that cannot be written ---------------------------------------------------------------


def refusal(write: Write, place: Path) -> str:
    """Why a place cannot be written."""
    with raises("E-OUTPUT-UNWRITABLE", place) as error:
        write(place, "new")
    assert is_sentence(error.value) and str(error.value).startswith(f"{place}: ")
    return str(error.value)


def test_a_name_too_long_is_refused(tmp_path: Path) -> None:
    for write in (write_file, write_folder):
        assert "too long" in refusal(write, tmp_path / (LONG + "n"))
    assert names(tmp_path) == []


def test_something_of_another_kind_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("mine")
    os.mkfifo(tmp_path / "pipe")
    assert "is a folder" in refusal(write_file, tmp_path / "folder")
    assert "in the way" in refusal(write_file, tmp_path / "pipe")
    assert "is a file" in refusal(write_folder, tmp_path / "file")
    refusal(write_folder, tmp_path / "file" / "below")
    assert (tmp_path / "pipe").is_fifo() and (tmp_path / "file").read_text() == "mine"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_device_is_not_replaced() -> None:
    assert "in the way" in refusal(write_file, Path("/dev/full"))
    assert Path("/dev/full").is_char_device()


@WRITERS
def test_a_full_disk_is_said_with_the_place(write: Write, tmp_path: Path) -> None:
    write(tmp_path / "place", "old")
    opened = whole_file if write is write_file else whole_folder
    with (
        raises("E-OUTPUT-UNWRITABLE", tmp_path / "place", "disk is full"),
        opened(tmp_path / "place", RunError),
        Path("/dev/full").open("w") as file,
    ):
        file.write("x")
    assert read(tmp_path / "place") == "old" and names(tmp_path) == ["place"]


@WRITERS
@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_a_folder_that_takes_no_lock_is_refused(
    write: Write, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(writing.FileLock, "acquire", fail)  # file modes do not stop root
    refusal(write, tmp_path / "place")
    assert names(tmp_path) == []


# --- several writers -----------------------------------------------------------------------------


@WRITERS
def test_a_second_writer_is_refused_until_the_first_is_done(write: Write, tmp_path: Path) -> None:
    place = tmp_path / "place"
    with locked(place):
        with raises("E-OUTPUT-LOCKED", place):
            write(place, "new")
        write(tmp_path / "other", "free")
    write(place, "new")
    assert read(place) == "new"


def test_a_lock_left_by_a_killed_process_locks_nothing(tmp_path: Path) -> None:
    assert ended(start(die_locked, tmp_path / "place")) == DIED
    assert len(names(tmp_path)) == 1
    write_file(tmp_path / "place", "new")
    assert names(tmp_path) == ["place"]


@pytest.mark.slow
@WRITERS
def test_writers_that_wait_all_come_through(write: Write, tmp_path: Path) -> None:
    place = tmp_path / "place"
    children = [start(write_often, write, place, text) for text in "abc"]
    assert [ended(child) for child in children] == [0, 0, 0]
    assert names(tmp_path) == ["place"] and read(place) in {t * 2000 for t in "abc"}


def _save_often(folder: Path, name: str) -> None:
    for _ in range(8):
        save_run(random_run(table(2), seed=0, model=name), folder, overwrite=True)


@pytest.mark.faults
def test_runs_saved_at_once_are_whole(tmp_path: Path) -> None:
    command = (
        "import sys; from pathlib import Path; from test_writing import _save_often; "
        "_save_often(Path(sys.argv[1]), sys.argv[2])"
    )
    paths = os.pathsep.join(sys.path)
    children = [
        subprocess.Popen(
            [sys.executable, "-c", command, str(tmp_path / "run"), name],
            env={**os.environ, "PYTHONPATH": paths},
        )
        for name in "ab"
    ]
    assert [child.wait() for child in children] == [0, 0]
    assert load_run(tmp_path / "run").model in "ab"
    assert names(tmp_path) == ["run"]


# --- kills ---------------------------------------------------------------------------------------


@pytest.mark.faults
@WRITERS
@pytest.mark.parametrize("name", ["place", LONG])
@pytest.mark.parametrize("before", [None, "old"])
def test_killed_anywhere_it_is_the_old_one_or_the_new_one(
    write: Write, name: str, before: str | None, tmp_path: Path
) -> None:
    call, seen = 0, []
    while True:
        folder = tmp_path / str(call)
        place = folder / name
        folder.mkdir()
        if before is not None:
            write(place, before)
        killed = killed_at(call, write, place)
        recover(place)
        found = read(place)
        assert found in (before, "new")
        seen.append(found)
        if not killed:
            break
        write(place, "newer")
        assert read(place) == "newer" and names(folder) == [name]  # leftovers are swept
        call += 1
    assert call > 5 and {before, "new"} == set(seen)


def test_a_kill_between_the_renames_hides_no_run(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "run"
    save_run(random_run(table(2), seed=0), folder)
    folder.rename(writing._old(folder))
    assert list(left_by_kills(tmp_path)) == [folder]
    assert find_runs(tmp_path) == [folder]
    folder.rename(writing._old(folder))
    assert load_run(folder).folder == folder
    folder.rename(writing._old(folder))
    save_run(random_run(table(2), seed=0, model="newer"), folder, overwrite=True)
    assert load_run(tmp_path).model == "newer" and names(folder.parent) == ["run"]


def test_a_run_that_could_not_be_replaced_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old one was moved away by a killed process; the new one fails at its last step."""
    write_folder(tmp_path / "place", "old")
    (tmp_path / "place").rename(writing._old(tmp_path / "place"))

    def fail(draft: Path, folder: Path) -> None:
        raise OSError(errno.EIO, "")

    monkeypatch.setattr(writing, "_exchange", fail)
    refusal(write_folder, tmp_path / "place")
    assert read(tmp_path / "place") == "old"


def test_other_peoples_hidden_folders_are_left_alone(tmp_path: Path) -> None:
    for name in (".vim.old", ".draft", ".draft-mine"):
        (tmp_path / name).mkdir()
    write_folder(tmp_path / "place", "new")
    save_run(random_run(table(2), seed=0), tmp_path / "run")
    assert find_runs(tmp_path) == [tmp_path / "run"]
    assert names(tmp_path) == [".draft", ".draft-mine", ".vim.old", "place", "run"]
