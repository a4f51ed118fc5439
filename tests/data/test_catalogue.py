"""The catalogue: that it is sound and complete."""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from errors import raises

from counterpoint._util.errors import NotFoundError
from counterpoint._util.untrusted import inside
from counterpoint.benchmarks.registry import BENCHMARKS
from counterpoint.data.sources import (
    ArchiveSource,
    FileSource,
    HubSource,
    ImageSource,
    ManualSource,
    catalogue,
    data_root,
    get_source,
    needs,
    presence,
)

SOURCES = catalogue().sources.values()


def test_every_published_benchmark_is_in_it():
    published = {name for name in BENCHMARKS.names() if not name.startswith("world-")}
    assert published == set(catalogue().benchmarks)


def test_every_source_is_needed_by_something():
    used = {source.id for needed in catalogue().benchmarks.values() for source in needed.all()}
    elsewhere = {
        source.or_else for source in SOURCES if isinstance(source, FileSource | ImageSource)
    }
    spare = {"coco-train2014"}  # named in the layout, so that it can be got for other uses
    assert set(catalogue().sources) - used - elsewhere == spare


def test_every_source_is_sound():
    for source in SOURCES:
        mirrors = getattr(source, "mirrors", ())
        files = getattr(source, "files", ())
        assert source.what and isinstance(source.size, int | None)
        for name in (source.target, getattr(source, "name", "-"), *(file.name for file in files)):
            inside(Path(), name)
        for pattern in getattr(source, "holds", ()):
            inside(Path(), pattern)
        for mirror in mirrors:
            assert urlsplit(mirror).scheme in ("http", "https")
            assert isinstance(source, ArchiveSource) or "{name}" in mirror
        for file in files:
            assert source.urls(file) and isinstance(file.size, int | None)
        if or_else := getattr(source, "or_else", ""):
            assert type(get_source(or_else)) is type(source)
        if isinstance(source, ManualSource):
            assert "https://" in source.by_hand and not source.by_hand.endswith(".")
        if isinstance(source, HubSource):
            assert "/" in source.repo and source.patterns and isinstance(source.gated, bool)
        if isinstance(source, ArchiveSource | ImageSource):
            assert mirrors


ADDRESSES = {
    ("sugarcrepe", "add_att.json"): "https://raw.githubusercontent.com/RAIVNLab/sugar-crepe/"
    "0047054b243992f0fad63d6f64f7544862daf846/data/add_att.json",
    ("aro/vg-relation", "visual_genome_relation.json"): "https://drive.usercontent.google.com/"
    "download?id=1kX2iCHEv0CADL8dSO1nMdW-V0NqIAiP3&export=download&confirm=t",
}


def test_addresses():
    for (benchmark, name), url in ADDRESSES.items():
        [source] = needs(benchmark).annotations
        assert isinstance(source, FileSource)
        [file] = [one for one in source.files if one.name == name]
        assert source.urls(file)[0] == url


def test_sums_are_those_of_files_that_are_at_hand():
    """Those in the developer's data root; without one there is nothing to compare with."""
    folder = data_root()
    found = 0
    for source in SOURCES:
        for file in source.files if isinstance(source, FileSource) else ():
            path = folder / source.target / file.name
            if file.sha256 and path.exists():
                assert hashlib.sha256(path.read_bytes()).hexdigest() == file.sha256
                assert path.stat().st_size == file.size
                found += 1
    if not found:
        pytest.skip("no annotation files at hand")


def test_unknown_names_are_guessed_at():
    with pytest.raises(NotFoundError, match="Did you mean 'sugarcrepe'"):
        needs("sugarcrep")
    with pytest.raises(NotFoundError, match="Did you mean 'coco-val2017'"):
        get_source("coco-val2071")


# --- reading -----------------------------------------------------------------------------------


# --- paths and presence ------------------------------------------------------------------------


def test_names_that_lead_elsewhere_are_refused(tmp_path):
    for name in ("../x", "a/../../x", "/etc/passwd", "..", "", ".", "a\\..\\x", "C:/x", "a\0b"):
        with raises("E-PATH-OUTSIDE", tmp_path):
            inside(tmp_path, name)


def test_presence_counts_what_is_there(tmp_path):
    def state(id: str) -> tuple[int, int | None, bool]:
        found = presence(get_source(id), tmp_path)
        return found.files, found.of, found.complete

    assert state("sugarcrepe") == (0, 7, False)
    assert state("coco-val2017") == (0, None, False)
    assert state("winoground") == (0, 1, False)
    for name in (
        "sugarcrepe/add_att.json",
        "coco/val2017/1.jpg",
        "coco/val2017/2.jpg.part",
        "winoground/data/test.parquet",  # or examples.jsonl: one of them will do
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert state("sugarcrepe") == (1, 7, False)
    assert state("coco-val2017") == (1, None, True)
    assert state("winoground") == (1, 1, True)
