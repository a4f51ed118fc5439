"""`counterpoint refine`: keep the negatives that blind models cannot tell from captions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from counterpoint.cli.console import (
    AsJson,
    Device,
    counted,
    errors,
    output,
    print_json,
    progress_bars,
    refuse_missing_folder,
)

if TYPE_CHECKING:
    from rich.table import Table

    from counterpoint.generation.refinement import BlindResult, Refined


def refine(
    pairs: Annotated[Path, typer.Argument(help="Pairs file of `counterpoint generate`.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The refined pairs file (.parquet).")],
    blind: Annotated[
        list[str] | None,
        typer.Option(
            help="Blind model to balance against: length, format, grammar, plausible, lm:WHERE, "
            "any model id `blind:...`, column:NAME (scores of --scores or of the file), or ngram "
            "and chars, which are fitted to the pairs, in rounds. NAME=MODEL gives it a name. "
            "Repeat for several.",
        ),
    ] = None,
    watch: Annotated[
        list[str] | None,
        typer.Option(
            help="Blind model that is only reported, to see what refinement does not remove; with "
            "--blind ngram also chars, and the other way round."
        ),
    ] = None,
    top: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="First keep the texts in the best share (0 to 1) by every model of --select.",
        ),
    ] = None,
    select: Annotated[
        list[str] | None, typer.Option(help="Blind model for --top; default: those of --blind.")
    ] = None,
    unique: Annotated[
        bool,
        typer.Option(
            "--unique", help="Then keep every text once, and none that is a caption of the file."
        ),
    ] = False,
    sentences: Annotated[
        bool,
        typer.Option("--sentences", help="Then drop questions and texts without a final mark."),
    ] = False,
    balance: Annotated[
        bool, typer.Option(help="Balance the gaps; --no-balance only selects and reports.")
    ] = True,
    bins: Annotated[int, typer.Option(min=1, help="Number of cells from gap 0 to gap 1.")] = 50,
    zero_bins: Annotated[
        int, typer.Option(min=1, help="The same for pairs with a gap of exactly 0 to some model.")
    ] = 10,
    goal: Annotated[
        float,
        typer.Option(
            min=50,
            max=100,
            help="For ngram and chars: rounds go on until a fresh fit is right in at most this "
            "percentage of every group.",
        ),
    ] = 55,
    scale: Annotated[
        str,
        typer.Option(
            help="How to scale gaps that are not of probabilities: max (by the largest) or rank."
        ),
    ] = "max",
    by: Annotated[
        str,
        typer.Option(help="Columns; each group of their values is refined separately; or `none`."),
    ] = "type,subtype",
    scores: Annotated[
        list[Path] | None,
        typer.Option(
            help="Table (.csv, .tsv, .jsonl, .parquet) of your own scores for column:NAME: text, "
            "name, value; or text and one column per name."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Random seed.")] = 0,
    report: Annotated[
        Path | None, typer.Option(help="Write the report to this file as JSON.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts at a time.")] = 128,
    device: Device = "auto",
    precision: Annotated[str, typer.Option(help="fp32, tf32, bf16 or fp16.")] = "fp32",
    as_json: AsJson = False,
) -> None:
    """Balance negatives until models that see no image are at chance, as SugarCrepe was made.

    Examples:

    counterpoint refine pairs.parquet -o refined.parquet --blind length --blind format

    counterpoint refine pairs.parquet -o refined.parquet --blind ngram --goal 55

    counterpoint refine pairs.parquet -o best.parquet --blind grammar --blind plausible --top 0.355

    counterpoint refine pairs.parquet -o trohn.parquet --blind plausible
    --blind grammar:textattack/roberta-base-CoLA --by none

    counterpoint refine pairs.parquet -o refined.parquet --scores mine.csv --blind column:mine

    Only negatives are refined; positives are copied. After a stop, the same command resumes.
    """
    from dataclasses import asdict

    from counterpoint._util.store import Store, default_store
    from counterpoint.generation import reserved
    from counterpoint.generation.refinement import SCALES, RefineSettings, refine as refine_pairs
    from counterpoint.models import LoadOptions
    from counterpoint.scoring import Work

    if scale not in SCALES:
        raise typer.BadParameter(" or ".join(SCALES), param_hint="--scale")
    if not (blind or watch or (select and top is not None) or unique or sentences):
        raise typer.BadParameter("name at least one blind model", param_hint="--blind")
    if top is not None and not (blind or select):
        raise typer.BadParameter("needs --blind or --select", param_hint="--top")
    refuse_missing_folder(report)
    settings = RefineSettings(
        blind=tuple(blind or ()),
        watch=tuple(watch or ()),
        select=tuple(select or ()),
        top=top,
        balance=balance,
        bins=bins,
        zero_bins=zero_bins,
        scale=scale,
        by=() if by in ("", "none") else tuple(name.strip() for name in by.split(",")),
        seed=seed,
        unique=unique,
        sentences=sentences,
        goal=goal / 100,
    )
    options = LoadOptions(device, precision)
    places = reserved(out), reserved(report) if report else nullcontext()
    with places[0], places[1], progress_bars() as bars, Store(default_store()) as store:
        work = Work(store, batch_size, bars)
        found = refine_pairs(pairs, out, settings, work, tables=scores or (), options=options)
        if report is not None:
            _write_json(report, asdict(found))
    _show(found, out, goal, as_json=as_json)


def _show(found: Refined, out: Path, goal: float, *, as_json: bool) -> None:
    from dataclasses import asdict

    if as_json:
        print_json([asdict(row) for row in found.rows])
    else:
        output.print(_table(found.rows))
        output.print(
            "Accuracy: percentage of pairs whose caption scores above the text; a tie counts half. "
            f"Target 50 ± 1; of ngram and chars, fitted again to what is kept: at most {goal:g}.",
            style="dim",
        )
        for line in (*_rounds(found), *_verdicts(found.rows), *_ties(found)):
            output.print(line, soft_wrap=True)
        for group, why in found.stuck.items():
            output.print(f"{group or 'all'}: {why}", soft_wrap=True)
        output.print(_summary(found, out), soft_wrap=True)
    if found.before and not found.after:
        errors.print("note: no negative is left: no cell has pairs on both sides.", style="yellow")


def _table(rows: list[BlindResult]) -> Table:
    from rich.table import Table

    table = Table(header_style="bold")
    for name in ("group", "blind model"):
        table.add_column(name, overflow="fold")
    table.add_column("use", no_wrap=True)
    for name in ("pairs", "kept", "before", "after", "ties"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("target", no_wrap=True)
    for number, row in enumerate(rows):
        same = number > 0 and rows[number - 1].group == row.group
        last = number + 1 == len(rows) or rows[number + 1].group != row.group
        table.add_row(
            "" if same else row.group,
            row.model,
            row.use,
            f"{row.before:,}",
            f"{row.after:,}",
            _share(row.accuracy_before),
            _share(row.accuracy_after),
            f"{row.ties_after:,}",
            {None: "none left", True: "yes", False: "no"}[row.reached],
            end_section=last,
        )
    return table


def _share(value: float | None) -> str:
    from counterpoint.runs import percent

    return "" if value is None else percent(value)


def _rounds(found: Refined) -> Iterator[str]:
    """What each round of fitting found, and how many pairs it found them in."""
    for number, one in enumerate(found.rounds):
        fits = ", ".join(f"{name} {_share(value)}" for name, value in one.accuracy.items())
        above = f"; above the goal: {', '.join(one.above)}" if any(one.above) else ""
        yield f"Fit {number + 1}: {counted(one.pairs, 'pair')}, {fits}{above}."


def _verdicts(rows: list[BlindResult]) -> Iterator[str]:
    """How often the targets were reached, by the use of the blind models."""
    of = {True: "At most the goal", False: "Within 50 ± 1"}
    for fitted in (False, True):
        mine = [row for row in rows if row.fitted == fitted]
        said = []
        for use in dict.fromkeys(row.use for row in mine):
            some = [row for row in mine if row.use == use]
            missed = sum(row.reached is False for row in some)
            empty = sum(row.reached is None for row in some)
            more = f", {empty} without pairs" if empty else ""
            said.append(f"{use}: {len(some) - missed - empty} of {len(some)}{more}")
        if said:
            yield f"{of[fitted]} (groups x models): {'; '.join(said)}."


def _ties(found: Refined) -> Iterator[str]:
    """A pair that ties looks safe to a model that cannot tell its two texts apart."""
    whole = [row for row in found.rows if row.group == found.rows[0].group and row.ties_before]
    if whole:
        said = ", ".join(f"{row.model} {row.ties_before:,}" for row in whole)
        total = counted(found.before, "negative")
        yield f"Ties, of {total}: {said}. A model says nothing about a pair on which it ties."


def _summary(found: Refined, out: Path) -> str:
    steps = counted(found.before, "negative")
    if found.selected != found.before:
        steps += f", {found.selected:,} selected"
    if found.cleaned:
        steps += f", {found.cleaned:,} repeated or unfit"
    return (
        f"{steps}, {found.after:,} kept; {counted(found.positives, 'positive')} copied; "
        f"{found.refused:,} rejected by the checks left out. Saved {out}."
    )


def _write_json(path: Path, content: object) -> None:
    import json

    from counterpoint._util.writing import whole_file

    with whole_file(path) as draft:
        draft.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
