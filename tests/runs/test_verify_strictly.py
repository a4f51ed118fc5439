"""`verify` is not generous: parts of benchmarks, other models and unknown names are told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from test_verify import CLIP, CLIP_ID, FAST, Papers, invoke, one, paper, papers, saved, sugarcrepe

from counterpoint._util.errors import NotFoundError
from counterpoint._util.registry import did_you_mean, near
from counterpoint.cases import Absent
from counterpoint.evaluation.verifying import (
    judge,
    near_models,
    not_the_model,
    published_model,
    verify,
)
from counterpoint.runs import Run

__all__ = ["papers"]  # a fixture
CLIP32 = "CLIP ViT-B/32"


# --- what cannot be compared -------------------------------------------------------------------


def test_few_cases_of_many_cannot_be_compared(papers: Papers) -> None:
    """A wide interval around 80 of 7,511 cases holds nearly every published value."""
    papers.say(paper(value="50.0"))
    papers.whole_is(7511)
    run = Run(CLIP_ID, {"sugarcrepe": sugarcrepe()}, {"options": {"limit": 80}})
    check = one(verify(run, resamples=FAST), published=0.5)
    assert check.verdict == "cannot be compared"
    assert check.why == "80 cases scored, the whole benchmark has 7,511"
    papers.whole_is(80)
    assert one(verify(run, resamples=FAST), published=0.5).verdict == "within the interval"


def test_of_a_benchmark_of_unknown_size_the_limit_tells(papers: Papers) -> None:
    papers.say(paper())
    run = Run(CLIP_ID, {"sugarcrepe": sugarcrepe()}, {"options": {"limit": 80}})
    check = one(verify(run, resamples=FAST), published=0.5)
    assert (check.verdict, check.why) == ("cannot be compared", "limited to 80 cases")


def test_files_that_are_missing_forbid_the_comparison(papers: Papers) -> None:
    papers.say(paper())
    absent = (Absent("existence", "file missing", 534), Absent("plurals", "file missing", 1000))
    run = Run(CLIP_ID, {"sugarcrepe": replace(sugarcrepe(), absent=absent)}, {})
    check = one(verify(run, resamples=FAST), published=0.5)
    assert (check.verdict, check.left_out) == ("cannot be compared", 1534)
    assert check.why == "existence: file missing and 1 more"


@pytest.mark.slow
def test_scores_under_another_protocol_cannot_be_compared(papers: Papers) -> None:
    papers.say(paper(benchmark="aro/coco-order", protocol="aro-order"))
    part = sugarcrepe(name="aro/coco-order", protocol="strict")  # raw captions, not cleaned
    check = one(verify(Run(CLIP_ID, {part.benchmark: part}, {}), resamples=FAST), published=0.5)
    assert check.verdict == "cannot be compared" and "captions" in check.why
    done = invoke(saved(part), "--json")
    [row] = [row for row in json.loads(done.stdout) if row["published"] is not None]
    assert row["ours"] is None
    assert "unknown" in invoke("run").stdout


@pytest.mark.parametrize(
    ("ours", "published", "rounding", "verdict"),
    [
        (0.75834, 0.7583, 5e-5, "same to the digit"),
        (0.75836, 0.7583, 5e-5, "within the interval"),
        (0.75836, 0.758, 5e-4, "same to the digit"),
        (0.70, 0.751, 5e-4, "differs"),
        (0.70, 0.7203, 5e-4, "within the interval"),  # its rounding reaches into the interval
    ],
)
def test_the_last_digit_decides(
    ours: float, published: float, rounding: float, verdict: str
) -> None:
    assert judge(ours, ours - 0.02, ours + 0.02, published, rounding) == verdict
    assert judge(ours, ours, ours, published, rounding, "because") == "cannot be compared"


# --- other models ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_that_is_no_model_of_a_paper_is_told(papers: Papers) -> None:
    papers.say(paper())
    done = invoke(saved(sugarcrepe(), model="blind:length"), "--as", CLIP)
    assert f"this run is of blind:length, not of {CLIP}" in " ".join(done.stderr.split())
    for model in ("random", "world:base"):
        assert not_the_model(Run(model, {}, {}), CLIP)


def test_a_run_of_another_published_model_is_told(papers: Papers) -> None:
    papers.say(paper(), paper(model="Other", id="open_clip:other/tag"))
    other = Run("open_clip:other/tag", {}, {})
    assert not_the_model(other, CLIP) == f"this run is of Other, not of {CLIP}"
    assert not_the_model(other, "Other") == ""
    assert not_the_model(Run("mine", {}, {}), CLIP) == ""


# --- the command -------------------------------------------------------------------------------


@pytest.mark.slow
def test_all_decimals_of_the_published_value_are_shown(papers: Papers) -> None:
    papers.say(paper(value="50.125"), paper(value="47", group="swap"))
    done = invoke(saved(sugarcrepe()))
    assert " 50.125 │" in done.stdout and " 47 │" in done.stdout


@pytest.mark.slow
def test_strict_is_for_scripts(papers: Papers) -> None:
    folder = saved(sugarcrepe())
    papers.say(paper())
    assert invoke(folder, "--strict").exit_code == 0
    papers.say(paper(), paper(value="99.9"))
    assert invoke(folder).exit_code == 0
    assert invoke(folder, "--strict").exit_code == 4
    assert invoke(folder, "--strict", "--json").exit_code == 4
    papers.say(paper())
    papers.whole_is(7511)
    done = invoke(folder, "--strict")
    assert done.exit_code == 4 and "7,511" in done.stderr
    papers.say(paper(benchmark="bivlc"))
    assert invoke(folder, "--strict").exit_code == 4  # nothing was confirmed


# --- names -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        ("ViT-B/32", CLIP32),
        ("vit b 32", CLIP32),
        ("CLIP ViT B/32", CLIP32),
        ("NegClipp", "NegCLIP"),
        ("open_clip:ViT-B-32/openai", "open_clip:ViT-B-32-quickgelu/openai"),
        ("SigLIP B/16", "SigLIP ViT-B/16"),
        ("FLAVA ITM", "FLAVA (ITM)"),
    ],
)
def test_near_names_are_suggested(name: str, suggested: str) -> None:
    with pytest.raises(NotFoundError) as error:
        published_model(name)
    assert f"Did you mean '{suggested}'?" in str(error.value)


def test_names_near_in_letters_come_second() -> None:
    assert near("swap", ["wasp", "a swap b", "swap c"]) == ["swap c", "a swap b"]
    assert near("swpa", ["wasp", "swap c"]) == ["swap c"]
    assert near("?", ["a", "b"]) == []
    said = did_you_mean("rule", "x" * 5000, {"b", "a"})
    assert len(said) < 400 and said.endswith("Known: a, b.")


def test_a_model_with_values_on_other_benchmarks_leads_to_one_that_has_them(tmp_path: Path) -> None:
    run = Run("FLAVA", {"winoground": sugarcrepe(name="winoground")}, {})
    assert "FLAVA (ITM)" in near_models("FLAVA", run)
    run = Run("FLAVA", {"retrieval/coco": sugarcrepe()}, {})
    assert "FLAVA (ITM)" not in near_models("FLAVA", run)


def test_nothing_published_suggests_what_is(papers: Papers) -> None:
    papers.say(paper(model="FLAVA", benchmark="bivlc"), paper(model="FLAVA (ITM)"))
    done = invoke(saved(sugarcrepe(), model="FLAVA"))
    said = " ".join(done.stderr.split())
    assert "Nothing is published of 'FLAVA' on these benchmarks" in said
    assert "There are values of 'FLAVA (ITM)'." in said
