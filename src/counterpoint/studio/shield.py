"""What stands before every route: which names the server answers to, and the headers of answers.

A page of another site can make its own name point to this machine (DNS rebinding) and would then
read everything that a browser here may read. So a request must call the server by a name of its
own.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from counterpoint.studio.security import HEADERS

LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{0,5})?")


class Shield:
    """Middleware around the whole studio."""

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...] = ()) -> None:
        self.app = app
        self.hosts = {name.lower() for name in (*LOOPBACK, *hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, guarded)
            return
        await self.app(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        if host_of(scope) not in self.hosts:
            return PlainTextResponse(
                "Unknown Host header: use the address that was printed at the start, or start the "
                "studio with --allow-host NAME.\n",
                421,
            )
        if _is_odd(scope):
            return PlainTextResponse("There is no such page.\n", 404)
        return None


def host_of(scope: Scope) -> str:
    """The name in the Host header, without the port; empty if the header is not of that form."""
    values = [value for name, value in scope["headers"] if name == b"host"]
    found = _HOST.fullmatch(values[0].decode("latin-1").lower()) if len(values) == 1 else None
    return found[1] if found else ""


def _is_odd(scope: Scope) -> bool:
    """A path with dots that climb, a NUL or a backslash, however often they are encoded."""
    path = scope["path"]
    for _ in range(3):
        if "\0" in path or "\\" in path or ".." in path.split("/"):
            return True
        path = unquote(path)
    return False
