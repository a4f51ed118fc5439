"""What was trained on and is evaluated on is told: in the run, under tables and in reports."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import torch
from errors import raises
from hf_models import clip as hf_clip, save as save_hf
from train_data_support import colour, paint, write_shard
from training import run_small, tiny_start
from typer.testing import CliRunner

from counterpoint.cli.app import app
from counterpoint.evaluation import (
    TrainingRecord,
    evaluate,
    read_records,
    text_digests,
    write_record,
)
from counterpoint.evaluation.outcome import outcome
from counterpoint.evaluation.trained_on import paths_of_records
from counterpoint.models import TRAINED_ON, load_model
from counterpoint.runs import load_run
from counterpoint.training import load_recipe, loop

SMALL = (
    *("precision=fp32", "batch=4", "steps=2", "save_every=0", "data.workers=0", "device=cpu"),
    *("benchmarks=[]", "seed=0"),
)
# Of the texts and photographs of a benchmark: how many are trained on, and how many there are.
HALF = {"texts": 5, "of_texts": 12, "photographs": 3, "of_photographs": 6}
SAID = "the model was trained on 5 of the 12 texts and 3 of the 6 photographs of this benchmark"


def cases(folder: Path, numbers: range = range(6)) -> Path:
    rows = []
    for n in numbers:
        name = f"val2017/{n:012}.png"
        paint(folder / name, colour(n % 12))
        captions = [f"A dog, {n}.", f"an dog, not {n}"]
        row = {"id": str(n), "images": [name], "captions": captions, "truth": [[1, 0]]}
        rows.append(row)
    path = folder / "cases.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def table(folder: Path) -> Path:
    """Photographs 0 to 2 of the benchmark under COCO's other name, with its texts in other words
    for a/an, case and marks; of number 0 the caption only. The others are of its own."""
    rows = []
    for n in (0, 1, 2, *range(100, 110)):
        name = f"train/COCO_val2014_{n:012}.png"
        paint(folder / name, colour(n % 12))
        negative = f"A dog not {n}" if n else "nothing"
        rows.append({"image": name, "caption": f"a dog {n}", "negatives": [negative]})
    path = folder / "train.parquet"
    pl.DataFrame(rows).write_parquet(path)
    return path


def trained(folder: Path, *changes: str, start: str = "", out: str = "run") -> Path:
    """The model's folder."""
    start = start or tiny_start(folder / f"start-{out}")
    given = [f"model={start}", f"data.path={table(folder)}", f"out={folder / out}"]
    loop.train(load_recipe("hn", [*SMALL, *given, *changes]))
    return folder / out / "model"


def told(model: str, benchmark: Path, folder: Path) -> dict | None:
    """What run.json says of the benchmark."""
    evaluate(model, benchmark, out=folder, device="cpu", overwrite=True, progress=None)
    manifest = json.loads((folder / "run.json").read_text())
    return manifest["benchmarks"][str(benchmark)].get("trained_on")


def seen(folder: Path, benchmark: Path) -> dict | None:
    found = load_run(folder).parts[str(benchmark)].trained_on
    return None if found is None else found._asdict()


def test_what_was_trained_on_is_a_note_in_run_table_comparison_and_report(tmp_path):
    model, benchmark = f"open_clip:local-dir:{trained(tmp_path)}", cases(tmp_path / "bench")
    start = f"open_clip:local-dir:{tmp_path / 'start-run'}"
    assert told(model, benchmark, tmp_path / "a") == HALF
    assert told(start, benchmark, tmp_path / "b") is None
    run = load_run(tmp_path / "a")
    assert run.results().notes[-1] == f"{model} on {benchmark}: {SAID}."
    assert SAID in outcome_notes(tmp_path)
    folders = [str(tmp_path / name) for name in "ab"]
    for command in (
        ["eval", "-m", model, "-b", str(benchmark), "--out", str(tmp_path / "again")],
        ["rescore", folders[0]],
        ["compare", *folders],
    ):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
        assert done.stderr.count(SAID) == 1
    page = tmp_path / "report.html"
    assert CliRunner().invoke(app, ["report", *folders, "-o", str(page)]).exit_code == 0
    assert page.read_text().count(SAID) == 1


def outcome_notes(folder: Path) -> str:
    return " ".join(outcome(load_run(folder / "b"), load_run(folder / "a"), resamples=10).notes)


def test_without_an_overlap_nothing_is_said(tmp_path):
    model = f"open_clip:local-dir:{trained(tmp_path)}"
    other = cases(tmp_path / "bench", range(20, 26))
    assert told(model, other, tmp_path / "run-of-others") is None
    assert "trained on" not in " ".join(load_run(tmp_path / "run-of-others").results().notes)
    command = ["eval", "-m", model, "-b", str(other), "--out", str(tmp_path / "again")]
    assert "trained on" not in CliRunner().invoke(app, command).output


