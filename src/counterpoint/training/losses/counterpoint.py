"""Our own losses: what augmented accuracy and brittleness count, without lowering scores.

Augmented accuracy asks that the *worst* true text of an image (caption, positive) be above its
*best* negative. No published loss compares a positive with a negative of the same image: these do.

- `listwise`, or its sharp form `hinge`: true texts above negatives by a margin, and no further;
- `agreement`, or `agreement_images`: caption and positive score alike;
- `counterpart`: the same order for the image of which the negative is true;
- `hold`: true texts do not score lower than they did under the start.

All leave the scale as it is (no gradient reaches it): a margin that is not yet reached, or scores
that differ, would be mended most cheaply by a lower scale, which is no mending.
In formulas s is the scale, and scores I.T are cosines, as `margin` and `slack` are.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import smooth_l1_loss

from counterpoint.training.losses.masks import mean_over, own_scores, softplus_sum
from counterpoint.training.losses.terms import Features, reads


@reads("images", "captions", "negatives", optional=["positives"])
def listwise(f: Features, margin: float = 0.0, worst: bool = True) -> Tensor:
    """Every true text t of an image against each of its negatives n.

    With v(t, n) = s (I.n - I.t + margin):
    `worst`: log(1 + sum_tn e^v(t, n)), a smooth maximum: the worst true text and the best negative
    get the gradient; else the mean over t of log(1 + sum_n e^v(t, n)), each true text as much.
    Mean over samples that have a negative. It fades once a gap is beyond the margin by a few 1/s,
    so negatives are not pushed without end. Without positives and margin it is `negatives`.
    """
    gaps, pairs, rows = gaps_of(f, margin)
    logits = f.scale.detach() * gaps
    if worst:
        found = softplus_sum(logits.flatten(1), pairs.flatten(1))
    else:
        # A text that is not there has a sum of nothing: log 1.
        found = softplus_sum(logits, pairs).sum(1) / true_texts(f)[1].sum(1)
    return mean_over(found, rows)


@reads("images", "captions", "negatives", optional=["positives"])
def hinge(f: Features, margin: float = 0.1, worst: bool = False) -> Tensor:
    """`listwise` with a sharp corner: max(0, v(t, n)) is exactly 0 beyond the margin.

    Mean over an image's pairs (t, n), or with `worst` their maximum: the worst true text and the
    best negative alone. Mean over samples that have a negative.
    """
    gaps, pairs, rows = gaps_of(f, margin)
    gaps, pairs = gaps.flatten(1), pairs.flatten(1)
    over = torch.where(pairs, (f.scale.detach() * gaps).relu(), 0)
    found = over.amax(1) if worst else over.sum(1) / pairs.sum(1).clamp_min(1)
    return mean_over(found, rows)


@reads("images", "captions", "positives")
def agreement(f: Features) -> Tensor:
    """Caption and positive score alike for their image: h(s (I.T - I.P)), h(x) = x^2 / 2 within
    [-1, 1] and |x| - 1/2 beyond, mean over samples with a positive.

    Brittleness is one of the two above the negative and the other not, so it cannot be larger than
    the share of negatives that fall between them. The linear part keeps the gradient to that of a
    cross-entropy at most.
    """
    gaps = own_scores(f.images, f.captions) - own_scores(f.images, f.positives)
    logits = f.scale.detach() * gaps
    found = smooth_l1_loss(logits, torch.zeros_like(logits), reduction="none")
    return mean_over(found, f.mask("positives"))


@reads("images", "captions", "positives")
def agreement_images(f: Features) -> Tensor:
    """Caption and positive find the same images: with p = softmax_j(s T_i.I_j), q of P_i likewise,
    1/2 [KL(p, q) + KL(q, p)] = 1/2 sum_j (p_j - q_j)(log p_j - log q_j), mean over positives."""
    pair, scale = (f.captions, f.positives), f.scale.detach()
    mine, theirs = ((scale * texts @ f.images.T).log_softmax(1) for texts in pair)
    found = ((mine.exp() - theirs.exp()) * (mine - theirs)).sum(1) / 2
    return mean_over(found, f.mask("positives"))


@reads("images", "captions", "negatives", "negative_images", optional=["positives"])
def counterpart(f: Features, margin: float = 0.0) -> Tensor:
    """What `listwise` asks of I, asked of its twin I', of which the first negative N is true.

    log(1 + sum of e^(s (v + margin))) over v = I'.t - I.t for each true text t (text to image),
    I.N - I'.N (the same for N), and I'.t - I'.N (I' to text): with I.N - I.t, which `listwise` has,
    all that BiVLC's group score asks. Mean over samples that have I' and N.
    """
    (texts, there), false = true_texts(f), f.negatives[:, 0]
    seen, unseen = own_scores(f.images, texts), own_scores(f.negative_images, texts)
    its_own = own_scores(f.negative_images, false)[:, None]
    others = own_scores(f.images, false)[:, None]
    gaps = torch.cat((unseen - seen, unseen - its_own, others - its_own), 1)
    rows = f.mask("negative_images") & f.mask("negatives")[:, 0]
    present = torch.cat((there, there, rows[:, None]), 1)
    return mean_over(softplus_sum(f.scale.detach() * (gaps + margin), present), rows)


@reads(
    "images",
    "captions",
    "start_images",
    "start_captions",
    optional=["positives", "start_positives"],
)
def hold(f: Features, slack: float = 0.0) -> Tensor:
    """True texts keep the score that the frozen start gave them: s max(0, I0.t0 - I.t - slack).

    Mean over the true texts of the batch: captions, and positives where the start's are given too.
    Hard negatives lower all scores (Kamath et al. 2024); this makes the way up the only one out. A
    score above the start's costs nothing. The start's vectors get no gradient.
    """
    names = ["captions"]
    if f.positives is not None and f.start.positives is not None:
        names.append("positives")
    lost = []
    for name in names:
        before = own_scores(f.start.images, getattr(f.start, name)).detach()
        lost.append((before - own_scores(f.images, getattr(f, name)) - slack).relu())
    there = torch.cat([f.mask(name) for name in names])
    return mean_over(f.scale.detach() * torch.cat(lost), there)


def true_texts(f: Features) -> tuple[Tensor, Tensor]:
    """The true texts of each image, (B, 1 or 2, d), and which are there."""
    if f.positives is None:
        return f.captions[:, None], f.mask()[:, None]
    there = torch.stack((f.mask(), f.mask("positives")), 1)
    return torch.stack((f.captions, f.positives), 1), there


def gaps_of(f: Features, margin: float) -> tuple[Tensor, Tensor, Tensor]:
    """By how much each negative is too high for each true text, (B, t, k); which of these pairs
    are there; which samples have a negative."""
    (texts, there), against = true_texts(f), f.mask("negatives")
    right, wrong = own_scores(f.images, texts), own_scores(f.images, f.negatives)
    gaps = wrong[:, None] - right[:, :, None] + margin
    return gaps, there[:, :, None] & against[:, None], against.any(1)
