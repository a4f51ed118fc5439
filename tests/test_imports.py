"""What is imported when, and that every promised name is there."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import counterpoint
from counterpoint._util.errors import CounterpointError
from counterpoint._util.registry import Registry
from counterpoint.benchmarks.benchmark import Benchmark
from counterpoint.benchmarks.registry import BENCHMARKS
from counterpoint.metrics.protocols import PROTOCOLS
from counterpoint.metrics.registry import METRICS
from counterpoint.models.registry import EXAMPLES, FAMILIES

HEAVY = ("torch", "torchvision", "open_clip", "transformers", "timm")
DOING = tuple(f"counterpoint.{name}" for name in ("data.download", "generation.run"))
UNIX = ("fcntl", "grp", "pwd", "resource", "termios")
PACKAGE = Path(counterpoint.__file__).parent
CORE = ("cases.table", "metrics.definitions", "metrics.registry", "metrics.statistics")
LIGHT = (
    *(*CORE, "runs.results", "runs.folders", "cases.files", "_util.registry", "_util.errors"),
    *("evaluation.evaluating", "api", "cli.app", "benchmarks.registry", "benchmarks.world"),
    *("models.registry", "models.blind.baselines", "scoring.engine", "scoring.kinds"),
    *("images.pictures", "_util.store", "world.drawing"),
)


def in_a_fresh_process(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_importing_the_package_imports_nothing_heavy():
    watched = (*HEAVY, "polars", "numpy", "scipy", "PIL", "rich", "typer")
    program = f"import sys, counterpoint; print(*sorted(set({watched}) & set(sys.modules)))"
    assert in_a_fresh_process(program) == ""


@pytest.mark.parametrize(
    ("words", "absent"),
    [
        (["--version"], ("polars", "numpy", "PIL", "yaml", "pyarrow", "ssl")),
        (["--help"], ("polars", "numpy", "PIL", "yaml", "pyarrow", "ssl")),
        (["ls", "models"], ("polars", "numpy", "PIL", "yaml", "pyarrow", "ssl")),
        (["ls"], ("pyarrow", "ssl", "urllib.request", "multiprocessing", *DOING)),
    ],
)
def test_commands_that_only_print_import_little(words: list[str], absent: tuple[str, ...]) -> None:
    program = (
        "import contextlib, io, sys\n"
        "from counterpoint.cli import main\n"
        f"sys.argv = ['counterpoint', *{words}]\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "    main()\n"
        f"print(*sorted(set({(*HEAVY, *absent)}) & set(sys.modules)))"
    )
    assert in_a_fresh_process(program) == ""


@pytest.mark.slow
def test_torch_is_imported_by_nothing_but_models_that_need_it():
    """One process imports them all: whichever pulls torch in is named."""
    program = (
        "import importlib, sys\n"
        f"for name in {LIGHT}:\n"
        "    importlib.import_module(f'counterpoint.{name}')\n"
        f"    heavy = sorted(set({HEAVY}) & set(sys.modules))\n"
        "    if heavy: sys.exit(print(name, heavy))\n"
    )
    assert in_a_fresh_process(program) == ""


@pytest.mark.slow
def test_no_module_needs_unix_to_be_imported():
    """On Windows these do not exist: whichever module asks for one when it is imported is named."""
    program = (
        "import importlib, pkgutil, sys\n"
        "import numpy, torch, transformers\n"  # these know themselves what their system has
        f"sys.modules.update(dict.fromkeys({UNIX}))\n"
        "import counterpoint\n"
        "for found in pkgutil.walk_packages(counterpoint.__path__, 'counterpoint.'):\n"
        "    try: found.name.endswith('__main__') or importlib.import_module(found.name)\n"
        "    except ImportError as error:\n"
        f"        if error.name in {UNIX}: print(found.name, error.name)\n"
    )
    assert in_a_fresh_process(program) == ""


@pytest.mark.parametrize("module", CORE)
def test_core_modules_know_nothing_of_models_and_scoring(module):
    """The arrows point inwards: numbers do not depend on how scores were made."""
    tree = ast.parse((PACKAGE / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
    imported = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else names(node))
    }
    outer = ("counterpoint.models", "counterpoint.scoring", "counterpoint.cli", "torch")
    assert [name for name in imported if name.startswith(outer)] == []


def names(node: ast.Import) -> list[str]:
    return [alias.name for alias in node.names]


# --- public names ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", counterpoint.__all__)
def test_every_public_name_resolves(name):
    assert getattr(counterpoint, name).__name__ == name


def test_all_is_complete_and_sorted():
    assert counterpoint.__all__ == sorted(counterpoint.__all__)
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))
    typed = {a.name for node in stub.body if isinstance(node, ast.ImportFrom) for a in node.names}
    assert typed == set(counterpoint.__all__)
    assert (PACKAGE / "py.typed").is_file()


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="evaluat"):
        _ = counterpoint.evaluat
    assert not hasattr(counterpoint, "torch")


def test_star_import_gives_all_names():
    space: dict[str, object] = {}
    exec("from counterpoint import *", space)
    assert set(counterpoint.__all__) <= set(space)


# --- registries --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILIES.names())
def test_every_family_of_models_resolves(name):
    assert callable(FAMILIES.get(name))


def test_every_example_of_a_model_belongs_to_a_family():
    assert {id.partition(":")[0] for id in EXAMPLES} == set(FAMILIES.builtin)


@pytest.mark.parametrize("name", BENCHMARKS.names())
def test_every_benchmark_resolves_to_one_of_its_name(name):
    benchmark = BENCHMARKS.get(name)
    assert isinstance(benchmark, Benchmark)
    assert benchmark.id == name
    assert benchmark.protocol in PROTOCOLS
    assert benchmark.summary and benchmark.shape


def test_names_are_their_own_keys():
    assert all(protocol.name == name for name, protocol in PROTOCOLS.items())
    assert all(metric.name == name for name, metric in METRICS.items())


def test_plug_ins_are_found_by_entry_points(monkeypatch):
    class Point:
        name = "theirs"

        def load(self):
            return "their model"

    def found(*, group, name="theirs"):
        return [Point()] if (group, name) == ("counterpoint.models", "theirs") else []

    monkeypatch.setattr("counterpoint._util.registry.entry_points", found)
    assert "theirs" in FAMILIES.names()
    assert FAMILIES.get("theirs") == "their model"
    assert "theirs" not in BENCHMARKS.names()


def test_a_builtin_is_not_replaced_by_a_plug_in(monkeypatch):
    def found(**_):
        raise AssertionError("asked for plug-ins although the name is our own")

    monkeypatch.setattr("counterpoint._util.registry.entry_points", found)
    registry = Registry("thing", "group", {"dumps": "json:dumps"})
    assert registry.get("dumps")([1]) == "[1]"


@pytest.mark.parametrize("name", LIGHT)
def test_every_error_class_is_in_the_tree(name):
    """A user's mistake must never be anything that the command line shows as a traceback."""
    module = importlib.import_module(f"counterpoint.{name}")
    own = [v for v in vars(module).values() if getattr(v, "__module__", "") == module.__name__]
    kinds = [v for v in own if isinstance(v, type) and not v.__name__.startswith("_")]
    errors = [kind for kind in kinds if issubclass(kind, Exception)]
    assert all(issubclass(kind, CounterpointError) for kind in errors)
