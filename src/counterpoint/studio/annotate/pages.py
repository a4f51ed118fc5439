"""Pages of campaigns: for annotators behind a personal link, and for the admin."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from fastapi import APIRouter, Depends
from sqlalchemy import select
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response

from counterpoint._util.errors import CounterpointError, DataError, NotFoundError
from counterpoint.metrics import METRICS
from counterpoint.runs import Row, rows
from counterpoint.studio.annotate.assignment import flag, give, latest, left_for, next_showing
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
from counterpoint.studio.annotate.questions import (
    ASKS,
    KINDS,
    SKIP,
    AnnotationQuestion,
    AnswerError,
    ShownImage,
    find_kind,
    ranks_of,
)
from counterpoint.studio.annotate.results import CampaignResults, comparison, outcome_of
from counterpoint.studio.annotate.sources import SourceSelection, described
from counterpoint.studio.browse.library import Library
from counterpoint.studio.database import Annotator, Answer, Campaign, Database, Flag, Showing, count
from counterpoint.studio.pictures import Gallery
from counterpoint.studio.security import StudioError, same
from counterpoint.studio.web import (
    Number,
    Web,
    checked_form,
    require_admin,
    see_other,
    whole_number,
)

T = TypeVar("T")


# --- one item: its page, and the answer in its form ---------------------------------------------


NOTE: Final = 500  # characters
NO_PAGE: Final = "There is no such page."


def annotator_of(session: Session, token: str) -> Annotator:
    """The annotator of a personal link; an unknown link is answered as a missing page."""
    found = session.scalar(select(Annotator).where(Annotator.token == token))
    if found is None or not same(found.token, token):
        raise StudioError("E-PAGE-MISSING", NO_PAGE, 404)
    return found


def showing_of(session: Session, annotator: Annotator, number: int) -> Showing:
    """The `number`-th item that this annotator got; others' are not to be had."""
    mine = (Showing.annotator_id == annotator.id, Showing.number == number)
    found = session.scalar(select(Showing).where(*mine))
    if found is None:
        raise StudioError("E-PAGE-MISSING", NO_PAGE, 404)
    return found


class AnnotatorProgress(NamedTuple):
    """Showings that were answered or skipped, checks too, and how many more there can be."""

    answered: int
    left: int

    @property
    def total(self) -> int:
        return self.answered + self.left


def progress_of(session: Session, annotator: Annotator) -> AnnotatorProgress:
    mine = Showing.annotator_id == annotator.id
    waiting = count(session, Showing, mine, ~Showing.answered)
    left = left_for(session, annotator) + waiting
    return AnnotatorProgress(count(session, Showing, mine, Showing.answered.is_(True)), left)


def screen_of(session: Session, showing: Showing) -> dict[str, Any]:
    """A question as this annotator sees it, with the answer that counts so far."""
    ask, question = ASKS[showing.item.ask], AnnotationQuestion.of(showing.item.question)
    last, raised = latest(session, Answer, showing), latest(session, Flag, showing)
    value = "" if last is None or last.value == SKIP else last.value
    ranks = ranks_of(value) if ask.ranked and value else [0] * len(showing.layout)
    captions = question.captions if ask.options == "captions" else ("",) * len(showing.layout)
    return {
        "number": showing.number,
        "previous": showing.number - 1 or None,
        "ask": ask,
        "options": [
            {
                "position": position,
                "caption": captions[option],
                "chosen": not ask.ranked and value == str(option),
                "rank": ranks[option],  # 0 if none was given
            }
            for position, option in enumerate(showing.layout)
        ],
        "caption": question.captions[0] if ask.options == "images" else "",
        "context": question.context,
        "extra_chosen": bool(ask.extra) and value == ask.extra,
        "answered": bool(value),
        "skipped": last is not None and not value,
        "note": None if raised is None else raised.note,
    }


def read_answer(form: Mapping[str, Any], showing: Showing) -> str:
    """The answer in a form, whose options are numbered as they were shown."""
    if form.get("skip"):
        return SKIP
    ask, layout = ASKS[showing.item.ask], showing.layout
    if ask.ranked:
        ranks = [str(form.get(f"rank{layout.index(option)}", "")) for option in sorted(layout)]
        return ask.read(",".join(ranks), len(layout))
    chosen = {str(position): str(option) for position, option in enumerate(layout)}
    answer = str(form.get("answer", ""))
    return ask.read(chosen.get(answer, answer), len(layout))


def read_note(form: Mapping[str, Any]) -> str | None:
    """What a form reports of its item; None if nothing."""
    note = " ".join(str(form.get("note", "")).replace("\0", "").split())
    if len(note) > NOTE:
        raise AnswerError("E-NOTE-TOO-LONG", f"The note is longer than {NOTE} characters.")
    return note if note or form.get("flagged") else None


