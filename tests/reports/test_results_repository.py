"""The workflow of examples/results-repository does what it says: its own commands are run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import random_run, table

import counterpoint
from counterpoint.evaluation import write_results
from counterpoint.runs import rows, save_run

pytestmark = pytest.mark.slow
EXAMPLE = Path(__file__).parents[2] / "examples/results-repository"
WORKFLOW = EXAMPLE / ".github/workflows/board.yml"


@pytest.fixture(scope="module")
def workflow() -> dict[str, Any]:
    found = yaml.safe_load(WORKFLOW.read_text())
    found["on"] = found.pop(True)  # YAML 1.1 takes `on` for true
    return dict(found)


@pytest.fixture(scope="module")
def submission(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "mine"
    run = random_run(table(20), 1)
    save_run(run, folder)
    write_results(rows(run, main=True), folder)
    return folder


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A clone of the repository, with the program on the path."""
    shutil.copytree(EXAMPLE, tmp_path / "repository")
    program = tmp_path / "bin/counterpoint"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m counterpoint "$@"\n')
    program.chmod(0o755)
    return tmp_path / "repository"


def step(workflow: dict[str, Any], name: str, repository: Path) -> subprocess.CompletedProcess[str]:
    """A step, in the shell that GitHub gives it."""
    [found] = [s for s in workflow["jobs"]["check"]["steps"] if s.get("name") == name]
    source = str(Path(counterpoint.__file__).parents[1])
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", found["run"]],
        cwd=repository,
        env={
            **os.environ,
            "PATH": f"{repository.parent / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": source,
            "COUNTERPOINT_CACHE": str(repository.parent / "cache"),
        },
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


CHECK, BUILD = "Compute every number again", "Build the site"


def test_pull_requests_are_checked_and_only_main_is_published(workflow) -> None:
    assert set(workflow["on"]) == {"pull_request", "push"}  # never pull_request_target
    assert workflow["on"]["push"] == {"branches": ["main"]}
    assert workflow["permissions"] == {"contents": "read"}
    check, publish = workflow["jobs"]["check"], workflow["jobs"]["publish"]
    assert "permissions" not in check and publish["needs"] == "check"
    assert publish["if"] == "github.event_name == 'push'"
    names = [one.get("name") for one in check["steps"]]
    assert names.index(CHECK) < names.index(BUILD)
    assert check["steps"][-1]["with"] == {"path": "site"}


def test_on_the_first_day_the_board_has_the_published_numbers(workflow, repository) -> None:
    assert step(workflow, CHECK, repository).returncode == 0
    done = step(workflow, BUILD, repository)
    assert done.returncode == 0, done.stderr
    assert "NegCLIP" in (repository / "site/index.html").read_text()


def test_a_right_submission_is_accepted_and_shown(workflow, repository, submission) -> None:
    shutil.copytree(submission, repository / "results/mine")
    done = step(workflow, CHECK, repository)
    assert done.returncode == 0 and "all the same" in done.stdout, done.stderr
    assert step(workflow, BUILD, repository).returncode == 0
    assert (repository / "site/runs/mine/scores.parquet").is_file()


@pytest.mark.parametrize("fault", ["number", "scores", "no run.json"])
def test_a_wrong_submission_fails_the_pull_request(workflow, repository, submission, fault):
    shutil.copytree(submission, repository / "results/right")
    folder = Path(shutil.copytree(submission, repository / "results/wrong"))
    if fault == "number":
        claims = json.loads((folder / "results.json").read_text())
        claims[0]["value"] = 0.999
        (folder / "results.json").write_text(json.dumps(claims))
    elif fault == "scores":
        data = bytearray((folder / "scores.parquet").read_bytes())
        data[len(data) // 2] ^= 1
        (folder / "scores.parquet").write_bytes(bytes(data))
    else:
        (folder / "run.json").unlink()
    done = step(workflow, CHECK, repository)
    assert done.returncode == 1
    assert "results/wrong: refused, 1 difference" in done.stdout
    assert "results/right: " in done.stdout and "results/right: refused" not in done.stdout
