"""`counterpoint generate images`, `renderings` and `neighbours`: images drawn, changed or found."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterpoint.cli.console import (
    AsJson,
    DataFolder,
    Device,
    counted,
    print_json,
    progress_bars,
    say,
    warn,
)

if TYPE_CHECKING:
    from counterpoint.generation.images import (
        ImageCounts,
        NearestImages,
        RenderingCounts,
    )

Out = Annotated[Path, typer.Option("-o", "--out", help="The output file (.parquet).")]
Images = Annotated[
    Path | None, typer.Option(help="Folder that image paths start from; default: the input's.")
]
Steps = Annotated[
    int | None, typer.Option(min=1, help="Denoising steps; default: the pipeline's own.")
]


def _multiple_of_8(side: int | None) -> int | None:
    if side is not None and side % 8:
        raise typer.BadParameter("must be a multiple of 8")
    return side


Side = Annotated[
    int | None,
    typer.Option(
        min=8,
        callback=_multiple_of_8,
        help="Width and height of what is drawn, a multiple of 8; default: the pipeline's own.",
    ),
]
Batch = Annotated[
    int, typer.Option(min=1, help="Images drawn at a time; halved when memory runs out.")
]
Precision = Annotated[
    str, typer.Option(help="Of what draws: auto (fp16 on a GPU, else fp32), fp32, bf16 or fp16.")
]


def images(
    pairs: Annotated[Path, typer.Argument(help="A pairs file of `generate negatives`.")],
    out: Out,
    drawn: Annotated[
        Path | None,
        typer.Option(
            help="Folder for drawn images, below the folder of --out; default: OUT-images."
        ),
    ] = None,
    model: Annotated[
        str,
        typer.Option("--model", "-m", help="sdxl-dpo, a hub id, a pipeline's folder, or world."),
    ] = "sdxl-dpo",
    masks: Annotated[
        Path | None,
        typer.Option(
            help="Inpainting: draw only this part of the caption's image again. A folder with "
            "SOURCE.png or IMAGE.png (light: drawn again), or a table: source, x, y, width, height."
        ),
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(
            help="With --masks: folder that image paths start from; default: as PAIRS says."
        ),
    ] = None,
    candidates: Annotated[int, typer.Option(min=1, max=4, help="Images per text.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    steps: Steps = None,
    guidance: Annotated[
        float | None, typer.Option(min=0, help="How closely to follow the text; default: 5.")
    ] = None,
    side: Side = None,
    saved: Annotated[
        int | None,
        typer.Option(
            min=8,
            help="Width and height of the saved image, if a larger one was drawn; default: 512.",
        ),
    ] = None,
    suffix: Annotated[
        str | None,
        typer.Option(help="Text to add after every prompt; default: the one of BiVLC."),
    ] = None,
    batch: Batch = 4,
    device: Device = "auto",
    precision: Precision = "auto",
    choose: Annotated[
        str | None, typer.Option(help="Model id of a scorer that chooses among the candidates.")
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(help="Minimum of the score of the text minus that of the caption."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Draw one to four images for every negative text of a pairs file.

    Examples:

    counterpoint generate images negatives.parquet -o with-images.parquet --candidates 4

    counterpoint generate images negatives.parquet -o inpainted.parquet --masks masks
    -m stabilityai/stable-diffusion-2-inpainting

    counterpoint generate images world.parquet -o w.parquet -m world --choose world:base

    After an interrupt or a kill, the same command draws only the missing images.
    """
    from counterpoint._util.store import Store, default_store
    from counterpoint.generation import read_about, require_parquet, reserved, root_of
    from counterpoint.generation.images import (
        DrawSettings,
        make_images,
        open_backend,
        open_chooser,
    )
    from counterpoint.models import LoadOptions
    from counterpoint.scoring import Work

    given = {"steps": steps, "guidance": guidance, "side": side, "suffix": suffix, "saved": saved}
    others = {"drawn": drawn, "masks": masks, "images": images}
    _refuse(model, margin if choose is None else None, {**given, **others})
    if masks is not None and saved is not None:
        raise typer.BadParameter("has no effect with --masks", param_hint="--saved")
    if images is not None and masks is None:
        why = "has no effect without --masks; the folder for drawn images is --drawn"
        raise typer.BadParameter(why, param_hint="--images")
    chosen: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
    settings = DrawSettings(candidates, seed, **chosen)
    require_parquet(out)
    read_about(pairs)  # errors before a model is loaded
    folder = out.parent / f"{out.stem}-images" if drawn is None else drawn
    with reserved(out), reserved(folder), progress_bars() as bars, Store(default_store()) as store:
        work = Work(store, batch, bars)
        chooser = None
        if choose is not None:
            scoring = Work(store, max(batch, 128), bars)
            chooser = open_chooser(choose, margin, out.parent, scoring, LoadOptions(device))
        backend = open_backend(
            model,
            settings,
            folder=folder,
            root=out.parent,
            work=work,
            device=device,
            precision=precision,
            masks=masks,
            photos=images or root_of(pairs),
        )
        counts = make_images(pairs, out, backend, chooser)
        about = backend.describe()
    if as_json:
        print_json([{**about, "counts": counts.as_json()}])
    else:
        _print_counts(counts, out)
    if about.get("cut"):
        warn(
            f"note: {counted(about['cut'], 'prompt')} longer than the model reads; the end is not "
            "drawn."
        )


