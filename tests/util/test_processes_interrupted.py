"""Ctrl-C while a command waits for its workers."""

from __future__ import annotations

import subprocess
import sys

import pytest

WAITING = """
import os, signal, threading
import polars
from counterpoint._util.processes import starting

with starting():
    pass
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
threading.Timer(20, lambda: os._exit(7)).start()
try:
    threading.Event().wait()
except KeyboardInterrupt:
    os._exit(0)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
def test_ctrl_c_ends_a_wait_although_polars_is_imported() -> None:
    assert subprocess.run([sys.executable, "-c", WAITING], timeout=60).returncode == 0
