"""`counterpoint train`: finetune a model by a recipe, and print what training changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from counterpoint._util.progress import Bars
from counterpoint.cli.console import AsJson, counted, errors, output, print_json

if TYPE_CHECKING:
    from counterpoint.training import Trained


class TrainingBar:
    """A bar with the loss, its terms and the speed; without a terminal, nothing but remarks."""

    def __init__(self, bars: Progress) -> None:
        self.bars = bars
        self._task: Any = None

    def begin(self, what: str, total: int, done: int) -> None:
        self.bars.start()
        self._task = self.bars.add_task(what, total=total, completed=done, values="")

    def show(self, done: int, line: str) -> None:
        self.bars.update(self._task, completed=done, values=line)

    def say(self, line: str) -> None:
        errors.print(line, soft_wrap=True)


@contextmanager
def training_bars() -> Iterator[Progress]:
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[values]}", markup=False),
    )
    bars = Progress(*columns, console=errors)
    try:
        yield bars
    finally:
        if bars.live.is_started:
            bars.stop()


class Preparing(Bars):
    """The bars of what comes before training, in the same place."""

    def start(self, what: str, total: int | None) -> Any:
        self.bars.start()
        task = self.bars.add_task(what, total=total, values="")
        return lambda steps: self.bars.update(task, advance=steps)


def train(
    recipe: Annotated[
        str, typer.Argument(help="A recipe (`counterpoint ls recipes`) or a .yaml file.")
    ],
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Changes: lr=1e-5 data.path=train.parquet"),
    ] = None,
    world: Annotated[
        bool,
        typer.Option(
            "--world", help="Train on the synthetic world: its base model, scenes drawn on the fly."
        ),
    ] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Print the recipe with the changes and exit.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Finetune a model with hard positives and hard negatives.

    Examples:

    counterpoint train hp-hn --world out=runs/hp-hn

    counterpoint train negclip data.path=train.parquet data.images=coco/train2014

    torchrun --nproc-per-node 4 -m counterpoint train hp-hn data.path=train.parquet

    counterpoint train clip-ft model=hf:FOLDER lock=image data.path=train.parquet

    counterpoint train --show hp-hn

    After an interruption the same command continues from the last checkpoint.
    See docs/train/index.md.
    """
    from counterpoint.training import load_recipe

    if show:
        _show(recipe, changes or [], world)
        return
    chosen = load_recipe(recipe, changes or [], world=world)
    from counterpoint.training import train as run_training

    with training_bars() as bars:
        trained = run_training(chosen, TrainingBar(bars), Preparing(bars))
    if trained is None:  # under torchrun the first process speaks
        return
    _tell(trained, as_json)


def _show(recipe: str, changes: list[str], world: bool) -> None:
    from counterpoint.training import as_yaml, check, merged, recipe_text

    if not changes and not world:
        output.print(recipe_text(recipe).rstrip(), soft_wrap=True)
        return
    values = merged(recipe, changes, world=world)
    check(recipe, values)
    output.print(as_yaml(values).rstrip(), soft_wrap=True)


def _tell(trained: Trained, as_json: bool) -> None:
    from counterpoint.runs import as_json as rows_as_json

    for problem, number in trained.problems.items():
        errors.print(f"note: {counted(number, 'time')}: {problem}", style="yellow", soft_wrap=True)
    if trained.outcome is None:
        errors.print(
            "note: the recipe names no benchmarks, so there is no table and no outcome.json; the "
            "same command with benchmarks=[BENCHMARK,...] evaluates this model and its start",
            markup=False,
            style="yellow",
            soft_wrap=True,
        )
    if as_json:
        told: dict[str, Any] = {"folder": str(trained.folder), "model": trained.model}
        changes = [] if trained.outcome is None else rows_as_json(trained.outcome.changes)
        if trained.best is not None:
            best = trained.best
            told["best"] = {"step": best.step, "metric": best.metric, "value": best.value}
        print_json([{**told, "steps": trained.steps, "outcome": changes}])
        return
    if trained.outcome is not None:
        from counterpoint.cli.tables import print_outcome

        print_outcome(trained.outcome)
    if trained.best is not None:
        output.print(
            f"best validation: {trained.best.metric} {trained.best.value:.4f} after step "
            f"{trained.best.step:,}, whose weights are kept",
            soft_wrap=True,
        )
    output.print(
        f"trained {counted(trained.steps, 'step')}: use it as -m {trained.model}", soft_wrap=True
    )
