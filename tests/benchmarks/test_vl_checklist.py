"""VL-CheckList: a tree of files, the first thousand of each, and means of means of means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmark_fixtures import load, write, write_json
from errors import raises
from support import part, random_scores, run_of

from counterpoint.benchmarks.completeness import (
    FILE_MISSING,
    ROWS_MISSING,
    ROWS_REPLACED,
    absent_from,
)
from counterpoint.benchmarks.registry import load_benchmark
from counterpoint.benchmarks.scene_graphs import group_of
from counterpoint.cases.table import Absent, Cases, ImageRef
from counterpoint.evaluation.evaluating import evaluate, prepare
from counterpoint.metrics.protocols import BEYOND_FIRST, PROTOCOLS
from counterpoint.runs import rows

VL = "vl-checklist"


def entry(number: int = 7, **captions: list[str]) -> list[Any]:
    texts = {"POS": [f"wet mole {number}"], "NEG": [f"dry mole {number}"]} | captions
    return [f"VG_100K_2/{number}.jpg", texts]


def write_file(root: Path, name: str, *entries: Any, below: str = "") -> Path:
    return write_json(root / "vl_checklist" / below / f"{name}.json", list(entries))


# --- loading -----------------------------------------------------------------------------------


def test_an_entry_is_a_caption_and_a_negative(tmp_path: Path) -> None:
    write_file(tmp_path, "Attribute/vg/color", entry(5), entry(7))
    first, found = load(VL, tmp_path)
    assert (first.id, found.id) == ("Attribute/vg/color/0", "Attribute/vg/color/1")
    assert found.images == (ImageRef("visual_genome/VG_100K_2/7.jpg"),)
    assert found.captions == ("wet mole 7", "dry mole 7")
    assert found.truth == ((True, False),)
    assert found.groups == ("Attribute/color/vg/color",)


GROUPS = {
    "Attribute/vg/color": "Attribute/color/vg/color",
    "Attribute/vaw/state": "Attribute/state/vaw/state",
    "Relation/vg_action": "Relation/action/vg/vg_action",
    "Relation/vg/vg_spatial": "Relation/spatial/vg/vg_spatial",
    "Relation/swig_action": "Relation/action/swig/swig_action",
    "Relation/hake/hake_action": "Relation/action/hake/hake_action",
    "Object/Location/vg_location/vg_subj_center": "Object/location_center/vg/vg_subj_center",
    "Object/Location/hake_location/hake_mid": "Object/location_mid/hake/hake_mid",
    "Object/Size/swig_size/swig_agent_large": "Object/size_large/swig/swig_agent_large",
    "Object/Size/vg_obj_small": "Object/size_small/vg/vg_obj_small",
    "Object/pets": "Object/pets/other/pets",
}


@pytest.mark.parametrize("file", GROUPS)
def test_groups_are_kind_aspect_data_set_and_file(file: str, tmp_path: Path) -> None:
    assert group_of(Path(f"{file}.json")) == GROUPS[file]
    write_file(tmp_path, file, entry())
    [found] = load(VL, tmp_path)
    assert (found.id, found.groups) == (f"{file}/0", (GROUPS[file],))


@pytest.mark.parametrize("below", ["", "data"])
def test_the_tree_may_lie_in_a_folder_called_data(below: str, tmp_path: Path) -> None:
    for name in ("Relation/vg_action", "Object/Size/vg_obj_large", "Attribute/vg/size"):
        write_file(tmp_path, name, entry(), below=below)
    write_file(tmp_path, "Notes/vg/size", entry(), below=below)  # none of the three kinds
    assert [case.id for case in load(VL, tmp_path)] == [
        "Object/Size/vg_obj_large/0",
        "Attribute/vg/size/0",
        "Relation/vg_action/0",
    ]


@pytest.mark.parametrize(
    ("image", "path"),
    [
        ("VG_100K/7.jpg", "visual_genome/VG_100K/7.jpg"),
        ("VG_100K_2/7.jpg", "visual_genome/VG_100K_2/7.jpg"),
        ("swig/digging_7.jpg", "vl_checklist/images/swig/digging_7.jpg"),
        ("hake/hico/7.jpg", "vl_checklist/images/hake/hico/7.jpg"),
    ],
)
def test_images_are_in_visual_genome_or_beside_the_files(
    image: str, path: str, tmp_path: Path
) -> None:
    write_file(tmp_path, "Relation/swig_action", [image, entry()[1]])
    assert load(VL, tmp_path)[0].images == (ImageRef(path),)


def test_of_several_captions_the_first_counts(tmp_path: Path) -> None:
    write_file(tmp_path, "Object/Size/swig", entry(POS=["a", "b", "c"], NEG=["d", "e", "f"]))
    assert load(VL, tmp_path)[0].captions == ("a", "d")


def test_rows_whose_captions_are_equal_are_kept(tmp_path: Path) -> None:
    """The authors have some: nobody can be right on them, and they count."""
    write_file(tmp_path, "Attribute/vg/color", entry(5, POS=["a"], NEG=["a"]), entry(7))
    cases = load_benchmark(VL, tmp_path).cases
    assert cases.case(0).captions == ("a", "a")
    [run] = evaluate(
        [("towers", Constant())], VL, data=tmp_path, out=tmp_path / "run", store=tmp_path / "store"
    )
    [row] = [
        r for r in rows(run, resamples=10) if (r.group, r.metric) == ("all", "original_accuracy")
    ]
    assert (row.n, row.value, row.ties) == (2, 0.5, 1)


class Constant:
    """Knows what a wet mole is, and no image."""

    fingerprint = "constant"

    def score_captions(self, captions: list[str]) -> np.ndarray:
        return np.array(["wet" in caption for caption in captions], dtype=np.float32)


def test_an_empty_file_is_no_harm(tmp_path: Path) -> None:
    write_file(tmp_path, "Object/Location/swig_place")
    write_file(tmp_path, "Relation/vg_action", entry())
    assert [case.id for case in load(VL, tmp_path)] == ["Relation/vg_action/0"]


MALFORMED: dict[str, Any] = {
    "no pair": ["VG_100K/1.jpg"],
    "three": [*entry(), "more"],
    "no captions": ["VG_100K/1.jpg", {}],
    "no negative": ["VG_100K/1.jpg", {"POS": ["a"]}],
    "an empty list": ["VG_100K/1.jpg", {"POS": ["a"], "NEG": []}],
    "a blank": ["VG_100K/1.jpg", {"POS": ["a"], "NEG": [" "]}],
    "a number": ["VG_100K/1.jpg", {"POS": [4], "NEG": ["b"]}],
    "no image": [None, {"POS": ["a"], "NEG": ["b"]}],
    "null": None,
    "a list of captions": ["VG_100K/1.jpg", ["a", "b"]],
}


def test_a_malformed_row_is_named(tmp_path: Path) -> None:
    for what in MALFORMED:
        write_file(tmp_path, "Attribute/vg/color", entry(), MALFORMED[what])
        with raises("E-ROW-MALFORMED", f"{tmp_path}/vl_checklist/Attribute/vg/color.json: row 2"):
            load(VL, tmp_path)


def test_captions_must_be_in_a_list(tmp_path: Path) -> None:
    write_file(tmp_path, "Attribute/vg/color", ["VG_100K/1.jpg", {"POS": "wet", "NEG": "dry"}])
    with raises("E-ROW-MALFORMED", f"{tmp_path}/vl_checklist/Attribute/vg/color.json: row 1"):
        load(VL, tmp_path)


def test_files_of_a_mac_do_not_count(tmp_path: Path) -> None:
    path = write_file(tmp_path, "Attribute/vg/color", entry())
    write(path.with_name(f"._{path.name}"), b"\x00\x05\x16\x07")
    assert len(load(VL, tmp_path)) == 1


def test_a_malformed_file_is_named(tmp_path: Path) -> None:
    for content, code in [
        ("{", "E-JSON-INVALID"),
        ('{"a": 1}', "E-FILE-MALFORMED"),
        ("3", "E-FILE-MALFORMED"),
    ]:
        path = tmp_path / "vl_checklist/Attribute/vg/color.json"
        write(path, content)
        with raises(code) as caught:
            load(VL, tmp_path)
        assert str(caught.value).startswith(str(path))


def test_missing_files_are_named(tmp_path: Path) -> None:
    with raises("E-FILE-MISSING", tmp_path / "vl_checklist", "vl-checklist"):
        load(VL, tmp_path)
    (tmp_path / "vl_checklist").mkdir()
    with raises("E-FILE-MISSING", tmp_path / "vl_checklist", "vl-checklist"):
        load(VL, tmp_path)


# --- the protocol ------------------------------------------------------------------------------


def test_only_the_first_thousand_of_each_file_are_scored(tmp_path: Path) -> None:
    write_file(tmp_path, "Attribute/vg/color", *(entry(n) for n in range(1003)))
    write_file(tmp_path, "Attribute/vg/size", *(entry(n) for n in range(1000)))
    write_file(tmp_path, "Relation/vg_action", *(entry(n) for n in range(4)))
    cases = load_benchmark(VL, tmp_path).cases
    assert len(cases) == 2007
    found = [cases.case(row) for row in range(len(cases))]
    beyond = [case.id for case in found if BEYOND_FIRST in case.groups]
    assert beyond == [f"Attribute/vg/color/{n}" for n in (1000, 1001, 1002)]
    scored = prepare(cases, PROTOCOLS[VL], None)
    assert scored.ids.to_list() == [id for id in cases.ids if id not in beyond]
    assert len(prepare(cases, PROTOCOLS["strict"], None)) == 2007


def at_hand(root: Path, *numbers: int) -> None:
    for number in numbers:
        write(root / f"visual_genome/VG_100K_2/{number}.jpg", b"")


def test_rows_without_an_image_are_dropped_before_the_first_thousand_are_taken(
    tmp_path: Path,
) -> None:
    write_file(tmp_path, "Attribute/vg/color", *(entry(n) for n in range(1010)))
    write_file(tmp_path, "Attribute/vg/size", *(entry(n) for n in range(2000, 2004)))
    at_hand(tmp_path, *(n for n in range(1010) if n not in (3, 7, 1004)))
    cases = load_benchmark(VL, tmp_path).cases
    scored = prepare(cases, PROTOCOLS[VL], None)
    color = [n for n in range(1002) if n not in (3, 7)]
    # Of the second file no image is there: its first rows are asked for, as of any benchmark.
    assert scored.ids.to_list() == [
        *(f"Attribute/vg/color/{n}" for n in color),
        *(f"Attribute/vg/size/{n}" for n in range(4)),
    ]
    absent = absent_from(VL, cases, PROTOCOLS[VL])
    dropped = Absent("Attribute/vg/color", ROWS_REPLACED, 2)  # the third comes after the last
    assert [one for one in absent if one.reason != FILE_MISSING] == [
        Absent("Attribute/vg/size", ROWS_MISSING, 996),
        dropped,
    ]
    strict = prepare(cases, PROTOCOLS["strict"], None)  # asks for every row
    assert len(strict) == 1014
    assert dropped not in absent_from(VL, cases, PROTOCOLS["strict"])


SIZES = {
    "Attribute/vg/color": 9,
    "Attribute/vaw/color": 4,
    "Attribute/vg/size": 6,
    "Object/Location/vg_location/vg_subj_mid": 3,
    "Object/Location/vg_location/vg_obj_mid": 8,
    "Object/Location/hake_location/hake_mid": 5,
    "Object/Size/vg_size/vg_subj_large": 2,
    "Relation/vg_action": 7,
    "Relation/swig_action": 3,
    "Relation/vg_spatial": 11,
}


def nested_mean(values: dict[tuple[str, ...], list[bool]]) -> float:
    """Kinds of aspects of data sets of files of cases."""
    if set(values) == {()}:
        return float(np.mean(values[()]))
    heads = {key[0] for key in values}
    below = [{key[1:]: v for key, v in values.items() if key[0] == head} for head in heads]
    return float(np.mean([nested_mean(part) for part in below]))


def test_means_of_means_are_those_of_a_plain_loop(tmp_path: Path) -> None:
    for name, size in SIZES.items():
        write_file(tmp_path, name, *(entry(n) for n in range(size)))
    cases = load_benchmark(VL, tmp_path).cases
    scores = random_scores(cases, seed=5, values=3)
    values: dict[tuple[str, ...], list[bool]] = {}
    for row in range(len(cases)):
        key = tuple(levels(cases, row))
        values.setdefault(key, []).append(bool(scores[2 * row] > scores[2 * row + 1]))
    found = {
        (r.group, r.metric): r.value for r in rows(run_of(part(cases, scores, VL)), resamples=10)
    }
    assert found["all", "original_accuracy"] == pytest.approx(nested_mean(values))
    micro = np.mean([hit for hits in values.values() for hit in hits])
    assert found["all", "original_accuracy"] != pytest.approx(micro)
    for kind in ("Attribute", "Object", "Relation"):
        mine = {key[1:]: hits for key, hits in values.items() if key[0] == kind}
        assert found[kind, "original_accuracy"] == pytest.approx(nested_mean(mine)), kind


def levels(cases: Cases, row: int) -> list[str]:
    return cases.case(row).groups[0].split("/")
