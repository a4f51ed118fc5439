"""Training, read from top to bottom: build, train, save, evaluate.

A step is: batch -> towers -> join -> loss -> backward -> optimiser -> log -> checkpoint.

Everything that a step depends on is in the checkpoint, or a pure function of the recipe and the
step's number. So a run that was stopped and started again ends with the weights of a run that was
not stopped: bit for bit where the arithmetic is deterministic (on a CPU, with the same number of
threads and ranks).
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from counterpoint._util.errors import DataError, RunError
from counterpoint._util.progress import Progress
from counterpoint._util.writing import whole_folder
from counterpoint.benchmarks import find_benchmark
from counterpoint.evaluation import (
    OUTCOME_FILE,
    Outcome,
    copy_records,
    evaluate,
    evaluate_outcome,
    mix_weights,
)
from counterpoint.models import records_in
from counterpoint.training.checkpoints import (
    capture,
    claimed,
    problems_of,
    record_data,
    refuse_unlike,
    resume,
    save,
    steps_in,
    whole,
)
from counterpoint.training.locking import recipe_start
from counterpoint.training.logs import Display, Log, Meter, in_words
from counterpoint.training.processes import Stop, processes, stop_between_steps
from counterpoint.training.recipe import Recipe
from counterpoint.training.setup import arithmetic, build, merged_state
from counterpoint.training.steps import TrainingRun, gradients, update
from counterpoint.training.towers import save_start, saved_id, with_weights
from counterpoint.training.validation import (
    BEST,
    Validated,
    Validator,
    copy_best,
    validated,
    validates,
)

if TYPE_CHECKING:
    from counterpoint.runs import Run
    from counterpoint.scoring import Model

MODEL: Final = "model"  # the folder of the finished model, in the run's folder
_DTYPES: Final = {"fp32": torch.float32, "fp16": torch.float16}


@dataclass(frozen=True, slots=True)
class Trained:
    """The result of a finished run: `model` is an id for `counterpoint eval`."""

    folder: Path
    model: str
    steps: int
    problems: dict[str, int]  # what the data had to leave out, and how often
    outcome: Outcome | None  # the start against the tuned model, if the recipe names benchmarks
    best: Validated | None = None  # what the model is, if the recipe has a validation


def train(
    recipe: Recipe,
    display: Display | None = None,
    progress: Progress | None = None,
    *,
    like: Path | None = None,
) -> Trained | None:
    """Train as the recipe says, from its last checkpoint if there is one.

    `like`: the folder of a finished run; training on other data than it is refused. Under torchrun
    every process calls this; all but the first get None.
    """
    folder = recipe.folder
    with processes(recipe) as ranks, arithmetic(recipe.precision, ranks.device):
        _refuse_missing(recipe)
        shown = display if display is not None and ranks.first else Display()
        with claimed(recipe, folder) if ranks.first else nullcontext():
            ranks.wait()

            # Build: model, data, loss, optimiser; then the state of the last checkpoint.
            run = build(recipe, ranks, progress if ranks.first else None)
            done = resume(run)
            if like is not None:
                refuse_unlike(like, run)
            if ranks.first:
                record_data(run, progress, begun=done > 0)
            evaluator = Evaluator(run, progress) if ranks.first and recipe.benchmarks else None
            validator = Validator(run, progress) if ranks.first and recipe.validation else None

            # Train: step after step.
            try:
                _train(run, done, shown, evaluator, validator)
            except torch.OutOfMemoryError as error:
                raise _gpu_full(recipe, str(error)) from None

            # Save: the last weights, or the best.
            state = final_state(run)
            problems = problems_of(run).told()
            if not ranks.first:
                return None
            best = None if validator is None else validator.best
            if best is None:
                save_model(run, state)
            else:
                copy_best(folder, folder / MODEL)
            model = saved_id(run.model.start, folder / MODEL)

            # Evaluate.
            outcome = None
            if evaluator is not None:
                shown.say(
                    f"saved {folder / MODEL}; now it and its start are evaluated on "
                    f"{', '.join(recipe.benchmarks)} (benchmarks=[] leaves this out)"
                )
                outcome = evaluator.evaluate_final(model)
            return Trained(folder, model, run.steps, problems, outcome, best)


# --- build (see setup.py) ---------------------------------------------------------------------


def _refuse_missing(recipe: Recipe) -> None:
    """What is missing is reported before a model is loaded, and not after the last step."""
    for id in recipe.benchmarks:
        find_benchmark(id)
    data = recipe.data
    if data.images is not None and not data.images.is_dir():
        raise DataError("E-FOLDER-MISSING", f"data.images={data.images}: no such folder.")
    if recipe.validation is not None and not recipe.validation.path.is_file():
        path = recipe.validation.path
        raise DataError("E-FILE-MISSING", f"validation.path={path}: no such file.")
    if data.kind == "pairs" and (missing := [p for p in data.paths if not p.is_file()]):
        raise DataError("E-FILE-MISSING", f"data.path={missing[0]}: no such file.")
    if data.kind != "world" and not data.path:
        raise DataError(
            "E-DATA-MISSING",
            f"recipe {recipe.name} needs data: data.path=FILE (`counterpoint export PAIRS --as "
            "training` makes one), or --world for the world's.",
        )


# --- train ---------------------------------------------------------------------------------------


def _train(
    run: TrainingRun,
    done: int,
    display: Display,
    evaluator: Evaluator | None,
    validator: Validator | None,
) -> None:
    recipe, ranks, folder = run.recipe, run.ranks, run.recipe.folder
    count = recipe.accumulate
    display.begin(recipe.name, run.steps, done)
    if done:
        display.say(f"going on from step {done:,} of {run.steps:,}")
    if ranks.device.type == "cpu" and recipe.precision != "fp32":
        display.say(f"{recipe.precision} on a CPU can be very slow: use precision=fp32 there")
    with (
        closing(_log(run, done)) if ranks.first else nullcontext() as log,
        closing(run.data.stream(done * count, run.steps * count)) as batches,
        stop_between_steps(alone=ranks.size == 1) as stop,
    ):
        stopped_in_evaluation = _evaluates(recipe, done, run.steps) and not evaluated(folder, done)
        stopped_in_validation = validates(run, done) and not validated(folder, done)
        ranks.wait()  # all ranks have looked before the first one begins to write
        with stop.at_once():
            if stopped_in_evaluation:
                _evaluate(run, done, evaluator, log)
            if stopped_in_validation:
                _validate(run, done, validator, log, display)
        meter = Meter()
        finite = torch.ones((), dtype=torch.bool, device=ranks.device)
        for step in range(done, run.steps):
            loss, values = gradients(run, step, batches, meter)
            extra = update(run, step)
            finite = finite & loss.isfinite()
            if run.stepper.scaler is None:  # a scaler leaves out a step that overflows
                finite = finite & torch.as_tensor(extra["grad_norm"]).isfinite()
            meter.stepped(recipe.batch * recipe.accumulate)
            after = step + 1
            if after % recipe.log_every == 0 or after == run.steps:
                _refuse_non_finite(finite, folder, after)
                _report(after, loss, values, extra, meter, log, display)
            evaluates = _evaluates(recipe, after, run.steps)
            measures = evaluates or validates(run, after)
            if measures or _saves(recipe, after, run.steps, stop):
                _refuse_non_finite(finite, folder, after)
                checkpoint = capture(run, after)
                if ranks.first:
                    save(folder, checkpoint, recipe.keep)
                ranks.wait()
            if stop.asked:
                raise stop.error()
            if measures:
                with stop.at_once():
                    if evaluates:
                        _evaluate(run, after, evaluator, log)
                    if validates(run, after):
                        _validate(run, after, validator, log, display)
                meter = Meter()


def _saves(recipe: Recipe, after: int, steps: int, stop: Stop) -> bool:
    due = recipe.save_every and after % recipe.save_every == 0
    return bool(due) or after == steps or stop.asked


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


def _refuse_non_finite(finite: Tensor, folder: Path, step: int) -> None:
    """Checked where the host waits for the device anyway, and always before weights are saved."""
    if bool(finite):
        return
    kept = _kept(folder)
    raise RunError(
        "E-LOSS-NON-FINITE",
        f"the loss is no longer a finite number (step {step:,} or shortly before); {kept}: "
        "a smaller lr, more warmup, grad_clip=1 or precision=bf16 may help, in another folder.",
    )


def _gpu_full(recipe: Recipe, words: str) -> RunError:
    kept = _kept(recipe.folder)
    return RunError(
        "E-GPU-FULL",
        f"the GPU is full with batch={recipe.batch} ({words.splitlines()[0].split('. GPU')[0]}); "
        f"{kept}: end what else runs on it and give the same command again, or begin another "
        f"folder with cached_batch={max(1, recipe.batch // 4)}, the same steps in less memory.",
    )


def _kept(folder: Path) -> str:
    """In words, what is kept."""
    steps = steps_in(folder)
    if not steps:
        return "no checkpoint was made yet"
    return f"the checkpoint of step {steps[-1]:,} is kept"


def _log(run: TrainingRun, done: int) -> Log:
    recipe = run.recipe
    config: dict[str, Any] = {**recipe.settled(), "digest": recipe.digest()}
    wandb = config if recipe.wandb else None
    return Log(recipe.folder, done, tensorboard=recipe.tensorboard, wandb=wandb)


# --- save ----------------------------------------------------------------------------------------


@torch.no_grad()
def final_state(run: TrainingRun) -> dict[str, Tensor]:
    """The weights by the names of the start's own library.

    They are the averaged ones if there are such, LoRA's factors are merged in, and they are mixed
    with the start's if the recipe says so. Every rank must call this: shards are put together.
    """
    parameters = run.parameters
    averaged = run.averaged if run.recipe.ema_as == "result" else {}
    own = {name: parameters[name].detach().clone() for name in averaged}
    for name, average in averaged.items():
        parameters[name].copy_(average)
    state = {name: whole(value) for name, value in merged_state(run.model.towers.clip).items()}
    for name, value in own.items():
        parameters[name].copy_(value)
    for name, start in run.origin.items():
        state[name] = mix_weights(start.to(state[name].device), state[name], run.recipe.wise)
    return state


def save_model(
    run: TrainingRun, state: Mapping[str, Tensor], name: str = MODEL, **about_it: Any
) -> None:
    """Write a model as a folder of the start's own library, with what is said about it."""
    dtype = _DTYPES[run.recipe.save_as]
    stored = {k: v.to(dtype) if v.is_floating_point() else v for k, v in state.items()}
    about = {
        "start": {"id": run.recipe.start, "fingerprint": run.fingerprint},
        "steps": run.steps,
        "recipe": run.recipe.settled(),
        "notes": list(run.model.start.notes),
        **about_it,
    }
    with whole_folder(run.recipe.folder / name, RunError) as draft:
        save_start(draft, run.recipe.start, run.model.start, stored, about)
        copy_records(records_in(run.recipe.folder), draft)


