"""The words of the world, and which of them mean the same."""

from __future__ import annotations

from typing import Final

# Red, green and blue from 0 to 1. Backgrounds are mid-grey, so black, silver and white all show.
COLOURS: Final[dict[str, tuple[float, float, float]]] = {
    "red": (0.86, 0.08, 0.12),
    "green": (0.05, 0.60, 0.20),
    "blue": (0.10, 0.22, 0.85),
    "yellow": (0.98, 0.85, 0.10),
    "orange": (0.98, 0.50, 0.05),
    "purple": (0.52, 0.12, 0.68),
    "brown": (0.42, 0.23, 0.08),
    "white": (0.99, 0.98, 0.94),
    "black": (0.04, 0.04, 0.05),
}
SHAPES: Final = ("circle", "square", "triangle", "star", "heart", "diamond", "cross", "ring")
# Radius as a share of the width; two large objects in neighbouring cells must not touch (scene.py).
SIZES: Final[dict[str, float]] = {"large": 0.135, "small": 0.09}
TEXTURES: Final = ("solid", "striped", "dotted", "checkered")

RELATIONS: Final = ("left of", "right of", "above", "below")
CONVERSE: Final = {
    "left of": "right of",
    "right of": "left of",
    "above": "below",
    "below": "above",
}

ATTRIBUTES: Final[dict[str, tuple[str, ...]]] = {
    "size": tuple(SIZES),
    "colour": tuple(COLOURS),
    "texture": TEXTURES,
}

# From the hard-positives paper where it has the word (colours up to ebony, large, small, above and
# under/beneath); the rest are ours. "on top of" is doubtful English for "above", and is kept as the
# paper uses it: in this world the two are defined to mean the same.
SYNONYMS: Final[dict[str, str]] = {
    "red": "crimson",
    "green": "emerald",
    "blue": "sapphire",
    "brown": "chestnut",
    "white": "ivory",
    "black": "ebony",
    "yellow": "golden",
    "orange": "tangerine",
    "purple": "violet",
    "large": "big",
    "small": "tiny",
    "solid": "plain",
    "striped": "banded",
    "dotted": "spotted",
    "checkered": "chequered",
    "left of": "to the left of",
    "right of": "to the right of",
    "above": "on top of",
    "below": "beneath",
}

CANONICAL: Final[dict[str, str]] = {
    **{word: word for word in (*SHAPES, *SIZES, *COLOURS, *TEXTURES, *RELATIONS)},
    **{synonym: word for word, synonym in SYNONYMS.items()},
}
