"""ARO's VG-Relation and VG-Attribution: crops, groups, and the authors' means of groups."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from benchmark_fixtures import load, write, write_json
from support import part, random_scores, run_of

from counterpoint.benchmarks.aro import SPATIAL_RELATIONS, AroImages
from counterpoint.benchmarks.registry import load_benchmark
from counterpoint.cases.table import Cases
from counterpoint.evaluation.verifying import published
from counterpoint.metrics.protocols import PROTOCOLS
from counterpoint.runs import Row, rows

RELATION, ATTRIBUTION = "aro/vg-relation", "aro/vg-attribution"
FILES = {RELATION: "visual_genome_relation.json", ATTRIBUTION: "visual_genome_attribution.json"}
EXCLUDED = PROTOCOLS["vg-relation"].exclude
ARO = "Yuksekgonul et al. 2023"


def item(number: int = 7, relation: str = "wearing", **changes: Any) -> dict[str, Any]:
    return {
        "image_id": str(number),
        "image_path": f"{number}.jpg",
        "bbox_x": 3,
        "bbox_y": -1,
        "bbox_w": 90,
        "bbox_h": 400,
        "true_caption": f"the mole is {relation} the hat",
        "false_caption": f"the hat is {relation} the mole",
        "relation_name": relation,
        "attributes": ["wet", "red"],
    } | changes


def write_items(root: Path, id: str, *items: dict[str, Any]) -> Path:
    return write_json(root / "aro" / FILES[id], list(items))


# --- loading -----------------------------------------------------------------------------------


def test_a_slash_is_no_level_of_a_group(tmp_path: Path) -> None:
    for name, label in [("on/off", "on|off"), (" near ", "near"), ("/", "|"), ("a/b/c", "a|b|c")]:
        write_items(tmp_path, RELATION, item(relation_name=name))
        write_items(tmp_path, ATTRIBUTION, item(attributes=[name.strip(), "red"]))
        assert load(RELATION, tmp_path)[0].groups[0] == label
        assert load(ATTRIBUTION, tmp_path)[0].groups == (f"{label}_red",)


# --- images ------------------------------------------------------------------------------------

PLACES = ("aro/images", "visual_genome/VG_100K", "visual_genome/VG_100K_2")


def test_images_are_found_by_name_in_three_folders(tmp_path: Path) -> None:
    names = ["7.jpg", "data/VG_100K_2/7.jpg", "VG_100K/7.jpg"]
    for place in reversed(PLACES):  # ARO's own copy comes first
        write(tmp_path / place / "7.jpg", b"a picture")
        assert {AroImages(tmp_path).path(name) for name in names} == {f"{place}/7.jpg"}


def test_an_image_that_is_not_there_has_a_place_too(tmp_path: Path) -> None:
    for name, path in [
        ("7.jpg", "aro/images/7.jpg"),
        ("data/VG_100K_2/7.jpg", "visual_genome/VG_100K_2/7.jpg"),
        ("VG_100K/7.jpg", "visual_genome/VG_100K/7.jpg"),
        ("elsewhere/7.jpg", "aro/images/7.jpg"),
    ]:
        assert AroImages(tmp_path).path(name) == path


# --- numbers -----------------------------------------------------------------------------------


def number(cases: Cases, scores: np.ndarray, protocol: str, group: str = "all") -> Row:
    found = rows(run_of(part(cases, scores, protocol)), resamples=20)
    [row] = [r for r in found if r.metric == "original_accuracy" and r.group == group]
    return row


def by_group(cases: Cases, scores: np.ndarray) -> dict[str, list[bool]]:
    """Whether each case of a group is right; options are [false, true], and a tie is wrong."""
    right: dict[str, list[bool]] = {}
    for row in range(len(cases)):
        true, false = scores[2 * row], scores[2 * row + 1]
        right.setdefault(cases.case(row).groups[0], []).append(np.argmax([false, true]) == 1)
    return right


def table(root: Path, id: str, sizes: dict[str, int], made: Callable[[str], Any]) -> Cases:
    items = [item(n, **made(name)) for name, size in sizes.items() for n in range(size)]
    write_items(root, id, *items)
    return load_benchmark(id, root).cases


SIZES = {"wearing": 7, "to the left of": 30, "eating": 3, "near": 40, "skiing down": 2, "in": 1}


def test_relations_are_averaged_without_the_authors_list(tmp_path: Path) -> None:
    assert len(EXCLUDED) == 157
    assert {name for name in SIZES if name in EXCLUDED} == {"near", "skiing down"}
    cases = table(tmp_path, RELATION, SIZES, lambda name: {"relation_name": name})
    scores = random_scores(cases, seed=1, values=3)
    right = by_group(cases, scores)
    kept = [np.mean(hits) for name, hits in right.items() if name not in EXCLUDED]
    found = number(cases, scores, "vg-relation")
    assert found.value == pytest.approx(np.mean(kept))
    assert found.value != pytest.approx(np.mean([np.mean(hits) for hits in right.values()]))
    assert found.n == sum(size for name, size in SIZES.items() if name not in EXCLUDED)
    # What is not counted is shown all the same.
    assert number(cases, scores, "vg-relation", "near").value == pytest.approx(
        np.mean(right["near"])
    )


def test_spatial_relations_and_verbs_are_averaged_over_their_relations(tmp_path: Path) -> None:
    cases = table(tmp_path, RELATION, SIZES, lambda name: {"relation_name": name})
    scores = random_scores(cases, seed=1, values=3)
    right = by_group(cases, scores)
    kinds = {"spatial": ["to the left of", "in"], "verbs": ["wearing", "eating"]}
    for kind, names in kinds.items():
        found = number(cases, scores, "vg-relation", kind)
        assert found.value == pytest.approx(np.mean([np.mean(right[name]) for name in names]))
        assert found.n == sum(SIZES[name] for name in names)
        assert found.ci_low <= found.value <= found.ci_high
        cases_of = [hit for name in names for hit in right[name]]
        assert found.value != pytest.approx(np.mean(cases_of))
        # A mean over cases stays one.
        assert number(cases, scores, "strict", kind).value == pytest.approx(np.mean(cases_of))
    assert cases.case(len(cases) - 2).groups == ("skiing down",)  # not counted: of neither kind


def test_the_kinds_are_those_of_table_2() -> None:
    """Whose published means have a group, and whose relations are these."""
    table = published().filter(pl.col("source") == f"{ARO}, Table 2")
    relations = set(table["group"]) - {"all", "spatial", "verbs"}
    assert relations >= SPATIAL_RELATIONS and len(SPATIAL_RELATIONS) == 13
    assert len(relations) == 45 and not relations & EXCLUDED
    kinds = table.filter(pl.col("group").is_in(["spatial", "verbs"]))
    assert (len(kinds), set(kinds["average"])) == (12, {"macro"})
    counts = dict(table.filter(pl.col("metric") == "cases").select("group", "value").rows())
    spatial = sorted(int(counts[name]) for name in SPATIAL_RELATIONS)
    assert spatial == sorted([269, 75, 574, 209, 10, 708, 588, 58, 1684, 201, 7741, 7741, 132])


@pytest.mark.slow
def test_every_relation_of_the_list_is_left_out(tmp_path: Path) -> None:
    sizes = dict.fromkeys(sorted(EXCLUDED), 1) | {"wearing": 2}
    cases = table(tmp_path, RELATION, sizes, lambda name: {"relation_name": name})
    scores = np.zeros(2 * len(cases))
    scores[-4::2] = 1  # the two that count are right
    found = number(cases, scores, "vg-relation")
    assert (found.value, found.n, len(cases)) == (1.0, 2, 159)


def test_attribute_pairs_of_25_cases_are_averaged(tmp_path: Path) -> None:
    sizes = {"wet_red": 25, "old_red": 24, "wet_big": 26, "old_big": 1, "red_big": 60}
    cases = table(tmp_path, ATTRIBUTION, sizes, lambda name: {"attributes": name.split("_")})
    scores = random_scores(cases, seed=2, values=3)
    right = by_group(cases, scores)
    kept = [np.mean(hits) for hits in right.values() if len(hits) >= 25]
    assert len(kept) == 3
    found = number(cases, scores, "vg-attribution")
    assert found.value == pytest.approx(np.mean(kept))
    micro = np.mean([hit for hits in right.values() for hit in hits])
    assert number(cases, scores, "strict").value == pytest.approx(micro) != found.value


@pytest.mark.parametrize("id", FILES)
def test_a_tie_is_wrong(id: str, tmp_path: Path) -> None:
    made = {"relation_name": "wearing"} if id == RELATION else {"attributes": ["a", "b"]}
    cases = table(tmp_path, id, {"a_b": 30}, lambda _: made)
    benchmark = load_benchmark(id, tmp_path).benchmark
    scores = np.zeros(60)
    assert number(cases, scores, benchmark.protocol).value == 0
    scores[:30:2] = 1e-7
    found = number(cases, scores, benchmark.protocol)
    assert (found.value, found.ties) == (0.5, 15)
