"""Training on data with faults, and runs that break in the middle: nothing is lost in silence."""

from __future__ import annotations

import json
import math
import socket
from pathlib import Path

import polars as pl
import pytest
import torch
from errors import raises
from open_clip_models import TEXT
from processes import ended, start
from safetensors.torch import load_file
from train_data_support import SIZE, opened, rows_of, training_file, write_shard
from training import last_checkpoint, run_small, tiny_start, weights, written

from counterpoint.training import Features, load_recipe, loop, train
from counterpoint.training.logs import Log
from counterpoint.training.losses import published
from counterpoint.training.recipe import Recipe

pytestmark = pytest.mark.faults

RESNET = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 64, "layers": [1, 1, 1, 1], "width": 8, "head_width": 16},
    "text_cfg": TEXT,
}


# --- data --------------------------------------------------------------------------------------


def test_one_lost_image_of_many_captions_is_no_wrong_folder(tmp_path):
    rows = [
        {**row, "image": f"photos/{n // 12}.png", "negative_images": [], "neighbours": []}
        for n, row in enumerate(rows_of(48))
    ]
    data = opened(training_file(tmp_path, rows), batch=12)
    (tmp_path / "photos/2.png").unlink()
    found = [n for batch in data.stream(0, 8) for n in batch.samples]
    assert len(found) == 96 and not any(n // 12 == 2 for n in found)
    assert data.problems.counts.total() >= 24


def changed(folder: Path, **columns: list) -> Path:
    rows = rows_of()
    for name, values in columns.items():
        for row, value in zip(rows, values, strict=True):
            row[name] = value
    path = training_file(folder)
    pl.DataFrame(rows, infer_schema_length=None).write_parquet(path)
    return path


@pytest.mark.parametrize(
    ("columns", "config", "column"),
    [
        ({"negative_images": [["x"]] * SIZE}, {}, "negative_images"),
        (
            {"dense": [["a", "b"]] * SIZE, "dense_negatives": [["c"]] * SIZE},
            {"dense": 2},
            "dense_negatives",
        ),
        (
            {"negative_types": [["swap"] * ((n + 1) % 4) for n in range(SIZE)]},
            {"only": "swap", "positives": False},
            "negative_types",
        ),
        ({"box": [[1, 2, 3]] * SIZE}, {}, "box"),
    ],
)
def test_lists_that_do_not_fit_are_told_before_training(tmp_path, columns, config, column):
    with raises("E-FILE-MALFORMED", column, 1):
        opened(changed(tmp_path, **columns), **config)


def test_hard_images_need_another_sample(tmp_path):
    path = training_file(tmp_path, rows_of(2)[1:])
    with raises("E-SAMPLES-FEW", "hard images"):
        opened(path, batch=1, hard_images=3)


def test_a_plain_shard_in_front_says_nothing_of_the_others(tmp_path, monkeypatch):
    write_shard(tmp_path / "shards/a.tar", [{"caption": "x"}] * 260)
    write_shard(tmp_path / "shards/b.tar", [{"caption": "x", "negatives": ["y"]}] * 40)
    data = opened(tmp_path / "shards", batch=300, kind="webdataset", positives=False)
    assert int(data.batch(0, 0).has_negative.sum()) == 40


@pytest.mark.parametrize(
    ("sample", "only", "code", "field"),
    [
        ({"negatives": [3]}, None, "E-SAMPLE-MALFORMED", "texts"),
        ({"negatives": ["y"], "negative_types": 5}, "swap", "E-DATA-UNTYPED", None),
        (
            {"negatives": ["y"], "dense": ["a"], "dense_negatives": ["b", "c"]},
            None,
            "E-SAMPLE-MALFORMED",
            "dense_negatives",
        ),
    ],
)
def test_shards_with_something_else_than_texts(tmp_path, monkeypatch, sample, only, code, field):
    write_shard(tmp_path / "a.tar", [{"caption": "x", **sample}] * 4)
    with raises(code, tmp_path / "a.tar", field or ""):
        opened(tmp_path / "a.tar", batch=2, kind="webdataset", positives=False, only=only)


# --- models ------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["wise=0.5", "cached_batch=4"])
def test_running_means_are_not_mixed_or_cached(tmp_path, change):
    tiny_start(tmp_path / "start", RESNET)
    with raises("E-RECIPE-INVALID", change.partition("=")[0]):
        run_small(tmp_path, change)
    run_small(tmp_path, change, "freeze=image", "steps=1", out="frozen")


def test_lora_that_would_leave_a_tower_out_is_refused(tmp_path):
    tiny_start(tmp_path / "start", RESNET)
    with raises("E-LORA-TARGET", "attention", "image"):
        run_small(tmp_path, "lora.rank=2")
    run_small(tmp_path, "lora.rank=2", "freeze=image", "steps=1", out="frozen")


# --- runs --------------------------------------------------------------------------------------


def test_weights_that_a_gradient_broke_are_not_kept(tmp_path, monkeypatch):
    """The loss of the step is a number; its gradient is none."""
    inner, calls = published.clip, []

    def clip(f: Features) -> torch.Tensor:
        calls.append(1)
        value = inner(f)
        return value + (f.images * 0).sum().abs().sqrt() if len(calls) == 4 else value

    monkeypatch.setattr(published, "clip", clip)
    with raises("E-LOSS-NON-FINITE", 2):
        run_small(tmp_path)
    kept = load_file(last_checkpoint(tmp_path / "run") / "weights.safetensors")
    assert all(bool(value.isfinite().all()) for value in kept.values())
    run_small(tmp_path)
    assert all(bool(value.isfinite().all()) for value in weights(tmp_path / "run").values())


def test_a_full_gpu_is_one_sentence_and_the_run_goes_on(tmp_path, monkeypatch):
    inner, calls = published.clip, []

    def clip(f: Features) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 4:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried 1 GiB. GPU 0 has 3 MiB free")
        return inner(f)

    with monkeypatch.context() as broken:
        broken.setattr(published, "clip", clip)
        with raises("E-GPU-FULL", 2) as error:
            run_small(tmp_path)
    assert "Tried 1 GiB" in str(error.value) and "3 MiB free" not in str(error.value)
    run_small(tmp_path)
    run_small(tmp_path, out="whole")
    resumed, whole = weights(tmp_path / "run"), weights(tmp_path / "whole")
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)


