"""Downloads from a server that sends whatever it likes: a file, or one sentence."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from conftest import _GETADDRINFO
from errors import raises
from http_server import Server, breaks, says, sends, serving

from counterpoint.data.download import (
    FetchError,
    WantedFile,
    announced_length,
    continues,
    download,
    new_client,
    retry_after,
    version_of,
)

pytestmark = pytest.mark.usefixtures("local_network")
CONTENT = bytes(range(256)) * 1200
OK = b"HTTP/1.1 200 OK\r\n"
DIGITS = "9" * 5000


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as started:
        yield started


def fetch(path: Path, url: str, **known: object) -> bytes:
    with new_client() as client:
        download(
            WantedFile(path, (url,), **known), client, lambda _: None, lambda _: lambda _: None
        )
    return path.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    "location",
    [
        f"http://{'a' * 9000}/",
        f"http://{'a.' * 9000}/",
        "http://[::1",
        "http://127.0.0.1:99999999/",
        "http://127.0.0.1:x/",
        "http://exa mple/",
        "http://\xff\xfe/",
        "http://",
        "//",
        "file:///etc/passwd",
        "javascript:alert(1)",
        f"/{'a' * 70_000}",
    ],
)
def test_redirects_to_impossible_places(server, tmp_path, monkeypatch, location):
    """None of these names can be asked for: they fail before any network is needed."""
    monkeypatch.setattr(socket, "getaddrinfo", _GETADDRINFO)
    url = server.put("file", b"", always=says(302, Location=location))
    with pytest.raises(FetchError, match=r"cannot be fetched: 127\.0\.0\.1: [\w ,]+\.$"):
        fetch(tmp_path / "f", url)
    assert list(tmp_path.iterdir()) == []


def test_cookies_are_neither_kept_nor_sent(server, tmp_path):
    """A cookie that is not ASCII could not be sent back."""
    there = server.put("there", CONTENT)
    seen = []

    def keep(handler, resource):
        seen.append(handler.headers["Cookie"])
        handler.send(200, resource.content)

    server.resources["/there"].always = keep
    cookie = "a=\u00ff\u00fe; Path=/"
    here = server.put("here", b"", always=says(302, Location=there, Set_Cookie=cookie))
    assert fetch(tmp_path / "f", here) == CONTENT
    assert seen == [None]


@pytest.mark.parametrize("etag", ['"\u00ff"', f'"{"a" * 600}"', '"a\tb"'])
def test_versions_that_cannot_be_sent_back_are_not(server, tmp_path, etag):
    url = server.put("file", CONTENT, breaks(100_000), etag=etag)
    assert fetch(tmp_path / "f", url) == CONTENT
    assert server.ranges() == [None, None]


@pytest.mark.slow
@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\0" * 100,
        b"HTTP/1.1 99999 what\r\n\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000,
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 2_000_000,
        OK + f"Content-Length: {DIGITS}\r\n\r\n".encode() + CONTENT,
        OK + b"Content-Length: -1\r\n\r\n" + CONTENT,
        OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n" + CONTENT,
        OK + b"Content-Length: \xb2\r\n\r\n" + CONTENT,
        OK + b"Content-Length: 9000000\r\n\r\n" + CONTENT,
        OK + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffffffff\r\n" + CONTENT,
        OK + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n" + CONTENT,
        OK + b"Transfer-Encoding: \xff\r\n\r\n" + CONTENT,
        OK + b"Content-Encoding: br\r\nContent-Length: 1\r\n\r\n\xff",
        b"HTTP/1.1 206 Partial\r\nContent-Range: bytes 5-6/" + DIGITS.encode() + b"\r\n\r\nxx",
        b"HTTP/1.1 206 Partial\r\nContent-Range: bytes " + DIGITS.encode() + b"-1/2\r\n\r\nxx",
        b"HTTP/1.1 416 No\r\nContent-Range: bytes */\xff\r\n\r\n",
        b"HTTP/1.1 503 No\r\nRetry-After: " + DIGITS.encode() + b"\r\n\r\n",
        b"HTTP/1.1 302 There\r\n\r\n",
        b"HTTP/1.1 100 Go on\r\n\r\n" * 3,
    ],
    ids=range(22),
)
def test_answers_that_make_no_sense_are_one_sentence(server, tmp_path, answer):
    url = server.put("file", b"", always=sends(answer))
    with pytest.raises(FetchError, match=r"^f cannot be fetched: 127\.0\.0\.1: .{1,200}\.$"):
        fetch(tmp_path / "f", url, size=len(CONTENT) + 1)
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize("known", [True, False])
def test_more_than_should_come_is_not_written(server, tmp_path, monkeypatch, known):
    """An answer without length may have no end."""
    monkeypatch.setattr("counterpoint.data.download._LARGEST", 1000)
    url = server.put("file", b"", always=sends(OK + b"\r\n" + CONTENT * 20))
    with raises("E-DOWNLOAD-FAILED") as caught:
        fetch(tmp_path / "f", url, size=1000 if known else None)
    assert caught.value.causes == ["E-FILE-WRONG"]
    assert list(tmp_path.iterdir()) == []


def test_headers_that_are_no_numbers_are_none():
    for said in [
        *(DIGITS, "-1", "1e5", "\u0664", "soon", ",", "Mon, , ,", "0001 Jan 1"),
        "Wed, 21 Oct 99999999999 07:28:00 GMT",
        "Wed, 21 Oct 2015 07:28:00 +9999",
        "Fri, 31 Dec 9999 23:59:59 -2359",
    ]:
        headers = [(name, said.encode()) for name in ("Retry-After", "Content-Length", "ETag")]
        response = httpx.Response(
            503, headers=[*headers, ("Content-Range", f"bytes {said}-1/2".encode())]
        )
        wait = retry_after(response)
        assert wait is None or wait >= 0
        assert announced_length(response) is None and version_of(response) is None
        assert not continues(response, 0, None, None)
