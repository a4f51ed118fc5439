"""Runs as pages, tables and files: `counterpoint compare`, `report`, `publish` and `board`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from counterpoint.cli.console import (
    AsJson,
    Called,
    Groups,
    ProtocolName,
    counted,
    errors,
    print_json,
    progress_bars,
    refuse_missing_folder,
    remark,
    say,
    warn,
)

if TYPE_CHECKING:
    from counterpoint.evaluation import Submission
    from counterpoint.metrics import Protocol
    from counterpoint.reports import Provenance
    from counterpoint.runs import Difference, Run

RunFolders = Annotated[list[Path], typer.Argument(help="Run folders, or folders of run folders.")]


def made_now() -> Provenance:
    """By this command, at this moment."""
    from counterpoint._util.untrusted import recorded_command
    from counterpoint.reports import Provenance

    words = ("counterpoint", *recorded_command()[1:])
    return Provenance(words, datetime.now(UTC).isoformat(timespec="seconds"))


def _pairs(given: Sequence[str] | None, option: str, form: str) -> dict[str, str]:
    """`KEY=VALUE`; the id of a model or benchmark may hold an equals sign, the value does not."""
    pairs = [text.rpartition("=") for text in given or []]
    if any(not key or not value for key, _, value in pairs):
        raise typer.BadParameter(form, param_hint=option)
    return {key: value for key, _, value in pairs}


def _published_names(called: Sequence[str] | None) -> dict[str, str]:
    return _pairs(called, "--as", "MODEL=PUBLISHED, as checkpoint:negclip.pt=NegCLIP")


# --- compare ------------------------------------------------------------------------------------


_PAGE: Final = Path("compare.html")


def compare(
    run_a: Annotated[Path, typer.Argument(help="Run folder A.")],
    run_b: Annotated[Path, typer.Argument(help="Run folder B.")],
    protocol: ProtocolName = None,
    groups: Groups = False,
    margin: Annotated[
        float | None,
        typer.Option(
            help="A difference that does not matter, in points of per cent. Two runs are tied "
            "where the whole interval lies within it; without it they never are."
        ),
    ] = None,
    as_json: AsJson = False,
    html: Annotated[
        Path | None, typer.Option(help="Write the comparison as an HTML page to this file.")
    ] = None,
    open_page: Annotated[
        bool, typer.Option("--open", help=f"Open that page in the browser. Default file: {_PAGE}.")
    ] = False,
) -> None:
    """Compare two runs case by case: randomisation test over source images, Holm over the groups.

    The verdict comes from that test, corrected over the groups of a benchmark. McNemar's exact
    test, which takes cases as independent and is not corrected, stands beside it.

    Examples:

    counterpoint compare runs/demo/world-base runs/demo/random

    counterpoint compare runs/demo/world-hp-hn runs/demo/world-counterpoint --html two.html

    counterpoint compare runs/demo/world-hp-hn runs/demo/world-counterpoint --margin 2
    """
    from counterpoint.cli.tables import print_differences
    from counterpoint.metrics import get_protocol
    from counterpoint.runs import as_json as rows_as_json, compare as compare_runs, load_run

    refuse_missing_folder(html)
    with errors.status("resampling"):
        a, b = load_run(run_a), load_run(run_b)
        chosen = get_protocol(protocol) if protocol else None
        found = compare_runs(a, b, chosen, main=not (as_json or html or open_page), margin=margin)
    if as_json:
        print_json(rows_as_json(found))
    else:
        print_differences(found, a.model, b.model, groups=groups)
    for line in _incomplete(a, b):
        warn(line)
    if html or open_page:
        _write_page((a, b), found, chosen, html or _PAGE, show=open_page)


def _incomplete(a: Run, b: Run) -> Iterator[str]:
    """Which runs are not of the whole benchmark, and why; which models were trained on it."""
    from counterpoint.runs import part_size

    for name in (name for name in a.parts if name in b.parts):
        for run in (a, b):
            part, options = run.parts[name], run.manifest.get("options", {})
            if part_size(part, options):
                from counterpoint.benchmarks import why_incomplete

                why = why_incomplete(part, part.protocol, options) or "a part of the benchmark"
                yield f"{run.model} on {name}: {why}; compared are the cases that both runs scored."
            if part.trained_on:
                yield f"{run.model} on {name}: {part.trained_on}."


def _write_page(
    runs: tuple[Run, Run],
    found: Sequence[Difference],
    protocol: Protocol | None,
    path: Path,
    *,
    show: bool,
) -> None:
    import webbrowser

    from counterpoint._util.writing import whole_file
    from counterpoint.reports import ReportOptions, compare_page

    with progress_bars() as bars:
        options = ReportOptions(protocol=protocol, made=made_now(), progress=bars)
        text = compare_page(*runs, options, found)
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8")
    remark(f"wrote {path}")
    if show and not webbrowser.open(path.resolve().as_uri()):
        remark(f"no browser could be started here: open {path} yourself.")


# --- report -------------------------------------------------------------------------------------


Format = Literal["html", "md", "latex", "csv"]
_ENDINGS: Final[dict[str, Format]] = {
    ".html": "html",
    ".htm": "html",
    ".md": "md",
    ".tex": "latex",
    ".csv": "csv",
}


def report(
    runs: RunFolders,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="The file to write. Without it, a table is printed."),
    ] = None,
    format: Annotated[
        Format | None,
        typer.Option(
            "--format", help="Default: by the ending of the file, .html, .md, .tex or .csv."
        ),
    ] = None,
    protocol: ProtocolName = None,
    title: Annotated[str, typer.Option(help="Title of the page.")] = "",
    all_metrics: Annotated[
        bool, typer.Option("--all-metrics", help="Show every metric, not only the main ones.")
    ] = False,
    examples: Annotated[
        int, typer.Option(min=0, help="Number of examples per kind and group.")
    ] = 2,
    called: Called = None,
) -> None:
    """Write a report of runs as one self-contained page: table, figures, examples.

    The page opens from disk, without server or network. Other formats have only the table.

    Examples:

    counterpoint report runs/demo -o report.html

    counterpoint report runs/clip runs/negclip --as checkpoint:negclip.pt=NegCLIP -o table.tex
    """
    chosen = format or _format_of(out)
    if chosen == "html" and out is None:
        raise typer.BadParameter("a file for the page, as report.html", param_hint="-o")
    names = _published_names(called)
    refuse_missing_folder(out)

    from counterpoint._util.writing import whole_file
    from counterpoint.api import load_runs
    from counterpoint.metrics import get_protocol
    from counterpoint.reports import ReportOptions, report_text

    with progress_bars() as bars:
        loaded = load_runs(runs, progress=bars)
        options = ReportOptions(
            protocol=get_protocol(protocol) if protocol else None,
            title=title,
            all_metrics=all_metrics,
            examples=examples,
            called=names,
            made=made_now(),
            progress=bars,
        )
        ending = next(ending for ending, known in _ENDINGS.items() if known == chosen)
        text = report_text(loaded, ending, options)
    if out is None:
        sys.stdout.write(text)
        return
    with whole_file(out) as partial:
        partial.write_text(text, encoding="utf-8")
    say(f"wrote {out} ({len(text.encode()) / 1e6:.1f} MB)")
    if any(run.left_out for run in loaded) and chosen != "html":
        errors.print("Cases were left out of these runs; the html report names them.")


def _format_of(out: Path | None) -> Format:
    if out is None:
        return "html"
    if out.suffix.lower() not in _ENDINGS:
        raise typer.BadParameter(f"{', '.join(_ENDINGS)}; or say --format", param_hint="-o")
    return _ENDINGS[out.suffix.lower()]


# --- publish ------------------------------------------------------------------------------------


Relationship = Literal["first_party", "third_party", "collaborative", "other"]


def publish(
    runs: RunFolders,
    out: Annotated[Path, typer.Option("-o", "--out", help="The folder to write.")],
    called: Annotated[
        list[str] | None,
        typer.Option(
            "--as", help="MODEL=OWNER/NAME: the id of a run's model on the Hub; repeat for several."
        ),
    ] = None,
    datasets: Annotated[
        list[str] | None,
        typer.Option(
            "--dataset",
            help="BENCHMARK=OWNER/NAME: the data set of a benchmark on the Hub, for .eval_results, "
            "with one task per metric; OWNER/NAME:TASK for the main metric as this task.",
        ),
    ] = None,
    organization: Annotated[str, typer.Option(help="Who evaluated.")] = "unknown",
    relationship: Annotated[
        Relationship, typer.Option(help="What the evaluator is to the model's developer.")
    ] = "other",
    source: Annotated[str, typer.Option(help="Address at which the run folder can be found.")] = "",
    groups: Groups = False,
    protocol: ProtocolName = None,
    wandb: Annotated[bool, typer.Option("--wandb", help="Write a W&B table, too.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace other published runs at --out.")
    ] = False,
) -> None:
    """Write runs as other programs read them: files to upload. Nothing is uploaded.

    For a model's repository on the Hugging Face Hub: .eval_results and a section of the model card.
    For Every Eval Ever: aggregate results with intervals, and one line per sample and metric.

    Examples:

    counterpoint publish runs/demo -o published

    counterpoint publish runs/demo/world-base -o published --as world:base=me/base --wandb
    """
    from counterpoint.api import load_runs
    from counterpoint.metrics import get_protocol
    from counterpoint.reports.publishing import PublishOptions, publish as write

    named = _pairs(called, "--as", "MODEL=OWNER/NAME")
    on_hub = _pairs(datasets, "--dataset", "BENCHMARK=OWNER/NAME")
    with progress_bars() as bars:
        options = PublishOptions(
            protocol=get_protocol(protocol) if protocol else None,
            groups=groups,
            called=named,
            datasets=on_hub,
            organization=organization,
            relationship=relationship,
            source=source,
            wandb=wandb,
            overwrite=overwrite,
            progress=bars,
        )
        parts = write(load_runs(runs, progress=bars), out, options)
    models = counted(len({part.model for part in parts}), "model")
    benchmarks = counted(len({part.part.benchmark for part in parts}), "benchmark")
    say(f"wrote {out}: {models} on {benchmarks}; nothing was uploaded")
    apart = list(dict.fromkeys(part.part.benchmark for part in parts if part.hub is None))
    if apart:
        remark(
            f"no .eval_results for {', '.join(apart)}: no data set of the Hub is known; name it "
            f"with --dataset {apart[0]}=OWNER/NAME"
        )
    for note in dict.fromkeys(note for part in parts for note in part.notes):
        warn(note)


# --- board --------------------------------------------------------------------------------------


_CHECK: Final = Path("check")
_SHOWN: Final = 20  # differences of a submission on the screen; --json has them all


def board(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Run folders, or folders of run folders; after the word check, submissions.",
            metavar="[check] RUNS",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Folder of the site.")] = None,
    title: Annotated[str, typer.Option(help="Title of the board.")] = "Compositionality board",
    called: Called = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", help="For check: folder of the data sets, to compare the cases with."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a site of many runs, with published values beside them; or check submissions to it.

    The site opens from disk. Models are compared only over the same cases, the best is marked only
    where a test over all models tells it from every other, and every number links to a copy of its
    run. Without runs, it has the published values.

    `board check` computes every number of a submission again: a run folder with results.json, as
    in site/runs or by `counterpoint rescore RUN --json > RUN/results.json`. With --data, its cases
    are compared with those of the benchmark, too. Exit status: 0 all is as it says; 1 refused.

    Examples:

    counterpoint board runs/demo -o site

    counterpoint board -o site

    counterpoint board check site/runs
    """
    given = runs or []
    if given[:1] == [_CHECK]:
        _check(given[1:], data, as_json)
        return
    if out is None:
        raise typer.BadParameter("a folder for the site, as -o site", param_hint="-o")

    from counterpoint.api import load_runs
    from counterpoint.reports.board import BoardOptions, make_board

    names = _published_names(called)
    with progress_bars() as bars:
        options = BoardOptions(title=title, called=names, made=made_now(), progress=bars)
        made = make_board(load_runs(given, progress=bars), out, options)
    values = counted(len(made.every_value), "published value")
    models = counted(len(made.material.runs), "model")
    say(
        f"wrote {out}: {models}, {counted(len(made.benchmarks), 'benchmark')}, {values}; "
        f"open {out / 'index.html'}"
    )


