"""The open_clip adapter, on tiny models of open_clip's own classes with random weights."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch
from open_clip_models import (
    ALL_CLASSES,
    CAPTIONS,
    CLIP,
    CONTEXT,
    CUSTOM,
    PREPROCESS,
    TEXT,
    VISION,
    WEIGHTS,
    build,
    load,
    noise,
    save_model,
    sequence_lengths,
    straight_captions,
    straight_images,
    tokenizer_of,
)
from safetensors.torch import load_file, save_file

from counterpoint.models.openclip.adapter import MERGES, OpenClip
from counterpoint.models.torch_models import unit
from counterpoint.scoring.kinds import Described, DualEncoder

# --- vectors -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL_CLASSES)
def test_caption_vectors_are_those_of_open_clip(name, tmp_path):
    folder = save_model(tmp_path / name, ALL_CLASSES[name])
    expected = straight_captions(folder, CAPTIONS)
    model = load(folder)
    found = model.encode_captions(CAPTIONS)
    assert found.dtype == np.float32
    assert found == pytest.approx(expected, abs=1e-5)
    alone = np.concatenate([model.encode_captions([caption]) for caption in CAPTIONS])
    assert alone == pytest.approx(expected, abs=1e-5)
    # Vectors that are all alike would make the comparison worth nothing.
    assert np.abs(expected[0] - expected[1]).max() > 1e-2


@pytest.mark.parametrize("name", ["clip", "custom", "coca"])
def test_image_vectors_are_those_of_open_clip(name, tmp_path):
    folder = save_model(tmp_path / name, ALL_CLASSES[name])
    images = [noise(32, 32), noise(50, 40, 1), noise(20, 64, 2)]
    model = load(folder)
    found = model.encode_images([model.preprocess(image) for image in images])
    assert found.dtype == np.float32
    assert found == pytest.approx(straight_images(folder, images), abs=1e-5)
    assert np.linalg.norm(found, axis=1) == pytest.approx(1, abs=1e-6)
    assert np.abs(found[0] - found[1]).max() > 1e-2


def test_the_adapter_is_a_dual_encoder_that_describes_itself(tmp_path):
    model = load(save_model(tmp_path / "m"))
    assert isinstance(model, DualEncoder)
    assert isinstance(model, Described)
    said = model.describe()
    assert (said["device"], said["dtype"]) == ("cpu", "float32")
    assert said["context_length"] == model.context_length == CONTEXT
    assert said["parameters"] == sum(p.numel() for p in build(CLIP).parameters())
    assert said["versions"]["torch"] == torch.__version__
    assert said["notes"] == []
    json.dumps(said)  # it goes into run.json


# --- padding -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["clip", "custom"])
def test_causal_towers_work_on_no_more_than_the_longest_caption(name, tmp_path):
    model = load(save_model(tmp_path / name, ALL_CLASSES[name]))
    assert model.describe()["padding_cut"] is True
    short, longer = CAPTIONS[:2]
    counts = model.count_tokens([short, longer])
    assert counts[0] < counts[1] < CONTEXT
    assert sequence_lengths(model, [short]) == [counts[0]]
    assert sequence_lengths(model, [short, longer]) == [counts[1]]


@pytest.mark.parametrize("name", ["last", "both-ways"])
def test_towers_that_see_their_padding_keep_it(name, tmp_path):
    folder = save_model(tmp_path / name, ALL_CLASSES[name])
    model = load(folder)
    assert model.describe()["padding_cut"] is False
    assert sequence_lengths(model, CAPTIONS[:1]) == [CONTEXT]
    # The trap: for these towers a cut does change the result.
    tokens = tokenizer_of(folder)(CAPTIONS[:1])
    with torch.inference_mode():
        cut = unit(model._encode_cut(tokens[:, : int(tokens.count_nonzero())]))
    difference = cut - straight_captions(folder, CAPTIONS[:1])
    assert np.abs(difference).max() > 1e-3


# --- tokens ------------------------------------------------------------------------------------


def test_overlong_captions_are_counted_in_full_and_cut_when_encoded(tmp_path):
    folder = save_model(tmp_path / "m")
    model = load(folder)
    long = "a red circle " * 20
    assert model.count_tokens([long, "a red circle"]).tolist() == [62, 5]
    assert sequence_lengths(model, [long]) == [CONTEXT]
    vectors = model.encode_captions([long])
    assert vectors == pytest.approx(straight_captions(folder, [long]), abs=1e-5)


WORDS = ("a", "red", "circle", "and", "square")


def save_transformers_tokenizer(folder: Path) -> None:
    """A word-level tokenizer that ends a text with </s> and pads with 1, as SigLIP's does."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    vocabulary = {word: i for i, word in enumerate(["<unk>", "<pad>", "</s>", *WORDS])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 2)]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="<unk>", pad_token="<pad>", eos_token="</s>"
    ).save_pretrained(folder)


