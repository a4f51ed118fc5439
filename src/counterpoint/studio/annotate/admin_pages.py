"""Pages of campaigns for the admin: progress, personal links, results."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Depends
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from counterpoint._util.errors import CounterpointError, DataError, NotFoundError
from counterpoint.metrics import METRICS
from counterpoint.runs import Row, rows
from counterpoint.studio.annotate.campaigns import (
    CampaignDesign,
    CampaignError,
    Order,
    add_annotators,
    find_campaign,
    link,
    make_campaign,
    standings,
)
from counterpoint.studio.annotate.exporting import answers_csv, export
from counterpoint.studio.annotate.human import human_run
from counterpoint.studio.annotate.kinds import KINDS
from counterpoint.studio.annotate.material import SourceSelection, described
from counterpoint.studio.annotate.outcomes import CampaignResults, comparison, outcome_of
from counterpoint.studio.browse.library import Library
from counterpoint.studio.database import Database
from counterpoint.studio.security import StudioError
from counterpoint.studio.web import Web, checked_form, require_admin, see_other, whole_number

_TYPED: Final = {  # the form's fields, and what stands in them at first
    "name": "",
    "source": "",
    "kind": "",
    "benchmark": "",
    "against": "",
    "instructions": "",
    "limit": "",
    "annotators": "2",
    "overlap": "2",
    "fixed": "",
    "checks": "10",
    "seed": "0",
}
_RESAMPLES: Final = 2000  # for a page that is looked at while answers come in


def admin_router(web: Web, database: Database, library: Library) -> APIRouter:
    """The pages below /campaigns."""
    router = APIRouter(dependencies=[Depends(require_admin)])

    def list_page(
        request: Request, typed: Mapping[str, str] = _TYPED, message: str = ""
    ) -> Response:
        with database.reading() as session:
            found = standings(session)
        return web.page(
            request,
            "results_list.html",
            status=422 if message else 200,
            campaigns=found,
            kinds=KINDS.values(),
            runs=[str(run.place.folder) for run in library.runs()],
            typed=typed,
            message=message,
        )

    @router.get("")
    def all_campaigns(request: Request) -> Response:
        return list_page(request)

    @router.post("")
    async def make(request: Request) -> Response:
        async with checked_form(request) as form:
            typed = {name: str(form.get(name, "")).strip() for name in _TYPED}
        try:
            await run_in_threadpool(make_campaign, database, read_order(typed))
        except CounterpointError as error:
            return await run_in_threadpool(list_page, request, typed, str(error))
        return see_other(f"/campaigns/{typed['name']}")

    def outcome(name: str, least: str) -> CampaignResults:
        try:
            with database.reading() as session:
                return outcome_of(session, find_campaign(session, name), share(least))
        except NotFoundError as error:
            raise StudioError(error.code, str(error), 404) from None

    @router.get("/{name}")
    def one_campaign(request: Request, name: str, least: str = "0") -> Response:
        found = outcome(name, least)
        metrics, note = ([], "") if found.kind.compares else _metrics(found)
        base = str(request.base_url).rstrip("/")
        return web.page(
            request,
            "results_campaign.html",
            found=found,
            source=described(found.campaign.source),
            left_out=found.campaign.source.get("left_out", {}),
            links=[f"{base}{link(person.token)}" for person in found.people],
            metrics=metrics,
            note=note,
            compared=comparison(found) if found.kind.compares else [],
            sides=found.campaign.source.get("sides", ()),
            least=share(least),
            number=shown_number,
        )

    @router.get("/{name}/answers.csv")
    def all_answers(name: str) -> Response:
        with database.reading() as session:
            try:
                text = answers_csv(session, find_campaign(session, name))
            except NotFoundError as error:
                raise StudioError(error.code, str(error), 404) from None
        return _download(text.encode(), "text/csv; charset=utf-8", f"{name}-answers.csv")

    @router.get("/{name}/preferred.csv")
    def preferred(name: str, least: str = "0") -> Response:
        found = outcome(name, least)
        if not found.kind.compares:
            raise StudioError("E-PAGE-MISSING", "There is no such page.", 404)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "preferred.csv"
            export(found, path)
            data = path.read_bytes()
        return _download(data, "text/csv; charset=utf-8", f"{name}-preferred.csv")

    @router.get("/{name}/accepted.parquet")
    def accepted(name: str, least: str = "0") -> Response:
        found = outcome(name, least)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "accepted.parquet"
            export(found, path)
            data = path.read_bytes()
        return _download(data, "application/vnd.apache.parquet", f"{name}-accepted.parquet")

    @router.post("/{name}/annotators")
    async def more(request: Request, name: str) -> Response:
        async with checked_form(request) as form:
            count = whole_number(str(form.get("count", "")), 1000, 0)
        await run_in_threadpool(add_annotators, database, name, count)
        return see_other(f"/campaigns/{name}#annotators")

    return router


def read_order(typed: Mapping[str, str]) -> Order:
    """A campaign from what was typed into the form; what it lacks is left to `make_campaign`."""

    def number(name: str, what: str) -> int:
        found = whole_number(typed[name], 10**9, None)
        if found is None:
            raise CampaignError("E-FORM-INVALID", f"{what} must be a whole number.")
        return found

    limit = number("limit", "the number of cases") if typed["limit"] else None
    if limit == 0 or not typed["source"]:
        raise CampaignError("E-FORM-INVALID", "a campaign needs a source and at least one case.")
    seed = number("seed", "the seed")
    try:
        checks = float(typed["checks"].removesuffix("%") or 0) / 100
    except ValueError:
        raise CampaignError(
            "E-FORM-INVALID", "the share of attention checks must be a number of per cent."
        ) from None
    overlap = number("overlap", "the number of judgements")
    instructions = typed["instructions"].replace("\r\n", "\n")
    settings = CampaignDesign(overlap, checks, seed, instructions, typed["fixed"] == "1")
    against = Path(typed["against"]) if typed["against"] else None
    wanted = SourceSelection(limit, seed, benchmark=typed["benchmark"] or None, against=against)
    people = number("annotators", "the number of annotators")
    return Order(typed["name"], typed["source"], typed["kind"], settings, people, wanted)


def _download(data: bytes, media: str, name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return Response(data, media_type=media, headers=headers)


def _metrics(found: CampaignResults) -> tuple[list[Row], str]:
    """People's accuracy in the benchmark's own metrics, or a sentence that says why not."""
    try:
        run = human_run(found)
    except DataError as error:
        return [], str(error)
    note = f"{run.left_out:,} cases lack an answer." if run.left_out else ""
    found_rows = rows(run, groups=False, resamples=_RESAMPLES, main=True)
    return [row for row in found_rows if METRICS[row.metric].main and row.chance != 1], note


def share(text: str) -> float:
    """A share from a form: `0.8` or `80` or `80%`; anything else is none."""
    plain = text.strip().removesuffix("%")
    try:
        value = float(plain)
    except ValueError:
        return 0.0
    value = value / 100 if value > 1 or plain != text.strip() else value
    return value if 0 <= value <= 1 else 0.0


def shown_number(value: float, digits: int = 3) -> str:
    """A kappa, or a dash where there is none."""
    return "–" if math.isnan(value) else f"{value:.{digits}f}"
