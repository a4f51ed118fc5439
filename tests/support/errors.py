"""Errors by their code, which stays when a sentence is improved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from counterpoint import CounterpointError


@contextmanager
def raises(code: str, *told: object) -> Iterator[pytest.ExceptionInfo[CounterpointError]]:
    """`told` are what the sentence names: a path, a row, a key."""
    with pytest.raises(CounterpointError) as caught:
        yield caught
    assert caught.value.code == code, f"{caught.value.code}: {caught.value}"
    missing = [str(part) for part in told if str(part) not in str(caught.value)]
    assert not missing, f"{missing} not in: {caught.value}"
