"""`evaluate`: what goes into a run folder, and that every number comes out of it again."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from errors import raises
from PIL import Image
from typer.testing import CliRunner

import counterpoint
from counterpoint.benchmarks import load_benchmark
from counterpoint.cases import read_cases
from counterpoint.cases.captions import aro
from counterpoint.cli.app import app
from counterpoint.evaluation import evaluate, slug
from counterpoint.metrics import PROTOCOLS
from counterpoint.runs import Run, load_run, part_sizes, rows

COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}
FEW = 50  # resamples


class Colours:
    """A dual encoder that knows three colours, and that words take room: a token each, plus two."""

    fingerprint = "colours 1"
    context_length = 12

    def __init__(self) -> None:
        self.seen: list[str] = []

    def preprocess(self, image: Image.Image) -> np.ndarray:
        return np.asarray(image, dtype=np.float32).mean(axis=(0, 1)) / 255

    def encode_images(self, images: Sequence[np.ndarray]) -> np.ndarray:
        return np.stack(images)

    def count_tokens(self, captions: Sequence[str]) -> np.ndarray:
        return np.array([len(caption.split()) + 2 for caption in captions])

    def encode_captions(self, captions: Sequence[str]) -> np.ndarray:
        self.seen += captions
        return np.stack([colour_vector(caption) for caption in captions])


def colour_vector(caption: str) -> np.ndarray:
    counts = [caption.lower().split().count(name) + 0.01 * len(caption) for name in COLOURS]
    vector = np.array(counts, dtype=np.float32)
    return vector / np.linalg.norm(vector)


def write_images(folder: Path) -> None:
    for name, colour in COLOURS.items():
        Image.new("RGB", (16, 16), colour).save(folder / f"{name}.png")
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(folder / "broken.png")
    data = (folder / "broken.png").read_bytes()
    (folder / "broken.png").write_bytes(data[: len(data) // 2])


def line(id: str, image: str, captions: list[str], group: str, positives: int = 2) -> str:
    truth = [[i < positives for i in range(len(captions))]]
    values = {"id": id, "images": [image], "captions": captions, "truth": truth, "groups": [group]}
    return json.dumps(values)


GOOD_LINES = [
    # Both true captions win.
    line("r1", "red.png", ["a red wall", "red, a red wall", "a green wall"], "plain"),
    # The rewording names another colour more often: brittle.
    line("g1", "green.png", ["a green door", "green red red door", "a blue green"], "plain"),
    # Wrong: only the negative names the colour.
    line("b1", "blue.png", ["a door", "the door", "a blue door"], "odd"),
    # A tie: the captions are the same but for words that count for nothing.
    line("b2", "blue.png", ["a blue door", "one blue do", "a blue roof"], "odd"),
]
BAD_LINES = [
    line("gone", "gone.png", ["a red wall", "red wall", "a green wall"], "odd"),
    line("broken", "broken.png", ["a red wall", "red wall", "a green wall"], "odd"),
]


@pytest.fixture
def good(tmp_path) -> str:
    return case_file(tmp_path, "good.jsonl", GOOD_LINES)


@pytest.fixture
def bad(tmp_path) -> str:
    return case_file(tmp_path, "bad.jsonl", [BAD_LINES[0], *GOOD_LINES, BAD_LINES[1]])


def case_file(folder: Path, name: str, lines: list[str]) -> str:
    write_images(folder)
    (folder / name).write_text("\n".join(lines) + "\n")
    return str(folder / name)


def manifest_of(run: Run) -> dict:
    assert run.folder is not None
    return json.loads((run.folder / "run.json").read_text())


def score_table(run: Run) -> pl.DataFrame:
    assert run.folder is not None
    return pl.read_parquet(run.folder / "scores.parquet")


def values_of(run: Run, group: str = "all") -> dict[str, float]:
    return {row.metric: row.value for row in rows(run, resamples=FEW) if row.group == group}


# --- models and folders ------------------------------------------------------------------------


def test_a_model_object_is_evaluated_under_its_name(good, tmp_path):
    [run] = evaluate([("mine", Colours())], good, out=tmp_path / "run")
    assert run.model == "mine"
    assert run.folder == tmp_path / "run"
    assert {row.model for row in rows(run, resamples=FEW)} == {"mine"}
    assert sorted(path.name for path in run.folder.iterdir()) == [
        "cases.parquet",
        "run.json",
        "scores.parquet",
    ]


def test_a_model_that_cannot_be_hashed(good, tmp_path):
    @dataclass
    class Length:
        fingerprint: str = "length 1"

        def score_captions(self, captions: Sequence[str]) -> np.ndarray:
            return np.array([float(len(caption)) for caption in captions])

    model = ("mine", Length())
    [run] = evaluate([model, model], good, out=tmp_path / "run")  # one object is one model
    assert run.model == "mine" and np.isfinite(run.parts[str(good)].scores).all()


def test_one_model_takes_the_folder_and_several_take_one_each_in_it(good, tmp_path):
    [alone] = evaluate(["random"], [good], out=tmp_path / "one")
    assert alone.folder == tmp_path / "one"
    runs = evaluate(["random", "blind:length", ("a/b c", Colours())], good, out=tmp_path / "many")
    names = [run.folder.relative_to(tmp_path / "many").as_posix() for run in runs]
    assert names == ["random", "blind-length", "a-b-c"]
    assert [load_run(run.folder).model for run in runs] == ["random", "blind:length", "a/b c"]


def test_models_whose_names_make_one_folder_do_not_overwrite_each_other(good, tmp_path):
    models = [("tiny/a", Colours()), ("tiny:a", Colours())]
    runs = evaluate(models, good, out=tmp_path / "many")
    assert [load_run(run.folder).model for run in runs] == ["tiny/a", "tiny:a"]


def test_names_become_folders_that_stay_inside():
    names = ("world:base", "open_clip:ViT-B-32/openai", "../../etc", "..")
    assert [*map(slug, names)] == ["world-base", "open_clip-ViT-B-32-openai", "etc", "model"]


@pytest.mark.slow
def test_the_default_folder_is_the_same_for_the_same_question(good):
    first, again = (evaluate("random", good, batch_size=size) for size in (2, "auto"))
    assert first.folder == again.folder
    world = "world-bi:size=4"
    both = [evaluate("random", order).folder for order in ([good, world], [world, good])]
    assert both[0] == both[1] != first.folder
    assert first.folder.parent == Path("runs")
    assert first.folder.name.startswith("random-")
    others = [
        evaluate("random", good, limit=2),
        evaluate("random", good, protocol="vg-relation"),
        evaluate("random", "world-bi:size=4"),
        evaluate("blind:length", good),
    ]
    assert len({first.folder, *(run.folder for run in others)}) == 5


def test_an_older_run_is_replaced_and_other_things_are_not(good, tmp_path):
    evaluate("random", good, out=tmp_path / "run")
    evaluate("random", good, out=tmp_path / "run", batch_size=7)
    evaluate("blind:length", good, out=tmp_path / "run", overwrite=True)
    assert load_run(tmp_path / "run").model == "blind:length"
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "mother.txt").write_text("dear")
    with raises("E-OUTPUT-EXISTS", tmp_path / "letters"):
        evaluate("random", good, out=tmp_path / "letters")
    assert (tmp_path / "letters" / "mother.txt").read_text() == "dear"
    assert not list(tmp_path.glob(".*tmp")) and not list(tmp_path.glob(".*old"))


@pytest.mark.slow
def test_a_run_of_another_question_is_not_replaced(good, tmp_path):
    asked = {"models": "random", "benchmarks": good, "out": tmp_path / "run"}
    before = evaluate(**asked)
    for other in (
        {"models": "blind:length"},
        {"benchmarks": "world-swap:size=4"},
        {"limit": 2},
        {"precision": "bf16"},
        {"protocol": "aro-order"},
    ):
        with raises("E-OUTPUT-EXISTS", tmp_path / "run"):
            evaluate(**{**asked, **other})
    assert manifest_of(before) == json.loads((tmp_path / "run" / "run.json").read_text())


def test_a_run_of_a_newer_version_is_not_replaced_and_a_damaged_one_is(good, tmp_path):
    run = evaluate("random", good, out=tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    path.write_text(json.dumps({**manifest_of(run), "format": 99}))
    with raises("E-RUN-FORMAT", tmp_path / "run", 99):
        evaluate("random", good, out=tmp_path / "run")
    path.write_text("{")
    evaluate("random", good, out=tmp_path / "run")
    assert load_run(tmp_path / "run").model == "random"


def test_two_models_of_one_name_are_refused(good, tmp_path):
    models = [("m", Colours()), ("m", Colours())]
    with raises("E-MODEL-REPEATED", "m"):
        evaluate(models, good, out=tmp_path / "runs")
    [run] = evaluate([models[0], models[0]], good, out=tmp_path / "runs")  # the same one twice
    assert run.model == "m"


# --- options -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_limit_takes_so_many_of_each_benchmark():
    run = evaluate("random", ["world-swap:size=80", "world-bi:size=80"], limit=8, out="run")
    assert [len(part.cases) for part in run.parts.values()] == [8, 8]
    groups = run.parts["world-bi:size=80"].cases.frame["groups"].list.first()
    assert groups.str.starts_with("swap").sum() == 4  # shares are kept
    whole = evaluate("random", "world-swap:size=5", limit=100, out="whole")
    assert len(whole.parts["world-swap:size=5"].cases) == 5


def test_a_benchmark_asked_for_twice_is_scored_once(good, tmp_path):
    run = evaluate("random", [good, good], out=tmp_path / "run")
    assert list(run.parts) == [good]


def test_the_protocol_is_the_benchmarks_own_unless_told(tmp_path, good):
    run = evaluate("random", ["world-swap:size=4", "world-bi:size=4", good], out=tmp_path / "a")
    used = [part.protocol.name for part in run.parts.values()]
    assert used == ["hard-positives", "bivlc", "strict"]
    run = evaluate("random", "world-swap:size=4", protocol="vg-relation", out=tmp_path / "b")
    assert run.parts["world-swap:size=4"].protocol == PROTOCOLS["vg-relation"]


def test_the_protocol_decides_what_a_tie_is_worth(good, tmp_path):
    by_name = {
        name: values_of(
            evaluate([("mine", Colours())], good, protocol=name, out=tmp_path / name)[0]
        )
        for name in ("strict", "aro-order")
    }
    assert by_name["strict"]["original_accuracy"] == 0.5  # r1, g1; b2 ties
    assert by_name["aro-order"]["original_accuracy"] == 0.75


def test_captions_are_written_as_the_protocol_says(tmp_path):
    raw = ["A RED wall.", "Red; (a wall)", 'the "green" wall!']
    file = case_file(tmp_path, "shouted.jsonl", [line("1", "red.png", raw, "plain")])
    model = Colours()
    [run] = evaluate([("mine", model)], file, protocol="aro-order", out=tmp_path / "run")
    clean = ["a red wall", "red a wall", "the green wall"]
    assert [aro(caption) for caption in raw] == clean
    assert sorted(model.seen) == sorted(clean)
    stored = pl.read_parquet(run.folder / "cases.parquet")
    assert stored["captions"].to_list() == [clean]
    plain = Colours()
    evaluate([("mine", plain)], file, out=tmp_path / "plain")
    assert sorted(plain.seen) == sorted(raw)


LONG = ["a red " + "very " * 9 + "wall", "a red wall", "a green wall"]  # 12 words, 14 tokens


def test_captions_beyond_the_context_are_left_out_or_cut_and_counted(tmp_path):
    file = case_file(tmp_path, "l.jsonl", [line("long", "red.png", LONG, "plain"), GOOD_LINES[0]])
    [run] = evaluate([("mine", Colours())], file, out="strict")
    [part] = run.parts.values()
    assert part.left_out == (("long", "caption too long: 14 tokens, the model takes 12."),)
    assert part.cases.ids.to_list() == ["r1"] and part.cut_captions == 0
    [run] = evaluate([("mine", Colours())], file, protocol="crepe", out="crepe")
    [part] = run.parts.values()
    assert (part.left_out, part.cut_captions) == ((), 1)
    assert manifest_of(run)["benchmarks"][file]["cut_captions"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "options", "code"),
    [
        (([], ["world-bi"]), {}, "E-ARGUMENT-MISSING"),
        ((["random"], []), {}, "E-ARGUMENT-MISSING"),
        ((["random"], ["world-bi:size=4"]), {"limit": 0}, "E-OPTION-INVALID"),
        ((["random"], ["world-bi:size=4"]), {"batch_size": 0}, "E-OPTION-INVALID"),
        ((["random"], ["world-bi:size=4"]), {"protocol": "stric"}, "E-PROTOCOL-UNKNOWN"),
        ((["rndom"], ["world-bi:size=4"]), {}, "E-MODEL-UNKNOWN"),
        ((["random"], ["nowhere.jsonl"]), {}, "E-FILE-MISSING"),
    ],
)
def test_wrong_questions_are_answered_in_a_line(arguments, options, code):
    with raises(code) as caught:
        evaluate(*arguments, **options)
    assert "\n" not in str(caught.value)
    assert not Path("runs").exists()


# --- own cases with missing images -------------------------------------------------------------


def test_missing_and_broken_images_are_left_out_by_name(bad, tmp_path):
    [run] = evaluate([("mine", Colours())], bad, out=tmp_path / "run")
    [part] = run.parts.values()
    assert part.cases.ids.to_list() == ["r1", "g1", "b1", "b2"]
    reasons = dict(part.left_out)
    assert list(reasons) == ["gone", "broken"]
    assert reasons["gone"] == f"image {tmp_path / 'gone.png'}: no such file."
    assert reasons["broken"].startswith(f"image {tmp_path / 'broken.png'}: broken")
    assert run.left_out == 2


def test_what_is_left_out_changes_no_other_number(good, bad, tmp_path):
    [without] = evaluate([("mine", Colours())], good, out=tmp_path / "a")
    [with_bad] = evaluate([("mine", Colours())], bad, out=tmp_path / "b")
    assert values_of(without) == values_of(with_bad)


def test_a_run_of_which_nothing_can_be_scored_is_an_error(bad, tmp_path):
    file = case_file(tmp_path, "none.jsonl", BAD_LINES)
    evaluate([("mine", Colours())], bad, out=tmp_path / "run")
    before = (tmp_path / "run" / "run.json").read_bytes()
    with raises("E-RUN-EMPTY", "mine") as error:
        evaluate([("mine", Colours())], file, out=tmp_path / "run", overwrite=True)
    assert "no such file" in str(error.value) and "image missing: 1" in str(error.value)
    assert (tmp_path / "run" / "run.json").read_bytes() == before


def test_one_benchmark_of_which_nothing_can_be_scored_costs_no_other(bad, tmp_path):
    file = case_file(tmp_path, "none.jsonl", BAD_LINES)
    [run] = evaluate([("mine", Colours())], [file, bad], out=tmp_path / "run")
    again = load_run(tmp_path / "run")
    assert {row.benchmark for row in rows(again, resamples=FEW)} == {bad}
    assert again.left_out == run.left_out == 4
    done = CliRunner().invoke(app, ["rescore", str(tmp_path / "run")])
    assert done.exit_code == 0 and "2 of 2 cases were left out" in done.stderr


def test_a_run_knows_how_much_the_whole_benchmark_has(bad, tmp_path):
    size = "world-bi:size=8"
    run = evaluate(("mine", Colours()), [bad, size], out=tmp_path / "run", limit=4)
    assert [part.whole for part in load_run(tmp_path / "run").parts.values()] == [6, 8]
    assert part_sizes([run])["mine", size] == "4 of 8"
    assert "4 of 8" in repr(run.results())


def test_blind_models_need_no_image(bad, tmp_path):
    run = evaluate("blind:length", bad, out=tmp_path / "run")
    assert run.left_out == 0


# --- what is written ---------------------------------------------------------------------------


def test_run_json_says_what_was_done(bad, tmp_path):
    [run] = evaluate([("mine", Colours())], bad, out=tmp_path / "run", batch_size=3, device="cpu")
    said = manifest_of(run)
    assert said["model"] == "mine"
    assert said["fingerprint"] == "colours 1"
    assert said["options"] == {
        "limit": None,
        "batch_size": 3,
        "device": "cpu",
        "precision": "fp32",
        "trust_remote_code": False,
    }
    assert said["versions"]["python"] == platform.python_version()
    assert said["versions"]["numpy"] == np.__version__
    assert said["versions"]["polars"] == pl.__version__
    assert said["versions"]["counterpoint"]
    assert said["created"].endswith("+00:00")
    part = said["benchmarks"][bad]
    assert (part["cases"], part["scored"], part["pairs"]) == (6, 4, 12)
    assert [left["case_id"] for left in part["left_out"]] == ["gone", "broken"]
    assert "no such file" in part["left_out"][0]["reason"]
    assert part["protocol"]["name"] == "strict"
    assert part["protocol"]["tie"] == "wrong"
    assert part["root"] == str(tmp_path)


@pytest.mark.slow
def test_the_data_hash_follows_the_data(good, bad, tmp_path):
    def hash_of(file: str) -> str:
        run = evaluate("random", file, out=tmp_path / "run", overwrite=True)
        return manifest_of(run)["benchmarks"][file]["data_hash"]

    before = hash_of(good)
    assert before == hash_of(good) == read_cases(good).content_hash()
    assert hash_of(bad) != before
    Path(good).write_text(Path(good).read_text().replace("a red wall", "a red walk", 1))
    assert hash_of(good) != before


@pytest.mark.slow
def test_the_bundled_model_says_where_and_how_it_ran(tmp_path):
    run = evaluate("world:base", "world-swap:size=4", out=tmp_path / "run", device="cpu")
    said = manifest_of(run)
    info = said["model_info"]
    assert (info["device"], info["precision"]) == ("cpu", "fp32")
    assert set(info["versions"]) == {"onnxruntime"}
    assert said["options"]["batch_size"] == "auto"
    assert len(said["fingerprint"]) == 32
    assert said["benchmarks"]["world-swap:size=4"]["root"] is None


def test_scores_are_one_float32_a_pair(good, tmp_path):
    [run] = evaluate([("mine", Colours())], [good, "world-bi:size=3"], out=tmp_path / "run")
    table = score_table(run)
    assert table.columns == ["benchmark", "case_id", "image", "caption", "score"]
    assert table["score"].dtype == pl.Float32
    cells = table.filter(pl.col("benchmark") == "world-bi:size=3", pl.col("case_id") == "1")
    assert cells.select("image", "caption").rows() == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert table.height == 4 * 3 + 3 * 4


def test_scores_are_the_dot_products_of_the_vectors(good, tmp_path):
    [run] = evaluate([("mine", Colours())], good, out=tmp_path / "run")
    scores = dict(score_table(run).group_by("case_id").agg("score").rows())
    for text in GOOD_LINES:
        case = json.loads(text)
        image = np.array(COLOURS[case["images"][0].removesuffix(".png")], dtype=np.float32) / 255
        expected = [float(image @ colour_vector(caption)) for caption in case["captions"]]
        assert scores[case["id"]] == pytest.approx(expected, abs=1e-6)


# --- numbers -----------------------------------------------------------------------------------


def by_hand(scores: pl.DataFrame, ids: list[str]) -> dict[str, float]:
    """The three numbers of hard positives from raw scores: original, positive, negative."""
    found = {"original_accuracy": 0, "augmented_accuracy": 0, "brittleness": 0}
    for id in ids:
        c, p, n = scores.filter(pl.col("case_id") == id).sort("caption")["score"].to_list()
        found["original_accuracy"] += c > n
        found["augmented_accuracy"] += c > n and p > n
        found["brittleness"] += c > n > p or p > n > c
    return {name: count / len(ids) for name, count in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("model", ["random:5", "blind:length"])
def test_the_numbers_are_those_of_the_stored_scores(model, tmp_path):
    name = "world-replace:size=120"
    run = evaluate(model, name, out=tmp_path / "run")
    labels = {
        id: groups[0]
        for id, groups in load_benchmark(name).cases.frame.select("id", "groups").rows()
    }
    groups = {"all": list(labels)}
    for id, label in labels.items():
        groups.setdefault(label, []).append(id)
        groups.setdefault(label.partition("/")[0], []).append(id)
    found = {(row.group, row.metric): row for row in rows(run, resamples=FEW)}
    for group, ids in groups.items():
        for metric, value in by_hand(score_table(run), ids).items():
            row = found[group, metric]
            assert row.value == pytest.approx(value, abs=1e-12)
            assert row.n == len(ids)
            assert row.ci_low <= row.value <= row.ci_high


def test_the_hand_made_cases_come_out_as_they_were_made(good, tmp_path):
    [run] = evaluate([("mine", Colours())], good, out=tmp_path / "run")
    plain, odd = values_of(run, "plain"), values_of(run, "odd")
    assert (plain["original_accuracy"], plain["augmented_accuracy"]) == (1.0, 0.5)
    assert (plain["brittleness"], plain["brittle_original_above"]) == (0.5, 0.5)
    assert (odd["original_accuracy"], odd["negative_above_both"], odd["tied"]) == (0.0, 0.5, 0.5)


@pytest.mark.slow
def test_a_loaded_run_gives_the_same_rows(bad, tmp_path):
    models = [("mine", Colours()), "random"]
    for run in evaluate(models, [bad, "world-bi:size=30"], out=tmp_path / "runs"):
        assert rows(load_run(run.folder), resamples=FEW) == rows(run, resamples=FEW)


def test_the_example_of_the_package_works(tmp_path):
    run = counterpoint.evaluate("random", ["world-swap:size=20", "world-replace:size=20"])
    found = run.results(resamples=FEW)
    assert {row.benchmark for row in found} == {"world-swap:size=20", "world-replace:size=20"}
    assert counterpoint.load_run(run.folder).model == "random"


def test_an_unknown_model_is_refused_before_a_benchmark_is_loaded() -> None:
    codes = {
        "E-MODEL-UNKNOWN": (
            *("blnd:bow", "blind:nothing", "world:nothing", "ensemble:random+blind:nothing"),
            "rerank:world:nothing+random",
        ),
        "E-MODEL-ID-INVALID": ("random:x", "ensemble:random", "rerank:world:base"),
        "E-MODEL-MISSING": ("vectors:nowhere",),
    }
    for code, models in codes.items():
        for model in models:
            with raises(code):
                evaluate(["random", model], "no-such-benchmark")


@pytest.mark.parametrize(
    ("benchmark", "protocol", "said"),
    [
        ("world-swap:size=4", "bivlc", "cases of one image"),
        ("world-bi:size=4", "sugarcrepe", "cases of several images"),
        ("world-bi:size=4", "retrieval", "cases of several images"),
        ("world-retrieval:size=40", "bivlc", "cases of galleries"),
    ],
)
def test_a_protocol_of_other_cases_is_refused(tmp_path, benchmark, protocol, said):
    with raises("E-PROTOCOL-MISFIT", benchmark, protocol) as error:
        evaluate("random", benchmark, protocol=protocol, out=tmp_path / "run")
    assert said in str(error.value) and "strict" in str(error.value)
    run = evaluate("random", benchmark, out=tmp_path / "run")
    with raises("E-PROTOCOL-MISFIT", benchmark, protocol) as error:
        run.results(protocol=protocol)
    assert said in str(error.value)
    assert evaluate("random", benchmark, protocol="strict", out=tmp_path / "strict").results()
