"""Fill the store for models that see an image and texts together: pairs, and choices."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from counterpoint.errors import ImageError, ModelError
from counterpoint.scoring.encode import broken_pictures, fill
from counterpoint.scoring.kinds import Announcing, RefusedInputsError
from counterpoint.scoring.left_out import Scored, leave_out_images, leave_out_items, used_images
from counterpoint.scoring.plan import Plan
from counterpoint.scoring.store import digest

if TYPE_CHECKING:
    from counterpoint.scoring.work import Work

_HOPELESS: Final = 32  # questions
_IMAGES: Final = 4  # with so many images: one may be refused with every text

Item = tuple[int, ...]  # numbers into a plan: an image, and the texts that are seen with it


def fill_items(
    ask: Callable[..., np.ndarray],
    wanted: Callable[[], Collection[Item]],
    owner: tuple[object, str, str],
    plan: Plan,
    scored: dict[str, Scored],
    work: Work,
) -> Callable[[Item], bytes]:
    """Make sure that a number for every item is stored; returns what makes an item's key.

    `ask` takes pictures, and as many lists of texts as an item has. `wanted` lists the items of
    what is not left out: images that cannot be had, and items that the model refuses, are left out
    here. `owner` is the model, its fingerprint and what an item is called.
    """
    model, fingerprint, what = owner
    pictures: dict[int, bytes] = {}
    failures: dict[int, str] = {}
    for number in used_images(plan, scored).tolist():
        try:
            pictures[number] = plan.pictures[number].key(work.store)
        except ImageError as error:
            failures[number] = str(error)
    leave_out_images(plan, failures, scored)

    def key(item: Item) -> bytes:
        texts = (plan.texts[text] for text in item[1:])
        return digest(fingerprint, what, pictures[item[0]], *texts)

    # A model opens its images itself: those it will have to open are tried first, so that one that
    # cannot be opened costs its cases and not the run.
    keys = {item: key(item) for item in wanted()}
    missing = set(work.store.missing(list(keys.values())))
    numbers = sorted({image for (image, *_), found in keys.items() if found in missing})
    broken = broken_pictures([plan.pictures[i] for i in numbers])
    leave_out_images(plan, {numbers[i]: why for i, why in broken.items()}, scored)
    items = {keys[item]: item for item in wanted()}
    answered = len(items.keys() - missing)  # in runs before this one
    refused: dict[Item, str] = {}

    def compute(some: list[Item]) -> np.ndarray:
        nonlocal answered
        images, *texts = zip(*some, strict=True)
        lists = ([plan.texts[text] for text in column] for column in texts)
        try:
            values = ask([plan.pictures[i] for i in images], *lists)
        except RefusedInputsError as error:
            answered += len(some) - len(error.reasons)
            refused.update({some[place]: why for place, why in error.reasons.items()})
            if not answered:
                _refuse_hopeless(refused)
            raise
        answered += len(some)
        return values

    label = f"{what}s"
    if isinstance(model, Announcing):
        label = f"{label}: {model.announce(len(missing & items.keys()))}"
    owned, progress = f"{fingerprint} {what}s", work.progress
    fill(compute, items, work.store, work.batch, progress, label, owned, may_refuse=True)
    reasons = {keys[item]: why for item, why in refused.items()}
    same = {item: reasons[found] for item, found in keys.items() if found in reasons}
    leave_out_items(plan, same, scored)
    return key


def _refuse_hopeless(refused: Mapping[Item, str]) -> None:
    """So much refused and nothing answered: it is the model, not what it is asked."""
    if len(refused) >= _HOPELESS and len({image for image, *_ in refused}) >= _IMAGES:
        raise ModelError(
            f"the model refuses all of the first {len(refused):,} questions, so no more are asked: "
            f"{next(iter(refused.values()))}"
        ) from None
