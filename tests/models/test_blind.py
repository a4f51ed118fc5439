"""The baselines that see no image."""

from __future__ import annotations

import numpy as np
import pytest
from errors import raises
from support import part, run_of

from counterpoint.benchmarks.registry import load_benchmark
from counterpoint.cases.table import Cases, ImageRef, caption_case
from counterpoint.metrics.protocols import get_protocol
from counterpoint.metrics.registry import METRICS
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


# --- random --------------------------------------------------------------------------------------

WORLDS = ("world-replace", "world-swap", "world-bi")
# What a random order gives, from the papers (facts of hard positives, Winoground).
CHANCE = {
    "original_accuracy": 1 / 2,
    "augmented_accuracy": 1 / 3,
    "brittleness": 1 / 3,
    "image_to_text": 1 / 4,
    "text_to_image": 1 / 4,
    "group": 1 / 6,
}


SEEDS, SIZE = range(12), 200


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_random_is_at_chance_over_seeds_of_which_none_was_chosen(name):
    """Of twelve seeds and three numbers, nearly all are within two standard errors of chance."""
    benchmark, cases = load_benchmark(f"{name}:size={SIZE}")
    protocol = get_protocol(benchmark.protocol)
    near = []
    for seed in SEEDS:
        scores = load_model(f"random:{seed}").score_cases(cases)
        run = run_of(part(cases, scores, protocol, name))
        main = [row for row in rows(run, groups=False, resamples=2) if METRICS[row.metric].main]
        assert len(main) == 3
        for row in main:
            chance = CHANCE[row.metric]
            assert row.chance == pytest.approx(chance, abs=1e-12)
            errors = abs(row.value - chance) / (chance * (1 - chance) / SIZE) ** 0.5
            assert errors < 5 and row.ties == 0
            near.append(errors < 2)
    assert np.mean(near) > 0.85


def small() -> Cases:
    return load_benchmark("world-bi:size=50").cases


def test_a_pair_has_one_score_wherever_it_appears():
    cases = small()
    turned = Cases(cases.frame.reverse())
    model = load_model("random")
    scores = model.score_cases(cases).reshape(-1, 4)
    assert (model.score_cases(turned).reshape(-1, 4)[::-1] == scores).all()


def test_crops_of_an_image_are_different_images():
    captions = (["a b"], ["b a"])
    refs = [ImageRef("a.jpg"), ImageRef("a.jpg", (0, 0, 5, 5)), ImageRef("a.jpg", (0, 0, 5, 6))]
    cases = Cases.build(
        (caption_case(str(n), ref, *captions) for n, ref in enumerate(refs)), source="test"
    )
    assert len(np.unique(load_model("random").score_cases(cases))) == 6


def test_the_seed_is_an_option():
    plain, seven, again = (load_model(id) for id in ("random", "random:7", "random:7"))
    assert seven.fingerprint == again.fingerprint != plain.fingerprint
    cases = small()
    assert (seven.score_cases(cases) == again.score_cases(cases)).all()
    assert (seven.score_cases(cases) != plain.score_cases(cases)).mean() > 0.99


@pytest.mark.parametrize("seed", ["x", "-1", "1.5", " 7", "seed=7"])
def test_a_seed_that_is_no_number_is_refused(seed):
    with raises("E-MODEL-ID-INVALID") as caught:
        load_model(f"random:{seed}")
    message = str(caught.value)
    assert message == f"random:{seed}: the seed must be a whole number, as in random:7."
