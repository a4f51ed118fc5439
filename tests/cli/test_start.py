"""What a command imports. How long it takes is measured in bench/startup.py."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support import random_run, table

from counterpoint.runs import save_run

NUMBERS = {"numpy", "polars", "pyarrow", "scipy", "matplotlib", "PIL"}
MODELS = {"torch", "torchvision", "open_clip", "transformers", "huggingface_hub", "httpx"}


def modules(*words: str) -> set[str]:
    """What a command has imported when it ends."""
    program = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        f"sys.argv = ['counterpoint', *{words!r}]\n"
        "from counterpoint.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "counterpoint" in done.stderr
    return set(done.stderr.splitlines()[-1].split())


def imported(*words: str) -> set[str]:
    """The packages."""
    return {name.partition(".")[0] for name in modules(*words)}


@pytest.mark.parametrize("words", [("--help",), ("eval", "--help"), ("ls", "models")])
def test_help_and_the_list_of_models_import_no_numbers_and_no_models(words):
    assert imported(*words) & (NUMBERS | MODELS) == set()


@pytest.mark.slow
def test_lists_import_no_models_and_draw_nothing():
    assert imported("ls") & (MODELS | {"matplotlib", "pyarrow", "scipy"}) == set()


@pytest.mark.slow
def test_comparing_two_runs_imports_few_modules(tmp_path):
    for number in (1, 2):
        save_run(random_run(table(20), number), tmp_path / str(number))
    ours = [
        name
        for name in modules("compare", str(tmp_path / "1"), str(tmp_path / "2"))
        if name.startswith("counterpoint")
    ]
    assert len(ours) <= 45, ours


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
