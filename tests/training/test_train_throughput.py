"""What makes training fast and says how fast it is: compiled blocks, waiting, half precision."""

from __future__ import annotations

import json
import time
from functools import partialmethod
from pathlib import Path

import pytest
import torch
from errors import raises
from open_clip_models import CLIP, load, save_model
from torch._dynamo.utils import counters
from training import last_checkpoint, run_small, small_recipe, weights

from counterpoint.models import split_transform
from counterpoint.training.logs import Meter
from counterpoint.training.processes import Ranks
from counterpoint.training.setup import build, compile_blocks
from counterpoint.training.steps import update
from counterpoint.training.towers import Towers

pytestmark = pytest.mark.slow

FEW_STEPS = ("steps=3", "batch=4", "lr=1e-3")  # a CPU is slow in half precision
CPU = Ranks(0, 1, torch.device("cpu"))


# --- compiled blocks ---------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # the compiler's own, out of its looking
@pytest.mark.parametrize("extra", [(), ("lora.rank=2", "checkpoint_activations=true")])
def test_compiled_blocks_train_the_same(tmp_path, monkeypatch, extra):
    """Graphs as torch captures them, without the minute that a C++ compiler takes for them."""
    captured = partialmethod(torch.nn.Module.compile, backend="aot_eager")
    monkeypatch.setattr(torch.nn.Module, "compile", captured)
    given = ("steps=2", "batch=4", "lr=1e-4", *extra)
    run_small(tmp_path, *given, out="plain")
    before = counters["frames"]["ok"]
    run_small(tmp_path, *given, "compile=true", out="compiled")
    assert counters["frames"]["ok"] > before
    start = load(tmp_path / "start").model.state_dict()
    plain, compiled = (weights(tmp_path / name) for name in ("plain", "compiled"))
    assert start.keys() == plain.keys() == compiled.keys()

    def apart(other: dict[str, torch.Tensor]) -> float:
        return sum(float((plain[name] - other[name]).abs().sum()) for name in plain)

    assert apart(compiled) < 0.01 * apart(start)


def test_compiling_needs_a_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with raises("E-COMPILER-MISSING"):
        run_small(tmp_path, "steps=1", "compile=true")


def test_compiling_needs_blocks(tmp_path):
    towers = Towers(load(save_model(tmp_path / "model", CLIP)))
    towers.clip.visual = towers.clip.transformer = torch.nn.Identity()
    with raises("E-MODEL-UNSUITABLE", "some/model"):
        compile_blocks(towers, "some/model")


# --- waiting for data --------------------------------------------------------------------------


class Clock:
    """A host and a GPU of which the times are known: events read when the queue reaches them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.host = self.device = 0.0  # the device is busy until then
        monkeypatch.setattr(time, "perf_counter", lambda: self.host)
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.cuda, "Event", lambda **_: Event(self))

    def work(self, host: float, device: float) -> None:
        self.host += host
        self.device = max(self.device, self.host) + device


class Event:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def record(self) -> None:
        self.at = max(self.clock.host, self.clock.device)

    def synchronize(self) -> None:
        self.clock.host = max(self.clock.host, self.at)

    def elapsed_time(self, other: Event) -> float:
        return 1000 * (other.at - self.at)


@pytest.mark.parametrize(
    ("waits", "lost"),
    [
        (0.0, 0.0),
        (0.5, 0.0),  # of 0.9 that are still queued
        (1.0, 0.1),  # the device ran dry for the last tenth
        (5.0, 4.1),
    ],
)
def test_a_wait_counts_from_when_the_gpu_has_nothing_to_do(monkeypatch, waits, lost):
    clock = Clock(monkeypatch)
    meter = Meter()
    meter.waited(0.0)
    clock.work(host=0.1, device=0.9)
    meter.stepped(8)
    clock.host += waits
    meter.waited(waits)
    clock.work(host=0.1, device=0.9)
    meter.stepped(8)
    clock.host = max(clock.host, clock.device)
    total = clock.host
    values = meter.read()
    assert values["stall"] == pytest.approx(lost / total, abs=1e-9)
    assert values["samples_per_second"] == pytest.approx(16 / total)


def test_what_the_host_does_beside_waiting_is_no_wait(monkeypatch):
    """A checkpoint, say: the device has nothing to do, but not for want of data."""
    clock = Clock(monkeypatch)
    meter = Meter()
    clock.work(host=0.1, device=0.2)
    meter.stepped(8)
    clock.host += 10
    meter.waited(0.01)
    assert meter.read()["stall"] < 0.002


def test_without_a_gpu_all_waiting_counts(monkeypatch):
    clock = Clock(monkeypatch)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    meter = Meter()
    for _ in range(2):
        clock.host += 1.0
        meter.waited(1.0)
        clock.host += 3.0
        meter.stepped(4)
    assert meter.read() == {"samples_per_second": 1.0, "seconds_per_step": 4.0, "stall": 0.25}


# --- pixels ------------------------------------------------------------------------------------


def test_the_data_is_given_a_preprocessing_that_it_can_take_apart(tmp_path):
    """On a GPU whole levels then travel; what they become there is what it makes here."""
    run = build(small_recipe(tmp_path), CPU)
    _, made = split_transform(run.data.setting.preprocess)
    levels = torch.arange(256, dtype=torch.uint8).expand(3, 256)[None, :, :, None]
    mean, std = (torch.tensor(v)[:, None] for v in ([0.5, 0.4, 0.3], [0.2, 0.25, 0.3]))
    expected = (torch.arange(256.0).expand(3, 256) / 255 - mean) / std
    assert torch.equal(made(levels)[0, :, :, 0], expected)


# --- half precision ----------------------------------------------------------------------------


def losses_of(folder: Path) -> list[float]:
    lines = (folder / "log.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


def test_fp16_trains_as_fp32_does(tmp_path):
    for precision in ("fp32", "fp16"):
        run_small(tmp_path, f"precision={precision}", *FEW_STEPS, "cached_batch=3", out=precision)
    one, two = losses_of(tmp_path / "fp32"), losses_of(tmp_path / "fp16")
    assert one == pytest.approx(two, rel=5e-3) and one != two
    state = json.loads((last_checkpoint(tmp_path / "fp16") / "state.json").read_text())
    assert state["scaler"]["_growth_tracker"] == 3  # no step was left out


def test_a_gradient_that_overflows_leaves_the_weights_alone(tmp_path):
    run = build(small_recipe(tmp_path, "precision=fp16", "grad_clip=1", "ema=0.9"), CPU)
    scaler = run.stepper.scaler
    assert scaler is not None
    batch = run.data.batch(0, 0)
    before = {name: p.detach().clone() for name, p in run.parameters.items()}
    run.stepper.backward(batch, share=1.0, seed=0, last=True)
    next(iter(run.parameters.values())).grad.view(-1)[0] = float("inf")
    update(run, 1)
    assert all(torch.equal(p, before[name]) for name, p in run.parameters.items())
    assert scaler.get_scale() == 2.0**15
    run.optimiser.zero_grad(set_to_none=True)
    run.stepper.backward(batch, share=1.0, seed=0, last=True)
    norm = update(run, 1)["grad_norm"]
    assert torch.isfinite(torch.as_tensor(norm))
    assert any(not torch.equal(p, before[name]) for name, p in run.parameters.items())
