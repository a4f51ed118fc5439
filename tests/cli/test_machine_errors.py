"""What the machine does wrong is one sentence, and signals end a command with their status."""

from __future__ import annotations

import errno
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
import typer
from cli_support import counterpoint, own_place, run_folder, write_cases

from counterpoint.__main__ import main
from counterpoint._util.errors import CounterpointError, Terminated, explain, reason
from counterpoint._util.untrusted import parse_json, shortened, shown, without_controls
from counterpoint.cli import console

__all__ = ["counterpoint", "own_place"]  # fixtures
ESCAPE = "\x1b[31mred\x1b[0m\x1b]0;title\x9c"


# --- one sentence ------------------------------------------------------------------------------


MACHINE = [
    (OSError(errno.ENOSPC, "x", "/a/b"), "E-SYSTEM-ENOSPC", "/a/b"),
    (OSError(errno.EROFS, "x", "/a"), "E-SYSTEM-EROFS", "/a"),
    (PermissionError(errno.EACCES, "x", "/a"), "E-SYSTEM-EACCES", "/a"),
    (OSError(errno.ENAMETOOLONG, "x", "n"), "E-SYSTEM-ENAMETOOLONG", "n"),
    (OSError("cannot write mode"), "E-SYSTEM-OS", "cannot write mode"),
    (MemoryError(), "E-OUT-OF-MEMORY", "memory"),
    (pl.exceptions.ComputeError("No space left on device"), "E-SYSTEM-ENOSPC", "space"),
    (pl.exceptions.ComputeError("odd\nfile"), "E-FILE-BROKEN", "polars"),
]


def test_errors_of_the_machine_are_one_sentence():
    for error, code, word in MACHINE:
        found = explain(error)
        assert found is not None and found.code == code and word in str(found)
        assert "\n" not in str(found) and str(found).endswith(".")


def test_an_error_of_the_program_is_not_explained_away():
    assert explain(ValueError("x")) is None
    assert explain(KeyError("x")) is None
    assert reason(OSError()) == "OSError"


def test_a_current_folder_that_is_gone(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    found = explain(FileNotFoundError(errno.ENOENT, "x"))
    assert found is not None and found.code == "E-FOLDER-GONE"


@pytest.mark.slow
def test_every_verb_explains_what_the_machine_did(counterpoint, tmp_path):
    """A file stands where the output's folder should be."""
    file = write_cases("walls")
    run_folder("random", file, out="runs/a")
    run_folder("colours:b", file, out="runs/b")
    (tmp_path / "wall").write_text("x")
    for words in (
        ["eval", "-m", "random", "-b", file, "--out", "wall/run"],
        ["import", "runs/a/scores.parquet", "-b", file, "--name", "m", "--out", "wall/run"],
        ["report", "runs/a", "-o", "wall/page.html"],
        ["publish", "runs/a", "-o", "wall/published"],
        ["compare", "runs/a", "runs/b", "--html", "wall/page.html"],
    ):
        result = counterpoint(*words)
        assert result.code == 1, words
        assert result.err.count("error:") == 1 and "Traceback" not in result.err


def test_a_traceback_can_be_asked_for(monkeypatch, capsys):
    def verb() -> None:
        raise OSError(errno.ENOSPC, "x", "/a")

    with pytest.raises(typer.Exit):
        console.plainly(verb)()
    assert "[E-SYSTEM-ENOSPC]" in capsys.readouterr().err
    monkeypatch.setenv("COUNTERPOINT_TRACEBACK", "1")
    with pytest.raises(OSError, match="x"):
        console.plainly(verb)()


# --- signals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("stop", "status"), [(KeyboardInterrupt, 130), (Terminated, 143)])
@pytest.mark.parametrize("resumes", [True, False])
def test_an_interrupted_verb_promises_only_what_it_keeps(stop, status, resumes, capsys):
    def verb() -> None:
        raise stop

    with pytest.raises(typer.Exit) as caught:
        console.plainly(verb, resumes=resumes)()
    assert caught.value.exit_code == status
    assert ("the same command goes on" in capsys.readouterr().err) == resumes


SLOW = """
import sys, time
from pathlib import Path
import counterpoint.cli
from counterpoint.__main__ import main
from counterpoint.cli.console import plainly
from counterpoint._util.writing import whole_file

def verb():
    with whole_file(Path(sys.argv[1])) as draft:
        draft.write_text("half")
        print("writing", flush=True)
        time.sleep(60)

def run():
    import typer
    app = typer.Typer()
    app.command()(plainly(verb))
    app([])

counterpoint.cli.main = run
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stopped_command_leaves_nothing_half_written(tmp_path, number, status):
    child = subprocess.Popen(
        [sys.executable, "-c", SLOW, str(tmp_path / "out")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout and child.stdout.readline() == "writing\n"
    assert len(list(tmp_path.iterdir())) == 2  # the draft and the lock
    child.send_signal(number)
    said = child.communicate(timeout=30)[1]
    assert child.returncode == status
    assert list(tmp_path.iterdir()) == []
    assert said.splitlines() == ["interrupted; nothing was written."]


STOPPED = """
import os, signal, sys, time
import typer.core
from counterpoint import cli
from counterpoint.__main__ import main

def stop(*_, **__):
    os.kill(os.getpid(), getattr(signal, sys.argv[2]))
    sum(range(1000))

class Finalised:
    __del__ = stop

def in_an_import():
    import compiled
    time.sleep(60)

def in_a_finaliser():
    Finalised()
    time.sleep(60)

class Reader:
    def __del__(self):
        raise RuntimeError("the same signal has ended my worker")

def before_a_finaliser_fails():
    reader = Reader()
    try:
        stop()
    finally:
        del reader

def in_compiled_code():
    try:
        stop()
    except BaseException:
        raise TypeError("no type")

def in_typer(main=cli.main):
    typer.core.TyperGroup.make_context = stop
    main()

cli.main = globals()[sys.argv[1]]
main()
"""
COMPILED = """
import __main__
try:
    __main__.stop()
except BaseException:
    raise RuntimeError("half imported")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "name", "status"),
    [
        ("in_an_import", "SIGTERM", 143),
        ("in_an_import", "SIGINT", 130),
        ("in_a_finaliser", "SIGTERM", 143),
        ("in_a_finaliser", "SIGINT", 130),
        ("before_a_finaliser_fails", "SIGTERM", 143),
        ("in_compiled_code", "SIGTERM", 143),
        ("in_typer", "SIGTERM", 143),
    ],
)
def test_a_stop_where_others_hide_it(tmp_path, place, name, status):
    """Compiled modules make another error of it, Python ignores it, Typer makes it a Ctrl-C."""
    (tmp_path / "compiled.py").write_text(COMPILED)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", STOPPED, place, name],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert (done.returncode, done.stderr) == (status, "")


