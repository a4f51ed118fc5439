"""Start and tuned model on the recipe's benchmarks: every N steps, and in the end."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from counterpoint._util.progress import Progress
from counterpoint.evaluation import OUTCOME_FILE, Outcome, evaluate, evaluate_outcome
from counterpoint.models import LoadOptions, Runtime
from counterpoint.models.openclip import OpenClip, OpenClipSource
from counterpoint.training.model import open_start

if TYPE_CHECKING:
    from counterpoint.runs import Run as Evaluated
    from counterpoint.training.building import Run


class Judge:
    """Evaluates the model as it is now. Only the first rank has one."""

    def __init__(self, run: Run, folder: Path, progress: Progress | None) -> None:
        self.run, self.folder, self.progress = run, folder, progress
        self._start: Evaluated | None = None

    def now(self, state: Mapping[str, Tensor], step: int) -> Outcome:
        """In the middle of training: below `evaluations/`, its vectors not kept."""
        out = _place(self.folder, step)
        start = self._started()
        model = (f"{self.run.recipe.name} at step {step}", self._tuned(state))
        with tempfile.TemporaryDirectory() as store:
            return self._outcome(start, model, out, Path(store))

    def finally_(self, id: str) -> Outcome:
        """The finished model, as it was saved: `start/`, `tuned/` and `outcome.json` in the run."""
        return self._outcome(self._started(), id, self.folder, None)

    def _started(self) -> Evaluated:
        if self._start is None:
            recipe, device = self.run.recipe, self.run.ranks.device.type
            [self._start] = evaluate(
                recipe.model,
                recipe.benchmarks,
                out=self.folder / "start",
                device=device,
                progress=self.progress,
            )
        return self._start

    def _tuned(self, state: Mapping[str, Tensor]) -> OpenClip:
        recipe, device = self.run.recipe, self.run.ranks.device.type
        fresh = open_start(recipe.model, device)
        fresh.model.load_state_dict(dict(state))
        place = Runtime(LoadOptions(device))
        return OpenClip(
            OpenClipSource(recipe.name, recipe.name, None), fresh.model, fresh.tokenizer, place
        )

    def _outcome(
        self, start: Evaluated, tuned: str | tuple[str, OpenClip], out: Path, store: Path | None
    ) -> Outcome:
        return evaluate_outcome(
            start,
            tuned,
            self.run.recipe.benchmarks,
            out,
            device=self.run.ranks.device.type,
            store=store,
            progress=self.progress,
        )


def made(folder: Path, step: int) -> bool:
    """Whether the evaluation after `step` steps has come to its end."""
    return (_place(folder, step) / OUTCOME_FILE).is_file()


def _place(folder: Path, step: int) -> Path:
    return folder / "evaluations" / f"step-{step:08d}"


def numbers(outcome: Outcome) -> dict[str, float]:
    """For the log: what the tuned model has, by benchmark, group and metric."""
    return {
        "/".join(p for p in (c.benchmark, c.group if c.group != "all" else "", c.metric) if p): (
            c.tuned
        )
        for c in outcome.changes
    }
