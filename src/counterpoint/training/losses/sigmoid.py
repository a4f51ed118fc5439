"""Sigmoid losses (Zhai et al. 2023, SigLIP), with hard texts.

Every image and text are a pair of their own: right or wrong, whatever else is in the batch. In
formulas x(I, T) = s I.T + b, with the scale s and the model's logit bias b; l(x) = log(1 + e^-x) is
the cost of a right pair, and l(-x) that of a wrong one.

The losses over an image's own texts (`negatives`, `focal`, `listwise`, `hinge`, `agreement`,
`counterpart`, `hold`) compare scores with each other. The bias cancels there, and they are the same
for all models.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from counterpoint.training.batches import Features, reads
from counterpoint.training.losses.masks import mean_over, own_scores


@reads("images", "captions", "bias")
def siglip(f: Features) -> Tensor:
    """SigLIP's loss: 1/B sum_ij l(z_ij x(I_i, T_j)), z_ij = 1 for an image's own text, else -1."""
    every = f.mask()
    return _all_pairs(f, f.images, f.captions, every, every)


@reads("images", "captions", "negatives", "bias")
def siglip_with_negatives(f: Features) -> Tensor:
    """`siglip` with all negatives (B, k, d) of the batch as wrong texts of every image.

    1/B [sum_ij l(z_ij x(I_i, T_j)) + sum_ijk l(-x(I_i, N_jk))]: what `clip-negatives` is to `clip`.
    Where no sample has a negative it is `siglip`.
    """
    every = f.mask()
    texts = torch.cat((f.captions, f.negatives.flatten(0, 1)))
    there = torch.cat((every, f.mask("negatives").flatten()))
    return _all_pairs(f, f.images, texts, every, there)


@reads(
    "images",
    "captions",
    "negatives",
    "hard_images",
    "hard_captions",
    "hard_negatives",
    "bias",
)
def siglip_negclip(f: Features) -> Tensor:
    """`negclip` (Yuksekgonul et al. 2023) under the sigmoid: `siglip-negatives` on [I; I_hard] and
    [T; T_hard; N; N_hard]."""
    names = ("images", "captions", "negatives")
    both: dict[str, Any] = {
        name: torch.cat((getattr(f, name), getattr(f.hard, name))) for name in names
    }
    there = torch.cat((f.mask("negatives"), f.hard.mask("negatives")))
    return siglip_with_negatives(replace(f, **both, has_negative=there))


@reads("images", "captions", "negatives", "bias")
def siglip_own(f: Features) -> Tensor:
    """An image's own negatives are wrong: the mean over its k negatives of l(-x(I, N_k)), mean over
    the samples that have one. A weight for hard negatives apart from those of other images."""
    there = f.mask("negatives")
    wrong = softplus(f.scale * own_scores(f.images, f.negatives) + f.bias)
    each = torch.where(there, wrong, 0).sum(1) / there.sum(1).clamp_min(1)
    return mean_over(each, there.any(1))


@reads("images", "positives", "bias")
def siglip_positives(f: Features) -> Tensor:
    """The positive takes the caption's place: `siglip` on I and P, 1/B sum_ij l(z_ij x(I_i, P_j)).

    Samples without a positive are neither rows nor columns. `analogy` also compares captions with
    positives; here they are not, because the bias is that of images with texts.
    """
    there = f.mask("positives")
    return _all_pairs(f, f.images, f.positives, there, there)


@reads("images", "captions", "negative_images", "negatives", "bias")
def siglip_trohn_img(f: Features) -> Tensor:
    """`trohn-img` (Miranda et al. 2024) under the sigmoid: `siglip` on the 2B pairs [I; I'] and
    [T; N], of which those without an image of the first negative are left out."""
    twins = f.mask("negative_images") & f.mask("negatives")[:, 0]
    there = torch.cat((f.mask(), twins))
    images = torch.cat((f.images, f.negative_images))
    return _all_pairs(f, images, torch.cat((f.captions, f.negatives[:, 0])), there, there)


@reads("images", "dense", "bias")
def siglip_concepts(f: Features) -> Tensor:
    """C2LIP's noun phrases (Pham et al. 2026): every image with every phrase C_jk of the batch.

    1/n sum_ijk l(z_ij x(I_i, C_jk)), n being the number of phrases that are there. No hard negative
    is needed. A phrase that is true of another image, too, still counts as false there.
    """
    logits = torch.einsum("id,jkd->ijk", f.scale * f.images, f.dense) + f.bias
    return all_phrases_sigmoid(logits, f.mask("dense"))


def all_phrases_sigmoid(logits: Tensor, there: Tensor) -> Tensor:
    """`siglip-concepts` of logits (images, B, m)."""
    same = torch.eye(len(logits), dtype=torch.bool, device=logits.device)[:, :, None]
    return mean_over(softplus(torch.where(same, -logits, logits)).sum(0), there)


def _all_pairs(f: Features, images: Tensor, texts: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The sum over the texts (C >= R) that are there, mean over the images (R) that are; text i is
    that of image i."""
    logits = f.scale * images @ texts.T + f.bias
    right = torch.eye(*logits.shape, dtype=torch.bool, device=logits.device)
    costs = softplus(torch.where(right, -logits, logits))
    return mean_over(torch.where(columns[None], costs, 0).sum(1), rows)
