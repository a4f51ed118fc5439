"""The sentences that open a report say what its numbers say."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from support import FEW, gallery, owned, part, random_scores, run_of, table
from test_report import scored
from test_wording import tied_run

from counterpoint.cases.table import Cases
from counterpoint.reports.data import gather
from counterpoint.reports.findings import findings
from counterpoint.reports.page import ReportOptions, report_page
from counterpoint.reports.ranking import RankedRow, numbers_of
from counterpoint.reports.table import cell_of
from counterpoint.runs import compare, rows

RESAMPLES = 50
CASES = table(60)


def found_of(*runs, differences=None):
    material = gather(runs)
    return findings(material, numbers_of(material, resamples=RESAMPLES), differences)


def values_of(run, metric):
    """Straight from the scores: the original, a positive and the negative of each case."""
    scores = run.parts["bench"].scores.reshape(-1, 3)
    above = scores[:, :2] > scores[:, 2:]
    return {
        "original": 100 * above[:, 0].mean(),
        "augmented": 100 * above.all(axis=1).mean(),
        "brittleness": 100 * (above.any(axis=1) & ~above.all(axis=1)).mean(),
    }[metric]


REACH = r"\u00a0(?:±\S+|\[\S+ \S+\])"  # behind a value
QUALITIES = st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=2, max_size=4)


@pytest.mark.slow
@settings(FEW, max_examples=8)
@given(QUALITIES, st.integers(0, 1000))
def test_the_opening_sentences_are_those_of_the_scores(qualities, seed):
    runs = {f"m{i}": scored(CASES, q, seed + i, f"m{i}") for i, q in enumerate(qualities)}
    best, brittle = found_of(*runs.values()).lead
    said = re.match(
        r"(?:No model is above chance on bench: the highest value is that of )?"
        rf"(m\d)(?: is best on bench:|,) (\S+)%{REACH} augmented accuracy, "
        r"(above|below|which cannot be told from) chance \(33\.3%\)(?:, as the highest .+?)?"
        r"(?:; the test cannot tell (.+) from it)?\.$",
        best,
    )
    assert said is not None, best
    assert ("is best" in best) == (said[3] == "above")
    augmented = {model: values_of(run, "augmented") for model, run in runs.items()}
    assert augmented[said[1]] == max(augmented.values())
    assert said[2] == f"{augmented[said[1]]:.1f}"
    [row] = [
        r
        for r in rows(runs[said[1]], groups=False, resamples=RESAMPLES)
        if r.metric == "augmented_accuracy"
    ]
    word = "above" if row.ci_low > 1 / 3 else "below" if row.ci_high < 1 / 3 else "which"
    assert said[3].startswith(word) or "as the highest of" in best
    material = gather(list(runs.values()))
    near = {
        n.model
        for n in numbers_of(material, resamples=RESAMPLES)
        if (n.group, n.metric, n.standing) == ("all", "augmented_accuracy", "not separated")
    }
    assert "is best" not in best or set(re.findall(r"m\d", said[4] or "")) == near
    _check_brittle(brittle, runs)


def _check_brittle(sentence, runs):
    said = re.match(
        rf"(m\d) is the most brittle(?: \(.+?\))?: (\S+)%{REACH}, with (\S+)%{REACH} of the "
        r"original captions right, .+? chance \(50\.0%\), and (\S+) points less when reworded "
        rf"captions must be right too; (m\d) is the least brittle: (\S+)%{REACH}\.$",
        sentence,
    )
    assert said is not None, sentence
    most, value, original, less, least, lowest = said.groups()
    brittle = {model: values_of(run, "brittleness") for model, run in runs.items()}
    assert brittle[most] == max(brittle.values()) and value == f"{brittle[most]:.1f}"
    assert brittle[least] == min(brittle.values()) and lowest == f"{brittle[least]:.1f}"
    first, both = (values_of(runs[most], metric) for metric in ("original", "augmented"))
    assert original == f"{first:.1f}"
    assert float(less) == pytest.approx(first - both, abs=0.051)  # rounded up or down


def test_several_benchmarks_are_summed_up_and_then_told_one_by_one():
    runs = []
    for seed, (model, quality) in enumerate((("good", 3.0), ("bad", 0.1), ("blind:bow", 9.0))):
        parts = [
            replace(scored(CASES, quality, 10 * seed + i, "").parts["bench"], benchmark=f"b{i}")
            for i in range(2)
        ]
        runs.append(run_of(*parts, model=model))
    found = found_of(*runs)
    assert found.lead[0] == "good is best on 2 of 2 benchmarks by augmented accuracy."
    assert re.match(
        r"bad is the most brittle: \S+%\s(?:±\S+|\[\S+ \S+\]) on b[01], with ", found.lead[1]
    )
    assert list(found.each) == ["b0", "b1"]
    assert found.each["b1"][0].startswith("good is best on b1: ")
    assert "blind:bow" not in str(found)  # it is not ranked


def renamed(run, name):
    return replace(run.parts["bench"], benchmark=name)


def test_the_headline_names_the_metric_of_each_benchmark():
    """Not "best on 2 of 2 by original and augmented" over a table with another best original."""
    plain = table(60, positives=1)
    runs = []
    for seed, (model, quality) in enumerate((("good", 3.0), ("bad", 0.1))):
        parts = [
            renamed(scored(CASES, quality, seed, ""), "b0"),
            renamed(scored(plain, quality, 10 + seed, ""), "b1"),
        ]
        runs.append(run_of(*parts, model=model))
    assert found_of(*runs).lead[0] == (
        "good is best on 2 of 2 benchmarks by augmented accuracy on b0 and original accuracy on b1."
    )


def test_no_model_is_best_that_is_not_above_chance():
    runs = [
        run_of(
            *(renamed(scored(CASES, 0.0, 100 + 10 * seed + i, ""), f"b{i}") for i in range(2)),
            renamed(scored(CASES, quality, 20 + seed, ""), "b2"),
            model=f"m{seed}",
        )
        for seed, quality in enumerate((3.0, 0.0, 0.0))
    ]
    found = found_of(*runs)
    assert found.lead[0] == (
        "m0 is best on 1 of 3 benchmarks by augmented accuracy; on 2 no model is above chance."
    )
    assert re.match(
        r"No model is above chance on b0: the highest value is that of m\d, ", found.each["b0"][0]
    )
    guesses = [replace(r, parts={b: r.parts[b] for b in ("b0", "b1")}) for r in runs]
    lead = found_of(*guesses).lead[0]
    assert lead == "No model is best on any of 2 benchmarks: none is above chance."


@pytest.mark.slow
def test_the_highest_of_many_random_models_is_not_above_chance():
    """Of 20 random models the best was above chance on more than a third of pages."""
    told = []
    for page in range(3):
        random = [scored(CASES, 0.0, 20 * page + seed, f"m{seed}") for seed in range(20)]
        told.append(found_of(*random).lead[0])
    assert sum("as the highest of 20 models" in lead for lead in told) >= 1
    assert sum("is best" in lead for lead in told) == 0


def test_a_model_alone_is_compared_with_chance():
    best, brittle = found_of(scored(CASES, 3.0, 1, "m")).lead
    assert best.startswith("m reaches ") and "above chance (33.3%)" in best
    assert brittle.startswith("The brittleness of m is ")
    one = scored(CASES, 3.0, 1, "m")
    two = replace(one.parts["bench"], benchmark="other")
    found = found_of(replace(one, parts={**one.parts, "other": two}))
    assert found.lead[0] == "m is above chance on 2 of 2 benchmarks."


def test_no_model_is_both_the_most_and_the_least_brittle():
    runs = [scored(CASES, 3.0, 1, model) for model in ("m1", "m2")]
    brittle = found_of(*runs).lead[1]
    assert brittle.startswith("The models are equally brittle: m1 ")


def test_what_depends_on_ties_is_not_compared_with_chance():
    [sentence] = found_of(tied_run(1.0, 1.0)).lead
    assert "0.0%" in sentence and "depends on how ties are counted (120 of 120)" in sentence
    assert "below chance" not in sentence and "brittle" not in sentence


def test_a_benchmark_without_positives_says_nothing_of_brittleness():
    cases = Cases.build([gallery(owned(8))], source="test")
    found = found_of(run_of(part(cases, random_scores(cases, 1), name="retrieval"), model="m"))
    [sentence] = found.lead
    assert "image-to-text R@1" in sentence


@pytest.mark.slow
@pytest.mark.parametrize("swapped", [False, True])
def test_two_runs_are_told_by_their_paired_difference(swapped):
    runs = [scored(CASES, 3.0, 1, "good"), scored(CASES, 0.1, 2, "bad")][:: -1 if swapped else 1]
    differences = compare(*runs, resamples=RESAMPLES)
    first, *_ = found_of(*runs, differences=differences).lead
    [d] = [d for d in differences if (d.group, d.metric) == ("all", "augmented_accuracy")]
    assert first.startswith("good is better than bad on bench: ")
    assert (
        f"{100 * d.difference:+.1f} points [{100 * d.ci_low:+.1f}, {100 * d.ci_high:+.1f}]" in first
    )
    assert first.endswith(" (bad first)." if swapped else "].")
    same = [runs[0], runs[0]]
    first, *_ = found_of(*same, differences=compare(*same, resamples=RESAMPLES)).lead
    assert re.match(r"The test cannot tell \S+ \(1\) from \S+ \(2\) on bench: ", first)


def test_a_margin_and_ties_are_told():
    run = scored(CASES, 3.0, 1, "good")
    first, *_ = found_of(run, run, differences=compare(run, run, margin=20)).lead
    assert first.startswith("good (1) and good (2) are tied on bench (within ±20 points): ")
    ties = tied_run(1.0, 1.0)
    plain = scored(ties.parts["bench"].cases, 3.0, 1, "plain")
    differences = compare(ties, plain, resamples=RESAMPLES)
    first, *_ = found_of(ties, plain, differences=differences).lead
    assert " against plain on bench depends on ties: " in first and "better" not in first


@pytest.mark.slow
def test_the_page_opens_with_them_and_explains_its_metrics():
    runs = [scored(CASES, 3.0, 1, "good"), scored(CASES, 0.1, 2, "bad")]
    page = report_page(runs, ReportOptions(resamples=RESAMPLES))
    opening = page[page.index("<h1>") : page.index("<nav")]
    assert "good is best on bench: " in opening and "bad is the most brittle" in opening
    means = page[page.index('id="meanings"') : page.index('id="table"')]
    assert re.findall(r"<dt>(.+?)</dt><dd>.+?</dd>", means) == [
        "original",
        "augmented",
        "brittleness",
    ]


def test_the_spread_over_seeds_stands_behind_the_interval() -> None:
    values = ("m", "aro/coco-order:seeds=3", "all", "original_accuracy", 0.5, 0.4, 0.6, 300, 0, 0.2)
    papers: Any = SimpleNamespace(main=lambda number: None)
    plain, drawn = (cell_of(RankedRow(*values, sd=sd), papers) for sd in (None, 0.015))
    assert (plain.reach, drawn.reach) == ("±10.0", "±10.0 sd 1.5")
