"""Detectors of what is synthetic: BiVLC's rule to the letter, also in the engine."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from detector_support import HEADS, IDENTITY, families, save_noise
from engine_support import build
from models_for_tests import Towers, choice, is_sentence, pixels, run_engine
from support import gallery, owned

from counterpoint.cases.galleries import DETECTION
from counterpoint.cases.table import PROMPTS, Case, Cases, ImageRef
from counterpoint.images import Picture
from counterpoint.metrics import definitions
from counterpoint.models.detector.adapter import (
    Detector,
    DetectorHeads,
    LinearHead,
    SavedDetector,
    case_scores,
)
from counterpoint.scoring.kinds import BenchmarkScorer, Described

__all__ = ["families"]  # fixtures
JUST_SYNTHETIC = math.nextafter(0.5, 1)
GRID = (0.0, 0.3, math.nextafter(0.5, 0), 0.5, JUST_SYNTHETIC, 0.7, 1.0)
SINGLE = ("image_to_text_0", "image_to_text_1", "text_to_image_0", "text_to_image_1")


# --- the rule ----------------------------------------------------------------------------------


def rule(q: Sequence[float], p: Sequence[float]) -> dict[str, bool]:
    """The paper's verdicts on a case of two images (q) and two captions (p)."""
    found = {
        "image_to_text_0": round(q[0]) == 0 and p[0] < p[1],
        "image_to_text_1": round(q[1]) == 1 and p[0] < p[1],
        "text_to_image_0": round(p[0]) == 0 and q[0] < q[1],
        "text_to_image_1": round(p[1]) == 1 and q[0] < q[1],
    }
    found["image_to_text"] = found["image_to_text_0"] and found["image_to_text_1"]
    found["text_to_image"] = found["text_to_image_0"] and found["text_to_image_1"]
    found["group"] = found["image_to_text"] and found["text_to_image"]
    return found


def assert_rule(images: np.ndarray, captions: np.ndarray) -> dict[str, float]:
    """Our metrics on the scores give the rule's verdicts; returns how many are right."""
    truth = np.broadcast_to(IDENTITY, (len(images), 2, 2))
    scores = case_scores(images, captions, truth)
    assert scores.dtype == np.float32 and scores.shape == truth.shape
    expected = [rule(q, p) for q, p in zip(images.tolist(), captions.tolist(), strict=True)]
    for name in expected[0]:
        found = getattr(definitions, name)(scores, truth)
        assert found.tolist() == [float(verdicts[name]) for verdicts in expected], name
    return {name: np.mean([verdicts[name] for verdicts in expected]) for name in expected[0]}


def test_the_metrics_give_the_papers_verdicts_for_all_of_a_grid() -> None:
    every = np.array(list(itertools.product(GRID, repeat=4)))
    shares = assert_rule(every[:, :2], every[:, 2:])
    assert all(0 < share < 0.5 for share in shares.values())


def test_swapped_captions_are_known_by_the_truth() -> None:
    every = np.array(list(itertools.product(GRID, repeat=4)))
    straight = case_scores(
        every[:, :2], every[:, 2:], np.broadcast_to(IDENTITY, (len(every), 2, 2))
    )
    crossed = np.broadcast_to(IDENTITY[::-1], (len(every), 2, 2))
    swapped = case_scores(every[:, :2], every[:, :1:-1], crossed)
    np.testing.assert_array_equal(swapped, straight[:, :, ::-1])


@pytest.mark.parametrize(("positives", "negatives"), [(1, 1), (2, 1), (1, 3)])
def test_one_image_is_not_asked(positives: int, negatives: int) -> None:
    count = positives + negatives
    every = np.array(list(itertools.product(GRID[1:6], repeat=1 + count)))
    truth = np.broadcast_to(np.arange(count) < positives, (len(every), 1, count))
    scores = case_scores(every[:, :1], every[:, 1:], truth)
    original = [p[0] < min(p[positives:]) for _, *p in every.tolist()]
    augmented = [max(p[:positives]) < min(p[positives:]) for _, *p in every.tolist()]
    assert definitions.original_accuracy(scores, truth).tolist() == original
    assert definitions.augmented_accuracy(scores, truth).tolist() == augmented
    assert 0.05 < np.mean(augmented) <= np.mean(original) < 0.5


