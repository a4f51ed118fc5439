"""Any dual encoder as a start: SigLIP of open_clip, and transformers' models."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import hf_models
import numpy as np
import pytest
import torch
from errors import raises
from open_clip_models import CLIP, CONTEXT, CUSTOM, PREPROCESS, TEXT, save_model
from safetensors.torch import load_file
from training import (
    CPU,
    broken_off,
    resumes_the_same,
    run_small,
    same,
    saved_weights,
    small_recipe,
    two_end_as_one,
)

import counterpoint
from counterpoint.models import LoadOptions, load_model
from counterpoint.training.batches import only, pack, unpack
from counterpoint.training.setup import build
from counterpoint.training.towers import open_start, token_images, tokens_of, towers_of

pytestmark = pytest.mark.slow

# As open_clip has SigLIP: a text tower without a mask that ends in its last token, and a bias.
SIGLIP = {
    **CUSTOM,
    "init_logit_bias": -10.0,
    "text_cfg": {**TEXT, "no_causal_mask": True, "pool_type": "last", "proj_bias": True},
}
# With timm's vision tower and its pooling by attention, as all SigLIP models of open_clip.
TIMM = {
    **SIGLIP,
    "embed_dim": 96,
    "vision_cfg": {
        "image_size": 160,
        "timm_model_name": "test_vit3",
        "timm_model_pretrained": False,
        "timm_pool": "map",
        "timm_proj": "none",
    },
}
OPEN_CLIP = {"open_clip-siglip": SIGLIP, "timm-siglip": TIMM}
HF = ("clip", "siglip", "siglip2", "vit-bert", "clip-roberta", "flava")
SIGMOID = (
    "loss=[{term: siglip-negatives}, {term: siglip-own, weight: 0.5}, {term: siglip-positives}, "
    "{term: listwise}]",
)
ENDS = ("open_clip_model.safetensors", "model.safetensors")


@pytest.fixture(autouse=True)
def longer_texts(monkeypatch):
    """The captions of the world are longer than the few words of other tests."""
    monkeypatch.setattr(hf_models, "CONTEXT", 48)


def start_in(folder: Path, name: str) -> str:
    """The id of a tiny start; with a bias whose gradient is not lost."""
    if name in OPEN_CLIP or name == "CLIP":
        return f"open_clip:local-dir:{save_model(folder, OPEN_CLIP.get(name, CLIP), PREPROCESS)}"
    return f"hf:{hf_models.save(folder, hf_models.DUALS[name])}"


@pytest.fixture
def trained(tmp_path, request):
    """Train a tiny start of a name; gives the finished run's folder."""

    def run(name: str, *changes: str, out: str = "run"):
        where = tmp_path / f"start-{name}"
        id = start_in(where, name) if not where.is_dir() else _id(where, name)
        return run_small(tmp_path, f"model={id}", "lr=1e-3", *changes, out=out)

    return run


def _id(folder: Path, name: str) -> str:
    of_open_clip = name in OPEN_CLIP or name == "CLIP"
    return f"open_clip:local-dir:{folder}" if of_open_clip else f"hf:{folder}"


def terms_for(name: str) -> tuple[str, ...]:
    return SIGMOID if "siglip" in name else ()


@pytest.mark.parametrize("name", [*OPEN_CLIP, *HF])
def test_it_trains_resumes_and_evaluates(tmp_path, monkeypatch, name):
    terms, id = terms_for(name), start_in(tmp_path / "start", name)
    changes = (f"model={id}", "lr=1e-3", *terms, "steps=4")
    resumes_the_same(tmp_path, monkeypatch, (0, 2), *changes)
    kind = "open_clip:local-dir:" if name in OPEN_CLIP else "hf:"
    whole = f"{kind}{tmp_path / 'whole' / 'model'}"
    before, model = (load_model(one, LoadOptions("cpu")) for one in (id, whole))
    assert type(model) is type(before) and model.fingerprint != before.fingerprint
    assert model.context_length == before.context_length
    run = counterpoint.evaluate(whole, "world-swap:size=6", out=tmp_path / "eval", device="cpu")
    [part] = run.parts.values()
    assert len(part.scores) == 3 * 6 and np.isfinite(part.scores).all()
    log = [json.loads(line) for line in (tmp_path / "whole" / "log.jsonl").read_text().splitlines()]
    assert ("bias" in log[0]) == bool(terms)
    if terms:
        assert log[0]["bias"] != log[-1]["bias"]


