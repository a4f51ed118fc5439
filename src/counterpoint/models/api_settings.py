"""How an endpoint is asked: from the environment, and from what stands behind the model's name."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from counterpoint.errors import ModelError, NotFoundError
from counterpoint.registry import did_you_mean

LOGPROBS: Final = "logprobs"
CHOICE: Final = "choice"
IMAGES: Final = {"jpeg": {"quality": 95, "subsampling": 0}, "png": {}}  # all colours are kept
_SMALLEST: Final = 32  # pixels


class Settings(NamedTuple):
    """`MODEL?mode=choice&side=512&image=png`."""

    mode: str = ""  # empty: whatever the endpoint can do
    side: int = 1024  # the longer side of an image, at most
    image: str = "jpeg"


def read_settings(rest: str) -> tuple[str, Settings]:
    """The model's name, and what stands behind it."""
    name, _, options = rest.partition("?")
    if not name:
        raise ModelError("api: needs a model's name, for instance api:gpt-4o-mini.")
    given = dict(parse_qsl(options, keep_blank_values=True))
    for option in given.keys() - set(Settings._fields):
        raise NotFoundError(did_you_mean("option of api", option, Settings._fields))
    found = Settings(
        given.get("mode", ""), _side(rest, given.get("side", "1024")), given.get("image", "jpeg")
    )
    if found.mode not in ("", LOGPROBS, CHOICE):
        raise NotFoundError(did_you_mean("mode of api", found.mode, (LOGPROBS, CHOICE)))
    if found.image not in IMAGES:
        raise NotFoundError(did_you_mean("image of api", found.image, IMAGES))
    return name, found


def _side(rest: str, said: str) -> int:
    if not said.isdecimal() or int(said) < _SMALLEST:
        raise ModelError(f"api:{rest}: side should be a number of pixels from {_SMALLEST} on.")
    return int(said)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model is, and how much may be asked of it."""

    name: str  # `api:MODEL`, for messages
    url: str
    key: str = field(repr=False)
    concurrency: int = 8
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
        raise ModelError(f"{name}: OPENAI_BASE_URL should be an http address that ends in /v1.")
    if not (key.isascii() and key.isprintable()):
        raise ModelError(f"{name}: OPENAI_API_KEY holds what cannot be sent in a header.")
    [concurrency] = _numbers(name, "COUNTERPOINT_API_CONCURRENCY", "8")
    [timeout] = _numbers(name, "COUNTERPOINT_API_TIMEOUT", "120")
    if concurrency < 1 or timeout <= 0:
        raise ModelError(
            f"{name}: COUNTERPOINT_API_CONCURRENCY should be at least 1, and "
            "COUNTERPOINT_API_TIMEOUT more than 0 seconds."
        )
    return Endpoint(name, url, key, int(concurrency), timeout, read_price(name))


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
    except ValueError:  # a port that is no number
        return False


def _needed(name: str, variable: str, hint: str) -> str:
    value = os.environ.get(variable, "").strip()
    if not value:
        raise ModelError(f"{name}: the environment variable {variable} is not set; {hint}.")
    return value


def _numbers(name: str, variable: str, default: str) -> list[float]:
    """As many as the default has."""
    said = os.environ.get(variable, "").strip() or default
    try:
        found = [float(part) for part in said.split(",")]
    except ValueError:
        found = []
    if len(found) != len(default.split(",")) or not all(0 <= n < float("inf") for n in found):
        raise ModelError(f"{name}: {variable} is {said!r} and should be like {default}.")
    return found
