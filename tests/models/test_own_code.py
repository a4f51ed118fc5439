"""Models that bring Python code: it runs if the command says so, and never else."""

from __future__ import annotations

import builtins
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hf_models
import numpy as np
import open_clip
import pytest
import vqa_models
from diffusion_models import save_models as save_pipelines
from errors import raises
from open_clip_models import CLIP, CONFIG, TEXT, WEIGHTS, save_model

from counterpoint import evaluate
from counterpoint.generation.images import diffusion
from counterpoint.models.detector.adapter import (
    DetectorHeads,
    LinearHead,
    SavedDetector,
    save as save_detector,
)
from counterpoint.models.registry import LoadOptions, load_model

dynamic: Any = pytest.importorskip("transformers.dynamic_module_utils")

CPU, TRUSTED = LoadOptions("cpu"), LoadOptions("cpu", trust_remote_code=True)
TRUSTING = {"hf_tokenizer_name": "x", "tokenizer_kwargs": {"trust_remote_code": True}}
OWN = {"AutoTokenizer": ["own.Own", "own.Own"]}


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where transformers would put the code; and a person who says yes to everything."""
    monkeypatch.setattr(dynamic, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(builtins, "input", lambda *_: "y")
    for name in [name for name in sys.modules if name.startswith("transformers_modules")]:
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """What the code writes when it runs."""
    return tmp_path / "it-ran"


def change(path: Path, **values: Any) -> None:
    before = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**before, **values}))


def put_code(folder: Path, marker: Path, base: str = "CLIPTokenizer") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "own.py").write_text(
        f"import transformers\nopen({str(marker)!r}, 'w').close()\n"
        f"class Own(transformers.{base}): ...\n"
    )
    return folder


def clip_folder(folder: Path, marker: Path, **text: Any) -> Path:
    """An open_clip folder whose tokenizer is code that lies in it."""
    save_model(folder, {**CLIP, "text_cfg": {**TEXT, **TRUSTING, **text}})
    with hf_models.quiet():
        hf_models.clip_tokenizer().save_pretrained(folder)
    change(folder / "tokenizer_config.json", auto_map=OWN)
    return put_code(folder, marker)


def tower_folder(folder: Path, marker: Path) -> Path:
    """A text tower of transformers of which even the configuration is code."""
    put_code(folder, marker, "BertConfig")
    change(folder / "config.json", model_type="odd", auto_map={"AutoConfig": "own.Own"})
    return folder


def hub(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every repository that open_clip asks for is this folder."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(
        open_clip.factory,
        "download_pretrained_from_hf",
        lambda _, filename=None, **__: str(folder / (filename or WEIGHTS)),
    )


# --- what is refused ---------------------------------------------------------------------------

Attack = Callable[[Path, Path, pytest.MonkeyPatch], str]


def local_dir(folder: Path, marker: Path, _: pytest.MonkeyPatch) -> str:
    return f"open_clip:local-dir:{clip_folder(folder, marker)}"


def checkpoint(folder: Path, marker: Path, _: pytest.MonkeyPatch) -> str:
    clip_folder(folder, marker)
    return f"checkpoint:{folder / WEIGHTS}@local-dir:{folder}"


def hf_hub(folder: Path, marker: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    hub(clip_folder(folder, marker, hf_tokenizer_name=str(folder)), monkeypatch)
    return "open_clip:hf-hub:a/b"


def hub_that_leads_elsewhere(folder: Path, marker: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Its own config asks for nothing; the tokenizer it names is code."""
    own = clip_folder(folder.with_name("tokenizer"), marker)
    text = {"hf_tokenizer_name": str(own), "tokenizer_kwargs": {}}
    change(own / "tokenizer_config.json", tokenizer_class="Own")
    hub(save_model(folder, {**CLIP, "text_cfg": {**TEXT, **text}}), monkeypatch)
    return "open_clip:hf-hub:a/b"


def tower(folder: Path, marker: Path, _: pytest.MonkeyPatch) -> str:
    named = tower_folder(folder.with_name("tower"), marker)
    save_model(folder)
    change(folder / CONFIG, model_cfg={**CLIP, "text_cfg": {"hf_model_name": str(named)}})
    return f"open_clip:local-dir:{folder}"


