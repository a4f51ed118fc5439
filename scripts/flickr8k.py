"""Flickr8k, of which only vectors of the photographs are at hand: retrieval, and hard negatives.

    python scripts/flickr8k.py hf:FOLDER --data DATA --split dev --pairs dev-negatives.parquet

A model that was tuned with a locked image trunk (`lock=image`) has a projection for these vectors,
so it can be evaluated without the photographs. Prints recall@1 (a caption of the photograph is
first among all captions, the photograph of a caption is first among all photographs) and, with
pairs of `counterpoint generate negatives`, how many captions are above their negatives.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
import torch
from photo_data import FLICKR8K, tidy
from safetensors.torch import load_file

from counterpoint.metrics.rankings import both_standings, recall
from counterpoint.training.starts import open_start, towers_of, trunk_of

RECALLS: Final = ("image_to_text_recall@1", "text_to_image_recall@1")
ACCURACY: Final = "accuracy"
_BATCH: Final = 500


class Flickr8k:
    """The photographs as vectors, and a model that sees them.

    `fits`: whether it does; one that pools the tokens of all patches needs more than there is, and
    nothing is measured.
    """

    def __init__(self, model: str, data: Path, device: str = "auto") -> None:
        self.rows: list[dict[str, Any]] = json.loads(
            (data / "flickr8k" / "captions.json").read_text(encoding="utf-8")
        )
        [self.vectors] = load_file(data / "flickr8k" / "dinov2_small_cls_mean.safetensors").values()
        self._start = open_start(model, device)
        self._trunk = trunk_of(self._start)
        self._towers = towers_of(self._start, None, self._trunk).eval()
        self._device = next(self._start.model.parameters()).device
        self.fits = self.vectors.shape[1] == np.prod(self._trunk.shape)

    def recalls(self, split: str) -> dict[str, np.ndarray]:
        """Of each photograph: whether a caption of it is found, and the share of its captions that
        find it. A tie with another photograph or its caption is a miss."""
        if not self.fits:
            return {}
        chosen = [number for number, row in enumerate(self.rows) if row["split"] == split]
        texts = [tidy(text) for number in chosen for text in self.rows[number]["captions"]]
        owner = np.repeat(np.arange(len(chosen)), [len(self.rows[n]["captions"]) for n in chosen])
        scores = (self._see(chosen) @ self._read(texts).T).double().cpu().numpy()
        ranked = both_standings(scores, owner[None] == np.arange(len(chosen))[:, None])
        there, back = (recall(ranked[side], 1, "wrong") for side in ("images", "captions"))
        found = (there, np.bincount(owner, back) / np.bincount(owner))
        return dict(zip(RECALLS, found, strict=True))

    def accuracy(self, pairs: pl.DataFrame) -> dict[str, np.ndarray]:
        """Of each pair: whether the caption is above the text. A tie is wrong."""
        if not self.fits:
            return {}
        numbers = {f"{FLICKR8K}/{row['image']}": n for n, row in enumerate(self.rows)}
        images = self._see([numbers[image] for image in pairs["image"]])
        captions, texts = (self._read(pairs[name].to_list()) for name in ("caption", "text"))
        above = (images * (captions - texts)).sum(1) > 0
        return {ACCURACY: above.double().cpu().numpy()}

    def _see(self, numbers: Sequence[int]) -> torch.Tensor:
        vectors = self.vectors[list(numbers)].reshape(-1, *self._trunk.shape)
        with torch.inference_mode():
            seen: torch.Tensor = self._towers(vectors.to(self._device), None)[0]
        return seen

    def _read(self, texts: Sequence[str]) -> torch.Tensor:
        places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        each = list(places)
        with torch.inference_mode():
            pieces = [
                self._towers(None, self._start.tokenizer(each[n : n + _BATCH]).to(self._device))[1]
                for n in range(0, len(each), _BATCH)
            ]
        return torch.cat(pieces)[[places[text] for text in texts]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--data", type=Path, required=True, help="the data root")
    parser.add_argument("--split", choices=("train", "dev", "test"), default="test")
    parser.add_argument("--pairs", type=Path, help="made by counterpoint generate negatives")
    given = parser.parse_args()
    for model in given.models:
        flickr = Flickr8k(model, given.data)
        found = flickr.recalls(given.split)
        if given.pairs:
            found |= flickr.accuracy(pl.read_parquet(given.pairs))
        told = [f"{name} {100 * values.mean():.1f}" for name, values in found.items()]
        print(f"{model}: {given.split} {', '.join(told) or 'needs the tokens of patches'}")


if __name__ == "__main__":
    main()
