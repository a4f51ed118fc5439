"""What the verbs share: options, printing, and errors as one line.

Results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, ParamSpec

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from counterpoint._util.errors import CounterpointError, DataError, explain, stop_status
from counterpoint._util.progress import Bars, bars_on
from counterpoint._util.untrusted import shown, without_controls

# --- options that several verbs share -----------------------------------------------------------


LEFT_OUT: Final = 3  # the exit status of work that is done, but not on all cases


def _batch_size(text: str) -> str:
    if text != "auto" and not (text.isdecimal() and int(text[:9]) > 0):
        raise typer.BadParameter(f"{shown(text)} is neither auto nor a number from 1 on.")
    return text


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
        help="Folder of the data sets. Default: in the cache folder.",
        envvar="COUNTERPOINT_DATA",
    ),
]
Called = Annotated[
    list[str] | None,
    typer.Option(
        "--as",
        help="MODEL=PUBLISHED: the name of a run's model in the papers; repeat for several.",
    ),
]
Clean = Annotated[
    bool, typer.Option("--clean", help="Show the numbers without defective cases, too.")
]
Groups = Annotated[bool, typer.Option("--groups", help="Show every group, not only the total.")]
Benchmarks = Annotated[
    list[str],
    typer.Option("-b", "--benchmark", help="Benchmark id or case file; repeat for several."),
]
RayAddress = Annotated[str, typer.Option(help="Address of Ray: local, auto or ray://HOST:PORT.")]
ProtocolName = Annotated[
    str | None, typer.Option("--protocol", help="Use this protocol instead of the official one.")
]
AllowMissing = Annotated[
    bool, typer.Option("--allow-missing", help="Exit with status 0 even if cases were left out.")
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace a run of another model or benchmark at --out.")
]
BatchSize = Annotated[
    int, typer.Option(min=1, help="Number of images, captions or pairs per batch.")
]
BatchSizeOrAuto = Annotated[
    str,
    typer.Option(
        "--batch-size",
        help="Number of images, captions or pairs per batch; auto finds one that is fast here.",
        callback=_batch_size,
    ),
]
Device = Annotated[
    str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.", callback=_known_device)
]
Limit = Annotated[
    int | None,
    typer.Option(min=1, help="Maximum number of cases per benchmark, evenly spaced in each group."),
]


def refuse_missing_folder(file: Path | None) -> None:
    """Raise if a file that the user named is in a folder that does not exist."""
    if file is not None and not file.parent.is_dir():
        raise DataError(
            "E-FOLDER-MISSING",
            f"{file}: there is no folder {file.parent}; create it, or name another file.",
        )


# --- commands that the program suggests ---------------------------------------------------------


_NAME: Final = "counterpoint"


def command(words: str) -> str:
    """`words` after the program's name, or its path where the name alone would not be found."""
    return f"{_program()} {words}"


def _program() -> str:
    mine = _script()
    if mine is None:
        return f"{_typed(Path(sys.executable))} -m {_NAME}"
    found = shutil.which(_NAME)
    return _NAME if found and Path(found).samefile(mine) else _typed(mine)


def _script() -> Path | None:
    """The script of this installation: the one that runs now, or the one beside its Python."""
    started = Path(sys.argv[0])
    if started.stem == _NAME and started.is_file():
        return started
    beside = shutil.which(_NAME, path=str(Path(sys.executable).parent))
    return None if beside is None else Path(beside)


def _typed(path: Path) -> str:
    """Relative where it lies below the current folder."""
    path, here = path.absolute(), Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))


P = ParamSpec("P")

_PIPE_WIDTH = 120  # a file or a pipe has no width of its own


class Terminal(Console):
    """Prints captions and names as the data that they are.

    No markup and no emoji codes ("blind:bow:" is no picture), and control characters are shown and
    not obeyed.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(without_controls(segment.text), segment.style)


output = Terminal(width=None if sys.stdout.isatty() else _PIPE_WIDTH)
errors = Terminal(stderr=True)


def say(text: str) -> None:
    """A line of the result, which the terminal does not cut."""
    output.print(text, soft_wrap=True)


def remark(text: str, style: str = "") -> None:
    """A line about the result, on standard error."""
    errors.print(text, style=style, soft_wrap=True)


def warn(text: str) -> None:
    remark(text, "yellow")


def progress_bars() -> AbstractContextManager[Bars]:
    return bars_on(errors)


def plainly(verb: Callable[P, None], *, resumes: bool = False) -> Callable[P, None]:
    """A verb whose errors are one line without a traceback, with the exit status that fits.

    `resumes` says whether the same command, given again, goes on where this one was stopped.
    COUNTERPOINT_TRACEBACK=1 shows the traceback of what is explained here.
    """
    return _explained(resumes)(verb)


@contextmanager
def _explained(resumes: bool) -> Iterator[None]:
    try:
        yield
    except (BrokenPipeError, typer.Exit, SystemExit):
        raise
    except BaseException as error:  # a panic of compiled code is no Exception
        if status := stop_status(error):
            told = "what was computed is kept, the same command goes on from there"
            errors.print(f"interrupted; {told if resumes else 'nothing was written'}.")
            raise typer.Exit(status) from None
        known = error if isinstance(error, CounterpointError) else explain(error)
        if known is None or os.environ.get("COUNTERPOINT_TRACEBACK"):
            raise
        errors.print(f"error: {known} [{known.code}]", style="red", soft_wrap=True)
        raise typer.Exit(1) from None


def print_json(rows: Sequence[dict[str, Any]]) -> None:
    """One JSON array, one row per line; numbers to six significant digits."""
    lines = ",\n".join(
        json.dumps(_rounded(row), ensure_ascii=False, allow_nan=False) for row in rows
    )
    sys.stdout.write(f"[\n{lines}\n]\n" if rows else "[]\n")


def _rounded(value: Any) -> Any:
    """A value with its fractions rounded to what they mean; what is not a number is null."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value


def counted(number: int, what: str) -> str:
    """ "1 case", "2 cases"."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")
