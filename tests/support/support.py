"""Shared by the tests of cases, metrics, statistics and results: small tables, and slow metrics.

`reference` is written from the definitions (module docstring of `metrics`, the papers' formulas),
one case at a time and in plain loops, so that it can disagree with the vectorised code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from pathlib import Path

import numpy as np
from hypothesis import settings

from counterpoint.cases import Case, Cases, ImageRef, caption_case
from counterpoint.metrics import PROTOCOLS, Protocol
from counterpoint.runs import Part, Run

FEW = settings(derandomize=True, deadline=None, max_examples=25)
TIES = ("wrong", "right", "half")
Lines = Sequence[Sequence[float]]
Truth = Sequence[Sequence[bool]]


# --- tables ------------------------------------------------------------------------------------


def case(number: int, positives: int = 2, negatives: int = 1, group: str = "replace/obj") -> Case:
    return caption_case(
        f"case-{number}",
        ImageRef(f"images/{number // 2}.jpg"),
        [f"true caption {i} of {number}" for i in range(positives)],
        [f"false caption {i} of {number}" for i in range(negatives)],
        (group,) if group else (),
    )


def square(number: int, group: str = "swap/obj") -> Case:
    """Two images and two captions, as Winoground and BiVLC have them."""
    images = (ImageRef(f"images/{number}-0.jpg"), ImageRef(f"images/{number}-1.jpg"))
    captions = (f"a above b {number}", f"b above a {number}")
    truth = ((True, False), (False, True))
    return Case(f"square-{number}", images, captions, truth, (group,) if group else ())


def asked(number: int, group: str = "yes_no/Flickr30K") -> Case:
    """Two images and two questions with two answers each, as NaturalBench has them."""
    images = (ImageRef(f"images/{number}-0.jpg"), ImageRef(f"images/{number}-1.jpg"))
    captions = tuple(f"Does mole {number} {act}? {a}" for act in ("dig", "sing") for a in "YN")
    truth = ((True, False, False, True), (False, True, True, False))
    return Case(f"asked-{number}", images, captions, truth, (group,), questions=2)


GROUPS = ("replace/obj", "replace/att", "replace/rel", "swap/obj", "swap/att")


def table(count: int = 60, **shape: int) -> Cases:
    """Cases of one image, two to an image, in groups of unequal sizes."""
    sizes = np.repeat(GROUPS, (4, 3, 1, 2, 1))
    cases = [case(i, group=str(sizes[i // 2 % len(sizes)]), **shape) for i in range(count)]
    return Cases.build(cases, source="test")


def part(
    cases: Cases, scores: np.ndarray, protocol: Protocol | str = "strict", name: str = "bench"
) -> Part:
    chosen = PROTOCOLS[protocol] if isinstance(protocol, str) else protocol
    return Part(name, cases, np.asarray(scores, dtype=np.float32), chosen)


def run_of(*parts: Part, model: str = "model") -> Run:
    return Run(model, {p.benchmark: p for p in parts}, {"created": "today"})


def random_scores(cases: Cases, seed: int, values: int = 1000) -> np.ndarray:
    """Few `values` make many ties."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, values, int(cases.pair_offsets[-1])).astype(np.float32)


def random_run(cases: Cases, seed: int, *, values: int = 1000, model: str = "model") -> Run:
    return run_of(part(cases, random_scores(cases, seed, values)), model=model)


