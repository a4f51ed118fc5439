"""One file over HTTP: resumed after an interruption, checked, and moved to its place when complete.

While it is being fetched, it is `NAME.part` in the same folder, and `NAME.part.from` says of which
version. The partial file is locked, so two processes can fetch the same file. A server's answer
decides whether a download goes on, is tried again, starts over or is given up.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final
from urllib.parse import urlsplit

from counterpoint._util.errors import DataError, reason
from counterpoint._util.progress import Advance
from counterpoint._util.untrusted import parse_json
from counterpoint._util.writing import locked

if TYPE_CHECKING:  # imported where a file is fetched: it takes as long as listing the benchmarks
    import httpx

HTTP_STATUS: Final = "E-HTTP-STATUS"
WEB_PAGE: Final = "E-HTTP-WEB-PAGE"
UNREACHABLE: Final = "E-SERVER-UNREACHABLE"
_BUSY: Final = {408, 425, 429}
_ABSENT: Final = {403, 404, 410}  # some servers answer 403 for a missing file
# At most 18 digits: enough for any file, and Python rejects thousands of them.
_LENGTH: Final = re.compile(r"[0-9]{1,18}")
_RANGE: Final = re.compile(r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18}|\*)")
_VERSION: Final = re.compile(r"[ -~]{1,500}")  # what can be sent back in a header
ATTEMPTS: Final = 5  # in a row without progress, for each mirror
_POLL: Final = 0.2  # seconds between attempts to lock a partial file
_PROGRESS: Final = 1 << 16  # bytes that count as progress
_LONGEST: Final = 60.0  # seconds between attempts, even if the server asks for more
_LARGEST: Final = 1 << 36  # bytes of a file whose length is not in the catalogue


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
    """This mirror cannot be used. `absent`: it has no file of this name."""

    def __init__(self, code: str, message: str, *, absent: bool = False) -> None:
        super().__init__(code, message)
        self.absent = absent


def refuse(response: httpx.Response, path: Path) -> None:
    """Raise unless the answer is a file, or a piece of one."""
    status = response.status_code
    if status in _BUSY or status >= 500:
        raise PassingError(f"HTTP {status}", retry_after(response), code=HTTP_STATUS)
    if status not in (200, 206):
        raise HopelessError(HTTP_STATUS, f"HTTP {status}", absent=status in _ABSENT)
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


def version_of(response: httpx.Response) -> str | None:
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


Pause = Callable[[float], None]
Begin = Callable[[int], Advance]


class PartialFile:
    """An open, locked partial file. `length` is its number of bytes."""

    def __init__(self, place: Path, file: BinaryIO) -> None:
        self.place, self.file = place, file
        self.length = os.fstat(file.fileno()).st_size
        self._note = place.with_name(f"{place.name}.from")

    def write(self, chunk: bytes) -> None:
        self.file.write(chunk)
        self.length += len(chunk)

    def clear(self) -> None:
        self.file.flush()  # or buffered bytes would be written after the cut
        self.file.truncate(0)
        self.length = 0
        self._note.unlink(missing_ok=True)

    def remember(self, url: str, version: str | None) -> None:
        if version:
            self._note.write_text(json.dumps({"url": url, "version": version}), encoding="utf-8")

    def version(self, url: str) -> str | None:
        """The version of the bytes so far, if they are from this address."""
        try:
            note = parse_json(self._note.read_bytes(), self._note)
            return str(note["version"]) if note["url"] == url else None
        except (OSError, DataError, KeyError, TypeError):
            return None

    def settle(self, path: Path) -> None:
        """Move the file to its place, in one step, after it is safely on the disk."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()  # Windows renames no open file
        self.place.replace(path)
        self._note.unlink(missing_ok=True)

    def remove(self) -> None:
        self.place.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)


@contextmanager
def locked_partial_file(path: Path, pause: Pause) -> Iterator[PartialFile]:
    """The partial file, for this process alone, once no other process has it."""
    place = path.with_name(f"{path.name}.part")
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(locked(place))
                break
            except DataError:
                pause(_POLL)  # which may raise: a worker that waits can be stopped
        part = PartialFile(place, stack.enter_context(place.open("ab")))
        try:
            yield part
        finally:
            part.file.close()
            if not part.length:  # nothing to resume
                part.remove()


