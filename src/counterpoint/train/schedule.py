"""The learning rate of a step."""

from __future__ import annotations

import math
from typing import Literal

Schedule = Literal["cosine", "constant"]


def learning_rate(
    step: int, steps: int, peak: float, warmup: int = 0, schedule: Schedule = "cosine"
) -> float:
    """Of step 0 to `steps` - 1: rises in a line over `warmup` steps, then falls as a cosine to 0.

    As open_clip's trainer: step 0 has peak / warmup, and the cosine starts at the peak. A warm-up
    longer than the run stops where the run does.
    """
    if step < warmup:
        return peak * (step + 1) / warmup
    if schedule == "constant":
        return peak
    done = (step - warmup) / max(1, steps - warmup)
    return peak * 0.5 * (1 + math.cos(math.pi * done))
