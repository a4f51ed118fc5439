"""The scores of every pair of every case; nothing is computed twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import numpy as np

from counterpoint._util.errors import ModelError, StoreError
from counterpoint._util.store import Store
from counterpoint.cases import Cases
from counterpoint.metrics import Overlong
from counterpoint.scoring.encode import caption_keys, encode_captions, encode_images, fill_captions
from counterpoint.scoring.items import fill_items, unique_rows
from counterpoint.scoring.kinds import (
    BenchmarkScorer,
    BlindScorer,
    DualEncoder,
    Model,
    PairScorer,
    TableScorer,
    Work,
    check_kind,
)
from counterpoint.scoring.plan import (
    Pairs,
    Plan,
    Scored,
    TokenCounts,
    announce_left_out,
    kept_pairs,
    leave_out_images,
    leave_out_overlong,
    make_plan,
    used_captions,
    used_images,
)

_PIECE = 16_384  # pairs whose vectors are gathered at a time
_DENSE = 1_000_000  # from this many pairs on, a matrix product is faster


def score(
    model: Model, benchmarks: Mapping[str, Cases], overlong: Mapping[str, Overlong], work: Work
) -> dict[str, Scored]:
    """Scores of all `benchmarks`; `overlong` says what happens to captions beyond the context."""
    check_kind(model)
    if isinstance(model, BenchmarkScorer):
        return model.score_benchmarks(benchmarks, overlong, work)
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
    else:
        _score_blind(model, plan, scored, work)
    return scored


def _table(model: TableScorer, cases: Cases) -> np.ndarray:
    scores = np.asarray(model.score_cases(cases), dtype=np.float32)
    if scores.shape != (cases.pair_offsets[-1],) or not np.isfinite(scores).all():
        raise ModelError(
            "E-MODEL-OUTPUT",
            f"{type(model).__name__} did not return one finite score per pair.",
            model=type(model).__name__,
        )
    return scores


def _score_dual(
    model: DualEncoder,
    plan: Plan,
    overlong: Mapping[str, Overlong],
    scored: dict[str, Scored],
    work: Work,
) -> None:
    images, key_of = encode_plan(model, plan, overlong, scored, work)
    compare_vectors(
        plan,
        scored,
        lambda numbers: stored([images[number] for number in numbers.tolist()], work.store),
        lambda numbers: stored([key_of[plan.texts[i]] for i in numbers.tolist()], work.store),
    )


def compare_vectors(
    plan: Plan,
    scored: dict[str, Scored],
    images: Callable[[np.ndarray], np.ndarray],
    texts: Callable[[np.ndarray], np.ndarray],
) -> None:
    """Fill in the dot products of unit vectors, which two functions give by numbers of the plan.

    A caption of several prompts has the direction of their mean.
    """

    def captions(numbers: np.ndarray) -> np.ndarray:
        prompts, begins = plan.prompts_of(numbers)
        vectors = texts(prompts)
        if len(prompts) == len(numbers):
            return vectors
        sums = np.add.reduceat(vectors, begins, axis=0)
        return sums / np.linalg.norm(sums, axis=1, keepdims=True)

    def compare(pairs: Pairs) -> np.ndarray:
        left, i = _numbered(pairs.images)
        right, j = _numbered(pairs.captions)
        return _dot(images(left), captions(right), i, j)

    _fill_scores(plan, scored, compare)


def encode_plan(
    model: DualEncoder,
    plan: Plan,
    overlong: Mapping[str, Overlong],
    scored: dict[str, Scored],
    work: Work,
) -> tuple[dict[int, bytes], dict[str, bytes]]:
    """Store the vectors of all images and texts, and leave out what cannot be encoded.

    Returns the keys of the vectors: those of images by their number, those of texts by the text.
    """
    leave_out_overlong(model.context_length, plan, _token_counts(model, plan), overlong, scored)
    announce_left_out(plan, scored, work.progress)

    numbers = [int(i) for i in used_images(plan, scored)]
    as_images = _texts(plan, numbers)
    pictures = [i for i in numbers if i not in as_images]
    encoded = encode_images(model, [plan.pictures[i] for i in pictures], work)
    leave_out_images(plan, {pictures[i]: why for i, why in encoded.failures.items()}, scored)
    images = dict(zip(pictures, encoded.keys, strict=True))

    prompts = plan.prompts_of(used_captions(plan, scored))[0]
    texts = [plan.texts[i] for i in np.unique(prompts)]
    texts += sorted(set(as_images.values()) - set(texts))
    keys = encode_captions(model, texts, np.asarray(model.count_tokens(texts)), work)
    key_of = dict(zip(texts, keys, strict=True))
    return images | {i: key_of[text] for i, text in as_images.items()}, key_of


def _token_counts(model: DualEncoder, plan: Plan) -> TokenCounts:
    lengths = np.asarray(model.count_tokens(plan.texts))
    images = np.zeros(len(plan.pictures), dtype=np.int64)
    texts = _texts(plan, range(len(plan.pictures)))
    if texts:
        images[list(texts)] = model.count_tokens(list(texts.values()))
    return TokenCounts(np.maximum.reduceat(lengths[plan.prompts], plan.starts[:-1]), images)


def _texts(plan: Plan, images: Iterable[int]) -> dict[int, str]:
    """Of some images, those in whose place a text stands."""
    found = ((image, plan.pictures[image].ref.text) for image in images)
    return {image: text for image, text in found if text is not None}


def _score_pairs(model: PairScorer, plan: Plan, scored: dict[str, Scored], work: Work) -> None:
    announce_left_out(plan, scored, work.progress)
    wanted = partial(_unique_pairs, plan, scored)
    keys_of = fill_items(model, "score_pairs", "pair", wanted, plan, scored, work)

    def compare(pairs: Pairs) -> np.ndarray:
        images, texts, begins = _with_prompts(plan, pairs)
        asked = zip(images.tolist(), texts.tolist(), strict=True)
        return _mean(stored(keys_of(asked), work.store)[:, 0], begins)

    _fill_scores(plan, scored, compare)


def _with_prompts(plan: Plan, pairs: Pairs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs of images and texts, and where each pair of an image and a caption begins."""
    texts, begins = plan.prompts_of(pairs.captions)
    sizes = np.diff(np.append(begins, len(texts)))
    return np.repeat(pairs.images, sizes), texts, begins


