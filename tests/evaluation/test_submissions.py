"""`board check`: what was sent is computed again, and what differs is refused."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from changed_runs import change_table
from cli_support import counterpoint, own_place
from columns_support import zoo
from hypothesis import given, strategies as st
from support import FEW, case, part, random_run, random_scores, run_of, table

from counterpoint.benchmarks import absent_from
from counterpoint.cases import Absent, Cases, without_images
from counterpoint.cli.console import print_json
from counterpoint.evaluation import (
    check_submission,
    evaluate,
    find_submissions,
    prepare,
    write_results,
)
from counterpoint.evaluation.submissions import _same
from counterpoint.metrics import PROTOCOLS
from counterpoint.runs import Part, Run, as_json, rows, save_run

__all__ = ["counterpoint", "own_place"]  # fixtures
FILES = ("run.json", "cases.parquet", "scores.parquet", "results.json")


def submit(run: Run, folder: Path) -> Path:
    saved = save_run(run, folder)
    write_results(rows(saved, resamples=50), folder)
    return folder


def check(folder: Path, **options: Any) -> list[str]:
    return list(check_submission(folder, resamples=50, **options).differences)


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two benchmarks: one of captions, one with every kind of case."""
    captions, kinds = table(40), zoo()
    run = run_of(
        part(captions, random_scores(captions, 1), name="captions"),
        part(kinds, random_scores(kinds, 2), name="kinds"),
    )
    return submit(run, tmp_path_factory.mktemp("right") / "run")


@pytest.fixture
def folder(right: Path, tmp_path: Path) -> Path:
    """A copy, to be damaged."""
    return Path(shutil.copytree(right, tmp_path / "run"))


def change_results(folder: Path, change: Callable[[list[Any]], Any]) -> None:
    path = folder / "results.json"
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))


def swapped(scores: pl.DataFrame) -> pl.DataFrame:
    """The scores of a true and of a false caption, exchanged."""
    first, true, false, *rest = scores["score"].to_list()
    new = [first, false, true, *rest]
    return scores.with_columns(score=pl.Series(new, dtype=scores["score"].dtype))


# --- what is right -------------------------------------------------------------------------------


def test_every_number_of_a_submission_is_computed_again(right: Path) -> None:
    found = check_submission(right, resamples=50)
    assert found.differences == () and found.notes == ()
    assert found.numbers == len(json.loads((right / "results.json").read_text())) > 100


@FEW
@given(seed=st.integers(0, 1000), ties=st.integers(1, 20), which=st.data())
def test_what_the_scores_give_is_accepted_and_a_changed_number_is_not(seed, ties, which) -> None:
    run = random_run(table(20), seed, values=ties)
    claims = as_json(rows(run, resamples=20))
    again = as_json(rows(run, resamples=20))
    row = which.draw(st.sampled_from(again))
    for claim, found in zip(claims, again, strict=True):
        for key in ("value", "ci_low", "ci_high", "chance"):
            short = None if claim[key] is None else float(f"{claim[key]:.6g}")  # as it is printed
            assert _same(claim[key], found[key]) and _same(short, found[key])
    for key in ("value", "ci_low", "ci_high"):
        if row[key] is not None:
            changed = row[key] + 2e-4 * max(1, abs(row[key]))
            assert not _same(changed, row[key]) and not _same(None, row[key])
    assert not _same(row["n"] + 1, row["n"]) and not _same(True, 1.0)


def test_the_numbers_that_rescore_prints_are_a_submission(counterpoint) -> None:
    evaluate("random", ["world-swap:size=40"], out="runs/one")
    printed = counterpoint("rescore", "runs/one", "--json")
    Path("runs/one/results.json").write_text(printed.out)
    done = counterpoint("board", "check", "runs/one")
    assert done.code == 0 and "differ" not in done.err
    count = len(json.loads(printed.out))
    same = f"runs/one: {count} numbers computed again, all the same"
    assert done.out == f"{same}; the cases are as sent (--data compares them)\n"
    assert counterpoint("board", "check", "runs/one", "--data", ".").out == f"{same}\n"


