"""Scores from elsewhere: every row in its place, and the run that they make."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from import_support import (
    IDS,
    WRITERS,
    all_rows,
    changed,
    in_csv,
    mine,
    own_place,
    scores_of,
    write,
)
from support import FEW
from typer.testing import CliRunner

from counterpoint.benchmarks import load_benchmark
from counterpoint.cli import app
from counterpoint.errors import DataError, RunError
from counterpoint.evaluation import evaluate
from counterpoint.importing import import_scores
from counterpoint.results import as_json, rows
from counterpoint.runs import Run, load_run

__all__ = ["mine", "own_place"]  # fixtures

# --- every row in its place --------------------------------------------------------------------


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


@pytest.mark.parametrize("ending", WRITERS)
def test_ids_stay_texts(ending: str, mine: str) -> None:
    """007 and 7 are two cases, in every form."""
    run = import_scores(write(all_rows(), ending), mine, "m", out="run")
    assert run.parts[mine].cases.ids.to_list() == list(IDS)
    wrong = [row | {"case_id": row["case_id"].lstrip("0")} for row in all_rows()]
    with pytest.raises(DataError, match=r"1 rows point outside .* case_id '7', image 0, caption 2"):
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


@pytest.mark.parametrize("name", ["world-bi:size=8", "world-swap:size=12"])
def test_the_run_equals_one_that_was_evaluated(name: str) -> None:
    """A run's own scores.parquet can be imported."""
    [evaluated] = evaluate("random", name, out="first")
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
    with pytest.raises(DataError, match=r"4 rows have a case_id that is not in it"):
        import_scores(write(found), "vl-checklist", "m", data=tmp_path, out="run")


# --- what stands where the run goes ------------------------------------------------------------


@pytest.mark.parametrize("what", ["a folder", "a file"])
def test_what_is_no_run_is_not_overwritten(what: str, mine: str) -> None:
    place = Path("run")
    if what == "a file":
        place.write_text("precious")
    else:
        place.mkdir()
        (place / "precious.txt").write_text("precious")
    with pytest.raises(RunError, match="exists and is no run folder"):
        import_scores(write(all_rows()), mine, "m", out="run")
    kept = place if what == "a file" else place / "precious.txt"
    assert kept.read_text() == "precious"


def test_an_older_run_is_replaced_and_a_failure_leaves_it(mine: str) -> None:
    import_scores(write(all_rows()), mine, "m", out="run")
    with pytest.raises(DataError):
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
    assert cases.frame.equals(load_benchmark("sugarcrepe", tmp_path)[1].frame)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"score": None}, "1 rows lack a value"),
        ({"case_id": "y"}, "1 rows have a case_id that is not in it"),
        ({"image": 9}, "1 rows point outside"),
    ],
)
def test_errors_are_one_line(change: dict[str, Any], says: str, mine: str) -> None:
    path = str(write(changed(1, **change)))
    done = invoke(path, "-b", mine, "--name", "m", "--out", "run")
    assert (done.exit_code, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("error: scores.csv: ") and says in line


@pytest.mark.parametrize("missing", ["-b", "--name"])
def test_benchmark_and_name_must_be_given(missing: str, mine: str) -> None:
    options = {"-b": mine, "--name": "m"}
    del options[missing]
    done = invoke("scores.csv", *(part for pair in options.items() for part in pair))
    assert done.exit_code == 2
