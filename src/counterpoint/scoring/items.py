"""Fill the store for models that see an image and texts together: pairs, and choices."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import numpy as np

from counterpoint.errors import ImageError
from counterpoint.scoring.encode import broken_pictures, fill
from counterpoint.scoring.kinds import Announcing
from counterpoint.scoring.left_out import Scored, leave_out_images, used_images
from counterpoint.scoring.plan import Plan
from counterpoint.scoring.store import digest

if TYPE_CHECKING:
    from counterpoint.scoring.work import Work

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
    what is not left out: images that cannot be had are left out here. `owner` is the model, its
    fingerprint and what an item is called.
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

    def compute(items: list[Item]) -> np.ndarray:
        images, *texts = zip(*items, strict=True)
        return ask(
            [plan.pictures[i] for i in images], *([plan.texts[t] for t in some] for some in texts)
        )

    # A model opens its images itself: those it will have to open are tried first, so that one that
    # cannot be opened costs its cases and not the run.
    keys = {item: key(item) for item in wanted()}
    missing = set(work.store.missing(list(keys.values())))
    numbers = sorted({image for (image, *_), found in keys.items() if found in missing})
    broken = broken_pictures([plan.pictures[i] for i in numbers])
    leave_out_images(plan, {numbers[i]: why for i, why in broken.items()}, scored)
    items = {keys[item]: item for item in wanted()}
    label = f"{what}s"
    if isinstance(model, Announcing):
        label = f"{label}: {model.announce(len(missing & items.keys()))}"
    fill(compute, items, work.store, work.batch, work.progress, label, f"{fingerprint} {what}s")
    return key
