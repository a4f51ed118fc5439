"""Locked-image tuning: the same training as with pixels, without opening an image."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
import torch
from errors import raises
from hf_models import noise
from locked import (
    data_in,
    pixels_like,
    recipe_in,
    start_in,
    steps_of,
    vectors_in,
)
from safetensors.torch import load_file
from training import CPU, Killed, everything, same, saved_weights, two_end_as_one

import counterpoint
from counterpoint._util.store import Store
from counterpoint.images import Picture
from counterpoint.training import load_recipe, loop, train
from counterpoint.training.setup import build
from counterpoint.training.towers import open_start, trunk_of
from counterpoint.training.validation import Validator

pytestmark = pytest.mark.slow

PROJECTED = (
    *("clip", "vit-bert", "dinov2-bert", "clip-roberta", "altclip", "chinese_clip", "metaclip_2"),
)
# What of the image tower trains; nothing where it is locked as a whole.
HEADS = {
    "CLIP": {"visual.proj"},
    "CUSTOM": {"visual.proj"},
    "COCA": {"visual.proj"},
    "TIMM": {"visual.head.proj.weight"},
    "RESNET": set(),
    "SIGLIP": set(),
    "siglip": set(),
    **{name: {"visual_projection.weight"} for name in PROJECTED},
    "siglip2": set(),
    "flava": {"image_projection.weight", "image_projection.bias"},
}


@pytest.mark.parametrize("name", HEADS)
def test_locked_training_is_that_of_pixels_with_a_frozen_trunk(tmp_path, name):
    recipe = recipe_in(tmp_path, start_in(tmp_path, name), "lock=image")
    run = build(recipe, CPU)
    images = ("visual.", "vision_", "visual_", "image_")
    trained = {n.removeprefix("clip.") for n in run.model.trainable()}
    assert {n for n in trained if n.startswith(images)} == HEADS[name]
    assert len(trained) > len(HEADS[name]) + 5  # the text tower, and the scale
    before = {n: p.detach().clone() for n, p in run.model.towers.clip.named_parameters()}
    other = pixels_like(run, recipe)
    assert len(run.data.seen) == 8 and other.data.seen is None
    losses, weights = steps_of(run)
    expected, plain = steps_of(other)
    assert losses == pytest.approx(expected, rel=1e-4)
    assert weights.keys() == plain.keys()
    for key, value in weights.items():
        assert torch.allclose(value, plain[key], atol=1e-4), key
        moved = not torch.equal(value, before[key])
        assert not moved or key in trained, key
    assert all(not torch.equal(weights[key], before[key]) for key in HEADS[name])


@pytest.mark.parametrize("name", ["CLIP", "vit-bert"])
@pytest.mark.parametrize(
    "changes",
    [
        ("data.negative_images=true", "data.negatives=2", "loss=[{term: trohn-img}]"),
        ("data.hard_images=2", "loss=[{term: negclip}]"),
        ("cached_batch=2",),
        ("freeze=image",),
        ("freeze=text",),
        ("loss=[{term: clip}, {term: hold}]",),
    ],
    ids=["negative-images", "hard-images", "cached", "frozen", "text-frozen", "start"],
)
def test_it_goes_with_what_recipes_have(tmp_path, name, changes):
    recipe = recipe_in(tmp_path, start_in(tmp_path, name), "lock=image", *changes)
    run = build(recipe, CPU)
    losses, weights = steps_of(run)
    expected, plain = steps_of(pixels_like(run, recipe))
    # `hold` has no gradient to speak of at the start: rounding decides
    assert losses == pytest.approx(expected, rel=1e-3 if "hold" in changes[0] else 1e-4)
    if "hold" not in changes[0]:
        assert all(torch.allclose(weights[key], plain[key], atol=2e-4) for key in weights)


def no_opening(monkeypatch) -> None:
    def opened(self):
        raise AssertionError(f"{self.ref.path} was opened")

    monkeypatch.setattr(Picture, "open", opened)
    monkeypatch.setattr(Picture, "read", opened)


@pytest.mark.parametrize("name", ["CLIP", "vit-bert"])
def test_no_image_is_opened_after_the_first_look(tmp_path, name, monkeypatch):
    id = start_in(tmp_path, name)
    train(recipe_in(tmp_path, id, "lock=image", out="first"))
    no_opening(monkeypatch)
    tuned = train(recipe_in(tmp_path, id, "lock=image", "seed=1", out="second"))
    # the tuned model has the same trunk, so that nothing is computed for it either
    again = train(recipe_in(tmp_path, tuned.model, "lock=image", out="third"))
    fingerprints = {trunk_of(open_start(m, "cpu")).fingerprint for m in (id, again.model)}
    assert len(fingerprints) == 1


@pytest.mark.parametrize("name", ["CLIP", "TIMM", "siglip", "dinov2-bert"])
def test_the_trunk_is_the_same_to_the_bit_and_the_model_evaluates(tmp_path, name):
    id = start_in(tmp_path, name)
    done = train(recipe_in(tmp_path, id, "lock=image", "wise=0.7", "ema=0.9"))
    [path] = (tmp_path / f"start-{name}").glob("*model.safetensors")
    before, after = load_file(path), saved_weights(tmp_path / "run")
    images = ("visual.", "vision_", "visual_")
    trunk = [n for n in before if n.startswith(images) and n not in HEADS[name]]
    assert trunk and all(torch.equal(before[n], after[n]) for n in trunk)
    assert not torch.equal(before["logit_scale"], after["logit_scale"])
    short = tmp_path / "short.jsonl"  # the tiny SigLIP takes no caption of the world
    noise(32, 32).save(tmp_path / "x.png")
    case = {"id": "0", "images": ["x.png"], "captions": ["a dog", "a cat"], "truth": [[1, 0]]}
    short.write_text(json.dumps(case) + "\n")
    run = counterpoint.evaluate(done.model, short, out=tmp_path / "e", device="cpu")
    [part] = run.parts.values()
    assert len(part.scores) == 2 and np.isfinite(part.scores).all()


@pytest.mark.parametrize("pool", ["none, noise: 0.3", "mean, center: true", "attention"])
def test_killed_and_resumed_it_is_the_same_bytes(tmp_path, monkeypatch, pool):
    id = start_in(tmp_path, "dinov2-bert")
    lock = f"lock={{tower: image, pool: {pool}}}"
    train(recipe_in(tmp_path, id, lock, out="whole"))
    inner = loop.update

    def killed(run, step):
        found = inner(run, step)
        if step == 3:
            raise Killed
        return found

    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path / "other-cache"))
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(loop, "update", killed)
        train(recipe_in(tmp_path, id, lock, out="broken"))
    train(recipe_in(tmp_path, id, lock, out="broken"))
    assert same(everything(tmp_path / "whole"), everything(tmp_path / "broken"))
    files = [(tmp_path / out / "model" / "model.safetensors") for out in ("whole", "broken")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_killed_while_it_looks_at_the_images(tmp_path, monkeypatch):
    """The rest falls into the same batches: what is stored is the same to the bit."""
    id = start_in(tmp_path, "CLIP")
    monkeypatch.setattr("counterpoint.scoring.encode.BATCH", 3)
    whole = build(recipe_in(tmp_path, id, "lock=image"), CPU).data.seen.values
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path / "other-cache"))
    put, count = Store.put, []

    def killed(self, items):
        count.append(items)
        if len(count) == 2:
            raise Killed
        put(self, items)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Store, "put", killed)
        build(recipe_in(tmp_path, id, "lock=image"), CPU)
    again = build(recipe_in(tmp_path, id, "lock=image"), CPU).data.seen.values
    assert torch.equal(again, whole)


def test_a_broken_image_is_replaced_as_with_pixels(tmp_path):
    id = start_in(tmp_path, "CLIP")
    recipe = recipe_in(tmp_path, id, "lock=image", "steps=8")
    (tmp_path / "photos" / "3.png").write_bytes(b"no image")
    (tmp_path / "photos" / "5.png").unlink()
    run = build(recipe, CPU)
    other = pixels_like(run, recipe)
    numbers = [[b.samples for b in one.data.stream(0, 6)] for one in (run, other)]
    assert numbers[0] == numbers[1]
    assert run.data.problems.counts == other.data.problems.counts != {}


@pytest.mark.parametrize("lock", ["lock=image", "lock={tower: image, pool: attention}"])
def test_validation_looks_at_stored_vectors_too(tmp_path, monkeypatch, lock):
    id = start_in(tmp_path, "vit-bert")
    data_in(tmp_path, 6, "held.parquet")
    held = (f"validation.path={tmp_path / 'held.parquet'}", "validation.metric=recall")
    train(recipe_in(tmp_path, id, lock, *held, out="first"))
    no_opening(monkeypatch)
    done = train(recipe_in(tmp_path, id, lock, *held, "validation.every=2", out="run"))
    assert done.best is not None and np.isfinite(done.best.value)


@pytest.mark.parametrize(
    ("name", "lock", "alike"),
    [
        ("clip", "lock=image", ""),
        # BERT has dropout, so that its weights differ.
        (
            "dinov2-bert",
            "lock={tower: image, pool: mean, center: true}",
            "vision_model.pool.center",
        ),
    ],
)
def test_two_processes_end_with_the_weights_of_one(tmp_path, name, lock, alike):
    id = start_in(tmp_path, name)
    make = partial(recipe_in, tmp_path, id, lock, "cached_batch=1", "steps=4")
    two_end_as_one(tmp_path, make, "sharded=false", "sharded=true", atol=1e-4, alike=alike)


def test_lora_leaves_the_locked_tower_alone(tmp_path):
    recipe = recipe_in(tmp_path, start_in(tmp_path, "CLIP"), "lock=image", "lora.rank=2")
    names = build(recipe, CPU).model.trainable()
    of_images = {n for n in names if n.startswith("clip.visual")}
    assert of_images == {"clip.visual.proj"} and any("lora_" in n for n in names)


# --- vectors without photographs -----------------------------------------------------------------


@pytest.mark.parametrize("as_file", [False, True])
def test_vectors_stand_for_photographs_that_are_not_there(tmp_path, as_file):
    id = start_in(tmp_path, "vit-bert")
    first = build(recipe_in(tmp_path, id, "lock=image"), CPU)
    values, seen = first.data.seen.values, first.data.source.pictures()
    gone = [p.ref.path for p in seen[:5]]
    rows = [int(first.data.seen.row(p)) for p in seen[:5]]
    folder = vectors_in(tmp_path / "vectors", gone, values[rows].numpy())
    given = folder / "images.npy" if as_file else folder
    recipe = recipe_in(tmp_path, id, "lock=image", f"data.vectors={given}")
    for path in gone:
        (tmp_path / path).unlink()
    run = build(recipe, CPU)
    batches = [list(one.data.stream(0, 4)) for one in (run, first)]
    for one, two in zip(*batches, strict=True):
        assert torch.equal(one.images, two.images) and one.samples == two.samples
    assert steps_of(run)[0] == steps_of(first)[0]
    assert not run.data.problems.counts


def test_vectors_of_another_width_are_refused(tmp_path):
    id = start_in(tmp_path, "vit-bert")
    folder = vectors_in(tmp_path / "v", ["a.png"], np.ones((1, 15), np.float32))
    with raises("E-VECTORS-INVALID", 15, 16):
        build(recipe_in(tmp_path, id, "lock=image", f"data.vectors={folder}"), CPU)
    with raises("E-FILE-MISSING"):
        build(recipe_in(tmp_path, id, "lock=image", "data.vectors=nowhere"), CPU)
    with raises("E-RECIPE-INVALID"):
        recipe_in(tmp_path, id, f"data.vectors={folder}")


# --- noise ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dinov2-bert", "CLIP", "TIMM"])
def test_noise_is_as_large_as_what_differs_between_images(tmp_path, name):
    """In training alone, with other numbers in every step; a validation learns nothing new."""
    id = start_in(tmp_path, name)
    held = [f"validation.path={data_in(tmp_path, 5, 'held.parquet')}", "validation.metric=recall"]
    run = build(recipe_in(tmp_path, id, "lock={tower: image, noise: 0.5}", *held), CPU)
    outputs, trunk = run.data.seen.values.float(), run.trunk
    Validator(run, None).value(run.model.towers.clip.state_dict())
    draws = torch.stack([trunk.noisy(outputs) - outputs for _ in range(2000)])
    expected = 0.5 * outputs.std(0, correction=0)
    assert outputs.std(0).max() > 0.01
    assert torch.allclose(draws.std((0, 1)), expected, rtol=0.1, atol=1e-6)
    assert draws.mean((0, 1)).abs().max() < 0.1 * expected.max()
    towers = run.model.towers
    with torch.no_grad():
        one, two = (towers(outputs, None)[0] for _ in range(2))
        towers.eval()
        still, again = (towers(outputs, None)[0] for _ in range(2))
    assert not torch.allclose(one, two, atol=1e-4) and torch.equal(still, again)


# --- recipes -------------------------------------------------------------------------------------


def test_only_data_whose_images_are_known_can_be_locked(tmp_path):
    for changes in (["data.kind=world"], ["data.kind=webdataset", "data.path=x.tar"]):
        with raises("E-RECIPE-INVALID"):
            load_recipe("clip-ft", ["lock=image", *changes])
    with raises("E-RECIPE-INVALID"):
        load_recipe("clip-ft", ["lock=text"])


def test_a_lock_is_another_recipe_and_what_is_kept_out_is_not():
    plain, kept = (load_recipe("clip-ft", c) for c in ([], ["data.keep_out=[sugarcrepe]"]))
    assert plain.digest() == load_recipe("clip-ft", ["lock=none"]).digest() == kept.digest()
    assert load_recipe("clip-ft", ["lock=image", "data.kind=pairs"]).digest() != plain.digest()
