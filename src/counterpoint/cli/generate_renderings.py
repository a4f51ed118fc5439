"""`counterpoint generate renderings`: images changed without a change of what the captions say."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from counterpoint.cli.console import (
    AsJson,
    DataFolder,
    Device,
    counted,
    errors,
    output,
    print_json,
    progress_bars,
)

if TYPE_CHECKING:
    from counterpoint.generation.images import Backend, RenderingCounts
    from counterpoint.scoring import Work


def renderings(
    captions: Annotated[
        str,
        typer.Argument(
            help="A file of captions with images, a benchmark id, or a pairs file of "
            "`generate images`."
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="The case file (.parquet).")],
    neighbours: Annotated[
        Path | None,
        typer.Option(
            help="Table of `generate neighbours`: the most similar image is the false one. A pairs "
            "file has its own."
        ),
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            help="crop, flip, colour, brightness, compression; repeat for several. "
            "Default: all, or none with --model."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="Draw the caption again: as in `generate images`."),
    ] = None,
    images: Annotated[
        Path | None, typer.Option(help="Folder that image paths start from; default: the input's.")
    ] = None,
    changed: Annotated[
        Path | None,
        typer.Option(
            help="Folder for changed images, below the folder of --out; default: OUT-images."
        ),
    ] = None,
    data: DataFolder = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N images.")] = None,
    seed: Annotated[
        int,
        typer.Option(min=0, help="Random seed; another than that of drawn images, which is 0."),
    ] = 1,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Denoising steps; default: the pipeline's own.")
    ] = None,
    side: Annotated[
        int | None,
        typer.Option(min=8, help="Width and height of what is drawn; default: the pipeline's own."),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Drawn images at a time.")] = 4,
    device: Device = "auto",
    precision: Annotated[
        str, typer.Option(help="Of the model: auto (fp16 on a GPU, else fp32), fp32, bf16 or fp16.")
    ] = "auto",
    as_json: AsJson = False,
) -> None:
    """Change images without a change of what their captions say: a case file of 3 x 3 or 3 x 1.

    Examples:

    counterpoint generate renderings coco.json -o cases.parquet --neighbours near.parquet

    counterpoint generate renderings drawn.parquet -o cases.parquet --change flip -m sdxl-dpo

    `counterpoint generate neighbours` makes near.parquet. A change that may change what a caption
    says is refused and counted. OUT-changes.jsonl records every change. Images that are there
    already are not written again.
    """
    from counterpoint._util.store import Store, default_store
    from counterpoint.generation import require_parquet, reserved
    from counterpoint.generation.images import (
        CHANGES,
        ImageFolder,
        PhotoChanges,
        RenderingCounts,
        from_neighbours,
        from_pairs,
        is_pairs,
        make_renderings,
    )
    from counterpoint.generation.inputs import open_captions
    from counterpoint.scoring import Work

    chosen = list(dict.fromkeys(change or ([] if model else CHANGES)))
    if unknown := [name for name in chosen if name not in CHANGES]:
        known = ", ".join(CHANGES)
        raise typer.BadParameter(f"{unknown[0]!r} is none of {known}", param_hint="--change")
    pairs = is_pairs(Path(captions))
    if pairs == (neighbours is not None):
        why = "a pairs file has its own false images" if pairs else "is needed for the false images"
        raise typer.BadParameter(why, param_hint="--neighbours")
    require_parquet(out, "cases")
    folder = out.parent / f"{out.stem}-images" if changed is None else changed
    counts = RenderingCounts()
    with reserved(out), reserved(folder), progress_bars() as bars, Store(default_store()) as store:
        kept = ImageFolder(folder, out.parent)
        if neighbours is None:
            sceneries = from_pairs([Path(captions)], images, out, counts.left_out)
        else:
            opened = open_captions(captions, data, images=images)
            sceneries = from_neighbours(opened, neighbours, out, counts.left_out)
        work = Work(store, batch, bars)
        how = (seed, steps, side, folder, out.parent, work, device, precision)
        made = make_renderings(
            islice(sceneries, limit),
            out,
            counts,
            changes=chosen,
            photographs=PhotoChanges(kept, seed),
            backend=_backend(model, *how) if model else None,
            progress=bars,
        )
    if as_json:
        print_json([counts.as_json()])
    else:
        _print_counts(counts, made, out)


def _backend(
    model: str,
    seed: int,
    steps: int | None,
    side: int | None,
    folder: Path,
    root: Path,
    work: Work,
    device: str,
    precision: str,
) -> Backend:
    from counterpoint.generation.images import DrawSettings, open_backend

    if side is not None and side % 8:
        raise typer.BadParameter("must be a multiple of 8", param_hint="--side")
    settings = DrawSettings(seed=seed, steps=steps, side=side)
    return open_backend(
        model, settings, folder=folder, root=root, work=work, device=device, precision=precision
    )


def _print_counts(counts: RenderingCounts, made: int, out: Path) -> None:
    from counterpoint.generation.images import record_of

    each = ", ".join(f"{name} {number:,}" for name, number in counts.cases.items())
    output.print(f"{counted(made, 'case')}: {each}", soft_wrap=True)
    output.print(f"saved {out} and {record_of(out)}", soft_wrap=True)
    for reason, number in (counts.refused + counts.left_out).most_common():
        errors.print(f"{number:,} x {reason}", style="yellow", soft_wrap=True)
