"""Files that appear when they are whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from counterpoint.errors import DataError


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A name to write to; what was written there becomes `path` at the end, or is removed."""
    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        partial.replace(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error}.") from None
    finally:
        partial.unlink(missing_ok=True)