def annotator_router(web: Web, database: Database) -> APIRouter:
    """The pages below /a. A personal link lets its annotator answer, and shows nothing else."""
    router = APIRouter()

    def page(
        request: Request, template: str, token: str, number: int | None = None, **context: Any
    ) -> Response:
        with database.reading() as session:
            annotator = annotator_of(session, token)
            if number is not None:
                context["screen"] = screen_of(session, showing_of(session, annotator, number))
            progress = progress_of(session, annotator)
        campaign = annotator.campaign
        seat = {"campaign": campaign, "kind": find_kind(campaign.kind), "base": link(token)}
        return web.page(request, template, seat=seat, progress=progress, **context)

    @router.get("/{token}")
    def welcome(request: Request, token: str) -> Response:
        return page(request, "annotate_welcome.html", token)

    @router.get("/{token}/next")
    def onward(token: str) -> Response:
        with database.reading() as session:
            annotator = annotator_of(session, token)
        showing = database.write(lambda s: next_showing(s, annotator))
        return see_other(f"{link(token)}/{'done' if showing is None else showing.number}")

    @router.get("/{token}/done")
    def done(request: Request, token: str) -> Response:
        return page(request, "annotate_done.html", token)

    @router.get("/{token}/{number}")
    def one_item(request: Request, token: str, number: Number) -> Response:
        return page(request, "annotate_item.html", token, number, message="")

    def keep(token: str, number: int, form: FormData) -> None:
        """The answer is on the disk when this returns, and only then is the next item shown."""
        with database.reading() as session:
            annotator = annotator_of(session, token)

        def work(session: Session) -> None:
            showing = showing_of(session, annotator, number)
            give(session, showing, read_answer(form, showing))
            flag(session, showing, read_note(form))

        database.write(work)

    @router.post("/{token}/{number}")
    async def answer(request: Request, token: str, number: Number) -> Response:
        async with checked_form(request) as form:
            try:
                await run_in_threadpool(keep, token, number, form)
            except AnswerError as error:
                again = partial(page, message=str(error), status=422)
                return await run_in_threadpool(again, request, "annotate_item.html", token, number)
            return see_other(f"{link(token)}/next")

    def image_at(token: str, number: int, position: int) -> ShownImage:
        """An image of an item by where it stands on the screen: its name tells nothing."""
        with database.reading() as session:
            showing = showing_of(session, annotator_of(session, token), number)
        images = AnnotationQuestion.of(showing.item.question).images
        if not 0 <= position < len(images):
            raise StudioError("E-PAGE-MISSING", NO_PAGE, 404)
        chosen = ASKS[showing.item.ask].options == "images"
        return images[showing.layout[position] if chosen else position]

    @router.get("/{token}/{number}/picture/{position}")
    async def picture(request: Request, token: str, number: Number, position: Number) -> Response:
        found = await run_in_threadpool(image_at, token, number, position)
        gallery: Gallery = request.app.state.gallery
        try:
            return await gallery.response(request, found.picture())
        except StudioError as error:
            # The sentence for the admin names a path; annotators need not know it.
            raise StudioError(
                "E-IMAGE-UNAVAILABLE", "This image cannot be shown.", error.status
            ) from None

    return router


# --- for the admin: progress, personal links, results -----------------------------------------


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
            runs=[str(run.folder) for run in library.runs()],
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

    def of_campaign(name: str, work: Callable[[Session, Campaign], T]) -> T:
        try:
            with database.reading() as session:
                return work(session, find_campaign(session, name))
        except NotFoundError as error:
            raise StudioError(error.code, str(error), 404) from None

    def outcome(name: str, least: str) -> CampaignResults:
        return of_campaign(name, lambda s, campaign: outcome_of(s, campaign, share(least)))

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
            number=lambda kappa: "–" if math.isnan(kappa) else f"{kappa:.3f}",
        )

    def download(data: bytes, media: str, name: str) -> Response:
        about = {"Content-Disposition": f'attachment; filename="{name}"'}
        headers = {**about, "Cache-Control": "no-store"}
        return Response(data, media_type=media, headers=headers)

    @router.get("/{name}/answers.csv")
    def all_answers(name: str) -> Response:
        text = of_campaign(name, answers_csv)
        return download(text.encode(), "text/csv; charset=utf-8", f"{name}-answers.csv")

    def exported(found: CampaignResults, name: str, media: str) -> Response:
        with tempfile.TemporaryDirectory() as folder:
            export(found, Path(folder) / name)
            data = (Path(folder) / name).read_bytes()
        return download(data, media, f"{found.campaign.name}-{name}")

    @router.get("/{name}/preferred.csv")
    def preferred(name: str, least: str = "0") -> Response:
        found = outcome(name, least)
        if not found.kind.compares:
            raise StudioError("E-PAGE-MISSING", NO_PAGE, 404)
        return exported(found, "preferred.csv", "text/csv; charset=utf-8")

    @router.get("/{name}/accepted.parquet")
    def accepted(name: str, least: str = "0") -> Response:
        media = "application/vnd.apache.parquet"
        return exported(outcome(name, least), "accepted.parquet", media)

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
