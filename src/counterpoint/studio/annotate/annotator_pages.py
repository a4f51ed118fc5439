"""What an annotator sees, behind a personal link: how it is done, one item at a time, the end."""

from __future__ import annotations

from fastapi import APIRouter
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response

from counterpoint.studio.annotate.answers import flag, give
from counterpoint.studio.annotate.assignment import next_showing
from counterpoint.studio.annotate.kinds import ASKS, AnswerError
from counterpoint.studio.annotate.questions import Question, Shown
from counterpoint.studio.annotate.screens import (
    NO_PAGE,
    progress_of,
    read_answer,
    read_note,
    screen_of,
    seat_of,
    showing_of,
)
from counterpoint.studio.database import Database
from counterpoint.studio.pictures import Gallery
from counterpoint.studio.security import Refused
from counterpoint.studio.web import Number, Web, checked_form, see_other


def annotator_router(web: Web, database: Database) -> APIRouter:
    """The pages below /a. Whoever knows a link may answer under its name, and see nothing else."""
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

    def image_at(token: str, number: int, position: int) -> Shown:
        """An image of an item by where it stands on the screen: its name tells nothing."""
        with database.reading() as session:
            showing, item = showing_of(session, seat_of(session, token), number)
        images = Question.of(item.question).images
        if not 0 <= position < len(images):
            raise Refused(NO_PAGE, 404)
        chosen = ASKS[item.ask].options == "images"
        return images[showing.layout[position] if chosen else position]

    @router.get("/{token}/{number}/picture/{position}")
    async def picture(request: Request, token: str, number: Number, position: Number) -> Response:
        found = await run_in_threadpool(image_at, token, number, position)
        gallery: Gallery = request.app.state.gallery
        try:
            return await gallery.response(request, found.picture())
        except Refused as error:
            # The sentence for the admin names a path; annotators need not know it.
            raise Refused("This image cannot be shown.", error.status) from None

    return router
