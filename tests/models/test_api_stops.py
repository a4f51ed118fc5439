"""`api:MODEL` stopped on its way: the endpoint's log says what was asked again."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from api_server import KEY, Endpoint, serve

pytestmark = pytest.mark.faults

EVALUATE = """
from counterpoint import cli, models
models.FAMILIES.builtin["api"] = "counterpoint.models.api.adapter:load"
cli.main()
"""
PROBE = ("a red square",)
BENCHMARK, SIZE, BATCH = "world-swap:size=24,seed=5", 24 * 3, 8


def start(folder: Path, endpoint: Endpoint) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", EVALUATE, "eval", "-m", "api:m?image=png", "-b", BENCHMARK]
    command += ["--batch-size", str(BATCH), "--out", str(folder / "run")]
    settings = {
        "COUNTERPOINT_CACHE": str(folder),
        "COUNTERPOINT_API_CONCURRENCY": "4",
        "OPENAI_BASE_URL": endpoint.url,
        "OPENAI_API_KEY": KEY,
        "NO_PROXY": "*",
    }
    return subprocess.Popen(
        command, env=os.environ | settings, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def start_and_hold(folder: Path, endpoint: Endpoint, batches: int) -> subprocess.Popen[bytes]:
    """Until so many batches and a part of the next are answered, and the rest has to wait."""
    answers = 1 + batches * BATCH + 2  # with the probe
    endpoint.prompt, goal = len(endpoint.asked) + answers, endpoint.answered + answers
    child, limit = start(folder, endpoint), time.monotonic() + 60
    while endpoint.answered < goal:
        assert child.poll() is None and time.monotonic() < limit
        time.sleep(0.005)
    return child


def test_what_is_stopped_loses_a_batch_at_most(tmp_path: Path) -> None:
    """Ctrl-C, then kill -9, then to the end."""
    with serve() as server:
        endpoint = server.new_endpoint()
        child = start_and_hold(tmp_path, endpoint, 3)
        child.send_signal(signal.SIGINT)
        errors = child.communicate(timeout=60)[1].decode()
        assert child.returncode == 130  # though answers are still to come
        assert "interrupted" in errors and "Traceback" not in errors

        child = start_and_hold(tmp_path, endpoint, 2)
        child.kill()
        child.communicate(timeout=60)
        assert child.returncode == -signal.SIGKILL and not (tmp_path / "run").exists()

        endpoint.prompt = math.inf
        child = start(tmp_path, endpoint)
        errors = child.communicate(timeout=60)[1].decode()
    assert child.returncode == 0
    times = Counter((a.shown, a.captions) for a in endpoint.asked if a.captions != PROBE)
    assert len(times) == SIZE
    assert 0 < sum(times.values()) - len(times) <= 2 * BATCH
    assert f"{SIZE - 5 * BATCH} requests, about" in errors  # the estimate: five batches are there
    assert "(0 requests repeated)" in errors and "tokens in" in errors
