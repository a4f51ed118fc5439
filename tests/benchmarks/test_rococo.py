"""RoCOCO: five captions or six, and then the altered forms of the first five."""

from __future__ import annotations

from pathlib import Path

from benchmark_fixtures import group_counts, load, needs_real_files, real, write, write_json
from errors import raises

from counterpoint.benchmarks.captions import METHODS
from counterpoint.benchmarks.registry import load_benchmark

IMAGE = "val2014/COCO_val2014_000000000042.jpg"


def row(captions: int = 5, image: str = IMAGE) -> dict[str, object]:
    true = [f"a mole {n}. " for n in range(captions)]
    return {"image": image, "caption": [*true, *(f"a hat {n}" for n in range(5))]}


def write_methods(root: Path, *rows: dict[str, object]) -> None:
    for method in METHODS:
        write_json(root / f"rococo/{method}.json", list(rows))


def test_every_caption_meets_its_altered_form(tmp_path: Path) -> None:
    write_methods(tmp_path, row(), row(captions=6))
    cases = load("rococo", tmp_path)
    assert len(cases) == len(METHODS) * 10
    assert [case.id for case in cases[:6]] == [
        *(f"same_concept/0/{n}" for n in range(5)),
        "same_concept/1/0",
    ]
    assert cases[3].captions == ("a mole 3. ", "a hat 3")
    assert cases[9].captions == ("a mole 4. ", "a hat 4")  # not the sixth, which was not altered
    assert {case.truth for case in cases} == {((True, False),)}
    assert {case.groups for case in cases} == {(method,) for method in METHODS}
    assert cases[0].images[0].path == f"coco/{IMAGE}" == cases[0].cluster


def test_another_person_stands_between(tmp_path: Path) -> None:
    write_methods(tmp_path, row())
    cases = load("rococo:people=1", tmp_path)
    assert cases[4].captions == ("a mole 4. ", "a mole 0. ", "a hat 4")
    assert {case.truth for case in cases} == {((True, True, False),)}


def test_altered_captions_are_in_the_gallery(tmp_path: Path) -> None:
    write_methods(tmp_path, row(6), *(row(image=f"val2014/{n}.jpg") for n in range(1, 5)))
    [case] = load("rococo/retrieval:altered=danger", tmp_path)
    assert (len(case.images), len(case.captions)) == (5, 26 + 25)
    assert case.captions[26:31] == tuple(f"a hat {n}" for n in range(5))
    assert [sum(line) for line in case.truth] == [6, 5, 5, 5, 5]
    assert not any(any(line[26:]) for line in case.truth)
    with raises("E-OPTION-INVALID", "way of altering captions"):
        load("rococo/retrieval:altered=dangerous", tmp_path)


def test_a_malformed_row_is_named(tmp_path: Path) -> None:
    for content, field in [
        ({"image": IMAGE, "caption": ["a mole"] * 9}, "caption"),
        ({"image": IMAGE, "caption": "a mole"}, "caption"),
        ({"image": IMAGE}, "caption"),
        ({"image": IMAGE, "caption": ["a mole"] * 9 + [" "]}, "caption"),
        ({"caption": ["a mole"] * 10}, "image"),
    ]:
        write_methods(tmp_path, row())
        write_json(tmp_path / "rococo/danger.json", [row(), content])
        with raises("E-ROW-MALFORMED", f"{tmp_path}/rococo/danger.json: row 2", field):
            load("rococo", tmp_path)


def test_another_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "rococo/same_concept.json", '{"image": []}')
    with raises("E-FILE-MALFORMED"):
        load("rococo", tmp_path)
    with raises("E-FILE-MISSING"):
        load("rococo/retrieval:altered=danger", tmp_path)


@needs_real_files
def test_the_authors_files() -> None:
    cases = real("rococo")
    assert group_counts(cases) == dict.fromkeys(METHODS, 25_000)
    gallery = load_benchmark("rococo/retrieval", cases.root).cases
    assert (gallery.image_counts[0], gallery.caption_counts[0]) == (5_000, 50_010)
