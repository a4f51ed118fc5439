"""A small catalogue for tests of getting data, served on this machine or by nobody."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from http_server import Server, serving

import counterpoint.data
from counterpoint.data import sources as catalogue_module
from counterpoint.data.sources import read_catalogue

SUBSETS = (
    *("add_att", "add_obj", "replace_att", "replace_obj", "replace_rel", "swap_att", "swap_obj"),
)


def use_catalogue(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    text = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    found = read_catalogue(text.replace("URL", url))
    for owner in (counterpoint.data, catalogue_module):  # the door keeps what it has imported
        monkeypatch.setattr(owner, "catalogue", lambda: found)


@pytest.fixture
def server(local_network: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with serving() as started:
        use_catalogue(monkeypatch, started.url)
        started.put("a.json", b"[]")
        started.put("b.json", b"[{}]")
        yield started


@pytest.fixture
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever asks fails, since the network is forbidden."""
    use_catalogue(monkeypatch, "http://127.0.0.1:1")


def lay(root: Path, *names: str, content: bytes = b"") -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