def test_an_error_that_is_no_stop_is_shown(monkeypatch):
    def run():
        raise TypeError("no type")

    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    monkeypatch.setattr("counterpoint.cli.main", run)
    with pytest.raises(TypeError, match="no type"):
        main()


# --- what comes from outside -------------------------------------------------------------------


def test_a_terminal_does_not_obey_a_caption():
    screen = io.StringIO()
    terminal = console.Terminal(file=screen, force_terminal=True, color_system="truecolor")
    terminal.print(f"group {ESCAPE}", style="red")
    text = screen.getvalue()
    assert "\\x1b[31mred\\x1b[0m\\x1b]0;title\\x9c" in text
    assert "\x1b]" not in text and "\x9c" not in text


@pytest.mark.slow
def test_group_labels_with_escape_codes_are_shown_and_not_obeyed(counterpoint):
    file = write_cases("walls")
    text = Path(file).read_text(encoding="utf-8")
    Path(file).write_text(text.replace("walls/red", "walls/\\u001b[31mred"), encoding="utf-8")
    result = counterpoint("eval", "-m", "random", "-b", file, "--groups")
    assert result.code == 0
    assert "\\x1b[" in result.out and "\x1b" not in result.out + result.err


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '"\\ud800"', '{"a": "\\uDFFF"}', "1" * 5000, "{", b"\xff", b'"\xed\xa0\x80"'],
)
def test_json_that_cannot_be_read_is_one_sentence(text):
    with pytest.raises(CounterpointError) as caught:
        parse_json(text, "file.json")
    said = str(caught.value)
    assert said.startswith("file.json: ") and len(said) < 400 and "\n" not in said


def test_json_that_can_be_read_is_read():
    assert parse_json('{"a": ["\\ud83d\\ude00", 1]}', "x") == {"a": ["😀", 1]}
    assert parse_json(b"\xef\xbb\xbf[1]", "x") == [1]


def test_values_in_messages_are_short_however_large_they_are():
    entangled: list[object] = [1]
    for _ in range(60):
        entangled = [entangled] * 10  # 10 ** 60 elements, as a YAML file of aliases makes them
    assert len(shown(entangled)) <= 200
    assert len(shown({"k" * 10_000: "v" * 10_000_000})) <= 200
    assert len(shortened("x" * 100_000_000)) <= 200
    assert shown("a") == "'a'" and shown(7) == "7"


def test_control_characters_are_made_visible():
    assert without_controls("a\x1b[2Jb\x9bc\u202ed") == "a\\x1b[2Jb\\x9bc\\u202ed"
    assert without_controls("plain\ttext\nhere é 漢") == "plain\ttext\nhere é 漢"
