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
    "add_att",
    "add_obj",
    "replace_att",
    "replace_obj",
    "replace_rel",
    "swap_att",
    "swap_obj",
)
CATALOGUE = """
[sources.notes]
kind = "files"
what = "notes"
target = "notes"
mirrors = ["URL/{name}"]
files = ["a.json", { name = "b.json", size = 4 }]

[sources.published]
kind = "files"
what = "what may not be there any more"
target = "published"
mirrors = ["URL/published/{name}"]
files = ["p.json"]
or_else = "notes"

[sources.first]
kind = "images"
what = "first part"
target = "pictures/first"
mirrors = ["URL/first/{name}"]
or_else = "second"

[sources.second]
kind = "images"
what = "second part"
target = "pictures/second"
mirrors = ["URL/second/{name}"]

[sources.numbered]
kind = "images"
what = "those with a number"
target = "mixed"
names = "[0-9]*.jpg"
mirrors = ["URL/numbered/{name}"]

[sources.asked-for]
kind = "manual"
what = "those which are given on request"
target = "mixed"
by_hand = "Ask at https://host/form"
holds = ["*.png"]

[sources.zipped]
kind = "archive"
what = "zipped images"
target = "zipped"
name = "images.zip"
mirrors = ["URL/images.zip"]
holds = ["images/*.jpg"]

[sources.hubbed]
kind = "hub"
what = "a set of the hub"
target = "hubbed"
repo = "some/one"
patterns = ["data/*"]
holds = ["**/*.jsonl"]
unpack = ["data/*.zip"]

[sources.subsets]
kind = "files"
what = "subsets"
target = "sugarcrepe"
mirrors = ["URL/data/{name}"]
files = [SUBSETS]

[sources.coco]
kind = "images"
what = "COCO"
target = "coco/val2017"
mirrors = ["URL/val2017/{name}"]

[benchmarks."plain"]
annotations = ["notes"]
images = ["first", "second"]

[benchmarks."published"]
annotations = ["published"]

[benchmarks."mixed"]
annotations = ["notes"]
images = ["numbered", "asked-for"]
optional = ["asked-for"]

[benchmarks."zipped"]
annotations = ["notes"]
images = ["zipped"]

[benchmarks."whole/zip"]
annotations = ["zipped"]

[benchmarks."hubbed"]
annotations = ["hubbed"]
images = ["hubbed"]

[benchmarks."by-hand"]
annotations = ["asked-for"]
images = ["first"]

[benchmarks."sugarcrepe"]
annotations = ["subsets"]
images = ["coco"]
"""


def use_catalogue(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    subsets = ", ".join(f'"{name}.json"' for name in SUBSETS)
    text = CATALOGUE.replace("URL", url).replace("SUBSETS", subsets)
    found = read_catalogue(text)
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
