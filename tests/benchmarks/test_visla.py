"""VISLA: two tables with different headers, under two names each."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmark_fixtures import (
    absent,
    group_counts,
    load,
    needs_real_files,
    real,
    write,
    write_table,
)
from errors import raises

from counterpoint.cases.table import Absent

GENERIC = {
    "filename": "000000000007.jpg",
    "caption": 'A mole reads "Digging" today.',
    "second positive": " Today, a mole is reading.",
    "negative_caption": "A mole burns a book today.",
}
SPATIAL = {
    "image": "000000000008.jpg",
    "sent1": "The mole is in the hat.",
    "sent2": "The hat contains the mole.",
    "Best reference (Semantically close)": "The mole is outside the hat.",
    "Reference-2 (Completely irrelevant)": "The oven is hot.",
}
NEGATIVE = "Best reference (Semantically close)"


def lines(*rows: dict[str, str], end: str = "\n") -> str:
    """As the published files are: quotation marks are not escaped, nothing is quoted."""
    return end.join("\t".join(cells) for cells in (rows[0], *(row.values() for row in rows))) + end


def write_parts(root: Path, generic: str = "Generic_VISLA.tsv", spatial: str = "Spatial_VISLA.tsv"):
    write(root / "visla" / generic, lines(GENERIC, GENERIC))
    write(root / "visla" / spatial, lines(SPATIAL, SPATIAL))


@pytest.mark.parametrize(
    ("generic", "spatial"),
    [
        ("Generic_VISLA.tsv", "Spatial_VISLA.tsv"),
        ("SugarCrepe.tsv", "VSR_spatial.tsv"),
        ("data/Generic_VISLA.tsv", "data/VSR_spatial.tsv"),
    ],
)
def test_both_parts_are_read(generic: str, spatial: str, tmp_path: Path) -> None:
    write_parts(tmp_path, generic, spatial)
    cases = load("visla", tmp_path)
    assert [case.id for case in cases] == ["generic/0", "generic/1", "spatial/0", "spatial/1"]
    assert cases[0].captions == tuple(list(GENERIC.values())[1:])
    assert cases[3].captions == tuple(list(SPATIAL.values())[1:4])
    assert [case.groups for case in cases[::2]] == [("generic",), ("spatial",)]
    assert {case.truth for case in cases} == {((True, True, False),)}
    assert cases[0].images[0].path == "coco/val2017/000000000007.jpg"


@pytest.mark.parametrize("part", ["generic", "spatial"])
def test_one_part_is_enough(part: str, tmp_path: Path) -> None:
    write_parts(tmp_path)
    other = {"generic": "Spatial", "spatial": "Generic"}[part]
    (tmp_path / f"visla/{other}_VISLA.tsv").unlink()
    assert {case.groups for case in load("visla", tmp_path)} == {(part,)}


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ([], "val2017"),
        (["train2017"], "train2017"),
        (["val2017"], "val2017"),
        (["train2017", "val2017"], "val2017"),
    ],
)
def test_images_are_of_either_set(there: list[str], expected: str, tmp_path: Path) -> None:
    write_parts(tmp_path)
    for folder in there:
        write(tmp_path / f"coco/{folder}/000000000008.jpg", b"a picture")
    assert load("visla", tmp_path)[2].images[0].path == f"coco/{expected}/000000000008.jpg"


def test_names_may_be_short(tmp_path: Path) -> None:
    for name in ["8", "000000000008", "8.jpg", "000000000008.jpg"]:
        write(tmp_path / "visla/Spatial_VISLA.tsv", lines(SPATIAL | {"image": name}))
        [found] = load("visla", tmp_path)
        assert found.images[0].path == "coco/val2017/000000000008.jpg"


def test_headers_line_ends_quotes_and_columns_may_differ(tmp_path: Path) -> None:
    renamed = {key.title().replace(" ", "_"): value for key, value in GENERIC.items()}
    write(tmp_path / "a/visla/Generic_VISLA.tsv", lines(GENERIC))
    write(tmp_path / "b/visla/Generic_VISLA.tsv", "\ufeff" + lines(renamed, end="\r\n"))
    write_table(tmp_path / "c/visla/Generic_VISLA.tsv", [{"": "0", **GENERIC}], separator="\t")
    first, *others = (load("visla", tmp_path / folder) for folder in "abc")
    assert others == [first, first]


def test_rows_without_a_negative_are_named(tmp_path: Path) -> None:
    """The published spatial table has some: two captions, and the rest was never written."""
    unfinished = SPATIAL | {NEGATIVE: "", "Reference-2 (Completely irrelevant)": ""}
    rows = (SPATIAL, unfinished, SPATIAL, unfinished)
    write(tmp_path / "visla/Spatial_VISLA.tsv", lines(*rows))
    assert [case.id for case in load("visla", tmp_path)] == ["spatial/0", "spatial/2"]
    reason = "no negative caption"
    assert absent("visla", tmp_path) == (Absent("spatial/1", reason), Absent("spatial/3", reason))


def test_whole_files_lack_nothing(tmp_path: Path) -> None:
    write_parts(tmp_path)
    assert absent("visla", tmp_path) == ()


MALFORMED = {
    "no first caption": (lines(SPATIAL, SPATIAL | {"sent1": ""}), "sent1"),
    "no second caption": (lines(SPATIAL, SPATIAL | {"sent2": " "}), "sent2"),
    "no image": (lines(SPATIAL, SPATIAL | {"image": ""}), "image"),
    "another image": (lines(SPATIAL, SPATIAL | {"image": "mole.png"}), None),
    "a field too few": (lines(SPATIAL) + "8.jpg\tThe mole is in.\n", None),
    "a field too many": (lines(SPATIAL, SPATIAL | {"more": "x"}), None),
    "a quote without its pair": (
        lines(SPATIAL, SPATIAL | {"sent1": '"The mole'}, SPATIAL | {"sent1": '"The mole'}),
        None,
    ),
}


def test_a_malformed_row_is_named(tmp_path: Path) -> None:
    for what in MALFORMED:
        content, field = MALFORMED[what]
        write(tmp_path / "visla/Spatial_VISLA.tsv", content)
        where = f"{tmp_path}/visla/Spatial_VISLA.tsv: row 2"
        with raises("E-ROW-MALFORMED", where, field or ""):
            load("visla", tmp_path)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    for column in [*list(GENERIC)]:
        row = {key: value for key, value in GENERIC.items() if key != column}
        write(tmp_path / "visla/Generic_VISLA.tsv", lines(row))
        expected = column.replace("_", " ")
        with raises("E-ROW-MALFORMED", f"{tmp_path}/visla/Generic_VISLA.tsv: row 1", expected):
            load("visla", tmp_path)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with raises("E-FILE-MISSING", tmp_path / "visla/Generic_VISLA.tsv", "visla"):
        load("visla", tmp_path)


@needs_real_files
def test_the_published_files(caplog: pytest.LogCaptureFixture) -> None:
    counts = group_counts(real("visla"))
    left_out = sum(record.args[1] for record in caplog.records)
    assert counts["generic"] == 973
    assert counts["spatial"] + left_out == 652
