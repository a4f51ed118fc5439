"""The open_clip adapter, on tiny models of open_clip's own classes with random weights."""

from __future__ import annotations

import json
import pickle
import shutil
import socket
import sys
from copy import deepcopy
from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import counterpoint
from counterpoint.errors import CounterpointError, MissingExtraError, ModelError, NotFoundError
from counterpoint.models import LoadOptions, load_model
from counterpoint.models.devices import pick_device
from counterpoint.models.open_clip import MERGES, OpenClip
from counterpoint.models.open_clip_checks import parse, refuse_wrong_activation
from counterpoint.scoring.kinds import Described, DualEncoder

BASE = Path(counterpoint.__file__).parent / "world" / "checkpoints" / "base"
CONFIG, WEIGHTS = "open_clip_config.json", "open_clip_model.safetensors"
CONTEXT = 24
PREPROCESS = {
    "mean": [0.5, 0.4, 0.3],
    "std": [0.2, 0.25, 0.3],
    "interpolation": "bicubic",
    "resize_mode": "squash",
}
VISION = {"image_size": 32, "layers": 2, "width": 32, "head_width": 16, "patch_size": 16}
TEXT = {"context_length": CONTEXT, "width": 32, "heads": 2, "layers": 2, "vocab_size": 679}
CLIP = {"embed_dim": 16, "vision_cfg": VISION, "text_cfg": TEXT}
CUSTOM = {**CLIP, "custom_text": True}
LAST = {**CUSTOM, "text_cfg": {**TEXT, "pool_type": "last"}}
BOTH_WAYS = {**CUSTOM, "text_cfg": {**TEXT, "no_causal_mask": True}}
COCA = {
    "embed_dim": 32,
    "custom_text": True,
    "vision_cfg": {
        **VISION,
        "attentional_pool": True,
        "attn_pooler_queries": 4,
        "attn_pooler_heads": 2,
        "output_tokens": True,
    },
    "text_cfg": {**TEXT, "embed_cls": True, "output_tokens": True},
    "multimodal_cfg": {
        "context_length": CONTEXT,
        "vocab_size": 679,
        "width": 32,
        "heads": 2,
        "layers": 1,
    },
}
ALL_CLASSES = {
    "clip": CLIP,
    "custom": CUSTOM,
    "coca": COCA,
    "last": LAST,
    "both-ways": BOTH_WAYS,
}
CAPTIONS = [
    "a red circle",
    "the Small green STAR and the striped heart",
    "a dog &amp; a cat",
    "a large ivory star above a small solid heart, to the left of nothing at all",
    "!! a ring !!",
]


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Nothing here may ask for the network, not even what is going to be refused."""

    def refuse(*_):
        raise AssertionError("the network was touched")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


# --- making models -----------------------------------------------------------------------------


def build(model_cfg: dict, seed: int = 0) -> torch.nn.Module:
    """A model with random weights, large enough that every position of the text matters."""
    settings = {key: value for key, value in deepcopy(model_cfg).items() if key != "custom_text"}
    kinds = {True: open_clip.CoCa, False: open_clip.CustomTextCLIP}
    kind = kinds["multimodal_cfg" in model_cfg] if "custom_text" in model_cfg else open_clip.CLIP
    model = kind(**settings)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.2, generator=generator)
    return model


def save_model(folder: Path, model_cfg: dict = CLIP, preprocess: dict = PREPROCESS) -> Path:
    """An open_clip folder of a tiny model, with the world's vocabulary."""
    folder.mkdir(exist_ok=True)
    save_file(
        {name: value.contiguous() for name, value in build(model_cfg).state_dict().items()},
        folder / WEIGHTS,
    )
    config = {"model_cfg": model_cfg, "preprocess_cfg": preprocess}
    (folder / CONFIG).write_text(json.dumps(config))
    shutil.copy(BASE / MERGES, folder)
    return folder


def load(folder: Path, device: str = "cpu") -> OpenClip:
    model = load_model(f"open_clip:local-dir:{folder}", LoadOptions(device))
    assert isinstance(model, OpenClip)
    return model


