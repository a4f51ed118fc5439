"""Defects: what is wrong with cases, found as plain loops find it, and numbers without them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from support import FEW, part, random_scores, run_of
from typer.testing import CliRunner

from counterpoint.cases import Case, Cases, ImageRef, caption_case
from counterpoint.cli.app import app
from counterpoint.evaluation import evaluate, with_clean
from counterpoint.evaluation.doctor import GENERAL, find_defects
from counterpoint.runs import load_run, rows


def triple(number: int, *captions: str, positives: int = 2, group: str = "g") -> Case:
    image = ImageRef(f"{number // 2}.jpg")
    return caption_case(str(number), image, captions[:positives], captions[positives:], (group,))


def marks(find: Callable[[Cases], np.ndarray], *cases: Case) -> list[bool]:
    return find(Cases.build(cases, source="test")).tolist()


# --- each defect -------------------------------------------------------------------------------


def test_a_crop_is_another_image() -> None:
    boxes = [None, (0, 0, 5, 5), (0, 0, 5, 6), (0, 0, 5, 5)]
    found = [
        caption_case(str(n), ImageRef("0.jpg", box), ["a"], ["b"]) for n, box in enumerate(boxes)
    ]
    assert marks(GENERAL["repeats an earlier case"], *found) == [False, False, False, True]


def test_galleries_are_not_looked_at() -> None:
    """Retrieval and classification share captions, and nothing is wrong with that."""
    images = tuple(ImageRef(f"{n}.jpg") for n in range(6))
    truth = tuple(tuple(i == j for j in range(6)) for i in range(6))
    gallery = Case("0", images, ("same",) * 6, truth)
    found = [marks(find, gallery) for what, find in GENERAL.items() if "repeats" not in what]
    assert found == [[False]] * 3


# --- against loops -----------------------------------------------------------------------------

WORDS = st.sampled_from("abc")


@st.composite
def tables(draw: st.DrawFn) -> Cases:
    made = []
    for number in range(draw(st.integers(1, 6))):
        k, m = draw(st.integers(1, 2)), draw(st.integers(2, 4))
        captions = tuple(draw(st.lists(WORDS, min_size=m, max_size=m)))
        cells = draw(st.lists(st.booleans(), min_size=k * m, max_size=k * m))
        cells[0], cells[-1] = True, False
        truth = tuple(tuple(cells[i * m : (i + 1) * m]) for i in range(k))
        images = tuple(ImageRef(draw(st.sampled_from(["1.jpg", "2.jpg"]))) for _ in range(k))
        made.append(Case(str(number), images, captions, truth))
    return Cases.build(made, source="test")


def by_loops(cases: Cases) -> dict[str, list[bool]]:
    found: dict[str, list[bool]] = {what: [] for what in GENERAL}
    seen: list[tuple[object, ...]] = []
    for row in range(len(cases)):
        case = cases.case(row)
        hits = dict.fromkeys(GENERAL, False)
        for line in case.truth:
            true = [c for c, is_true in zip(case.captions, line, strict=True) if is_true]
            false = [c for c, is_true in zip(case.captions, line, strict=True) if not is_true]
            hits["a negative equals the original"] |= any(true[:1] == [f] for f in false)
            hits["a negative equals another positive"] |= any(t in false for t in true[1:])
            hits["a positive equals the original"] |= any(true[:1] == [t] for t in true[1:])
        key = (case.images, case.captions, case.truth)
        hits["repeats an earlier case"] = key in seen
        seen.append(key)
        for what, hit in hits.items():
            found[what].append(hit)
    return found


@pytest.mark.slow
@FEW
@given(tables())
def test_defects_are_those_of_plain_loops(cases: Cases) -> None:
    expected = {what: hits for what, hits in by_loops(cases).items() if any(hits)}
    found = find_defects(cases, "my-cases.jsonl")
    assert {what: hits.tolist() for what, hits in found.items()} == expected


def test_a_benchmark_may_have_defects_of_its_own() -> None:
    cases = Cases.build(
        [
            triple(0, "sacred newt", "saccrimson newt", "a mole", group="attributes/red"),
            triple(1, "red newt", "crimson newt", "a mole", group="attributes/red"),
        ],
        source="test",
    )
    own = "part of a word replaced in the positive"
    for id in ("hard-positives/replace", "hard-positives/replace+hp:positives=x.jsonl"):
        found = find_defects(cases, id)
        assert list(found) == [own], id
        assert found[own].tolist() == [True, False]
    assert find_defects(cases, "sugarcrepe") == {}
    assert find_defects(cases, "classification/pets") == {}


# --- clean runs --------------------------------------------------------------------------------


def accuracy(cases: list[Case], scores: list[np.ndarray]) -> float:
    hits = []
    for case, values in zip(cases, scores, strict=True):
        line = case.truth[0]
        negatives = [v for v, is_true in zip(values, line, strict=True) if not is_true]
        hits.append(values[line.index(True)] > max(negatives))
    return float(np.mean(hits))


@pytest.mark.slow
@FEW
@given(tables(), st.integers(0, 99))
def test_a_clean_part_is_the_sound_cases_with_their_own_scores(cases: Cases, seed: int) -> None:
    scores = random_scores(cases, seed)
    run = run_of(part(cases, scores))
    [found] = with_clean([run])
    hit = np.any(list(by_loops(cases).values()), axis=0)
    if not hit.any():
        assert list(found.parts) == ["bench"]
        return
    assert list(found.parts) == ["bench", "bench (clean)"]
    clean = found.parts["bench (clean)"]
    kept = [row for row in range(len(cases)) if not hit[row]]
    assert clean.cases.ids.to_list() == [cases.ids[row] for row in kept]
    starts = cases.pair_offsets
    own = [scores[starts[row] : starts[row + 1]] for row in kept]
    assert clean.scores.tolist() == (np.concatenate(own).tolist() if own else [])
    assert clean.protocol == run.parts["bench"].protocol
    assert found.parts["bench"] is run.parts["bench"]


DEFECTIVE = [
    triple(0, "red mole", "crimson mole", "dry mole"),
    triple(1, "red mole", "crimson mole", "red mole"),
    triple(2, "red newt", "red newt", "dry newt"),
    triple(3, "red owl", "crimson owl", "dry owl"),
    triple(4, "red owl", "crimson owl", "crimson owl"),
    triple(5, "wet owl", "damp owl", "dry owl"),
    triple(6, "wet mole", "damp mole", "dry mole"),
    triple(7, "wet mole", "damp mole", "dry mole"),
]
SOUND_ROWS = [0, 3, 5, 6]


def write_defective(name: str = "mine.jsonl") -> str:
    lines = [
        {
            "id": case.id,
            "images": [case.images[0].path],
            "captions": case.captions,
            "truth": case.truth,
            "groups": case.groups,
        }
        for case in DEFECTIVE
    ]
    Path(name).write_text("\n".join(json.dumps(line) for line in lines))
    return name


def shown(output: str) -> dict[str, tuple[float, int]]:
    """The original accuracy of all cases, by benchmark."""
    return {
        row["benchmark"]: (row["value"], row["n"])
        for row in json.loads(output)
        if (row["group"], row["metric"]) == ("all", "original_accuracy")
    }


@pytest.mark.slow
def test_eval_and_rescore_show_both_numbers() -> None:
    file = write_defective()
    runner = CliRunner()
    command = ["eval", "-m", "random:8", "-b", file, "-b", "world-bi:size=8", "--out", "run"]
    done = runner.invoke(app, [*command, "--clean", "--json"])
    assert done.exit_code == 0, done.output
    stored = load_run("run").parts[file].scores.reshape(-1, 3)
    expected = {
        file: (accuracy(DEFECTIVE, list(stored)), 8),
        f"{file} (clean)": (
            accuracy([DEFECTIVE[row] for row in SOUND_ROWS], list(stored[SOUND_ROWS])),
            4,
        ),
    }
    assert expected[file][0] != expected[f"{file} (clean)"][0]
    assert shown(done.stdout) == expected
    again = runner.invoke(app, ["rescore", "run", "--clean", "--json"])
    assert again.exit_code == 0
    assert again.stdout == done.stdout
    plain = runner.invoke(app, ["rescore", "run", "--json"])
    assert set(shown(plain.stdout)) == {file}
    table = runner.invoke(app, ["rescore", "run", "--clean"]).stdout
    assert f"{file} (clean)" in table and "world-bi:size=8 (clean)" not in table
    # What is stored is the whole run, whatever is shown.
    assert list(load_run("run").parts) == [file, "world-bi:size=8"]


@pytest.mark.slow
def test_a_benchmark_of_defects_alone_has_no_clean_number() -> None:
    bad = {"id": "0", "images": ["0.jpg"], "captions": ["a", "a"], "truth": [[True, False]]}
    Path("bad.jsonl").write_text(json.dumps(bad))
    run = evaluate("random", "bad.jsonl", out="run")
    [clean] = with_clean([run])
    assert len(clean.parts["bad.jsonl (clean)"].cases) == 0
    assert {row.benchmark for row in rows(clean, resamples=10)} == {"bad.jsonl"}
    for averages in ([], ["--averages"]):
        done = CliRunner().invoke(app, ["rescore", "run", "--clean", *averages])
        assert done.exit_code == 0, done.exception
