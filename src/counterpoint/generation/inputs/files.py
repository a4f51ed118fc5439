"""Caption files as rows, one after another, of any length, and the captions of a row.

| ending            | form |
|-------------------|------|
| .csv, .tsv        | a table with a header |
| .jsonl, .ndjson   | one object per line |
| .parquet          | a table; a column of images (`{bytes, path}`) is referred to, not read |
| .json             | one JSON document, in any of the four forms below |

    {"images": [{"id", "file_name"}], "annotations": [{"id", "image_id", "caption"}]}   COCO
    {"images": [{"filepath", "filename", "split", "sentences": [{"raw", "sentid"}]}]}   Karpathy
    [{"image", "caption"}]                     a list; `caption` may be a list of captions
    {"ID": {"image", "caption"}}               objects by their ids, such as SugarCrepe's
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from counterpoint._util.errors import DataError
from counterpoint._util.untrusted import shortened, shown
from counterpoint.cases import ImageRef
from counterpoint.generation.inputs.json_stream import (
    json_events,
    json_items,
    json_pairs,
)
from counterpoint.images import cell_reference

CAPTION_NAMES: Final = ("caption", "captions", "text", "title", "sentence", "raw")
IMAGE_NAMES: Final = ("image", "filepath", "filename", "image_path", "file_name")
ID_NAMES: Final = ("id", "caption_id", "sentid")
BOX: Final = "box"
SPLIT: Final = "split"
_FIELD: Final = 1 << 24  # characters; Python's default is too low for lists of negatives
_BATCH: Final = 4096


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


Rows = Callable[[Path, CaptionOptions], Iterator[CaptionRow]]
JsonForm = Literal["coco", "karpathy", "list", "ids"]


def json_rows(path: Path) -> Iterator[CaptionRow]:
    """The rows of a JSON document, in the order of the file."""
    form = _form(path)
    if form == "coco":
        return _coco(path)
    if form == "karpathy":
        return _karpathy(path)
    return _list(path) if form == "list" else _by_id(path)


def _form(path: Path) -> JsonForm:
    """Which of the four forms; reads no more than the first image."""
    depth, top = 0, ""
    for event, value in json_events(path):
        if event in ("end_map", "end_array"):
            depth -= 1
            if top == "images" and depth == 2:
                return "coco"  # an image without sentences
        elif event in ("start_map", "start_array"):
            if depth == 0 and event == "start_array":
                return "list"
            if depth == 1 and event == "start_map" and top not in ("images", "info"):
                return "ids"
            if depth == 1 and event == "start_array" and top == "annotations":
                return "coco"
            depth += 1
        elif event == "map_key" and depth == 1:
            top = value
        elif event == "map_key" and (top, depth, value) == ("images", 3, "sentences"):
            return "karpathy"
    raise DataError(
        "E-CAPTIONS-MISSING",
        f"{path}: no captions were found; a caption file is a list of objects, or has "
        "'images' and 'annotations' as COCO's, or 'images' with 'sentences' as Karpathy's.",
    )


def _coco(path: Path) -> Iterator[CaptionRow]:
    """In two passes, because captions may come before the images that they name."""
    files: dict[str, str] = {}
    for number, value in enumerate(json_items(path, "images.item")):
        image = json_object(value, f"{path}: image {number}")
        name = image.get("file_name")
        if not isinstance(name, str) or "id" not in image:
            raise DataError(
                "E-FIELD-MISSING", f"{path}: image {number}: should have 'id' and 'file_name'."
            )
        files[str(image["id"])] = name
    for number, value in enumerate(json_items(path, "annotations.item")):
        where = f"{path}: annotation {number}"
        note = json_object(value, where)
        if number == 0 and "caption" not in note:
            raise DataError(
                "E-FIELD-MISSING", f"{where}: has no 'caption': these are not COCO's captions."
            )
        key = str(note.get("image_id"))
        if key not in files:
            named = shortened(key)
            raise DataError(
                "E-IMAGE-UNKNOWN", f"{where}: names the image {named}, which is not among 'images'."
            )
        fields = {"caption": note.get("caption"), "image": files[key], "id": note.get("id")}
        yield CaptionRow(where, fields)


def _karpathy(path: Path) -> Iterator[CaptionRow]:
    for number, value in enumerate(json_items(path, "images.item")):
        where = f"{path}: image {number}"
        image = json_object(value, where)
        sentences, name = image.get("sentences"), image.get("filename")
        if not isinstance(sentences, list) or not isinstance(name, str):
            raise DataError("E-FIELD-MISSING", f"{where}: should have 'filename' and 'sentences'.")
        rows = [json_object(sentence, where) for sentence in sentences]
        folder = image.get("filepath")
        fields: dict[str, Any] = {
            "caption": [row.get("raw") for row in rows],
            "image": f"{folder}/{name}" if folder else name,
            "split": image.get("split"),
        }
        ids = [row.get("sentid") for row in rows]
        if rows and None not in ids:
            fields["id"] = ids
        yield CaptionRow(where, fields)


def _list(path: Path) -> Iterator[CaptionRow]:
    for number, value in enumerate(json_items(path, "item")):
        where = f"{path}: row {number + 1}"
        yield CaptionRow(where, json_object(value, where))


def _by_id(path: Path) -> Iterator[CaptionRow]:
    for key, value in json_pairs(path):
        where = f"{path}: row {shown(key)}"
        row = json_object(value, where)
        yield CaptionRow(where, row if "id" in row else {**row, "id": key})


def _delimited(separator: str, path: Path, options: CaptionOptions) -> Iterator[CaptionRow]:
    csv.field_size_limit(_FIELD)
    line = 0
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=separator)
            header = next(reader, [])
            check_columns(path, header, options)
            for values in reader:
                line = reader.line_num
                if not values:
                    continue  # an empty line
                if len(values) != len(header):
                    raise DataError(
                        "E-FILE-MALFORMED",
                        f"{path}: line {line}: has {len(values)} fields, "
                        f"the header has {len(header)}.",
                    )
                yield CaptionRow(f"{path}: line {line}", dict(zip(header, values, strict=True)))
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(
            "E-FILE-MALFORMED",
            f"{path}: after line {line}: not a readable table: {shortened(error)}.",
        ) from None


def _jsonl(path: Path, options: CaptionOptions) -> Iterator[CaptionRow]:
    first = True
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            where = f"{path}: line {number}"
            try:
                row = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
            except RecursionError:
                raise DataError("E-JSON-INVALID", f"{where}: it is nested too deeply.") from None
            except ValueError as error:
                raise DataError(
                    "E-JSON-INVALID", f"{where}: not valid JSON: {shortened(error)}."
                ) from None
            fields = json_object(row, where)
            if first:
                check_columns(path, list(fields), options)
                first = False
            yield CaptionRow(where, fields)


def _json(path: Path, options: CaptionOptions) -> Iterator[CaptionRow]:
    for number, row in enumerate(json_rows(path)):
        if number == 0:
            check_columns(path, list(row.fields), options)
        yield row


def _parquet(path: Path, options: CaptionOptions) -> Iterator[CaptionRow]:
    import pyarrow as pa  # slow to import
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            names = check_columns(path, file.schema_arrow.names, options)
            images = [name for name in names if _holds_images(file.schema_arrow.field(name).type)]
            wanted = [name for name in names if name not in images]
            for batch in file.iter_batches(_BATCH, columns=wanted):
                for row in batch.to_pylist():
                    cells = {name: cell_reference(path.name, name, number) for name in images}
                    yield CaptionRow(f"{path}: row {number + 1}", {**row, **cells})
                    number += 1
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        why = shortened(str(error).partition("\n")[0]).rstrip(".") or type(error).__name__
        raise DataError(
            "E-FILE-MALFORMED", f"{path}: row {number + 1}: not a readable Parquet file: {why}."
        ) from None


def _holds_images(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return bool(kind.get_field_index("bytes") >= 0)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def json_object(value: Any, where: str) -> dict[str, Any]:
    """The value, if it is an object; `where` is for the error message."""
    if not isinstance(value, dict):
        raise DataError("E-ROW-MALFORMED", f"{where}: should be an object, it is {shown(value)}.")
    return value


def check_columns(path: Path, names: list[str], options: CaptionOptions) -> list[str]:
    """The columns to read. Raises if there are no captions, or if a named column is missing."""
    if not names:
        raise DataError("E-FILE-EMPTY", f"{path}: is empty; it needs a row of column names.")
    listed = shortened(", ".join(names))
    asked = {"caption": options.caption, "image": options.image, "id": options.id}
    for kind, name in asked.items():
        if name is not None and name not in names:
            raise DataError(
                "E-COLUMN-MISSING",
                f"{path}: there is no column {shown(name)} for the {kind}, only {listed}.",
            )
    caption = name_of(options.caption, CAPTION_NAMES, names)
    image = name_of(options.image, IMAGE_NAMES, names)
    id = name_of(options.id, ID_NAMES, names)
    if caption is None:
        raise DataError(
            "E-COLUMN-MISSING",
            f"{path}: which column holds the captions? None is called "
            f"{', '.join(CAPTION_NAMES[:-1])} or {CAPTION_NAMES[-1]}, but {listed}; "
            "name it with --caption-column.",
        )
    if options.split is not None and SPLIT not in names:
        raise DataError("E-COLUMN-MISSING", f"{path}: has no {SPLIT!r}; do not choose a split.")
    return [name for name in (caption, image, id, BOX, SPLIT) if name in names]


READERS: Final[dict[str, Rows]] = {
    ".csv": partial(_delimited, ","),
    ".tsv": partial(_delimited, "\t"),
    ".jsonl": _jsonl,
    ".ndjson": _jsonl,
    ".json": _json,
    ".parquet": _parquet,
}


# --- the captions of a row ------------------------------------------------------------------------


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
