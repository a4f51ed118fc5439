"""Pools over the tokens of patches, with the image trunk locked."""

from __future__ import annotations

import json

import hf_models
import numpy as np
import pytest
import torch
from errors import raises
from locked import (
    data_in,
    pixels_like,
    recipe_in,
    start_in,
    steps_of,
    vectors_in,
)
from open_clip_models import noise
from training import CPU, saved_weights

from counterpoint.models import LoadOptions, load_model
from counterpoint.models.hf.pooling import MeanPool, pool_of
from counterpoint.training import train
from counterpoint.training.setup import build
from counterpoint.training.validation import Validator

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["dinov2-bert", "vit-bert"])
@pytest.mark.parametrize("pool", ["mean", "attention"])
def test_a_pool_starts_as_the_class_token_and_is_saved(tmp_path, name, pool):
    id = start_in(tmp_path, name)
    lock = f"lock={{tower: image, pool: {pool}, heads: 2}}"
    run = build(recipe_in(tmp_path, id, lock, out="unused"), CPU)
    images = [noise(50, 40, n) for n in range(3)]
    dual = load_model(id, LoadOptions("cpu"))
    trunk = run.trunk
    prepared = [trunk.preprocess(image) for image in images]
    flat = torch.tensor(trunk.encode_images(prepared)).reshape(3, *trunk.shape)
    assert flat.dtype == torch.float16
    assert trunk.shape == ((2, 16) if pool == "mean" else (1 + 4, 16))
    with torch.no_grad():
        vectors = run.model.towers(flat, None)[0].numpy()
    assert np.allclose(vectors, dual.encode_images(prepared), atol=2e-3)

    done = train(recipe_in(tmp_path, id, lock, "lr=1e-2", "steps=8"))
    tuned = load_model(done.model, LoadOptions("cpu"))
    state = saved_weights(tmp_path / "run")
    assert state["vision_model.pool.out.weight"].abs().max() > 0
    plain = hf_models.tf.VisionTextDualEncoderModel.from_pretrained(tmp_path / "run" / "model")
    said = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    assert said["counterpoint_pool"] == {"kind": pool, "heads": 2}
    # with the pool: what the towers in training compute; without it: something else
    again = build(recipe_in(tmp_path, done.model, "lock=image", out="again"), CPU)
    assert again.trunk.fingerprint == trunk.fingerprint
    with torch.no_grad():
        expected = again.model.towers(flat, None)[0].numpy()
        without = plain.get_image_features(**tuned.opened.stack(prepared)).pooler_output
    found = tuned.encode_images(prepared)
    assert np.allclose(found, expected, atol=2e-3)
    assert not np.allclose(found, torch.nn.functional.normalize(without).numpy(), atol=1e-2)
    losses, weights = steps_of(again)
    recipe = recipe_in(tmp_path, done.model, "lock=image", out="again")
    expected, pixels = steps_of(pixels_like(again, recipe))
    assert losses == pytest.approx(expected, rel=1e-2)  # tokens are stored in half precision
    assert all(torch.allclose(weights[key], pixels[key], atol=5e-3) for key in weights)


@pytest.mark.parametrize("pool", ["mean", "attention"])
def test_a_centered_pool_subtracts_the_means_of_the_training_images(tmp_path, pool):
    id = start_in(tmp_path, "dinov2-bert")
    lock = f"lock={{tower: image, pool: {pool}, center: true}}"
    run = build(recipe_in(tmp_path, id, lock, out="unused"), CPU)
    tokens = run.data.seen.values.double().numpy()
    means = np.stack([tokens[:, 0].mean(0), tokens[:, 1:].mean((0, 1))])
    learned = pool_of(run.model.towers.clip).center.numpy()
    assert np.abs(means).max() > 0.1 and np.allclose(learned, means, atol=1e-6)
    with torch.no_grad():  # the last layer of the pool is still zero
        vectors = run.model.towers(run.data.seen.values.float(), None)[0].numpy()
    projection = run.model.towers.clip.visual_projection.weight.detach().double().numpy()
    expected = (tokens[:, 0] - means[0]) @ projection.T
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert np.allclose(vectors, expected, atol=1e-4)
    if pool == "mean":  # the patches too
        pooling = MeanPool(16, 1, center=True)
        pooling.center.copy_(torch.from_numpy(learned))
        torch.nn.init.eye_(pooling.out.weight)
        found = pooling(torch.from_numpy(tokens).float()).detach().numpy()
        assert np.allclose(found, (tokens - means).sum(1), atol=1e-4)

    # Saved, loaded, and kept as it is by what is tuned further, on other images too.
    done = train(recipe_in(tmp_path, id, lock, "steps=2", "lr=1e-2"))
    saved = saved_weights(tmp_path / "run")["vision_model.pool.center"]
    assert np.array_equal(saved.numpy(), learned)
    said = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    assert said["counterpoint_pool"] == {"kind": pool, "heads": 4, "center": True}
    tuned = load_model(done.model, LoadOptions("cpu"))
    assert np.array_equal(pool_of(tuned.opened.model).center.numpy(), learned)
    others = [f"data.path={data_in(tmp_path, 5, 'few.parquet')}", "lock=image"]
    again = build(recipe_in(tmp_path, done.model, *others, out="again"), CPU)
    assert len(again.data.seen) < len(tokens)
    assert np.array_equal(pool_of(again.model.towers.clip).center.numpy(), learned)


