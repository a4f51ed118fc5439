"""The scores of every pair of every case; nothing is computed twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import numpy as np

from counterpoint._util.errors import ModelError
from counterpoint.cases import TEXT, Cases
from counterpoint.metrics import Overlong
from counterpoint.scoring.encode import (
    caption_keys,
    encode_captions,
    encode_images,
    fill_captions,
    in_pieces,
    stored,
)
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
    Texts,
    announce_left_out,
    kept_pairs,
    leave_out_captions,
    leave_out_images,
    leave_out_overlong,
    make_plan,
    unscored,
    used_captions,
    used_images,
)

_PIECE: Final = 16_384  # pairs whose vectors are gathered at a time
_DENSE: Final = 1_000_000  # from this many pairs on, a matrix product is faster
_TEXTS: Final = 65_536  # whose tokens are counted at a time
_TWO_IMAGES: Final = "two images: only a dual encoder can compare them."


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
    scored = unscored(benchmarks)
    if plan.pictured and not isinstance(model, DualEncoder):
        leave_out_captions(plan, dict.fromkeys(plan.pictured, _TWO_IMAGES), scored)
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
            "E-MODEL-OUTPUT", f"{type(model).__name__} did not return one finite score per pair."
        )
    return scores


def _score_dual(
    model: DualEncoder,
    plan: Plan,
    overlong: Mapping[str, Overlong],
    scored: dict[str, Scored],
    work: Work,
) -> None:
    images, texts = encode_plan(model, plan, overlong, scored, work)
    compare_vectors(
        plan,
        scored,
        lambda numbers: stored([images[number] for number in numbers.tolist()], work.store),
        lambda numbers: stored(texts[numbers], work.store),
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
        left, i = np.unique(pairs.images, return_inverse=True)
        right, j = np.unique(pairs.captions, return_inverse=True)
        return _dot(images(left), captions(right), i, j)

    for name, pairs in kept_pairs(plan, scored):
        scored[name].scores[pairs.places] = compare(pairs)


def encode_plan(
    model: DualEncoder,
    plan: Plan,
    overlong: Mapping[str, Overlong],
    scored: dict[str, Scored],
    work: Work,
) -> tuple[dict[int, bytes], np.ndarray]:
    """Store the vectors of all images and texts, and leave out what cannot be encoded.

    Returns the keys of the vectors by the numbers of images and of texts; what is left out has
    none. A text in the place of an image has the vector of a text.
    """
    lengths, pictured = _count_tokens(model, plan.texts), plan.pictured_texts()
    lengths[list(pictured)] = 0
    longest = np.maximum.reduceat(lengths[plan.prompts], plan.starts[:-1])
    shown = {
        i: plan.pictures[i].ref.path.removeprefix(TEXT)
        for i in np.flatnonzero(plan.pictures.are_texts()).tolist()
    }
    image_lengths = np.zeros(len(plan.pictures), dtype=np.int64)
    if shown:
        image_lengths[list(shown)] = model.count_tokens(list(shown.values()))
    leave_out_overlong(model.context_length, plan, longest, image_lengths, overlong, scored)
    announce_left_out(plan, scored, work.progress)

    needed = used_images(plan, scored)
    shown = {i: shown[i] for i in needed.tolist() if i in shown}
    numbers = needed[~np.isin(needed, list(shown))]
    encoded = encode_images(model, plan.pictures.only(numbers), work)
    pictures = numbers.tolist()
    leave_out_images(plan, {pictures[i]: why for i, why in encoded.failures.items()}, scored)
    images = dict(zip(pictures, encoded.keys, strict=True))

    used = np.unique(plan.prompts_of(used_captions(plan, scored))[0])
    as_captions = [number for number in used.tolist() if number in pictured]
    used = used[~np.isin(used, as_captions)]
    captions, lengths = plan.texts.only(used), lengths[used]
    if shown:
        others = sorted(set(shown.values()) - set(captions))
        captions = Texts([*captions, *others])
        lengths = np.concatenate([lengths, _count_tokens(model, Texts(others))])
    keys = encode_captions(model, captions, lengths, work)
    texts = np.zeros(len(plan.texts), dtype=keys.dtype)
    texts[used] = keys[: len(used)]
    texts[as_captions] = [images[pictured[number]] for number in as_captions]
    if shown:
        key_of = dict(zip(captions, keys.tolist(), strict=True))
        images |= {i: key_of[text] for i, text in shown.items()}
    return images, texts


def _count_tokens(model: DualEncoder, texts: Texts) -> np.ndarray:
    pieces = (texts[start : start + _TEXTS] for start in range(0, len(texts), _TEXTS))
    counts = [np.asarray(model.count_tokens(piece)) for piece in pieces]
    return np.concatenate(counts) if counts else np.zeros(0, dtype=np.int64)


def _score_pairs(model: PairScorer, plan: Plan, scored: dict[str, Scored], work: Work) -> None:
    announce_left_out(plan, scored, work.progress)
    wanted = partial(_unique_pairs, plan, scored)
    keys_of = fill_items(model, "score_pairs", "pair", wanted, plan, scored, work)

    for name, pairs in kept_pairs(plan, scored, fewer=True):
        images, texts, begins = _with_prompts(plan, pairs)
        pieces = in_pieces(np.column_stack((images, texts)))
        values = [stored(keys_of(piece), work.store)[:, 0] for piece in pieces]
        scored[name].scores[pairs.places] = _mean(np.concatenate(values), begins)


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
    for name, pairs in kept_pairs(plan, scored):
        scored[name].scores[pairs.places] = values[pairs.captions]


def _unique_pairs(plan: Plan, scored: dict[str, Scored]) -> np.ndarray:
    """Every pair of an image and a text that is asked for, once, pairs of one image together."""
    found = (_with_prompts(plan, pairs)[:2] for _, pairs in kept_pairs(plan, scored, fewer=True))
    return unique_rows((np.column_stack(pair) for pair in found), 2)


def _dot(left: np.ndarray, right: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Dot products of rows i of `left` with rows j of `right`, in float32."""
    if left.shape[1] != right.shape[1]:
        raise ModelError(
            "E-MODEL-OUTPUT",
            f"the model's image vectors have {left.shape[1]} numbers and its caption vectors "
            f"{right.shape[1]}; they cannot be compared.",
        )
    if len(i) > _DENSE and len(left) * len(right) <= 2 * len(i):  # retrieval: nearly all pairs
        products: np.ndarray = (left @ right.T)[i, j]
        return products
    found = np.empty(len(i), dtype=np.float32)
    for start in range(0, len(i), _PIECE):
        piece = slice(start, start + _PIECE)
        found[piece] = np.einsum("nd,nd->n", left[i[piece]], right[j[piece]])
    return found
