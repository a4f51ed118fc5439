"""Model folders made to hang, to fill the memory or to crash: each is refused in one sentence."""

from __future__ import annotations

import ast
import gzip
import json
import os
from pathlib import Path

import hf_models
import numpy as np
import pytest
import text_models
import vqa_models
from cli_support import counterpoint, own_place, write_cases
from errors import raises
from models_for_tests import is_sentence
from open_clip_models import CLIP, CONFIG, TEXT, save_model
from tokenizers import Tokenizer

from counterpoint import __file__ as package
from counterpoint.models import hub
from counterpoint.models.detector.adapter import (
    WEIGHTS,
    DetectorHeads,
    LinearHead,
    SavedDetector,
    save,
)
from counterpoint.models.hub import guarded, pretrained
from counterpoint.models.registry import LoadOptions, load_model

__all__ = ["counterpoint", "own_place"]  # fixtures

pytest.importorskip("transformers")

CPU = LoadOptions("cpu")
SOURCE = Path(package).parent
TEMPLATES = {
    "loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "power": "{{ 9 ** (9 ** 9) }}",
    "memory": "{{ ('a' * 9999999999) | length }}",
    "long": "{{ messages[0]['content'][1]['text'] }}{{ 'a' * 9999999 }}",
    "deep": "{% macro m(i) %}{{ m(i) }}{% endmacro %}{{ m(0) }}",
}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub.bounded, "SECONDS", 5)