def test_validation_subtracts_the_means_of_the_training_images(tmp_path):
    id = start_in(tmp_path, "dinov2-bert")
    lock = "lock={tower: image, pool: mean, center: true}"
    held = f"validation.path={data_in(tmp_path, 5, 'held.parquet')}"
    run = build(recipe_in(tmp_path, id, lock, held, "validation.metric=recall"), CPU)
    learned = pool_of(run.model.towers.clip).center.clone()
    validator = Validator(run, None)
    validator.value(run.model.towers.clip.state_dict())
    for model in (run.model.towers.clip, validator.network.model):
        assert learned.any() and torch.equal(pool_of(model).center, learned)


def test_only_a_pool_has_a_center(tmp_path):
    id = start_in(tmp_path, "dinov2-bert")
    with raises("E-RECIPE-INVALID"):
        recipe_in(tmp_path, id, "lock={tower: image, center: true}")


def test_the_mean_pool_takes_vectors_of_class_token_and_mean(tmp_path):
    id = start_in(tmp_path, "dinov2-bert")
    names = [f"photos/{n}.png" for n in range(9)]
    folder = vectors_in(tmp_path / "v", names, np.random.default_rng(0).normal(size=(9, 32)))
    lock = "lock={tower: image, pool: mean}"
    run = build(recipe_in(tmp_path, id, lock, f"data.vectors={folder}"), CPU)
    assert run.data.seen.values.shape == (8, 2, 16)


@pytest.mark.parametrize("pool", ["none", "mean", "attention"])
def test_a_locked_run_in_bf16(tmp_path, pool):
    id = start_in(tmp_path, "dinov2-bert")
    lock = f"lock={{tower: image, pool: {pool}}}"
    half, _ = steps_of(build(recipe_in(tmp_path, id, lock, "precision=bf16"), CPU))
    full, _ = steps_of(build(recipe_in(tmp_path, id, lock), CPU))
    assert half != full and half == pytest.approx(full, rel=0.05)


@pytest.mark.parametrize("name", ["CLIP", "clip", "siglip"])
def test_other_models_have_no_pool(tmp_path, name):
    id = start_in(tmp_path, name)
    with raises("E-MODEL-UNSUITABLE", id) as caught:
        build(recipe_in(tmp_path, id, "lock={tower: image, pool: attention}"), CPU)
    assert str(caught.value).count(".") <= 2 + id.count(".")


def test_a_pool_that_does_not_fit_is_refused(tmp_path):
    id = start_in(tmp_path, "vit-bert")
    with raises("E-MODEL-UNSUITABLE"):
        build(recipe_in(tmp_path, id, "lock={tower: image, pool: attention, heads: 3}"), CPU)
    done = train(recipe_in(tmp_path, id, "lock={tower: image, pool: attention}", "steps=1"))
    with raises("E-MODEL-UNSUITABLE"):  # of another kind than it has
        build(recipe_in(tmp_path, done.model, "lock={tower: image, pool: mean}", out="o"), CPU)
    build(recipe_in(tmp_path, done.model, "lock={tower: image, pool: attention}", out="o"), CPU)
    path = tmp_path / "run" / "model" / "config.json"
    wrong = ({"kind": "median", "heads": 4}, {"kind": "mean"}, "mean", {"kind": "mean", "heads": 0})
    wrong += ({"kind": "mean", "heads": 4, "center": "yes"},)
    for entry in wrong:
        path.write_text(json.dumps({**json.loads(path.read_text()), "counterpoint_pool": entry}))
        with raises("E-MODEL-UNSUITABLE", done.model):
            load_model(done.model, LoadOptions("cpu"))
