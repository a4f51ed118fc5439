"""Score every pair of every case, computing nothing twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from counterpoint.cases import Cases
from counterpoint.errors import ImageError, ModelError, StoreError
from counterpoint.protocols import Overlong
from counterpoint.scoring.encode import (
    broken_pictures,
    caption_keys,
    encode_captions,
    encode_images,
    fill,
)
from counterpoint.scoring.kinds import BlindScorer, DualEncoder, Model, PairScorer, TableScorer
from counterpoint.scoring.plan import Pairs, Plan, Share, make_plan
from counterpoint.scoring.progress import Progress
from counterpoint.scoring.store import Store, digest

_CHUNK = 20_000  # cases whose vectors are in memory at a time
_PIECE = 16_384  # pairs whose vectors are laid side by side at a time
_DENSE = 1_000_000  # pairs from which a matrix product pays


@dataclass(slots=True)
class Scored:
    """A benchmark's scores: one per pair, flat, NaN in the cases that are left out."""

    scores: np.ndarray
    left_out: dict[int, str] = field(default_factory=dict)  # row of the case: why
    cut_captions: int = 0


@dataclass(frozen=True, slots=True)
class Work:
    """What the engine works with."""

    store: Store
    batch: int
    progress: Progress


def score(
    model: Model, benchmarks: Mapping[str, Cases], overlong: Mapping[str, Overlong], work: Work
) -> dict[str, Scored]:
    """Scores of all `benchmarks`; `overlong` says what happens to captions beyond the context."""
    if isinstance(model, TableScorer):
        return {name: Scored(_table(model, cases)) for name, cases in benchmarks.items()}
    plan = make_plan(benchmarks)
    scored = {
        name: Scored(np.full(cases.pair_offsets[-1], np.nan, dtype=np.float32))
        for name, cases in benchmarks.items()
    }
    if isinstance(model, DualEncoder):
        _score_dual(model, plan, overlong, scored, work)
    elif isinstance(model, PairScorer):
        _score_pairs(model, plan, scored, work)
    elif isinstance(model, BlindScorer):
        _score_blind(model, plan, scored, work)
    else:
        raise ModelError(f"{type(model).__name__} is none of the kinds in scoring/kinds.py.")
    return scored


def _table(model: TableScorer, cases: Cases) -> np.ndarray:
    scores = np.asarray(model.score_cases(cases), dtype=np.float32)
    if scores.shape != (cases.pair_offsets[-1],) or not np.isfinite(scores).all():
        raise ModelError(f"{type(model).__name__} did not return one finite score per pair.")
    return scores


def _score_dual(
    model: DualEncoder,
    plan: Plan,
    overlong: Mapping[str, Overlong],
    scored: dict[str, Scored],
    work: Work,
) -> None:
    lengths = model.count_tokens(plan.captions)
    _leave_out_overlong(model, plan, lengths, overlong, scored)

    numbers = _used_images(plan, scored)
    pictures = [plan.pictures[i] for i in numbers]
    encoded = encode_images(model, pictures, work.store, work.batch, work.progress)
    _leave_out_images(plan, {int(numbers[i]): why for i, why in encoded.failures.items()}, scored)
    images = dict(zip(numbers.tolist(), encoded.keys, strict=True))

    numbers = _used_captions(plan, scored)
    texts = [plan.captions[i] for i in numbers]
    keys = encode_captions(model, texts, lengths[numbers], work.store, work.batch, work.progress)
    captions = dict(zip(numbers.tolist(), keys, strict=True))

    def compare(pairs: Pairs) -> np.ndarray:
        left, i = _vectors(pairs.images, images, work.store)
        right, j = _vectors(pairs.captions, captions, work.store)
        return _dot(left, right, i, j)

    _fill_scores(plan, scored, compare)


def _score_pairs(model: PairScorer, plan: Plan, scored: dict[str, Scored], work: Work) -> None:
    pictures: dict[int, bytes] = {}
    failures: dict[int, str] = {}
    for number in _used_images(plan, scored).tolist():
        try:
            pictures[number] = plan.pictures[number].key(work.store)
        except ImageError as error:
            failures[number] = str(error)
    _leave_out_images(plan, failures, scored)

    def key(pair: tuple[int, int]) -> bytes:
        image, caption = pair
        return digest(model.fingerprint, "pair", pictures[image], plan.captions[caption])

    def compute(pairs: list[tuple[int, int]]) -> np.ndarray:
        return model.score_pairs(
            [plan.pictures[i] for i, _ in pairs], [plan.captions[c] for _, c in pairs]
        )

    # A model opens its images itself: those it will have to open are tried first, so that one that
    # cannot be opened costs its cases and not the run.
    keys = {pair: key(pair) for pair in _unique_pairs(plan, scored)}
    missing = set(work.store.missing(list(keys.values())))
    numbers = sorted({image for (image, _), found in keys.items() if found in missing})
    broken = broken_pictures([plan.pictures[i] for i in numbers])
    _leave_out_images(plan, {numbers[i]: why for i, why in broken.items()}, scored)
    items = {keys[pair]: pair for pair in _unique_pairs(plan, scored)}
    fill(compute, items, work.store, work.batch, work.progress, "pairs")

    def compare(pairs: Pairs) -> np.ndarray:
        asked = zip(pairs.images.tolist(), pairs.captions.tolist(), strict=True)
        return _stored([key(pair) for pair in asked], work.store)[:, 0]

    _fill_scores(plan, scored, compare)


