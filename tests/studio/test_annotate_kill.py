"""The server is killed and started again under a small load: bench/annotators.py, in small."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.faults

SCRIPT = Path(__file__).parents[2] / "bench" / "annotators.py"


def test_a_killed_server_has_lost_nothing_and_doubled_nothing():
    environment = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    done = subprocess.run(
        [
            *(sys.executable, str(SCRIPT), "--annotators", "5", "--cases", "6"),
            *("--overlap", "3", "--kills", "1"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["faults"] == 0 and said["kills"] == 1
    assert said["acknowledged"] >= 6 * 4 * 3 and said["broken_requests"] > 0
