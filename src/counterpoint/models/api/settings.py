"""Which endpoint is asked and how: from the environment, and from the options of a model's name."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from counterpoint._util.errors import ModelError
from counterpoint._util.registry import Option, read_options

LOGPROBS: Final = "logprobs"
CHOICE: Final = "choice"
IMAGES: Final = {"jpeg": {"quality": 95, "subsampling": 0}, "png": {}}  # all colours are kept
PARALLEL: Final = 16  # requests at a time
_OPTIONS: Final = {
    "mode": Option("", (LOGPROBS, CHOICE)),
    "side": Option(1024, least=32),
    "image": Option("jpeg", tuple(IMAGES)),
}


class ApiOptions(NamedTuple):
    """The options after the name of a model: `MODEL?mode=choice&side=512&image=png&parallel=64`."""

    mode: str  # empty: whatever the endpoint can do
    side: int  # the longer side of an image, at most
    image: str
    parallel: int  # requests at a time


def read_model(rest: str) -> tuple[Endpoint, ApiOptions]:
    """Where a model is asked, by its name, and the options after it."""
    name, _, options = rest.partition("?")
    if not name:
        raise ModelError(
            "E-MODEL-ID-INVALID", "api: needs a model's name, for instance api:gpt-4o-mini."
        )
    endpoint = read_endpoint(f"api:{name}")
    known = {**_OPTIONS, "parallel": Option(endpoint.parallel, least=1)}
    values: dict[str, Any] = read_options("api", options, known)
    return endpoint, ApiOptions(**values)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model is, and how much may be asked of it."""

    name: str  # `api:MODEL`, for messages
    url: str
    key: str = field(repr=False)
    parallel: int = PARALLEL  # requests at a time
    timeout: float = 120.0  # seconds
    price: tuple[float, float] | None = None  # of a million tokens, in and out

    def shown(self) -> str:
        """The address without a user, a password or a query."""
        parts = urlsplit(self.url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"


def read_endpoint(name: str) -> Endpoint:
    """From the environment."""
    url = _needed(name, "OPENAI_BASE_URL", "for instance http://localhost:8000/v1").rstrip("/")
    key = _needed(name, "OPENAI_API_KEY", "a local server takes any word")
    if not _is_address(url):
        raise ModelError(
            "E-VARIABLE-INVALID",
            f"{name}: OPENAI_BASE_URL should be an http address that ends in /v1.",
        )
    if not (key.isascii() and key.isprintable()):
        raise ModelError(
            "E-VARIABLE-INVALID",
            f"{name}: OPENAI_API_KEY holds characters that cannot be sent in a header.",
        )
    [parallel] = _numbers(name, "COUNTERPOINT_API_CONCURRENCY", str(PARALLEL))
    [timeout] = _numbers(name, "COUNTERPOINT_API_TIMEOUT", "120")
    if parallel < 1 or timeout <= 0:
        raise ModelError(
            "E-VARIABLE-INVALID",
            f"{name}: COUNTERPOINT_API_CONCURRENCY should be at least 1, and "
            "COUNTERPOINT_API_TIMEOUT more than 0 seconds.",
        )
    return Endpoint(name, url, key, int(parallel), timeout, read_price(name))


def read_price(name: str) -> tuple[float, float] | None:
    """Of a million tokens, in and out; no server needs to be named for it."""
    if not os.environ.get("COUNTERPOINT_API_PRICE", "").strip():
        return None
    cost_in, cost_out = _numbers(name, "COUNTERPOINT_API_PRICE", "0.15,0.6")
    return cost_in, cost_out


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is not a number
        return False


def _needed(name: str, variable: str, hint: str) -> str:
    value = os.environ.get(variable, "").strip()
    if not value:
        raise ModelError(
            "E-VARIABLE-MISSING", f"{name}: the environment variable {variable} is not set; {hint}."
        )
    return value


def _numbers(name: str, variable: str, default: str) -> list[float]:
    """As many as the default has."""
    said = os.environ.get(variable, "").strip() or default
    try:
        found = [float(part) for part in said.split(",")]
    except ValueError:
        found = []
    if len(found) != len(default.split(",")) or not all(0 <= n < float("inf") for n in found):
        raise ModelError(
            "E-VARIABLE-INVALID", f"{name}: {variable} is {said!r} and should be like {default}."
        )
    return found
