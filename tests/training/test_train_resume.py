"""A run that was broken off, anywhere, ends with the weights of one that was not."""

from __future__ import annotations

import json
import math
import multiprocessing
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from errors import raises
from processes import ended, start
from safetensors.torch import load_file
from training import (
    Killed,
    broken_off,
    everything,
    last_checkpoint,
    resumes_the_same,
    run_small,
    same,
    small_recipe,
    weights,
    written,
)

from counterpoint._util.errors import Terminated
from counterpoint.training import checkpoints, load_recipe, loop
from counterpoint.training.checkpoints import (
    Checkpoint,
    load_last,
    save,
    steps_in,
)

pytestmark = pytest.mark.faults

CPU = torch.device("cpu")
ODD = ("accumulate=2", "ema=0.9", "cached_batch=3")  # everything that has a state of its own
FP16 = ("precision=fp16", "batch=4", "lr=1e-3")  # a CPU is slow in half precision
LOGGED = ("step", "loss", "lr", "scale")


@pytest.mark.parametrize("extra", [(), ODD, ("lora.rank=2",), ("precision=bf16",), FP16])
def test_broken_off_at_any_step(tmp_path, monkeypatch, extra):
    steps = (0, 3, 5) if extra else range(6)
    resumes_the_same(tmp_path, monkeypatch, steps, *extra)
    for at in steps:
        logs = [log_of(tmp_path / out) for out in (f"at{at}", "whole")]
        resumed, whole = ([[line[k] for k in LOGGED] for line in log] for log in logs)
        assert resumed == whole and [step for step, *_ in whole] == [1, 2, 3, 4, 5, 6]


SOFTMAX = [
    f"loss.{name}.term={name.removeprefix('siglip-').replace('siglip', 'clip')}"
    for name in ("siglip", "siglip-concepts", "siglip-concept-patches")
]


# Those that hold something of their own: a teacher, patches and words, a decoder, other batches.
@pytest.mark.parametrize(
    "name", ["ce-clip", "tripletclip", "fsc-clip", "degla", "read-clip", "clic", "c2lip"]
)
def test_recipes_with_more_than_vectors_are_resumed(tmp_path, monkeypatch, name):
    changes = SOFTMAX if name == "c2lip" else ["cached_batch=3"] if name == "read-clip" else []
    resumes_the_same(tmp_path, monkeypatch, (2, 3), *changes, name=name)
    assert all(math.isfinite(line["loss"]) for line in log_of(tmp_path / "whole"))


def test_half_precision_leaves_float32_as_it_was(tmp_path):
    """On a CPU that lacks the instructions, torch would go on in another way for good."""
    before = torch._C._get_mkldnn_enabled()
    run_small(tmp_path, out="before")
    run_small(tmp_path, "precision=bf16", out="half")
    run_small(tmp_path, out="after")
    assert torch._C._get_mkldnn_enabled() == before
    assert same(weights(tmp_path / "before"), weights(tmp_path / "after"))
    assert not same(weights(tmp_path / "before"), weights(tmp_path / "half"))


