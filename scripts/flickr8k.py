"""Retrieval on Flickr8k, of which only vectors of the photographs are at hand.

    python scripts/flickr8k.py hf:FOLDER --data DATA --split test

A model that was tuned with a locked image trunk (`lock=image`) has a projection for these vectors,
so it can be evaluated without the photographs. Prints recall@1: a caption of the photograph is
first among all captions, the photograph of a caption is first among all photographs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Final

import numpy as np
import torch
from photo_data import tidy
from safetensors.torch import load_file

from counterpoint.metrics.rankings import both_standings, recall
from counterpoint.training.starts import open_start, towers_of, trunk_of

RECALLS: Final = ("image_to_text_recall@1", "text_to_image_recall@1")
_BATCH: Final = 500


def recalls(model: str, data: Path, split: str, device: str = "auto") -> dict[str, np.ndarray]:
    """Of each photograph: whether a caption of it is found, and the share of its captions that
    find it. A tie with another photograph or its caption is a miss. Nothing, if the model needs
    other vectors than there are: the tokens of all patches."""
    rows = json.loads((data / "flickr8k" / "captions.json").read_text(encoding="utf-8"))
    chosen = [number for number, row in enumerate(rows) if row["split"] == split]
    [vectors] = load_file(data / "flickr8k" / "dinov2_small_cls_mean.safetensors").values()
    texts = [tidy(text) for number in chosen for text in rows[number]["captions"]]
    owner = np.repeat(np.arange(len(chosen)), [len(rows[n]["captions"]) for n in chosen])
    start = open_start(model, device)
    trunk = trunk_of(start)
    if vectors.shape[1] != np.prod(trunk.shape):
        return {}
    towers = towers_of(start, None, trunk).eval()
    where = next(start.model.parameters()).device
    with torch.inference_mode():
        images = towers(vectors[chosen].reshape(-1, *trunk.shape).to(where), None)[0]
        words = [
            towers(None, start.tokenizer(texts[first : first + _BATCH]).to(where))[1]
            for first in range(0, len(texts), _BATCH)
        ]
        scores = (images @ torch.cat(words).T).double().cpu().numpy()
    ranked = both_standings(scores, owner[None] == np.arange(len(chosen))[:, None])
    there, back = (recall(ranked[side], 1, "wrong") for side in ("images", "captions"))
    return dict(zip(RECALLS, (there, np.bincount(owner, back) / np.bincount(owner)), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--data", type=Path, required=True, help="the data root")
    parser.add_argument("--split", choices=("train", "dev", "test"), default="test")
    given = parser.parse_args()
    for model in given.models:
        found = recalls(model, given.data, given.split)
        told = [f"{name} {100 * values.mean():.1f}" for name, values in found.items()]
        print(f"{model}: {given.split} {', '.join(told) or 'needs the tokens of patches'}")


if __name__ == "__main__":
    main()
