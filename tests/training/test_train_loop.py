"""Whole training runs in the world: recipes, folders, refusals, logs, several processes."""

from __future__ import annotations

import json
import math
from functools import partial

import numpy as np
import pytest
import torch
from errors import raises
from open_clip_models import CAPTIONS, load
from training import (
    CPU,
    last_checkpoint,
    run_small,
    same,
    small_recipe,
    tensors,
    two_end_as_one,
    weights,
    written,
)
from typer.testing import CliRunner

from counterpoint.cli.app import app
from counterpoint.evaluation import evaluate
from counterpoint.training import loop
from counterpoint.training.logs import Display, Log
from counterpoint.training.losses import terms
from counterpoint.training.setup import build

pytestmark = pytest.mark.slow

# --- whole runs --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["clip-ft", "hn", "hp", "hp-hn", "crepe-swap", "svlc-pos", "dac", "trohn-img"]
)
def test_every_recipe_trains_in_the_world(tmp_path, name):
    run_small(tmp_path, "steps=2", name=name)
    assert not same(weights(tmp_path / "run"), load(tmp_path / "start").model.state_dict())


def test_ours_trains_in_the_world_and_lowers_its_loss(tmp_path):
    changes = ("steps=30", "lr=3e-3", "batch=16", "data.size=32000", "log_every=10")
    run_small(tmp_path, *changes, name="counterpoint")
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [10, 20, 30]
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert set(lines[0]["terms"]) == {"clip", "analogy", "listwise", "agreement", "hold"}
    total = sum(lines[0][f"loss/{n}"] * (0.5 if n == "hold" else 1) for n in lines[0]["terms"])
    assert lines[0]["loss"] == pytest.approx(total, rel=1e-5)
    assert 0 <= lines[0]["stall"] <= 1 and lines[0]["samples_per_second"] > 0


def test_a_term_of_weight_zero_is_as_if_it_were_not_there(tmp_path):
    run_small(tmp_path, "hn_weight=0", out="zero")
    run_small(tmp_path, name="hp", out="none")
    assert same(weights(tmp_path / "zero"), weights(tmp_path / "none"))


@pytest.mark.parametrize("extra", [(), ("lora.rank=2",), ("ema=0.5", "save_as=fp16")])
def test_the_finished_folder_is_a_model_like_any_other(tmp_path, extra):
    done = run_small(tmp_path, *extra)
    tuned, start = evaluate(
        [done.model, f"open_clip:local-dir:{tmp_path / 'start'}"],
        "world-swap",
        limit=20,
        out=tmp_path / "runs",
        store=tmp_path / "store",
    )
    scores = [run.parts["world-swap"].scores for run in (tuned, start)]
    assert np.isfinite(scores[0]).all() and np.abs(scores[0] - scores[1]).max() > 1e-3
    about = json.loads((done.folder / "model" / "training.json").read_text())
    assert about["recipe"]["loss"][1]["term"] == "negatives" and about["steps"] == 6


def test_the_folder_scores_as_the_trained_model_did(tmp_path):
    recipe = small_recipe(tmp_path, "lora.rank=2", "lora.alpha=8")
    loop.train(recipe)
    run = build(recipe, CPU)
    from counterpoint.training.checkpoints import load_last, restore

    saved = load_last(recipe.folder, CPU.device)
    assert saved is not None
    restore(run, saved)
    with torch.no_grad():
        towers = run.model.towers.eval()
        expected = towers(None, run.model.start.tokenizer(CAPTIONS))[1].numpy()
    assert np.abs(load(recipe.folder / "model").encode_captions(CAPTIONS) - expected).max() < 1e-5


def test_benchmarks_give_one_table_and_evaluations_on_the_way(tmp_path, monkeypatch):
    done = run_small(tmp_path, "steps=4", "eval_every=2", "benchmarks=['world-swap:size=30']")
    assert done.outcome is not None and done.outcome.changes
    assert (done.folder / "outcome.json").is_file()
    assert (done.folder / "evaluations" / "step-00000002" / "outcome.json").is_file()
    lines = [json.loads(line) for line in (done.folder / "log.jsonl").read_text().splitlines()]
    [found] = [line for line in lines if line["event"] == "evaluation"]
    assert any(name.endswith("augmented_accuracy") for name in found)
    run_small(tmp_path, "steps=4", out="undisturbed")
    assert same(weights(tmp_path / "run"), weights(tmp_path / "undisturbed"))


def test_the_evaluation_in_the_end_says_what_it_is_and_how_to_do_without(tmp_path, monkeypatch):
    lines: list[str] = []
    display = Display()
    monkeypatch.setattr(display, "say", lines.append)
    for out, benchmarks in (("one", "['world-swap:size=5']"), ("none", "[]")):
        changes = ("steps=1", f"benchmarks={benchmarks}")
        loop.train(small_recipe(tmp_path, *changes, out=out), display)
    [line] = lines
    assert "evaluated on world-swap:size=5 (benchmarks=[] leaves this out)" in line


