"""What our own terms are for."""

from __future__ import annotations

import math

import pytest
import torch

from counterpoint.training import Features
from counterpoint.training.losses.counterpoint import (
    agreement,
    agreement_images,
    counterpart,
    hinge,
    hold,
    listwise,
)
from counterpoint.training.losses.published import analogy, negative_loss


def scored(*scores):
    """Texts (1, 3) that have these scores with the image [1, 0, 0]."""
    return [torch.tensor([[s, math.sqrt(1 - s * s), 0.0]]).requires_grad_() for s in scores]


IMAGE = torch.tensor([[1.0, 0.0, 0.0]])


def of(caption, **others):
    return Features(IMAGE, caption, torch.tensor(100.0), **others)


def test_no_published_loss_sees_a_positive_below_its_negative_but_listwise_does():
    caption, positive, negative = scored(0.4, 0.1, 0.3)  # brittle: the positive fails
    batch = of(caption, positives=positive, negatives=negative[:, None])
    assert negative_loss(batch) + analogy(batch) < 1e-3
    for worst in (True, False):
        assert listwise(batch, margin=0.0, worst=worst) > 5


def test_the_worst_true_text_and_the_best_negative_get_the_gradient():
    caption, positive, good, bad = scored(0.4, 0.2, 0.0, 0.3)
    negatives = torch.stack((good, bad), 1)
    listwise(of(caption, positives=positive, negatives=negatives)).backward()
    along = [float(text.grad[0, 0]) for text in (caption, positive, good, bad)]
    assert along == pytest.approx([0, -100, 0, 100], abs=0.02)


def test_beyond_the_margin_nothing_is_pushed():
    for worst in [True, False]:
        caption, positive, negative = scored(0.5, 0.45, 0.2)
        batch = of(caption, positives=positive, negatives=negative[:, None])
        options = {"margin": 0.1, "worst": worst}
        assert hinge(batch, **options) == 0
        listwise(batch, **options).backward()
        assert max(float(text.grad.abs().max()) for text in (caption, positive, negative)) < 1e-3
        assert hinge(batch, margin=0.3, worst=True).item() == pytest.approx(5.0, rel=1e-4)
        assert hinge(batch, margin=0.3).item() == pytest.approx(2.5, rel=1e-4)


def test_agreement_pulls_both_ways_and_no_harder_than_a_cross_entropy():
    caption, positive = scored(0.5, 0.3)
    agreement(of(caption, positives=positive)).backward()
    assert float(caption.grad[0, 0]) == -float(positive.grad[0, 0]) == 100
    same = scored(0.4)[0]
    assert agreement(of(same, positives=same)) == 0
    axes = torch.eye(3)
    assert agreement_images(Features(axes, axes, torch.tensor(100.0), positives=axes)) == 0


def test_counterpart_is_small_only_where_the_group_is_right():
    """Image and twin, caption and negative: BiVLC's square."""
    twin = torch.tensor([[0.0, 1.0, 0.0]])
    right = counterpart(of(IMAGE, negatives=twin[:, None], negative_images=twin), margin=0.1)
    blind = counterpart(of(IMAGE, negatives=IMAGE[:, None], negative_images=twin))
    assert right < 1e-6 and blind > 50


def test_hold_asks_only_for_what_was_lost():
    before = of(scored(0.3)[0].detach())
    for now, expected in ((0.3, 0), (0.5, 0), (0.2, 10), (0.28, 2)):
        text = scored(now)[0]
        value = hold(of(text, start=before))
        value.backward()
        assert float(value.detach()) == pytest.approx(expected, abs=1e-4)
        assert float(text.grad[0, 0]) == (-100 if expected else 0)
    assert hold(of(scored(0.28)[0], start=before), slack=0.05) == 0
