"""The scripts of the study on photographs: what is held out, what they run, and their tables."""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest
from hf_models import noise
from PIL import Image

SCRIPTS = Path(__file__).parents[2] / "scripts"
REPLACE = "hard-positives/replace"
METRICS = (
    "original_accuracy",
    "augmented_accuracy",
    "brittleness",
    "brittle_original_above",
    "auroc",
)


class Scripts(NamedTuple):
    data: ModuleType
    study: ModuleType
    tables: ModuleType


@pytest.fixture(scope="module")
def scripts() -> Iterator[Scripts]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPTS))
        names = ("photo_data", "photo_study", "photo_tables")
        yield Scripts(*(importlib.import_module(name) for name in names))


# --- data --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("positive", "pair"),
    [
        ("A large dog runs.", ("big", "large")),
        ("a big dog runs", ("", "")),  # case and full stop are no words
        ("A big dog sprints.", ("runs", "sprints")),
        ("A huge hound runs.", ("big dog", "huge hound")),
        ("A big brown dog runs.", ("", "brown")),
    ],
)
def test_a_pair_of_words_is_what_was_replaced(scripts: Scripts, positive: str, pair: Any) -> None:
    assert scripts.data.word_pair("A big dog runs.", positive) == pair


def texts_table() -> pl.DataFrame:
    rows = [
        ("a.jpg", "a big dog", ["a large dog", "a huge dog", "a big hound"]),
        ("a.jpg", "the dog sits", []),
        ("b.jpg", "a small cat", None),
    ]
    table = pl.DataFrame(rows, schema=["image", "caption", "positives"], orient="row")
    return table.with_columns(positive_types=pl.lit(["synonym"]))


def test_half_of_the_pairs_of_words_has_no_positives(scripts: Scripts) -> None:
    """All positives of a pair are in or out, whatever the caption; a caption may have none left."""
    known = {new: scripts.data.is_left_out(("big", new)) for new in ("large", "huge", "giant")}
    assert set(known.values()) == {True, False}  # the words below tell the two apart
    found = scripts.data.by_half(texts_table())["positives"].to_list()
    assert [text for text in found[0] if "dog" in text] == [
        f"a {new} dog" for new in ("large", "huge") if not known[new]
    ]
    assert found[1:] == [[], []]


def test_other_people_describe_the_same_photograph(scripts: Scripts) -> None:
    found = scripts.data.by_people(texts_table())
    assert found["positives"].to_list() == [["the dog sits"], ["a big dog"], []]
    assert found["caption"].to_list() == texts_table()["caption"].to_list()


PHOTOGRAPHS = 6
LEAKED = 2  # the number of a photograph that is also evaluated on, under another name


def data_root(root: Path) -> Path:
    """Six photographs of COCO with two captions each, two of Flickr8k; a case file of another
    benchmark that has a copy of one photograph, and the words of one caption."""
    rows = []
    (root / "coco/val2014").mkdir(parents=True)
    for n in range(PHOTOGRAPHS):
        name = f"val2014/COCO_val2014_{n + 1:012}.jpg"
        noise(24, 32, seed=n).save(root / "coco" / name)
        rows.append({"image": name, "caption": [f"a dog  number {n} .", f"the dog {n} runs"]})
    rows.append({"image": "val2014/COCO_val2014_999999999999.jpg", "caption": ["not at hand"]})
    (root / "coco/coco_karpathy_test.json").write_text(json.dumps(rows))
    flickr = [
        {"image": "1.jpg", "captions": ["a cat sits"], "split": "train"},
        {"image": "2.jpg", "captions": ["a cat jumps"], "split": "test"},
        {"image": "3.jpg", "captions": ["a cat sleeps"], "split": "dev"},
    ]
    (root / "flickr8k").mkdir()
    (root / "flickr8k/captions.json").write_text(json.dumps(flickr))
    copy = root / "evaluated/000000000042.jpg"
    copy.parent.mkdir()
    copy.write_bytes((root / "coco" / rows[LEAKED]["image"]).read_bytes())
    Image.new("RGB", (8, 8)).save(root / "evaluated/000000000043.jpg")
    cases = [
        {"id": n, "images": [f"{42 + n:012}.jpg"], "captions": texts, "truth": [[1, 0]]}
        for n, texts in enumerate([["a fox", "a hen"], ["A cat sits.", "a hen sits"]])
    ]
    path = root / "evaluated/cases.jsonl"
    path.write_text("".join(json.dumps(case) + "\n" for case in cases))
    return path


