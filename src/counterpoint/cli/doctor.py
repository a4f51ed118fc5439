"""`counterpoint doctor`: check the files and the captions of a benchmark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from counterpoint._util.errors import DataError
from counterpoint.cli.console import (
    LEFT_OUT,
    AsJson,
    DataFolder,
    counted,
    errors,
    output,
    print_json,
    progress_bars,
)

if TYPE_CHECKING:
    from counterpoint.evaluation import Health


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
        _print(health)
    if bad and list_file is not None:
        _write_list(bad, list_file)
        errors.print(f"{len(bad):,} images are listed in {list_file}", soft_wrap=True)
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


def _print(health: Health) -> None:
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
        output.print(line, soft_wrap=True)
    if health.blind:
        output.print(_blind_table(health))
        output.print(
            "Original accuracy in per cent of baselines that see no image (½: ties half right); "
            "same words: cases whose negative has the original's words, which caps any bag of "
            "words at its ceiling.",
            style="dim",
        )
        for line in _about_ties(health):
            output.print(line, soft_wrap=True)


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


def _blind_table(health: Health) -> Table:
    from counterpoint.runs import percent

    table = Table(header_style="bold")
    table.add_column("group", overflow="fold")
    first = ("cases", "length", "length ½", "format", "format ½", "bow", "same words", "ceiling")
    for heading in (*first, "ngram"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in health.blind:
        shares = (row.length, row.length_half, row.format, row.format_half, row.bow)
        table.add_row(
            row.group,
            f"{row.n:,}",
            *(percent(share) for share in shares),
            f"{row.same_bag:,}",
            percent(row.bow_ceiling),
            percent(row.ngram),
        )
    return table
