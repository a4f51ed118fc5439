"""Pairs that were made: `counterpoint refine` and `export`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from counterpoint.cli.console import (
    LEFT_OUT,
    AsJson,
    Device,
    command,
    counted,
    errors,
    output,
    print_json,
    progress_bars,
    refuse_missing_folder,
    say,
    warn,
)

if TYPE_CHECKING:
    from counterpoint.generation.refinement import BlindResult, Refined
    from counterpoint.runs import Sheet


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

    from counterpoint.api import refine as refine_pairs
    from counterpoint.generation import reserved
    from counterpoint.generation.refinement import SCALES

    if scale not in SCALES:
        raise typer.BadParameter(" or ".join(SCALES), param_hint="--scale")
    if not (blind or watch or (select and top is not None) or unique or sentences):
        raise typer.BadParameter("name at least one blind model", param_hint="--blind")
    if top is not None and not (blind or select):
        raise typer.BadParameter("needs --blind or --select", param_hint="--top")
    refuse_missing_folder(report)
    place = reserved(report) if report else nullcontext()
    with place, progress_bars() as bars:
        found = refine_pairs(
            pairs,
            out,
            blind or (),
            tables=scores or (),
            batch_size=batch_size,
            device=device,
            precision=precision,
            progress=bars,
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
        if report is not None:
            _write_json(report, asdict(found))
    _show_refined(found, out, goal, as_json=as_json)


def _show_refined(found: Refined, out: Path, goal: float, *, as_json: bool) -> None:
    from dataclasses import asdict

    if as_json:
        print_json([asdict(row) for row in found.rows])
    else:
        output.print(_refined_table(found.rows))
        output.print(
            "Accuracy: percentage of pairs whose caption scores above the text; a tie counts half. "
            f"Target 50 ± 1; of ngram and chars, fitted again to what is kept: at most {goal:g}.",
            style="dim",
        )
        for line in (*_rounds(found), *_verdicts(found.rows), *_ties(found)):
            say(line)
        for group, why in found.stuck.items():
            say(f"{group or 'all'}: {why}")
        say(_summary(found, out))
    if found.before and not found.after:
        errors.print("note: no negative is left: no cell has pairs on both sides.", style="yellow")


def _refined_table(rows: list[BlindResult]) -> Sheet:
    from counterpoint.runs import Sheet

    numbers = dict.fromkeys(("pairs", "kept", "before", "after", "ties"), "number")
    names = {"group": "name", "blind model": "name", "use": "word"}
    sheet = Sheet({**names, **numbers, "target": "word"})
    for number, row in enumerate(rows):
        same = number > 0 and rows[number - 1].group == row.group
        last = number + 1 == len(rows) or rows[number + 1].group != row.group
        sheet.add(
            "" if same else row.group,
            row.model,
            row.use,
            f"{row.before:,}",
            f"{row.after:,}",
            _share(row.accuracy_before),
            _share(row.accuracy_after),
            f"{row.ties_after:,}",
            {None: "none left", True: "yes", False: "no"}[row.reached],
            last=last,
        )
    return sheet


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


# --- export -----------------------------------------------------------------------------------


Form = Literal["benchmark", "training", "hf"]


def export(
    pairs: Annotated[
        list[Path],
        typer.Argument(
            help="Pairs files of the same captions, such as their negatives and their positives."
        ),
    ],
    form: Annotated[Form, typer.Option("--as", help="The form of the output.")],
    out: Annotated[
        Path,
        typer.Option(
            "-o",
            "--out",
            help="benchmark: a .parquet; training: a .parquet, .jsonl, .csv or .tsv (NegCLIP's); "
            "hf: a new folder.",
        ),
    ],
    images: Annotated[
        Path | None,
        typer.Option(help="Folder that image paths start from; default: as the pairs file says."),
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(
            help="benchmark, training: write image paths relative to this folder, where OUT will "
            "be. Default: relative to OUT's folder if they are below it, else absolute."
        ),
    ] = None,
    all_negatives: Annotated[
        bool,
        typer.Option("--all-negatives", help="benchmark: one case per caption, not per negative."),
    ] = False,
    seed: Annotated[
        int,
        typer.Option(
            min=0,
            help="Random seed; benchmark: of which positive goes with which negative; training: "
            "of --validation and --balance; both: of --cap.",
        ),
    ] = 0,
    neighbours: Annotated[
        Path | None, typer.Option(help="training: a file of `counterpoint generate neighbours`.")
    ] = None,
    validation: Annotated[
        float,
        typer.Option(
            min=0,
            max=0.99,
            help="training: share of the images that goes to a second file, OUT-validation.",
        ),
    ] = 0.0,
    per: Annotated[
        Literal["caption", "negative"],
        typer.Option(
            help="training: one row per caption with all its negatives, or one row per negative, "
            "so that an epoch sees each (TROHN)."
        ),
    ] = "caption",
    balance: Annotated[
        str,
        typer.Option(
            help="training: equally many texts of these subtypes, such as `att,rel`; of one kind: "
            "`positive:att,rel`."
        ),
    ] = "",
    cap: Annotated[
        str,
        typer.Option(
            help="benchmark, training: largest share of the texts that one type, one new word or "
            "one edit may have: `type=0.4,word=0.02`; texts above it are left out."
        ),
    ] = "",
    name: Annotated[
        str, typer.Option(help="hf: name of the data set; default: the folder's name.")
    ] = "",
    licence: Annotated[str, typer.Option(help="hf: such as cc-by-4.0.")] = "",
    embed_images: Annotated[
        bool, typer.Option("--embed-images", help="hf: store the images in the files.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a benchmark, a training set or a data set folder from pairs that passed the checks.

    Examples:

    counterpoint export negatives.parquet positives.parquet --as benchmark -o mine.parquet

    counterpoint export negatives.parquet --as training -o train.tsv

    counterpoint export negatives.parquet --as training -o train.parquet --validation 0.2

    counterpoint export negatives.parquet --as benchmark -o even.parquet --cap type=0.4,word=0.05

    counterpoint export negatives.parquet --as hf -o my-set --licence cc-by-4.0 --embed-images

    What is left out is counted by the reason; exit status 3 if an image could not be read.
    """
    given: dict[str, Any] = {
        "root": root,
        "all_negatives": all_negatives,
        "name": name,
        "neighbours": neighbours,
        "licence": licence,
        "embed_images": embed_images,
        "validation": validation,
        "balance": balance,
        "cap": cap,
        "per": per,
    }
    for option, value in given.items():
        if value and value != "caption" and option not in _OPTIONS[form]:
            hint = f"--{option.replace('_', '-')}"  # an option without effect is a mistake
            raise typer.BadParameter(f"has no effect with --as {form}", param_hint=hint)

    from counterpoint.api import export as export_pairs

    options = {option: given[option] for option in _OPTIONS[form]}
    options |= {"embed": options.pop("embed_images")} if form == "hf" else {"seed": seed}
    with progress_bars() as bars:
        made = export_pairs(pairs, out, form=form, images=images, progress=bars, **options)
    left_out = Counter(made)
    rows = left_out.pop("rows")
    what = "row" if per == "negative" else _ROWS[form]
    _report(form, what, out, rows, left_out, validation > 0, as_json)
    if form == "hf" and left_out:
        raise typer.Exit(LEFT_OUT)


_ROWS: Final = {"benchmark": "case", "training": "caption", "hf": "pair"}
_OPTIONS: Final = {
    "benchmark": ("root", "all_negatives", "cap"),
    "training": ("root", "neighbours", "validation", "per", "balance", "cap"),
    "hf": ("name", "licence", "embed_images"),
}


def _report(
    form: Form,
    what: str,
    out: Path,
    made: int,
    left_out: Counter[str],
    split: bool,
    as_json: bool,
) -> None:
    from counterpoint.generation.export import VALIDATION, validation_file

    held_out = left_out.pop(VALIDATION, 0)
    files = {out: made} | ({validation_file(out): held_out} if split else {})
    reasons = {reason: count for reason, count in sorted(left_out.items()) if count}
    if as_json:
        print_json(
            [
                {"out": str(file), "as": form, "rows": rows, "left_out": reasons}
                for file, rows in files.items()
            ]
        )
        return
    for file, rows in files.items():
        say(f"saved {file}: {counted(rows, what)}")
    if form == "benchmark":
        say(f"score a model on it: {command(f'eval -m MODEL -b {out}')}")
    for reason, count in reasons.items():
        warn(f"left out: {count:,} {reason}")
