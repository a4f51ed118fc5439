"""What is odd of CREPE and VL-CheckList; test_published_rows.py has the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmark_fixtures import (
    absent,
    files_of,
    load,
    write,
    write_json,
    write_table,
)
from errors import raises
from support import part, random_scores, run_of

from counterpoint.benchmarks.completeness import (
    FILE_MISSING,
    ROWS_MISSING,
    ROWS_REPLACED,
    absent_from,
)
from counterpoint.benchmarks.registry import load_benchmark
from counterpoint.cases.table import Absent, ImageRef
from counterpoint.evaluation.evaluating import evaluate, prepare
from counterpoint.metrics.protocols import BEYOND_FIRST, PROTOCOLS
from counterpoint.runs import rows

# --- CREPE ---------------------------------------------------------------------------------------


LISTS = ("atom", "comp", "combined")


def region(number: int = 7, **changes: Any) -> dict[str, Any]:
    [rows] = files_of("crepe/productivity").values()
    return rows[0] | {"image_id": number} | changes


def compounds(**negatives: str) -> dict[str, Any]:
    rows = next(iter(files_of("crepe/systematicity").values()))
    return rows[0] | {f"valid_hard_negs_{name}": listed for name, listed in negatives.items()}


def prod(root: Path, kind: str = "atom", level: int = 4, below: str = "") -> Path:
    folder = root / "crepe/prod_hard_negatives" / below / kind
    return folder / f"prod_vg_hard_negs_{kind}_complexity_{level}.csv"


def syst(root: Path, seen: str = "seen", source: str = "cc12m") -> Path:
    name = f"syst_vg_hard_negs_{seen}_compounds_in_{source}.csv"
    return root / "crepe/syst_hard_negatives" / name


def test_complexities_are_in_order_of_number(tmp_path: Path) -> None:
    for kind, level in (("swap", 4), ("atom", 12), ("atom", 4), ("negate", 10), ("atom", 5)):
        write_table(prod(tmp_path, kind, level), [region()])
    cases = load("crepe/productivity", tmp_path)
    assert [case.id for case in cases] == [
        *("atom/4/0", "atom/5/0", "atom/12/0"),
        *("negate/10/0", "swap/4/0"),
    ]
    assert [cases[2].groups, cases[3].groups] == [
        ("atom/complexity_12",),
        ("negate/complexity_10",),
    ]


def test_which_files_count(tmp_path: Path) -> None:
    """Not those of all complexities, nor of a Mac; they may be one folder deeper, but only once."""
    path = write_table(prod(tmp_path, below="prod_hard_negatives"), [region()])
    write_table(path.parent.parent / "prod_vg_hard_negs_atom_all.csv", [region()])
    write(path.parent / f"._{path.name}", b"\x00\x05")
    assert [case.id for case in load("crepe/productivity", tmp_path)] == ["atom/4/0"]
    write_table(prod(tmp_path), [region()])
    with raises("E-FILE-AMBIGUOUS"):
        load("crepe/productivity", tmp_path)


def test_numbers_may_be_floats_and_lists_tuples(tmp_path: Path) -> None:
    for ending in ["\n", "\r\n"]:
        header = "Unnamed: 0,image_id,caption,x,y,width,height,hard_negs"
        values = "0,7.0,moles,3.0,-1.0,90.0,10.0,\"('a','b')\""
        write(prod(tmp_path), "\ufeff" + ending.join([header, values, ""]))
        [found] = load("crepe/productivity", tmp_path)
        assert found.images == (ImageRef("visual_genome/VG_100K/7.jpg", (3, -1, 90, 10)),)
        assert found.captions == ("moles", "a", "b")


def test_empty_lists_and_blank_negatives_are_named(tmp_path: Path) -> None:
    empty = [region(hard_negs=written) for written in ("[]", "", "nan", "['', ' ']")]
    write_table(prod(tmp_path), [region(), *empty, region(hard_negs="['a', '']")])
    cases = load("crepe/productivity", tmp_path)
    assert [case.id for case in cases] == ["atom/4/0", "atom/4/5"]
    assert cases[1].captions == ("a mole in a hat", "a")
    assert absent("crepe/productivity", tmp_path) == (
        *(Absent(f"atom/4/{row}", "no negative caption") for row in (1, 2, 3, 4)),
        Absent("atom/4/5", "1 of 2 negatives are blank", 0),
    )
    write_table(prod(tmp_path), empty)
    with raises("E-BENCHMARK-EMPTY"):
        load("crepe/productivity", tmp_path)


def test_an_empty_list_leaves_the_others(tmp_path: Path) -> None:
    write_table(syst(tmp_path), [compounds(atom="[]", combined="[]"), compounds()])
    ids = [case.id for case in load("crepe/systematicity", tmp_path)]
    assert ids == ["cc12m/seen/comp/0", *(f"cc12m/seen/{name}/1" for name in LISTS)]
    named = [one.what for one in absent("crepe/systematicity", tmp_path)]
    assert named == ["cc12m/seen/atom/0", "cc12m/seen/combined/0"]


def test_images_are_in_one_of_two_folders(tmp_path: Path) -> None:
    for path in ("VG_100K/1.jpg", "VG_100K_2/2.jpg", "VG_100K/3.jpg", "VG_100K_2/3.jpg"):
        write(tmp_path / "visual_genome" / path, b"a picture")
    write_table(prod(tmp_path), [region(number) for number in (1, 2, 3, 4)])
    found = [case.images[0].path for case in load("crepe/productivity", tmp_path)]
    folders = ("VG_100K", "VG_100K_2", "VG_100K", "VG_100K")
    assert found == [f"visual_genome/{folder}/{n}.jpg" for n, folder in enumerate(folders, 1)]
    for id in ("20", " 20 ", "20.0", "20.jpg", "VG_100K/20.jpg"):
        write_table(prod(tmp_path), [region() | {"image_id": id}])
        assert load("crepe/productivity", tmp_path)[0].images[0].path.endswith("/20.jpg")


# --- VL-CheckList --------------------------------------------------------------------------------


VL = "vl-checklist"


def entry(number: int = 7, **captions: list[str]) -> list[Any]:
    texts = {"POS": [f"wet mole {number}"], "NEG": [f"dry mole {number}"]} | captions
    return [f"VG_100K_2/{number}.jpg", texts]


def write_file(root: Path, name: str, *entries: Any) -> Path:
    return write_json(root / "vl_checklist" / f"{name}.json", list(entries))


def test_groups_are_kind_aspect_data_set_and_file(tmp_path: Path) -> None:
    """Of the three kinds, and none of another; files of a Mac do not count."""
    groups = {  # in the order of the files
        "Object/Location/hake_location/hake_mid": "Object/location_mid/hake/hake_mid",
        "Object/Location/vg_location/vg_subj_center": "Object/location_center/vg/vg_subj_center",
        "Object/Size/swig_size/swig_agent_large": "Object/size_large/swig/swig_agent_large",
        "Object/Size/vg_obj_small": "Object/size_small/vg/vg_obj_small",
        "Object/pets": "Object/pets/other/pets",
        "Attribute/vaw/state": "Attribute/state/vaw/state",
        "Attribute/vg/color": "Attribute/color/vg/color",
        "Relation/hake/hake_action": "Relation/action/hake/hake_action",
        "Relation/swig_action": "Relation/action/swig/swig_action",
        "Relation/vg/vg_spatial": "Relation/spatial/vg/vg_spatial",
        "Relation/vg_action": "Relation/action/vg/vg_action",
    }
    (tmp_path / "vl_checklist").mkdir()
    with raises("E-FILE-MISSING", tmp_path / "vl_checklist", VL):
        load(VL, tmp_path)
    for file in (*groups, "Notes/vg/size"):
        path = write_file(tmp_path, file, entry())
        write(path.with_name(f"._{path.name}"), b"\x00\x05\x16\x07")
    found = {case.id.removesuffix("/0"): case.groups for case in load(VL, tmp_path)}
    assert found == {file: (group,) for file, group in groups.items()}
    assert [*found] == [*groups]


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


def test_rows_without_an_image_are_dropped_before_the_first_thousand_are_taken(
    tmp_path: Path,
) -> None:
    write_file(tmp_path, "Attribute/vg/color", *(entry(n) for n in range(1010)))
    write_file(tmp_path, "Attribute/vg/size", *(entry(n) for n in range(2000, 2004)))
    for number in (n for n in range(1010) if n not in (3, 7, 1004)):
        write(tmp_path / f"visual_genome/VG_100K_2/{number}.jpg", b"")
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
        key = tuple(cases.case(row).groups[0].split("/"))
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