def test_without_benchmarks_the_table_is_told_to_be_missing_and_can_be_had_later(
    tmp_path, monkeypatch
):
    """By the same command: a finished run is not trained again."""
    path = written(small_recipe(tmp_path))
    first = CliRunner().invoke(app, ["train", path, "--json"])
    assert first.exit_code == 0 and json.loads(first.stdout)[0]["outcome"] == []
    assert "no outcome.json; the same command with benchmarks=[BENCHMARK,...]" in first.stderr
    assert not (tmp_path / "run" / "outcome.json").exists()
    monkeypatch.setattr(loop, "update", lambda *_: pytest.fail("trained again"))
    again = CliRunner().invoke(app, ["train", path, "benchmarks=[world-swap:size=8]"])
    assert again.exit_code == 0, again.output
    assert "no outcome.json" not in again.stderr and "world-swap" in again.stdout
    assert (tmp_path / "run" / "outcome.json").is_file()


@pytest.mark.parametrize("extra", [(), ("lora.rank=2", "ema=0.5")])
def test_the_result_is_mixed_with_the_start_if_the_recipe_says_so(tmp_path, extra):
    run_small(tmp_path, *extra, out="tuned")
    run_small(tmp_path, *extra, "wise=0.25", out="mixed")
    start = dict(load(tmp_path / "start").model.named_parameters())
    tuned, found = (weights(tmp_path / name) for name in ("tuned", "mixed"))
    assert found.keys() == tuned.keys()
    for name, weight in found.items():
        assert torch.equal(weight, 0.75 * start[name] + 0.25 * tuned[name]), name
    assert not same(found, tuned)


# --- refusals ----------------------------------------------------------------------------------


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_last_good_checkpoint(
    tmp_path, monkeypatch
):
    calls = []
    inner = terms.loss

    def broken(*args):
        calls.append(1)
        values = inner(*args)
        return {n: v * math.nan for n, v in values.items()} if len(calls) > 5 else values

    monkeypatch.setattr(terms, "loss", broken)
    with raises("E-LOSS-NON-FINITE", 4):
        run_small(tmp_path, "steps=9", "log_every=3")
    steps = sorted(p.name for p in (tmp_path / "run" / "checkpoints").iterdir())
    assert steps == ["step-00000002", "step-00000004"]
    kept = tensors(last_checkpoint(tmp_path / "run") / "weights")
    assert all(torch.isfinite(value).all() for value in kept.values())
    assert not (tmp_path / "run" / "model").exists()


def test_a_folder_of_something_else_is_not_touched(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("mine")
    with raises("E-OUTPUT-EXISTS", tmp_path / "run"):
        run_small(tmp_path)
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["thesis.txt"]


def test_data_without_what_a_term_needs(tmp_path):
    with raises("E-LOSS-INPUT-MISSING", "negatives"):
        run_small(tmp_path, "data.negatives=0")


def test_sharding_alone_needs_torchrun(tmp_path):
    with raises("E-TORCHRUN-MISSING"):
        run_small(tmp_path, "sharded=true")


# --- logs --------------------------------------------------------------------------------------


def test_a_log_forgets_what_came_after_the_checkpoint(tmp_path):
    log = Log(tmp_path, 0, tensorboard=False, wandb=None)
    for step in range(1, 6):
        log.write(step, {"loss": step / 2})
    log.close()
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"event": "step", "st')  # cut off by a kill
    Log(tmp_path, 3, tensorboard=False, wandb=None).close()
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3]


def test_tensorboard_files_hold_the_terms(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    done = run_small(tmp_path, "tensorboard=true", "steps=3")
    events = EventAccumulator(str(done.folder / "tensorboard")).Reload()
    assert {"loss", "loss/clip", "loss/negatives", "lr", "scale"} <= set(events.Tags()["scalars"])
    assert [e.step for e in events.Scalars("loss")] == [1, 2, 3]


def test_wandb_is_asked_for_by_name(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    with raises("E-PACKAGE-MISSING", "wandb"):
        run_small(tmp_path, "wandb=true")


# --- several processes -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fsc-clip", "degla"])
def test_two_processes_share_words_and_teachers(tmp_path, name):
    """Texts of two ranks have other lengths; each rank has the same teacher."""
    changes = ("lr=1e-3", "steps=4", "cached_batch=3")
    make = partial(small_recipe, tmp_path, *changes, name=name)
    two_end_as_one(tmp_path, make, "sharded=false", atol=3e-5)


def test_two_processes_end_with_the_weights_of_one(tmp_path):
    changes = ("lr=1e-3", "steps=4", "grad_clip=1", "cached_batch=3", "accumulate=2", "ema=0.5")
    make = partial(small_recipe, tmp_path, *changes)
    two_end_as_one(tmp_path, make, "sharded=false", "sharded=true", atol=3e-5)
    before, alone = load(tmp_path / "start").model.state_dict(), weights(tmp_path / "alone")
    assert max(float((alone[n] - before[n]).abs().max()) for n in alone) > 1e-3
