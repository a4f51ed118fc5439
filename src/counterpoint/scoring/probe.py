"""A linear probe: logistic regression on a model's image vectors, which come from the store.

Vectors are centred and divided by one number, so that a strength of the L2 penalty means the same
for every model. The strength is the one that is right most often on a fifth of the training images
of each class, which are held out; of equal ones, the strongest. Then all training images are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from counterpoint._util.errors import DataError, ModelError
from counterpoint.cases import Cases
from counterpoint.scoring.encode import encode_images, stored
from counterpoint.scoring.kinds import DualEncoder, Model, Work
from counterpoint.scoring.plan import Scored, leave_out_images, make_plan

STRENGTHS: Final = tuple(10.0**power for power in range(2, -7, -1))
_HELD_OUT: Final = 5  # one image in so many
_ROWS: Final = 16_384  # images whose probabilities are in memory at a time
_STEPS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Probed:
    """The scores of test images, and what they rest on. `left_out`: why training images are."""

    scored: Scored
    strength: float
    training: int
    held_out: int
    right: int  # of those held out
    shared: int  # test images that are training images, too
    left_out: tuple[str, ...]

    def describe(self, name: str) -> str:
        said = (
            f"{name}: fitted to {self.training:,} images with an L2 penalty of {self.strength:g}, "
            f"with which {self.right:,} of {self.held_out:,} held out were right"
        )
        return f"{said}; {self.shared:,} test images are training images" if self.shared else said


def score_probe(model: Model, name: str, training: Cases, cases: Cases, work: Work) -> Probed:
    """Fit to one case of training images and score one case of test images: a logit per class."""
    if not isinstance(model, DualEncoder):
        raise ModelError(
            "E-MODEL-UNSUITABLE",
            f"{name} needs a model with image vectors, a dual encoder; "
            f"{type(model).__name__} is none.",
        )
    plan = make_plan({"training": training, "test": cases})
    encoded = encode_images(model, plan.pictures, work)
    width = int(cases.caption_counts[0])
    test = Scored(np.full(cases.pair_offsets[-1], np.nan, dtype=np.float32))
    train = Scored(np.empty(0, dtype=np.float32))
    leave_out_images(plan, encoded.failures, {"training": train, "test": test})
    readable = np.array([bool(key) for key in encoded.keys])

    seen = plan.shares["training"].images
    lost = seen[~readable[seen]].tolist()
    labels = np.array(training.frame["truth"][0].to_list())[readable[seen]] % width
    seen = seen[readable[seen]]
    _refuse_few(name, labels)
    vectors = stored([encoded.keys[i] for i in seen.tolist()], work.store)
    middle, spread = vectors.mean(axis=0), float(vectors.std(axis=0).mean()) or 1.0
    inputs = (vectors - middle) / spread
    held = _held_out(labels)
    strength, right = _choose(inputs, labels, held, width)
    weights = fit_logistic(inputs, labels, width, strength)

    asked = plan.shares["test"].images
    places = np.flatnonzero(readable[asked])
    if len(places):
        shown = stored([encoded.keys[i] for i in asked[places].tolist()], work.store)
        logits = _logits((shown - middle) / spread, weights)
        test.scores.reshape(-1, width)[places] = logits.astype(np.float32)
    keys = {encoded.keys[i] for i in seen.tolist()}
    shared = sum(encoded.keys[i] in keys for i in asked[places].tolist())
    why = tuple(encoded.failures[i] for i in lost)
    return Probed(test, strength, len(seen), int(held.sum()), right, shared, why)


def _refuse_few(name: str, labels: np.ndarray) -> None:
    counts = np.unique(labels, return_counts=True)[1]
    if len(counts) < 2 or counts.max() < 2:
        raise DataError(
            "E-TRAINING-FEW",
            f"{name}: {len(labels):,} training images of {len(counts):,} classes can be read; it "
            "needs two classes, and two images of one of them.",
        )


def _held_out(labels: np.ndarray) -> np.ndarray:
    """Marks a fifth of the images of each class, one at least and never all."""
    marks = np.zeros(len(labels), dtype=bool)
    draw = np.random.default_rng(0)
    for label in np.unique(labels):
        mine = draw.permutation(np.flatnonzero(labels == label))
        if len(mine) > 1:
            marks[mine[: max(1, len(mine) // _HELD_OUT)]] = True
    return marks


def _choose(
    inputs: np.ndarray, labels: np.ndarray, held: np.ndarray, classes: int
) -> tuple[float, int]:
    """The strength that is right most often on what is held out, and how often it is."""
    best, most, weights = STRENGTHS[0], -1, None
    for strength in STRENGTHS:
        weights = fit_logistic(inputs[~held], labels[~held], classes, strength, weights)
        right = int((_logits(inputs[held], weights).argmax(axis=1) == labels[held]).sum())
        if right > most:
            best, most = strength, right
    return best, most


def fit_logistic(
    inputs: np.ndarray,
    labels: np.ndarray,
    classes: int,
    strength: float,
    start: np.ndarray | None = None,
) -> np.ndarray:
    """Weights (d + 1, classes) that minimise the mean cross-entropy + strength / 2 x their squares.

    The last line is the bias, which is not penalised.
    """
    from scipy.optimize import minimize  # slow to import

    size = inputs.shape[1]

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(size + 1, classes)
        total, slope = 0.0, np.zeros_like(weights)
        for begin in range(0, len(inputs), _ROWS):
            rows = inputs[begin : begin + _ROWS].astype(np.float64)
            true = labels[begin : begin + _ROWS]
            logits = rows @ weights[:-1] + weights[-1]
            logits -= logits.max(axis=1, keepdims=True)
            sums = np.exp(logits).sum(axis=1, keepdims=True)
            total -= float((logits[np.arange(len(true)), true] - np.log(sums[:, 0])).sum())
            excess = np.exp(logits) / sums
            excess[np.arange(len(true)), true] -= 1
            slope[:-1] += rows.T @ excess
            slope[-1] += excess.sum(axis=0)
        slope /= len(inputs)
        slope[:-1] += strength * weights[:-1]
        penalty = strength / 2 * float((weights[:-1] ** 2).sum())
        return total / len(inputs) + penalty, slope.reshape(-1)

    first = np.zeros((size + 1, classes)) if start is None else start
    found: Any = minimize(
        loss, first.reshape(-1), jac=True, method="L-BFGS-B", options={"maxiter": _STEPS}
    )
    weights: np.ndarray = found.x.reshape(size + 1, classes)
    return weights


def _logits(inputs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    logits: np.ndarray = inputs @ weights[:-1] + weights[-1]
    return logits
