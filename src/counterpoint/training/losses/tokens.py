"""Losses over patches and words: what the towers hold before they pool it.

Patches v and words w are projected as pooled vectors are, and not of unit length; u(x) = x / |x|.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from counterpoint.training.batches import Features, reads
from counterpoint.training.losses.published import focal_choice


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
