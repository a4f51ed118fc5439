"""The hub: a fake one on this machine, and the library's real errors as one sentence each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

import pytest
from errors import raises
from http_server import Server, says, serving

from counterpoint.data.getting import fetch_dataset

pytestmark = pytest.mark.usefixtures("local_network")
SHA = "a" * 40
FILES = {"README.md": b"read me", "data/test-0.parquet": b"PAR1", "data/more/test-1.parquet": b"P"}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with serving() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        yield server


def publish(hub: Server, repo: str, files: dict[str, bytes]) -> None:
    """The few addresses that a snapshot asks for."""
    info = {"id": repo, "sha": SHA, "siblings": [{"rfilename": name} for name in files]}
    tree = [
        {"type": "file", "path": name, "size": len(content), "oid": digest(content)}
        for name, content in files.items()
    ]
    for path, answer in ((f"revision/{'main'}", info), (f"tree/{SHA}", tree)):
        hub.put(f"api/datasets/{repo}/{path}", json.dumps(answer).encode(), **as_json())
    for name, content in files.items():
        address = f"datasets/{repo}/resolve/{SHA}/{name}"
        hub.put(address, content, etag=f'"{digest(content)}"', headers={"X-Repo-Commit": SHA})


def digest(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


def as_json() -> dict[str, object]:
    return {"etag": None, "headers": {"Content-Type": "application/json"}}


def refuse(hub: Server, repo: str, status: int, **headers: str) -> None:
    hub.put(f"api/datasets/{repo}/revision/main", b"", always=says(status, **headers))


def test_files_that_match_are_fetched_once(hub, tmp_path):
    publish(hub, "someone/set", FILES)
    fetch_dataset("someone/set", ["*.parquet"], tmp_path / "set")
    found = {p.relative_to(tmp_path / "set").as_posix() for p in tmp_path.rglob("*.parquet")}
    assert found == {"data/test-0.parquet", "data/more/test-1.parquet"}
    assert (tmp_path / "set/data/test-0.parquet").read_bytes() == b"PAR1"
    assert not (tmp_path / "set/README.md").exists()
    before = len(hub.asked)
    fetch_dataset("someone/set", ["*.parquet"], tmp_path / "set")
    assert not any("resolve" in asked.path for asked in hub.asked[before:])


def test_a_gated_set_says_where_to_accept_its_terms(hub, tmp_path):
    for status in (401, 403):
        refuse(hub, "facebook/winoground", status, X_Error_Code="GatedRepo")
        places = (f"{hub.url}/datasets/facebook/winoground", "`hf auth login`", tmp_path / "w")
        with raises("E-DATASET-GATED", "facebook/winoground", *places):
            fetch_dataset("facebook/winoground", ["data/*"], tmp_path / "w")
    publish(hub, "someone/set", FILES)  # of which the files alone are gated
    for path, resource in hub.resources.items():
        if "resolve" in path:
            resource.always = says(403, X_Error_Code="GatedRepo")
    with raises("E-DATASET-GATED", "someone/set"):
        fetch_dataset("someone/set", ["*.parquet"], tmp_path / "set")


def test_a_set_or_a_hub_that_is_missing_or_broken_is_said_to_be(hub, monkeypatch, tmp_path):
    refuse(hub, "some/one", 404, X_Error_Code="RepoNotFound")
    with raises("E-DATASET-MISSING", "some/one"):
        fetch_dataset("some/one", ["*"], tmp_path)
    refuse(hub, "some/two", 418)
    with raises("E-DATASET-UNREACHABLE", "some/two"):
        fetch_dataset("some/two", ["*"], tmp_path / "set")
    with serving() as gone:
        monkeypatch.setenv("HF_ENDPOINT", gone.url)
    with raises("E-DATASET-UNREACHABLE", "some/one"):
        fetch_dataset("some/one", ["*"], tmp_path / "set")


def test_a_folder_that_cannot_be_made_is_said_to_be(hub, tmp_path):
    publish(hub, "someone/set", FILES)
    (tmp_path / "set").write_text("a file, where a folder should be")
    with raises("E-OUTPUT-UNWRITABLE", tmp_path / "set" / "x"):
        fetch_dataset("someone/set", ["*.parquet"], tmp_path / "set" / "x")


def test_names_that_lead_elsewhere_are_refused(hub, tmp_path):
    for name in ["../evil.parquet", "/evil.parquet", "//ROOT/evil.parquet"]:
        name = name.replace("ROOT", str(tmp_path).lstrip("/"))
        publish(hub, "someone/set", {name: b"PAR1"})
        with raises("E-DATASET-MALFORMED", "someone/set"):
            fetch_dataset("someone/set", ["*.parquet"], tmp_path / "set")
        assert not list(tmp_path.rglob("evil*"))


def test_answers_that_are_not_the_hubs_are_one_sentence(hub, tmp_path):
    for answer in [b"[]", b"5", b"{}", b"<html>", b"[" * 100_000, b'{"sha": 1}']:
        hub.put("api/datasets/some/one/revision/main", answer, **as_json())
        with raises("E-DATASET-MALFORMED", "some/one"):
            fetch_dataset("some/one", ["*"], tmp_path / "set")
