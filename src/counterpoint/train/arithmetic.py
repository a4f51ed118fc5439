"""How precisely a run computes, and that a run computes alike from its first step to its last."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Final

import torch

from counterpoint.models.torch_models import set_arithmetic

_HALF: Final = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(precision: str, device: torch.device) -> Callable[[], AbstractContextManager[Any]]:
    """For the towers: weights stay float32, matrix products are done in half precision."""
    half = _HALF.get(precision)
    return partial(torch.autocast, device.type, dtype=half, enabled=half is not None)


@contextmanager
def arithmetic(precision: str, device: torch.device) -> Iterator[None]:
    """For a whole run. Half precision aside, float32 is float32: torch would round to TF32.

    On a CPU without instructions for half precision torch finds out in the first product, and from
    then on computes everything in another way, float32 too: a resumed run would begin with what the
    undisturbed one had left behind. So it is made to find out here, and to forget afterwards.
    """
    set_arithmetic()
    before = torch._C._get_mkldnn_enabled(), torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True  # a run's images have one shape
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "mkldnn_matmul failed")
        if device.type == "cpu" and precision in _HALF:
            # a product of this form finds out; one of two matrices does not
            probe = torch.ones(8, 5, 32, dtype=_HALF[precision])
            torch.nn.functional.linear(probe, torch.ones(96, 32, dtype=_HALF[precision]))
        try:
            yield
        finally:
            torch._C._set_mkldnn_enabled(before[0])
            torch.backends.cudnn.benchmark = before[1]
