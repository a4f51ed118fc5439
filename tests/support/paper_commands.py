"""The tables of docs/papers.md, and a desk at which their commands run as they stand.

What the document writes in capitals for something that a reader has (IMAGES, FILE, MODEL) are files
and folders of these names, or `STANDS_FOR`. `SMALLER` is what is added to a command so that it ends
in time: fewer steps, smaller batches.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fastapi.testclient import TestClient

from counterpoint import studio
from counterpoint.cli.app import main
from counterpoint.runs import Run, load_run

DOCUMENT = Path(__file__).parents[2] / "docs" / "papers.md"

STANDS_FOR = {"-m MODEL": "-m open_clip:ViT-B-32-quickgelu/openai"}
_STEPS = "steps=2 batch=4 precision=fp32 device=cpu data.workers=0 warmup=1 log_every=1"
SMALLER = {
    "demo": "--size 12",
    "eval": "--allow-missing",  # of the published benchmarks; nothing of what is there
    "generate images": "--steps 2",
    "generate negatives": "--workers 1",
    "generate positives": "--workers 1",
    "sweep": _STEPS,
    "sweep plan.yaml": "",
    "sweep shuffles.yaml": "",
    "train": _STEPS,
}


class Row(NamedTuple):
    """What is redone, by which commands, and the files that the row says to write for them."""

    what: str
    commands: list[str]
    files: dict[str, str]


def read_document() -> dict[str, list[Row]]:
    """The rows of every section that has a table."""
    found: dict[str, list[Row]] = {}
    for part in DOCUMENT.read_text(encoding="utf-8").split("\n## ")[1:]:
        title = part.partition("\n")[0].partition(" (")[0]
        lines = [line for line in part.splitlines() if line.startswith("| ")][1:]
        plans = re.findall(r"```yaml\n# (\S+)\n(.*?)```", part, re.DOTALL)
        if lines:
            found[title] = [_row(line, dict(plans)) for line in lines]
    return found


def _row(line: str, plans: dict[str, str]) -> Row:
    what, *cells = (cell.strip() for cell in line.strip("| ").split(" | "))
    text = " ".join(cells)
    files = {name: content for name, content in plans.items() if name in text}
    files |= {name: content for content, name in re.findall(r"with `([^`]+)` in `([^`]+)`", text)}
    return Row(what, re.findall(r"`(counterpoint [^`]*)`", text), files)


class Done(NamedTuple):
    """A command that ended, what it printed, and the run folders that it wrote."""

    command: str
    code: int
    out: str
    err: str
    runs: list[Path]

    def run(self) -> Run:
        [folder] = self.runs
        return load_run(folder)


Expected = Callable[[Done], None]


class Desk:
    """Runs commands in the current folder, in this process."""

    def __init__(self, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> None:
        self.patch, self.capture = patch, capture
        self.latest = Path("RUN")
        patch.setattr(studio, "serve", self.serve)

    def serve(self, app: Any, host: str, port: int, announce: Callable[[str], None]) -> None:
        """In the place of a studio that runs until it is stopped: a visit to its first page."""
        base = f"http://{host}:{port}"
        announce(base)
        [link] = re.findall(r"/\?token=\S+", self.capture.readouterr().out)
        with TestClient(app, base_url=base, follow_redirects=True) as browser:
            sys.stdout.write(browser.get(link).text)

    def run(self, command: str) -> Done:
        before = dict(_run_folders())
        self.patch.setattr(sys, "argv", list(self.words(command)))
        self.capture.readouterr()
        with pytest.raises(SystemExit) as caught:
            main()
        said = self.capture.readouterr()
        runs = [path for path, time in _run_folders() if before.get(path) != time]
        self.latest = runs[-1] if runs else self.latest
        return Done(command, int(caught.value.code or 0), said.out, said.err, runs)

    def words(self, command: str) -> Iterator[str]:
        for name, value in STANDS_FOR.items():
            command = re.sub(rf"{name}\b", value, command)
        verbs = [verb for verb in SMALLER if f"{command} ".startswith(f"counterpoint {verb} ")]
        more = SMALLER[max(verbs, key=len)] if verbs else ""
        for word in shlex.split(f"{command} {more}"):
            yield str(self.latest) if word == "RUN" else word


def _run_folders() -> Iterator[tuple[Path, int]]:
    """The runs below here and when they were written, the last one last."""
    found = [(path.parent, path.stat().st_mtime_ns) for path in Path().rglob("run.json")]
    yield from sorted(found, key=lambda each: each[1])


def problems(rows: list[Row], expected: dict[str, list[Expected]], desk: Desk) -> list[str]:
    """Runs a paper's rows in order. A row must have as many expectations as commands."""
    names = [row.what for row in rows]
    found = [f"{name}: no such row" for name in expected if name not in names]
    for row in rows:
        wanted = expected.get(row.what, [])
        if not row.commands or len(row.commands) != len(wanted):
            found.append(f"{row.what}: {len(row.commands)} commands, {len(wanted)} expectations")
            continue
        for name, content in row.files.items():
            Path(name).write_text(f"{content}\n")
        for command, expectation in zip(row.commands, wanted, strict=True):
            if why := _problem(desk, command, expectation):
                found.append(f"{row.what}: {command}\n{why}")
    return found


def _problem(desk: Desk, command: str, expectation: Expected) -> str:
    done = desk.run(command)
    if done.code:
        return f"exit status {done.code}: {done.err or done.out}"
    try:
        expectation(done)
    except (AssertionError, OSError, LookupError, ValueError) as error:
        return f"{type(error).__name__}: {error}\n{done.out}{done.err}"
    return ""
