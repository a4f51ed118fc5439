"""A true caption with its image, from which texts are made, and how a row of a file becomes one."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from counterpoint._util.errors import DataError
from counterpoint._util.untrusted import shown
from counterpoint.cases import ImageRef

CAPTION_NAMES: Final = ("caption", "captions", "text", "title", "sentence", "raw")
IMAGE_NAMES: Final = ("image", "filepath", "filename", "image_path", "file_name")
ID_NAMES: Final = ("id", "caption_id", "sentid")
BOX: Final = "box"
SPLIT: Final = "split"


class SourceCaption(NamedTuple):
    """A caption to make texts from. An empty `caption` is missing in the input; it is rejected.

    `others` are the image's other true captions, if the input has them in the same row.
    """

    id: str
    image: ImageRef | None
    caption: str
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CaptionOptions:
    """How to read a file: the names of columns that are not found by themselves, and what to read.

    `split` is one name, or several with commas between.
    """

    caption: str | None = None
    image: str | None = None
    id: str | None = None
    split: str | None = None


class CaptionRow(NamedTuple):
    """A row of a file: its fields, and its place for error messages."""

    where: str
    fields: Mapping[str, Any]


def name_of(given: str | None, known: Iterable[str], names: Container[str]) -> str | None:
    """The name of a field: as given, or the first known name that exists."""
    return given or next((name for name in known if name in names), None)


def sources_of(row: CaptionRow, number: int, options: CaptionOptions) -> Iterator[SourceCaption]:
    """The captions of a row. Several in one row get the ids `ID#0`, `ID#1` and so on."""
    if options.split is not None and _split(row) not in options.split.split(","):
        return
    fields = row.fields
    caption = name_of(options.caption, CAPTION_NAMES, fields)
    captions = [_text(value, row.where) for value in _listed(fields.get(caption or ""))]
    image = _image(row, options)
    ids = _ids(row, number, len(captions), options)
    for place, (id, text) in enumerate(zip(ids, captions, strict=True)):
        rest = dict.fromkeys(captions[:place] + captions[place + 1 :])
        yield SourceCaption(
            id, image, text, tuple(other for other in rest if other not in ("", text))
        )


def _listed(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value or [None]
    return [value]


def _text(value: Any, where: str) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):  # pandas' null
        return ""
    if not isinstance(value, str):
        raise DataError(
            "E-FIELD-INVALID", f"{where}: a caption should be a text, it is {shown(value)}."
        )
    return encodable(value).strip()


def encodable(text: str) -> str:
    """The text without halves of surrogate pairs, which JSON can write and UTF-8 cannot."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _split(row: CaptionRow) -> str:
    value = row.fields.get(SPLIT)
    if not isinstance(value, str):
        raise DataError(
            "E-COLUMN-MISSING", f"{row.where}: has no {SPLIT!r}; do not choose a split."
        )
    return value


def _ids(row: CaptionRow, number: int, count: int, options: CaptionOptions) -> list[str]:
    name = name_of(options.id, ID_NAMES, row.fields)
    value = row.fields.get(name) if name else None
    if isinstance(value, list) and len(value) == count:
        return [encodable(str(id)) for id in value]
    if isinstance(value, list | dict):
        raise DataError(
            "E-FIELD-INVALID",
            f"{row.where}: an id should be a text or a number, it is {shown(value)}.",
        )
    id = str(number) if value in (None, "") else encodable(str(value))
    return [id] if count == 1 else [f"{id}#{place}" for place in range(count)]


def _image(row: CaptionRow, options: CaptionOptions) -> ImageRef | None:
    name = name_of(options.image, IMAGE_NAMES, row.fields)
    value: Any = row.fields.get(name) if name else None
    box = row.fields.get(BOX)
    if isinstance(value, Mapping):  # as case files write it
        value, box = value.get("path"), value.get(BOX, box)
    if value in (None, ""):
        return None
    if not isinstance(value, str):
        raise DataError(
            "E-FIELD-INVALID", f"{row.where}: an image should be a path, it is {shown(value)}."
        )
    return ImageRef(encodable(value), _box(box, row.where))


def _box(value: Any, where: str) -> tuple[int, int, int, int] | None:
    if value is None:
        return None
    whole = isinstance(value, list) and all(type(side) is int for side in value)
    if whole and len(value) == 4 and all(abs(side) < 2**31 for side in value):
        return (value[0], value[1], value[2], value[3])
    raise DataError(
        "E-FIELD-INVALID",
        f"{where}: the box {shown(value)} is not [x, y, width, height] in pixels.",
    )


class UniqueIds:
    """Makes repeated ids unique: the second `7` is `7~2`."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._times: dict[str, int] = {}

    def __call__(self, id: str) -> str:
        unique = id
        while unique in self._seen:
            self._times[id] = self._times.get(id, 1) + 1
            unique = f"{id}~{self._times[id]}"
        self._seen.add(unique)
        return unique
