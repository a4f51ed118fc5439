"""Scene graphs of Visual Genome and of GQA, one image at a time, however long the file is.

    [{"image_id", "objects": [{"object_id", "names", "attributes", "synsets", "x", "y", "w", "h"}],
      "relationships": [{"relationship_id", "predicate", "subject_id", "object_id"}]}]   VG
    {"IMAGE": {"width", "height", "objects": {"ID": {"name", "attributes", "x", "y", "w", "h",
        "relations": [{"name", "object"}]}}}}                                              GQA

GQA says how large an image is. Visual Genome says it in another file, `image_data.json`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from counterpoint._util.errors import DataError
from counterpoint._util.untrusted import shown
from counterpoint.generation.inputs.files import json_object
from counterpoint.generation.inputs.json_stream import is_list, json_items, json_pairs

Size = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in pixels."""

    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Object:
    """An object in an image: its name, its attributes and its place.

    `category` is its WordNet synset where the file has one, else its name.
    """

    name: str
    category: str
    attributes: tuple[str, ...]
    box: Box


class Relation(NamedTuple):
    """`subject` and `object` are keys of the graph's objects."""

    id: str
    subject: str
    name: str
    object: str


@dataclass(frozen=True, slots=True)
class Graph:
    """What is in one image. `size` is None if it is unknown."""

    image: str
    size: Size | None
    objects: Mapping[str, Object]
    relations: tuple[Relation, ...]


def read_graphs(path: Path, sizes: Mapping[str, Size] | None = None) -> Iterator[Graph]:
    """The graphs of a file, in its order. `sizes` are used where a graph has no size."""
    if not path.is_file():
        raise DataError("E-FILE-MISSING", f"{path}: no such file.")
    known = sizes or {}
    for graph in _visual_genome(path) if is_list(path) else _gqa(path):
        yield graph if graph.size else replace(graph, size=known.get(graph.image))


def read_sizes(path: Path) -> dict[str, Size]:
    """The sizes of images by their ids, from Visual Genome's `image_data.json`."""
    if not path.is_file():
        raise DataError("E-FILE-MISSING", f"{path}: no such file.")
    sizes = {}
    for place, row in enumerate(json_items(path, "item")):
        where = f"{path}: row {place + 1}"
        fields = json_object(row, where)
        size = _number(fields, "width", where), _number(fields, "height", where)
        sizes[str(fields.get("image_id", fields.get("id")))] = size
    return sizes


def _visual_genome(path: Path) -> Iterator[Graph]:
    for place, row in enumerate(json_items(path, "item")):
        where = f"{path}: row {place + 1}"
        fields = json_object(row, where)
        if "image_id" not in fields:
            raise DataError("E-FIELD-MISSING", f"{where}: has no 'image_id'.")
        objects = {}
        for value in _list(fields, "objects", where):
            thing = json_object(value, where)
            names, synsets = _list(thing, "names", where), _list(thing, "synsets", where)
            objects[str(thing.get("object_id"))] = _object(thing, names[:1], synsets[:1], where)
        relations = (json_object(value, where) for value in _list(fields, "relationships", where))
        known = tuple(
            Relation(
                str(relation.get("relationship_id", number)),
                str(relation.get("subject_id")),
                plain(relation.get("predicate"), where),
                str(relation.get("object_id")),
            )
            for number, relation in enumerate(relations)
        )
        yield Graph(str(fields["image_id"]), None, objects, known)


def _gqa(path: Path) -> Iterator[Graph]:
    for image, value in json_pairs(path):
        where = f"{path}: image {shown(image)}"
        fields = json_object(value, where)
        rows = json_object(fields.get("objects"), where)
        things = {key: json_object(thing, where) for key, thing in rows.items()}
        relations = []
        for key, thing in things.items():
            for number, one in enumerate(_list(thing, "relations", where)):
                relation = json_object(one, where)
                name, other = plain(relation.get("name"), where), str(relation.get("object"))
                relations.append(Relation(f"{key}.{number}", key, name, other))
        objects = {
            key: _object(thing, [thing.get("name")], [], where) for key, thing in things.items()
        }
        size = _number(fields, "width", where), _number(fields, "height", where)
        yield Graph(image, size, objects, tuple(relations))


def _object(thing: dict[str, Any], names: list[Any], synsets: list[Any], where: str) -> Object:
    name = plain(names[0] if names else None, where)
    attributes = dict.fromkeys(plain(one, where) for one in _list(thing, "attributes", where))
    return Object(
        name,
        str(synsets[0]) if synsets else name,
        tuple(attribute for attribute in attributes if attribute),
        Box(*(_number(thing, side, where) for side in "xywh")),
    )


def plain(value: Any, where: str) -> str:
    """Words in lower case with single spaces, without capitals and full stops."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DataError(
            "E-FIELD-INVALID", f"{where}: a name should be a text, it is {shown(value)}."
        )
    return " ".join(value.lower().split()).strip(" .,;")


def _list(fields: dict[str, Any], key: str, where: str) -> list[Any]:
    value = fields.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise DataError(
            "E-FIELD-INVALID", f"{where}: {key!r} should be a list, it is {shown(value)}."
        )
    return value


def _number(fields: dict[str, Any], key: str, where: str) -> int:
    value = fields.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e9:
        raise DataError(
            "E-FIELD-INVALID", f"{where}: {key!r} should be a number, it is {shown(value)}."
        )
    return round(value)
