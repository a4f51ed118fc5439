"""Scores from elsewhere: every row in its place, or an error that names it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from errors import raises
from hypothesis import given, strategies as st
from support import FEW
from typer.testing import CliRunner

from counterpoint._util.errors import DataError
from counterpoint.benchmarks.registry import load_benchmark
from counterpoint.cli.app import app
from counterpoint.evaluation.evaluating import evaluate
from counterpoint.evaluation.importing import import_scores
from counterpoint.runs import Run, as_json, load_run, rows

Rows = list[dict[str, Any]]
IDS = ("007", "7", "a/0", "x")


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("COUNTERPOINT_DATA", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def mine(tmp_path: Path) -> str:
    """A case of one image, and three of two; no image is there."""
    square = [[True, False], [False, True]]
    cases = [
        {"id": "007", "images": ["0.jpg"], "captions": ["a", "b", "c"], "truth": [[1, 1, 0]]},
        *(
            {"id": id, "images": ["1.jpg", "2.jpg"], "captions": ["a", "b"], "truth": square}
            for id in IDS[1:]
        ),
    ]
    (tmp_path / "mine.jsonl").write_text("\n".join(json.dumps(case) for case in cases))
    return "mine.jsonl"


def all_rows(first: float = 0.0) -> Rows:
    """A score for every pair of `mine`, which counts up."""
    shapes = {"007": (1, 3), "7": (2, 2), "a/0": (2, 2), "x": (2, 2)}
    pairs = [(id, i, c) for id, (k, m) in shapes.items() for i in range(k) for c in range(m)]
    return [
        {"case_id": id, "image": i, "caption": c, "score": first + n / 8}
        for n, (id, i, c) in enumerate(pairs)
    ]


def in_csv(found: Rows, separator: str = ",") -> str:
    lines = [separator.join(found[0])]
    lines += [separator.join("" if v is None else str(v) for v in row.values()) for row in found]
    return "\n".join(lines) + "\n"


WRITERS: dict[str, Callable[[Path, Rows], object]] = {
    "csv": lambda path, found: path.write_text(in_csv(found)),
    "tsv": lambda path, found: path.write_text(in_csv(found, "\t")),
    "jsonl": lambda path, found: path.write_text("\n".join(map(json.dumps, found))),
    "parquet": lambda path, found: pl.DataFrame(found).write_parquet(path),
}


def write(found: Rows, ending: str = "csv") -> Path:
    path = Path(f"scores.{ending}")
    WRITERS[ending](path, found)
    return path


def scores_of(run: Run) -> list[float]:
    [part] = run.parts.values()
    return part.scores.tolist()


# --- every row in its place --------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize("order", ["as it is", "backwards", "shuffled"])
def test_rows_may_come_in_any_form_and_order(ending: str, order: str, mine: str) -> None:
    found = all_rows()
    orders = {
        "as it is": range(len(found)),
        "backwards": range(len(found) - 1, -1, -1),
        "shuffled": np.random.default_rng(0).permutation(len(found)).tolist(),
    }
    path = write([found[n] for n in orders[order]], ending)
    run = import_scores(path, mine, "elsewhere", out="run")
    assert scores_of(run) == [n / 8 for n in range(15)]


@pytest.mark.slow
@FEW
@given(st.permutations(range(15)), st.sampled_from(sorted(WRITERS)))
def test_any_order_gives_the_same_scores(order: list[int], ending: str) -> None:
    square = [[True, False], [False, True]]
    Path("mine.jsonl").write_text(
        "\n".join(
            json.dumps(
                {"id": id, "images": ["1.jpg", "2.jpg"], "captions": ["a", "b"], "truth": square}
                if id != "007"
                else {"id": id, "images": ["1.jpg"], "captions": list("abc"), "truth": [[1, 1, 0]]}
            )
            for id in IDS
        )
    )
    found = all_rows()
    path = write([found[n] for n in order], ending)
    assert scores_of(import_scores(path, "mine.jsonl", "m", out="run")) == [
        n / 8 for n in range(15)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("ending", WRITERS)
def test_ids_stay_texts(ending: str, mine: str) -> None:
    """007 and 7 are two cases, in every form."""
    run = import_scores(write(all_rows(), ending), mine, "m", out="run")
    assert run.parts[mine].cases.ids.to_list() == list(IDS)
    wrong = [row | {"case_id": row["case_id"].lstrip("0")} for row in all_rows()]
    with raises("E-PAIR-UNKNOWN", 1):
        import_scores(write(wrong, ending), mine, "m", out="run")


def test_ids_may_be_numbers_in_jsonl(tmp_path: Path) -> None:
    Path("n.jsonl").write_text(
        json.dumps({"id": 7, "images": ["0.jpg"], "captions": ["a", "b"], "truth": [[1, 0]]})
    )
    found = [{"case_id": 7, "image": 0, "caption": c, "score": 1.0 - c} for c in (0, 1)]
    assert scores_of(import_scores(write(found, "jsonl"), "n.jsonl", "m", out="run")) == [1, 0]


def test_other_columns_and_a_byte_order_mark_are_no_harm(mine: str) -> None:
    found = [{"note": "x", **row, "more": "1"} for row in all_rows()]
    Path("scores.csv").write_text("\ufeff" + in_csv(found), encoding="utf-8")
    run = import_scores("scores.csv", mine, "m", out="run")
    assert scores_of(run) == [n / 8 for n in range(15)]


def test_whole_numbers_are_scores_too(mine: str) -> None:
    found = [row | {"score": n} for n, row in enumerate(all_rows())]
    for ending in WRITERS:
        run = import_scores(write(found, ending), mine, "m", out="run")
        assert scores_of(run) == list(range(15))


# --- the run -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["world-bi:size=8", "world-swap:size=12"])
def test_the_run_equals_one_that_was_evaluated(name: str) -> None:
    """A run's own scores.parquet can be imported."""
    evaluated = evaluate("random", name, out="first")
    import_scores("first/scores.parquet", name, "random", out="second")
    imported = load_run("second")
    assert as_json(rows(imported, resamples=50)) == as_json(rows(evaluated, resamples=50))
    a, b = evaluated.parts[name], imported.parts[name]
    assert np.array_equal(a.scores, b.scores)
    assert a.cases.frame.equals(b.cases.frame)
    assert a.protocol == b.protocol
    described = [run.manifest["benchmarks"][name] for run in (load_run("first"), imported)]
    assert described[0]["data_hash"] == described[1]["data_hash"]
    assert imported.left_out == 0


