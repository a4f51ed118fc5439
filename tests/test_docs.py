"""What the documents show is run as it stands, and what they name exists."""

from __future__ import annotations

import json
import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from PIL import Image

import counterpoint
from counterpoint.cases.files import read_cases
from counterpoint.cli.app import app

ROOT = Path(__file__).parents[1]
SITE = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [*(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")), *SITE]


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


every_page = pytest.mark.parametrize("page", PAGES, ids=named)


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.fixture(autouse=True)
def somewhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path / "cache"))


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=named)
def test_python_runs(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"__name__": "docs"}
    for block in blocks(page, "python"):
        exec(compile(block, page.name, "exec"), names)
        assert "print(" not in block or capsys.readouterr().out


def test_the_case_in_the_docs_is_a_case(tmp_path: Path) -> None:
    [line] = blocks(ROOT / "docs" / "concepts" / "cases.md", "json")
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "photos" / "dog.jpg")
    (tmp_path / "c.jsonl").write_text(line)
    case = read_cases(tmp_path / "c.jsonl").case(0)
    assert case.id == json.loads(line)["id"] and case.truth == ((True, True, False),)


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@every_page
def test_files_of_the_repository_that_are_named_exist(page: Path) -> None:
    paths = re.findall(r"\b(?:bench|docs|scripts|src|studies|tests)/[\w./-]*\w", page.read_text())
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_site_lists_every_page() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    listed = list(_leaves(nav))
    assert sorted(listed) == [str(page.relative_to(ROOT / "docs")) for page in SITE]


def _leaves(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for entry in nav.values() if isinstance(nav, dict) else nav:
            yield from _leaves(entry)


def test_the_reference_has_every_name_and_every_command() -> None:
    reference = runpy.run_path(str(ROOT / "scripts" / "docs_reference.py"))
    page = reference["on_page_markdown"]("<!-- api -->\n\n<!-- cli -->")
    assert re.findall(r"(?m)^::: counterpoint\.(\w+)$", page) == counterpoint.__all__
    commands: Any = typer.main.get_command(app)
    headings = re.findall(r"(?m)^## `counterpoint (\w+)`$", page)
    assert headings == list(commands.commands)


@pytest.mark.slow
def test_the_reference_has_error_codes_with_their_sentences() -> None:
    reference = runpy.run_path(str(ROOT / "scripts" / "docs_reference.py"))
    page = reference["on_page_markdown"]("<!-- errors -->")
    [row] = re.findall(r"(?m)^\| `E-FILE-FORMAT` .*$", page)
    assert "<br>{path}: a table ends in .csv, .tsv, .jsonl or .parquet.<br>" in row
    assert len(re.findall(r"(?m)^\| `E-[A-Z-]+", page)) > 150


@pytest.mark.slow
@every_page
def test_commands_and_their_options_exist(page: Path) -> None:
    text = page.read_text().replace("\\\n", " ")
    shown = re.findall(r"(?m)^(?: {4})?(?:torchrun .* -m )?(counterpoint [a-z].*)$", text)
    shown += re.findall(r"`(counterpoint [a-z][^`\n]*)`", text)
    assert [command for command in shown if not _parses(command)] == []


def _parses(line: str) -> bool:
    """The command is there, and it has every option of the line; values are not looked at."""
    command: Any = typer.main.get_command(app)
    words = iter(shlex.split(line, comments=True)[1:])
    while hasattr(command, "commands"):
        word = next(words, None)
        if word is None:
            return True  # a group of commands
        if word not in command.commands:
            return False
        command = command.commands[word]
    options = {name for option in command.params for name in option.opts + option.secondary_opts}
    given = {word for word in words if re.fullmatch("--?[a-zA-Z][a-z-]*", word)}
    return given <= {*options, "--help"}