# --- in the engine -----------------------------------------------------------------------------


def detector(encoder: Towers | None = None, heads: DetectorHeads = HEADS) -> Detector:
    chosen = encoder or Towers()
    return Detector(chosen, SavedDetector(heads, "towers", chosen.fingerprint, {"heads": []}))


def chance_synthetic(head: LinearHead, vector: np.ndarray) -> float:
    return 1 / (1 + math.exp(-(float(vector @ head.weight.astype(float)) + float(head.bias[0]))))


def probabilities(case: Case, root: Path | None) -> tuple[list[float], list[float]]:
    encoder = Towers()
    shown = [pixels(Picture(ref, root).open()) for ref in case.images]
    images = [encoder.encode_images([one])[0].astype(float) for one in shown]
    captions = [encoder.encode_captions([one])[0].astype(float) for one in case.captions]
    return (
        [chance_synthetic(HEADS.image, vector) for vector in images],
        [chance_synthetic(HEADS.caption, vector) for vector in captions],
    )


def two_by_two(root: Path, count: int) -> Cases:
    names = [f"{n}.png" for n in range(2 * count)]
    for number, name in enumerate(names):
        save_noise(root / name, number)
    truth = ((True, False), (False, True))
    return build(
        *(
            Case(
                str(n),
                (ImageRef(names[2 * n]), ImageRef(names[2 * n + 1])),
                (f"yes {n}", f"no {n}"),
                truth,
            )
            for n in range(count)
        ),
        root=root,
    )


def test_the_engine_gives_the_papers_verdicts(tmp_path: Path) -> None:
    cases = two_by_two(tmp_path, 30)
    found = run_engine(detector(), {"x": cases}, tmp_path / "store")["x"]
    assert found.left_out == {} and np.isfinite(found.scores).all()
    scores = found.scores.reshape(-1, 2, 2)
    truth = np.broadcast_to(IDENTITY, scores.shape)
    expected = [rule(*probabilities(cases.case(row), tmp_path)) for row in range(30)]
    for name in (*SINGLE, "image_to_text", "text_to_image", "group"):
        verdicts = getattr(definitions, name)(scores, truth).tolist()
        assert verdicts == [float(one[name]) for one in expected], name
    assert 0 < sum(one["image_to_text_0"] for one in expected) < 30


def test_other_shapes_missing_images_and_texts_are_left_out(tmp_path: Path) -> None:
    pair = two_by_two(tmp_path, 1).case(0)
    both_true = ((True, True), (False, True))
    cases = build(
        replace(pair, id="pair"),
        replace(pair, id="unclear", truth=both_true),
        gallery(
            owned(6), "g", images=[f"{n % 2}.png" for n in range(6)], captions=list("abcdefghijkl")
        ),
        choice("one", "0.png", "yes", "no", "never"),
        choice("gone", "gone.png", "yes", "no"),
        choice("text", "text:a dog", "a hound", "a cat"),
        choice("long", "1.png", "one two three four", "one"),
        root=tmp_path,
    )
    model = detector(Towers(context=5))
    found = run_engine(model, {"x": cases}, tmp_path / "store", overlong="leave out")["x"]
    assert sorted(found.left_out) == [1, 2, 4, 5, 6] and found.left_out_images == {}
    assert all(is_sentence(why) for why in found.left_out.values())
    assert "two images with a caption each" in found.left_out[1]
    assert "gone.png" in found.left_out[4] and "too long" in found.left_out[6]
    starts = cases.pair_offsets
    for row in range(len(cases)):
        gone = np.isnan(found.scores[starts[row] : starts[row + 1]])
        assert gone.all() if row in found.left_out else not gone.any()

    cut = run_engine(model, {"x": cases}, tmp_path / "store")["x"]
    assert sorted(cut.left_out) == [1, 2, 4, 5] and cut.cut_captions == 1


