"""`checkpoint:PATH@ARCH`: the same tiny weights, saved in every way people save them."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch
from errors import raises
from models_for_tests import is_sentence
from open_clip_models import (
    BASE,
    CAPTIONS,
    CLIP,
    CUSTOM,
    TEXT,
    VISION,
    build,
    load as load_folder,
    noise,
    save_model,
    tokenizer_of,
)
from safetensors.torch import save_file

from counterpoint._util.errors import NotFoundError
from counterpoint.models.openclip.adapter import MERGES, OpenClip
from counterpoint.models.openclip.checkpoints import load as load_checkpoint
from counterpoint.models.registry import LoadOptions

RANK = 2


TOKENIZER = tokenizer_of(BASE)  # of 679 tokens: CLIP's own would take most of the time
_GET_TOKENIZER = open_clip.get_tokenizer


@pytest.fixture(autouse=True)
def config(monkeypatch) -> dict:
    """Architectures `tiny` and `tiny-quickgelu`."""
    for name, more in (("tiny", {}), ("tiny-quickgelu", {"quick_gelu": True})):
        monkeypatch.setitem(open_clip.factory._MODEL_CONFIGS, name, {**CLIP, **more})

    def get_tokenizer(name: str, **settings: str):
        return _GET_TOKENIZER(name, **settings) if ":" in name else TOKENIZER

    monkeypatch.setattr(open_clip, "get_tokenizer", get_tokenizer)
    return CLIP


def load(path: Path, name: str = "tiny") -> OpenClip:
    return load_checkpoint(f"{path}@{name}", LoadOptions("cpu"))


def refusal(rest: str, code: str) -> str:
    with raises(code) as caught:
        load_checkpoint(rest, LoadOptions("cpu"))
    message = str(caught.value)
    assert is_sentence(message) or "Did you mean" in message or "Known:" in message
    assert rest in message or isinstance(caught.value, NotFoundError)
    assert len(message) < 700
    return message


def vectors(model: OpenClip) -> np.ndarray:
    pixels = [model.preprocess(noise(40, 30, seed)) for seed in range(2)]
    return np.concatenate([model.encode_captions(CAPTIONS), model.encode_images(pixels)])


@torch.inference_mode()
def straight(model: torch.nn.Module) -> np.ndarray:
    """The same by open_clip's class alone, one at a time, padded to the whole context."""
    model.eval()
    transform = open_clip.image_transform(32, is_train=False)
    rows = [model.encode_text(TOKENIZER([caption]), normalize=True) for caption in CAPTIONS]
    rows += [
        model.encode_image(transform(noise(40, 30, seed))[None], normalize=True)
        for seed in range(2)
    ]
    return torch.cat(rows).numpy()


def prefixed(state: dict, prefix: str) -> dict:
    return {prefix + name: value for name, value in state.items()}


def split_lora(state: dict, peft: bool = False, alpha: float = 1) -> dict:
    """Weights minus an update, and the update's factors: as TSVLC and DAC save them, or peft."""
    generator = torch.Generator().manual_seed(7)
    found = dict(state)
    for name, weight in state.items():
        kernel = weight.shape[-1] if weight.ndim == 4 and not peft else 1
        if not name.endswith(("conv1.weight", "in_proj_weight", ".mlp.c_fc.weight")):
            continue
        rank, inner = RANK * kernel, weight[0].numel() // kernel
        a = 0.3 * torch.randn(rank, inner, generator=generator)
        b = 0.3 * torch.randn(len(weight) * kernel, rank, generator=generator)
        found[name] = weight - (b @ a).view(weight.shape) * alpha / RANK
        stem = name.removesuffix(".weight")
        if peft:
            found[f"{stem}.base_layer.weight"] = found.pop(name)
            if weight.ndim == 4:
                a, b = a.view(rank, *weight.shape[1:]), b[:, :, None, None]
            found[f"{stem}.lora_A.default.weight"] = a
            found[f"{stem}.lora_B.default.weight"] = b
        else:
            joint = "_" if name.endswith("in_proj_weight") else "."
            found[f"{stem}{joint}lora_A"], found[f"{stem}{joint}lora_B"] = a, b
    return found


