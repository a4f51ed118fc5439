"""How a protocol writes captions before a model sees them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final


def raw(caption: str) -> str:
    """The caption as the benchmark has it."""
    return caption


def aro(caption: str) -> str:
    """ARO's clean-up: lower case, none of `.!"()*#:;~`, single blanks, at most 30 words."""
    words = re.sub(r'[.!"()*#:;~]', " ", caption.lower())
    return " ".join(words.split()[:30])


CAPTION_FORMATS: Final[dict[str, Callable[[str], str]]] = {"raw": raw, "aro": aro}