def _mean(values: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """The means of consecutive runs of values."""
    sizes = np.diff(np.append(begins, len(values)))
    return np.add.reduceat(values, begins) / sizes


def _score_blind(model: BlindScorer, plan: Plan, scored: dict[str, Scored], work: Work) -> None:
    keys = caption_keys(model.fingerprint, plan.texts)
    fill_captions(model, keys, plan.texts, work)
    values = _mean(stored(keys, work.store)[:, 0][plan.prompts], plan.starts[:-1])
    _fill_scores(plan, scored, lambda pairs: values[pairs.captions])


def _fill_scores(
    plan: Plan, scored: dict[str, Scored], compare: Callable[[Pairs], np.ndarray]
) -> None:
    for name, pairs in kept_pairs(plan, scored):
        scored[name].scores[pairs.places] = compare(pairs)


def _unique_pairs(plan: Plan, scored: dict[str, Scored]) -> np.ndarray:
    """Every pair of an image and a text that is asked for, once, pairs of one image together."""
    found = (_with_prompts(plan, pairs)[:2] for _, pairs in kept_pairs(plan, scored))
    return unique_rows((np.column_stack(pair) for pair in found), 2)


def _numbered(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different numbers, and each number's place among them."""
    unique, places = np.unique(numbers, return_inverse=True)
    return unique, places


def stored(keys: list[bytes], store: Store) -> np.ndarray:
    """The stored results, one row per key."""
    values = store.get(keys)
    absent = sum(value is None for value in values)
    if absent:
        raise StoreError(
            "E-STORE-DAMAGED",
            f"{absent:,} results that were in the store in {store.folder} cannot be read again: it "
            "was damaged or deleted during the run; delete the folder to start a new one, or set "
            "COUNTERPOINT_CACHE to another place.",
            path=store.folder,
            results=absent,
        )
    return np.stack(
        [np.frombuffer(value, dtype=np.float32) for value in values if value is not None]
    )


def _dot(left: np.ndarray, right: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Dot products of rows i of `left` with rows j of `right`, in float32."""
    if left.shape[1] != right.shape[1]:
        raise ModelError(
            "E-MODEL-OUTPUT",
            f"the model's image vectors have {left.shape[1]} numbers and its caption vectors "
            f"{right.shape[1]}; they cannot be compared.",
            sizes=(left.shape[1], right.shape[1]),
        )
    if len(i) > _DENSE and len(left) * len(right) <= 2 * len(i):  # retrieval: nearly all pairs
        products: np.ndarray = (left @ right.T)[i, j]
        return products
    found = np.empty(len(i), dtype=np.float32)
    for start in range(0, len(i), _PIECE):
        piece = slice(start, start + _PIECE)
        found[piece] = np.einsum("nd,nd->n", left[i[piece]], right[j[piece]])
    return found