def split_peft(state: dict) -> dict:
    linear = {name: value for name, value in state.items() if "in_proj" not in name}
    return {**state, **split_lora(linear, peft=True)}


def without_merged(state: dict) -> dict:
    """peft renames the weight that it wraps."""
    wrapped = {n.replace(".base_layer.", ".") for n in state if ".base_layer." in n}
    return {n: v for n, v in state.items() if n not in wrapped}


def to_transformers(state: dict) -> dict:
    """The reverse of the conversion, written by hand from transformers' names."""
    found = {}
    names = {"ln_1": "layer_norm1", "ln_2": "layer_norm2", "attn": "self_attn"}
    names |= {"c_fc": "fc1", "c_proj": "fc2"}
    for name, value in state.items():
        tower = "vision_model" if name.startswith("visual.") else "text_model"
        words = name.removeprefix("visual.").split(".")
        if words[:2] == ["transformer", "resblocks"]:
            words = ["encoder", "layers", *(names.get(word, word) for word in words[2:])]
            if words[-1].startswith("in_proj_"):
                for part, piece in zip("qkv", value.chunk(3), strict=True):
                    kind = words[-1].removeprefix("in_proj_")
                    found[".".join([tower, *words[:-1], f"{part}_proj", kind])] = piece.clone()
                continue
            found[".".join([tower, *words])] = value
        elif name in ("visual.proj", "text_projection"):
            ours = "visual_projection" if name == "visual.proj" else "text_projection"
            found[f"{ours}.weight"] = value.T.contiguous()
        else:
            theirs = {
                "token_embedding.weight": "embeddings.token_embedding.weight",
                "positional_embedding": "embeddings.position_embedding.weight",
                "class_embedding": "embeddings.class_embedding",
                "conv1.weight": "embeddings.patch_embedding.weight",
                "ln_pre": "pre_layrnorm",
                "ln_post": "post_layernorm",
                "ln_final": "final_layer_norm",
            }
            short = ".".join(words)
            place = theirs.get(short) or f"{theirs.get(words[0], '')}.{words[-1]}"
            found[name if name == "logit_scale" else f"{tower}.{place}"] = value
    return found


TROHN = {
    "epoch": 3,
    "loss": np.float64(0.1),
    "best": np.float32(1),
    "step": np.int64(7),
    "optimizer_state_dict": {"state": {0: {"m": torch.ones(2)}}},
}
FORMS = {
    "bare": lambda s: s,
    "open_clip trainer": lambda s: {"epoch": 5, "name": "x", "state_dict": prefixed(s, "module.")},
    "trohn": lambda s: {**TROHN, "model_state_dict": s},
    "lightning": lambda s: {"state_dict": prefixed(s, "model.clip."), "hyper_parameters": {"a": 1}},
    "compiled": lambda s: {"model": prefixed(s, "_orig_mod."), "args": Namespace(lr=1e-6)},
    "compiled in parallel": lambda s: prefixed(s, "module._orig_mod."),
    "mean": lambda s: {"ema": s},
    "half": lambda s: {n: v.half().float() for n, v in s.items()},
    "teacher": lambda s: {**prefixed(s, "model."), **prefixed(s, "teacher.")},
    "text tower inside": lambda s: {
        n if n.startswith(("visual.", "logit")) else f"text.{n}": v for n, v in s.items()
    },
    "no scale": lambda s: {n: v for n, v in s.items() if n != "logit_scale"},
    "scale with a dimension": lambda s: {**s, "logit_scale": s["logit_scale"].reshape(1)},
    "openai's own names": lambda s: {**s, "input_resolution": 224, "context_length": 77},
    "transformers": to_transformers,
    "transformers in a wrapper": lambda s: {"model": prefixed(to_transformers(s), "module.")},
    "loralib": lambda s: {"epoch": 1, "state_dict": prefixed(split_lora(s), "module.")},
    "lora with alpha": lambda s: {"state_dict": split_lora(s, alpha=16), "lora_alpha": 16},
    "peft": lambda s: {
        "model": prefixed(without_merged(split_peft(s)), "base_model.model."),
        "config": {"lora_alpha": 1},
    },
}


