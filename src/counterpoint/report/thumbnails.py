"""Small copies of images inside a page, as long as there is room."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from PIL import Image

from counterpoint.cases import TEXT, ImageRef
from counterpoint.errors import ImageError
from counterpoint.report.sharing import without_folders
from counterpoint.scoring.pictures import Picture

_SIDE: Final = 288  # pixels of the longer side
SMALL: Final = 128  # pixels up to which a picture is shown larger, with its pixels sharp
BUDGET: Final = 6_000_000  # bytes of all pictures of a page


@dataclass(frozen=True, slots=True)
class Thumbnail:
    """A picture as a data address; else a text in its place, or why there is none."""

    uri: str = ""
    width: int = 0
    height: int = 0
    text: str = ""
    why: str = ""

    @property
    def small(self) -> bool:
        return max(self.width, self.height) <= SMALL


@dataclass(slots=True)
class Album:
    """The pictures of one page. Each is made once; `lost` counts those that could not be read."""

    left: int = BUDGET
    lost: int = 0
    full: int = 0
    _made: dict[tuple[ImageRef, str], Thumbnail] = field(default_factory=dict)

    def picture(self, ref: ImageRef, root: Path | None) -> Thumbnail:
        if ref.path.startswith(TEXT):
            return Thumbnail(text=ref.path.removeprefix(TEXT))
        key = (ref, str(root))
        if key not in self._made:
            self._made[key] = self._make(ref, root)
        elif self._made[key].uri:
            self.left -= len(self._made[key].uri)  # it is in the page once more
        return self._made[key]

    def _make(self, ref: ImageRef, root: Path | None) -> Thumbnail:
        if self.left <= 0:
            self.full += 1
            return Thumbnail(why="left out: the page has no room for more pictures")
        try:
            image = Picture(ref, root).open()
        except ImageError as error:
            self.lost += 1
            return Thumbnail(why=without_folders(str(error)))
        image.thumbnail((_SIDE, _SIDE), Image.Resampling.LANCZOS)
        uri = _encoded(image)
        self.left -= len(uri)
        return Thumbnail(uri, *image.size)


def _encoded(image: Image.Image) -> str:
    """As JPEG or PNG, whichever is smaller: photographs or drawings. No metadata goes along."""
    kinds: list[tuple[str, dict[str, Any]]] = [("png", {"optimize": True})]
    if max(image.size) > SMALL:  # a small one is drawn larger, and would show what JPEG loses
        kinds.append(("jpeg", {"quality": 80}))
    found = []
    for kind, options in kinds:
        data = io.BytesIO()
        image.save(data, kind, **options)
        found.append((len(data.getvalue()), kind, data.getvalue()))
    _, kind, content = min(found)
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