@pytest.fixture
def made(scripts: Scripts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, list]:
    """The folder that photo_data makes, and the commands that it runs (none is run here)."""
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path / "cache"))
    data, out, commands = tmp_path / "data", tmp_path / "out", []
    evaluated = data_root(data)

    def run(command: list[str], check: bool) -> None:
        commands.append(command[1:])
        target = Path(command[command.index("-o") + 1])
        captions = pl.read_parquet(out / "captions.parquet")
        texts = captions.with_columns(
            negatives=pl.concat_list(pl.col("caption") + " not"),
            negative_types=pl.lit(["replace"]),
            positives=pl.concat_list(pl.col("caption") + " indeed"),
            positive_types=pl.lit(["synonym"]),
            source=pl.lit("0"),
        )
        texts.write_parquet(target)

    monkeypatch.setattr(scripts.data.subprocess, "run", run)
    monkeypatch.setattr(scripts.data, "EVALUATED", (str(evaluated),))
    monkeypatch.setenv("COUNTERPOINT_DATA", str(data))
    arguments = ["photo_data.py", "--data", str(data), "--out", str(out), "--held-out", "2"]
    monkeypatch.setattr(sys, "argv", arguments)
    scripts.data.main()
    return out, commands


def test_nothing_of_an_evaluation_is_trained_on(made: tuple[Path, list]) -> None:
    out, _ = made
    counts = json.loads((out / "counts.json").read_text())
    assert (counts["photographs at hand"], counts["held out"]) == (PHOTOGRAPHS, 2)
    assert sum(counts["held out because another benchmark has them"].values()) == 1
    held = set(pl.read_parquet(out / "held-out.parquet")["image"])
    names = {name.removeprefix("eval/coco/") for name in held}
    assert f"val2014/COCO_val2014_{LEAKED + 1:012}.jpg" in names and len(names) == 2
    for table in ("train", "people", "half", "plausible", "coco"):
        trained = pl.read_parquet(out / f"{table}.parquet")
        assert names.isdisjoint(trained["image"])
        assert set(trained["image"].str.starts_with("val2014/")) == {True}
        # The caption of Flickr8k is a text of the other benchmark, but for a full stop and case.
        assert "a cat sits" not in trained["caption"].to_list()
    trained = pl.read_parquet(out / "train.parquet")
    assert len(trained) == counts["rows"] == 2 * (PHOTOGRAPHS - 2)
    assert "a dog number 0." in trained["caption"].to_list()  # blanks are tidied
    links = sorted(path.name for path in (out / "eval/coco/val2014").iterdir())
    assert links == sorted(Path(name).name for name in names)


def test_the_commands_that_make_the_texts(scripts: Scripts, made: tuple[Path, list]) -> None:
    out, commands = made
    assert all(command[:2] == ["-m", "counterpoint"] for command in commands)
    makes, exports = commands[:4], commands[4:]
    pairs = [str(out / f"{name}.parquet") for name in scripts.data.PAIRS]
    negatives, plausible, positives, _ = pairs
    assert [command[-1] for command in makes] == pairs
    for command, (kind, methods, more) in zip(makes, scripts.data.PAIRS.values(), strict=True):
        assert command[2:4] == ["generate", kind]
        assert tuple(b for a, b in pairwise(command) if a == "-M") == methods
        assert "--no-wordnet" in command and " ".join(more) in " ".join(command)
    assert "--plausible" in makes[0] and "--plausible" not in makes[1]
    sources = [Path(command[4]).name for command in makes]
    assert sources == ["captions.parquet"] * 3 + ["dev-captions.parquet"]
    developed = pl.read_parquet(out / "dev-captions.parquet")
    assert developed.rows() == [("flickr8k/3.jpg", "a cat sleeps")]
    assert [command[2:5] for command in exports] == [
        ["export", negatives, positives],
        ["export", plausible, positives],
    ]


def test_data_that_were_interrupted_are_finished(scripts: Scripts, made: tuple[Path, list]) -> None:
    out, commands = made
    before = {path.name: path.read_bytes() for path in out.glob("*.parquet")}
    (out / "plausible-negatives.parquet").unlink()
    (out / "train.parquet").unlink()
    commands.clear()
    scripts.data.main()
    assert [command[2] for command in commands] == ["generate", "export", "export"]
    assert {path.name: path.read_bytes() for path in out.glob("*.parquet")} == before


# --- the study ---------------------------------------------------------------------------------


