"""FLAVA's matching head, on a tiny model of transformers' own class with random weights."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from hf_models import (
    CONTEXT,
    blip,
    flava,
    load,
    pairs,
    quiet,
    refusal,
    save,
)
from safetensors.torch import load_file, save_file

from counterpoint.images import Picture

pytestmark = pytest.mark.slow

WEIGHTS = "model.safetensors"


def pretraining() -> tuple[Any, Any, Any]:
    return flava(tf.FlavaForPreTraining)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return save(tmp_path_factory.mktemp("models") / "flava", pretraining)


@pytest.fixture(scope="module")
def model(folder) -> Any:
    return load("flava-itm", folder)


@torch.inference_mode()
def plain_scores(folder: Path, pictures: list[Picture], captions: list[str]) -> np.ndarray:
    """Scores by the forward of transformers: one pair at a time, nothing padded or masked."""
    with quiet():
        model = tf.FlavaForPreTraining.from_pretrained(folder).eval()
        tokenizer = tf.AutoTokenizer.from_pretrained(folder)
        processor = tf.AutoImageProcessor.from_pretrained(folder)
    found = []
    for picture, caption in zip(pictures, captions, strict=True):
        tokens = tokenizer(caption, truncation=True, max_length=CONTEXT, return_tensors="pt")
        pixels = processor(images=picture.open(), return_tensors="pt")
        out = model(**tokens, **pixels, input_ids_masked=tokens["input_ids"], return_loss=False)
        found.append(float(out.itm_logits.softmax(dim=1)[0, 1]))
    return np.array(found)


def test_scores_are_those_of_transformers(folder, model, tmp_path):
    pictures, captions = pairs(tmp_path)
    expected = plain_scores(folder, pictures, captions)
    found = model.score_pairs(pictures, captions)
    assert found.dtype == np.float32
    assert found == pytest.approx(expected, abs=1e-5)
    # Scores that are all alike would make the comparison worth nothing.
    assert np.ptp(expected[:3]) > 1e-3 and abs(expected[0] - expected[3]) > 1e-3


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
