"""`counterpoint export`: pairs as a benchmark, a training set, or a data set to publish."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from counterpoint.cli.console import (
    AsJson,
    command,
    counted,
    errors,
    output,
    print_json,
    progress_bars,
)


class Form(StrEnum):
    """The forms of an export."""

    BENCHMARK = "benchmark"
    TRAINING = "training"
    HF = "hf"


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
    from counterpoint.generation import reserved

    given: dict[str, object] = {"--root": root, "--all-negatives": all_negatives, "--name": name}
    given |= {"--neighbours": neighbours, "--licence": licence, "--embed-images": embed_images}
    given |= {"--validation": validation, "--balance": balance, "--cap": cap}
    given["--per"] = "" if per == "caption" else per
    _refuse_options(form, given)
    left_out: Counter[str] = Counter()
    with reserved(out), progress_bars() as bars:
        if form is Form.BENCHMARK:
            from counterpoint.generation.export import export_benchmark

            made = export_benchmark(
                pairs,
                out,
                left_out,
                images=images,
                root=root,
                all_negatives=all_negatives,
                cap=cap,
                seed=seed,
                progress=bars,
            )
        elif form is Form.TRAINING:
            from counterpoint.generation.export import export_training

            where = {"images": images, "root": root, "neighbours": neighbours}
            made = export_training(
                pairs,
                out,
                left_out,
                **where,
                validation=validation,
                per=per,
                balance=balance,
                cap=cap,
                seed=seed,
                progress=bars,
            )
        else:
            from counterpoint.generation.export import export_hub

            made = export_hub(
                pairs,
                out,
                left_out,
                name=name,
                licence=licence,
                images=images,
                embed=embed_images,
                progress=bars,
            )
    what = "row" if per == "negative" else _ROWS[form]
    _report(form, what, out, made, left_out, validation > 0, as_json)
    if form is Form.HF and left_out:
        raise typer.Exit(3)


_ROWS = {Form.BENCHMARK: "case", Form.TRAINING: "caption", Form.HF: "pair"}
_OPTIONS = {
    Form.BENCHMARK: {"--root", "--all-negatives", "--cap"},
    Form.TRAINING: {"--root", "--neighbours", "--validation", "--per", "--balance", "--cap"},
    Form.HF: {"--name", "--licence", "--embed-images"},
}


def _refuse_options(form: Form, given: dict[str, object]) -> None:
    """An option without effect is a mistake."""
    for option, value in given.items():
        if value and option not in _OPTIONS[form]:
            raise typer.BadParameter(f"has no effect with --as {form}", param_hint=option)


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
                {"out": str(file), "as": str(form), "rows": rows, "left_out": reasons}
                for file, rows in files.items()
            ]
        )
        return
    for file, rows in files.items():
        output.print(f"saved {file}: {counted(rows, what)}", soft_wrap=True)
    if form is Form.BENCHMARK:
        output.print(f"score a model on it: {command(f'eval -m MODEL -b {out}')}", soft_wrap=True)
    for reason, count in reasons.items():
        errors.print(f"left out: {count:,} {reason}", style="yellow", soft_wrap=True)
