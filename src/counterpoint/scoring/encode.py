"""Fill the store: compute missing results in batches, and store them in the order of the batches.

The order of the work depends only on what was asked and on what is stored. A killed run leaves
complete batches. When it is started again, the rest is divided into the same batches as before, and
the results are the same to the byte. The batch size is found by trying, and stored.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np

from counterpoint._util.errors import ImageError, ModelError, StoreError
from counterpoint._util.progress import Advance
from counterpoint._util.store import DIGEST, Store, digest
from counterpoint.images import Photographs, Picture, by_photograph
from counterpoint.scoring.kinds import BlindScorer, DualEncoder, RefusedInputsError, Work
from counterpoint.scoring.plan import Pictures, Texts
from counterpoint.scoring.workers import (
    ENCODE_CAPTIONS,
    ENCODE_IMAGES,
    Computed,
    Job,
    Laned,
    Workers,
    failure_of,
    in_threads,
    workers_of,
)

BATCH: Final = 128  # where the batch size makes no difference
_PIECE: Final = 65_536  # items that are looked up at a time
_HASHING: Final = 4  # threads: more of them only wait for each other
_LOOKED_UP: Final = 256  # images, whose files have to be read for that
_READ: Final = 8192  # results that are read from the store at a time
_KEY: Final = np.dtype(f"V{DIGEST}")  # a key in an array


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
        self._most, self._tune = most, tune
        self._sizes: tuple[int, ...] = ()

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes so far, the first found when it is asked for: there may be nothing to compute.

        All batches are cut by the first size and divided by each of the others. So they are the
        same however many were begun before one did not fit.
        """
        if not self._sizes:
            self._sizes = (self._find(),)
        return self._sizes

    @property
    def size(self) -> int:
        return self.sizes[-1]

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
        self._sizes = (*self.sizes, min(self.size, tried // 2))
        self._keep(self.size)

    def _keep(self, size: int) -> None:
        self._store.put({self._key: size.to_bytes(8, "little")})


class ItemBatch(NamedTuple):
    """Items by their keys in the store, and the lists that the model's method takes."""

    keys: list[bytes]
    columns: tuple[Sequence[Any], ...]

    def parts(self, sizes: Sequence[int]) -> Iterator[ItemBatch]:
        """Divided by each size in turn."""
        if not sizes:
            yield self
            return
        for start in range(0, len(self.keys), sizes[0]):
            part = slice(start, start + sizes[0])
            columns = tuple(column[part] for column in self.columns)
            yield from ItemBatch(self.keys[part], columns).parts(sizes[1:])


# Called with every batch and what came of it.
Taken = Callable[[ItemBatch, Computed], None]


@dataclass(slots=True)
class _Filler:
    """Computes batches, several at a time, and stores their results in order."""

    workers: Workers
    task: str
    store: Store
    size: BatchSize
    advance: Advance
    taken: Taken | None
    kind: Any = np.float32
    busy: set[bytes] = field(default_factory=set)  # keys that are being computed
    _ready: dict[bytes, bytes] = field(default_factory=dict)
    _committed: float = field(default_factory=time.monotonic)

    def run(self, batches: Iterable[ItemBatch]) -> None:
        pending: deque[tuple[ItemBatch, Job]] = deque()
        try:
            for batch in (part for whole in batches for part in whole.parts(self.size.sizes)):
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

    def _take(self, batch: ItemBatch, job: Job) -> None:
        """Keep the results, computed in halves where memory runs out."""
        try:
            fits = len(batch.keys) <= self.size.size  # or a batch before it was too large
            outcome = job.result() if fits else None
        except MemoryError as error:
            self.size.halve(len(batch.keys), error)
            outcome = None
        if outcome is None:
            job.cancel()
            for part in batch.parts(self.size.sizes):
                self._take(part, self.workers.submit(self.task, part.columns))
            return
        if outcome.refused and self.taken is None:
            raise RefusedInputsError(outcome.values, outcome.refused)
        gone = outcome.refused.keys() | outcome.broken.keys()
        keys = [
            unread_key(key) if n in outcome.unread else key
            for n, key in enumerate(batch.keys)
            if n not in gone
        ]
        dimensions = 2 if self.task in (ENCODE_IMAGES, ENCODE_CAPTIONS) else 1  # or numbers
        values = _checked(outcome.values, len(keys), dimensions, self.kind)
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


def _checked(found: np.ndarray, inputs: int, dimensions: int, kind: Any) -> np.ndarray:
    values = np.asarray(found, dtype=kind)
    if not inputs and not values.size:
        return values.reshape(0, 0)
    if values.ndim and len(values) != inputs:
        why = f"{len(values)} results for {inputs} inputs"
    elif values.ndim != dimensions:
        wanted = "one number" if dimensions == 1 else "one vector"
        why = (
            f"an array of shape {values.shape} for {inputs} inputs; it should be {wanted} for each"
        )
    elif not np.isfinite(values).all():
        bad = int((~np.isfinite(values.reshape(len(values), -1)).all(axis=1)).sum())
        why = (
            f"NaN or infinity for {bad} of {len(values)} inputs; try a higher precision, or check "
        )
        why += "its weights"
    else:
        return values
    raise ModelError("E-MODEL-OUTPUT", f"the model returned {why}.")


def _broken_key(key: bytes) -> bytes:
    """Marks what could not be opened: it would change the batches of a run that goes on."""
    return digest("broken", key)


def unread_key(key: bytes) -> bytes:
    """Of a value whose answer cannot be read: the next run asks again."""
    return digest("unread", key)


def _size(model: Any, what: str, work: Work, tune: Callable[[], int | None]) -> BatchSize:
    """The batch size of a model on its device. Most models have one size for all devices."""
    device = f" {model.device}" if work.batch is None and isinstance(model, Laned) else ""
    return BatchSize(work.batch, work.store, f"{model.fingerprint} {what}{device}", tune)


def stored(keys: Sequence[bytes] | np.ndarray, store: Store) -> np.ndarray:
    """The stored results, one row per key."""
    found, absent = np.empty((0, 0), dtype=np.float32), 0
    for start in range(0, len(keys), _READ):
        piece = keys[start : start + _READ]
        values = store.get(piece.tolist() if isinstance(piece, np.ndarray) else piece)
        absent += values.count(None)
        if not absent:
            rows = np.frombuffer(b"".join(filter(None, values)), np.float32)
            rows = rows.reshape(len(values), -1)
            if not start:
                found = np.empty((len(keys), rows.shape[1]), dtype=np.float32)
            found[start : start + len(rows)] = rows
    if absent:
        raise StoreError(
            "E-STORE-DAMAGED",
            f"{absent:,} results that were in the store in {store.folder} cannot be read again: it "
            "was damaged or deleted during the run; delete the folder to start a new one, or set "
            "COUNTERPOINT_CACHE to another place.",
        )
    return found


# --- images --------------------------------------------------------------------------------------


class Encoded(NamedTuple):
    """Each image's key in the store (empty where it failed), and why the others failed."""

    keys: list[bytes]
    failures: dict[int, str]


def encode_images(model: DualEncoder, pictures: Sequence[Picture], work: Work) -> Encoded:
    """Store the vectors of all images."""
    order = np.arange(len(pictures))
    if not isinstance(pictures, Pictures) or pictures.are_crops().any():
        order = by_photograph(pictures)  # which is decoded once for its crops
        pictures = [pictures[n] for n in order.tolist()]
    images = _MissingImages(model, pictures, work)
    with workers_of(model, len(pictures)) as workers:

        def tune() -> int | None:
            picture = next((one for one in pictures if failure_of(one) is None), None)
            return None if picture is None else workers.tune(ENCODE_IMAGES, [picture])

        size = _size(model, "images", work, tune)
        kind = getattr(model, "stored_as", np.float32)  # trunks may be stored in half precision
        filler = _Filler(
            workers, ENCODE_IMAGES, work.store, size, images.advance, images.take, kind
        )
        filler.run(images.batches(size))
    found = images.finished()
    keys = [b""] * len(order)
    for place, key in zip(order.tolist(), found.keys, strict=True):
        keys[place] = key
    return Encoded(keys, {int(order[n]): why for n, why in found.failures.items()})


class _MissingImages:
    """Finds the images whose vectors are missing, and collects the keys of all."""

    def __init__(self, model: DualEncoder, pictures: Sequence[Picture], work: Work) -> None:
        self.model, self.pictures, self.store = model, pictures, work.store
        self.advance = work.progress.start("images", len(pictures))
        self.encoded = Encoded([], {})
        self._broken: dict[bytes, str] = {}
        self._first: dict[bytes, int] = {}  # the first image of each key
        self._others: dict[bytes, list[int]] = {}  # two paths may hold the same image

    def batches(self, size: BatchSize) -> Iterator[ItemBatch]:
        chosen: dict[bytes, Picture] = {}
        photographs = Photographs()
        found = in_threads(self._key, self.pictures, _HASHING)
        for start in range(0, len(self.pictures), _LOOKED_UP):
            some = self.pictures[start : start + _LOOKED_UP]
            new = self._missing(list(islice(found, len(some))), some)
            self.advance(len(some) - len(new))
            for key, picture in new.items():
                chosen[key] = picture.sharing(photographs)
                if len(chosen) >= size.sizes[0]:
                    yield ItemBatch(list(chosen), (list(chosen.values()),))
                    chosen = {}
        if chosen:
            yield ItemBatch(list(chosen), (list(chosen.values()),))

    def _key(self, picture: Picture) -> bytes | str:
        """The key of its vector, or why it has none."""
        try:
            return digest(self.model.fingerprint, picture.key(self.store))
        except ImageError as error:
            return str(error)

    def _missing(
        self, found: Sequence[bytes | str], some: Sequence[Picture]
    ) -> dict[bytes, Picture]:
        """The images that have to be computed; `encoded` gets the keys of all."""
        keys = [one for one in found if isinstance(one, bytes)]
        vectors = dict(zip(keys, self.store.get(keys), strict=True))
        marks = dict(zip(keys, self.store.get([_broken_key(key) for key in keys]), strict=True))
        chosen: dict[bytes, Picture] = {}
        for one, picture in zip(found, some, strict=True):
            number = len(self.encoded.keys)
            key, why = (one, None) if isinstance(one, bytes) else (b"", one)
            stored = vectors.get(key) is not None
            if not stored and marks.get(key) is not None:
                why = failure_of(picture)  # it is opened once more, for its error
            self.encoded.keys.append(b"" if why is not None else key)
            if why is not None:
                self.encoded.failures[number] = why
            elif not stored and key in self._first:
                self._others.setdefault(key, []).append(number)
            elif not stored:
                self._first[key], chosen[key] = number, picture
        return chosen

    def take(self, batch: ItemBatch, computed: Computed) -> None:
        self._broken |= {batch.keys[n]: why for n, why in computed.broken.items()}

    def finished(self) -> Encoded:
        """Every image of a broken content has failed, for a reason that names it."""
        for key, why in self._broken.items():
            for number in (self._first[key], *self._others.get(key, ())):
                again = number != self._first[key] and failure_of(self.pictures[number])
                self.encoded.failures[number] = again or why
                self.encoded.keys[number] = b""
        return self.encoded


# --- captions, and all else ----------------------------------------------------------------------

Items = Mapping[bytes, tuple[Any, ...]]  # by their keys in the store


def encode_captions(
    model: DualEncoder, captions: Sequence[str], lengths: np.ndarray, work: Work
) -> np.ndarray:
    """Store the vectors of all captions, shortest first; returns their keys.

    Sorting puts captions of one length together, so that a model that can cut its padding does
    little unnecessary work.
    """
    keys = caption_keys(model.fingerprint, captions)
    texts = captions if isinstance(captions, Texts) else Texts(captions)
    order = np.argsort(lengths, kind="stable")
    middle = texts[int(order[len(order) // 2])] if len(order) else ""
    pieces = _pieces(keys, texts, order)
    fill(model, ENCODE_CAPTIONS, pieces, len(keys), work, "captions", like=middle)
    return keys


def fill_captions(
    model: BlindScorer, keys: np.ndarray, captions: Sequence[str], work: Work
) -> None:
    """Store a blind model's number for every caption, in the order given."""
    texts = captions if isinstance(captions, Texts) else Texts(captions)
    pieces = _pieces(keys, texts, np.arange(len(keys)))
    fill(model, "score_captions", pieces, len(keys), work, "captions")


def caption_keys(fingerprint: str, captions: Sequence[str]) -> np.ndarray:
    """In one array: a third of the memory of a list."""
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
        tune = partial(workers.tune, task, [like])
        size = _size(model, what, work, (lambda: None) if like is None else tune)
        filler = _Filler(workers, task, work.store, size, advance, taken)

        def batches() -> Iterator[ItemBatch]:
            for items in pieces:
                missing = [key for key in work.store.missing(list(items)) if key not in filler.busy]
                advance(len(items) - len(missing))
                if missing:
                    columns = tuple(zip(*(items[key] for key in missing), strict=True))
                    yield from ItemBatch(missing, columns).parts(size.sizes[:1])

        filler.run(batches())
