"""What shows that work is being done: bars where a person looks, nothing where nobody does."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr

import pytest
from cli_support import own_place, write_cases

from counterpoint import evaluate
from counterpoint._util.progress import Quiet
from counterpoint.cli.app import app
from counterpoint.cli.console import Terminal

__all__ = ["own_place"]  # a fixture

pytestmark = pytest.mark.slow


@contextmanager
def standard_error(*, terminal: bool = True) -> Iterator[io.StringIO]:
    screen = io.StringIO()
    screen.isatty = lambda: terminal  # type: ignore[method-assign]
    with pytest.MonkeyPatch.context() as patch, redirect_stderr(screen):
        for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
            patch.delenv(name, raising=False)
        patch.setenv("TERM", "xterm")
        yield screen


def test_evaluate_shows_bars_on_a_terminal() -> None:
    with standard_error() as screen:
        evaluate("blind:format", write_cases("walls"), out="run")
    assert "blind:format captions" in screen.getvalue()


@pytest.mark.parametrize("progress", [None, Quiet()])
def test_bars_can_be_switched_off(progress: Quiet | None) -> None:
    with standard_error() as screen:
        evaluate("blind:format", write_cases("walls"), out="run", progress=progress)
    assert screen.getvalue() == ""


def test_a_file_gets_no_bars() -> None:
    with standard_error(terminal=False) as file:
        evaluate("blind:format", write_cases("walls"), out="run")
    assert file.getvalue() == ""


def test_bars_show_control_characters_and_do_not_obey_them() -> None:
    class Length:
        fingerprint = "1"

        def score_captions(self, captions: list[str]) -> list[float]:
            return [float(len(caption)) for caption in captions]

    with standard_error() as screen:
        evaluate([("a\x1b]0;title\x07b", Length())], write_cases("walls"), out="run")
    assert "\x1b]0;" not in screen.getvalue()
    assert r"a\x1b]0;title\x07b captions" in screen.getvalue()


@pytest.mark.parametrize(
    "verb",
    ["rescore run", "compare run run", "verify run", "eval -m random -b walls.jsonl --out again"],
)
def test_resampling_shows_itself(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A spinner that is drawn after a tenth of a second, which this work does not take."""
    shown = []
    monkeypatch.setattr(Terminal, "status", lambda _, what: shown.append(what) or nullcontext())
    evaluate("random", write_cases("walls"), out="run")
    app(verb.split(), standalone_mode=False)
    assert shown[-1] == "resampling" and {*shown} <= {"reading runs", "resampling"}
