"""How a protocol writes captions before a model sees them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import polars as pl

from counterpoint.cases import Cases


def raw(caption: str) -> str:
    """The caption as the benchmark has it."""
    return caption


def aro(caption: str) -> str:
    """ARO's clean-up: lower case, none of `.!"()*#:;~`, single blanks, at most 30 words."""
    words = re.sub(r'[.!"()*#:;~]', " ", caption.lower())
    return " ".join(words.split()[:30])


def formatted(cases: Cases, name: str) -> Cases:
    """The cases with their captions written so."""
    if name == "raw":
        return cases
    rewrite = CAPTION_FORMATS[name]
    captions = [[rewrite(text) for text in texts] for texts in cases.frame["captions"].to_list()]
    column = pl.Series("captions", captions, dtype=pl.List(pl.String()))
    return Cases(cases.frame.with_columns(column), cases.root)


CAPTION_FORMATS: Final[dict[str, Callable[[str], str]]] = {"raw": raw, "aro": aro}
