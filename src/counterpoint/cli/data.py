"""`counterpoint data`: list and download the files of benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.filesize import decimal
from rich.table import Table

from counterpoint.cli.console import AsJson, errors, output, plainly, print_json, progress_bars

if TYPE_CHECKING:
    from counterpoint.data import DownloadReport, Presence, Source


_SHOWN = 5  # failures on the screen; the list has them all

Root = Annotated[
    Path | None,
    typer.Option("--data", help="Folder of the data sets.", envvar="COUNTERPOINT_DATA"),
]

app = typer.Typer(
    name="data",
    help="Download the files of benchmarks: `ls`, `get`, `path`.",
    no_args_is_help=True,
)


def ls(data: Root = None, as_json: AsJson = False) -> None:
    """List the data sources, and which of them are complete on this machine.

    Example:

    counterpoint data ls --json
    """
    from counterpoint.data import catalogue, data_root, presence

    root = data_root(data)
    users = _users()
    found = [(source, presence(source, root)) for source in catalogue().sources.values()]
    if as_json:
        print_json([_row(source, state, users[source.id]) for source, state in found])
        return
    table = Table(title=f"data in {root}", title_justify="left", header_style="bold")
    for name in ("source", "kind", "size", "SHA-256", "there", "what"):
        table.add_column(name, no_wrap=name == "source", overflow="fold")
    for source, state in found:
        size = decimal(source.size) if source.size else ""
        table.add_row(source.id, source.kind, size, source.sums(), _there(state), source.what)
    output.print(table)
    output.print(
        "SHA-256: whether what is fetched is compared with a sum in the catalogue. Of files "
        "without one, `get` prints it.",
        style="dim",
    )


def get(
    benchmark: Annotated[list[str], typer.Argument(help="Benchmark ids, as in `counterpoint ls`.")],
    data: Root = None,
    images: Annotated[
        bool, typer.Option("--images/--no-images", help="Download images, too.")
    ] = True,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Number of parallel downloads.")] = 8,
) -> None:
    """Download the files of benchmarks. The same command continues an interrupted download.

    Examples:

    counterpoint data get sugarcrepe

    counterpoint data get hard-positives/replace cola --no-images --data ~/datasets

    Exit status: 0 everything is there; 1 something could not be downloaded, or needs a manual step.
    """
    from counterpoint.benchmarks import BENCHMARKS, base_id
    from counterpoint.data import catalogue, data_root, get as get_data, needs

    root = data_root(data)
    wanted = []
    for id in dict.fromkeys(base_id(id) for id in benchmark):
        if id in BENCHMARKS.names() and id not in catalogue().benchmarks:
            output.print(f"{id}: needs no files.")
        else:
            needs(id)  # a wrong name is said before anything is fetched
            wanted.append(id)
    reports = []
    for id in wanted:
        with progress_bars() as bars:
            needed = _needed_images(id, root)
            report = get_data(id, root, needed, progress=bars, workers=workers, images=images)
        reports.append(report)
        _print_report(report)
    if not all(report.complete for report in reports):
        raise typer.Exit(1)


def path(
    benchmark: Annotated[
        str | None, typer.Argument(help="Benchmark id; the data root if left out.")
    ] = None,
    data: Root = None,
) -> None:
    """Print the folder of all data sets, or the folders of one benchmark.

    Examples:

    counterpoint data path

    counterpoint data path sugarcrepe
    """
    from counterpoint.benchmarks import base_id
    from counterpoint.data import data_root, needs

    root = data_root(data)
    folders = [root]
    if benchmark:
        folders = [root / source.target for source in needs(base_id(benchmark)).all()]
    for folder in dict.fromkeys(folders):
        output.print(str(folder), soft_wrap=True)


for verb in (ls, get, path):
    app.command(verb.__name__)(plainly(verb, resumes=verb is get))


def _users() -> dict[str, list[str]]:
    """The benchmarks that need a source, by its id."""
    from counterpoint.data import catalogue

    known = catalogue()
    users: dict[str, list[str]] = {id: [] for id in known.sources}
    for benchmark, found in known.benchmarks.items():
        for source in found.all():
            users[source.id].append(benchmark)
    return users


def _row(source: Source, state: Presence, users: list[str]) -> dict[str, object]:
    return {
        "source": source.id,
        "kind": source.kind,
        "what": source.what,
        "folder": source.target,
        "size": source.size,
        "sha256": source.sums(),
        "complete": state.complete,
        "files": state.files,
        "of": state.of,
        "benchmarks": users,
    }


def _there(state: Presence) -> str:
    if state.of is None:
        return f"{state.files:,} files" if state.files else "-"
    if state.complete:
        return "yes"
    return f"{state.files} of {state.of}" if state.files else "-"


def _needed_images(benchmark: str, root: Path) -> Callable[[], Iterator[str]]:
    """Asked for only once the annotations are there, since it reads them."""

    def needed() -> Iterator[str]:
        from counterpoint.benchmarks import load_benchmark
        from counterpoint.images import scheme_of

        images = load_benchmark(benchmark, root).cases.frame["images"]
        for reference in images.explode().struct.field("path").unique(maintain_order=True):
            if reference and (file := scheme_of(reference).image_path(reference)):
                yield file

    return needed


def _print_report(report: DownloadReport) -> None:
    if report.complete and not report.fetched:
        said = f"everything is there ({report.there:,} files)."
    else:
        said = f"{report.fetched:,} fetched, {report.there:,} were there"
        said += f", {len(report.failures):,} failed." if report.failures else "."
    output.print(f"{report.benchmark}: {said}", soft_wrap=True)
    for failure in report.failures[:_SHOWN]:
        errors.print(f"failed: {failure.reason}", style="red", soft_wrap=True)
    if len(report.failures) > _SHOWN:
        more = len(report.failures) - _SHOWN
        where = f", all in {report.listed}" if report.listed else ""
        errors.print(f"... and {more:,} more{where}", style="red", soft_wrap=True)
    for text in report.by_hand:
        errors.print(f"by hand: {text}", style="yellow", soft_wrap=True)
    for text in report.notes:
        errors.print(f"note: {text}", soft_wrap=True)
