"""The report's numbers are those of `results` and `comparison`; its tables hold any text."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from errors import raises
from support import case, gallery, mixed, owned, part, random_run, random_scores, run_of, table

from counterpoint.benchmarks import completeness
from counterpoint.benchmarks.benchmark import Size
from counterpoint.cases.table import Absent, Cases
from counterpoint.metrics.registry import METRICS
from counterpoint.reports import formats
from counterpoint.reports.data import gather
from counterpoint.reports.page import ReportOptions, report_page, report_tables
from counterpoint.reports.provenance import notices
from counterpoint.reports.ranking import beside_papers, numbers_of
from counterpoint.runs import compare, rows

FEW = 300  # resamples
HOSTILE = "<script>alert('x')</script> & $a_1$ | 100% \\ ~^{}#\n\x00\u202e"


def scored(cases: Cases, quality: float, seed: int, model: str, **about):
    """A model that puts true captions above false ones the more often, the higher its quality."""
    noise = np.random.default_rng(seed).normal(size=int(cases.pair_offsets[-1]))
    mine = part(cases, (noise + quality * cases.truth_flat()).astype(np.float32))
    return run_of(replace(mine, **about), model=model)


@pytest.fixture(scope="module")
def models():
    cases = table(200)
    return [
        scored(cases, 3.0, 1, "good"),
        scored(cases, 2.9, 2, "as good"),
        scored(cases, 0.1, 3, "bad"),
        scored(cases, 9.0, 4, "human"),
        scored(cases, 9.0, 5, "blind:length"),
    ]


@pytest.mark.slow
def test_numbers_are_those_of_results(models):
    found = numbers_of(gather(models), every=True, resamples=FEW)
    ours = {(n.model, n.group, n.metric): n for n in found}
    theirs = [row for run in models for row in rows(run, resamples=FEW)]
    assert len(ours) == len(theirs)
    for row in theirs:
        number = ours[row.model, row.group, row.metric]
        assert (number.value, number.n, number.ties) == (row.value, row.n, row.ties)
        assert number.chance == pytest.approx(row.chance)
        # Resampled together, means differ in the last bits of single precision.
        assert (number.ci_low, number.ci_high) == pytest.approx((row.ci_low, row.ci_high), abs=1e-6)


def test_galleries_and_mixed_shapes_have_the_same_numbers_too():
    for cases in (mixed(), Cases.build([gallery(owned(7))], source="test")):
        runs = [random_run(cases, seed, model=f"m{seed}") for seed in (1, 2)]
        found = numbers_of(gather(runs), every=True, resamples=FEW)
        ours = {(n.model, n.group, n.metric): n.value for n in found}
        for row in (row for run in runs for row in rows(run, resamples=FEW)):
            assert ours[row.model, row.group, row.metric] == row.value


@pytest.mark.slow
def test_ties_are_those_of_the_paired_test(models):
    found = numbers_of(gather(models), resamples=FEW)
    rivals = ("good", "as good", "bad")
    runs = {run.model: run for run in models if run.model in rivals}
    gaps = {
        (a, b, gap.metric, gap.group): gap
        for a, b in permutations(rivals, 2)
        for gap in compare(runs[a], runs[b], resamples=FEW)
    }
    for metric in ("original_accuracy", "augmented_accuracy", "brittleness"):
        for group in dict.fromkeys(n.group for n in found):
            mine = {n.model: n for n in found if (n.metric, n.group) == (metric, group)}
            [best] = [n for n in mine.values() if n.standing == "best"]
            sign = 1 if METRICS[metric].better == "higher" else -1
            assert sign * best.value == max(sign * mine[model].value for model in rivals)
            for other in rivals:
                if other == best.model:
                    continue
                gap = gaps[best.model, other, metric, group]
                near = mine[other].standing == "not separated"  # of three, and not of two
                assert near == (mine[other].p >= 0.05) and near >= (gap.p_holm >= 0.2)
            # People and baselines stand beside the models, however good they are.
            assert mine["human"].standing == mine["blind:length"].standing == ""


def test_two_models_are_tested_as_by_compare(models):
    good, bad = models[0], models[2]
    gaps = {(d.group, d.metric): d for d in compare(good, bad, resamples=FEW)}
    found = [n for n in numbers_of(gather([good, bad]), resamples=FEW) if n.p is not None]
    assert {n.group for n in found} == {group for group, _ in gaps}
    assert all(n.p == gaps[n.group, n.metric].p_holm for n in found)


def test_a_number_that_depends_on_ties_has_no_standing(models):
    good, bad = models[0], models[2]
    [mine] = bad.parts.values()
    ties = replace(bad, parts={"bench": replace(mine, scores=np.zeros_like(mine.scores))})
    found = numbers_of(gather([good, ties]), resamples=FEW)
    assert {n.standing for n in found if n.metric == "original_accuracy"} == {""}
    verdicts = {d.verdict for d in compare(good, ties, resamples=FEW) if d.group == "all"}
    assert "depends on ties" in verdicts


def test_runs_with_other_cases_are_tested_on_what_they_share(models):
    good, bad = models[0], models[2]
    [mine] = bad.parts.values()
    half = replace(mine, cases=Cases(mine.cases.frame[:120]), scores=mine.scores[: 120 * 3])
    shorter = replace(bad, parts={"bench": half})
    found = numbers_of(gather([good, shorter]), resamples=FEW)
    [number] = [
        n for n in found if (n.model, n.group, n.metric) == ("bad", "all", "augmented_accuracy")
    ]
    [gap] = [
        g
        for g in compare(good, shorter, resamples=FEW)
        if (g.group, g.metric) == ("all", "augmented_accuracy")
    ]
    assert (number.n, gap.n) == (120, 120)
    assert number.p == gap.p_holm


def test_runs_that_cannot_be_compared_are_not_ranked_against_each_other(models):
    good, bad = models[0], models[2]
    [mine] = bad.parts.values()
    half = replace(mine, protocol=part(mine.cases, mine.scores, "half").protocol)
    material = gather([good, replace(bad, parts={"bench": half})])
    standings = {n.standing for n in numbers_of(material, resamples=FEW) if n.model == "bad"}
    assert standings == {"untested"}
    assert any("different protocols" in notice.text for notice in notices(material))


@pytest.mark.slow
def test_baselines_stand_last(models):
    blind, *others = models[::-1]
    assert blind.model == "blind:length"
    found = report_tables([blind, *others], ReportOptions(resamples=10)).numbers
    order = list(dict.fromkeys(number.model for number in found))
    assert order == [*(run.model for run in others), blind.model]


def test_one_run_has_no_best(models):
    assert {n.standing for n in numbers_of(gather(models[:1]), resamples=FEW)} == {""}


def test_runs_of_one_model_are_told_apart(models):
    labels = gather([models[0], models[0], models[1]]).labels
    assert labels == ["good (1)", "good (2)", "as good"]


def test_a_report_of_nothing_is_refused(models):
    with raises("E-RUN-MISSING"):
        gather([])
    [mine] = models[0].parts.values()
    nothing = replace(mine, cases=Cases(mine.cases.frame[:0]), scores=mine.scores[:0])
    with raises("E-RUN-EMPTY"):
        gather([replace(models[0], parts={"bench": nothing})])


# --- papers ------------------------------------------------------------------------------------


def published_run(model: str):
    cases = table(100, positives=1)
    return run_of(part(cases, random_scores(cases, 1), "sugarcrepe", "sugarcrepe"), model=model)


@pytest.mark.slow
def test_published_and_human_values_stand_beside_ours(monkeypatch):
    monkeypatch.setattr(completeness, "published_files", lambda id, protocol: {"": Size(100)})
    tables = report_tables([published_run("ours")], ReportOptions(called={"ours": "NegCLIP"}))
    beside = [b for several in tables.papers.values.values() for b in several]
    assert {b.model for b in beside} == {"NegCLIP"} and len(beside) > 3
    lines = {line.name: line for line in tables.whole[0].lines}
    assert lines["human (published)"].cells[0].value == "98.9"  # BiVLC's Table 2: 98.93
    whole = [b for b in beside if (b.group, b.average, b.metric) == ("all", "micro", _ORIGINAL)]
    assert whole and lines["ours"].cells[0].published == f"{100 * whole[0].published:.1f}"
    row = next(r for r in rows(published_run("ours")) if (r.group, r.metric) == ("all", _ORIGINAL))
    inside = row.ci_low <= whole[0].published <= row.ci_high
    assert whole[0].verdict == ("within the interval" if inside else "differs")


@pytest.mark.slow
def test_a_part_of_a_benchmark_stands_beside_no_published_value():
    """A hundred of SugarCrepe's 7,511 cases."""
    tables = report_tables([published_run("ours")], ReportOptions(called={"ours": "NegCLIP"}))
    beside = [b for several in tables.papers.values.values() for b in several]
    assert {b.verdict for b in beside} == {"cannot be compared"}
    [ours] = [line for line in tables.whole[0].lines if line.name == "ours"]
    assert not any(cell.published for cell in ours.cells)