# --- evaluate ------------------------------------------------------------------------------------


class Evaluator:
    """Start and tuned model on the recipe's benchmarks. Only the first rank has one."""

    def __init__(self, run: TrainingRun, progress: Progress | None) -> None:
        self.run, self.folder, self.progress = run, run.recipe.folder, progress
        self._start: Run | None = None

    def evaluate_now(self, state: Mapping[str, Tensor], step: int) -> Outcome:
        """In the middle of training: below `evaluations/`; its vectors are not stored."""
        recipe, records = self.run.recipe, records_in(self.folder)
        start = recipe_start(recipe, self.run.ranks.device.type)
        model = with_weights(start, state, recipe.name, records)
        with tempfile.TemporaryDirectory() as store:
            named, folder = (f"{recipe.name} at step {step}", model), self.folder
            return self._outcome(named, _evaluation_folder(folder, step), Path(store))

    def evaluate_final(self, id: str) -> Outcome:
        """The finished model, as it was saved: `start/`, `tuned/` and `outcome.json` in the run."""
        return self._outcome(id, self.folder)

    def _outcome(
        self, tuned: str | tuple[str, Model], out: Path, store: Path | None = None
    ) -> Outcome:
        recipe, device = self.run.recipe, self.run.ranks.device.type
        asked: Any = {"device": device, "progress": self.progress}
        if self._start is None:
            folder = self.folder / "start"
            self._start = evaluate(recipe.start, recipe.benchmarks, out=folder, **asked)
        return evaluate_outcome(self._start, tuned, recipe.benchmarks, out, store=store, **asked)


