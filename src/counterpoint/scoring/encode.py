"""Fill the store: compute missing results in batches, each committed before the next begins.

The order of the work depends only on what was asked and on what is stored. A killed run leaves
complete batches. When it is started again, the rest is divided into the same batches as before, and
the results are the same to the byte. The batch size is found by trying, and stored.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from counterpoint._util.errors import ImageError, ModelError
from counterpoint._util.progress import Progress
from counterpoint._util.store import Store, digest
from counterpoint.images import Picture
from counterpoint.scoring.kinds import DualEncoder, RefusedInputsError

T = TypeVar("T")
R = TypeVar("R")
# Reading waits for the disk and decoding releases the interpreter: more threads than cores.
WORKERS: Final = max(4, min(16, os.cpu_count() or 4))
_NUMBERS, _VECTORS = 1, 2  # dimensions of the results of a model


class BatchSize:
    """The number of items that a model takes at a time. It is halved when memory runs out.

    The size that fits is stored under `owner` (a model and its kind of items), so that the next run
    starts with it.
    """

    def __init__(self, most: int, store: Store, owner: str) -> None:
        self._store, self._key = store, digest("batch size", owner)
        [known] = store.get([self._key])
        self.size = most if known is None else min(most, int.from_bytes(known, "little"))

    def halve(self, tried: int, why: MemoryError) -> None:
        """`tried` items were too many."""
        if tried == 1:
            raise ModelError(
                "E-OUT-OF-MEMORY",
                f"the model does not fit into memory with a single item ({why}); "
                "use a lower --precision or another --device.",
            )
        self.size = min(self.size, tried // 2)
        self._store.put({self._key: self.size.to_bytes(8, "little")})


class Encoded(NamedTuple):
    """Each image's key in the store (empty where it failed), and why the others failed."""

    keys: list[bytes]
    failures: dict[int, str]


class _Prepared(NamedTuple):
    key: bytes
    value: Any  # None if it is stored already
    failure: str | None


def encode_images(
    model: DualEncoder, pictures: Sequence[Picture], store: Store, batch: int, progress: Progress
) -> Encoded:
    """Store the vectors of all images; read, decode and preprocess in threads."""

    def prepare(picture: Picture) -> _Prepared:
        try:
            key = digest(model.fingerprint, picture.key(store))
            value = None if store.has(key) else model.preprocess(picture.open())
        except ImageError as error:
            return _Prepared(b"", None, str(error))
        return _Prepared(key, value, None)

    encoded = Encoded([], {})
    size = BatchSize(batch, store, f"{model.fingerprint} images")
    advance = progress.start("images", len(pictures))
    waiting: dict[bytes, Any] = {}
    seen: set[bytes] = set()  # two paths may hold the same picture, and threads read ahead
    for number, item in enumerate(in_threads(prepare, pictures)):
        encoded.keys.append(item.key)
        if item.failure is not None:
            encoded.failures[number] = item.failure
        elif item.value is not None and item.key not in seen:
            seen.add(item.key)
            waiting[item.key] = item.value
        if len(waiting) >= size.size:
            _commit(model.encode_images, waiting, store, size, _VECTORS)
            waiting = {}
        advance(1)
    if waiting:
        _commit(model.encode_images, waiting, store, size, _VECTORS)
    return encoded


def broken_pictures(pictures: Sequence[Picture]) -> dict[int, str]:
    """Which pictures cannot be opened, and why."""

    def failure(picture: Picture) -> str | None:
        try:
            picture.open()
        except ImageError as error:
            return str(error)
        return None

    found = enumerate(in_threads(failure, pictures))
    return {number: why for number, why in found if why is not None}


def encode_captions(
    model: DualEncoder,
    captions: Sequence[str],
    lengths: np.ndarray,
    store: Store,
    batch: int,
    progress: Progress,
) -> list[bytes]:
    """Store the vectors of all captions, shortest first; returns their keys.

    Sorting puts captions of one length together, so that a model that can cut its padding does
    little unnecessary work.
    """
    keys = caption_keys(model.fingerprint, captions)
    order = np.argsort(lengths, kind="stable").tolist()
    items = {keys[i]: captions[i] for i in order}
    owner = f"{model.fingerprint} captions"
    fill(model.encode_captions, items, store, batch, progress, "captions", owner, vectors=True)
    return keys


def caption_keys(fingerprint: str, captions: Iterable[str]) -> list[bytes]:
    return [digest(fingerprint, "caption", caption) for caption in captions]


def fill(
    compute: Callable[[list[T]], np.ndarray],
    items: Mapping[bytes, T],
    store: Store,
    batch: int,
    progress: Progress,
    what: str,
    owner: str = "",
    *,
    vectors: bool = False,
    may_refuse: bool = False,
) -> None:
    """Store a number (or a vector) for every item, in the order given.

    The batch size that fits is stored under `owner`. `compute` may raise RefusedInputsError if
    `may_refuse`: refused items are not stored, so they are tried again the next time.
    """
    size = BatchSize(batch, store, owner or what)
    advance = progress.start(what, len(items))
    missing = store.missing(list(items))
    advance(len(items) - len(missing))
    dimensions = _VECTORS if vectors else _NUMBERS
    while missing:
        keys, missing = missing[: size.size], missing[size.size :]
        chosen = {key: items[key] for key in keys}
        _commit(compute, chosen, store, size, dimensions, may_refuse=may_refuse)
        advance(len(keys))


def _commit(
    compute: Callable[[list[T]], np.ndarray],
    items: dict[bytes, T],
    store: Store,
    size: BatchSize,
    dimensions: int,
    *,
    may_refuse: bool = False,
) -> None:
    """Compute and store, in halves where memory runs out."""
    try:
        values = np.asarray(compute(list(items.values())), dtype=np.float32)
    except MemoryError as error:
        size.halve(len(items), error)
        for keys in batches(items, size.size):
            chosen = {key: items[key] for key in keys}
            _commit(compute, chosen, store, size, dimensions, may_refuse=may_refuse)
        return
    except RefusedInputsError as error:
        if not may_refuse:
            raise
        items = {k: item for n, (k, item) in enumerate(items.items()) if n not in error.reasons}
        values = np.asarray(error.values, dtype=np.float32)
    if values.ndim and len(values) != len(items):
        raise ModelError(
            "E-MODEL-OUTPUT",
            f"the model returned {len(values)} results for {len(items)} inputs.",
            results=len(values),
            inputs=len(items),
        )
    if values.ndim != dimensions:
        wanted = "one number" if dimensions == _NUMBERS else "one vector"
        raise ModelError(
            "E-MODEL-OUTPUT",
            f"the model returned an array of shape {values.shape} for {len(items)} inputs; "
            f"it should be {wanted} for each.",
            shape=values.shape,
            inputs=len(items),
        )
    if not np.isfinite(values).all():
        bad = int((~np.isfinite(values.reshape(len(values), -1)).all(axis=1)).sum())
        raise ModelError(
            "E-MODEL-OUTPUT",
            f"the model returned NaN or infinity for {bad} of {len(values)} inputs; "
            "try a higher precision, or check its weights.",
            nonfinite=bad,
            inputs=len(values),
        )
    store.put({key: value.tobytes() for key, value in zip(items, values, strict=True)})


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    stream = iter(items)
    while chosen := list(islice(stream, size)):
        yield chosen


def in_threads(function: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """`map` in worker threads, in order, with a bounded number of results waiting."""
    with ThreadPoolExecutor(WORKERS) as pool:
        pending: deque[Future[R]] = deque()
        try:
            for item in items:
                pending.append(pool.submit(function, item))
                if len(pending) >= 4 * WORKERS:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
