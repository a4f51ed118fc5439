"""Forced choice: every two captions of an image, each choice asked once, shares of the wins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from engine_support import build, naive, shares
from errors import raises
from models_for_tests import (
    Judge,
    choice,
    is_sentence,
    naive_pair,
    pixels,
    ragged,
    run_engine,
    write_images,
)

from counterpoint._util.progress import Quiet
from counterpoint._util.store import Store
from counterpoint.cases import PROMPTS, Case, Cases, ImageRef
from counterpoint.images import Picture
from counterpoint.metrics import Overlong
from counterpoint.scoring import Scored, Work, score, score_by_choices
from counterpoint.scoring.items import COIN, MOST


class Umpire:
    """Prefers what `naive_pair` prefers."""

    fingerprint = "umpire"

    def __init__(self) -> None:
        self.batches: list[list[tuple[str, str, str]]] = []

    @property
    def asked(self) -> list[tuple[str, str, str]]:
        return [asked for batch in self.batches for asked in batch]

    def score_choices(
        self, pictures: Sequence[Picture], firsts: Sequence[str], seconds: Sequence[str]
    ) -> np.ndarray:
        shown = [pixels(picture.open()) for picture in pictures]
        self.batches.append(list(zip(shown, firsts, seconds, strict=True)))
        return np.array([self.prefers(*asked) for asked in self.batches[-1]])

    def prefers(self, shown: str, first: str, second: str) -> float:
        return float(naive_pair(shown, first) > naive_pair(shown, second))

    def score_benchmarks(
        self, benchmarks: Mapping[str, Cases], overlong: Mapping[str, Overlong], work: Work
    ) -> dict[str, Scored]:
        del overlong
        return score_by_choices(self, benchmarks, work)


class Undecided(Umpire):
    def prefers(self, shown: str, first: str, second: str) -> float:
        return 0.5


class Announcer(Umpire):
    def __init__(self) -> None:
        super().__init__()
        self.counts: list[int] = []

    def announce(self, items: int) -> str:
        self.counts.append(items)
        return f"{items} coins"


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 3, 100])
def test_a_score_is_the_share_of_captions_beaten(tmp_path: Path, batch: int) -> None:
    tables = {name: ragged(tmp_path, 12, seed) for seed, name in enumerate(("one", "two"))}
    model = Umpire()
    found = run_engine(model, tables, tmp_path / "store", batch)
    for name, cases in tables.items():
        np.testing.assert_allclose(found[name].scores, shares(cases), atol=COIN)
        assert found[name].scores.dtype == np.float32 and found[name].left_out == {}
    unordered = [(shown, frozenset(two)) for shown, *two in model.asked]
    assert len(unordered) == len(set(unordered)) > 40
    assert all(len(two) == 2 for _, two in unordered)
    images = [shown for shown, *_ in model.asked]
    assert sum(a != b for a, b in pairwise(images)) == len(set(images)) - 1


def test_what_is_stored_does_not_depend_on_the_other_captions(tmp_path: Path) -> None:
    """A third caption changes shares, but the choice between two is not asked again."""
    write_images(tmp_path, "a.png", "b.png")
    two = build(choice("0", "a.png", "x", "y"), root=tmp_path)
    run_engine(Umpire(), {"two": two}, tmp_path / "store")
    model = Umpire()
    # In another order, and numbered in another way.
    cases = [choice("0", "b.png", "z", "y"), choice("1", "a.png", "z", "y", "x")]
    three = build(*cases, root=tmp_path)
    found = run_engine(model, {"three": three}, tmp_path / "store")["three"].scores
    np.testing.assert_allclose(found, shares(three), atol=COIN)
    asked = [frozenset(two) for _, *two in model.asked]
    assert sorted(map(sorted, asked)) == [["x", "z"], ["y", "z"], ["y", "z"]]

    again = Umpire()
    both = run_engine(again, {"three": three, "two": two}, tmp_path / "store")
    assert again.asked == [] and (both["three"].scores == found).all()
    np.testing.assert_allclose(sorted(both["two"].scores), [0, 1], atol=COIN)


def test_answers_to_different_questions_are_not_compared(tmp_path: Path) -> None:
    write_images(tmp_path, "a.png", "b.png")
    images = (ImageRef("a.png"), ImageRef("b.png"))
    truth = ((True, False, False, True), (False, True, True, False))
    case = Case("0", images, ("p yes", "p no", "q yes", "q no"), truth, questions=2)
    model = Umpire()
    cases = build(case, root=tmp_path)
    found = run_engine(model, {"bench": cases}, tmp_path / "store")["bench"].scores
    alone = [
        replace(case, id=f"{q}", captions=case.captions[2 * q : 2 * q + 2], questions=0)
        for q in (0, 1)
    ]
    alone = [replace(one, truth=((True, False), (False, True))) for one in alone]
    first, second = (np.reshape(shares(build(one, root=tmp_path)), (2, 2)) for one in alone)
    np.testing.assert_allclose(found.reshape(2, 4), np.hstack([first, second]), atol=COIN)
    asked = sorted({tuple(two) for _, *two in model.asked})
    assert asked == [("p no", "p yes"), ("q no", "q yes")] and len(model.asked) == 4


@pytest.mark.slow
def test_no_opinion_is_worth_a_guess(tmp_path: Path) -> None:
    """At chance, not at 0: ties are wrong, so a coin decides, the same one every time."""
    write_images(tmp_path, "a.png", "b.png")
    rows = [choice(str(i), f"{'ab'[i % 2]}.png", f"yes {i}", f"no {i}") for i in range(600)]
    cases = build(*rows, root=tmp_path)
    found, again = (
        run_engine(Undecided(), {"bench": cases}, tmp_path / name)["bench"].scores
        for name in ("one", "two")
    )
    assert (found == again).all()
    np.testing.assert_allclose(found, 0.5, atol=COIN)
    first, second = found.reshape(-1, 2).T
    assert (first != second).all() and 0.45 < (first > second).mean() < 0.55


def test_a_caption_that_stands_twice_ties_with_itself(tmp_path: Path) -> None:
    write_images(tmp_path, "a.png")
    cases = build(choice("0", "a.png", "same", "same", "other"), root=tmp_path)
    only = build(choice("0", "a.png", "same", "same"), root=tmp_path)
    model = Umpire()
    found = run_engine(model, {"bench": cases, "only": only}, tmp_path / "store")
    np.testing.assert_allclose(found["bench"].scores, shares(cases), atol=COIN)
    one, other = found["only"].scores.tolist()
    assert one == other == pytest.approx(0.5, abs=COIN)
    assert len(model.asked) == 1


def test_prompts_of_a_caption_count_alike(tmp_path: Path) -> None:
    write_images(tmp_path, "a.png")
    first, second = ("a dog", "one dog"), ("a cat", "one cat")
    captions = (PROMPTS.join(first), PROMPTS.join(second))
    model = Umpire()
    table = build(choice("0", "a.png", *captions), root=tmp_path)
    found = run_engine(model, {"bench": table}, tmp_path / "store")["bench"].scores
    shown = pixels(Picture(ImageRef("a.png"), tmp_path).open())
    wins = [naive_pair(shown, s) > naive_pair(shown, t) for s in first for t in second]
    np.testing.assert_allclose(found, [np.mean(wins), 1 - np.mean(wins)], atol=COIN)
    assert len(model.asked) == 4  # a caption's own prompts are not set against each other


def test_images_that_cannot_be_had_are_left_out(tmp_path: Path) -> None:
    write_images(tmp_path, "a.png")
    (tmp_path / "broken.png").write_bytes(b"no image")
    names = ("gone.png", "a.png", "broken.png", "text:a")
    cases = [choice(str(n), name, "x", "y") for n, name in enumerate(names)]
    table = build(*cases, root=tmp_path)
    found = run_engine(Umpire(), {"bench": table}, tmp_path / "store")["bench"]
    assert sorted(found.left_out) == [0, 2, 3]
    assert np.isnan(found.scores[[0, 1, 4, 5, 6, 7]]).all()
    np.testing.assert_allclose(sorted(found.scores[2:4]), [0, 1], atol=COIN)


@pytest.mark.parametrize("count", [1, MOST + 1])
def test_cases_that_it_cannot_choose_in_are_refused(tmp_path: Path, count: int) -> None:
    write_images(tmp_path, "a.png", "b.png")
    captions = tuple(f"caption {n}" for n in range(count))
    truth = ((True,) * count, (False,) * count)
    table = build(Case("0", (ImageRef("a.png"), ImageRef("b.png")), captions, truth), root=tmp_path)
    model = Umpire()
    with raises("E-CHOICE-CAPTIONS", "bench") as error:
        run_engine(model, {"bench": table}, tmp_path / "store")
    assert is_sentence(error.value) and model.asked == []


class Labels(Quiet):
    def __init__(self) -> None:
        self.labels: list[tuple[str, int]] = []

    def start(self, what, total):
        self.labels.append((what, total))
        return super().start(what, total)


def test_what_it_will_take_is_said_before_it_begins(tmp_path: Path) -> None:
    write_images(tmp_path, "a.png")
    old = build(choice("0", "a.png", "x", "y"), root=tmp_path)
    new = build(choice("0", "a.png", "x", "y", "z"), root=tmp_path)
    seen = []
    for table in (old, new, new):
        model, labels = Announcer(), Labels()
        with Store(tmp_path / "store") as opened:
            score(model, {"bench": table}, {"bench": "cut"}, Work(opened, 4, labels))
        seen.append((labels.labels, model.counts))
    assert seen == [
        ([("choices: 1 coins", 1)], [1]),
        ([("choices: 2 coins", 3)], [2]),  # what is stored costs nothing
        ([("choices: 0 coins", 3)], [0]),
    ]


def test_a_pair_scorer_may_announce_too(tmp_path: Path) -> None:
    class Loud(Judge):
        def announce(self, items: int) -> str:
            return f"{items} coins"

    write_images(tmp_path, "a.png")
    table = build(choice("0", "a.png", "x", "y"), root=tmp_path)
    for model, label in ((Loud(), "pairs: 2 coins"), (Judge(), "pairs")):
        labels = Labels()
        with Store(tmp_path / label) as opened:
            found = score(model, {"bench": table}, {"bench": "cut"}, Work(opened, 4, labels))
        assert labels.labels == [(label, 2)]
        np.testing.assert_allclose(found["bench"].scores, naive(table, naive_pair), rtol=1e-6)
