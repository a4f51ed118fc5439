"""How many requests `api:MODEL` keeps in flight: as many as the endpoint takes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from api_server import KEY, Endpoint, serve
from api_support import Pauses, endpoint, load, pair, refusal, score, server
from engine_support import naive
from errors import raises
from models_for_tests import ragged

from counterpoint.models.api import pace as module
from counterpoint.models.api.pace import MOST, Pace

__all__ = ["endpoint", "server"]  # fixtures


# --- against a simulated server ----------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def simulated(pace: Pace, clock: Clock, takes: int, answers: int) -> None:
    """A server that works on `takes` requests at a time, a second each; the rest waits there."""
    for _ in range(answers):
        clock.now += 1 / min(pace.limit, takes)
        pace.answered()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


@pytest.mark.parametrize("takes", [8, 20, 40, 100, 200, 10_000])
def test_it_grows_until_the_server_is_full(takes: int, clock: Clock) -> None:
    pace = Pace()
    pace._waiting = 1
    simulated(pace, clock, takes, 20_000)
    assert min(takes, MOST) <= pace.limit <= min(2.3 * takes, MOST)


def test_a_busy_server_is_asked_half_as_much_and_then_more_again(clock: Clock) -> None:
    pace = Pace()
    pace._waiting = 1
    simulated(pace, clock, 10_000, 20_000)
    for _ in range(MOST):  # all of them were sent before the first was refused
        pace.busy(0)
    assert pace.limit == MOST // 2 and pace.halved == 1
    pace.busy(pace.halved)
    assert pace.limit == MOST // 4
    simulated(pace, clock, 10_000, 2_000)
    assert MOST // 4 < pace.limit < MOST
    for _ in range(20):
        pace.busy(pace.halved)
    assert pace.limit == 1


def test_a_faster_server_is_found_out(clock: Clock) -> None:
    pace = Pace()
    pace._waiting = 1
    simulated(pace, clock, 16, 2_000)
    before = pace.limit
    simulated(pace, clock, 64, 60_000)
    assert before < 40 < pace.limit


def test_the_end_of_a_batch_and_a_fixed_number_teach_nothing(clock: Clock) -> None:
    pace, fixed = Pace(), Pace(5)
    simulated(pace, clock, 10_000, 1000)  # nothing waits: the server is not full
    fixed._waiting = 1
    simulated(fixed, clock, 10_000, 1000)
    fixed.busy(0)
    assert (pace.limit, fixed.limit) == (8, 5)


# --- against a server on this machine ----------------------------------------------------------


@pytest.mark.slow
def test_more_requests_run_while_answers_come_faster(endpoint: Endpoint, tmp_path: Path) -> None:
    model, cases = load("m?image=png"), ragged(tmp_path, 16)
    endpoint.delay = 0.2
    found = score(model, cases, tmp_path, batch=1000)
    np.testing.assert_allclose(found, naive(cases, pair), rtol=1e-6)
    assert 8 < endpoint.most_active <= model.describe()["parallel"]


@pytest.mark.slow
def test_a_fixed_number_runs_at_a_time_across_batches(endpoint: Endpoint, tmp_path: Path) -> None:
    model, cases = load("m?image=png&parallel=6"), ragged(tmp_path, 4)
    endpoint.delay = 0.2
    found = score(model, cases, tmp_path, batch=2)
    np.testing.assert_allclose(found, naive(cases, pair), rtol=1e-6)
    assert endpoint.most_active == 6
    assert model.fingerprint == load("m?image=png").fingerprint


@pytest.mark.slow
def test_a_server_that_takes_few_gets_few(endpoint: Endpoint, tmp_path: Path) -> None:
    class UntilThereIsRoom(Pauses):
        """However slow the machine is, who was refused comes back when there is a place."""

        async def __call__(self, seconds: float) -> None:
            while endpoint.active >= endpoint.takes:
                await asyncio.sleep(0.005)

    endpoint.takes = 5
    model, cases = load("m?image=png", UntilThereIsRoom()), ragged(tmp_path, 8)
    endpoint.delay = 0.05
    found = score(model, cases, tmp_path, batch=1000)
    np.testing.assert_allclose(found, naive(cases, pair), rtol=1e-6)
    pace = model.client.pace
    assert pace.halved > 0 and pace.limit <= 8
    asked = Counter((a.shown, a.captions) for a in endpoint.asked[1:])
    assert set(asked.values()) == {1}  # each was answered once, whatever was refused before


@pytest.mark.slow
def test_a_server_that_dies_in_the_middle(
    local_network: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was stored is not asked again by the next run."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    cases = ragged(tmp_path, 8)
    with serve() as first:
        monkeypatch.setenv("OPENAI_BASE_URL", first.url)
        one = first.new_endpoint()
        one.delay = 0.02
        model = load("m?image=png&parallel=4")

        def die() -> None:
            limit = time.monotonic() + 60
            while one.answered < 30 and time.monotonic() < limit:
                time.sleep(0.005)
            one.always_fault = "503"

        watch = threading.Thread(target=die)
        watch.start()
        with raises("E-ENDPOINT-FAILED"):
            score(model, cases, tmp_path, batch=4)
        watch.join()
    with raises("E-ENDPOINT-FAILED"):  # nobody listens
        score(model, cases, tmp_path, batch=4)
    with serve(urlsplit(one.url).port or 0) as second:
        two = second.new_endpoint()
        found = score(load("m?image=png&parallel=4"), cases, tmp_path, batch=4)
    np.testing.assert_allclose(found, naive(cases, pair), rtol=1e-6)
    assert 0 < len(two.asked) - 1 <= len(found) - 30 + 3 * 4


@pytest.mark.parametrize("said", ["0", "many", "-3", ""])
def test_a_wrong_number_is_refused(said: str, endpoint: Endpoint) -> None:
    assert "requests at a time" in refusal(f"m?parallel={said}", "E-OPTION-INVALID")
