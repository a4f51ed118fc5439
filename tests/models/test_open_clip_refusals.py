"""What the open_clip adapter refuses: the wrong activation, and what cannot be loaded."""

from __future__ import annotations

import json
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import open_clip
import pytest
import torch
from errors import raises
from open_clip_models import (
    CLIP,
    CONFIG,
    CUSTOM,
    TEXT,
    VISION,
    WEIGHTS,
    build,
    load,
    refusal,
    save_model,
)
from safetensors.torch import load_file, save_file

from counterpoint._util.errors import ModelError
from counterpoint.models.openclip import ids
from counterpoint.models.openclip.adapter import MERGES
from counterpoint.models.openclip.ids import parse, refuse_wrong_activation
from counterpoint.models.registry import LoadOptions, check_model, load_model, world_folder
from counterpoint.models.torch_models import Runtime

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
    message = refusal(f"open_clip:{asked}", "E-ACTIVATION-MISMATCH")
    assert message.endswith(f"use open_clip:{fix}.")
    refuse_wrong_activation(parse(fix))


def test_every_tag_of_open_clip_is_accepted_or_its_named_fix_is():
    tags = [f"{name}/{tag}" for name, tag in open_clip.list_pretrained()]
    fixes = {tag: fix for tag in tags if (fix := named_fix(tag))}
    assert "ViT-B-32/openai" in fixes
    # A fix that is refused in its turn leaves the user no way to load the model.
    assert {tag: fix for tag, fix in fixes.items() if named_fix(fix)} == {}


def test_the_models_that_the_docs_name_exist():
    """Such as the 17 of SugarCrepe's Table 8."""
    pages = (Path(__file__).parents[2] / "docs").rglob("*.md")
    found = {
        id
        for page in pages
        for id in re.findall(r"open_clip:([\w-]+/[\w-]+)", page.read_text(encoding="utf-8"))
    }
    tags = {f"{name}/{tag}" for name, tag in open_clip.list_pretrained()}
    assert len(found & tags) > 17
    assert found - tags - {"NAME/TAG", "NAME/FILE"} == set()
    assert {id: fix for id in found & tags if (fix := named_fix(id))} == {}


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
    message = refusal(f"open_clip:local-dir:{folder}", "E-ACTIVATION-MISMATCH")
    wanted = not built
    assert f'set "quick_gelu": {json.dumps(wanted)} in its model_cfg' in message
    config = json.loads((folder / CONFIG).read_text())
    config["model_cfg"]["quick_gelu"] = wanted
    (folder / CONFIG).write_text(json.dumps(config))
    assert ("QuickGELU" in repr(load(folder).model)) is wanted


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
    message = refusal(f"open_clip:{architecture}/{path}", "E-ACTIVATION-MISMATCH")
    assert message.endswith(f"use open_clip:{fix}/{path}.")


@pytest.mark.usefixtures("unbuilt")
def test_a_training_checkpoint_that_names_quickgelu_is_refused(tmp_path):
    path = tmp_path / "epoch_5.pt"
    name = "2024_01_01-model_ViT-B-32-quickgelu-lr_1e-05-b_256"
    torch.save({"epoch": 5, "name": name, "state_dict": {"x": torch.zeros(1)}}, path)
    assert f"use open_clip:ViT-B-32-quickgelu/{path}." in refusal(
        f"open_clip:ViT-B-32/{path}", "E-ACTIVATION-MISMATCH"
    )


@pytest.mark.usefixtures("unbuilt")
def test_a_torchscript_archive_is_taken_for_openais_own(tmp_path):
    path = tmp_path / "ViT-B-32.pt"
    torch.jit.script(torch.nn.Linear(1, 1)).save(str(path))
    assert "use open_clip:ViT-B-32-quickgelu/" in refusal(
        f"open_clip:ViT-B-32/{path}", "E-ACTIVATION-MISMATCH"
    )


def save_weights(path: Path, model_cfg: dict) -> Path:
    torch.save({"state_dict": build(model_cfg).state_dict()}, path)
    return path


@pytest.mark.slow
def test_a_file_that_does_not_say_its_activation_is_loaded_with_a_note(tiny, tmp_path):
    path = save_weights(tmp_path / "weights.pt", tiny)
    [note] = load_model(f"open_clip:tiny/{path}", LoadOptions("cpu")).describe()["notes"]
    assert "weights.pt does not say which activation" in note
    assert "tiny computes GELU" in note
    [note] = load_model(f"open_clip:tiny-quickgelu/{path}", LoadOptions("cpu")).describe()["notes"]
    assert "tiny-quickgelu computes QuickGELU" in note