def _check(paths: list[Path], data: Path | None, as_json: bool) -> None:
    from counterpoint.evaluation import check_submission, find_submissions

    if not paths:
        raise typer.BadParameter("folders to check, as: board check results", param_hint="RUNS")
    folders = dict.fromkeys(folder for path in paths for folder in find_submissions(path))
    with progress_bars() as bars:
        advance = bars.start("computing again", len(folders))
        found = []
        for folder in folders:
            found.append(check_submission(folder, data=data))
            advance(1)
    if as_json:
        print_json([{**asdict(one), "folder": str(one.folder)} for one in found])
    else:
        for one in found:
            _print(one, compared=data is not None)
    if any(one.differences for one in found):
        raise typer.Exit(1)


def _print(one: Submission, *, compared: bool) -> None:
    for line in one.differences[:_SHOWN]:
        remark(line, "red")
    if (more := len(one.differences) - _SHOWN) > 0:
        errors.print(f"{one.folder}: and {counted(more, 'more difference')}")
    for line in one.notes:
        warn(line)
    said = f"{counted(one.numbers, 'number')} computed again, all the same"
    said += "" if compared else "; the cases are as sent (--data compares them)"
    if one.differences:
        said = f"refused, {counted(len(one.differences), 'difference')}"
    say(f"{one.folder}: {said}")