# --- what is refused -----------------------------------------------------------------------------


def test_a_changed_score_is_refused(folder: Path) -> None:
    swapped(pl.read_parquet(folder / "scores.parquet")).write_parquet(folder / "scores.parquet")
    [said] = check(folder)
    assert "scores.parquet is not the file that run.json describes" in said


def test_a_changed_score_is_refused_though_its_digest_is_changed_too(folder: Path) -> None:
    change_table(folder, "scores.parquet", swapped)
    found = check(folder)
    assert found and all("results.json: 'captions'" in said for said in found)
    assert any("'all', 'mean_score_negative': value is" in said for said in found)


@pytest.mark.parametrize("key", ["value", "ci_low", "ci_high", "n", "ties", "chance"])
def test_a_changed_number_is_refused(folder: Path, key: str) -> None:
    def change(claims: list[Any]) -> None:
        [row] = [r for r in claims if (r["group"], r["metric"]) == ("swap", "augmented_accuracy")]
        row[key] = row[key] + (1 if key in ("n", "ties") else 0.001)

    change_results(folder, change)
    [said] = check(folder)
    assert f"'captions', 'swap', 'augmented_accuracy': {key} is " in said and said.endswith(".")


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_refused(folder: Path, name: str) -> None:
    (folder / name).unlink()
    [said] = check(folder)
    assert name in said