# --- round trips -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_every_way_to_save_gives_the_vectors_of_the_plain_model(form, config, tmp_path):
    plain = build(config)
    state = plain.state_dict()
    if form == "half":
        state = FORMS["half"](state)
        plain.load_state_dict(state)
        torch.save({n: v.half() for n, v in state.items()}, tmp_path / "w.pt")
    else:
        torch.save(FORMS[form](state), tmp_path / "w.pt")
    found = vectors(load(tmp_path / "w.pt"))
    assert found == pytest.approx(straight(plain), abs=1e-5)
    assert np.abs(found[0] - found[1]).max() > 1e-2  # vectors that differ from each other


def test_an_architecture_with_its_text_tower_inside_takes_plain_weights(monkeypatch, tmp_path):
    monkeypatch.setitem(open_clip.factory._MODEL_CONFIGS, "custom", CUSTOM)
    torch.save(build(CLIP).state_dict(), tmp_path / "w.pt")
    found = vectors(load(tmp_path / "w.pt", "custom"))
    assert found == pytest.approx(straight(build(CLIP)), abs=1e-5)


def test_safetensors_and_the_format_before_torch_1_6(config, tmp_path):
    plain = build(config)
    save_file(prefixed(plain.state_dict(), "module."), tmp_path / "w.safetensors")
    torch.save(plain.state_dict(), tmp_path / "w.pth", _use_new_zipfile_serialization=False)
    for name in ("w.safetensors", "w.pth"):
        assert vectors(load(tmp_path / name)) == pytest.approx(straight(plain), abs=1e-5)


def test_a_transformers_model_scores_as_transformers_does(config, tmp_path):
    """The real class with its own random weights, saved by itself."""
    transformers = pytest.importorskip("transformers")
    text = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2}
    text |= {"intermediate_size": 128, "max_position_embeddings": 24, "vocab_size": 679}
    text |= {"bos_token_id": 677, "eos_token_id": 678}
    vision = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2}
    vision |= {"intermediate_size": 128, "image_size": 32, "patch_size": 16, "projection_dim": 16}
    theirs = transformers.CLIPModel(
        transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=16)
    ).eval()
    with torch.no_grad():
        for number, weight in enumerate(theirs.parameters()):
            weight.normal_(std=0.2, generator=torch.Generator().manual_seed(number))
    theirs.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    model = load(path, "tiny-quickgelu")
    assert model.describe()["notes"] == []  # config.json says which activation it was
    assert "use checkpoint:" in refusal(f"{path}@tiny", "E-ACTIVATION-MISMATCH")
    tokens = TOKENIZER(CAPTIONS)
    pixels = torch.stack([model.transform(noise(40, 30, seed)) for seed in range(2)])
    with torch.inference_mode():
        caption_rows = theirs.get_text_features(input_ids=tokens)
        image_rows = theirs.get_image_features(pixel_values=pixels)
    rows = [getattr(rows, "pooler_output", rows) for rows in (caption_rows, image_rows)]
    expected = torch.nn.functional.normalize(torch.cat(rows), dim=-1).numpy()
    assert vectors(model) == pytest.approx(expected, abs=1e-5)


@pytest.mark.slow
def test_the_fingerprint_is_that_of_the_weights_and_not_of_the_wrapping(config, tmp_path):
    state = build(config).state_dict()
    torch.save(state, tmp_path / "a.pt")
    torch.save(FORMS["open_clip trainer"](state), tmp_path / "b.pt")
    torch.save(build(config, seed=1).state_dict(), tmp_path / "c.pt")
    one, two, three = (load(tmp_path / f"{name}.pt").fingerprint for name in "abc")
    assert one == two != three
    assert load(tmp_path / "a.pt", "tiny-quickgelu").fingerprint != one


