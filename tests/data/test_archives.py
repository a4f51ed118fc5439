"""Archives: extracted whole or not at all, and never trusted."""

from __future__ import annotations

import bz2
import gzip
import io
import os
import stat
import tarfile
import tracemalloc
import zipfile
from functools import partial
from pathlib import Path

import pytest
from errors import raises

from counterpoint.data import archives
from counterpoint.data.archives import extract

FILES = {"images/1.jpg": b"one", "images/deep/2.jpg": b"two", "read me.txt": b""}


def make_zip(path: Path, files: dict[str, bytes], **more: object) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        for info in more.get("infos", ()):
            archive.writestr(info, b"/etc/passwd")
    return path


def make_tar(
    path: Path, files: dict[str, bytes], *infos: tarfile.TarInfo, codec: str = "gz"
) -> Path:
    with tarfile.open(path, f"w:{codec}") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for info in infos:
            archive.addfile(info)
    return path


MAKERS = [make_zip, *(partial(make_tar, codec=codec) for codec in ("", "gz", "bz2", "xz"))]


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target"


@pytest.mark.parametrize(("make", "name"), [(make_zip, "a.zip"), (make_tar, "a.tar.gz")])
def test_an_archive_is_extracted(tmp_path, target, make, name):
    extract(make(tmp_path / name, FILES), target)
    assert contents(target) == FILES
    assert sorted(path.name for path in target.iterdir()) == ["images", "read me.txt"]


def test_what_is_there_stays_or_is_replaced(tmp_path, target):
    (target / "images").mkdir(parents=True)
    (target / "images" / "mine.jpg").write_bytes(b"mine")
    (target / "images" / "1.jpg").write_bytes(b"old")
    extract(make_zip(tmp_path / "a.zip", FILES), target)
    assert contents(target) == {**FILES, "images/mine.jpg": b"mine"}


def test_the_rest_of_a_killed_extraction_is_cleared_away(tmp_path, target):
    rest = target / ".a.zip.extracting"
    rest.mkdir(parents=True)
    (rest / "half.jpg").write_bytes(b"ha")
    extract(make_zip(tmp_path / "a.zip", FILES), target)
    assert contents(target) == FILES


ELSEWHERE = ["../evil", "/evil", "//ROOT/evil", "///ROOT/evil", "a/../../evil", "a\\..\\evil"]


def test_names_that_lead_elsewhere_are_refused(tmp_path, target):
    """Two slashes are a root of their own to pathlib; ROOT is where the test may write."""
    for make in MAKERS:
        for name in [*ELSEWHERE, "./../evil", "C:/evil", ".", "a/" * 101 + "evil"]:
            bad = name.replace("ROOT", str(tmp_path).lstrip("/"))
            with raises("E-PATH-OUTSIDE"):
                extract(make(tmp_path / "a", {"good.jpg": b"good", bad: b"evil"}), target)
            assert contents(target) == {} and not list(tmp_path.rglob("evil"))


def test_nothing_is_written_through_a_link_that_stands_in_the_target(tmp_path, target):
    """Links in the data root are followed when data are read, and not when they are written."""
    (tmp_path / "elsewhere").mkdir()
    (target / "images").mkdir(parents=True)
    (target / "images" / "deep").symlink_to(tmp_path / "elsewhere")
    archive = make_zip(tmp_path / "a.zip", FILES)
    with raises("E-PATH-OUTSIDE", "deep"):
        extract(archive, target)
    assert contents(tmp_path / "elsewhere") == {} and contents(target) == {}


def test_a_link_to_nothing_in_the_place_of_a_folder_is_refused_before_anything_moves(
    tmp_path, target
):
    (target / "images").mkdir(parents=True)
    (target / "images" / "deep").symlink_to(tmp_path / "gone")
    with raises("E-ARCHIVE-EXTRACTION", "deep", "in the way"):
        extract(make_zip(tmp_path / "a.zip", FILES), target)
    assert not (tmp_path / "gone").exists() and not (target / "images" / "1.jpg").exists()


def test_a_target_that_is_a_link_and_links_inside_it_are_used(tmp_path, target):
    (tmp_path / "big disk" / "photographs").mkdir(parents=True)
    target.symlink_to(tmp_path / "big disk")
    (target / "images").symlink_to(tmp_path / "big disk" / "photographs")
    (target / "read me.txt").symlink_to(tmp_path / "mine")
    (tmp_path / "mine").write_bytes(b"mine")
    extract(make_zip(tmp_path / "a.zip", FILES), target)
    assert contents(target / "images") == {"1.jpg": b"one", "deep/2.jpg": b"two"}
    assert (tmp_path / "mine").read_bytes() == b"mine" and not (target / "read me.txt").is_symlink()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_a_tar_are_refused(tmp_path, target, kind):
    info = tarfile.TarInfo("link")
    info.type, info.linkname = kind, "/etc/passwd"
    with raises("E-ARCHIVE-LINK", "link"):
        extract(make_tar(tmp_path / "a.tar.gz", FILES, info), target)
    assert contents(target) == {}