@pytest.mark.parametrize("name", FILES)
def test_a_broken_file_is_refused(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    [said] = check(folder)
    assert name in said


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no pipes of that kind")
@pytest.mark.parametrize("name", FILES)
def test_a_pipe_is_not_waited_for_and_a_device_not_read(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    [said] = check(folder)
    assert name in said
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    [said] = check(folder)
    assert name in said


def test_results_that_are_no_rows_are_refused(folder: Path) -> None:
    for text in [
        "",
        "[]",
        "{}",
        "[1]",
        '[{"benchmark": "captions"}]',
        '[{"benchmark": 1}]',
        "\udc80",
    ]:
        (folder / "results.json").write_bytes(text.encode("utf-8", "surrogateescape"))
        [said] = check(folder)
        assert said.endswith("[E-RESULTS-FORMAT]") and "counterpoint rescore" in said


def test_a_number_that_does_not_follow_from_the_scores_is_refused(folder: Path) -> None:
    row = {"benchmark": "captions", "group": "all", "metric": "group", "value": 1.0, "n": 40}
    change_results(folder, lambda claims: claims.append(row))
    [said] = check(folder)
    assert "'captions', 'all', 'group' does not follow from the scores" in said


def test_numbers_of_another_model_are_refused(folder: Path) -> None:
    change_results(folder, lambda claims: claims[0].update(model="better"))
    [said] = check(folder)
    assert "is of 'better', and the run of model" in said


def test_changed_cases_are_refused(folder: Path) -> None:
    def reworded(cases: pl.DataFrame) -> pl.DataFrame:
        new = pl.when(pl.col("benchmark") == "captions").then(
            pl.col("captions").list.eval(pl.element() + "!")
        )
        return cases.with_columns(captions=new.otherwise("captions"))

    change_table(folder, "cases.parquet", reworded)
    [said] = check(folder)
    assert "the cases of 'captions' are not those of the data_hash" in said


def test_cases_that_are_not_those_of_the_benchmark_are_refused_with_its_data(tmp_path) -> None:
    """Every hash of the folder fits: only the benchmark itself can tell."""
    run = evaluate("random", ["world-swap:size=30"], out=tmp_path / "made")
    [name] = run.parts
    own = run.parts[name]
    assert check(submit(run, tmp_path / "right"), data=tmp_path) == []
    frame = own.cases.frame.with_columns(pl.col("captions").list.reverse())
    other = replace(own, cases=Cases(frame, None), data_hash="")
    folder = submit(replace(run, parts={name: other}), tmp_path / "other")
    assert check(folder) == []
    [said] = check(folder, data=tmp_path)
    assert f"'{name}' has other cases than the data in" in said


def by_its_id(tmp_path: Path, name: str = "world-swap:size=30", **options: Any) -> tuple[Run, Part]:
    run = evaluate("random", [name], out=tmp_path / "made", store=tmp_path / "store", **options)
    return run, run.parts[name]


def sent(run: Run, part: Part, folder: Path, **told: Any) -> Path:
    """A submission of a run whose part was changed."""
    changed = replace(run, parts={part.benchmark: part}, manifest={**run.manifest, **told})
    return submit(changed, folder)


@pytest.mark.parametrize("told", ["left out", "limit", "absent"])
def test_what_is_said_to_be_missing_does_not_hide_other_cases(tmp_path: Path, told: str) -> None:
    """Easy cases in the place of hard ones, and one case that is left out, limited or absent."""
    run, part = by_its_id(tmp_path)
    fewer = part.take(np.arange(29))
    gone = str(part.cases.ids[29])
    options = {"options": {"limit": 29}} if told == "limit" else {}
    stated = {
        "left out": {"left_out": ((gone, "no such file"),)},
        "limit": {"cases": prepare(part.cases, part.protocol, 29), "data_hash": ""},
        "absent": {"absent": (Absent(gone, "file missing", 1),), "data_hash": ""},
    }[told]
    honest = replace(fewer, **stated)
    assert check(sent(run, honest, tmp_path / "honest", **options), data=tmp_path) == []
    easy = honest.cases.frame.with_columns(pl.col("captions").list.reverse())
    other = replace(honest, cases=Cases(easy, None))
    said = check(sent(run, other, tmp_path / "easy", **options), data=tmp_path)
    assert any(
        "has other cases than the data in" in one and ": 29, the first" in one for one in said
    )


def test_cases_that_are_passed_over_or_made_up_are_refused_with_the_data(tmp_path: Path) -> None:
    run, part = by_its_id(tmp_path)
    fewer = replace(part.take(np.arange(20)), data_hash="")
    [said] = check(sent(run, fewer, tmp_path / "fewer"), data=tmp_path)
    assert "lacks cases that are in the data" in said and ": 10, the first" in said
    partly = replace(fewer, absent=(Absent("x", "rows missing", 9),))
    [said] = check(sent(run, partly, tmp_path / "partly"), data=tmp_path)
    assert "run.json does not say so" in said
    renamed = fewer.cases.frame.with_columns(pl.col("id") + "'")
    invented = replace(fewer, cases=Cases(renamed, None))
    said = check(sent(run, invented, tmp_path / "invented"), data=tmp_path)
    assert any(
        "has cases that are not in the data" in one and "20, the first" in one for one in said
    )
    unknown = replace(part, left_out=(("nothing", "no such file"),))
    [said] = check(sent(run, unknown, tmp_path / "unknown"), data=tmp_path)
    assert "not in the data" in said and "'nothing'" in said
    twice = replace(part, left_out=((str(part.cases.ids[0]), "no such file"),))
    [said] = check(sent(run, twice, tmp_path / "twice"), data=tmp_path)
    assert "has other cases" in said


def test_a_hash_that_is_not_of_the_data_is_refused_though_a_case_is_left_out(tmp_path) -> None:
    run, part = by_its_id(tmp_path)
    left_out = ((str(part.cases.ids[29]), "no such file"),)
    left = replace(part.take(np.arange(29)), left_out=left_out)
    assert check(sent(run, left, tmp_path / "right"), data=tmp_path) == []
    wrong = replace(left, data_hash="0" * 64)
    [said] = check(sent(run, wrong, tmp_path / "wrong"), data=tmp_path)
    assert "another data_hash in run.json" in said


def test_a_gallery_without_lost_images_is_compared_with_the_data(tmp_path: Path) -> None:
    run, part = by_its_id(tmp_path, "world-retrieval:size=20")
    kept = without_images(part.cases, {0: {3, 7}})
    lost = tuple((str(part.cases.ids[0]), f"no such file: {k}") for k in (3, 7))
    left = replace(part, cases=kept.cases, scores=part.scores[kept.pairs], left_out_images=lost)
    assert check(sent(run, left, tmp_path / "right"), data=tmp_path) == []
    fewer = replace(left, left_out_images=lost[:1])
    assert "has other cases" in check(sent(run, fewer, tmp_path / "fewer"), data=tmp_path)[0]
    captions = kept.cases.frame.with_columns(pl.col("captions").list.reverse())
    other = replace(left, cases=Cases(captions, None))
    assert "has other cases" in check(sent(run, other, tmp_path / "other"), data=tmp_path)[0]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("tie", {"tie": "right"}),
        ("exclude", {"exclude": frozenset({"swap/att"})}),
        ("average", {"average": "macro"}),
        ("min_count", {"min_count": 20}),
        ("skip", {"skip": frozenset({"x"})}),
        ("overlong", {"overlong": "cut"}),
    ],
)
def test_a_protocol_is_the_one_of_its_name(tmp_path: Path, name: str, change: Any) -> None:
    cases = table(20)
    under = part(cases, random_scores(cases, 1), "strict")
    changed = replace(under, protocol=replace(PROTOCOLS["strict"], **change))
    folder = submit(run_of(changed), tmp_path / "run")
    said = check(folder)
    assert len(said) == 1 and f"has the protocol 'strict' with {name} " in said[0]
    own = replace(under, protocol=replace(PROTOCOLS["strict"], name="mine"))
    [said] = check(submit(run_of(own), tmp_path / "own"))
    assert "'mine', which is no protocol of Counterpoint" in said


