"""SugarCrepe: seven files of cases by number, and the four averages that papers take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmark_fixtures import load, write, write_json
from errors import raises
from support import part, random_scores

from counterpoint.benchmarks.registry import load_benchmark
from counterpoint.cases.table import ImageRef
from counterpoint.runs import side_by_side

SUBSETS = ("add_att", "add_obj", "replace_att", "replace_obj", "replace_rel", "swap_att")
SUBSETS = (*SUBSETS, "swap_obj")


def item(number: int = 7, **changes: Any) -> dict[str, Any]:
    return {
        "filename": f"{number:012}.jpg",
        "caption": f"a mole above {number} newts ",
        "negative_caption": f"A mole below {number} newts.",
    } | changes


def write_all(root: Path, **sizes: int) -> None:
    """Two cases a subset, or as many as are asked for."""
    for subset in SUBSETS:
        rows = {str(n): item(n) for n in range(sizes.get(subset, 2))}
        write_json(root / f"sugarcrepe/{subset}.json", rows)


def test_a_case_is_a_caption_and_a_negative(tmp_path: Path) -> None:
    write_all(tmp_path)
    cases = load("sugarcrepe", tmp_path)
    assert [case.id for case in cases] == [f"{subset}/{n}" for subset in SUBSETS for n in range(2)]
    found = cases[1]
    assert found.images == (ImageRef("coco/val2017/000000000001.jpg"),)
    assert found.captions == ("a mole above 1 newts ", "A mole below 1 newts.")  # blanks too
    assert found.truth == ((True, False),)
    assert found.groups == ("add/att",)
    assert found.cluster == "coco/val2017/000000000001.jpg"
    assert [case.groups[0] for case in cases[::2]] == [s.replace("_", "/") for s in SUBSETS]


def test_numbers_may_have_gaps_and_any_order(tmp_path: Path) -> None:
    write_all(tmp_path)
    write_json(tmp_path / "sugarcrepe/swap_obj.json", {"9": item(9), "0": item(), "107": item()})
    ids = [case.id for case in load("sugarcrepe", tmp_path)]
    assert ids[-3:] == ["swap_obj/9", "swap_obj/0", "swap_obj/107"]


@pytest.mark.parametrize("subset", SUBSETS)
def test_every_subset_must_be_there(subset: str, tmp_path: Path) -> None:
    write_all(tmp_path)
    (tmp_path / f"sugarcrepe/{subset}.json").unlink()
    with raises("E-FILE-MISSING", tmp_path / f"sugarcrepe/{subset}.json"):
        load("sugarcrepe", tmp_path)


def test_a_malformed_case_is_named(tmp_path: Path) -> None:
    for key in ["filename", "caption", "negative_caption"]:
        for value in [None, "", " ", 4, ["a"]]:
            write_all(tmp_path)
            rows = {"0": item(), "5": item(**{key: value})}
            write_json(tmp_path / "sugarcrepe/swap_att.json", rows)
            with raises("E-ROW-MALFORMED", f"{tmp_path}/sugarcrepe/swap_att.json: case 5", key):
                load("sugarcrepe", tmp_path)


def test_a_missing_field_is_named(tmp_path: Path) -> None:
    write_all(tmp_path)
    write_json(tmp_path / "sugarcrepe/add_obj.json", {"0": {"filename": "1.jpg", "caption": "a"}})
    with raises(
        "E-ROW-MALFORMED",
        f"{tmp_path}/sugarcrepe/add_obj.json: case 0",
        "negative_caption",
    ):
        load("sugarcrepe", tmp_path)


def test_a_malformed_file_is_named(tmp_path: Path) -> None:
    for content, code in [
        ("[]", "E-FILE-MALFORMED"),
        ("4", "E-FILE-MALFORMED"),
        ("{", "E-JSON-INVALID"),
        ("null", "E-FILE-MALFORMED"),
        (b"\xff\x00", "E-TEXT-ENCODING"),
    ]:
        write_all(tmp_path)
        path = tmp_path / "sugarcrepe/add_obj.json"
        write(path, content)
        with raises(code) as caught:
            load("sugarcrepe", tmp_path)
        assert str(caught.value).startswith(str(path))


def test_a_row_that_is_no_object_is_named(tmp_path: Path) -> None:
    for row in ["a text", None, [1], 3]:
        write_all(tmp_path)
        write_json(tmp_path / "sugarcrepe/add_obj.json", {"0": item(), "3": row})
        with raises("E-ROW-MALFORMED", f"{tmp_path}/sugarcrepe/add_obj.json: case 3"):
            load("sugarcrepe", tmp_path)


def test_the_four_averages_are_those_of_plain_loops(tmp_path: Path) -> None:
    write_all(tmp_path, add_att=5, add_obj=11, replace_att=4, replace_obj=9, swap_obj=3)
    cases = load_benchmark("sugarcrepe", tmp_path).cases
    scores = random_scores(cases, seed=3, values=4)  # with ties, which are wrong
    right: dict[str, list[bool]] = {subset: [] for subset in SUBSETS}
    for id, positive, negative in zip(cases.ids, scores[::2], scores[1::2], strict=True):
        right[id.partition("/")[0]].append(bool(positive > negative))
    types: dict[str, list[str]] = {}
    for subset in SUBSETS:
        types.setdefault(subset.partition("_")[0], []).append(subset)
    expected = {
        "micro": np.mean([hit for hits in right.values() for hit in hits]),
        "macro": np.mean([np.mean(hits) for hits in right.values()]),
        "types": np.mean(
            [np.mean([hit for s in subsets for hit in right[s]]) for subsets in types.values()]
        ),
        "types-macro": np.mean(
            [np.mean([np.mean(right[s]) for s in subsets]) for subsets in types.values()]
        ),
    }
    found = side_by_side(part(cases, scores, "sugarcrepe"))
    assert {name: values["original_accuracy"] for name, values in found.items()} == (
        pytest.approx(expected)
    )
    assert len({round(float(value), 9) for value in expected.values()}) == 4


def test_a_clone_of_the_repository_will_do(tmp_path: Path) -> None:
    write_all(tmp_path)
    expected = load("sugarcrepe", tmp_path)
    (tmp_path / "sugarcrepe").rename(tmp_path / "data")
    (tmp_path / "sugarcrepe").mkdir()
    (tmp_path / "data").rename(tmp_path / "sugarcrepe/data")
    assert load("sugarcrepe", tmp_path) == expected