@pytest.fixture(scope="module")
def generative(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vqa_models.save(tmp_path_factory.mktemp("llava") / "model", vqa_models.llava())


# --- chat templates ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", TEMPLATES)
def test_a_chat_template_that_does_not_end(generative: Path, kind: str) -> None:
    (generative / "chat_template.jinja").write_text(TEMPLATES[kind])
    with raises("E-MODEL-BROKEN") as refused:
        load_model(f"vqa:{generative}", CPU)
    assert is_sentence(refused.value) and "chat template" in str(refused.value)


# --- tokenizers ----------------------------------------------------------------------------------


def change(path: Path, **values: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def counts_too_far(folder: Path) -> None:
    """An id that no vector of the vocabulary's size has room for."""
    path = folder / "tokenizer.json"
    model = json.loads(path.read_text())["model"]
    model["vocab"] = dict.fromkeys(model["vocab"], 4294967295)
    change(path, model=model)


def backtracks(folder: Path) -> None:
    pattern = {"Regex": r"^(\S+\s*)+(\s*\S+)+$\d"}
    split = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    change(folder / "tokenizer.json", pre_tokenizer=split)


def nests(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("[" * 2_000_000)


@pytest.mark.parametrize(
    "harm", [counts_too_far, backtracks, nests], ids=lambda harm: harm.__name__
)
def test_a_tokenizer_that_harms_its_reader(tmp_path: Path, harm) -> None:
    folder = hf_models.save(tmp_path / "model", hf_models.clip)
    harm(folder)
    with raises("E-MODEL-BROKEN") as refused:
        load_model(f"hf:{folder}", CPU)
    told = "does not run" if harm is counts_too_far else "its tokenizer cannot be used"
    assert is_sentence(refused.value) and told in str(refused.value)


def test_a_panic_of_compiled_code_is_a_sentence(tmp_path: Path, counterpoint, monkeypatch) -> None:
    """`PanicException` is no Exception. Some words alone may bring it about, long after loading."""
    folder = tmp_path / "model"
    text_models.save_lm(folder)
    backtracks(folder)
    words = "a" * 300

    def encode() -> None:
        Tokenizer.from_file(str(folder / "tokenizer.json")).encode(words)

    with pytest.raises(BaseException, match="retry-limit") as panic:
        encode()
    assert not isinstance(panic.value, Exception)
    with raises("E-MODEL-BROKEN") as refused, guarded("hf:x", None, CPU):
        encode()
    assert is_sentence(refused.value)

    monkeypatch.setattr("counterpoint.models.hub.why_unreadable", lambda _: "")
    cases = Path(write_cases("mine", count=1))
    change(cases, captions=[words, words + "a", words + "b"])
    done = counterpoint("eval", "-m", f"blind:lm:{folder}", "-b", "mine.jsonl", "--out", "run")
    assert done.code == 1 and "E-LIBRARY-PANIC" in done.err and not Path("run").exists()


def test_merges_that_grow(tmp_path: Path, monkeypatch) -> None:
    folder = save_model(tmp_path / "model")
    with gzip.open(folder / "bpe_merges.txt.gz", "wb") as file:
        for _ in range(300):
            file.write(b"a b\n" * 2**18)
    assert (folder / "bpe_merges.txt.gz").stat().st_size < 2**21
    with raises("E-MODEL-BROKEN") as refused:
        load_model(f"open_clip:local-dir:{folder}", CPU)
    assert is_sentence(refused.value)


def test_without_the_package_that_reads_it_nothing_is_tried(tmp_path: Path, monkeypatch) -> None:
    """The install for CLIP models does not bring it, nor what else would read such a file."""
    folder = hf_models.save(tmp_path / "model", hf_models.clip)
    nests(folder)
    assert hub.why_unreadable(folder)
    monkeypatch.setattr(hub, "find_spec", lambda _: None)
    assert hub.why_unreadable(folder) == ""


# --- files ---------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no pipes of that kind")
@pytest.mark.parametrize("name", ["tokenizer_config.json", "tokenizer.json", "model.safetensors"])
def test_a_pipe_or_a_device_in_the_place_of_a_file(tmp_path: Path, name: str) -> None:
    folder = hf_models.save(tmp_path / "model", hf_models.clip)
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    with raises("E-MODEL-BROKEN") as refused:
        load_model(f"hf:{folder}", CPU)
    assert is_sentence(refused.value) and name in str(refused.value)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with raises("E-MODEL-BROKEN"):
        load_model(f"hf:{folder}", CPU)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no pipes of that kind")
def test_a_pipe_in_the_place_of_a_detectors_weights(tmp_path: Path) -> None:
    head = LinearHead(np.zeros(4, dtype=np.float32), np.zeros(1, dtype=np.float32))
    save(tmp_path, SavedDetector(DetectorHeads(head, head), "world:base", "any", {}))
    (tmp_path / WEIGHTS).unlink()
    os.mkfifo(tmp_path / WEIGHTS)
    with raises("E-MODEL-DAMAGED") as refused:
        load_model(f"detector:{tmp_path}", CPU)
    assert is_sentence(refused.value)


@pytest.mark.parametrize(
    "values",
    [
        {"num_hidden_layers": 10**5},
        {"intermediate_size": 10**9},
        {"num_labels": 10**8},
        {"id2label": dict.fromkeys(range(200_000), "a")},
    ],
    ids=lambda values: next(iter(values)),
)
def test_a_config_that_its_weights_do_not_fill(tmp_path: Path, values: dict[str, int]) -> None:
    folder = tmp_path / "model"
    text_models.save_lm(folder)
    change(folder / "config.json", **values)
    with raises("E-CONFIG-MISMATCH") as refused:
        load_model(f"blind:lm:{folder}", CPU)
    assert is_sentence(refused.value)


def test_heads_of_another_width_than_the_encoder(counterpoint) -> None:
    encoder = load_model("world:base", LoadOptions("cpu", unit=False)).fingerprint
    head = LinearHead(np.zeros(4, dtype=np.float32), np.zeros(1, dtype=np.float32))
    save(Path("model"), SavedDetector(DetectorHeads(head, head), "world:base", encoder, {}))
    done = counterpoint("eval", "-m", "detector:model", "-b", write_cases("mine"), "--out", "run")
    assert done.code == 1 and "4 numbers" in done.err and "E-MODEL-DAMAGED" in done.err


def test_an_error_that_says_nothing_is_a_sentence(tmp_path: Path) -> None:
    """open_clip asserts that a width fits its heads, and says no word of it."""
    folder = save_model(tmp_path / "model", {**CLIP, "text_cfg": {**TEXT, "heads": 2}})
    said = json.loads((folder / CONFIG).read_text())
    said["model_cfg"]["text_cfg"]["heads"] = 5
    change(folder / CONFIG, **said)
    with raises("E-MODEL-BROKEN") as refused:
        load_model(f"open_clip:local-dir:{folder}", CPU)
    assert is_sentence(refused.value)


# --- one door ------------------------------------------------------------------------------------

DOORS = {
    "from_pretrained": "models/hub.py",
    "hf_hub_download": "models/hub.py",
    "snapshot_download": "models/hub.py data/getting.py",
    "torch.load": "models/weights.py",
    "pickle.load": "scoring/workers.py",  # what a process of ours has sent
    "pickle.loads": "_util/processes.py",
    "torch.jit.load": "",
    "spacy.load": "",
}


def calls(tree: ast.AST) -> set[str]:
    """The names of what is called, as `torch.load`, and their last parts."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            found |= {name, name.rpartition(".")[2]}
    return found


def test_models_come_in_by_one_door() -> None:
    outside = {
        (path.relative_to(SOURCE).as_posix(), name)
        for path in SOURCE.rglob("*.py")
        for name in calls(ast.parse(path.read_text())) & DOORS.keys()
        if path.relative_to(SOURCE).as_posix() not in DOORS[name].split()
    }
    assert outside == set()


def test_the_door_is_shut_outside_of_the_guard(tmp_path: Path) -> None:
    import transformers

    with pytest.raises(RuntimeError, match="outside"):
        pretrained(transformers.AutoConfig, tmp_path, CPU)
