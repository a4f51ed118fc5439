"""The playground: models score captions, and positives and negatives made from them.

The image is a drawn scene, an image of a case, or an upload; the URL names it. Models are loaded at
their first request, and each scores one request at a time. The pages are only for the admin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from threading import Lock
from typing import Any, Final, NamedTuple

import numpy as np
from fastapi import APIRouter, Depends
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, QueryParams, UploadFile
from starlette.requests import Request
from starlette.responses import Response

from counterpoint._util.errors import CounterpointError, ImageError, ModelError
from counterpoint.cases import Cases, ImageRef, caption_case
from counterpoint.generation import KINDS, RULES, Kind, Rule, TextSettings, make_by_rules
from counterpoint.generation.inputs import SourceCaption
from counterpoint.images import Picture, scheme_of, world_reference
from counterpoint.metrics import changed_words
from counterpoint.models import load_model
from counterpoint.runs import outcome_of_one
from counterpoint.scoring import BlindScorer, DualEncoder, Model, PairScorer, TableScorer
from counterpoint.studio.browse.library import Library
from counterpoint.studio.browse.pages import held_picture
from counterpoint.studio.browse.views import HeatCell, heat, spoken
from counterpoint.studio.pictures import (
    LARGE,
    MAX_BYTES,
    AnyPicture,
    EncodedImage,
    Gallery,
    Uploads,
    encoded,
    not_shown,
)
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
from counterpoint.world import replacements

_BATCH: Final = 64
MAX_CAPTIONS: Final = 10
_LONGEST: Final = 300  # characters of a caption
_EACH: Final = 6  # texts of a kind that are shown
_LOCK: Final = Lock()  # spaCy's pipeline is shared
SCENES: Final = 1_000_000
_FEW: Final = 4  # captions of a case that are filled in
_IMAGE: Final = ("upload", "run", "benchmark", "case", "image", "scene")


class Models:
    """Models by id. `asked` are those that have been loaded, or could not be."""

    def __init__(self, ids: Sequence[str]) -> None:
        self.ids = tuple(dict.fromkeys(ids))
        self._locks = {id: Lock() for id in self.ids}
        self._loaded: dict[str, Model] = {}
        self.asked: set[str] = set()

    def scores(self, id: str, picture: AnyPicture, captions: Sequence[str]) -> np.ndarray:
        """The model's score of each caption with the picture; a CounterpointError if it cannot."""
        with self._locks[id]:
            if id not in self._loaded:
                try:
                    self._loaded[id] = load_model(id)
                finally:
                    self.asked.add(id)
            try:
                found = _scores(self._loaded[id], picture, captions)
            except MemoryError:
                raise ModelError(
                    "E-OUT-OF-MEMORY", f"{id}: there is not enough memory for this."
                ) from None
        if found.shape != (len(captions),) or not np.isfinite(found).all():
            raise ModelError(
                "E-SCORE-NON-FINITE", f"{id} did not return one finite score for each caption."
            )
        return found


def _scores(model: Model, picture: Any, captions: Sequence[str]) -> np.ndarray:
    """By what the model is; see `scoring.kinds`."""
    if isinstance(model, DualEncoder):
        [image] = model.encode_images([model.preprocess(picture.open())])
        parts = [captions[i : i + _BATCH] for i in range(0, len(captions), _BATCH)]
        return np.concatenate([model.encode_captions(part) for part in parts]) @ image
    if isinstance(model, PairScorer):
        return np.asarray(model.score_pairs([picture] * len(captions), captions))
    if isinstance(model, BlindScorer):
        return np.asarray(model.score_captions(captions))
    if isinstance(model, TableScorer):
        case = caption_case("tried", ImageRef(picture.ref.path), captions[:1], captions[1:])
        return np.asarray(model.score_cases(Cases.build([case], source="this page")))
    raise ModelError("E-MODEL-UNSUITABLE", "this model scores whole benchmarks, no single image.")


class MadeText(NamedTuple):
    """A text with what made it; `pieces` make it up, each with whether its words are new."""

    text: str
    kind: Kind
    method: str
    pieces: list[tuple[str, bool]]


class Family(NamedTuple):
    """A caption and the texts made from it."""

    caption: str
    made: tuple[MadeText, ...]

    @property
    def texts(self) -> list[str]:
        return [self.caption, *(made.text for made in self.made)]


