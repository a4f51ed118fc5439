"""The input of `generate`: every form of file, benchmarks and the world, as a stream of sources."""

from __future__ import annotations

import json
import tomllib
import tracemalloc
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from errors import raises
from hypothesis import given, strategies as st
from support import FEW, case, square

from counterpoint.cases.files import write_cases
from counterpoint.cases.table import Case, Cases, ImageRef
from counterpoint.generation.inputs.captions import (
    CaptionOptions,
    Captions,
    SourceCaption,
    open_captions,
)
from counterpoint.generation.pairs import UniqueIds
from counterpoint.world.grammar import holds, read
from counterpoint.world.scenes import read_scene

FILES = json.loads(Path(__file__).with_name("caption_files.json").read_text())
COCO = FILES["coco"]


def write(path: Path, value: object) -> str:
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return str(path)


def sources(name: str, **options: str) -> list[SourceCaption]:
    return list(open_captions(name, options=CaptionOptions(**options)))


# --- JSON --------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [list(COCO), list(reversed(COCO))], ids=["usual", "reversed"])
def test_coco_captions_in_either_order(tmp_path: Path, order: list[str]):
    name = write(tmp_path / "captions.json", {key: COCO[key] for key in order})
    assert sources(name) == [
        SourceCaption("70", ImageRef("4.jpg"), "A cat."),
        SourceCaption("71", ImageRef("9.jpg"), "A dog."),
        SourceCaption("72", ImageRef("4.jpg"), ""),
    ]
    assert open_captions(name).root == tmp_path
    assert open_captions(name, images=tmp_path / "val2014").root == tmp_path / "val2014"


def test_karpathy_images_with_their_sentences(tmp_path: Path):
    name = write(tmp_path / "dataset_coco.json", FILES["karpathy"])
    found = sources(name, split="train,restval")
    assert [source.id for source in found] == ["90", "91", "40", "41"]
    assert found[0] == SourceCaption("90", ImageRef("val2014/a.jpg"), "A b.", ("B a.",))
    assert len(sources(name)) == 6


def test_lists_and_objects_by_id(tmp_path: Path):
    rows = [{"image": "x/1.jpg", "caption": ["One.", "Two.", "One."]}, {"image": "x/2.jpg"}]
    image = ImageRef("x/1.jpg")
    assert sources(write(tmp_path / "list.json", rows)) == [
        SourceCaption("0#0", image, "One.", ("Two.",)),
        SourceCaption("0#1", image, "Two.", ("One.",)),
        SourceCaption("0#2", image, "One.", ("Two.",)),
        SourceCaption("1", ImageRef("x/2.jpg"), ""),
    ]
    by_id = {"12.jpg": {"filename": "12.jpg", "caption": "A cat.", "negative_caption": "A dog."}}
    [source] = sources(write(tmp_path / "ids.json", by_id))
    assert source == SourceCaption("12.jpg", ImageRef("12.jpg"), "A cat.")


@pytest.mark.slow
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_byte_order_mark_is_no_caption(tmp_path: Path, mark: str):
    for ending, text in ((".json", '[{"caption": "a"}]'), (".jsonl", '{"caption": "a"}')):
        assert sources(write(tmp_path / f"m{ending}", mark + text)) == [
            SourceCaption("0", None, "a")
        ]
    assert sources(write(tmp_path / "m.csv", mark + "caption\na\n")) == [
        SourceCaption("0", None, "a")
    ]


# --- tables ------------------------------------------------------------------------------------

ROWS = [
    {"id": "a", "caption": 'A "red", car\nhere', "image": "1.jpg"},
    {"id": "b", "caption": None, "image": None},
    {"id": "a", "caption": "ﬁve 🚗", "image": "2.jpg"},
]


def tables(folder: Path) -> list[Path]:
    frame = pl.DataFrame(ROWS)
    paths = [folder / f"t.{ending}" for ending in ("csv", "tsv", "jsonl", "ndjson", "parquet")]
    frame.write_csv(paths[0])
    frame.write_csv(paths[1], separator="\t")
    for path in paths[2:4]:
        frame.write_ndjson(path)
    frame.write_parquet(paths[4])
    return paths


