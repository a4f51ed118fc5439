"""Captions in one JSON document, read as a stream: in any of four forms.

{"images": [{"id", "file_name"}], "annotations": [{"id", "image_id", "caption"}]}   COCO
{"images": [{"filepath", "filename", "split", "sentences": [{"raw", "sentid"}]}]}   Karpathy
[{"image", "caption"}]                     a list; `caption` may be a list of captions
{"ID": {"image", "caption"}}               objects by their ids, as SugarCrepe's
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from counterpoint.errors import DataError
from counterpoint.generate.json_stream import json_events, json_items, json_pairs
from counterpoint.generate.sources import Row
from counterpoint.untrusted import shortened, shown

Form = Literal["coco", "karpathy", "list", "ids"]


def json_rows(path: Path) -> Iterator[Row]:
    """The captions' rows, in the order of the file."""
    form = _form(path)
    if form == "coco":
        return _coco(path)
    if form == "karpathy":
        return _karpathy(path)
    return _list(path) if form == "list" else _by_id(path)


def _form(path: Path) -> Form:
    """Found by reading no more than the first image."""
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
        f"{path}: no captions were found; a caption file is a list of objects, or has "
        "'images' and 'annotations' as COCO's, or 'images' with 'sentences' as Karpathy's."
    )


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DataError(f"{where}: should be an object, it is {shown(value)}.")
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
            named = shortened(key)
            raise DataError(f"{where}: names the image {named}, which is not among 'images'.")
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
        where = f"{path}: row {shown(key)}"
        row = _object(value, where)
        yield Row(where, row if "id" in row else {**row, "id": key})
