"""The studio as an application (its routers, and what holds for every request), and its server.

uvicorn closes a connection that is idle after an answer, but waits without end for a request that
never becomes complete. Here a request has a time limit, and a server has a maximum number of
connections: beyond it, the one that has kept the server waiting longest is closed.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import h11
import uvicorn
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from uvicorn.protocols.http.h11_impl import H11Protocol

from counterpoint._util.errors import CounterpointError, Terminated
from counterpoint.studio.browse.library import Library
from counterpoint.studio.browse.pages import browse_router, home_router
from counterpoint.studio.pictures import Gallery
from counterpoint.studio.playground import Models, try_router
from counterpoint.studio.security import HEADERS, Guard, Shield
from counterpoint.studio.web import STATIC, Web, htmx_file

_TITLES: Final = {
    400: "That was not understood",
    403: "Not allowed",
    404: "Not found",
    405: "Not possible here",
    413: "Too large",
    500: "Something went wrong",
}
MODELS: Final = ("world:base",)
MOST: Final = 512  # connections, where the system allows twice as many open files


def create_app(
    runs: Path,
    *,
    guard: Guard | None = None,
    models: Sequence[str] = MODELS,
    database: Any = None,
    hosts: Sequence[str] = (),
) -> FastAPI:
    """The studio over the runs of a folder.

    `database` is what `studio.database.open_database` gives; without one there are no campaigns.
    `hosts` are names, besides those of the loopback, that a browser may know this server by.
    """
    web = Web(guard or Guard())
    library, gallery = Library(runs), Gallery()
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.state.web, app.state.gallery = web, gallery
    app.add_middleware(Shield, hosts=tuple(hosts))
    _add_errors(app, web)
    if (htmx := htmx_file()) is not None:
        answer = partial(FileResponse, htmx, media_type="text/javascript")
        app.add_route("/static/htmx.js", lambda request: answer())
    app.mount("/static", StaticFiles(directory=STATIC), "static")
    app.include_router(home_router(web, library))
    app.include_router(browse_router(web, library, gallery))
    app.include_router(try_router(web, library, gallery, Models(models)))
    if database is not None:
        from counterpoint.studio.annotate import admin_router, annotator_router

        web.templates.globals["has_campaigns"] = True
        app.include_router(annotator_router(web, database), prefix="/a")
        app.include_router(admin_router(web, database, library), prefix="/campaigns")
    return app


def _add_errors(app: FastAPI, web: Web) -> None:
    """Every error is a page, or for htmx a notice, of one sentence."""

    def answer(request: Request, status: int, message: str) -> Response:
        template = "error_notice.html" if "hx-request" in request.headers else "error.html"
        title = _TITLES.get(status, "That did not work")
        return web.page(request, template, status=status, title=title, message=message)

    def refused(request: Request, error: Any) -> Response:
        return answer(request, getattr(error, "status", 400), str(error))

    def missing(request: Request, error: Any) -> Response:
        status = getattr(error, "status_code", 404)  # an address of another form leads nowhere
        sentence = "There is no such page." if status == 404 else str(error.detail)
        return answer(request, status, sentence)

    def gone(request: Request, error: Any) -> Response:
        del request, error
        return Response(status_code=400)  # the client is no longer there to read it

    def broken(request: Request, error: Any) -> Response:
        del error  # the server's log has it
        response = answer(request, 500, "An error of the studio itself; its log says more.")
        response.headers.update(HEADERS)  # this answer is made outside of the shield
        return response

    app.add_exception_handler(CounterpointError, refused)
    app.add_exception_handler(HTTPException, missing)
    app.add_exception_handler(ClientDisconnect, gone)
    app.add_exception_handler(RequestValidationError, missing)
    app.add_exception_handler(Exception, broken)


def most_connections() -> int:
    """Half of the files that this process may have open: pictures and databases need some too."""
    try:
        import resource
    except ImportError:  # Windows sets no such limit
        return MOST
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if files == resource.RLIM_INFINITY else min(MOST, max(1, files // 2))


class PatientProtocol(H11Protocol):
    """HTTP/1.1 by uvicorn, with an end to its patience. Times are in seconds."""

    header_time = 10.0
    body_time = 60.0  # after the headers: an upload may come over a slow line
    connections_at_most = most_connections()

    _clock: asyncio.TimerHandle | None = None
    _awaited: object = None  # the state of the request that the clock runs for
    _since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()
        if len(self.connections) > self.connections_at_most:
            waiting = (one for one in self.connections if isinstance(one, PatientProtocol))
            oldest = min(filter(PatientProtocol._waits, waiting), key=lambda one: one._since)
            oldest.transport.abort()
            oldest.connections.discard(oldest)  # at once: others may come before it is told

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """A clock for the headers, another for the body, none for a request that is whole."""
        state = self.conn.their_state
        if state is self._awaited:
            return
        self._stop()
        seconds = {h11.IDLE: self.header_time, h11.SEND_BODY: self.body_time}.get(state)
        if seconds is not None:
            self._awaited, self._since = state, self.loop.time()
            self._clock = self.loop.call_later(seconds, self.transport.abort)

    def _stop(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
        self._clock = self._awaited = None

    def _waits(self) -> bool:
        """Whether the next step is the client's, not the studio's."""
        working = self.cycle is not None and not self.cycle.response_complete
        return not working or self._clock is not None or self.flow.write_paused


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def serve(app: FastAPI, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve until interrupted; `announce` is told the address once the server answers.

    Ctrl-C is the usual end, and no failure; SIGTERM exits with 143.
    """
    try:
        with bound(host, port) as held:
            name = f"[{host}]" if ":" in host else host
            server = server_of(app)
            server.on_start = lambda: announce(f"http://{name}:{held.getsockname()[1]}")
            server.run([held])  # ends what is under way, then passes the signal on
    except KeyboardInterrupt as stop:
        if isinstance(stop, Terminated):
            sys.exit(143)


class StudioServer(uvicorn.Server):
    """Tells when it has started: from then on a signal ends it in order.

    One that comes earlier may leave a loop of asyncio that is not whole, with a traceback.
    """

    on_start: Callable[[], None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.on_start:
            self.on_start()


def server_of(app: FastAPI, protocol: type[PatientProtocol] | None = None) -> StudioServer:
    """A server of the app; `protocol` says how patient it is with slow clients."""
    protocol = protocol or PatientProtocol
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        backlog=-(-protocol.connections_at_most // 2),  # accepted in one go, and then counted
        timeout_graceful_shutdown=5,
    )
    return StudioServer(config)


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 is any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    held = socket.socket(family, socket.SOCK_STREAM)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((host, port))
    except (OSError, OverflowError) as error:
        held.close()
        why = getattr(error, "strerror", None) or str(error)
        raise CounterpointError(
            "E-PORT-UNAVAILABLE",
            f"cannot listen at {host} port {port} ({why}); choose another with --port.",
        ) from None
    return held
