"""Tables larger than memory: rows are added frame by frame, and many of them go to a file.

Up to `PIECE` rows stay in memory. With one more, all of them are written to a temporary file
without a name (in the folder that TMPDIR names), which vanishes with the process, and are read
again in pieces. What is read again is what was checked, even if the file it came from has changed.
"""

from __future__ import annotations

import io
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import IO, Final, NamedTuple

import polars as pl

from counterpoint._util.errors import CaseError, reason

PIECE = 250_000  # rows that are in memory at a time
CHUNK: Final = 50_000  # rows read, checked and written at a time


class _Segment(NamedTuple):
    """Where some rows are in the temporary file."""

    start: int
    size: int
    rows: int


def joined(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Tables one after the other; where only some have an optional column, the others get nulls."""
    alike = len({tuple(frame.columns) for frame in frames}) == 1
    return pl.concat(frames, how="vertical" if alike else "diagonal")


class SpillingTable:
    """Rows that are added at the end. Columns that only some frames have are null in the others."""

    def __init__(self) -> None:
        self.schema: dict[str, pl.DataType] = {}
        self._rows = 0
        self._frames: list[pl.DataFrame] = []  # while all is in memory
        self._file: IO[bytes] | None = None
        self._segments: list[_Segment] = []
        self._lock = Lock()  # of the place in the file

    def __len__(self) -> int:
        return self._rows

    def hold(self, frame: pl.DataFrame) -> None:
        """Add a frame that is in memory anyway."""
        self.schema |= frame.schema
        self._rows += frame.height
        self._frames.append(frame)

    def add(self, frame: pl.DataFrame) -> None:
        for name, kind in frame.schema.items():
            self.schema.setdefault(name, kind)
        self._rows += frame.height
        self._frames.append(frame)
        if self._file is not None or self._rows > PIECE:
            self._spill()

    def whole(self) -> pl.DataFrame:
        """All rows in memory."""
        if self._file is None and len(self._frames) == 1:
            return self._frames[0]
        if self._file is None and self._frames:
            self._frames = [joined(self._frames)]
            return self._frames[0]
        return joined([*self._read(None)] or [self._nothing(None)])

    def pieces(
        self, rows: int | None = None, columns: Sequence[str] | None = None
    ) -> Iterator[pl.DataFrame]:
        """The table, `rows` (PIECE) rows at a time: the last piece may have fewer. At least one."""
        size = rows or PIECE
        held: list[pl.DataFrame] = []
        count, empty = 0, True
        for frame in self._read(columns):
            while frame.height:
                taken, frame = frame[: size - count], frame[size - count :]
                held.append(taken)
                count += taken.height
                if count == size:
                    yield joined(held)
                    held, count, empty = [], 0, False
        if held or empty:
            yield joined(held) if held else self._nothing(columns)

    def _spill(self) -> None:
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="counterpoint-")  # noqa: SIM115
                weakref.finalize(self, self._file.close)
            for frame in self._frames:
                for some in frame.iter_slices(CHUNK):
                    self._write(self._file, some)
        except OSError as error:
            raise CaseError(
                "E-OUTPUT-UNWRITABLE",
                f"a table of more than {PIECE:,} cases needs a temporary file in "
                f"{tempfile.gettempdir()}, which cannot be written: {reason(error)}; set TMPDIR to "
                "another folder.",
            ) from None
        self._frames = []

    def _write(self, file: IO[bytes], frame: pl.DataFrame) -> None:
        packed = io.BytesIO()
        frame.write_ipc(packed, compression="zstd")
        with self._lock:
            start = file.seek(0, io.SEEK_END)
            file.write(packed.getbuffer())
        self._segments.append(_Segment(start, packed.tell(), frame.height))

    def _read(self, columns: Sequence[str] | None) -> Iterator[pl.DataFrame]:
        """The frames as they were added, with the columns of all."""
        if self._file is None:
            for frame in self._frames:
                yield self._aligned(frame, columns)
        for segment in self._segments:
            yield self._aligned(self._segment(segment, columns), columns)

    def _segment(self, segment: _Segment, columns: Sequence[str] | None) -> pl.DataFrame:
        assert self._file is not None
        with self._lock:
            self._file.seek(segment.start)
            packed = io.BytesIO(self._file.read(segment.size))
        if columns is None:
            return pl.read_ipc(packed)
        there = pl.read_ipc_schema(packed)
        packed.seek(0)
        return pl.read_ipc(packed, columns=[name for name in columns if name in there])

    def _nothing(self, columns: Sequence[str] | None) -> pl.DataFrame:
        names = self.schema if columns is None else columns
        return pl.DataFrame(schema={name: self.schema[name] for name in names})

    def _aligned(self, frame: pl.DataFrame, columns: Sequence[str] | None) -> pl.DataFrame:
        names = self.schema if columns is None else columns
        if frame.columns == list(names):
            return frame
        return frame.select(
            pl.col(name) if name in frame.columns else pl.lit(None, self.schema[name]).alias(name)
            for name in names
        )