@pytest.mark.slow
def test_a_folder_may_give_the_architecture(tmp_path):
    """A finetuned state dict of a model with its own vocabulary, as `world:base` is one."""
    folder = save_model(tmp_path / "m")
    torch.save({"state_dict": build(CLIP, seed=3).state_dict()}, tmp_path / "w.pt")
    model = load(tmp_path / "w.pt", f"local-dir:{folder}")
    plain = load_folder(folder)
    plain.model.load_state_dict(build(CLIP, seed=3).state_dict())
    assert vectors(model) == pytest.approx(vectors(plain), abs=1e-6)
    assert model.describe()["preprocessing"] == plain.describe()["preprocessing"]
    assert model.describe()["notes"] == []
    (folder / MERGES).unlink()
    assert MERGES in refusal(f"{tmp_path / 'w.pt'}@local-dir:{folder}", "E-TOKENIZER-MISMATCH")
    with raises("E-CONFIG-MISSING"):
        load(tmp_path / "w.pt", f"local-dir:{BASE.parent}")


def test_preprocessing_is_what_the_architectures_tags_agree_on(monkeypatch, config, tmp_path):
    torch.save(build(config).state_dict(), tmp_path / "w.pt")
    default = load(tmp_path / "w.pt").describe()["preprocessing"]
    assert "0.48145466" in default
    tags = {"one": {"mean": (0.5,) * 3, "std": (0.5,) * 3}, "two": {"mean": (0.5,) * 3}}
    for chosen, expected in ((["one"], True), (["one", "two"], False)):
        monkeypatch.setitem(
            open_clip.pretrained._PRETRAINED, "tiny", {tag: tags[tag] for tag in chosen}
        )
        found = load(tmp_path / "w.pt").describe()["preprocessing"]
        assert ("mean=(0.5, 0.5, 0.5)" in found) is expected
        assert (found == default) is not expected


# --- notes -------------------------------------------------------------------------------------


def test_notes_say_what_was_merged_left_and_not_known(config, tmp_path):
    state = {**split_lora(build(config).state_dict()), "logit_bias": torch.ones(1)}
    state["text_model.embeddings.position_ids"] = torch.arange(3)
    torch.save({"epoch": 1, "optimizer": {}, "state_dict": state}, tmp_path / "w.pt")
    lora, beside, activation, extra = load(tmp_path / "w.pt").describe()["notes"]
    assert lora == (
        "9 LoRA updates merged: alpha 1 (of the library, for the file records none), rank 2."
    )
    assert beside == "not used of w.pt: epoch, optimizer."
    assert "does not say which activation" in activation and "tiny computes GELU" in activation
    assert extra == "not used of the weights: logit_bias, text_model.embeddings.position_ids."


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "asked", "fix"),
    [
        ({"quick_gelu": "true"}, "tiny", "tiny-quickgelu"),
        ({"quick_gelu": "false"}, "tiny-quickgelu", "tiny"),
    ],
)
def test_the_wrong_activation_is_refused_and_the_fix_works(metadata, asked, fix, config, tmp_path):
    path = tmp_path / "w.safetensors"
    save_file(build(config).state_dict(), path, metadata=metadata)
    assert refusal(f"{path}@{asked}", "E-ACTIVATION-MISMATCH").endswith(
        f"use checkpoint:{path}@{fix}."
    )
    assert load(path, fix).describe()["notes"] == []


def test_missing_weights_are_counted_and_named(config, tmp_path):
    state = build(config).state_dict()
    left = {n: v for n, v in state.items() if not n.startswith("transformer.resblocks.1.mlp")}
    torch.save(left, tmp_path / "w.pt")
    message = refusal(f"{tmp_path / 'w.pt'}@tiny", "E-WEIGHTS-MISSING")
    assert "transformer.resblocks.1.mlp.c_fc.weight" in message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"vision_cfg": {**VISION, "patch_size": 8}}, "another shape"),
        ({"vision_cfg": {**VISION, "layers": 3}}, "no place for 12"),  # more layers than asked
        ({"text_cfg": {**TEXT, "width": 48}}, "another shape"),
        ({"embed_dim": 8}, "another shape"),
    ],
)
def test_weights_of_another_architecture_are_refused_with_the_one_that_fits(
    change, why, config, tmp_path, monkeypatch
):
    monkeypatch.setitem(open_clip.factory._MODEL_CONFIGS, "other", {**config, **change})
    torch.save(build({**config, **change}).state_dict(), tmp_path / "w.pt")
    message = refusal(f"{tmp_path / 'w.pt'}@tiny", "E-WEIGHTS-MISMATCH")
    assert why in message
    assert message.endswith("its shapes are those of other.")
    assert load(tmp_path / "w.pt", "other").fingerprint


