"""docs/papers.md is true: its commands run as they stand, and what they write is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import llm_server
import paper_data
import pytest
import tiny_hub
from api_server import KEY, Server, serve
from paper_aro import ARO, ZERO_SHOT
from paper_bivlc import BIVLC
from paper_commands import Desk, Expected, Row, problems, read_document
from paper_expectations import says
from paper_hard_positives import HARD_POSITIVES
from paper_sugarcrepe import SUGARCREPE

pytestmark = pytest.mark.slow

PAPERS: dict[str, dict[str, list[Expected]]] = {
    "Hard Positives": HARD_POSITIVES,
    "SugarCrepe": SUGARCREPE,
    "BiVLC": BIVLC,
    "ARO and NegCLIP": ARO,
    "Zero-shot suites": ZERO_SHOT,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data root, hub and checkpoint, which no command changes."""
    folder = tmp_path_factory.mktemp("papers")
    paper_data.data_root(folder / "data")
    tiny_hub.fill(folder / "hub", paper_data.WORDS)
    return folder


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        llm_server.take_over(patch)
        patch.setattr(llm_server, "reply", paper_data.reply)
        with serve() as served:
            yield served


@pytest.fixture
def desk(
    made: Path,
    server: Server,
    local_network: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Desk:
    """A folder with what a reader is assumed to have."""
    monkeypatch.chdir(tmp_path)
    tiny_hub.install(monkeypatch, made / "hub")
    for name, value in {
        "COUNTERPOINT_DATA": str(made / "data"),
        "COUNTERPOINT_CACHE": str(tmp_path / "cache"),
        "OPENAI_BASE_URL": server.url,
        "OPENAI_API_KEY": KEY,
    }.items():
        monkeypatch.setenv(name, value)
    server.new_endpoint()
    paper_data.working_folder(Path())
    tiny_hub.save_files(Path())
    return Desk(monkeypatch, capsys)


def test_every_section_is_here() -> None:
    assert sorted(read_document()) == sorted(PAPERS)


@pytest.mark.parametrize("paper", PAPERS)
def test_every_command_of_a_paper_runs(paper: str, desk: Desk) -> None:
    found = problems(read_document()[paper], PAPERS[paper], desk)
    assert not found, "\n\n".join(found)


def test_a_row_that_is_new_gone_or_wrong_is_a_problem(desk: Desk) -> None:
    rows = [Row("new", ["counterpoint ls recipes"], {}), Row("words alone", [], {})]
    assert problems(rows, {"gone": []}, desk) == [
        "gone: no such row",
        "new: 1 commands, 0 expectations",
        "words alone: 0 commands, 0 expectations",
    ]
    assert problems(rows[:1], {"new": [says("clip-ft-hp")]}, desk) == []
    [wrong] = problems(rows[:1], {"new": [says("no such recipe")]}, desk)
    assert "['no such recipe'] is not []" in wrong
    [failed] = problems([Row("x", ["counterpoint ls recipe"], {})], {"x": [says("a")]}, desk)
    assert "exit status" in failed
