"""Ours beside the papers': verdicts, and which values a run can be compared with."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, strategies as st
from support import FEW, case, gallery, owned, part, random_scores, run_of, square, table
from typer.testing import CliRunner

from counterpoint._util.errors import NotFoundError
from counterpoint.benchmarks import completeness
from counterpoint.benchmarks.benchmark import Size
from counterpoint.cases import Cases
from counterpoint.cli.app import app
from counterpoint.evaluation import verifying
from counterpoint.evaluation.verifying import (
    Check,
    half_precision,
    published_model,
    tied_captions,
    verify,
)
from counterpoint.runs import Part, Row, Run, rows, save_run, side_by_side

COLUMNS = ("model", "id", "benchmark", "group", "metric", "protocol", "average", "value")
COLUMNS = (*COLUMNS, "source", "note")
FAST = 50  # resamples
CLIP, CLIP_ID = "CLIP of the test", "open_clip:ViT-X/test"


def paper(**changes: str) -> dict[str, str]:
    row = {
        "model": CLIP,
        "id": CLIP_ID,
        "benchmark": "sugarcrepe",
        "group": "all",
        "metric": "original_accuracy",
        "protocol": "sugarcrepe",
        "average": "micro",
        "value": "50.0",
        "source": "A paper, Table 1",
        "note": "",
    }
    return row | changes


class Papers:
    """Sets what is published."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch

    def say(self, *found: dict[str, str]) -> None:
        schema = dict.fromkeys(COLUMNS, pl.String())
        frame = pl.DataFrame(list(found), schema=schema)
        self.monkeypatch.setattr(verifying, "published", lambda: frame)
        # Runs of a few cases stand for whole benchmarks here, but where `whole_is` says otherwise.
        self.whole_is(None)

    def whole_is(self, count: int | None) -> None:
        files = {} if count is None else {"": Size(count)}
        self.monkeypatch.setattr(completeness, "published_files", lambda id, protocol: files)


@pytest.fixture
def papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Papers:
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return Papers(monkeypatch)


def sugarcrepe(seed: int = 1, *, name: str = "sugarcrepe", protocol: str = "sugarcrepe") -> Part:
    cases = table(80, positives=1)
    return part(cases, random_scores(cases, seed, values=7), protocol, name)


def ours(run: Run) -> dict[tuple[str, str], Row]:
    return {(row.group, row.metric): row for row in rows(run, resamples=FAST)}


def one(found: list[Check], **wanted: Any) -> Check:
    [check] = [c for c in found if all(getattr(c, k) == v for k, v in wanted.items())]
    return check


# --- verdicts ----------------------------------------------------------------------------------


def test_a_value_is_the_same_or_inside_the_interval_or_differs(papers: Papers) -> None:
    run = run_of(sugarcrepe(), model=CLIP_ID)
    row = ours(run)["all", "original_accuracy"]
    values = (row.value, (row.value + row.ci_high) / 2, row.ci_high + 0.02)
    same, inside, outside = (f"{100 * v:.2f}" for v in values)
    papers.say(paper(value=same), paper(value=inside), paper(value=outside, source="Another"))
    found = verify(run, resamples=FAST)
    assert one(found, published=float(inside) / 100).verdict == "within the interval"
    check = one(found, verdict="same to the digit")
    assert check == Check(
        "sugarcrepe",
        "all",
        "original_accuracy",
        "micro",
        row.value,
        row.ci_low,
        row.ci_high,
        80,
        0,
        float(same) / 100,
        5e-5,
        "same to the digit",
        "",
        CLIP,
        "A paper, Table 1",
        "",
        row.ties,
    )
    other = one(found, verdict="differs")
    assert (other.published, other.source) == (float(outside) / 100, "Another")
    assert other.ours == check.ours


@cache
def run_and_row() -> tuple[Run, Row]:
    run = run_of(sugarcrepe(), model=CLIP_ID)
    return run, ours(run)["all", "original_accuracy"]


@pytest.mark.slow
@FEW
@given(st.integers(0, 2), st.data())
def test_the_tolerance_is_half_of_the_last_digit(digits: int, data: st.DataObject) -> None:
    """Around both ends of the interval, in steps of the last digit."""
    run, row = run_and_row()
    end = data.draw(st.sampled_from([row.ci_low, row.ci_high]))
    step = 10**-digits
    value = f"{100 * end + data.draw(st.integers(-2, 2)) * step:.{digits}f}"
    half = 0.5 * step
    edges = (100 * row.ci_low - half, 100 * row.ci_high + half)
    assume(all(abs(float(value) - edge) > 1e-9 for edge in edges))  # there, rounding decides
    inside = 100 * row.ci_low - half <= float(value) <= 100 * row.ci_high + half
    expected = "within the interval" if inside else "differs"
    if abs(100 * row.value - float(value)) <= half:
        expected = "same to the digit"
    with pytest.MonkeyPatch.context() as monkeypatch:
        Papers(monkeypatch).say(paper(value=value))
        [check] = [c for c in verify(run, resamples=FAST) if c.published is not None]
    assert check.rounding == pytest.approx(half / 100)
    assert check.verdict == expected


