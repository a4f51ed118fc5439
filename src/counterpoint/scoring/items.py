"""Fill the store for models that see an image and texts together: pairs and choices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from counterpoint._util.errors import ImageError, ModelError
from counterpoint._util.store import digest
from counterpoint.images import Photographs, Picture
from counterpoint.scoring.encode import ItemBatch, fill, in_pieces, unread_key
from counterpoint.scoring.kinds import Announcing, Work
from counterpoint.scoring.plan import Plan, Scored, leave_out_images, leave_out_items, used_images
from counterpoint.scoring.workers import Computed, failure_of

_HOPELESS: Final = 32  # refused questions after which the model is given up
_IMAGES: Final = 4  # if they are of this many images: a single image may be refused with every text
_UNREAD: Final = 0.1  # of the answers: with more that cannot be read there are no scores

Item = tuple[int, ...]  # numbers into a plan: an image, and the texts that are seen with it


def fill_items(
    model: Any,
    task: str,
    what: str,
    wanted: Callable[[], np.ndarray],
    plan: Plan,
    scored: dict[str, Scored],
    work: Work,
) -> Callable[[np.ndarray], list[bytes]]:
    """Store a number for every item; returns the function that makes keys of items (rows).

    The model's method `task` takes pictures, and as many lists of texts as an item has. `wanted`
    has the items of all cases that are not left out, a row each, images in order. Images that
    cannot be read and items that the model refuses are left out here. `what` is the word for an
    item.
    """
    pictures = _picture_keys(plan, scored, work)

    def keys_of(items: np.ndarray) -> list[bytes]:
        images = [pictures[image] for image in items[:, 0].tolist()]
        texts = [plan.texts.take(column) for column in items[:, 1:].T]
        fingerprint = model.fingerprint
        return [digest(fingerprint, what, *parts) for parts in zip(images, *texts, strict=True)]

    items, label = wanted(), f"{what}s"
    losses = _Losses(len(items) * getattr(model, "requests_each", 1))
    photographs = Photographs()
    if isinstance(model, Announcing):
        pieces = in_pieces(items)
        missing = sum(len(work.store.missing(keys_of(piece))) for piece in pieces)
        label = f"{label}: {model.announce(missing)}"
        losses.answered = missing < len(items)  # in earlier runs

    def asked() -> Iterator[dict[bytes, tuple[Any, ...]]]:
        for piece in in_pieces(items):
            numbers = np.unique(piece[:, 0]).tolist()
            opened = {number: plan.pictures[number].sharing(photographs) for number in numbers}
            images = (opened[image] for image in piece[:, 0].tolist())
            texts = (plan.texts.take(column) for column in piece[:, 1:].T)
            yield dict(zip(keys_of(piece), zip(images, *texts, strict=True), strict=True))

    fill(model, task, asked(), len(items), work, f"{what}s", label=label, taken=losses)
    if losses.refused or losses.broken:
        _leave_out(losses, items, keys_of, plan, scored)
    if not losses.unread:
        return keys_of
    return lambda items: [
        unread_key(key) if key in losses.unread else key for key in keys_of(items)
    ]


def unique_rows(parts: Iterable[np.ndarray], width: int) -> np.ndarray:
    """The different rows of small numbers, in order. Two columns take eight bytes a row."""
    if width != 2:
        found = [part.reshape(-1, width) for part in parts]
        rows = np.concatenate(found) if found else np.empty((0, width), dtype=np.int64)
        return np.unique(rows, axis=0)
    packed = [np.unique(part[:, 0].astype(np.int64) << 32 | part[:, 1]) for part in parts]
    one = np.unique(np.concatenate(packed)) if packed else np.empty(0, dtype=np.int64)
    return one.view(np.int32).reshape(-1, 2)[:, ::-1]  # the lower half comes first


def _leave_out(
    losses: _Losses,
    items: np.ndarray,
    keys_of: Callable[[np.ndarray], list[bytes]],
    plan: Plan,
    scored: dict[str, Scored],
) -> None:
    """Items of one content share a key and a result, so they are lost together."""
    refused: dict[Item, str] = {}
    broken: dict[int, str] = {}
    for piece in in_pieces(items):
        for key, item in zip(keys_of(piece), piece.tolist(), strict=True):
            if key in losses.refused:
                refused[tuple(item)] = losses.refused[key]
            elif key in losses.broken and item[0] not in broken:
                picture = plan.pictures[item[0]]
                broken[item[0]] = failure_of(picture) or losses.broken[key]
    leave_out_images(plan, broken, scored)
    leave_out_items(plan, refused, scored)


class _Losses:
    """Collects what is not computed, by key. `answers` are those that all items take."""

    def __init__(self, answers: int) -> None:
        self.refused: dict[bytes, str] = {}
        self.broken: dict[bytes, str] = {}
        self.unread: dict[bytes, Sequence[str]] = {}
        self.images: set[Picture] = set()  # of refused and unread items
        self.answers, self.answered = answers, False

    def __call__(self, batch: ItemBatch, outcome: Computed) -> None:
        self.answered |= len(outcome.values) > len(outcome.unread)
        self.broken |= {batch.keys[n]: why for n, why in outcome.broken.items()}
        self.refused |= {batch.keys[n]: why for n, why in outcome.refused.items()}
        self.unread |= {batch.keys[n]: said for n, said in outcome.unread.items()}
        self.images |= {batch.columns[0][n] for n in (*outcome.refused, *outcome.unread)}
        if outcome.unread:
            self._refuse_unread()
        if outcome.refused and self._hopeless():
            raise ModelError(
                "E-MODEL-REFUSES",
                f"the model refuses all of the first {len(self.refused):,} questions, so no more "
                f"are asked: {next(iter(outcome.refused.values()))}",
            )

    def _hopeless(self) -> bool:
        """Many refusals and no answer: the model is the reason, not the items."""
        many = len(self.refused) + len(self.unread) >= _HOPELESS and len(self.images) >= _IMAGES
        return many and not self.answered

    def _refuse_unread(self) -> None:
        unread = sum(map(len, self.unread.values()))
        if unread > _UNREAD * self.answers or self._hopeless():
            first = next(iter(self.unread.values()))[0]
            raise ModelError(
                "E-ANSWERS-UNREAD",
                f"{unread:,} of the model's answers to {self.answers:,} requests cannot be read "
                f"(the first: {first!r:.80}), more than {100 * _UNREAD:.0f} % make no score: no "
                "more are asked for, and no run is written; answers that could be read are kept, "
                "so that the next run asks for the others alone.",
            )


def _picture_keys(plan: Plan, scored: dict[str, Scored], work: Work) -> dict[int, bytes]:
    """The keys of the images that are needed; images that cannot be read are left out."""
    found: dict[int, bytes] = {}
    failures: dict[int, str] = {}
    for number in used_images(plan, scored).tolist():
        try:
            found[number] = plan.pictures[number].key(work.store)
        except ImageError as error:
            failures[number] = str(error)
    leave_out_images(plan, failures, scored)
    return found
