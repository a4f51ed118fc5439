"""Flickr8k from vectors of its photographs (`scripts/flickr8k.py`), against slow loops."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import hf_models
import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import save_file

FLICKR_TEXTS = (
    ["a blue ring", "a ring"],
    ["zebra"],
    ["a large star", "the tall star", "star"],
    ["two birds"],
)


@pytest.fixture
def flickr8k(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "scripts"))
    yield importlib.import_module("flickr8k")


def flickr_root(root: Path, width: int) -> np.ndarray:
    """Four photographs, of which only vectors are there; the last one is of another split."""
    vectors = torch.randn(4, width, generator=torch.Generator().manual_seed(0))
    splits = ("dev", "dev", "dev", "test")
    rows = [
        {"image": f"{n}.jpg", "captions": texts, "split": split}
        for n, (texts, split) in enumerate(zip(FLICKR_TEXTS, splits, strict=True))
    ]
    (root / "flickr8k").mkdir(parents=True)
    (root / "flickr8k/captions.json").write_text(json.dumps(rows))
    save_file({"vectors": vectors}, root / "flickr8k/dinov2_small_cls_mean.safetensors")
    return vectors.numpy()


def test_retrieval_and_accuracy_from_vectors(flickr8k: ModuleType, tmp_path: Path) -> None:
    """Recall and accuracy, as loops over the scores of the model's own vectors find them."""
    folder = hf_models.save(tmp_path / "model", hf_models.dinov2_bert)
    dual = hf_models.load("hf", folder)
    vectors = flickr_root(tmp_path, dual.opened.model.config.vision_config.hidden_size)
    flickr = flickr8k.Flickr8k(f"hf:{folder}", tmp_path, "cpu")
    with torch.inference_mode():
        seen = dual.opened.model.visual_projection(torch.from_numpy(vectors)).numpy()

    def scores(texts: list[str]) -> np.ndarray:
        return seen @ dual.encode_captions(texts).T

    owners = [n for n in range(3) for _ in FLICKR_TEXTS[n]]
    texts = [text for n in range(3) for text in FLICKR_TEXTS[n]]
    table = scores(texts)
    unit = table / np.linalg.norm(seen, axis=1, keepdims=True)
    found = flickr.recalls("dev")
    assert found["image_to_text_recall@1"].tolist() == [
        owners[int(unit[n].argmax())] == n for n in range(3)
    ]
    hits = [int(unit[:3, j].argmax()) == owner for j, owner in enumerate(owners)]
    shares = [
        np.mean([hit for hit, o in zip(hits, owners, strict=True) if o == n]) for n in range(3)
    ]
    assert found["text_to_image_recall@1"].tolist() == pytest.approx(shares)
    pairs = pl.DataFrame(
        {
            "image": ["flickr8k/3.jpg", "flickr8k/0.jpg", "flickr8k/0.jpg"],
            "caption": ["two birds", "a ring", "a ring"],
            "text": ["zebra", "zebra", "a ring"],
        }
    )
    both = scores(["two birds", "zebra", "a ring"])
    above = [both[3, 0] > both[3, 1], both[0, 2] > both[0, 1], False]  # a tie is wrong
    assert flickr.accuracy(pairs)["accuracy"].tolist() == above


def test_a_model_that_needs_other_vectors_is_not_measured(
    flickr8k: ModuleType, tmp_path: Path
) -> None:
    folder = hf_models.save(tmp_path / "model", hf_models.dinov2_bert)
    flickr_root(tmp_path, 5)
    flickr = flickr8k.Flickr8k(f"hf:{folder}", tmp_path, "cpu")
    assert flickr.recalls("dev") == {} and flickr.accuracy(pl.DataFrame()) == {}