def test_the_run_says_where_it_is_from(mine: str) -> None:
    run = import_scores(write(all_rows()), mine, "my/model:1", out="run")
    manifest = json.loads(Path("run/run.json").read_text())
    assert (manifest["model"], manifest["model_info"]) == (
        "my/model:1",
        {"imported_from": "scores.csv"},
    )
    before = manifest["fingerprint"]
    write(all_rows(1.0))
    import_scores("scores.csv", mine, "my/model:1", out="run")
    assert json.loads(Path("run/run.json").read_text())["fingerprint"] != before
    assert run.folder == Path("run")


def test_without_out_the_run_is_named_after_model_and_benchmark(mine: str) -> None:
    run = import_scores(write(all_rows()), mine, "my/model:1")
    assert run.folder == Path("runs/my-model-1-mine.jsonl-imported")
    assert load_run(run.folder).model == "my/model:1"


GOLDEN = {  # image by image: captions 0 and 1
    "both": ((2, 1), (1, 2)),
    "only I2T": ((5, 4), (6, 7)),
    "only T2I": ((5, 6), (4, 7)),
    "neither": ((1, 2), (2, 1)),
    "tie in I2T": ((5, 5), (4, 6)),
}
COUNTS = {"both": 4, "only I2T": 3, "only T2I": 2, "neither": 1}


def write_squares(blocks: list[tuple[tuple[int, int], ...]]) -> str:
    """BiVLC's shape, and a table of scores for it."""
    lines, found = [], []
    for number, block in enumerate(blocks):
        case = {"id": str(number), "images": [f"{number}-0.jpg", f"{number}-1.jpg"]}
        case |= {"captions": ["a b", "b a"], "truth": [[True, False], [False, True]]}
        lines.append(json.dumps(case))
        found += [
            {"case_id": str(number), "image": i, "caption": c, "score": block[i][c] / 10}
            for c in (0, 1)
            for i in (0, 1)
        ]
    Path("squares.jsonl").write_text("\n".join(lines))
    write(found)
    return "squares.jsonl"


