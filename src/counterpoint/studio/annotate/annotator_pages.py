"""Pages for annotators, behind a personal link: instructions, one item at a time, the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fastapi import APIRouter
from sqlalchemy import func, select
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response

from counterpoint.studio.annotate.campaigns import link
from counterpoint.studio.annotate.kinds import (
    ASKS,
    SKIP,
    AnswerError,
    Ask,
    CampaignKind,
    find_kind,
    ranks_of,
)
from counterpoint.studio.annotate.questions import AnnotationQuestion, ShownImage
from counterpoint.studio.annotate.showings import (
    flag,
    give,
    last_answer,
    last_flag,
    left_for,
    next_showing,
)
from counterpoint.studio.database import Annotator, Campaign, Database, Item, Showing
from counterpoint.studio.pictures import Gallery
from counterpoint.studio.security import StudioError, same
from counterpoint.studio.web import Number, Web, checked_form, see_other

# --- one item: its page, and the answer in its form ---------------------------------------------


NOTE: Final = 500  # characters
NO_PAGE: Final = "There is no such page."


@dataclass(frozen=True, slots=True)
class Seat:
    """An annotator at work."""

    annotator: Annotator
    campaign: Campaign

    @property
    def kind(self) -> CampaignKind:
        return find_kind(self.campaign.kind)

    @property
    def base(self) -> str:
        return link(self.annotator.token)


def seat_of(session: Session, token: str) -> Seat:
    """The annotator of a personal link; an unknown link is answered as a missing page."""
    found = session.execute(
        select(Annotator, Campaign)
        .join(Campaign, Campaign.id == Annotator.campaign_id)
        .where(Annotator.token == token)
    ).first()
    if found is None or not same(found[0].token, token):
        raise StudioError("E-PAGE-MISSING", NO_PAGE, 404)
    return Seat(found[0], found[1])


def showing_of(session: Session, seat: Seat, number: int) -> tuple[Showing, Item]:
    """The `number`-th item that this annotator got; others' are not to be had."""
    found = session.execute(
        select(Showing, Item)
        .join(Item, Item.id == Showing.item_id)
        .where(Showing.annotator_id == seat.annotator.id, Showing.number == number)
    ).first()
    if found is None:
        raise StudioError("E-PAGE-MISSING", NO_PAGE, 404)
    return found[0], found[1]


@dataclass(frozen=True, slots=True)
class AnnotatorProgress:
    """Showings that were answered or skipped, checks too, and how many more there can be."""

    answered: int
    left: int

    @property
    def total(self) -> int:
        return self.answered + self.left


def progress_of(session: Session, seat: Seat) -> AnnotatorProgress:
    counts = dict(
        session.execute(
            select(Showing.answered, func.count())
            .where(Showing.annotator_id == seat.annotator.id)
            .group_by(Showing.answered)
        )
        .tuples()
        .all()
    )
    left = left_for(session, seat.campaign, seat.annotator) + counts.get(False, 0)
    return AnnotatorProgress(counts.get(True, 0), left)


@dataclass(frozen=True, slots=True)
class Option:
    """One thing to choose: at `position` on the screen, with its caption if it has one."""

    position: int
    caption: str
    chosen: bool
    rank: int  # 0 if none was given


@dataclass(frozen=True, slots=True)
class Screen:
    """Everything the template of a question needs."""

    number: int
    ask: Ask
    options: tuple[Option, ...]
    caption: str  # beside images to choose from
    context: str  # what two texts were made from
    extra_chosen: bool
    answered: bool
    skipped: bool
    note: str | None  # of a flag

    @property
    def previous(self) -> int | None:
        return self.number - 1 or None


def screen_of(session: Session, showing: Showing, item: Item) -> Screen:
    """A question as this annotator sees it, with the answer that counts so far."""
    ask, question = ASKS[item.ask], AnnotationQuestion.of(item.question)
    last = last_answer(session, showing)
    value = "" if last is None or last.value == SKIP else last.value
    raised = last_flag(session, showing)
    ranks = ranks_of(value) if ask.ranked and value else [0] * len(showing.layout)
    captions = question.captions if ask.options == "captions" else ("",) * len(showing.layout)
    options = tuple(
        Option(position, captions[option], not ask.ranked and value == str(option), ranks[option])
        for position, option in enumerate(showing.layout)
    )
    caption = question.captions[0] if ask.options == "images" else ""
    extra = bool(ask.extra) and value == ask.extra
    return Screen(
        showing.number,
        ask,
        options,
        caption,
        question.context,
        extra,
        bool(value),
        last is not None and not value,
        None if raised is None else raised.note,
    )


def read_answer(form: Mapping[str, Any], showing: Showing, item: Item) -> str:
    """The answer in a form, whose options are numbered as they were shown."""
    if form.get("skip"):
        return SKIP
    ask, layout = ASKS[item.ask], showing.layout
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

    @router.get("/{token}")
    def welcome(request: Request, token: str) -> Response:
        with database.reading() as session:
            seat = seat_of(session, token)
            progress = progress_of(session, seat)
        return web.page(request, "annotate_welcome.html", seat=seat, progress=progress)

    @router.get("/{token}/next")
    def onward(token: str) -> Response:
        with database.reading() as session:
            seat = seat_of(session, token)
        showing = database.write(lambda s: next_showing(s, seat.campaign, seat.annotator))
        return see_other(f"{seat.base}/{'done' if showing is None else showing.number}")

    @router.get("/{token}/done")
    def done(request: Request, token: str) -> Response:
        with database.reading() as session:
            seat = seat_of(session, token)
            progress = progress_of(session, seat)
        return web.page(request, "annotate_done.html", seat=seat, progress=progress)

    def item_page(
        request: Request, token: str, number: int, message: str = "", status: int = 200
    ) -> Response:
        with database.reading() as session:
            seat = seat_of(session, token)
            showing, item = showing_of(session, seat, number)
            screen = screen_of(session, showing, item)
            progress = progress_of(session, seat)
        return web.page(
            request,
            "annotate_item.html",
            status=status,
            seat=seat,
            screen=screen,
            progress=progress,
            message=message,
        )

    @router.get("/{token}/{number}")
    def one_item(request: Request, token: str, number: Number) -> Response:
        return item_page(request, token, number)

    def keep(token: str, number: int, form: FormData) -> str:
        """The answer is on the disk when this returns, and only then is the next item shown."""
        with database.reading() as session:
            seat = seat_of(session, token)

        def work(session: Session) -> None:
            showing, item = showing_of(session, seat, number)
            give(session, showing, read_answer(form, showing, item))
            flag(session, showing, read_note(form))

        database.write(work)
        return f"{seat.base}/next"

    @router.post("/{token}/{number}")
    async def answer(request: Request, token: str, number: Number) -> Response:
        async with checked_form(request) as form:
            try:
                place = await run_in_threadpool(keep, token, number, form)
            except AnswerError as error:
                said = str(error)
                return await run_in_threadpool(item_page, request, token, number, said, 422)
            return see_other(place)

    def image_at(token: str, number: int, position: int) -> ShownImage:
        """An image of an item by where it stands on the screen: its name tells nothing."""
        with database.reading() as session:
            showing, item = showing_of(session, seat_of(session, token), number)
        images = AnnotationQuestion.of(item.question).images
        if not 0 <= position < len(images):
            raise StudioError("E-PAGE-MISSING", NO_PAGE, 404)
        chosen = ASKS[item.ask].options == "images"
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
