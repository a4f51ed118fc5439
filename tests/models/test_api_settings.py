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
    ("name", "value", "code"),
    [
        ("OPENAI_BASE_URL", "", "E-VARIABLE-MISSING"),
        ("OPENAI_API_KEY", " ", "E-VARIABLE-MISSING"),
        ("OPENAI_BASE_URL", "localhost:8000", "E-VARIABLE-INVALID"),
        ("OPENAI_BASE_URL", "http://127.0.0.1:port/v1", "E-VARIABLE-INVALID"),
        ("OPENAI_API_KEY", "schlüssel", "E-VARIABLE-INVALID"),
        ("OPENAI_API_KEY", "wrong", "E-ENDPOINT-FAILED"),
        ("OPENAI_BASE_URL", "http://127.0.0.1:1/v1", "E-ENDPOINT-FAILED"),
        ("COUNTERPOINT_API_CONCURRENCY", "many", "E-VARIABLE-INVALID"),
        ("COUNTERPOINT_API_CONCURRENCY", "0", "E-VARIABLE-INVALID"),
        ("COUNTERPOINT_API_TIMEOUT", "-1", "E-VARIABLE-INVALID"),
        ("COUNTERPOINT_API_PRICE", "5", "E-VARIABLE-INVALID"),
        ("COUNTERPOINT_API_PRICE", "nan,1", "E-VARIABLE-INVALID"),
    ],
)
def test_a_wrong_setting_is_one_sentence(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, name: str, value: str, code: str
) -> None:
    monkeypatch.setenv(name, value)
    data = {"variable": name} if "VARIABLE" in code else {}
    refusal("m", code, **data)


@pytest.mark.parametrize(
    ("rest", "code", "words"),
    [
        ("", "E-MODEL-ID-INVALID", ""),
        ("?mode=choice", "E-MODEL-ID-INVALID", ""),
        ("m?mod=choice", "E-OPTION-UNKNOWN", "Did you mean 'mode'"),
        ("m?mode=logprob", "E-OPTION-INVALID", "Did you mean 'logprobs'"),
        ("m?image=gif", "E-OPTION-INVALID", "Known: jpeg, png"),
        ("m?side=0", "E-OPTION-INVALID", ""),
        ("m?side=big", "E-OPTION-INVALID", ""),
    ],
)
def test_a_wrong_option_is_one_sentence(
    endpoint: Endpoint, rest: str, code: str, words: str
) -> None:
    assert words in refusal(rest, code)
    assert endpoint.asked == []


def test_a_wrong_path_and_a_model_without_images(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.always_fault = "400"
    refusal("m", "E-REQUEST-REJECTED")
    monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url.removesuffix("/v1"))
    assert "ends in /v1" in refusal("m", "E-ENDPOINT-FAILED")


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
    with raises("E-EXTRA-MISSING", "vlm"):
        importlib.import_module("counterpoint.models.api.adapter")
