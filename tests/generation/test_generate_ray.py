"""`generate --engine ray`: the same file as from one process, whatever happens to a worker."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from caption_grammar import captions as made_captions
from errors import raises
from models_for_tests import is_sentence
from typer.testing import CliRunner

from counterpoint._util.processes import ray_cluster
from counterpoint.cli.app import app
from counterpoint.generation import run as running
from counterpoint.generation.drafts import TextSettings
from counterpoint.generation.inputs.captions import open_captions
from counterpoint.generation.run import generate

pytest.importorskip("ray")
pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]

SETTINGS = TextSettings("negative", ("negclip", "shuffle"))
MARK = f"counterpoint-test-{os.getpid()}"


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:  # workers have the environment of the cluster
        patch.setenv("COUNTERPOINT_MARK", MARK)
        with ray_cluster("local", 2) as joined:
            yield joined


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Captions for twenty pieces."""
    monkeypatch.setattr(running, "PIECE", 15)
    path = tmp_path / "captions.jsonl"
    path.write_text("\n".join(json.dumps({"caption": c}) for c in made_captions(300, seed=1)))
    return path


def made(file: Path, name: str, **place: Any) -> bytes:
    out = file.with_name(name)
    generate(open_captions(str(file)), SETTINGS, out, **place)
    return out.read_bytes()


def test_tasks_make_the_same_file(file: Path, ray: Any) -> None:
    expected = made(file, "here.parquet", workers=1)
    assert made(file, "processes.parquet", workers=2) == expected
    for workers in (1, 2, 4):
        assert made(file, f"{workers}.parquet", workers=workers, engine="ray") == expected
    out = file.with_name("command.parquet")
    words = ["-M", "negclip", "-M", "shuffle", "-o", str(out)]
    command = ["generate", "negatives", str(file), *words, "--engine", "ray", "--workers", "2"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert out.read_bytes() == expected


def workers_at_work() -> list[int]:
    """The processes of this module's cluster that make a part."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            busy = (folder / "cmdline").read_bytes().startswith(b"ray::_rules_part")
            if busy and MARK.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:  # it ended meanwhile
            continue
    return found


def test_a_killed_worker_loses_and_doubles_nothing(file: Path, ray: Any) -> None:
    expected = made(file, "here.parquet", workers=1)
    parts, killed = file.with_name("killed.parquet.parts"), list[int]()

    def kill() -> None:
        limit = time.monotonic() + 100
        while not killed and time.monotonic() < limit:
            busy = workers_at_work() if any(parts.glob("*-rules.parquet")) else []
            for pid in busy[:1]:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            time.sleep(0.002)

    killer = threading.Thread(target=kill)
    killer.start()
    found = made(file, "killed.parquet", workers=2, engine="ray")
    killer.join()
    assert found == expected and killed
    assert not parts.exists()


def test_machines_have_to_be_alike(
    file: Path, ray: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A worker with other words, and one that does not see the folder, say so."""
    monkeypatch.setattr(running, "_words", lambda settings: ("other words", "other model", ""))
    with raises("E-WORKERS-DIFFER") as caught:
        made(file, "words.parquet", engine="ray")
    assert is_sentence(caught.value)
    part = running._rules_part(("", "", ""), [], SETTINGS, tmp_path / "elsewhere" / "part.parquet")
    assert part is not None and is_sentence(part.error())
    assert part.error().code == "E-FOLDER-MISSING"  # type: ignore[attr-defined]


def test_an_engine_that_is_none(file: Path) -> None:
    with raises("E-OPTION-INVALID", "engine"):
        made(file, "none.parquet", engine="abacus")
