"""Readers that were written without the published files: on small files of their layouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmark_fixtures import (
    UNTRIED,
    files_of,
    load,
    pixels,
    write,
    write_benchmark,
    write_json,
    write_rows,
)
from cli_support import Colours
from errors import raises

import counterpoint as cp
from counterpoint.benchmarks.benchmark import NOT_TRIED
from counterpoint.benchmarks.pairs import EQBEN_FILES
from counterpoint.benchmarks.reading import described
from counterpoint.benchmarks.registry import BENCHMARKS, published_files
from counterpoint.cases import Cases
from counterpoint.data import catalogue
from counterpoint.metrics import PROTOCOLS

EVERY = pytest.mark.parametrize("id", UNTRIED)


def rows_of(id: str) -> Any:
    """Of the first file."""
    return next(iter(files_of(id).values()))


def counted(run: cp.Run, benchmark: str, column: str = "value") -> dict[str, Any]:
    found = run.results(resamples=9).to_dicts()
    chosen = [row for row in found if (row["benchmark"], row["group"]) == (benchmark, "all")]
    return {row["metric"]: row[column] for row in chosen}


# --- all of them ---------------------------------------------------------------------------------


def test_all_that_are_marked_are_tested_here() -> None:
    known = {name: BENCHMARKS.get(name) for name in BENCHMARKS.names()}
    assert {name for name, benchmark in known.items() if benchmark.untried} == set(UNTRIED)
    for id in UNTRIED:
        about = known[id]
        assert about.note == NOT_TRIED and about.paper and about.licence and about.images
        assert about.protocol in PROTOCOLS and id in catalogue().benchmarks


@EVERY
def test_every_image_is_read_and_a_random_model_is_at_chance(id: str, tmp_path: Path) -> None:
    write_benchmark(id, tmp_path)
    expected = UNTRIED[id]["chance"]
    colours = cp.evaluate(Colours(), id, data=tmp_path, out=tmp_path / "colours")
    [part] = colours.parts.values()
    assert len(part.cases) == len(load(id, tmp_path)) and not part.left_out
    random = cp.evaluate("random", id, data=tmp_path, out=tmp_path / "random")
    chance = counted(random, id, "chance")
    assert {name: chance[name] for name in expected} == pytest.approx(expected)
    assert not {"image_to_text_recall@1", "text_to_image_recall@1"} & set(chance)


@EVERY
def test_doctor(id: str, tmp_path: Path) -> None:
    write_benchmark(id, tmp_path)
    health = cp.doctor(id, data=tmp_path)
    assert (health.cases, health.note) == (len(load(id, tmp_path)), NOT_TRIED)
    assert not health.images.missing and not health.images.unreadable


@EVERY
def test_positives_can_be_added(id: str, tmp_path: Path) -> None:
    """But not where captions are graded, or answers to questions."""
    write_benchmark(id, tmp_path)
    first = next(case for case in load(id, tmp_path) if any(line[0] for line in case.truth))
    added = f'{{"case_id": "{first.id}", "text": "another wording"}}\n'
    write(tmp_path / f"positives/{id.replace('/', '-')}.jsonl", added)
    codes = {"vsr": "E-POSITIVES-GRADED", "naturalbench/answers": "E-POSITIVES-QUESTIONS"}
    if id in codes:
        with raises(codes[id], first.id):
            load(f"{id}+hp", tmp_path)
        return
    [case] = [case for case in load(f"{id}+hp", tmp_path) if case.id == first.id]
    place = case.captions.index("another wording")
    assert [line[place] for line in case.truth] == [line[0] for line in first.truth]


@EVERY
def test_other_layouts_are_named_with_what_was_found(id: str, tmp_path: Path) -> None:
    with raises("E-FILE-MISSING", id):
        load(id, tmp_path / "nothing")
    if id != "vsr":
        name = id.partition("/")[0].replace("-", "_")
        folder = write(tmp_path / "other" / name / "annotations_v2.json", "[]").parent
        with raises("E-LAYOUT-UNEXPECTED", folder, f"annotations_v2.json in {folder}"):
            load(id, tmp_path / "other")
    wrong = UNTRIED[id]["wrong"]
    for name, rows in wrong["files"].items():
        write_rows(tmp_path / name, rows)
    with raises("E-LAYOUT-UNEXPECTED", wrong["says"], tmp_path / next(iter(wrong["files"]))):
        load(id, tmp_path)


@pytest.mark.parametrize("name", ["/etc/passwd", "../../passwd", "passwd", "..", "a\0b", "/"])
@pytest.mark.parametrize("id", ["colorswap", "eqben", "imagecode", "spec", "whatsup"])
def test_names_of_images_lead_nowhere_else(id: str, name: str, tmp_path: Path) -> None:
    """A name that is no path below the data root is refused, or its image cannot be read."""
    both = {"image_1": name, "image_2": name}
    rows: dict[str, tuple[str, Any]] = {
        "colorswap": ("colorswap/test.json", [rows_of("colorswap")[0] | both]),
        "eqben": (f"eqben/{EQBEN_FILES[0]}", [rows_of("eqben")[0] | {"image0": name}]),
        "imagecode": ("imagecode/valid_data.json", {name: {"0": "a mole"}}),
        "spec": (
            "spec/absolute_size/image2text.json",
            [{"query": name, "keys": ["a", "b"], "label": 0}],
        ),
        "whatsup": (
            "whatsup/controlled_images_dataset.json",
            [rows_of("whatsup")[0] | {"image_path": name}],
        ),
    }
    for subset in [*published_files("spec")][1:]:
        write_json(tmp_path / f"spec/{subset}/image2text.json", [])
    write_json(tmp_path / "whatsup/controlled_clevr_dataset.json", [])
    path, content = rows[id]
    write_json(tmp_path / path, content)
    try:
        run = cp.evaluate(Colours(), id, data=tmp_path, out=tmp_path / "runs")
    except cp.CounterpointError:
        return
    [part] = run.parts.values()
    assert len(part.cases) == 0 and len(part.left_out) == 1


def test_forms_in_words() -> None:
    for value, words in [
        ([], "a list of length 0"),
        ([{"a": 1}], "a list of length 1, the first an object with a"),
        ([[1, 2], 3], "a list of length 2, the first a list of length 2"),
        ({}, "an empty object"),
        ({str(n): n for n in range(10)}, "an object with 0, 1, 2, 3, 4, 5, 6, 7 and 2 more"),
        (3, "3"),
    ]:
        assert described(value) == words


# --- what is odd of some -------------------------------------------------------------------------


def test_colorswap_of_the_archive_is_the_same(tmp_path: Path) -> None:
    write_benchmark("colorswap", tmp_path / "hub")
    rows = [
        row | {f"image_{side}": f"images/img_{n}_{side}.png" for side in (1, 2)}
        for n, row in enumerate(rows_of("colorswap"))
    ]
    write_json(tmp_path / "archive/colorswap/data/test.json", rows)
    hub, archive = (load("colorswap", tmp_path / name) for name in ("hub", "archive"))
    assert archive[0].images[0].path == "colorswap/data/images/img_0_1.png"
    for one, other in zip(hub, archive, strict=True):
        assert (one.id, one.captions, one.groups) == (other.id, other.captions, other.groups)


@pytest.mark.parametrize("together", [2, 4])
def test_whatsup_pairs_and_sets(together: int, tmp_path: Path) -> None:
    """All photographs of a case have to get their own caption: counted from single ones here."""
    write_benchmark("whatsup", tmp_path)
    names = ["whatsup", f"whatsup:together={together}"]
    run = cp.evaluate("random", names, data=tmp_path, out=tmp_path / "runs")
    single, several = (run.parts[name].cases for name in names)
    assert len(several) == len(single) // together and set(several.image_counts) == {together}
    assert set(several.caption_counts) == {4}
    own = {single.case(n).images[0]: single.case(n) for n in range(len(single))}
    for number in range(len(several)):
        case = several.case(number)
        for place, image in enumerate(case.images):
            assert case.captions[place] == own[image].captions[0]
            assert {*case.captions} == {*own[image].captions}
            assert case.truth[place] == tuple(n == place for n in range(4))
            assert case.cluster == own[image].cluster
    labels = [case.groups[0] for case in map(several.case, range(len(several)))]
    pairs = ["a/left_of+right_of", "a/on+under"] * 2
    pairs += ["b/left_of+right_of", "b/in-front_of+behind"]
    sets = ["a/left_of+right_of+on+under"] * 2 + ["b/left_of+right_of+in-front_of+behind"]
    assert labels == {2: pairs, 4: sets}[together]
    assert counted(run, names[1], "chance")["image_to_text"] == pytest.approx(4**-together)
    with raises("E-OPTION-INVALID", "together"):
        load("whatsup:together=3", tmp_path)


def test_whatsup_of_uneven_sizes(tmp_path: Path) -> None:
    """A has twice as many cases as B here, and counts as much; a set must be whole."""
    write_benchmark("whatsup", tmp_path)
    cases = load("whatsup", tmp_path)
    labels = [case.groups[0] for case in cases]
    assert labels[:4] == ["a/left_of", "a/right_of", "a/on", "a/under"]
    assert labels[-2:] == ["b/in-front_of", "b/behind"]
    assert len({case.cluster for case in cases}) == 3  # pairs of objects
    run = cp.evaluate("random", "whatsup", data=tmp_path, out=tmp_path / "runs")
    rows = run.results(groups=True, resamples=9).to_polars().filter(metric="original_accuracy")
    values = dict(rows.select("group", "value").iter_rows())
    assert values["all"] == pytest.approx((values["a"] + values["b"]) / 2)
    write_json(tmp_path / "whatsup/controlled_images_dataset.json", rows_of("whatsup")[1:])
    assert len(load("whatsup", tmp_path)) == 11
    with raises("E-LAYOUT-UNEXPECTED"):
        load("whatsup:together=4", tmp_path)


def test_prepositions_of_whatsup(tmp_path: Path) -> None:
    for id, groups in (
        ("whatsup/coco", ["one/left", "one/right", "one/top", "two/above", "two/left"]),
        ("whatsup/gqa", ["one/left", "one/right", "one/top", "two/front"]),
    ):
        write_benchmark(id, tmp_path)
        assert [case.groups[0] for case in load(id, tmp_path)] == groups


def test_svo_is_a_choice_between_two_images(tmp_path: Path) -> None:
    write_benchmark("svo-probes", tmp_path)
    groups = ["subject", "verb", "verb", "object", "object", "several"]
    assert [case.groups[0] for case in load("svo-probes", tmp_path)] == groups
    run = cp.evaluate("random", "svo-probes", data=tmp_path, out=tmp_path / "runs")
    counts = counted(run, "svo-probes", "n")
    assert counts["text_to_image"] == 5  # rows in which several things differ are not counted
    assert not {"image_to_text", "group", "original_accuracy"} & set(counts)


def test_svo_without_one_of_its_images_is_left_out(tmp_path: Path) -> None:
    """With one image there would be nothing to choose, and the case always right."""
    write_benchmark("svo-probes", tmp_path)
    (tmp_path / "svo_probes/images/101.png").unlink()
    run = cp.evaluate(Colours(), "svo-probes", data=tmp_path, out=tmp_path / "runs")
    [part] = run.parts.values()
    assert len(part.cases) == 5 and [one[0] for one in part.left_out] == ["1"]


def eqben_singles() -> list[dict[str, Any]]:
    """The pairs in four rows each, out of order."""
    singles = [
        {
            "image": row[f"image{image}"],
            "caption": row[f"caption{caption}"],
            "private_info": {
                "dataset": row["image0"].partition("/")[0],
                "name": f"c{caption}i{image}",
                "sample_cnt": number,
            },
        }
        for number, row in enumerate(rows_of("eqben"))
        for caption in (0, 1)
        for image in (0, 1)
    ]
    return singles[::3] + singles[1::3] + singles[2::3]


def test_eqben_of_single_rows_is_the_same(tmp_path: Path) -> None:
    write_benchmark("eqben", tmp_path)
    pairs = load("eqben", tmp_path)
    (tmp_path / f"eqben/{EQBEN_FILES[2]}").unlink()
    path = write_json(tmp_path / f"eqben/{EQBEN_FILES[1]}", eqben_singles())
    assert load("eqben", tmp_path) == pairs
    write_json(path, [row for row in eqben_singles() if "i1" not in row["private_info"]["name"]])
    with raises("E-LAYOUT-UNEXPECTED", "two images and two captions of sample 0"):
        load("eqben", tmp_path)
    write_json(path, [eqben_singles()[0] | {"private_info": {"name": "c2i0"}}])
    with raises("E-LAYOUT-UNEXPECTED"):
        load("eqben", tmp_path)


def test_vismin_needs_a_solution_of_every_row(tmp_path: Path) -> None:
    write_benchmark("vismin", tmp_path)
    name = "vismin/sim_solution.csv"
    write_rows(tmp_path / name, files_of("vismin")[name][:-1])
    with raises("E-LAYOUT-UNEXPECTED", tmp_path / name, "2"):
        load("vismin", tmp_path)


def test_imagecode_has_sets_of_ten_images(tmp_path: Path) -> None:
    write_benchmark("imagecode", tmp_path)
    first, second, third = load("imagecode", tmp_path)
    assert first.cluster == second.cluster != third.cluster
    assert first.images[9].path.endswith("/img27.jpg")  # not between img2 and img3
    (tmp_path / first.images[9].path).unlink()
    with raises("E-LAYOUT-UNEXPECTED"):
        load("imagecode", tmp_path)


def test_vsr_labels_are_grades(tmp_path: Path) -> None:
    write_benchmark("vsr", tmp_path)
    assert [case.grades for case in load("vsr", tmp_path)] == [(0.0,), (0.0,), (1.0,), (1.0,)]
    assert len(load("vsr:split=zeroshot", tmp_path)) == 1
    with raises("E-OPTION-INVALID", "split"):
        load("vsr:split=train", tmp_path)


def test_vsr_of_a_model_that_sees_the_label(tmp_path: Path) -> None:
    """True pairs have captions of their own here: a model that prefers them is always right."""
    name, changes = "000000000001.jpg", ({"caption": "A mole." * n, "label": n - 1} for n in (1, 2))
    row = rows_of("vsr")[1]
    write_rows(tmp_path / "vsr/splits/random/test.jsonl", [row | change for change in changes] * 20)
    write(tmp_path / "coco/val2017" / name, pixels(1))
    run = cp.evaluate("blind:length", "vsr", data=tmp_path, out=tmp_path / "runs")
    assert counted(run, "vsr")["auroc"] == 0.0  # the shorter caption wins, and it is false


# --- NaturalBench --------------------------------------------------------------------------------


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


def test_answers_are_counted_as_the_paper_does(tmp_path: Path) -> None:
    """By the definitions of Section 4 of the paper, counted by hand."""
    id = "naturalbench/answers"
    write_benchmark(id, tmp_path)
    assert {case.questions for case in load(id, tmp_path)} == {2}
    model = Answering("1111", "1110", "1100", "1010", "0110", "0000")
    values = counted(cp.evaluate(model, id, data=tmp_path, out=tmp_path / "runs"), id)
    expected = {
        "answer_accuracy": (4 + 3 + 2 + 2 + 2 + 0) / 24,
        "question_accuracy": (2 + 1 + 1 + 0 + 0 + 0) / 12,
        "image_accuracy": (2 + 1 + 0 + 1 + 0 + 0) / 12,
        "all_answers": 1 / 6,
    }
    assert {name: values[name] for name in expected} == pytest.approx(expected)
    assert "image_to_text" not in values  # which would compare answers to different questions


def test_types_have_had_two_names_and_others_are_refused(tmp_path: Path) -> None:
    table = tmp_path / "naturalbench/data/train-00000-of-00001.parquet"
    row = {k: v for k, v in rows_of("naturalbench")[0].items() if k != "Question_Type"}
    for id in ["naturalbench", "naturalbench/answers"]:
        for name in ["Question_Type", "Question Type"]:
            write_rows(table, [row | {name: "yes_no", "Index": n} for n in (0, 1)])
            assert len(load(id, tmp_path)) == 2
        write_rows(table, [row])
        with raises("E-ROW-MALFORMED", "Question_Type"):
            load(id, tmp_path)
        write_rows(table, [row | {"Question_Type": "open"}])
        with raises("E-LAYOUT-UNEXPECTED", "'open'"):
            load(id, tmp_path)


def test_the_source_may_be_unknown(tmp_path: Path) -> None:
    row = {k: v for k, v in rows_of("naturalbench")[0].items() if k not in ("Source", "Index")}
    write_rows(tmp_path / "naturalbench/data/train-00000-of-00001.parquet", [row])
    [case] = load("naturalbench/answers", tmp_path)
    assert (case.id, case.groups) == ("train-00000-of-00001/0", ("yes_no",))
