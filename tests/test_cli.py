"""The command line: what it prints, where, and with which exit status."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import typer.main
from PIL import Image
from rich.console import Console

from counterpoint.benchmarks import BENCHMARKS
from counterpoint.cli import app, examples, main, tables
from counterpoint.cli.demo import BENCHMARKS as DEMO_BENCHMARKS
from counterpoint.cli.demo import MODELS as DEMO_MODELS
from counterpoint.cli.ls import Kind
from counterpoint.comparison import compare
from counterpoint.evaluation import evaluate
from counterpoint.models import EXAMPLES, FAMILIES, LoadOptions
from counterpoint.protocols import PROTOCOLS
from counterpoint.results import as_json, rows
from counterpoint.runs import Run, load_run
from counterpoint.wording import HEADINGS

VERBS = typer.main.get_command(app).commands
# `data` has commands of its own: `data ls` is one.
COMMANDS = {
    " ".join(path): command
    for name, verb in VERBS.items()
    for path, command in (
        [((name, below), c) for below, c in verb.commands.items()]
        if hasattr(verb, "commands")
        else [((name,), verb)]
    )
}
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
COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}


class Result(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., Result]


@pytest.fixture(autouse=True)
def own_place(tmp_path, monkeypatch):
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("COUNTERPOINT_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    # Models with images by id, without torch: `colours:ANYTHING`.
    monkeypatch.setitem(FAMILIES.builtin, "colours", f"{__name__}:load_colours")


@pytest.fixture
def counterpoint(monkeypatch, capsys) -> Command:
    """Runs a command line in this process."""

    def run(*arguments: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["counterpoint", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            main()
        captured = capsys.readouterr()
        return Result(int(caught.value.code or 0), captured.out, captured.err)

    return run


# --- a model and cases -------------------------------------------------------------------------


class Colours:
    """A dual encoder that knows three colours."""

    fingerprint = "colours of the command line 1"
    context_length = None

    def preprocess(self, image: Image.Image) -> np.ndarray:
        return np.asarray(image, dtype=np.float32).mean(axis=(0, 1)) / 255

    def encode_images(self, images: Sequence[np.ndarray]) -> np.ndarray:
        return np.stack(images)

    def count_tokens(self, captions: Sequence[str]) -> np.ndarray:
        return np.array([len(caption.split()) for caption in captions])

    def encode_captions(self, captions: Sequence[str]) -> np.ndarray:
        found = [[1.0 * (name in c) + 0.001 * len(c) for name in COLOURS] for c in captions]
        vectors = np.array(found, dtype=np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def describe(self) -> dict[str, list[str]]:
        return {"notes": ["knows [red] only :red_circle:"]}


def load_colours(rest: str, options: LoadOptions) -> Colours:
    del rest, options
    return Colours()


def write_cases(name: str, *, count: int = 60, missing: int = 0, before: str = "") -> str:
    """Cases of one image: the negative names another colour. Some images are not there."""
    names = list(COLOURS)
    lines = []
    for n in range(count):
        true, false = names[n % 3], names[(n + 1) % 3]
        image = f"{name}-{n}.png"
        if n >= missing:
            Image.new("RGB", (8, 8), COLOURS[true]).save(image)
        case = {
            "id": str(n),
            "images": [image],
            "captions": [f"{before}a {w} wall" for w in (true, f"bright {true}", false)],
            "truth": [[True, True, False]],
            "groups": [f"walls/{true}"],
        }
        lines.append(json.dumps(case))
    file = Path(f"{name}.jsonl")
    file.write_text("\n".join(lines))
    return str(file)


def run_folder(model: str, *benchmarks: str, out: str) -> Run:
    [run] = evaluate(model, benchmarks, out=out)
    return run


# --- the demo, once, as a user would -----------------------------------------------------------


class Demo(NamedTuple):
    place: Path
    result: Result


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> Demo:
    place = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        [sys.executable, "-m", "counterpoint", "demo", "--size", "40"],
        cwd=place,
        env={**os.environ, "COUNTERPOINT_CACHE": str(place / "cache"), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    return Demo(place, Result(done.returncode, done.stdout, done.stderr))


def test_the_demo_prints_every_main_number_with_interval_and_chance(demo):
    assert demo.result.code == 0
    out = demo.result.out
    for heading in ("original", "augmented", "brittleness", "I2T", "T2I", "group"):
        assert re.search(rf"[┃ ]{heading} ", out), heading
    for model in (*DEMO_MODELS, "chance"):
        assert out.count(f" {model} ") >= len(DEMO_BENCHMARKS)
    for run in DEMO_MODELS:
        loaded = load_run(demo.place / "runs" / "demo" / run.replace(":", "-"))
        for row in rows(loaded, groups=False):
            if row.metric in HEADINGS:
                half = (row.ci_high - row.ci_low) / 2
                assert f"{100 * row.value:.1f} ±{100 * half:.1f}" in out
    assert {"50.0", "33.3", "25.0", "16.7"} <= set(re.findall(r"\b\d+\.\d\b", out))
    assert "…" not in out


def test_the_demo_shows_three_cases_with_their_scores(demo):
    out = demo.result.out
    assert [word for word in ("right:", "brittle:", "wrong:") if f"│ {word}" in out] == [
        "right:",
        "brittle:",
        "wrong:",
    ]
    shown = re.findall(r"│ (-?\d\.\d{5})  (original|positive|negative)  (\S.*?) +│", out)
    assert len(shown) == 9
    run = load_run(demo.place / "runs" / "demo" / "world-base")
    part = run.parts["world-swap:size=40"]
    captions = part.cases.frame["captions"].explode().to_list()
    scores = dict(zip(captions, part.scores.tolist(), strict=True))
    by_kind = [{kind: float(s) for s, kind, _ in shown[i : i + 3]} for i in (0, 3, 6)]
    for score, _, caption in shown:
        assert float(score) == pytest.approx(scores[caption], abs=6e-5)
    right, brittle, wrong = by_kind
    assert right["negative"] < min(right["original"], right["positive"])
    assert brittle["positive"] <= brittle["negative"] <= brittle["original"]
    assert wrong["negative"] > max(wrong["original"], wrong["positive"])


def test_the_demo_says_where_it_was_saved_and_what_to_try_next(demo, counterpoint, monkeypatch):
    monkeypatch.chdir(demo.place)
    out = demo.result.out
    assert "Saved in runs/demo" in out
    assert len(list((demo.place / "runs" / "demo").glob("*/run.json"))) == len(DEMO_MODELS)
    tips = re.findall(r"^  counterpoint (.+)$", out.partition("Try next:")[2], re.MULTILINE)
    assert [tip.split()[0] for tip in tips] == ["compare", "report", "rescore", "eval", "ls"]
    for tip in tips:
        if not tip.startswith("eval"):  # the model again; `eval` is tested with cheaper ones
            assert counterpoint(*shlex.split(tip)).code == 0


# --- eval --------------------------------------------------------------------------------------


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


def test_eval_prints_a_table_and_where_the_run_is(counterpoint):
    done = counterpoint("eval", "-m", "colours:a", "-b", write_cases("walls"), "--out", "runs/x")
    assert done.code == 0
    assert re.search(r"walls\.jsonl │ colours:a │ +60 │ 100\.0 ±", done.out)
    assert "saved runs/x\n" in done.out
    assert "walls/red" not in done.out
    assert "note: knows [red] only :red_circle:\n" in done.err
    groups = counterpoint("eval", "-m", "random", "-b", "walls.jsonl", "--groups")
    assert all(f"walls/{colour}" in groups.out for colour in COLOURS)
    assert re.search(r"saved runs/random-\w{8}\n", groups.out)


def test_left_out_cases_give_status_3_unless_allowed(counterpoint):
    command = ("eval", "-m", "colours:a", "-b", write_cases("holes", missing=2), "--out", "runs/x")
    done = counterpoint(*command)
    assert done.code == 3
    assert "colours:a on holes.jsonl: 58 of 60 cases scored, 2 left out" in done.err
    assert "runs/x/run.json" in done.err
    assert "no such file" in done.err
    assert "--allow-missing" in done.err
    allowed = counterpoint(*command, "--allow-missing", "--json")
    assert allowed.code == 0
    assert {row["n"] for row in json.loads(allowed.out) if row["group"] == "all"} == {58}
    assert "58 of 60 cases scored, 2 left out" in allowed.err


def test_a_benchmark_without_any_image_is_reported_not_a_crash(counterpoint):
    file = write_cases("none", count=3, missing=3)
    done = counterpoint("eval", "-m", "colours:a", "-b", file, "--out", "runs/x")
    assert done.code == 3
    assert "0 of 3 cases scored, 3 left out" in done.err
    assert json.loads(counterpoint("eval", "-m", "colours:a", "-b", file, "--json").out) == []
    assert counterpoint("rescore", "runs/x").code == 0


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


def assert_one_line(done: Result, *says: str) -> None:
    assert done.code == 1
    assert done.out == ""
    lines = done.err.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    for text in says:
        assert text in lines[0]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-m", "randm", "-b", "world-bi"], "Did you mean 'random'?"),
        (["-m", "[red]x[/red]", "-b", "world-bi:size=4"], "'[red]x[/red]'"),
        (["-m", "random", "-b", "world-by"], "Did you mean 'world-bi'?"),
        (["-m", "random", "-b", "world-bi:sise=3"], "Did you mean 'size'?"),
        (["-m", "random", "-b", "world-bi", "--protocol", "stric"], "Did you mean 'strict'?"),
        (["-m", "random", "-b", "nowhere.jsonl"], "nowhere.jsonl: no such file"),
    ],
)
def test_what_is_not_there_is_one_line_on_stderr(counterpoint, arguments, says):
    assert_one_line(counterpoint("eval", *arguments), says)


def test_a_broken_line_of_a_case_file_is_named(counterpoint):
    file = Path(write_cases("walls", count=3))
    file.write_text(file.read_text() + "\n{broken\n")
    assert_one_line(counterpoint("eval", "-m", "random", "-b", str(file)), "line 4", "JSON")


@pytest.mark.parametrize("how", ["json", "scores", "gone"])
def test_a_damaged_run_is_one_line_on_stderr(counterpoint, how):
    folder = broken_run(how)
    assert_one_line(counterpoint("rescore", folder), "broken", "run the evaluation again")
    assert_one_line(counterpoint("compare", folder, folder), "broken")


def test_a_folder_without_runs_is_one_line_on_stderr(counterpoint):
    assert_one_line(counterpoint("rescore", "nowhere"), "nowhere: no run folder there")
    assert_one_line(counterpoint("rescore", "nowhere", "--protocol", "x"), "nowhere")


def test_an_unknown_protocol_for_a_run_is_one_line(counterpoint):
    run_folder("random", "world-bi:size=4", out="runs/a")
    done = counterpoint("rescore", "runs/a", "--protocol", "sugarcrep")
    assert_one_line(done, "Did you mean 'sugarcrepe'?")


def test_errors_of_the_installed_program_are_one_line_without_traceback(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "counterpoint", "rescore", "nowhere"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"error: nowhere: no run folder there .*\n", done.stderr)


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


def test_ls_without_a_kind_lists_everything(counterpoint):
    everything = json.loads(counterpoint("ls", "--json").out)
    each = [row for kind in Kind for row in json.loads(counterpoint("ls", kind, "--json").out)]
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
    assert_one_line(refused, "captions", "--protocol aro-order")


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
    assert found == as_json(compare(load_run("runs/a"), load_run("runs/b")))
    verdicts = {(row["group"], row["metric"]): row["verdict"] for row in found}
    assert verdicts["all", "original_accuracy"] == "A is better"
    assert "walls/red" in counterpoint("compare", "runs/a", "runs/b", "--groups").out


def test_compare_calls_equal_runs_tied(counterpoint):
    run_folder("random", "world-bi:size=60", out="runs/a")
    run_folder("random:5", "world-bi:size=60", out="runs/b")
    for other in ("runs/a", "runs/b"):
        done = counterpoint("compare", "runs/a", other)
        assert done.out.count(" tied ") == 3
        assert "is better" not in done.out


def test_compare_of_runs_with_nothing_in_common(counterpoint):
    run_folder("random", "world-bi:size=4", out="runs/a")
    run_folder("random", "world-swap:size=4", out="runs/b")
    done = counterpoint("compare", "runs/a", "runs/b")
    assert_one_line(done, "no benchmark in common", "world-bi:size=4 against world-swap:size=4")


# --- help --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_every_option_with_all_of_its_text(counterpoint, name):
    done = counterpoint(*name.split(), "--help")
    assert (done.code, done.err) == (0, "")
    assert counterpoint(*name.split(), "-h").out == done.out
    words = done.out.split()
    for parameter in COMMANDS[name].params:
        # Brackets in a help text would be taken for markup, and vanish.
        missing = [w for w in (getattr(parameter, "help", "") or "").split() if w not in words]
        assert missing == []


def test_help_names_every_command(counterpoint):
    done = counterpoint("--help")
    assert done.code == 0
    assert {"demo", "ls", "eval", "rescore", "compare"} < set(VERBS)
    assert {"data", "doctor", "import", "verify"} < set(VERBS)
    assert all(re.search(rf"│ {name} ", done.out) for name in VERBS)
    below = counterpoint("data", "--help")
    assert below.code == 0
    assert {"data ls", "data get", "data path"} <= set(COMMANDS)
    assert all(re.search(rf"│ {name} ", below.out) for name in VERBS["data"].commands)


def example_lines(name: str) -> list[list[str]]:
    """The command lines in a command's help, as a shell would give them to it."""
    text = COMMANDS[name].help or ""
    lines = re.findall(r"^\s*counterpoint (.+)$", text.partition("Example")[2], re.MULTILINE)
    return [shlex.split(line.partition(">")[0]) for line in lines]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_in_the_help_can_be_parsed(name):
    assert example_lines(name)
    words = name.split()
    for line in example_lines(name):
        assert line[: len(words)] == words
        # raises UsageError if it cannot
        COMMANDS[name].make_context(name, line[len(words) :])


