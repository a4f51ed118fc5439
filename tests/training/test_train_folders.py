"""The files of a training: one run at a time in a folder, and the same bytes every time."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from errors import raises
from open_clip_models import WEIGHTS, load, save_model
from training import run_small, small_recipe, written

from counterpoint.models.openclip import fill_folder
from counterpoint.training import loop
from counterpoint.training.checkpoints import RECIPE

pytestmark = pytest.mark.faults

_SAVE = """
import sys
from pathlib import Path
from open_clip_models import load
from counterpoint.models.openclip import fill_folder
start, out = map(Path, sys.argv[1:])
model = load(start)
out.mkdir()
fill_folder(out, f"open_clip:local-dir:{start}", model, model.model.state_dict(), {"steps": 1})
"""


def digest(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}


def test_a_model_is_the_same_bytes_every_time(tmp_path):
    """The library that writes weights puts metadata in an order of its own each time."""
    start = save_model(tmp_path / "start")
    model = load(start)
    found = []
    for number in range(12):
        out = tmp_path / str(number)
        out.mkdir()
        state = model.model.state_dict()
        fill_folder(out, f"open_clip:local-dir:{start}", model, state, {"steps": 1})
        found.append(digest(out))
    path = os.pathsep.join(sys.path)
    out = tmp_path / "process"
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", _SAVE, str(start), str(out)], env=environment, check=True)
    found.append(digest(out))
    assert all(one == found[0] for one in found)
    assert load(tmp_path / "0").fingerprint == load(start).fingerprint


def test_the_weights_say_their_activation(tmp_path):
    from safetensors import safe_open

    run_small(tmp_path, "steps=1")
    with safe_open(tmp_path / "run" / "model" / WEIGHTS, framework="numpy") as file:
        assert file.metadata() == {"quick_gelu": "false"}


def test_two_trainings_in_one_folder_are_refused(tmp_path, monkeypatch):
    recipe, inner = small_recipe(tmp_path, "steps=2"), loop.update
    refused = []

    def and_another(run, step):
        with raises("E-OUTPUT-LOCKED"):
            loop.train(recipe)
        refused.append(step)
        return inner(run, step)

    monkeypatch.setattr(loop, "update", and_another)
    assert loop.train(recipe) is not None
    assert refused == [0, 1]
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_a_folder_is_free_again_after_a_failure(tmp_path, monkeypatch):
    recipe = small_recipe(tmp_path, "steps=2")
    with monkeypatch.context() as patch:
        patch.setattr(loop, "build", lambda *_: pytest.fail("stopped"))
        with pytest.raises(pytest.fail.Exception):
            loop.train(recipe)
    assert loop.train(recipe) is not None


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("mine")
    with raises("E-OUTPUT-UNWRITABLE", tmp_path / "file" / "run") as caught:
        loop.train(small_recipe(tmp_path, out="file/run"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["[]", "1", "null", '{"loss": 1}', '{"loss": [1]}', "[" * 5000])
def test_a_recipe_that_is_none_is_refused(tmp_path, text):
    recipe = small_recipe(tmp_path)
    recipe.folder.mkdir()
    (recipe.folder / RECIPE).write_text(text)
    with raises("E-JSON-INVALID" if text.startswith("[[") else "E-RUN-DAMAGED"):
        loop.train(recipe)


@pytest.mark.parametrize("change", [{"start": None}, {"problems": 1}])
def test_a_state_that_does_not_fit_is_refused(tmp_path, change):
    run_small(tmp_path, "steps=2")
    [folder] = (tmp_path / "run" / "checkpoints").iterdir()
    state = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps({**state, **change}))
    with raises("E-OUTPUT-EXISTS" if "start" in change else "E-CHECKPOINT-DAMAGED"):
        run_small(tmp_path, "steps=2")


def test_a_command_that_is_asked_to_end_says_so_by_its_status(tmp_path):
    recipe = small_recipe(tmp_path, "steps=100000", "save_every=0", "benchmarks=[]")
    command = [sys.executable, "-m", "counterpoint", "train", written(recipe)]
    child = subprocess.Popen(command, stderr=subprocess.PIPE)
    log, until = recipe.folder / "log.jsonl", time.monotonic() + 150
    while not (log.is_file() and log.read_text()):
        assert child.poll() is None and time.monotonic() < until
        time.sleep(0.02)
    child.send_signal(signal.SIGTERM)
    _, errors = child.communicate(timeout=100)
    assert child.returncode == 143, errors
    assert b"Traceback" not in errors
    assert list((recipe.folder / "checkpoints").glob("step-*"))
    assert not list(recipe.folder.rglob(".draft-*"))