def test_an_option_that_does_not_exist_is_refused_with_the_data(tmp_path: Path) -> None:
    run, part = by_its_id(tmp_path)
    other = replace(part, benchmark="world-swap:easy=1")
    [said] = check(sent(run, other, tmp_path / "run"), data=tmp_path)
    assert "is no benchmark: " in said


def test_an_id_does_not_choose_files_of_this_machine(tmp_path: Path) -> None:
    """A case file, or a file of positives: nothing is read, though both are there."""
    file = tmp_path / "own.jsonl"
    file.write_text("secret")
    cases = table(20)
    for name in (str(file), f"sugarcrepe+hp:positives={file}"):
        run = run_of(part(cases, random_scores(cases, 1), name=name))
        limited = replace(run, manifest={"options": {"limit": 20}})
        found = check_submission(submit(limited, tmp_path / "run"), data=tmp_path, resamples=50)
        assert found.differences == () and "was not compared with the data" in found.notes[-1]
        shutil.rmtree(tmp_path / "run")


def test_a_folder_without_its_run_json_is_not_passed_over(right: Path, tmp_path: Path) -> None:
    shutil.copytree(right, tmp_path / "results/one")
    shutil.copytree(right, tmp_path / "results/two")
    (tmp_path / "results/two/run.json").unlink()
    found = find_submissions(tmp_path / "results")
    assert [f.name for f in found] == ["one", "two"]
    assert [bool(check(f)) for f in found] == [False, True]
    assert find_submissions(tmp_path / "results/two") == [tmp_path / "results/two"]


