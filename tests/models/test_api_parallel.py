"""How many requests `api:MODEL` keeps in flight, and an endpoint that takes fewer."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from api_server import KEY, Endpoint, serve
from api_support import endpoint, load, pair, refusal, score, server
from engine_support import naive
from errors import raises
from models_for_tests import ragged

__all__ = ["endpoint", "server"]  # fixtures


@pytest.mark.slow
def test_a_fixed_number_runs_at_a_time_across_batches(endpoint: Endpoint, tmp_path: Path) -> None:
    model, cases = load("m?image=png&parallel=6"), ragged(tmp_path, 4)
    endpoint.delay = 0.2
    found = score(model, cases, tmp_path, batch=2)
    np.testing.assert_allclose(found, naive(cases, pair), rtol=1e-6)
    assert endpoint.most_active == model.describe()["parallel"] == 6
    assert model.fingerprint == load("m?image=png").fingerprint


@pytest.mark.slow
def test_a_server_that_takes_few_is_asked_again(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.takes = 5
    model, cases = load("m?image=png&parallel=8"), ragged(tmp_path, 8)
    endpoint.delay = 0.01
    found = score(model, cases, tmp_path, batch=1000)
    np.testing.assert_allclose(found, naive(cases, pair), rtol=1e-6)
    assert model.describe()["usage"]["retries"] > 0
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
    told = refusal(f"m?parallel={said}", "E-OPTION-INVALID")
    assert "parallel must be a whole number from 1 on" in told
