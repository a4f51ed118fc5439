"""Ensembles, held against plain loops over the scores of their members."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from engine_support import build
from errors import raises
from models_for_tests import (
    Counter,
    Judge,
    Reader,
    Towers,
    choice,
    is_sentence,
    ragged,
    run_engine,
    write_images,
)
from support import gallery, owned, random_scores

from counterpoint._util.progress import Advance
from counterpoint._util.store import Store
from counterpoint.cases.table import Cases
from counterpoint.models import combined as ensembles
from counterpoint.models.combined import Ensemble, Member, combined, load_ensemble, split
from counterpoint.models.registry import LoadOptions
from counterpoint.scoring.engine import score
from counterpoint.scoring.kinds import BenchmarkScorer, Described, Work
from counterpoint.scoring.plan import Scored

HALF = 6e-8  # half the distance between two float32 numbers at 1


def ensemble(*models: object) -> Ensemble:
    return Ensemble([Member(type(model).__name__, model) for model in models])  # type: ignore


def standardised(values: list[float]) -> list[float]:
    mean = math.fsum(values) / len(values)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    return [(value - mean) / deviation if deviation else 0.0 for value in values]


def by_hand(*members: np.ndarray) -> list[float]:
    """The mean of standardised scores, pair by pair; NaN where a member has none."""
    lists = [member.tolist() for member in members]
    whole = [i for i in range(len(lists[0])) if not any(math.isnan(one[i]) for one in lists)]
    found = [math.nan] * len(lists[0])
    columns = [standardised([one[i] for i in whole]) for one in lists]
    for place, i in enumerate(whole):
        found[i] = math.fsum(column[place] for column in columns) / len(lists)
    return found


class Same(Counter):
    """Every pair has the same score."""

    fingerprint = "same"

    def score_cases(self, cases: Cases) -> np.ndarray:
        return np.full(cases.pair_offsets[-1], 0.1, dtype=np.float32)


# --- scores ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_scores_are_those_of_a_plain_loop_over_members_of_every_kind(tmp_path: Path) -> None:
    benchmarks = {"a": ragged(tmp_path, 12), "b": ragged(tmp_path, 5, seed=1)}
    models = [Towers(), Judge(), Reader(), Counter()]
    found = run_engine(ensemble(*models), benchmarks, tmp_path / "store")
    alone = [run_engine(model, benchmarks, tmp_path / "alone") for model in models]
    for name in benchmarks:
        expected = by_hand(*(scored[name].scores for scored in alone))
        assert found[name].scores.dtype == np.float32
        np.testing.assert_allclose(found[name].scores, expected, rtol=0, atol=4 * HALF)
        assert found[name].left_out == {} and found[name].cut_captions == 0
        # Each benchmark is standardised for itself.
        assert found[name].scores.mean(dtype=float) == pytest.approx(0, abs=1e-7)


def test_a_member_that_gives_all_pairs_one_score_has_no_say(tmp_path: Path) -> None:
    cases = {"bench": ragged(tmp_path, 40)}
    alone = run_engine(Counter(), cases, tmp_path / "store")["bench"].scores
    found = run_engine(ensemble(Counter(), Same()), cases, tmp_path / "store")["bench"].scores
    np.testing.assert_allclose(found, np.array(standardised(alone.tolist())) / 2, atol=1e-6)
    nothing = run_engine(ensemble(Same(), Same()), cases, tmp_path / "store")["bench"].scores
    assert (nothing == 0).all()


def test_pieces_make_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = ragged(tmp_path)
    members = [Scored(random_scores(cases, seed)) for seed in (1, 2, 3)]
    whole = combined(members, cases).scores
    monkeypatch.setattr(ensembles, "_PIECE", 7)
    np.testing.assert_allclose(combined(members, cases).scores, whole, rtol=0, atol=2 * HALF)


# --- left out ----------------------------------------------------------------------------------


def test_what_one_member_leaves_out_is_left_out_for_its_reason(tmp_path: Path) -> None:
    write_images(tmp_path, "a.png", "b.png")
    (tmp_path / "broken.png").write_bytes(b"no picture")
    cases = build(
        choice("whole", "a.png", "one two", "one three"),
        choice("missing", "gone.png", "one two", "one three"),
        choice("long", "b.png", "one two three four five", "one"),
        choice("broken", "broken.png", "one", "two"),
        choice("also", "b.png", "yes", "no no"),
        root=tmp_path,
    )
    models = [Reader(), Towers(context=4), Judge()]
    found, *alone = (
        run_engine(model, {"x": cases}, tmp_path / "s", overlong="leave out")["x"]
        for model in (ensemble(*models), *models)
    )
    assert [sorted(one.left_out) for one in alone] == [[], [1, 2, 3], [1, 3]]
    assert found.left_out == alone[1].left_out
    assert "too long" in found.left_out[2] and "gone.png" in found.left_out[1]
    expected = by_hand(*(one.scores for one in alone))
    assert np.isnan(found.scores).tolist() == [False] * 2 + [True] * 6 + [False] * 2
    np.testing.assert_allclose(found.scores, expected, rtol=0, atol=4 * HALF)


def test_cut_captions_are_added_up(tmp_path: Path) -> None:
    write_images(tmp_path, "a.png")
    cases = build(choice("1", "a.png", "one two three", "one two three four"), root=tmp_path)
    short, shorter = Towers("short", 5), Towers("shorter", 4)
    alone = [
        run_engine(m, {"x": cases}, tmp_path / "s")["x"].cut_captions for m in (short, shorter)
    ]
    assert alone == [1, 2]
    both = run_engine(ensemble(short, shorter, Judge()), {"x": cases}, tmp_path / "s")
    assert both["x"].cut_captions == 3


def test_galleries_lose_the_images_that_any_member_loses(tmp_path: Path) -> None:
    truth = owned(8, 2, 2)
    cases = build(choice("plain", "0.png", "yes", "no"), gallery(truth, "photos"))
    rng = np.random.default_rng(0)

    def losing(*images: int) -> Scored:
        scores = rng.normal(size=2 + truth.size).astype(np.float32)
        scores[2:].reshape(truth.shape)[list(images)] = math.nan
        return Scored(scores, {}, {1: dict.fromkeys(images, f"{images}.")} if images else {})

    members = [losing(1, 3), losing(), losing(3, 6)]
    found = combined(members, cases)
    assert found.left_out == {}
    assert found.left_out_images == {1: {1: "(1, 3).", 3: "(1, 3).", 6: "(3, 6)."}}
    gone = np.isnan(found.scores[2:]).reshape(truth.shape)
    assert gone.all(axis=1).tolist() == [i in (1, 3, 6) for i in range(8)]
    assert gone.sum() == 3 * truth.shape[1] and not np.isnan(found.scores[:2]).any()
    expected = by_hand(*(member.scores for member in members))
    np.testing.assert_allclose(found.scores, expected, rtol=0, atol=4 * HALF)

    # Four images each: together they lose all eight, and a gallery of no images is left out.
    none = combined([losing(0, 1, 2, 3), losing(4, 5, 6, 7)], cases)
    assert none.left_out == {1: "(0, 1, 2, 3)."} and none.left_out_images == {}
    assert np.isnan(none.scores[2:]).all() and not np.isnan(none.scores[:2]).any()


# --- what it is --------------------------------------------------------------------------------


def test_an_ensemble_is_of_its_kind_and_tells_what_its_members_tell() -> None:
    class Talker(Judge):
        def describe(self):
            return {"device": "cpu", "notes": ["careful."]}

    made = ensemble(Talker(), Reader())
    assert isinstance(made, BenchmarkScorer) and isinstance(made, Described)
    assert made.describe() == {
        "members": [{"model": "Talker", "device": "cpu"}, {"model": "Reader"}],
        "notes": ["Talker: careful."],
    }


def test_the_fingerprint_is_that_of_the_members() -> None:
    one = ensemble(Towers("a"), Towers("b")).fingerprint
    assert one == ensemble(Towers("a"), Towers("b")).fingerprint
    others = [ensemble(Towers("a"), Towers("c")), ensemble(Towers("a"), Towers("b"), Towers("b"))]
    others += [ensemble(Towers("ab"), Towers("")), ensemble(Towers("a"), Towers("a"))]
    assert len({one, *(other.fingerprint for other in others)}) == 5


def test_progress_names_the_member(tmp_path: Path) -> None:
    class Shown:
        def __init__(self) -> None:
            self.names: list[str] = []

        def start(self, what: str, total: int) -> Advance:
            self.names.append(what)
            return lambda steps: None

    shown, cases = Shown(), {"x": ragged(tmp_path, 3)}
    with Store(tmp_path / "store") as store:
        score(ensemble(Towers(), Judge()), cases, {"x": "cut"}, Work(store, 4, shown))
    assert shown.names == ["Towers images", "Towers captions", "Judge pairs"]


# --- ids ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rest", "members"),
    [
        ("blind:length+random:3", ["blind:length", "random:3"]),
        ("random+random+blind:bow", ["random", "random", "blind:bow"]),
        ("open_clip:a+b/c+d+world:base", ["open_clip:a+b/c+d", "world:base"]),
        ("open_clip:my+random-walk/x+random", ["open_clip:my+random-walk/x", "random"]),
        ("open_clip:x/randomly+worldly:a", ["open_clip:x/randomly+worldly:a"]),
        ("blind:length+", ["blind:length+"]),
    ],
)
def test_ids_are_cut_where_a_family_follows(rest: str, members: list[str]) -> None:
    assert split(rest) == members


@pytest.mark.parametrize(
    ("rest", "code", "said"),
    [
        ("", "E-MODEL-ID-INVALID", ""),
        ("blind:length", "E-MODEL-ID-INVALID", ""),
        ("blind:length+", "E-MODEL-ID-INVALID", ""),
        ("blind:length+blond:bow", "E-MODEL-UNKNOWN", "Did you mean 'blind'?"),
        ("blond:bow+blind:length", "E-MODEL-UNKNOWN", "'blond'"),
        ("random:1+random:x", "E-MODEL-ID-INVALID", "random:x"),
        ("random:1+blind:lenght", "E-MODEL-UNKNOWN", "length"),
    ],
)
def test_refusals(rest: str, code: str, said: str) -> None:
    with raises(code) as caught:
        load_ensemble(rest, LoadOptions("cpu"))
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_an_ensemble_is_no_member(monkeypatch: pytest.MonkeyPatch) -> None:
    from counterpoint.models.registry import FAMILIES

    families = {**FAMILIES.builtin, "ensemble": "counterpoint.models.combined:load_ensemble"}
    monkeypatch.setattr(FAMILIES, "builtin", families)
    with raises("E-MODEL-ID-INVALID", "ensemble:blind:length+ensemble:random+random:2") as caught:
        load_ensemble("blind:length+ensemble:random+random:2", LoadOptions("cpu"))
    assert is_sentence(caught.value)
    with raises("E-MODEL-ID-INVALID", 1) as caught:
        ensemble(Judge())
    assert is_sentence(caught.value)