def test_what_is_no_share_is_no_per_cent(papers: Papers) -> None:
    cases = table(40, positives=1, negatives=5)
    run = run_of(part(cases, random_scores(cases, 3), "crepe", "crepe/productivity"), model=CLIP_ID)
    row = ours(run)["all", "mean_rank"]
    assert row.value > 1
    common = {"benchmark": "crepe/productivity", "average": "types-macro", "protocol": "crepe"}
    papers.say(paper(metric="mean_rank", value=f"{row.value:.2f}", **common))
    check = one(verify(run, resamples=FAST), metric="mean_rank")
    assert check.published == float(f"{row.value:.2f}")
    assert (check.rounding, check.verdict) == (0.005, "same to the digit")


@pytest.mark.slow
def test_numbers_without_a_value_are_there_once(papers: Papers) -> None:
    run = run_of(sugarcrepe(), model=CLIP_ID)
    papers.say(paper(group="swap", value="10.0"), paper(group="swap", value="11.0"))
    found = verify(run, resamples=FAST)
    main = {(g, m) for g, m in ours(run) if m == "original_accuracy"}
    assert {(c.group, c.metric) for c in found} == main  # other metrics are not main ones
    assert len(found) == len(main) + 1
    for check in found:
        if check.group == "swap":
            assert check.verdict == "differs"
        else:
            assert (check.verdict, check.published, check.rounding) == ("no value", None, None)
            assert (check.model, check.source, check.note) == ("", "", "")
            assert check.ours == ours(run)[check.group, "original_accuracy"].value


def test_a_published_metric_need_not_be_a_main_one(papers: Papers) -> None:
    made = [square(n) for n in range(20)]
    cases = Cases.build(made, source="test")
    run = run_of(part(cases, random_scores(cases, 2), "bivlc", "bivlc"), model=CLIP_ID)
    papers.say(paper(benchmark="bivlc", metric="image_to_text_0", protocol="bivlc", value="5.00"))
    found = verify(run, resamples=FAST)
    assert one(found, metric="image_to_text_0").published == 0.05
    assert {c.metric for c in found if c.published is None} == {
        "image_to_text",
        "text_to_image",
        "group",
    }


def test_what_the_run_lacks_is_left_out(papers: Papers) -> None:
    run = run_of(sugarcrepe(), model=CLIP_ID)
    papers.say(
        paper(group="add"),
        paper(metric="augmented_accuracy"),
        paper(metric="no such metric"),
        paper(benchmark="bivlc"),
        paper(model="Other", id=""),
    )
    assert {c.verdict for c in verify(run, resamples=FAST)} == {"no value"}


# --- averages ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_averages_are_computed_as_the_published_row_says(papers: Papers) -> None:
    run = run_of(sugarcrepe(), model=CLIP_ID)
    names = ("micro", "macro", "types", "types-macro")
    papers.say(*(paper(average=name) for name in names))
    found = [c for c in verify(run, resamples=FAST) if c.published is not None]
    expected = side_by_side(run.parts["sugarcrepe"])
    assert {c.average: c.ours for c in found} == pytest.approx(
        {name: expected[name]["original_accuracy"] for name in names}
    )
    assert len({round(c.ours, 9) for c in found}) == 4


def test_an_average_of_a_group_is_over_what_is_below_it(papers: Papers) -> None:
    run = run_of(sugarcrepe(), model=CLIP_ID)
    papers.say(paper(group="replace", average="macro"), paper(group="replace", average="micro"))
    found = {c.average: c.ours for c in verify(run, resamples=FAST) if c.published is not None}
    values = {group: row.value for (group, m), row in ours(run).items() if m == "original_accuracy"}
    below = [value for group, value in values.items() if group.startswith("replace/")]
    assert len(below) == 3
    assert found == pytest.approx({"macro": np.mean(below), "micro": values["replace"]})
    assert found["macro"] != pytest.approx(found["micro"])


def test_a_run_under_another_protocol_is_not_what_was_published(papers: Papers) -> None:
    """All tied: 0 under SugarCrepe's protocol, 50 where a tie is half right."""
    cases = table(40, positives=1)
    run = run_of(part(cases, np.zeros(80), "half", "sugarcrepe"), model=CLIP_ID)
    papers.say(paper(value="50.0"))
    assert one(verify(run, resamples=FAST), published=0.5).verdict == "differs"


# --- which model, which benchmark --------------------------------------------------------------


