"""`counterpoint train`: finetune a model by a recipe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from counterpoint.cli.console import counted, errors, output, print_json
from counterpoint.cli.options import AsJson
from counterpoint.progress import Bars

if TYPE_CHECKING:
    from counterpoint.train.loop import Trained


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


class _Preparing(Bars):
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
        bool, typer.Option("--world", help="In the world: its base model, scenes drawn on the fly.")
    ] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Print the recipe, with the changes, and end.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Finetune a model with hard positives and hard negatives.

    Examples:

    counterpoint train hp-hn --world out=runs/hp-hn

    counterpoint train negclip data.path=train.parquet data.images=coco/train2014

    torchrun --nproc-per-node 4 -m counterpoint train hp-hn data.path=train.parquet

    counterpoint train --show hp-hn

    Killed or interrupted, the same command goes on from its last checkpoint.
    See docs/train/index.md.
    """
    from counterpoint.train.reading import load_recipe

    if show:
        _show(recipe, changes or [], world)
        return
    chosen = load_recipe(recipe, changes or [], world=world)
    from counterpoint.train.loop import train as run_training

    with training_bars() as bars:
        trained = run_training(chosen, TrainingBar(bars), _Preparing(bars))
    if trained is None:  # under torchrun the first process speaks
        return
    _tell(trained, as_json)


def _show(recipe: str, changes: list[str], world: bool) -> None:
    from counterpoint.train.reading import as_yaml, check, merged, recipe_text

    if not changes and not world:
        output.print(recipe_text(recipe).rstrip(), soft_wrap=True)
        return
    values = merged(recipe, changes, world=world)
    check(recipe, values)
    output.print(as_yaml(values).rstrip(), soft_wrap=True)


def _tell(trained: Trained, as_json: bool) -> None:
    from counterpoint import results

    for problem, number in trained.problems.items():
        errors.print(f"note: {counted(number, 'time')}: {problem}", style="yellow", soft_wrap=True)
    if as_json:
        told: dict[str, Any] = {"folder": str(trained.folder), "model": trained.model}
        changes = [] if trained.outcome is None else results.as_json(trained.outcome.changes)
        print_json([{**told, "steps": trained.steps, "outcome": changes}])
        return
    if trained.outcome is not None:
        from counterpoint.cli.outcome import print_outcome

        print_outcome(trained.outcome)
    output.print(
        f"trained {counted(trained.steps, 'step')}: use it as -m {trained.model}", soft_wrap=True
    )
