"""Models of the hub where it does not answer: from the cache, or one sentence without delay."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import hf_models
import pytest
from errors import raises
from huggingface_hub import constants
from open_clip_models import save_model

from counterpoint.models import hub
from counterpoint.models.registry import load_model

pytestmark = pytest.mark.usefixtures("local_network")


@pytest.fixture
def silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A hub that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        monkeypatch.setattr(constants, "ENDPOINT", address)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(hub, "_PATIENCE", 0.05)
        yield listening


def connections(listening: socket.socket) -> int:
    listening.setblocking(False)
    count = 0
    while True:
        try:
            listening.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("id", "repository"),
    [
        ("hf:org/model", "org/model"),
        ("vqa:org/model", "org/model"),
        ("blind:lm:org/model", "org/model"),
        ("open_clip:hf-hub:org/model", "org/model"),
        ("open_clip:ViT-B-32-quickgelu/openai", "timm/vit_base_patch32_clip_224.openai"),
    ],
)
def test_a_silent_hub_is_asked_once(
    id: str, repository: str, silent: socket.socket, capfd: pytest.CaptureFixture[str]
) -> None:
    with raises("E-HUB-UNREACHABLE") as error:
        load_model(id)
    said = str(error.value)
    assert said.startswith(f"{id} cannot be fetched: {constants.ENDPOINT} does not answer (timed")
    assert f"{repository} is not in the cache" in said
    assert connections(silent) == 1
    assert capfd.readouterr() == ("", "")  # the library's own error is not printed as well


@pytest.mark.slow
def test_what_is_in_the_cache_is_used(tmp_path: Path, silent: socket.socket) -> None:
    folder = hf_models.save(tmp_path / "saved", hf_models.clip)
    cached = tmp_path / "hub" / "models--org--model"
    shutil.copytree(folder, cached / "snapshots" / ("a" * 40))
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("a" * 40)
    assert load_model("hf:org/model").fingerprint == load_model(f"hf:{folder}").fingerprint
    assert constants.HF_HUB_OFFLINE is False  # the next model may find a network


@pytest.mark.slow
def test_folders_do_not_ask_the_hub(tmp_path: Path, silent: socket.socket) -> None:
    load_model(f"hf:{hf_models.save(tmp_path / 'hf', hf_models.clip)}")
    load_model(f"open_clip:local-dir:{save_model(tmp_path / 'oc')}")
    load_model("world:base")
    assert connections(silent) == 0


def test_any_answer_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from http_server import serving

    with serving() as server:  # 404 for everything
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        with hub.hub_or_cache("hf:org/model", "org/model"):
            assert constants.HF_HUB_OFFLINE is False
        assert [asked.path for asked in server.asked] in ([""], ["/"])
