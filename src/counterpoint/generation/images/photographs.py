"""Hard positives of photographs: a photograph changed without a change of what its captions say.

| change        | what is done                              | refused where a caption names      |
|---------------|-------------------------------------------|------------------------------------|
| `crop`        | a part around the box that the captions   | a number or a place in the picture |
|               | are about, else nine tenths of each side  | (not if there is a box)            |
| `flip`        | left and right exchanged                  | a side, a text, a number, a clock  |
| `colour`      | colours weaker or stronger                | a colour, or what implies one      |
| `brightness`  | darker or lighter                         | light, darkness, a time of day     |
| `compression` | through a JPEG of low quality             | how sharp the image is             |

A check looks at words only: it refuses too much ("the man left"), and it cannot see what a caption
does not name.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from counterpoint._util.errors import ImageError
from counterpoint._util.store import digest
from counterpoint.cases import ImageRef
from counterpoint.generation.images.backends import ImageFolder, seed_of
from counterpoint.generation.language import lexicon
from counterpoint.generation.language.lists import WORDS
from counterpoint.generation.language.words import numbers
from counterpoint.generation.registry import Rejection
from counterpoint.images import Picture

_VERSION: Final = "1"  # part of every file's name: raise it when any pixel changes
_WORD: Final = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?|\d+")

_FEWEST_PIXELS: Final = 32  # of a side that is still cropped


@cache
def colours() -> frozenset[str]:
    """Every word of the lexicon that stands for a colour, and words that imply one."""
    named = (
        word
        for meaning in lexicon.fields()["colour"]
        for word in (*meaning.offered(), *meaning.also)
    )
    return WORDS.tints | {word for phrase in named for word in phrase.split() if len(word) > 2}


def said(captions: Iterable[str]) -> tuple[str, ...]:
    """The words and numbers of captions, in lower case."""
    return tuple(word.lower() for text in captions for word in _WORD.findall(text))


def refusal(change: str, captions: Iterable[str], *, boxed: bool = False) -> Rejection | None:
    """Why a change may change what one of the captions says; None if no word speaks against it."""
    texts = list(captions)
    words = said(texts)
    found = set(words)
    if change == "flip":
        written = any(mark in text for text in texts for mark in '"“”')
        digits = any(word.isdigit() for word in words)
        if found & WORDS.photograph_sides:
            return Rejection("flip: a side is named")
        if found & WORDS.writings or written or digits:
            return Rejection("flip: a text, a number or a clock is named")
    if change == "crop" and not boxed and (found & WORDS.edges or numbers(words)):
        return Rejection("crop: a number or a place in the picture is named, and there is no box")
    if change == "colour" and found & colours():
        return Rejection("colour: a colour is named")
    if change == "brightness" and found & WORDS.lights:
        return Rejection("brightness: light, darkness or a time of day is named")
    if change == "compression" and found & WORDS.sharpness:
        return Rejection("compression: the sharpness is named")
    return None


class Rendered(NamedTuple):
    """A re-rendering: its path below the folder of the result, and how it was made."""

    path: str
    settings: Mapping[str, Any]


def _crop(image: Image.Image, box: Any, rng: np.random.Generator) -> tuple[Image.Image, Any]:
    """With a box, a part that holds all of it and a margin; else nine tenths of each side."""
    width, height = image.size
    if box is None:
        part = rng.uniform(0.86, 0.94, 2) * image.size
        x, y = rng.random(2) * (image.size - part)
        edges = (x, y, x + part[0], y + part[1])
    else:
        share = rng.uniform(0.1, 0.3, 4) * [box[2], box[3], box[2], box[3]]
        edges = (
            max(box[0] - share[0], 0),
            max(box[1] - share[1], 0),
            min(box[0] + box[2] + share[2], width),
            min(box[1] + box[3] + share[3], height),
        )
    window = [int(edges[0]), int(edges[1]), round(edges[2]), round(edges[3])]
    return image.crop(tuple(window)), {"window": window}


def _flip(image: Image.Image, box: Any, rng: np.random.Generator) -> tuple[Image.Image, Any]:
    del box, rng
    return ImageOps.mirror(image), {}


def _colour(image: Image.Image, box: Any, rng: np.random.Generator) -> tuple[Image.Image, Any]:
    del box
    factor = float(rng.choice([0.4, 1.8]))
    return ImageEnhance.Color(image).enhance(factor), {"saturation": factor}


def _brightness(image: Image.Image, box: Any, rng: np.random.Generator) -> tuple[Image.Image, Any]:
    del box
    factor = float(rng.choice([0.65, 1.4]))
    return ImageEnhance.Brightness(image).enhance(factor), {"brightness": factor}


def _compressed(image: Image.Image, box: Any, rng: np.random.Generator) -> tuple[Image.Image, Any]:
    del box
    quality, data = int(rng.choice([10, 25])), io.BytesIO()
    image.save(data, "JPEG", quality=quality)
    return Image.open(data).convert("RGB"), {"quality": quality}


CHANGES: Final = {
    "crop": _crop,
    "flip": _flip,
    "colour": _colour,
    "brightness": _brightness,
    "compression": _compressed,
}


class PhotoChanges:
    """Changes photographs and stores them in a folder; what is there is not written again."""

    def __init__(self, folder: ImageFolder, seed: int) -> None:
        self.folder, self.seed = folder, seed

    def render(
        self, change: str, picture: Picture, captions: Iterable[str]
    ) -> Rendered | Rejection:
        """The photograph after one change, or why it was not made."""
        box = picture.ref.box if change == "crop" else None
        if (refused := refusal(change, captions, boxed=box is not None)) is not None:
            return refused
        whole = picture if box is None else Picture(ImageRef(picture.ref.path), picture.root)
        try:
            image = whole.open()
        except ImageError as error:
            return Rejection(str(error).rstrip("."))
        if min(image.size) < _FEWEST_PIXELS:
            return Rejection("the image is too small")
        seed = seed_of(self.seed, f"{change} {picture.ref.path} {box}", 0)
        changed, settings = CHANGES[change](image, box, np.random.default_rng(seed))
        if box is not None and changed.size == (box[2], box[3]):
            return Rejection("crop: the box is the whole image")
        if changed.size == image.size and changed.tobytes() == image.tobytes():
            return Rejection(f"{change}: the image stays as it is")
        name = digest(_VERSION, change, changed.tobytes(), repr(changed.size)).hex()
        found = self.folder.find(name)
        path = found if isinstance(found, str) else self.folder.keep(name, changed)
        return Rendered(path, {"seed": seed, **settings})
