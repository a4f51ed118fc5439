"""JSON documents of any length, read as streams with bounded memory and time, and their captions.

    {"images": [{"id", "file_name"}], "annotations": [{"id", "image_id", "caption"}]}   COCO
    {"images": [{"filepath", "filename", "split", "sentences": [{"raw", "sentid"}]}]}   Karpathy
    [{"image", "caption"}]                     a list; `caption` may be a list of captions
    {"ID": {"image", "caption"}}               objects by their ids, such as SugarCrepe's

The memory of ijson grows with the square of the nesting, and its time with the square of the length
of a text. So documents that are nested too deeply, or have very long texts, are refused first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np

from counterpoint._util.errors import DataError, reason
from counterpoint._util.untrusted import shortened, shown

DEPTH: Final = 100  # lists and objects within each other
LENGTH: Final = 1 << 22  # bytes of a text, a number or blanks
_BUFFER: Final = 1 << 16  # bytes read at a time
_MARK: Final = b"\xef\xbb\xbf"
_ESCAPE: Final = re.compile(rb"\\.", re.DOTALL)


class JsonFile:
    """A file whose reading ends with an error where its JSON exceeds the bounds."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path, self.file = path, file
        self._rest = b""  # a backslash whose next character was not read yet
        self._quoted = False
        self._depth = self._run = 0  # the run: bytes since the last mark

    def read(self, size: int = -1) -> bytes:
        chunk = self.file.read(size)
        plain = _ESCAPE.sub(b"  ", self._rest + chunk)
        self._rest = b"\\" if plain.endswith(b"\\") else b""
        if plain:
            self._measure(np.frombuffer(plain, np.uint8))
        return chunk

    def _measure(self, data: np.ndarray) -> None:
        quotes = data == ord('"')
        outside = np.logical_xor.accumulate(quotes) == self._quoted
        opened = outside & ((data == ord("[")) | (data == ord("{")))
        closed = outside & ((data == ord("]")) | (data == ord("}")))
        depths = self._depth + np.cumsum(opened.astype(np.int8) - closed.astype(np.int8))
        marks = np.flatnonzero(quotes | opened | closed | (outside & (data == ord(","))))
        edges = np.concatenate(([-1 - self._run], marks, [len(data)]))
        self._quoted, self._depth = not outside[-1], int(depths[-1])
        self._run = int(edges[-1] - edges[-2]) - 1
        if depths.max() > DEPTH:
            raise DataError(
                "E-JSON-INVALID", f"{self.path}: it is nested more than {DEPTH} levels deep."
            )
        if np.diff(edges).max() > LENGTH:
            raise DataError(
                "E-JSON-INVALID", f"{self.path}: a text or number has more than {LENGTH:,} bytes."
            )


@contextmanager
def json_stream(path: Path) -> Iterator[JsonFile]:
    """The file, after a byte order mark. Invalid JSON becomes one DataError."""
    import ijson

    try:
        with path.open("rb") as file:
            if file.read(len(_MARK)) != _MARK:
                file.seek(0)
            try:
                yield JsonFile(path, file)
            except (ijson.JSONError, ValueError, OverflowError, RecursionError) as error:
                # The parser reads ahead by one block, so the position is approximate.
                why = shortened(str(error).partition("\n")[0]).rstrip(". ") or type(error).__name__
                place = f"before byte {file.tell():,}"
                raise DataError(
                    "E-JSON-INVALID", f"{path}: {place}: not valid JSON: {why}."
                ) from None
    except OSError as error:
        raise DataError("E-FILE-UNREADABLE", f"{path}: cannot be read: {reason(error)}.") from None


def json_events(path: Path) -> Iterator[tuple[str, Any]]:
    """The events of the parser, one after another."""
    import ijson

    with json_stream(path) as file:
        yield from ijson.basic_parse(file, use_float=True, buf_size=_BUFFER)


def json_items(path: Path, prefix: str) -> Iterator[Any]:
    """The values at a place of the document, one after another."""
    import ijson

    with json_stream(path) as file:
        yield from ijson.items(file, prefix, use_float=True, buf_size=_BUFFER)


def json_pairs(path: Path) -> Iterator[tuple[str, Any]]:
    """The keys and values of the document, which is an object."""
    import ijson

    with json_stream(path) as file:
        yield from ijson.kvitems(file, "", use_float=True, buf_size=_BUFFER)


def is_list(path: Path) -> bool:
    """Whether the document is a list."""
    return next((event == "start_array" for event, _ in json_events(path)), False)


# --- captions ----------------------------------------------------------------------------------


class CaptionRow(NamedTuple):
    """A row of a file: its fields, and its place for error messages."""

    where: str
    fields: Mapping[str, Any]


def invalid(where: str, wanted: str, value: Any) -> DataError:
    """A field that holds something else than what is `wanted`: "a caption should be a text"."""
    return DataError("E-FIELD-INVALID", f"{where}: {wanted}, it is {shown(value)}.")


def json_object(value: Any, where: str) -> dict[str, Any]:
    """The value, if it is an object; `where` is for the error message."""
    if not isinstance(value, dict):
        raise DataError("E-ROW-MALFORMED", f"{where}: should be an object, it is {shown(value)}.")
    return value


def json_rows(path: Path) -> Iterator[CaptionRow]:
    """The rows of a JSON document, in the order of the file."""
    return _reader(path)(path)


def _reader(path: Path) -> Callable[[Path], Iterator[CaptionRow]]:
    """What reads this form, of the four; no more than the first image is read to know it."""
    depth, top = 0, ""
    for event, value in json_events(path):
        if event in ("end_map", "end_array"):
            depth -= 1
            if top == "images" and depth == 2:
                return _coco  # an image without sentences
        elif event in ("start_map", "start_array"):
            if depth == 0 and event == "start_array":
                return _list
            if depth == 1 and event == "start_map" and top not in ("images", "info"):
                return _by_id
            if depth == 1 and event == "start_array" and top == "annotations":
                return _coco
            depth += 1
        elif event == "map_key" and depth == 1:
            top = value
        elif event == "map_key" and (top, depth, value) == ("images", 3, "sentences"):
            return _karpathy
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
