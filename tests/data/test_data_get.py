"""Getting what a benchmark needs: only that, and only what is missing; the rest is told of."""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path

import pytest
from data_catalogue import lay, no_server, server
from errors import raises
from http_server import Server, says

from counterpoint._util.errors import DataError
from counterpoint.data import getting as get_module
from counterpoint.data.batch import DownloadReport
from counterpoint.data.getting import get

__all__ = ["no_server", "server"]  # fixtures


def run(benchmark: str, root: Path, *images: str, **more: object) -> DownloadReport:
    return get(benchmark, root, lambda: images, pause=lambda _: None, **more)


def paths(server: Server) -> list[str]:
    return [asked.path for asked in server.asked]


def zipped(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, b"image")
    return file.getvalue()


# --- files and images --------------------------------------------------------------------------


def test_annotations_come_first_and_then_the_images_that_they_name(server, tmp_path):
    server.put("first/1.jpg", b"one")
    server.put("second/2.jpg", b"two")
    server.put("first/unused.jpg", b"never asked for")

    def needed() -> list[str]:
        assert (tmp_path / "notes/b.json").read_bytes() == b"[{}]"
        return ["pictures/first/1.jpg", "pictures/second/2.jpg", "pictures/first/1.jpg"]

    report = get("plain", tmp_path, needed)
    assert report.complete and (report.fetched, report.there) == (4, 0)
    assert sorted(paths(server)) == ["/a.json", "/b.json", "/first/1.jpg", "/second/2.jpg"]
    assert (tmp_path / "pictures/second/2.jpg").read_bytes() == b"two"


def test_if_everything_is_there_nothing_is_asked(no_server, tmp_path):
    lay(tmp_path, "notes/a.json", "pictures/first/1.jpg")
    lay(tmp_path, "notes/b.json", content=b"mine")
    report = run("plain", tmp_path, "pictures/first/1.jpg")
    assert report.complete and (report.fetched, report.there) == (0, 3)


def test_images_can_be_left_out(server, tmp_path):
    def needed() -> list[str]:
        raise AssertionError("nobody wanted images")

    assert get("plain", tmp_path, needed, images=False).complete


def test_an_image_whose_folder_is_not_known_is_found_in_the_other(server, tmp_path):
    server.put("second/7.jpg", b"seven")
    report = run("plain", tmp_path, "pictures/first/7.jpg")
    assert report.complete and report.fetched == 3
    assert (tmp_path / "pictures/second/7.jpg").read_bytes() == b"seven"
    assert not (tmp_path / "pictures/first/7.jpg").exists()


def test_a_server_that_is_busy_is_no_reason_to_look_elsewhere(server, tmp_path):
    server.put("first/9.jpg", b"", always=says(503))
    report = run("plain", tmp_path, "pictures/first/9.jpg")
    assert [failure.path for failure in report.failures] == [tmp_path / "pictures/first/9.jpg"]
    assert "/second/9.jpg" not in paths(server)


def test_without_annotations_images_are_not_asked_for(server, tmp_path):
    del server.resources["/a.json"]
    report = get("plain", tmp_path, lambda: pytest.fail("there are no annotations to read"))
    assert report.fetched == 1 and len(report.failures) == 1
    assert report.listed == tmp_path / "failed-plain.txt"
    assert "a.json cannot be fetched: 127.0.0.1: HTTP 404." in report.listed.read_text()


@pytest.mark.slow
def test_the_list_of_failures_goes_when_nothing_fails(server, tmp_path):
    names = [f"pictures/second/{i}.jpg" for i in range(30)]
    report = run("plain", tmp_path, *names)
    assert report.listed and len(report.listed.read_text().splitlines()) == 30
    for i in range(30):
        server.put(f"second/{i}.jpg", b"image")
    again = run("plain", tmp_path, *names)
    assert again.complete and again.fetched == 30 and again.listed is None
    assert not (tmp_path / "failed-plain.txt").exists()


def test_a_file_of_another_size_is_not_overwritten(server, tmp_path):
    lay(tmp_path, "notes/b.json", content=b"my own work")
    [failure] = run("plain", tmp_path).failures
    assert "is not the published file; move it away" in failure.reason
    assert (tmp_path / "notes/b.json").read_bytes() == b"my own work"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["../../evil.jpg", "/etc/evil.jpg", "pictures/first/../../../x"])
def test_an_image_cannot_lead_out_of_the_root(server, tmp_path, name):
    with raises("E-PATH-OUTSIDE", name):
        run("plain", tmp_path / "root", name)
    assert list(tmp_path.rglob("evil.jpg")) == []


def test_an_image_without_a_source_is_told_of(server, tmp_path):
    [failure] = run("plain", tmp_path, "elsewhere/1.jpg").failures
    assert failure.reason == "elsewhere/1.jpg: the catalogue has no source for it."


def test_files_that_are_gone_are_replaced_by_what_will_do_as_well(server, tmp_path):
    report = run("published", tmp_path)
    assert report.complete and report.fetched == 2
    assert sorted(paths(server)) == ["/a.json", "/b.json", "/published/p.json"]
    assert run("published", tmp_path).complete and len(server.asked) == 3


def test_files_that_are_there_are_taken(server, tmp_path):
    server.put("published/p.json", b"[]")
    assert run("published", tmp_path).complete
    assert paths(server) == ["/published/p.json"]


# --- by hand -----------------------------------------------------------------------------------


def test_what_only_a_person_can_get_is_told_with_its_place(server, tmp_path):
    server.put("numbered/1.jpg", b"one")
    report = run("mixed", tmp_path, "mixed/1.jpg", "mixed/x.jpg", "mixed/y.jpg")
    assert (tmp_path / "mixed/1.jpg").exists()
    assert report.by_hand == [f"Ask at https://host/form (here: {tmp_path / 'mixed'})."]
    assert not report.complete and not report.failures
    assert [path for path in paths(server) if "x.jpg" in path] == []


