"""The X-VLM adapter, on a tiny checkpoint of the authors' layout.

The reference takes the same weights into the Swin Transformer and the BERT of transformers, and
scores one pair at a time.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as tf
from errors import raises
from hf_models import pairs
from models_for_tests import is_sentence
from torchvision.transforms.functional import normalize, pil_to_tensor
from xvlm_models import (
    DEPTHS,
    FUSION,
    HEADS,
    INNER,
    LAYERS,
    PIECES,
    SIDE,
    TEXT,
    WIDTH,
    WINDOW,
    save_xvlm,
    weights,
)

from counterpoint.images import Picture
from counterpoint.models import LoadOptions, load_model
from counterpoint.scoring import PairScorer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return save_xvlm(tmp_path_factory.mktemp("xvlm") / "checkpoint_9.pth").parent


@pytest.fixture(scope="module")
def model(folder):
    return load_model(f"xvlm:{folder}/checkpoint_9.pth", LoadOptions(device="cpu"))


# --- the reference -------------------------------------------------------------------------------


def swin() -> tf.SwinModel:
    config = tf.SwinConfig(
        image_size=SIDE,
        embed_dim=WIDTH,
        depths=list(DEPTHS),
        num_heads=list(HEADS),
        window_size=WINDOW,
    )
    renamed = {}
    for name, value in weights().items():
        if not name.startswith("vision_encoder.") or "index" in name:
            continue
        name = name.removeprefix("vision_encoder.")
        for theirs, ours in (
            (r"^patch_embed\.proj", "embeddings.patch_embeddings.projection"),
            (r"^patch_embed\.norm", "embeddings.norm"),
            (r"^layers", "encoder.layers"),
            (r"^norm", "layernorm"),
            (r"norm1", "layernorm_before"),
            (r"norm2", "layernorm_after"),
            (r"attn\.relative", "attention.relative_position_bias.relative"),
            (r"attn\.proj", "attention.o_proj"),
        ):
            name = re.sub(theirs, ours, name)
        if "attn.qkv" in name:
            for part, piece in zip("qkv", value.chunk(3), strict=True):
                renamed[name.replace("attn.qkv", f"attention.{part}_proj")] = piece
        else:
            renamed[name] = value
    tower = tf.SwinModel(config)
    missing, unexpected = tower.load_state_dict(renamed, strict=False)
    assert not unexpected and all("relative_position_index" in name for name in missing)
    return tower.eval()


def bert() -> tf.BertModel:
    """Of the layers that see no image."""
    config = tf.BertConfig(
        vocab_size=len(PIECES),
        hidden_size=TEXT,
        num_hidden_layers=FUSION,
        num_attention_heads=TEXT // 64,
        intermediate_size=INNER,
        max_position_embeddings=48,
    )
    stem = "text_encoder."
    later = tuple(f"{stem}encoder.layer.{n}." for n in range(FUSION, LAYERS))
    own = {
        name.removeprefix(stem): value
        for name, value in weights().items()
        if name.startswith(stem) and not name.startswith(later)
    }
    tower = tf.BertModel(config, add_pooling_layer=False)
    tower.load_state_dict(own)
    return tower.eval()


@torch.inference_mode()
def reference(picture: Picture, caption: str) -> tuple[float, float]:
    """The logit of a match and the cosine of one pair."""
    state = weights()
    resized = picture.open().convert("RGB").resize((SIDE, SIDE), resample=3)
    mean, std = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
    pixels = normalize(pil_to_tensor(resized).float() / 255, mean, std)[None]
    patches = swin()(pixels).last_hidden_state
    seen = torch.cat([patches.mean(dim=1, keepdim=True), patches], dim=1)

    tokenizer = tf.BertTokenizer(vocab={piece: n for n, piece in enumerate(PIECES)})
    ids = torch.tensor([tokenizer(caption)["input_ids"][:-1]])  # the authors' has no [SEP]
    words_read = bert()(ids).last_hidden_state
    # A layer that sees the image, written out: self-attention, cross-attention, feed-forward.
    fused = words_read
    for number in range(FUSION, LAYERS):
        stem = f"text_encoder.encoder.layer.{number}."
        fused = attended(state, f"{stem}attention.", fused, fused)
        fused = attended(state, f"{stem}crossattention.", fused, seen)
        inner = torch.nn.functional.gelu(linear(state, f"{stem}intermediate.dense", fused))
        fused = normed(
            state, f"{stem}output.LayerNorm", linear(state, f"{stem}output.dense", inner) + fused
        )
    hidden = linear(state, "itm_head.0", fused[:, 0])
    hidden = torch.nn.functional.gelu(normed(state, "itm_head.1", hidden, 1e-5))
    image = linear(state, "vision_proj", seen[:, 0])
    text = linear(state, "text_proj", words_read[:, 0])
    cosine = torch.nn.functional.cosine_similarity(image, text).item()
    return linear(state, "itm_head.3", hidden)[0, 1].item(), cosine


def linear(state: dict[str, torch.Tensor], name: str, given: torch.Tensor) -> torch.Tensor:
    return given @ state[f"{name}.weight"].T + state[f"{name}.bias"]


def normed(
    state: dict[str, torch.Tensor], name: str, given: torch.Tensor, eps: float = 1e-12
) -> torch.Tensor:
    centered = given - given.mean(dim=-1, keepdim=True)
    scaled = centered / (centered.pow(2).mean(dim=-1, keepdim=True) + eps).sqrt()
    return scaled * state[f"{name}.weight"] + state[f"{name}.bias"]


def attended(
    state: dict[str, torch.Tensor], stem: str, given: torch.Tensor, seen: torch.Tensor
) -> torch.Tensor:
    query, key, value = (
        linear(state, f"{stem}self.{name}", source)
        for name, source in (("query", given), ("key", seen), ("value", seen))
    )
    heads = [
        torch.softmax(q @ k.transpose(1, 2) / 8, dim=-1) @ v
        for q, k, v in zip(*(one.split(64, dim=-1) for one in (query, key, value)), strict=True)
    ]
    joined = linear(state, f"{stem}output.dense", torch.cat(heads, dim=-1))
    return normed(state, f"{stem}output.LayerNorm", joined + given)


# --- tests ---------------------------------------------------------------------------------------


def test_scores_are_those_of_the_reference(model, folder, tmp_path):
    pictures, captions = pairs(tmp_path)
    expected = [
        reference(picture, caption) for picture, caption in zip(pictures, captions, strict=True)
    ]
    logits, cosines = np.array(expected).T
    assert isinstance(model, PairScorer) and np.ptp(logits) > 1e-3
    assert np.allclose(model.score_pairs(pictures, captions), logits, atol=1e-5)
    as_in_aro = load_model(f"xvlm:{folder}/checkpoint_9.pth?score=aro", LoadOptions(device="cpu"))
    assert np.allclose(as_in_aro.score_pairs(pictures, captions), logits + cosines, atol=1e-5)
    assert as_in_aro.fingerprint != model.fingerprint


def test_a_pretrained_checkpoint_is_the_same_model(model, folder, tmp_path):
    """In pretraining BERT is inside a language model, and there is a head for boxes."""
    state = {n.replace("text_encoder.", "text_encoder.bert."): one for n, one in weights().items()}
    state |= {
        "text_encoder.cls.predictions.bias": torch.zeros(3),
        "bbox_head.0.bias": torch.ones(2),
    }
    torch.save({"model": state}, tmp_path / "pretrained.th")
    (tmp_path / "vocab.txt").write_text((folder / "vocab.txt").read_text())
    again = load_model(f"xvlm:{tmp_path}/pretrained.th", LoadOptions(device="cpu"))
    assert again.fingerprint == model.fingerprint


def test_a_caption_has_40_tokens_at_most(model, tmp_path):
    pictures, _ = pairs(tmp_path)
    ids, mask = model._tokens(["heart " * 60, "heart"])
    assert ids.shape == (2, 40) and mask.sum(dim=1).tolist() == [40, 2]
    long = model.score_pairs(pictures[:1] * 2, ["heart " * 39, "heart " * 60])
    assert long[0] == long[1]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"itm_head.3.weight": None}, "E-MODEL-UNSUITABLE"),
        ({"vision_encoder.norm.bias": None}, "E-WEIGHTS-MISMATCH"),
        ({"text_encoder.encoder.layer.1.output.dense.bias": torch.zeros(3)}, "E-WEIGHTS-MISMATCH"),
        ({"text_proj.bias": torch.full((12,), torch.nan)}, "E-WEIGHTS-NON-FINITE"),
        (
            {"text_encoder.embeddings.word_embeddings.weight": torch.zeros(9, TEXT)},
            "E-TOKENIZER-MISMATCH",
        ),
    ],
)
def test_other_checkpoints_are_refused(folder, tmp_path, change, code):
    state = {**weights(), **change}
    torch.save({n: one for n, one in state.items() if one is not None}, tmp_path / "odd.pth")
    (tmp_path / "vocab.txt").write_text((folder / "vocab.txt").read_text())
    id = f"xvlm:{tmp_path}/odd.pth"
    with raises(code, id) as caught:
        load_model(id, LoadOptions(device="cpu"))
    assert str(caught.value).startswith(f"{id}: ") and is_sentence(caught.value)
