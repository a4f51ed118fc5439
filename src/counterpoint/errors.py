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
