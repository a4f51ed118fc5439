"""A part of a benchmark does not pass as the whole: what the data lack is named in the run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmark_fixtures import hub_image, write_json, write_parquet, write_table
from cli_support import Command, counterpoint, own_place

from counterpoint.benchmarks.completeness import published_count, why_incomplete
from counterpoint.benchmarks.registry import BENCHMARKS, published_files
from counterpoint.benchmarks.visla import VISLA
from counterpoint.benchmarks.vl_checklist import CORPUS
from counterpoint.cases.table import Absent
from counterpoint.evaluation.evaluating import evaluate
from counterpoint.metrics.protocols import PROTOCOLS
from counterpoint.runs.folders import Part, Run, load_run

__all__ = ["counterpoint", "own_place"]  # fixtures
LENGTH = "blind:length"


def write_valse(root: Path, **counts: int) -> None:
    for name, count in counts.items():
        item = {"image_file": "1.jpg", "caption": "A mole.", "foil": "A newt is here."}
        items = {f"k_{i}": item | {"mturk": {"caption": 3}} for i in range(count)}
        write_json(root / f"valse/{name}.json", items)


def write_cola(root: Path, count: int) -> None:
    rows = [[f"u/{i}.jpg", f"a {i}", f"u/{i}b.jpg", f"b {i}"] for i in range(count)]
    write_json(root / "cola/data/COLA_multiobjects_matching_benchmark.json", rows)


def part_of(benchmark: str, root: Path, **options: Any) -> tuple[Run, Part]:
    run = evaluate(LENGTH, benchmark, data=root, out=root / "run", overwrite=True, **options)
    [part] = run.parts.values()
    return run, part


# --- what benchmarks consist of ----------------------------------------------------------------


def test_the_files_of_a_benchmark_hold_its_cases() -> None:
    for name in BENCHMARKS.names():
        counts = list(published_files(name).values())
        galleries = name.startswith(("retrieval/", "classification/", "bivlc/", "eccv-caption"))
        galleries |= name.endswith("/retrieval")
        if None not in counts and counts and not galleries:
            assert sum(counts) == BENCHMARKS.get(name).count, name
    assert published_count("sugarcrepe-pp:tests=itt", PROTOCOLS["strict"]) == 4757
    assert published_count("sugarcrepe-pp", PROTOCOLS["strict"]) == 2 * 4757
    assert published_count("world-swap", PROTOCOLS["strict"]) is None
    assert published_count("my.jsonl", PROTOCOLS["strict"]) is None
    assert published_count("crepe/productivity", PROTOCOLS["crepe"]) is None


def test_vl_checklist_has_the_files_of_the_authors_corpus() -> None:
    """13 aspects: six of objects with 7 files each, five of attributes with 2, relations with 4."""
    kinds = [name.partition("/")[0] for name in CORPUS]
    assert [kinds.count(kind) for kind in ("Object", "Attribute", "Relation")] == [42, 10, 4]


# --- what is absent ----------------------------------------------------------------------------


def test_files_that_are_missing_are_named_with_their_cases(tmp_path: Path) -> None:
    write_valse(tmp_path, existence=534, plurals=990)
    run, part = part_of("valse", tmp_path)
    found = {one.what: (one.reason, one.cases) for one in part.absent}
    assert len(found) == 10
    assert found["relations"] == ("file missing", 614)
    assert found["plurals"] == ("rows missing", 10)
    assert "existence" not in found
    assert run.left_out == 8782 - 534 - 990
    about = json.loads((tmp_path / "run/run.json").read_text())["benchmarks"]["valse"]
    assert {"what": "plurals", "reason": "rows missing", "cases": 10} in about["absent"]
    assert load_run(tmp_path / "run").parts["valse"].absent == part.absent


def test_a_whole_benchmark_lacks_nothing(tmp_path: Path) -> None:
    write_cola(tmp_path, 210)
    run, part = part_of("cola", tmp_path)
    assert part.absent == () and run.left_out == 0
    assert why_incomplete(part, part.protocol, {}) == ""


def test_a_table_that_was_cut_lacks_rows(tmp_path: Path) -> None:
    row = {"caption": "a", "negative_caption": "b", "type": "swap", "subtype": "att"}
    images = {"image": hub_image("1"), "negative_image": hub_image("2")}
    write_parquet(tmp_path / "bivlc/test.parquet", [row | images] * 5)
    _, part = part_of("bivlc", tmp_path)
    assert part.absent == (Absent("bivlc", "rows missing", 2928),)


def test_a_gallery_that_was_cut_lacks_images(tmp_path: Path) -> None:
    rows = [{"image": f"val2014/{i}.jpg", "caption": [f"mole {i}"] * 5} for i in range(6)]
    write_json(tmp_path / "coco/coco_karpathy_test.json", rows)
    _, part = part_of("retrieval/coco", tmp_path)
    assert part.absent == (Absent("retrieval/coco", "rows missing", 4994),)


def test_the_official_protocol_asks_for_the_first_rows_of_each_file(tmp_path: Path) -> None:
    pair = ["VG_100K/1.jpg", {"POS": ["a mole"], "NEG": ["a newt"]}]
    for name, count in (("color", 1_000), ("size", 990)):
        write_json(tmp_path / f"vl_checklist/Attribute/vg/{name}.json", [pair] * count)
    _, part = part_of("vl-checklist", tmp_path)
    found = {one.what: (one.reason, one.cases) for one in part.absent}
    assert "Attribute/vg/color" not in found
    assert found["Attribute/vg/size"] == ("rows missing", 10)
    assert found["Attribute/vg/state"] == ("file missing", 941)
    assert found["Relation/vg/spatial"] == ("file missing", 1_000)
    assert found["Relation/hake_action"] == ("file missing", None)
    assert len(found) == 55
    _, part = part_of("vl-checklist", tmp_path, protocol="strict")
    found = {one.what: (one.reason, one.cases) for one in part.absent}
    assert found["Attribute/vg/color"] == ("rows missing", 10_569)
    assert found["Relation/vg/spatial"] == ("file missing", 30_650)


def visla_rows(count: int, unfinished: int) -> list[dict[str, str]]:
    row = {"image": "8.jpg", "sent1": "a", "sent2": "b", "Best reference": "c"}
    return [row | ({"Best reference": ""} if i < unfinished else {}) for i in range(count)]


def test_rows_that_make_no_case_are_in_the_run(tmp_path: Path) -> None:
    write_table(tmp_path / "visla/Spatial_VISLA.tsv", visla_rows(652, 12), separator="\t")
    run, part = part_of("visla", tmp_path)
    missing, *unusable = part.absent
    assert missing == Absent("generic", "file missing", 973)
    assert unusable == [Absent(f"spatial/{i}", "no negative caption") for i in range(12)]
    assert len(part.cases) == 640 and run.left_out == 985
    assert VISLA.count == 973 + 640 == 1_613


def test_files_of_unknown_size_are_named_too(tmp_path: Path) -> None:
    region = {"image_id": 1, "caption": "a", "x": 0, "y": 0, "width": 9, "height": 9}
    path = tmp_path / "crepe/prod_vg_hard_negs_atom_complexity_4.csv"
    write_table(path, [region | {"hard_negs": "['b']"}])
    run, part = part_of("crepe/productivity", tmp_path)
    assert len(part.absent) == run.left_out == 26
    assert Absent("negate/12", "file missing", None) in part.absent


def test_positives_do_not_hide_what_is_absent(tmp_path: Path) -> None:
    write_cola(tmp_path, 9)
    file = tmp_path / "p.csv"
    file.write_text("case_id,text\n0,a zero\n")
    _, part = part_of(f"cola+hp:positives={file}", tmp_path)
    assert part.absent == (Absent("cola", "rows missing", 201),)


# --- whether a run is whole --------------------------------------------------------------------


def test_why_a_run_is_not_the_whole_benchmark(tmp_path: Path) -> None:
    write_cola(tmp_path, 210)
    _, limited = part_of("cola", tmp_path, limit=12)
    protocol = limited.protocol
    assert limited.absent == ()
    said = why_incomplete(limited, protocol, {"limit": 12})
    assert said == "12 cases scored, the whole benchmark has 210"
    write_cola(tmp_path, 211)
    _, longer = part_of("cola", tmp_path)
    assert "211 cases scored" in why_incomplete(longer, protocol, {})
    lost = replace(longer, left_out=(("3", "no such file"),))
    assert why_incomplete(lost, protocol, {}) == "1 of its cases or images left out"


@pytest.mark.slow
def test_rows_that_nobody_can_score_leave_a_run_whole(tmp_path: Path) -> None:
    write_table(tmp_path / "visla/Spatial_VISLA.tsv", visla_rows(652, 12), separator="\t")
    row = {"filename": "1.jpg", "caption": "a", "second positive": "b", "negative_caption": "c"}
    write_table(tmp_path / "visla/Generic_VISLA.tsv", [row] * 973, separator="\t")
    run, part = part_of("visla", tmp_path)
    assert run.left_out == 12
    assert why_incomplete(part, part.protocol, {}) == ""
    # Rows without a negative do not stand in for cases that were cut off.
    write_table(tmp_path / "visla/Spatial_VISLA.tsv", visla_rows(647, 12), separator="\t")
    _, part = part_of("visla", tmp_path)
    assert part.absent[0] == Absent("spatial", "rows missing", 5)


def test_of_an_unknown_size_the_limit_tells(tmp_path: Path) -> None:
    _, part = part_of("world-swap:size=20", tmp_path, limit=5)
    assert why_incomplete(part, part.protocol, {"limit": 5}) == "limited to 5 cases"
    assert why_incomplete(part, part.protocol, {"limit": None}) == ""


# --- the commands ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_partial_benchmark_exits_with_3_and_is_explained(
    counterpoint: Command, tmp_path: Path
) -> None:
    write_valse(tmp_path, existence=6)
    command = ("eval", "-m", LENGTH, "-b", "valse", "--data", str(tmp_path), "--out", "run")
    done = counterpoint(*command)
    assert done.code == 3
    said = " ".join(done.err.split())
    assert "file missing: 8,248 cases; rows missing: 528 cases" in said
    assert "run/run.json" in said and "--allow-missing" in said
    assert counterpoint(*command, "--allow-missing").code == 0
    assert "file missing" in counterpoint("rescore", "run").err


@pytest.mark.slow
def test_scores_from_elsewhere_of_a_partial_benchmark(
    counterpoint: Command, tmp_path: Path
) -> None:
    write_cola(tmp_path, 1)
    lines = [f"0,{i},{c},{i == c:d}" for i in (0, 1) for c in (0, 1)]
    Path("s.csv").write_text("\n".join(["case_id,image,caption,score", *lines]))
    command = ("import", "s.csv", "-b", "cola", "--name", "m", "--data", str(tmp_path))
    assert counterpoint(*command, "--out", "run").code == 3
    assert load_run("run").parts["cola"].absent[0].cases == 209
    assert counterpoint(*command, "--out", "run", "--allow-missing").code == 0


@pytest.mark.slow
def test_compare_says_that_a_run_is_not_whole(counterpoint: Command, tmp_path: Path) -> None:
    write_cola(tmp_path, 210)
    command = ("eval", "-b", "cola", "--data", str(tmp_path))
    assert counterpoint(*command, "-m", "random", "--out", "a").code == 0
    assert counterpoint(*command, "-m", LENGTH, "--limit", "12", "--out", "b").code == 0
    said = " ".join(counterpoint("compare", "a", "b").err.split())
    assert "blind:length on cola: 12 cases scored, the whole benchmark has 210" in said
    assert "random on cola" not in said
