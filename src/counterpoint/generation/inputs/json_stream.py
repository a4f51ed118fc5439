"""One JSON document of any length, read as a stream with bounded memory and time.

The memory of ijson grows with the square of the nesting, and its time with the square of the length
of a text. So documents that are nested too deeply, or have very long texts, are refused first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from counterpoint._util.errors import DataError, reason
from counterpoint._util.untrusted import shortened

DEPTH: Final = 100  # lists and objects within each other
LENGTH: Final = 1 << 22  # bytes of a text, a number or blanks
_BUFFER: Final = 1 << 16  # bytes read at a time
_MARK: Final = b"\xef\xbb\xbf"
_ESCAPE: Final = re.compile(rb"\\.", re.DOTALL)


class JsonFile:
    """A file whose reading ends with an error where its JSON exceeds the bounds."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path, self.file = path, file
        self._rest = b""  # a backslash whose next character was not read yet
        self._quoted = False
        self._depth = self._run = 0  # the run: bytes since the last mark

    def read(self, size: int = -1) -> bytes:
        chunk = self.file.read(size)
        plain = _ESCAPE.sub(b"  ", self._rest + chunk)
        self._rest = b"\\" if plain.endswith(b"\\") else b""
        if plain:
            self._measure(np.frombuffer(plain, np.uint8))
        return chunk

    def _measure(self, data: np.ndarray) -> None:
        quotes = data == ord('"')
        outside = np.logical_xor.accumulate(quotes) == self._quoted
        opened = outside & ((data == ord("[")) | (data == ord("{")))
        closed = outside & ((data == ord("]")) | (data == ord("}")))
        depths = self._depth + np.cumsum(opened.astype(np.int8) - closed.astype(np.int8))
        marks = np.flatnonzero(quotes | opened | closed | (outside & (data == ord(","))))
        edges = np.concatenate(([-1 - self._run], marks, [len(data)]))
        self._quoted, self._depth = not outside[-1], int(depths[-1])
        self._run = int(edges[-1] - edges[-2]) - 1
        if depths.max() > DEPTH:
            raise DataError(
                "E-JSON-INVALID", f"{self.path}: it is nested more than {DEPTH} levels deep."
            )
        if np.diff(edges).max() > LENGTH:
            raise DataError(
                "E-JSON-INVALID", f"{self.path}: a text or number has more than {LENGTH:,} bytes."
            )


@contextmanager
def json_stream(path: Path) -> Iterator[JsonFile]:
    """The file, after a byte order mark. Invalid JSON becomes one DataError."""
    import ijson

    try:
        with path.open("rb") as file:
            if file.read(len(_MARK)) != _MARK:
                file.seek(0)
            try:
                yield JsonFile(path, file)
            except (ijson.JSONError, ValueError, OverflowError, RecursionError) as error:
                # The parser reads ahead by one block, so the position is approximate.
                why = shortened(str(error).partition("\n")[0]).rstrip(". ") or type(error).__name__
                place = f"before byte {file.tell():,}"
                raise DataError(
                    "E-JSON-INVALID", f"{path}: {place}: not valid JSON: {why}."
                ) from None
    except OSError as error:
        raise DataError("E-FILE-UNREADABLE", f"{path}: cannot be read: {reason(error)}.") from None


def json_events(path: Path) -> Iterator[tuple[str, Any]]:
    """The events of the parser, one after another."""
    import ijson

    with json_stream(path) as file:
        yield from ijson.basic_parse(file, use_float=True, buf_size=_BUFFER)


def json_items(path: Path, prefix: str) -> Iterator[Any]:
    """The values at a place of the document, one after another."""
    import ijson

    with json_stream(path) as file:
        yield from ijson.items(file, prefix, use_float=True, buf_size=_BUFFER)


def json_pairs(path: Path) -> Iterator[tuple[str, Any]]:
    """The keys and values of the document, which is an object."""
    import ijson

    with json_stream(path) as file:
        yield from ijson.kvitems(file, "", use_float=True, buf_size=_BUFFER)


def is_list(path: Path) -> bool:
    """Whether the document is a list."""
    return next((event == "start_array" for event, _ in json_events(path)), False)
