"""`api:MODEL` on an endpoint with faults: what passes is tried again, the rest is a sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from api_server import KEY, Endpoint
from api_support import endpoint, load, pair, picture, score, server, two
from engine_support import naive
from errors import raises
from models_for_tests import is_sentence, write_images

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
