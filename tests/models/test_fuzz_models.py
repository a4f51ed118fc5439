"""Mutated files of models and of training: each ends in a result or in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz_support import ends
from fuzz_targets_models import TARGETS

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.filterwarnings("ignore")
def test_mutated_models_and_trainings(name: str, tmp_path: Path) -> None:
    found = ends(TARGETS[name], 200, tmp_path)
    assert found["result"] and (
        found["sentence"] or name == "log"
    )  # of which a line that cannot be read is forgotten
