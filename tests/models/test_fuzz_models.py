"""Mutated files of models and of training: each ends in a result or in one sentence."""

from __future__ import annotations

import resource
from collections import Counter

import pytest
from fuzz_support import json_mutations, mutations
from fuzz_targets_models import TARGETS

from counterpoint._util.errors import CounterpointError

INPUTS = 200
_GROWTH = 2**20  # KiB


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.filterwarnings("ignore")
def test_mutated_files_end_in_a_result_or_a_sentence(name, tmp_path):
    target = TARGETS[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ends = Counter()
    for number, data in enumerate(target.inputs(INPUTS, 0)):
        try:
            target.run(data, tmp_path)
            ends["result"] += 1
        except CounterpointError as error:
            message = str(error)
            assert "\n" not in message and len(message) < 4000, message[:300]
            ends["sentence"] += 1
        except Exception as error:
            raise AssertionError(f"input {number}, {data[:300]!r}") from error
    assert ends["sentence"] or name == "log"  # of which a line that cannot be read is forgotten
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < _GROWTH


def test_mutations_are_the_same_every_time():
    value = {"a": [1, {"b": "c"}], "d": 0.5}
    assert list(mutations(b"abcdef" * 9, 50, 1)) == list(mutations(b"abcdef" * 9, 50, 1))
    assert repr(list(json_mutations(value, 50, 1))) == repr(list(json_mutations(value, 50, 1)))
    assert value == {"a": [1, {"b": "c"}], "d": 0.5}
    assert len(set(mutations(b"abcdef" * 9, 50, 1))) > 40