@dataclass(frozen=True, slots=True)
class WantedFile:
    """A file: where it goes, its addresses in order, and what is known of it."""

    path: Path
    urls: tuple[str, ...]
    size: int | None = None
    sha256: str | None = None


class FetchError(DataError):
    """A file cannot be fetched. `absent`: no mirror has a file of this name; `unreachable`: no
    mirror could be reached.
    """

    def __init__(self, message: str, errors: Sequence[HopelessError]) -> None:
        super().__init__("E-DOWNLOAD-FAILED", message)
        self.causes = [error.code for error in errors]
        self.absent = all(error.absent for error in errors)
        self.unreachable = all(cause == UNREACHABLE for cause in self.causes)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def new_client() -> httpx.Client:
    """Without compression, since a range counts the bytes that are sent, and without cookies."""
    import httpx

    return httpx.Client(
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        follow_redirects=True,
        max_redirects=5,
        timeout=httpx.Timeout(30.0, connect=10.0),
        headers={"Accept-Encoding": "identity", "User-Agent": "counterpoint"},
    )


def download(wanted: WantedFile, client: httpx.Client, pause: Pause, begin: Begin) -> bool:
    """Fetch a file to its place; False if it is there already.

    `pause` is called with the seconds to wait before another attempt, `begin` once with the number
    of bytes (0 if unknown). Raises FetchError. The partial file stays after every error.
    """
    if wanted.path.exists():
        return False
    try:
        wanted.path.parent.mkdir(parents=True, exist_ok=True)
        with locked_partial_file(wanted.path, pause) as part:
            if wanted.path.exists():  # another process was quicker
                return False
            _from_mirrors(_Transfer(wanted, client, part, begin), pause)
            part.settle(wanted.path)
            return True
    except OSError as error:
        raise DataError(
            "E-OUTPUT-UNWRITABLE", f"{wanted.path}: cannot be written: {reason(error)}."
        ) from None


def _from_mirrors(transfer: _Transfer, pause: Pause) -> None:
    errors: list[tuple[str, HopelessError]] = []
    for url in transfer.wanted.urls:
        try:
            return _from_mirror(transfer, url, pause)
        except HopelessError as error:
            errors.append((url, error))
    path = transfer.wanted.path
    reasons = "; ".join(f"{urlsplit(url).hostname}: {error}" for url, error in errors)
    by_hand = ""
    if any(error.code == WEB_PAGE for _, error in errors):
        by_hand = f"; open {transfer.wanted.urls[0]} in a browser and save the file as {path}"
    message = f"{path.name} cannot be fetched: {reasons}{by_hand}."
    raise FetchError(message, [error for _, error in errors])


def _from_mirror(transfer: _Transfer, url: str, pause: Pause) -> None:
    """Try until the file is complete, ATTEMPTS times without progress, or it was wrong twice."""
    failures = wrong = furthest = 0
    while True:
        try:
            transfer.receive(url)
            return transfer.check()
        except WrongFileError as error:
            transfer.discard()
            wrong += 1
            if wrong == 2:
                raise HopelessError(error.code, str(error)) from None
        except PassingError as error:
            failures = 1 if transfer.part.length >= furthest + _PROGRESS else failures + 1
            furthest = max(furthest, transfer.part.length)
            if failures == ATTEMPTS:
                raise HopelessError(error.code, f"{error}, {ATTEMPTS} times in a row") from None
            pause(min(error.wait or _backoff(failures), _LONGEST))


def _backoff(failures: int) -> float:
    """1, 2, 4, ... seconds, minus up to a half, so that workers do not all retry at once."""
    return float(2 ** (failures - 1)) * random.uniform(0.5, 1.0)


