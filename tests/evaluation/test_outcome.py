"""What training did: verdicts on runs made for it, lowered scores, what is not compared."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from errors import raises
from models_for_tests import Towers
from support import GROUPS, case, gallery, owned, part, run_of, square, table

from counterpoint.cases import Cases
from counterpoint.cli.tables import print_outcome
from counterpoint.evaluation import (
    MEAN_SCORES,
    OUTCOME_FILE,
    MetricChange,
    Outcome,
    evaluate_outcome,
)
from counterpoint.evaluation.outcome import outcome, write_outcome
from counterpoint.metrics import ALL
from counterpoint.runs import Run, compare, load_run, rows

pytestmark = pytest.mark.slow

FEW = 500  # resamples


def block(count: int, right: int, *, level: float = 0.5, brittle: int = 0) -> np.ndarray:
    """Scores of cases original, positive, negative: the first `right` right, then brittle ones."""
    noise = np.random.default_rng(0).normal(scale=0.01, size=count)
    scores = np.tile([level, level, level + 0.1], (count, 1)) + noise[:, None]
    scores[:right, 2] -= 0.2
    scores[right : right + brittle, 0] += 0.2
    return scores.reshape(-1)


def run(scores: np.ndarray, model: str, cases: Cases | None = None, name: str = "bench") -> Run:
    return run_of(part(cases or table(len(scores) // 3), scores, name=name), model=model)


def found(start: Run, tuned: Run) -> dict[tuple[str, str], MetricChange]:
    """The changes over everything, by benchmark and metric."""
    changes = outcome(start, tuned, resamples=FEW).changes
    return {(c.benchmark, c.metric): c for c in changes if c.group == ALL}


# --- verdicts ----------------------------------------------------------------------------------


def test_a_model_that_got_better_is_better_and_the_other_way_round_worse():
    weak, strong = run(block(80, 20, brittle=40), "weak"), run(block(80, 60), "strong")
    up, down = found(weak, strong), found(strong, weak)
    for changes, words in ((up, ("better", "better")), (down, ("worse", "worse"))):
        assert changes["bench", "augmented_accuracy"].verdict == words[0]
        assert changes["bench", "brittleness"].verdict == words[1]  # lower is better
    c = up["bench", "augmented_accuracy"]
    assert (c.start, c.tuned, c.n, c.chance) == (0.25, 0.75, 80, pytest.approx(1 / 3))
    assert c.difference == pytest.approx(0.5)
    assert c.ci_low < 0.5 < c.ci_high and c.p < 0.05
    assert down["bench", "augmented_accuracy"].difference == pytest.approx(-0.5)


def test_a_model_against_itself_shows_no_difference_anywhere():
    same = run(block(60, 30), "same")
    found = outcome(same, same, resamples=FEW)
    assert {c.verdict for c in found.changes} == {"no difference shown"}
    assert {c.difference for c in found.changes} == {0.0}
    assert found.warnings == found.notes == []


def test_differences_are_those_of_compare_and_levels_those_of_the_runs():
    rng = np.random.default_rng(3)
    cases = table(60)
    start, tuned = (run(rng.normal(size=180), name, cases) for name in ("start", "tuned"))
    changes = outcome(start, tuned, resamples=FEW).changes
    by_key = {(c.group, c.metric): c for c in changes}
    compared = {(d.group, d.metric): d for d in compare(tuned, start, resamples=FEW)}
    assert {label for label, _ in by_key} >= {ALL, *GROUPS}
    assert by_key.keys() - compared.keys() == {(ALL, name) for name in MEAN_SCORES}
    for key, d in compared.items():
        c = by_key[key]
        assert (c.difference, c.ci_low, c.ci_high, c.p) == (
            d.difference,
            d.ci_low,
            d.ci_high,
            d.p_holm,
        )
    for side, ran in (("start", start), ("tuned", tuned)):
        for row in rows(ran, resamples=FEW):
            if (row.group, row.metric) in by_key:
                c = by_key[row.group, row.metric]
                levels = [getattr(c, f"{side}{end}") for end in ("", "_low", "_high")]
                assert levels == [row.value, row.ci_low, row.ci_high]


def test_retrieval_and_classification_stand_beside_the_others():
    truth = owned(12)
    shop = Cases.build([gallery(truth, "shop")], source="test")
    good, bad = truth.astype(float), (~truth).astype(float)
    sides = [
        run_of(
            part(table(20), block(20, right), name="choice"),
            part(shop, scores.reshape(-1), name="retrieval"),
            model=name,
        )
        for name, right, scores in (("start", 5, good), ("tuned", 15, bad))
    ]
    changes = found(*sides)
    assert changes["choice", "original_accuracy"].verdict == "better"
    forgotten = changes["retrieval", "image_to_text_recall@1"]
    assert (forgotten.start, forgotten.tuned, forgotten.verdict) == (1.0, 0.0, "worse")
    assert not any(benchmark == "retrieval" and m in MEAN_SCORES for benchmark, m in changes)


# --- mean scores -------------------------------------------------------------------------------


def test_mean_score_differences_are_those_of_the_cells():
    rng = np.random.default_rng(5)
    cases = table(40)
    one, two = rng.normal(size=(40, 3)), rng.normal(size=(40, 3))
    changes = found(run(one.reshape(-1), "a", cases), run(two.reshape(-1), "b", cases))
    for column, name in enumerate(MEAN_SCORES):
        c = changes["bench", name]
        assert c.difference == pytest.approx((two - one)[:, column].mean(), abs=1e-6)
        assert c.difference == pytest.approx(c.tuned - c.start, abs=1e-6)
        assert c.ci_low <= c.difference <= c.ci_high
        assert c.n == 40 and c.chance is None


def test_mean_scores_are_averaged_as_the_protocol_averages():
    """The groups have unequal sizes: a mean of groups is not the mean of cases."""
    cases = table(60)
    shift = np.array([g == ["swap/att"] for g in cases.frame["groups"].to_list()])
    start = np.tile([0.5, 0.5, 0.4], (60, 1))
    tuned = start + shift[:, None]
    sides = [
        run_of(part(cases, scores.reshape(-1), "vl-checklist"), model=name)
        for name, scores in (("start", start), ("tuned", tuned))
    ]
    c = found(*sides)["bench", "mean_score_original"]
    assert c.difference == pytest.approx(c.tuned - c.start)
    assert c.difference != pytest.approx(shift.mean(), abs=1e-3)


def test_a_model_that_lowers_all_scores_is_flagged_though_it_ranks_better():
    start, tuned = run(block(80, 20), "base"), run(block(80, 60, level=0.3), "hn")
    done = outcome(start, tuned, resamples=FEW)
    [warning] = done.warnings
    assert warning.startswith("hn lowers the scores of true captions on bench: originals 0.5")
    assert "(-0.200 [-0.200, -0.200])" in warning
    assert "positives -0.200, negatives -0.300." in warning
    changes = {c.metric: c for c in done.changes if c.group == ALL}
    assert changes["augmented_accuracy"].verdict == "better"
    assert [changes[name].verdict for name in MEAN_SCORES] == ["lower"] * 3
    raised = outcome(tuned, start, resamples=FEW)
    assert raised.warnings == []
    assert {c.verdict for c in raised.changes if c.metric in MEAN_SCORES} == {"higher"}


def test_a_fall_within_its_interval_is_no_warning():
    rng = np.random.default_rng(1)
    start = block(40, 20)
    noise = rng.normal(scale=0.2, size=(40, 3))
    noise -= noise.mean(axis=0) + 0.001  # falls by a thousandth
    done = outcome(run(start, "a"), run(start + noise.reshape(-1), "b"), resamples=FEW)
    c = next(c for c in done.changes if c.metric == "mean_score_original")
    assert c.difference == pytest.approx(-0.001, abs=1e-6) and c.ci_high > 0
    assert (c.verdict, done.warnings) == ("no difference shown", [])


def test_negatives_that_fall_alone_are_what_training_is_for():
    start, tuned = block(40, 20).reshape(-1, 3), block(40, 20).reshape(-1, 3)
    tuned[:, 2] -= 0.3
    assert outcome(run(start.reshape(-1), "a"), run(tuned.reshape(-1), "b")).warnings == []


def test_two_by_two_cases_have_no_mean_scores():
    cases = Cases.build([square(i) for i in range(20)], source="test")
    right, wrong = np.tile([1.0, 0, 0, 1], 20), np.tile([0.0, 1, 1, 0], 20)
    changes = found(run(wrong, "a", cases), run(right, "b", cases))
    assert changes["bench", "group"].verdict == "better"
    assert not {metric for _, metric in changes} & set(MEAN_SCORES)


# --- what both scored --------------------------------------------------------------------------


def test_only_cases_of_both_count_in_whatever_order():
    scores = block(30, 10, level=0.5).reshape(-1, 3)
    tuned = block(30, 20, level=0.4).reshape(-1, 3)
    cases = [case(i) for i in range(30)]
    start = run(scores[:25].reshape(-1), "a", Cases.build(cases[:25], source="t"))
    order = list(range(29, 4, -1))
    other = run(tuned[order].reshape(-1), "b", Cases.build([cases[i] for i in order], source="t"))
    done = outcome(start, other, resamples=FEW)
    assert done.notes == ["bench: 10 cases were scored by one model only, 20 by both."]
    changes = {c.metric: c for c in done.changes if c.group == ALL}
    assert {c.n for c in changes.values()} == {20}
    assert changes["original_accuracy"].start == pytest.approx(5 / 20)
    assert changes["original_accuracy"].tuned == pytest.approx(15 / 20)
    for column, name in enumerate(MEAN_SCORES):
        gaps = (tuned - scores)[5:25, column]
        assert changes[name].difference == pytest.approx(gaps.mean(), abs=1e-6)


def test_what_cannot_be_compared_is_noted_and_the_rest_shown():
    here, there = (Cases.build([case(i) for i in which], source="t") for which in ((1, 2), (3, 4)))
    both = part(table(20), block(20, 5), name="both")
    start = run_of(both, part(here, block(2, 1), name="apart"), part(here, block(2, 1), name="one"))
    tuned = run_of(both, part(there, block(2, 1), name="apart"))
    done = outcome(start, tuned, resamples=FEW)
    assert {c.benchmark for c in done.changes} == {"both"}
    assert done.notes == [
        "one: only one of the models was evaluated on it.",
        "apart: 4 cases were scored by one model only, 0 by both.",
        "apart: no case was scored by both models, so it is not shown.",
    ]
    with raises("E-RUNS-DISJOINT", "model", "model"):
        outcome(run_of(start.parts["apart"]), run_of(tuned.parts["apart"]))


def test_runs_on_other_data_are_refused():
    cases = [case(i) for i in range(10)]
    other = Cases.build([case(i, group="swap/obj") for i in range(10)], source="t")
    changed = other.frame.with_columns(captions=other.frame["captions"].list.reverse())
    start = run(block(10, 5), "a", Cases.build(cases, source="t"))
    with raises("E-CASES-DIFFER", "bench", "case-0", 10):
        outcome(start, run(block(10, 5), "b", Cases(changed)))


# --- files, models and the terminal ------------------------------------------------------------


def test_models_are_evaluated_and_the_outcome_lies_beside_their_runs(tmp_path):
    names = ["world-swap:size=30", "world-bi:size=10"]
    start, tuned = Towers("towers 1"), Towers("towers 2")
    settings = {"store": tmp_path / "store", "batch_size": 16}
    done = evaluate_outcome(("a", start), ("b", tuned), names, tmp_path / "out", **settings)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [OUTCOME_FILE, "start", "tuned"]
    runs = [load_run(tmp_path / "out" / name) for name in ("start", "tuned")]
    assert [run.model for run in runs] == [done.start, done.tuned] == ["a", "b"]
    assert outcome(*runs) == done
    assert {c.benchmark for c in done.changes} == set(names)
    # Later in training, with the run of the start at hand: only the tuned model is asked.
    asked = len(start.captions)
    again = evaluate_outcome(runs[0], ("b", tuned), names, tmp_path / "later", **settings)
    assert again == done and len(start.captions) == asked
    assert sorted(p.name for p in (tmp_path / "later").iterdir()) == [OUTCOME_FILE, "tuned"]


def test_ids_are_models_too(tmp_path):
    done = evaluate_outcome(
        "random", "blind:length", ["world-replace:size=20"], tmp_path, store=tmp_path / "s"
    )
    assert (done.start, done.tuned) == ("random", "blind:length")
    assert json.loads((tmp_path / OUTCOME_FILE).read_text())["tuned"] == "blind:length"


def test_the_file_holds_everything_and_only_json(tmp_path):
    done = outcome(run(block(40, 10), "a"), run(block(40, 20, level=0.2), "b é"), resamples=FEW)
    first = done.changes[0]
    odd = Outcome(*[getattr(done, n) for n in ("start", "tuned")], [first], done.warnings, ["n"])
    write_outcome(odd, tmp_path / "deep" / OUTCOME_FILE)
    values = json.loads((tmp_path / "deep" / OUTCOME_FILE).read_text(encoding="utf-8"))
    assert (values["format"], values["start"], values["tuned"]) == (1, "a", "b é")
    assert values["warnings"] == done.warnings and values["notes"] == ["n"]
    [change] = values["changes"]
    assert change == {name: getattr(first, name) for name in MetricChange.__slots__}
    assert [p.name for p in (tmp_path / "deep").iterdir()] == [OUTCOME_FILE]


def test_the_table_shows_levels_difference_and_verdict(capsys):
    cases = table(80)
    start = run(block(80, 20), "world:base", cases, "swap [red]x[/red]")
    tuned = run(block(80, 60, level=0.3), "tuned", cases, "swap [red]x[/red]")
    done = outcome(start, tuned, resamples=FEW)
    print_outcome(done)
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[:2] == ["start = world:base", "tuned = tuned"]
    [row] = [line for line in lines if line.strip().startswith("augmented")]
    c = next(c for c in done.changes if (c.metric, c.group) == ("augmented_accuracy", ALL))
    assert f"25.0 [{100 * c.start_low:.1f}, {100 * c.start_high:.1f}]" in row  # is skewed
    assert f"75.0 ±{50 * (c.tuned_high - c.tuned_low):.1f}" in row
    assert f"+50.0 [{100 * c.ci_low:+.1f}, {100 * c.ci_high:+.1f}]" in row
    assert row.split()[-1] == "better"
    [scores] = [line for line in lines if "score, originals" in line]
    assert "-0.200 [-0.200, -0.200]" in scores and scores.split()[-1] == "lower"
    assert any("swap [red]x[/red] (80 cases)" in line for line in lines)
    assert f"warning: {done.warnings[0]}" in captured.out.replace("\n", " ") + " "
    assert "swap/obj" not in captured.out
    print_outcome(done, groups=True)
    assert "swap [red]x[/red]," in capsys.readouterr().out


def test_numbers_are_finite_or_missing():
    """A group of one case has an interval too."""
    done = outcome(run(block(12, 4), "a"), run(block(12, 8), "b"), resamples=FEW)
    for c in done.changes:
        assert all(math.isfinite(v) for v in (c.start, c.tuned, c.difference, c.ci_low, c.p))