def test_links_in_a_zip_are_refused(tmp_path, target):
    info = zipfile.ZipInfo("link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with raises("E-ARCHIVE-LINK", "link"):
        extract(make_zip(tmp_path / "a.zip", FILES, infos=[info]), target)
    assert contents(target) == {}


@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_bombs_are_refused(tmp_path, target, make):
    archive = make(tmp_path / "a", {"big": b"\0" * 1_000_000})
    assert archive.stat().st_size < 10_000
    with raises("E-ARCHIVE-TOO-LARGE"):
        extract(archive, target, limit=100_000)
    assert contents(target) == {}


@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_a_bomb_that_says_its_size_is_refused_before_a_byte_is_written(
    tmp_path, target, make, monkeypatch
):
    archive = make(tmp_path / "a", {"big": b"\0" * 1_000_000})
    monkeypatch.setattr(archives, "_write", lambda *_: pytest.fail("it was written"))
    with raises("E-ARCHIVE-TOO-LARGE"):
        extract(archive, target, limit=100_000)


def test_empty_members_without_end_are_a_bomb_too(tmp_path, target):
    archive = make_zip(tmp_path / "a.zip", {f"{number}": b"" for number in range(30)})
    with raises("E-ARCHIVE-TOO-LARGE"):
        extract(archive, target, limit=100_000)
    assert contents(target) == {}


def test_a_name_of_many_megabytes_is_not_read(tmp_path, target):
    """A compressed header of zeros would fill the memory before a single member is seen."""
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 50_000_000
    content = header.tobuf(tarfile.GNU_FORMAT) + b"a" * header.size
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(content, 1))
    tracemalloc.start()
    try:
        with raises("E-ARCHIVE-BROKEN"):
            extract(tmp_path / "a.tar.gz", target)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", ["", "gz"])
def test_a_damaged_header_is_not_taken_for_the_end(tmp_path, target, codec):
    plain = make_tar(tmp_path / "a.tar", FILES, codec="").read_bytes()
    second = plain.index(b"images/deep")
    for bad in (plain[:second], plain[:second] + b"?" + plain[second + 1 :]):
        path = tmp_path / "bad.tar"
        path.write_bytes(gzip.compress(bad) if codec else bad)
        with raises("E-ARCHIVE-BROKEN", path):
            extract(path, target)
    assert contents(target) == {}


@pytest.mark.parametrize(
    ("make", "name", "cut"), [(make_zip, "a.zip", 40), (make_tar, "a.tar.gz", 20)]
)
def test_archives_that_are_cut_off_are_one_sentence(tmp_path, target, make, name, cut):
    archive = make(tmp_path / name, FILES)
    archive.write_bytes(archive.read_bytes()[:-cut])
    with raises("E-ARCHIVE-BROKEN", archive):
        extract(archive, target)
    assert contents(target) == {}


def test_zeros_without_end_after_the_last_member_are_not_read(tmp_path, target):
    make_tar(tmp_path / "a.tar", FILES, codec="")
    with bz2.open(tmp_path / "a.tar.bz2", "wb") as out:
        out.write((tmp_path / "a.tar").read_bytes())
        out.writelines(bytes(2**20) for _ in range(40))
    with raises("E-ARCHIVE-TOO-LARGE"):
        extract(tmp_path / "a.tar.bz2", target)
    assert contents(target) == {}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no pipes of that kind")
def test_a_pipe_is_not_waited_for(tmp_path, target):
    os.mkfifo(tmp_path / "a.zip")
    with raises("E-ARCHIVE-EXTRACTION", tmp_path / "a.zip"):
        extract(tmp_path / "a.zip", target)


@pytest.mark.parametrize("place", ["images", "images/1.jpg/x", ".a.zip.extracting/x"])
def test_nothing_is_moved_if_something_is_in_the_way(tmp_path, target, place):
    """A file where a folder should be, a folder where a file should be, and its own folder."""
    files = {"0.txt": b"", **FILES}
    if place.startswith("."):
        files[place] = b""
    else:
        (target / place).parent.mkdir(parents=True)
        (target / place).write_bytes(b"mine")
    before = contents(target)
    with raises("E-ARCHIVE-EXTRACTION"):
        extract(make_zip(tmp_path / "a.zip", files), target)
    assert contents(target) == before
