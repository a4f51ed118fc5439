"""A number that depends on ties says so wherever it is read."""

from __future__ import annotations

import csv
import io
import re

import numpy as np
import pytest
from support import part, random_scores, run_of, table
from test_wording import tied_run

from counterpoint.cli import tables
from counterpoint.cli.tables import print_outcome
from counterpoint.evaluation.outcome import outcome
from counterpoint.reports import formats
from counterpoint.reports.page import ReportOptions, report_page, report_tables
from counterpoint.reports.table import sides
from counterpoint.runs import compare, rows

QUICK = ReportOptions(resamples=100)
pytestmark = pytest.mark.slow

MEANING = "depends on how ties are counted: counted in another way"


@pytest.fixture(scope="module")
def blind():
    """Its captions score the same."""
    return tied_run(1.0, 1.0, model="blind:same")


@pytest.fixture(scope="module")
def plain():
    cases = table(120)
    return run_of(part(cases, random_scores(cases, 1)), model="plain")


def test_in_the_terminal(blind, plain, capsys):
    tables.print_results(
        [blind, plain], [row for run in (blind, plain) for row in rows(run, resamples=100)]
    )
    out = " ".join(capsys.readouterr().out.split())
    assert len(re.findall(r"0\.0 \[0\.0, \d\.\d\]†", out)) == 3
    assert MEANING in out
    assert "Ties of blind:same: bench original, augmented and brittleness 120 of 120" in out
    tables.print_results([plain], rows(plain, resamples=100))
    out = capsys.readouterr().out
    assert "†" not in out and "Ties of" not in out


def test_in_a_comparison(blind, plain, capsys):
    found = compare(blind, plain, resamples=100, main=True)
    whole = {d.metric: d for d in found if d.group == "all"}
    assert {(d.ties_a, d.ties_b) for d in whole.values()} == {(120, 0)}
    tables.print_differences(found, "a", "b", groups=False)
    out = " ".join(capsys.readouterr().out.split())
    assert out.count("0.0†") == 3 and MEANING in out and out.count("depends on ties") == 3
    [side] = sides(found)
    large = [pair for pair in side.pairs if int(pair["n"]) > 10]
    assert {(pair["a"], pair["verdict"]) for pair in large} == {("0.0†", "depends on ties")}
    assert not any("†" in pair["b"] for pair in side.pairs)


def test_in_the_outcome_of_training(blind, plain, capsys):
    print_outcome(outcome(blind, plain, resamples=100))
    out = " ".join(capsys.readouterr().out.split())
    assert len(re.findall(r"0\.0 \[0\.0, \d\.\d\]†", out)) == 3 and MEANING in out


def test_in_tables_for_papers(blind, plain):
    made = report_tables([blind, plain], QUICK)
    markdown, latex = formats.as_markdown(made), formats.as_latex(made)
    counts = "Ties of blind:same: bench original, augmented and brittleness 120 of 120."
    assert markdown.count("†") == 4 and f"† {MEANING}" in markdown and counts in markdown
    assert latex.count(r"$^{\dagger}$") == 4 and f"% {counts}\n" in latex + "\n"
    assert "†" not in latex
    lines = list(csv.DictReader(io.StringIO(formats.as_csv(made))))
    assert {line["model"]: line["hangs_on_ties"] for line in lines} == {
        "blind:same": "yes",
        "plain": "no",
    }
    clean = report_tables([plain], QUICK)
    assert "†" not in formats.as_markdown(clean) and "dagger" not in formats.as_latex(clean)


def test_in_the_page(blind, plain):
    page = report_page([blind, plain], QUICK)
    table = page[page.index('id="table"') : page.index('id="figures"')]
    assert table.count('<span class="ties">†</span>') >= 3
    assert f"† {MEANING}" in table and "120 of 120" in table
    figures = page[page.index('id="figures"') : page.index('id="examples"')]
    assert (
        "blind:same †" in figures and "† has values that depend on how ties are counted." in figures
    )
    assert "plain †" not in page


def test_a_few_ties_are_counted_and_not_marked(capsys):
    cases = table(120)
    scores = np.random.default_rng(1).normal(size=(120, 3))
    scores[0, 0] = scores[0, 2]
    run = run_of(part(cases, scores.reshape(-1)), model="m")
    tables.print_results([run], rows(run, resamples=100))
    out = capsys.readouterr().out
    assert "†" not in out and "Ties of m: bench original" in out and "1 of 120" in out
