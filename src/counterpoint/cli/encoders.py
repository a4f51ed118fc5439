"""What is made of an encoder: `counterpoint vectors`, as files, and `detector`, heads on it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from counterpoint.cli.console import (
    LEFT_OUT,
    AllowMissing,
    AsJson,
    BatchSize,
    Benchmarks,
    DataFolder,
    Device,
    Limit,
    ProtocolName,
    counted,
    plainly,
    print_json,
    progress_bars,
    say,
    warn,
)

vectors_app = typer.Typer(
    name="vectors",
    help="Vectors of images and captions as files, for `-m vectors:FOLDER`: `export`.",
    no_args_is_help=True,
)


def export(
    model: Annotated[str, typer.Argument(help="Model id of a dual encoder.")],
    benchmark: Benchmarks,
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder of the vectors.")],
    data: DataFolder = None,
    form: Annotated[str, typer.Option("--format", help="parquet or npy.")] = "parquet",
    limit: Limit = None,
    protocol: ProtocolName = None,
    batch_size: BatchSize = 128,
    device: Device = "auto",
    precision: Annotated[str, typer.Option(help="fp32, tf32, bf16 or fp16.")] = "fp32",
    allow_missing: AllowMissing = False,
    as_json: AsJson = False,
) -> None:
    """Write the vectors of all images and captions of benchmarks. The model id is `vectors:FOLDER`.

    Example:

    counterpoint vectors export world:base -b world-swap:size=100 -o vectors/world

    Vectors that are in the store are not computed again. docs/models.md describes the files.
    """
    from counterpoint.api import export_vectors

    with progress_bars() as bars:
        found = export_vectors(
            model,
            benchmark,
            out,
            progress=bars,
            data=data,
            form=form,
            limit=limit,
            protocol=protocol,
            batch_size=batch_size,
            device=device,
            precision=precision,
        )
    if as_json:
        print_json(
            [
                {
                    "folder": str(found.folder),
                    "images": found.images,
                    "captions": found.captions,
                    "left_out": found.left_out,
                }
            ]
        )
    else:
        say(
            f"saved {counted(found.images, 'image')} and {counted(found.captions, 'caption')} in "
            f"{found.folder}: use it as -m {found.model}"
        )
    for name, reasons in found.left_out.items():
        for why, count in Counter(reasons).most_common(5):
            warn(f"{name}: left out ({count:,}): {why}")
    if any(found.left_out.values()) and not allow_missing:
        raise typer.Exit(LEFT_OUT)


vectors_app.command("export")(plainly(export, resumes=True))


# --- detector ---------------------------------------------------------------------------------


detector_app = typer.Typer(
    name="detector",
    help="Detectors of synthetic images and captions, for BiVLC's shortcut check: `train`.",
    no_args_is_help=True,
)


def train(
    encoder: Annotated[str, typer.Argument(help="Model id of the encoder, which stays frozen.")],
    pairs: Annotated[
        Path,
        typer.Argument(
            help="A pairs file with drawn images, or a table (.jsonl, .csv, .tsv, .parquet) with "
            "the columns image, caption and label (natural or synthetic); image or caption may be "
            "empty."
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="A new folder for the detector.")],
    images: Annotated[
        Path | None,
        typer.Option(
            help="Folder that image paths start from. Default: as the pairs file says, or the "
            "table's folder."
        ),
    ] = None,
    caption_epochs: Annotated[int, typer.Option(min=1, help="Epochs on captions.")] = 10,
    image_epochs: Annotated[int, typer.Option(min=1, help="Epochs on images.")] = 1,
    learning_rate: Annotated[
        float,
        typer.Option("--lr", help="Learning rate. Default: the authors' code; their paper: 1e-6."),
    ] = 1e-3,
    train_batch: Annotated[
        int, typer.Option(min=1, help="Examples per training step; default: 400 pairs.")
    ] = 800,
    held_out: Annotated[
        float,
        typer.Option(
            min=0.1,
            max=0.8,
            help="Share of held-out examples: half chooses the epoch, half is the test set.",
        ),
    ] = 0.2,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Random seed.")] = 0,
    batch_size: BatchSize = 128,
    device: Device = "auto",
    precision: Annotated[str, typer.Option(help="fp32, tf32, bf16 or fp16.")] = "fp32",
    as_json: AsJson = False,
) -> None:
    """Train two linear heads on a frozen encoder. The model id is then `detector:FOLDER`.

    Examples:

    counterpoint detector train world:base pairs.jsonl -o detectors/world

    counterpoint detector train open_clip:ViT-B-32-quickgelu/openai drawn.parquet -o clip-det

    Write the captions as the benchmark's are written: even a missing full stop is a clue.
    """
    from counterpoint._util.store import Store, default_store
    from counterpoint.evaluation import (
        TrainingRecord,
        photograph_digests,
        text_digests,
        write_record,
    )
    from counterpoint.generation import is_pairs_file
    from counterpoint.generation.export import detector_items
    from counterpoint.models import TRAINED_ON, LoadOptions
    from counterpoint.models.detector import (
        DetectorSettings,
        read_labelled,
        train as train_detector,
    )
    from counterpoint.scoring import Work

    if not 0 < learning_rate < 1:
        raise typer.BadParameter("between 0 and 1", param_hint="--lr")
    settings = DetectorSettings(
        image_epochs, caption_epochs, learning_rate, train_batch, held_out, seed
    )
    options = LoadOptions(device, precision)
    read = detector_items if is_pairs_file(pairs) else read_labelled
    items = read(pairs, images)
    with progress_bars() as bars, Store(default_store()) as store:
        work = Work(store, batch_size, bars)
        results = train_detector(
            encoder, items, out, work, source=pairs, settings=settings, options=options
        )
    texts = text_digests(caption for caption, _ in items.captions)
    photographs = photograph_digests(picture for picture, _ in items.images)
    write_record(out / TRAINED_ON, TrainingRecord.of([texts], [photographs]))
    if as_json:
        from dataclasses import asdict

        print_json([{**asdict(result), "left_out": len(result.left_out)} for result in results])
    else:
        from counterpoint.runs import percent

        for r in results:
            say(
                f"{r.name} head: {percent(r.accuracy)} % of {r.test:,} held-out {r.name}s right "
                f"(the commoner label alone: {percent(r.majority)} %), trained on {r.train:,}"
            )
        say(f"saved {out}: use it as -m detector:{out}")
    for note in (note for result in results for note in result.notes):
        warn(f"note: {note}")


detector_app.command("train")(plainly(train, resumes=True))