def test_a_resnets_architecture_is_recognised(config, tmp_path, monkeypatch):
    vision = {"image_size": 32, "layers": [1, 1, 2, 1], "width": 8, "head_width": 8}
    resnet = {**config, "vision_cfg": vision}
    monkeypatch.setitem(open_clip.factory._MODEL_CONFIGS, "resnet", resnet)
    state = build(resnet).state_dict()
    torch.save({n: v for n, v in state.items() if "num_batches" not in n}, tmp_path / "w.pt")
    assert refusal(f"{tmp_path / 'w.pt'}@tiny", "E-WEIGHTS-MISSING").endswith(
        "its shapes are those of resnet."
    )


def test_broken_weights_are_refused(config, tmp_path):
    state = build(config).state_dict()
    state["visual.proj"][0, 0] = float("nan")
    torch.save(state, tmp_path / "w.pt")
    assert "NaN" in refusal(f"{tmp_path / 'w.pt'}@tiny", "E-WEIGHTS-NON-FINITE")


def test_adapters_alone_are_refused(config, tmp_path):
    state = split_lora(build(config).state_dict())
    torch.save({n: v for n, v in state.items() if "lora_" in n}, tmp_path / "w.pt")
    assert "merge them into the base model" in refusal(
        f"{tmp_path / 'w.pt'}@tiny", "E-LORA-INVALID"
    )


class Bomb:
    """Unpickling it creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_a_checkpoint_that_would_run_code_is_refused_and_runs_none(config, tmp_path):
    torch.save(
        {"state_dict": build(config).state_dict(), "args": Bomb(tmp_path / "trace")},
        tmp_path / "w.pt",
    )
    message = refusal(f"{tmp_path / 'w.pt'}@tiny", "E-CODE-REFUSED")
    assert "would run code" in message and "open" in message
    torch.save(torch.nn.Linear(1, 1), tmp_path / "whole.pt")  # a pickled module
    refusal(f"{tmp_path / 'whole.pt'}@tiny", "E-CODE-REFUSED")
    assert not (tmp_path / "trace").exists()


def test_a_torchscript_archive_is_refused(tmp_path):
    torch.jit.script(torch.nn.Linear(1, 1)).save(str(tmp_path / "w.pt"))
    assert "/openai" in refusal(f"{tmp_path / 'w.pt'}@tiny", "E-CODE-REFUSED")


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"\x80\x02", b"PK\x03\x04" * 20])
def test_rubbish_is_refused(suffix, content, tmp_path):
    path = tmp_path / f"w{suffix}"
    path.write_bytes(content)
    refusal(f"{path}@tiny", "E-WEIGHTS-BROKEN")


def test_ids_that_name_nothing_are_answered(config, tmp_path):
    torch.save(build(config).state_dict(), tmp_path / "w.pt")
    refusal(f"{tmp_path / 'nowhere.pt'}@tiny", "E-MODEL-MISSING")
    assert "w.pt@ViT-B-32-quickgelu" in refusal(f"{tmp_path / 'w.pt'}", "E-MODEL-ID-INVALID")
    refusal("", "E-MODEL-ID-INVALID")
    refusal(f"{tmp_path}@tiny", "E-MODEL-ID-INVALID")
    near = refusal(f"{tmp_path / 'w.pt'}@ViT-B-23-quickgelu", "E-ARCHITECTURE-UNKNOWN")
    assert "Did you mean 'ViT-B-32-quickgelu'?" in near


def test_towers_of_transformers_name_the_extra(config, tmp_path, monkeypatch):
    torch.save(build(config).state_dict(), tmp_path / "w.pt")

    def refuse(*_, **__):
        raise ImportError

    monkeypatch.setattr(open_clip, "create_model", refuse)
    with raises("E-EXTRA-MISSING", "vlm"):
        load(tmp_path / "w.pt")
