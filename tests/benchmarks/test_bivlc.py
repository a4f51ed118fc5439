"""BiVLC: rows over several Parquet files, with their images left where they are."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from benchmark_fixtures import (
    IDENTITY,
    group_counts,
    hub_image,
    load,
    needs_real_files,
    real,
    write,
    write_parquet,
)
from errors import raises

from counterpoint.benchmarks.reading import parquet_image

SIZES = {"replace/obj": 1200, "replace/rel": 462, "replace/att": 437, "add/obj": 399}
SIZES |= {"add/att": 76, "swap/att": 278, "swap/obj": 81}


def row(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "image": hub_image(f"{number}"),
        "caption": f"A mole digs {number}..",
        "negative_caption": f"A mole sings {number}.",
        "negative_image": hub_image(f"neg{number}"),
        "type": "replace",
        "subtype": "rel",
    } | changes


def test_rows_are_numbered_over_all_files(tmp_path: Path) -> None:
    folder = tmp_path / "bivlc/data"
    write_parquet(folder / "test-00001-of-00002.parquet", [row(2, type="swap", subtype="att")])
    write_parquet(folder / "test-00000-of-00002.parquet", [row(0), row(1)])
    cases = load("bivlc", tmp_path)
    assert [case.id for case in cases] == ["0", "1", "2"]
    first, last = (f"bivlc/data/test-0000{i}-of-00002.parquet" for i in range(2))
    assert [[image.path for image in case.images] for case in cases[1:]] == [
        [f"parquet:{first}#image/1", f"parquet:{first}#negative_image/1"],
        [f"parquet:{last}#image/0", f"parquet:{last}#negative_image/0"],
    ]
    assert cases[1].captions == ("A mole digs 1..", "A mole sings 1.")
    assert {case.truth for case in cases} == {IDENTITY}
    assert [case.groups for case in cases] == [("replace/rel",), ("replace/rel",), ("swap/att",)]


def test_cases_of_one_caption_are_one_cluster(tmp_path: Path) -> None:
    rows = [row(0), row(1), row(0, negative_caption="A mole dances.")]
    write_parquet(tmp_path / "bivlc/test.parquet", rows)
    clusters = [case.cluster for case in load("bivlc", tmp_path)]
    assert clusters[0] == clusters[2] != clusters[1]


def test_images_are_not_read(tmp_path: Path) -> None:
    """A file whose image column is damaged will do: nothing of it is touched."""
    image = {"bytes": random.Random(0).randbytes(100_000), "path": "0.jpg"}
    path = write_parquet(tmp_path / "bivlc/test.parquet", [row(0, image=image)])
    content = path.read_bytes()
    path.write_bytes(content[:4] + b"\xff" * 50_000 + content[50_004:])
    with pytest.raises(pl.exceptions.PolarsError):
        pl.read_parquet(path)
    assert load("bivlc", tmp_path)[0].captions == ("A mole digs 0..", "A mole sings 0.")


def test_columns_may_be_more_and_in_another_order(tmp_path: Path) -> None:
    write_parquet(tmp_path / "plain/bivlc/t.parquet", [row(0)])
    turned = {**dict(reversed(row(0).items())), "more": 1}
    write_parquet(tmp_path / "turned/bivlc/t.parquet", [turned])
    assert load("bivlc", tmp_path / "turned") == load("bivlc", tmp_path / "plain")


def test_an_image_column_may_be_plain_bytes(tmp_path: Path) -> None:
    write_parquet(tmp_path / "bivlc/t.parquet", [row(0, image=b"x", negative_image=b"y")])
    assert load("bivlc", tmp_path)[0].images[0].path == "parquet:bivlc/t.parquet#image/0"


def test_a_name_is_no_pattern(tmp_path: Path) -> None:
    write_parquet(tmp_path / "bivlc/split=test/[ab]*.parquet", [row(0)])
    write_parquet(tmp_path / "bivlc/split=test/axe.parquet", [row(1)])
    assert [case.captions[0] for case in load("bivlc", tmp_path)] == [
        "A mole digs 0..",
        "A mole digs 1..",
    ]


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    for column in row(0):
        rows = [{key: value for key, value in row(0).items() if key != column}]
        write_parquet(tmp_path / "bivlc/t.parquet", rows)
        with raises("E-COLUMN-MISSING", tmp_path / "bivlc/t.parquet", column):
            load("bivlc", tmp_path)


def test_a_column_that_holds_no_images_is_named(tmp_path: Path) -> None:
    for column in ["image", "negative_image"]:
        for value in ["000000000001.jpg", {"path": "x.jpg"}]:
            write_parquet(tmp_path / "bivlc/t.parquet", [row(0, **{column: value})])
            with raises("E-COLUMN-INVALID", tmp_path / "bivlc/t.parquet", column):
                load("bivlc", tmp_path)


def test_an_empty_field_is_named(tmp_path: Path) -> None:
    for column in ["caption", "negative_caption", "type", "subtype"]:
        write_parquet(tmp_path / "bivlc/t.parquet", [row(0), row(1, **{column: ""})])
        with raises("E-ROW-MALFORMED", f"{tmp_path}/bivlc/t.parquet: row 2", column):
            load("bivlc", tmp_path)


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    for content in [b"", b"no Parquet", b"PAR1 and no more PAR1"]:
        write(tmp_path / "bivlc/t.parquet", content)
        with raises("E-FILE-MALFORMED", tmp_path / "bivlc/t.parquet"):
            load("bivlc", tmp_path)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with raises("E-FILE-MISSING", tmp_path / "bivlc/**/*.parquet", "bivlc"):
        load("bivlc", tmp_path)
    write_parquet(tmp_path / "bivlc/._t.parquet", [row(0)])
    with raises("E-FILE-MISSING", tmp_path / "bivlc/**/*.parquet", "bivlc"):
        load("bivlc", tmp_path)


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "bivlc/t.parquet", [row(0)])
    pl.read_parquet(path).clear().write_parquet(path)
    with raises("E-BENCHMARK-EMPTY"):
        load("bivlc", tmp_path)


def test_a_reference_says_file_column_and_row() -> None:
    assert parquet_image("a b/t.parquet", "image", 7).path == "parquet:a b/t.parquet#image/7"


@needs_real_files
def test_the_published_files() -> None:
    assert group_counts(real("bivlc")) == SIZES


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
    assert [image.text for image in texts.images][:2] == ["A mole digs 0..", "A mole sings 0."]
