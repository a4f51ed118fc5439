"""`api:MODEL` on an endpoint with faults: what passes is tried again, the rest is a sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from api_server import KEY, Endpoint
from api_support import Pauses, endpoint, load, pair, picture, score, server, two
from engine_support import naive
from errors import raises
from models_for_tests import is_sentence, write_images

from counterpoint.models.api.client import ATTEMPTS

__all__ = ["endpoint", "server"]  # fixtures


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["429", "500", "503", "408", "cut", "html", "empty"])
def test_a_passing_fault_is_tried_again(endpoint: Endpoint, tmp_path: Path, fault: str) -> None:
    pauses = Pauses()
    model = load("m?image=png", pauses)
    endpoint.faults.extend([fault] * 3)
    found, cases = score(model, two(tmp_path), tmp_path), two(tmp_path)
    np.testing.assert_allclose(found, naive(cases, pair), rtol=1e-6)
    assert len(pauses) == 3 == model.describe()["usage"]["retries"]
    assert model.describe()["usage"]["answers"] == 1 + 4


def test_another_content_type_is_no_fault(endpoint: Endpoint, tmp_path: Path) -> None:
    pauses = Pauses()
    model = load("m?image=png", pauses)
    endpoint.always_fault = "plain"
    cases = two(tmp_path)
    np.testing.assert_allclose(score(model, cases, tmp_path), naive(cases, pair), rtol=1e-6)
    assert pauses == []


@pytest.mark.slow
def test_a_timeout_is_tried_again(
    endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNTERPOINT_API_TIMEOUT", "1")
    pauses = Pauses()
    model = load("m?image=png", pauses)
    endpoint.faults.append("slow")
    cases = two(tmp_path)
    np.testing.assert_allclose(score(model, cases, tmp_path), naive(cases, pair), rtol=1e-6)
    assert len(pauses) == 1


@pytest.mark.slow
def test_pauses_grow_and_are_never_the_same(endpoint: Endpoint, tmp_path: Path) -> None:
    write_images(tmp_path, "a.png")
    pauses = Pauses()
    model = load("m", pauses)
    endpoint.faults.extend(["500"] * (ATTEMPTS - 1))
    model.score_pairs([picture(tmp_path, "a.png")], ["x"])
    assert len(pauses) == ATTEMPTS - 1
    for number, pause in enumerate(pauses):
        longest = min(2.0**number, 60)
        assert longest / 2 <= pause <= longest
    assert len(set(pauses)) == len(pauses)


def test_a_server_says_how_long_to_wait(endpoint: Endpoint, tmp_path: Path) -> None:
    write_images(tmp_path, "a.png")
    pauses = Pauses()
    model = load("m", pauses)
    endpoint.faults.extend(["429 7", "503 0", "429 Wed, 21 Oct 2015 07:28:00 GMT"])
    model.score_pairs([picture(tmp_path, "a.png")], ["x"])
    assert 7 <= pauses[0] <= 7.7
    assert 1 <= pauses[1] <= 2 and 2 <= pauses[2] <= 4  # not at once, even if it allows that


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "times", "words"),
    [
        ("500", ATTEMPTS, "Error code: 500"),
        ("cut", ATTEMPTS, "application/json that is not a whole chat completion"),
        ("html", ATTEMPTS, "text/html that is not"),
        ("quota", 1, "exceeded your quota"),
        ("429 86400", 1, "86400 s"),
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
