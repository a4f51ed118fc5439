"""Models that are loaded in other processes, with the trouble that they have there. No torch.

with placed("cpu,cpu", partial(load, "dual", partial(slow, folder))) as model:
    evaluate(("m", model), table)
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from models_for_tests import Judge, Reader, Towers, choice, write_images

from counterpoint import evaluate
from counterpoint._util.errors import ModelError
from counterpoint.cases.table import Cases
from counterpoint.images import Picture
from counterpoint.scoring import Processes, RayWorkers, distributed
from counterpoint.scoring.kinds import RefusedInputsError

Trouble = Callable[[int], None]  # called with the number of items of every batch
KINDS = ("dual", "pairs", "blind")
IMAGES, BATCH = 21, 4
WORLD = "world-swap:size=150"


# --- models --------------------------------------------------------------------------------------


class TroubledTowers(Towers):
    """Its vectors depend on the batch, as those of a network do, but more."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__("troubled towers")
        self.trouble = trouble

    def _encode(self, contents: Sequence[str]) -> np.ndarray:
        self.trouble(len(contents))
        return super()._encode(contents) + np.float32(len(contents))


class TroubledJudge(Judge):
    """Refuses captions about sevens."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__()
        self.trouble = trouble

    def score_pairs(self, pictures: Sequence[Picture], captions: Sequence[str]) -> np.ndarray:
        self.trouble(len(captions))
        values = super().score_pairs(pictures, captions)
        refused = [n for n, caption in enumerate(captions) if caption.endswith("7")]
        if refused:
            why = {n: f"{captions[n]} is about a seven." for n in refused}
            raise RefusedInputsError(np.delete(values, refused), why)
        return values


class TroubledReader(Reader):
    def __init__(self, trouble: Trouble) -> None:
        super().__init__()
        self.trouble = trouble

    def score_captions(self, captions: Sequence[str]) -> np.ndarray:
        self.trouble(len(captions))
        return super().score_captions(captions)


def load(kind: str, trouble: Trouble) -> Any:
    return {"dual": TroubledTowers, "pairs": TroubledJudge, "blind": TroubledReader}[kind](trouble)


def load_badly(folder: Path) -> Any:
    """The first process loads it, others do not."""
    try:
        (folder / "loaded").open("x").close()
    except FileExistsError:
        raise ModelError("E-MODEL-OUTPUT", "there is no such device.") from None
    return load("dual", partial(slow, folder))


# --- trouble -------------------------------------------------------------------------------------


def slow(folder: Path, items: int, pause: float = 0.01) -> None:
    """Leaves the number of its process as the name of a file."""
    (folder / f"{os.getpid()}.pid").touch()
    time.sleep(pause)


def counted(folder: Path, items: int) -> None:
    """Leaves a byte for every batch, of all processes together."""
    slow(folder, items, 0.05)
    with (folder / "counted").open("ab") as file:
        file.write(b".")


def tight(folder: Path, items: int) -> None:
    slow(folder, items, 0)
    if items > 3:
        raise MemoryError("no room")


def die_once(folder: Path, items: int) -> None:
    """Killed in its fifth batch, of all processes together, and never again."""
    slow(folder, items)
    with (folder / "batches").open("ab") as file:
        file.write(b".")
    if (folder / "batches").stat().st_size >= 5:
        with suppress(FileExistsError):
            (folder / "died").open("x").close()
            os.kill(os.getpid(), signal.SIGKILL)


def die(folder: Path, items: int) -> None:
    slow(folder, items, 0)
    os.kill(os.getpid(), signal.SIGKILL)


def fail(folder: Path, items: int) -> None:
    raise ModelError("E-MODEL-OUTPUT", "the weights are gone.")


class OddError(Exception):
    """Cannot be unpickled: it is made from two values, and has one."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one + two)


def fail_oddly(folder: Path, items: int) -> None:
    raise OddError("no ", "luck")


def fail_in_arithmetic(folder: Path, items: int) -> None:
    raise ZeroDivisionError("the mean of nothing")