@pytest.mark.parametrize("name", ["ls", "rescore", "compare"])
def test_the_cheap_examples_in_the_help_run(name, demo, counterpoint, monkeypatch):
    monkeypatch.chdir(demo.place)
    for line in example_lines(name):
        assert counterpoint(*line).code == 0


def test_the_cheap_example_of_eval_runs(counterpoint):
    [line] = [line for line in example_lines("eval") if "random" in line]
    done = counterpoint(*line)
    assert done.code == 0
    assert len({row["group"] for row in json.loads(done.out)}) > 10


# --- what is printed as it is ------------------------------------------------------------------

ODD = "[red]x[/red] :bow: "


def test_names_and_groups_with_markup_are_printed_as_they_are(counterpoint):
    file = write_cases("walls[b]:bow:")
    text = Path(file).read_text().replace("walls/red", "[red]g[/red]:cat:")
    Path(file).write_text(text)
    model = "colours:[i]:bow:[/i]"
    out = counterpoint("eval", "-m", model, "-b", file, "--out", "runs/a", "--groups").out
    for name in (model, file, "[red]g[/red]:cat:"):
        assert name in out
    out = counterpoint("rescore", "runs/a", "--averages").out
    assert f"{model} on {file}: averages" in out
    out = counterpoint("compare", "runs/a", "runs/a", "--groups").out
    assert f"A = {model}" in out and file in out and "[red]g[/red]:cat:" in out


