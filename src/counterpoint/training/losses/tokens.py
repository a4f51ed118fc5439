"""Losses over patches and words: what the towers hold before they pool it.

Patches v and words w are projected as pooled vectors are, and not of unit length; u(x) = x / |x|.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from counterpoint.training.losses.masks import mean_over
from counterpoint.training.losses.published import (
    all_phrases,
    all_phrases_sigmoid,
    focal_choice,
)
from counterpoint.training.losses.terms import Features, reads


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
    return focal_choice(torch.cat((right, wrong), 1), there, gamma, smoothing)


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
    return all_phrases(f.scale * _pooled_scores(f), f.mask("dense"))


@reads("images", "dense", "image_tokens", "bias")
def siglip_concept_patches(f: Features) -> Tensor:
    """C2LIP's concept loss (Pham et al. 2026; its weight there is 0.01): `siglip-concepts` with the
    pooled scores of `concept-patches`, x(I, C) = s g.C + b. Whether the authors' patches have unit
    length was not found; here they have not."""
    return all_phrases_sigmoid(f.scale * _pooled_scores(f) + f.bias, f.mask("dense"))


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