def write_lines(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


# --- random blocks -----------------------------------------------------------------------------


def random_block(
    rng: np.random.Generator, n: int, k: int, m: int, values: int = 4
) -> tuple[np.ndarray, np.ndarray]:
    """Scores with many ties, and truth in which every case has an image that says something."""
    truth = rng.random((n, k, m)) < 0.5
    sure = rng.permuted(np.tile(np.arange(m), (n, 1)), axis=1)  # one true, one false cell each
    cases, image = np.arange(n), rng.integers(0, k, n)
    truth[cases, image, sure[:, 0]] = True
    truth[cases, image, sure[:, 1]] = False
    return rng.integers(0, values, (n, k, m)).astype(float), truth


def matched_block(
    rng: np.random.Generator, n: int, k: int, values: int = 4
) -> tuple[np.ndarray, np.ndarray]:
    """Square cases whose truth is a permutation."""
    owners = rng.permuted(np.tile(np.arange(k), (n, 1)), axis=1)
    truth = owners[:, :, None] == np.arange(k)
    return rng.integers(0, values, (n, k, k)).astype(float), truth


def rendered_block(
    rng: np.random.Generator, n: int, values: int = 4
) -> tuple[np.ndarray, np.ndarray]:
    """Original and negative, each in one to three wordings and renderings, in any order."""
    images, captions = (np.concatenate([[0, 0, 1], rng.integers(0, 2, 1)]) for _ in range(2))
    images, captions = (rng.permutation(side[: rng.integers(3, 5)]) for side in (images, captions))
    if len(images) > len(captions):  # otherwise it is a gallery
        images, captions = captions, images
    truth = np.broadcast_to(images[:, None] == captions, (n, len(images), len(captions)))
    return rng.integers(0, values, truth.shape).astype(float), truth


def answered_block(
    rng: np.random.Generator, n: int, k: int, questions: int, answers: int, values: int = 3
) -> tuple[np.ndarray, np.ndarray]:
    """Captions that are answers: every image has one true answer to each question."""
    own = rng.integers(0, answers, (n, k, questions, 1))
    truth = (own == np.arange(answers)).reshape(n, k, -1)
    return rng.integers(0, values, truth.shape).astype(float), truth


# --- slow metrics ------------------------------------------------------------------------------


def reference(name: str, scores: Lines, truth: Truth, tie: str) -> float:
    """The value of one metric for one case."""
    if tie == "half":
        return (_value(name, scores, truth, "above") + _value(name, scores, truth, "below")) / 2
    return _value(name, scores, truth, {"wrong": "apart", "right": "above"}[tie])


def references(name: str, scores: np.ndarray, truth: np.ndarray, tie: str) -> list[float]:
    return [
        reference(name, s, t, tie) for s, t in zip(scores.tolist(), truth.tolist(), strict=True)
    ]


def _value(name: str, scores: Lines, truth: Truth, equal: str) -> float:
    """`equal` is what an equal score means: "apart" (neither), "above" or "below"."""
    if name.startswith("recall@"):
        places = _places(scores, truth, equal)
        return _mean([place <= int(name.removeprefix("recall@")) for place in places])
    if name.startswith("mean_score_"):
        return _mean(_cells(scores, truth)[name.removeprefix("mean_score_")])
    if name in _OUTCOMES:
        standings = [_standings(s, t, equal) for s, t in zip(scores, truth, strict=True)]
        return _mean([_OUTCOMES[name](s) for s in standings if s])
    return float(_WHOLE[name](scores, truth, equal))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")


def _standings(scores: Sequence[float], truth: Sequence[bool], equal: str) -> list[str]:
    """Where each positive of one image stands to the best negative; nothing if there is none."""
    negatives = [s for s, true in zip(scores, truth, strict=True) if not true]
    if not negatives:
        return []
    return [
        _standing(s, max(negatives), equal) for s, true in zip(scores, truth, strict=True) if true
    ]


def _standing(positive: float, negative: float, equal: str) -> str:
    if positive == negative:
        return equal
    return "above" if positive > negative else "below"


def _is_brittle(standings: list[str]) -> bool:
    return set(standings) == {"above", "below"}


_OUTCOMES: dict[str, Callable[[list[str]], bool]] = {
    "original_accuracy": lambda s: s[0] == "above",
    "augmented_accuracy": lambda s: set(s) == {"above"},
    "brittleness": _is_brittle,
    "brittle_original_above": lambda s: _is_brittle(s) and s[0] == "above",
    "brittle_original_below": lambda s: _is_brittle(s) and s[0] == "below",
    "negative_above_both": lambda s: set(s) == {"below"},
    "tied": lambda s: "apart" in s,
}


def _transposed(lines: Sequence[Sequence[float]]) -> list[list[float]]:
    return [list(column) for column in zip(*lines, strict=True)]


def _prefers(scores: Sequence[float], truth: Sequence[bool], equal: str) -> bool:
    return all(s == "above" for s in _standings(scores, truth, equal))


def _image_to_text(scores: Lines, truth: Truth, equal: str) -> bool:
    return all(_prefers(s, t, equal) for s, t in zip(scores, truth, strict=True))


def _text_to_image(scores: Lines, truth: Truth, equal: str) -> bool:
    return _image_to_text(_transposed(scores), _transposed(truth), equal)


def _group(scores: Lines, truth: Truth, equal: str) -> bool:
    return _image_to_text(scores, truth, equal) and _text_to_image(scores, truth, equal)


def _image_brittleness(scores: Lines, truth: Truth, equal: str) -> float:
    """Over the captions with two true images and a false one: the images disagree."""
    captions = zip(_transposed(scores), _transposed(truth), strict=True)
    standings = [_standings(s, t, equal) for s, t in captions]
    return _mean([_is_brittle(s) for s in standings if len(s) > 1])


def _original_group(scores: Lines, truth: Truth, equal: str) -> bool:
    """Of each image the first true caption, of each caption the first true image; nothing else."""
    images = sorted({list(column).index(True) for column in _transposed(truth) if any(column)})
    captions = sorted({list(line).index(True) for line in truth if any(line)})

    def cut(lines: Sequence[Sequence[float]]) -> list[list[float]]:
        return [[lines[i][j] for j in captions] for i in images]

    return _group(cut(scores), cut(truth), equal)


def _augmented_group(scores: Lines, truth: Truth, equal: str) -> bool:
    """The 2 x 2 group of every true cell with every true cell that shares neither line with it.

    With lines that only one of the two can have, as they are in a case of renderings and wordings.
    """
    true = [(i, j) for i, line in enumerate(truth) for j, cell in enumerate(line) if cell]
    squares = [
        ([[scores[i][j], scores[i][y]], [scores[x][j], scores[x][y]]])
        for i, j in true
        for x, y in true
        if not truth[i][y] and not truth[x][j]
    ]
    return all(_group(square, [[True, False], [False, True]], equal) for square in squares)


def _text_only(scores: Lines, truth: Truth, equal: str) -> bool:
    """The texts a and b, the negative n: s(a, b) above s(a, n) and s(b, a) above s(b, n)."""
    del truth
    (_, a_b, a_n), (b_a, _, b_n) = scores
    return _standing(a_b, a_n, equal) == _standing(b_a, b_n, equal) == "above"


def _matching(scores: Lines, truth: Truth, equal: str) -> bool:
    own, others = 0.0, []
    for order in permutations(range(len(scores))):
        total = sum(scores[image][caption] for image, caption in enumerate(order))
        if all(truth[image][caption] for image, caption in enumerate(order)):
            own = total
        else:
            others.append(total)
    return _standing(own, max(others), equal) == "above"


def _answered(scores: Lines, truth: Truth, equal: str) -> list[list[bool]]:
    """For each image, whether each of its questions is answered right."""
    questions = sum(truth[0])
    width = len(truth[0]) // questions
    found = []
    for line, true in zip(scores, truth, strict=True):
        places = [slice(at, at + width) for at in range(0, len(line), width)]
        found.append([_prefers(line[at], true[at], equal) for at in places])
    return found


def _all_of_question(scores: Lines, truth: Truth, equal: str) -> float:
    images = _answered(scores, truth, equal)
    return _mean([all(image[q] for image in images) for q in range(len(images[0]))])


def _tie_rate(scores: Lines, truth: Truth, equal: str) -> bool:
    del equal
    return any("apart" in _standings(s, t, "apart") for s, t in zip(scores, truth, strict=True))


def _places(scores: Lines, truth: Truth, equal: str) -> list[int]:
    """The place of each image's best positive if all its negatives are sorted around it."""
    places = []
    for line, true in zip(scores, truth, strict=True):
        best = max(s for s, t in zip(line, true, strict=True) if t)
        negatives = [s for s, t in zip(line, true, strict=True) if not t]
        ahead = [s for s in negatives if s > best or (s == best and equal != "above")]
        places.append(1 + len(ahead))
    return places


def _cells(scores: Lines, truth: Truth) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"original": [], "positive": [], "negative": []}
    for line, true in zip(scores, truth, strict=True):
        seen = False
        for score, is_true in zip(line, true, strict=True):
            kind = ("positive" if seen else "original") if is_true else "negative"
            seen = seen or is_true
            found[kind].append(score)
    return found