def read_captions(text: str) -> list[str]:
    """The captions of a text area, one per line; RequestError if they are too many or too long."""
    lines = (" ".join(line.replace("\0", "").split()) for line in text.splitlines())
    captions = list(dict.fromkeys(line for line in lines if line))
    if len(captions) > MAX_CAPTIONS:
        raise StudioError(
            "E-CAPTIONS-TOO-MANY", f"At most {MAX_CAPTIONS} captions can be tried at once.", 400
        )
    if any(len(caption) > _LONGEST for caption in captions):
        raise StudioError(
            "E-CAPTION-TOO-LONG", f"A caption may have at most {_LONGEST} characters.", 400
        )
    return captions


def families(captions: list[str]) -> list[Family]:
    """Each caption with its positives and negatives, always the same for the same caption."""
    sources = [SourceCaption(f"{i}", None, caption) for i, caption in enumerate(captions)]
    made: dict[str, dict[tuple[Kind, str], MadeText]] = {caption: {} for caption in captions}
    for kind in KINDS:
        with _LOCK:
            pairs = make_by_rules(sources, TextSettings(kind, _methods(kind))).pairs
        for pair in pairs:
            pieces = changed_words(pair.caption, pair.text)
            text = MadeText(pair.text, kind, pair.method, pieces)
            made[pair.caption].setdefault((kind, pair.text), text)
    found = []
    for caption, texts in made.items():
        of_kind = {kind: [t for t in texts.values() if t.kind == kind][:_EACH] for kind in KINDS}
        found.append(Family(caption, (*of_kind["positive"], *of_kind["negative"])))
    return found


@cache
def _methods(kind: Kind) -> tuple[str, ...]:
    rules: list[tuple[str, Rule]] = [(name, RULES.get(name)) for name in RULES.names()]
    return tuple(name for name, rule in rules if rule.kind == kind)


class ScoredText(NamedTuple):
    """A text, and its score by each model that could be asked."""

    made: MadeText | None  # None for the caption itself
    text: str
    cells: list[HeatCell]


class CaptionScores(NamedTuple):
    """A caption with its texts; `outcomes` by model, empty where there is no negative."""

    caption: str
    lines: list[ScoredText]
    outcomes: list[str]


class Tried(NamedTuple):
    """What the page shows: the models that answered, and why others did not."""

    models: list[str]
    blocks: list[CaptionScores]
    failures: list[tuple[str, str]]


def tried(models: Models, ids: list[str], picture: AnyPicture, found: list[Family]) -> Tried:
    """Every model's scores of every caption and text."""
    texts = [text for family in found for text in family.texts]
    scores: dict[str, np.ndarray] = {}
    failures = []
    for id in ids:
        try:
            scores[id] = models.scores(id, picture, texts)
        except CounterpointError as error:
            failures.append((id, str(error)))
    blank = np.zeros(len(texts), dtype=bool)
    columns = [heat(values, blank) if texts else [] for values in scores.values()]
    blocks, start = [], 0
    for family in found:
        made: list[MadeText | None] = [None, *family.made]
        truth = np.array([one is None or one.kind == "positive" for one in made])
        lines = [
            ScoredText(one, text, [cells[start + number] for cells in columns])
            for number, (one, text) in enumerate(zip(made, family.texts, strict=True))
        ]
        mine = slice(start, start + len(made))
        outcomes = [outcome_of_one(values[mine], truth) for values in scores.values()]
        blocks.append(CaptionScores(family.caption, lines, outcomes))
        start += len(made)
    return Tried(list(scores), blocks, failures)


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


@lru_cache(maxsize=256)
def _scene(number: int) -> PlaygroundImage:
    edit = next(replacements(number))
    picture, label = Picture(ImageRef(world_reference(edit.scene))), f"Drawn scene {number}"
    return PlaygroundImage(picture, {"scene": number}, label, (edit.original,), number)


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
        return web.page(request, "try_answers.html", result=result)

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
            raise not_shown(error) from None
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
    image: dict[str, Any] = {name: str(form.get(name, "")) for name in _IMAGE}
    if token:
        image = {"upload": token}
    elif form.get("draw"):
        image = {"scene": whole_number(image["scene"], SCENES, 1)}
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
