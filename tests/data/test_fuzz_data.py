"""Mutated data sets, captions, pairs and answers: each ends in a result or in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz_support import ends
from fuzz_targets_data import TARGETS

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_data(name: str, tmp_path: Path) -> None:
    found = ends(TARGETS[name], 120, tmp_path)
    assert found["sentence"] > 10 and found["result"] > 0, found
