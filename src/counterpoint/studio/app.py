"""The studio as an application: its routers, and what holds for every request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

from counterpoint._util.errors import CounterpointError
from counterpoint.studio.browse.library import Library
from counterpoint.studio.browse.pages import browse_router, home_router
from counterpoint.studio.pictures import Gallery
from counterpoint.studio.playground.pages import try_router
from counterpoint.studio.playground.scores import Models
from counterpoint.studio.security import HEADERS, Guard, Shield, StudioError
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
        app.add_api_route("/static/htmx.js", _file(htmx), include_in_schema=False)
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


def _file(path: Path) -> Callable[[], Awaitable[FileResponse]]:
    async def send() -> FileResponse:
        return FileResponse(path, media_type="text/javascript")

    return send


def _add_errors(app: FastAPI, web: Web) -> None:
    """Every error is a page, or for htmx a notice, of one sentence."""

    def answer(request: Request, status: int, message: str) -> Response:
        template = "error_notice.html" if "hx-request" in request.headers else "error.html"
        title = _TITLES.get(status, "That did not work")
        return web.page(request, template, status=status, title=title, message=message)

    def refused(request: Request, error: Any) -> Response:
        return answer(request, error.status, str(error))

    def known(request: Request, error: Any) -> Response:
        return answer(request, 400, str(error))

    def missing(request: Request, error: Any) -> Response:
        sentence = "There is no such page." if error.status_code == 404 else str(error.detail)
        return answer(request, error.status_code, sentence)

    def invalid(request: Request, error: Any) -> Response:
        del error
        return answer(request, 404, "There is no such page.")

    def gone(request: Request, error: Any) -> Response:
        del request, error
        return Response(status_code=400)  # the client is no longer there to read it

    def broken(request: Request, error: Any) -> Response:
        del error  # the server's log has it
        response = answer(request, 500, "An error of the studio itself; its log says more.")
        response.headers.update(HEADERS)  # this answer is made outside of the shield
        return response

    app.add_exception_handler(StudioError, refused)
    app.add_exception_handler(CounterpointError, known)
    app.add_exception_handler(HTTPException, missing)
    app.add_exception_handler(ClientDisconnect, gone)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(Exception, broken)
