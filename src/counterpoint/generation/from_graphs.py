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
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import combinations, islice
from pathlib import Path
from typing import Final

import polars as pl

from counterpoint._util.errors import DataError
from counterpoint._util.progress import Advance, Progress, Quiet
from counterpoint.cases import ImageRef
from counterpoint.generation.drafts import CAPTIONS, MADE, Counts, DraftChecker, TextSettings
from counterpoint.generation.inputs.files import SourceCaption
from counterpoint.generation.inputs.scene_graphs import (
    Box,
    Graph,
    Object,
    Relation,
    Size,
    read_graphs,
    read_sizes,
)
from counterpoint.generation.language.lists import WORDS
from counterpoint.generation.pairs import Kind, Pair, require_parquet, tabulate, write_pairs
from counterpoint.generation.registry import GRAPH_METHODS, Draft
from counterpoint.generation.run import Generated, with_counts

SHARE: Final = 4  # each side of an object is at least 1/4 of the image's side
SYMMETRIC: Final = WORDS.symmetric_in_graphs | {
    f"{posture} {relation}" for posture in WORDS.postures_in_graphs for relation in WORDS.nearness
}
_ROWS: Final = 10_000  # tabulated at a time


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
    require_parquet(out)
    if out.exists():
        raise DataError("E-OUTPUT-EXISTS", f"{out} exists; name another -o or remove it.")
    about = {
        "input": str(path),
        "root": str((images or path.parent).absolute()),
        "kind": settings.kind,
        "seed": settings.seed,
        "methods": list(settings.methods),
    }
    known = read_sizes(sizes) if sizes else None
    counts: Counts = Counter()
    shown = progress or Quiet()

    def pairs() -> Iterator[Pair]:
        for method in settings.methods:
            version = f"{method}-{GRAPH_METHODS[method].version}"
            graphs = _advancing(read_graphs(path, known), shown.start(method, None))
            for source, draft in _drafts(method, graphs, settings, counts):
                counts[CAPTIONS, MADE] += 1
                checker = DraftChecker(source, settings, counts)
                yield from checker.accepted((draft,), method, version)

    def frames() -> Iterator[pl.DataFrame]:
        stream = pairs()
        while some := list(islice(stream, _ROWS)):
            yield tabulate(some)

    written = write_pairs(out, frames(), lambda: with_counts(about, counts))
    return Generated.of(written, counts)


def _advancing(graphs: Iterable[Graph], advance: Advance) -> Iterator[Graph]:
    for graph in graphs:
        yield graph
        advance(1)


def _drafts(
    method: str, graphs: Iterator[Graph], settings: TextSettings, counts: Counts
) -> Iterator[tuple[SourceCaption, Draft]]:
    left_out: Counter[str] = Counter()
    if method == "vg-relation":
        yield from relation_pairs(graphs, left_out)
    else:
        yield from attribution_pairs(graphs, left_out, kind=settings.kind, limit=settings.each)
    for reason, number in left_out.items():
        counts[method, reason] += number


def relation_pairs(
    graphs: Iterable[Graph], left_out: Counter[str]
) -> Iterator[tuple[SourceCaption, Draft]]:
    """True captions "the X is REL the Y", each with the negative that swaps X and Y.

    A source's id is `IMAGE/RELATION`.
    """
    for graph in graphs:
        said: set[str] = set()
        for relation in graph.relations:
            if reason := _unfit_relation(graph, relation):
                left_out[reason] += 1
                continue
            one, two = graph.objects[relation.subject], graph.objects[relation.object]
            name = _after_is(relation.name)
            caption = f"the {one.name} is {name} the {two.name}"
            if caption in said:
                left_out["said before of this image"] += 1
                continue
            said.add(caption)
            image = ImageRef(f"{graph.image}.jpg", _around(graph, one, two))
            negative = Draft(f"the {two.name} is {name} the {one.name}", "swap", "rel")
            yield SourceCaption(f"{graph.image}/{relation.id}", image, caption), negative


def attribution_pairs(
    graphs: Iterable[Graph], left_out: Counter[str], *, kind: Kind = "negative", limit: int = 1
) -> Iterator[tuple[SourceCaption, Draft]]:
    """True captions "the A1 O1 and the A2 O2", each with one text.

    As a negative, the attributes swapped; as a positive, the conjuncts reversed, which says the
    same. Of two objects with several attributes, the first `limit` choices are taken. A source's
    id is `IMAGE/OBJECT-OBJECT`, with `#1` and so on for further choices.
    """
    for graph in graphs:
        said: set[str] = set()
        for first, second in combinations(graph.objects, 2):
            one, two = graph.objects[first], graph.objects[second]
            reason = _without(one, two) or _unfit_objects(graph, one, two)
            chosen = [] if reason else list(islice(_choices(graph, one, two), limit))
            if not chosen:
                left_out[reason or "each attribute is true of both, or may be"] += 1
                continue
            image = ImageRef(f"{graph.image}.jpg", _around(graph, one, two))
            for place, (a1, a2) in enumerate(chosen):
                caption = f"the {a1} {one.name} and the {a2} {two.name}"
                reverse = f"the {a2} {two.name} and the {a1} {one.name}"
                if caption in said:
                    left_out["said before of this image"] += 1
                    continue
                said |= {caption, reverse}
                swapped = f"the {a2} {one.name} and the {a1} {two.name}"
                id = f"{graph.image}/{first}-{second}" + (f"#{place}" if place else "")
                text = swapped if kind == "negative" else reverse
                yield SourceCaption(id, image, caption), Draft(text, "swap", "att")


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


def _without(one: Object, two: Object) -> str:
    return "" if one.attributes and two.attributes else "an object has no attribute"


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
