"""Models that see an image and texts together: pairs, and forced choices between two captions.

`fill_items` stores a number for every item of such a model.

A forced choice is for models that say which of two captions fits an image, without a score. A
caption's score is its mean share against the other captions of its case. It depends on these
captions, so it is not stored. The choice between two captions of an image is stored: it depends on
nothing else and is asked once for all benchmarks.

Equal shares are decided by a pseudo-random number: a tie would be a wrong answer, and a model that
always says "A" should be as good as a guess. The number depends on the image and the caption alone
and is smaller than any difference of shares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from counterpoint._util.errors import ImageError, ModelError
from counterpoint._util.store import digest
from counterpoint.cases import Cases
from counterpoint.images import Photographs, Picture
from counterpoint.scoring.encode import ItemBatch, fill, in_pieces, stored, unread_key
from counterpoint.scoring.kinds import Announcing, Work
from counterpoint.scoring.plan import (
    Plan,
    Scored,
    kept_pairs,
    leave_out_images,
    leave_out_items,
    make_plan,
    unscored,
    used_images,
)
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


# --- forced choice --------------------------------------------------------------------------------

COIN: Final = 1e-3  # shares of 32 captions are at least 1 / 62 apart
MOST: Final = 32  # captions of an image: every two of them are compared, 496 choices for 32


class ChoiceScorer(Protocol):
    """Says which of two captions fits an image better."""

    fingerprint: str

    def score_choices(
        self, pictures: Sequence[Picture], firsts: Sequence[str], seconds: Sequence[str]
    ) -> np.ndarray:
        """The first caption's share (n,): 1 if it fits better, 0 if the other does, else 0.5.

        The two are never the same and stand in alphabetical order. Choices of one image stand next
        to each other. May raise RefusedInputsError.
        """


class _ImageLine(NamedTuple):
    """An image with captions of its case that are compared, and the places of their scores."""

    image: int
    captions: np.ndarray
    places: np.ndarray


class _CaptionChoice(NamedTuple):
    """Two captions by their place in the line, and the texts that are compared for them."""

    left: int
    right: int
    item: Item


def score_by_choices(
    model: ChoiceScorer, benchmarks: Mapping[str, Cases], work: Work
) -> dict[str, Scored]:
    """As `engine.score`. The scores of a caption over images are shares among the same captions."""
    for name, cases in benchmarks.items():
        _refuse(name, cases.caption_counts)
    plan = make_plan(benchmarks)
    starts = {name: cases.choice_starts() for name, cases in benchmarks.items()}
    scored = unscored(benchmarks)

    def wanted() -> np.ndarray:
        lines = (line for _, line in _lines(plan, scored, starts))
        items = ([choice.item for choice in _asked(plan, line)] for line in lines)
        return unique_rows((np.array(found, dtype=np.int64) for found in items), 3)

    keys_of = fill_items(model, "score_choices", "choice", wanted, plan, scored, work)
    for name, line in _lines(plan, scored, starts):
        items = [choice.item for choice in _asked(plan, line)]
        asked = keys_of(np.array(items, dtype=np.int64).reshape(-1, 3))
        found = iter(stored(asked, work.store)[:, 0].tolist() if asked else ())
        shares = _mean_shares(
            len(line.captions),
            [(c, next(found) if _differ(c) else 0.5) for c in _choices(plan, line)],
        )
        scored[name].scores[line.places] = shares + COIN * _coins(plan, line)
    return scored


def _coins(plan: Plan, line: _ImageLine) -> np.ndarray:
    """A number between -1/2 and 1/2 for each caption of an image."""
    image = repr(plan.pictures[line.image].ref)
    heads = (digest("coin", image, plan.captions[i])[:4] for i in line.captions.tolist())
    return np.array([int.from_bytes(head, "little") / 2**32 - 0.5 for head in heads])


def _refuse(name: str, captions: np.ndarray) -> None:
    if captions.max() > MOST:
        why = (
            f"{captions.max():,} captions, and a forced choice compares every two of at most {MOST}"
        )
    elif captions.min() < 2:
        why = "a single caption, and a forced choice needs two"
    else:
        return
    raise ModelError(
        "E-CHOICE-CAPTIONS",
        f"{name}: a case has {why}; use a model that gives a score for each caption.",
    )


def _lines(
    plan: Plan, scored: Mapping[str, Scored], starts: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, _ImageLine]]:
    """Every image of every case that is not left out, with its benchmark's name.

    With questions there is a line for each of them: answers to different ones are not compared.
    """
    for name, pairs in kept_pairs(plan, scored):
        begins = np.isin(pairs.places, starts[name])
        columns = (np.split(column, np.flatnonzero(begins)[1:]) for column in pairs)
        for images, captions, places in zip(*columns, strict=True):
            yield name, _ImageLine(int(images[0]), captions, places)


def _choices(plan: Plan, line: _ImageLine) -> list[_CaptionChoice]:
    """Every two texts of different captions, in an order that depends on the texts alone."""
    texts, begins = plan.prompts_of(line.captions)
    owners = np.searchsorted(begins, np.arange(len(texts)), side="right") - 1
    both = sorted(
        zip(texts.tolist(), owners.tolist(), strict=True), key=lambda found: plan.texts[found[0]]
    )
    return [
        _CaptionChoice(i, j, (line.image, s, t))
        for (s, i), (t, j) in combinations(both, 2)
        if i != j
    ]


def _differ(choice: _CaptionChoice) -> bool:
    return choice.item[1] != choice.item[2]


def _asked(plan: Plan, line: _ImageLine) -> list[_CaptionChoice]:
    """The choices between different texts: a repeated caption ties with itself."""
    return [choice for choice in _choices(plan, line) if _differ(choice)]


def _mean_shares(captions: int, choices: Sequence[tuple[_CaptionChoice, float]]) -> np.ndarray:
    total, count = np.zeros(captions), np.zeros(captions)
    for choice, share in choices:
        total[[choice.left, choice.right]] += share, 1 - share
        count[[choice.left, choice.right]] += 1
    return total / count
