"""What can go wrong, as a tree. Each message is one sentence: what, where, what to do.

    CounterpointError
    +-- CaseError            a case table is malformed
    +-- DataError            a data set's file is missing, malformed or cannot be had
    +-- NotFoundError        no model, benchmark or protocol of that name
    +-- MissingExtraError    an optional dependency is not installed
    +-- ModelError           a model cannot be loaded or used as asked
    +-- ImageError           an image is missing or cannot be read
    +-- StoreError           the embedding store is damaged or cannot be opened
    +-- RunError             a run folder is missing, damaged or does not fit
    +-- SceneCodeError       a text does not describe a world scene   (world/scene.py)
    +-- GrammarError         a caption is not one of the world's      (world/grammar.py)

The command line prints the message without a traceback and exits with status 1.
"""

from __future__ import annotations

import errno
from typing import Final

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
    errno.EIO: "the disk reports an error",
    errno.EMFILE: "too many files are open; raise the limit with ulimit -n",
}


def reason(error: OSError) -> str:
    """What the operating system says, in words that say what to do."""
    said = error.strerror or " ".join(str(error).split()) or type(error).__name__
    return _REASONS.get(error.errno or 0, said)


class CounterpointError(Exception):
    """Base of every error that a user can cause."""


class CaseError(CounterpointError):
    """A case table is malformed."""


class DataError(CounterpointError):
    """A data set's file is missing, malformed or cannot be had."""


class NotFoundError(CounterpointError):
    """No model, benchmark or protocol of that name."""


class MissingExtraError(CounterpointError):
    """An optional dependency is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs more packages: pip install 'counterpoint[{extra}]'.")


class ModelError(CounterpointError):
    """A model cannot be loaded or used as asked."""


class ImageError(CounterpointError):
    """An image is missing or cannot be read."""


class StoreError(CounterpointError):
    """The embedding store is damaged or cannot be opened."""


class RunError(CounterpointError):
    """A run folder is missing, damaged or does not fit what was asked."""