def test_a_transformers_tokenizer_is_counted_with_its_special_tokens(tmp_path):
    text = {**TEXT, "hf_tokenizer_name": "own", "pool_type": "last", "no_causal_mask": True}
    folder = save_model(tmp_path / "m", {**CUSTOM, "text_cfg": {**text, "pad_id": 1}})
    (folder / MERGES).unlink()
    save_transformers_tokenizer(folder)
    model = load(folder)
    assert model.count_tokens(["a red circle", "square", "a " * 40]).tolist() == [4, 2, 41]
    assert model.cuts_padding is False
    reference = open_clip.create_model(f"local-dir:{folder}").eval()
    padded = torch.tensor([[3, 4, 5, 2] + [1] * (CONTEXT - 4)])
    with torch.inference_mode():
        expected = reference.encode_text(padded, normalize=True).numpy()
    assert model.encode_captions(["a red circle"]) == pytest.approx(expected, abs=1e-5)


# --- preprocessing -----------------------------------------------------------------------------


def finished(model, *images):
    return model.pixels.finish(model.pixels.stage([model.preprocess(image) for image in images]))


@pytest.mark.parametrize("resize", ["shortest", "longest", "squash"])
def test_bytes_become_the_floats_of_the_transform_bit_for_bit(resize, tmp_path):
    """Images travel as bytes and are normalised in batches: nothing may change by that."""
    config = {**PREPROCESS, "resize_mode": resize}
    model = load(save_model(tmp_path / "m", preprocess=config))
    images = [noise(70, 90), noise(33, 200), noise(32, 32), noise(500, 40)]
    assert model.preprocess(images[0]).dtype == np.uint8
    expected = torch.stack([model.transform(image) for image in images])
    assert torch.equal(finished(model, *images), expected)


# --- fingerprints ------------------------------------------------------------------------------


def test_the_fingerprint_is_the_same_for_a_reload_and_in_another_place(tmp_path):
    first = load(save_model(tmp_path / "a")).fingerprint
    assert load(tmp_path / "a").fingerprint == first
    assert load(save_model(tmp_path / "b")).fingerprint == first


def test_the_fingerprint_changes_with_one_weight(tmp_path):
    folder = save_model(tmp_path / "m")
    before = load(folder).fingerprint
    weights = load_file(folder / WEIGHTS)
    weights["visual.proj"][0, 0] += 1e-3
    save_file(weights, folder / WEIGHTS)
    assert load(folder).fingerprint != before


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"mean": [0.5, 0.4, 0.31]},
        {"std": [0.2, 0.25, 0.31]},
        {"interpolation": "bilinear"},
        {"resize_mode": "shortest"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_fingerprint_changes_with_the_preprocessing(change, tmp_path):
    before = load(save_model(tmp_path / "a")).fingerprint
    after = load(save_model(tmp_path / "b", preprocess={**PREPROCESS, **change}))
    assert after.fingerprint != before


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"quick_gelu": True},
        {"text_cfg": {**TEXT, "heads": 4}},
        {"text_cfg": {**TEXT, "pool_type": "last"}},
        {"text_cfg": {**TEXT, "no_causal_mask": True}},
        {"text_cfg": {**TEXT, "tokenizer_kwargs": {"clean": "canonicalize"}}},
        {"vision_cfg": {**VISION, "head_width": 8}},
        {"vision_cfg": {**VISION, "pool_type": "avg"}},
    ],
    ids=["quick_gelu", "heads", "pool", "mask", "cleaning", "image-heads", "image-pool"],
)
def test_the_fingerprint_changes_with_what_the_weights_do_not_show(change, tmp_path):
    """The same weights compute other vectors; with one fingerprint the store would mix them up."""
    one, two = (
        load(save_model(tmp_path / name, {**CUSTOM, **changed}))
        for name, changed in (("a", {}), ("b", change))
    )
    assert vectors_of(one).tobytes() != vectors_of(two).tobytes()
    assert one.fingerprint != two.fingerprint


def vectors_of(model: OpenClip) -> np.ndarray:
    pixels = model.preprocess(noise(32, 32))
    return np.concatenate([model.encode_captions(CAPTIONS), model.encode_images([pixels])])
