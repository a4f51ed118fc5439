"""`api:MODEL` as the tests load it, on an endpoint on this machine."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from api_server import KEY, Endpoint, Server, probability, serve
from engine_support import build
from errors import raises
from models_for_tests import choice, run_engine, write_images

from counterpoint.cases.table import Cases, ImageRef
from counterpoint.images import Picture
from counterpoint.models.api import adapter as family
from counterpoint.models.api.adapter import ApiChoice, ApiYes
from counterpoint.models.registry import LoadOptions

CONTEXT = ssl.create_default_context()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serve() as served:
        yield served


@pytest.fixture
def endpoint(server: Server, local_network: None, monkeypatch: pytest.MonkeyPatch) -> Endpoint:
    for variable in [name for name in os.environ if name.startswith("COUNTERPOINT_API_")]:
        monkeypatch.delenv(variable)
    # Certificates take a tenth of a second to read, and here nobody needs any.
    monkeypatch.setattr(ssl, "create_default_context", lambda *_, **__: CONTEXT)
    without_pauses(monkeypatch)
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    return server.new_endpoint()


def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked again is asked at once."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.0)
    monkeypatch.setattr("counterpoint.models.api.client.PAUSE", 0.0)


def load(rest: str) -> ApiYes | ApiChoice:
    return family.load(rest, LoadOptions())


def pair(shown: str, caption: str) -> float:
    return probability(shown, caption)


def two(tmp_path: Path) -> Cases:
    """Two images, two captions each."""
    write_images(tmp_path, "a.png", "b.png")
    cases = (choice(str(n), f"{n}.png", f"yes {n}", f"no {n}") for n in "ab")
    return build(*cases, root=tmp_path)


def score(model: object, cases: Cases, tmp_path: Path, batch: int = 4) -> np.ndarray:
    return run_engine(model, {"bench": cases}, tmp_path / "store", batch)["bench"].scores


def picture(folder: Path, name: str) -> Picture:
    return Picture(ImageRef(name), folder)


def refusal(rest: str, code: str, **data: object) -> str:
    """The sentence with which a model is refused; the key is not in it."""
    with raises(code, *data.values()) as error:
        load(rest)
    assert str(error.value).endswith(".") and "\n" not in str(error.value)
    assert KEY not in str(error.value)
    return str(error.value)
