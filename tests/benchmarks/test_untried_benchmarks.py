"""Loaders that were written without the published files: on small files of their layout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmark_fixtures import IDENTITY, load, write, write_json, write_parquet, write_table
from cli_support import Colours
from errors import raises
from published_layouts import (
    A_ROWS,
    LAYOUTS,
    PAIRS,
    STATIC,
    VIDEO,
    bla_row,
    colorswap_row,
    counterfactual_rows,
    eqben_rows,
    eqben_singles,
    lines,
    mmvp_rows,
    natural_rows,
    pixels,
    question_row,
    svo_row,
    vismin_row,
    vismin_solution,
    vsr_row,
)

import counterpoint as cp
from counterpoint.benchmarks.benchmark import NOT_TRIED
from counterpoint.benchmarks.pairs import EQBEN_FILES
from counterpoint.benchmarks.reading import described
from counterpoint.benchmarks.registry import BENCHMARKS, published_files
from counterpoint.data import catalogue
from counterpoint.metrics import PROTOCOLS

SQUARE = {"image_to_text": 1 / 4, "text_to_image": 1 / 4, "group": 1 / 6}
CHANCE: dict[str, dict[str, float]] = {
    "bla": {"original_accuracy": 1 / 3, "augmented_accuracy": 1 / 6, "brittleness": 1 / 3},
    "coco-counterfactuals": SQUARE,
    "colorswap": SQUARE,
    "eqben": SQUARE,
    "imagecode": {"text_to_image": 1 / 10},
    "mmvp-vlm": SQUARE,
    "naturalbench": SQUARE,
    "naturalbench/answers": {
        "answer_accuracy": 1 / 2,
        "question_accuracy": 1 / 4,
        "image_accuracy": 1 / 4,
        "all_answers": 1 / 16,
    },
    "naturalbench/retrieval": SQUARE,
    "spec": {"original_accuracy": (1 / 2 + 2 / 3 + 1 / 4 + 2 / 9) / 6},
    "spec/text-to-image": {"text_to_image": (1 / 2 + 2 / 3 + 1 / 4 + 2 / 9) / 6},
    "svo-probes": {"text_to_image": 1 / 2},
    "vismin": SQUARE,
    "vsr": {"auroc": 1 / 2, "rank_correlation": 0},
    "whatsup": {"original_accuracy": 1 / 4},
    "whatsup/coco": {"original_accuracy": 1 / 2},
    "whatsup/gqa": {"original_accuracy": 1 / 2},
}
COUNTS = {"coco-counterfactuals": PAIRS, "colorswap": PAIRS, "eqben": 5, "mmvp-vlm": 6}
COUNTS |= {"svo-probes": 6, "vsr": 8, "whatsup": 12, "whatsup/coco": 5, "whatsup/gqa": 4}
COUNTS |= {"bla": 6, "naturalbench": 4, "naturalbench/retrieval": PAIRS, "vismin": PAIRS}
COUNTS |= {"naturalbench/answers": 6, "imagecode": 3, "spec": 6, "spec/text-to-image": 6}
EVERY = pytest.mark.parametrize("id", LAYOUTS)


def test_all_that_are_marked_are_tested_here() -> None:
    marked = {name for name in BENCHMARKS.names() if BENCHMARKS.get(name).untried}
    assert marked == set(LAYOUTS) == set(CHANCE)


@EVERY
def test_what_is_said_about_it(id: str) -> None:
    known = BENCHMARKS.get(id)
    assert known.note == NOT_TRIED and known.paper and known.licence and known.images
    assert known.protocol in PROTOCOLS and id in catalogue().benchmarks


@EVERY
def test_every_image_is_read(id: str, tmp_path: Path) -> None:
    LAYOUTS[id](tmp_path)
    run = cp.evaluate(Colours(), id, data=tmp_path, out=tmp_path / "runs")
    [part] = run.parts.values()
    assert len(part.cases) == COUNTS[id] and not part.left_out


@EVERY
def test_a_random_model_is_at_chance(id: str, tmp_path: Path) -> None:
    LAYOUTS[id](tmp_path)
    run = cp.evaluate("random", id, data=tmp_path, out=tmp_path / "runs")
    rows = run.results(resamples=9).to_polars().filter(group="all")
    found = dict(rows.select("metric", "chance").iter_rows())
    assert {name: found[name] for name in CHANCE[id]} == pytest.approx(CHANCE[id])
    assert not {"image_to_text_recall@1", "text_to_image_recall@1"} & set(found)


@EVERY
def test_doctor(id: str, tmp_path: Path) -> None:
    LAYOUTS[id](tmp_path)
    health = cp.doctor(id, data=tmp_path)
    assert (health.cases, health.note) == (COUNTS[id], NOT_TRIED)
    assert not health.images.missing and not health.images.unreadable


@pytest.mark.parametrize("id", [id for id in LAYOUTS if id not in ("vsr", "naturalbench/answers")])
def test_positives_can_be_added(id: str, tmp_path: Path) -> None:
    LAYOUTS[id](tmp_path)
    first = load(id, tmp_path)[0]
    added = f'{{"case_id": "{first.id}", "text": "another wording"}}\n'
    write(tmp_path / f"positives/{id.replace('/', '-')}.jsonl", added)
    [case] = [case for case in load(f"{id}+hp", tmp_path) if case.id == first.id]
    place = case.captions.index("another wording")
    assert [line[place] for line in case.truth] == [line[0] for line in first.truth]


def test_positives_have_no_meaning_for_single_pairs(tmp_path: Path) -> None:
    LAYOUTS["vsr"](tmp_path)
    write(tmp_path / "positives/vsr.jsonl", '{"case_id": "2", "text": "another wording"}\n')
    with raises("E-POSITIVES-GRADED", "2"):
        load("vsr+hp", tmp_path)


@EVERY
def test_a_missing_file_says_how_to_get_it(id: str, tmp_path: Path) -> None:
    with raises("E-FILE-MISSING", id):
        load(id, tmp_path)


FOLDERS = {id: id.partition("/")[0].replace("-", "_") for id in LAYOUTS}


@pytest.mark.parametrize("id", [id for id in LAYOUTS if id != "vsr"])
def test_another_folder_is_named_with_what_is_in_it(id: str, tmp_path: Path) -> None:
    folder = write(tmp_path / FOLDERS[id] / "annotations_v2.json", "[]").parent
    with raises("E-LAYOUT-UNEXPECTED", folder, f"annotations_v2.json in {folder}"):
        load(id, tmp_path)


def without(row: dict[str, Any], field: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != field}


WRONG: dict[str, tuple[Callable[[Path], Path], str]] = {
    "bla": (
        lambda root: write_json(
            root / "bla/active_passive_captions.json", [bla_row(0) | {"caption_group": {}}]
        ),
        "an empty object",
    ),
    "imagecode": (
        lambda root: write_json(root / "imagecode/valid_data.json", {"set": {"10": "a mole"}}),
        "an object with 10",
    ),
    "spec": (
        lambda root: write_json(
            root / "spec/absolute_size/image2text.json",
            [{"query": "0.jpg", "keys": ["a", "b"], "label": 2}],
        ),
        "2",
    ),
    "spec/text-to-image": (
        lambda root: write_json(
            root / "spec/absolute_size/text2image.json",
            [{"query": "a mole", "keys": ["0.jpg"], "label": 0}],
        ),
        "a list of length 1",
    ),
    "naturalbench": (
        lambda root: write_parquet(
            root / "naturalbench/train.parquet", [question_row(0) | {"Image_1_Question_1": "Maybe"}]
        ),
        "'Maybe'",
    ),
    "naturalbench/answers": (
        lambda root: write_parquet(
            root / "naturalbench/train.parquet", [question_row(2) | {"Image_0_Question_1": "C"}]
        ),
        "'C'",
    ),
    "naturalbench/retrieval": (
        lambda root: write_json(
            root / "naturalbench/metadata.json", [without(natural_rows()[0], "index")]
        ),
        "an object with image_0, image_1, caption_0, caption_1",
    ),
    "vismin": (
        lambda root: [
            write_parquet(root / "vismin/test.parquet", [vismin_row(0)]),
            write_table(root / "vismin/sim_solution.csv", [vismin_solution(0) | {"Text": "T0"}]),
        ][1],
        "'T0'",
    ),
    "coco-counterfactuals": (
        lambda root: write(
            root / "coco_counterfactuals/examples.jsonl",
            lines([without(counterfactual_rows()[0], "image_1")]),
        ),
        "an object with id, image_0, caption_0, caption_1",
    ),
    "colorswap": (
        lambda root: write_json(root / "colorswap/test.json", {"0": {}}),
        "an object with 0",
    ),
    "eqben": (
        lambda root: write_json(
            root / "eqben/private_info_global.json", [without(eqben_rows()[0], "image0")]
        ),
        "an object with image1, caption0, caption1",
    ),
    "mmvp-vlm": (
        lambda root: write_table(root / "mmvp_vlm/Questions.csv", mmvp_rows()[1:]),
        "'2 of type Orientation and 3 of type Orientation'",
    ),
    "svo-probes": (
        lambda root: write_table(
            root / "svo_probes/svo_probes.csv", [without(svo_row(0, "verb"), "verb_neg")]
        ),
        "an object with sentence, pos_triplet, neg_triplet, pos_url, neg_url, pos_image_id, "
        "neg_image_id, subj_neg and 1 more",
    ),
    "vsr": (
        lambda root: write(
            root / "vsr/splits/random/test.jsonl", lines([vsr_row(0, 1) | {"label": 2}])
        ),
        "2",
    ),
    "whatsup": (
        lambda root: write_json(
            root / "whatsup/controlled_images_dataset.json",
            [A_ROWS[0] | {"caption_options": ["A mug on a table", "A mug under a table"]}],
        ),
        "a list of length 2",
    ),
    "whatsup/coco": (
        lambda root: write_json(root / "whatsup/coco_qa_one_obj.json", [[9, "A mole"]]),
        "a list of length 2",
    ),
    "whatsup/gqa": (
        lambda root: write_json(root / "whatsup/vg_qa_one_obj.json", {"9": []}),
        "an object with 9",
    ),
}


@EVERY
def test_another_layout_is_named_with_what_was_expected(id: str, tmp_path: Path) -> None:
    make, found = WRONG[id]
    path = make(tmp_path)
    with raises("E-LAYOUT-UNEXPECTED", found) as caught:
        load(id, tmp_path)
    said = str(caught.value)
    assert str(path) in said and found in said


@pytest.mark.parametrize("name", ["/etc/passwd", "../../passwd", "passwd", "..", "a\0b", "/"])
@pytest.mark.parametrize("id", ["colorswap", "eqben", "imagecode", "spec", "whatsup"])
def test_names_of_images_lead_nowhere_else(id: str, name: str, tmp_path: Path) -> None:
    """A name that is no path below the data root is refused, or its image cannot be read."""
    both = {"image_1": name, "image_2": name}
    rows: dict[str, tuple[str, Any]] = {
        "colorswap": ("colorswap/test.json", [colorswap_row(0) | both]),
        "eqben": (f"eqben/{EQBEN_FILES[0]}", [eqben_rows()[0] | {"image0": name}]),
        "imagecode": ("imagecode/valid_data.json", {name: {"0": "a mole"}}),
        "spec": (
            "spec/absolute_size/image2text.json",
            [{"query": name, "keys": ["a", "b"], "label": 0}],
        ),
        "whatsup": ("whatsup/controlled_images_dataset.json", [A_ROWS[0] | {"image_path": name}]),
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


def test_colorswap_is_the_test_split(tmp_path: Path) -> None:
    LAYOUTS["colorswap"](tmp_path)
    first = load("colorswap", tmp_path)[0]
    file = "parquet:colorswap/data/test-00000-of-00001.parquet"
    assert [image.path for image in first.images] == [f"{file}#image_1/0", f"{file}#image_2/0"]
    assert (first.id, first.truth) == ("700", IDENTITY)
    assert first.captions == ("a red mole and a blue hill 0", "a blue mole and a red hill 0")
    assert first.groups == ("caption/human", "image/sdxl")


def test_colorswap_of_the_archive_is_the_same(tmp_path: Path) -> None:
    LAYOUTS["colorswap"](tmp_path / "hub")
    rows = [
        colorswap_row(n) | {f"image_{side}": f"images/img_{n}_{side}.png" for side in (1, 2)}
        for n in range(PAIRS)
    ]
    write_json(tmp_path / "archive/colorswap/data/test.json", rows)
    hub, archive = (load("colorswap", tmp_path / name) for name in ("hub", "archive"))
    assert archive[0].images[0].path == "colorswap/data/images/img_0_1.png"
    for one, other in zip(hub, archive, strict=True):
        assert (one.id, one.captions, one.groups) == (other.id, other.captions, other.groups)


def test_mmvp_has_nine_patterns_of_fifteen_pairs(tmp_path: Path) -> None:
    LAYOUTS["mmvp-vlm"](tmp_path)
    cases = load("mmvp-vlm", tmp_path)
    assert [case.id for case in cases] == ["1", "3", "5", "265", "267", "269"]
    assert [case.groups for case in cases] == [("Orientation and Direction",)] * 3 + [
        ("Viewpoint and Perspective",)
    ] * 3
    assert cases[0].captions == ("a photo of mole number 1", "a photo of mole number 2")
    folder = "mmvp_vlm/MLLM_VLM Images"
    assert [image.path for image in cases[3].images] == [
        f"{folder}/Camera Perspective/{number}.jpg" for number in (265, 266)
    ]
    assert BENCHMARKS.get("mmvp-vlm").count == 9 * 15


def test_whatsup_has_the_right_caption_first_and_sets_as_sources(tmp_path: Path) -> None:
    LAYOUTS["whatsup"](tmp_path)
    cases = load("whatsup", tmp_path)
    assert cases[0].captions[0] == "A mug left of a table" and len(cases[0].captions) == 4
    assert cases[0].truth == ((True, False, False, False),)
    assert cases[0].images[0].path == "whatsup/controlled_images/mug_left_of_table.jpeg"
    assert [case.groups[0] for case in cases[:4]] == ["a/left_of", "a/right_of", "a/on", "a/under"]
    assert [case.groups[0] for case in cases[-2:]] == ["b/in-front_of", "b/behind"]
    assert len({case.cluster for case in cases}) == 3  # pairs of objects


@pytest.mark.parametrize("together", [2, 4])
def test_whatsup_pairs_and_sets(together: int, tmp_path: Path) -> None:
    """All photographs of a case have to get their own caption: counted from single ones here."""
    LAYOUTS["whatsup"](tmp_path)
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
    pairs = ["a/left_of+right_of", "a/on+under"] * 2 + [
        "b/left_of+right_of",
        "b/in-front_of+behind",
    ]
    sets = ["a/left_of+right_of+on+under"] * 2 + ["b/left_of+right_of+in-front_of+behind"]
    assert labels == {2: pairs, 4: sets}[together]
    [row] = [row for row in rows_of(run, names[1]) if row["metric"] == "image_to_text"]
    assert row["chance"] == pytest.approx(4**-together)
    with raises("E-OPTION-INVALID", "together"):
        load("whatsup:together=3", tmp_path)


def rows_of(run: cp.Run, benchmark: str) -> list[dict[str, Any]]:
    found = run.results(resamples=9).to_dicts()
    return [row for row in found if (row["benchmark"], row["group"]) == (benchmark, "all")]


def test_a_set_of_whatsup_that_is_not_whole(tmp_path: Path) -> None:
    LAYOUTS["whatsup"](tmp_path)
    write_json(tmp_path / "whatsup/controlled_images_dataset.json", A_ROWS[1:])
    assert len(load("whatsup", tmp_path)) == 11
    with raises("E-LAYOUT-UNEXPECTED"):
        load("whatsup:together=4", tmp_path)


def test_whatsup_means_are_over_the_subsets(tmp_path: Path) -> None:
    """A has twice as many cases as B here, and counts as much."""
    LAYOUTS["whatsup"](tmp_path)
    run = cp.evaluate("random", "whatsup", data=tmp_path, out=tmp_path / "runs")
    rows = run.results(groups=True, resamples=9).to_polars().filter(metric="original_accuracy")
    values = dict(rows.select("group", "value").iter_rows())
    assert values["all"] == pytest.approx((values["a"] + values["b"]) / 2)


def test_whatsup_images_of_coco_and_visual_genome(tmp_path: Path) -> None:
    LAYOUTS["whatsup/coco"](tmp_path)
    LAYOUTS["whatsup/gqa"](tmp_path)
    coco, gqa = (load(f"whatsup/{name}", tmp_path) for name in ("coco", "gqa"))
    assert coco[0].images[0].path == "coco/val2017/000000000009.jpg"
    assert [case.groups[0] for case in coco] == [
        "one/left",
        "one/right",
        "one/top",
        "two/above",
        "two/left",
    ]
    assert gqa[0].images[0].path == "whatsup/vg_images/9.jpg"
    assert gqa[-1].images[0].path == "visual_genome/VG_100K_2/2.jpg"
    assert gqa[-1].groups == ("two/front",)


def test_svo_is_a_choice_between_two_images(tmp_path: Path) -> None:
    LAYOUTS["svo-probes"](tmp_path)
    cases = load("svo-probes", tmp_path)
    assert cases[0].truth == ((True,), (False,))
    assert [image.path for image in cases[0].images] == [
        "svo_probes/images/0.jpg",
        "svo_probes/images/100.png",
    ]
    groups = ["subject", "verb", "verb", "object", "object", "several"]
    assert [case.groups[0] for case in cases] == groups
    run = cp.evaluate("random", "svo-probes", data=tmp_path, out=tmp_path / "runs")
    rows = run.results(resamples=9).to_polars().filter(group="all")
    found = dict(rows.select("metric", "n").iter_rows())
    assert found["text_to_image"] == 5  # rows in which several things differ are not counted
    assert not {"image_to_text", "group", "original_accuracy"} & set(found)


def test_svo_without_one_of_its_images_is_left_out(tmp_path: Path) -> None:
    """With one image there would be nothing to choose, and the case always right."""
    LAYOUTS["svo-probes"](tmp_path)
    (tmp_path / "svo_probes/images/101.png").unlink()
    run = cp.evaluate(Colours(), "svo-probes", data=tmp_path, out=tmp_path / "runs")
    [part] = run.parts.values()
    assert len(part.cases) == 5 and [one[0] for one in part.left_out] == ["1"]


def test_eqben_has_parts_and_takes_converted_frames(tmp_path: Path) -> None:
    LAYOUTS["eqben"](tmp_path)
    cases = load("eqben", tmp_path)
    ids = ["eqbensd/0", "eqbenkubric_cnt/0", "eqbensd/1", "eqbenyoucook2/0", "eqbenag/0"]
    assert [case.id for case in cases] == ids
    assert cases[3].images[0].path == "eqben/image_subset/eqbenyoucook2/v3/0.png"
    assert cases[4].captions == ("a mole is digging", "a mole is singing")
    assert {case.truth for case in cases} == {IDENTITY}


def test_eqben_of_single_rows_is_the_same(tmp_path: Path) -> None:
    LAYOUTS["eqben"](tmp_path)
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


def test_counterfactuals_keep_their_ids(tmp_path: Path) -> None:
    LAYOUTS["coco-counterfactuals"](tmp_path)
    first = load("coco-counterfactuals", tmp_path)[0]
    assert (first.id, first.captions) == ("236300_0", ("A mole digs 0.", "A fox digs 0."))
    assert [image.path for image in first.images] == [
        f"coco_counterfactuals/data/images/236300_0_img_{side}.jpg" for side in (0, 1)
    ]


def test_vismin_follows_the_solution(tmp_path: Path) -> None:
    LAYOUTS["vismin"](tmp_path)
    first, second = load("vismin", tmp_path)[:2]
    assert first.captions == ("one mole 0", "two moles 0")
    assert second.captions == ("two moles 1", "one mole 1") and second.truth == IDENTITY
    assert [image.path[-2:] for image in second.images] == ["/1", "/1"]
    assert (first.groups, second.groups) == (("object",), ("counting",))
    assert (first.id, second.id) == ("object/0", "counting/0")  # both are called 0
    solutions = [vismin_solution(number) for number in range(PAIRS - 1)]
    path = write_table(tmp_path / "vismin/sim_solution.csv", solutions)
    with raises("E-LAYOUT-UNEXPECTED", path, "5"):
        load("vismin", tmp_path)


def test_bla_has_two_true_sentences(tmp_path: Path) -> None:
    LAYOUTS["bla"](tmp_path)
    cases = load("bla", tmp_path)
    assert [case.groups[0] for case in cases[::2]] == [
        "active-passive",
        "coordination",
        "relative-clause",
    ]
    assert cases[0].truth == ((True, True, False, False),)
    assert cases[0].captions[1] == "the fox is watched by the mole 0"
    assert cases[0].images[0].path == "bla/BLA_benchmark/images/1047.jpg"
    assert cases[1].images[0].path == "visual_genome/VG_100K/1048.jpg"


def test_imagecode_has_ten_images_in_the_order_of_frames(tmp_path: Path) -> None:
    LAYOUTS["imagecode"](tmp_path)
    first, second, third = load("imagecode", tmp_path)
    assert first.id == f"{VIDEO}/6" and second.captions == ("a mole looks up",)
    assert [line[0] for line in first.truth].index(True) == 6 and len(first.truth) == 10
    assert first.images[9].path == f"imagecode/{VIDEO}/img27.jpg"  # not between img2 and img3
    assert third.images[0].path == f"imagecode/image-sets/{STATIC}/img0.jpg"
    assert [case.groups[0] for case in (first, second, third)] == ["video", "video", "static"]
    assert first.cluster == second.cluster != third.cluster


def test_a_set_without_ten_images_is_named(tmp_path: Path) -> None:
    LAYOUTS["imagecode"](tmp_path)
    (tmp_path / f"imagecode/{VIDEO}/img27.jpg").unlink()
    with raises("E-LAYOUT-UNEXPECTED"):
        load("imagecode", tmp_path)


def test_spec_in_both_directions(tmp_path: Path) -> None:
    LAYOUTS["spec"](tmp_path)
    captions, images = (load(id, tmp_path) for id in ("spec", "spec/text-to-image"))
    assert [len(case.captions) for case in captions] == [3, 3, 9, 4, 2, 9]
    assert [len(case.images) for case in images] == [3, 3, 9, 4, 2, 9]
    assert captions[0].id == "absolute_size/0" and captions[0].captions[0] == "1 moles"
    assert captions[0].images[0].path == "spec/data/absolute_size/images/0_1.jpg"
    assert images[-1].truth == ((True,), *[(False,)] * 8) and images[-1].groups == ("count",)


def test_vsr_labels_are_grades(tmp_path: Path) -> None:
    LAYOUTS["vsr"](tmp_path)
    cases = load("vsr", tmp_path)
    assert [case.grades for case in cases[:4]] == [(0.0,), (0.0,), (1.0,), (1.0,)]
    assert [case.truth for case in cases[1:3]] == [((False,),), ((True,),)]
    assert cases[1].images[0].path == "coco/val2017/000000000001.jpg"
    assert cases[0].groups == ("left of",) and len(load("vsr:split=zeroshot", tmp_path)) == 2
    with raises("E-OPTION-INVALID", "split"):
        load("vsr:split=train", tmp_path)


def test_vsr_of_a_model_that_sees_the_label(tmp_path: Path) -> None:
    """True pairs have captions of their own here: a model that prefers them is always right."""
    rows = [vsr_row(n, n % 2) | {"caption": "A mole." * (1 + n % 2)} for n in range(40)]
    write(tmp_path / "vsr/splits/random/test.jsonl", lines(rows))
    for number, row in enumerate(rows):
        write(tmp_path / "coco" / row["image_link"].split("/", 3)[3], pixels(number))
    run = cp.evaluate("blind:length", "vsr", data=tmp_path, out=tmp_path / "runs")
    rows = run.results(resamples=9).to_polars().filter(group="all")
    found = dict(rows.select("metric", "value").iter_rows())
    assert found["auroc"] == 0.0  # the shorter caption wins, and the false one is shorter
