"""Batches of vectors for the losses, and what a term makes of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from counterpoint.training.losses.terms import TERMS, Features, Term, loss, uses

torch.set_num_threads(1)
NAMES = sorted(TERMS.builtin)
SCALE = 4.0
BIAS = -1.5
SIZES = [(1, 3, 1), (2, 1, 2), (3, 3, 2)]
MASKS = {  # of which vectors each says that they are there
    "has_positive": ("positives", "start_positives", "reconstruction"),
    "has_negative": ("negatives", "start_negatives"),
    "has_negative_image": ("negative_images",),
    "has_dense": ("dense",),
    "has_dense_negative": ("dense_negatives",),
    "hard_has_negative": ("hard_negatives",),
    "has_caption_token": ("caption_tokens",),
    "has_negative_token": ("negative_tokens",),
}
PATCHES, WORDS = 3, 2


def parts(sizes, there, seed=0, width=3):
    """All that a term may ask for, by the parameter's name. `there`: all, none, or some."""
    count, k, m = sizes
    rng = np.random.default_rng((seed, count, k, m))
    shapes = {"negatives": (k,), "hard_negatives": (k,), "dense": (m,), "dense_negatives": (m,)}
    names = ["images", "captions", "positives", "negative_images", "hard_images", "hard_captions"]
    names += ["start_images", "start_captions", "start_positives", *shapes]
    shapes |= {"start_negatives": (k,), "image_tokens": (PATCHES,)}
    shapes |= {"caption_tokens": (WORDS,), "negative_tokens": (k * WORDS,)}
    found = {}

    def draw(names, masks):
        for name in names:
            vectors = rng.standard_normal((count, *shapes.get(name, ()), width))
            found[name] = torch.tensor(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True))
        for mask in masks:
            chosen = {"all": 1.0, "none": 0.0, "some": 0.6}[there]
            shape = tuple(found[MASKS[mask][0]].shape[:-1])
            found[mask] = torch.tensor(rng.random(shape) < chosen)

    tokens = [name for name in MASKS if name.endswith("_token")]
    draw(names, [name for name in MASKS if name not in tokens])
    draw([name for name in shapes if name not in names] + ["reconstruction"], tokens)
    return found


def bundled(given, scale=SCALE):
    """The same as the loop has it."""
    scale = torch.as_tensor(scale, dtype=torch.float64)

    def features(prefix):
        names = [n for n in given if n.startswith(prefix)]
        if not prefix:
            names = [n for n in names if not n.startswith(("hard_", "start_"))]
        return Features(**{n.removeprefix(prefix): given[n] for n in names}, scale=scale)

    bias = torch.as_tensor(BIAS, dtype=torch.float64)
    return replace(features(""), hard=features("hard_"), start=features("start_"), bias=bias)


def wanted(name):
    """What a term reads of the data."""
    return sorted(uses([Term(name)]) - {"bias"})


def value_and_gradients(name, given, options=None, scale=SCALE):
    """By way of `loss`, as the loop does it."""
    leaves = {
        part: value.clone().requires_grad_() if value.is_floating_point() else value
        for part, value in given.items()
    }
    dtype = given["images"].dtype
    factor, bias = (torch.tensor(v, dtype=dtype, requires_grad=True) for v in (scale, BIAS))
    term = Term(name, 1.0, options or {})
    values = loss(replace(bundled(leaves), scale=factor, bias=bias), [term])
    assert list(values) == [name]
    if values[name].requires_grad:
        values[name].backward()
    grads = {part: leaf.grad for part, leaf in leaves.items() if leaf.grad is not None}
    if factor.grad is not None:
        grads["scale"] = factor.grad
    if bias.grad is not None:
        grads["bias"] = bias.grad
    return values[name].detach(), grads
