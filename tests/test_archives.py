"""Archives: extracted whole or not at all, and never trusted."""

from __future__ import annotations

import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from counterpoint.data.archives import extract
from counterpoint.errors import DataError

FILES = {"images/1.jpg": b"one", "images/deep/2.jpg": b"two", "read me.txt": b""}


def make_zip(path: Path, files: dict[str, bytes], **more: object) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        for info in more.get("infos", ()):
            archive.writestr(info, b"/etc/passwd")
    return path


def make_tar(path: Path, files: dict[str, bytes], *infos: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for info in infos:
            archive.addfile(info)
    return path


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


@pytest.mark.parametrize("make", [make_zip, make_tar])
@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "a\\..\\..\\evil"])
def test_names_that_lead_elsewhere_are_refused(tmp_path, target, make, name):
    with pytest.raises(DataError, match="it is refused"):
        extract(make(tmp_path / "a", {"good.jpg": b"good", name: b"evil"}), target)
    assert contents(target) == {} and not (tmp_path / "evil").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_a_tar_are_refused(tmp_path, target, kind):
    info = tarfile.TarInfo("link")
    info.type, info.linkname = kind, "/etc/passwd"
    with pytest.raises(DataError, match="'link' is a link"):
        extract(make_tar(tmp_path / "a.tar.gz", FILES, info), target)
    assert contents(target) == {}


def test_links_in_a_zip_are_refused(tmp_path, target):
    info = zipfile.ZipInfo("link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with pytest.raises(DataError, match="'link' is a link"):
        extract(make_zip(tmp_path / "a.zip", FILES, infos=[info]), target)
    assert contents(target) == {}


@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_bombs_are_refused(tmp_path, target, make):
    archive = make(tmp_path / "a", {"big": b"\0" * 1_000_000})
    assert archive.stat().st_size < 10_000
    with pytest.raises(DataError, match="extracts to far too much"):
        extract(archive, target, limit=100_000)
    assert contents(target) == {}


@pytest.mark.parametrize(
    ("make", "name", "cut"), [(make_zip, "a.zip", 40), (make_tar, "a.tar.gz", 20)]
)
def test_archives_that_are_cut_off_are_one_sentence(tmp_path, target, make, name, cut):
    archive = make(tmp_path / name, FILES)
    archive.write_bytes(archive.read_bytes()[:-cut])
    with pytest.raises(DataError, match=r"cannot be extracted: .+\.$"):
        extract(archive, target)
    assert contents(target) == {}


def test_what_is_no_archive_is_one_sentence(tmp_path, target):
    (tmp_path / "a.zip").write_text("<html>")
    with pytest.raises(DataError, match=r"a\.zip: cannot be extracted: "):
        extract(tmp_path / "a.zip", target)


def test_a_file_where_a_folder_should_be_is_one_sentence(tmp_path, target):
    target.write_text("")
    with pytest.raises(DataError, match=r"cannot be extracted: File exists\."):
        extract(make_zip(tmp_path / "a.zip", FILES), target)
