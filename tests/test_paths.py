"""How far the main commands run: who reads one has to follow so many calls through so many files.

The bounds only ever fall. What a command runs through is in the failure's message.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

PROGRAM = Path(__file__).parent / "support" / "call_paths.py"
CAPTIONS = "caption\na black dog and a white cat\na man rides a horse on the beach\n"
TRAIN = ("train", "hn", "--world", "steps=2", "batch=8", "precision=fp32", "benchmarks=[]")
# Command, the function below which it is counted, calls that are open at most, files.
COMMANDS = {
    "generate negatives": (
        ("generate", "negatives", "captions.csv", "--workers", "1", "-o", "pairs.parquet"),
        *("", 14, 36),
    ),
    "eval": (("eval", "-m", "world:base", "-b", "cases.jsonl", "--out", "run"), "", 22, 52),
    "a training step": ((*TRAIN, "out=out"), "gradients", 12, 12),
}


def write_inputs(folder: Path) -> None:
    (folder / "captions.csv").write_text(CAPTIONS)
    with (folder / "cases.jsonl").open("w") as file:
        for color in ("red", "blue"):
            Image.new("RGB", (40, 30), color).save(folder / f"{color}.png")
            captions, truth = ["a red square", "a blue square"], [[color == "red", color != "red"]]
            case = {"id": color, "images": [f"{color}.png"], "captions": captions, "truth": truth}
            file.write(json.dumps(case) + "\n")


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_runs_through_few_calls_and_files(name: str, tmp_path: Path) -> None:
    words, below, most_calls, most_files = COMMANDS[name]
    write_inputs(tmp_path)
    subprocess.run(
        [sys.executable, str(PROGRAM), "found.json", below, *words],
        cwd=tmp_path,
        env={**os.environ, "COUNTERPOINT_CACHE": str(tmp_path / "cache")},
        check=True,
        capture_output=True,
    )
    found = json.loads((tmp_path / "found.json").read_text())
    calls, files = found["deepest"], found["files"]
    sys.stdout.write(f"{name}: {len(calls)} calls deep, {len(files)} files\n")  # with -rP
    assert len(calls) <= most_calls, "\n".join(calls)
    assert len(files) <= most_files, "\n".join(files)
