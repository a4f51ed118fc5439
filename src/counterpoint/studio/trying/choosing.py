"""Which image is tried: a drawn scene, an image of a case, or an upload. It is in the address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from counterpoint.cases import ImageRef
from counterpoint.scoring.pictures import WORLD, Picture
from counterpoint.studio.browse.library import Library
from counterpoint.studio.browse.router import held_picture
from counterpoint.studio.browse.views import spoken
from counterpoint.studio.security import Refused
from counterpoint.studio.trying.uploads import AnyPicture, Uploads
from counterpoint.studio.web import url, whole_number
from counterpoint.world.edits import Edit, replacements

SCENES: Final = 1_000_000
_FEW: Final = 4  # captions of a case that are filled in


@dataclass(frozen=True, slots=True)
class Choice:
    """An image: `query` names it in an address, `captions` are what one would ask about it."""

    picture: AnyPicture
    query: dict[str, Any]
    label: str
    captions: tuple[str, ...] = ()
    scene: int | None = None

    @property
    def drawn(self) -> bool:
        return self.picture.ref.path.startswith(WORLD)

    @property
    def address(self) -> str:
        return url("/try/picture", **self.query)


def choose(query: Mapping[str, str], library: Library, uploads: Uploads) -> Choice:
    """The image that an address names; the first drawn scene if it names none."""
    if query.get("upload"):
        token = query["upload"]
        return Choice(uploads.get(token), {"upload": token}, "Your upload")
    if query.get("case"):
        return _of_case(query, library)
    return _scene(whole_number(query.get("scene", ""), SCENES, 1))


def _scene(number: int) -> Choice:
    edit = _edit(number)
    picture = Picture(ImageRef(f"{WORLD}{edit.scene.code()}"))
    return Choice(picture, {"scene": number}, f"Drawn scene {number}", (edit.original,), number)


@lru_cache(maxsize=256)
def _edit(number: int) -> Edit:
    return next(replacements(number))


def _of_case(query: Mapping[str, str], library: Library) -> Choice:
    key, benchmark, case_id = (query.get(name, "") for name in ("run", "benchmark", "case"))
    number = whole_number(query.get("image", ""), SCENES, 1)
    index = library.index(library.run(key), benchmark)
    row = index.row_of(case_id)
    if row is None:
        raise Refused("This run has no such case.", 404)
    picture = held_picture(library, key, benchmark, row, number - 1)
    captions = index.part.cases.frame["captions"][row].head(_FEW).to_list()
    asked = {"run": key, "benchmark": benchmark, "case": case_id, "image": number}
    label = f"Image {number} of case {case_id}, {benchmark}"
    return Choice(picture, asked, label, tuple(spoken(caption) for caption in captions))