def arguments(tmp_path: Path) -> argparse.Namespace:
    return argparse.Namespace(
        data=tmp_path / "data",
        photographs=tmp_path / "photographs",
        out=tmp_path / "out",
        towers="hf:TOWERS",
        base="base",
        steps=None,
        change=["epochs=2"],
        workers=3,
    )


def test_every_row_starts_from_the_base_of_its_seed_and_keeps_the_evaluations_out(
    scripts: Scripts, tmp_path: Path
) -> None:
    given = arguments(tmp_path)
    study = scripts.study.study_of(given)
    for row in study.rows:
        command = importlib.import_module("study").training(study, row, 1, given)
        assert command[1:4] == ["-m", "counterpoint", "train"]
        assert not any("{data}" in word for word in command)
        settings = dict(word.split("=", 1) for word in command[5:])  # the last of a name counts
        assert command[4] in ("clip-ft", "hn", "hp", "hp-hn", "counterpoint")
        kept = settings["data.keep_out"]
        assert all(name in kept for name in scripts.data.EVALUATED)
        assert str(tmp_path / "data/held-out.parquet") in kept
        assert settings["seed"] == "1" and settings["out"].endswith(f"out/{row}/seed-1")
        assert settings["data.path"].startswith(str(tmp_path / "data"))
        assert "image" in settings["lock"]
        start, _ = scripts.study.STAGES.get(row, (scripts.study.BASE, []))
        model = f"hf:{tmp_path}/out/{start}/seed-1/model" if start else "hf:TOWERS"
        assert settings["model"] == model
    assert set(scripts.data.EVALUATED) <= set(study.benchmarks)
    assert {*scripts.study.MODELS, *scripts.study.ROWS} <= set(study.rows)


def test_rows_can_start_from_another_base(scripts: Scripts, tmp_path: Path) -> None:
    given = arguments(tmp_path)
    given.base = "base-wise-0.5"
    starts = scripts.study.study_of(given).starts
    assert {starts[row] for row in scripts.study.ROWS} == {"base-wise-0.5"}
    assert starts["base"] == starts["base-wise-0.5"] == "heads" and "heads" not in starts


@pytest.fixture
def calls(
    scripts: Scripts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[argparse.Namespace, list[str]]]:
    """The arguments of a study, and what it runs: trainings make a folder, scorings a file."""
    runs: list[str] = []
    given = arguments(tmp_path)
    vars(given).update(minutes=60, parallel=4, score=None, seeds=[0, 1], recipes=["hn", "hp"])

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        if "--score" in command:
            path = given.out / "values" / f"{command[-1]}.npz"
            runs.append(command[-1])
        else:
            [out] = [word.removeprefix("out=") for word in command if word.startswith("out=")]
            path = Path(out) / "model"
            name = f"{path.parent.parent.name} {path.parent.name}"
            runs.append(name)
            if name == "hp seed-1":
                return subprocess.CompletedProcess(command, 1)
        path.mkdir(parents=True)
        return subprocess.CompletedProcess(command, 0)

    module = importlib.import_module("study")
    monkeypatch.setattr(module.subprocess, "run", run)
    monkeypatch.setattr(module, "_TRAINING", defaultdict(threading.Lock))
    yield given, runs


def test_a_base_is_trained_once_and_before_the_rows_that_start_from_it(
    scripts: Scripts, calls: tuple[argparse.Namespace, list[str]], capsys: pytest.CaptureFixture
) -> None:
    given, runs = calls
    study = scripts.study.study_of(given)
    scripts.study.run_study(study, given)
    assert sorted(runs) == sorted(
        [f"{row} seed-{seed}" for row in ("heads", "base", "hn", "hp") for seed in (0, 1)]
        + ["hn-0", "hn-1", "hp-0"]
    )
    for seed in (0, 1):
        order = [runs.index(f"{row} seed-{seed}") for row in ("heads", "base", "hn")]
        assert order == sorted(order)
        assert runs.index(f"base seed-{seed}") < runs.index(f"hp seed-{seed}")
    said = capsys.readouterr().out
    assert said.count("s, scored") == 3 and "hp-1: training FAILED" in said


def test_what_a_study_has_is_not_made_again(
    scripts: Scripts, calls: tuple[argparse.Namespace, list[str]]
) -> None:
    given, runs = calls
    (given.out / "base/seed-0/model").mkdir(parents=True)
    (given.out / "hn/seed-0/model").mkdir(parents=True)
    given.seeds, given.recipes = [0], ["base", "hn", "hp"]
    study = scripts.study.study_of(given)
    scripts.study.run_study(study, given)
    assert sorted(runs) == ["base-0", "hn-0", "hp seed-0", "hp-0"]


