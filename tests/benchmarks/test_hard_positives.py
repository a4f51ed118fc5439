"""Hard Positives: two halves that belong together, the replaced word, conjuncts reversed."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from benchmark_fixtures import load, write, write_json
from errors import raises
from hypothesis import given, strategies as st
from support import FEW

from counterpoint.benchmarks.aro import (
    SYNONYMS,
    inside_words,
    replaced_word,
    reverse_conjuncts,
)
from counterpoint.benchmarks.registry import load_benchmark
from counterpoint.cases.table import Cases, ImageRef, caption_case

REPLACE, SWAP = "hard-positives/replace", "hard-positives/swap"
NAMES = ("relations", "attributes")
Row = dict[str, Any]


def pair(
    original: str, positive: str, negative: str = "no such thing", image: int = 7
) -> list[Row]:
    """A row of each half."""
    return [
        {
            "image_id": str(image),
            "true_caption": caption,
            "false_caption": negative,
            "image_path": f"data/VG_100K_2/{image}.jpg",
        }
        for caption in (original, positive)
    ]


MOLE = pair("mole under hat", "mole beneath hat", "mole on hat", 5)
NEWT = pair("wet newt", "damp newt", "dry newt", 6)


def write_replace(root: Path, relations: list[list[Row]], attributes: list[list[Row]]) -> None:
    for kind, pairs in zip(NAMES, (relations, attributes), strict=True):
        for half, folder in enumerate(("data", "swapped_data")):
            write_json(
                root / f"hard_positives/{folder}/vl_checklist_{kind}.json",
                [both[half] for both in pairs],
            )


# --- REPLACE -----------------------------------------------------------------------------------


def test_halves_of_unequal_length_are_refused(tmp_path: Path) -> None:
    for kind, row in zip(NAMES, (MOLE[1], NEWT[1]), strict=True):
        write_replace(tmp_path, [MOLE], [NEWT])
        folder, name = tmp_path / "hard_positives", f"vl_checklist_{kind}.json"
        write_json(folder / "swapped_data" / name, [row, row])
        with raises("E-FILES-MISMATCH", folder / "data" / name, folder / "swapped_data" / name):
            load(REPLACE, tmp_path)


def test_rows_that_do_not_belong_together_are_named(tmp_path: Path) -> None:
    for key, value in [("image_path", "data/VG_100K/5.jpg"), ("false_caption", "mole by hat")]:
        other = [MOLE[0], MOLE[1] | {key: value}]
        write_replace(tmp_path, [MOLE, other], [NEWT])
        with raises("E-FILES-MISMATCH", 2, key):
            load(REPLACE, tmp_path)


# --- the replaced word -------------------------------------------------------------------------

ATTRIBUTES, RELATIONS = SYNONYMS["attributes"], SYNONYMS["relations"]
REPLACED = {
    "a whole word": ("red newt", "crimson newt", "red", ATTRIBUTES),
    "a doubled word, both": ("red red newt", "crimson crimson newt", "red", ATTRIBUTES),
    "a doubled word, the first": ("red red newt", "crimson red newt", "red", ATTRIBUTES),
    "a doubled word, the second": ("red red newt", "red crimson newt", "red", ATTRIBUTES),
    "a part of a word": ("newt covered", "newt covecrimson", "red", ATTRIBUTES),
    "a word and a part of one": ("red sacred newt", "crimson saccrimson newt", "red", ATTRIBUTES),
    "a word beside one it is in": ("sacred red newt", "sacred crimson newt", "red", ATTRIBUTES),
    "several words": ("mole on top of hat", "mole on hat", "on top of", RELATIONS),
    "a longer word": ("mole riding on", "mole traveling on", "riding on", RELATIONS),
    "the shorter word": ("mole riding on", "mole traveling on on", "riding", RELATIONS),
    "two words, one of them": ("big huge newt", "large huge newt", "big", ATTRIBUTES),
    "another word": ("red newt", "ruby newt", None, ATTRIBUTES),
    "nothing": ("red newt", "red newt", None, ATTRIBUTES),
    "another case": ("RED newt", "crimson newt", None, ATTRIBUTES),
    "of the other file": ("mole under hat", "mole beneath hat", None, ATTRIBUTES),
    "a word and more": ("red newt", "crimson newts", None, ATTRIBUTES),
}


def test_the_replaced_word_is_found() -> None:
    for what in REPLACED:
        original, positive, word, synonyms = REPLACED[what]
        assert replaced_word(original, positive, synonyms) == word


def test_a_group_is_the_replaced_word_or_other(tmp_path: Path) -> None:
    write_replace(
        tmp_path,
        [pair("mole on top of hat", "mole on hat"), pair("mole eats hat", "mole dines on hat")],
        [pair("sacred newt", "saccrimson newt")],
    )
    groups = [case.groups for case in load(REPLACE, tmp_path)]
    assert groups == [("relations/on top of",), ("relations/other",), ("attributes/red",)]


FILLERS = st.lists(st.sampled_from(["mole", "newt", "hat", "owl"]), max_size=3)


@pytest.mark.slow
@FEW
@given(FILLERS, FILLERS, st.sampled_from(sorted(ATTRIBUTES.items())))
def test_any_replaced_whole_word_is_found(
    before: list[str], after: list[str], chosen: tuple[str, str]
) -> None:
    word, synonym = chosen
    original, positive = (" ".join([*before, w, *after]) for w in (word, synonym))
    assert replaced_word(original, positive, ATTRIBUTES) == word
    assert inside(original, positive) is False


def inside(original: str, positive: str, kind: str = "attributes") -> bool:
    """Whether `inside_words` marks a case of this pair."""
    case = caption_case("1", ImageRef("1.jpg"), (original, positive), ("no",), (f"{kind}/x",))
    [mark] = inside_words(Cases.build([case], source="test")).tolist()
    return bool(mark)


INSIDE = {
    "end of a word": ("newt covered in moss", "newt covecrimson in moss", True),
    "start of a word": ("redder newt", "crimsonder newt", True),
    "middle of a word": ("bred-in newt incredible", "bred-in newt inccrimsonible", True),
    "a whole word": ("red newt", "crimson newt", False),
    "a word that is in another one, whole": ("red sacred newt", "crimson sacred newt", False),
    "a whole word and a part": ("white whiteboard", "ivory ivoryboard", True),
    "after a hyphen, which ends a word": ("half-red newt", "half-crimson newt", False),
    "nothing known": ("newt", "triton", False),
}


def test_parts_of_words_are_marked() -> None:
    for what in INSIDE:
        original, positive, marked = INSIDE[what]
        assert inside(original, positive) is marked


def test_parts_of_words_are_marked_by_the_words_of_their_own_file(tmp_path: Path) -> None:
    """`in` is replaced in relations only: "within" is no artefact there, nor "painting"."""
    write_replace(
        tmp_path,
        [
            pair("mole in painting", "mole within painting"),
            pair("mole in inlet", "mole within withinlet"),
        ],
        [pair("sacred newt", "saccrimson newt"), pair("inlet red", "inlet crimson")],
    )
    benchmark, cases = load_benchmark(REPLACE, tmp_path)
    [find] = benchmark.defects.values()
    assert find(cases).tolist() == [False, True, True, False]


def by_letters(original: str, positive: str) -> bool:
    """Another way: split at letters; some word of the original, with a synonym put in, is new."""
    words, new = re.findall(r"\w+", original), positive.split()
    return any(
        word in w and w != word and w.replace(word, synonym) in new
        for w, (word, synonym) in product(words, ATTRIBUTES.items())
    )


@FEW
@given(
    st.lists(st.sampled_from(["red", "sacred", "hated", "longer", "belong", "newt"]), min_size=1),
    st.sampled_from(["red", "long"]),
)
def test_naive_replacement_is_marked_as_another_loop_marks_it(words: list[str], word: str) -> None:
    original = " ".join(words)
    positive = original.replace(word, ATTRIBUTES[word])
    assert inside(original, positive) is by_letters(original, positive)


# --- SWAP --------------------------------------------------------------------------------------

FILE = "visual_genome_attribution.json"


def swap_row(number: int = 7, **changes: Any) -> Row:
    return {
        "image_id": str(number),
        "image_path": f"{number}.jpg",
        "bbox_x": number,
        "bbox_y": 2,
        "bbox_w": 90,
        "bbox_h": 40,
        "true_caption": f"the wet newt and the red hat {number}",
        "false_caption": f"the red newt and the wet hat {number}",
        "attributes": ["wet", "red"],
    } | changes


def published(row: Row) -> list[Row]:
    left, _, right = row["true_caption"].partition(" and ")
    return [row, row | {"true_caption": f"{right} and {left}"}]


def write_swap(root: Path, rows: list[Row]) -> None:
    for half, folder in enumerate(("data", "swapped_data")):
        halves = [published(row)[half] for row in rows]
        write_json(root / "hard_positives" / folder / FILE, halves)


def test_swap_is_the_same_from_the_published_files_and_rebuilt(tmp_path: Path) -> None:
    rows = [swap_row(5), swap_row(7, image_path="data/VG_100K_2/7.jpg"), swap_row(9)]
    write_json(tmp_path / "a/aro" / FILE, rows)
    write_swap(tmp_path / "b", rows)
    write(tmp_path / "a/visual_genome/VG_100K_2/9.jpg", b"a picture")
    write(tmp_path / "b/visual_genome/VG_100K_2/9.jpg", b"a picture")
    rebuilt, official = load(SWAP, tmp_path / "a"), load(SWAP, tmp_path / "b")
    assert rebuilt == official
    assert rebuilt[0].captions == (
        "the wet newt and the red hat 5",
        "the red hat 5 and the wet newt",
        "the red newt and the wet hat 5",
    )
    assert rebuilt[0].truth == ((True, True, False),)
    assert [case.id for case in rebuilt] == ["0", "1", "2"]
    assert [case.images[0] for case in rebuilt] == [
        ImageRef("aro/images/5.jpg", (5, 2, 90, 40)),
        ImageRef("visual_genome/VG_100K_2/7.jpg", (7, 2, 90, 40)),
        ImageRef("visual_genome/VG_100K_2/9.jpg", (9, 2, 90, 40)),
    ]
    assert {case.groups for case in rebuilt} == {()}


def test_published_files_come_before_rebuilding(tmp_path: Path) -> None:
    write_json(tmp_path / "aro" / FILE, [swap_row(5)])
    write_swap(tmp_path, [swap_row(7)])
    assert load(SWAP, tmp_path)[0].captions[0].endswith("7")
    (tmp_path / "hard_positives/swapped_data" / FILE).unlink()
    assert load(SWAP, tmp_path)[0].captions[0].endswith("5")  # half of them is none


def test_published_halves_must_belong_together(tmp_path: Path) -> None:
    write_swap(tmp_path, [swap_row(5)])
    write_json(tmp_path / "hard_positives/swapped_data" / FILE, [published(swap_row(7))[1]])
    with raises("E-FILES-MISMATCH", 1, "image_path"):
        load(SWAP, tmp_path)


def test_a_box_must_be_numbers(tmp_path: Path) -> None:
    write_json(tmp_path / "aro" / FILE, [swap_row(bbox_w=0)])
    with raises("E-CROP-EMPTY", 1):
        load(SWAP, tmp_path)
    for which in ("aro", "hard_positives/data"):
        for side in "xywh":
            bad = [swap_row(5), swap_row(7, **{f"bbox_{side}": "wide"})]
            write_json(tmp_path / "aro" / FILE, bad)
            if which != "aro":
                write_swap(tmp_path, bad)
            with raises("E-ROW-MALFORMED", f"{tmp_path / which / FILE}: row 2", f"bbox_{side}"):
                load(SWAP, tmp_path)


MALFORMED = (
    "a wet newt and the red hat",
    "the wet newt and a red hat",
    "the wet newt with the red hat",
    "the newt and the hat and the owl",
    "The wet newt and the red hat",
    "the newt and the hat and the ",
)


def test_captions_of_another_form_are_refused(tmp_path: Path) -> None:
    for caption in MALFORMED:
        with pytest.raises(ValueError, match="is not of the form 'the A and the B'"):
            reverse_conjuncts(caption)
        write_json(tmp_path / "aro" / FILE, [swap_row(5), swap_row(7, true_caption=caption)])
        with raises("E-ROW-MALFORMED", "aro/visual_genome_attribution.json: row 2"):
            load(SWAP, tmp_path)


PHRASE = st.lists(
    st.text("abdehnt-'", min_size=1, max_size=6).filter(lambda word: word not in ("and", "the")),
    min_size=1,
    max_size=4,
).map(" ".join)


@FEW
@given(PHRASE, PHRASE)
def test_conjuncts_reversed_twice_are_as_they_were(left: str, right: str) -> None:
    caption = f"the {left} and the {right}"
    once = reverse_conjuncts(caption)
    assert once == f"the {right} and the {left}"
    assert reverse_conjuncts(once) == caption
