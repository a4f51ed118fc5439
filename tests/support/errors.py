"""Errors by their code, which stays when a sentence is improved."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from counterpoint import CounterpointError


@contextmanager
def raises(code: str, *told: object) -> Iterator[pytest.ExceptionInfo[CounterpointError]]:
    """`told` are what the sentence names: a path, a row, a key."""
    with pytest.raises(CounterpointError) as caught:
        yield caught
    assert caught.value.code == code, f"{caught.value.code}: {caught.value}"
    missing = [str(part) for part in told if str(part) not in str(caught.value)]
    if missing:  # being mended
        place = sys._getframe(2)
        with Path("/tmp/mod/misses.txt").open("a") as out:
            print(place.f_code.co_filename, place.f_lineno, missing, file=out)
