"""What is odd of benchmarks of a caption and its negatives; test_published_rows.py has the rest."""

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
    write_benchmark,
    write_json,
    write_rows,
    write_table,
)
from errors import raises
from support import part, random_scores

from counterpoint.benchmarks.captions import METHODS
from counterpoint.benchmarks.registry import load_benchmark
from counterpoint.cases import Absent
from counterpoint.runs import side_by_side

# --- SugarCrepe and SugarCrepe++ -----------------------------------------------------------------


def test_the_four_averages_are_those_of_plain_loops(tmp_path: Path) -> None:
    sizes = dict.fromkeys(files_of("sugarcrepe"), 2)
    sizes |= {"sugarcrepe/add_att.json": 5, "sugarcrepe/add_obj.json": 11}
    sizes |= {"sugarcrepe/replace_att.json": 4, "sugarcrepe/replace_obj.json": 9}
    sizes |= {"sugarcrepe/swap_obj.json": 3}
    row = {"filename": "1.jpg", "caption": "a mole", "negative_caption": "a newt"}
    for path, size in sizes.items():
        write_json(tmp_path / path, {str(number): row for number in range(size)})
    cases = load_benchmark("sugarcrepe", tmp_path).cases
    scores = random_scores(cases, seed=3, values=4)  # with ties, which are wrong
    right: dict[str, list[bool]] = {}
    for id, positive, negative in zip(cases.ids, scores[::2], scores[1::2], strict=True):
        right.setdefault(id.partition("/")[0], []).append(bool(positive > negative))
    types: dict[str, list[str]] = {}
    for subset in right:
        types.setdefault(subset.partition("_")[0], []).append(subset)
    pooled = [[hit for subset in subsets for hit in right[subset]] for subsets in types.values()]
    means = [[np.mean(right[subset]) for subset in subsets] for subsets in types.values()]
    expected = {
        "micro": np.mean([hit for hits in right.values() for hit in hits]),
        "macro": np.mean([np.mean(hits) for hits in right.values()]),
        "types": np.mean([np.mean(hits) for hits in pooled]),
        "types-macro": np.mean([np.mean(of_type) for of_type in means]),
    }
    found = side_by_side(part(cases, scores, "sugarcrepe"))
    assert {name: values["original_accuracy"] for name, values in found.items()} == (
        pytest.approx(expected)
    )
    assert len({round(float(value), 9) for value in expected.values()}) == 4


def test_each_of_the_two_tests_alone(tmp_path: Path) -> None:
    write_benchmark("sugarcrepe-pp", tmp_path)
    itt, tot = (load(f"sugarcrepe-pp:tests={test}", tmp_path) for test in ("itt", "tot"))
    assert len(itt) == len(tot) and load("sugarcrepe-pp", tmp_path) == itt + tot
    with raises("E-OPTION-INVALID", "tests", "ot"):
        load("sugarcrepe-pp:tests=ot", tmp_path)


def test_triples_may_be_held_by_key(tmp_path: Path) -> None:
    write_benchmark("sugarcrepe-pp", tmp_path)
    rows = files_of("sugarcrepe-pp")["sugarcrepe_pp/swap_att.json"]
    write_json(tmp_path / "sugarcrepe_pp/swap_att.json", {"5": rows[0], "7": rows[1]})
    ids = [case.id for case in load("sugarcrepe-pp:tests=itt", tmp_path)]
    assert ids[-4:] == ["swap_att/5", "swap_att/7", "swap_obj/0", "swap_obj/1"]


# --- VISLA ---------------------------------------------------------------------------------------

GENERIC, SPATIAL = "visla/Generic_VISLA.tsv", "visla/Spatial_VISLA.tsv"


def test_either_part_is_enough_and_has_had_other_names(tmp_path: Path) -> None:
    write_benchmark("visla", tmp_path)
    expected = load("visla", tmp_path)
    for name, other, group in (
        (GENERIC, "SugarCrepe.tsv", "spatial"),
        (SPATIAL, "VSR_spatial.tsv", "generic"),
    ):
        path = (tmp_path / name).rename(tmp_path / "away")
        assert {case.groups for case in load("visla", tmp_path)} == {(group,)}
        path.rename(tmp_path / "visla" / other)
        assert load("visla", tmp_path) == expected


def test_images_are_of_either_set_and_names_may_be_short(tmp_path: Path) -> None:
    write_benchmark("visla", tmp_path)
    for folders, expected in [
        ([], "val2017"),
        (["train2017"], "train2017"),
        (["val2017"], "val2017"),
    ]:
        for folder in folders:
            write(tmp_path / f"coco/{folder}/000000000008.jpg", b"a picture")
        for name in ["8", "000000000008", "8.jpg", "000000000008.jpg"]:
            write_rows(tmp_path / SPATIAL, [files_of("visla")[SPATIAL][0] | {"image": name}])
            path = load("visla", tmp_path)[-1].images[0].path
            assert path == f"coco/{expected}/000000000008.jpg"


def test_headers_line_ends_quotes_and_columns_may_differ(tmp_path: Path) -> None:
    [row] = files_of("visla")[GENERIC]
    renamed = {key.title().replace(" ", "_"): value for key, value in row.items()}
    write_rows(tmp_path / "a" / GENERIC, [row])
    lines = ["\t".join(renamed), "\t".join(row.values()), ""]
    write(tmp_path / "b" / GENERIC, "\ufeff" + "\r\n".join(lines))
    write_table(tmp_path / "c" / GENERIC, [{"": "0", **row}], separator="\t")
    first, *others = (load("visla", tmp_path / folder) for folder in "abc")
    assert others == [first, first]


