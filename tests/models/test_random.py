"""The random baseline: at chance, and always at the same place."""

from __future__ import annotations

import numpy as np
import pytest
from errors import raises
from support import part, run_of

from counterpoint.benchmarks.registry import load_benchmark
from counterpoint.cases.table import Cases, ImageRef, caption_case
from counterpoint.metrics.protocols import get_protocol
from counterpoint.metrics.registry import METRICS
from counterpoint.models.registry import load_model
from counterpoint.runs import rows

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