def tokenizer_of(folder: Path) -> open_clip.SimpleTokenizer:
    return open_clip.SimpleTokenizer(bpe_path=str(folder / MERGES), context_length=CONTEXT)


@torch.inference_mode()
def straight_captions(folder: Path, captions: list[str]) -> np.ndarray:
    """Caption vectors by open_clip alone: one at a time, padded to the whole context."""
    model = open_clip.create_model(f"local-dir:{folder}").eval()
    tokenizer = tokenizer_of(folder)
    rows = [model.encode_text(tokenizer([caption]), normalize=True) for caption in captions]
    return torch.cat(rows).numpy()


@torch.inference_mode()
def straight_images(folder: Path, images: list[Image.Image]) -> np.ndarray:
    model, transform = open_clip.create_model_from_pretrained(f"local-dir:{folder}")
    model.eval()
    rows = [model.encode_image(transform(image)[None], normalize=True) for image in images]
    return torch.cat(rows).numpy()


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def sequence_lengths(model: OpenClip, captions: list[str]) -> list[int]:
    """How many positions the text transformer works on."""
    seen: list[int] = []
    tower = model.model if hasattr(model.model, "transformer") else model.model.text
    handle = tower.transformer.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    model.encode_captions(captions)
    handle.remove()
    return [tokens.shape[1] for tokens in seen]


def refusal(id: str, kind: type[CounterpointError] = ModelError, device: str = "cpu") -> str:
    """The message with which a model is refused: it must be one line that a user can read."""
    with pytest.raises(kind) as caught:
        load_model(id, LoadOptions(device))
    message = str(caught.value)
    assert message and "\n" not in message and len(message) < 600
    assert "Traceback" not in message
    return message


# --- vectors -----------------------------------------------------------------------------------


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
        difference = model._encode_cut(tokens) - straight_captions(folder, CAPTIONS[:1])
    assert np.abs(difference).max() > 1e-3


# --- tokens ------------------------------------------------------------------------------------


@pytest.mark.parametrize("caption", [*CAPTIONS, "", "Ünïcode ★ 123", "  two   blanks "])
def test_count_tokens_is_the_length_before_anything_is_cut(caption, tmp_path):
    folder = save_model(tmp_path / "m")
    tokenizer = tokenizer_of(folder)
    tokens = tokenizer([caption], context_length=400)[0].tolist()
    real = tokens.index(tokenizer.eot_token_id) + 1
    assert load(folder).count_tokens([caption]).tolist() == [real]


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


def test_preprocessing_is_the_models_own(tmp_path):
    model = load(save_model(tmp_path / "m"))
    image = noise(32, 32)
    pixels = np.asarray(image, dtype=np.float32).transpose(2, 0, 1) / 255
    mean, std = (np.reshape(PREPROCESS[key], (3, 1, 1)) for key in ("mean", "std"))
    assert model.preprocess(image).numpy() == pytest.approx((pixels - mean) / std, abs=1e-5)


@pytest.mark.parametrize("size", [32, 48])
def test_images_are_squashed_to_the_towers_size(size, tmp_path):
    folder = save_model(tmp_path / "m", {**CLIP, "vision_cfg": {**VISION, "image_size": size}})
    model = load(folder)
    image = noise(70, 90)
    squashed = image.resize((size, size), Image.Resampling.BICUBIC)
    assert model.preprocess(image).shape == (3, size, size)
    assert model.preprocess(image).numpy() == pytest.approx(
        model.preprocess(squashed).numpy(), abs=1e-5
    )


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


# --- QuickGELU ---------------------------------------------------------------------------------


@pytest.fixture
def unbuilt(monkeypatch):
    """What is refused must be refused before a model of 150 million weights is built."""

    def refuse(*_, **__):
        raise AssertionError("the model was built")

    monkeypatch.setattr(open_clip, "create_model", refuse)


