"""NaturalBench: questions, answers and captions of two photographs, on files of its layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmark_fixtures import load, write, write_parquet
from errors import raises
from published_layouts import LAYOUTS, question_row

import counterpoint as cp
from counterpoint.cases import Cases


class Answering:
    """Answers as it is told: of each case, a 1 for a right answer and a 0 for a wrong one, for
    image 0 and 1 to question 0, then to question 1."""

    fingerprint = "answering"

    def __init__(self, *right: str) -> None:
        self.right = right

    def score_cases(self, cases: Cases) -> np.ndarray:
        truth = np.stack([block.truth for block in cases.blocks()])[0].reshape(-1, 2, 2, 2)
        told = np.array([[*map(int, of)] for of in self.right]).reshape(-1, 2, 2)
        likelihood = np.array([[-9.0], [-1.0]])  # one question is longer than the other
        return (likelihood + 0.1 * (truth == told.swapaxes(1, 2)[..., None])).reshape(-1)


def row_of(number: int, **changed: Any) -> dict[str, Any]:
    """A row of the hub's table; a field that is None is not there."""
    return {name: at for name, at in (question_row(number) | changed).items() if at is not None}


def write_rows(root: Path, *rows: dict[str, Any]) -> None:
    write_parquet(root / "naturalbench/data/train-00000-of-00001.parquet", list(rows))


def test_retrieval_keeps_its_index(tmp_path: Path) -> None:
    LAYOUTS["naturalbench/retrieval"](tmp_path)
    case = load("naturalbench/retrieval", tmp_path)[2]
    assert (case.id, case.captions) == ("2", ("A mole digs 2.", "A mole sings 2."))
    folder = "naturalbench/NaturalBench-Retrieval/images"
    assert [image.path for image in case.images] == [f"{folder}/2_0.jpg", f"{folder}/2_1.jpg"]


def test_questions_are_true_of_the_image_whose_answer_is_yes(tmp_path: Path) -> None:
    LAYOUTS["naturalbench"](tmp_path)
    cases = load("naturalbench", tmp_path)
    assert [case.id for case in cases] == ["0", "1", "3", "4"]  # the others have two options
    assert cases[0].captions == ("Does mole 0 dig?", "Does mole 0 sing?")
    assert cases[0].truth == ((False, True), (True, False))  # No and Yes of the first image
    assert cases[1].truth == ((True, False), (False, True))
    assert cases[0].groups == ("Flickr30K",)


def test_answers_stand_behind_their_questions(tmp_path: Path) -> None:
    LAYOUTS["naturalbench/answers"](tmp_path)
    cases = load("naturalbench/answers", tmp_path)
    first, options = cases[0], cases[2]  # every third row has two options
    assert [case.id for case in cases] == ["0", "1", "2", "3", "4", "5"]
    texts = ("Does mole 0 dig? Yes", "Does mole 0 dig? No")
    assert first.captions == (*texts, "Does mole 0 sing? Yes", "Does mole 0 sing? No")
    assert first.questions == 2
    assert first.truth == ((False, True, True, False), (True, False, False, True))  # No, Yes
    assert options.captions[:2] == ("Does mole 2 dig? A", "Does mole 2 dig? B")
    assert options.truth == ((True, False, False, True), (False, True, True, False))
    groups = [case.groups for case in (first, options)]
    assert groups == [("yes_no/Flickr30K",), ("multiple_choice/Flickr30K",)]


def test_answers_are_counted_as_the_paper_does(tmp_path: Path) -> None:
    """By the definitions of Section 4 of the paper, counted by hand."""
    LAYOUTS["naturalbench/answers"](tmp_path)
    model = Answering("1111", "1110", "1100", "1010", "0110", "0000")
    run = cp.evaluate(model, "naturalbench/answers", data=tmp_path, out=tmp_path / "runs")
    rows = run.results(resamples=9).to_polars().filter(group="all")
    found = dict(rows.select("metric", "value").iter_rows())
    expected = {
        "answer_accuracy": (4 + 3 + 2 + 2 + 2 + 0) / 24,
        "question_accuracy": (2 + 1 + 1 + 0 + 0 + 0) / 12,
        "image_accuracy": (2 + 1 + 0 + 1 + 0 + 0) / 12,
        "all_answers": 1 / 6,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert "image_to_text" not in found  # which would compare answers to different questions


def test_the_type_has_had_two_names(tmp_path: Path) -> None:
    for name in ["Question_Type", "Question Type"]:
        rows = [row_of(n, Question_Type=None) | {name: "yes_no"} for n in (0, 1)]
        write_rows(tmp_path, *rows)
        assert (
            len(load("naturalbench", tmp_path)) == len(load("naturalbench/answers", tmp_path)) == 2
        )


def test_other_types_are_refused(tmp_path: Path) -> None:
    for id in ["naturalbench", "naturalbench/answers"]:
        write_rows(tmp_path, row_of(0, Question_Type=None))
        with raises("E-ROW-MALFORMED", "Question_Type"):
            load(id, tmp_path)
        write_rows(tmp_path, row_of(0, Question_Type="open"))
        with raises("E-LAYOUT-UNEXPECTED", "'open'"):
            load(id, tmp_path)


def test_the_source_may_be_unknown(tmp_path: Path) -> None:
    write_rows(tmp_path, row_of(0, Source=None, Index=None))
    [case] = load("naturalbench/answers", tmp_path)
    assert (case.id, case.groups) == ("train-00000-of-00001/0", ("yes_no",))


def test_positives_have_no_meaning_for_answers(tmp_path: Path) -> None:
    LAYOUTS["naturalbench/answers"](tmp_path)
    added = '{"case_id": "2", "text": "Yes, mole 2 digs."}\n'
    write(tmp_path / "positives/naturalbench-answers.jsonl", added)
    with raises("E-POSITIVES-QUESTIONS", "2"):
        load("naturalbench/answers+hp", tmp_path)
