"""VALSE: pieces, foils that people did not confirm, and images of five data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from benchmark_fixtures import group_counts, load, needs_real_files, real, write, write_json
from errors import raises

PIECES = {"actant-swap": 1042, "action-replacement": 779, "coreference-hard": 141}
PIECES |= {"coreference-standard": 916, "counting-adversarial": 756, "counting-hard": 1000}
PIECES |= {"counting-small-quant": 1000, "existence": 534, "foil-it": 1000, "plurals": 1000}
PIECES |= {"relations": 614}


def item(**changes: Any) -> dict[str, Any]:
    return {
        "dataset": "SWiG",
        "image_file": "digging_7.jpg",
        "caption": "A mole digs a hole.",
        "classes": "mole",
        "mturk": {"foil": 0, "caption": 3, "other": 0},
        "foil": "A hole digs a mole.",
    } | changes


def write_piece(root: Path, *items: dict[str, Any], name: str = "existence") -> Path:
    return write_json(root / f"valse/{name}.json", {f"k_{i}": one for i, one in enumerate(items)})


def test_a_piece_is_a_group(tmp_path: Path) -> None:
    write_piece(tmp_path, item(), name="plurals")
    write_piece(tmp_path, item(), item(caption="No mole."), name="existence")
    cases = load("valse", tmp_path)
    assert [case.id for case in cases] == ["existence/k_0", "existence/k_1", "plurals/k_0"]
    assert [case.groups for case in cases] == [("existence",), ("existence",), ("plurals",)]
    assert cases[0].captions == ("A mole digs a hole.", "A hole digs a mole.")
    assert cases[0].truth == ((True, False),)
    assert cases[0].images[0].path == cases[0].cluster == "valse/images/digging_7.jpg"


VOTES = {
    "all": ({"caption": 3, "foil": 0}, True),
    "two": ({"caption": 2, "foil": 1}, True),
    "as text": ({"caption": "2"}, True),
    "one": ({"caption": 1, "foil": 2}, False),
    "none": ({"caption": 0}, False),
    "not counted": ({"foil": 3}, False),
    "null": (None, False),
}


def test_foils_without_two_votes_are_unconfirmed(tmp_path: Path) -> None:
    for what in VOTES:
        votes, confirmed = VOTES[what]
        write_piece(tmp_path, item(mturk=votes))
        [found] = load("valse", tmp_path)
        assert found.groups == (("existence",) if confirmed else ("existence", "unconfirmed"))


def test_votes_may_be_missing(tmp_path: Path) -> None:
    one = item()
    del one["mturk"]
    write_piece(tmp_path, one)
    assert load("valse", tmp_path)[0].groups == ("existence", "unconfirmed")


def test_a_list_of_one_text_is_a_text(tmp_path: Path) -> None:
    for changes in [{"caption": ["Moles dig."]}, {"foil": ["Holes."]}, {"foils": ["Holes."]}]:
        one = item(**changes)
        if "foils" in changes:
            del one["foil"]
        write_piece(tmp_path, one)
        [found] = load("valse", tmp_path)
        assert found.captions == (
            "Moles dig." if "caption" in changes else "A mole digs a hole.",
            "A hole digs a mole." if "caption" in changes else "Holes.",
        )


def test_a_piece_may_be_a_list_and_lie_in_data(tmp_path: Path) -> None:
    path = tmp_path / "valse/data/foil-it.json"
    write_json(path, [item(), item(id="foil_9"), item()])
    write_json(path.with_name("._foil-it.json"), "of a Mac")
    assert [case.id for case in load("valse", tmp_path)] == [
        "foil-it/0",
        "foil-it/foil_9",
        "foil-it/2",
    ]


IMAGES = {
    "in images": ("digging_7.jpg", "valse/images/digging_7.jpg"),
    "in a folder of its data set": ("digging_7.jpg", "valse/images/SWiG/images_512/digging_7.jpg"),
    "val2014": ("COCO_val2014_000000000007.jpg", "coco/val2014/COCO_val2014_000000000007.jpg"),
    "train2014": (
        "COCO_train2014_000000000007.jpg",
        "coco/train2014/COCO_train2014_000000000007.jpg",
    ),
    "val2017": ("000000000007.jpg", "coco/val2017/000000000007.jpg"),
}


@pytest.mark.parametrize("what", IMAGES)
def test_images_are_found_by_name(what: str, tmp_path: Path) -> None:
    name, path = IMAGES[what]
    write(tmp_path / path, b"a picture")
    write_piece(tmp_path, item(image_file=name), item(image_file="absent_1.jpg"))
    found, absent = load("valse", tmp_path)
    assert found.images[0].path == path
    assert absent.images[0].path == "valse/images/absent_1.jpg"


def test_images_of_valse_come_first_in_alphabetical_order(tmp_path: Path) -> None:
    name = "000000000007.jpg"
    for folder in ("coco/val2017", "valse/images/relations", "valse/images/plurals"):
        write(tmp_path / folder / name, b"a picture")
    write_piece(tmp_path, item(image_file=name))
    assert load("valse", tmp_path)[0].images[0].path == f"valse/images/plurals/{name}"


MALFORMED = {
    "no caption": {"caption": ""},
    "no foil": {"foil": None},
    "two captions": {"caption": ["one", "two"]},
    "no image": {"image_file": None},
}


def test_a_malformed_item_is_named(tmp_path: Path) -> None:
    for what in MALFORMED:
        changes = MALFORMED[what]
        write_piece(tmp_path, item(), item(**changes))
        where = f"{tmp_path}/valse/existence.json: case k_1"
        with raises("E-ROW-MALFORMED", where, next(iter(changes))):
            load("valse", tmp_path)


def test_votes_that_are_no_number_are_named(tmp_path: Path) -> None:
    for votes in ["many", []]:
        write_piece(tmp_path, item(mturk={"caption": votes}))
        with raises(
            "E-ROW-MALFORMED",
            f"{tmp_path}/valse/existence.json: case k_0, mturk",
            "caption",
        ):
            load("valse", tmp_path)


def test_a_malformed_file_is_named(tmp_path: Path) -> None:
    for content, code in [
        ("4", "E-FILE-MALFORMED"),
        ('{"k_0": "a text"}', "E-ROW-MALFORMED"),
        ("{", "E-JSON-INVALID"),
    ]:
        write(tmp_path / "valse/existence.json", content)
        with raises(code) as caught:
            load("valse", tmp_path)
        assert str(caught.value).startswith(str(tmp_path / "valse/existence.json"))


def test_missing_files_are_named(tmp_path: Path) -> None:
    with raises("E-FILE-MISSING", tmp_path / "valse/*.json", "valse"):
        load("valse", tmp_path)


@needs_real_files
def test_the_published_files() -> None:
    assert group_counts(real("valse")) == PIECES