def tower_of_a_checkpoint(folder: Path, marker: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    tower(folder, marker, monkeypatch)
    return f"checkpoint:{folder / WEIGHTS}@local-dir:{folder}"


def detector(folder: Path, marker: Path, _: pytest.MonkeyPatch) -> str:
    encoder = f"open_clip:local-dir:{clip_folder(folder.with_name('encoder'), marker)}"
    head = LinearHead(np.zeros(16, dtype=np.float32), np.zeros(1, dtype=np.float32))
    save_detector(folder, SavedDetector(DetectorHeads(head, head), encoder, "any", {}))
    return f"detector:{folder}"


def ensemble(folder: Path, marker: Path, _: pytest.MonkeyPatch) -> str:
    return f"ensemble:random+open_clip:local-dir:{clip_folder(folder, marker)}"


def dual_encoder(folder: Path, marker: Path, _: pytest.MonkeyPatch) -> str:
    put_code(hf_models.save(folder, hf_models.clip), marker)
    change(folder / "tokenizer_config.json", auto_map=OWN)
    return f"hf:{folder}"


def generative(folder: Path, marker: Path, _: pytest.MonkeyPatch) -> str:
    """Code deep in the configuration, for the image tower."""
    put_code(vqa_models.save(folder, vqa_models.llava()), marker, "PreTrainedModel")
    tower = {"model_type": "blip_2_qformer", "auto_map": {"AutoModel": f"{folder}--own.Own"}}
    change(folder / "config.json", vision_config=tower)
    return f"vqa:{folder}"


def compiled_kernel(folder: Path, marker: Path, _: pytest.MonkeyPatch) -> str:
    hf_models.save(folder, hf_models.clip)
    change(folder / "config.json", attn_implementation="anybody/kernel")
    return f"hf:{folder}"


def foreign(family: str) -> Attack:
    """All is code: the configuration, the model, the tokenizer, the processor."""

    def attack(folder: Path, marker: Path, _: pytest.MonkeyPatch) -> str:
        put_code(folder, marker, "PretrainedConfig")
        kinds = ("Config", "Model", "Tokenizer", "Processor", "ModelForCausalLM")
        kinds += ("ModelForImageTextToText", "ModelForSequenceClassification")
        code = {f"Auto{kind}": "own.Own" for kind in kinds}
        change(folder / "config.json", model_type="odd", auto_map=code)
        return f"{family}:{folder}"

    attack.__name__ = family
    return attack


FAMILIES = ("hf", "blip-itm", "blip-itc", "flava-itm", "vqa", "lm")
FAMILIES += ("blind:lm", "blind:grammar", "blind:plausible")
ATTACKS = (
    *(local_dir, checkpoint, hf_hub, hub_that_leads_elsewhere, tower, tower_of_a_checkpoint),
    *(detector, ensemble, dual_encoder, generative, compiled_kernel, *map(foreign, FAMILIES)),
)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_code_of_a_model_is_refused_and_not_asked_for(attack, tmp_path, marker, monkeypatch):
    asked: list[object] = []
    monkeypatch.setattr(builtins, "input", lambda *prompt: (asked.append(prompt), "y")[1])
    id = attack(tmp_path / "model", marker, monkeypatch)
    with raises("E-CODE-REFUSED") as refused:
        load_model(id, CPU)
    message = str(refused.value)
    assert "--trust-remote-code" in message and "\n" not in message
    assert not marker.exists() and not asked


def test_an_encoder_that_a_detector_names_is_not_trusted(tmp_path, marker, monkeypatch):
    with raises("E-CODE-REFUSED"):
        load_model(detector(tmp_path / "model", marker, monkeypatch), TRUSTED)
    assert not marker.exists()


def test_a_tokenizer_reads_no_other_file(tmp_path):
    for key, value in {"vocab_file": "/etc/hostname", "subfolder": "x", "bpe_path": "/x"}.items():
        folder = save_model(
            tmp_path / key, {**CLIP, "text_cfg": {**TEXT, "tokenizer_kwargs": {key: value}}}
        )
        with raises("E-CODE-REFUSED", key):
            load_model(f"open_clip:local-dir:{folder}", CPU)


@pytest.mark.slow
def test_a_part_of_a_pipeline_that_is_code(tmp_path, marker):
    """diffusers loads it by an Auto class of transformers, which would ask."""
    folder = shutil.copytree(save_pipelines(tmp_path)["sd"], tmp_path / "pipeline")
    change(folder / "model_index.json", tokenizer=["transformers", "AutoTokenizer"])
    put_code(folder / "tokenizer", marker)
    change(folder / "tokenizer" / "tokenizer_config.json", auto_map=OWN, tokenizer_class="Own")
    with raises("E-CODE-REFUSED", f"{tmp_path}/pipeline"):
        diffusion.open_pipeline(str(folder), "cpu")
    assert not marker.exists()


# --- what is trusted ---------------------------------------------------------------------------


def test_trusted_code_runs_and_the_run_says_so(tmp_path, marker):
    id = f"open_clip:local-dir:{clip_folder(tmp_path / 'model', marker, vocab_size=400)}"
    settings = {"out": tmp_path / "run", "store": tmp_path / "store", "limit": 4, "device": "cpu"}
    run = evaluate(id, "world-swap:size=4", trust_remote_code=True, **settings)
    assert marker.exists()
    assert json.loads((run.folder / "run.json").read_text())["options"]["trust_remote_code"] is True


@pytest.mark.slow
def test_trusted_towers_are_not_asked_for_either(tmp_path, marker, monkeypatch):
    id = tower(tmp_path / "model", marker, monkeypatch)
    monkeypatch.setattr(builtins, "input", lambda *_: pytest.fail("somebody was asked"))
    with raises("E-MODEL-BROKEN"):  # the class is no model
        load_model(id, TRUSTED)
    assert marker.exists()


def test_a_dual_encoder_with_code_of_its_own(tmp_path, marker, monkeypatch):
    model = load_model(dual_encoder(tmp_path / "model", marker, monkeypatch), TRUSTED)
    assert marker.exists() and type(model.opened.tokenizer).__name__ == "Own"


def test_other_users_of_the_library_keep_their_question(tmp_path, marker, monkeypatch):
    """Only while a model is loaded here does the library refuse."""
    with raises("E-CODE-REFUSED"):
        load_model(dual_encoder(tmp_path / "model", marker, monkeypatch), CPU)
    import transformers

    folder = tower_folder(tmp_path / "tower", marker)
    transformers.AutoConfig.from_pretrained(folder)  # and the answer is y
    assert marker.exists()