def log_of(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def train_slowly(path: str, pause: float) -> None:
    """For a process of its own: what other tests have done to this one's arithmetic has no say."""
    torch.set_num_threads(1)
    inner = loop.update

    def slowly(run, step):
        time.sleep(pause)
        return inner(run, step)

    loop.update = slowly
    loop.train(load_recipe(path))


def test_killed_for_good_by_the_system(tmp_path):
    """A real process and a real SIGKILL, at a moment of its own choosing."""
    changes = ("steps=14", "save_every=3", *ODD)
    whole = start(train_slowly, written(small_recipe(tmp_path, *changes, out="whole")), 0)
    path = written(small_recipe(tmp_path, *changes, "data.workers=1", out="killed"))
    process = start(train_slowly, path, 0.1)
    log = tmp_path / "killed" / "log.jsonl"
    until = time.monotonic() + 150
    while not (log.is_file() and len(log.read_text().splitlines()) >= 5):
        assert process.is_alive() and time.monotonic() < until
        time.sleep(0.01)
    process.kill()
    assert ended(process) == -signal.SIGKILL
    done = steps_in(tmp_path / "killed")
    assert done and done[-1] < 14 and not (tmp_path / "killed" / "model").exists()
    assert [ended(whole), ended(start(train_slowly, path, 0))] == [0, 0]
    assert same(weights(tmp_path / "killed"), weights(tmp_path / "whole"))
    assert same(everything(tmp_path / "killed"), everything(tmp_path / "whole"))


def test_an_interruption_keeps_the_step_it_was_at(tmp_path, monkeypatch):
    """Ctrl-C and SIGTERM come between steps, with a checkpoint."""
    inner = loop.update
    for number in (signal.SIGINT, signal.SIGTERM):
        out = number.name

        def interrupted(run, step, number=number):
            if step == 2:
                signal.raise_signal(number)
            return inner(run, step)

        with monkeypatch.context() as patch:
            patch.setattr(loop, "update", interrupted)
            with pytest.raises(KeyboardInterrupt) as stopped:
                run_small(tmp_path, "save_every=0", out=out)
        assert stopped.type is (KeyboardInterrupt if number == signal.SIGINT else Terminated)
        assert steps_in(tmp_path / out) == [3]
        run_small(tmp_path, "save_every=0", out=out)
    run_small(tmp_path, out="whole")
    assert same(weights(tmp_path / "SIGINT"), weights(tmp_path / "whole"))
    assert same(weights(tmp_path / "SIGTERM"), weights(tmp_path / "whole"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_whole_group_keeps_the_step_as_well(tmp_path, monkeypatch, number):
    """Ctrl-C in a terminal, or the end of a job: processes that read data get it too."""
    inner = loop.update

    def interrupted(run, step):
        if step == 2:
            workers = multiprocessing.active_children()
            assert workers
            for worker in workers:
                # From another process: of its parent, a worker takes it for a request to end.
                send = f"import os; os.kill({worker.pid}, {int(number)})"
                subprocess.run([sys.executable, "-c", send], check=True)
                time.sleep(0.2)
            signal.raise_signal(number)
        return inner(run, step)

    monkeypatch.setattr(loop, "update", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_small(tmp_path, "save_every=0", "data.workers=1")
    assert steps_in(tmp_path / "run") == [3]


def test_a_finished_run_is_not_run_again(tmp_path, monkeypatch):
    run_small(tmp_path)
    before = weights(tmp_path / "run")

    def never(run, step):
        raise AssertionError("trained again")

    monkeypatch.setattr(loop, "update", never)
    run_small(tmp_path)
    assert same(weights(tmp_path / "run"), before)


# --- refusals ----------------------------------------------------------------------------------


def test_another_recipe_is_refused_by_its_first_difference(tmp_path, monkeypatch):
    broken_off(tmp_path, monkeypatch, 3, out="run")
    for change, key in (
        ("lr=1e-4", "lr"),
        ("hn_weight=0.5", "loss.negatives.weight"),
        ("only=swap", "data.only"),
        ("lora.rank=2", "lora.alpha"),
        ("seed=3", "seed"),
        ("steps=7", "steps"),
    ):
        with raises("E-OUTPUT-EXISTS", key) as caught:
            run_small(tmp_path, change)
        assert "\n" not in str(caught.value)


def test_what_a_killed_training_left_is_removed(tmp_path, monkeypatch):
    """Also beside files that are there already: these are not written again."""
    broken_off(tmp_path, monkeypatch, 3, out="run")
    for folder in (tmp_path / "run", *(tmp_path / "run").glob("*/")):
        (folder / f".draft-{'0' * 16}.lock").touch()
        (folder / f".draft-{'1' * 16}-0.json").touch()
    run_small(tmp_path, out="run")
    assert not [*(tmp_path / "run").rglob(".draft-*")]


def test_what_changes_no_weight_may_change(tmp_path, monkeypatch):
    broken_off(tmp_path, monkeypatch, 3, out="run")
    run_small(tmp_path, "keep=1", "save_every=5", "log_every=3")
    run_small(tmp_path, out="whole")
    assert same(weights(tmp_path / "run"), weights(tmp_path / "whole"))


def test_other_weights_under_the_same_name_are_refused(tmp_path, monkeypatch):
    broken_off(tmp_path, monkeypatch, 3, out="run")
    path = tmp_path / "start" / "open_clip_model.safetensors"
    state = load_file(path)
    from safetensors.torch import save_file

    save_file({name: value * 2 for name, value in state.items()}, path)
    with raises("E-OUTPUT-EXISTS", "other weights than"):
        run_small(tmp_path)


# --- checkpoints -------------------------------------------------------------------------------


def small(step: int) -> Checkpoint:
    made = torch.Generator().manual_seed(step)
    return Checkpoint(step, {"note": step}, {"a": torch.randn(3, generator=made)}, {})


def test_only_the_last_are_kept(tmp_path):
    for step in range(1, 8):
        save(tmp_path, small(step), keep=3)
    assert steps_in(tmp_path) == [5, 6, 7]
    found = load_last(tmp_path, CPU)
    assert found is not None and found.step == 7 and found.state["note"] == 7
    assert torch.equal(found.weights["a"], small(7).weights["a"])


@pytest.mark.parametrize("name", ["rename", "mkdir"])
def test_a_checkpoint_is_whole_or_not_there(tmp_path, monkeypatch, name):
    """Broken off before the last rename, the one before it is the last."""
    save(tmp_path, small(1), keep=1)
    inner = getattr(Path, name)

    def broken(self, *args, **kwargs):
        if self.name.startswith(".draft-"):
            raise Killed
        return inner(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Path, name, broken)
        with pytest.raises(Killed):
            save(tmp_path, small(2), keep=1)
    found = load_last(tmp_path, CPU)
    assert found is not None and found.step == 1
    save(tmp_path, small(2), keep=1)
    assert steps_in(tmp_path) == [2]
    assert [p.name for p in (tmp_path / checkpoints.FOLDER).iterdir()] == ["step-00000002"]


def test_a_full_disk_is_a_sentence_and_keeps_the_last(tmp_path, monkeypatch):
    save(tmp_path, small(1), keep=1)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "save_file", full)
    with raises("E-OUTPUT-UNWRITABLE", "disk is full"):
        save(tmp_path, small(2), keep=1)
    found = load_last(tmp_path, CPU)
    assert found is not None and found.step == 1


@pytest.mark.parametrize("name", ["state.json", "weights.safetensors", "optimiser.safetensors"])
def test_a_damaged_checkpoint_is_named(tmp_path, name):
    folder = save(tmp_path, small(1), keep=2)
    save(tmp_path, small(2), keep=2)
    path = last_checkpoint(tmp_path) / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with raises("E-CHECKPOINT-DAMAGED", 2):
        load_last(tmp_path, CPU)
    shutil.rmtree(path.parent)
    found = load_last(tmp_path, CPU)
    assert found is not None and folder.name == "step-00000001" and found.step == 1


def test_nothing_is_pickled(tmp_path):
    run_small(tmp_path)
    kinds = {path.suffix for path in last_checkpoint(tmp_path / "run").iterdir()}
    assert kinds == {".json", ".safetensors"}
