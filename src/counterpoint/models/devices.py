"""Where torch models run."""

from __future__ import annotations

import torch

from counterpoint.errors import ModelError


def pick_device(name: str) -> str:
    """`cpu` or `cuda`, from `auto`, `cpu` or `cuda`; on a GPU, float32 is made to mean it."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ModelError("--device cuda: torch sees no GPU here; use --device cpu or auto.")
    device = name
    if name == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        # torch rounds convolutions to TF32 unless told not to: scores moved by 1e-4 on an H200.
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_tf32 = False
    return device
