"""VG-Relation and VG-Attribution from scene graphs: the paper's rules, and what they leave out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from errors import raises
from hypothesis import assume, given, strategies as st
from support import FEW
from typer.testing import CliRunner

from counterpoint.cases.files import read_cases
from counterpoint.cases.table import ImageRef
from counterpoint.cli.app import app
from counterpoint.generation import Kind, TextSettings, read_about, read_pairs, root_of
from counterpoint.generation.scene_graphs import (
    SYMMETRIC,
    Box,
    Graph,
    Object,
    Relation,
    attribution_pairs,
    read_graphs,
    read_sizes,
    relation_pairs,
)
from counterpoint.metrics.protocols import UNCOUNTED_RELATIONS

SIZE = (400, 200)
BIG = Box(0, 0, 100, 50)  # a quarter of both sides


def thing(name: str, *attributes: str, box: Box = BIG) -> Object:
    return Object(name, name, attributes, box)


def graph(*objects: Object, relations: tuple[tuple[int, str, int], ...] = (), size=SIZE) -> Graph:
    found = tuple(
        Relation(str(n), str(a), name, str(b)) for n, (a, name, b) in enumerate(relations)
    )
    return Graph("7", size, {str(n): one for n, one in enumerate(objects)}, found)


def relate(*graphs: Graph) -> tuple[list[tuple[str, str]], Counter[str]]:
    return _pairs(relation_pairs, graphs)


def attribute(*graphs: Graph, **options: Any) -> tuple[list[tuple[str, str]], Counter[str]]:
    return _pairs(attribution_pairs, graphs, **options)


def _pairs(
    make: Callable, graphs: Sequence[Graph], kind: Kind = "negative", each: int = 1
) -> tuple[list[tuple[str, str]], Counter[str]]:
    refusals: Counter[str] = Counter()
    settings = TextSettings(kind, (), each=each)
    pairs = [pair for one in graphs for pair in make(one, refusals, settings)]
    return [(source.caption, draft.text) for source, draft in pairs], refusals


# --- the paper's own examples ------------------------------------------------------------------


def test_the_papers_relation():
    one = graph(thing("man"), thing("tree"), relations=((0, "behind", 1),))
    assert relate(one) == ([("the man is behind the tree", "the tree is behind the man")], {})


def test_the_papers_attributes():
    one = graph(thing("man", "crouched"), thing("door", "open"))
    caption = "the crouched man and the open door"
    assert attribute(one)[0] == [(caption, "the open man and the crouched door")]
    assert attribute(one, kind="positive")[0] == [(caption, "the open door and the crouched man")]


def test_the_crop_holds_both_and_no_more():
    left, right = Box(10, 20, 100, 60), Box(250, 90, 200, 200)
    one = graph(thing("man", box=left), thing("tree", box=right), relations=((0, "behind", 1),))
    [(source, draft)] = relation_pairs(one, Counter(), TextSettings("negative", ()))
    assert source.id == "7/0" and (draft.type, draft.subtype) == ("swap", "rel")
    assert source.image == ImageRef("7.jpg", (10, 20, 390, 180))  # within the image


# --- what is left out --------------------------------------------------------------------------

MAN, TREE = thing("man"), thing("tree")
UNFIT = {
    "narrow": (
        graph(MAN, thing("tree", box=Box(0, 0, 99, 200)), relations=((0, "in", 1),)),
        "quarter",
    ),
    "low": (
        graph(MAN, thing("tree", box=Box(0, 0, 400, 49)), relations=((0, "in", 1),)),
        "quarter",
    ),
    "beyond": (
        graph(MAN, thing("tree", box=Box(390, 0, 300, 200)), relations=((0, "in", 1),)),
        "quarter",
    ),
    "namesake": (graph(MAN, MAN, relations=((0, "behind", 1),)), "same category"),
    "synset": (
        graph(
            Object("guy", "man.n.01", (), BIG),
            Object("man", "man.n.01", (), BIG),
            relations=((0, "behind", 1),),
        ),
        "same category",
    ),
    "symmetric": (graph(MAN, TREE, relations=((0, "next to", 1),)), "symmetric"),
    "posture": (graph(MAN, TREE, relations=((0, "standing by", 1),)), "symmetric"),
    "verb": (graph(MAN, TREE, relations=((0, "has", 1),)), "finite verb"),
    "other verb": (graph(MAN, TREE, relations=((0, "climbs on", 1),)), "finite verb"),
    "nameless": (graph(MAN, TREE, relations=((0, "", 1),)), "no name"),
    "nothing": (graph(MAN, thing(""), relations=((0, "behind", 1),)), "no name"),
    "dangling": (graph(MAN, relations=((0, "behind", 1),)), "not in the graph"),
    "no size": (graph(MAN, TREE, relations=((0, "behind", 1),), size=None), "size is not known"),
}


def test_an_unfit_relation_is_counted():
    for one, reason in UNFIT.values():
        found, refusals = relate(one)
        assert found == [] and list(refusals.values()) == [1]
        assert reason in next(iter(refusals))


def test_a_swap_that_another_tree_makes_true():
    tree = thing("tree", box=Box(200, 0, 200, 200))
    one = graph(MAN, TREE, tree, relations=((0, "behind", 1), (2, "behind", 0), (0, "under", 1)))
    found, refusals = relate(one)
    assert found == [("the man is under the tree", "the tree is under the man")]
    assert refusals == {"the swapped statement is true, too": 2}


def test_the_same_said_twice_counts_once():
    one = graph(MAN, TREE, TREE, relations=((0, "behind", 1), (0, "is behind", 2)))
    found, refusals = relate(one)
    assert len(found) == 1 and refusals == {"said before of this image": 1}


def test_symmetric_relations_of_the_list_and_of_the_caller():
    assert {"next to", "near", "beside", "with", "by"} <= SYMMETRIC & UNCOUNTED_RELATIONS
    assert not SYMMETRIC & {
        "filled with",
        "on",
        "riding",
        "to the left of",
        "behind",
        "skiing down",
    }


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ((thing("man"), thing("door", "open")), "no attribute"),
        ((thing("man", "open"), thing("door", "open")), "true of both"),
        ((thing("man", "tall"), thing("door", "open", "tall")), "true of both"),
        ((thing("man", "tall", "open"), thing("door", "open")), "true of both"),
        ((thing("man", "tall"), thing("man", "open")), "same category"),
    ],
)
def test_an_unfit_pair_of_objects_is_counted(objects: tuple[Object, Object], reason: str):
    found, refusals = attribute(graph(*objects))
    assert found == [] and reason in next(iter(refusals))


def test_namesakes_that_make_the_swap_true():
    objects = (
        thing("man", "tall"),
        thing("door", "open"),
        thing("man", "open"),
        thing("door", "tall"),
    )
    found, refusals = attribute(graph(*objects))
    assert found == [] and refusals["each attribute is true of both, or may be"] == 4


def test_a_second_choice_of_attributes():
    one = graph(thing("man", "tall", "open"), thing("door", "open", "red"))
    assert [caption for caption, _ in attribute(one)[0]] == ["the tall man and the red door"]
    two = graph(thing("man", "tall"), thing("door", "old", "red"))
    assert len(attribute(two, each=5)[0]) == 2


NAMES = st.sampled_from(["man", "tree", "door", "cat"])
MARKS = st.lists(st.sampled_from(["red", "old", "open"]), max_size=2, unique=True)
THINGS = st.builds(lambda name, marks: thing(name, *marks), NAMES, MARKS)


@given(st.lists(THINGS, max_size=5), st.data())
@FEW
def test_every_swap_keeps_its_words_and_is_not_in_the_graph(objects: list[Object], data):
    assume(objects)
    numbers = st.integers(0, len(objects) - 1)
    names = st.sampled_from(["on", "behind", "near"])
    relations = data.draw(st.lists(st.tuples(numbers, names, numbers), max_size=6))
    one = graph(*objects, relations=tuple(relations))
    true = {f"the {objects[a].name} is {r} the {objects[b].name}" for a, r, b in relations}
    for caption, text in relate(one)[0]:
        assert caption in true and text not in true and "near" not in caption
        assert sorted(caption.split()) == sorted(text.split()) and caption != text
    for caption, text in attribute(one, each=9)[0]:
        assert sorted(caption.split()) == sorted(text.split()) and caption != text
        _, a2, o1, _, _, a1, o2 = text.split()  # as in "the A2 O1 and the A1 O2"
        said = {(o.name, mark) for o in objects for mark in o.attributes}
        assert not {(o1, a2), (o2, a1)} <= said


# --- files -------------------------------------------------------------------------------------

FILES = json.loads(Path(__file__).with_name("caption_files.json").read_text())
VISUAL_GENOME, GQA = FILES["visual genome"], FILES["gqa"]


def written(path: Path, value: object) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def test_both_forms_say_the_same(tmp_path: Path):
    sizes = read_sizes(
        written(tmp_path / "sizes.json", [{"image_id": 7, "width": 400, "height": 200}])
    )
    assert sizes == {"7": SIZE}
    genome = list(read_graphs(written(tmp_path / "vg.json", VISUAL_GENOME), sizes))
    gqa = list(read_graphs(written(tmp_path / "gqa.json", GQA)))
    assert relate(*genome) == relate(*gqa)
    assert relate(*gqa)[0] == [("the man is behind the tree", "the tree is behind the man")]
    assert genome[0].objects["2"].attributes == ("green",)
    unsized = read_graphs(tmp_path / "vg.json")
    assert relate(*unsized)[1] == {"the image's size is not known": 1}


RELATION = ("the man is behind the tree", "the tree is behind the man")
ATTRIBUTION = ("the old man and the green tree", "the green man and the old tree")
CASES = {
    "vg-relation": ("rel", "7/5", RELATION),
    "vg-attribution": ("att", "7/1-2", ATTRIBUTION),
}


@pytest.mark.parametrize("method", CASES)
def test_the_command_writes_a_file_that_becomes_a_benchmark(tmp_path: Path, method: str):
    man, tree = VISUAL_GENOME[0]["objects"]
    both = [{**VISUAL_GENOME[0], "objects": [{**man, "attributes": ["old"]}, tree]}]
    graphs = written(tmp_path / "graphs.json", both)
    sizes = written(tmp_path / "sizes.json", [{"image_id": 7, "width": 400, "height": 200}])
    out = tmp_path / "pairs.parquet"
    command = f"generate negatives {graphs} -M {method} --sizes {sizes} --images VG -o {out}"
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code == 0, result.output
    subtype, id, (caption, text) = CASES[method]
    (row,) = read_pairs(out).to_dicts()
    assert (row["source"], row["caption"], row["text"]) == (id, caption, text)
    assert (row["image"], row["box"]) == ("7.jpg", [0, 0, 300, 150])
    assert (row["type"], row["subtype"], row["method"]) == ("swap", subtype, method)
    assert read_about(out)["methods"] == [method]
    assert root_of(out) == Path("VG").absolute()

    made = tmp_path / "benchmark.parquet"
    export = f"export {out} --as benchmark -o {made} --images {tmp_path}"
    assert CliRunner().invoke(app, export.split()).exit_code == 0
    (case,) = read_cases(made).frame.to_dicts()
    assert case["captions"] == [caption, text] and case["images"][0]["box"] == [0, 0, 300, 150]


BROKEN = {
    "[": ("E-JSON-INVALID",),
    "[{}]": ("E-FIELD-MISSING", "image_id"),
    "[5]": ("E-ROW-MALFORMED",),
    '[{"image_id": 1, "objects": 5}]': ("E-FIELD-INVALID", "objects"),
    '[{"image_id": 1, "objects": [{"names": ["a"], "x": "b"}]}]': ("E-FIELD-INVALID", "x"),
    '{"1": {"objects": {}}}': ("E-FIELD-INVALID", "width"),
    '{"1": {"objects": []}}': ("E-ROW-MALFORMED",),
}


def test_a_broken_file_is_named_with_the_place(tmp_path: Path):
    for text, (code, *told) in BROKEN.items():
        with raises(code, "graphs.json", *told):
            list(read_graphs(written(tmp_path / "graphs.json", text)))


def test_no_file(tmp_path: Path):
    for reading in (lambda path: next(read_graphs(path)), read_sizes):
        with raises("E-FILE-MISSING", tmp_path / "none.json"):
            reading(tmp_path / "none.json")
