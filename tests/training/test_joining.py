"""Joining over ranks, with two real processes: values and gradients are those of one process."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from loss_support import BIAS, NAMES, SCALE, bundled, parts, value_and_gradients
from processes import ended, start

from counterpoint.training import Features
from counterpoint.training.losses.terms import Term, loss
from counterpoint.training.processes import join

pytestmark = pytest.mark.slow

RANKS, LOCAL = 2, 3
TERMS = [name for name in NAMES if name != "reconstruct"]  # of one process only
ALONE = ("scale", "bias", "hard", "start", "reconstruction")
FIELDS = [f.name for f in fields(Features) if f.name not in ALONE]


def given() -> dict[str, torch.Tensor]:
    """What both ranks have."""
    return parts((RANKS * LOCAL, 2, 2), "some")


def own(rank: int) -> dict[str, torch.Tensor]:
    return {name: part[rank * LOCAL : (rank + 1) * LOCAL] for name, part in given().items()}


def step(name: str, rank: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The loss, and the gradients of what this rank has."""
    leaves = {
        part: value.clone().requires_grad_() if value.is_floating_point() else value
        for part, value in own(rank).items()
    }
    numbers = {
        name: torch.tensor(value, dtype=torch.float64, requires_grad=True)
        for name, value in (("scale", SCALE), ("bias", BIAS))
    }
    features = replace(bundled(leaves), **numbers)
    joined = replace(join(features), start=join(features.start))
    value = loss(joined, [Term(name)])[name]
    value.backward()
    held = {**leaves, **numbers}
    return value.detach(), {part: v.grad for part, v in held.items() if v.grad is not None}


def work(rank, folder):
    torch.set_num_threads(1)
    meeting, limit = f"file://{folder}/meeting", timedelta(seconds=60)
    dist.init_process_group("gloo", meeting, timeout=limit, world_size=RANKS, rank=rank)
    found = {name: step(name, rank) for name in TERMS}
    features = bundled(own(rank))
    narrow = replace(features, images=features.images.bfloat16(), hard=None)
    found["joined"] = {name: getattr(join(features), name) for name in FIELDS}
    found["joined hard"] = {name: getattr(join(features).hard, name) for name in FIELDS}
    found["joined narrow"] = join(narrow).images
    torch.save(found, folder / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What each of the two processes found."""
    folder = tmp_path_factory.mktemp("ranks")
    running = [start(work, rank, folder) for rank in range(RANKS)]
    assert [ended(process) for process in running] == [0] * RANKS
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(RANKS)]


def test_two_ranks_give_the_value_and_gradients_of_one_process(ranks):
    """DDP takes the mean over ranks: so what went through `join` has the gradient W times."""
    for name in TERMS:
        value, grads = value_and_gradients(name, given())
        for rank, results in enumerate(ranks):
            other, gradients = results[name]
            torch.testing.assert_close(other, value, rtol=1e-9, atol=1e-12)
            assert grads.keys() <= gradients.keys(), name
            for part, found in gradients.items():
                grad = grads.get(part, torch.zeros_like(given().get(part, found)))
                rows = slice(rank * LOCAL, (rank + 1) * LOCAL)
                expected = RANKS * grad[rows] if grad.ndim else grad
                torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-10)


def test_every_field_is_joined_in_the_order_of_ranks(ranks):
    whole = bundled(given())
    for rank in ranks:
        for part, expected in (("joined", whole), ("joined hard", whole.hard)):
            for name, value in rank[part].items():
                wanted = getattr(expected, name)
                assert value is wanted is None or torch.equal(value, wanted), (part, name)
        narrow = whole.images.bfloat16()  # beside vectors of another precision
        assert torch.equal(rank["joined narrow"].bfloat16(), narrow)


def test_a_process_group_of_one_joins_nothing(tmp_path):
    features = bundled(given())
    assert join(features) is features
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/one", rank=0, world_size=1)
    try:
        assert join(features) is features
    finally:
        dist.destroy_process_group()