@pytest.fixture
def tiny(monkeypatch):
    """Architectures `tiny` and `tiny-quickgelu`, so that named ones can be loaded for good."""
    config = {**CLIP, "text_cfg": {**TEXT, "vocab_size": 49408}}
    for name, more in (("tiny", {}), ("tiny-quickgelu", {"quick_gelu": True})):
        monkeypatch.setitem(open_clip.factory._MODEL_CONFIGS, name, {**config, **more})
    return config


@pytest.mark.usefixtures("unbuilt")
@pytest.mark.parametrize(
    ("asked", "fix"),
    [
        ("ViT-B-32/openai", "ViT-B-32-quickgelu/openai"),
        ("ViT-L-14/openai", "ViT-L-14-quickgelu/openai"),
        ("RN50/openai", "RN50-quickgelu/openai"),
    ],
)
def test_tags_with_another_activation_are_refused_by_name(asked, fix):
    message = refusal(f"open_clip:{asked}")
    assert "trained with QuickGELU" in message
    assert message.endswith(f"use open_clip:{fix}.")
    refuse_wrong_activation(parse(fix))


def test_every_tag_of_open_clip_is_accepted_or_its_named_fix_is():
    tags = [f"{name}/{tag}" for name, tag in open_clip.list_pretrained()]
    fixes = {tag: fix for tag in tags if (fix := named_fix(tag))}
    assert "ViT-B-32/openai" in fixes
    # A fix that is refused in its turn leaves the user no way to load the model.
    assert {tag: fix for tag, fix in fixes.items() if named_fix(fix)} == {}


def named_fix(id: str) -> str | None:
    try:
        refuse_wrong_activation(parse(id))
    except ModelError as error:
        return str(error).rpartition("use open_clip:")[2].removesuffix(".")
    return None


def transformers_config(text: str, vision: str) -> str:
    return json.dumps(
        {"text_config": {"hidden_act": text}, "vision_config": {"hidden_act": vision}}
    )


@pytest.mark.parametrize(
    ("built", "trained"),
    [(False, "quick_gelu"), (True, "gelu")],
    ids=["wants-quick", "wants-plain"],
)
def test_a_folder_whose_two_configs_disagree_is_refused_and_the_fix_works(built, trained, tmp_path):
    folder = save_model(tmp_path / "m", {**CLIP, "quick_gelu": built})
    (folder / "config.json").write_text(transformers_config(trained, trained))
    message = refusal(f"open_clip:local-dir:{folder}")
    wanted = not built
    assert f'set "quick_gelu": {json.dumps(wanted)} in its model_cfg' in message
    config = json.loads((folder / CONFIG).read_text())
    config["model_cfg"]["quick_gelu"] = wanted
    (folder / CONFIG).write_text(json.dumps(config))
    assert ("QuickGELU" in repr(load(folder).model)) is wanted


def test_a_folder_whose_two_configs_agree_is_loaded(tmp_path):
    folder = save_model(tmp_path / "m")
    (folder / "config.json").write_text(transformers_config("gelu", "gelu"))
    assert load(folder).fingerprint


@pytest.mark.usefixtures("unbuilt")
@pytest.mark.parametrize(
    ("metadata", "architecture", "fix"),
    [
        ({"quick_gelu": "true"}, "ViT-B-32", "ViT-B-32-quickgelu"),
        ({"quick_gelu": "false"}, "ViT-B-32-quickgelu", "ViT-B-32"),
        ({"architecture": "ViT-B-32-quickgelu"}, "ViT-B-32", "ViT-B-32-quickgelu"),
    ],
)
def test_a_safetensors_header_that_says_otherwise_is_refused(metadata, architecture, fix, tmp_path):
    path = tmp_path / "w.safetensors"
    save_file({"x": torch.zeros(1)}, path, metadata=metadata)
    message = refusal(f"open_clip:{architecture}/{path}")
    assert message.endswith(f"use open_clip:{fix}/{path}.")


