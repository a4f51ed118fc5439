"""Tests that start Ray, in processes of their own.

A process that has used Ray several times cannot fork any more: the children crash. Other tests, of
the workers that prepare batches, do fork.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MARK = "pytest.mark." + "ray"  # not as it stands in a test
FILES = [path for path in sorted(HERE.rglob("test_*.py")) if MARK in path.read_text()]

pytestmark = [pytest.mark.slow, pytest.mark.faults]


@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_ray_in_a_process_of_its_own(path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "-m", "ray"]
    done = subprocess.run([*command, str(path)], capture_output=True, text=True, timeout=540)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_all_of_them_are_found() -> None:
    assert len(FILES) >= 3
