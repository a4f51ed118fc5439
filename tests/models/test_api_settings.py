"""Settings and options of `api:MODEL`: a wrong one is one sentence, and no secret is told."""

from __future__ import annotations

import importlib
import json
import sys

import pytest
from api_server import KEY, Endpoint
from api_support import endpoint, load, refusal, server
from errors import raises

from counterpoint._util.errors import ModelError

__all__ = ["endpoint", "server"]  # fixtures


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("OPENAI_BASE_URL", "", "OPENAI_BASE_URL is not set"),
        ("OPENAI_API_KEY", " ", "OPENAI_API_KEY is not set"),
        ("OPENAI_BASE_URL", "localhost:8000", "should be an http address"),
        ("OPENAI_BASE_URL", "http://127.0.0.1:port/v1", "should be an http address"),
        ("OPENAI_API_KEY", "schlüssel", "cannot be sent"),
        ("OPENAI_API_KEY", "wrong", "check OPENAI_API_KEY"),
        ("OPENAI_BASE_URL", "http://127.0.0.1:1/v1", "cannot be reached"),
        ("COUNTERPOINT_API_CONCURRENCY", "many", "should be like 8"),
        ("COUNTERPOINT_API_CONCURRENCY", "0", "at least 1"),
        ("COUNTERPOINT_API_TIMEOUT", "-1", "should be like 120"),
        ("COUNTERPOINT_API_PRICE", "5", "should be like 0.15,0.6"),
        ("COUNTERPOINT_API_PRICE", "nan,1", "should be like 0.15,0.6"),
    ],
)
def test_a_wrong_setting_is_one_sentence(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str
) -> None:
    monkeypatch.setenv(name, value)
    assert words in refusal("m")


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        ("", "needs a model's name"),
        ("?mode=choice", "needs a model's name"),
        ("m?mod=choice", "Did you mean 'mode'"),
        ("m?mode=logprob", "Did you mean 'logprobs'"),
        ("m?image=gif", "Known: jpeg, png"),
        ("m?side=0", "from 32 on"),
        ("m?side=big", "from 32 on"),
    ],
)
def test_a_wrong_option_is_one_sentence(endpoint: Endpoint, rest: str, words: str) -> None:
    assert words in refusal(rest)
    assert endpoint.asked == []


def test_a_wrong_path_and_a_model_without_images(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.always_fault = "400"
    assert "takes no images" in refusal("m")
    monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url.removesuffix("/v1"))
    assert "ends in /v1" in refusal("m")


def test_a_password_in_the_address_is_not_recorded(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url.replace("//", "//user:word@"))
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    try:
        shown = json.dumps(load("m").describe())
    except ModelError as error:  # some clients send the password instead of the key
        shown = str(error)
    assert "word" not in shown and endpoint.url in shown


def test_without_the_client_it_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    for name in ("adapter", "client"):
        monkeypatch.delitem(sys.modules, f"counterpoint.models.api.{name}")
    with raises("E-EXTRA-MISSING", extra="vlm"):
        importlib.import_module("counterpoint.models.api.adapter")
