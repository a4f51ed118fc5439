"""A crash-safe, content-addressed store of model outputs: one SQLite file for all runs.

A commit is atomic and on disk when it returns, so a killed process loses at most its current batch
and never leaves half of one. Every value has a checksum: a value that was damaged on disk counts as
missing and is computed again.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Final

import platformdirs

from counterpoint._util.errors import StoreError, reason
from counterpoint._util.untrusted import shortened

DIGEST: Final = 16
_FILE: Final = "results.sqlite"  # a new format needs a new name
_CHECKSUM: Final = 8
_PATIENCE: Final = 600  # seconds that another process may hold the file
_LOG: Final = logging.getLogger(__name__)

_OPEN: Final = (
    # Of a new file. A vector of 512 numbers leaves half of a page of 4096 bytes empty.
    "PRAGMA page_size = 16384",
    "PRAGMA cell_size_check = ON",  # damaged pages are noticed before they are used
    "PRAGMA cache_size = -65536",  # kibibytes
    "BEGIN IMMEDIATE",  # one process makes the table, others wait
    "CREATE TABLE IF NOT EXISTS results (key BLOB PRIMARY KEY, value BLOB)",
    "COMMIT",
)
_GET: Final = "SELECT key, value FROM results WHERE key IN ({})"
_TOGETHER: Final = 500  # keys that are looked up by one statement
_PUT: Final = "INSERT OR REPLACE INTO results (key, value) VALUES (?, ?)"

_ELSEWHERE: Final = "set COUNTERPOINT_CACHE to another place"
_REASONS: Final = {
    sqlite3.SQLITE_FULL: f"its disk is full; free some space, or {_ELSEWHERE}",
    sqlite3.SQLITE_READONLY: f"it is read-only; {_ELSEWHERE}",
    sqlite3.SQLITE_PERM: f"permission denied; {_ELSEWHERE}",
    sqlite3.SQLITE_CANTOPEN: f"its file cannot be opened; check its permissions, or {_ELSEWHERE}",
    sqlite3.SQLITE_IOERR: f"its disk reports an error; check the disk, or {_ELSEWHERE}",
    sqlite3.SQLITE_BUSY: f"another process holds its lock; end that process, or {_ELSEWHERE}",
}


def default_store() -> Path:
    """`$COUNTERPOINT_CACHE/store`, or the user's cache folder."""
    cache = os.environ.get("COUNTERPOINT_CACHE") or platformdirs.user_cache_dir("counterpoint")
    return Path(cache) / "store"


def digest(*parts: str | bytes) -> bytes:
    """A key from its parts. Their lengths are hashed too, so two lists of parts never collide."""
    state = hashlib.blake2b(digest_size=DIGEST)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.digest()


class Store:
    """Bytes by key. Any number of processes and threads may use one folder at the same time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()  # threads share one connection
        self._waiting: dict[bytes, bytes] = {}
        self._damaged: set[bytes] = set()
        with self._using("opened"):
            folder.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(
                folder / _FILE, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
            )
            self._connection.text_factory = bytes  # a damaged value may pass for a text
            try:
                for statement in _OPEN:
                    self._connection.execute(statement)
            except BaseException:
                self._connection.close()
                raise

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            with suppress(StoreError):
                self.put({})  # values that wait for the next `put`
        for note in self.notes():
            _LOG.warning(note)
        self._connection.close()

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [value for values in self._read(keys) for value in values]

    def _read(self, keys: Sequence[bytes]) -> Iterator[list[bytes | None]]:
        """The values of keys, some at a time, as of one moment."""
        with self._using("read"), self._connection:  # which ends the transaction
            self._connection.execute("BEGIN")
            for start in range(0, len(keys), _TOGETHER):
                some = keys[start : start + _TOGETHER]
                marks = ", ".join("?" * len(some))
                rows = dict(self._connection.execute(_GET.format(marks), some).fetchall())
                yield [self._value(key, rows) for key in some]

    def _value(self, key: bytes, rows: Mapping[bytes, object]) -> bytes | None:
        if key in self._waiting:
            return self._waiting[key]
        if key not in rows:
            return None
        found = rows[key]
        if isinstance(found, bytes) and found[:_CHECKSUM] == _checksum(key, found[_CHECKSUM:]):
            return found[_CHECKSUM:]
        self._damaged.add(key)
        return None

    def has(self, key: bytes) -> bool:
        return self.get([key]) != [None]

    def missing(self, keys: Sequence[bytes]) -> list[bytes]:
        """The keys that are not stored, each once, in order."""
        unique = list(dict.fromkeys(keys))
        stored = (value is not None for values in self._read(unique) for value in values)
        return [key for key, is_there in zip(unique, stored, strict=True) if not is_there]

    def put(self, items: Mapping[bytes, bytes]) -> None:
        """Write all of `items` or none; on disk when it returns."""
        with self._using("written"):
            written = {**self._waiting, **items}
            if written:
                with self._connection:  # which commits, or rolls back
                    self._connection.execute("BEGIN IMMEDIATE")
                    rows = ((key, _checksum(key, value) + value) for key, value in written.items())
                    self._connection.executemany(_PUT, rows)
            self._waiting = {}

    def remember(self, key: bytes, value: bytes) -> None:
        """Write with the next `put`: for values that may be lost without harm."""
        with self._lock:
            self._waiting[key] = value

    def notes(self) -> list[str]:
        """Messages about values that were damaged since the last call."""
        with self._lock:
            count, self._damaged = len(self._damaged), set()
        if not count:
            return []
        return [
            f"{count:,} stored results in {self.folder} were damaged and have been computed again; "
            "check the disk."
        ]

    @contextmanager
    def _using(self, how: str) -> Iterator[None]:
        """One thread at a time; errors name the folder."""
        with self._lock:
            try:
                yield
            except OSError as error:
                code = "E-STORE-UNUSABLE"
                why = f"{reason(error)}, or {_ELSEWHERE}"
            except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter of a damaged schema
                kind = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without its finer kinds
                code = "E-STORE-UNUSABLE" if kind in _REASONS else "E-STORE-DAMAGED"
                damaged = (
                    f"it is damaged ({shortened(error)}); delete the folder to start a new one"
                )
                why = _REASONS.get(kind, f"{damaged}, or {_ELSEWHERE}")
            else:
                return
        said = f"the store in {self.folder} cannot be {how}: {why}."
        raise StoreError(code, said)


def _checksum(key: bytes, value: bytes) -> bytes:
    """The key goes in: a damaged index may lead to the value of another key."""
    return hashlib.blake2b(value, key=key, digest_size=_CHECKSUM).digest()
