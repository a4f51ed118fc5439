"""Mutated files of every kind that the core reads: a result or a sentence, never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz_support import ends, json_mutations, mutations
from fuzz_targets_core import TARGETS, pictures

pytestmark = pytest.mark.faults

INPUTS = 200


@pytest.mark.filterwarnings("ignore")  # Pillow warns of what it repairs
@pytest.mark.parametrize("name", TARGETS)
def test_mutated_files_of_the_core(name: str, tmp_path: Path) -> None:
    count = 4 * len(pictures()) if name == "image" else INPUTS
    found = ends(TARGETS[name], count, tmp_path)
    assert found["result"] and (found["sentence"] or name == "world code"), found


def test_mutations_are_the_same_every_time() -> None:
    value = {"a": [1, {"b": "c"}], "d": 0.5}
    assert list(mutations(b"abcdef" * 9, 50, 1)) == list(mutations(b"abcdef" * 9, 50, 1))
    assert repr(list(json_mutations(value, 50, 1))) == repr(list(json_mutations(value, 50, 1)))
    assert value == {"a": [1, {"b": "c"}], "d": 0.5}
    assert len(set(mutations(b"abcdef" * 9, 50, 1))) > 40
