"""`counterpoint report`: runs as one self-contained page, or as a table for a paper."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from counterpoint.cli.console import (
    Called,
    ProtocolName,
    errors,
    output,
    progress_bars,
    refuse_missing_folder,
)

if TYPE_CHECKING:
    from counterpoint.reports import Provenance, ReportOptions
    from counterpoint.runs import Run


Format = Literal["html", "md", "latex", "csv"]
_ENDINGS: dict[str, Format] = {
    ".html": "html",
    ".htm": "html",
    ".md": "md",
    ".tex": "latex",
    ".csv": "csv",
}


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders of run folders.")],
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
    names = read_names(called or [])
    refuse_missing_folder(out)

    from counterpoint._util.writing import whole_file
    from counterpoint.metrics import get_protocol
    from counterpoint.reports import ReportOptions
    from counterpoint.runs import find_runs, load_run

    with progress_bars() as bars:
        folders = list(dict.fromkeys(f for path in runs for f in find_runs(path)))
        advance = bars.start("reading runs", len(folders))
        loaded = []
        for folder in folders:
            loaded.append(load_run(folder))
            advance(1)
        text = _text(
            chosen,
            loaded,
            ReportOptions(
                protocol=get_protocol(protocol) if protocol else None,
                title=title,
                all_metrics=all_metrics,
                examples=examples,
                called=names,
                made=made_now(),
                progress=bars,
            ),
        )
    if out is None:
        sys.stdout.write(text)
        return
    with whole_file(out) as partial:
        partial.write_text(text, encoding="utf-8")
    output.print(f"wrote {out} ({len(text.encode()) / 1e6:.1f} MB)", soft_wrap=True)
    if any(run.left_out for run in loaded) and chosen != "html":
        errors.print("Cases were left out of these runs; the html report names them.")


def made_now() -> Provenance:
    """By this command, at this moment."""
    from counterpoint._util.untrusted import recorded_command
    from counterpoint.reports import Provenance

    words = ("counterpoint", *recorded_command()[1:])
    return Provenance(words, datetime.now(UTC).isoformat(timespec="seconds"))


def _format_of(out: Path | None) -> Format:
    if out is None:
        return "html"
    if out.suffix.lower() not in _ENDINGS:
        raise typer.BadParameter(f"{', '.join(_ENDINGS)}; or say --format", param_hint="-o")
    return _ENDINGS[out.suffix.lower()]


def _text(chosen: Format, runs: list[Run], options: ReportOptions) -> str:
    from counterpoint.reports import as_csv, as_latex, as_markdown, report_page, report_tables

    if chosen == "html":
        return report_page(runs, options)
    write = {"md": as_markdown, "latex": as_latex, "csv": as_csv}[chosen]
    return write(report_tables(runs, options))


def read_names(called: list[str]) -> dict[str, str]:
    """`MODEL=PUBLISHED`; a model's id may hold an equals sign, a published name does not."""
    pairs = [name.rpartition("=") for name in called]
    if any(not model or not theirs for model, _, theirs in pairs):
        raise typer.BadParameter(
            "MODEL=PUBLISHED, as checkpoint:negclip.pt=NegCLIP", param_hint="--as"
        )
    return {model: theirs for model, _, theirs in pairs}
