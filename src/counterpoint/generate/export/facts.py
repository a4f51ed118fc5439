"""What is published of a pairs file, and what is known of it while it is written."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

IMAGES: Final = ("image", "text_image")
MEANINGS: Final = {
    "source": "the caption's id in the input; one caption has many pairs",
    "image": "the caption's image",
    "box": "the part of the image that is meant: x, y, width, height in pixels; null for all of it",
    "caption": "a true caption of the image",
    "text": "what was made from the caption",
    "kind": "negative (the text is false of the image) or positive (as true as the caption)",
    "type": "replace, swap, add, negate, shuffle or paraphrase",
    "subtype": "obj, att, rel, or empty",
    "start": "the first character of the text that differs from the caption",
    "end": "the end of the characters that differ",
    "method": "what made the text",
    "version": "of the method, with the models and word lists it used",
    "seed": "of the method's chance",
    "checks": "the automatic checks that the pair has passed",
    "doubt": "why a positive may yet be false, such as narrower (crimson for red); empty if sure",
    "text_image": "an image that the text is true of, or null",
}
COLUMNS: Final = tuple(MEANINGS)
INTEGERS: Final = {"box": "int32", "start": "int32", "end": "int32", "seed": "int64"}
LISTS: Final = ("box", "checks")


@dataclass(slots=True)
class Facts:
    """What the card and the metadata say of a data set."""

    name: str
    licence: str
    embedded: bool
    rows: int = 0
    captions: int = 0
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    methods: Counter[tuple[str, str]] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    made: list[dict[str, Any]] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)

    def summary(self) -> str:
        """One sentence."""
        sums: Counter[str] = Counter()
        for (kind, _, _), count in self.counts.items():
            sums[kind] += count
        kinds = " and ".join(f"{sums[kind]:,} hard {kind}s" for kind in sorted(sums))
        return f"{kinds} of {self.captions:,} image captions, made with Counterpoint."