@pytest.mark.usefixtures("unbuilt")
def test_a_training_checkpoint_that_names_quickgelu_is_refused(tmp_path):
    path = tmp_path / "epoch_5.pt"
    name = "2024_01_01-model_ViT-B-32-quickgelu-lr_1e-05-b_256"
    torch.save({"epoch": 5, "name": name, "state_dict": {"x": torch.zeros(1)}}, path)
    assert f"use open_clip:ViT-B-32-quickgelu/{path}." in refusal(f"open_clip:ViT-B-32/{path}")


@pytest.mark.usefixtures("unbuilt")
def test_a_torchscript_archive_is_taken_for_openais_own(tmp_path):
    path = tmp_path / "ViT-B-32.pt"
    torch.jit.script(torch.nn.Linear(1, 1)).save(str(path))
    assert "use open_clip:ViT-B-32-quickgelu/" in refusal(f"open_clip:ViT-B-32/{path}")


def save_weights(path: Path, model_cfg: dict) -> Path:
    torch.save({"state_dict": build(model_cfg).state_dict()}, path)
    return path


def test_a_file_that_does_not_say_its_activation_is_loaded_with_a_note(tiny, tmp_path):
    path = save_weights(tmp_path / "weights.pt", tiny)
    [note] = load_model(f"open_clip:tiny/{path}", LoadOptions("cpu")).describe()["notes"]
    assert "weights.pt does not say which activation" in note
    assert "tiny computes GELU" in note
    [note] = load_model(f"open_clip:tiny-quickgelu/{path}", LoadOptions("cpu")).describe()["notes"]
    assert "tiny-quickgelu computes QuickGELU" in note


def test_a_file_that_says_the_right_activation_is_loaded_without_a_note(tiny, tmp_path):
    path = tmp_path / "w.safetensors"
    save_file(build(tiny).state_dict(), path, metadata={"quick_gelu": "false"})
    assert load_model(f"open_clip:tiny/{path}", LoadOptions("cpu")).describe()["notes"] == []


# --- what cannot be loaded ---------------------------------------------------------------------