# --- tables ------------------------------------------------------------------------------------

CASES = [
    ["a big dog", "a large dog", "a big cat"],
    ["a big dog", "a huge dog", "a big cat"],
    ["a red car", "a crimson car", "a blue car"],
    ["a red car", "a scarlet car", "a blue car"],
]


def write_values(folder: Path, name: str, right: str, auroc: float) -> None:
    """Of each case: A (both above the negative), O (the original alone), N (the negative)."""
    columns = [[one in "AO", one == "A", one == "O", one == "O", 0] for one in right]
    arrays = {
        "values": np.array(columns, dtype=np.float32),
        "clusters": np.arange(len(right), dtype=np.int32),
        "metrics": np.array(METRICS),
        "pooled": np.array([metric == "auroc" for metric in METRICS]),
        "in/all": np.arange(len(right), dtype=np.int32),
        "numbers/all": np.array([np.nan] * 4 + [auroc]),
        "in/relations": np.array([2, 3], dtype=np.int32),
        "numbers/relations": np.array([np.nan] * 4 + [auroc]),
        "in/attributes": np.array([0, 1], dtype=np.int32),
        "numbers/attributes": np.array([np.nan] * 4 + [auroc]),
    }
    (folder / "values").mkdir(parents=True, exist_ok=True)
    named = {f"{REPLACE}/{key}": array for key, array in arrays.items()}
    np.savez_compressed(folder / "values" / f"{name}.npz", **named)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, right, auroc in (
        ("base-0", "NNNN", 0.5),
        ("hn-0", "OOAO", 0.6),
        ("hn-1", "OOAA", 0.8),
        ("hp-hn-0", "AAAN", 0.7),
        ("hp-hn-1", "AAAA", 0.9),
        ("counterpoint-0", "AAAA", 0.9),
        ("counterpoint-1", "AANA", 0.9),
    ):
        write_values(tmp_path, name, right, auroc)
    return tmp_path


def table_of(folder: Path, title: str) -> dict[str, list[str]]:
    """A table of table.md: the cells of each row."""
    [part] = [part for part in (folder / "table.md").read_text().split("## ") if title in part]
    lines = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("|")]
    return {line[0]: line[1:] for line in lines if not line[0].startswith("-")}


def test_the_tables_have_the_means_over_seeds_and_cases(scripts: Scripts, folder: Path) -> None:
    study = scripts.study.study_of(arguments(folder))
    scripts.tables.write_tables(folder, study, scripts.tables.SECTIONS, scripts.tables.SHORT)
    table = pl.read_csv(folder / "table.csv").filter(benchmark=REPLACE)
    keys = table.select("row", "group", "metric").rows()
    found = dict(zip(keys, table["value"], strict=True))
    assert found["hn", "all", "augmented_accuracy"] == pytest.approx((1 / 4 + 2 / 4) / 2)
    assert found["hn", "all", "brittleness"] == pytest.approx((3 / 4 + 2 / 4) / 2)
    assert found["hn", "relations", "augmented_accuracy"] == pytest.approx((1 / 2 + 1) / 2)
    assert found["hn", "all", "auroc"] == pytest.approx(0.7)  # of all pairs: not a mean of cases
    assert found["base", "all", "original_accuracy"] == 0
    [hn] = table.filter(row="hn", group="all", metric="brittleness").to_dicts()
    assert hn["seeds"] == "0.7500 0.5000" and hn["differences"].startswith("hp-hn: +0.6250 [")
    rows = table_of(folder, "Table 1: hard-positives/replace")
    assert [*rows] == ["row", "base", "hn", "hp-hn", "counterpoint"]  # no others have values
    assert [cell.split()[0] for cell in rows["hn"]] == ["100.0", "37.5", "62.5"]
    assert [cell.split()[0] for cell in rows["base"]] == ["0.0", "0.0", "0.0"]


def test_rows_without_a_seed_in_common_are_not_compared(scripts: Scripts, folder: Path) -> None:
    (folder / "values/hp-hn-0.npz").unlink()
    (folder / "values/hn-1.npz").unlink()
    study = scripts.study.study_of(arguments(folder))
    scripts.tables.write_tables(folder, study, scripts.tables.SECTIONS, scripts.tables.SHORT)
    rows = table_of(folder, "Table 1: hard-positives/replace")
    assert rows["hn"][:2] == ["100.0", "25.0"]
    table = pl.read_csv(folder / "table.csv").filter(group="all", metric="augmented_accuracy")
    told = dict(table.select("row", "differences").iter_rows())
    assert told["hn"] == "" and told["counterpoint"].startswith("hp-hn: -0.2500 [")


