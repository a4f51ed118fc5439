"""Options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from counterpoint.errors import DataError

LEFT_OUT: Final = 3  # the exit status of work that is done, but not on all cases


def _known_device(name: str) -> str:
    from counterpoint.models import DEVICES, is_device

    if not is_device(name):
        raise typer.BadParameter(DEVICES)
    return name


AsJson = Annotated[
    bool, typer.Option("--json", help="Print rows as JSON on standard output, and nothing else.")
]
DataFolder = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="Folder of the data sets; else in your cache folder.",
        envvar="COUNTERPOINT_DATA",
    ),
]
Clean = Annotated[
    bool, typer.Option("--clean", help="Also without the cases that have defects: both numbers.")
]
Groups = Annotated[bool, typer.Option("--groups", help="Show every group, not only the whole.")]
ProtocolName = Annotated[
    str | None, typer.Option("--protocol", help="Another protocol than the official one.")
]
AllowMissing = Annotated[
    bool, typer.Option("--allow-missing", help="Exit with 0 although cases were left out.")
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace a run of another model or benchmark in --out.")
]
BatchSize = Annotated[int, typer.Option(min=1, help="Images, captions or pairs at a time.")]
Device = Annotated[
    str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.", callback=_known_device)
]
Limit = Annotated[
    int | None, typer.Option(min=1, help="Score only so many cases of each benchmark.")
]


def refuse_missing_folder(file: Path | None) -> None:
    """Raise if a file that the user named would need a new folder: nobody asked for one."""
    if file is not None and not file.parent.is_dir():
        raise DataError(
            f"{file}: there is no folder {file.parent}; create it, or name another file."
        )
