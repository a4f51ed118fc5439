"""Suggested commands work as they are printed, however the program was started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from counterpoint.cli.console import command


def program(folder: Path, name: str = "counterpoint") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv" / "bin" / "python"))
    monkeypatch.setattr(sys, "argv", [".venv/bin/counterpoint", "demo"])
    return tmp_path


def test_a_program_that_is_not_on_the_path_is_named_with_its_folder(place, monkeypatch):
    program(place / ".venv" / "bin")
    assert command("ls") == ".venv/bin/counterpoint ls"
    monkeypatch.setattr(sys, "argv", [str(place / "src" / "__main__.py"), "demo"])
    assert command("ls") == ".venv/bin/counterpoint ls"  # `python -m counterpoint`
    (place / "below").mkdir()
    monkeypatch.chdir(place / "below")
    assert command("ls") == f"{place}/.venv/bin/counterpoint ls"


def test_a_program_on_the_path_is_named_alone(place, monkeypatch):
    mine = program(place / ".venv" / "bin")
    monkeypatch.setenv("PATH", str(mine.parent))
    assert command("ls") == "counterpoint ls"
    (place / "links").mkdir()
    (place / "links" / "counterpoint").symlink_to(mine)
    monkeypatch.setenv("PATH", str(place / "links"))
    assert command("ls") == "counterpoint ls"


def test_another_program_of_that_name_is_not_suggested(place, monkeypatch):
    program(place / ".venv" / "bin")
    monkeypatch.setenv("PATH", str(program(place / "other").parent))
    assert command("ls") == ".venv/bin/counterpoint ls"


def test_without_a_script_python_runs_the_package(place, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["script.py"])
    monkeypatch.setattr(sys, "executable", str(place / "my python" / "python"))
    assert command("ls") == "'my python/python' -m counterpoint ls"
