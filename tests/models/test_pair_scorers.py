"""BLIP, BLIP-2 and FLAVA, on tiny models of transformers' own classes with random weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from hf_models import (
    CONTEXT,
    IMAGES,
    OVERLONG,
    blip,
    blip_2,
    calls,
    clip,
    flava,
    load,
    pairs,
    quiet,
    refusal,
    save,
)
from safetensors.torch import load_file, save_file

from counterpoint.images import Picture
from counterpoint.models.registry import LoadOptions, load_model
from counterpoint.scoring.kinds import Described, DualEncoder, PairScorer

pytestmark = pytest.mark.slow

WEIGHTS = "model.safetensors"
BUILD = {"blip": blip, "blip-2": blip_2, "flava": lambda: flava(tf.FlavaForPreTraining)}
CLASSES = {
    "blip": tf.BlipForImageTextRetrieval,
    "blip-2": tf.Blip2ForImageTextRetrieval,
    "flava": tf.FlavaForPreTraining,
}
FAMILIES = ("blip-itm", "blip-itc")
PAIR_SCORERS = [("blip-itm", "blip"), ("blip-itm", "blip-2"), ("blip-itc", "blip-2")]
BLIPS = [*PAIR_SCORERS, ("blip-itc", "blip")]
FLAVA = ("flava-itm", "flava")


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {name: save(root / name, build) for name, build in BUILD.items()}


@pytest.fixture(scope="module")
def models(folders) -> dict[tuple[str, str], Any]:
    return {(family, name): load(family, folders[name]) for family, name in (*BLIPS, FLAVA)}


@torch.inference_mode()
def plain_scores(
    folder: Path, family: str, pictures: list[Picture], captions: list[str]
) -> np.ndarray:
    """Scores by the forward of transformers: one pair at a time, nothing padded."""
    name = json.loads((folder / "config.json").read_text())["model_type"]
    with quiet():
        model = CLASSES[name].from_pretrained(folder).eval()
        tokenizer = tf.AutoTokenizer.from_pretrained(folder)
        processor = tf.AutoImageProcessor.from_pretrained(folder)
    matching = family != "blip-itc"
    head = {"use_itm_head" if name == "blip" else "use_image_text_matching_head": matching}
    scores = {"blip": "itm_score", "blip-2": "logits_per_image", "flava": "itm_logits"}[name]
    found = []
    for picture, caption in zip(pictures, captions, strict=True):
        tokens = tokenizer(
            caption,
            truncation=True,
            max_length=CONTEXT,
            return_token_type_ids=False,
            return_tensors="pt",
        )
        pixels = processor(images=picture.open(), return_tensors="pt")
        if name == "flava":
            head = {"input_ids_masked": tokens["input_ids"], "return_loss": False}
        logits = getattr(model(**tokens, **pixels, **head), scores)
        found.append(float(logits.softmax(dim=1)[0, 1] if matching else logits[0, 0]))
    return np.array(found)


def as_pairs(model: Any, pictures: list[Picture], captions: list[str]) -> np.ndarray:
    if isinstance(model, PairScorer):
        return model.score_pairs(pictures, captions)
    images = model.encode_images([model.preprocess(picture.open()) for picture in pictures])
    return (images * model.encode_captions(captions)).sum(axis=1)


# --- scores ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "name"), [*BLIPS, FLAVA])
def test_scores_are_those_of_transformers(family, name, folders, models, tmp_path):
    pictures, captions = pairs(tmp_path)
    expected = plain_scores(folders[name], family, pictures, captions)
    found = as_pairs(models[family, name], pictures, captions)
    assert found.dtype == np.float32
    assert found == pytest.approx(expected, abs=1e-5)
    # Scores that are all alike would make the comparison worth nothing.
    assert np.ptp(expected[:3]) > 1e-3 and abs(expected[0] - expected[3]) > 1e-3


@pytest.mark.parametrize("key", PAIR_SCORERS, ids="-".join)
def test_an_image_is_seen_once_for_all_its_captions(key, models, tmp_path):
    pictures, captions = pairs(tmp_path)
    model = models[key]
    tower = model.opened.model.vision_model
    assert calls(tower, lambda: model.score_pairs(pictures, captions)) == [len(IMAGES)]


def test_what_is_beyond_the_context_is_cut(models, tmp_path):
    pictures, _ = pairs(tmp_path)
    for key in BLIPS:
        model = models[key]
        found = as_pairs(model, pictures[:2], [OVERLONG, f"{OVERLONG} and a zebra"])
        short = as_pairs(model, pictures[:1], ["a large star"])
        assert found[0] == pytest.approx(found[1], abs=1e-6)
        assert abs(found[0] - short[0]) > 1e-4
    dual = models["blip-itc", "blip"]
    assert dual.context_length == CONTEXT
    assert dual.count_tokens([OVERLONG, "heart", ""]).tolist() == [34, 3, 2]


def test_which_kinds_they_are_and_what_they_say(models):
    for key, model in models.items():
        assert isinstance(model, PairScorer) == (key != ("blip-itc", "blip"))
        assert isinstance(model, DualEncoder) == (key == ("blip-itc", "blip"))
        assert isinstance(model, Described)
        said = model.describe()
        assert said["class"] == CLASSES[key[1]].__name__
        assert said["context_length"] == CONTEXT
        json.dumps(said)


# --- as in ARO ---------------------------------------------------------------------------------


@torch.inference_mode()
def aro_scores(
    folder: Path, enc: int, pictures: list[Picture], captions: list[str]
) -> list[tuple[float, float]]:
    """The logit of a match with [ENC] in front, and the cosine: one pair at a time."""
    with quiet():
        model = tf.BlipForImageTextRetrieval.from_pretrained(folder).eval()
        tokenizer = tf.AutoTokenizer.from_pretrained(folder)
        processor = tf.AutoImageProcessor.from_pretrained(folder)
    found = []
    for picture, caption in zip(pictures, captions, strict=True):
        ids = tokenizer(caption, truncation=True, max_length=CONTEXT, return_tensors="pt").input_ids
        pixels = processor(images=picture.open(), return_tensors="pt")
        cosine = model(input_ids=ids, **pixels, use_itm_head=False).itm_score[0, 0]
        marked = torch.cat([torch.tensor([[enc]]), ids[:, 1:]], dim=1)
        logits = model(input_ids=marked, **pixels, use_itm_head=True).itm_score
        found.append((float(logits[0, 1]), float(cosine)))
    return found


def test_aro_adds_the_cosine_to_the_logit_of_a_match_behind_enc(tmp_path):
    folder = save(tmp_path / "m", lambda: blip(room=2))
    enc = json.loads((folder / "config.json").read_text())["text_config"]["vocab_size"] - 1
    pictures, captions = pairs(tmp_path)
    parts = aro_scores(folder, enc, pictures, captions)
    expected = [logit + cosine for logit, cosine in parts]
    model = load_model(f"blip-itm:{folder}?score=aro", LoadOptions("cpu"))
    assert isinstance(model, PairScorer)
    found = model.score_pairs(pictures, captions)
    assert found == pytest.approx(expected, abs=1e-5) and found.dtype == np.float32
    # Each part matters: [ENC] instead of [CLS], the logit, the cosine.
    other = [logit + cosine for logit, cosine in aro_scores(folder, enc - 1, pictures, captions)]
    assert np.abs(np.array(other) - expected).max() > 1e-3
    assert max(abs(cosine) for _, cosine in parts) > 1e-2
    usual = load("blip-itm", folder)
    assert usual.fingerprint != model.fingerprint
    assert usual.score_pairs(pictures, captions) != pytest.approx(expected, abs=1e-2)


def test_enc_may_be_a_word_of_the_tokenizer(tmp_path):
    def known():
        model, tokenizer, processor = blip(room=2)
        tokenizer.add_special_tokens({"bos_token": "[DEC]"})
        tokenizer.add_special_tokens({"additional_special_tokens": ["[ENC]"]})
        return model, tokenizer, processor

    pictures, captions = pairs(tmp_path)
    plain, own = save(tmp_path / "plain", lambda: blip(room=2)), save(tmp_path / "own", known)
    shutil.copy(plain / WEIGHTS, own / WEIGHTS)
    first, second = (
        load_model(f"blip-itm:{folder}?score=aro", LoadOptions("cpu")).score_pairs(
            pictures, captions
        )
        for folder in (plain, own)
    )
    assert first == pytest.approx(second, abs=1e-6)


def test_what_cannot_be_scored_as_in_aro_is_refused(folders):
    refusal(f"blip-itm:{folders['blip-2']}?score=aro", "E-MODEL-UNSUITABLE")
    refusal(f"blip-itm:{folders['blip']}?score=aro", "E-TOKENIZER-MISMATCH")  # no room for [ENC]
    refusal(f"blip-itm:{folders['blip']}?score=other", "E-OPTION-INVALID")


# --- precision and fingerprints ----------------------------------------------------------------


@pytest.mark.parametrize("key", BLIPS, ids="-".join)
def test_half_precision_is_close_and_float32(key, folders, models, tmp_path):
    pictures, captions = pairs(tmp_path)
    half = load(key[0], folders[key[1]], "bf16")
    found = as_pairs(half, pictures, captions)
    assert found.dtype == np.float32
    assert 1e-6 < np.abs(found - as_pairs(models[key], pictures, captions)).max() < 0.1
    assert half.fingerprint != models[key].fingerprint


def test_fingerprints_are_of_the_content(folders, models, tmp_path):
    first = models["blip-itm", "blip"].fingerprint
    folder = shutil.copytree(folders["blip"], tmp_path / "m")
    assert load("blip-itm", folder).fingerprint == first
    processor = json.loads((folder / "preprocessor_config.json").read_text())
    (folder / "preprocessor_config.json").write_text(json.dumps({**processor, "resample": 2}))
    second = load("blip-itm", folder).fingerprint
    weights = load_file(folder / WEIGHTS)
    weights["itm_head.bias"][0] += 1e-3
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    assert len({first, second, load("blip-itm", folder).fingerprint}) == 3


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_not_there_or_fits_another_family(family, tmp_path):
    refusal(f"{family}:{tmp_path / 'nowhere'}", "E-MODEL-MISSING")
    assert f"hf:{tmp_path / 'clip'}" in refusal(
        f"{family}:{save(tmp_path / 'clip', clip)}", "E-MODEL-UNSUITABLE"
    )
    (tmp_path / "config.json").write_text('{"model_type": "flava"}')
    message = refusal(f"{family}:{tmp_path}", "E-MODEL-UNSUITABLE")
    assert message.endswith(f"use flava-itm:{tmp_path} or hf:{tmp_path}.")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_captioner_has_neither_head(family, tmp_path):
    folder = save(tmp_path / "m", lambda: blip(tf.BlipForConditionalGeneration))
    message = refusal(f"{family}:{folder}", "E-WEIGHTS-MISSING")
    assert "BlipForConditionalGeneration" in message
    assert "of BlipForImageTextRetrieval" in message


# --- FLAVA ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(folders) -> Path:
    return folders["flava"]


@pytest.fixture(scope="module")
def model(models) -> Any:
    return models["flava-itm", "flava"]


def test_the_logit_is_the_one_that_training_raises_for_a_match(folder, model, tmp_path):
    """Ask the library's loss: with the label of a match, it must push our score up."""
    [picture], [caption] = (part[:1] for part in pairs(tmp_path))
    with quiet():
        trained = tf.FlavaForPreTraining.from_pretrained(folder).eval()
        tokens = tf.AutoTokenizer.from_pretrained(folder)([caption], return_tensors="pt")
    pixels = model.opened.stack([model.opened.preprocess(picture.open())])
    out = trained(
        **tokens,
        **pixels,
        input_ids_masked=tokens["input_ids"],
        itm_labels=torch.ones(1, dtype=torch.long),
        mim_labels=torch.zeros(1, 4, dtype=torch.long),
        bool_masked_pos=torch.ones(1, 4, dtype=torch.long),
        return_loss=True,
    )
    out.loss_info.itm.backward()
    bias = trained.itm_head.seq_relationship.bias
    before = model.score_pairs([picture], [caption])[0]
    changed = shutil.copytree(folder, tmp_path / "m")
    weights = load_file(changed / WEIGHTS)
    weights["itm_head.seq_relationship.bias"] -= bias.grad  # one step of training
    save_file(weights, changed / WEIGHTS, metadata={"format": "pt"})
    assert load("flava-itm", changed).score_pairs([picture], [caption])[0] > before + 1e-3


