"""Captions in one JSON document, read as a stream: in any of four forms.

{"images": [{"id", "file_name"}], "annotations": [{"id", "image_id", "caption"}]}   COCO
{"images": [{"filepath", "filename", "split", "sentences": [{"raw", "sentid"}]}]}   Karpathy
[{"image", "caption"}]                     a list; `caption` may be a list of captions
{"ID": {"image", "caption"}}               objects by their ids, as SugarCrepe's
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal

from counterpoint.errors import DataError
from counterpoint.generate.sources import Row

Form = Literal["coco", "karpathy", "list", "ids"]


def json_rows(path: Path) -> Iterator[Row]:
    """The captions' rows, in the order of the file."""
    form = _form(path)
    if form == "coco":
        return _coco(path)
    if form == "karpathy":
        return _karpathy(path)
    return _list(path) if form == "list" else _by_id(path)


@contextmanager
def json_stream(path: Path) -> Iterator[BinaryIO]:
    """The file, past a byte order mark; what is wrong with its JSON becomes one sentence."""
    import ijson

    try:
        with path.open("rb") as file:
            if file.read(3) != b"\xef\xbb\xbf":
                file.seek(0)
            try:
                yield file
            except (ijson.JSONError, UnicodeDecodeError) as error:
                # A parser reads ahead by a block: the place is only near.
                why = (str(error).splitlines() or [type(error).__name__])[0].rstrip(". ")
                place = f"before byte {file.tell():,}"
                raise DataError(f"{path}: {place}: not valid JSON: {why}.") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error}.") from None


def json_items(path: Path, prefix: str) -> Iterator[Any]:
    """The values at a place of the document, one after another."""
    import ijson

    with json_stream(path) as file:
        yield from ijson.items(file, prefix, use_float=True)


def json_pairs(path: Path) -> Iterator[tuple[str, Any]]:
    """The keys and values of the document, which is an object."""
    import ijson

    with json_stream(path) as file:
        yield from ijson.kvitems(file, "", use_float=True)


def is_list(path: Path) -> bool:
    """Whether the document is a list."""
    import ijson

    with json_stream(path) as file:
        for _, event, _ in ijson.parse(file):
            return bool(event == "start_array")
    return False


def _form(path: Path) -> Form:
    """Found by reading no more than the first image."""
    import ijson

    depth, top = 0, ""
    with json_stream(path) as file:
        for event, value in ijson.basic_parse(file):
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
        f"{path}: no captions were found; a caption file is a list of objects, or has "
        "'images' and 'annotations' as COCO's, or 'images' with 'sentences' as Karpathy's."
    )


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DataError(f"{where}: should be an object, it is {value!r:.60}.")
    return value


def _coco(path: Path) -> Iterator[Row]:
    """In two passes: captions may come before the images that they name."""
    files: dict[str, str] = {}
    for number, value in enumerate(json_items(path, "images.item")):
        image = _object(value, f"{path}: image {number}")
        name = image.get("file_name")
        if not isinstance(name, str) or "id" not in image:
            raise DataError(f"{path}: image {number}: should have 'id' and 'file_name'.")
        files[str(image["id"])] = name
    for number, value in enumerate(json_items(path, "annotations.item")):
        where = f"{path}: annotation {number}"
        note = _object(value, where)
        if number == 0 and "caption" not in note:
            raise DataError(f"{where}: has no 'caption': these are not COCO's captions.")
        key = str(note.get("image_id"))
        if key not in files:
            raise DataError(f"{where}: names the image {key}, which is not among 'images'.")
        fields = {"caption": note.get("caption"), "image": files[key], "id": note.get("id")}
        yield Row(where, fields)


def _karpathy(path: Path) -> Iterator[Row]:
    for number, value in enumerate(json_items(path, "images.item")):
        where = f"{path}: image {number}"
        image = _object(value, where)
        sentences, name = image.get("sentences"), image.get("filename")
        if not isinstance(sentences, list) or not isinstance(name, str):
            raise DataError(f"{where}: should have 'filename' and 'sentences'.")
        rows = [_object(sentence, where) for sentence in sentences]
        folder = image.get("filepath")
        fields: dict[str, Any] = {
            "caption": [row.get("raw") for row in rows],
            "image": f"{folder}/{name}" if folder else name,
            "split": image.get("split"),
        }
        ids = [row.get("sentid") for row in rows]
        if rows and None not in ids:
            fields["id"] = ids
        yield Row(where, fields)


def _list(path: Path) -> Iterator[Row]:
    for number, value in enumerate(json_items(path, "item")):
        where = f"{path}: row {number}"
        yield Row(where, _object(value, where))


def _by_id(path: Path) -> Iterator[Row]:
    for key, value in json_pairs(path):
        where = f"{path}: row {key!r:.60}"
        row = _object(value, where)
        yield Row(where, row if "id" in row else {**row, "id": key})
