"""The pages of Browse, for the admin alone: they show what lies on this machine."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from counterpoint.cases import ImageRef
from counterpoint.scoring.pictures import Picture
from counterpoint.studio.browse.case_page import case_context
from counterpoint.studio.browse.filters import read_filter
from counterpoint.studio.browse.library import Library
from counterpoint.studio.browse.list_page import list_context
from counterpoint.studio.browse.numbers import numbers_table
from counterpoint.studio.browse.views import counts
from counterpoint.studio.pictures import LARGE, SMALL, Gallery
from counterpoint.studio.security import Refused
from counterpoint.studio.web import Number, Web, push_url, require_admin, url, wants_fragment


def browse_router(web: Web, library: Library, gallery: Gallery) -> APIRouter:
    """`/numbers`, `/browse`, `/browse/case` and the pictures of cases."""
    router = APIRouter(dependencies=[Depends(require_admin)])

    @router.get("/numbers")
    def numbers(request: Request, benchmark: str = "") -> Response:
        if not library.having(benchmark):
            raise Refused("No run has such a benchmark.", 404)
        table = numbers_table(library, benchmark)
        return web.fragment(request, "browse_numbers.html", table=table)

    @router.get("/browse")
    def browse(request: Request) -> Response:
        context = list_context(library, read_filter(request.query_params))
        part = wants_fragment(request)
        template = "browse_cases.html" if part else "browse_list.html"
        response = web.page(request, template, **context)
        if part and context["run"] is not None:
            push_url(request, response, url("/browse", **context["filter"].query()))
        return response

    @router.get("/browse/case")
    def case(request: Request, case: str = "", image: str = "") -> Response:
        asked = read_filter(request.query_params)
        context = case_context(library, asked, case, image)
        return web.page(request, "browse_case.html", **context)

    @router.get("/browse/picture/{key}/{row}/{number}")
    async def picture(
        request: Request, key: str, row: Number, number: Number, benchmark: str = "", size: str = ""
    ) -> Response:
        found = await run_in_threadpool(held_picture, library, key, benchmark, row, number)
        return await gallery.response(request, found, SMALL if size == "small" else LARGE)

    return router


def held_picture(library: Library, key: str, benchmark: str, row: int, number: int) -> Picture:
    """The picture that a case of a run refers to; Refused (404) if there is none."""
    index = library.index(library.run(key), benchmark)
    cases = index.part.cases
    if not 0 <= row < len(cases) or not 0 <= number < counts(index, row)[0]:
        raise Refused("There is no such image.", 404)
    value = cases.frame["images"][row][number]
    box = None if value["box"] is None else tuple(value["box"])
    return Picture(ImageRef(value["path"], box), cases.root)