def _refuse(model: str, margin: float | None, given: dict[str, Any]) -> None:
    """Raise for combinations of options that typer does not know to be wrong."""
    if margin is not None:
        raise typer.BadParameter("needs a scorer: --choose MODEL", param_hint="--margin")
    for name, value in given.items():
        if model == "world" and value is not None:
            raise typer.BadParameter("has no effect with -m world", param_hint=f"--{name}")


def _print_counts(counts: ImageCounts, out: Path) -> None:
    say(
        f"{counted(counts.negatives, 'negative')}: {counts.with_images:,} with images, "
        f"{counts.chosen:,} with a chosen one; {counted(counts.positives, 'positive')} and "
        f"{counted(counts.refused_pairs, 'refused pair')} copied"
    )
    say(f"saved {out}")
    for reason, number in (counts.refused + counts.unscored).most_common():
        warn(f"{number:,} x {reason}")


def neighbours(
    captions: Annotated[
        str, typer.Argument(help="A pairs file, a file of captions, a benchmark id, or world.")
    ],
    out: Out,
    model: Annotated[
        str, typer.Option("--model", "-m", help="Id of a model with an image encoder.")
    ],
    k: Annotated[int, typer.Option("-k", min=1, help="Neighbours per image.")] = 3,
    images: Images = None,
    data: DataFolder = None,
    batch: Annotated[int, typer.Option(min=1, help="Images at a time.")] = 128,
    device: Device = "auto",
    precision: Annotated[str, typer.Option(help="fp32, tf32, bf16 or fp16.")] = "fp32",
    as_json: AsJson = False,
) -> None:
    """Find the most similar other images of every image: hard negative images, as NegCLIP's.

    Examples:

    counterpoint generate neighbours world:size=500 -o near.parquet -m world:base

    counterpoint generate neighbours coco.json -o near.parquet -m hf:openai/clip-vit-base-patch32
    """
    from counterpoint._util.store import Store, default_store
    from counterpoint.generation import require_parquet, reserved
    from counterpoint.generation.images import write_neighbours
    from counterpoint.generation.inputs import open_captions
    from counterpoint.models import LoadOptions
    from counterpoint.scoring import Work

    require_parquet(out, "neighbours")
    opened = open_captions(captions, data, images=images)
    with reserved(out), progress_bars() as bars, Store(default_store()) as store:
        work, options = Work(store, batch, bars), LoadOptions(device, precision)
        found, about = write_neighbours(model, opened, out, work, options, k=k)
    if as_json:
        print_json([about])
    else:
        _print_found(found, out)
    for why in list(found.left_out.values())[:1]:
        more = len(found.left_out) - 1
        text = f"left out: {why}" + (f" ({more:,} more like it)" if more else "")
        warn(text)


def _print_found(found: NearestImages, out: Path) -> None:
    say(
        f"{counted(found.images, 'image')}: {found.table.height:,} with neighbours "
        f"({found.copies:,} of the same content as another), {len(found.left_out):,} left out"
    )
    say(f"saved {out}")


# --- renderings -------------------------------------------------------------------------------


def renderings(
    captions: Annotated[
        str,
        typer.Argument(
            help="A file of captions with images, a benchmark id, or a pairs file of "
            "`generate images`."
        ),
    ],
    out: Out,
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
    images: Images = None,
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
    steps: Steps = None,
    side: Side = None,
    batch: Batch = 4,
    device: Device = "auto",
    precision: Precision = "auto",
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
    from counterpoint.generation import is_pairs_file, require_parquet, reserved
    from counterpoint.generation.images import (
        CHANGES,
        DrawSettings,
        ImageFolder,
        PhotoChanges,
        RenderingCounts,
        from_neighbours,
        from_pairs,
        make_renderings,
        open_backend,
    )
    from counterpoint.generation.inputs import open_captions
    from counterpoint.scoring import Work

    chosen = list(dict.fromkeys(change or ([] if model else CHANGES)))
    if unknown := [name for name in chosen if name not in CHANGES]:
        known = ", ".join(CHANGES)
        raise typer.BadParameter(f"{unknown[0]!r} is none of {known}", param_hint="--change")
    pairs = is_pairs_file(Path(captions))
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
        backend = None
        if model:
            backend = open_backend(
                model,
                DrawSettings(seed=seed, steps=steps, side=side),
                folder=folder,
                root=out.parent,
                work=work,
                device=device,
                precision=precision,
            )
        made = make_renderings(
            islice(sceneries, limit),
            out,
            counts,
            changes=chosen,
            photographs=PhotoChanges(kept, seed),
            backend=backend,
            progress=bars,
        )
    if as_json:
        print_json([counts.as_json()])
    else:
        _print_renderings(counts, made, out)


def _print_renderings(counts: RenderingCounts, made: int, out: Path) -> None:
    from counterpoint.generation.images import record_of

    each = ", ".join(f"{name} {number:,}" for name, number in counts.cases.items())
    say(f"{counted(made, 'case')}: {each}")
    say(f"saved {out} and {record_of(out)}")
    for reason, number in (counts.refused + counts.left_out).most_common():
        warn(f"{number:,} x {reason}")
