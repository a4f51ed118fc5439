"""Pages from templates, forms that can be trusted, and htmx: used by every part of the studio.

Templates are Jinja2 with autoescape always on. The content security policy allows no inline
script and no `style` attribute: colours and sizes are classes of a stylesheet.

htmx is a file of the package `django-htmx`, of which nothing else is used. No JavaScript library is
kept in this repository. Without the file the pages still work: every link and form is a plain one.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import urlencode

from fastapi import Path as PathParameter
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.datastructures import FormData
from starlette.formparsers import FormParser, MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from counterpoint.metrics import TIES_MARK, TIES_NOTE
from counterpoint.studio.security import CSRF_FIELD, Guard, StudioError

# --- htmx ---------------------------------------------------------------------------------------


_PLACE: Final = Path("static/django_htmx/htmx-2.min.js")


@cache
def htmx_file() -> Path | None:
    """The path of htmx, if it is installed. The package is found, not imported: it needs Django."""
    spec = find_spec("django_htmx")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / _PLACE
    return path if path.is_file() else None


def has_htmx() -> bool:
    return htmx_file() is not None


_HERE: Final = Path(__file__).parent
STATIC: Final = _HERE / "static"
T = TypeVar("T")
# In a path. Rows, and the numbers of items, are the database's integers.
Number = Annotated[int, PathParameter(ge=0, lt=2**31)]
FORM_BYTES: Final = 64 * 1024  # of a form without a file
_FIELDS: Final = 200


class Web:
    """Makes the pages of one studio."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.templates = Environment(
            loader=FileSystemLoader(_HERE / "templates"),
            autoescape=True,  # captions are data, never markup
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.templates.globals.update(
            url=url,
            static=static,
            has_htmx=has_htmx(),
            has_campaigns=False,
            ties_sign=TIES_MARK,
            ties_meaning=TIES_NOTE,
        )

    def page(
        self, request: Request, template: str, *, status: int = 200, **context: Any
    ) -> HTMLResponse:
        """A page, or a part of one that htmx puts in place. Its template may use also:

        `csrf` (the token for a hidden field of that name), `is_admin`, `url(path, **query)`,
        `static(name)`, `request`.
        """
        known = {
            "request": request,
            "csrf": self.guard.csrf_token(request),
            "is_admin": self.guard.is_admin(request),
        }
        text = self.templates.get_template(template).render(**known, **context)
        response = HTMLResponse(text, status, {"Cache-Control": "no-store", "Vary": "HX-Request"})
        self.guard.remember(request, response)
        return response


def web_of(request: Request) -> Web:
    web: Web = request.app.state.web
    return web


def wants_fragment(request: Request) -> bool:
    """Whether htmx asks for a part of the page. Going back in history wants a whole one."""
    headers = request.headers
    return "hx-request" in headers and "hx-history-restore-request" not in headers


def require_admin(request: Request) -> None:
    """Raise RequestError unless the admin's browser asks; fit to be a dependency of a route."""
    if not web_of(request).guard.is_admin(request):
        raise StudioError(
            "E-ADMIN-ONLY",
            "This page is for the admin: open the link that was printed at the start.",
        )


@asynccontextmanager
async def checked_form(request: Request, limit: int = FORM_BYTES) -> AsyncGenerator[FormData]:
    """The form of a POST that one of our pages sent; RequestError (403, 413, 400) if it is not.

    Files are kept in memory, and let go at the end. A larger `limit` in bytes is for forms that
    upload one.
    """
    headers = request.headers
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    stream = _limited(request, limit)
    try:
        if kind == "multipart/form-data":
            form = await _InMemory(headers, stream, max_files=1, max_fields=_FIELDS).parse()
        elif kind == "application/x-www-form-urlencoded":
            form = await FormParser(headers, stream).parse()
        else:
            raise StudioError("E-FORM-MALFORMED", "A form was expected.", 400)
    except (MultiPartException, UnicodeDecodeError):
        raise StudioError("E-FORM-MALFORMED", "The form is malformed.", 400) from None
    try:
        token = form.get(CSRF_FIELD, "")
        web_of(request).guard.check_csrf(request, token if isinstance(token, str) else "")
        yield form
    finally:
        await form.close()


class _InMemory(MultiPartParser):
    """Starlette's parser, which would put a file above a megabyte onto the disk.

    It would also take a form that ends in the middle of a file for a form without it.
    """

    spool_max_size = 64 * 2**20
    _is_whole = False

    def on_end(self) -> None:
        self._is_whole = True

    async def parse(self) -> FormData:
        form = await super().parse()
        if not self._is_whole:
            for file in self._files_to_close_on_error:
                file.close()
            raise MultiPartException("It ends too early.")
        return form


async def _limited(request: Request, limit: int) -> AsyncGenerator[bytes, None]:
    sent = 0
    async for chunk in request.stream():
        sent += len(chunk)
        if sent > limit:
            raise StudioError(
                "E-REQUEST-TOO-LARGE",
                f"More than {limit // 1024:,} KiB were sent; that is too much.",
                413,
            )
        yield chunk


def whole_number(text: str, most: int, default: T) -> int | T:
    """The number from 0 to `most` that a form or an address gives in digits, or else `default`."""
    plain = text.strip()
    fits = plain.isascii() and plain.isdecimal() and len(plain) <= len(str(most))
    return int(plain) if fits and int(plain) <= most else default


def push_url(request: Request, response: Response, address: str) -> None:
    """Have htmx show the address of what it swapped in; a step of history only if it is new."""
    shown = request.headers.get("hx-current-url", "")
    there = shown.partition("://")[2].partition("/")[2]
    response.headers["HX-Push-Url"] = "false" if f"/{there}" == address else address


def see_other(path: str) -> RedirectResponse:
    """The answer to a form that has done its work: the browser loads `path`."""
    return RedirectResponse(path, 303)


def url(path: str, **query: Any) -> str:
    """A link within the studio; queries that are None or empty are left out."""
    asked = {name: value for name, value in query.items() if value not in (None, "", [])}
    return f"{path}?{urlencode(asked, doseq=True)}" if asked else path


@cache
def static(name: str) -> str:
    """The address of a file of ours, which changes with its content."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?v={digest}"
