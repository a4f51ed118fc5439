"""What the admin sees of campaigns: how far they are, the personal links, the results."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Depends
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from counterpoint.errors import DataError, NotFoundError
from counterpoint.metric_registry import METRICS
from counterpoint.results import Row, rows
from counterpoint.studio.annotate.campaigns import (
    add_annotators,
    find_campaign,
    link,
    standings,
)
from counterpoint.studio.annotate.exporting import answers_csv, export
from counterpoint.studio.annotate.human import human_run
from counterpoint.studio.annotate.outcomes import Outcome, outcome_of
from counterpoint.studio.annotate.sources import described
from counterpoint.studio.database import Database
from counterpoint.studio.security import Refused
from counterpoint.studio.web import Web, checked_form, require_admin, see_other, whole_number

_RESAMPLES: Final = 2000  # for a page that is looked at while answers come in


def admin_router(web: Web, database: Database) -> APIRouter:
    """The pages below /campaigns."""
    router = APIRouter(dependencies=[Depends(require_admin)])

    @router.get("")
    def all_campaigns(request: Request) -> Response:
        with database.reading() as session:
            found = standings(session)
        return web.page(request, "results_list.html", campaigns=found)

    def outcome(name: str, least: str) -> Outcome:
        try:
            with database.reading() as session:
                return outcome_of(session, find_campaign(session, name), share(least))
        except NotFoundError as error:
            raise Refused(str(error), 404) from None

    @router.get("/{name}")
    def one_campaign(request: Request, name: str, least: str = "0") -> Response:
        found = outcome(name, least)
        metrics, note = _metrics(found)
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
            least=share(least),
            number=shown_number,
        )

    @router.get("/{name}/answers.csv")
    def all_answers(name: str) -> Response:
        with database.reading() as session:
            try:
                text = answers_csv(session, find_campaign(session, name))
            except NotFoundError as error:
                raise Refused(str(error), 404) from None
        return _download(text.encode(), "text/csv; charset=utf-8", f"{name}-answers.csv")

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


def _download(data: bytes, media: str, name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return Response(data, media_type=media, headers=headers)


def _metrics(found: Outcome) -> tuple[list[Row], str]:
    """People's accuracy in the benchmark's own metrics, or a sentence that says why not."""
    try:
        run = human_run(found)
    except DataError as error:
        return [], str(error)
    note = f"{run.left_out:,} cases lack an answer." if run.left_out else ""
    found_rows = rows(run, groups=False, resamples=_RESAMPLES)
    return [row for row in found_rows if METRICS[row.metric].main and row.chance != 1], note


def share(text: str) -> float:
    """A share from a form: `0.8` or `80` or `80%`; anything else is none."""
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        return 0.0
    value = value / 100 if value > 1 else value
    return value if 0 <= value <= 1 else 0.0


def shown_number(value: float, digits: int = 3) -> str:
    """A kappa, or a dash where there is none."""
    return "–" if math.isnan(value) else f"{value:.{digits}f}"
