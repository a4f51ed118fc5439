"""The pages of Browse: home, the list of cases, one case.

Only for the admin, because they show files of this machine. The admin's link leads to home.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
from fastapi import APIRouter, Depends
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from counterpoint.cases import ImageRef
from counterpoint.images import Picture
from counterpoint.metrics import heading
from counterpoint.runs import OUTCOMES, same_rows
from counterpoint.studio.browse.library import Index, Library, Listed
from counterpoint.studio.browse.views import (
    HeatCell,
    NumbersTable,
    caption_views,
    case_view,
    cells_of,
    gallery_query,
    image_views,
    numbers_table,
)
from counterpoint.studio.pictures import LARGE, SMALL, Gallery
from counterpoint.studio.security import StudioError, same
from counterpoint.studio.web import (
    Number,
    Web,
    has_htmx,
    push_url,
    require_admin,
    see_other,
    url,
    wants_fragment,
    whole_number,
)

# --- what an address asks for: a link can be shared -----------------------------------------------


PER_PAGE: Final = 20
_PAGES: Final = 10**8
_LONGEST: Final = 200  # characters of a search
DIFFER: Final = {
    "": "they disagree",
    "first": "only the first is right",
    "second": "only the second is right",
}


@dataclass(frozen=True, slots=True)
class Filter:
    """What an address asks for. `other` is a run to disagree with, `differ` in which way.

    `metric` asks for the cases that a number counts: that of the group, or of the whole benchmark.
    """

    run: str = ""
    benchmark: str = ""
    group: str = ""
    metric: str = ""
    outcome: str = ""
    other: str = ""
    differ: str = ""
    q: str = ""
    page: int = 1

    def query(self, **changes: str | int | None) -> dict[str, str | int | None]:
        """The address's query, with changes; what is empty is left out by `url`."""
        asked = {**asdict(self), **changes}
        if asked["page"] == 1:
            asked["page"] = None
        if not asked["other"]:
            asked["differ"] = None
        return asked


def read_filter(query: Mapping[str, str]) -> Filter:
    """The filter of an address; RequestError (404) for a word that means nothing."""
    named = {name: query.get(name, "") for name in ("run", "benchmark", "group", "metric", "other")}
    outcome, differ, page = query.get("outcome", ""), query.get("differ", ""), query.get("page", "")
    if outcome not in ("", *OUTCOMES):
        raise StudioError("E-FILTER-UNKNOWN", "There is no such outcome.", 404)
    if differ not in DIFFER:
        raise StudioError(
            "E-FILTER-UNKNOWN", "Two models can disagree, or one of them alone be right.", 404
        )
    text = query.get("q", "")[:_LONGEST].replace("\0", "").strip()
    number = whole_number(page, _PAGES, 1) or 1
    return Filter(**named, outcome=outcome, differ=differ, q=text, page=number)


def chosen_rows(filter: Filter, index: Index, other: Index | None) -> np.ndarray:
    """The rows that pass everything but the outcome, ascending."""
    wanted = [index.members[filter.group]] if filter.group else []
    if filter.metric:
        wanted += [index.counted[filter.metric], *([] if filter.group else [index.whole])]
    mask = np.ones(len(index.outcomes), dtype=bool)
    for rows in wanted:
        mask &= np.isin(np.arange(len(mask)), rows)
    if other is not None:
        mask &= disagreeing(index, other, filter.differ)
    if filter.q:
        mask &= index.matching(filter.q)
    return np.flatnonzero(mask)


def disagreeing(index: Index, other: Index, differ: str) -> np.ndarray:
    """The cases of both that one of the two gets right and the other does not."""
    rows = same_rows(index.part.cases, other.part.cases)
    shared = rows >= 0
    mine, theirs = index.right[shared], other.right[rows[shared]]
    shared[shared] = {"": mine != theirs, "first": mine & ~theirs, "second": theirs & ~mine}[differ]
    return shared


def by_outcome(rows: np.ndarray, index: Index) -> dict[str, int]:
    """How many of the rows have each outcome."""
    return {name: int((index.outcomes[rows] == name).sum()) for name in OUTCOMES}


def with_outcome(rows: np.ndarray, index: Index, outcome: str) -> np.ndarray:
    return rows[index.outcomes[rows] == outcome] if outcome else rows


# --- the list of cases --------------------------------------------------------------------------


def fitted(library: Library, asked: Filter) -> tuple[Filter, Listed, Index]:
    """The filter with run and benchmark filled in, without what no longer fits these.

    When another benchmark is chosen, the form still has the group of the old one.
    """
    run = library.run(asked.run) if asked.run else None
    if run is None or (asked.benchmark and asked.benchmark not in run.benchmarks):
        run = _first(library, asked.benchmark)
    benchmark = asked.benchmark or run.benchmarks[0]
    index = library.index(run, benchmark)
    others = {listed.key for listed in library.having(benchmark)} - {run.key}
    other = asked.other if asked.other in others else ""
    found = replace(
        asked,
        run=run.key,
        benchmark=benchmark,
        group=asked.group if asked.group in index.members else "",
        metric=asked.metric if asked.metric in index.counted else "",
        other=other,
        differ=asked.differ if other else "",
    )
    return found, run, index


def _first(library: Library, benchmark: str) -> Listed:
    """The first run that has the benchmark and can be shown."""
    refused = StudioError("E-BENCHMARK-UNKNOWN", "No run has such a benchmark.", 404)
    for run in library.having(benchmark) if benchmark else library.runs():
        try:
            library.index(run, benchmark or run.benchmarks[0])
        except StudioError as error:
            refused = error
        else:
            return run
    raise refused