def test_every_table_says_the_same(tmp_path: Path):
    expected = [
        SourceCaption("a", ImageRef("1.jpg"), 'A "red", car\nhere'),
        SourceCaption("b", None, ""),
        SourceCaption("a~2", ImageRef("2.jpg"), "ﬁve 🚗"),
    ]
    for path in tables(tmp_path):
        assert sources(str(path)) == expected, path.name
    assert open_captions(str(tmp_path / "t.parquet")).total == 3


def test_accepted_names(tmp_path: Path):
    for column in ("caption", "captions", "text", "title", "sentence", "raw"):
        for image in ("image", "filepath", "filename", "image_path", "file_name"):
            name = write(tmp_path / "t.csv", f"x,{image},{column}\n0,i.jpg,a b\n")
            assert sources(name) == [SourceCaption("0", ImageRef("i.jpg"), "a b")]


def test_named_columns_and_split(tmp_path: Path):
    name = write(tmp_path / "t.tsv", "k\tq\tp\tsplit\nu\ta b\ti.jpg\ttest\nv\tc\tj.jpg\tval\n")
    found = sources(name, caption="q", image="p", id="k", split="val")
    assert found == [SourceCaption("v", ImageRef("j.jpg"), "c")]


def test_images_inside_parquet_are_referred_to(tmp_path: Path):
    cell = {"bytes": b"\x89PNG", "path": "p.png"}
    frame = pl.DataFrame(
        {"caption": ["a", "b"], "image": [cell, cell], "box": [[1, 2, 3, 4], None]}
    )
    frame.write_parquet(tmp_path / "hub.parquet")
    found = sources(str(tmp_path / "hub.parquet"))
    assert found[0].image == ImageRef("parquet:hub.parquet#image/0", (1, 2, 3, 4))
    assert found[1].image == ImageRef("parquet:hub.parquet#image/1")


def test_half_characters_become_writable(tmp_path: Path):
    [source] = sources(write(tmp_path / "t.jsonl", '{"caption": "a \\ud83d b", "id": "\\udc00"}'))
    assert source.caption == "a \ufffd b" and source.id == "\ufffd"
    pl.Series([source.caption, source.id])  # would raise


# --- benchmarks and the world ------------------------------------------------------------------


def test_a_case_file_gives_its_originals(tmp_path: Path):
    box = (1, 2, 30, 40)
    cropped = Case("c", (ImageRef("i.jpg", box),), ("no", "yes"), ((False, True),))
    text = Case("t", (ImageRef("text:a b"),), ("x", "y"), ((True, False),))
    cases = Cases.build([case(0), square(1), cropped, text], source="test")
    path = tmp_path / "cases.parquet"
    write_cases(cases, path)
    captions = open_captions(str(path))
    assert (captions.total, captions.root) == (5, tmp_path)
    assert list(captions) == [
        SourceCaption(
            "case-0", ImageRef("images/0.jpg"), "true caption 0 of 0", ("true caption 1 of 0",)
        ),
        SourceCaption("square-1#0", ImageRef("images/1-0.jpg"), "a above b 1"),
        SourceCaption("square-1#1", ImageRef("images/1-1.jpg"), "b above a 1"),
        SourceCaption("c", ImageRef("i.jpg", box), "yes"),
        SourceCaption("t", None, "x"),
    ]
    line = {"id": 1, "images": ["a.jpg"], "captions": ["yes", "no"], "truth": [[True, False]]}
    [source] = open_captions(write(tmp_path / "cases.jsonl", line))
    assert source == SourceCaption("1", ImageRef("a.jpg"), "yes")


def test_a_benchmark_by_its_id():
    captions = open_captions("world-bi:size=3,seed=4")
    found = list(captions)
    assert captions.total == len(found) == 6
    assert found[0].id == "0#0" and found[1].caption != found[0].caption
    for source in found:
        assert source.image is not None
        scene = read_scene(source.image.path.removeprefix("world:"))
        assert holds(read(source.caption), scene)


def test_the_worlds_captions_are_true_and_plain():
    captions = open_captions("world:size=200,seed=3")
    found = list(captions)
    assert captions.total == len(found) == 200 and captions.root is None
    assert list(captions) == found
    assert list(open_captions("world:size=200,seed=4")) != found
    assert list(open_captions("world:size=50,seed=3")) == found[:50]
    for source in found:
        assert source.image is not None
        assert holds(read(source.caption), read_scene(source.image.path.removeprefix("world:")))
        assert not {"crimson", "banded", "tiny"} & set(source.caption.split())