_WHOLE: dict[str, Callable[[Lines, Truth, str], float]] = {
    "image_to_text": _image_to_text,
    "text_to_image": _text_to_image,
    "group": _group,
    "original_group": _original_group,
    "augmented_group": _augmented_group,
    "image_brittleness": _image_brittleness,
    "image_to_text_0": lambda s, t, e: _prefers(s[0], t[0], e),
    "image_to_text_1": lambda s, t, e: _prefers(s[1], t[1], e),
    "text_to_image_0": lambda s, t, e: _prefers(_transposed(s)[0], _transposed(t)[0], e),
    "text_to_image_1": lambda s, t, e: _prefers(_transposed(s)[1], _transposed(t)[1], e),
    "group_matching": _matching,
    "answer_accuracy": lambda s, t, e: _mean([_mean(image) for image in _answered(s, t, e)]),
    "question_accuracy": _all_of_question,
    "image_accuracy": lambda s, t, e: _mean([all(image) for image in _answered(s, t, e)]),
    "all_answers": lambda s, t, e: all(map(all, _answered(s, t, e))),
    "text_only_accuracy": _text_only,
    "tie_rate": _tie_rate,
    "mean_rank": lambda s, t, e: _mean(_places(s, t, e)),
    "median_rank": lambda s, t, e: _mean(_places(s, t, e)),  # of one case
}


