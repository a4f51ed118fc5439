"""Commands that the program suggests, as they can be typed here."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

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