class Bomb:
    """Unpickling it creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def plant(path: Path, trace: Path, how: str) -> None:
    if how == "pickle":
        path.write_bytes(pickle.dumps({"state_dict": Bomb(trace)}))
        pickle.loads(path.read_bytes())["state_dict"].close()  # it does go off
        trace.unlink()
    else:
        torch.save({"state_dict": Bomb(trace)}, path)


@pytest.mark.parametrize("how", ["pickle", "archive"])
@pytest.mark.usefixtures("tiny")
def test_weights_that_would_run_code_are_refused_and_run_none(how, tmp_path):
    trace, path = tmp_path / "trace", tmp_path / "bomb.pt"
    plant(path, trace, how)
    assert "bomb.pt" in refusal(f"open_clip:tiny/{path}")
    folder = save_model(tmp_path / "m")
    (folder / WEIGHTS).unlink()
    path.rename(folder / "open_clip_pytorch_model.bin")
    refusal(f"open_clip:local-dir:{folder}")
    assert not trace.exists()


def test_a_missing_weights_file_is_named():
    message = refusal("open_clip:ViT-B-32/nowhere/weights.pt", NotFoundError)
    assert "'nowhere/weights.pt'" in message
    assert "ViT-B-32" in message


def test_a_folder_without_config_is_named(tmp_path):
    assert CONFIG in refusal(f"open_clip:local-dir:{tmp_path}")
    assert "nowhere" in refusal(f"open_clip:local-dir:{tmp_path / 'nowhere'}")


def test_a_folder_without_weights_is_refused(tmp_path):
    folder = save_model(tmp_path / "m")
    (folder / WEIGHTS).unlink()
    assert "weights" in refusal(f"open_clip:local-dir:{folder}")


@pytest.mark.parametrize(
    "text",
    [
        "{ not json",
        "[]",
        "{}",
        '{"model_cfg": null}',
        '{"model_cfg": []}',
        '{"model_cfg": {"embed_dim": 16}}',
    ],
)
def test_a_broken_config_is_refused(text, tmp_path):
    folder = save_model(tmp_path / "m")
    (folder / CONFIG).write_text(text)
    assert str(folder) in refusal(f"open_clip:local-dir:{folder}")


@pytest.mark.parametrize("text", ["{ not json", "[]", '{"text_config": null}'])
def test_a_broken_transformers_config_is_refused_or_ignored_but_no_crash(text, tmp_path):
    folder = save_model(tmp_path / "m")
    (folder / "config.json").write_text(text)
    try:
        load(folder)
    except ModelError as error:
        assert "config.json" in str(error)


def test_truncated_safetensors_are_refused(tiny, tmp_path):
    folder = save_model(tmp_path / "m")
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[: len(data) // 2])
    refusal(f"open_clip:local-dir:{folder}")
    path = tmp_path / "cut.safetensors"
    save_file(build(tiny).state_dict(), path)
    path.write_bytes(path.read_bytes()[:5000])
    assert "cut.safetensors" in refusal(f"open_clip:tiny/{path}")


def test_weights_of_another_architecture_are_refused(tmp_path):
    folder = save_model(tmp_path / "m")
    other = save_model(tmp_path / "other", {**CLIP, "vision_cfg": {**VISION, "width": 48}})
    shutil.copy(other / WEIGHTS, folder)
    assert "size mismatch" in refusal(f"open_clip:local-dir:{folder}")
    weights = load_file(folder / WEIGHTS)
    del weights["visual.proj"]
    save_file(weights, folder / WEIGHTS)
    refusal(f"open_clip:local-dir:{folder}")


def test_a_tokenizer_with_more_tokens_than_the_tower_is_refused(tmp_path):
    folder = save_model(tmp_path / "m")
    (folder / MERGES).unlink()
    message = refusal(f"open_clip:local-dir:{folder}")
    assert "49408" in message and "679" in message and MERGES in message


def test_unknown_names_are_answered_with_near_ones():
    near = refusal("open_clip:ViT-B-23-quickgelu/openai", NotFoundError)
    assert "Did you mean 'ViT-B-32-quickgelu'?" in near
    assert "Did you mean 'openai'?" in refusal("open_clip:ViT-B-32/opneai", NotFoundError)
    assert "laion2b" in refusal("open_clip:ViT-B-32", NotFoundError)  # which tags there are
    assert "Did you mean 'base'?" in refusal("world:bse", NotFoundError)
    assert "Did you mean 'open_clip'?" in refusal("openclip:ViT-B-32/openai", NotFoundError)


def test_cuda_without_a_gpu_is_refused_in_a_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    message = refusal(f"open_clip:local-dir:{save_model(tmp_path / 'm')}", device="cuda")
    assert "--device cpu" in message
    assert pick_device("auto") == "cpu"


@pytest.fixture
def rounding():
    """torch's TF32 switches, which are global: on here, and afterwards as they were."""
    switches = (torch.backends.cudnn, torch.backends.cuda.matmul)
    before = [switch.allow_tf32 for switch in switches]
    for switch in switches:
        switch.allow_tf32 = True
    yield switches
    for switch, value in zip(switches, before, strict=True):
        switch.allow_tf32 = value


def test_auto_takes_the_gpu_that_there_is_and_makes_float32_mean_it(monkeypatch, rounding):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert pick_device("cpu") == "cpu"
    assert all(switch.allow_tf32 for switch in rounding)
    assert pick_device("auto") == "cuda"
    assert not any(switch.allow_tf32 for switch in rounding)


def test_a_missing_package_names_the_extra(tmp_path, monkeypatch):
    """open_clip's models with a tokenizer of transformers, where that is not installed."""
    text = {**TEXT, "hf_tokenizer_name": "own"}
    folder = save_model(tmp_path / "m", {**CUSTOM, "text_cfg": text})
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'counterpoint\[vlm\]'"):
        load_model(f"open_clip:local-dir:{folder}")
