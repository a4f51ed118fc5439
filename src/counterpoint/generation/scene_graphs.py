"""Pairs of ARO's two templates, VG-Relation and VG-Attribution, from scene graphs.

    the man is behind the tree               the tree is behind the man
    the crouched cat and the open door       the open cat and the crouched door

The captions are made here, too. As in the paper (appendix A): each object takes at least a quarter
of the image's width and of its height, the two are not of one category, the image is cropped to the
smallest box that holds both, and symmetric relations are left out. Beyond the paper, a swap is left
out if the graph itself says that it is true: "the tree is behind the man" of another tree, or a
door that is crouched too.

Everything left out is counted by its reason. Nothing is guessed: an image of unknown size is left
out, too.

Graphs are read one image at a time, however long the file is:

    [{"image_id", "objects": [{"object_id", "names", "attributes", "synsets", "x", "y", "w", "h"}],
      "relationships": [{"relationship_id", "predicate", "subject_id", "object_id"}]}]   VG
    {"IMAGE": {"width", "height", "objects": {"ID": {"name", "attributes", "x", "y", "w", "h",
        "relations": [{"name", "object"}]}}}}                                              GQA

GQA says how large an image is. Visual Genome says it in another file, `image_data.json`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from counterpoint._util.errors import DataError
from counterpoint._util.progress import Progress, Quiet
from counterpoint._util.untrusted import shown
from counterpoint.cases import ImageRef
from counterpoint.generation.drafts import CAPTIONS, MADE, Counts, TextSettings
from counterpoint.generation.inputs.captions import SourceCaption
from counterpoint.generation.inputs.json_files import (
    invalid,
    is_list,
    json_items,
    json_object,
    json_pairs,
)
from counterpoint.generation.language.lists import WORDS
from counterpoint.generation.pairs import Draft
from counterpoint.generation.run import Generated, Offer, write_offers

SHARE: Final = 4  # each side of an object is at least 1/4 of the image's side
SYMMETRIC: Final = WORDS.symmetric_in_graphs | {
    f"{posture} {relation}" for posture in WORDS.postures_in_graphs for relation in WORDS.nearness
}
_VERSION: Final = "1"
Size = tuple[int, int]
LeftOut = Counter[str]
GraphPair = tuple[SourceCaption, Draft]


def generate_from_graphs(
    path: Path,
    settings: TextSettings,
    out: Path,
    *,
    sizes: Path | None = None,
    images: Path | None = None,
    progress: Progress | None = None,
) -> Generated:
    """Make the pairs file `out` of a scene-graph file; `sizes` is Visual Genome's image_data.json.

    `images` is the folder that image paths start from, by default that of `path`. This is fast,
    because no language is parsed. So an interrupted run is not resumed.
    """
    about = {
        "input": str(path),
        "root": str((images or path.parent).absolute()),
        "kind": settings.kind,
        "seed": settings.seed,
        "methods": list(settings.methods),
    }
    counts: Counts = Counter()

    def offers() -> Iterator[Offer]:
        if out.exists():
            raise DataError("E-OUTPUT-EXISTS", f"{out} exists; name another -o or remove it.")
        known = read_sizes(sizes) if sizes else None
        for method in settings.methods:
            advance = (progress or Quiet()).start(method, None)
            left_out: LeftOut = Counter()
            for graph in read_graphs(path, known):
                for source, draft in _PAIRS[method](graph, left_out, settings):
                    counts[CAPTIONS, MADE] += 1
                    yield Offer(source, settings.kind, (draft,), method, f"{method}-{_VERSION}")
                advance(1)
            counts.update({(method, reason): number for reason, number in left_out.items()})

    return write_offers(offers(), settings, out, about, counts)


def relation_pairs(graph: Graph, left_out: LeftOut, settings: TextSettings) -> Iterator[GraphPair]:
    """True captions "the X is REL the Y", each with the negative that swaps X and Y.

    A source's id is `IMAGE/RELATION`.
    """
    del settings
    captions: set[str] = set()
    for relation in graph.relations:
        if reason := _unfit_relation(graph, relation):
            left_out[reason] += 1
            continue
        one, two = graph.objects[relation.subject], graph.objects[relation.object]
        name = _after_is(relation.name)
        caption = f"the {one.name} is {name} the {two.name}"
        if caption in captions:
            left_out["said before of this image"] += 1
            continue
        captions.add(caption)
        image = ImageRef(f"{graph.image}.jpg", _around(graph, one, two))
        negative = Draft(f"the {two.name} is {name} the {one.name}", "swap", "rel")
        yield SourceCaption(f"{graph.image}/{relation.id}", image, caption), negative


def attribution_pairs(
    graph: Graph, left_out: LeftOut, settings: TextSettings
) -> Iterator[GraphPair]:
    """True captions "the A1 O1 and the A2 O2", each with one text.

    As a negative, the attributes swapped; as a positive, the conjuncts reversed, which says the
    same. Of two objects with several attributes, the first `each` choices are taken. A source's id
    is `IMAGE/OBJECT-OBJECT`, with `#1` and so on for further choices.
    """
    captions: set[str] = set()
    for first, second in combinations(graph.objects, 2):
        one, two = graph.objects[first], graph.objects[second]
        reason = _unfit_objects(graph, one, two)
        if not (one.attributes and two.attributes):
            reason = "an object has no attribute"
        chosen = [] if reason else list(islice(_choices(graph, one, two), settings.each))
        if not chosen:
            left_out[reason or "each attribute is true of both, or may be"] += 1
            continue
        image = ImageRef(f"{graph.image}.jpg", _around(graph, one, two))
        for place, (a1, a2) in enumerate(chosen):
            caption = f"the {a1} {one.name} and the {a2} {two.name}"
            reverse = f"the {a2} {two.name} and the {a1} {one.name}"
            if caption in captions:
                left_out["said before of this image"] += 1
                continue
            captions |= {caption, reverse}
            swapped = f"the {a2} {one.name} and the {a1} {two.name}"
            id = f"{graph.image}/{first}-{second}" + (f"#{place}" if place else "")
            text = swapped if settings.kind == "negative" else reverse
            yield SourceCaption(id, image, caption), Draft(text, "swap", "att")


_PAIRS: Final = {"vg-attribution": attribution_pairs, "vg-relation": relation_pairs}


def _after_is(relation: str) -> str:
    """The relation as it stands after "is": "is on" is "on"."""
    first, _, rest = relation.partition(" ")
    return rest if first in WORDS.all_copulas else relation


def _unfit_relation(graph: Graph, relation: Relation) -> str:
    one, two = graph.objects.get(relation.subject), graph.objects.get(relation.object)
    name = _after_is(relation.name)
    first = name.partition(" ")[0]
    if one is None or two is None:
        return "the relation names an object that is not in the graph"
    if not name:
        return "the relation has no name"
    if name in SYMMETRIC:
        return "a symmetric relation"
    # Visual Genome's annotators wrote free text: "has", "wears", "is on". After "the X is" a finite
    # verb is not English, and the error would say nothing about the image.
    if first in WORDS.bare_verbs or (first.endswith("s") and first not in WORDS.no_verbs):
        return "the relation is a finite verb, which does not go after 'is'"
    return _unfit_objects(graph, one, two) or _also_true(graph, one, name, two)


def _unfit_objects(graph: Graph, one: Object, two: Object) -> str:
    if not one.name or not two.name:
        return "an object has no name"
    if one.name == two.name or one.category == two.category:
        return "objects of the same category"
    if graph.size is None:
        return "the image's size is not known"
    width, height = graph.size
    for box in (_inside(one.box, graph.size), _inside(two.box, graph.size)):
        if SHARE * box.width < width or SHARE * box.height < height:
            return "an object is smaller than a quarter of the image"
    return ""


def _also_true(graph: Graph, one: Object, name: str, two: Object) -> str:
    """Whether the graph says somewhere that the swapped statement is true."""
    for relation in graph.relations:
        if _after_is(relation.name) != name:
            continue
        subject, other = graph.objects.get(relation.subject), graph.objects.get(relation.object)
        if subject and other and (subject.name, other.name) == (two.name, one.name):
            return "the swapped statement is true, too"
    return ""


def _choices(graph: Graph, one: Object, two: Object) -> Iterator[tuple[str, str]]:
    """Attributes that are true of one object, or of anything of its name, and not of the other."""
    ones, twos = _attributes(graph, one.name), _attributes(graph, two.name)
    for a1 in one.attributes:
        for a2 in two.attributes:
            shared = a1 in two.attributes or a2 in one.attributes
            # Of two others of the same names the swap may be true.
            if not shared and not (a2 in ones and a1 in twos):
                yield a1, a2


def _attributes(graph: Graph, name: str) -> frozenset[str]:
    """What is said of anything of this name in the image."""
    named = (thing for thing in graph.objects.values() if thing.name == name)
    return frozenset(attribute for thing in named for attribute in thing.attributes)


def _around(graph: Graph, one: Object, two: Object) -> tuple[int, int, int, int]:
    """The smallest crop that holds what is seen of both: x, y, width, height."""
    assert graph.size is not None  # or they would be unfit
    a, b = _inside(one.box, graph.size), _inside(two.box, graph.size)
    x, y = min(a.x, b.x), min(a.y, b.y)
    right, bottom = max(a.x + a.width, b.x + b.width), max(a.y + a.height, b.y + b.height)
    return x, y, right - x, bottom - y


def _inside(box: Box, size: Size) -> Box:
    """The part of a box that is in the image: annotators drew over the edge."""
    x, y = max(box.x, 0), max(box.y, 0)
    right, bottom = min(box.x + box.width, size[0]), min(box.y + box.height, size[1])
    return Box(x, y, right - x, bottom - y)


# --- reading ------------------------------------------------------------------------------------


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
        raise invalid(where, "a name should be a text", value)
    return " ".join(value.lower().split()).strip(" .,;")


def _list(fields: dict[str, Any], key: str, where: str) -> list[Any]:
    value = fields.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise invalid(where, f"{key!r} should be a list", value)
    return value


def _number(fields: dict[str, Any], key: str, where: str) -> int:
    value = fields.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e9:
        raise invalid(where, f"{key!r} should be a number", value)
    return round(value)