def test_detection_itself_is_a_gallery_of_two_classes(tmp_path: Path) -> None:
    """BiVLC's Table 4: images by the head for images, captions in their place by the other."""
    pairs = two_by_two(tmp_path, 20)
    rows = [pairs.case(row) for row in range(20)]
    truth = [[side == 0, side == 1] for _ in rows for side in (0, 1)]
    asked = {
        "images": [ref.path for one in rows for ref in one.images],
        "captions": [f"text:{text}" for one in rows for text in one.captions],
    }
    every = [probabilities(one, tmp_path) for one in rows]
    expected = {
        "images": np.array([q for q, _ in every]).reshape(-1),
        "captions": np.array([p for _, p in every]).reshape(-1),
    }
    right = np.tile([0, 1], 20)
    for name, items in asked.items():
        case = gallery(np.array(truth), "0", images=items, captions=list(DETECTION))
        found = run_engine(detector(), {"x": build(case, root=tmp_path)}, tmp_path / "store")["x"]
        scores = found.scores.reshape(40, 2)
        assert found.left_out == {} and (scores[:, 0] != scores[:, 1]).all()
        chosen = scores.argmax(axis=1)
        assert chosen.tolist() == np.round(expected[name]).tolist()
        assert 0 < (chosen == right).mean() < 1


def test_a_half_is_natural_and_a_missing_image_is_left_out(tmp_path: Path) -> None:
    zero = LinearHead(np.zeros(16, np.float32), np.float32([0]))
    save_noise(tmp_path / "a.png", 0)
    truth = np.array([[True, False]] * 5 + [[False, True]])
    images = ["a.png"] * 5 + ["gone.png"]
    case = gallery(truth, "0", images=images, captions=list(DETECTION))
    model = detector(heads=DetectorHeads(zero, zero))
    found = run_engine(model, {"x": build(case, root=tmp_path)}, tmp_path / "store")["x"]
    scores = found.scores.reshape(6, 2)
    assert (scores[:5, 0] > scores[:5, 1]).all() and np.isnan(scores[5]).all()
    assert list(found.left_out_images[0]) == [5]
    other = gallery(truth, "0", images=images, captions=["synthetic", "natural"])
    found = run_engine(model, {"x": build(other, root=tmp_path)}, tmp_path / "store")["x"]
    assert list(found.left_out) == [0]


def test_a_caption_of_several_prompts_has_their_mean_probability(tmp_path: Path) -> None:
    save_noise(tmp_path / "a.png", 0)
    texts = [f"word {n}" for n in range(6)]
    chances = probabilities(Case("", (), tuple(texts), ()), None)[1]
    order = np.argsort(chances)
    groups = [order[[0, 5]], order[[1]], order[[2, 3]]]
    means = np.array([[np.mean([chances[i] for i in group]) for group in groups]])
    assert means.argmin() == 1  # by their first prompts, it would be 0
    captions = [PROMPTS.join(texts[i] for i in group) for group in groups]
    cases = build(choice("1", "a.png", *captions), root=tmp_path)
    found = run_engine(detector(), {"x": cases}, tmp_path / "store")["x"].scores
    truth = np.array([[[True, False, False]]])
    np.testing.assert_array_equal(found, case_scores(np.array([[0.2]]), means, truth).reshape(-1))


def test_vectors_are_those_the_encoder_has_stored(tmp_path: Path) -> None:
    cases = {"x": two_by_two(tmp_path, 3)}
    run_engine(Towers(), cases, tmp_path / "store")
    encoder = Towers()
    run_engine(detector(encoder), cases, tmp_path / "store")
    assert encoder.images == encoder.captions == []


def test_a_sure_head_does_not_tie() -> None:
    """In float32 both probabilities are 1."""
    head = LinearHead(np.full(1, 20, np.float32), np.zeros(1, np.float32))
    one, two = head.probabilities(np.float32([[0.99], [1.0]]))
    assert one < two and np.float32(one) == np.float32(two) == 1


def test_the_fingerprint_covers_encoder_and_heads() -> None:
    first = detector().fingerprint
    assert first == detector().fingerprint
    moved = HEADS.image._replace(bias=HEADS.image.bias + np.float32(1e-3))
    others = [
        detector(Towers("another")),
        detector(heads=HEADS._replace(image=moved)),
        detector(heads=DetectorHeads(HEADS.caption, HEADS.image)),
    ]
    assert len({first, *(other.fingerprint for other in others)}) == 4
    assert isinstance(detector(), BenchmarkScorer) and isinstance(detector(), Described)
    assert detector().describe() == {"detector": {"heads": []}}