@pytest.mark.parametrize("name", [*OPEN_CLIP, *HF])
def test_towers_compute_what_evaluation_does(tmp_path, name):
    id = start_in(tmp_path / "start", name)
    recipe = small_recipe(tmp_path, f"model={id}", *terms_for(name))
    run = build(recipe, CPU)
    batch = run.data.batch(0, 0)
    dual = load_model(id, LoadOptions("cpu"))
    towers = run.model.towers.eval()
    with torch.no_grad():
        features = unpack(batch, *towers(*pack(batch, towers.pad)))
    texts, images = _world(run)
    expected = torch.tensor(dual.encode_captions(texts))
    torch.testing.assert_close(features.captions, expected, atol=1e-5, rtol=1e-4)
    seen = torch.tensor(dual.encode_images([dual.preprocess(image) for image in images]))
    with torch.no_grad():  # the world paints what preprocessing gives but for rounding
        pixels = torch.stack([run.model.start.transform(image) for image in images])
        torch.testing.assert_close(towers(pixels, None)[0], seen, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(features.images, seen, atol=1e-2, rtol=0.1)
    biased = getattr(run.model.start.model, "logit_bias", None)
    assert (features.bias is None) == (biased is None)


def _world(run):
    """The captions and images of the first batch as they are before they become tensors."""
    from PIL import Image

    from counterpoint.world import PIXELS, paint
    from counterpoint.world.arrays import texts

    edits = run.data.edits(run.data.samples(0, 0))
    pictures = paint(*edits.scenes.table(), pixels=PIXELS, xp=np)
    return texts(edits.words()[0]), [Image.fromarray(picture) for picture in pictures]


@pytest.mark.parametrize("name", ["open_clip-siglip", "siglip", "siglip2"])
def test_two_processes_end_with_the_weights_of_one(tmp_path, name):
    id = start_in(tmp_path / "model", name)
    changes = (f"model={id}", "lr=1e-3", "steps=4", "grad_clip=1", "cached_batch=3", *SIGMOID)
    make = partial(small_recipe, tmp_path, *changes)
    two_end_as_one(tmp_path, make, "sharded=false", "sharded=true", atol=1e-4)


@pytest.mark.parametrize("name", ["siglip", "clip"])
def test_parts_of_a_batch_give_the_gradients_of_the_whole(tmp_path, trained, name):
    """The bias has its gradient from the last part alone."""
    for part, out in ((0, "whole"), (3, "parts")):
        trained(name, *terms_for(name), "steps=2", f"cached_batch={part}", out=out)
    one, two = saved_weights(tmp_path / "whole"), saved_weights(tmp_path / "parts")
    assert all(torch.allclose(one[n], two[n], atol=1e-4) for n in one)
    assert one.keys() == two.keys()


@pytest.mark.parametrize("extra", ["checkpoint_activations=true", "freeze=image", "freeze=text"])
@pytest.mark.parametrize("name", ["siglip", "siglip2", "clip"])
def test_what_recipes_ask_of_towers(tmp_path, trained, name, extra):
    done = trained(name, *terms_for(name), "steps=2", extra, out="run")
    plain = saved_weights(trained(name, *terms_for(name), "steps=2", out="plain").folder)
    found = saved_weights(done.folder)
    if extra.startswith("checkpoint"):
        assert all(torch.allclose(found[n], plain[n], atol=1e-6) for n in plain)
        return
    before = load_file(next(p for e in ENDS if (p := tmp_path / f"start-{name}" / e).is_file()))
    frozen = ("vision", "visual") if extra == "freeze=image" else ("text",)
    for key, value in found.items():
        assert torch.equal(value, before[key]) or not key.startswith(frozen)
    assert any(not torch.equal(value, before[key]) for key, value in found.items())


@pytest.mark.parametrize(
    ("extra", "trains"),
    [
        (("freeze=none",), True),
        (("freeze=text",), False),
        (("lora={rank: 2, targets: [projection]}",), False),
        (("lora={rank: 2, targets: [attention, projection]}",), True),
    ],
    ids=["whole", "frozen", "projections", "adapted"],
)
@pytest.mark.parametrize("name", ["vit-bert", "CLIP"])
def test_a_tower_in_which_nothing_trains_reads_as_in_evaluation(tmp_path, name, extra, trains):
    """BERT has dropout while it trains; CLIP has none. Factors start at zero."""
    id = start_in(tmp_path / "start", name)
    towers = build(small_recipe(tmp_path, f"model={id}", *extra), CPU).model.towers
    start = open_start(id, "cpu")
    tokens = start.tokenizer(hf_models.SENTENCES)
    expected = towers_of(start).eval()(None, tokens)[1]
    same = torch.allclose(towers(None, tokens)[1], expected, atol=1e-6)
    assert same == (name == "CLIP" or not trains)


@pytest.mark.parametrize("name", ["timm-siglip", "siglip", "siglip2", "clip", "vit-bert"])
def test_lora_changes_what_it_should_by_its_rank(tmp_path, trained, name):
    done = trained(name, *terms_for(name), "steps=2", "lora.rank=2", "lr=1e-2")
    before = load_file(next(p for e in ENDS if (p := tmp_path / f"start-{name}" / e).is_file()))
    found = saved_weights(done.folder)
    changed = {key for key, value in found.items() if not torch.equal(value, before[key])}
    for key in changed:
        gap = (found[key] - before[key]).flatten(1).numpy()
        assert np.linalg.matrix_rank(gap, tol=1e-4 * max(1, abs(gap).max())) <= 2, key
    towers = {key.startswith(("visual", "vision")) for key in changed}
    assert towers == {True, False}
    for kind in (("attn", "attention"), ("mlp", "intermediate"), ("patch_embed", "conv1")):
        assert any(part in key for key in changed for part in kind), kind
    assert not any("norm" in key or key.endswith("bias") for key in changed)


def test_what_a_benchmark_asks_in_the_middle_is_the_saved_model(tmp_path, trained):
    done = trained("clip", "steps=2", "benchmarks=[world-swap:size=6]", "eval_every=1")
    outcomes = sorted((done.folder / "evaluations").rglob("outcome.json"))
    assert len(outcomes) == 1 and done.outcome is not None


def test_the_scale_of_siglip_is_not_clamped_below_its_start(tmp_path, trained):
    done = trained("siglip", *SIGMOID, "steps=2", "clamp_scale=0.001")
    before = open_start(_id(tmp_path / "start-siglip", "siglip"), "cpu").model.logit_scale
    assert saved_weights(done.folder)["logit_scale"].exp() <= before.exp() * 1.0001
    assert saved_weights(done.folder)["logit_scale"].exp() > 0.5 * before.exp().clamp(max=1)


def test_a_sigmoid_loss_needs_a_bias(tmp_path):
    recipe = small_recipe(tmp_path, "loss=[{term: siglip}]")
    with raises("E-MODEL-UNSUITABLE", "siglip"):
        build(recipe, CPU)


def test_a_model_without_a_scale_is_refused(tmp_path):
    with raises("E-MODEL-UNSUITABLE"):
        open_start(f"hf:{hf_models.save(tmp_path, hf_models.align)}", "cpu")


def test_weights_that_no_vector_needs_stay(tmp_path):
    recipe = small_recipe(tmp_path, f"model={start_in(tmp_path / 'flava', 'flava')}")
    names = set(build(recipe, CPU).parameters)
    assert names and not any("multimodal" in name or "_to_mm_" in name for name in names)
    assert any("image_model" in name for name in names)


def tiny_architecture(monkeypatch) -> None:
    """open_clip knows one more architecture: a ResNet."""
    import open_clip

    vision = {"image_size": 32, "layers": [1, 1, 1, 1], "width": 16, "patch_size": None}
    config = {**CLIP, "vision_cfg": vision, "text_cfg": {**TEXT, "vocab_size": 49408}}
    monkeypatch.setitem(open_clip.factory._MODEL_CONFIGS, "tiny-RN", config)


def test_from_scratch_by_the_seed_of_the_recipe(tmp_path, monkeypatch):
    tiny_architecture(monkeypatch)
    state = torch.get_rng_state()
    one, two, three = (
        open_start(f"scratch:tiny-RN{seed}", "cpu") for seed in ("", "?seed=0", "?seed=3")
    )
    assert torch.equal(state, torch.get_rng_state())
    assert one.fingerprint == two.fingerprint != three.fingerprint
    changes = ("model=scratch:tiny-RN", "steps=3", "seed=3", "benchmarks=[world-swap:size=4]")
    done = run_small(tmp_path, *changes, name="crepe-scratch")
    about = json.loads((done.folder / "model" / "training.json").read_text())
    assert about["start"] == {"id": "scratch:tiny-RN?seed=3", "fingerprint": three.fingerprint}
    assert load_model(done.model, LoadOptions("cpu")).fingerprint != three.fingerprint
    broken_off(tmp_path, monkeypatch, 2, *changes, out="again", name="crepe-scratch")
    run_small(tmp_path, *changes, out="again", name="crepe-scratch")
    assert same(saved_weights(tmp_path / "again"), saved_weights(done.folder))


@pytest.mark.parametrize("rest", ["RN50?seed=x", "RN50?seed=-1", "RN50?seed=" + "9" * 30])
def test_a_seed_is_a_number(rest):
    with raises("E-OPTION-INVALID", "seed"):
        load_model(f"scratch:{rest}", LoadOptions("cpu"))


def test_an_unknown_architecture_is_named():
    with raises("E-ARCHITECTURE-UNKNOWN", "RN5O"):
        load_model("scratch:RN5O", LoadOptions("cpu"))


def test_context_is_the_models(tmp_path):
    start = open_start(start_in(tmp_path / "clip", "clip"), "cpu")
    tokens = start.tokenizer(["a red circle " * 50, ""])
    assert tokens.shape == (2, hf_models.CONTEXT) and (tokens[1] == -1).any()
    short = start.tokenizer(["a red circle", ""])  # as wide as the longest of them
    assert short.shape[1] < hf_models.CONTEXT and not (short[0] == -1).any()
    assert CONTEXT != hf_models.CONTEXT
    batch = only(build(small_recipe(tmp_path), CPU).data.batch(0, 0), {"images"})
    assert pack(batch, 5)[1].shape[0] == len(batch.images)
    assert towers_of(start).pad == -1


@pytest.mark.parametrize("name", [*HF, *OPEN_CLIP])
def test_texts_apart_by_length_have_the_same_vectors(tmp_path, name, monkeypatch):
    start = open_start(start_in(tmp_path / name, name), "cpu")
    start.model.eval()
    towers = towers_of(start)
    tokens = start.tokenizer([*hf_models.SENTENCES, "", "a red circle !", "heart ! heart"])
    inner, pieces = towers._read, []
    monkeypatch.setattr(towers, "_read", lambda tokens: pieces.append(tokens) or inner(tokens))
    with torch.no_grad():
        expected = towers(None, tokens)[1]
        monkeypatch.setattr("counterpoint.training.towers._TOGETHER", 3)
        torch.testing.assert_close(towers(None, tokens)[1], expected, rtol=1e-4, atol=1e-5)
    apart = -(-len(tokens) // 3) if start.cuts_padding else 1  # SigLIP sees its padding
    assert len(pieces) == 1 + apart


def test_patches_of_timms_transformer_pool_to_its_vector(tmp_path):
    """As SigLIP's in open_clip, which C2LIP is trained from."""
    start = open_start(f"open_clip:local-dir:{save_model(tmp_path / 'start', TIMM)}", "cpu")
    assert tokens_of(start) == {"image_tokens"}
    visual = start.model.visual.eval()
    images = torch.randn(2, 3, 160, 160)
    with torch.no_grad():
        pooled, patches = token_images(visual, images)
        torch.testing.assert_close(pooled, visual(images))
    assert patches.shape[0] == 2 and patches.shape[1] > 1 and patches.shape[2] == 96
