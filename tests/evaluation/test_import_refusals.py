"""Scores from elsewhere that are refused: an error counts the rows and names the first."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from import_support import WRITERS, Rows, all_rows, changed, mine, own_place, scores_of, write

from counterpoint.errors import DataError, NotFoundError
from counterpoint.importing import import_scores

__all__ = ["mine", "own_place"]  # fixtures

# --- what is wrong -----------------------------------------------------------------------------


WRONG: dict[str, tuple[Rows, str]] = {
    "missing": (
        all_rows()[:3] + all_rows()[5:],
        "2 of 15 pairs are missing; the first: case_id '7', image 0, caption 0; "
        "case_id '7', image 0, caption 1.",
    ),
    "many missing": (
        all_rows()[:-5],
        "5 of 15 pairs are missing; the first: case_id 'a/0', image 1, caption 1; "
        "case_id 'x', image 0, caption 0; case_id 'x', image 0, caption 1.",
    ),
    "twice": (
        [*all_rows(), all_rows()[4]],
        "2 rows name a pair more than once; the first: case_id '7', image 0, caption 1, score 0.5; "
        "case_id '7', image 0, caption 1, score 0.5.",
    ),
    "unknown": (
        [*all_rows(), *changed(0, case_id="y")[:1], *changed(0, case_id="07")[:1]],
        "2 rows have a case_id that is not in it; the first: case_id 'y', image 0, caption 0, "
        "score 0.0; case_id '07', image 0, caption 0, score 0.0.",
    ),
    "image too large": (
        changed(2, image=1),
        "1 rows point outside the images or captions; the first: case_id '007', image 1, "
        "caption 2, score 0.25.",
    ),
    "caption too large": (changed(3, caption=2), "1 rows point outside the images or captions"),
    "image below 0": (changed(3, image=-1), "1 rows point outside the images or captions"),
    "caption below 0": (changed(3, caption=-1), "1 rows point outside the images or captions"),
    "no score": (
        changed(3, score=None),
        "1 rows lack a value; the first: case_id '7', image 0, caption 0, score None.",
    ),
    "no id": (changed(3, case_id=None), "1 rows lack a value; the first: case_id None"),
    "no image": (changed(3, image=None), "1 rows lack a value"),
}


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_counted_and_the_first_rows_named(
    what: str, ending: str, mine: str
) -> None:
    found, says = WRONG[what]
    with pytest.raises(DataError, match=re.escape(f"scores.{ending}: {says}")):
        import_scores(write(found, ending), mine, "m", out="run")
    assert not Path("run").exists()


@pytest.mark.parametrize("score", ["NaN", "inf", "-inf"])
@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
def test_a_score_must_be_a_number(score: str, ending: str, mine: str) -> None:
    found = changed(3, score=float(score) if ending == "parquet" else score)
    with pytest.raises(DataError, match=r"1 rows have a non-finite score; .*case_id '7'"):
        import_scores(write(found, ending), mine, "m", out="run")


@pytest.mark.parametrize(
    ("column", "value"), [("score", "high"), ("image", "0.5"), ("caption", "b")]
)
def test_a_text_in_place_of_a_number_names_its_row(column: str, value: str, mine: str) -> None:
    why = rf"scores\.csv: '{column}' should hold (whole )?numbers, in row 4 it is '{value}'\.$"
    with pytest.raises(DataError, match=why):
        import_scores(write(changed(3, **{column: value})), mine, "m", out="run")


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl"])
def test_a_mark_before_the_first_line_is_accepted(ending: str, mine: str) -> None:
    path = Path(write(all_rows(), ending))
    expected = import_scores(path, mine, "m", out="run").parts[mine].scores
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    found = import_scores(path, mine, "m", out="run").parts[mine].scores
    np.testing.assert_array_equal(found, expected)


def test_a_message_is_short_however_long_its_row_is(mine: str) -> None:
    found = [row | {"case_id": "x" * 1_000_000} for row in all_rows()]
    with pytest.raises(DataError, match="case_id that is not in it") as error:
        import_scores(write(found, "parquet"), mine, "m", out="run")
    assert len(str(error.value)) < 2000


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
@pytest.mark.parametrize("column", ["image", "caption"])
def test_half_an_image_is_refused(column: str, ending: str, mine: str) -> None:
    found = [row | {column: row[column] + 0.5} for row in all_rows()]
    with pytest.raises(DataError, match=column):
        import_scores(write(found, ending), mine, "m", out="run")


def test_a_score_too_large_for_the_table_is_refused(mine: str) -> None:
    with pytest.raises(DataError, match="score"):
        import_scores(write(changed(3, score=1e39)), mine, "m", out="run")


@pytest.mark.parametrize("missing", ["case_id", "image", "caption", "score"])
@pytest.mark.parametrize("ending", WRITERS)
def test_a_missing_column_is_named(missing: str, ending: str, mine: str) -> None:
    found = [{k: v for k, v in row.items() if k != missing} for row in all_rows()]
    says = f"the column '{missing}' is missing; it should have case_id, image, caption, score"
    with pytest.raises(DataError, match=says):
        import_scores(write(found, ending), mine, "m", out="run")


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize("content", [b"", b"\x00\xff\xfe broken \x00", b"{"])
def test_a_file_that_is_no_table_is_refused(content: bytes, ending: str, mine: str) -> None:
    path = Path(f"scores.{ending}")
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"scores\.{ending}"):
        import_scores(path, mine, "m", out="run")
    assert not Path("run").exists()


def test_a_header_alone_lacks_everything(mine: str) -> None:
    Path("scores.csv").write_text("case_id,image,caption,score\n")
    with pytest.raises(DataError, match="15 of 15 pairs are missing"):
        import_scores("scores.csv", mine, "m", out="run")


def test_a_file_that_is_not_there_or_of_another_kind(mine: str) -> None:
    with pytest.raises(DataError, match=r"nowhere\.csv: no such file"):
        import_scores("nowhere.csv", mine, "m", out="run")
    Path("scores.xlsx").write_text("x")
    with pytest.raises(DataError, match=r"a table ends in \.csv, \.tsv, \.jsonl or \.parquet"):
        import_scores("scores.xlsx", mine, "m", out="run")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_name_with_brackets_is_a_name(ending: str, mine: str) -> None:
    path = write(all_rows(), ending).rename(f"scores[1].{ending}")
    assert len(scores_of(import_scores(path, mine, "m", out="run"))) == 15


def test_unknown_names_are_explained(mine: str) -> None:
    path = write(all_rows())
    with pytest.raises(NotFoundError, match=r"Did you mean 'strict'\?"):
        import_scores(path, mine, "m", out="run", protocol="stric")
    with pytest.raises(NotFoundError, match=r"Did you mean 'sugarcrepe'\?"):
        import_scores(path, "sugarcrep", "m", out="run")
