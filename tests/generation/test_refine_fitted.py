"""Refinement against models that are fitted to the pairs: rounds, their goal, and what stays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from errors import raises
from test_refine import Bench, pair, read, write

from counterpoint._util.progress import Quiet
from counterpoint.generation.pairs import Pair, read_about, read_pairs
from counterpoint.generation.refinement import (
    BlindResult,
    Refined,
    RefineSettings,
    refining,
    scores,
)
from counterpoint.generation.refinement.negatives import Negatives
from counterpoint.models.blind import FITTED, Differences

WORDS = [f"word{n}" for n in range(40)]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def shortcut_pairs(count: int = 900, seed: int = 0) -> list[Pair]:
    """A word is replaced; the new one is "odd" far more often than the old one is.

    `obj` can be balanced, `att` cannot: "never" is in every text and in no caption.
    """
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        words = rng.choice(WORDS, 5).tolist()
        caption, text = words.copy(), words.copy()
        place = int(rng.integers(5))
        if number % 3 == 0:
            text.insert(place, "never")
            found.append(_pair(number, caption, text, "att"))
            continue
        caption[place], text[place] = rng.choice(WORDS, 2).tolist()
        if rng.random() < 0.6:
            (text if rng.random() < 0.75 else caption)[place] = "odd"
        found.append(_pair(number, caption, text, "obj"))
    return found


def _pair(number: int, caption: Sequence[str], text: Sequence[str], subtype: str) -> Pair:
    return pair(number // 2, " ".join(caption), " ".join(text), subtype=subtype, seed=number)


def by_group(found: Refined, model: str = "ngram") -> dict[str, BlindResult]:
    return {row.group: row for row in found.rows if row.model == model}


def test_rounds_go_on_until_a_fresh_fit_is_at_its_goal(bench: Bench, tmp_path: Path) -> None:
    source = write(tmp_path / "in.parquet", shortcut_pairs())
    found = bench.refine(source, "ngram")
    row = by_group(found)["replace/obj"]
    assert row.accuracy_before > 0.62 and row.accuracy_after <= 0.55 and row.reached
    assert row.fitted and row.use == "balanced" and 150 < row.after < row.before == 600
    assert found.rounds[0].pairs == 900 and "replace/obj" in found.rounds[0].above
    assert found.rounds[-1].pairs == found.after and not found.rounds[-1].above
    assert found.rounds[-1].accuracy["ngram"] == by_group(found)["all"].accuracy_after
    # The word is now as often in captions as in texts, and a fit with other folds agrees.
    left = read(tmp_path / "out.parquet").filter(subtype="obj")
    odd = [left[side].str.contains("odd").sum() for side in ("caption", "text")]
    assert abs(odd[0] - odd[1]) < 0.15 * sum(odd) and sum(odd) > 60
    fresh = fit(tmp_path / "out.parquet", seed=99)
    assert (np.sign(fresh) / 2 + 0.5).mean() < 0.56
    assert left["scores"].to_list() == [[]] * len(left), "a fit belongs to the set, not to a text"


def fit(path: Path, seed: int, name: str = "ngram") -> np.ndarray:
    frame = read_pairs(path)
    texts = frame["caption"].to_list(), frame["text"].to_list(), frame["image"].to_list()
    return Differences.of(FITTED[name].grams, [texts]).gaps(seed)


def test_a_group_that_cannot_be_balanced_is_named_with_the_word(
    bench: Bench, tmp_path: Path
) -> None:
    source = write(tmp_path / "in.parquet", shortcut_pairs())
    found = bench.refine(source, "ngram")
    assert by_group(found)["replace/att"].after == 0
    [(group, why)] = found.stuck.items()
    assert group == "replace/att" and why.startswith("0 of 300 pairs are left")
    assert "'never' is in 100% of its texts and 0% of its captions" in why
    [step] = read_about(tmp_path / "out.parquet")["refined"]
    assert step["stuck"] == found.stuck and step["settings"]["goal"] == 0.55
    assert [one["pairs"] for one in step["rounds"]] == [one.pairs for one in found.rounds]
    # Nothing is said of what nobody tried to balance.
    assert bench.refine(source, "ngram", balance=False).stuck == {}
    length = bench.refine(source, "length")
    assert list(length.stuck) == ["replace/att"] and not length.rounds


def test_the_other_family_is_watched(bench: Bench, tmp_path: Path) -> None:
    source = write(tmp_path / "in.parquet", shortcut_pairs(300))
    for spec, other in (("ngram", "chars"), ("chars", "ngram"), ("mine=ngram", "chars")):
        found = bench.refine(source, spec)
        uses = {row.model: row.use for row in found.rows}
        assert uses == {spec.partition("=")[0]: "balanced", other: "watched"}
    both = bench.refine(source, "ngram", "chars")
    assert {row.use for row in both.rows} == {"balanced"}
    assert {row.model for row in bench.refine(source, "length").rows} == {"length"}
    watched = bench.refine(source, "length", watch=("ngram",))
    assert {row.model: row.fitted for row in watched.rows} == {"length": False, "ngram": True}


def test_fitted_and_other_models_are_balanced_together(bench: Bench, tmp_path: Path) -> None:
    source = write(tmp_path / "in.parquet", shortcut_pairs())
    found = bench.refine(source, "length", "ngram", bins=4)
    lengths, fits = by_group(found, "length"), by_group(found)
    assert lengths["replace/obj"].accuracy_after == 0.5
    assert fits["replace/obj"].accuracy_after <= 0.55 and fits["replace/obj"].after > 100
    assert found.scales == {"length": "max", "ngram": "max"}


def test_the_order_of_the_file_does_not_matter_but_the_seed_does(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = shortcut_pairs(400)
    shuffled = [pairs[i] for i in np.random.default_rng(1).permutation(len(pairs))]
    kept = []
    for number, (some, seed, piece) in enumerate(
        ((pairs, 0, 20_000), (shuffled, 0, 20_000), (pairs, 0, 7), (pairs, 1, 20_000))
    ):
        monkeypatch.setattr(scores, "_PIECE", piece)
        source = write(tmp_path / f"{number}.parquet", some)
        found = bench.refine(source, "ngram", name=f"{number}-out.parquet", seed=seed)
        rows = read(tmp_path / f"{number}-out.parquet").select("source", "caption", "text")
        kept.append((set(rows.iter_rows()), found.rows, found.rounds))
    assert kept[0] == kept[1] == kept[2] and kept[0][0] != kept[3][0]


def test_nothing_is_removed_where_there_is_nothing_to_find(bench: Bench, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    pairs = [
        _pair(n, rng.choice(WORDS, 5).tolist(), rng.choice(WORDS, 5).tolist(), "obj")
        for n in range(500)
    ]
    found = bench.refine(write(tmp_path / "in.parquet", pairs), "ngram", goal=0.6)
    assert found.after == 500 and len(found.rounds) == 1 and not found.stuck


def test_rounds_end(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refining, "ROUNDS", 1)
    source = write(tmp_path / "in.parquet", shortcut_pairs(300))
    found = bench.refine(source, "ngram", goal=0.0)  # cannot be had
    assert len(found.rounds) == 2 and found.rounds[-1].pairs == found.after
    assert set(found.rounds[-1].above) == set(found.stuck) - {"replace/att"}
    assert "a fresh fit is still above the goal" in found.stuck["replace/obj"]


class Says:
    """A fitted model with gaps of our own: group 0 is at its goal from the second fit on."""

    name = "says"

    def __init__(self, groups: np.ndarray) -> None:
        self.groups, self.asked = groups, []

    def gaps(self, kept: np.ndarray, seed: int) -> np.ndarray:
        self.asked.append(kept.copy())
        rng = np.random.default_rng(seed)
        high = 0.7 if seed == 0 else np.where(self.groups == 0, 0.45, 0.7)
        size = rng.choice([0, 0.1, 0.5, 1], len(kept))
        return np.where(kept, np.where(rng.random(len(kept)) < high, size, -size), np.nan)


def test_a_group_at_its_goal_is_left_as_it_is() -> None:
    """Balanced again, its cells would be finer: zeros of a silent model do not count."""
    rng = np.random.default_rng(77)  # not the stream of the gaps
    groups = np.arange(800) % 2
    static = rng.choice([-1, -0.4, 0, 0.3, 0.33, 1], (800, 1))
    keys = rng.permutation(800).astype(np.uint64)
    model, everything = Says(groups), np.ones(800, dtype=bool)
    negatives = Negatives(pl.DataFrame(), groups, ("goal", "above"), keys)
    settings = RefineSettings(blind=(), zero_bins=2)
    kept, found, _ = refining.refine_in_rounds(
        {"says": model}, static, everything, negatives, settings, Quiet()
    )
    assert "goal" in found[0].above and len(found) > 3
    assert all("goal" not in one.above for one in found[1:])
    first, *later = (asked[groups == 0] for asked in model.asked[1:])
    assert 0 < first.sum() < 400 and all((one == first).all() for one in later)
    for name in (0, 1):
        left = static[kept & (groups == name), 0]
        assert (left > 0).sum() == (left < 0).sum()


def test_captions_of_one_image_are_on_one_side(tmp_path: Path) -> None:
    """Pairs without an image stand for themselves; the others go by their image."""
    pairs = [*shortcut_pairs(40)]
    source = write(tmp_path / "in.parquet", pairs)
    negatives = Negatives.of(read_pairs(source), (), 0)
    found = scores.FittedScores("blind:ngram", negatives)
    images = negatives.pairs["image"].to_list()
    clusters = found.differences.clusters
    assert len(set(zip(images, clusters, strict=True))) == len(set(images)) == 20


def test_a_file_without_negatives_and_select(bench: Bench, tmp_path: Path) -> None:
    source = write(tmp_path / "in.parquet", [pair(0, "a", "b", kind="positive")])
    found = bench.refine(source, "ngram", "length")
    assert (found.before, found.after, found.positives) == (0, 0, 1)
    some = write(tmp_path / "some.parquet", shortcut_pairs(60))
    with raises("E-MODEL-UNSUITABLE", "ngram"):
        bench.refine(some, "length", select=("ngram",), top=0.5)
    with raises("E-MODEL-UNSUITABLE", "ngram"):
        bench.refine(some, "ngram", top=0.5)
    assert bench.refine(some, "ngram", "length", top=0.5).selected < 60  # chosen by length