class _Transfer:
    """The transfer of one file, over several requests if needed."""

    def __init__(
        self, wanted: WantedFile, client: httpx.Client, part: PartialFile, begin: Begin
    ) -> None:
        self.wanted, self.client, self.part = wanted, client, part
        self._begin = begin
        self._advance: Advance | None = None

    def receive(self, url: str) -> None:
        """One request: the rest of the file, or all of it."""
        import httpx

        headers = self._range(url)
        if self.part.length and self.part.length == self.wanted.size:
            return  # it was complete before, but not yet in its place
        try:
            with self.client.stream("GET", url, headers=headers) as response:
                if self._accept(response, url):
                    self._read(response)
        except httpx.TooManyRedirects:
            raise HopelessError("E-HTTP-REDIRECTS", "too many redirects") from None
        except httpx.UnsupportedProtocol:
            what = "it leads to an address that is not http"
            raise HopelessError("E-HTTP-ADDRESS", what) from None
        except httpx.TransportError as error:
            unreachable = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            code = UNREACHABLE if unreachable else "E-TRANSFER-BROKEN"
            raise PassingError(_said(error), code=code) from None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError):  # such as an impossible host name
            what = "it answers with headers that make no sense"
            raise HopelessError("E-HTTP-HEADERS", what) from None

    def check(self) -> None:
        """Check the size and the checksum, if they are known."""
        self.part.file.flush()
        size, length = self.wanted.size, self.part.length
        if size is not None and length < size:
            raise PassingError(f"it ended after {length:,} of {size:,} bytes")
        if size is not None and length > size:
            raise WrongFileError("E-FILE-WRONG", f"it has {length:,} bytes instead of {size:,}")
        wanted = self.wanted.sha256
        if wanted and (found := sha256(self.part.place)) != wanted:
            what = f"its sha256 is {found[:12]}..., not {wanted[:12]}..."
            raise WrongFileError("E-FILE-WRONG", what)

    def discard(self) -> None:
        if self._advance:
            self._advance(-self.part.length)
        self.part.clear()

    def _range(self, url: str) -> dict[str, str]:
        """A part is continued only if a version or a checksum shows that it is of the same file."""
        known = self.part.version(url)
        too_long = self.wanted.size is not None and self.part.length > self.wanted.size
        if too_long or not (known or self.wanted.sha256):
            self.discard()
        if not self.part.length:
            return {}
        headers = {"Range": f"bytes={self.part.length}-"}
        return headers | ({"If-Range": known} if known else {})

    def _accept(self, response: httpx.Response, url: str) -> bool:
        """Whether the answer continues the part. False: the part was complete already."""
        if response.status_code == 416 and self.part.length:
            if response.headers.get("Content-Range") == f"bytes */{self.part.length}":
                return False
            self.discard()
            raise PassingError("it refuses to go on from here")
        refuse(response, self.wanted.path)
        if response.status_code == 206 and not continues(
            response, self.part.length, self.wanted.size, self.part.version(url)
        ):
            self.discard()
            raise PassingError("it went on at another place of the file")
        if response.status_code == 200:  # from the beginning: asked for, or the file has changed
            self.discard()
            self.part.remember(url, version_of(response))
        coming = announced_length(response)
        total = None if coming is None else self.part.length + coming
        if None not in (total, self.wanted.size) and total != self.wanted.size:
            what = f"it has {total:,} bytes instead of {self.wanted.size:,}"
            raise WrongFileError("E-FILE-WRONG", what)
        if self._advance is None:
            self._advance = self._begin(total or 0)
            self._advance(self.part.length)
        return True

    def _read(self, response: httpx.Response) -> None:
        assert self._advance
        most = _LARGEST if self.wanted.size is None else self.wanted.size
        for chunk in response.iter_raw():
            if self.part.length + len(chunk) > most:  # even if it announced less
                raise WrongFileError("E-FILE-WRONG", f"it sends more than {most:,} bytes")
            self.part.write(chunk)
            self._advance(len(chunk))


def _said(error: httpx.TransportError) -> str:
    import httpx

    if isinstance(error, httpx.TimeoutException):
        return "it does not answer"
    if isinstance(error, httpx.ConnectError):
        return "no connection"
    return "the connection broke"