@pytest.mark.slow
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
    refusal(f"open_clip:tiny/{path}", "E-MODEL-BROKEN")
    folder = save_model(tmp_path / "m")
    (folder / WEIGHTS).unlink()
    path.rename(folder / "open_clip_pytorch_model.bin")
    refusal(f"open_clip:local-dir:{folder}", "E-CONFIG-MISMATCH")
    assert not trace.exists()


def test_a_missing_weights_file_is_named():
    message = refusal("open_clip:ViT-B-32/nowhere/weights.pt", "E-WEIGHTS-UNKNOWN")
    assert "'nowhere/weights.pt'" in message
    assert "ViT-B-32" in message


def test_a_folder_without_config_is_named(tmp_path):
    assert CONFIG in refusal(f"open_clip:local-dir:{tmp_path}", "E-CONFIG-MISSING")
    refusal(f"open_clip:local-dir:{tmp_path / 'nowhere'}", "E-CONFIG-MISSING")


def test_a_folder_without_weights_is_refused(tmp_path):
    folder = save_model(tmp_path / "m")
    (folder / WEIGHTS).unlink()
    refusal(f"open_clip:local-dir:{folder}", "E-MODEL-BROKEN")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{ not json", "E-JSON-INVALID"),
        ("[]", "E-CONFIG-INVALID"),
        ("{}", "E-CONFIG-INVALID"),
        ('{"model_cfg": null}', "E-CONFIG-INVALID"),
        ('{"model_cfg": []}', "E-CONFIG-INVALID"),
        ('{"model_cfg": {"embed_dim": 16}}', "E-MODEL-BROKEN"),
    ],
)
def test_a_broken_config_is_refused(text, code, tmp_path):
    folder = save_model(tmp_path / "m")
    (folder / CONFIG).write_text(text)
    assert str(folder) in refusal(f"open_clip:local-dir:{folder}", code)


