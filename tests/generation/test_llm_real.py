"""A few captions through a real server: set COUNTERPOINT_TEST_LLM_URL to its address.

    python scripts/serve_gguf.py MODEL.gguf --port 8080
    COUNTERPOINT_TEST_LLM_URL=http://127.0.0.1:8080/v1 pytest tests/generation/test_llm_real.py

COUNTERPOINT_TEST_LLM_MODEL is the model's name, if the server cares.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from counterpoint.generation.llm import ChatMethod, ChatModel
from counterpoint.generation.llm.answers import words
from counterpoint.generation.llm.templates import names
from counterpoint.generation.pairs import Draft

URL = os.environ.get("COUNTERPOINT_TEST_LLM_URL", "")
MODEL = os.environ.get("COUNTERPOINT_TEST_LLM_MODEL", "local")
CAPTIONS = ["A black dog sits on a red chair and a small cat sleeps.", "a sink and a white towel"]
pytestmark = pytest.mark.skipif(not URL, reason="COUNTERPOINT_TEST_LLM_URL is not set")


@pytest.mark.parametrize("name", names())
def test_a_real_model_is_understood(
    name: str, local_network: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", URL)
    monkeypatch.setenv("OPENAI_API_KEY", os.environ.get("OPENAI_API_KEY", "local"))
    monkeypatch.setenv("COUNTERPOINT_API_TIMEOUT", "600")
    with ChatModel(MODEL, tmp_path / "answers") as model:
        method = ChatMethod(name, model)
        expected = method.estimate(CAPTIONS)
        made = method.make(CAPTIONS, [1, 2])
        used = model.client.usage.answers
        assert 1 <= used <= expected.requests
        assert method.make(CAPTIONS, [1, 2]) == made
        assert model.client.usage.answers == used  # nothing was asked again
    for caption, [each] in zip(CAPTIONS, made, strict=True):
        if isinstance(each, Draft):
            assert words(each.text) != words(caption)
            assert each.text.endswith(".") == caption.endswith(".")
        else:
            assert each.reason