# --- what holds of all -------------------------------------------------------------------------


def test_a_fingerprint_is_of_content_and_options(tmp_path: Path):
    one = write(tmp_path / "a.csv", "caption,title\na b,c\n")
    two = write(tmp_path / "b.csv", "caption,title\na b,c\n")
    other = write(tmp_path / "c.csv", "caption,title\na c,c\n")
    first = open_captions(one).fingerprint
    assert open_captions(two).fingerprint == first
    changed = open_captions(one, options=CaptionOptions(caption="title"))
    prints = {first, open_captions(other).fingerprint, changed.fingerprint}
    worlds = (open_captions(f"world:size=9,seed={seed}").fingerprint for seed in (1, 2))
    assert len(prints | set(worlds)) == 5


TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)


@pytest.mark.slow
@given(rows=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=8))
@FEW
def test_any_text_survives_and_order_is_kept(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
):
    path = tmp_path_factory.mktemp("any") / "t.jsonl"
    lines = [json.dumps({"id": id, "caption": caption}) for id, caption in rows]
    captions = open_captions(write(path, "\n".join(lines)))
    found = list(captions)
    assert [source.caption for source in found] == [caption.strip() for _, caption in rows]
    assert len({source.id for source in found}) == len(rows)
    assert list(captions) == found


@given(st.lists(st.sampled_from(["0", "00", "7", "7~2", "x", "x~2", "", "134217728"]), max_size=30))
@FEW
def test_ids_become_unique_and_the_first_stays(ids: list[str]):
    unique = UniqueIds()
    found = [unique(id) for id in ids]
    assert len(set(found)) == len(ids)
    for id, new in zip(ids, found, strict=True):
        assert new == id or new.startswith(f"{id}~")
    if ids:
        assert found[0] == ids[0]


def peak(captions: Captions) -> int:
    tracemalloc.start()
    try:
        for _ in captions.stream():  # beside it, only ids are kept
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["csv", "jsonl", "json"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, ending: str):
    peaks = []
    for size in (3_000, 9_000):
        numbers = np.arange(size)
        frame = pl.DataFrame({"id": numbers, "caption": [f"a caption of {n}" for n in numbers]})
        path = tmp_path / f"{size}.{ending}"
        writers = {"csv": frame.write_csv, "jsonl": frame.write_ndjson, "json": frame.write_json}
        writers[ending](path)
        peaks.append(peak(open_captions(str(path))))
    assert peaks[1] < peaks[0] + 200_000


# --- refusals ----------------------------------------------------------------------------------


def test_a_broken_file_is_named_with_the_place(tmp_path: Path):
    broken = tomllib.loads(Path(__file__).with_name("broken_captions.toml").read_text())
    for name, (text, code) in broken.items():
        with raises(code, name):
            sources(write(tmp_path / name, text))


def test_bytes_that_are_no_text(tmp_path: Path):
    for name, data in (("t.csv", b"caption\n\xff\xfe\n"), ("t.jsonl", b'{"caption": "\xff"}')):
        (tmp_path / name).write_bytes(data)
        code = "E-JSON-INVALID" if name.endswith("jsonl") else "E-FILE-MALFORMED"
        with raises(code, tmp_path / name):
            sources(str(tmp_path / name))


def test_wrong_names(tmp_path: Path):
    name = write(tmp_path / "t.csv", "caption\na\n")
    for wrong, column in (
        ({"caption": "words"}, "words"),
        ({"image": "file"}, "file"),
        ({"split": "test"}, "split"),
    ):
        with raises("E-COLUMN-MISSING", column):
            sources(name, **wrong)
    with raises("E-FILE-MISSING", tmp_path / "none.json"):
        open_captions(str(tmp_path / "none.json"))
    with raises("E-BENCHMARK-UNKNOWN"):
        open_captions("sugarcrep")
    with raises("E-OPTION-UNKNOWN", "sice"):
        open_captions("world:sice=4")
    with raises("E-OPTION-INVALID", "size", "-4"):
        open_captions("world:size=-4")
    with raises("E-OPTION-INVALID"):
        open_captions("world-swap:size=2", options=CaptionOptions(split="test"))