def test_truncated_safetensors_are_refused(tiny, tmp_path):
    folder = save_model(tmp_path / "m")
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[: len(data) // 2])
    refusal(f"open_clip:local-dir:{folder}", "E-MODEL-BROKEN")
    path = tmp_path / "cut.safetensors"
    save_file(build(tiny).state_dict(), path)
    path.write_bytes(path.read_bytes()[:5000])
    refusal(f"open_clip:tiny/{path}", "E-WEIGHTS-BROKEN")


def test_weights_of_another_architecture_are_refused(tmp_path):
    folder = save_model(tmp_path / "m")
    other = save_model(tmp_path / "other", {**CLIP, "vision_cfg": {**VISION, "width": 48}})
    shutil.copy(other / WEIGHTS, folder)
    refusal(f"open_clip:local-dir:{folder}", "E-MODEL-BROKEN")
    weights = load_file(folder / WEIGHTS)
    del weights["visual.proj"]
    save_file(weights, folder / WEIGHTS)
    refusal(f"open_clip:local-dir:{folder}", "E-MODEL-BROKEN")


def test_a_tokenizer_with_more_tokens_than_the_tower_is_refused(tmp_path):
    folder = save_model(tmp_path / "m")
    (folder / MERGES).unlink()
    message = refusal(f"open_clip:local-dir:{folder}", "E-TOKENIZER-MISMATCH")
    assert "49408" in message and "679" in message and MERGES in message


def test_unknown_names_are_answered_with_near_ones():
    near = refusal("open_clip:ViT-B-23-quickgelu/openai", "E-ARCHITECTURE-UNKNOWN")
    assert "Did you mean 'ViT-B-32-quickgelu'?" in near
    assert "Did you mean 'openai'?" in refusal("open_clip:ViT-B-32/opneai", "E-WEIGHTS-UNKNOWN")
    assert "laion2b" in refusal("open_clip:ViT-B-32", "E-MODEL-ID-INVALID")  # which tags there are
    assert "Did you mean 'base'?" in refusal("world:bse", "E-MODEL-UNKNOWN")
    assert "Did you mean 'open_clip'?" in refusal("openclip:ViT-B-32/openai", "E-MODEL-UNKNOWN")


def test_a_path_or_a_name_without_its_family_is_answered_with_the_id(tmp_path):
    world, hub = world_folder("base"), tmp_path / "clip"
    hub.mkdir()
    (hub / "config.json").write_text("{}")
    (tmp_path / "export" / "onnx").mkdir(parents=True)
    meant = {
        str(world): f"open_clip:local-dir:{world}",
        str(hub): f"hf:{hub}",
        str(tmp_path / "export"): f"onnx:{tmp_path / 'export'}",
        "epoch_5.pt": "checkpoint:epoch_5.pt@",
        "openai/clip-vit-base-patch32": "hf:openai/clip-vit-base-patch32",
        "ViT-B-32": "open_clip:ViT-B-32/",
    }
    for id, family in meant.items():
        assert f"use {family}" in refusal(id, "E-MODEL-UNKNOWN")
        with raises("E-MODEL-UNKNOWN", family):
            check_model(id)
    assert "Did you mean 'random'?" in refusal("randm", "E-MODEL-UNKNOWN")


def test_cuda_without_a_gpu_is_refused_in_a_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    message = refusal(
        f"open_clip:local-dir:{save_model(tmp_path / 'm')}", "E-DEVICE-MISSING", "cuda"
    )
    assert "cpu or auto" in message
    assert Runtime(LoadOptions("auto")).device == "cpu"


def test_devices_by_number_and_those_that_are_not_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert [Runtime(LoadOptions(name)).device for name in ("cuda:1", "mps")] == ["cuda:1", "mps"]
    with raises("E-DEVICE-MISSING", "cuda:2"):
        Runtime(LoadOptions("cuda:2"))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with raises("E-DEVICE-MISSING", "mps"):
        Runtime(LoadOptions("mps"))
    for wrong in ("tpu", "cuda:", "cuda:x", "cpu:1"):
        with raises("E-DEVICE-UNKNOWN"):
            LoadOptions(wrong)


def test_half_precision_runs_on_a_numbered_device():
    """torch's autocast takes a kind of device and no number."""
    place = Runtime(LoadOptions("cpu", "bf16"))
    place.device = "cpu:0"
    with place.running():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16


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
    assert Runtime(LoadOptions("cpu")).device == "cpu"
    assert Runtime(LoadOptions("auto")).device == "cuda"
    for precision, rounds in (("fp32", False), ("tf32", True), ("bf16", False)):
        with Runtime(LoadOptions("cpu", precision)).running():
            assert all(switch.allow_tf32 == rounds for switch in rounding)


def test_a_missing_package_names_the_extra(tmp_path, monkeypatch):
    """open_clip's models with a tokenizer of transformers, where that is not installed."""
    text = {**TEXT, "hf_tokenizer_name": "own"}
    folder = save_model(tmp_path / "m", {**CUSTOM, "text_cfg": text})
    monkeypatch.setitem(sys.modules, "transformers", None)
    with raises("E-EXTRA-MISSING", "vlm"):
        load_model(f"open_clip:local-dir:{folder}")


@pytest.mark.usefixtures("unbuilt")
@pytest.mark.parametrize(
    "tower",
    [
        {"layers": 10**9},
        {"layers": [10**9, 1, 1, 1]},
        {"width": 10**6},
        {"width": 0, "layers": 10**30},
        {"vocab_size": 10**12},
        {"context_length": 10**8},
        {"image_size": 10**7},
        {"patch_size": 10**5},
        {"mlp_ratio": 1e300},
    ],
    ids=repr,
)
@pytest.mark.parametrize("part", ["vision_cfg", "text_cfg"])
def test_a_config_for_more_weights_than_there_are_is_not_built(tmp_path, tower, part):
    folder = save_model(tmp_path / "m")
    config = {**CLIP, part: {**CLIP[part], **tower}}
    (folder / CONFIG).write_text(json.dumps({"model_cfg": config}))
    for id in (
        f"open_clip:local-dir:{folder}",
        f"checkpoint:{folder / WEIGHTS}@local-dir:{folder}",
    ):
        refusal(id, "E-CONFIG-MISMATCH")


def test_names_are_checked_without_torch() -> None:
    ids = {
        "open_clip:ViT-B-32/opneai": "E-WEIGHTS-UNKNOWN",
        "open_clip:ViT-B-23/openai": "E-ARCHITECTURE-UNKNOWN",
        "scratch:RN5O": "E-ARCHITECTURE-UNKNOWN",
        "open_clip:ViT-B-32/openai": "",
        "scratch:RN50?seed=1": "",
    }
    program = f"""
import sys
from counterpoint import CounterpointError
from counterpoint.models import check_model
for id in {list(ids)}:
    try:
        check_model(id)
        print()
    except CounterpointError as error:
        print(error.code)
assert not {{"torch", "open_clip"}} & set(sys.modules)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == list(ids.values())


def test_names_are_those_of_open_clip(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ids.package()
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "open_clip")
        found = {name: ids.tags_of(folder, name) for name in ids.architectures(folder)}
    assert sorted(found) == sorted(open_clip.list_models())
    for name, tags in found.items():
        assert tags == open_clip.list_pretrained_tags_by_model(name)
