"""The house: rooms with doors, one noun per class, errors with codes."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import counterpoint

PACKAGE = Path(counterpoint.__file__).parent
ROOT = PACKAGE.parents[1]
CODE = re.compile(r"E(-[A-Z0-9]+){1,5}")
TREES = {path: ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}


def contract(source: Path) -> subprocess.CompletedProcess[str]:
    """import-linter on a copy of the package."""
    return subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        cwd=source,
        env={"PYTHONPATH": f"{source / 'src'}:{ROOT / 'scripts'}", "PATH": "", "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for path in [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyi")]:
        place = tmp_path / "src" / path.relative_to(PACKAGE.parent)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(path.read_bytes())
    (tmp_path / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    return tmp_path


BREAKS = {
    "an arrow up": ("metrics/statistics.py", "from counterpoint.runs import Run"),
    "past a door": ("runs/results.py", "from counterpoint.metrics.statistics import holm"),
    "a circle": ("runs/columns.py", "from counterpoint.runs.results import measure"),
}


@pytest.mark.slow
def test_the_contract_holds(copy: Path) -> None:
    done = contract(copy)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("how", BREAKS)
def test_a_broken_contract_is_noticed(how: str, copy: Path) -> None:
    file, line = BREAKS[how]
    place = copy / "src" / "counterpoint" / file
    place.write_text(f"{place.read_text()}\n\n{line}\n")
    done = contract(copy)
    assert done.returncode == 1, done.stdout
    assert "BROKEN" in done.stdout


def test_a_noun_belongs_to_one_class() -> None:
    names = Counter(
        node.name for tree in TREES.values() for node in tree.body if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


def codes() -> Iterator[tuple[str, str]]:
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            value = getattr(node, "value", None)
            if isinstance(node, ast.Constant) and isinstance(value, str) and value[:2] == "E-":
                yield value, f"{path.name}:{node.lineno}"


@pytest.mark.slow
def test_error_codes_are_words_with_dashes() -> None:
    found = list(codes())
    assert len(found) > 300
    assert [
        place for code, place in found if not CODE.fullmatch(code.rstrip("-")) and code != "E-"
    ] == []


def test_every_room_says_what_it_does_and_every_promised_name_is_there() -> None:
    for path, tree in TREES.items():
        if path.name == "__init__.py":
            assert ast.get_docstring(tree), path
    for stub in PACKAGE.rglob("*.pyi"):
        room = ".".join(("counterpoint", *stub.parent.relative_to(PACKAGE).parts))
        module = __import__(room, fromlist=["x"])
        for name in module.__all__:
            assert getattr(module, name) is not None, f"{room}.{name}"


@pytest.mark.slow
def test_the_picture_of_the_rooms_is_drawn_from_the_imports_as_they_are() -> None:
    sys.path.insert(0, str(ROOT / "scripts"))
    from draw_rooms import PICTURE, draw, imports, layers

    again = "python scripts/draw_rooms.py draws it again"
    assert PICTURE.read_text() == draw(layers(), imports()), again
