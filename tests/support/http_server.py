"""A local HTTP server that misbehaves as it is told to, and remembers what it was asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Asked(NamedTuple):
    path: str
    range: str | None
    if_range: str | None


@dataclass
class Resource:
    """What lies at an address. Each request uses up a fault; then `always`, or all is well."""

    content: bytes
    faults: list[Fault] = field(default_factory=list)
    always: Fault | None = None
    etag: str | None = '"one"'
    modified: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def version(self) -> dict[str, str]:
        named = {"ETag": self.etag, "Last-Modified": self.modified}
        return {name: value for name, value in named.items() if value} | self.headers


class Server:
    """`put` lays something at an address below `url`; `asked` is the log of all requests."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.resources: dict[str, Resource] = {}
        self.asked: list[Asked] = []

    def put(self, path: str, content: bytes, *faults: Fault, **more: object) -> str:
        self.resources[f"/{path}"] = Resource(content, list(faults), **more)
        return f"{self.url}/{path}"

    def ranges(self) -> list[str | None]:
        return [asked.range for asked in self.asked]


class Handler(BaseHTTPRequestHandler):
    server: _Listening
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        state = self.server.state
        state.asked.append(Asked(self.path, self.headers["Range"], self.headers["If-Range"]))
        resource = state.resources.get(self.path.partition("?")[0])
        if resource is None:
            return self.send(404)
        fault = resource.faults.pop(0) if resource.faults else resource.always
        return (fault or serve)(self, resource)

    def send(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.head(status, len(body), **headers)
        if self.command != "HEAD":
            self.wfile.write(body)

    def head(self, status: int, length: int, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def start(self, resource: Resource) -> int:
        """Where the answer begins: at the range, if it is of the version that is here."""
        asked, of = self.headers["Range"], self.headers["If-Range"]
        if not asked or (of and of not in (resource.etag, resource.modified)):
            return 0
        return int(asked.removeprefix("bytes=").partition("-")[0])

    def log_message(self, *_: object) -> None:
        """The tests read `asked` instead."""


Fault = Callable[[Handler, Resource], None]


class _Listening(ThreadingHTTPServer):
    daemon_threads = True
    state: Server

    def server_bind(self) -> None:
        self.socket.bind(self.server_address)  # without asking for the name of this machine
        self.server_address = self.socket.getsockname()

    def handle_error(self, *_: object) -> None:
        """A client that goes away is what many tests are about."""


@contextmanager
def serving() -> Iterator[Server]:
    listening = _Listening(("127.0.0.1", 0), Handler)
    listening.state = Server(listening.server_address[1])
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield listening.state
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()


# --- what can happen ---------------------------------------------------------------------------


def serve(handler: Handler, resource: Resource) -> None:
    """As it should be, ranges and all."""
    start, size = handler.start(resource), len(resource.content)
    if start >= size and start:
        handler.send(416, Content_Range=f"bytes */{size}")
    elif start:
        said = {"Content-Range": f"bytes {start}-{size - 1}/{size}", **resource.version()}
        handler.send(206, resource.content[start:], **said)
    else:
        handler.send(200, resource.content, **resource.version())


def breaks(after: int) -> Fault:
    """The connection breaks after so many bytes of the answer."""

    def fault(handler: Handler, resource: Resource) -> None:
        start, size = handler.start(resource), len(resource.content)
        said = {"Content-Range": f"bytes {start}-{size - 1}/{size}"} if start else {}
        handler.head(206 if start else 200, size - start, **resource.version(), **said)
        handler.wfile.write(resource.content[start : start + after])
        handler.close_connection = True

    return fault


def slow(chunk: int, seconds: float) -> Fault:
    """Whole, but a little at a time."""

    def fault(handler: Handler, resource: Resource) -> None:
        start, size = handler.start(resource), len(resource.content)
        said = {"Content-Range": f"bytes {start}-{size - 1}/{size}"} if start else {}
        handler.head(206 if start else 200, size - start, **resource.version(), **said)
        for place in range(start, size, chunk):
            handler.wfile.write(resource.content[place : place + chunk])
            time.sleep(seconds)

    return fault


def says(status: int, body: bytes = b"", **headers: str) -> Fault:
    return lambda handler, _: handler.send(status, body, **headers)


def ignores_range(handler: Handler, resource: Resource) -> None:
    handler.send(200, resource.content, **resource.version())


def ignores_version(handler: Handler, resource: Resource) -> None:
    """Goes on with another version although If-Range was asked."""
    start, size = int(handler.headers["Range"][6:-1]), len(resource.content)
    said = {"Content-Range": f"bytes {start}-{size - 1}/{size}", **resource.version()}
    handler.send(206, resource.content[start:], **said)


def wrong_place(handler: Handler, resource: Resource) -> None:
    """Goes on somewhere else than where it was asked to."""
    start, size = handler.start(resource), len(resource.content)
    said = {"Content-Range": f"bytes {start - 1}-{size - 1}/{size}", **resource.version()}
    handler.send(206, resource.content[start - 1 :], **said)


def serves(content: bytes) -> Fault:
    """Other bytes, this once."""
    return lambda handler, resource: handler.send(200, content, **resource.version())


def ends_early(after: int) -> Fault:
    """Says no length, and just ends."""

    def fault(handler: Handler, resource: Resource) -> None:
        handler.send_response(200)
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.wfile.write(resource.content[:after])
        handler.close_connection = True

    return fault


def web_page(handler: Handler, _: Resource) -> None:
    handler.send(200, b"<html>Are you sure?</html>", Content_Type="text/html; charset=utf-8")


def to_itself(handler: Handler, _: Resource) -> None:
    handler.send(302, Location=handler.path)


def sends(answer: bytes) -> Fault:
    """Whatever bytes, instead of an answer."""

    def fault(handler: Handler, _: Resource) -> None:
        handler.wfile.write(answer)
        handler.close_connection = True

    return fault
