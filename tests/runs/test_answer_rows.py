"""Cases whose captions are answers to questions: what is refused, and the numbers of a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from errors import raises
from support import TIES, asked, case, part, random_scores, reference, run_of, square

from counterpoint.cases import Cases, read_cases, write_cases
from counterpoint.metrics import METRICS, Metric, get_protocol
from counterpoint.runs import rows

NAMES = ("answer_accuracy", "question_accuracy", "image_accuracy", "all_answers")
ASKED = {
    "id": "1",
    "images": ["a.jpg", "b.jpg"],
    "captions": ["Is it red? Yes", "Is it red? No", "Is it round? Yes", "Is it round? No"],
    "truth": [[1, 0, 0, 1], [0, 1, 1, 0]],
    "questions": 2,
}


def read(tmp_path: Path, **changed: Any) -> Cases:
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps(ASKED | changed) + "\n")
    return read_cases(path)


def test_questions_are_part_of_case_files(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert found.case(0).questions == 2 and found.questions().tolist() == [2]
    write_cases(found, tmp_path / "cases.parquet")
    assert read_cases(tmp_path / "cases.parquet").frame.equals(found.frame)
    plain = Cases(found.frame.drop("questions"))
    assert plain.case(0).questions == 0 and plain.content_hash() != found.content_hash()


def test_other_shapes_are_refused(tmp_path: Path) -> None:
    gallery = {"images": [f"{n}.jpg" for n in range(5)], "truth": [[1, 0, 0, 1]] * 5}
    shapes: list[tuple[dict[str, Any], str]] = [
        ({"questions": 3}, "E-QUESTIONS-SHAPE"),  # four captions
        ({"questions": 4}, "E-QUESTIONS-SHAPE"),  # one answer to each is no choice
        ({"questions": "two"}, "E-CASE-MALFORMED"),
        ({"questions": -1}, "E-CASE-MALFORMED"),
        ({"truth": [[1, 1, 0, 0], [0, 1, 1, 0]]}, "E-QUESTIONS-TRUTH"),  # two, and none
        ({"truth": [[1, 0, 0, 1], [0, 1, 0, 0]]}, "E-QUESTIONS-TRUTH"),
        (gallery, "E-QUESTIONS-GALLERY"),
    ]
    for changed, code in shapes:
        with raises(code):
            read(tmp_path, **changed)


@pytest.mark.parametrize("tie", TIES)
def test_numbers_of_a_run_are_those_of_the_slow_reference(tie: str) -> None:
    cases = Cases.build([asked(n) for n in range(300)], source="test")
    protocol = replace(get_protocol("strict"), tie=tie)
    scores = random_scores(cases, 5, values=4)
    found = {
        row.metric: row
        for row in rows(run_of(part(cases, scores, protocol)), resamples=200)
        if row.group == "all"
    }
    for name in NAMES:
        slow = [
            reference(name, block.tolist(), cases.case(n).truth, tie)
            for n, block in enumerate(scores.reshape(-1, 2, 4))
        ]
        row = found[name]
        assert row.value == pytest.approx(np.mean(slow)) and row.n == 300
        assert row.ci_low < row.value < row.ci_high and row.ties > 0
    assert [found[name].chance for name in NAMES] == pytest.approx([1 / 2, 1 / 4, 1 / 4, 1 / 16])
    others = {n for n, m in METRICS.items() if isinstance(m, Metric) and n not in NAMES}
    assert others.isdisjoint(found)  # what compares all captions with each other


def test_answers_stand_beside_other_cases() -> None:
    """Nothing of the other cases changes, and no metric counts both."""
    others = [case(n, positives=1) for n in range(6)] + [square(n) for n in range(6)]
    both = Cases.build([*others, *(asked(n) for n in range(6))], source="test")
    scores = random_scores(both, 1)
    alone = Cases.build(others, source="test")
    part_of = scores[: alone.pair_offsets[-1]]
    known = {
        (row.group, row.metric): (row.value, row.n)
        for row in rows(run_of(part(alone, part_of)), resamples=9)
        if isinstance(METRICS[row.metric], Metric)
    }
    found = {
        (row.group, row.metric): (row.value, row.n)
        for row in rows(run_of(part(both, scores)), resamples=9)
    }
    assert known.items() <= found.items()
    assert found["all", "all_answers"][1] == 6


def test_where_the_captions_begin_that_are_chosen_from() -> None:
    single = replace(asked(0), id="x", questions=1, captions=("a", "b", "c", "d"))
    single = replace(single, truth=((True, False, False, False), (False, True, False, False)))
    cases = Cases.build([case(0), asked(1), single], source="test")
    assert cases.choice_starts().tolist() == [0, 3, 5, 7, 9, 11, 15]