def found_rows(library: Library, filter: Filter, index: Index) -> np.ndarray:
    """The rows that pass, whatever their outcome."""
    other = None
    if filter.other:
        other = library.index(library.run(filter.other), filter.benchmark)
    return chosen_rows(filter, index, other)


def list_context(library: Library, asked: Filter) -> dict[str, Any]:
    """What the template shows; without any run, only that."""
    runs = library.runs()
    if not runs:
        return {"run": None, "refused": library.refused()}
    filter, run, index = fitted(library, asked)
    passing = found_rows(library, filter, index)
    rows = with_outcome(passing, index, filter.outcome)
    pages = max(1, -(-len(rows) // PER_PAGE))
    filter = replace(filter, page=min(filter.page, pages))
    first = (filter.page - 1) * PER_PAGE
    shown = rows[first : first + PER_PAGE].tolist()
    return {
        "filter": filter,
        "run": run,
        "other": library.run(filter.other) if filter.other else None,
        "runs": library.having(filter.benchmark),
        "benchmarks": sorted({name for listed in runs for name in listed.benchmarks}),
        "groups": {label: len(members) for label, members in index.members.items()},
        "metrics": {name: heading(name) for name in index.counted},
        "differ": DIFFER,
        "outcomes": by_outcome(passing, index),
        "passing": len(passing),
        "found": len(rows),
        "first": first,
        "pages": pages,
        "cases": [case_view(run, index, row) for row in shown],
    }


# --- one case -----------------------------------------------------------------------------------


def case_context(library: Library, asked: Filter, case_id: str, image: str) -> dict[str, Any]:
    """What the template shows of a case; `image` is the number of a gallery's image, from 1."""
    filter, run, index = fitted(library, asked)
    row = index.row_of(case_id)
    if row is None:
        raise StudioError("E-CASE-UNKNOWN", "This run has no such case.", 404)
    context = {
        "filter": filter,
        "run": run,
        "case_id": case_id,
        "row": row,
        "outcome": str(index.outcomes[row]),
        **_neighbours(library, filter, index, row),
    }
    if index.is_large(row):
        number = whole_number(image, index.shape(row)[0], 1) or 1
        query = gallery_query(run, index, row, number - 1)
        groups = tuple(index.part.cases.frame["groups"][row])
        return {**context, "query": query, "groups": groups, "captions": index.shape(row)[1]}
    case = index.part.cases.case(row)
    matrices, failures = _every_run(library, filter.benchmark, index, row)
    return {
        **context,
        "query": None,
        "groups": case.groups,
        "images": image_views(run, index, row, case),
        "captions": caption_views(case),
        "matrices": matrices,
        "failures": failures,
    }


def _neighbours(library: Library, filter: Filter, index: Index, row: int) -> dict[str, Any]:
    """The ids of the cases before and after this one in the list it was found in."""
    rows = with_outcome(found_rows(library, filter, index), index, filter.outcome)
    place = int(np.searchsorted(rows, row))
    inside = place < len(rows) and rows[place] == row
    before = rows[place - 1] if place > 0 else None
    after = rows[place + inside] if place + inside < len(rows) else None
    ids = index.part.cases.ids
    return {
        "before": None if before is None else ids[int(before)],
        "after": None if after is None else ids[int(after)],
        "place": place + 1 if inside else None,
        "found": len(rows),
    }


class Matrix(NamedTuple):
    """A run's scores of a case: a line per caption, a cell per image."""

    run: Listed
    outcome: str
    lines: list[list[HeatCell]]


def _every_run(
    library: Library, benchmark: str, index: Index, row: int
) -> tuple[list[Matrix], list[tuple[Listed, str]]]:
    """The scores of each run that has the very same case, and the runs that cannot be read."""
    matrices = []
    failures = []
    case = index.part.take(np.array([row])).cases
    for listed in library.having(benchmark):
        try:
            theirs = library.index(listed, benchmark)
        except StudioError as error:
            failures.append((listed, str(error)))
            continue
        [there] = same_rows(case, theirs.part.cases).tolist()
        if there >= 0:
            outcome = str(theirs.outcomes[there])
            matrices.append(Matrix(listed, outcome, cells_of(theirs, there)))
    return matrices, failures


def browse_router(web: Web, library: Library, gallery: Gallery) -> APIRouter:
    """`/numbers`, `/browse`, `/browse/case` and the pictures of cases."""
    router = APIRouter(dependencies=[Depends(require_admin)])

    @router.get("/numbers")
    def numbers(request: Request, benchmark: str = "") -> Response:
        if not library.having(benchmark):
            raise StudioError("E-BENCHMARK-UNKNOWN", "No run has such a benchmark.", 404)
        table = numbers_table(library, benchmark)
        return web.page(request, "browse_numbers.html", table=table)

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
    """The picture that a case of a run refers to; RequestError (404) if there is none."""
    index = library.index(library.run(key), benchmark)
    cases = index.part.cases
    if not 0 <= row < len(cases) or not 0 <= number < index.shape(row)[0]:
        raise StudioError("E-IMAGE-UNAVAILABLE", "There is no such image.", 404)
    value = cases.frame["images"][row][number]
    box = None if value["box"] is None else tuple(value["box"])
    return Picture(ImageRef(value["path"], box), cases.root)


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
