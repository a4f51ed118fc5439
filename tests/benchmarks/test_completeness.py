"""A part of a benchmark does not pass as the whole: what the data lack is named in the run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmark_fixtures import hub_image, write_json, write_parquet, write_table
from cli_support import Command, counterpoint, own_place

from counterpoint.benchmarks import registry
from counterpoint.benchmarks.benchmark import Size
from counterpoint.benchmarks.completeness import (
    describe_absent,
    published_counts,
    unexplained,
    why_incomplete,
)
from counterpoint.benchmarks.registry import BENCHMARKS, published_files
from counterpoint.cases.table import Absent
from counterpoint.evaluation.evaluating import evaluate
from counterpoint.metrics.protocols import PROTOCOLS
from counterpoint.runs import Part, Run, left_out_notes, load_run

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


UNKNOWN = {"coco-counterfactuals", "crepe/productivity", "crepe/systematicity", "vl-checklist"}


def test_the_files_of_a_benchmark_hold_its_cases() -> None:
    """The sizes of all published files are known, but for those that are named here."""
    for name in (name for name in BENCHMARKS.names() if not name.startswith("world-")):
        counts = [size.cases for size in published_files(name).values()]
        assert (not counts or None in counts) == (name in UNKNOWN), name
        if name not in UNKNOWN:
            assert sum(filter(None, counts)) == (BENCHMARKS.get(name).count or 20), name


def test_a_gallery_has_images_and_captions() -> None:
    def of(id: str, protocol: str = "retrieval") -> dict[str, int]:
        return published_counts(id, PROTOCOLS[protocol])

    galleries = ("retrieval/", "classification/", "bivlc/", "eccv-caption")
    for name in BENCHMARKS.names():
        if name.startswith(galleries) or (name.endswith("/retrieval") and "natural" not in name):
            assert {"images", "captions"} <= set(of(name)), name
    assert of("retrieval/coco") == {"cases": 1, "images": 5_000, "captions": 25_000}
    assert of("retrieval/coco", "aro-retrieval")["captions"] == 25_010
    assert of("retrieval/flickr30k:captions=all,seeds=3")["captions"] == 15_000
    assert of("eccv-caption")["queries"] == 2_590
    assert of("classification/vtab/pets") == {"cases": 1, "images": 3_669, "captions": 37}


def test_the_sizes_depend_on_the_options() -> None:
    def of(id: str, protocol: str = "strict") -> int | None:
        return published_counts(id, PROTOCOLS[protocol]).get("cases")

    assert of("sugarcrepe-pp:tests=itt") == 4757 and of("sugarcrepe-pp") == 2 * 4757
    assert (of("vsr"), of("vsr:split=zeroshot")) == (2_195, 1_222)
    assert (of("cxc/renderings"), of("cxc/renderings:grade=4")) == (20, 825)
    assert of("cxc/renderings:grade=4.2") is None
    assert of("world-swap") is None and of("my.jsonl") is None
    assert of("crepe/productivity", "crepe") is None


def test_vl_checklist_has_the_files_of_the_authors_corpus() -> None:
    """13 aspects: six of objects with 7 files each, five of attributes with 2, relations with 4."""
    kinds = [name.partition("/")[0] for name in published_files("vl-checklist")]
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


def write_coco(root: Path, images: int, captions: int = 5) -> None:
    rows = [
        {"image": f"val2014/COCO_{i}.jpg", "caption": [f"mole {i} {n}" for n in range(captions)]}
        for i in range(images)
    ]
    write_json(root / "coco/coco_karpathy_test.json", rows)


def test_a_gallery_that_was_cut_lacks_images(tmp_path: Path) -> None:
    write_coco(tmp_path, 6)
    _, part = part_of("retrieval/coco", tmp_path)
    name = "retrieval/coco"
    rows, captions = Absent(name, "rows missing", 4994), Absent(name, "captions missing", 24_970)
    assert part.absent == (rows, captions)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Says that the published benchmark is as small as the toy files of a test."""

    def say(name: str, **sizes: Size | int) -> None:
        files = {"" if file == "whole" else file: size for file, size in sizes.items()}
        made = replace(BENCHMARKS.get(name), files=lambda _: files)
        monkeypatch.setattr(registry, "find_benchmark", lambda id: made)

    return say


def test_a_gallery_with_four_captions_of_an_image_is_a_part(
    tmp_path: Path, small: Callable[..., None]
) -> None:
    small("retrieval/coco", whole=Size(1, 6, 30))
    write_coco(tmp_path, 6)
    _, whole = part_of("retrieval/coco", tmp_path)
    assert whole.absent == () and why_incomplete(whole, whole.protocol, {}) == ""
    write_coco(tmp_path, 6, captions=4)
    run, part = part_of("retrieval/coco", tmp_path)
    assert part.absent == (Absent("retrieval/coco", "captions missing", 6),)
    assert describe_absent(part.absent).startswith("captions missing: 6 captions")
    assert run.left_out == 6
    # A run from before sizes were known does not say so.
    silent = replace(part, absent=())
    said = why_incomplete(silent, part.protocol, {})
    assert said == "24 captions scored, the whole benchmark has 30"
    assert unexplained(silent, part.protocol) == 6 and unexplained(part, part.protocol) == 0


