"""A crash-safe, content-addressed store of what models computed: LMDB, shared by all runs.

A commit is atomic and on disk when it returns, so a killed process loses at most the batch it was
working on and can never leave half of one.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

import lmdb
import platformdirs

from counterpoint.errors import StoreError

_START_SIZE: Final = 1 << 30  # bytes of address space; doubled whenever it is full
DIGEST: Final = 16
_DATA: Final = "data.mdb"  # LMDB's own name


def default_store() -> Path:
    """`$COUNTERPOINT_CACHE/store`, or the user's cache folder."""
    cache = os.environ.get("COUNTERPOINT_CACHE") or platformdirs.user_cache_dir("counterpoint")
    return Path(cache) / "store"


def digest(*parts: str | bytes) -> bytes:
    """A key from its parts; lengths go in, so that no two lists of parts share a key."""
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
        # LMDB may not grow its map while another thread of this process is in a transaction.
        self._lock = threading.Lock()
        self._waiting: dict[bytes, bytes] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            size = max(_START_SIZE, 2 * _file_size(folder / _DATA))
            # Read-ahead off: look-ups are scattered and the file may be larger than memory.
            self._env = lmdb.open(str(folder), map_size=size, max_readers=512, readahead=False)
            self._env.reader_check()  # forget the readers of killed processes
        except (lmdb.Error, OSError) as error:
            raise self._broken("opened", error) from None
        self._refuse_cut_file()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.put({})  # what was only remembered
        self._env.close()

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._lock:
            try:
                with self._begin() as transaction:
                    found = [transaction.get(key) for key in keys]
            except lmdb.Error as error:
                raise self._broken("read", error) from None
            return [
                self._waiting.get(key) if value is None else bytes(value)
                for key, value in zip(keys, found, strict=True)
            ]

    def has(self, key: bytes) -> bool:
        return self.get([key]) != [None]

    def missing(self, keys: Sequence[bytes]) -> list[bytes]:
        """The keys that are not stored, each once, in order."""
        unique = list(dict.fromkeys(keys))
        return [key for key, value in zip(unique, self.get(unique), strict=True) if value is None]

    def put(self, items: Mapping[bytes, bytes]) -> None:
        """Write all of `items` or none; on disk when it returns."""
        with self._lock:
            written = {**self._waiting, **items}
            while written:
                try:
                    with self._env.begin(write=True) as transaction:
                        for key, value in written.items():
                            transaction.put(key, value)
                    self._waiting, written = {}, {}
                except lmdb.MapFullError:
                    self._env.set_mapsize(2 * self._env.info()["map_size"])
                except lmdb.MapResizedError:
                    self._env.set_mapsize(0)  # another process has made it larger
                except lmdb.Error as error:
                    raise self._broken("written", error) from None

    def remember(self, key: bytes, value: bytes) -> None:
        """Write with the next `put`: for what may be lost without harm."""
        with self._lock:
            self._waiting[key] = value

    def _begin(self) -> lmdb.Transaction:
        try:
            return self._env.begin()
        except lmdb.MapResizedError:
            self._env.set_mapsize(0)
            return self._env.begin()

    def _refuse_cut_file(self) -> None:
        """A file that is shorter than its header says would end the process when it is read."""
        pages = self._env.info()["last_pgno"] + 1
        if _file_size(self.folder / _DATA) < pages * self._env.stat()["psize"]:
            self._env.close()
            raise self._broken("opened", "its file has been cut short")

    def _broken(self, what: str, why: object) -> StoreError:
        return StoreError(
            f"the store in {self.folder} cannot be {what} ({why}); delete the folder to start "
            "a new one, or set COUNTERPOINT_CACHE to another place."
        )


def _file_size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
