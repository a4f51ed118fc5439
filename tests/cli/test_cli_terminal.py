"""What a terminal shows: names as they are, and whole numbers however narrow it is."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from cli_support import counterpoint, own_place, run_folder, write_cases
from rich.console import Console

from counterpoint.cli import demo, tables
from counterpoint.metrics.presentation import METRIC_HEADINGS, interval_text
from counterpoint.runs import Run, compare, load_run, percent, rows

__all__ = ["counterpoint", "own_place"]  # fixtures

pytestmark = pytest.mark.slow
ODD = "[red]x[/red] :bow: "
PLAIN = {"markup": False, "emoji": False, "highlight": False}


# --- what is printed as it is ------------------------------------------------------------------


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
    monkeypatch.setattr(demo, "output", console)
    demo.print_examples(run, file)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", console.file.getvalue())
    assert (
        len(re.findall(rf"\d\.\d{{5}}  original  {re.escape(ODD)}a (red|green|blue)", shown)) == 3
    )
    assert shown.count(f"negative  {ODD}a ") == 3
    assert ("▀" in shown) == (colour == "truecolor")  # with colours, the picture too


# --- narrow terminals --------------------------------------------------------------------------


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
        f"{percent(row.value)} {interval_text(row.value, row.ci_low, row.ci_high, percent)}"
        for row in rows(run, groups=groups)
        if row.metric in METRIC_HEADINGS
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
        if d.metric in METRIC_HEADINGS and (groups or d.group == "all")
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