def test_fingerprints_are_of_what_is_used(folder, model, tmp_path):
    changed = shutil.copytree(folder, tmp_path / "m")
    weights = load_file(changed / WEIGHTS)

    def with_more(name: str) -> str:
        more = {**weights, name: weights[name] + 1e-3}
        save_file(more, changed / WEIGHTS, metadata={"format": "pt"})
        return load("flava-itm", changed).fingerprint

    assert with_more("itm_head.seq_relationship.bias") != model.fingerprint
    assert with_more("flava.text_projection.bias") != model.fingerprint
    assert with_more("mim_head.transform.dense.bias") == model.fingerprint  # another task's
    assert load("hf", folder).fingerprint != model.fingerprint


def test_heads_of_other_tasks_may_be_missing(folder, model, tmp_path):
    """transformers would make up new ones at each load, and a new fingerprint with them."""
    lean = shutil.copytree(folder, tmp_path / "m")
    kept = {n: v for n, v in load_file(lean / WEIGHTS).items() if n.startswith(("flava.", "itm_"))}
    save_file(kept, lean / WEIGHTS, metadata={"format": "pt"})
    assert load("flava-itm", lean).fingerprint == model.fingerprint


def test_refusals(folder, tmp_path):
    refusal(f"flava-itm:{tmp_path / 'nowhere'}", "E-MODEL-MISSING")
    refusal(f"flava-itm:{save(tmp_path / 'blip', blip)}", "E-MODEL-UNSUITABLE")
    message = refusal(f"flava-itm:{save(tmp_path / 'headless', flava)}", "E-WEIGHTS-MISSING")
    assert "FlavaModel" in message and "itm_head" in message
    broken = shutil.copytree(folder, tmp_path / "broken")
    (broken / "preprocessor_config.json").unlink()
    refusal(f"flava-itm:{broken}", "E-MODEL-BROKEN")
    (broken / WEIGHTS).write_bytes(b"garbage" * 100)
    refusal(f"flava-itm:{broken}", "E-MODEL-BROKEN")