@pytest.mark.slow
def test_a_model_is_known_by_its_id_or_name(papers: Papers) -> None:
    papers.say(paper(model="Other", id="", value="1.0"), paper())
    run = run_of(sugarcrepe(), model="mine")
    assert {c.verdict for c in verify(run, resamples=FAST)} == {"no value"}
    for name in (CLIP, CLIP_ID):
        own = verify(replace(run, model=name), resamples=FAST)
        named = verify(run, name, resamples=FAST)
        for found in (own, named):
            assert [c.model for c in found if c.published is not None] == [CLIP]
    assert [c.published for c in verify(run, "Other", resamples=FAST) if c.published] == [0.01]


def test_a_run_without_a_name_is_not_every_model_without_an_id(papers: Papers) -> None:
    papers.say(paper(model="Other", id=""))
    with pytest.raises(NotFoundError):
        published_model("")


def test_an_unknown_model_is_explained(papers: Papers) -> None:
    papers.say(paper(), paper(model="NegCLIP", id=""))
    run = run_of(sugarcrepe())
    with pytest.raises(NotFoundError, match="'NegCLIP'"):
        verify(run, "NegClipp", resamples=FAST)


@pytest.mark.slow
def test_options_that_change_the_benchmark_count(papers: Papers) -> None:
    for name, published_as in (
        ("aro/coco-order", "aro/coco-order"),
        ("aro/coco-order:seed=5", "aro/coco-order"),
        ("retrieval/coco:captions=all", "retrieval/coco:captions=all"),
        ("retrieval/coco:captions=all,seed=3", "retrieval/coco:captions=all"),
        ("retrieval/coco:captions=plain", "retrieval/coco"),
        ("sugarcrepe+hp", "sugarcrepe+hp"),
        ("sugarcrepe-pp:tests=itt", "sugarcrepe-pp"),
    ):
        papers.say(*(paper(benchmark=b, source=b) for b in {published_as, "retrieval/coco"}))
        found = verify(run_of(sugarcrepe(name=name), model=CLIP_ID), resamples=FAST)
        assert [c.source for c in found if c.published is not None] == [published_as]
        assert {c.benchmark for c in found} == {name}


def test_every_benchmark_of_the_run_is_looked_at(papers: Papers) -> None:
    made = Cases.build([square(n) for n in range(10)], source="test")
    bivlc = part(made, random_scores(made, 1), "bivlc", "bivlc")
    empty = replace(
        bivlc, benchmark="cola", cases=made.keep(np.zeros(10, bool)), scores=np.array([])
    )
    papers.say(paper(), paper(benchmark="bivlc", metric="group", protocol="bivlc"))
    found = verify(run_of(sugarcrepe(), bivlc, empty, model=CLIP_ID), resamples=FAST)
    values = [(c.benchmark, c.metric) for c in found if c.published is not None]
    assert values == [("sugarcrepe", "original_accuracy"), ("bivlc", "group")]
    assert {c.benchmark for c in found} == {"sugarcrepe", "bivlc"}


def test_the_packages_own_values_can_be_read() -> None:
    frame = verifying.published()
    assert tuple(frame.columns) == COLUMNS
    assert frame.null_count().sum_horizontal().item() == 0
    assert published_model("open_clip:ViT-B-32-quickgelu/openai")


# --- the command -------------------------------------------------------------------------------


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["verify", *arguments])


def saved(*parts: Part, model: str = CLIP_ID) -> str:
    save_run(run_of(*parts, model=model), Path("run"))
    return "run"


def no_nan(name: str) -> float:
    raise AssertionError(f"{name} is not JSON")


def test_half_precision_is_named_where_a_value_differs(papers: Papers) -> None:
    papers.say(paper(value="99.0", note="Probably in fp16."), paper(group="swap", value="1.0"))
    run = run_of(sugarcrepe(), model=CLIP_ID)
    found = verify(run, resamples=FAST)
    assert {c.verdict for c in found if c.published is not None} == {"differs"}
    assert half_precision(run, found).startswith("A paper, Table 1: the published values were")
    assert "see --precision fp16 of eval" in invoke(saved(sugarcrepe())).stderr
    halved = replace(run, manifest={"options": {"precision": "fp16"}})
    assert half_precision(halved, found) == ""
    papers.say(paper(value="99.0"))
    assert half_precision(run, verify(run, resamples=FAST)) == ""


