"""The files of benchmarks: `counterpoint data`, and `doctor` for their health."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.filesize import decimal

from counterpoint._util.errors import DataError
from counterpoint.cli.console import (
    LEFT_OUT,
    AsJson,
    DataFolder,
    counted,
    errors,
    output,
    plainly,
    print_json,
    progress_bars,
    remark,
    say,
    warn,
)

if TYPE_CHECKING:
    from counterpoint.data import DownloadReport, Presence, Source
    from counterpoint.evaluation import Health
    from counterpoint.runs import Sheet

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
    from counterpoint.runs import Sheet

    root = data_root(data)
    users = _users()
    found = [(source, presence(source, root)) for source in catalogue().sources.values()]
    if as_json:
        print_json([_row(source, state, users[source.id]) for source, state in found])
        return
    names = dict.fromkeys(("kind", "size", "SHA-256", "there", "what"), "name")
    sheet = Sheet({"source": "id", **names}, f"data in {root}")
    for source, state in found:
        size = decimal(source.size) if source.size else ""
        sheet.add(source.id, source.kind, size, source.sums(), _there(state), source.what)
    output.print(sheet)
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
        say(str(folder))


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
    say(f"{report.benchmark}: {said}")
    for failure in report.failures[:_SHOWN]:
        remark(f"failed: {failure.reason}", "red")
    if len(report.failures) > _SHOWN:
        more = len(report.failures) - _SHOWN
        where = f", all in {report.listed}" if report.listed else ""
        remark(f"... and {more:,} more{where}", "red")
    for text in report.by_hand:
        warn(f"by hand: {text}")
    for text in report.notes:
        remark(f"note: {text}")


# --- doctor -----------------------------------------------------------------------------------


def doctor(
    benchmark: Annotated[str, typer.Argument(help="Benchmark id or case file.")],
    data: DataFolder = None,
    images: Annotated[
        bool,
        typer.Option(
            "--images/--no-images", help="Decode every image, or only check that it exists."
        ),
    ] = True,
    list_file: Annotated[
        Path | None,
        typer.Option(
            "--list", help="Write the list of missing and unreadable images to this file."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a benchmark: missing or broken files, and what the captions alone give away.

    Works without any image. The exit status is 3 if the data are not those of the published
    benchmark (cases, captions or files are missing, or too many), or an image is missing.

    Examples:

    counterpoint doctor sugarcrepe --data my-data

    counterpoint doctor hard-positives/replace --no-images --json > health.json
    """
    from dataclasses import asdict

    from counterpoint.evaluation import examine

    with progress_bars() as bars:
        health = examine(benchmark, data, images=images, progress=bars)
    bad = {**health.images.missing, **health.images.unreadable}
    if as_json:
        print_json([{**asdict(health), "absent": [one._asdict() for one in health.absent]}])
    else:
        _print_health(health)
    if bad and list_file is not None:
        _write_list(bad, list_file)
        remark(f"{len(bad):,} images are listed in {list_file}")
    elif bad:
        errors.print(f"{counted(len(bad), 'image')} missing or unreadable; --list FILE names them.")
    if bad or health.absent:
        raise typer.Exit(LEFT_OUT)


def _write_list(bad: dict[str, str], path: Path) -> None:
    from counterpoint._util.writing import whole_file

    if not path.absolute().parent.is_dir():
        raise DataError("E-FOLDER-MISSING", f"{path}: there is no such folder; make it first.")
    with whole_file(path) as draft:
        lines = "".join(f"{image}\t{why}\n" for image, why in bad.items())
        draft.write_text(lines, encoding="utf-8")


def _print_health(health: Health) -> None:
    from counterpoint.benchmarks import describe_absent

    expected = "" if health.expected is None else f" of {health.expected:,} published"
    images = health.images
    lines = [
        f"{health.benchmark} in {health.folder}",
        f"  cases        {health.cases:,}{expected}",
        f"  images       {images.needed - len(images.missing):,} of {images.needed:,} there, "
        f"{len(images.unreadable):,} unreadable; {counted(images.cases_without, 'case')} without",
    ]
    if health.note:
        lines.insert(1, f"  loader       {health.note}: it was written from the paper")
    if health.absent:
        lines.insert(2 + bool(health.note), f"  differs      {describe_absent(health.absent)}")
    lines += [f"  damaged      {file}: {what}" for file, what in health.damaged]
    if health.gaps:
        lines.append(f"  ids          {len(health.gaps):,} missing, as {health.gaps[0]}")
    for defect in health.defects:
        first = ", ".join(defect.first)
        lines.append(f"  defect       {defect.what}: {counted(defect.cases, 'case')}, as {first}")
    if not health.defects:
        lines.append("  defect       none found")
    for line in lines:
        say(line)
    if health.blind:
        output.print(_blind_table(health))
        output.print(
            "Original accuracy in per cent of baselines that see no image (½: ties half right); "
            "same words: cases whose negative has the original's words, which caps any bag of "
            "words at its ceiling.",
            style="dim",
        )
        for line in _about_ties(health):
            say(line)


def _about_ties(health: Health) -> Iterator[str]:
    """A tie is no sign of safety: a baseline that cannot tell two texts apart says nothing."""
    from counterpoint.runs import percent

    whole = health.blind[0]
    found = [f"{name} {count:,}" for name, count in whole.ties.items() if count]
    if found:
        yield f"Ties, of {counted(whole.n, 'case')}: {', '.join(found)}."
    if whole.ngram_where_bow_ties is not None:
        right = percent(whole.ngram_where_bow_ties)
        yield f"Where bow ties it says nothing: ngram is right in {right} % of those cases (½)."


def _blind_table(health: Health) -> Sheet:
    from counterpoint.runs import Sheet, percent

    first = ("cases", "length", "length ½", "format", "format ½", "bow", "same words", "ceiling")
    sheet = Sheet({"group": "name", **dict.fromkeys((*first, "ngram"), "number")})
    for row in health.blind:
        shares = (row.length, row.length_half, row.format, row.format_half, row.bow)
        sheet.add(
            row.group,
            f"{row.n:,}",
            *(percent(share) for share in shares),
            f"{row.same_bag:,}",
            percent(row.bow_ceiling),
            percent(row.ngram),
        )
    return sheet
