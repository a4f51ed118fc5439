"""Our own losses: what augmented accuracy and brittleness count, without lowering scores.

Augmented accuracy asks that the *worst* true text of an image (caption, positive) be above its
*best* negative. No published loss compares a positive with a negative of the same image: these do.

- `listwise`, or its sharp form `hinge`: true texts above negatives by a margin, and no further;
- `agreement`, or `agreement_images`: caption and positive score alike;
- `counterpart`: the same order for the image of which the negative is true;
- `hold`: true texts do not score lower than they did under the start.

All leave `scale` as it is (no gradient reaches it): a margin that is not yet reached, or scores
that differ, would be mended most cheaply by a lower scale, which is no mending.
In formulas s is `scale`, and scores I.T are cosines, as `margin` and `slack` are.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import smooth_l1_loss

from counterpoint.training.losses.masks import (
    in_float32,
    known,
    mean_over,
    own_scores,
    softplus_sum,
)


@in_float32
def listwise(
    images: Tensor,
    captions: Tensor,
    negatives: Tensor,
    scale: Tensor,
    positives: Tensor | None = None,
    has_positive: Tensor | None = None,
    has_negative: Tensor | None = None,
    margin: float = 0.0,
    worst: bool = True,
) -> Tensor:
    """Every true text t of an image against each of its negatives n.

    With v(t, n) = s (I.n - I.t + margin):
    `worst`: log(1 + sum_tn e^v(t, n)), a smooth maximum: the worst true text and the best negative
    get the gradient; else the mean over t of log(1 + sum_n e^v(t, n)), each true text as much.
    Mean over samples that have a negative. It fades once a gap is beyond the margin by a few 1/s,
    so negatives are not pushed without end. Without positives and margin it is `negative_loss`.
    """
    texts, there = true_texts(captions, positives, has_positive)
    against = known(has_negative, negatives)
    gaps = violations(own_scores(images, texts), own_scores(images, negatives), margin)
    pairs = there[:, :, None] & against[:, None]
    logits = scale.detach() * gaps
    if worst:
        found = softplus_sum(logits.flatten(1), pairs.flatten(1))
    else:
        # A text that is not there has a sum of nothing: log 1.
        found = softplus_sum(logits, pairs).sum(1) / there.sum(1)
    return mean_over(found, against.any(1))


@in_float32
def hinge(
    images: Tensor,
    captions: Tensor,
    negatives: Tensor,
    scale: Tensor,
    positives: Tensor | None = None,
    has_positive: Tensor | None = None,
    has_negative: Tensor | None = None,
    margin: float = 0.1,
    worst: bool = False,
) -> Tensor:
    """`listwise` with a sharp corner: max(0, v(t, n)) is exactly 0 beyond the margin.

    Mean over an image's pairs (t, n), or with `worst` their maximum: the worst true text and the
    best negative alone. Mean over samples that have a negative.
    """
    texts, there = true_texts(captions, positives, has_positive)
    against = known(has_negative, negatives)
    gaps = violations(own_scores(images, texts), own_scores(images, negatives), margin)
    pairs = (there[:, :, None] & against[:, None]).flatten(1)
    over = torch.where(pairs, (scale.detach() * gaps.flatten(1)).relu(), 0)
    found = over.amax(1) if worst else over.sum(1) / pairs.sum(1).clamp_min(1)
    return mean_over(found, against.any(1))


@in_float32
def agreement(
    images: Tensor,
    captions: Tensor,
    positives: Tensor,
    scale: Tensor,
    has_positive: Tensor | None = None,
) -> Tensor:
    """Caption and positive score alike for their image: h(s (I.T - I.P)), h(x) = x^2 / 2 within
    [-1, 1] and |x| - 1/2 beyond, mean over samples with a positive.

    Brittleness is one of the two above the negative and the other not, so it cannot be larger than
    the share of negatives that fall between them. The linear part keeps the gradient to that of a
    cross-entropy at most.
    """
    there = known(has_positive, positives)
    gaps = own_scores(images, captions) - own_scores(images, positives)
    logits = scale.detach() * gaps
    found = smooth_l1_loss(logits, torch.zeros_like(logits), reduction="none")
    return mean_over(found, there)


@in_float32
def agreement_images(
    images: Tensor,
    captions: Tensor,
    positives: Tensor,
    scale: Tensor,
    has_positive: Tensor | None = None,
) -> Tensor:
    """Caption and positive find the same images: with p = softmax_j(s T_i.I_j), q of P_i likewise,
    1/2 [KL(p, q) + KL(q, p)] = 1/2 sum_j (p_j - q_j)(log p_j - log q_j), mean over positives."""
    there = known(has_positive, positives)
    mine, theirs = (
        (scale.detach() * texts @ images.T).log_softmax(1) for texts in (captions, positives)
    )
    return mean_over(((mine.exp() - theirs.exp()) * (mine - theirs)).sum(1) / 2, there)


@in_float32
def counterpart(
    images: Tensor,
    captions: Tensor,
    negatives: Tensor,
    negative_images: Tensor,
    scale: Tensor,
    positives: Tensor | None = None,
    has_positive: Tensor | None = None,
    has_negative: Tensor | None = None,
    has_negative_image: Tensor | None = None,
    margin: float = 0.0,
) -> Tensor:
    """What `listwise` asks of I, asked of its twin I', of which the first negative N is true.

    log(1 + sum of e^(s (v + margin))) over v = I'.t - I.t for each true text t (text to image),
    I.N - I'.N (the same for N), and I'.t - I'.N (I' to text): with I.N - I.t, which `listwise` has,
    all that BiVLC's group score asks. Mean over samples that have I' and N.
    """
    texts, there = true_texts(captions, positives, has_positive)
    false = negatives[:, 0]
    seen, unseen = own_scores(images, texts), own_scores(negative_images, texts)
    its_own = own_scores(negative_images, false)[:, None]
    others = own_scores(images, false)[:, None]
    gaps = torch.cat((unseen - seen, unseen - its_own, others - its_own), 1)
    rows = known(has_negative_image, negative_images) & known(has_negative, negatives)[:, 0]
    present = torch.cat((there, there, rows[:, None]), 1)
    return mean_over(softplus_sum(scale.detach() * (gaps + margin), present), rows)


@in_float32
def hold(
    images: Tensor,
    captions: Tensor,
    scale: Tensor,
    start_images: Tensor,
    start_captions: Tensor,
    positives: Tensor | None = None,
    has_positive: Tensor | None = None,
    start_positives: Tensor | None = None,
    slack: float = 0.0,
) -> Tensor:
    """True texts keep the score that the frozen start gave them: s max(0, I0.t0 - I.t - slack).

    Mean over the true texts of the batch: captions, and positives where the start's are given too.
    Hard negatives lower all scores (Kamath et al. 2024); this makes the way up the only one out. A
    score above the start's costs nothing. The start's vectors get no gradient.
    """
    pairs = [(captions, start_captions, known(None, captions))]
    if positives is not None and start_positives is not None:
        pairs.append((positives, start_positives, known(has_positive, positives)))
    lost = [
        (own_scores(start_images, before).detach() - own_scores(images, now) - slack).relu()
        for now, before, _ in pairs
    ]
    return mean_over(scale.detach() * torch.cat(lost), torch.cat([there for *_, there in pairs]))


def true_texts(
    captions: Tensor, positives: Tensor | None, has_positive: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The true texts of each image, (B, 1 or 2, d), and which are there."""
    there = known(None, captions)[:, None]
    if positives is None:
        return captions[:, None], there
    both = torch.stack((captions, positives), 1)
    return both, torch.cat((there, known(has_positive, positives)[:, None]), 1)


def violations(right: Tensor, wrong: Tensor, margin: float) -> Tensor:
    """By how much each wrong score (B, k) is too high for each right one (B, t): (B, t, k)."""
    return wrong[:, None] - right[:, :, None] + margin
