"""Joining over ranks, with two real processes: values and gradients are those of one process."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from processes import ended, start
from torch import nn

from counterpoint.training import Features
from counterpoint.training.losses.terms import TERMS, Term, loss, total
from counterpoint.training.processes import join

pytestmark = pytest.mark.slow

torch.set_num_threads(1)

RANKS, LOCAL, K, M, WIDTH = 2, 3, 2, 2, 4
NAMES = sorted({*TERMS.builtin} - {"reconstruct"})  # of one process only
MIXED = ("clip-negatives", "analogy", "listwise", "hold")
ALONE = ("scale", "bias", "hard", "start", "reconstruction")
FIELDS = [f.name for f in fields(Features) if f.name not in ALONE]


class Towers(nn.Module):
    """Two linear towers and a scale, as CLIP has them."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(7)
        self.image = nn.Linear(5, WIDTH)
        self.text = nn.Linear(6, WIDTH)
        self.log_scale = nn.Parameter(torch.tensor(1.5))
        self.bias = nn.Parameter(torch.tensor(-2.0))

    def encoded(self, raw):
        given = {}
        for name in FIELDS:
            value = getattr(raw, name)
            if value is not None and not name.startswith("has_"):
                tower = self.image if "image" in name else self.text
                value = nn.functional.normalize(tower(value), dim=-1)
            given[name] = value
        hard = None if raw.hard is None else self.encoded(raw.hard)
        return Features(**given, scale=self.log_scale.exp(), hard=hard, bias=self.bias)

    def forward(self, raw):
        return self.encoded(raw)


def raw_batch(seed=0):
    """What the towers are given, of both ranks: (2 * LOCAL, ...)."""
    made = torch.Generator().manual_seed(seed)
    count = RANKS * LOCAL
    inner = {"negatives": (K,), "dense": (M,), "dense_negatives": (M,)}
    inner |= {"image_tokens": (3,), "caption_tokens": (2,), "negative_tokens": (2 * K,)}

    def one():
        given = {}
        for name in FIELDS:
            if not name.startswith("has_"):
                width = 5 if "image" in name else 6
                shape = (count, *inner.get(name, ()), width)
                given[name] = torch.randn(shape, generator=made)
        shapes = {"has_negative": (K,), "has_dense": (M,), "has_dense_negative": (M,)}
        shapes |= {"has_caption_token": (2,), "has_negative_token": (2 * K,)}
        for name in FIELDS:
            if name.startswith("has_"):
                given[name] = torch.rand((count, *shapes.get(name, ())), generator=made) < 0.6
        return Features(**given, scale=torch.ones(()))

    return replace(one(), hard=one())


def rows(features, chosen):
    cut = {n: v[chosen] for n in FIELDS if (v := getattr(features, n)) is not None}
    return replace(features, **cut, hard=features.hard and rows(features.hard, chosen))


def local(features, rank):
    return rows(features, slice(rank * LOCAL, (rank + 1) * LOCAL))


def start_of(raw):
    """A frozen start: other weights, no gradient."""
    start = Towers()
    with torch.no_grad():
        start.image.weight.mul_(-0.5)
        return start.encoded(raw)


def terms_of(name):
    if name != "mixed":
        return [Term(name)]
    return [Term(one, weight) for one, weight in zip(MIXED, (1.0, 0.5, 2.0, 0.1), strict=True)]


def step(towers, raw, name):
    """The loss and the gradients of all parameters, as the loop takes them."""
    towers.zero_grad()
    features = towers(raw)
    terms = terms_of(name)
    value = total(loss(replace(join(features), start=join(start_of(raw))), terms), terms)
    # DDP waits for the gradient of each parameter; not every term has one for scale and bias.
    (value + 0 * features.scale + 0 * features.bias).backward()
    inner = towers.module if isinstance(towers, nn.parallel.DistributedDataParallel) else towers
    grads = {
        n: torch.zeros_like(p) if p.grad is None else p.grad.clone()
        for n, p in inner.named_parameters()
    }
    return value.detach(), grads


# --- the two processes -------------------------------------------------------------------------


def other_negatives(raw):
    """Those of rank 1 anew, those of rank 0 as they are."""
    negatives = raw.negatives.clone()
    negatives[LOCAL:] = raw_batch(seed=1).negatives[LOCAL:]
    return replace(raw, negatives=negatives)


def work(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=RANKS,
        timeout=timedelta(seconds=60),
    )
    raw = raw_batch()
    mine = local(raw, rank)
    towers = nn.parallel.DistributedDataParallel(Towers())
    found = {name: step(towers, mine, name) for name in (*NAMES, "mixed")}
    with torch.no_grad():
        encoded = Towers().encoded(mine)
        narrow = replace(encoded, images=encoded.images.bfloat16(), hard=None)
        found["joined"] = {n: getattr(join(encoded), n) for n in FIELDS}
        found["joined hard"] = {n: getattr(join(encoded).hard, n) for n in FIELDS}
        found["joined narrow"] = join(narrow).images
        for name in ("clip-negatives", "negclip"):
            features = join(Towers().encoded(local(other_negatives(raw), rank)))
            found[f"other {name}"] = loss(features, [Term(name)])[name]
    torch.save(found, folder / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What each of the two processes found."""
    folder = tmp_path_factory.mktemp("ranks")
    running = [start(work, rank, folder) for rank in range(RANKS)]
    assert [ended(process) for process in running] == [0] * RANKS
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(RANKS)]


# --- what they found ---------------------------------------------------------------------------


def test_two_ranks_give_the_value_and_gradients_of_one_process(ranks):
    for name in [*NAMES, "mixed"]:
        value, grads = step(Towers(), raw_batch(), name)
        assert any(grad.abs().max() > 1e-4 for grad in grads.values())
        for found, gradients in (rank[name] for rank in ranks):
            torch.testing.assert_close(found, value, rtol=1e-6, atol=1e-6)
            assert gradients.keys() == grads.keys()
            for part, grad in grads.items():
                torch.testing.assert_close(gradients[part], grad, rtol=1e-5, atol=1e-6)


def test_every_field_is_joined_in_the_order_of_ranks(ranks):
    with torch.no_grad():
        whole = Towers().encoded(raw_batch())
    for rank in ranks:
        for part, expected in (("joined", whole), ("joined hard", whole.hard)):
            assert rank[part].keys() == set(FIELDS)
            for name, value in rank[part].items():
                wanted = getattr(expected, name)
                assert value.dtype == wanted.dtype
                torch.testing.assert_close(value, wanted, rtol=1e-6, atol=1e-7)


def test_vectors_of_two_precisions_keep_their_values(ranks):
    with torch.no_grad():
        images = Towers().encoded(raw_batch()).images
    for rank in ranks:
        assert torch.equal(rank["joined narrow"].float(), images.bfloat16().float())


@pytest.mark.parametrize("name", ["clip-negatives", "negclip"])
def test_negatives_of_rank_1_change_the_loss_on_rank_0(ranks, name):
    """SVLC's and DAC's code loses them on the way, and NegCLIP's runs on one GPU only."""
    with torch.no_grad():
        both = [
            loss(Towers().encoded(raw), [Term(name)])[name]
            for raw in (raw_batch(), other_negatives(raw_batch()))
        ]
    assert abs(both[0] - both[1]) > 1e-3
    for rank in ranks:
        torch.testing.assert_close(rank[f"other {name}"], both[1], rtol=1e-6, atol=1e-6)


def test_a_process_group_of_one_joins_nothing(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/one", rank=0, world_size=1)
    try:
        features = Towers().encoded(raw_batch())
        assert join(features) is features
    finally:
        dist.destroy_process_group()
