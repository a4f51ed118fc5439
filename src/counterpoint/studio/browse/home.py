"""The first page: what there is, and how every run does. The admin's link ends here."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from counterpoint.studio.browse.library import Library
from counterpoint.studio.browse.numbers import NumbersTable, numbers_table
from counterpoint.studio.security import same
from counterpoint.studio.web import Web, has_htmx, require_admin, see_other


def home_router(web: Web, library: Library) -> APIRouter:
    router = APIRouter()

    @router.get("/")
    def home(request: Request, token: str = "", show: str = "") -> Response:
        if token and same(token, web.guard.admin_token):
            response = see_other("/")  # the token leaves the address at once
            web.guard.welcome(request, response)
            return response
        require_admin(request)
        runs = library.runs()
        names = sorted({name for run in runs for name in run.benchmarks})
        tables: dict[str, NumbersTable | None] = {
            name: numbers_table(library, name)
            if name == show or library.knows_numbers(name) or not has_htmx()
            else None
            for name in names
        }
        return web.page(
            request,
            "browse_home.html",
            runs=runs,
            models=len({run.model for run in runs}),
            tables=tables,
            having={name: library.having(name) for name in names},
            refused=library.refused(),
        )

    return router
