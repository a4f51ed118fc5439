"""What is odd of benchmarks of two images and two captions; test_published_rows.py has the rest."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from benchmark_fixtures import files_of, hub_image, load, write, write_json, write_parquet
from errors import raises

from counterpoint.benchmarks.pairs import COLA_FILE

# --- Winoground ----------------------------------------------------------------------------------

EXAMPLES = "winoground/data/examples.jsonl"


def tagged(number: int, **changes: Any) -> dict[str, Any]:
    images = {f"image_{side}": f"ex_{number}_img_{side}" for side in range(2)}
    return {**files_of("winoground")[EXAMPLES][0], **images, "id": number, **changes}


def write_lines(root: Path, *rows: dict[str, Any]) -> Path:
    return write(root / EXAMPLES, "".join(f"{json.dumps(row)}\n" for row in rows))


def test_images_are_found_by_name(tmp_path: Path) -> None:
    names = ["ex_7_img_0", "ex_7_img_0.png", "images/ex_7_img_0.png"]
    for place in ["data/images", "data", "elsewhere/unpacked/images", "images"]:
        path = write(tmp_path / f"winoground/{place}/ex_7_img_0.jpg", b"a picture")
        for name in names:
            write_lines(tmp_path, tagged(7, image_0=name))
            [case] = load("winoground", tmp_path)
            assert case.images[0].path == f"winoground/{place}/ex_7_img_0.jpg"
        path.unlink()


TAGS: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({}, ("Object", "tag/Noun Phrase|Determiner, Scope", "preds/1")),
    (
        {"secondary_tag": "Series", "num_main_preds": "2", "collapsed_tag": "Both"},
        ("Both", "tag/Noun Phrase|Determiner, Scope", "secondary/Series", "preds/2"),
    ),
    (
        {"tag": None, "secondary_tag": "Symbolic,Series, Morpheme-Level,", "num_main_preds": None},
        ("Object", "secondary/Symbolic", "secondary/Series", "secondary/Morpheme-Level"),
    ),
    ({"tag": None, "secondary_tag": None, "num_main_preds": None}, ("Object",)),
]


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_tags_are_groups(form: str, tmp_path: Path) -> None:
    images = {"image_0": hub_image("a"), "image_1": hub_image("b")}
    for changes, groups in TAGS:
        if form == "jsonl":
            write_lines(tmp_path, tagged(0, **changes))
        else:
            write_parquet(tmp_path / "winoground/t.parquet", [tagged(0, **changes) | images])
        [case] = load("winoground", tmp_path)
        assert case.groups == groups


def test_the_tags_of_diwan_et_al_are_groups(tmp_path: Path) -> None:
    write_lines(tmp_path, *(tagged(n, tag=None, num_main_preds=None) for n in range(4)))
    tags = {"0": [], "1": ["Non Minimal"], "2": ["Unusual Image", "Unusual Text"], "9": []}
    file = write_json(tmp_path / "winoground/why/new_tag_assignments.json", tags)
    assert [case.groups for case in load("winoground", tmp_path)] == [
        ("Object", "diwan/clean"),
        ("Object", "diwan/Non Minimal"),
        ("Object", "diwan/Unusual Image", "diwan/Unusual Text"),
        ("Object",),  # the file does not say
    ]
    for wrong in ([], {"0": "Non Minimal"}, {"0": [1]}):
        write_json(file, wrong)
        with raises("E-FILE-MALFORMED", file):
            load("winoground", tmp_path)


def test_parquet_holds_its_images_and_comes_first(tmp_path: Path) -> None:
    images = {"image_0": hub_image("a"), "image_1": hub_image("b")}
    rows = [tagged(0) | images, tagged(1) | images]
    write_parquet(tmp_path / "winoground/data/test-0.parquet", rows)
    write_lines(tmp_path, tagged(5))
    cases = load("winoground", tmp_path)
    assert [case.id for case in cases] == ["0", "1"]
    assert [image.path for image in cases[1].images] == [
        f"parquet:winoground/data/test-0.parquet#image_{side}/1" for side in range(2)
    ]
    assert cases[0].cluster != cases[1].cluster


def test_blank_lines_line_ends_and_a_byte_order_mark_are_no_matter(tmp_path: Path) -> None:
    lines = ["\ufeff" + json.dumps(tagged(0)), "", json.dumps(tagged(1, more=2)), ""]
    write(tmp_path / EXAMPLES, "\r\n".join(lines))
    assert [case.id for case in load("winoground", tmp_path)] == ["0", "1"]


# --- BiVLC ---------------------------------------------------------------------------------------


def row(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "image": hub_image(f"{number}"),
        "caption": f"A mole digs {number}.",
        "negative_caption": f"A mole sings {number}.",
        "negative_image": hub_image(f"neg{number}"),
        "type": "replace",
        "subtype": "rel",
    } | changes


def test_images_are_not_read(tmp_path: Path) -> None:
    """A file whose image column is damaged will do: nothing of it is touched."""
    image = {"bytes": random.Random(0).randbytes(100_000), "path": "0.jpg"}
    path = write_parquet(tmp_path / "bivlc/test.parquet", [row(0, image=image)])
    content = path.read_bytes()
    path.write_bytes(content[:4] + b"\xff" * 50_000 + content[50_004:])
    with pytest.raises(pl.exceptions.PolarsError):
        pl.read_parquet(path)
    assert load("bivlc", tmp_path)[0].captions == ("A mole digs 0.", "A mole sings 0.")


def test_columns_may_be_more_in_another_order_and_plain_bytes(tmp_path: Path) -> None:
    write_parquet(tmp_path / "plain/bivlc/t.parquet", [row(0)])
    turned = {**dict(reversed(row(0).items())), "more": 1}
    write_parquet(tmp_path / "turned/bivlc/t.parquet", [turned])
    assert load("bivlc", tmp_path / "turned") == load("bivlc", tmp_path / "plain")
    write_parquet(tmp_path / "bivlc/t.parquet", [row(0, image=b"x", negative_image=b"y")])
    assert load("bivlc", tmp_path)[0].images[0].path == "parquet:bivlc/t.parquet#image/0"


def test_a_name_is_no_pattern_and_hidden_files_do_not_count(tmp_path: Path) -> None:
    write_parquet(tmp_path / "bivlc/._t.parquet", [row(2)])
    with raises("E-FILE-MISSING", tmp_path / "bivlc/**/*.parquet"):
        load("bivlc", tmp_path)
    write_parquet(tmp_path / "bivlc/split=test/[ab]*.parquet", [row(0)])
    write_parquet(tmp_path / "bivlc/split=test/axe.parquet", [row(1)])
    captions = [case.captions[0] for case in load("bivlc", tmp_path)]
    assert captions == ["A mole digs 0.", "A mole digs 1."]


def test_columns_without_images_and_files_without_rows_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bivlc/t.parquet"
    for column in ["image", "negative_image"]:
        for value in ["000000000001.jpg", {"path": "x.jpg"}]:
            write_parquet(path, [row(0, **{column: value})])
            with raises("E-COLUMN-INVALID", path, column):
                load("bivlc", tmp_path)
    pl.DataFrame([row(0)]).clear().write_parquet(path)
    with raises("E-BENCHMARK-EMPTY"):
        load("bivlc", tmp_path)


def test_detection_asks_of_every_image_and_every_caption(tmp_path: Path) -> None:
    write_parquet(tmp_path / "bivlc/test.parquet", [row(0), row(1), row(2)])
    [images] = load("bivlc/image-detection", tmp_path)
    assert images.captions == ("natural", "synthetic")
    assert images.truth == ((True, False), (False, True)) * 3
    file = "parquet:bivlc/test.parquet"
    assert [image.path for image in images.images] == [
        f"{file}#{column}/{n}" for n in range(3) for column in ("image", "negative_image")
    ]
    [texts] = load("bivlc/text-detection", tmp_path)
    assert (texts.captions, texts.truth) == (images.captions, images.truth)
    assert [image.text for image in texts.images][:2] == ["A mole digs 0.", "A mole sings 0."]


# --- COLA ----------------------------------------------------------------------------------------

ROWS = files_of("cola")[f"cola/{COLA_FILE}"]
SINGLE = [["square white plate", "red mole"], [["15.jpg", {}, [0, 1], [1, 1]]]]


def test_images_of_visual_genome_will_do(tmp_path: Path) -> None:
    write_json(tmp_path / "cola" / COLA_FILE, ROWS)
    for path in ("cola/images/11.jpg", *(f"visual_genome/VG_100K_2/{i}.jpg" for i in (11, 12))):
        write(tmp_path / path, b"a picture")
    first, second = load("cola", tmp_path)
    assert [image.path for image in first.images] == [
        "cola/images/11.jpg",
        "visual_genome/VG_100K_2/12.jpg",
    ]
    assert second.images[0].path == "cola/images/13.jpg"


def test_the_file_is_found_by_its_form_if_the_published_name_is_not_there(tmp_path: Path) -> None:
    folder = tmp_path / "cola"
    write_json(folder / "data/COLA_singleobjects_benchmark_GQA.json", SINGLE)
    write_json(folder / "data/more.json", {"a": 1})
    with raises("E-FILE-MISSING", folder / COLA_FILE, "cola"):
        load("cola", tmp_path)
    for name in (f"data/{COLA_FILE}", "data/of_another_name.json", "other.json"):
        path = write_json(folder / name, ROWS)
        assert len(load("cola", tmp_path)) == 2
        path.unlink()
    for name in ("one", "two"):
        write_json(folder / f"{name}.json", ROWS)
    with raises("E-FILE-AMBIGUOUS"):
        load("cola", tmp_path)
    write_json(folder / COLA_FILE, ROWS[:1])
    assert len(load("cola", tmp_path)) == 1