def values(run: Run) -> dict[str, float]:
    return {row.metric: row.value for row in rows(run, resamples=10) if row.group == "all"}


def test_known_scores_give_known_numbers() -> None:
    blocks = [GOLDEN[name] for name, count in COUNTS.items() for _ in range(count)]
    found = values(
        import_scores("scores.csv", write_squares(blocks), "m", out="r", protocol="bivlc")
    )
    assert found["image_to_text"] == pytest.approx(0.7)
    assert found["text_to_image"] == pytest.approx(0.6)
    assert found["group"] == pytest.approx(0.4)
    assert found["image_to_text_0"] == pytest.approx(0.7)  # 5 < 6 of "only T2I" is image 0
    assert found["image_to_text_1"] == pytest.approx(0.9)
    assert found["text_to_image_0"] == pytest.approx(0.6)
    assert found["text_to_image_1"] == pytest.approx(0.9)


def test_a_tie_is_wrong_or_right_as_the_protocol_says() -> None:
    benchmark = write_squares([GOLDEN["tie in I2T"]] * 2)
    strict = values(import_scores("scores.csv", benchmark, "m", out="a", protocol="bivlc"))
    half = values(import_scores("scores.csv", benchmark, "m", out="b", protocol="half"))
    assert (strict["image_to_text"], strict["text_to_image"]) == (0, 1)
    assert (half["image_to_text"], half["text_to_image"]) == (0.5, 1)


def test_only_what_the_protocol_scores_is_asked_for(tmp_path: Path) -> None:
    """VL-CheckList's first 1,000: a table of more, or of fewer, is refused."""
    folder = tmp_path / "vl_checklist/Attribute/vg"
    folder.mkdir(parents=True)
    entries = [["VG_100K/1.jpg", {"POS": [f"a {n}"], "NEG": [f"b {n}"]}] for n in range(1002)]
    (folder / "size.json").write_text(json.dumps(entries))
    found = [
        {"case_id": f"Attribute/vg/size/{n}", "image": 0, "caption": c, "score": n + c}
        for n in range(1002)
        for c in (0, 1)
    ]
    path = write(found[:2000])
    run = import_scores(path, "vl-checklist", "m", data=tmp_path, out="run")
    assert len(run.parts["vl-checklist"].cases) == 1000
    with raises("E-CASE-UNKNOWN", 4):
        import_scores(write(found), "vl-checklist", "m", data=tmp_path, out="run")


# --- what is wrong -----------------------------------------------------------------------------


def changed(number: int, **changes: Any) -> Rows:
    found = all_rows()
    found[number] |= changes
    return found


WRONG: dict[str, tuple[Rows, str, dict[str, object]]] = {
    "missing": (
        all_rows()[:3] + all_rows()[5:],
        "E-PAIR-MISSING",
        {"count": 2, "first": "7"},
    ),
    "many missing": (all_rows()[:-5], "E-PAIR-MISSING", {"count": 5, "first": "a/0"}),
    "twice": (
        [*all_rows(), all_rows()[4]],
        "E-PAIR-REPEATED",
        {"count": 2, "first": "7"},
    ),
    "unknown": (
        [*all_rows(), *changed(0, case_id="y")[:1], *changed(0, case_id="07")[:1]],
        "E-CASE-UNKNOWN",
        {"count": 2, "first": "y"},
    ),
    "image too large": (
        changed(2, image=1),
        "E-PAIR-UNKNOWN",
        {"count": 1, "first": "007"},
    ),
    "caption too large": (changed(3, caption=2), "E-PAIR-UNKNOWN", {"count": 1}),
    "image below 0": (changed(3, image=-1), "E-PAIR-UNKNOWN", {"count": 1}),
    "caption below 0": (changed(3, caption=-1), "E-PAIR-UNKNOWN", {"count": 1}),
    "no score": (changed(3, score=None), "E-VALUE-MISSING", {"count": 1, "first": "7"}),
    "no id": (changed(3, case_id=None), "E-VALUE-MISSING", {"count": 1}),
    "no image": (changed(3, image=None), "E-VALUE-MISSING", {"count": 1}),
}


