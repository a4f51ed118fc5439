"""Checkpoints that a training elsewhere writes, evaluated as they appear.

    FOLDER/epoch_1.pt, FOLDER/checkpoint-500/       what is watched: files and folders of models
    OUT/CHECKPOINT-STAMP/checkpoint.json            which checkpoint it was
    OUT/CHECKPOINT-STAMP/BENCHMARKS/                a run folder, as of a sweep

A watch is a sweep whose models are found instead of named. The results folder is its state: what is
done there is not done again, and stays when the checkpoint is deleted. A checkpoint that is written
over (`epoch_latest.pt`) is another one, with a stamp of its own.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from counterpoint._util.errors import DataError, RunError
from counterpoint._util.progress import Progress
from counterpoint._util.store import digest
from counterpoint._util.untrusted import parse_json
from counterpoint._util.writing import write_json
from counterpoint.benchmarks import load_benchmark
from counterpoint.evaluation.evaluating import slug
from counterpoint.evaluation.sweeping import CellJob, EvalPlan, cells_at, open_sweep, run_cell

PATH: Final = "{}"  # in a template of model ids
_ABOUT: Final = "checkpoint.json"
_WEIGHTS: Final = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")
_FOLDERS: Final = {"open_clip_config.json": "open_clip:local-dir:{}", "config.json": "hf:{}"}


@dataclass(frozen=True, slots=True)
class WatchedCheckpoint:
    """`name` is its path below the watched folder, `stamp` that of one state of its files."""

    name: str
    model: str
    stamp: str
    changed: float  # when, in seconds since 1970
    step: int | None  # the last number of its name


def find_checkpoints(folder: Path, template: str = "") -> list[WatchedCheckpoint]:
    """The checkpoints that are there now, the oldest first.

    A folder with a configuration and weights is one checkpoint; every other file of weights is one
    too. `template` is the model id of all, with {} for the path; folders need none.
    """
    if not folder.is_dir():
        raise DataError("E-FILE-MISSING", f"{folder}: no such folder to watch.")
    found, seen = [], set[Path]()
    for path, own in _candidates(folder):
        real = path.resolve()
        if real in seen:  # a link to another one
            continue
        seen.add(real)
        if not (template or own):
            raise DataError(
                "E-CHECKPOINT-KIND",
                f"{path} is a file of weights without a configuration; say how to load such files: "
                "--as 'checkpoint:{}@ViT-B-32'.",
            )
        name = path.relative_to(folder).as_posix()
        state = _state(real)
        if state is not None:  # else it was deleted meanwhile
            numbers = re.findall(r"\d+", path.name)
            step = int(numbers[-1][:15]) if numbers else None
            model = (template or own).replace(PATH, str(path))
            found.append(WatchedCheckpoint(name, model, *state, step))
    return sorted(found, key=lambda one: (one.changed, one.step or 0, one.name))


def _candidates(folder: Path) -> Iterator[tuple[Path, str]]:
    """Paths of checkpoints, each with the template that its configuration stands for."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        weights = sorted(
            name for name in files if name.endswith(_WEIGHTS) and not name.startswith(".")
        )
        config = next((name for name in _FOLDERS if name in files), None)
        if config is not None and weights:
            folders.clear()
            yield Path(place), _FOLDERS[config]
        else:
            yield from ((Path(place, name), "") for name in weights)


def _state(path: Path) -> tuple[str, float] | None:
    """A stamp of the files of a checkpoint, and when the last of them was changed."""
    try:
        files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
        stats = [(one.name, one.stat()) for one in files]
    except OSError:
        return None
    parts = [f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats]
    newest = max((stat.st_mtime for _, stat in stats), default=0.0)
    return digest(*parts).hex()[:12], newest


class Watch:
    """What is watched, and what came of it. `settings` are arguments of `evaluate`."""

    def __init__(
        self,
        folder: Path,
        benchmarks: Sequence[str],
        out: Path,
        *,
        template: str = "",
        settle: float = 10.0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """`settle`: for how many seconds a checkpoint has to stay as it is: then it is complete."""
        if template and PATH not in template:
            what = f"--as {template!r} has no {PATH} in the place of the path."
            raise DataError("E-CHECKPOINT-KIND", what)
        self.folder, self.out, self.template, self.settle = folder, out.absolute(), template, settle
        self.benchmarks, self.settings = tuple(benchmarks), dict(settings or {})
        data, protocol = (self.settings.get(key) for key in ("data", "protocol"))
        for name in benchmarks:  # now, and not when the first checkpoint is there
            load_benchmark(name, data, protocol=protocol)
        open_sweep(EvalPlan((), self.benchmarks, self.settings), out)
        self._tried: set[Path] = set()
        self._seen: dict[tuple[str, str], float] = {}

    def look(self) -> tuple[list[WatchedCheckpoint], int]:
        """The complete checkpoints that are not evaluated, and how many are being written."""
        new, written = [], 0
        for one in find_checkpoints(self.folder, self.template):
            place = self._place(one)
            cells = cells_at(place, one.model, self.benchmarks)
            if place in self._tried or all(cell.state == "done" for cell in cells):
                continue
            if self._is_complete(one):
                new.append(one)
            else:
                written += 1
        return new, written

    def _is_complete(self, one: WatchedCheckpoint) -> bool:
        """By its own time, or because it was seen like this: clocks of machines differ."""
        first = self._seen.setdefault((one.name, one.stamp), time.monotonic())
        return max(time.time() - one.changed, time.monotonic() - first) >= self.settle

    def evaluate(
        self, one: WatchedCheckpoint, device: str = "auto", progress: Progress | None = None
    ) -> list[str]:
        """Evaluate one; returns why benchmarks failed. What failed is tried again by the next
        watch, and when the checkpoint is written again."""
        place = self._place(one)
        cells = cells_at(place, one.model, self.benchmarks)
        names = tuple(cell.benchmark for cell in cells if cell.state != "done")
        write_json(place / _ABOUT, asdict(one), RunError)
        run_cell(CellJob(one.model, names, place, self.settings), device, progress)
        now = {other.name: other.stamp for other in find_checkpoints(self.folder, self.template)}
        if now.get(one.name, one.stamp) != one.stamp:
            shutil.rmtree(place)  # which state was loaded is unknown
            return [f"{one.name} was written again meanwhile; its new state comes next."]
        self._tried.add(place)
        cells = cells_at(place, one.model, self.benchmarks)
        failed: dict[str, list[str]] = {}
        for cell in cells:
            if cell.state == "failed":
                failed.setdefault(cell.why, []).append(cell.benchmark)
        return [f"{', '.join(names)}: {why}" for why, names in failed.items()]

    def runs(self) -> list[tuple[WatchedCheckpoint, list[Path]]]:
        """The run folders of all that was evaluated, also before this watch, in the order of the
        training."""
        found = []
        for about in sorted(self.out.glob(f"*/{_ABOUT}")):
            try:
                one = WatchedCheckpoint(**parse_json(about.read_bytes(), about, RunError))
            except (RunError, TypeError):  # damaged: it is made again with its run
                continue
            cells = cells_at(about.parent, one.model, self.benchmarks)
            folders = dict.fromkeys(cell.folder for cell in cells if cell.state == "done")
            if folders:
                found.append((one, [Path(folder) for folder in folders]))
        return sorted(found, key=lambda pair: (pair[0].changed, pair[0].step or 0, pair[0].name))

    def _place(self, one: WatchedCheckpoint) -> Path:
        return self.out / f"{slug(one.name)[:60]}-{digest(one.model, one.stamp).hex()[:8]}"
