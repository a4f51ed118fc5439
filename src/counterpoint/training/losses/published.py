"""The losses of the papers: over a softmax, and their sigmoid forms (Zhai et al. 2023, SigLIP).

In formulas: I images, T captions, P positives, N negatives; s is the scale. CE(x, arange) is the
mean over the rows i of logsumexp(x_i) - x_ii.

Under the sigmoid every image and text are a pair of their own: right or wrong, whatever else is in
the batch. There x(I, T) = s I.T + b with the model's logit bias b, l(x) = log(1 + e^-x) is the
cost of a right pair, and l(-x) that of a wrong one. The losses over an image's own texts
(`negatives`, `focal`, `listwise`, `hinge`, `agreement`, `counterpart`, `hold`) compare scores with
each other. The bias cancels there, and they are the same for all models.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize, softplus

from counterpoint.training.losses.masks import (
    kept,
    matched,
    mean_over,
    own_scores,
    softplus_sum,
)
from counterpoint.training.losses.terms import Features, reads


@reads("images", "captions")
def clip(f: Features) -> Tensor:
    """Symmetric InfoNCE (Radford et al. 2021): 1/2 [CE(s I T', arange) + CE(s T I', arange)]."""
    logits, there = f.scale * f.images @ f.captions.T, f.mask()
    return (matched(logits, there, there) + matched(logits.T, there, there)) / 2


@reads("images", "captions", "negatives")
def clip_negatives(f: Features) -> Tensor:
    """All negatives (B, k, d) of the batch as further columns for every image.

    1/2 [CE(s I [T; N]', arange) + CE(s T I', arange)]: no image belongs to a negative, so none is
    a row of the text side. NegCLIP without hard images (Yuksekgonul et al. 2023), CREPE's and
    SugarCrepe's models (Ma et al. 2023, Hsieh et al. 2023), TROHN-Text (Miranda et al. 2024) and
    SVLC's contrastive term (Doveh et al. 2023). Where no sample has a negative it is `clip`.
    """
    every = f.mask()
    false = f.negatives.flatten(0, 1), f.mask("negatives").flatten()
    return _against(f, (f.images, every), (f.captions, every), false)


_NEGCLIP = ("images", "captions", "negatives", "hard_images", "hard_captions", "hard_negatives")


@reads(*_NEGCLIP)
def negclip(f: Features) -> Tensor:
    """NegCLIP (Yuksekgonul et al. 2023): `clip_negatives` on [I; I_hard] (2B) and
    [T; T_hard; N; N_hard] (2B + 2Bk), a hard image being one of the nearest to its image."""
    return clip_negatives(_with_hard(f))


def _with_hard(f: Features) -> Features:
    """Samples and their hard images as one batch."""
    both: dict[str, Any] = {
        name: torch.cat((getattr(f, name), getattr(f.hard, name)))
        for name in ("images", "captions", "negatives")
    }
    there = torch.cat((f.mask("negatives"), f.hard.mask("negatives")))
    return replace(f, **both, has_negative=there)


@reads("images", "captions", "negatives")
def negatives(f: Features) -> Tensor:
    """An image's caption against its own k negatives: CE(s [I.T, I.N_1, ..., I.N_k], 0).

    SVLC's L_neg (Doveh et al. 2023) and the HN loss of Hard Positives (Kamath et al. 2024). Mean
    over the samples that have a negative. Without any negative of its own a row would be 0.
    """
    there = f.mask("negatives")
    gaps = own_scores(f.images, f.negatives) - own_scores(f.images, f.captions)[:, None]
    return mean_over(softplus_sum(f.scale * gaps, there), there.any(1))


@reads("images", "captions", "negatives")
def focal(f: Features, gamma: float = 2.0, smoothing: float = 0.02) -> Tensor:
    """FSC-CLIP's hard-negative loss, its global part (Oh et al. 2024; its weight there is 0.5).

    With p the softmax of s [I.T, I.N_1, ..., I.N_n] over the n negatives that are there, and
    y = 1 - smoothing + smoothing / (n + 1) for the caption and smoothing / (n + 1) for a negative:
    the sum over classes of -y (1 - p)^gamma log p, mean over samples with a negative. With both
    options 0 it is `negatives`. The authors' softmax holds a logit 0 for an absent negative.
    """
    there = torch.cat((f.mask()[:, None], f.mask("negatives")), 1)
    scores = own_scores(f.images, torch.cat((f.captions[:, None], f.negatives), 1))
    return _focal_choice(f.scale * scores, there, gamma, smoothing)


def _focal_choice(logits: Tensor, there: Tensor, gamma: float, smoothing: float) -> Tensor:
    """The first of the classes (B, 1 + k) is right; mean over rows with it and another one."""
    rows = there[:, 0] & there[:, 1:].any(1)
    logs = kept(logits, there, rows).log_softmax(1)
    logs = logs.masked_fill(~there, 0)
    # expm1 keeps the digits of 1 - p where p is nearly 1. At p = 1 a power below 1 has an infinite
    # slope, which times the 0 of the clamp is 0.
    others = (-torch.expm1(logs)).clamp_min(torch.finfo(logs.dtype).tiny)
    share = smoothing / there.sum(1, keepdim=True).to(logs.dtype).clamp_min(1)
    first = torch.arange(there.shape[1], device=there.device) == 0
    labels = torch.where(there, share, 0) + (1 - smoothing) * first.to(logs.dtype)
    return mean_over((-labels * others**gamma * logs).sum(1), rows)


@reads("images", "captions", "positives")
def analogy(f: Features, symmetric: bool = False) -> Tensor:
    """The positive takes the caption's place: 1/2 [CE(s I P', arange) + CE(s T P', arange)].

    SVLC's L_pos (Doveh et al. 2023) and the HP loss of Hard Positives (Kamath et al. 2024);
    `symmetric` averages it with the other directions, s P I' and s P T'. Samples without a positive
    are neither rows nor columns. Note what it compares: positives of other images, never a positive
    with a negative of the same image, which is what augmented accuracy counts (see `listwise`).
    """
    there = f.mask("positives")
    both = [f.scale * one @ f.positives.T for one in (f.images, f.captions)]
    logits = both + [one.T for one in both] if symmetric else both
    return torch.stack([matched(one, there, there) for one in logits]).mean()


@reads("images", "dense")
def mil(f: Features) -> Tensor:
    """DAC's multiple-instance loss over dense captions (B, m, d) (Doveh et al. 2023b).

    With x[i, j, k] = s I_i.S_jk, mean over i with a dense caption of
    log sum_jk (e^x[i, j, k] + e^x[j, i, k]) - log sum_k e^x[i, i, k]: one of an image's captions
    being right is enough. Its own captions are in the first sum twice, as in DAC and in MIL-NCE, so
    the loss is never below log 2. Images without dense captions remain candidates for the others'.
    """
    there = f.mask("dense")
    rows = there.any(1)
    logits = _phrase_logits(f)
    to_texts = kept(logits, there[None], rows).flatten(1)
    to_images = kept(logits.transpose(0, 1), there[:, None], rows).flatten(1)
    mine = kept(f.scale * own_scores(f.images, f.dense), there, rows).logsumexp(1)
    return mean_over(torch.cat((to_texts, to_images), 1).logsumexp(1) - mine, rows)


@reads("images", "dense", "dense_negatives")
def mil_negatives(f: Features) -> Tensor:
    """DAC's negatives of dense captions (`--mil_dense_negs`), one per caption: (B, m, d).

    Mean over i with a dense caption and a negative of
    log sum_k (e^x[i, i, k] + e^x-[i, i, k]) - log sum_k e^x[i, i, k]. The authors give an absent
    negative a zero vector, that is a logit of 0; here it has none.
    """
    there, against = f.mask("dense"), f.mask("dense_negatives")
    rows = there.any(1) & against.any(1)
    mine = kept(f.scale * own_scores(f.images, f.dense), there, rows)
    wrong = kept(f.scale * own_scores(f.images, f.dense_negatives), against, rows)
    return mean_over(torch.cat((mine, wrong), 1).logsumexp(1) - mine.logsumexp(1), rows)


@reads("images", "captions", "negative_images", "negatives")
def trohn_img(f: Features) -> Tensor:
    """TROHN-Img (Miranda et al. 2024): `clip` on the 2B pairs [I; I'] and [T; N].

    N is the first negative, I' an image of which it is true; each is a pair like any other, and
    hard for its twin. A sample without such an image is one pair, and its negatives are not used.
    """
    images, texts, there = _with_twins(f)
    logits = f.scale * images @ texts.T
    return (matched(logits, there, there) + matched(logits.T, there, there)) / 2


def _with_twins(f: Features) -> tuple[Tensor, Tensor, Tensor]:
    """[I; I'], [T; N], and which pairs are there."""
    twins = f.mask("negative_images") & f.mask("negatives")[:, 0]
    images = torch.cat((f.images, f.negative_images))
    return images, torch.cat((f.captions, f.negatives[:, 0])), torch.cat((f.mask(), twins))


@reads("images", "captions", "negatives", "negative_images")
def tripletclip(f: Features) -> Tensor:
    """TripletCLIP (Patel et al. 2024): `clip-negatives` on (I, T, N) and on its twin (I', N, T).

    N is the first negative and I' an image of which it is true. With K(I, T, N) =
    1/2 [CE(s I [T; N]', arange) + CE(s T I', arange)]: K(I, T, N) + K(I', N, T). As in the authors'
    code, I and I' are never in one softmax (see `trohn-img`). A sample without I' or N is a row and
    a column of the first part only, and its negative is not used.
    """
    twins = f.mask("negative_images") & f.mask("negatives")[:, 0]
    every, false = f.mask(), f.negatives[:, 0]
    first = _against(f, (f.images, every), (f.captions, every), (false, twins))
    return first + _against(f, (f.negative_images, twins), (false, twins), (f.captions, every))


_Some = tuple[Tensor, Tensor]  # vectors (B, d), and which are there


def _against(f: Features, images: _Some, texts: _Some, others: _Some) -> Tensor:
    """Images with their texts, `others` being further columns for the images."""
    (seen, rows), (said, _), (wrong, beside) = images, texts, others
    columns = torch.cat((rows, beside))
    to_texts = matched(f.scale * seen @ torch.cat((said, wrong)).T, rows, columns)
    return (to_texts + matched(f.scale * said @ seen.T, rows, rows)) / 2


@reads("images", "captions", "negatives")
def intra_modal(f: Features) -> Tensor:
    """CE-CLIP's intra-modal contrast (Zhang et al. 2024): captions away from hard negatives.

    Mean over samples of -log e^(s I.T) / (e^(s I.T) + sum_jk e^(s T.N_jk)): the sum is over all
    negatives of the batch, and what they are compared with is the score of the image. As in the
    authors' code of 2023; a later version of it has lost the first column.
    """
    right = f.scale * own_scores(f.images, f.captions)
    wrong = f.scale * f.captions @ f.negatives.flatten(0, 1).T
    there = f.mask("negatives").flatten().expand_as(wrong)
    return mean_over(softplus_sum(wrong - right[:, None], there), f.mask())


@reads("images", "captions", "negatives")
def rank(f: Features, bound: float = 5.0) -> Tensor:
    """CE-CLIP's cross-modal rank loss with an adaptive threshold (Zhang et al. 2024).

    Mean over the negatives of max(0, t_k + s I.N_k - s I.T). The threshold of the k-th negatives is
    the mean of their gaps s (I.T - I.N_k), without a gradient, and between 0 and `bound`: it grows
    as the model learns. The authors take the mean of the step before. Here it is that of the batch
    itself, so that the loss depends on nothing but the batch, and a resumed run on no threshold.
    """
    there = f.mask("negatives")
    right, wrong = own_scores(f.images, f.captions), own_scores(f.images, f.negatives)
    gaps = f.scale * (right[:, None] - wrong)
    known = torch.where(there, gaps, 0).detach().sum(0) / there.sum(0).clamp_min(1)
    return mean_over((known.clamp(0, bound) - gaps).relu(), there)


@reads("captions", "negatives", "start_captions")
def text_grounded(f: Features, factor: float = 10.0) -> Tensor:
    """DeGLA's text-grounded contrast (Hu et al. 2025): CE(c [T.T0, T.N_1, ..., T.N_k], 0).

    T0 is the caption under the teacher, which has no gradient; c is `factor`, 1 over the authors'
    temperature. Mean over samples with a negative. (Their image-grounded contrast is `negatives`.)
    The paper means a caption's own negatives; the mask of the authors' code pairs captions with
    negatives of other samples if a sample has several.
    """
    there = f.mask("negatives")
    right = own_scores(f.captions, f.start.captions.detach())
    gaps = own_scores(f.captions, f.negatives) - right[:, None]
    return mean_over(softplus_sum(factor * gaps, there), there.any(1))


@reads("images", "captions", "negatives", "start_images", "start_captions", "start_negatives")
def distill(f: Features) -> Tensor:
    """DeGLA's self-distillation (Hu et al. 2025): vectors stay near those of the teacher.

    Mean over samples of |I - I0|^2 + |T - T0|^2 + sum_k |N_k - N0_k|^2. The authors take the sum
    over a batch: their weight is to be multiplied by their batch size. The teacher has no gradient.
    """
    found = torch.zeros_like(f.images[:, 0])
    for name in ("images", "captions"):
        found = found + (getattr(f, name) - getattr(f.start, name).detach()).square().sum(-1)
    moved = (f.negatives - f.start.negatives.detach()).square().sum(-1)
    found = found + torch.where(f.mask("negatives"), moved, 0).sum(1)
    return mean_over(found, f.mask())


@reads("images", "dense")
def concepts(f: Features) -> Tensor:
    """C2LIP's noun phrases (Pham et al. 2026) in a softmax form, ours: phrases find their image.

    Mean over the phrases c = (j, k) of the batch, with x(i, c) = s I_i.C_c, of
    1/2 [log sum_i e^x(i, c) - x(j, c) + log(e^x(j, c) + sum_c' e^x(j, c')) - x(j, c)], c' being
    those of other images: phrases of one image are not contrasted with each other. No hard negative
    is needed. A phrase that is true of another image, too, still counts as false there.
    """
    return _all_phrases(_phrase_logits(f), f.mask("dense"))


def _phrase_logits(f: Features) -> Tensor:
    """Of each image with each phrase (B, B, m)."""
    return torch.einsum("id,jkd->ijk", f.scale * f.images, f.dense)


def _all_phrases(logits: Tensor, there: Tensor) -> Tensor:
    """`concepts` of logits (images, B, m): mean over the phrases that are there."""
    size = len(logits)
    same = torch.eye(size, dtype=torch.bool, device=logits.device)
    right = logits[same]  # (B, m): of each image with its own
    to_images = logits.logsumexp(0) - right
    others = (there[None] & ~same[:, :, None]).flatten(1)
    gaps = logits.flatten(1)[:, None] - right[:, :, None]
    to_texts = softplus_sum(gaps, others[:, None].expand_as(gaps))
    return mean_over((to_images + to_texts) / 2, there)


@reads("captions", "positives")
def paraphrases(f: Features) -> Tensor:
    """READ-CLIP's sentence-level alignment (Kwon et al. 2025): CE(s P T', arange).

    A positive finds its caption among those of the batch. Mean over samples with a positive; the
    others' captions remain candidates. The weight there is 0.5.
    """
    logits = f.scale * f.positives @ f.captions.T
    return matched(logits, f.mask("positives"), f.mask("captions"))


@reads("images", "captions", "positives", "negatives")
def clic(f: Features, contrast: float = 0.5, own: float = 0.5, apart: float = 1.0) -> Tensor:
    """CLIC (Peleg et al. 2025), for images that are two side by side.

    The caption T says one thing of each half; the positive P says them in the other order, and the
    negative N has a word of each exchanged. With C(I, T) = `clip`:
    `contrast` 1/2 [C(I, T) + C(I, P)] + `own` 1/2 [CE(s [I.T, I.N], 0) + CE(s [I.P, I.N], 0)]
    + `apart` |T - P|^2, each a mean over samples that have both. A batch without any is of single
    images, every second one: then it is C(I, T), with the weight 1. The authors have two more
    positives, of other captions of the two images.
    """
    every, both = f.mask(), f.mask("positives") & f.mask("negatives")[:, 0]
    if not bool(both.any()):
        return clip(f) + 0 * (f.positives.sum() + f.negatives.sum())
    found, hard = [], []
    for texts, there in ((f.captions, every), (f.positives, both)):
        logits = f.scale * f.images @ texts.T
        found.append((matched(logits, there, there) + matched(logits.T, there, there)) / 2)
        gap = own_scores(f.images, f.negatives[:, 0]) - own_scores(f.images, texts)
        hard.append(mean_over(softplus(f.scale * gap), both))
    moved = mean_over((f.captions - f.positives).square().sum(-1), both)
    return contrast * sum(found) / 2 + own * sum(hard) / 2 + apart * moved


# --- under the sigmoid ---------------------------------------------------------------------------


@reads("images", "captions", "bias")
def siglip(f: Features) -> Tensor:
    """SigLIP's loss: 1/B sum_ij l(z_ij x(I_i, T_j)), z_ij = 1 for an image's own text, else -1."""
    every = f.mask()
    return _all_pairs(f, f.images, f.captions, every, every)


@reads("images", "captions", "negatives", "bias")
def siglip_negatives(f: Features) -> Tensor:
    """`siglip` with all negatives (B, k, d) of the batch as wrong texts of every image.

    1/B [sum_ij l(z_ij x(I_i, T_j)) + sum_ijk l(-x(I_i, N_jk))]: what `clip-negatives` is to `clip`.
    Where no sample has a negative it is `siglip`.
    """
    every = f.mask()
    texts = torch.cat((f.captions, f.negatives.flatten(0, 1)))
    there = torch.cat((every, f.mask("negatives").flatten()))
    return _all_pairs(f, f.images, texts, every, there)


@reads(*_NEGCLIP, "bias")
def siglip_negclip(f: Features) -> Tensor:
    """`negclip` (Yuksekgonul et al. 2023) under the sigmoid: `siglip-negatives` on [I; I_hard] and
    [T; T_hard; N; N_hard]."""
    return siglip_negatives(_with_hard(f))


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
    images, texts, there = _with_twins(f)
    return _all_pairs(f, images, texts, there, there)


@reads("images", "dense", "bias")
def siglip_concepts(f: Features) -> Tensor:
    """C2LIP's noun phrases (Pham et al. 2026): every image with every phrase C_jk of the batch.

    1/n sum_ijk l(z_ij x(I_i, C_jk)), n being the number of phrases that are there. No hard negative
    is needed. A phrase that is true of another image, too, still counts as false there.
    """
    return _all_phrases_sigmoid(_phrase_logits(f) + f.bias, f.mask("dense"))


def _all_phrases_sigmoid(logits: Tensor, there: Tensor) -> Tensor:
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


# --- over patches and words: what the towers hold before they pool it -----------------------------
#
# Patches v and words w are projected as pooled vectors are, and not of unit length; u(x) = x / |x|.


@reads("captions", "negatives", "image_tokens", "caption_tokens", "negative_tokens")
def focal_local(f: Features, gamma: float = 2.0, smoothing: float = 0.02) -> Tensor:
    """FSC-CLIP's local hard-negative loss (Oh et al. 2024; its weight there is 0.2).

    Each word w looks at the patches of its image. With a_p = w.v_p, scaled to [0, 1] over the
    patches and then to the sum 1 (without a gradient), it sees g(w) = u(sum_p a_p v_p). A text
    scores log sum_w e^(s g(w).u(w)) over its words (without the sign that begins every text), and
    these scores take the places of s I.T and s I.N in `focal`.
    """
    size, count = f.negatives.shape[:2]
    words = f.mask("negative_tokens").view(size, count, -1)
    said = f.mask("caption_tokens")
    right = _local_scores(f, f.caption_tokens, said)
    wrong = _local_scores(f, f.negative_tokens, words.flatten(1), count)
    there = torch.cat((said.any(1, keepdim=True), f.mask("negatives") & words.any(2)), 1)
    return _focal_choice(torch.cat((right, wrong), 1), there, gamma, smoothing)


def _local_scores(f: Features, words: Tensor, there: Tensor, texts: int = 1) -> Tensor:
    """(B, texts) of each image with its own texts, whose words are (B, texts * l, d)."""
    patches = f.image_tokens
    looks = (words @ patches.transpose(1, 2)).detach()
    low, high = looks.amin(2, keepdim=True), looks.amax(2, keepdim=True)
    tiny = torch.finfo(looks.dtype).tiny
    looks = (looks - low) / (high - low).clamp_min(tiny)
    looks = looks / looks.sum(2, keepdim=True).clamp_min(tiny)
    seen = normalize(looks @ patches, dim=-1)
    scores = f.scale * (seen * normalize(words, dim=-1)).sum(-1)
    scores, there = (x.view(len(x), texts, -1) for x in (scores, there))
    # A text without words keeps all of them, and is dropped by its mask.
    left = scores.masked_fill(~there & there.any(2, keepdim=True), float("-inf"))
    return left.logsumexp(2)


@reads("images", "dense", "image_tokens")
def concept_patches(f: Features) -> Tensor:
    """C2LIP's cross-modal pooling (Pham et al. 2026) in a softmax form, ours: `concepts` with the
    patches of an image instead of its vector.

    A phrase C pools the patches v_p of every image by softmax_p(v_p.C), without a weight of its
    own, to g = u(sum_p softmax_p(v_p.C) v_p). Its score with the image is s g.C.
    """
    return _all_phrases(f.scale * _pooled_scores(f), f.mask("dense"))


@reads("images", "dense", "image_tokens", "bias")
def siglip_concept_patches(f: Features) -> Tensor:
    """C2LIP's concept loss (Pham et al. 2026; its weight there is 0.01): `siglip-concepts` with the
    pooled scores of `concept-patches`, x(I, C) = s g.C + b. Whether the authors' patches have unit
    length was not found; here they have not."""
    return _all_phrases_sigmoid(f.scale * _pooled_scores(f) + f.bias, f.mask("dense"))


def _pooled_scores(f: Features) -> Tensor:
    """g.C of each image with each phrase (B, B, m), without a vector for each pair: with weights a,
    g.C is sum_p a_p v_p.C, divided by |sum_p a_p v_p|, whose square is a' (v v') a."""
    patches, phrases = f.image_tokens, f.dense.flatten(0, 1)
    looks = phrases @ patches.transpose(1, 2)  # (B, B m, p)
    shares = looks.softmax(2)
    square = (shares @ (patches @ patches.transpose(1, 2)) * shares).sum(2)
    length = square.clamp_min(torch.finfo(square.dtype).tiny).sqrt()
    return ((shares * looks).sum(2) / length).view(len(patches), *f.dense.shape[:2])


@reads("captions", "positives", "reconstruction")
def reconstruct(f: Features) -> Tensor:
    """READ-CLIP's token-level reconstruction (Kwon et al. 2025; its weight there is 0.1).

    A frozen decoder says another wording P of a caption from the caption's vector T, made its input
    by a projection that is trained (`decoders.py`): -1/l sum_w log p(P_w | P_<w, T), mean over
    samples with a positive. The authors take the mean over all words of a batch, another caption of
    the image as P, and as T the text tower's output before CLIP's own projection.
    """
    return mean_over(f.reconstruction.mean(1), f.mask("positives"))
