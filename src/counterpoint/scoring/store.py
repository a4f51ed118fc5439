"""A crash-safe, content-addressed store of what models computed: LMDB, shared by all runs.

A commit is atomic and on disk when it returns, so a killed process loses at most the batch it was
working on and can never leave half of one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

import lmdb
import platformdirs

from counterpoint.errors import StoreError

_START_SIZE: Final = 1 << 30  # bytes of address space; doubled whenever it is full
DIGEST: Final = 16


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
    """Bytes by key. Any number of processes may use one folder at the same time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            size = max(_START_SIZE, 2 * _file_size(folder / "data.mdb"))
            # Read-ahead off: look-ups are scattered and the file may be larger than memory.
            self._env = lmdb.open(str(folder), map_size=size, max_readers=512, readahead=False)
            self._env.reader_check()  # forget the readers of killed processes
        except (lmdb.Error, OSError) as error:
            raise StoreError(
                f"the store in {folder} cannot be opened ({error}); delete the folder to start a "
                "new one, or set COUNTERPOINT_CACHE to another place."
            ) from None

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._env.close()

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._read() as transaction:
            return [
                None if (value := transaction.get(key)) is None else bytes(value) for key in keys
            ]

    def has(self, key: bytes) -> bool:
        with self._read() as transaction:
            return transaction.get(key) is not None

    def missing(self, keys: Iterable[bytes]) -> list[bytes]:
        """The keys that are not stored, each once, in order."""
        with self._read() as transaction:
            return [key for key in dict.fromkeys(keys) if transaction.get(key) is None]

    def put(self, items: Mapping[bytes, bytes]) -> None:
        """Write all of `items` or none."""
        while True:
            try:
                with self._env.begin(write=True) as transaction:
                    for key, value in items.items():
                        transaction.put(key, value)
                return
            except lmdb.MapFullError:
                self._env.set_mapsize(2 * self._env.info()["map_size"])
            except lmdb.MapResizedError:
                self._env.set_mapsize(0)
            except lmdb.Error as error:
                raise StoreError(
                    f"the store in {self.folder} cannot be written: {error}."
                ) from None

    def _read(self) -> lmdb.Transaction:
        try:
            return self._env.begin(buffers=False)
        except lmdb.MapResizedError:  # another process has made it larger
            self._env.set_mapsize(0)
            return self._env.begin(buffers=False)


def _file_size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
