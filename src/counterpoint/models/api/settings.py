"""Which endpoint is asked and how: from the environment, and from the options of a model's name."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from counterpoint._util.errors import ModelError, NotFoundError
from counterpoint._util.registry import did_you_mean

LOGPROBS: Final = "logprobs"
CHOICE: Final = "choice"
IMAGES: Final = {"jpeg": {"quality": 95, "subsampling": 0}, "png": {}}  # all colours are kept
_SMALLEST: Final = 32  # pixels


class ApiOptions(NamedTuple):
    """The options after the name of a model: `MODEL?mode=choice&side=512&image=png&parallel=64`."""

    mode: str = ""  # empty: whatever the endpoint can do
    side: int = 1024  # the longer side of an image, at most
    image: str = "jpeg"
    parallel: int | None = None  # requests at a time; None: as many as the endpoint takes


def read_options(rest: str) -> tuple[str, ApiOptions]:
    """The name of a model, and the options after it."""
    name, _, options = rest.partition("?")
    if not name:
        raise ModelError(
            "E-MODEL-ID-INVALID", "api: needs a model's name, for instance api:gpt-4o-mini."
        )
    given = dict(parse_qsl(options, keep_blank_values=True))
    for option in given.keys() - set(ApiOptions._fields):
        raise NotFoundError(
            "E-OPTION-UNKNOWN", did_you_mean("option of api", option, ApiOptions._fields)
        )
    found = ApiOptions(
        given.get("mode", ""),
        _number(rest, "side", given.get("side", "1024"), _SMALLEST),
        given.get("image", "jpeg"),
        _number(rest, "parallel", given["parallel"], 1) if "parallel" in given else None,
    )
    if found.mode not in ("", LOGPROBS, CHOICE):
        raise NotFoundError(
            "E-OPTION-INVALID", did_you_mean("mode of api", found.mode, (LOGPROBS, CHOICE))
        )
    if found.image not in IMAGES:
        raise NotFoundError("E-OPTION-INVALID", did_you_mean("image of api", found.image, IMAGES))
    return name, found


def _number(rest: str, option: str, said: str, least: int) -> int:
    if not said.isdecimal() or int(said) < least:
        what = {"side": "pixels", "parallel": "requests at a time"}[option]
        raise ModelError(
            "E-OPTION-INVALID",
            f"api:{rest}: {option} should be a number of {what} from {least} on.",
        )
    return int(said)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model is, and how much may be asked of it."""

    name: str  # `api:MODEL`, for messages
    url: str
    key: str = field(repr=False)
    concurrency: int | None = None  # None: as many requests at a time as it takes
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
    [concurrency] = _numbers(name, "COUNTERPOINT_API_CONCURRENCY", "8")
    fixed = bool(os.environ.get("COUNTERPOINT_API_CONCURRENCY", "").strip())
    [timeout] = _numbers(name, "COUNTERPOINT_API_TIMEOUT", "120")
    if concurrency < 1 or timeout <= 0:
        raise ModelError(
            "E-VARIABLE-INVALID",
            f"{name}: COUNTERPOINT_API_CONCURRENCY should be at least 1, and "
            "COUNTERPOINT_API_TIMEOUT more than 0 seconds.",
        )
    return Endpoint(name, url, key, int(concurrency) if fixed else None, timeout, read_price(name))


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
