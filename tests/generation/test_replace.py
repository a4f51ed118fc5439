"""REPLACE from VL-CheckList: the most common words, their synonyms, the negatives as they are."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from benchmark_fixtures import REAL, needs_real_files
from cli_support import Command, counterpoint, own_place
from errors import raises

from counterpoint.benchmarks.registry import load_benchmark
from counterpoint.cases.files import read_cases
from counterpoint.generation.replace import make_replace

__all__ = ["counterpoint", "own_place"]  # fixtures

SPATIAL = [
    ("cat IN box", "cat out of box"),
    ("dog on top of table", "dog below table"),
    ("bird IN THE tree", "bird nearby tree"),
    ("bus on road", "bus under road"),
    ("bike by car", "bike by car"),
]
ACTION = [("man sitting on bench", "man eating bench"), ("man SITTING IN car", "man eating car")]
COLOUR = [
    ("white clouds IN blue sky", "white clouds IN red sky"),
    ("plant covered in red leaf", "plant covered in silver leaf"),
    ("blue blue sky", "teal blue sky"),
    ("a red boat", "a crimson boat"),
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    files = {"Relation/vg/spatial": SPATIAL, "Relation/vg/action": ACTION}
    files |= {"Attribute/vg/color": COLOUR, "Relation/swig_action": ACTION}
    for name, rows in files.items():
        path = tmp_path / "vl_checklist" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        listed = [["VG_100K/7.jpg", {"POS": [true], "NEG": [false]}] for true, false in rows]
        path.write_text(json.dumps(listed))
    return tmp_path


def test_a_case_is_a_caption_its_positive_and_the_negative(data: Path):
    """The word that the negative replaces gets the synonym, and whole words do."""
    counts = make_replace(data, data / "out" / "replace.parquet")
    made = list(read_cases(data / "out" / "replace.parquet").frame.rows(named=True))
    rows = [" | ".join((row["id"], row["groups"][0], *row["captions"])) for row in made]
    expected = Path(__file__).with_name("replace_cases.txt").read_text()
    assert sorted(rows) == sorted(expected.splitlines())
    assert {row["images"][0]["path"] for row in made} == {f"{data}/visual_genome/VG_100K/7.jpg"}
    assert sum(counts.left_out.values()) == 4


def test_the_most_common_words_and_other_synonyms(counterpoint: Command, data: Path):
    words = data / "words.csv"
    rows = ("part,word,synonym", "spatial,in,inside", "spatial,on,atop", "spatial,on top of,")
    words.write_text("\n".join(rows).replace("\nspatial", "\nrelations/spatial"))
    command = ["generate", "replace", "--data", str(data), "--words", str(words), "--json"]
    found = counterpoint(*command, "--most-common", "1", "-o", str(data / "one.parquet"))
    assert found.code == 0, found.err
    (one,) = json.loads(found.out)
    spatial = [word for word in one["words"] if word["part"] == "relations/spatial"]
    assert spatial == [
        {"part": "relations/spatial", "word": "in", "rows": 2, "synonym": "inside", "cases": 2}
    ]
    again = counterpoint(*command, "-o", str(data / "all.parquet"))
    assert again.code == 0 and len(read_cases(data / "all.parquet")) == 3
    shown = counterpoint("generate", "replace", "--data", str(data), "-o", str(data / "t.parquet"))
    assert "sapphire" in shown.out and "left out: 1 rows whose negative" in shown.err


def test_other_words_make_nothing(data: Path):
    (data / "words.csv").write_text("part,word,synonym\nspatial,in,inside\n")
    with raises("E-REPLACE-EMPTY"):
        make_replace(data, data / "replace.parquet", words=data / "words.csv")


@needs_real_files
def test_the_authors_cases_come_out(tmp_path: Path):
    """49 of 27,443 do not: 15 negatives are the caption itself, one is the positive, and of 33
    positives another word was replaced than of the negative, or a part of one ("covecrimson")."""
    make_replace(Path(REAL or ""), tmp_path / "replace.parquet")
    made, published = (
        Counter(tuple(captions) for captions in cases.frame["captions"].to_list())
        for cases in (
            read_cases(tmp_path / "replace.parquet"),
            load_benchmark("hard-positives/replace", Path(REAL or "")).cases,
        )
    )
    assert (sum(published.values()), sum((published & made).values())) == (27_443, 27_394)
