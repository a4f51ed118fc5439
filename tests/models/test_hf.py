"""The hf adapter, on tiny models of transformers' own classes with random weights."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import numpy as np
import pytest
import torch
import transformers as tf
from errors import raises
from hf_models import (
    CAPTIONS,
    CONTEXT,
    DUALS,
    IMAGES,
    OVERLONG,
    clip,
    clip_tokenizer,
    load,
    quiet,
    refusal,
    save,
)
from PIL import Image
from safetensors.torch import load_file, save_file

from counterpoint.models.hf.training import HfStart
from counterpoint.models.registry import load_model
from counterpoint.scoring.kinds import Described, DualEncoder, PairScorer

pytestmark = pytest.mark.slow

WEIGHTS, PIXELS = "model.safetensors", "preprocessor_config.json"
SIGLIPS = ("siglip", "siglip2")


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {name: save(root / name, build) for name, build in DUALS.items()}


@pytest.fixture(scope="module")
def models(folders) -> dict[str, Any]:
    return {name: load("hf", folder) for name, folder in folders.items()}


@torch.inference_mode()
def plain_vectors(folder: Path, images: list[Image.Image], captions: list[str]) -> tuple[Any, Any]:
    """Unit vectors by transformers alone: one image and one caption at a time, nothing padded."""
    with quiet():
        model = tf.AutoModel.from_pretrained(folder).eval()
        tokenizer = tf.AutoTokenizer.from_pretrained(folder, padding_side="right")
        processor = tf.AutoImageProcessor.from_pretrained(folder)
    fixed = {"padding": "max_length", "return_attention_mask": False}
    how = fixed if model.config.model_type in SIGLIPS else {}

    def pair(image: Image.Image, caption: str) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = tokenizer(caption, truncation=True, max_length=CONTEXT, return_tensors="pt", **how)
        pixels = processor(images=image, return_tensors="pt")
        found = model(**tokens, **pixels)
        if model.config.model_type != "flava":
            return found.image_embeds, found.text_embeds
        vectors = (
            model.image_projection(found.image_embeddings[:, 0]),
            model.text_projection(found.text_embeddings[:, 0]),
        )
        return vectors[0] / vectors[0].norm(), vectors[1] / vectors[1].norm()

    seen = [pair(image, captions[0])[0] for image in images]
    read = [pair(images[0], caption)[1] for caption in captions]
    return torch.cat(seen).numpy(), torch.cat(read).numpy()


# --- vectors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DUALS)
def test_vectors_are_those_of_transformers(name, folders, models):
    captions = [*CAPTIONS, OVERLONG]
    images, texts = plain_vectors(folders[name], IMAGES, captions)
    model = models[name]
    seen = model.encode_images([model.preprocess(image) for image in IMAGES])
    read = model.encode_captions(captions)
    assert (seen.dtype, read.dtype) == (np.float32, np.float32)
    assert seen == pytest.approx(images, abs=1e-5)
    assert read == pytest.approx(texts, abs=1e-5)
    # Vectors that are all alike would make the comparison worth nothing.
    assert np.abs(images[0] - images[1]).max() > 1e-2
    assert np.abs(texts[0] - texts[1]).max() > 1e-2


@pytest.mark.parametrize("name", DUALS)
def test_captions_beyond_the_context_are_counted_in_full_and_cut(name, models):
    model = models[name]
    assert model.context_length == CONTEXT
    assert model.count_tokens([OVERLONG, "heart"]).tolist()[0] > CONTEXT
    more = model.encode_captions([OVERLONG, f"{OVERLONG} and a zebra"])
    assert more[0] == pytest.approx(more[1], abs=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", DUALS)
def test_tokens_are_padded_as_transformers_pads_them(name, side, models, monkeypatch):
    opened, captions = models[name].opened, [*CAPTIONS, OVERLONG, ""]
    monkeypatch.setattr(opened.tokenizer, "padding_side", side)
    with quiet():
        theirs = opened.tokenizer(
            captions,
            padding="max_length" if name in SIGLIPS else "longest",
            truncation=True,
            max_length=CONTEXT,
            return_attention_mask=True,
            return_tensors="pt",
        )
    ours = opened.tokens(captions)
    assert set(ours) == {"input_ids"} | (set() if name in SIGLIPS else {"attention_mask"})
    assert all(torch.equal(theirs[field], tokens) for field, tokens in ours.items())
    if name != "align":  # which has no logit scale: it cannot be trained
        padding = (theirs["attention_mask"] == 0) & (name not in SIGLIPS)  # which it is told of
        trained = HfStart(models[name]).tokenizer(captions)
        assert torch.equal(trained, theirs["input_ids"].masked_fill(padding, -1))


def test_weights_stored_in_half_run_in_float32(tmp_path):
    folder = save(tmp_path / "m", lambda: (lambda model, *rest: (model.half(), *rest))(*clip()))
    stored = load_file(folder / WEIGHTS)["visual_projection.weight"]
    assert stored.dtype == torch.float16
    assert load("hf", folder).describe()["dtype"] == "float32"


def test_the_adapter_is_a_dual_encoder_that_describes_itself(folders, models):
    model = models["siglip"]
    assert isinstance(model, DualEncoder) and isinstance(model, Described)
    assert not isinstance(model, PairScorer)
    said = model.describe()
    assert (said["class"], said["tokenizer"]) == ("SiglipModel", "SiglipTokenizer")
    assert (said["device"], said["dtype"], said["precision"]) == ("cpu", "float32", "fp32")
    assert said["context_length"] == CONTEXT
    weights = load_file(folders["siglip"] / WEIGHTS)
    assert said["logit_scale"] == pytest.approx(weights["logit_scale"].item())
    assert said["logit_bias"] == pytest.approx(weights["logit_bias"].item())
    assert said["versions"]["transformers"] == tf.__version__
    assert "SiglipImageProcessor" in said["preprocessing"]
    json.dumps(said)  # it goes into run.json
    assert "logit_bias" not in models["clip"].describe()


# --- fingerprints ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["clip", "siglip", "clip-roberta"])
def test_the_fingerprint_is_of_the_content_and_not_of_the_place(name, folders, models, tmp_path):
    first = models[name].fingerprint
    assert load("hf", folders[name]).fingerprint == first
    copied = shutil.copytree(folders[name], tmp_path / "elsewhere")
    assert load("hf", copied).fingerprint == first


def change_json(name: str, **changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        for key, value in changes.items():
            part, _, inner = key.rpartition("__")
            (content[part] if part else content)[inner] = value
        (folder / name).write_text(json.dumps(content))

    return change


def change_weight(folder: Path) -> None:
    weights = load_file(folder / WEIGHTS)
    weights["text_projection.weight"][0, 0] += 1e-3
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def change_merges(folder: Path) -> None:
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["merges"] = content["model"]["merges"][::-1]
    (folder / "tokenizer.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    "change",
    [
        change_weight,
        change_merges,
        change_json(PIXELS, image_mean=[0.1, 0.2, 0.3]),
        change_json(PIXELS, resample=2),
        change_json("config.json", text_config__hidden_act="gelu"),
        change_json("config.json", text_config__eos_token_id=7),
        change_json("tokenizer_config.json", model_max_length=9),
    ],
    ids=["weight", "merges", "mean", "resample", "activation", "pooling", "context"],
)
def test_the_fingerprint_changes_with_what_outputs_depend_on(change, folders, models, tmp_path):
    before = models["clip"]
    folder = shutil.copytree(folders["clip"], tmp_path / "m")
    change(folder)
    after = load("hf", folder)
    assert everything(after).tobytes() != everything(before).tobytes()
    assert after.fingerprint != before.fingerprint


def everything(model: Any) -> np.ndarray:
    images = [model.preprocess(image) for image in IMAGES]
    return np.concatenate(
        [model.encode_captions([*CAPTIONS, OVERLONG]), model.encode_images(images)]
    )


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize("rest", ["", "nowhere/at/all", "/nowhere", "./nowhere", "clip"])
def test_a_folder_that_is_not_there(rest):
    refusal(f"hf:{rest}", "E-MODEL-MISSING")


def test_a_folder_without_a_configuration(tmp_path):
    refusal(f"hf:{tmp_path}", "E-CONFIG-MISSING")


def test_a_repository_that_cannot_be_had(monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    refusal("hf:nobody/nothing", "E-MODEL-BROKEN", model="hf:nobody/nothing")


@pytest.mark.parametrize(
    ("kind", "hints"),
    [
        ("blip", ["blip-itm:", "blip-itc:"]),
        ("blip-2", ["blip-itm:", "blip-itc:"]),
        ("llava", ["vqa:"]),
        ("siglip_2", ["Did you mean 'siglip2'?"]),
        ("bert", ["align, altclip"]),
        ("of-my-own", ["siglip2"]),
    ],
)
def test_models_of_another_kind_are_sent_where_they_fit(kind, hints, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    message = refusal(f"hf:{tmp_path}", "E-MODEL-UNSUITABLE")
    assert repr(kind) in message
    assert [hint for hint in hints if hint not in message] == []


def test_a_configuration_that_is_no_json(tmp_path):
    (tmp_path / "config.json").write_text("{")
    assert str(tmp_path) in refusal(f"hf:{tmp_path}", "E-MODEL-BROKEN")


@pytest.mark.parametrize("name", ["clip", "siglip", "siglip2", "chinese_clip", "altclip"])
def test_no_tokenizer(name, folders, tmp_path):
    """transformers makes one up: its captions would all be alike."""
    folder = shutil.copytree(folders[name], tmp_path / "m")
    for file in (*folder.glob("*token*"), *folder.glob("*spiece*"), *folder.glob("vocab*")):
        file.unlink()
    code = "E-MODEL-BROKEN" if name in ("siglip", "altclip") else "E-TOKENIZER-MISMATCH"
    refusal(f"hf:{folder}", code)


def test_the_tokenizer_of_another_model(folders, tmp_path):
    folder = shutil.copytree(folders["chinese_clip"], tmp_path / "m")
    with quiet():
        large = clip_tokenizer()
        large.save_pretrained(folder)
    assert f"{large.vocab_size} tokens" in refusal(f"hf:{folder}", "E-TOKENIZER-MISMATCH")


@pytest.mark.parametrize("harm", ["cut", "garbage", "gone"])
def test_broken_weights(harm, folders, tmp_path):
    folder = shutil.copytree(folders["clip"], tmp_path / "m")
    weights = folder / WEIGHTS
    content = weights.read_bytes()
    weights.unlink()
    if harm != "gone":
        weights.write_bytes(content[: len(content) // 2] if harm == "cut" else b"garbage" * 100)
    refusal(f"hf:{folder}", "E-MODEL-BROKEN")


def test_weights_that_lack_a_tower_are_not_made_up(folders, tmp_path):
    folder = shutil.copytree(folders["clip"], tmp_path / "m")
    weights = load_file(folder / WEIGHTS)
    kept = {name: value for name, value in weights.items() if not name.startswith("text_model")}
    save_file(kept, folder / WEIGHTS, metadata={"format": "pt"})
    message = refusal(f"hf:{folder}", "E-WEIGHTS-MISSING")
    assert f"lack {len(weights) - len(kept)} tensors of CLIPModel" in message
    assert "text_model." in message


def test_pickled_weights_are_read_as_weights_only(folders, tmp_path):
    folder = shutil.copytree(folders["clip"], tmp_path / "m")
    weights = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    assert load("hf", folder).fingerprint == load("hf", folders["clip"]).fingerprint

    class Harm:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "harmed",))

    torch.save({**weights, "harm": Harm()}, folder / "pytorch_model.bin")
    refusal(f"hf:{folder}", "E-MODEL-BROKEN")
    assert not (tmp_path / "harmed").exists()


def test_an_image_processor_that_does_not_fit_its_tower(folders, tmp_path):
    folder = shutil.copytree(folders["clip"], tmp_path / "m")
    side = {"height": 48, "width": 48}
    change_json(PIXELS, size=side, crop_size=side)(folder)
    refusal(f"hf:{folder}", "E-MODEL-BROKEN")


def test_nothing_is_printed(folders, capfd):
    model = load("hf", folders["flava"])
    model.encode_captions([*CAPTIONS, OVERLONG])
    model.count_tokens([OVERLONG])
    model.encode_images([model.preprocess(IMAGES[0])])
    assert capfd.readouterr() == ("", "")


def test_without_transformers_the_package_to_install_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    for name in ("loading", "dual", "matching"):
        monkeypatch.delitem(sys.modules, f"counterpoint.models.hf.{name}", raising=False)
    for name in ("dual", "matching"):
        with raises("E-EXTRA-MISSING", "vlm"):
            importlib.import_module(f"counterpoint.models.hf.{name}")


@pytest.mark.parametrize("installed", [True, False])
def test_a_package_that_a_tokenizer_lacks(installed, folders, monkeypatch):
    def fail(*_, **__):
        raise ImportError("it needs the\nwordsmith library")

    monkeypatch.setattr(tf.AutoTokenizer, "from_pretrained", fail)
    monkeypatch.setattr("counterpoint.models.hf.loading.find_spec", lambda _: installed or None)
    code = "E-MODEL-BROKEN" if installed else "E-EXTRA-MISSING"
    message = refusal(f"hf:{folders['clip']}", code)
    assert ("wordsmith" if installed else "counterpoint[vlm]") in message


# --- bytes and halves ----------------------------------------------------------------------------


def test_bytes_become_the_floats_of_the_processor_bit_for_bit(models) -> None:
    """Images travel as bytes where the processor's last steps are known."""
    by_bytes = []
    for name, model in models.items():
        opened = model.opened
        found = opened.stack([opened.preprocess(image) for image in IMAGES])
        theirs = [opened.processor(images=image, return_tensors="pt") for image in IMAGES]
        for key, value in found.items():
            assert torch.equal(value, torch.cat([one[key] for one in theirs])), (name, key)
        by_bytes += [name] if opened.levels is not None else []
    assert {"clip", "siglip"} <= set(by_bytes)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_is_that_of_the_weights(folders, models, precision: str) -> None:
    model = load("hf", folders["clip"], precision)
    assert model.describe()["dtype"] == {"bf16": "bfloat16", "fp16": "float16"}[precision]
    assert model.fingerprint != models["clip"].fingerprint
    found, whole = (one.encode_captions(CAPTIONS) for one in (model, models["clip"]))
    assert 0 < np.abs(found - whole).max() < 0.03
    images = [[one.preprocess(image) for image in IMAGES] for one in (model, models["clip"])]
    found, whole = model.encode_images(images[0]), models["clip"].encode_images(images[1])
    assert 0 < np.abs(found - whole).max() < 0.03


@pytest.mark.parametrize("family", ["hf", "blip-itm", "vqa", "blind:grammar"])
def test_a_file_in_the_place_of_a_folder_is_told(tmp_path, family) -> None:
    (tmp_path / "my.pt").write_bytes(b"weights")
    with raises("E-MODEL-MISSING") as error:
        load_model(f"{family}:{tmp_path / 'my.pt'}")
    assert "my.pt is a file" in str(error.value) and "no such folder" not in str(error.value)
