"""The positives that come with the package: keyed by case id, one a case."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import polars as pl
import pytest
from benchmark_fixtures import REAL, needs_real_files

from counterpoint._util.errors import DataError
from counterpoint.benchmarks.positives import add_positives
from counterpoint.benchmarks.registry import BENCHMARKS, load_benchmark

FILES = sorted(Path(str(resources.files("counterpoint.benchmarks") / "shipped")).glob("*.parquet"))
IDS = {"aro-coco-order": "aro/coco-order", "sugarcrepe": "sugarcrepe"}
IDS |= {"vl-checklist": "vl-checklist"}
SHADES = {"crimson", "sapphire", "emerald", "chestnut", "ivory", "ebony"}


def test_they_are_of_benchmarks_whose_licence_allows_it() -> None:
    assert {path.stem for path in FILES} == set(IDS)
    for id in IDS.values():
        licence = BENCHMARKS.get(id).licence
        assert licence == "MIT" or licence.startswith("CC BY")


def test_they_are_small_and_whole() -> None:
    for path in FILES:
        assert path.stat().st_size < 512 * 1024
        table = pl.read_parquet(path)
        assert table.schema == {"case_id": pl.String, "text": pl.String}
        assert len(table) > 4_000
        assert table["case_id"].is_unique().all()
        assert table["text"].str.strip_chars().str.len_chars().min() > 2


# Cases of which a negative once shipped as a positive; what it says is true of each.
NEGATIVES = {
    "Attribute/vg/size/342": "little building",
    "Attribute/vg/size/773": "tail OF little giraffe",
    "Attribute/vg/size/1600": "graffiti ON little ramp",
    "Attribute/vg/size/1711": "little giraffe",
    "Attribute/vg/size/2575": "eye OF little elephant",
    "Relation/vg/spatial/25499": "parking meter in front of parking meter",
}


def shipped(name: str) -> dict[str, str]:
    [path] = (path for path in FILES if path.stem == name)
    return dict(pl.read_parquet(path).select("case_id", "text").iter_rows())


REORDERED = [
    ("sugarcrepe", "add_att/271"),  # with black and a tiled floor and white toilet
    ("aro-coco-order", "13862"),  # A zebra stand side and a giraffe by side
    ("aro-coco-order", "16975"),  # A girl and a man in a bikini
    ("aro-coco-order", "7148"),  # green yellow and a scale and red apples
]


def test_what_once_shipped_wrongly_ships_no_more() -> None:
    of_benchmark = shipped("vl-checklist")
    assert [id for id, text in NEGATIVES.items() if of_benchmark.get(id) == text] == []
    wrong = "black and a tiled|stand side and|girl and a man in|yellow and a scale"
    assert not any(re.search(wrong, shipped(name).get(id, "")) for name, id in REORDERED)


def words_of(text: str) -> list[str]:
    words = re.findall(r"[\w'-]+", text.casefold())
    return ["a" if word == "an" else word for word in words]


@needs_real_files
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_on_the_authors_files_all_are_used_and_none_is_a_negative(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    try:
        _, cases = load_benchmark(IDS[path.stem], Path(REAL or ""))
    except DataError as error:
        pytest.skip(str(error))
    positives = shipped(path.stem)
    assert positives.keys() <= set(cases.ids.to_list())
    extended = add_positives(cases, path)
    assert caplog.text == ""
    assert (extended.caption_counts > cases.caption_counts).sum() == len(positives)
    for id, captions in cases.frame.select("id", "captions").iter_rows():
        if id in positives:
            words = words_of(positives[id])
            assert words not in map(words_of, captions), id
            assert SHADES.isdisjoint(set(words) - set(words_of(captions[0]))), id
