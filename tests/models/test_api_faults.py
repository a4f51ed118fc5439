"""`api:MODEL` on an endpoint with faults: what passes is tried again, the rest is a sentence."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from api_server import KEY, Endpoint, serve
from api_support import endpoint, load, pair, picture, refusal, score, server, two
from engine_support import naive
from errors import raises
from models_for_tests import is_sentence, ragged, write_images

from counterpoint.models.api.client import RETRIES

__all__ = ["endpoint", "server"]  # fixtures


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["429", "500", "503", "408", "cut", "html", "empty", "slow"])
def test_a_passing_fault_is_tried_again(
    endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setenv("COUNTERPOINT_API_TIMEOUT", "1" if fault == "slow" else "60")
    model = load("m?image=png")
    endpoint.faults.extend([fault] * 3)
    found, cases = score(model, two(tmp_path), tmp_path), two(tmp_path)
    np.testing.assert_allclose(found, naive(cases, pair), rtol=1e-6)
    assert model.describe()["usage"]["retries"] == 3
    assert model.describe()["usage"]["answers"] == 1 + 4


def test_another_content_type_is_no_fault(endpoint: Endpoint, tmp_path: Path) -> None:
    model = load("m?image=png")
    endpoint.always_fault = "plain"
    cases = two(tmp_path)
    np.testing.assert_allclose(score(model, cases, tmp_path), naive(cases, pair), rtol=1e-6)
    assert model.describe()["usage"]["retries"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "times", "words"),
    [
        ("500", 1 + RETRIES, "Error code: 500"),
        ("cut", 1 + RETRIES, "application/json that is not a whole chat completion"),
        ("html", 1 + RETRIES, "text/html that is not"),
        ("quota", 1 + RETRIES, "exceeded your quota"),
        ("429 86400", 1, "Error code: 429"),
        ("401", 1, "check OPENAI_API_KEY"),
        ("404", 1, "ends in /v1"),
        ("400", 1, "rejects a request"),
    ],
)
def test_what_does_not_pass_is_one_sentence(
    endpoint: Endpoint, tmp_path: Path, fault: str, times: int, words: str
) -> None:
    write_images(tmp_path, "a.png")
    model = load("m")
    before, endpoint.always_fault = len(endpoint.asked), fault
    with raises("E-INPUTS-REFUSED" if fault == "400" else "E-ENDPOINT-FAILED") as error:
        model.score_pairs([picture(tmp_path, "a.png")], ["x"])
    assert len(endpoint.asked) - before == times
    assert is_sentence(error.value) and words in str(error.value)
    assert "api:m" in str(error.value) and KEY not in str(error.value)


@pytest.mark.slow
def test_one_hopeless_request_ends_the_others(endpoint: Endpoint, tmp_path: Path) -> None:
    model = load("m")
    before, endpoint.delay = len(endpoint.asked), 0.02
    endpoint.faults.append("401")
    write_images(tmp_path, "a.png")
    with raises("E-ENDPOINT-FAILED"):
        model.score_pairs([picture(tmp_path, "a.png")] * 500, [f"x {n}" for n in range(500)])
    assert len(endpoint.asked) - before < 100


# --- how many at a time --------------------------------------------------------------------------


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
