"""The baselines that see no image."""

from __future__ import annotations

import numpy as np
import pytest
from errors import raises
from support import part, run_of

from counterpoint.benchmarks.registry import load_benchmark
from counterpoint.cases.table import Cases, ImageRef, caption_case
from counterpoint.models.blind.baselines import BagOfWords, Format, Length
from counterpoint.models.registry import load_model
from counterpoint.runs import rows
from counterpoint.scoring.kinds import BlindScorer, TableScorer


def pairs(*captions: tuple[str, str], clusters: list[str] | None = None) -> Cases:
    """One true and one false caption a case, every case with an image of its own."""
    return Cases.build(
        (
            caption_case(
                str(n), ImageRef(f"{n}.jpg"), [true], [false], (), clusters[n] if clusters else ""
            )
            for n, (true, false) in enumerate(captions)
        ),
        source="test",
    )


def metric(cases: Cases, scores: np.ndarray, name: str) -> float:
    found = rows(run_of(part(cases, scores)), resamples=10)
    return next(row.value for row in found if (row.group, row.metric) == ("all", name))


# --- length ------------------------------------------------------------------------------------


def test_length_prefers_the_shorter_caption_in_characters():
    scores = Length().score_captions(["a dog", "a dog runs", "an ox", "aaaaaaaaaaa b"])
    assert scores[0] > scores[1] > scores[3]
    assert scores[0] == scores[2]  # the same length: a tie, not a coin
    assert scores.dtype == np.float32


# --- format ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messy", "neat"),
    [
        ("a dog runs", "A dog runs."),
        ("a dog runs", "A dog runs"),
        ("a dog runs", "a dog runs."),
        ("A dog runs. ", "A dog runs."),
        ("A dog  runs.", "A dog runs."),
        (" a dog runs", "a dog runs"),
    ],
)
def test_format_prefers_the_caption_that_looks_less_edited(messy, neat):
    better, worse = Format().score_captions([messy, neat])
    assert better > worse


def test_format_sees_neither_words_nor_length():
    scores = Format().score_captions(["A dog.", "The very long story of a cat and a mouse."])
    assert scores[0] == scores[1]


# --- bag of words ------------------------------------------------------------------------------


def random_words(rng: np.random.Generator, vocabulary: int = 300, count: int = 5) -> str:
    return " ".join(f"word{i}" for i in rng.integers(vocabulary, size=count))


def test_bow_finds_a_word_that_gives_the_negatives_away():
    rng = np.random.default_rng(0)
    cases = pairs(*((f"dog {w}", f"not {w}") for w in (random_words(rng) for _ in range(60))))
    scores = BagOfWords().score_cases(cases)
    assert metric(cases, scores, "original_accuracy") == 1.0
    turned = pairs(*((f"not {w}", f"dog {w}") for w in (random_words(rng) for _ in range(60))))
    assert metric(turned, BagOfWords().score_cases(turned), "original_accuracy") == 1.0


def shuffled(text: str, rng: np.random.Generator) -> str:
    return " ".join(rng.permutation(text.split()))


def test_bow_ties_exactly_on_captions_of_the_same_words():
    """Floats added in another order differ in the last bit, and a tie would become a coin."""
    rng = np.random.default_rng(1)
    # Every second case has other words in its negative, so that words do have odds.
    texts = [(random_words(rng, count=12), random_words(rng, count=12)) for _ in range(400)]
    texts[::2] = [(text, shuffled(text, rng)) for text, _ in texts[::2]]
    cases = pairs(*texts)
    scores = BagOfWords().score_cases(cases).reshape(-1, 2)
    assert (scores[::2, 0] == scores[::2, 1]).all()
    assert (scores[1::2, 0] != scores[1::2, 1]).all()
    assert metric(cases, scores.reshape(-1), "tie_rate") == 0.5
    assert len(np.unique(scores[::2])) > 190  # and not because everything is the same


def test_bow_ignores_case_and_punctuation():
    cases = pairs(*[("A Dog, and a CAT!", "a dog and a cat")] * 10)
    scores = BagOfWords().score_cases(cases).reshape(-1, 2)
    assert (scores[:, 0] == scores[:, 1]).all()


@pytest.mark.slow
def test_bow_does_not_train_on_its_own_cluster():
    """Words are drawn anew for every image, so there is nothing to learn from the others.

    Each image has three cases of the same captions: with any of them in the training folds, or with
    no folds at all, the rest would be known by heart.
    """
    rng = np.random.default_rng(3)
    texts = [(random_words(rng), random_words(rng)) for _ in range(400)]
    clusters = [f"image-{n // 3}" for n in range(1200)]
    cases = pairs(*(texts[n // 3] for n in range(1200)), clusters=clusters)
    accuracy = metric(cases, BagOfWords().score_cases(cases), "original_accuracy")
    assert accuracy == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(400))


def test_bow_scores_a_single_case_without_knowing_anything():
    scores = BagOfWords().score_cases(pairs(("a dog runs", "a cat sits")))
    assert np.isfinite(scores).all()
    assert scores[0] == scores[1]


def test_bow_gives_a_score_to_every_pair_of_an_image_and_a_caption():
    _, cases = load_benchmark("world-bi:size=40")
    scores = BagOfWords().score_cases(cases).reshape(-1, 2, 2)
    # It sees no image: a caption's score is the same for both.
    assert (scores[:, 0] == scores[:, 1]).all()
    # Each caption is once true and once false, so no word tells anything.
    assert metric(cases, scores.reshape(-1), "group") == 0.0


# --- ids ---------------------------------------------------------------------------------------


def test_ids():
    assert isinstance(load_model("blind:length"), BlindScorer)
    assert isinstance(load_model("blind:format"), BlindScorer)
    assert isinstance(load_model("blind:bow"), TableScorer)
    prints = {load_model(f"blind:{name}").fingerprint for name in ("length", "format", "bow")}
    assert len(prints) == 3


@pytest.mark.parametrize(("id", "near"), [("blind:lenght", "length"), ("blind:formt", "format")])
def test_unknown_ids_are_answered_with_near_ones(id, near):
    with raises("E-MODEL-UNKNOWN", id.removeprefix("blind:")) as caught:
        load_model(id)
    assert f"Did you mean '{near}'?" in str(caught.value)
