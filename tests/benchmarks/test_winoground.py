"""Winoground: the hub's JSONL with images, and its Parquet, are the same cases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmark_fixtures import (
    IDENTITY,
    group_counts,
    hub_image,
    load,
    needs_real_files,
    real,
    write,
    write_json,
    write_parquet,
)
from errors import raises


def row(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "id": number,
        "image_0": f"ex_{number}_img_0",
        "image_1": f"ex_{number}_img_1",
        "caption_0": f"a mole under a rose {number}",
        "caption_1": f"a rose under a mole {number}",
        "tag": "Noun Phrase/Determiner, Scope",
        "secondary_tag": "",
        "num_main_preds": 1,
        "collapsed_tag": "Object",
    } | changes


def write_lines(path: Path, *rows: dict[str, Any]) -> Path:
    return write(path, "".join(f"{json.dumps(line)}\n" for line in rows))


def write_pictures(folder: Path, *numbers: int, ending: str = "png") -> None:
    for number in numbers:
        for side in range(2):
            write(folder / f"ex_{number}_img_{side}.{ending}", b"a picture")


@pytest.mark.parametrize("pictures", ["data/images", "data", "elsewhere/unpacked/images", "images"])
def test_images_are_found_by_name(pictures: str, tmp_path: Path) -> None:
    folder = tmp_path / "winoground"
    write_lines(folder / "data/examples.jsonl", row(0), row(7))
    write_pictures(folder / pictures, 0, 7)
    cases = load("winoground", tmp_path)
    assert [case.id for case in cases] == ["0", "7"]
    assert [image.path for image in cases[1].images] == [
        f"winoground/{pictures}/ex_7_img_{side}.png" for side in range(2)
    ]
    assert cases[1].captions == ("a mole under a rose 7", "a rose under a mole 7")
    assert cases[1].truth == IDENTITY


def test_names_may_have_an_ending_and_a_folder(tmp_path: Path) -> None:
    for name in ["ex_0_img_0", "ex_0_img_0.png", "images/ex_0_img_0.png"]:
        write_lines(tmp_path / "winoground/examples.jsonl", row(0, image_0=name))
        write_pictures(tmp_path / "winoground/images", 0, ending="jpg")
        [found] = load("winoground", tmp_path)
        assert found.images[0].path == "winoground/images/ex_0_img_0.jpg"


def test_images_that_are_not_there_are_expected_beside_the_file(tmp_path: Path) -> None:
    write_lines(tmp_path / "winoground/data/examples.jsonl", row(3))
    [found] = load("winoground", tmp_path)
    assert found.images[1].path == "winoground/data/images/ex_3_img_1.png"


GROUPS = {
    "plain": ({}, ("Object", "tag/Noun Phrase|Determiner, Scope", "preds/1")),
    "secondary": (
        {"secondary_tag": "Series", "num_main_preds": "2", "collapsed_tag": "Both"},
        ("Both", "tag/Noun Phrase|Determiner, Scope", "secondary/Series", "preds/2"),
    ),
    "several secondary tags": (
        {"tag": None, "secondary_tag": "Symbolic,Series, Morpheme-Level,", "num_main_preds": None},
        ("Object", "secondary/Symbolic", "secondary/Series", "secondary/Morpheme-Level"),
    ),
    "nothing more": ({"tag": None, "secondary_tag": None, "num_main_preds": None}, ("Object",)),
}


@pytest.mark.parametrize("what", GROUPS)
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_tags_are_groups(what: str, form: str, tmp_path: Path) -> None:
    changes, groups = GROUPS[what]
    if form == "jsonl":
        write_lines(tmp_path / "winoground/examples.jsonl", row(0, **changes))
    else:
        images = {"image_0": hub_image("a"), "image_1": hub_image("b")}
        write_parquet(tmp_path / "winoground/t.parquet", [row(0, **changes) | images])
    [found] = load("winoground", tmp_path)
    assert found.groups == groups


def test_the_tags_of_diwan_et_al_are_groups(tmp_path: Path) -> None:
    rows = [row(n, tag=None, num_main_preds=None) for n in range(4)]
    write_lines(tmp_path / "winoground/examples.jsonl", *rows)
    assert {case.groups for case in load("winoground", tmp_path)} == {("Object",)}
    tags = {"0": [], "1": ["Non Minimal"], "2": ["Unusual Image", "Unusual Text"], "9": []}
    file = write_json(tmp_path / "winoground/why/new_tag_assignments.json", tags)
    assert [case.groups for case in load("winoground", tmp_path)] == [
        ("Object", "diwan/clean"),
        ("Object", "diwan/Non Minimal"),
        ("Object", "diwan/Unusual Image", "diwan/Unusual Text"),
        ("Object",),  # the file does not say
    ]
    for wrong in ([], {"0": "Non Minimal"}, {"0": [1]}):
        write_json(file, wrong)
        with raises("E-FILE-MALFORMED", file):
            load("winoground", tmp_path)


def test_parquet_holds_its_images_and_comes_first(tmp_path: Path) -> None:
    folder = tmp_path / "winoground/data"
    images = {"image_0": hub_image("a"), "image_1": hub_image("b")}
    write_parquet(folder / "test-0.parquet", [row(0) | images, row(1) | images])
    write_lines(folder / "examples.jsonl", row(5))
    cases = load("winoground", tmp_path)
    assert [case.id for case in cases] == ["0", "1"]
    assert [image.path for image in cases[1].images] == [
        f"parquet:winoground/data/test-0.parquet#image_{side}/1" for side in range(2)
    ]
    assert cases[0].cluster != cases[1].cluster


def test_blank_lines_line_ends_and_a_byte_order_mark_are_no_matter(tmp_path: Path) -> None:
    lines = "\r\n".join(["\ufeff" + json.dumps(row(0)), "", json.dumps(row(1, more=2)), ""])
    write(tmp_path / "winoground/examples.jsonl", lines)
    assert [case.id for case in load("winoground", tmp_path)] == ["0", "1"]


MALFORMED = {
    "not JSON": ('{"id": 1', "E-JSON-INVALID", "line 2", None),
    "no object": ("[1]", "E-ROW-MALFORMED", "line 2", None),
    "another encoding": ('{"id": "é"}'.encode("latin-1"), "E-TEXT-ENCODING", "line 2", None),
    "no caption": (json.dumps(row(1, caption_1="")), "E-ROW-MALFORMED", "row 2", "caption_1"),
    "no image": (json.dumps(row(1, image_0=None)), "E-ROW-MALFORMED", "row 2", "image_0"),
    "no tag": (json.dumps(row(1, collapsed_tag="")), "E-ROW-MALFORMED", "row 2", "collapsed_tag"),
    "no id": (json.dumps(row(1, id=None)), "E-ROW-MALFORMED", "row 2", "id"),
}


def test_a_malformed_line_is_named(tmp_path: Path) -> None:
    for what in MALFORMED:
        line, code, place, field = MALFORMED[what]
        line = line.encode() if isinstance(line, str) else line
        write(tmp_path / "winoground/examples.jsonl", json.dumps(row(0)).encode() + b"\n" + line)
        where = f"{tmp_path}/winoground/examples.jsonl: {place}"
        with raises(code, where, field or ""):
            load("winoground", tmp_path)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with raises("E-FILE-MISSING", tmp_path / "winoground/**/examples.jsonl", "winoground"):
        load("winoground", tmp_path)


@needs_real_files
def test_the_published_files() -> None:
    cases = real("winoground")
    assert cases.ids.to_list() == [str(number) for number in range(400)]
    assert set(group_counts(cases)) == {"Object", "Relation", "Both"}