_ORIGINAL = "original_accuracy"


def test_a_model_without_published_values_has_none_and_an_unknown_name_is_refused():
    material = gather([published_run("ours")])
    found = numbers_of(material, resamples=FEW)
    assert beside_papers(material, found).values == {}
    with raises("E-MODEL-UNKNOWN", "NegKLIP"):
        beside_papers(material, found, {"ours": "NegKLIP"})


# --- formats -----------------------------------------------------------------------------------


GOLDEN = r"""% \usepackage[T1]{fontenc} \usepackage{booktabs}
\begin{table}
\centering
\begin{tabular}{lrrr}
\toprule
 & \multicolumn{3}{c}{a\_b \& c$^{a}$} \\
\cmidrule(lr){2-4}
Model & original & augmented & brittleness $\downarrow$ \\
\midrule
right & \textbf{100.0} {\scriptsize [69.2, 100.0]} & \textbf{100.0} {\scriptsize [69.2, 100.0]} & \textbf{0.0} {\scriptsize [0.0, 30.8]} \\
100\% \{wrong\} & 0.0 {\scriptsize [0.0, 30.8]} & 0.0 {\scriptsize [0.0, 30.8]} & \underline{0.0} {\scriptsize [0.0, 30.8]} \\
\midrule
chance & 50.0 & 33.3 & 33.3 \\
\bottomrule
\end{tabular}
\caption{Per cent, $\pm$ half of the 95\% interval, or both ends where its halves differ by more than a tenth (bootstrap over source images). Brittleness: lower is better. The best of a column is \textbf{bold}; what the test, which holds over all models of the column, cannot tell from it is \underline{underlined}. Published values are in brackets. ${}^{a}$ strict: ties wrong, micro average, raw captions, overlong captions left out.}
\end{table}
"""  # noqa: E501  # Clopper-Pearson of 10 clusters: 1 - 0.025 ** (1 / 10) = 30.8


