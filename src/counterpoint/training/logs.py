"""The log of a training run: JSON lines, TensorBoard and W&B on request, a progress bar."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from counterpoint._util.errors import DataError, MissingExtraError, RunError
from counterpoint._util.untrusted import parse_json
from counterpoint._util.writing import whole_file

LOG: Final = "log.jsonl"


class Display:
    """Something that shows how far a run is; this one shows nothing."""

    def begin(self, what: str, total: int, done: int) -> None: ...

    def show(self, done: int, line: str) -> None:
        """`done` steps are done; `line` is the last values in words."""

    def say(self, line: str) -> None:
        """A remark that should stay on the screen."""


class Log:
    """`log.jsonl` in the run folder: a line holds `step` (steps done) and numbers.

    A run that goes on forgets what it logged after the checkpoint it starts from.
    """

    def __init__(
        self, folder: Path, done: int, *, tensorboard: bool, wandb: Mapping[str, Any] | None
    ) -> None:
        self.path = folder / LOG
        self._forget(done)
        self._wandb = None if wandb is None else _wandb(folder, wandb)
        self._board = _board(folder / "tensorboard", done) if tensorboard else None
        self._file = self.path.open("a", encoding="utf-8")

    def write(self, step: int, values: Mapping[str, Any], event: str = "step") -> None:
        line = {"event": event, "step": step, **_finite(values)}
        self._file.write(json.dumps(line, allow_nan=False) + "\n")
        self._file.flush()
        numbers = {k: v for k, v in values.items() if isinstance(v, int | float)}
        if self._board is not None:
            for name, value in numbers.items():
                self._board.add_scalar(name, value, step)
        if self._wandb is not None:
            self._wandb.log(numbers, step=step)

    def close(self) -> None:
        self._file.close()
        if self._board is not None:
            self._board.close()
        if self._wandb is not None:
            self._wandb.finish()

    def _forget(self, done: int) -> None:
        if not self.path.is_file():
            return
        lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        kept = [line for line in lines if line and _step(line) <= done]
        with whole_file(self.path, RunError) as draft:
            draft.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")


def _finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no word for what is no number (a gradient that overflowed): null."""
    return {
        name: _finite(value)
        if isinstance(value, Mapping)
        else None
        if isinstance(value, float) and not math.isfinite(value)
        else value
        for name, value in values.items()
    }


def _step(line: str) -> float:
    """The step of a line; a line that a kill cut off belongs to no step."""
    try:
        return int(parse_json(line, LOG)["step"])
    except (DataError, ValueError, LookupError, TypeError, OverflowError):
        return math.inf


def _board(folder: Path, done: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingExtraError("tensorboard=true", "train") from None
    return SummaryWriter(str(folder), purge_step=done + 1)


def _wandb(folder: Path, recipe: Mapping[str, Any]) -> Any:
    try:
        import wandb  # type: ignore[import-not-found]
    except ImportError:
        raise RunError(
            "E-PACKAGE-MISSING", "wandb=true needs W&B's package: pip install wandb."
        ) from None
    # one id a folder, so that a run that goes on is the same run there
    id = f"{folder.resolve().name}-{recipe['digest']}"
    return wandb.init(project="counterpoint", id=id, resume="allow", config=dict(recipe))


class Meter:
    """Speed, and the share of time that was lost waiting for data, since the last line.

    A host that waits loses nothing as long as its GPU still has work queued. So on a GPU two events
    are put into its queue, after a step's work and after the next batch has come: what lies between
    them is how long it had nothing to do, and counts as far as the host waited for data meanwhile.
    Of several batches to a step only the first has an event before it; for the others all of the
    host's waiting counts.
    """

    def __init__(self) -> None:
        self._since = time.perf_counter()
        self._waited, self._samples, self._steps = 0.0, 0, 0
        self._gaps: list[tuple[Any, Any, float]] = []
        self._done = _mark()

    def waited(self, seconds: float) -> None:
        """The host has waited so long for a batch, which has just come."""
        before, self._done = self._done, None
        if before is None:
            self._waited += seconds
        else:
            self._gaps.append((before, _mark(), seconds))

    def stepped(self, samples: int) -> None:
        """All work of a step is queued."""
        self._samples += samples
        self._steps += 1
        self._done = _mark()

    def read(self) -> dict[str, float]:
        """Values of this stretch; the next begins. Waits for the GPU up to the last batch."""
        for before, after, seconds in self._gaps:
            after.synchronize()
            self._waited += min(seconds, before.elapsed_time(after) / 1000)
        passed = max(1e-9, time.perf_counter() - self._since)
        values = {
            "samples_per_second": self._samples / passed,
            "seconds_per_step": passed / max(1, self._steps),
            "stall": self._waited / passed,
        }
        self.__init__()  # type: ignore[misc]
        return values


def _mark() -> Any:
    """An event in the GPU's queue; None where no GPU is in use."""
    import torch

    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return None
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def in_words(values: Mapping[str, float], terms: Mapping[str, float]) -> str:
    """One line for the bar: the loss, its terms, the speed."""
    parts = [f"loss {values['loss']:.3f}"]
    if len(terms) > 1:
        parts.append("(" + ", ".join(f"{name} {value:.3f}" for name, value in terms.items()) + ")")
    parts.append(f"{values['samples_per_second']:,.0f}/s")
    if values["stall"] >= 0.05:
        parts.append(f"waits for data {100 * values['stall']:.0f} %")
    return " ".join(parts)
