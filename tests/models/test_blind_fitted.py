"""Blind models that are fitted: against scikit-learn, on planted shortcuts, and on none."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st
from sklearn.linear_model import LogisticRegression
from support import FEW
from test_blind import metric, pairs, random_words, shuffled

from counterpoint.benchmarks.registry import load_benchmark
from counterpoint.cases.table import Case, Cases, ImageRef, caption_case
from counterpoint.models.blind import baselines
from counterpoint.models.blind.baselines import (
    FITTED,
    FOLDS,
    STRENGTH,
    BagOfWords,
    Characters,
    Differences,
    Ngrams,
    character_grams,
    folds,
    word_grams,
)
from counterpoint.models.registry import load_model
from counterpoint.scoring.kinds import TableScorer

WORDS = ("a", "dog", "red", "cat", "on", "the", "'s", ".", "Éric")
TEXTS = st.lists(st.sampled_from(WORDS), max_size=7).map(" ".join)


def words_of(text: str) -> Counter:
    """The n-grams of words, plainly; start and end are in every text and say nothing."""
    words = ["^", *re.findall(r"[\w']+|[^\w\s]", text.lower()), "$"]
    return Counter(words) + Counter(pairwise(words))


def characters_of(text: str) -> Counter:
    text = f"\2{text}\3"
    return Counter(
        text[i : i + n] for n in range(5) for i in range(len(text)) if i + n <= len(text)
    )


@FEW
@given(st.lists(TEXTS, max_size=5))
@pytest.mark.parametrize(
    ("fast", "plain"), [(word_grams, words_of), (character_grams, characters_of)]
)
def test_grams_are_those_of_a_plain_loop(fast, plain, texts) -> None:
    rows, codes = fast(texts)
    for number, text in enumerate(texts):
        found = Counter(codes[rows == number].tolist())
        assert sorted(found.values()) == sorted(plain(text).values())
    # The same text has the same codes wherever it stands, and another text has others.
    for a, one in enumerate(texts):
        for b, two in enumerate(texts):
            same = np.array_equal(np.sort(codes[rows == a]), np.sort(codes[rows == b]))
            assert same == (plain(one) == plain(two))


def slow_gaps(texts, clusters, plain, fold) -> np.ndarray:
    """scikit-learn on a dense table: every pair once as it is, once turned round."""
    differences = []
    for true, false in texts:
        found = Counter(plain(true))
        found.subtract(plain(false))
        differences.append({gram: n for gram, n in found.items() if n})
    where: dict = {}
    for difference, cluster in zip(differences, clusters, strict=True):
        for gram in difference:
            where.setdefault(gram, set()).add(cluster)
    grams = [gram for gram, images in where.items() if len(images) > 1]
    table = np.array([[d.get(gram, 0) for gram in grams] for d in differences], dtype=float)
    found = np.zeros(len(texts))
    for number in range(FOLDS):
        train = table[fold != number]
        model = LogisticRegression(C=STRENGTH / 2, fit_intercept=False, tol=1e-10, max_iter=5000)
        model.fit(np.vstack([train, -train]), np.repeat([1, 0], len(train)))
        found[fold == number] = table[fold == number] @ model.coef_[0]
    return found


def some_texts(count: int, seed: int = 0) -> tuple[list[tuple[str, str]], np.ndarray]:
    rng = np.random.default_rng(seed)
    texts = []
    for _ in range(count):
        words = rng.choice(30, size=6, p=np.arange(1, 31) / 465)
        other = words.copy()
        other[rng.integers(6)] = rng.integers(30)
        texts.append(tuple(" ".join(f"w{w}" for w in some) for some in (words, other)))
    return texts, rng.integers(count // 3, size=count)


@pytest.mark.parametrize(("name", "plain"), [("ngram", words_of), ("chars", characters_of)])
def test_gaps_and_scores_are_those_of_scikit_learn(name, plain, monkeypatch) -> None:
    monkeypatch.setattr(baselines, "_TOLERANCE", 1e-9)
    monkeypatch.setattr(baselines, "_PIECE", 37)  # pieces do not show
    texts, clusters = some_texts(200)
    grams = FITTED[name].grams
    first, second = zip(*texts, strict=True)
    pieces = (
        (first[i : i + 37], second[i : i + 37], clusters[i : i + 37]) for i in range(0, 200, 37)
    )
    found = Differences.of(grams, pieces).gaps(5)
    expected = slow_gaps(texts, clusters, plain, folds(clusters, 5))
    assert np.allclose(found, expected, atol=2e-4) and found.std() > 0.05
    cases = pairs(*texts, clusters=[f"{c:04}" for c in clusters])
    scores = FITTED[name]().score_cases(cases).reshape(-1, 2).astype(float)
    expected = slow_gaps(texts, clusters, plain, folds(clusters, 0))
    assert np.allclose(scores[:, 0] - scores[:, 1], expected, atol=2e-4)


def test_some_pairs_are_as_if_there_were_no_others() -> None:
    texts, clusters = some_texts(120)
    first, second = (np.array(some) for some in zip(*texts, strict=True))
    whole = Differences.of(word_grams, [(first.tolist(), second.tolist(), clusters)])
    some = np.random.default_rng(0).permutation(120)[:70]
    alone = Differences.of(
        word_grams, [(first[some].tolist(), second[some].tolist(), clusters[some])]
    )
    assert (whole.only(some).gaps(1) == alone.gaps(1)).all()
    assert (whole.only(np.arange(120)).gaps(1) == whole.gaps(1)).all()


@FEW
@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.integers(0, 9))
def test_folds_never_share_an_image(clusters, seed) -> None:
    found = folds(np.array(clusters), seed)
    for cluster in clusters:
        assert len(set(found[np.array(clusters) == cluster])) == 1
    assert set(found) <= set(range(FOLDS))


def test_no_weight_is_learned_from_the_image_that_is_scored(monkeypatch) -> None:
    """Texts are drawn anew for every image, and each image has three equal cases."""
    rng = np.random.default_rng(3)
    texts = [(random_words(rng, 3000), random_words(rng, 3000)) for _ in range(300)]
    clusters = [f"image-{n // 3}" for n in range(900)]
    cases = pairs(*(texts[n // 3] for n in range(900)), clusters=clusters)
    accuracy = metric(cases, Ngrams().score_cases(cases), "original_accuracy")
    assert accuracy == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(300))
    alone = pairs(*texts[:40], clusters=["one"] * 40)
    assert not Ngrams().score_cases(alone).any(), "a single image: nothing to learn from"


@pytest.mark.parametrize("model", [Ngrams(), Characters()])
def test_at_chance_where_labels_are_shuffled(model) -> None:
    texts, clusters = some_texts(1500, seed=1)
    rng = np.random.default_rng(2)
    turned = [pair if rng.random() < 0.5 else pair[::-1] for pair in texts]
    scores = model.score_cases(pairs(*turned, clusters=[str(c) for c in clusters])).reshape(-1, 2)
    found = (np.sign(scores[:, 0] - scores[:, 1]) / 2 + 0.5).mean()
    assert found == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(1500))


@pytest.mark.parametrize("model", [Ngrams(), Characters()])
@pytest.mark.parametrize("turned", [False, True])
def test_planted_shortcuts_are_found(model, turned) -> None:
    rng = np.random.default_rng(0)
    texts = [(f"dog {w}", f"not {w}") for w in (random_words(rng) for _ in range(60))]
    cases = pairs(*(pair[::-1] if turned else pair for pair in texts))
    assert metric(cases, model.score_cases(cases), "original_accuracy") == 1.0


def test_a_swap_with_the_same_words_is_found_by_neighbours_where_a_bag_ties() -> None:
    rng = np.random.default_rng(1)
    texts = []
    for _ in range(120):
        red, dog = rng.permutation(["red", "big", "wet"])[:2], rng.permutation(["dog", "bus"])
        true = f"{random_words(rng, count=2)} a {red[0]} {dog[0]} and a {red[1]} {dog[1]}"
        texts.append((true, true.replace(f" a {red[0]}", f" {red[0]} a")))
    cases = pairs(*texts)
    assert metric(cases, BagOfWords().score_cases(cases), "tie_rate") == 1.0
    assert metric(cases, Ngrams().score_cases(cases), "original_accuracy") == 1.0


def test_texts_with_the_same_ngrams_tie_exactly() -> None:
    rng = np.random.default_rng(1)
    texts = [(random_words(rng, 40, 12), random_words(rng, 40, 12)) for _ in range(200)]
    texts[::2] = [(f"x {a} x {b} x", f"x {b} x {a} x") for a, b in texts[::2]]
    scores = Ngrams().score_cases(pairs(*texts)).reshape(-1, 2)
    assert (scores[::2, 0] == scores[::2, 1]).all()
    assert (scores[1::2, 0] != scores[1::2, 1]).mean() > 0.9
    assert shuffled(texts[0][0], rng) != texts[0][0]


def test_every_true_caption_is_compared_with_every_false_one() -> None:
    true, false = ["a good one", "one good"], ["a bad one", "one bad", "a bad"]
    cases = Cases.build(
        (caption_case(str(n), ImageRef(f"{n}.jpg"), true, false) for n in range(30)), source="x"
    )
    scores = Ngrams().score_cases(cases).reshape(-1, 5)
    assert (scores[:, :2].min(axis=1) > scores[:, 2:].max(axis=1)).all()


def test_captions_that_are_true_as_often_as_false_teach_nothing() -> None:
    _, cases = load_benchmark("world-bi:size=40")
    assert not Ngrams().score_cases(cases).any()
    images = tuple(ImageRef(f"{n}.jpg") for n in range(30))
    truth = tuple(tuple(i == j for j in range(30)) for i in range(30))
    gallery = Case("g", images, tuple(f"caption {n}" for n in range(30)), truth)
    assert not Ngrams().score_cases(Cases.build([gallery], source="x")).any()


def test_ids_and_the_same_scores_again() -> None:
    assert isinstance(load_model("blind:ngram"), TableScorer)
    assert len({load_model(f"blind:{name}").fingerprint for name in (*FITTED, "bow")}) == 3
    texts, clusters = some_texts(300, seed=4)
    cases = pairs(*texts, clusters=[str(c) for c in clusters])
    assert (Ngrams().score_cases(cases) == Ngrams().score_cases(cases)).all()
