"""The pairs file: written whole, read in pieces, its spans and paths."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from errors import raises
from hypothesis import given, strategies as st
from typer.testing import CliRunner

from counterpoint.cases.files import write_cases
from counterpoint.cases.table import Case, Cases, ImageRef, caption_case
from counterpoint.cli.app import app
from counterpoint.generation.drafts import TextSettings
from counterpoint.generation.importing import NO_TEXT, SEVERAL, import_cases, import_texts
from counterpoint.generation.inputs.captions import open_captions
from counterpoint.generation.pairs import (
    SCHEMA,
    Pair,
    changed_span,
    read_about,
    read_pairs,
    rebased,
    root_of,
    tabulate,
    write_pairs,
)

IMAGE = ImageRef("a.jpg", (1, 2, 3, 4))
PAIR = Pair("7", IMAGE, "a dog", "a cat", "negative", "replace", "obj", "m", "1", 5)


@pytest.mark.parametrize(
    ("caption", "text", "changed"),
    [
        ("a red dog", "a blue dog", "blue"),
        ("a dog", "a dog.", "dog."),
        ("a covered plant", "a covecrimson plant", "covecrimson"),
        ("a dog and a cat", "a cat and a dog", "cat and a dog"),
        ("a dog", "an old dog", "an old"),
        ("a big dog", "a dog", ""),
        ("a dog", "a dog", ""),
    ],
)
def test_what_was_changed(caption: str, text: str, changed: str) -> None:
    start, end = changed_span(caption, text)
    assert text[start:end] == changed


@pytest.mark.slow
@given(st.text(max_size=20), st.text(max_size=20))
def test_what_surrounds_the_change_is_the_captions(caption: str, text: str) -> None:
    start, end = changed_span(caption, text)
    assert 0 <= start <= end <= len(text)
    assert caption.startswith(text[:start])
    assert caption.endswith(text[end:])


def test_pairs_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    end = ("positive", "swap", "", "n", "2", 0, ("changed",), "no", "narrower")
    other = Pair("8", None, "ein Hund 🐶", "x", *end)
    rows = write_pairs(path, [tabulate([PAIR]), tabulate([]), tabulate([other])], {"seed": 5})
    assert rows == 2
    table = read_pairs(path, rejected=True)
    assert table.schema == SCHEMA
    assert table["box"].to_list() == [[1, 2, 3, 4], None]
    assert table["image"].to_list() == ["a.jpg", None]
    assert table["checks"].to_list() == [[], ["changed"]]
    assert table["doubt"].to_list() == ["", "narrower"]
    assert read_about(path) == {"seed": 5}
    assert len(read_pairs(path)) == 1


def test_other_files_are_refused(tmp_path: Path) -> None:
    with raises("E-FILE-FORMAT", tmp_path / "p.csv"):
        write_pairs(tmp_path / "p.csv", [], {})
    with raises("E-FILE-MISSING", tmp_path / "none.parquet"):
        read_pairs(tmp_path / "none.parquet")
    pl.DataFrame({"caption": ["a"]}).write_parquet(tmp_path / "other.parquet")
    with raises("E-COLUMN-MISSING", "source"):
        read_pairs(tmp_path / "other.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and no more")
    with raises("E-FILE-MALFORMED", tmp_path / "broken.parquet"):
        read_pairs(tmp_path / "broken.parquet")
    with raises("E-FILE-MALFORMED", tmp_path / "broken.parquet"):
        read_about(tmp_path / "broken.parquet")


def test_images_of_texts_are_found_from_another_folder(tmp_path: Path) -> None:
    frame = tabulate([PAIR] * 3).with_columns(
        pl.Series("text_image", ["images/1.png", "world:0.5", None]),
        pl.Series(
            "text_images",
            [[{"path": "images/1.png", "seed": 1, "score": 0.5}], [], []],
            dtype=SCHEMA["text_images"],
        ),
    )
    here = tmp_path / "a" / "p.parquet"
    assert rebased(frame, here, here.with_name("q.parquet")).equals(frame)
    up = rebased(frame, here, tmp_path / "q.parquet")
    assert up["text_image"].to_list() == ["a/images/1.png", "world:0.5", None]
    assert up["text_images"].to_list()[0][0]["path"] == "a/images/1.png"
    aside = rebased(frame, here, tmp_path / "b" / "q.parquet")
    assert aside["text_image"].to_list()[0] == str(tmp_path / "a/images/1.png")


# --- texts that were made elsewhere ------------------------------------------------------------


def coco(path: Path, captions: list[str]) -> Path:
    notes = [{"id": n, "image_id": n, "caption": text} for n, text in enumerate(captions)]
    images = [{"id": n, "file_name": f"{n}.jpg"} for n in range(len(captions))]
    path.write_text(json.dumps({"images": images, "annotations": notes}))
    return path


def lines(path: Path, values: list[object]) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def test_the_authors_training_texts(tmp_path: Path):
    """Raw answers of a language model, one per caption of COCO; None where nothing was asked."""
    captions = ["a man and a dog", "a cat", "a big red bus", "a cup on a table"]
    file = coco(tmp_path / "captions.json", captions)
    answers = [" a dog and a man\n\nInput: a cat", "None", "a large red bus", None]
    texts = lines(tmp_path / "swap.jsonl", answers)
    settings = TextSettings("positive", (), checks=False)
    out = tmp_path / "out.parquet"
    made = import_texts(open_captions(str(file)), texts, settings, out, type="swap")
    table = read_pairs(out)
    assert table["text"].to_list() == ["a dog and a man", "a large red bus"]
    assert table["image"].to_list() == ["0.jpg", "2.jpg"]
    assert set(table["type"]) == {"swap"} and set(table["method"]) == {"imported/swap"}
    assert made.rows == 2 and made.captions == 4
    assert made.counts["imported/swap", NO_TEXT] == 2
    assert read_about(out)["root"] == str(tmp_path)


@pytest.mark.parametrize(
    ("values", "code", "said"),
    [
        ([{"caption": "a cat", "hard_positive": "a kitty"}], "E-ROW-MALFORMED", "'hard_positive'"),
        ([["a"]], "E-ROW-MALFORMED", "found ['a']"),
        (["one", "two"], "E-ROWS-UNEQUAL", "2 lines"),
        ([], "E-ROWS-UNEQUAL", "0 lines"),
    ],
)
def test_another_layout_is_named(tmp_path: Path, values: list[object], code: str, said: str):
    file, texts = coco(tmp_path / "c.json", ["a cat"]), lines(tmp_path / "t.jsonl", values)
    settings, out = TextSettings("positive", ()), tmp_path / "out.parquet"
    with raises(code) as caught:
        import_texts(open_captions(str(file)), texts, settings, out, type="replace")
    assert said in str(caught.value) and not out.exists()
    with raises("E-FILE-MISSING"):
        gone = tmp_path / "gone.jsonl"
        import_texts(open_captions(str(file)), gone, settings, out, type="replace")


def test_a_benchmarks_own_texts_become_pairs(tmp_path: Path) -> None:
    image = ImageRef("photos/1.jpg")
    bus, road = "a red bus on a road", "a road with a red bus"
    animals = ("a cat on a mat",), ("a dog on a mat", "a cow on a mat"), ("animals",)
    two = (image, ImageRef("2.jpg")), ("a dog on a mat", "a cat on a mat")
    cases = [
        caption_case("0", image, (bus, road), ("a BLUE bus on a road",), ("replace/att",)),
        caption_case("1", image, *animals),
        Case("2", *two, ((True, False), (False, True))),
    ]
    path, out = tmp_path / "cases.parquet", tmp_path / "pairs.parquet"
    write_cases(Cases.build(cases, source="own"), path)
    settings = TextSettings("positive", (), checks=False, form="uniform")
    made = import_cases(str(path), None, settings, out, type="add")
    names = ("source", "image", "caption", "text", "kind", "type", "subtype")
    red, cat = (image.path, "A red bus on a road."), (image.path, "A cat on a mat.")
    assert read_pairs(out).select(names).sort("source", "text").rows() == [
        ("0", *red, "A BLUE bus on a road.", "negative", "replace", "att"),
        ("0", *red, "A road with a red bus.", "positive", "replace", "att"),
        ("1", *cat, "A cow on a mat.", "negative", "add", ""),
        ("1", *cat, "A dog on a mat.", "negative", "add", ""),
    ]
    assert made.counts[f"imported/{tmp_path}/cases.parquet", SEVERAL] == 1
    assert root_of(out) == tmp_path
    only = import_cases(str(path), None, settings, tmp_path / "p.parquet", kinds=["positive"])
    assert only.rows == 1


def test_captions_are_no_benchmark(tmp_path: Path) -> None:
    (tmp_path / "captions.json").write_text('[{"caption": "a cat", "image": "1.jpg"}]')
    place = str(tmp_path / "p.parquet")
    words = ["generate", "import", str(tmp_path / "captions.json"), "-o", place]
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 2 and "need a file of texts" in found.output
