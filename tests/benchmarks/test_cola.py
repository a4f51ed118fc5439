"""COLA: one list of pairs, under several names, with images in one of two places."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmark_fixtures import IDENTITY, load, needs_real_files, real, write, write_json
from errors import raises

from counterpoint.benchmarks.pairs import COLA_FILE as FILE
from counterpoint.benchmarks.registry import BENCHMARKS

SITE = "https://example.org/data/vg_gqa_images"
ROWS = [
    [f"{SITE}/11.jpg", "red mole on blue hill", f"{SITE}/12.jpg", "blue mole on red hill"],
    [f"{SITE}/13.jpg?raw=1", "big mole near old owl", "14.jpg", "old mole near big owl"],
]
SINGLE = [["square white plate", "red mole"], [["15.jpg", {}, [0, 1], [1, 1]]]]


def test_a_row_is_two_images_and_two_captions(tmp_path: Path) -> None:
    write_json(tmp_path / "cola" / FILE, ROWS)
    cases = load("cola", tmp_path)
    assert [case.id for case in cases] == ["0", "1"]
    assert [[image.path for image in case.images] for case in cases] == [
        ["cola/images/11.jpg", "cola/images/12.jpg"],
        ["cola/images/13.jpg", "cola/images/14.jpg"],
    ]
    assert cases[0].captions == ("red mole on blue hill", "blue mole on red hill")
    assert {case.truth for case in cases} == {IDENTITY}
    assert cases[0].groups == ()


def test_images_of_visual_genome_will_do(tmp_path: Path) -> None:
    write_json(tmp_path / "cola" / FILE, ROWS)
    for path in ("cola/images/11.jpg", *(f"visual_genome/VG_100K_2/{i}.jpg" for i in (11, 12))):
        write(tmp_path / path, b"a picture")
    first, second = load("cola", tmp_path)
    assert [image.path for image in first.images] == [
        "cola/images/11.jpg",
        "visual_genome/VG_100K_2/12.jpg",
    ]
    assert second.images[0].path == "cola/images/13.jpg"


@pytest.mark.parametrize("name", [f"data/{FILE}", "data/of_another_name.json", "other.json"])
def test_the_file_is_found_by_its_form(name: str, tmp_path: Path) -> None:
    write_json(tmp_path / "cola/data/COLA_singleobjects_benchmark_GQA.json", SINGLE)
    write_json(tmp_path / "cola/data/more.json", {"a": 1})
    write_json(tmp_path / "cola" / name, ROWS)
    assert len(load("cola", tmp_path)) == 2


def test_the_published_name_comes_before_the_form(tmp_path: Path) -> None:
    write_json(tmp_path / "cola" / FILE, ROWS[:1])
    write_json(tmp_path / "cola/another.json", ROWS)
    assert len(load("cola", tmp_path)) == 1


def test_two_files_of_the_form_are_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_json(tmp_path / f"cola/{name}.json", ROWS)
    with raises("E-FILE-AMBIGUOUS"):
        load("cola", tmp_path)


MALFORMED = {
    "short": ROWS[0][:3],
    "long": [*ROWS[0], "more"],
    "no caption": [ROWS[0][0], "", *ROWS[0][2:]],
    "a number": [ROWS[0][0], 3, *ROWS[0][2:]],
    "an object": {"image": "11.jpg"},
}


def test_a_malformed_row_is_named(tmp_path: Path) -> None:
    for what in MALFORMED:
        write_json(tmp_path / "cola" / FILE, [ROWS[0], MALFORMED[what]])
        with raises(
            "E-ROW-MALFORMED", f"{tmp_path}/cola/COLA_multiobjects_matching_benchmark.json: row 2"
        ):
            load("cola", tmp_path)


def test_a_file_of_another_form_is_named(tmp_path: Path) -> None:
    write_json(tmp_path / "cola" / FILE, {"rows": ROWS})
    with raises("E-FILE-MALFORMED", tmp_path / "cola/COLA_multiobjects_matching_benchmark.json"):
        load("cola", tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    write_json(tmp_path / "cola/single.json", SINGLE)
    with raises(
        "E-FILE-MISSING",
        tmp_path / "cola/COLA_multiobjects_matching_benchmark.json",
        "cola",
    ):
        load("cola", tmp_path)


def test_the_summary_says_what_is_official() -> None:
    assert "only text_to_image" in BENCHMARKS.get("cola").summary


@needs_real_files
def test_the_published_files() -> None:
    cases = real("cola")
    assert len(cases) == 210
    images = {image["path"] for pair in cases.frame["images"].to_list() for image in pair}
    assert len(images) == 218
