"""What the documents show is run as it stands."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from PIL import Image

from counterpoint.cases.files import read_cases

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.fixture(autouse=True)
def somewhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: p.name)
def test_python_runs(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"__name__": "docs"}
    for block in blocks(page, "python"):
        exec(compile(block, page.name, "exec"), names)
        assert "print(" not in block or capsys.readouterr().out


def test_the_case_in_the_docs_is_a_case(tmp_path: Path) -> None:
    [line] = blocks(ROOT / "docs" / "cases.md", "json")
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "photos" / "dog.jpg")
    (tmp_path / "c.jsonl").write_text(line)
    case = read_cases(tmp_path / "c.jsonl").case(0)
    assert case.id == json.loads(line)["id"] and case.truth == ((True, True, False),)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []
