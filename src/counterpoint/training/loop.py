"""Training, from the first step to the model's folder:

    batch -> towers -> join -> loss -> backward -> optimiser -> log -> checkpoint

Everything that a step depends on is in the checkpoint or a pure function of the recipe and the
step's number. So a run that was killed and is started again ends with the weights of one that was
not: bit for bit where arithmetic is (the CPU; same number of threads and ranks).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from counterpoint._util.errors import DataError, RunError
from counterpoint._util.progress import Progress
from counterpoint.benchmarks import find_benchmark
from counterpoint.evaluation import Outcome
from counterpoint.training.batches import Batch
from counterpoint.training.building import Run, build
from counterpoint.training.checkpoints import (
    capture,
    claimed,
    load_last,
    problems_of,
    restore,
    save,
    steps_in,
)
from counterpoint.training.evaluating import Judge, made, numbers
from counterpoint.training.logs import Display, Log, Meter, Silent, in_words
from counterpoint.training.model import arithmetic
from counterpoint.training.processes import Stop, processes, stop_between_steps
from counterpoint.training.recipe import Recipe
from counterpoint.training.saving import MODEL, final_state, save_model
from counterpoint.training.steps import only
from counterpoint.training.updating import update

_BIG: Final = 2**63


@dataclass(frozen=True, slots=True)
class Trained:
    """What a finished run leaves: `model` is an id for `counterpoint eval`."""

    folder: Path
    model: str
    steps: int
    problems: dict[str, int]  # what the data had to leave out, and how often
    outcome: Outcome | None  # start against tuned, if the recipe names benchmarks


def train(
    recipe: Recipe, display: Display | None = None, progress: Progress | None = None
) -> Trained | None:
    """Train as the recipe says, from its last checkpoint if there is one.

    Under torchrun every process calls this; all but the first get None.
    """
    with processes(recipe) as ranks, arithmetic(recipe.precision, ranks.device):
        _refuse_missing(recipe)
        shown = display if display is not None and ranks.first else Silent()
        folder = recipe.folder
        with claimed(recipe, folder) if ranks.first else nullcontext():
            ranks.wait()
            run = build(recipe, ranks, progress if ranks.first else None)
            saved = load_last(folder, ranks.device)
            if saved is not None:
                restore(run, saved)
            done = 0 if saved is None else saved.step
            judge = Judge(run, folder, progress) if ranks.first and recipe.benchmarks else None
            _steps(run, folder, done, shown, judge)
            state = final_state(run)
            if ranks.first:
                save_model(run, state, folder / MODEL, run.steps)
            problems = problems_of(run).told()
            if not ranks.first:
                return None
            model = f"open_clip:local-dir:{folder / MODEL}"
            if judge is not None:
                shown.say(
                    f"saved {folder / MODEL}; now it and its start are evaluated on "
                    f"{', '.join(recipe.benchmarks)} (benchmarks=[] leaves this out)"
                )
            outcome = None if judge is None else judge.finally_(model)
            return Trained(folder, model, run.steps, problems, outcome)


def _refuse_missing(recipe: Recipe) -> None:
    """Before a model is loaded, and not after the last step."""
    for id in recipe.benchmarks:
        find_benchmark(id)
    data = recipe.data
    if data.images is not None and not data.images.is_dir():
        raise DataError(
            "E-FOLDER-MISSING", f"data.images={data.images}: no such folder.", path=data.images
        )
    if data.kind == "pairs" and (lost := [p for p in data.paths if not p.is_file()]):
        raise DataError("E-FILE-MISSING", f"data.path={lost[0]}: no such file.", path=lost[0])
    if data.kind != "world" and not data.path:
        raise DataError(
            "E-DATA-MISSING",
            f"recipe {recipe.name} needs data: data.path=FILE (`counterpoint export PAIRS --as "
            "training` makes one), or --world for the world's.",
            kind=data.kind,
        )


def _steps(run: Run, folder: Path, done: int, display: Display, judge: Judge | None) -> None:
    recipe, ranks = run.recipe, run.ranks
    display.begin(recipe.name, run.steps, done)
    if done:
        display.say(f"going on from step {done:,} of {run.steps:,}")
    if ranks.device.type == "cpu" and recipe.precision != "fp32":
        display.say(f"{recipe.precision} on a CPU can be very slow: use precision=fp32 there")
    with (
        _logging(run, folder, done) as log,
        _batches(run, done) as batches,
        stop_between_steps(alone=ranks.size == 1) as stop,
    ):
        stopped_in_it = _evaluates(recipe, done, run.steps) and not made(folder, done)
        ranks.wait()  # all have looked before the first begins
        if stopped_in_it:
            _evaluate(run, done, judge, log)
        meter = Meter()
        finite = torch.ones((), dtype=torch.bool, device=ranks.device)
        for step in range(done, run.steps):
            loss, values = _gradients(run, step, batches, meter)
            extra = update(run, step)
            finite = finite & loss.isfinite()
            if run.stepper.scaler is None:  # with one, a step that overflows is left out
                finite = finite & torch.as_tensor(extra["grad_norm"]).isfinite()
            meter.stepped(recipe.batch * recipe.accumulate)
            after = step + 1
            if after % recipe.log_every == 0 or after == run.steps:
                _refuse_infinite(finite, folder, after)
                _report(after, loss, values, extra, meter, log, display)
            if _saves(recipe, after, run.steps, stop):
                _refuse_infinite(finite, folder, after)
                checkpoint = capture(run, after)
                if ranks.first:
                    save(folder, checkpoint, recipe.keep)
                ranks.wait()
            if stop.asked:
                raise stop.error()
            if _evaluates(recipe, after, run.steps):
                _evaluate(run, after, judge, log)
                meter = Meter()


def _gradients(
    run: Run, step: int, batches: Iterator[Batch], meter: Meter
) -> tuple[Tensor, dict[str, Tensor]]:
    """Of one optimiser step: the mean over its batches. The loss and its terms come back."""
    run.optimiser.zero_grad(set_to_none=True)
    count = run.recipe.accumulate
    sums: dict[str, Tensor] = {}
    for number in range(count):
        before = time.perf_counter()
        batch = next(batches)
        meter.waited(time.perf_counter() - before)
        batch = only(batch.to(run.ranks.device), run.loss.fields)
        seed = _seed(run.recipe.seed, step * count + number, run.ranks.rank)
        values = run.stepper.backward(batch, share=1 / count, seed=seed, last=number == count - 1)
        for name, value in values.items():
            sums[name] = sums.get(name, 0) + value / count
    weights = {term.term: term.weight for term in run.recipe.loss}
    loss = torch.stack([weights[name] * value for name, value in sums.items()]).sum()
    return loss, sums


def _seed(seed: int, batch: int, rank: int) -> int:
    """For what the towers draw: other numbers for every batch and rank, the same every time."""
    return (seed * 1_000_003 + batch * 65_537 + rank * 257) % _BIG


def _saves(recipe: Recipe, after: int, steps: int, stop: Stop) -> bool:
    due = recipe.save_every and after % recipe.save_every == 0
    return bool(due) or after == steps or stop.asked


def _evaluates(recipe: Recipe, after: int, steps: int) -> bool:
    """In the middle; the end has a table of its own."""
    wanted = recipe.benchmarks and recipe.eval_every and 0 < after < steps
    return bool(wanted) and after % recipe.eval_every == 0


def _report(
    step: int,
    loss: Tensor,
    values: dict[str, Tensor],
    extra: dict[str, Tensor | float],
    meter: Meter,
    log: Log | None,
    display: Display,
) -> None:
    terms = {name: float(value) for name, value in values.items()}
    told = {"loss": float(loss), **{name: float(value) for name, value in extra.items()}}
    told |= meter.read()
    if log is not None:
        log.write(step, {**told, "terms": terms} | {f"loss/{k}": v for k, v in terms.items()})
    display.show(step, in_words(told, terms))


def _evaluate(run: Run, step: int, judge: Judge | None, log: Log | None) -> None:
    state = final_state(run)
    if judge is not None and log is not None:
        log.write(step, numbers(judge.now(state, step)), event="evaluation")
    run.ranks.wait()


def _refuse_infinite(finite: Tensor, folder: Path, step: int) -> None:
    """Asked where the host waits for the device anyway, and always before weights are kept."""
    if bool(finite):
        return
    kept = steps_in(folder)
    last = f"the checkpoint of step {kept[-1]:,} is kept" if kept else "no checkpoint was made yet"
    raise RunError(
        "E-LOSS-NON-FINITE",
        f"the loss is no longer a finite number (step {step:,} or shortly before); {last}: "
        "a smaller lr, more warmup, grad_clip=1 or precision=bf16 may help, in another folder.",
        step=step,
        kept=kept[-1] if kept else None,
    )


@contextmanager
def _batches(run: Run, done: int) -> Iterator[Iterator[Batch]]:
    count = run.recipe.accumulate
    stream = run.data.stream(done * count, run.steps * count)
    try:
        yield stream
    finally:
        close = getattr(stream, "close", None)  # ends its worker processes now, not some day
        if close is not None:
            close()


@contextmanager
def _logging(run: Run, folder: Path, done: int) -> Iterator[Log | None]:
    if not run.ranks.first:
        yield None
        return
    recipe = run.recipe
    config: dict[str, Any] = {**recipe.settled(), "digest": recipe.digest()}
    log = Log(folder, done, tensorboard=recipe.tensorboard, wandb=config if recipe.wandb else None)
    try:
        yield log
    finally:
        log.close()
