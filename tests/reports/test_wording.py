"""Words for numbers and texts: ties that matter, and which words of a caption were changed."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from support import FEW, part, run_of, table

from counterpoint.metrics.presentation import (
    changed_words,
    depends_on_ties,
    join_words,
    ties_by_model,
)
from counterpoint.metrics.registry import METRICS
from counterpoint.reports.findings import meanings
from counterpoint.runs import rows


def test_changed_words():
    for original, text, expected in (
        ("a red ring", "a blue ring", "a [blue] ring"),
        ("the solid cross and the large ring", "the solid ring and the large cross", None),
        ("a dog", "a small dog.", "a [small] dog[.]"),
        ("a dog runs", "a dog", "a dog"),
        ("one", "two  words", "[two  words]"),
    ):
        marked = "".join(f"[{p}]" if changed else p for p, changed in changed_words(original, text))
        assert marked == (expected or "the solid [ring] and the large [cross]")


WORDS = st.lists(st.sampled_from(["a", "red", "ring", "and", ",", " ", "É", "dog's"]), max_size=8)


@FEW
@given(WORDS, WORDS)
def test_pieces_make_up_the_text_and_what_is_unmarked_stood_in_the_original(one, two):
    original, text = " ".join(one), " ".join(two)
    pieces = changed_words(original, text)
    assert "".join(piece for piece, _ in pieces) == text
    kept = [word for piece, changed in pieces if not changed for word in piece.split()]
    rest = iter(original.replace(",", " , ").replace("'", " ' ").split())
    for word in " ".join(kept).replace(",", " , ").replace("'", " ' ").split():
        assert word in rest  # in the same order
    assert all(one[1] != other[1] for one, other in pairwise(pieces))


def test_listed():
    assert [join_words(names) for names in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]


def test_every_metric_has_a_meaning():
    assert all(meanings(list(METRICS)).values())


# --- ties --------------------------------------------------------------------------------------


def tied_run(originals: float, positives: float, seed: int = 0, model: str = "m"):
    """Random scores in which these shares of originals and positives equal the negative."""
    cases = table(120)
    chance = np.random.default_rng(seed)
    scores = chance.normal(size=(120, 3)).astype(np.float32)
    for column, share in enumerate((originals, positives)):
        equal = chance.random(120) < share
        scores[equal, column] = scores[equal, 2]
    return run_of(part(cases, scores.reshape(-1)), model=model)


@pytest.mark.slow
@settings(FEW, max_examples=12)
@given(st.sampled_from([0.0, 0.05, 0.2, 1.0]), st.sampled_from([0.0, 0.3]), st.integers(0, 99))
def test_a_number_is_marked_where_another_way_of_counting_ties_moves_it_out_of_its_interval(
    originals, positives, seed
):
    run = tied_run(originals, positives, seed)
    [mine] = run.parts.values()
    lenient = replace(mine, protocol=replace(mine.protocol, tie="right"))
    other = {(r.group, r.metric): r.value for r in rows(run_of(lenient), resamples=100)}
    for row in rows(run, resamples=100):
        if row.metric in ("original_accuracy", "augmented_accuracy"):
            assert row.value + row.ties / row.n == pytest.approx(other[row.group, row.metric])
            # The longer side of the interval counts: where the shorter one is left, it may stay.
            if depends_on_ties(row):
                assert other[row.group, row.metric] > row.ci_high
            else:
                reach = max(row.ci_high - row.value, row.value - row.ci_low)
                assert other[row.group, row.metric] <= row.value + reach + 1e-9


def test_ties_are_counted_for_each_metric():
    run = tied_run(0.0, 1.0)  # no original is tied, every positive is
    found = [r for r in rows(run, resamples=50) if r.group == "all" and METRICS[r.metric].main]
    scores = run.parts["bench"].scores.reshape(-1, 3)
    above = int((scores[:, 0] >= scores[:, 2]).sum())
    assert ties_by_model(found) == {"m": f"bench augmented {above} of 120, brittleness 120 of 120"}
    assert ties_by_model(rows(tied_run(0, 0), resamples=50)) == {}
