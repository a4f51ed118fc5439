"""The pages of the playground. Only for the admin.

The image is a drawn scene, an image of a case, or an upload; the URL names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from fastapi import APIRouter, Depends
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, QueryParams, UploadFile
from starlette.requests import Request
from starlette.responses import Response

from counterpoint._util.errors import ImageError
from counterpoint.cases import ImageRef
from counterpoint.images import Picture, scheme_of, world_reference
from counterpoint.studio.browse.library import Library
from counterpoint.studio.browse.pages import held_picture
from counterpoint.studio.browse.views import spoken
from counterpoint.studio.pictures import LARGE, EncodedImage, Gallery, encoded
from counterpoint.studio.playground.scores import Models, Tried, families, read_captions, tried
from counterpoint.studio.playground.uploads import MAX_BYTES, AnyPicture, Uploads
from counterpoint.studio.security import StudioError
from counterpoint.studio.web import (
    FORM_BYTES,
    Web,
    checked_form,
    has_htmx,
    push_url,
    require_admin,
    see_other,
    url,
    wants_fragment,
    whole_number,
)
from counterpoint.world import Edit, replacements

SCENES: Final = 1_000_000
_FEW: Final = 4  # captions of a case that are filled in


@dataclass(frozen=True, slots=True)
class PlaygroundImage:
    """An image: `query` names it in an address, `captions` are what one would ask about it."""

    picture: AnyPicture
    query: dict[str, Any]
    label: str
    captions: tuple[str, ...] = ()
    scene: int | None = None

    @property
    def drawn(self) -> bool:
        return scheme_of(self.picture.ref.path).drawn

    @property
    def address(self) -> str:
        return url("/try/picture", **self.query)


def choose(query: Mapping[str, str], library: Library, uploads: Uploads) -> PlaygroundImage:
    """The image that an address names; the first drawn scene if it names none."""
    if query.get("upload"):
        token = query["upload"]
        return PlaygroundImage(uploads.get(token), {"upload": token}, "Your upload")
    if query.get("case"):
        return _of_case(query, library)
    return _scene(whole_number(query.get("scene", ""), SCENES, 1))


def _scene(number: int) -> PlaygroundImage:
    edit = _edit(number)
    picture = Picture(ImageRef(world_reference(edit.scene)))
    return PlaygroundImage(
        picture, {"scene": number}, f"Drawn scene {number}", (edit.original,), number
    )


@lru_cache(maxsize=256)
def _edit(number: int) -> Edit:
    return next(replacements(number))


def _of_case(query: Mapping[str, str], library: Library) -> PlaygroundImage:
    key, benchmark, case_id = (query.get(name, "") for name in ("run", "benchmark", "case"))
    number = whole_number(query.get("image", ""), SCENES, 1)
    index = library.index(library.run(key), benchmark)
    row = index.row_of(case_id)
    if row is None:
        raise StudioError("E-CASE-UNKNOWN", "This run has no such case.", 404)
    picture = held_picture(library, key, benchmark, row, number - 1)
    captions = index.part.cases.frame["captions"][row].head(_FEW).to_list()
    asked = {"run": key, "benchmark": benchmark, "case": case_id, "image": number}
    label = f"Image {number} of case {case_id}, {benchmark}"
    return PlaygroundImage(picture, asked, label, tuple(spoken(caption) for caption in captions))


_IMAGE: Final = ("upload", "run", "benchmark", "case", "image", "scene")


def try_router(web: Web, library: Library, gallery: Gallery, models: Models) -> APIRouter:
    """`/try`: the page is a GET with everything in its address; a POST uploads and leads there."""
    router = APIRouter(dependencies=[Depends(require_admin)])
    uploads = Uploads()

    @router.get("/try")
    def show(request: Request, now: str = "") -> Response:
        context = _context(request.query_params, library, uploads, models)
        loading = context["loading"]
        if now or not loading or not has_htmx():
            context["result"] = _result(context, models)
        part = wants_fragment(request)
        response = web.page(request, "try_result.html" if part else "try_page.html", **context)
        if part:
            push_url(request, response, context["address"])
        return response

    @router.get("/try/answers")
    def answers(request: Request) -> Response:
        """The scores alone, for a page that was shown before they were there."""
        context = _context(request.query_params, library, uploads, models)
        result = _result(context, models)
        return web.fragment(request, "try_answers.html", result=result)

    @router.post("/try")
    async def ask(request: Request) -> Response:
        async with checked_form(request, MAX_BYTES + FORM_BYTES) as form:
            token = await _uploaded(form, uploads, gallery)
            return see_other(await run_in_threadpool(_address, form, token))

    def encode(query: QueryParams) -> EncodedImage:
        return encoded(choose(query, library, uploads).picture.open(), LARGE)

    @router.get("/try/picture")
    async def picture(request: Request) -> Response:
        try:
            found = await gallery.in_turn(encode, request.query_params)
        except ImageError as error:
            raise StudioError(
                "E-IMAGE-UNAVAILABLE", f"The image cannot be shown: {error}", 404
            ) from None
        headers = {"Cache-Control": "private, max-age=300"}
        return Response(found.data, media_type=found.media, headers=headers)

    return router


async def _uploaded(form: FormData, uploads: Uploads, gallery: Gallery) -> str:
    """The token of the file in a form; empty if it has none."""
    file = form.get("file")
    if not isinstance(file, UploadFile) or not file.filename:
        return ""
    return await gallery.in_turn(uploads.add, await file.read(MAX_BYTES + 1))


def _address(form: FormData, token: str) -> str:
    """Where the answer to a form is."""
    given = {name: str(form.get(name, "")) for name in _IMAGE}
    image: dict[str, Any] = {"upload": token} if token else given
    if not token and form.get("draw"):
        image = {"scene": whole_number(given["scene"], SCENES, 1)}
    captions = read_captions(str(form.get("captions", "")))
    return _link(image, captions, [str(value) for value in form.getlist("model")])


def _link(image: dict[str, Any], captions: list[str], models: list[str]) -> str:
    return url("/try", **image, captions="\n".join(captions), model=models)


def _context(
    query: QueryParams, library: Library, uploads: Uploads, models: Models
) -> dict[str, Any]:
    choice: PlaygroundImage = choose(query, library, uploads)
    typed = read_captions(query.get("captions", ""))
    captions = typed or list(choice.captions)
    chosen = [id for id in models.ids if id in query.getlist("model")] or list(models.ids)
    address = _link(choice.query, typed, query.getlist("model"))
    return {
        "choice": choice,
        "captions": captions,
        "ids": models.ids,
        "chosen": chosen,
        "result": None,
        "loading": [id for id in chosen if id not in models.asked],
        "address": address,
        "answers": address.replace("/try", "/try/answers", 1),
    }


def _result(context: dict[str, Any], models: Models) -> Tried:
    picture = context["choice"].picture
    return tried(models, context["chosen"], picture, families(context["captions"]))