def pids(folder: Path) -> set[int]:
    return {int(path.stem) for path in folder.glob("*.pid")}


def alive(folder: Path, seconds: float = 20) -> set[int]:
    """The processes that noted themselves and are still there after so long."""
    left, end = pids(folder), time.monotonic() + seconds
    while left and time.monotonic() < end:
        left = {pid for pid in left if Path(f"/proc/{pid}").exists() and not _zombie(pid)}
        time.sleep(0.05)
    return left


def _zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


# --- evaluations ---------------------------------------------------------------------------------


@contextmanager
def placed(where: str, load: Callable[[], Any], ray: Any = None) -> Iterator[Any]:
    """`here`, `cpu,cpu,...`, or the number of actors of `ray`."""
    if where == "here":
        yield load()
        return
    workers: Any
    if ray is None:
        workers = Processes([load] * len(where.split(",")))
    else:
        workers = RayWorkers(ray, load, int(where), 0, str(Path.cwd()))
    with closing(workers):
        yield distributed(workers)


def table(folder: Path) -> Cases:
    """Images of which one is broken and one missing; captions of many lengths."""
    names = [f"{n}.png" for n in range(IMAGES)]
    if not folder.exists():  # the store knows files by their time
        write_images(folder, *names[:-1])
        (folder / "3.png").write_bytes(b"this is no picture")
    rows = [
        choice(name, name, *(f"caption {'x ' * (n % 5)}{j} {n}" for j in range(3)))
        for n, name in enumerate(names)
    ]
    return Cases.build(rows, root=folder, source="test")


def evaluated(
    model: Any, cases: Cases, folder: Path, batch: int = BATCH
) -> tuple[dict[str, bytes], dict[bytes, bytes], Any]:
    """The tables of the run, the values of the store, and what was left out and why."""
    run = evaluate(
        ("m", model),
        cases,
        out=folder / "run",
        store=folder / "store",
        batch_size=batch,
        progress=None,
    )
    files = {path.name: path.read_bytes() for path in (folder / "run").glob("*.parquet")}
    [part] = run.parts.values()
    return files, stored(folder / "store"), part.left_out


def stored(folder: Path) -> dict[bytes, bytes]:
    with closing(sqlite3.connect(folder / "results.sqlite")) as file:
        return dict(file.execute("SELECT key, value FROM results"))


def plug_in(rest: str, options: object) -> Any:
    """A model family: `slow:FOLDER`."""
    return load("dual", partial(counted, Path(rest)))


# --- the command line ---------------------------------------------------------------------------

PLUG_IN = """[counterpoint.models]
slow = worker_models:plug_in
"""


def command(folder: Path, *options: str) -> subprocess.Popen[bytes]:
    """The command line, with a model of a plug-in, in a process group as in a terminal."""
    package = folder / "slow-1.dist-info"
    package.mkdir(exist_ok=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: slow\nVersion: 1\n")
    (package / "entry_points.txt").write_text(PLUG_IN)
    paths = os.pathsep.join(
        [str(folder), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    )
    words = ["eval", "-m", f"slow:{folder}", "-b", WORLD, "--batch-size", str(BATCH)]
    return subprocess.Popen(
        [sys.executable, "-m", "counterpoint", *words, *options, "--out", str(folder / "run")],
        env={**os.environ, "PYTHONPATH": paths, "COUNTERPOINT_CACHE": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def stopped(folder: Path, stop: signal.Signals, group: bool, *options: str) -> tuple[int, str]:
    """Stop the command when its model has worked; the exit status, and what it said.

    So many batches are not given out before the results of the first have come back, however slow
    the machine is.
    """
    child, done = command(folder, *options), folder / "counted"
    limit = time.monotonic() + 90
    while not (done.exists() and done.stat().st_size >= 12):
        assert child.poll() is None and time.monotonic() < limit
        time.sleep(0.01)
    (os.killpg if group else os.kill)(child.pid, stop)
    _, said = child.communicate(timeout=60)
    return child.returncode, said.decode()