@pytest.mark.slow
@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_counted_and_the_first_rows_named(
    what: str, ending: str, mine: str
) -> None:
    found, code, data = WRONG[what]
    with raises(code, Path(f"scores.{ending}"), *data.values()):
        import_scores(write(found, ending), mine, "m", out="run")
    assert not Path("run").exists()


@pytest.mark.parametrize("score", ["NaN", "inf", "-inf"])
@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
def test_a_score_must_be_a_number(score: str, ending: str, mine: str) -> None:
    found = changed(3, score=float(score) if ending == "parquet" else score)
    with raises("E-SCORE-NON-FINITE", 1):
        import_scores(write(found, ending), mine, "m", out="run")


@pytest.mark.parametrize(
    ("column", "value"), [("score", "high"), ("image", "0.5"), ("caption", "b")]
)
def test_a_text_in_place_of_a_number_names_its_row(column: str, value: str, mine: str) -> None:
    with raises("E-VALUE-INVALID", column, 4):
        import_scores(write(changed(3, **{column: value})), mine, "m", out="run")


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl"])
def test_a_mark_before_the_first_line_is_accepted(ending: str, mine: str) -> None:
    path = Path(write(all_rows(), ending))
    expected = import_scores(path, mine, "m", out="run").parts[mine].scores
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    found = import_scores(path, mine, "m", out="run").parts[mine].scores
    np.testing.assert_array_equal(found, expected)


def test_a_message_is_short_however_long_its_row_is(mine: str) -> None:
    found = [row | {"case_id": "x" * 1_000_000} for row in all_rows()]
    with raises("E-CASE-UNKNOWN", 15) as error:
        import_scores(write(found, "parquet"), mine, "m", out="run")
    assert len(str(error.value)) < 2000


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
@pytest.mark.parametrize("column", ["image", "caption"])
def test_half_an_image_is_refused(column: str, ending: str, mine: str) -> None:
    found = [row | {column: row[column] + 0.5} for row in all_rows()]
    with raises("E-VALUE-INVALID", column, 1):
        import_scores(write(found, ending), mine, "m", out="run")


def test_a_score_too_large_for_the_table_is_refused(mine: str) -> None:
    with raises("E-SCORE-TOO-LARGE", 1):
        import_scores(write(changed(3, score=1e39)), mine, "m", out="run")


@pytest.mark.parametrize("missing", ["case_id", "image", "caption", "score"])
@pytest.mark.parametrize("ending", WRITERS)
def test_a_missing_column_is_named(missing: str, ending: str, mine: str) -> None:
    found = [{k: v for k, v in row.items() if k != missing} for row in all_rows()]
    with raises("E-COLUMN-MISSING", Path(f"scores.{ending}"), missing):
        import_scores(write(found, ending), mine, "m", out="run")


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize("content", [b"", b"\x00\xff\xfe broken \x00", b"{"])
def test_a_file_that_is_no_table_is_refused(content: bytes, ending: str, mine: str) -> None:
    path = Path(f"scores.{ending}")
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        import_scores(path, mine, "m", out="run")
    assert caught.value.code in ("E-FILE-MALFORMED", "E-COLUMN-MISSING")
    assert str(path) in str(caught.value)
    assert not Path("run").exists()


def test_a_header_alone_lacks_everything(mine: str) -> None:
    Path("scores.csv").write_text("case_id,image,caption,score\n")
    with raises("E-PAIR-MISSING", 15):
        import_scores("scores.csv", mine, "m", out="run")


def test_a_file_that_is_not_there_or_of_another_kind(mine: str) -> None:
    with raises("E-FILE-MISSING", Path("nowhere.csv")):
        import_scores("nowhere.csv", mine, "m", out="run")
    Path("scores.xlsx").write_text("x")
    with raises("E-FILE-FORMAT", Path("scores.xlsx")):
        import_scores("scores.xlsx", mine, "m", out="run")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_name_with_brackets_is_a_name(ending: str, mine: str) -> None:
    path = write(all_rows(), ending).rename(f"scores[1].{ending}")
    assert len(scores_of(import_scores(path, mine, "m", out="run"))) == 15


