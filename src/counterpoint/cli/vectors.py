"""`counterpoint vectors`: a model's vectors as files, which `vectors:FOLDER` reads."""

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
    DataFolder,
    Device,
    Limit,
    ProtocolName,
    counted,
    errors,
    output,
    plainly,
    print_json,
    progress_bars,
)

app = typer.Typer(
    name="vectors",
    help="Vectors of images and captions as files, for `-m vectors:FOLDER`: `export`.",
    no_args_is_help=True,
)


def export(
    model: Annotated[str, typer.Argument(help="Model id of a dual encoder.")],
    benchmark: Annotated[
        list[str],
        typer.Option("-b", "--benchmark", help="Benchmark id or case file; repeat for several."),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder of the vectors.")],
    data: DataFolder = None,
    form: Annotated[str, typer.Option("--format", help="parquet, npy or safetensors.")] = "parquet",
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
    from counterpoint._util.store import Store, default_store
    from counterpoint.evaluation import export_vectors
    from counterpoint.models import LoadOptions

    with progress_bars() as bars, Store(default_store()) as store:
        found = export_vectors(
            model,
            benchmark,
            out,
            store=store,
            progress=bars,
            data=data,
            form=form,
            limit=limit,
            protocol=protocol,
            batch_size=batch_size,
            options=LoadOptions(device, precision),
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
        output.print(
            f"saved {counted(found.images, 'image')} and {counted(found.captions, 'caption')} in "
            f"{found.folder}: use it as -m {found.model}",
            soft_wrap=True,
        )
    for name, reasons in found.left_out.items():
        for why, count in Counter(reasons).most_common(5):
            errors.print(f"{name}: left out ({count:,}): {why}", style="yellow", soft_wrap=True)
    if any(found.left_out.values()) and not allow_missing:
        raise typer.Exit(LEFT_OUT)


app.command("export")(plainly(export, resumes=True))
