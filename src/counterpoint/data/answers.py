"""Answers of servers: whether a download goes on, is tried again, starts over or is given up."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final

import httpx

from counterpoint._util.errors import DataError

HTTP_STATUS: Final = "E-HTTP-STATUS"
WEB_PAGE: Final = "E-HTTP-WEB-PAGE"
UNREACHABLE: Final = "E-SERVER-UNREACHABLE"
_BUSY: Final = {408, 425, 429}
_ABSENT: Final = {403, 404, 410}  # some servers answer 403 for a missing file
# At most 18 digits: enough for any file, and Python rejects thousands of them.
_LENGTH: Final = re.compile(r"[0-9]{1,18}")
_RANGE: Final = re.compile(r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18}|\*)")
_VERSION: Final = re.compile(r"[ -~]{1,500}")  # what can be sent back in a header


class PassingError(DataError):
    """Another attempt may succeed; `wait` is how many seconds the server asks for."""

    def __init__(
        self, reason: str, wait: float | None = None, *, code: str = "E-TRANSFER-BROKEN"
    ) -> None:
        super().__init__(code, reason)
        self.wait = wait


class WrongFileError(DataError):
    """These bytes are not the file."""


class HopelessError(DataError):
    """This mirror cannot be used."""

    @property
    def absent(self) -> bool:
        return self.data.get("status") in _ABSENT


def refuse(response: httpx.Response, path: Path) -> None:
    """Raise unless the answer is a file, or a piece of one."""
    status = response.status_code
    if status in _BUSY or status >= 500:
        raise PassingError(f"HTTP {status}", retry_after(response), code=HTTP_STATUS)
    if status not in (200, 206):
        raise HopelessError(HTTP_STATUS, f"HTTP {status}", status=status)
    kind = response.headers.get("Content-Type", "")
    if kind.startswith("text/html") and path.suffix not in (".html", ".htm"):
        raise HopelessError(WEB_PAGE, "it sends a web page instead of the file")
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise HopelessError("E-HTTP-COMPRESSED", "it compresses although it was asked not to")


def retry_after(response: httpx.Response) -> float | None:
    """Seconds, from a header that holds seconds or a date."""
    said = response.headers.get("Retry-After", "").strip()
    if _LENGTH.fullmatch(said):
        return float(said)
    try:
        until = parsedate_to_datetime(said)
        until = until if until.tzinfo else until.replace(tzinfo=UTC)
        return max(0.0, (until - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None


def version(response: httpx.Response) -> str | None:
    """The value for If-Range: a strong ETag, else the date of the last change."""
    tag: str = response.headers.get("ETag", "")
    found = tag if tag.startswith('"') else response.headers.get("Last-Modified", "")
    return found if _VERSION.fullmatch(found) else None


def announced_length(response: httpx.Response) -> int | None:
    length = response.headers.get("Content-Length", "")
    return int(length) if _LENGTH.fullmatch(length) else None


def continues(response: httpx.Response, start: int, size: int | None, known: str | None) -> bool:
    """Whether a 206 continues at `start`, in the version of the part that we have."""
    found = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if not found or int(found[1]) != start:
        return False
    if size is not None and found[2] not in ("*", str(size)):
        return False
    tag = response.headers.get("ETag")
    return not (tag and known and known.startswith('"') and tag != known)