def test_latex():
    cases = table(20)
    scores = cases.truth_flat().astype(np.float32)
    runs = [
        run_of(part(cases, scores, name="a_b & c"), model="right"),
        run_of(part(cases, -scores, name="a_b & c"), model="100% {wrong}"),
    ]
    assert formats.as_latex(report_tables(runs)) == GOLDEN


def test_any_name_is_text_in_markdown_and_latex(models):
    cases = table(40)
    runs = [random_run(cases, 1, model=HOSTILE), random_run(cases, 2, model="plain")]
    tables = report_tables(runs, ReportOptions(resamples=FEW))
    markdown, latex = formats.as_markdown(tables), formats.as_latex(tables)
    assert "<script>" not in markdown and "&lt;script&gt;" in markdown
    widths = {line.count(" | ") for line in markdown.splitlines() if line.startswith("|")}
    assert len(widths) == 1  # the bar in the name makes no column
    assert r"\textless{}script\textgreater{}" in latex
    assert r"\$a\_1\$ \textbar{} 100\% \textbackslash{} \textasciitilde{}" in latex
    assert "\x00" not in latex + markdown and "\u202e" not in latex + markdown


def test_benchmarks_share_a_sheet_while_they_fit():
    cases = table(40)
    parts = [part(cases, random_scores(cases, i), name=f"bench {i}") for i in range(4)]
    tables = report_tables([run_of(*parts)], ReportOptions(resamples=FEW))
    assert [len(sheet.columns) for sheet in tables.whole] == [6, 6]


def test_cases_without_positives_have_columns_of_their_own():
    made = [case(i, positives=2 if i < 24 else 1) for i in range(40)]
    cases = Cases.build(made, source="test")
    scores = np.zeros(int(cases.pair_offsets[-1]), dtype=np.float32)
    scores[72:] = np.tile([1, 0], 16)  # right without positives, tied with them
    run = run_of(part(cases, scores))
    tables = report_tables([run], ReportOptions(resamples=FEW))
    [sheet] = tables.whole
    assert [(head.title, head.cases) for head in sheet.heads] == [
        ("bench", "24"),
        ("bench, without positives", "16"),
    ]
    [line, chance] = sheet.lines
    assert [cell.value for cell in line.cells] == ["0.0", "0.0", "0.0", "100.0"]
    assert [cell.ties for cell in line.cells] == [True, True, True, False]
    assert [cell.value for cell in chance.cells] == ["50.0", "33.3", "33.3", "50.0"]
    assert not any(
        head.group == "without positives" for s in tables.groups["bench"] for head in s.heads
    )


# --- notices -----------------------------------------------------------------------------------