@pytest.mark.parametrize("colour", [None, "truecolor"])
def test_captions_with_markup_are_printed_as_they_are(colour, monkeypatch):
    file = write_cases("walls", before=ODD)
    run = run_folder("random", file, out="runs/a")
    console = Console(
        **PLAIN, file=io.StringIO(), width=120, force_terminal=True, color_system=colour
    )
    monkeypatch.setattr(examples, "output", console)
    examples.print_examples(run, file)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", console.file.getvalue())
    assert (
        len(re.findall(rf"\d\.\d{{5}}  original  {re.escape(ODD)}a (red|green|blue)", shown)) == 3
    )
    assert shown.count(f"negative  {ODD}a ") == 3
    assert ("▀" in shown) == (colour == "truecolor")  # with colours, the picture too


# --- narrow terminals --------------------------------------------------------------------------

PLAIN = {"markup": False, "emoji": False, "highlight": False}


@pytest.fixture
def narrow(monkeypatch) -> io.StringIO:
    """What a terminal of 80 columns shows."""
    screen = io.StringIO()
    monkeypatch.setattr(tables, "output", Console(**PLAIN, file=screen, width=80))
    return screen


def assert_whole(screen: io.StringIO, numbers: list[str]) -> None:
    text = screen.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    assert [number for number in numbers if number not in text] == []
    assert not re.search(r"\d…|±…|\d\.…", text)


