"""Figures of papers: shuffled retrieval (ARO), sample predictions (hard positives), WiSE-FT."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest
from errors import raises
from PIL import Image
from support import gallery, owned, part, random_scores, recalls, run_of

from counterpoint.cases.table import Cases, ImageRef, caption_case
from counterpoint.reports.data import gather
from counterpoint.reports.examples import Album
from counterpoint.reports.figures.curves import CurveKey, Panel, draw_line, line_panels
from counterpoint.reports.figures.drawing import Drawn, Omitted
from counterpoint.reports.figures.intervals import Shuffle, shuffle_of, shuffles
from counterpoint.reports.figures.scores import samples
from counterpoint.reports.ranking import numbers_of
from counterpoint.runs import Row, Run

FEW = 20
TRUTH = owned(12)


def drawn_shuffles(*runs: Run):
    material = gather(runs)
    return shuffles(material, numbers_of(material, resamples=FEW))


def retrieval(scores: dict[str, np.ndarray], model: str) -> Run:
    cases = Cases.build([gallery(TRUTH)], source="test")
    parts = [part(cases, values.ravel(), name=name) for name, values in scores.items()]
    return run_of(*parts, model=model)


def some_scores(*names: str, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: (rng.normal(size=TRUTH.shape) + TRUTH).astype(np.float32) for name in names}


def test_the_shuffle_of_a_benchmark_is_read_from_its_id():
    assert shuffle_of("retrieval/coco") == ("retrieval/coco", Shuffle("", "plain"))
    assert shuffle_of("a/b:seed=2,captions=all") == ("a/b", Shuffle("captions", "all"))
    assert shuffle_of("a/b:images=rows,captions=plain") == ("a/b", Shuffle("images", "rows"))
    assert shuffle_of("a/b:images=rows,captions=all") == ("a/b", None)


@pytest.mark.slow
def test_shuffled_retrieval_is_the_mean_over_seeds():
    name = "retrieval/coco"
    shuffled = f"{name}:captions=all"
    names = (name, shuffled, f"{shuffled},seed=2", f"{name}:images=rows")
    given = {model: some_scores(*names, seed=seed) for seed, model in enumerate("ab")}
    [figure] = drawn_shuffles(*(retrieval(scores, model) for model, scores in given.items()))
    assert isinstance(figure, Drawn) and figure.svg.startswith("<svg role=")
    sides = {"image_to_text": "images", "text_to_image": "captions"}
    for row in figure.rows:
        direction, _, k = row["metric"].partition("_recall@")
        values = {
            b: 100 * mean(recalls(scores, TRUTH, sides[direction], int(k), "wrong"))
            for b, scores in given[row["model"]].items()
        }
        wanted = {
            "plain": [values[name]],
            "all": [values[shuffled], values[f"{shuffled},seed=2"]],
            "rows": [values[f"{name}:images=rows"]],
        }[row["how"]]
        assert row["value"] == pytest.approx(mean(wanted))
        assert row["lost"] == pytest.approx(values[name] - mean(wanted))
        assert row["seeds"] == len(wanted)
        spread = row["sd_over_seeds"]
        assert spread == (pytest.approx(stdev(wanted)) if len(wanted) > 1 else None)
    rows = [(r["shuffled"], r["how"]) for r in figure.rows]
    assert list(dict.fromkeys(rows)) == [
        ("captions", "plain"),
        ("captions", "all"),
        ("images", "plain"),
        ("images", "rows"),
    ]
    assert len(rows) == 2 * 4 * 4  # models, metrics, rows
    assert "captions=trigrams" in figure.caption and "images=columns" in figure.caption
    assert "captions=all" not in figure.caption


def test_seeds_that_are_groups_of_one_part():
    """`seeds=2` is one part; its groups tell the seeds apart."""
    cases = Cases.build(
        [replace(gallery(TRUTH), id=f"{n}/0", groups=(f"seed {n}",)) for n in (1, 2)], source="test"
    )
    shuffled = part(cases, random_scores(cases, 1), name="retrieval/coco:images=patches,seeds=2")
    plain = retrieval(some_scores("retrieval/coco", seed=1), "a").parts["retrieval/coco"]
    [figure] = drawn_shuffles(run_of(plain, shuffled, model="a"))
    blocks = shuffled.scores.reshape(2, *TRUTH.shape)
    for row in figure.rows:
        if (row["how"], row["metric"]) == ("patches", "text_to_image_recall@1"):
            wanted = [100 * mean(recalls(b, TRUTH, "captions", 1, "wrong")) for b in blocks]
            assert row["value"] == pytest.approx(mean(wanted)) and row["seeds"] == 2
            assert row["sd_over_seeds"] == pytest.approx(stdev(wanted))
            return
    pytest.fail("the shuffle is not drawn")


def test_shuffled_retrieval_says_what_is_missing():
    [omitted] = drawn_shuffles(retrieval(some_scores("retrieval/coco", seed=1), "a"))
    assert isinstance(omitted, Omitted) and "no shuffled retrieval" in omitted.why
    apart = [
        retrieval(some_scores("retrieval/coco", seed=1), "a"),
        retrieval(some_scores("retrieval/coco:images=rows", seed=1), "b"),
    ]
    [omitted] = drawn_shuffles(*apart)
    assert omitted.why == "no run has retrieval/coco both shuffled and as it is."
    both = some_scores("retrieval/coco:images=rows,captions=all", "retrieval/coco", seed=1)
    [omitted] = drawn_shuffles(retrieval(both, "a"))
    assert isinstance(omitted, Omitted)


# --- sample predictions -------------------------------------------------------------------------


def threes(folder: Path, count: int) -> Cases:
    """Cases of one image and three captions; the image of the last is not there."""
    made = []
    for i in range(count):
        if i < count - 1:
            Image.new("RGB", (200, 100), (20 * i % 255, 90, 200)).save(folder / f"{i}.jpg")
        texts = [f"a dog <{i}>", f"a hound {i}"], [f"a $cat$ {i}"]
        made.append(caption_case(f"case {i}", ImageRef(f"{i}.jpg"), *texts))
    return Cases.build(made, root=folder, source="test")


SCORES = {"right": [3, 2, 1], "brittle": [3, 1, 2], "wrong": [1, 2, 3], "tied": [2, 1, 2]}


def judged(cases: Cases, said: list[str], model: str) -> Run:
    return run_of(part(cases, np.concatenate([SCORES[s] for s in said])), model=model)


@pytest.mark.slow
def test_samples_are_of_the_papers_kinds(tmp_path):
    cases = threes(tmp_path, 6)
    runs = [
        judged(cases, ["wrong", "right", "tied", "wrong", "right", "wrong"], "start"),
        judged(cases, ["brittle", "brittle", "brittle", "right", "wrong", "brittle"], "hn"),
        judged(cases, ["right", "right", "right", "right", "right", "right"], "hp-hn"),
        judged(cases, ["right"] * 6, "blind:length"),
    ]
    [figure] = samples(gather(runs), Album())
    told = {(row["first_model"], row["case"]) for row in figure.rows}
    assert told == {("wrong", "case 0"), ("right", "case 1"), ("wrong", "case 5")}
    for row in figure.rows:
        number = int(row["case"].split()[1])
        run = next(run for run in runs if run.model == row["model"])
        captions = cases.case(number).captions
        scores = run.parts["bench"].scores[3 * number : 3 * number + 3].tolist()
        assert row["score"] == scores[captions.index(row["caption"])]
        assert row["rank"] == sorted(scores, reverse=True).index(row["score"]) + 1
        place = {"original": 0, "positive": 1, "negative": 2}[row["role"]]
        assert row["caption"] == captions[place]
    counts = "Of 6 cases, this holds for 2 in which start puts it above the original, and for 1 in"
    assert counts in figure.caption
    # The pictures stand in the figure; one cannot be read, and its place says so.
    assert len(re.findall(r'<image [^>]*href="data:image/', figure.svg)) == 2
    assert "5.jpg: no such" in figure.svg and "a dog &lt;0&gt;" in figure.svg
    assert "a $cat$ 0" in figure.svg and "currentColor" in figure.svg


@pytest.mark.slow
def test_samples_take_the_three_models_with_most_cases(tmp_path):
    cases = threes(tmp_path, 40)
    rng = np.random.default_rng(3)
    said = {name: rng.choice(["right", "brittle", "wrong"], 40).tolist() for name in "abcd"}
    [figure] = samples(gather([judged(cases, s, m) for m, s in said.items()]), Album())

    def count(trio: tuple[str, ...]) -> int:
        wanted = {("wrong", "brittle", "right"), ("right", "brittle", "right")}
        return sum(outcome in wanted for outcome in zip(*(said[m] for m in trio), strict=True))

    best = max(combinations("abcd", 3), key=count)
    assert tuple(dict.fromkeys(row["model"] for row in figure.rows)) == best
    again = samples(gather([judged(cases, s, m) for m, s in said.items()]), Album())
    assert again == [figure]
    [bare] = samples(gather([judged(cases, s, m) for m, s in said.items()]), Album(0))
    assert "<image " not in bare.svg and bare.rows == figure.rows


@pytest.mark.slow
def test_samples_say_what_is_missing(tmp_path):
    cases = threes(tmp_path, 4)
    said = ["wrong", "brittle", "right"]
    runs = [judged(cases, [s] * 4, s) for s in said]
    assert isinstance(samples(gather(runs), Album())[0], Drawn)
    [omitted] = samples(gather(runs[:2]), Album())
    assert omitted.why == "it takes 3 models that scored bench."
    [omitted] = samples(gather(runs[::-1]), Album())  # the order of the runs counts
    assert "no case is brittle for a model and right for one given after it" in omitted.why
    pairs = Cases.build(
        [caption_case(f"{i}", ImageRef("x.jpg"), ["a"], ["b"]) for i in range(4)], source="test"
    )
    few = [run_of(part(pairs, random_scores(pairs, seed)), model=f"{seed}") for seed in range(3)]
    [omitted] = samples(gather(few), Album())
    assert omitted.why.startswith("no benchmark of these runs has one image, its original")


def test_a_run_that_lacks_cases_is_not_shown_with_them(tmp_path):
    cases = threes(tmp_path, 4)
    short = Cases(cases.frame[[3, 1]], cases.root)
    runs = [
        judged(cases, ["wrong"] * 4, "a"),
        judged(short, ["brittle", "right"], "b"),
        judged(cases, ["right"] * 4, "c"),
    ]
    [figure] = samples(gather(runs), Album())
    assert {row["case"] for row in figure.rows} == {"case 3"}
    assert [row["score"] for row in figure.rows if row["model"] == "b"] == [3, 2, 1]


# --- the line between two models ----------------------------------------------------------------


def row(benchmark: str, metric: str, value: float) -> Row:
    return Row("m", benchmark, "all", metric, value, value - 0.02, value + 0.03, 100, 0, 0.5)


def rows_along(*metrics: tuple[str, str]) -> dict[float, list[Row]]:
    return {
        alpha: [
            row(b, metric, 0.4 + 0.1 * n + 0.2 * alpha) for n, (b, metric) in enumerate(metrics)
        ]
        for alpha in (1.0, 0.0, 0.5)
    }


ORIGINAL, AUGMENTED = (CurveKey("swap", f"{name}_accuracy") for name in ("original", "augmented"))
RECALL, PETS = CurveKey("coco", "image_to_text_recall@1"), CurveKey("pets", "accuracy@1")
GROUP = CurveKey("bi", "group")


def test_what_is_drawn_against_what():
    for metrics, expected in (
        ([ORIGINAL, AUGMENTED], [Panel("original_accuracy", [AUGMENTED])]),
        ([ORIGINAL, AUGMENTED, RECALL], [Panel(RECALL, [AUGMENTED])]),
        (
            [ORIGINAL, AUGMENTED, RECALL, PETS, GROUP],
            [Panel(kept, [AUGMENTED, GROUP]) for kept in (RECALL, PETS)],
        ),
        ([ORIGINAL, AUGMENTED, GROUP], [Panel(None, [AUGMENTED, GROUP])]),
        ([RECALL], [Panel(None, [RECALL])]),
    ):
        assert line_panels(rows_along(*metrics)) == expected


@pytest.mark.slow
def test_the_plot_is_an_svg_with_its_names_as_they_are(tmp_path):
    name = "_my $cases$ <b>.jsonl"
    along = rows_along((name, "original_accuracy"), (name, "augmented_accuracy"), RECALL)
    draw_line(along, tmp_path / "new" / "line.svg", "base to tuned")
    text = (tmp_path / "new" / "line.svg").read_text()
    assert text.lstrip().startswith("<?xml") and "</svg>" in text
    assert "_my $cases$ &lt;b&gt;.jsonl" in text
    assert "coco: image-to-text R@1 (%)" in text
    assert {">0<", ">0.5<", ">1<"} <= set(re.findall(r">[\d.]+<", text))
    draw_line(along, tmp_path / "again.svg", "base to tuned")
    assert (tmp_path / "again.svg").read_text() == text  # the same numbers, the same file
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again.svg", "new"]


def test_a_line_without_a_scored_case_is_not_drawn(tmp_path):
    with raises("E-RUN-EMPTY", tmp_path / "line.svg"):
        draw_line({0.0: [], 1.0: []}, tmp_path / "line.svg", "nothing")
    assert list(tmp_path.iterdir()) == []
