"""What stands before every route: which names the server answers to, and the headers of answers.

A page of another site can make its own name point to this machine (DNS rebinding) and would then
read everything that a browser here may read. So a request must call the server by a name of its
own.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from counterpoint.studio.security import HEADERS

LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")


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
                "This server does not go by that name: use the address that was printed at its "
                "start, or start it with --allow-host NAME.\n",
                421,
            )
        if _is_odd(scope):
            return PlainTextResponse("There is no such page.\n", 404)
        return None


def host_of(scope: Scope) -> str:
    """The name in the Host header, without the port."""
    values = [value for name, value in scope["headers"] if name == b"host"]
    if len(values) != 1:
        return ""
    host = values[0].decode("latin-1").lower()
    if host.startswith("["):
        return host[: host.find("]") + 1]
    return host.rpartition(":")[0] if ":" in host else host


def _is_odd(scope: Scope) -> bool:
    """A path with dots that climb, a NUL or a backslash, however often they are encoded."""
    path = scope["path"]
    for _ in range(3):
        if "\0" in path or "\\" in path or ".." in path.split("/"):
            return True
        path = unquote(path)
    return False