def test_unknown_names_are_explained(mine: str) -> None:
    path = write(all_rows())
    with raises("E-PROTOCOL-UNKNOWN", "stric"):
        import_scores(path, mine, "m", out="run", protocol="stric")
    with raises("E-BENCHMARK-UNKNOWN", "sugarcrep"):
        import_scores(path, "sugarcrep", "m", out="run")


# --- what stands where the run goes ------------------------------------------------------------


@pytest.mark.parametrize("what", ["a folder", "a file"])
def test_what_is_no_run_is_not_overwritten(what: str, mine: str) -> None:
    place = Path("run")
    if what == "a file":
        place.write_text("precious")
    else:
        place.mkdir()
        (place / "precious.txt").write_text("precious")
    with raises("E-OUTPUT-EXISTS"):
        import_scores(write(all_rows()), mine, "m", out="run")
    kept = place if what == "a file" else place / "precious.txt"
    assert kept.read_text() == "precious"


def test_an_older_run_is_replaced_and_a_failure_leaves_it(mine: str) -> None:
    import_scores(write(all_rows()), mine, "m", out="run")
    with raises("E-PAIR-MISSING", 1):
        import_scores(write(all_rows()[1:]), mine, "m", out="run")
    assert scores_of(load_run("run"))[0] == 0
    import_scores(write(all_rows(1.0)), mine, "m", out="run")
    assert scores_of(load_run("run"))[0] == 1


# --- the command -------------------------------------------------------------------------------


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["import", *arguments])


@pytest.mark.slow
def test_the_command_prints_what_rescore_prints(mine: str) -> None:
    path = str(write(all_rows()))
    done = invoke(path, "-b", mine, "--name", "elsewhere", "--out", "run", "--json")
    assert done.exit_code == 0
    assert done.stdout == CliRunner().invoke(app, ["rescore", "run", "--json"]).stdout
    assert {row["model"] for row in json.loads(done.stdout)} == {"elsewhere"}
    shown = invoke(path, "-b", mine, "--name", "elsewhere", "--out", "run")
    assert "elsewhere" in shown.stdout and "saved run\n" in shown.stdout
    assert done.stderr == shown.stderr == ""


@pytest.mark.slow
def test_the_command_takes_data_protocol_and_groups(tmp_path: Path) -> None:
    subsets = ["add_att", "add_obj", "replace_att", "replace_obj", "replace_rel"]
    subsets += ["swap_att", "swap_obj"]
    (tmp_path / "sugarcrepe").mkdir()
    for subset in subsets:
        case = {"filename": "1.jpg", "caption": "a", "negative_caption": "b"}
        (tmp_path / f"sugarcrepe/{subset}.json").write_text(json.dumps({"0": case}))
    found = [
        {"case_id": f"{subset}/0", "image": 0, "caption": c, "score": 0}
        for subset in subsets
        for c in (0, 1)
    ]
    path = str(write(found))
    command = (path, "-b", "sugarcrepe", "--name", "m", "--data", str(tmp_path), "--out", "run")
    done = invoke(*command, "--protocol", "half", "--groups")
    assert done.exit_code == 3  # seven of 7,511 cases
    done = invoke(*command, "--protocol", "half", "--groups", "--allow-missing")
    assert done.exit_code == 0
    assert "replace/rel" in done.stdout and "Protocol half" in done.stdout
    [cases] = [part.cases for part in load_run("run").parts.values()]
    assert cases.frame.equals(load_benchmark("sugarcrepe", tmp_path).cases.frame)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"score": None}, "E-VALUE-MISSING"),
        ({"case_id": "y"}, "E-CASE-UNKNOWN"),
        ({"image": 9}, "E-PAIR-UNKNOWN"),
    ],
)
def test_errors_are_one_line(change: dict[str, Any], code: str, mine: str) -> None:
    path = str(write(changed(1, **change)))
    done = invoke(path, "-b", mine, "--name", "m", "--out", "run")
    assert (done.exit_code, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("error: scores.csv: ") and line.endswith(f"[{code}]")


@pytest.mark.parametrize("missing", ["-b", "--name"])
def test_benchmark_and_name_must_be_given(missing: str, mine: str) -> None:
    options = {"-b": mine, "--name": "m"}
    del options[missing]
    done = invoke("scores.csv", *(part for pair in options.items() for part in pair))
    assert done.exit_code == 2