def test_the_log_is_json_whatever_a_number_is(tmp_path):
    log = Log(tmp_path, 0, tensorboard=False, wandb=None)
    log.write(1, {"grad_norm": math.inf, "loss": 0.5, "terms": {"clip": math.nan}})
    log.close()
    [line] = (tmp_path / "log.jsonl").read_text().splitlines()
    expected = {"event": "step", "step": 1, "grad_norm": None, "loss": 0.5, "terms": {"clip": None}}
    assert json.loads(line, parse_constant=pytest.fail) == expected


def test_an_evaluation_that_was_interrupted_is_made_after_all(tmp_path, monkeypatch):
    given = ("steps=4", "eval_every=2", "benchmarks=['world-swap:size=20']")

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loop.Evaluator, "evaluate_now", stopped)
        with pytest.raises(KeyboardInterrupt):
            run_small(tmp_path, *given)
    run_small(tmp_path, *given)
    lines = [json.loads(x) for x in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["event"] == "evaluation"] == [2]
    assert (tmp_path / "run/evaluations/step-00000002/outcome.json").is_file()


def lossy(folder: Path, out: str) -> Recipe:
    """Two steps on a training file of which two images are not there, and one is not named."""
    rows = rows_of(SIZE + 1)
    rows[-1]["image"] = None
    path, start = training_file(folder, rows), folder / "start"
    for number in (3, 4):
        (folder / f"photos/{number}.png").unlink()
    model = f"open_clip:local-dir:{start}" if start.is_dir() else tiny_start(start)
    given = (f"model={model}", f"data.path={path}", f"out={folder / out}", "data.workers=0")
    small = ("batch=12", "steps=2", "warmup=0", "save_every=1", "precision=fp32", "device=cpu")
    return load_recipe("hp-hn", [*given, *small])


def problems(recipe: Recipe) -> dict[str, int]:
    done = train(recipe)
    assert done is not None
    return done.problems


def test_problems_of_all_ranks_are_told(tmp_path):
    alone = problems(lossy(tmp_path, "one"))
    assert alone["captions without an image: left out"] == 1
    assert sum(alone.values()) >= 5  # and two images in each of two epochs
    path, meeting = written(lossy(tmp_path, "two")), free_port()
    both = [
        start(tell_problems, path, environment={"RANK": str(rank), "WORLD_SIZE": "2", **meeting})
        for rank in range(2)
    ]
    assert [ended(process) for process in both] == [0, 0]
    assert json.loads(Path(path).with_suffix(".problems").read_text()) == alone


def tell_problems(path: str) -> None:
    torch.set_num_threads(1)
    if (done := train(load_recipe(path))) is not None:
        Path(path).with_suffix(".problems").write_text(json.dumps(done.problems))


def free_port() -> dict[str, str]:
    """Where ranks meet, as torchrun tells them."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(found.getsockname()[1])}


def test_problems_before_a_kill_are_told_after_it(tmp_path, monkeypatch):
    alone = problems(lossy(tmp_path, "one"))

    class Killed(Exception):
        pass

    def killed(folder: Path, checkpoint: object, keep: int) -> None:
        save(folder, checkpoint, keep)
        raise Killed

    save = loop.save
    with monkeypatch.context() as patch:
        patch.setattr(loop, "save", killed)
        with pytest.raises(Killed):
            train(lossy(tmp_path, "two"))
    assert problems(lossy(tmp_path, "two")) == alone


# --- told before the first step ----------------------------------------------------------------


def test_what_is_missing_is_told_before_a_model_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "build", lambda *_: pytest.fail("too late"))
    given = (f"data.path={training_file(tmp_path)}", f"out={tmp_path / 'run'}", "device=cpu")
    for change, code in (
        ("benchmarks=[world-swp]", "E-BENCHMARK-UNKNOWN"),
        ("data.path=nix.parquet", "E-FILE-MISSING"),
        ("data.images=nowhere", "E-FOLDER-MISSING"),
    ):
        with raises(code, change.partition("=")[2].strip("[]")):
            train(load_recipe("hp-hn", [*given, change]))