def _evaluates(recipe: Recipe, after: int, steps: int) -> bool:
    """Whether there is an evaluation after so many steps; the one at the end is separate."""
    wanted = recipe.benchmarks and recipe.eval_every and 0 < after < steps
    return bool(wanted) and after % recipe.eval_every == 0


def _evaluate(run: TrainingRun, step: int, evaluator: Evaluator | None, log: Log | None) -> None:
    state = final_state(run)
    if evaluator is not None and log is not None:
        log.write(step, _tuned_values(evaluator.evaluate_now(state, step)), event="evaluation")
    run.ranks.wait()


def _validate(
    run: TrainingRun, step: int, validator: Validator | None, log: Log | None, display: Display
) -> None:
    state = final_state(run)
    if validator is not None and log is not None:
        found = validator.value(state)
        if validator.improves(step, found):
            save_model(
                run,
                state,
                BEST,
                validated={"step": step, "metric": validator.metric, "value": found},
            )
        validator.record(step, found)
        log.write(step, {validator.metric: found}, event="validation")
        display.say(validator.in_words(step, found))
    run.ranks.wait()


def _tuned_values(outcome: Outcome) -> dict[str, float]:
    """The values of the tuned model by benchmark, group and metric, for the log."""
    return {
        "/".join(p for p in (c.benchmark, c.group if c.group != "all" else "", c.metric) if p): (
            c.tuned
        )
        for c in outcome.changes
    }


def evaluated(folder: Path, step: int) -> bool:
    """Whether the evaluation after `step` steps was finished."""
    return (_evaluation_folder(folder, step) / OUTCOME_FILE).is_file()


def _evaluation_folder(folder: Path, step: int) -> Path:
    return folder / "evaluations" / f"step-{step:08d}"