def mixed() -> Cases:
    """Captions to choose from in one group, images and captions to match in the other."""
    made = [case(i, group="replace/obj") for i in range(12)] + [square(i) for i in range(12)]
    return Cases.build(made, source="test")


# --- galleries ---------------------------------------------------------------------------------


def gallery(
    truth: np.ndarray | Sequence[Sequence[int]],
    id: str = "gallery",
    *,
    images: Sequence[str] | None = None,
    captions: Sequence[str] | None = None,
    groups: tuple[str, ...] = (),
) -> Case:
    """A case with a row of `truth` for each image."""
    block = np.asarray(truth, dtype=bool)
    k, m = block.shape
    paths = [f"{id}/{i}.png" for i in range(k)] if images is None else images
    texts = [f"caption {j} of {id}" for j in range(m)] if captions is None else captions
    refs = tuple(ImageRef(path) for path in paths)
    cells = tuple(tuple(bool(cell) for cell in line) for line in block)
    return Case(id, refs, tuple(texts), cells, groups)


def owned(images: int, each: int = 2, distractors: int = 0) -> np.ndarray:
    """Truth of a retrieval: `each` captions an image, and captions of no image behind them."""
    own = np.repeat(np.eye(images, dtype=bool), each, axis=1)
    return np.hstack([own, np.zeros((images, distractors), dtype=bool)])


def classes(numbers: Sequence[int], count: int) -> np.ndarray:
    """Truth of a classification, from the number of each image's class."""
    return np.eye(count, dtype=bool)[list(numbers)]


def random_truth(rng: np.random.Generator, k: int, m: int) -> np.ndarray:
    """Sparse or dense, with at least one true and one false cell."""
    truth = rng.random((k, m)) < rng.choice([0.1, 0.3, 0.7])
    cells = rng.permutation(k * m)[:2]
    truth.reshape(-1)[cells] = [True, False]
    return truth


def place(scores: Sequence[float], truth: Sequence[bool], tie: str) -> int | None:
    """Where the best right answer stands, from 0, if wrong ones that equal it go first ("wrong").

    None for a query that has no right answer, or no wrong one.
    """
    right = [s for s, true in zip(scores, truth, strict=True) if true]
    wrong = [s for s, true in zip(scores, truth, strict=True) if not true]
    if not right or not wrong:
        return None
    return sum(1 for s in wrong if s > max(right) or (s == max(right) and tie == "wrong"))


def found_at(scores: Sequence[float], truth: Sequence[bool], k: int, tie: str) -> float:
    """Recall@k of one query."""
    if tie == "half":
        wrong, right = (found_at(scores, truth, k, t) for t in ("wrong", "right"))
        return (wrong + right) / 2
    at = place(scores, truth, tie)
    return float("nan") if at is None else float(at < k)


def queries(scores: np.ndarray, truth: np.ndarray, side: str) -> list[tuple[list, list]]:
    """Every query's answers: its scores, and which of them are right."""
    if side == "captions":
        scores, truth = scores.T, truth.T
    return list(zip(scores.tolist(), truth.tolist(), strict=True))


def recalls(scores: np.ndarray, truth: np.ndarray, side: str, k: int, tie: str) -> list[float]:
    return [found_at(*query, k, tie) for query in queries(scores, truth, side)]
