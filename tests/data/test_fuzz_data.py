"""Mutated data sets, captions, pairs and answers: each ends in a result or in one sentence."""

from __future__ import annotations

import resource
from collections import Counter

import pytest
from fuzz_targets_data import TARGETS

from counterpoint._util.errors import CounterpointError

INPUTS = 120
_GROWTH = 2**20  # KiB


@pytest.mark.parametrize("name", TARGETS)
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
            assert "\n" not in message and len(message) < 1000, message[:300]
            message.encode()
            ends["sentence"] += 1
        except Exception as error:
            raise AssertionError(f"input {number}, {data[:300]!r}") from error
    assert ends["sentence"] > 10 and ends["result"] > 0, ends
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < _GROWTH
