"""Fill the store for models that see an image and texts together: pairs and choices."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

import numpy as np

from counterpoint._util.errors import ImageError, ModelError
from counterpoint._util.store import digest
from counterpoint.scoring.encode import broken_pictures, fill
from counterpoint.scoring.kinds import Announcing, RefusedInputsError
from counterpoint.scoring.plan import Plan, Scored, leave_out_images, leave_out_items, used_images

if TYPE_CHECKING:
    from counterpoint.scoring.kinds import Work


_HOPELESS: Final = 32  # refused questions after which the model is given up
_IMAGES: Final = 4  # if they are of this many images: a single image may be refused with every text

Item = tuple[int, ...]  # numbers into a plan: an image, and the texts that are seen with it


def fill_items(
    ask: Callable[..., np.ndarray],
    wanted: Callable[[], Collection[Item]],
    owner: tuple[object, str, str],
    plan: Plan,
    scored: dict[str, Scored],
    work: Work,
) -> Callable[[Item], bytes]:
    """Store a number for every item; returns the function that makes an item's key.

    `ask` takes pictures, and as many lists of texts as an item has. `wanted` lists the items of all
    cases that are not left out. Images that cannot be read and items that the model refuses are
    left out here. `owner` is the model, its fingerprint and the word for an item.
    """
    model, fingerprint, what = owner
    pictures = _picture_keys(plan, scored, work)

    def key(item: Item) -> bytes:
        texts = (plan.texts[text] for text in item[1:])
        return digest(fingerprint, what, pictures[item[0]], *texts)

    # The model opens its images itself. They are tried first, so that a broken image costs its
    # cases and not the run.
    keys = {item: key(item) for item in wanted()}
    missing = set(work.store.missing(list(keys.values())))
    numbers = sorted({image for (image, *_), found in keys.items() if found in missing})
    broken = broken_pictures([plan.pictures[i] for i in numbers])
    leave_out_images(plan, {numbers[i]: why for i, why in broken.items()}, scored)
    items = {keys[item]: item for item in wanted()}
    label = f"{what}s"
    if isinstance(model, Announcing):
        label = f"{label}: {model.announce(len(missing & items.keys()))}"
    asking = _Asking(ask, plan, answered=len(items.keys() - missing))
    owned, progress = f"{fingerprint} {what}s", work.progress
    fill(asking, items, work.store, work.batch, progress, label, owned, may_refuse=True)
    reasons = {keys[item]: why for item, why in asking.refused.items()}
    refused = {item: reasons[found] for item, found in keys.items() if found in reasons}
    leave_out_items(plan, refused, scored)
    return key


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


class _Asking:
    """Asks a model and collects what it refuses. `answered` starts with those of earlier runs."""

    def __init__(self, ask: Callable[..., np.ndarray], plan: Plan, answered: int) -> None:
        self.ask, self.plan, self.answered = ask, plan, answered
        self.refused: dict[Item, str] = {}

    def __call__(self, items: list[Item]) -> np.ndarray:
        images, *texts = zip(*items, strict=True)
        lists = ([self.plan.texts[text] for text in column] for column in texts)
        try:
            values = self.ask([self.plan.pictures[i] for i in images], *lists)
        except RefusedInputsError as error:
            self.answered += len(items) - len(error.reasons)
            self.refused |= {items[place]: why for place, why in error.reasons.items()}
            if self._hopeless():
                raise ModelError(
                    "E-MODEL-REFUSES",
                    f"the model refuses all of the first {len(self.refused):,} questions, so no "
                    f"more are asked: {error}",
                    questions=len(self.refused),
                ) from None
            raise
        self.answered += len(items)
        return values

    def _hopeless(self) -> bool:
        """Many refusals and no answer: the model is the reason, not the items."""
        images = {image for image, *_ in self.refused}
        return not self.answered and len(self.refused) >= _HOPELESS and len(images) >= _IMAGES
