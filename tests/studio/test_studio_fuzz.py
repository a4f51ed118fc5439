"""Odd requests to every route of the studio, made by a seed: none is a fault of the server."""

from __future__ import annotations

import random

import pytest
from fuzz_targets_studio import StudioTarget

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    made = StudioTarget(tmp_path_factory.mktemp("studio"))
    yield made
    made.database.close()


def test_the_fuzzer_knows_every_route(target):
    assert {("GET", "/"), ("POST", "/try"), ("POST", "/a/{token}/{number}")} < set(target.routes)
    assert len(target.routes) > 15


@pytest.mark.parametrize("part", range(4))
def test_odd_requests_are_answered(target, part):
    for seed in range(100):
        target(random.Random(1000 * part + seed))