def test_rows_without_a_negative_are_named(tmp_path: Path) -> None:
    """The published spatial table has some: two captions, and the rest was never written."""
    whole = files_of("visla")[SPATIAL][0]
    unfinished = {name: "" if "eference" in name else text for name, text in whole.items()}
    write_rows(tmp_path / SPATIAL, [whole, unfinished, whole, unfinished])
    assert [case.id for case in load("visla", tmp_path)] == ["spatial/0", "spatial/2"]
    reason = "no negative caption"
    assert absent("visla", tmp_path) == (Absent("spatial/1", reason), Absent("spatial/3", reason))


# --- VALSE ---------------------------------------------------------------------------------------

PIECE = "valse/existence.json"


def foiled(**changes: Any) -> dict[str, Any]:
    return {**files_of("valse")[PIECE]["k_0"], **changes}


def test_foils_without_two_votes_are_unconfirmed(tmp_path: Path) -> None:
    confirmed = [{"caption": 3, "foil": 0}, {"caption": 2, "foil": 1}, {"caption": "2"}]
    others = [{"caption": 1, "foil": 2}, {"caption": 0}, {"foil": 3}, None]
    rows = {str(n): foiled(mturk=votes) for n, votes in enumerate([*confirmed, *others])}
    del rows["6"]["mturk"]
    write_json(tmp_path / PIECE, rows)
    groups = [case.groups for case in load("valse", tmp_path)]
    assert groups == [("existence",)] * 3 + [("existence", "unconfirmed")] * 4


def test_a_piece_may_be_a_list_and_files_of_a_mac_do_not_count(tmp_path: Path) -> None:
    path = write_json(tmp_path / "valse/foil-it.json", [foiled(), foiled(id="foil_9"), foiled()])
    write_json(path.with_name("._foil-it.json"), "of a Mac")
    ids = [case.id for case in load("valse", tmp_path)]
    assert ids == ["foil-it/0", "foil-it/foil_9", "foil-it/2"]


def test_images_of_valse_are_found_by_name(tmp_path: Path) -> None:
    """VALSE's own come first, in alphabetical order of their folders."""
    for number, (folder, form) in enumerate(
        (folder, form)
        for folder, form in [
            ("valse/images", "digging_{}.jpg"),
            ("valse/images/SWiG/images_512", "digging_{}.jpg"),
            ("coco/val2014", "COCO_val2014_{:012}.jpg"),
            ("coco/train2014", "COCO_train2014_{:012}.jpg"),
            ("coco/val2017", "{:012}.jpg"),
        ]
    ):
        name = form.format(number)
        write(tmp_path / folder / name, b"a picture")
        rows = [foiled(image_file=name), foiled(image_file="absent_1.jpg")]
        write_json(tmp_path / PIECE, rows)
        first, second = load("valse", tmp_path)
        assert first.images[0].path == f"{folder}/{name}"
        assert second.images[0].path == "valse/images/absent_1.jpg"
    for folder in ("valse/images/relations", "valse/images/plurals"):
        write(tmp_path / folder / name, b"a picture")
    assert load("valse", tmp_path)[0].images[0].path == f"valse/images/plurals/{name}"


# --- RoCOCO and NegBench -------------------------------------------------------------------------


def test_another_person_stands_between(tmp_path: Path) -> None:
    write_benchmark("rococo", tmp_path)
    cases = load("rococo:people=1", tmp_path)
    assert cases[4].captions == ("m4", "m0", "h4")
    assert {case.truth for case in cases} == {((True, True, False),)}


def test_altered_captions_are_in_the_gallery(tmp_path: Path) -> None:
    counts = [6, 5, 5, 5, 5]
    rows = [
        {
            "image": f"val2014/{image}.jpg",
            "caption": [f"a mole {n}" for n in range(count)] + [f"a hat {n}" for n in range(5)],
        }
        for image, count in enumerate(counts)
    ]
    for method in METHODS:
        write_json(tmp_path / f"rococo/{method}.json", rows)
    [case] = load("rococo/retrieval:altered=danger", tmp_path)
    assert (len(case.images), len(case.captions)) == (5, 26 + 25)
    assert case.captions[26:31] == tuple(f"a hat {n}" for n in range(5))
    assert [sum(line) for line in case.truth] == counts
    assert not any(any(line[26:]) for line in case.truth)
    with raises("E-OPTION-INVALID", "way of altering captions"):
        load("rococo/retrieval:altered=dangerous", tmp_path)
    (tmp_path / "rococo/danger.json").unlink()
    with raises("E-FILE-MISSING"):
        load("rococo/retrieval:altered=danger", tmp_path)


def test_captions_without_text_are_named_and_nested_lists_refused(tmp_path: Path) -> None:
    write_benchmark("negbench/retrieval", tmp_path)
    blank = Absent("row 2", "a caption without text", 0)
    assert absent("negbench/retrieval", tmp_path) == (blank,)
    [path] = files_of("negbench/retrieval")
    write_table(tmp_path / path, [{"filepath": "7.jpg", "captions": "[" * 9_000}])
    with raises("E-ROW-MALFORMED", "captions"):
        load("negbench/retrieval", tmp_path)