def test_a_number_that_is_cut_or_there_twice_is_refused(folder: Path) -> None:
    def one(claims: list[Any]) -> None:
        claims[:] = [row for row in claims if row["metric"] == "brittleness"]

    before = (folder / "results.json").read_text()
    change_results(folder, one)
    [said] = check(folder)
    assert "of the numbers of this run, the first is 'captions', 'all', 'original_accuracy'" in said
    (folder / "results.json").write_text(before)
    change_results(folder, lambda claims: claims.append(claims[0]))
    [said] = check(folder)
    assert said.endswith("is there 2 times; write the file again.")
    (folder / "results.json").write_text(before.replace('"value":', '"value": 1.0, "value":', 1))
    [said] = check(folder)
    assert "the key 'value' is there twice" in said and said.endswith("[E-RESULTS-FORMAT]")


def test_a_run_json_that_says_something_twice_is_refused(folder: Path) -> None:
    path = folder / "run.json"
    path.write_text(path.read_text().replace('"model":', '"model": "better", "model":', 1))
    [said] = check(folder)
    assert "the key 'model' is there twice" in said and said.endswith("[E-RUN-DAMAGED]")


# --- a part of a published benchmark -------------------------------------------------------------


def winoground(count: int) -> Run:
    """The first cases of a benchmark of 400, by its id."""
    cases = Cases.build([case(i) for i in range(count)], source="test")
    return run_of(part(cases, random_scores(cases, 1), "bivlc", name="winoground"))


def test_a_part_that_claims_to_be_the_benchmark_is_refused_and_says_what_is_absent(tmp_path):
    [said] = check(submit(winoground(30), tmp_path / "run"))
    assert "'winoground' is not the whole benchmark: 30 cases scored, the whole" in said
    assert "absent: rows missing: 370 cases" in said and "run.json does not say so" in said
    assert check(submit(winoground(400), tmp_path / "whole")) == []


def test_a_part_that_says_so_is_accepted_with_a_note(tmp_path: Path) -> None:
    run = winoground(30)
    limited = replace(run, manifest={**run.manifest, "options": {"limit": 30}})
    own = run.parts["winoground"]
    absent = absent_from("winoground", own.cases, PROTOCOLS["bivlc"])
    told = replace(run, parts={"winoground": replace(own, absent=absent)})
    for name, sent in (("limited", limited), ("told", told)):
        found = check_submission(submit(sent, tmp_path / name), resamples=50)
        [note] = found.notes
        assert found.differences == () and "absent: rows missing: 370 cases" in note
    few = replace(own, absent=(absent[0]._replace(cases=1),))  # it lacks 370
    found = check(submit(replace(run, parts={"winoground": few}), tmp_path / "few"))
    assert len(found) == 1


# --- the command ---------------------------------------------------------------------------------


def test_the_command_refuses_and_names_each_difference_once(right, tmp_path, counterpoint):
    shutil.copytree(right, tmp_path / "results/good")
    # The intervals of the fixture have fewer resamples than the command takes.
    for file in tmp_path.glob("results/*/results.json"):
        kept = [
            {k: v for k, v in row.items() if k in ("benchmark", "group", "metric")}
            for row in json.loads(file.read_text())[:1]
        ]
        file.write_text(json.dumps(kept))  # one number of many, and without its value
    done = counterpoint("board", "check", "results")
    [said] = done.err.splitlines()[-1:]
    assert done.code == 1 and "value is None, the scores give" in said
    assert "results/good: refused, 2 differences" in done.out
    done = counterpoint("board", "check", "results", "--json")
    [row] = json.loads(done.out)
    assert done.code == 1 and len(row["differences"]) == 2 and row["model"] == "model"
    assert counterpoint("board", "check").code == 2
    assert "E-RUN-MISSING" in counterpoint("board", "check", "nothing").err


def test_json_of_the_console_is_what_the_check_reads(capsys, tmp_path: Path) -> None:
    run = random_run(table(20), 3)
    save_run(run, tmp_path / "run")
    capsys.readouterr()
    print_json(as_json(rows(run, resamples=50)))
    (tmp_path / "run/results.json").write_text(capsys.readouterr().out)
    assert check(tmp_path / "run") == []