def _score_blind(model: BlindScorer, plan: Plan, scored: dict[str, Scored], work: Work) -> None:
    keys = caption_keys(model.fingerprint, plan.captions)
    items = dict(zip(keys, plan.captions, strict=True))
    fill(model.score_captions, items, work.store, work.batch, work.progress, "captions")
    values = _stored(keys, work.store)[:, 0]
    _fill_scores(plan, scored, lambda pairs: values[pairs.captions])


def _fill_scores(
    plan: Plan, scored: dict[str, Scored], compare: Callable[[Pairs], np.ndarray]
) -> None:
    for name, share in plan.shares.items():
        for rows in _kept_rows(share, scored[name]):
            pairs = share.pairs(rows)
            scored[name].scores[pairs.places] = compare(pairs)


def _unique_pairs(plan: Plan, scored: dict[str, Scored]) -> list[tuple[int, int]]:
    """Every pair that is asked for, once, pairs of one image together."""
    found: set[tuple[int, int]] = set()
    for pairs in _kept_pairs(plan, scored):
        found.update(zip(pairs.images.tolist(), pairs.captions.tolist(), strict=True))
    return sorted(found)


def _kept_pairs(plan: Plan, scored: dict[str, Scored]) -> Iterator[Pairs]:
    for name, share in plan.shares.items():
        for rows in _kept_rows(share, scored[name]):
            yield share.pairs(rows)


def _kept_rows(share: Share, scored: Scored) -> Iterator[np.ndarray]:
    """The cases that are not left out, some thousands at a time."""
    kept = np.ones(len(share.image_offsets) - 1, dtype=bool)
    kept[list(scored.left_out)] = False
    rows = np.flatnonzero(kept)
    for start in range(0, len(rows), _CHUNK):
        yield rows[start : start + _CHUNK]


def _used_images(plan: Plan, scored: dict[str, Scored]) -> np.ndarray:
    """The numbers of the images that cases which are not left out need."""
    return _marked(len(plan.pictures), (pairs.images for pairs in _kept_pairs(plan, scored)))


def _used_captions(plan: Plan, scored: dict[str, Scored]) -> np.ndarray:
    return _marked(len(plan.captions), (pairs.captions for pairs in _kept_pairs(plan, scored)))


def _marked(count: int, numbers: Iterable[np.ndarray]) -> np.ndarray:
    marks = np.zeros(count, dtype=bool)
    for some in numbers:
        marks[some] = True
    return np.flatnonzero(marks)


def _leave_out_overlong(
    model: DualEncoder,
    plan: Plan,
    lengths: np.ndarray,
    overlong: Mapping[str, Overlong],
    scored: dict[str, Scored],
) -> None:
    limit = model.context_length
    if limit is None or not (lengths > limit).any():
        return
    for name, share in plan.shares.items():
        too_long = lengths > limit
        if overlong[name] == "cut":
            scored[name].cut_captions = len(np.unique(share.captions[too_long[share.captions]]))
            continue
        for row in np.flatnonzero(share.cases_with_caption(too_long)).tolist():
            longest = max(lengths[share.captions_of(row)])
            scored[name].left_out[row] = (
                f"caption too long: {longest} tokens, the model takes {limit}."
            )


def _leave_out_images(plan: Plan, failures: dict[int, str], scored: dict[str, Scored]) -> None:
    failed = np.zeros(len(plan.pictures), dtype=bool)
    failed[list(failures)] = True
    for name, share in plan.shares.items():
        for row in np.flatnonzero(share.cases_with_image(failed)).tolist():
            why = next(failures[i] for i in share.images_of(row).tolist() if i in failures)
            scored[name].left_out.setdefault(row, why)


def _vectors(
    numbers: np.ndarray, keys: Mapping[int, bytes], store: Store
) -> tuple[np.ndarray, np.ndarray]:
    """The stored vectors of the different `numbers`, and each number's place among them."""
    unique, places = np.unique(numbers, return_inverse=True)
    return _stored([keys[number] for number in unique.tolist()], store), places


def _stored(keys: list[bytes], store: Store) -> np.ndarray:
    values = store.get(keys)
    absent = sum(value is None for value in values)
    if absent:
        raise StoreError(f"{absent} results vanished from {store.folder} while it was in use.")
    return np.stack(
        [np.frombuffer(value, dtype=np.float32) for value in values if value is not None]
    )


def _dot(left: np.ndarray, right: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Dot products of rows i of `left` with rows j of `right`, in float32."""
    if left.shape[1] != right.shape[1]:
        raise ModelError(
            f"the model's image vectors have {left.shape[1]} numbers and its caption vectors "
            f"{right.shape[1]}; they cannot be compared."
        )
    if len(i) > _DENSE and len(left) * len(right) <= 2 * len(i):  # retrieval: nearly all pairs
        products: np.ndarray = (left @ right.T)[i, j]
        return products
    found = np.empty(len(i), dtype=np.float32)
    for start in range(0, len(i), _PIECE):
        piece = slice(start, start + _PIECE)
        found[piece] = np.einsum("nd,nd->n", left[i[piece]], right[j[piece]])
    return found
