"""Security of the studio: tokens, the admin's cookie, forms, host names and headers.

Forms are checked twice. A form carries a token that belongs to a cookie of the same browser (a
signed double submit). And where a browser says which site a request comes from, it must be this
one.

A page of another site can make its own name point to this machine (DNS rebinding) and could then
read everything that a browser here may read. So a request must use a known host name.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from counterpoint._util.errors import CounterpointError, DataError
from counterpoint._util.writing import whole_file

CSRF_FIELD: Final = "csrf"
_KEY_BYTES: Final = 32
HEADERS: Final = {
    # No inline script, no inline style, nothing from elsewhere: what a caption holds stays text.
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # Personal links must not leak. With `no-referrer` a browser would say of our own forms, too,
    # that they come from nowhere.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class StudioError(CounterpointError):
    """A request that is not answered as asked. `status` is its HTTP status."""

    def __init__(self, code: str, message: str, status: int = 403) -> None:
        super().__init__(code, message)
        self.status = status


def new_token() -> str:
    """A random token for a link: 32 bytes, safe in a URL."""
    return secrets.token_urlsafe(_KEY_BYTES)


def same(a: str, b: str) -> bool:
    """Whether two secrets are equal, in a time that does not tell where they differ."""
    return hmac.compare_digest(a.encode("utf-8", "replace"), b.encode("utf-8", "replace"))


def kept_key(path: Path) -> bytes:
    """The key in a file that only its owner can read, made if there is none.

    Forms that were open when the server was restarted can still be sent, because the key stays.
    """
    if not path.exists():
        try:
            with whole_file(path) as draft:
                keep_private(draft)
                draft.write_bytes(secrets.token_bytes(_KEY_BYTES))
        except DataError:  # a folder of runs that cannot be written to is still worth looking at
            return secrets.token_bytes(_KEY_BYTES)
    keep_private(path)
    key = path.read_bytes()
    if len(key) != _KEY_BYTES:
        raise StudioError(
            "E-KEY-INVALID", f"{path} is no key of the studio; remove it and start again."
        )
    return key


def keep_private(path: Path) -> None:
    """Let only its owner read and write a file, which is made if there is none."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    with suppress(PermissionError):  # the file of another user, who may do this alone
        path.chmod(0o600)


class Guard:
    """The secrets of one studio: the admin's token, which is new at each start, and a key."""

    def __init__(self, admin_token: str | None = None, key: bytes | None = None) -> None:
        self.admin_token = admin_token or new_token()
        self._key = key or secrets.token_bytes(_KEY_BYTES)
        # Cookies do not know of ports: two studios on one machine must not share theirs.
        mark = hashlib.sha256(self._key).hexdigest()[:8]
        self._admin_cookie, self._csrf_cookie = f"studio_admin_{mark}", f"studio_csrf_{mark}"

    def _signed(self, what: str, *parts: str) -> str:
        message = "\0".join((what, *parts)).encode("utf-8", "replace")
        return hmac.new(self._key, message, hashlib.sha256).hexdigest()

    def is_admin(self, request: Request) -> bool:
        shown = request.cookies.get(self._admin_cookie, "")
        return same(shown, self._signed("admin", self.admin_token))

    def welcome(self, request: Request, response: Response) -> None:
        """Let the browser of this response be the admin's until it is closed."""
        value = self._signed("admin", self.admin_token)
        self._set(request, response, self._admin_cookie, value)

    def csrf_token(self, request: Request) -> str:
        """What a form of this page must carry; `remember` sets the cookie that it belongs to."""
        nonce = request.cookies.get(self._csrf_cookie) or getattr(request.state, "nonce", "")
        if not nonce:
            nonce = request.state.nonce = new_token()
        admin = request.cookies.get(self._admin_cookie, "")
        return self._signed("csrf", nonce, admin)

    def remember(self, request: Request, response: Response) -> None:
        nonce = getattr(request.state, "nonce", "")
        if nonce:
            self._set(request, response, self._csrf_cookie, nonce)

    def check_csrf(self, request: Request, token: str) -> None:
        """Raise RequestError unless the token is the one that our page gave this browser."""
        refuse_elsewhere(request)
        known = bool(request.cookies.get(self._csrf_cookie))
        if not known or not same(token, self.csrf_token(request)):
            raise StudioError(
                "E-FORM-EXPIRED",
                "This form is out of date or was not made here: load the page again.",
            )

    def _set(self, request: Request, response: Response, name: str, value: str) -> None:
        secure = request.url.scheme == "https"
        response.set_cookie(name, value, httponly=True, samesite="lax", secure=secure, path="/")


def refuse_elsewhere(request: Request) -> None:
    """Raise RequestError if the browser says that another site makes the request."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin", "")
    host = request.headers.get("host", "")
    elsewhere = bool(origin) and origin.partition("://")[2] != host
    if site not in ("same-origin", "none") or elsewhere:
        raise StudioError("E-FORM-FOREIGN", "This form was sent from another site.")


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
