"""`counterpoint compare`: paired tests of two runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from counterpoint.cli.console import (
    AsJson,
    Groups,
    ProtocolName,
    errors,
    print_json,
    progress_bars,
    refuse_missing_folder,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from counterpoint.metrics import Protocol
    from counterpoint.runs import Difference, Run


_PAGE = Path("compare.html")


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
        errors.print(line, style="yellow", soft_wrap=True)
    if html or open_page:
        _write_page((a, b), found, chosen, html or _PAGE, show=open_page)


def _incomplete(a: Run, b: Run) -> Iterator[str]:
    """Which runs are not of the whole benchmark, and why; which models were trained on it."""
    from counterpoint.benchmarks import why_incomplete

    for name in (name for name in a.parts if name in b.parts):
        for run in (a, b):
            part = run.parts[name]
            if why := why_incomplete(part, part.protocol, run.manifest.get("options", {})):
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
    from counterpoint.cli.report import made_now
    from counterpoint.reports import ReportOptions, compare_page

    with progress_bars() as bars:
        options = ReportOptions(protocol=protocol, made=made_now(), progress=bars)
        text = compare_page(*runs, options, found)
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8")
    errors.print(f"wrote {path}", soft_wrap=True)
    if show and not webbrowser.open(path.resolve().as_uri()):
        errors.print(f"no browser could be started here: open {path} yourself.", soft_wrap=True)
