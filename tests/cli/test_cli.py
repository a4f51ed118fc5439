"""The command line: what it prints, where, and with which exit status."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli_support import COLOURS, Result, counterpoint, own_place, run_folder, write_cases

from counterpoint.benchmarks.registry import BENCHMARKS
from counterpoint.cli.ls import Listing
from counterpoint.metrics.protocols import PROTOCOLS
from counterpoint.models.registry import EXAMPLES
from counterpoint.runs import as_json, compare, load_run, rows

__all__ = ["counterpoint", "own_place"]  # fixtures
KEYS = [
    "model",
    "benchmark",
    "group",
    "metric",
    "value",
    "ci_low",
    "ci_high",
    "n",
    "ties",
    "chance",
]


# --- eval --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_json_is_one_array_of_rows_and_nothing_else(counterpoint):
    file = write_cases("walls")
    done = counterpoint(
        *("eval", "-m", "colours:a", "-m", "random"),
        *("-b", file, "-b", "world-bi:size=20", "--json", "--out", "runs/x"),
    )
    assert done.code == 0
    found = json.loads(done.out)
    assert done.out.startswith("[") and done.out.endswith("]\n")
    assert all(list(row) == KEYS for row in found)
    assert {(row["model"], row["benchmark"]) for row in found if row["group"] == "all"} == {
        (model, name) for model in ("colours:a", "random") for name in (file, "world-bi:size=20")
    }
    assert {row["group"] for row in found if row["benchmark"] == file} == {
        "all",
        "walls",
        "walls/red",
        "walls/green",
        "walls/blue",
    }
    [row] = [r for r in found if r["model"] == "colours:a" and r["metric"] == "original_accuracy"][
        :1
    ]
    assert (row["value"], row["n"], row["ties"], row["chance"]) == (1.0, 60, 0, 0.5)
    assert any(row["chance"] is None for row in found)  # mean scores have none


@pytest.mark.slow
def test_eval_prints_a_table_and_where_the_run_is(counterpoint):
    done = counterpoint("eval", "-m", "colours:a", "-b", write_cases("walls"), "--out", "runs/x")
    assert done.code == 0
    assert re.search(r"walls\.jsonl │ colours:a │ +60 │ 100\.0 \[94\.0, 100\.0\]", done.out)
    assert "saved runs/x\n" in done.out
    assert "walls/red" not in done.out
    assert "note: knows [red] only :red_circle:\n" in done.err
    groups = counterpoint("eval", "-m", "random", "-b", "walls.jsonl", "--groups")
    assert all(f"walls/{colour}" in groups.out for colour in COLOURS)
    assert re.search(r"saved runs/random-\w{8}\n", groups.out)


@pytest.mark.slow
def test_left_out_cases_give_status_3_unless_allowed(counterpoint):
    command = ("eval", "-m", "colours:a", "-b", write_cases("holes", missing=2), "--out", "runs/x")
    done = counterpoint(*command)
    assert done.code == 3
    assert "colours:a on holes.jsonl, 2 of 60 cases were left out" in done.err
    assert "runs/x/run.json" in done.err
    assert "no such file" in done.err
    assert "--allow-missing" in done.err
    allowed = counterpoint(*command, "--allow-missing", "--json")
    assert allowed.code == 0
    assert {row["n"] for row in json.loads(allowed.out) if row["group"] == "all"} == {58}
    assert "2 of 60 cases were left out" in allowed.err


@pytest.mark.slow
def test_a_benchmark_without_any_image_is_an_error(counterpoint):
    file = write_cases("none", count=3, missing=3)
    done = counterpoint("eval", "-m", "colours:a", "-b", file, "--out", "runs/x")
    assert done.code == 1 and "E-RUN-EMPTY" in done.err and "none-0.png" in done.err
    assert not Path("runs/x").exists()


# --- errors ------------------------------------------------------------------------------------


def broken_run(how: str) -> str:
    folder = Path("runs/broken")
    run_folder("random", "world-bi:size=4", out=str(folder))
    if how == "json":
        (folder / "run.json").write_text("{ not json")
    elif how == "scores":
        (folder / "scores.parquet").write_bytes(b"PAR1 not really")
    else:
        (folder / "cases.parquet").unlink()
    return str(folder)


def assert_one_line(done: Result, code: str, *says: str) -> None:
    assert done.code == 1
    assert done.out == ""
    lines = done.err.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ") and lines[0].endswith(f" [{code}]"), lines[0]
    for text in says:
        assert text in lines[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "benchmark", "code", "says"),
    [
        ("randm", "world-bi", "E-MODEL-UNKNOWN", "Did you mean 'random'?"),
        ("[red]x[/red]", "world-bi:size=4", "E-MODEL-UNKNOWN", "'[red]x[/red]'"),
        ("random", "world-by", "E-BENCHMARK-UNKNOWN", "Did you mean 'world-bi'?"),
        ("random", "world-bi:sise=3", "E-OPTION-UNKNOWN", "Did you mean 'size'?"),
        ("random", "nowhere.jsonl", "E-FILE-MISSING", "nowhere.jsonl"),
    ],
)
def test_what_is_not_there_is_one_line_on_stderr(counterpoint, model, benchmark, code, says):
    assert_one_line(counterpoint("eval", "-m", model, "-b", benchmark), code, says)


@pytest.mark.slow
def test_an_unknown_protocol_is_one_line_on_stderr(counterpoint):
    done = counterpoint("eval", "-m", "random", "-b", "world-bi", "--protocol", "stric")
    assert_one_line(done, "E-PROTOCOL-UNKNOWN", "Did you mean 'strict'?")


def test_a_broken_line_of_a_case_file_is_named(counterpoint):
    file = Path(write_cases("walls", count=3))
    file.write_text(file.read_text() + "\n{broken\n")
    done = counterpoint("eval", "-m", "random", "-b", str(file))
    assert_one_line(done, "E-JSON-INVALID", "line 4")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["json", "scores", "gone"])
def test_a_damaged_run_is_one_line_on_stderr(counterpoint, how):
    folder = broken_run(how)
    assert_one_line(counterpoint("rescore", folder), "E-RUN-DAMAGED", "broken")
    assert_one_line(counterpoint("compare", folder, folder), "E-RUN-DAMAGED", "broken")


def test_a_folder_without_runs_is_one_line_on_stderr(counterpoint):
    assert_one_line(counterpoint("rescore", "nowhere"), "E-RUN-MISSING", "nowhere")
    assert_one_line(
        counterpoint("rescore", "nowhere", "--protocol", "x"), "E-RUN-MISSING", "nowhere"
    )


def test_an_unknown_protocol_for_a_run_is_one_line(counterpoint):
    run_folder("random", "world-bi:size=4", out="runs/a")
    done = counterpoint("rescore", "runs/a", "--protocol", "sugarcrep")
    assert_one_line(done, "E-PROTOCOL-UNKNOWN", "Did you mean 'sugarcrepe'?")


@pytest.mark.slow
def test_errors_of_the_installed_program_are_one_line_without_traceback(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "counterpoint", "rescore", "nowhere"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"error: nowhere: .* \[E-RUN-MISSING\]\n", done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["eval", "-m", "random"],
        ["eval", "-b", "world-bi"],
        ["eval", "-m", "random", "-b", "world-bi", "--limit", "0"],
        ["eval", "-m", "random", "-b", "world-bi", "--device", "tpu"],
        ["demo", "--size", "0"],
        ["ls", "everything"],
        ["sing"],
    ],
)
def test_wrong_usage_is_status_2(counterpoint, arguments):
    done = counterpoint(*arguments)
    assert done.code == 2
    assert done.out == ""
    assert "Traceback" not in done.err


def test_an_interrupted_run_says_that_it_can_go_on(counterpoint, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("counterpoint.evaluation.evaluate", interrupt)
    done = counterpoint("eval", "-m", "random", "-b", "world-bi:size=4")
    assert done.code == 130
    assert "the same command goes on from there" in done.err


# --- ls ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("benchmarks", [*BENCHMARKS.names(), "FILE.jsonl"]),
        ("models", list(EXAMPLES)),
        ("protocols", list(PROTOCOLS)),
    ],
)
def test_ls_names_everything_there_is(counterpoint, kind, names):
    shown = counterpoint("ls", kind)
    assert shown.code == 0
    assert all(re.search(rf"│ {re.escape(name)} +│", shown.out) for name in names)
    listed = json.loads(counterpoint("ls", kind, "--json").out)
    assert {row["kind"] for row in listed} == {kind}
    assert [row["id"] for row in listed if not row["id"].startswith("colours")] == names


@pytest.mark.slow
def test_ls_without_a_kind_lists_everything(counterpoint):
    everything = json.loads(counterpoint("ls", "--json").out)
    each = [row for kind in Listing for row in json.loads(counterpoint("ls", kind, "--json").out)]
    assert everything == each
    shown = counterpoint("ls").out
    for title, name in (
        ("benchmarks", "world-bi"),
        ("models", "blind:bow"),
        ("protocols", "crepe"),
    ):
        assert re.search(rf"^{title} *$", shown, re.MULTILINE)
        assert f"│ {name} " in shown


# --- rescore -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_rescore_gives_what_eval_gave(counterpoint):
    file = write_cases("walls")
    command = ("eval", "-m", "random", "-m", "blind:bow", "-b", file, "-b", "world-bi:size=40")
    first = counterpoint(*command, "--out", "runs/x", "--json")
    again = counterpoint("rescore", "runs/x/random", "runs/x/blind-bow", "--json")
    assert again.code == 0
    assert again.out == first.out
    whole = json.loads(counterpoint("rescore", "runs/x", "--json").out)
    assert sorted(map(repr, whole)) == sorted(map(repr, json.loads(first.out)))
    shown = counterpoint(*command, "--out", "runs/x").out.split("saved")[0]
    tables_again = counterpoint("rescore", "runs/x/random", "runs/x/blind-bow").out
    assert tables_again == shown


@pytest.mark.slow
def test_rescore_under_another_protocol(counterpoint):
    run = run_folder("random", "world-replace:size=50", out="runs/x")

    def accuracy(*more: str) -> float:
        found = json.loads(counterpoint("rescore", "runs/x", "--json", *more).out)
        return next(r["value"] for r in found if r["metric"] == "original_accuracy")

    values = {(row.group, row.metric): row.value for row in rows(run)}
    groups = [values[g, "original_accuracy"] for g, m in values if "/" in g and m == "tied"]
    assert accuracy() == values["all", "original_accuracy"]
    assert accuracy("--protocol", "vg-relation") == pytest.approx(np.mean(groups)) != accuracy()
    # The scores were made from other captions than this protocol's.
    refused = counterpoint("rescore", "runs/x", "--protocol", "aro-order")
    assert_one_line(refused, "E-PROTOCOL-MISFIT", "--protocol aro-order")


@pytest.mark.slow
def test_rescore_shows_groups_and_averages(counterpoint):
    run_folder("random", "world-replace:size=200", out="runs/x")
    done = counterpoint("rescore", "runs/x", "--averages", "--groups", "--protocol", "sugarcrepe")
    assert "attributes/colour" in done.out
    for average in ("micro (the protocol's)", "macro", "types", "types-macro"):
        assert re.search(rf"│ {re.escape(average)} +│ +\d+\.\d │", done.out), average
    assert "attributes/colour" not in counterpoint("rescore", "runs/x").out
    assert "averages" not in counterpoint("rescore", "runs/x").out


def test_the_protocol_that_was_used_is_named(counterpoint):
    run_folder("random", "world-swap:size=20", out="runs/a")
    done = counterpoint("rescore", "runs/a", "--protocol", "half")
    assert "Protocol half: ties half" in done.out and "hard-positives" not in done.out


# --- compare -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_compare_finds_the_better_model(counterpoint):
    file = write_cases("walls")
    run_folder("colours:a", file, out="runs/a")
    run_folder("random", file, out="runs/b")
    done = counterpoint("compare", "runs/a", "runs/b")
    assert done.code == 0
    assert "A = colours:a\nB = random\n" in done.out
    assert re.search(r"original +100\.0 +\d\d\.\d +\+\d\d\.\d \[.*A is better", done.out)
    assert "B is better" in counterpoint("compare", "runs/b", "runs/a").out
    found = json.loads(counterpoint("compare", "runs/a", "runs/b", "--json").out)
    exact = as_json(compare(load_run("runs/a"), load_run("runs/b")))
    assert found == [
        {k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in row.items()}
        for row in exact
    ]
    verdicts = {(row["group"], row["metric"]): row["verdict"] for row in found}
    assert verdicts["all", "original_accuracy"] == "A is better"
    assert "walls/red" in counterpoint("compare", "runs/a", "runs/b", "--groups").out


@pytest.mark.slow
def test_compare_shows_no_difference_of_equal_runs(counterpoint):
    run_folder("random", "world-bi:size=60", out="runs/a")
    run_folder("random:5", "world-bi:size=60", out="runs/b")
    for other in ("runs/a", "runs/b"):
        done = counterpoint("compare", "runs/a", other)
        assert done.out.count("no difference shown") == 3
        assert "is better" not in done.out and " tied" not in done.out


def test_runs_are_tied_within_a_margin_only(counterpoint):
    """20 cases said "-5.0 [-45.0, +35.0] tied"."""
    run_folder("random", "world-bi:size=60", out="runs/a")
    for margin, verdicts in (("1", 0), ("10", 3)):
        done = counterpoint("compare", "runs/a", "runs/a", "--margin", margin)
        assert len(re.findall(r"1\.000 +tied", done.out)) == verdicts
        assert f"tied: the whole interval lies within ±{margin} points." in done.out
    found = load_run("runs/a").compare("runs/a", margin=10)
    assert {d.margin for d in found} == {10}
    assert {d.verdict for d in found if d.group == "all"} == {"tied"}
    wrong = counterpoint("compare", "runs/a", "runs/a", "--margin", "0")
    assert_one_line(wrong, "E-OPTION-INVALID", "a margin of 0 points")


def test_compare_of_runs_with_nothing_in_common(counterpoint):
    run_folder("random", "world-bi:size=4", out="runs/a")
    run_folder("random", "world-swap:size=4", out="runs/b")
    done = counterpoint("compare", "runs/a", "runs/b")
    assert_one_line(done, "E-RUNS-DISJOINT", "world-bi:size=4 against world-swap:size=4")


@pytest.mark.slow
def test_models_stay_in_the_order_given(counterpoint):
    models = ["random:7", "blind:length", "random:3"]
    asked = [word for model in models for word in ("-m", model)]
    done = counterpoint("eval", *asked, "-b", "world-swap:size=12", "--out", "runs", "--json")
    for text in (done.out, counterpoint("rescore", "runs", "--json").out):
        assert list(dict.fromkeys(row["model"] for row in json.loads(text))) == models
    shown = counterpoint("rescore", "runs").out
    places = [shown.index(f" {model} ") for model in models]
    assert places == sorted(places)


def test_numbers_in_json_have_six_significant_digits(counterpoint):
    run_folder("random", "world-swap:size=7", out="runs/a")
    found = json.loads(counterpoint("rescore", "runs/a", "--json").out)
    fractions = [value for row in found for value in row.values() if isinstance(value, float)]
    assert fractions and all(value == float(f"{value:.6g}") for value in fractions)
    assert any(value == 0.333333 for value in fractions)
