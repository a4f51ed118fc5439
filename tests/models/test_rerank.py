"""Re-ranking, held against plain loops: lists of the k best, and what stands below them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from errors import raises
from hf_models import CAPTIONS, IMAGES, blip, clip, save
from models_for_tests import (
    Judge,
    Reader,
    Towers,
    choice,
    ragged,
    run_engine,
    write_images,
)
from support import gallery, owned

from counterpoint.cases.table import Cases
from counterpoint.models.combined import SIDES, Member, Reranker, _put_below
from counterpoint.models.registry import LoadOptions, load_model


def reranker(k: int, side: str = "both", pair: object = None) -> Reranker:
    second = Judge() if pair is None else pair
    return Reranker(Member("towers", Towers()), Member("judge", second), k, side)  # type: ignore


def listed(scores: np.ndarray, k: int, side: str) -> set[tuple[int, int]]:
    """The pairs of a block that are scored again: by sorting lists, as BLIP's code does."""
    images, captions = scores.shape
    found = set()
    if side != "captions":
        for i in range(images):
            best = sorted(range(captions), key=lambda j: (-scores[i, j], j))[:k]
            found |= {(i, j) for j in best}
    if side != "images":
        for j in range(captions):
            best = sorted(range(images), key=lambda i: (-scores[i, j], i))[:k]
            found |= {(i, j) for i in best}
    return found


def blocks(cases: Cases, scores: np.ndarray) -> list[np.ndarray]:
    ends = cases.pair_offsets
    shapes = zip(cases.image_counts.tolist(), cases.caption_counts.tolist(), strict=True)
    return [scores[ends[n] : ends[n + 1]].reshape(shape) for n, shape in enumerate(shapes)]


def check(found: np.ndarray, dual: np.ndarray, pair: np.ndarray, again: set) -> None:
    """One block: scored again as the pair scorer says, the rest below and in the old order."""
    every = {(i, j) for i in range(found.shape[0]) for j in range(found.shape[1])}
    for cell in again:
        assert found[cell] == pair[cell]
    rest = sorted(every - again, key=lambda cell: dual[cell])
    assert [found[cell] for cell in rest] == sorted(found[cell] for cell in rest)
    if rest:
        assert max(found[cell] for cell in rest) < min(found[cell] for cell in again)
        same = [scores[cell] for scores in (dual, found) for cell in rest]
        assert ranks(same[: len(rest)]) == ranks(same[len(rest) :])


def ranks(values: list[float]) -> list[int]:
    order = sorted(set(values))
    return [order.index(value) for value in values]


def retrieval(folder: Path, images: int = 7, distractors: int = 3) -> Cases:
    names = [f"{n}.png" for n in range(images)]
    write_images(folder, *names)
    made = gallery(owned(images, 2, distractors), "g", images=names)
    return Cases.build([made], root=folder, source="test")


@pytest.mark.slow
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("k", [1, 3, 6])
def test_scores_are_those_of_plain_loops(k: int, side: str, tmp_path: Path) -> None:
    benchmarks = {"retrieval": retrieval(tmp_path), "ragged": ragged(tmp_path)}
    found = run_engine(reranker(k, side), benchmarks, tmp_path / "store")
    dual, pair = (run_engine(m, benchmarks, tmp_path / "alone") for m in (Towers(), Judge()))
    for name, cases in benchmarks.items():
        assert found[name].scores.dtype == np.float32 and found[name].left_out == {}
        three = (blocks(cases, scored[name].scores) for scored in (found, dual, pair))
        for mine, first, second in zip(*three, strict=True):
            check(mine, first, second, listed(first, k, side))


# At -20 a float32 is 2e-6 from the next one, and cosines differ by as little as 1e-8.
@pytest.mark.parametrize("low", [-20, -3e5, 0.25, 0.0, -0.0, 1e-44])
def test_scores_below_the_lists_make_no_ties(low: float) -> None:
    rng = np.random.default_rng(0)
    before = (rng.normal(0.2, 0.05, 4000)).astype(np.float32)
    before[:20] = before[20:40]
    scores, rest = before.copy(), rng.random(4000) < 0.995
    _put_below(scores, rest, np.float32(low))
    assert len(set(scores[rest].tolist())) == len(set(before[rest].tolist())) > 3900
    assert np.isfinite(scores).all() and scores[rest].max() < np.float32(low)
    np.testing.assert_array_equal(
        np.argsort(scores[rest], kind="stable"), np.argsort(before[rest], kind="stable")
    )
    np.testing.assert_array_equal(scores[~rest], before[~rest])


def test_only_the_lists_are_scored_by_the_pair_scorer(tmp_path: Path) -> None:
    cases, judge = retrieval(tmp_path), Judge()
    run_engine(reranker(2, "images", judge), {"r": cases}, tmp_path / "store")
    assert len(judge.pairs) == 7 * 2 < 7 * 17
    again = Judge()  # the store has them, and the longer lists' first two
    run_engine(reranker(3, "images", again), {"r": cases}, tmp_path / "store")
    assert len(again.pairs) == 7


