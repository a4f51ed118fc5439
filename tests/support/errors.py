"""Errors by their code: sentences may be improved, codes and data stay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from counterpoint import CounterpointError


@contextmanager
def raises(code: str, **data: object) -> Iterator[pytest.ExceptionInfo[CounterpointError]]:
    with pytest.raises(CounterpointError) as caught:
        yield caught
    assert caught.value.code == code, f"{caught.value.code}: {caught.value}"
    assert {name: caught.value.data.get(name) for name in data} == data