def test_rows_by_how_rare_the_words_of_the_negatives_are(scripts: Scripts, folder: Path) -> None:
    """In the training "cat" is as frequent as "dog", and "blue" is never seen."""
    write_values(folder, "clip-ft-0", "NOAA", 0.5)
    write_values(folder, "clip-ft-1", "NOAA", 0.5)
    trained = pl.DataFrame({"caption": ["a cat", "a dog", *["a red car"] * 30]})
    cases = [["a dog", "a hound", "a cat"], ["a car", "an auto", "a RED, car"], *CASES[2:]]
    lines = scripts.tables.by_rarity(folder, REPLACE, cases, trained).splitlines()
    assert "more frequent (1)" in lines[0] and "less than 20 times rarer (1)" in lines[0]
    rows = {line.split(" | ")[0].strip("| "): line.split(" | ")[1:] for line in lines[2:]}
    assert rows["clip-ft"][:3] == ["100.0", "0.0", "100.0"]  # the order of the heads
    assert rows["hn"][:3] == ["100.0", "100.0", "100.0"]
    assert rows["hn"][4].startswith("+1.0000 [") and rows["hn"][5].startswith("+0.0000 [")


@pytest.mark.slow
def test_the_script_of_the_tables_draws_them(
    scripts: Scripts, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["photo_tables.py", str(folder)])
    scripts.tables.main()
    drawn = (folder / "photo-drop.svg").read_text()
    assert all(f">{row}<" in drawn for row in ("hn", "hp-hn", "counterpoint"))
    assert (folder / "table.csv").is_file() and (folder / "photo-people.svg").is_file()


def test_examples_are_right_in_all_seeds_of_one_and_wrong_in_all_of_the_other(
    scripts: Scripts, folder: Path
) -> None:
    told = scripts.tables.examples(folder, CASES, "counterpoint", "hn")
    assert told.startswith("2 of 4: `counterpoint` is right, `hn` rejects the positive")
    assert "| a big dog | a large dog | a big cat |" in told and "car" not in told
    assert scripts.tables.examples(folder, CASES, "hn", "counterpoint").startswith("0 of 4")
    assert scripts.tables.examples(folder, CASES, "hn", "no such row") == ""


def test_rows_by_the_pairs_of_words_that_half_of_the_positives_have(
    scripts: Scripts, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The words of the first two cases are in half.parquet, those of the others are left out."""
    monkeypatch.setattr(scripts.tables, "is_left_out", lambda pair: pair[0] == "red")
    lines = scripts.tables.by_positives(folder, CASES).splitlines()
    rows = {line.split(" | ")[0].strip("| "): line.split(" | ")[1:] for line in lines[2:]}
    assert [*rows] == ["base", "hn", "hp-hn", "counterpoint"]
    # In half: augmented, brittle; left out: augmented, brittle.
    assert rows["hn"][:4] == ["0.0", "100.0", "75.0", "25.0"]
    assert rows["hp-hn"][:4] == ["100.0", "0.0", "75.0", "0.0"]
    assert rows["hp-hn"][4].startswith("-1.0000 [") and rows["hp-hn"][5].startswith("-0.2500 [")
    assert [cell.strip("| ") for cell in rows["hn"][4:]] == ["", ""]


def test_rows_by_the_pairs_of_words_of_the_negatives(scripts: Scripts, folder: Path) -> None:
    """The negatives of the first two cases replace words as the training does."""
    write_values(folder, "clip-ft-0", "NOAA", 0.5)
    write_values(folder, "clip-ft-1", "NOAA", 0.5)
    trained = pl.DataFrame(
        {"caption": ["the dog runs", "a car"], "negatives": [["the cat runs"], None]}
    )
    lines = scripts.tables.by_negatives(folder, CASES, trained).splitlines()
    rows = {line.split(" | ")[0].strip("| "): line.split(" | ")[1:] for line in lines[2:]}
    assert "trained (2)" in lines[0] and "other (2)" in lines[0]
    assert rows["clip-ft"][:2] == ["50.0", "100.0"] and rows["hn"][:2] == ["100.0", "100.0"]
    assert rows["hn"][2].startswith("+0.5000 [") and rows["hn"][3].startswith("+0.0000 [")
