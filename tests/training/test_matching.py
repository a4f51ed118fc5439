"""Test-time matching: which matchings are kept, what is trained on, and that no truth is read."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from errors import raises
from training import tiny_start

from counterpoint.cases import Cases
from counterpoint.evaluation import evaluate
from counterpoint.training import MatchingSettings, match_at_test_time
from counterpoint.training.matching import matchings_of, most_certain, share_kept

pytestmark = pytest.mark.slow
FAST = MatchingSettings(iterations=2, epochs=1, batch=3, lr=1e-2, first=0.5)


@pytest.fixture(scope="module")
def part(tmp_path_factory):
    """Random scores of twelve cases."""
    run = evaluate("random", "world-bi:size=12", out=tmp_path_factory.mktemp("runs") / "random")
    (found,) = run.parts.values()
    return found


def test_a_matching_is_the_one_with_the_higher_sum(part):
    found = matchings_of(part)
    for row in range(12):
        scores = part.scores[4 * row : 4 * row + 4].astype(float)
        straight, crossed = scores[0] + scores[3], scores[1] + scores[2]
        place = found.rows.tolist().index(row)
        assert found.turned[place] == (crossed > straight)
        assert found.margins[place] == pytest.approx(abs(crossed - straight))
        truth = part.cases.case(row).truth
        assert found.right[place] == truth[0][int(crossed > straight)]
    assert 0 < found.right.sum() < 12


def test_the_truth_chooses_nothing(part):
    frame = part.cases.frame
    others = [
        [cell for cell in range(4) if cell not in cells] for cells in frame["truth"].to_list()
    ]
    other = frame.with_columns(truth=pl.Series(others, dtype=frame["truth"].dtype))
    wrong = replace(part, cases=Cases(other, part.cases.root))
    one, two = matchings_of(part), matchings_of(wrong)
    assert np.array_equal(one.turned, two.turned) and np.array_equal(one.margins, two.margins)
    assert np.array_equal(one.right, ~two.right)


def test_the_most_certain_are_kept_and_in_the_end_all(part):
    found = matchings_of(part)
    for share in (0.25, 0.5, 1.0):
        keep = most_certain(found, share)
        assert len(keep) == 12 * share and (np.diff(keep) > 0).all()
        left = np.setdiff1d(np.arange(12), keep)
        if len(left):
            assert found.margins[keep].min() >= found.margins[left].max()
    settings = MatchingSettings(iterations=5, first=0.3)
    shares = [share_kept(i, settings) for i in range(5)]
    assert shares[0] == pytest.approx(0.3) and shares[-1] == 1
    assert shares == sorted(shares)
    assert share_kept(0, MatchingSettings(iterations=1, first=0.4)) == pytest.approx(0.4)


def test_iterations_follow_each_other_and_are_not_done_again(tmp_path):
    model, out = tiny_start(tmp_path / "start"), tmp_path / "match"
    found = match_at_test_time(model, "world-bi:size=8", out, FAST, device="cpu")
    assert [one.iteration for one in found] == [0, 1, 2]
    assert [one.kept for one in found] == [4, 8, 0]
    assert found[0].model == model and str(out / "iteration-00") in found[1].model
    assert {"group", "group_matching"} <= found[2].values.keys()
    assert all(0 <= one.right <= one.kept for one in found)
    record = json.loads((out / "matching.json").read_text())
    assert [one["kept"] for one in record["iterations"]] == [4, 8, 0]
    lines = (out / "iteration-01" / "pairs.jsonl").read_text().splitlines()
    assert len(lines) == 8
    for line in map(json.loads, lines):  # both pairs of a case
        assert line["image"] != line["negative_images"][0]
        assert line["caption"] != line["negatives"][0]
    before = {path: path.stat().st_mtime_ns for path in out.rglob("optimiser.safetensors")}
    again = match_at_test_time(model, "world-bi:size=8", out, FAST, device="cpu")
    assert again == found and before
    assert before == {path: path.stat().st_mtime_ns for path in out.rglob("optimiser.safetensors")}


def test_other_cases_are_refused_in_one_sentence(tmp_path):
    model = tiny_start(tmp_path / "start")
    with raises("E-BENCHMARK-UNSUITABLE", "world-swap:size=4"):
        match_at_test_time(model, "world-swap:size=4", tmp_path / "out", FAST, device="cpu")