def test_what_is_missing_is_said_once_for_all_that_miss_it():
    lost = (("7", "image images/7.jpg: no such file."), ("9", "caption too long: 99 tokens."))
    runs = [scored(table(40), 1, i, f"m{i}", left_out=lost, cut_captions=3) for i in (1, 2)]
    first, second = notices(gather(runs))
    assert first.text.startswith("all runs: bench, 2 of 42 cases were left out")
    assert "image missing: 1, caption too long: 1" in first.text
    assert first.cases == lost
    assert "3 captions were longer" in second.text


def test_runs_on_different_benchmarks_and_data_say_so():
    one, two = table(40), Cases.build([case(i) for i in range(30)], source="test")
    runs = [
        scored(one, 1, 1, "a", data_hash="1"),
        scored(two, 1, 2, "b", data_hash="2"),
        run_of(part(one, random_scores(one, 3), name="other"), model="c"),
    ]
    said = [notice.text for notice in notices(gather(runs))]
    assert any("asked for different cases" in text for text in said)
    assert "c was not evaluated on bench." in said and "a was not evaluated on other." in said


def test_a_report_tells_what_the_data_lacked():
    [mine] = published_run("a").parts.values()
    absent = (Absent("swap_obj", "file missing", 245), Absent("add_att", "rows missing", 3))
    [notice] = notices(gather([run_of(replace(mine, absent=absent), model="a")]))
    assert "file missing: 245 cases; rows missing: 3 cases" in notice.text
    assert notice.cases == (("swap_obj", "file missing"), ("add_att", "rows missing"))


# --- parts of a benchmark ----------------------------------------------------------------------


def test_a_part_never_passes_as_the_whole():
    """As SugarCrepe with 731 of its 7,511 photographs beside a baseline, which needs none."""
    cases = table(40)
    whole = random_run(cases, 1, model="whole")
    few = np.arange(40) < 12
    some = part(cases.keep(few), random_scores(cases.keep(few), 2))
    lost = tuple((f"case-{n}", "no such file") for n in range(12, 40))
    runs = [whole, run_of(replace(some, left_out=lost), model="some")]
    made = report_tables(runs, ReportOptions(resamples=FEW))
    [sheet] = made.whole
    cells = {line.name: {cell.apart for cell in line.cells if cell.value} for line in sheet.lines}
    assert cells == {"whole": {False}, "some": {True}, "chance": {False}}
    markdown, latex = formats.as_markdown(made), formats.as_latex(made)
    assert "(12 to 40‡)" in markdown and "(12 to 40$^{\\ddagger}$)" in latex
    for text in (markdown, latex):
        assert "bench: 12 of 40 (some)" in text and "not over the whole benchmark" in text
    assert all("‡" in cell for cell in markdown.splitlines()[3].split(" | ")[1:])
    assert markdown.splitlines()[2].count("‡") == 0  # the run of all cases
    lines = list(csv.DictReader(io.StringIO(formats.as_csv(made))))
    assert {(line["model"], line["part"]) for line in lines} == {
        ("whole", ""),
        ("some", "12 of 40"),
    }
    page = report_page(runs, ReportOptions(resamples=FEW, examples=0))
    assert "12 to 40‡" in page and "all (12 to 40‡)" in page and "some ‡" in page


def test_runs_that_are_all_the_same_part_say_how_much_of_the_whole():
    cases = table(12)
    runs = [
        run_of(replace(part(cases, random_scores(cases, i)), whole=40), model=f"m{i}")
        for i in range(2)
    ]
    made = report_tables(runs, ReportOptions(resamples=FEW))
    assert [head.cases for head in made.whole[0].heads] == ["12 of 40"]
    assert "12 of 40‡" in formats.as_markdown(made)


def test_rows_over_other_cases_or_under_another_protocol_are_marked():
    cases, others = table(40), table(41)
    runs = [random_run(cases, i, model=f"m{i}") for i in range(2)]
    runs += [
        random_run(others, 3, model="others"),
        run_of(part(cases, random_scores(cases, 4), "half"), model="ties"),
    ]
    text = formats.as_markdown(report_tables(runs, ReportOptions(resamples=FEW)))
    assert "bench: 41 other cases (others); bench: protocol half (ties)" in text
    alike = formats.as_markdown(report_tables(runs[:2], ReportOptions(resamples=FEW)))
    assert "‡" not in alike and "not over the whole" not in alike


def test_lower_is_better_stands_under_tables_that_have_it():
    cases = Cases.build([gallery(owned(7))], source="test")
    plain = report_tables([random_run(cases, 1)], ReportOptions(resamples=FEW))
    brittle = report_tables([random_run(table(40), 1)], ReportOptions(resamples=FEW))
    for made, said in ((plain, False), (brittle, True)):
        for text in (formats.as_markdown(made), formats.as_latex(made)):
            assert ("lower is better" in text) == said