def cells(run: Run, *, groups: bool) -> list[str]:
    return [
        f"{100 * row.value:.1f} ±{100 * (row.ci_high - row.ci_low) / 2:.1f}"
        for row in rows(run, groups=groups)
        if row.metric in HEADINGS
    ]


@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize("model", ["random", "colours:ViT-B-32-quickgelu/openai"])
@pytest.mark.parametrize("name", ["world-replace:size=300", "world-bi:size=40,seed=123"])
def test_a_narrow_terminal_shows_whole_numbers(name, model, groups, narrow):
    run = run_folder(model, name, out="runs/a")
    tables.print_results([run], rows(run, groups=groups), groups=groups)
    assert_whole(narrow, cells(run, groups=groups))


def test_a_long_path_does_not_cost_the_numbers(counterpoint):
    """Case files are named by their path, and those are long."""
    folder = Path("the/place/where/the/case/files/of/this/project/are/kept/for/now")
    folder.mkdir(parents=True)
    file = str(Path(write_cases("walls")).rename(folder / "walls.jsonl"))
    done = counterpoint("eval", "-m", "blind:length", "-b", file, "--out", "runs/a")
    run = load_run("runs/a")
    assert [cell for cell in cells(run, groups=False) if cell not in done.out] == []


@pytest.mark.parametrize("groups", [False, True])
def test_a_narrow_terminal_shows_whole_differences(groups, narrow):
    name = "world-replace:size=300"
    a, b = (run_folder(model, name, out=f"runs/{model}") for model in ("random", "random:9"))
    found = compare(a, b)
    tables.print_differences(found, a.model, b.model, groups=groups)
    numbers = [
        f"{100 * d.difference:+.1f} [{100 * d.ci_low:+.1f}, {100 * d.ci_high:+.1f}]"
        for d in found
        if d.metric in HEADINGS and (groups or d.group == "all")
    ]
    verdicts = [d.verdict for d in found if d.group == "all"]
    assert_whole(narrow, numbers + verdicts)


def test_a_narrow_terminal_shows_whole_group_names(narrow):
    """A name squeezed into a column of one letter leaves the numbers whole and is unreadable."""
    a, b = (
        run_folder(m, "world-swap:size=60", out=f"runs/{m[-1]}") for m in ("random", "random:3")
    )
    tables.print_differences(compare(a, b, resamples=50), "a", "b", groups=True)
    for label in ("attributes/colour", "attributes/mixed", "relations/vertical"):
        assert f"world-swap:size=60, {label} (" in narrow.getvalue()
