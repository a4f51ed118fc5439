"""SugarCrepe++: both tests of each triple, and what a file may look like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from benchmark_fixtures import group_counts, load, needs_real_files, real, write, write_json
from errors import raises

from counterpoint.benchmarks.registry import published_files
from counterpoint.cases.table import ImageRef

ITT = ((True, True, False),)
SIZES = {"replace/att": 788, "replace/obj": 1652, "replace/rel": 1406}
SIZES |= {"swap/att": 666, "swap/obj": 245}

SUBSETS = [*published_files("sugarcrepe-pp:tests=itt")]


def triple(number: int, subset: str) -> dict[str, Any]:
    return {
        "id": number,
        "filename": f"{number:012}.jpg",
        "caption": f"a mole digs {number} {subset}",
        "caption2": f"digging is what a mole does {number} {subset}",
        "negative_caption": f"a mole sings {number} {subset} ",
    }


def write_all(folder: Path, rows: int = 2) -> None:
    for subset in SUBSETS:
        write_json(folder / f"{subset}.json", [triple(i, subset) for i in range(rows)])


def test_an_image_is_matched_with_three_captions(tmp_path: Path) -> None:
    write_all(tmp_path / "sugarcrepe_pp")
    cases = load("sugarcrepe-pp:tests=itt", tmp_path)
    assert [case.id for case in cases] == [f"{subset}/{i}" for subset in SUBSETS for i in range(2)]
    found = cases[7]
    assert found.id == "swap_att/1"
    assert found.images == (ImageRef("coco/val2017/000000000001.jpg"),)
    assert found.captions == (
        "a mole digs 1 swap_att",
        "digging is what a mole does 1 swap_att",
        "a mole sings 1 swap_att ",
    )
    assert found.truth == ITT
    assert found.groups == ("swap/att",)
    assert found.cluster == "coco/val2017/000000000001.jpg"


def test_by_text_alone_the_captions_stand_for_images(tmp_path: Path) -> None:
    write_all(tmp_path / "sugarcrepe_pp")
    cases = load("sugarcrepe-pp:tests=tot", tmp_path)
    assert [case.id for case in cases][:3] == [
        "tot/replace_att/0",
        "tot/replace_att/1",
        "tot/replace_obj/0",
    ]
    found = cases[0]
    assert [image.path for image in found.images] == [f"text:{c}" for c in found.captions[:2]]
    assert found.captions[2] == "a mole sings 0 replace_att "
    assert found.truth == ITT * 2
    assert found.groups == ("text-only/replace/att",)
    assert found.cluster == "coco/val2017/000000000000.jpg"


def test_both_tests_are_the_default(tmp_path: Path) -> None:
    write_all(tmp_path / "sugarcrepe_pp")
    itt, tot = (load(f"sugarcrepe-pp:tests={test}", tmp_path) for test in ("itt", "tot"))
    assert load("sugarcrepe-pp", tmp_path) == itt + tot


def test_an_unknown_test_is_refused(tmp_path: Path) -> None:
    write_all(tmp_path / "sugarcrepe_pp")
    with raises("E-OPTION-INVALID", "tests", "ot"):
        load("sugarcrepe-pp:tests=ot", tmp_path)


def test_files_may_lie_in_data_and_hold_rows_by_key_or_without_id(tmp_path: Path) -> None:
    folder = tmp_path / "sugarcrepe_pp/data"
    write_all(folder)
    row = {key: value for key, value in triple(5, "x").items() if key != "id"}
    write_json(folder / "swap_att.json", {"5": row, "7": row})
    write_json(folder / "swap_obj.json", [row, row])
    ids = [case.id for case in load("sugarcrepe-pp:tests=itt", tmp_path)]
    assert ids[-4:] == ["swap_att/5", "swap_att/7", "swap_obj/0", "swap_obj/1"]


def test_a_field_that_is_no_text_is_named(tmp_path: Path) -> None:
    for key in ["filename", "caption", "caption2", "negative_caption"]:
        for value in [None, "", " ", 3, ["a text"]]:
            write_all(tmp_path / "sugarcrepe_pp")
            rows = [triple(0, "x"), triple(1, "x") | {key: value}]
            write_json(tmp_path / "sugarcrepe_pp/replace_rel.json", rows)
            with raises(
                "E-ROW-MALFORMED", f"{tmp_path}/sugarcrepe_pp/replace_rel.json: case 1", key
            ):
                load("sugarcrepe-pp", tmp_path)


MALFORMED = {
    "not JSON": ('[{"id": 0', "E-JSON-INVALID"),
    "a text": ('"none"', "E-FILE-MALFORMED"),
    "a row that is no object": ('[{"id": 0}, 4]', "E-ROW-MALFORMED"),
    "another encoding": ('["é"]'.encode("latin-1"), "E-TEXT-ENCODING"),
}


def test_a_malformed_file_is_named(tmp_path: Path) -> None:
    for what in MALFORMED:
        content, code = MALFORMED[what]
        write_all(tmp_path / "sugarcrepe_pp")
        path = tmp_path / "sugarcrepe_pp/swap_obj.json"
        write(path, content)
        with raises(code) as caught:
            load("sugarcrepe-pp", tmp_path)
        assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("subset", SUBSETS)
def test_a_missing_file_is_named(subset: str, tmp_path: Path) -> None:
    write_all(tmp_path / "sugarcrepe_pp")
    (tmp_path / f"sugarcrepe_pp/{subset}.json").unlink()
    with raises("E-FILE-MISSING", tmp_path / f"sugarcrepe_pp/{subset}.json"):
        load("sugarcrepe-pp", tmp_path)


@needs_real_files
def test_the_published_files() -> None:
    text_only = {f"text-only/{group}": size for group, size in SIZES.items()}
    assert group_counts(real("sugarcrepe-pp")) == SIZES | text_only