@pytest.mark.slow
def test_lists_that_hold_everything_are_the_pair_scorer_itself(tmp_path: Path) -> None:
    benchmarks = {"retrieval": retrieval(tmp_path), "ragged": ragged(tmp_path)}
    found = run_engine(reranker(128), benchmarks, tmp_path / "store")
    alone = run_engine(Judge(), benchmarks, tmp_path / "alone")
    for name in benchmarks:
        np.testing.assert_array_equal(found[name].scores, alone[name].scores)


# --- what is left out ---------------------------------------------------------------------------


def test_a_missing_image_costs_its_queries_or_its_case(tmp_path: Path) -> None:
    cases = retrieval(tmp_path)
    small = [choice("a", "0.png", "x", "y"), choice("b", "gone.png", "x", "y")]
    benchmarks = {"r": cases, "s": Cases.build(small, root=tmp_path, source="test")}
    (tmp_path / "3.png").unlink()
    found = run_engine(reranker(2), benchmarks, tmp_path / "store")
    assert list(found["r"].left_out_images[0]) == [3] and found["r"].left_out == {}
    lost = np.isnan(blocks(cases, found["r"].scores)[0]).all(axis=1)
    assert lost.tolist() == [n == 3 for n in range(7)]
    assert list(found["s"].left_out) == [1] and np.isnan(found["s"].scores[2:]).all()


class Picky(Judge):
    """Refuses pictures that the dual encoder takes."""

    fingerprint = "picky"

    def score_pairs(self, pictures, captions) -> np.ndarray:
        from counterpoint.scoring.kinds import RefusedInputsError

        bad = {n: "no." for n, picture in enumerate(pictures) if picture.ref.path == "2.png"}
        values = np.array([float(n) for n in range(len(captions)) if n not in bad])
        if bad:
            raise RefusedInputsError(values, bad)
        return values


def test_what_the_pair_scorer_refuses_is_left_out(tmp_path: Path) -> None:
    cases = retrieval(tmp_path)
    small = Cases.build(
        [choice("a", "2.png", "x", "y"), choice("b", "1.png", "x", "y")],
        root=tmp_path,
        source="test",
    )
    found = run_engine(reranker(2, pair=Picky()), {"r": cases, "s": small}, tmp_path / "store")
    assert list(found["r"].left_out_images[0]) == [2]
    lost = np.isnan(blocks(cases, found["r"].scores)[0])
    assert lost.all(axis=1).tolist() == [n == 2 for n in range(7)] and lost.sum() == 17
    assert list(found["s"].left_out) == [0]
    assert [math.isnan(value) for value in found["s"].scores] == [True, True, False, False]


# --- ids ---------------------------------------------------------------------------------------


def test_other_kinds_and_options_are_refused() -> None:
    with raises("E-MODEL-UNSUITABLE", "judge"):
        reranker(3, pair=Reader())
    with raises("E-MODEL-UNSUITABLE", "towers"):
        Reranker(Member("towers", Judge()), Member("judge", Judge()))
    for option in ("k=0", "k=many", "k=3&side=left"):
        with raises("E-OPTION-INVALID"):
            load_model(f"rerank:random+random?{option}")
    for id in ("rerank:world:base", "rerank:random+random+random"):
        with raises("E-MODEL-ID-INVALID", id):
            load_model(id)
    assert reranker(3).fingerprint != reranker(4).fingerprint != reranker(4, "images").fingerprint


@pytest.mark.slow
def test_tiny_models_of_the_real_classes(tmp_path: Path) -> None:
    first, second = save(tmp_path / "clip", clip), save(tmp_path / "blip", lambda: blip(room=2))
    images = [*IMAGES, *(image.rotate(90) for image in IMAGES)]
    for number, image in enumerate(images):
        image.save(tmp_path / f"{number}.png")
    names = [f"{number}.png" for number in range(6)]
    texts = [f"{text} {n}" for text in CAPTIONS for n in ("", "and a zebra")]
    texts = [*texts, "a blue ring", "two birds"]
    cases = Cases.build(
        [gallery(owned(6), "g", images=names, captions=texts)], root=tmp_path, source="test"
    )
    pair_id = f"blip-itm:{second}?score=aro"
    model = load_model(f"rerank:hf:{first}+{pair_id}?k=2&side=both", LoadOptions("cpu"))
    assert isinstance(model, Reranker) and (model.k, model.side) == (2, "both")
    assert json.loads(json.dumps(model.describe()))["members"][1]["model"] == pair_id
    found = run_engine(model, {"r": cases}, tmp_path / "store")["r"].scores
    alone = [
        run_engine(load_model(id, LoadOptions("cpu")), {"r": cases}, tmp_path / "alone")["r"].scores
        for id in (f"hf:{first}", pair_id)
    ]
    mine, dual, pair = (blocks(cases, scores)[0] for scores in (found, *alone))
    again = listed(dual, 2, "both")
    assert 12 < len(again) < 72
    for cell in again:
        assert mine[cell] == pytest.approx(pair[cell], abs=1e-5)  # other batches round otherwise
    rest = [(i, j) for i in range(6) for j in range(12) if (i, j) not in again]
    order = sorted(rest, key=lambda cell: dual[cell])
    assert [mine[cell] for cell in order] == sorted(mine[cell] for cell in rest)
    assert max(mine[cell] for cell in rest) < min(mine[cell] for cell in again)
