"""What a command imports. How long it takes is measured in bench/startup.py."""

from __future__ import annotations

import subprocess
import sys

import pytest

NUMBERS = {"numpy", "polars", "pyarrow", "scipy", "matplotlib", "PIL"}
MODELS = {"torch", "torchvision", "open_clip", "transformers", "huggingface_hub", "httpx"}


def imported(*words: str) -> set[str]:
    """The packages that a command has imported when it ends."""
    program = (
        "import atexit, sys\n"
        "packages = lambda: {name.partition('.')[0] for name in sys.modules}\n"
        "atexit.register(lambda: print(*packages(), file=sys.stderr))\n"
        f"sys.argv = ['counterpoint', *{words!r}]\n"
        "from counterpoint.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "counterpoint" in done.stderr
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("words", [("--help",), ("eval", "--help"), ("ls", "models")])
def test_help_and_the_list_of_models_import_no_numbers_and_no_models(words):
    assert imported(*words) & (NUMBERS | MODELS) == set()


@pytest.mark.slow
def test_lists_import_no_models_and_draw_nothing():
    assert imported("ls") & (MODELS | {"matplotlib", "pyarrow", "scipy"}) == set()


def test_a_verb_is_built_alone():
    program = (
        "import sys\n"
        "sys.argv = ['counterpoint', 'ls', 'models']\n"
        "from counterpoint.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(*sorted(name for name in sys.modules if name.startswith('counterpoint.cli.')))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    last = done.stdout.splitlines()[-1]
    assert last == "counterpoint.cli.app counterpoint.cli.console counterpoint.cli.ls"
