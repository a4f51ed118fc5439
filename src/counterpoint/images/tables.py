"""Images inside Parquet files, as the hub publishes them: a column of `{bytes, path}`.

A Parquet file is read a row group at a time, and images are asked for in their order: the last few
row groups stay in memory, encoded, so that each is read about once.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from counterpoint._util.errors import ImageError
from counterpoint._util.untrusted import open_regular, shortened

_HELD: Final = 4  # row groups; a case has up to two columns, and threads read ahead


class _Groups:
    """The row groups that were read last."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._held: OrderedDict[tuple[Any, ...], Any] = OrderedDict()

    def values(self, path: Path, column: str, row: int) -> tuple[Any, int]:
        """A row group's column that holds the row, and the row's place in it."""
        with open_regular(path) as opened:
            stat = os.fstat(opened.fileno())
        with self._lock:  # one read for all threads that want the same group
            with pq.ParquetFile(path) as file:
                number, place = _find(file, row)
                times = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
                key = (path.absolute(), *times, column, number)
                if key not in self._held:
                    table = file.read_row_group(number, columns=[column])
                    self._held[key] = table.column(column)
            self._held.move_to_end(key)
            while len(self._held) > _HELD:
                self._held.popitem(last=False)
            return self._held[key], place


def _find(file: Any, row: int) -> tuple[int, int]:
    for number in range(file.metadata.num_row_groups):
        size = file.metadata.row_group(number).num_rows
        if row < size:
            return number, row
        row -= size
    raise IndexError


_GROUPS: Final = _Groups()


def read_cell(path: Path, column: str, row: int) -> bytes:
    """The encoded image in a cell."""
    where = f"image {shortened(f'{path}#{column}/{row}')}"
    try:
        values, place = _GROUPS.values(path, column, row)
        value = values[place].as_py()
    except FileNotFoundError:
        raise ImageError("E-IMAGE-MISSING", f"image {shortened(path)}: no such file.") from None
    except (KeyError, IndexError):
        raise ImageError("E-IMAGE-MISSING", f"{where}: the table has no such cell.") from None
    except (OSError, ValueError, pa.ArrowException) as error:
        why = shortened(error).rstrip(". ")
        raise ImageError("E-IMAGE-UNREADABLE", f"{where}: cannot be read: {why}.") from None
    data = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(data, bytes):
        raise ImageError("E-IMAGE-MISSING", f"{where}: the cell holds no image.")
    return data