def test_a_gallery_with_fewer_queries_is_a_part(tmp_path: Path, small: Callable[..., None]) -> None:
    rows = [
        {"image": f"val2014/COCO_val2014_{i:012}.jpg", "caption": [f"a {i}", f"b {i}"]}
        for i in range(6)
    ]
    write_json(tmp_path / "coco/coco_karpathy_test.json", rows)
    folder = tmp_path / "eccv_caption"
    ids = {str(i): [10 * i, 10 * i + 1] for i in range(6)}
    write_json(folder / "original_image_to_caption.json", ids)
    write_json(folder / "eccv_image_to_caption.json", {"1": [10], "2": [20, 30]})
    write_json(folder / "eccv_caption_to_image.json", {"10": [1]})
    small("eccv-caption", whole=Size(1, 6, 12, 5))
    _, part = part_of("eccv-caption", tmp_path)
    assert part.absent == (Absent("eccv-caption", "queries missing", 2),)
    said = why_incomplete(replace(part, absent=()), part.protocol, {})
    assert said == "3 queries scored, the whole benchmark has 5"
    small("eccv-caption", whole=Size(1, 6, 12, 3))
    assert part_of("eccv-caption", tmp_path)[1].absent == ()


def test_negated_captions_that_are_missing_are_counted_as_captions(tmp_path: Path) -> None:
    rows = [
        {"filepath": f"/d/{i}.jpg", "image_id": i, "captions": str([f"no {i}", f"not {i}"])}
        for i in range(9)
    ]
    write_table(
        tmp_path / "negbench/COCO_val_negated_retrieval_llama3.1_rephrased_affneg_true.csv", rows
    )
    _, part = part_of("negbench/retrieval", tmp_path)
    name = "negbench/retrieval"
    assert part.absent == (
        Absent(name, "rows missing", 4_989),
        Absent(name, "captions missing", 24_985),
    )
    said = describe_absent(part.absent)
    assert "rows missing: 4,989 cases; captions missing: 24,985 captions" in said


# --- more than published -----------------------------------------------------------------------


def test_a_piece_that_was_copied_is_told(tmp_path: Path, small: Callable[..., None]) -> None:
    write_valse(tmp_path, existence=4, plurals=3)
    copied = (tmp_path / "valse/plurals.json").read_text()
    (tmp_path / "valse/plurals (copy).json").write_text(copied)
    small("valse", existence=4, plurals=3)
    run, part = part_of("valse", tmp_path)
    assert part.absent == (Absent("plurals (copy)", "more than published", 3),)
    assert (run.left_out, run.surplus, part.missing) == (0, 3, 0)
    assert why_incomplete(part, part.protocol, {}) == "plurals (copy): more than published"
    silent = replace(part, absent=())
    assert "10 cases scored" in why_incomplete(silent, part.protocol, {})
    [note] = left_out_notes(run)
    assert note == (
        "blind:length on valse: 3 more than published; run.parts['valse'].absent names them."
    )


def test_a_row_that_the_authors_removed_is_told(tmp_path: Path, small: Callable[..., None]) -> None:
    row = {"filename": "1.jpg", "caption": "a mole", "negative_caption": "a newt is here"}
    for name in published_files("sugarcrepe"):
        write_json(tmp_path / f"sugarcrepe/{name}.json", {"107": row, "108": row, "109": row})
    small("sugarcrepe", **dict.fromkeys(published_files("sugarcrepe"), 3) | {"swap_obj": 2})
    _, part = part_of("sugarcrepe", tmp_path)
    assert part.absent == (Absent("swap_obj", "more than published", 1),)


def test_a_surplus_does_not_make_up_for_a_lack(tmp_path: Path, small: Callable[..., None]) -> None:
    write_valse(tmp_path, existence=4, plurals=3)
    small("valse", existence=3, plurals=4)
    _, part = part_of("valse", tmp_path)
    assert part.absent == (
        Absent("existence", "more than published", 1),
        Absent("plurals", "rows missing", 1),
    )


def test_rows_without_votes_are_told(tmp_path: Path, small: Callable[..., None]) -> None:
    item = {"image_file": "1.jpg", "caption": "A mole.", "foil": "A newt is here."}
    votes: list[object] = [{"caption": 3}, {"caption": 0}, None, {"foil": 1}]
    rows = {f"k_{n}": item | {"mturk": vote} for n, vote in enumerate(votes)}
    write_json(tmp_path / "valse/plurals.json", rows)
    small("valse", plurals=4)
    run, part = part_of("valse", tmp_path)
    assert part.absent == (Absent("plurals", "votes missing", 2),) and run.left_out == 2
    assert why_incomplete(part, part.protocol, {}) == "plurals: votes missing"


def test_the_official_protocol_asks_for_the_first_rows_of_each_file(tmp_path: Path) -> None:
    pair = ["VG_100K/1.jpg", {"POS": ["a mole"], "NEG": ["a newt"]}]
    for name, count in (("color", 1_000), ("size", 990)):
        write_json(tmp_path / f"vl_checklist/Attribute/vg/{name}.json", [pair] * count)
    _, part = part_of("vl-checklist", tmp_path)
    found = {one.what: (one.reason, one.cases) for one in part.absent}
    assert "Attribute/vg/color" not in found
    assert found["Attribute/vg/size"] == ("rows missing", 10)
    assert found["Attribute/vg/state"] == ("file missing", 941)
    assert found["Object/Size/swig_size/swig_destination/swig_destination_small"][1] == 9
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
    assert BENCHMARKS.get("visla").count == 973 + 640 == 1_613


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
    assert longer.absent == (Absent("cola", "more than published", 1),)
    assert "211 cases scored" in why_incomplete(replace(longer, absent=()), protocol, {})
    lost = replace(longer, absent=(), left_out=(("3", "no such file"),))
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