def test_what_is_optional_is_a_note(server, tmp_path):
    report = run("mixed", tmp_path)
    assert report.complete
    assert report.notes[-1] == f"Ask at https://host/form (here: {tmp_path / 'mixed'})."
    lay(tmp_path, "mixed/x.png")
    assert run("mixed", tmp_path).notes == []


def test_what_cannot_be_checked_has_its_sum_told(server, tmp_path):
    server.put("images.zip", zipped("images/1.jpg"))
    report = run("zipped", tmp_path, "zipped/images/1.jpg")
    archive = tmp_path / "zipped" / "images.zip"
    told = {tmp_path / "notes/a.json": b"[]", tmp_path / "notes/b.json": b"[{}]"}
    told[archive] = server.resources["/images.zip"].content
    for path, content in told.items():
        [note] = [note for note in report.notes if note.startswith(f"{path} ")]
        assert f"has the SHA-256 {hashlib.sha256(content).hexdigest()}; it is unchecked" in note
    assert run("zipped", tmp_path, "zipped/images/1.jpg").notes == []


def test_annotations_by_hand_stop_it(no_server, tmp_path):
    report = get("by-hand", tmp_path, lambda: pytest.fail("there are no annotations to read"))
    assert len(report.by_hand) == 1 and report.fetched == 0


# --- archives ----------------------------------------------------------------------------------


def test_an_archive_is_fetched_once_and_not_kept(server, tmp_path):
    server.put("images.zip", zipped("images/1.jpg"))
    report = run("zipped", tmp_path, "zipped/images/1.jpg", "zipped/images/2.jpg")
    [failure] = report.failures
    assert failure.reason == "zipped/images/2.jpg is not in zipped images."
    assert (tmp_path / "zipped/images/1.jpg").read_bytes() == b"image"
    assert not (tmp_path / "zipped/images.zip").exists()
    again = run("zipped", tmp_path, "zipped/images/1.jpg", "zipped/images/2.jpg")
    assert again.failures == report.failures
    assert paths(server).count("/images.zip") == 1


def test_an_archive_that_somebody_brought_is_used_and_left(no_server, tmp_path):
    lay(tmp_path, "zipped/images.zip", content=zipped("images/1.jpg"))
    report = run("whole/zip", tmp_path)
    assert report.complete and (tmp_path / "zipped/images/1.jpg").exists()
    assert (tmp_path / "zipped/images.zip").exists()


def test_an_archive_that_cannot_be_fetched_can_be_brought(server, tmp_path):
    report = run("whole/zip", tmp_path)
    place = tmp_path / "zipped/images.zip"
    assert report.by_hand == [
        f"Save {server.url}/images.zip as {place}, and run this again to have it extracted."
    ]
    assert report.listed == tmp_path / "failed-whole-zip.txt"


def test_a_broken_archive_is_thrown_away(server, tmp_path):
    server.put("images.zip", b"PK, but no zip")
    [failure] = run("whole/zip", tmp_path).failures
    assert "cannot be extracted" in failure.reason
    assert not (tmp_path / "zipped/images.zip").exists()


# --- the hub -----------------------------------------------------------------------------------


def test_a_set_of_the_hub_is_fetched_and_unpacked_once(no_server, tmp_path, monkeypatch):
    calls = []

    def fetch(repo: str, patterns: tuple[str, ...], folder: Path) -> None:
        calls.append((repo, patterns, folder))
        lay(folder, "data/examples.jsonl")
        lay(folder, "data/images.zip", content=zipped("images/1.png"))

    monkeypatch.setattr(get_module, "fetch_dataset", fetch)
    image = "hubbed/data/images/1.png"
    assert run("hubbed", tmp_path, image).complete
    assert calls == [("some/one", ("data/*",), tmp_path / "hubbed")]
    assert run("hubbed", tmp_path, image).complete and len(calls) == 1


def test_a_set_that_may_not_be_read_says_what_to_do(no_server, tmp_path, monkeypatch):
    def fetch(*_: object) -> None:
        raise DataError("E-TERMS-NOT-ACCEPTED", "accept its terms.")

    monkeypatch.setattr(get_module, "fetch_dataset", fetch)
    report = run("hubbed", tmp_path)
    assert report.by_hand == ["accept its terms."] and not report.complete


def test_half_a_set_does_not_pass_for_a_whole_one(no_server, tmp_path, monkeypatch):
    """Ctrl-C after the first of its files; the second time, the rest comes."""

    def interrupted(repo: str, patterns: tuple[str, ...], folder: Path) -> None:
        lay(folder, "data/examples.jsonl")
        raise KeyboardInterrupt

    monkeypatch.setattr(get_module, "fetch_dataset", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run("hubbed", tmp_path)
    whole = []
    monkeypatch.setattr(get_module, "fetch_dataset", lambda *_: whole.append(1))
    assert run("hubbed", tmp_path).complete and whole == [1]


def test_a_folder_that_cannot_be_made_is_one_sentence(no_server, tmp_path):
    lay(tmp_path, "hubbed")
    assert run("hubbed", tmp_path).by_hand == [
        f"{tmp_path / 'hubbed'}: cannot be written: something else of that name is in the way."
    ]


def test_a_set_that_brings_nothing_is_told_of(no_server, tmp_path, monkeypatch):
    monkeypatch.setattr(get_module, "fetch_dataset", lambda *_: None)
    [said] = run("hubbed", tmp_path).by_hand
    assert f"{tmp_path / 'hubbed'} still lacks **/*.jsonl" in said