def test_captions_that_two_images_share_are_named_where_a_digit_differs(papers: Papers) -> None:
    texts = ["a cat", "a cat", *(f"caption {n}" for n in range(38))]
    cases = Cases.build([gallery(owned(40, 1), captions=texts)], source="test")
    scores = np.eye(40)
    scores[:2, :2] = 1.0  # one text has one score
    told = {
        "metric": "image_to_text_recall@1",
        "protocol": "retrieval",
        "benchmark": "retrieval/coco",
    }
    run = run_of(part(cases, scores.ravel(), "retrieval", "retrieval/coco"), model=CLIP_ID)
    for value, says in (("97.5", True), ("100.0", True), ("95.0", False), ("94.0", False)):
        papers.say(paper(value=value, **told))
        why = tied_captions(verify(run, resamples=FAST))
        assert ("retrieval/coco, image_to_text_recall@1: 2 of 40" in why) == says, value
    papers.say(paper(value="97.5", **told))
    assert "share a caption word for word" in invoke(saved(*run.parts.values())).stderr


def test_what_no_run_can_hold_is_not_compared(papers: Papers) -> None:
    """People's agreement has no protocol; a file of this name would find it."""
    papers.say(paper(benchmark="other/bivlc-agreement", protocol="campaign", metric="kappa"))
    found = verify(run_of(sugarcrepe(name="other/bivlc-agreement"), model=CLIP_ID), resamples=FAST)
    assert found and all(check.published is None for check in found)


@pytest.mark.slow
def test_json_is_every_check(papers: Papers) -> None:
    papers.say(paper(note="a note"), paper(group="swap", value="99.9"))
    folder = saved(sugarcrepe())
    done = invoke(folder, "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    found = json.loads(done.stdout, parse_constant=no_nan)
    assert all(list(row) == [field.name for field in fields(Check)] for row in found)
    assert {(row["group"], row["verdict"]) for row in found if row["published"] is not None} == {
        ("all", "within the interval"),
        ("swap", "differs"),
    }
    assert {row["verdict"] for row in found if row["published"] is None} == {"no value"}
    [whole] = [row for row in found if row["group"] == "all"]
    assert (whole["published"], whole["note"], whole["n"]) == (0.5, "a note", 80)


@pytest.mark.slow
def test_the_table_shows_ours_theirs_and_the_verdict(papers: Papers) -> None:
    papers.say(paper(note="a note"), paper(group="swap", value="99.9", source="B"))
    folder = saved(sugarcrepe())
    done = invoke(folder)
    assert done.exit_code == 0
    row = {(r.group, r.metric): r for r in rows(run_of(sugarcrepe(), model=CLIP_ID))}[
        "all", "original_accuracy"
    ]
    numbers = f"{100 * row.value:.1f} [{100 * row.ci_low:.1f}, {100 * row.ci_high:.1f}]"
    assert re.search(rf"{re.escape(numbers)} │ +80 │ +50\.0 │ within the interval", done.stdout)
    assert re.search(r"│ +99\.9 │ differs", done.stdout)
    assert "A paper, Table 1: a note" in done.stdout
    assert "1 within the interval, 1 differ, 0 cannot be compared" in done.stdout
    assert "replace/obj" not in done.stdout
    groups = invoke(folder, "--groups")
    assert "replace/obj" in groups.stdout
    assert "1 differ, 0 cannot be compared, 6 without a published value" in groups.stdout
    assert done.stderr == ""


@pytest.mark.slow
def test_cases_that_were_left_out_are_warned_of(papers: Papers) -> None:
    papers.say(paper())
    done = invoke(saved(replace(sugarcrepe(), left_out=(("a", "no such file"),) * 1200)))
    assert done.exit_code == 0
    said = "sugarcrepe cannot be compared: 1,200 of its cases or images left out"
    assert said in done.stderr


@pytest.mark.slow
def test_nothing_published_is_said(papers: Papers) -> None:
    papers.say(paper())
    folder = saved(sugarcrepe(), model="mine")
    done = invoke(folder)
    assert done.exit_code == 0
    assert "Nothing is published of 'mine'" in done.stderr and "--as" in done.stderr
    named = invoke(folder, "--as", CLIP)
    assert named.exit_code == 0
    assert named.stderr == "" and " 50.0 " in named.stdout
    assert invoke(folder, "--as", CLIP_ID).stdout == named.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "--as", "CLIP of the tests"], f"Did you mean '{CLIP}'?"),
        (["nowhere"], "[E-RUN-MISSING]"),
    ],
)
def test_errors_are_one_line(arguments: list[str], says: str, papers: Papers) -> None:
    papers.say(paper())
    saved(sugarcrepe())
    done = invoke(*arguments)
    assert (done.exit_code, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("error: ") and says in line


def test_a_run_of_nothing_is_no_crash(papers: Papers) -> None:
    papers.say(paper())
    made = Cases.build([case(0)], source="test")
    empty = part(made.keep(np.array([False])), np.array([]), "strict", "sugarcrepe")
    done = invoke(saved(replace(empty, left_out=(("case-0", "no such file"),))))
    assert done.exit_code == 0
    assert "Nothing is published" in done.stderr