def test_it_is_known_of_every_form_of_the_model(tmp_path):
    folder, benchmark = trained(tmp_path), cases(tmp_path / "bench")
    start, tuned = (f"open_clip:local-dir:{f}" for f in (tmp_path / "start-run", folder))
    half = tmp_path / "half"
    command = ["wise", start, tuned, "-b", str(benchmark), "--alphas", "0,0.5", "--save", "0.5"]
    done = CliRunner().invoke(app, [*command, str(half), "--out", str(tmp_path / "line")])
    assert done.exit_code == 0, done.output
    points = sorted((tmp_path / "line").iterdir())
    assert [seen(point, benchmark) for point in points] == [None, HALF]
    shutil.move(folder, tmp_path / "moved")
    moved = tmp_path / "moved"
    weights = moved / "open_clip_model.safetensors"
    ids = [
        f"open_clip:local-dir:{moved}",
        f"open_clip:local-dir:{half}",
        f"checkpoint:{weights}@local-dir:{tmp_path / 'start-run'}",
        f"ensemble:{start}+open_clip:local-dir:{moved}",
    ]
    for number, id in enumerate(ids):
        assert told(id, benchmark, tmp_path / f"of-{number}") == HALF, id
    loaded = load_model(ids[0])
    evaluate(("mine", loaded), benchmark, out=tmp_path / "object", progress=None)
    assert seen(tmp_path / "object", benchmark) == HALF
    # remembered of the store, without the weights being loaded
    assert told(ids[0], benchmark, tmp_path / "remembered") == HALF
    (moved / TRAINED_ON).unlink()
    assert told(ids[0], benchmark, tmp_path / "forgotten") is None


def test_a_model_of_transformers_has_it_too(tmp_path):
    start = save_hf(tmp_path / "hf", hf_clip)
    model = trained(tmp_path, start=f"hf:{start}")
    assert told(f"hf:{model}", cases(tmp_path / "bench"), tmp_path / "a") == HALF
    again = trained(
        tmp_path, "data.negatives=0", "loss=[{term: clip}]", start=f"hf:{model}", out="b"
    )
    assert told(f"hf:{again}", cases(tmp_path / "bench"), tmp_path / "c") == HALF  # of its start


def test_evaluations_on_the_way_and_the_best_model_have_it(tmp_path):
    benchmark = cases(tmp_path / "bench")
    changes = [f"benchmarks=['{benchmark}']", "eval_every=1", f"validation.path={table(tmp_path)}"]
    folder = trained(tmp_path, *changes).parent
    for run in ("tuned", "evaluations/step-00000001/tuned"):
        assert seen(folder / run, benchmark) == HALF
    assert SAID in (folder / "outcome.json").read_text()
    assert (folder / "best" / TRAINED_ON).read_bytes() == (folder / TRAINED_ON).read_bytes()


def test_texts_of_shards_and_of_a_type(tmp_path):
    path = tmp_path / "shards" / "a.tar"
    write_shard(path, [{"caption": f"A dog, {n}", "negatives": ["none"]} for n in range(12)])
    trained(tmp_path, "data.kind=webdataset", f"data.path={path.parent}")
    of_shards = read_records([str(tmp_path / "run" / TRAINED_ON)])
    texts = [*(f"a dog {n}" for n in range(12)), "none"]
    np.testing.assert_array_equal(of_shards.texts, np.sort(text_digests(texts)))
    assert not len(of_shards.photographs)
    file = tmp_path / "typed.parquet"
    rows = pl.read_parquet(table(tmp_path)).with_columns(
        negatives=pl.lit(["swapped", "replaced"]), negative_types=pl.lit(["swap", "replace"])
    )
    rows.write_parquet(file)
    trained(tmp_path, f"data.path={file}", "only=swap", out="typed")
    typed = read_records([str(tmp_path / "typed" / TRAINED_ON)])
    assert set(text_digests(["swapped"])) <= set(typed.texts)
    assert not set(text_digests(["replaced"])) & set(typed.texts)


def test_the_world_leaves_no_record(tmp_path):
    torch.set_num_threads(1)
    run_small(tmp_path, "steps=1")
    assert not list((tmp_path / "run").rglob(TRAINED_ON))


def test_a_damaged_record_is_one_sentence(tmp_path):
    path = tmp_path / TRAINED_ON
    pl.DataFrame({"kind": ["text"], "digest": ["x"]}).write_parquet(path)
    with raises("E-FILE-MALFORMED", str(path)):
        read_records([str(path)])
    path.write_bytes(b"PAR1")
    with raises("E-FILE-MALFORMED"):
        read_records([str(path)])


def test_records_of_several_models_are_put_together(tmp_path):
    paths = [str(tmp_path / name) for name in "ab"]
    for path, texts in zip(paths, (["a dog", "A Dog!"], ["a cat", "a dog"]), strict=True):
        write_record(Path(path), TrainingRecord.of([text_digests(texts)], []))
    both = read_records([*paths, paths[0]])
    assert sorted(both.texts) == sorted(text_digests(["an cat", "a dog"]))
    said = {"members": [{"training_records": paths[:1]}, {"training_records": paths[1:]}]}
    assert paths_of_records(said) == paths and read_records([]) is None
