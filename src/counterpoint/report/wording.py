"""What numbers and names are called and how they are written, in tables and figures alike."""

from __future__ import annotations

import re
from typing import Final

from counterpoint.metric_registry import METRICS

HUMAN: Final = "human"
# Invisible, or able to turn the direction of what follows: of no use in a name.
_CONTROLS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]+")


def is_human(model: str) -> bool:
    return model == HUMAN


def written(metric: str, value: float) -> str:
    """A share in per cent; ranks and scores as they are."""
    unit = METRICS[metric].unit
    return f"{100 * value:.1f}" if unit == "share" else f"{value:.{2 if unit == 'rank' else 4}f}"


def score(value: float) -> str:
    return f"{value:.4g}"


def one_line(name: str) -> str:
    """A name without what cannot be seen."""
    return _CONTROLS.sub(" ", name)


def shortened(name: str, length: int = 34) -> str:
    """A name for a figure; of a long one both ends, which tell models apart."""
    name = one_line(name)
    if len(name) <= length:
        return name
    end = (length - 1) * 2 // 3
    return f"{name[: length - 1 - end]}…{name[-end:]}"
