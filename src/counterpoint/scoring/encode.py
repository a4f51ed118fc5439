"""Fill the store: compute missing results in batches, and store them in the order of the batches.

The order of the work depends only on what was asked and on what is stored. A killed run leaves
complete batches. When it is started again, the rest is divided into the same batches as before, and
the results are the same to the byte. The batch size is found by trying, and stored.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from counterpoint._util.errors import ImageError, ModelError
from counterpoint._util.progress import Advance
from counterpoint._util.store import DIGEST, Store, digest
from counterpoint.images import Picture
from counterpoint.scoring.kinds import BlindScorer, DualEncoder, RefusedInputsError, Work
from counterpoint.scoring.plan import Texts
from counterpoint.scoring.workers import (
    ENCODE_CAPTIONS,
    ENCODE_IMAGES,
    Job,
    Laned,
    Outcome,
    Workers,
    in_threads,
    workers_of,
)

BATCH: Final = 128  # where the batch size makes no difference
_PIECE: Final = 65_536  # items that are looked up at a time
_KEY: Final = np.dtype(f"V{DIGEST}")  # a key in an array
_NUMBERS, _VECTORS = 1, 2  # dimensions of the results of a model


class BatchSize:
    """The number of items that a model takes at a time. It is halved when memory runs out.

    The size that fits is stored under `owner` (a model and its kind of items), so that the next run
    starts with it. Without a size (`most`), `tune` finds one, which is stored as well.
    """

    def __init__(
        self,
        most: int | None,
        store: Store,
        owner: str,
        tune: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._store, self._key = store, digest("batch size", owner)
        self._most, self._tune, self._size = most, tune, 0

    @property
    def size(self) -> int:
        """Found when it is first asked for: there may be nothing to compute."""
        if not self._size:
            self._size = self._find()
        return self._size

    def _find(self) -> int:
        [known] = self._store.get([self._key])
        if known is not None:
            found = int.from_bytes(known, "little")
            return found if self._most is None else min(self._most, found)
        if self._most is not None:
            return self._most
        tuned = self._tune()
        if tuned is None:
            return BATCH
        self._keep(tuned)
        return tuned

    def halve(self, tried: int, why: MemoryError) -> None:
        """`tried` items were too many."""
        if tried == 1:
            raise ModelError(
                "E-OUT-OF-MEMORY",
                f"the model does not fit into memory with a single item ({why}); "
                "use a lower --precision or another --device.",
            )
        self._size = min(self.size, tried // 2)
        self._keep(self._size)

    def _keep(self, size: int) -> None:
        self._store.put({self._key: size.to_bytes(8, "little")})


class Batch(NamedTuple):
    """Items by their keys in the store, and the lists that the model's method takes."""

    keys: list[bytes]
    columns: tuple[Sequence[Any], ...]

    def parts(self, size: int) -> Iterator[Batch]:
        for start in range(0, len(self.keys), size):
            part = slice(start, start + size)
            yield Batch(self.keys[part], tuple(column[part] for column in self.columns))


# Called with every batch and what came of it.
Taken = Callable[[Batch, Outcome], None]


class _Filler:
    """Computes batches, several at a time, and stores their results in order."""

    def __init__(
        self,
        workers: Workers,
        task: str,
        store: Store,
        size: BatchSize,
        advance: Advance,
        taken: Taken | None,
    ) -> None:
        self.workers, self.task, self.store, self.size = workers, task, store, size
        self.advance, self.taken = advance, taken
        self.busy: set[bytes] = set()  # keys that are being computed
        self.dimensions = _VECTORS if task in (ENCODE_IMAGES, ENCODE_CAPTIONS) else _NUMBERS
        self._ready: dict[bytes, bytes] = {}
        self._committed = time.monotonic()

    def run(self, batches: Iterable[Batch]) -> None:
        pending: deque[tuple[Batch, Job]] = deque()
        try:
            for batch in batches:
                self.busy.update(batch.keys)
                pending.append((batch, self.workers.submit(self.task, batch.columns)))
                if len(pending) > self.workers.ahead:
                    self._take(*pending.popleft())
            while pending:
                self._take(*pending.popleft())
        finally:
            for _, job in pending:
                job.cancel()
            self._commit()

    def _take(self, batch: Batch, job: Job) -> None:
        """Keep the results, computed in halves where memory runs out."""
        try:
            fits = len(batch.keys) <= self.size.size  # or a batch before it was too large
            outcome = job.result() if fits else None
        except MemoryError as error:
            self.size.halve(len(batch.keys), error)
            outcome = None
        if outcome is None:
            job.cancel()
            for part in batch.parts(self.size.size):
                self._take(part, self.workers.submit(self.task, part.columns))
            return
        if outcome.refused and self.taken is None:
            raise RefusedInputsError(outcome.values, outcome.refused)
        gone = outcome.refused.keys() | outcome.broken.keys()
        keys = [key for n, key in enumerate(batch.keys) if n not in gone]
        values = _checked(outcome.values, len(keys), self.dimensions)
        self._ready |= {key: value.tobytes() for key, value in zip(keys, values, strict=True)}
        self._ready |= {_broken_key(batch.keys[n]): b"" for n in outcome.broken}
        if self.taken is not None:
            self.taken(batch, outcome)
        if time.monotonic() - self._committed >= self.workers.patience:
            self._commit()
        self.advance(len(batch.keys))

    def _commit(self) -> None:
        if self._ready:
            self.store.put(self._ready)
        self.busy.difference_update(self._ready)
        self._ready, self._committed = {}, time.monotonic()


