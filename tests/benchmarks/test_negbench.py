"""NegBench: questions of four captions, and captions that say what is absent."""

from __future__ import annotations

from pathlib import Path

from benchmark_fixtures import absent, group_counts, load, needs_real_files, real, write_table
from errors import raises

from counterpoint.benchmarks.registry import load_benchmark
from counterpoint.cases.table import Absent

COCO = "COCO_val_mcq_llama3.1_rephrased.csv"
VOC = "VOC2007_mcq_llama3.1_rephrased.csv"
NEGATED = "COCO_val_negated_retrieval_llama3.1_rephrased_affneg_true.csv"
QUESTION = {
    "image_path": "coco/val2017/000000000007.jpg",
    "correct_answer": "0",
    "caption_0": "A mole, but no hat.",
    "caption_1": "A hat, but no mole.",
    "caption_2": "A hat.",
    "caption_3": "No mole.",
    "correct_answer_template": "hybrid",
}


def write_questions(root: Path, *more: dict[str, str]) -> None:
    write_table(root / "negbench" / COCO, [QUESTION, *more])
    voc = QUESTION | {"image_path": "/data/VOC/000009.jpg", "correct_answer_template": "negative"}
    write_table(root / "negbench" / VOC, [voc])


def test_the_right_caption_comes_first(tmp_path: Path) -> None:
    later = QUESTION | {"correct_answer": "2", "correct_answer_template": "positive"}
    write_questions(tmp_path, later)
    cases = load("negbench", tmp_path)
    assert [case.id for case in cases] == ["coco/0", "coco/1", "voc2007/0"]
    assert cases[0].captions[0] == "A mole, but no hat."
    assert cases[1].captions == ("A hat.", "A mole, but no hat.", "A hat, but no mole.", "No mole.")
    assert {case.truth for case in cases} == {((True, False, False, False),)}
    assert [case.groups for case in cases] == [
        ("coco/hybrid", "hybrid"),
        ("coco/affirmation", "affirmation"),
        ("voc2007/negation", "negation"),
    ]
    assert cases[0].images[0].path == "coco/val2017/000000000007.jpg"
    assert cases[2].images[0].path == "voc2007/JPEGImages/000009.jpg"  # wherever it once was


def test_a_malformed_row_is_named(tmp_path: Path) -> None:
    for change, field in [
        ({"correct_answer": "4"}, "correct_answer"),
        ({"correct_answer": "first"}, "correct_answer"),
        ({"caption_3": ""}, "caption_3"),
        ({"image_path": ""}, "image_path"),
        ({"correct_answer_template": ""}, "correct_answer_template"),
    ]:
        write_questions(tmp_path, QUESTION | change)
        with raises("E-ROW-MALFORMED", f"{tmp_path}/negbench/{COCO}: row 2", field):
            load("negbench", tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    write_questions(tmp_path)
    (tmp_path / "negbench" / VOC).unlink()
    with raises("E-FILE-MISSING"):
        load("negbench", tmp_path)


def negated(number: int, captions: str) -> dict[str, str]:
    return {
        "positive_objects": "['person']",
        "negative_objects": "['hat']",
        "filepath": f"coco/val2017/{number:012}.jpg",
        "image_id": str(number),
        "captions": captions,
    }


def test_negated_captions_are_a_gallery(tmp_path: Path) -> None:
    rows = [negated(n, f"['A mole {n}, no hat.', \"It isn't {n}.\"]") for n in range(5)]
    rows[3]["captions"] = "['Nothing else.', '']"
    write_table(tmp_path / "negbench" / NEGATED, rows)
    [case] = load("negbench/retrieval", tmp_path)
    assert (len(case.images), len(case.captions)) == (5, 9)
    assert case.captions[3] == "It isn't 1."
    assert [sum(line) for line in case.truth] == [2, 2, 2, 1, 2]
    assert absent("negbench/retrieval", tmp_path) == (Absent("row 4", "a caption without text", 0),)


def test_what_is_no_list_of_texts_is_refused(tmp_path: Path) -> None:
    for captions in ["a mole", "['a mole'", "[1]", "{'a': 1}", "[" * 9_000]:
        write_table(tmp_path / "negbench" / NEGATED, [negated(0, captions)])
        with raises("E-ROW-MALFORMED", "captions"):
            load("negbench/retrieval", tmp_path)


@needs_real_files
def test_the_authors_files() -> None:
    cases = real("negbench")
    assert group_counts(cases) == {
        "coco/affirmation": 2_032,
        "coco/hybrid": 2_012,
        "coco/negation": 1_870,
        "voc2007/affirmation": 682,
        "voc2007/hybrid": 2_228,
        "voc2007/negation": 2_121,
    }
    gallery = load_benchmark("negbench/retrieval", cases.root).cases
    assert (gallery.image_counts[0], gallery.caption_counts[0]) == (4_998, 25_003)
