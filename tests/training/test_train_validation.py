"""The best weights of a run: metrics of a validation file, resumed runs, what is recorded."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from errors import raises
from safetensors.torch import load_file
from train_data_support import rows_of, training_file
from training import (
    CPU,
    Killed,
    broken_off,
    held_out,
    run_small,
    same,
    small_recipe,
    tiny_start,
    train_by_two,
    weights,
    written,
)

from counterpoint.models import LoadOptions, load_model
from counterpoint.training import load_recipe, loop, validation
from counterpoint.training.batches import Batch
from counterpoint.training.losses import terms as losses
from counterpoint.training.recipe import Recipe
from counterpoint.training.setup import build
from counterpoint.training.steps import TrainingRun, encode
from counterpoint.training.validation import Validated, Validator, best_of, read_record

pytestmark = pytest.mark.slow

METRICS = ("accuracy", "augmented_accuracy", "batch_accuracy", "recall", "loss")


def validator_of(folder: Path, metric: str, *changes: str) -> tuple[Validator, dict]:
    recipe = small_recipe(folder, held_out(folder), f"validation.metric={metric}", *changes)
    run = build(recipe, CPU)
    return Validator(run, None), loop.final_state(run)


def slowly(folder: Path, metric: str) -> float:
    """From the vectors of the model as evaluation makes them, case by case."""
    from PIL import Image

    model = load_model(f"open_clip:local-dir:{folder / 'start'}", LoadOptions("cpu"))
    validator, _ = validator_of(folder, metric)
    rows = [dict(row) for row in rows_of()]
    rows[3]["image"] = rows[2]["image"]
    sampler = validator.data

    def see(path):
        return model.encode_images([model.preprocess(Image.open(folder / "held" / path))])[0]

    def read(text):
        return model.encode_captions([text])[0]

    batches = [sampler.batch(0, step) for step in range(sampler.steps_per_epoch)]
    assert sorted(n for b in batches for n in b.samples) == list(range(12))  # all, each once
    values = []
    if metric == "recall":
        names = list(dict.fromkeys(row["image"] for row in rows))
        images = {name: see(name) for name in names}
        captions = [read(row["caption"]) for row in rows]
        to_images, to_texts = [], []
        for row, vector in zip(rows, captions, strict=True):
            scores = {name: float(images[name] @ vector) for name in names}
            to_images.append(
                all(scores[row["image"]] > s for n, s in scores.items() if n != row["image"])
            )
        for name in names:
            scores = [float(images[name] @ vector) for vector in captions]
            mine = [s for s, row in zip(scores, rows, strict=True) if row["image"] == name]
            rest = [s for s, row in zip(scores, rows, strict=True) if row["image"] != name]
            to_texts.append(max(mine) > max(rest))
        return (np.mean(to_images) + np.mean(to_texts)) / 2
    from counterpoint.training.data.loading import Problems
    from counterpoint.training.data.samples import _Sampler

    draw = _Sampler(sampler, 0, lambda seed: None, Problems())
    for batch in batches:
        drawn = [draw(number) for number in batch.samples]
        images = [see(rows[d.number]["image"]) for d in drawn]
        if metric == "batch_accuracy":
            texts = [read(d.caption) for d in drawn]
            hard = [read(n) for d in drawn for n in d.texts["negatives"]]
            for i, image in enumerate(images):
                own = float(image @ texts[i])
                others = [float(image @ t) for j, t in enumerate([*texts, *hard]) if j != i]
                values.append(own > max(others, default=-9))
                back = [float(other @ texts[i]) for j, other in enumerate(images) if j != i]
                values.append(own > max(back, default=-9))
            continue
        for image, d in zip(images, drawn, strict=True):
            right = [d.caption]
            if metric == "augmented_accuracy" and d.texts["positives"]:
                right += d.texts["positives"]
            if d.texts["negatives"]:
                wrong = max(float(image @ read(n)) for n in d.texts["negatives"])
                values.append(min(float(image @ read(t)) for t in right) > wrong)
    return float(np.mean(values))


def loss_of(run: TrainingRun, batch: Batch) -> torch.Tensor:
    """Of one batch, as a step computes it."""
    features = encode(run.stepper.towers, batch, 0, run.stepper.pad, run.stepper.autocast)
    terms = run.loss.terms
    return losses.total(losses.loss(run.loss.complete(batch, features), terms), terms)


@pytest.mark.parametrize("metric", [m for m in METRICS if m != "loss"])
def test_metrics_are_those_of_a_slow_reference(tmp_path, metric):
    validator, state = validator_of(tmp_path, metric)
    found = validator.value(state)
    assert 0 < found < 1 and found == pytest.approx(slowly(tmp_path, metric))


def test_the_loss_is_the_recipes(tmp_path):
    """With as many samples as a batch, and terms that compare with the start."""
    terms = "loss=[{term: clip}, {term: negatives, weight: 0.5}, {term: hold}]"
    validator, state = validator_of(tmp_path, "loss", terms, "batch=12")
    recipe = small_recipe(tmp_path, terms, "batch=12")
    batch = validator.data.batch(0, 0)
    run = build(recipe, CPU)
    with torch.no_grad():
        expected = loss_of(run, batch)
    assert validator.value(state) == pytest.approx(float(expected), rel=1e-5)


def recipe_of_file(folder: Path, name: str, metric: str, *changes: str) -> Recipe:
    """A recipe that is trained and validated on one file of 12 captions, as one batch."""
    rows = [row | {"caption": f"a {row['caption']} on the table"} for row in rows_of()]
    file = training_file(folder / "held", rows)
    given = [f"model={tiny_start(folder / 'start')}", f"out={folder / 'run'}", f"data.path={file}"]
    given += [f"validation={{path: '{file}', metric: {metric}}}", "precision=fp32", "device=cpu"]
    return load_recipe(name, [*given, "seed=0", "data.workers=0", "batch=12", *changes])


# Recipes that read their data in ways of their own: two images as one, hard images.
@pytest.mark.parametrize("name", ["clic", "negclip", "hp-hn"])
def test_the_loss_of_the_training_file_is_that_of_training(tmp_path, name):
    recipe = recipe_of_file(tmp_path, name, "loss")
    run = build(recipe, CPU)
    batch = run.data.batch(0, 0)
    with torch.no_grad():
        expected = loss_of(run, batch)
    found = Validator(run, None).value(loop.final_state(run))
    assert found == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("name", ["clic", "hp-hn", "negclip"])
def test_recall_asks_for_captions_alone(tmp_path, name):
    recipe = recipe_of_file(tmp_path, name, "recall")
    run = build(recipe, CPU)
    lacking = pl.read_parquet(recipe.validation.path).select("image", "caption")
    lacking.write_parquet(recipe.validation.path)
    assert 0 <= Validator(run, None).value(loop.final_state(run)) <= 1


@pytest.mark.parametrize("metric", METRICS)
def test_a_validation_fits_in_the_memory_that_training_fits_in(tmp_path, metric):
    terms = "loss=[{term: clip}, {term: negatives}, {term: hold}]"
    whole, state = validator_of(tmp_path, metric, terms)
    parts, _ = validator_of(tmp_path, metric, terms, "cached_batch=3")
    held = []
    for towers in (parts.towers, parts.loss.start):
        towers.register_forward_pre_hook(lambda _, given: held.append(len(given[0])))
    assert parts.value(state) == pytest.approx(whole.value(state), rel=1e-5)
    assert max(held) <= 6  # three images, and those of their negatives


def said(folder: Path) -> dict:
    return json.loads((folder / "validation.json").read_text())


@pytest.mark.parametrize("metric", METRICS)
def test_the_best_step_is_the_result(tmp_path, metric):
    changes = (held_out(tmp_path), f"validation.metric={metric}", "validation.every=1", "lr=3e-2")
    done = run_small(tmp_path, *changes)
    found = said(done.folder)
    assert [one["step"] for one in found["values"]] == [1, 2, 3, 4, 5, 6]
    values = [one["value"] for one in found["values"]]
    best = (min if metric == "loss" else max)(values)
    assert found["best"] == {"step": values.index(best) + 1, "value": best}
    assert (done.best.step, done.best.value) == (values.index(best) + 1, best)
    about = json.loads((done.folder / "model" / "training.json").read_text())
    assert about["validated"]["step"] == done.best.step
    log = [json.loads(line) for line in (done.folder / "log.jsonl").read_text().splitlines()]
    assert [one[metric] for one in log if one["event"] == "validation"] == values


def test_the_model_is_that_of_the_best_step(tmp_path, monkeypatch):
    """Whatever the metric says, the weights are those that it was said of."""
    told = iter([0.1, 0.5, 0.4, 0.5, math.nan, 0.2])
    seen = []

    def value(self, state):
        seen.append({name: v.clone() for name, v in state.items()})
        return next(told)

    monkeypatch.setattr(Validator, "value", value)
    done = run_small(tmp_path, held_out(tmp_path), "validation.every=1")
    assert (done.best.step, done.best.value) == (2, 0.5)  # the first of equal ones
    assert same(weights(done.folder), seen[1])
    assert said(done.folder)["values"][4] == {"step": 5, "value": None}


def test_epochs_end_where_the_data_does(tmp_path):
    """40 samples in batches of 8: an epoch is five steps."""
    done = run_small(tmp_path, held_out(tmp_path), "epochs=3")
    assert [one.step for one in read_record(done.folder)] == [5, 10, 15]
    twice = run_small(tmp_path, held_out(tmp_path), "epochs=2", "accumulate=3", out="three")
    assert [one.step for one in read_record(twice.folder)] == [2, 4]


@pytest.mark.parametrize("at", range(6))
def test_broken_off_and_resumed_it_is_the_same(tmp_path, monkeypatch, at):
    changes = (held_out(tmp_path), "validation.every=2", "save_every=0", "lr=3e-2")
    run_small(tmp_path, *changes, out="whole")
    broken_off(tmp_path, monkeypatch, at, *changes, out="run")
    run_small(tmp_path, *changes, out="run")
    assert same(weights(tmp_path / "run"), weights(tmp_path / "whole"))
    assert said(tmp_path / "run") == said(tmp_path / "whole")


@pytest.mark.parametrize("name", ["save_model", "Validator.record"])
def test_killed_in_a_validation(tmp_path, monkeypatch, name):
    """Before the best model is there, or between it and its record."""
    changes = (held_out(tmp_path), "validation.every=2", "lr=3e-2")
    run_small(tmp_path, *changes, out="whole")

    def killed(*args, **kwargs):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(*((loop, name) if name == "save_model" else (Validator, "record")), killed)
        with pytest.raises(Killed):
            run_small(tmp_path, *changes, out="run")
    assert read_record(tmp_path / "run") == []
    run_small(tmp_path, *changes, out="run")
    assert same(weights(tmp_path / "run"), weights(tmp_path / "whole"))
    assert said(tmp_path / "run") == said(tmp_path / "whole")


def test_two_processes_keep_the_best_of_one(tmp_path):
    changes = (held_out(tmp_path), "validation.every=1", "steps=4", "lr=3e-3", "data.workers=0")
    run_small(tmp_path, *changes, out="alone")
    train_by_two(tmp_path, [written(small_recipe(tmp_path, *changes, out="both"))])
    one, two = read_record(tmp_path / "alone"), read_record(tmp_path / "both")
    assert [v.step for v in one] == [v.step for v in two]
    assert [v.value for v in one] == pytest.approx([v.value for v in two], abs=1e-6)
    alone, both = weights(tmp_path / "alone"), weights(tmp_path / "both")
    assert all(torch.allclose(alone[name], both[name], atol=3e-5) for name in alone)


def test_lora_and_averages_are_in_what_is_kept(tmp_path):
    done = run_small(tmp_path, held_out(tmp_path), "lora.rank=2", "ema=0.5", "save_as=fp16")
    plain = run_small(tmp_path, "lora.rank=2", "ema=0.5", "save_as=fp16", out="plain")
    assert done.best.step == 6 or done.best.step == 5
    kept = load_file(done.folder / "best" / "open_clip_model.safetensors")
    assert kept.keys() == weights(plain.folder).keys()
    assert same(kept, weights(done.folder))


# --- refusals ----------------------------------------------------------------------------------


def test_another_validation_is_another_run(tmp_path):
    run_small(tmp_path, held_out(tmp_path))
    with raises("E-OUTPUT-EXISTS", "validation.metric"):
        run_small(tmp_path, held_out(tmp_path), "validation.metric=recall")


def test_mistakes_are_named(tmp_path):
    with raises("E-FILE-MISSING", tmp_path / "none.parquet"):
        run_small(tmp_path, f"validation.path={tmp_path / 'none.parquet'}")
    with raises("E-RECIPE-INVALID") as caught:
        run_small(tmp_path, held_out(tmp_path), "validation.metrik=loss")
    assert "did you mean 'metric'" in str(caught.value)
    rows = [row | {"negatives": [], "negative_images": []} for row in rows_of()]
    (tmp_path / "bare").mkdir()
    with raises("E-DATA-EMPTY"):
        run_small(tmp_path, f"validation.path={training_file(tmp_path / 'bare', rows)}")


@pytest.mark.parametrize("text", ["[]", "{}", '{"metric": 1, "values": 2}', '{"values": [{}]}'])
def test_a_damaged_record_is_one_sentence(tmp_path, text):
    (tmp_path / validation.RECORD).write_text(text)
    with raises("E-RUN-DAMAGED"):
        read_record(tmp_path)


def test_the_best_of_none():
    assert best_of([]) is None and best_of([Validated(1, math.nan, "loss")]) is None
    low = [Validated(1, 2.0, "loss"), Validated(2, 1.0, "loss"), Validated(3, 1.0, "loss")]
    assert best_of(low) == low[1]