def _checked(found: np.ndarray, inputs: int, dimensions: int) -> np.ndarray:
    values = np.asarray(found, dtype=np.float32)
    if not inputs and not values.size:
        return values.reshape(0, 0)
    if values.ndim and len(values) != inputs:
        raise ModelError(
            "E-MODEL-OUTPUT",
            f"the model returned {len(values)} results for {inputs} inputs.",
            results=len(values),
            inputs=inputs,
        )
    if values.ndim != dimensions:
        wanted = "one number" if dimensions == _NUMBERS else "one vector"
        raise ModelError(
            "E-MODEL-OUTPUT",
            f"the model returned an array of shape {values.shape} for {inputs} inputs; "
            f"it should be {wanted} for each.",
            shape=values.shape,
            inputs=inputs,
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
    return values


def _broken_key(key: bytes) -> bytes:
    """Marks what could not be opened: it would change the batches of a run that goes on."""
    return digest("broken", key)


def _size(model: Any, what: str, work: Work, tune: Callable[[], int | None]) -> BatchSize:
    """The batch size of a model on its device. Most models have one size for all devices."""
    owner = f"{model.fingerprint} {what}"
    if work.batch is None and isinstance(model, Laned):
        owner = f"{owner} {model.device}"
    return BatchSize(work.batch, work.store, owner, tune)


# --- images --------------------------------------------------------------------------------------


class Encoded(NamedTuple):
    """Each image's key in the store (empty where it failed), and why the others failed."""

    keys: list[bytes]
    failures: dict[int, str]


class _Found(NamedTuple):
    picture: Picture
    key: bytes
    failure: str | None
    stored: bool


def encode_images(model: DualEncoder, pictures: Sequence[Picture], work: Work) -> Encoded:
    """Store the vectors of all images."""
    store, encoded = work.store, Encoded([], {})
    advance = work.progress.start("images", len(pictures))
    broken: dict[bytes, str] = {}
    numbers: dict[bytes, int] = {}  # the first image of each key
    others: dict[bytes, list[int]] = {}  # two paths may hold the same image

    def find(picture: Picture) -> _Found:
        try:
            key = digest(model.fingerprint, picture.key(store))
            if store.has(key):
                return _Found(picture, key, None, True)
            if store.has(_broken_key(key)):
                picture.open()  # once more, for its error
        except ImageError as error:
            return _Found(picture, b"", str(error), False)
        return _Found(picture, key, None, False)

    def batches(size: BatchSize) -> Iterator[Batch]:
        chosen: dict[bytes, Picture] = {}
        for number, found in enumerate(in_threads(find, pictures)):
            encoded.keys.append(found.key)
            if found.failure is not None:
                encoded.failures[number] = found.failure
            new = found.failure is None and not found.stored and found.key not in numbers
            if new:
                numbers[found.key] = number
                chosen[found.key] = found.picture
            else:
                if found.key in numbers:
                    others.setdefault(found.key, []).append(number)
                advance(1)
            if len(chosen) >= size.size:
                yield Batch(list(chosen), (list(chosen.values()),))
                chosen = {}
        if chosen:
            yield Batch(list(chosen), (list(chosen.values()),))

    def taken(batch: Batch, outcome: Outcome) -> None:
        broken.update({batch.keys[n]: why for n, why in outcome.broken.items()})

    with workers_of(model) as workers:
        size = _size(
            model, "images", work, lambda: _tuned(workers, ENCODE_IMAGES, _openable(pictures))
        )
        _Filler(workers, ENCODE_IMAGES, store, size, advance, taken).run(batches(size))
    for key, why in broken.items():
        encoded.failures[numbers[key]] = why
        encoded.keys[numbers[key]] = b""
        for number in others.get(key, ()):
            encoded.failures[number] = failure_of(pictures[number]) or why
            encoded.keys[number] = b""
    return encoded


def failure_of(picture: Picture) -> str | None:
    """Why a picture cannot be opened; None if it can."""
    try:
        picture.open()
    except ImageError as error:
        return str(error)
    return None


def _openable(pictures: Sequence[Picture]) -> Picture | None:
    return next((picture for picture in pictures if failure_of(picture) is None), None)


def _tuned(workers: Workers, task: str, item: object) -> int | None:
    return None if item is None else workers.tune(task, [item])


# --- captions, and all else ----------------------------------------------------------------------

Items = Mapping[bytes, tuple[Any, ...]]  # by their keys in the store


def encode_captions(
    model: DualEncoder, captions: Sequence[str], lengths: np.ndarray, work: Work
) -> list[bytes]:
    """Store the vectors of all captions, shortest first; returns their keys."""
    found: list[bytes] = fill_texts(model, _as_texts(captions), lengths, work).tolist()
    return found


def fill_texts(model: DualEncoder, texts: Texts, lengths: np.ndarray, work: Work) -> np.ndarray:
    """As `encode_captions`; the keys are packed.

    Sorting puts captions of one length together, so that a model that can cut its padding does
    little unnecessary work.
    """
    keys = packed_keys(model.fingerprint, texts)
    order = np.argsort(lengths, kind="stable")
    middle = texts[int(order[len(order) // 2])] if len(order) else ""
    pieces = _pieces(keys, texts, order)
    fill(model, ENCODE_CAPTIONS, pieces, len(keys), work, "captions", like=middle)
    return keys


def fill_captions(
    model: BlindScorer, keys: Sequence[bytes] | np.ndarray, captions: Sequence[str], work: Work
) -> None:
    """Store a blind model's number for every caption, in the order given."""
    if not isinstance(keys, np.ndarray):
        keys = np.fromiter(keys, dtype=_KEY, count=len(keys))
    pieces = _pieces(keys, _as_texts(captions), np.arange(len(keys)))
    fill(model, "score_captions", pieces, len(keys), work, "captions")


def caption_keys(fingerprint: str, captions: Iterable[str]) -> list[bytes]:
    return [digest(fingerprint, "caption", caption) for caption in captions]


def _as_texts(captions: Sequence[str]) -> Texts:
    return captions if isinstance(captions, Texts) else Texts(captions)


def packed_keys(fingerprint: str, captions: Texts) -> np.ndarray:
    """`caption_keys` in one array: a third of the memory."""
    keys = (digest(fingerprint, "caption", caption) for caption in captions)
    return np.fromiter(keys, dtype=_KEY, count=len(captions))


def _pieces(keys: np.ndarray, texts: Texts, order: np.ndarray) -> Iterator[Items]:
    for piece in in_pieces(order):
        captions = texts.take(piece)
        yield {key: (text,) for key, text in zip(keys[piece].tolist(), captions, strict=True)}


def in_pieces(numbers: np.ndarray) -> Iterator[np.ndarray]:
    """What is looked up in the store at a time."""
    for start in range(0, len(numbers), _PIECE):
        yield numbers[start : start + _PIECE]


def fill(
    model: Any,
    task: str,
    pieces: Iterable[Items],
    total: int,
    work: Work,
    what: str,
    *,
    label: str | None = None,
    taken: Taken | None = None,
    like: Any = None,
) -> None:
    """Store a number (or a vector) for every item, in the order given.

    `task` is a method of the model, and an item has one argument for each of its lists. No batch
    reaches from one piece into the next. The batch size is stored under the model and `what`; it is
    found with an argument such as `like` if none is given. With `taken`, inputs may be refused:
    they are not stored, so they are tried again the next time.
    """
    advance = work.progress.start(label or what, total)
    with workers_of(model) as workers:
        size = _size(model, what, work, lambda: _tuned(workers, task, like))
        filler = _Filler(workers, task, work.store, size, advance, taken)

        def batches() -> Iterator[Batch]:
            for items in pieces:
                missing = [key for key in work.store.missing(list(items)) if key not in filler.busy]
                advance(len(items) - len(missing))
                start = 0
                while start < len(missing):
                    keys = missing[start : start + size.size]
                    start += len(keys)
                    columns = zip(*(items[key] for key in keys), strict=True)
                    yield Batch(keys, tuple(columns))

        filler.run(batches())
