"""Forged submissions: `bench/fuzz.py --only submission` tries more."""

from __future__ import annotations

from pathlib import Path

from fuzz_support import ends
from fuzz_targets_submissions import TARGETS


def test_no_forged_submission_passes(tmp_path: Path) -> None:
    found = ends(TARGETS["submission"], 40, tmp_path)
    assert found["sentence"] > 20 and found["result"], found
