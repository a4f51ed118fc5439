"""Hard positives of images: cases of an image, a re-rendering of it and a false image.

    captions + neighbours, or pairs with drawn images -> change or draw again -> case file

The false image comes with its caption: the most similar photograph (`generate neighbours`), or the
image that was drawn for a negative (`generate images`). Where a caption has no rewording, or the
false image no caption, the case is that of one caption. The group of a case is the change, after
which the captions are as true as before:

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
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from counterpoint._util.errors import DataError, ImageError
from counterpoint._util.progress import Progress
from counterpoint._util.store import digest
from counterpoint._util.writing import whole_file
from counterpoint.cases import Case, Cases, ImageRef, normal, write_cases
from counterpoint.generation.export.groups import (
    ImagePaths,
    LeftOut,
    read_groups,
    read_neighbours,
)
from counterpoint.generation.images.backends import (
    Backend,
    DrawnImage,
    ImageFolder,
    Want,
    seed_of,
)
from counterpoint.generation.inputs.captions import Captions
from counterpoint.generation.language import lexicon
from counterpoint.generation.language.lists import WORDS
from counterpoint.generation.language.words import numbers
from counterpoint.generation.pairs import Rejection, require_parquet
from counterpoint.images import Picture

DRAWN: Final = "drawn"  # the change of an image that is drawn again from the caption
_BATCH: Final = 64
_TRUTH: Final = ((True, True, False), (True, True, False), (False, False, True))
_VERSION: Final = "1"  # part of every file's name: raise it when any pixel changes
_WORD: Final = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?|\d+")

_FEWEST_PIXELS: Final = 32  # of a side that is still cropped


@cache
def colours() -> frozenset[str]:
    """Every word of the lexicon that stands for a colour, and words that imply one."""
    named = (
        word for meaning in lexicon.fields()["colour"] for word in (*meaning.offered, *meaning.also)
    )
    return WORDS.tints | {word for phrase in named for word in phrase.split() if len(word) > 2}


def said(captions: Iterable[str]) -> tuple[str, ...]:
    """The words and numbers of captions, in lower case."""
    return tuple(word.lower() for text in captions for word in _WORD.findall(text))


def refusal(change: str, captions: Iterable[str], *, boxed: bool = False) -> Rejection | None:
    """Why a change may change what one of the captions says; None if no word speaks against it."""
    texts = list(captions)
    words = said(texts)
    named = set(words)
    if change == "flip":
        written = any(mark in text for text in texts for mark in '"“”')
        digits = any(word.isdigit() for word in words)
        if named & WORDS.photograph_sides:
            return Rejection("flip: a side is named")
        if named & WORDS.writings or written or digits:
            return Rejection("flip: a text, a number or a clock is named")
    if change == "crop" and not boxed and (named & WORDS.edges or numbers(words)):
        return Rejection("crop: a number or a place in the picture is named, and there is no box")
    if change == "colour" and named & colours():
        return Rejection("colour: a colour is named")
    if change == "brightness" and named & WORDS.lights:
        return Rejection("brightness: light, darkness or a time of day is named")
    if change == "compression" and named & WORDS.sharpness:
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


def _enhanced(
    enhancer: Any, name: str, factors: Sequence[float], image: Image.Image, box: Any, rng: Any
) -> tuple[Image.Image, Any]:
    del box
    factor = float(rng.choice(factors))
    return enhancer(image).enhance(factor), {name: factor}


def _compressed(image: Image.Image, box: Any, rng: np.random.Generator) -> tuple[Image.Image, Any]:
    del box
    quality, data = int(rng.choice([10, 25])), io.BytesIO()
    image.save(data, "JPEG", quality=quality)
    return Image.open(data).convert("RGB"), {"quality": quality}


# The image, the box of what its captions are about, and what draws; and how it was changed.
Change = Callable[[Image.Image, Any, np.random.Generator], tuple[Image.Image, Any]]
CHANGES: Final[dict[str, Change]] = {
    "crop": _crop,
    "flip": _flip,
    "colour": partial(_enhanced, ImageEnhance.Color, "saturation", (0.4, 1.8)),
    "brightness": partial(_enhanced, ImageEnhance.Brightness, "brightness", (0.65, 1.4)),
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
        known = self.folder.find(name)
        path = known if isinstance(known, str) else self.folder.keep(name, changed)
        return Rendered(path, {"seed": seed, **settings})


# --- cases -------------------------------------------------------------------------------------


class Scenery(NamedTuple):
    """What a case is made of, before a change. Image paths start at the folder of the result."""

    id: str
    image: ImageRef
    captions: tuple[str, ...]  # true of the image: the original, and perhaps a rewording
    false_image: ImageRef
    negative: str | None  # true of the false image

    @property
    def texts(self) -> tuple[str, ...]:
        """The captions of the case."""
        if len(self.captions) > 1 and self.negative is not None:
            return (*self.captions[:2], self.negative)
        return self.captions[:1]


@dataclass(slots=True)
class RenderingCounts:
    """How many cases each change has, and why others have none."""

    cases: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    left_out: LeftOut = field(default_factory=Counter)

    def as_json(self) -> dict[str, Any]:
        names = ("cases", "refused", "left_out")
        return {name: dict(getattr(self, name)) for name in names}


def from_neighbours(
    captions: Captions, neighbours: Path, out: Path, left_out: LeftOut
) -> Iterator[Scenery]:
    """One for every image of the captions that has a neighbour with other captions."""
    moves = ImagePaths.between(captions.root or Path(), out.parent)
    photographs: dict[str, tuple[str, ImageRef, list[str]]] = {}
    for source in captions:
        if source.image is None or not source.caption:
            left_out["captions without an image or a text"] += 1
            continue
        texts = photographs.setdefault(source.image.path, (source.id, source.image, []))[2]
        texts += [t for t in (source.caption, *source.others) if t not in texts]

    near = read_neighbours(neighbours, photographs, captions.name)

    def moved(image: ImageRef) -> ImageRef:
        return image._replace(path=moves.image(image.path))

    for path, (id, image, texts) in photographs.items():
        mine = {normal(text) for text in texts}
        able = (photographs[other] for other in near.get(path) or () if other in photographs)
        other = next((one for one in able if mine.isdisjoint(map(normal, one[2]))), None)
        if other is None:
            left_out["images without a neighbour that has other captions"] += 1
            continue
        yield Scenery(id, moved(image), tuple(texts[:2]), moved(other[1]), other[2][0])


def from_pairs(
    pairs: Sequence[Path], images: Path | None, out: Path, left_out: LeftOut
) -> Iterator[Scenery]:
    """One for every negative that has an image of its own."""
    for group in read_groups(pairs, out.parent, left_out, images=images):
        drawn = [text for text in group.negatives if text.image is not None]
        if group.image is None or not drawn:
            left_out["captions without an image, or without one for a negative"] += 1
            continue
        true = (group.caption, *(text.text for text in group.positives))
        for number, negative in enumerate(drawn):
            id, false = f"{group.source}/{number}", ImageRef(negative.image or "")
            yield Scenery(id, group.image, true, false, negative.text)


def make_renderings(
    sceneries: Iterable[Scenery],
    out: Path,
    counts: RenderingCounts,
    *,
    changes: Sequence[str],
    photographs: PhotoChanges,
    backend: Backend | None,
    progress: Progress,
) -> int:
    """Write the case file and, beside it, a record of every change; returns the number of cases."""
    require_parquet(out, "cases")
    record: list[dict[str, Any]] = []

    def cases() -> Iterator[Case]:
        stream, advance = iter(sceneries), progress.start("images", None)
        while some := list(islice(stream, _BATCH)):
            drawn = _draw(some, backend, out.parent) if backend else [None] * len(some)
            for one, again in zip(some, drawn, strict=True):
                picture = Picture(one.image, out.parent)
                changed = {c: photographs.render(c, picture, one.texts) for c in changes}
                for change, rendered in {**changed, **({DRAWN: again} if again else {})}.items():
                    if isinstance(rendered, Rejection):
                        counts.refused[rendered.reason] += 1
                        continue
                    counts.cases[change] += 1
                    record.append(_recorded(one, change, rendered))
                    yield _case(one, change, rendered)
            advance(len(some))

    first = next(stream := cases(), None)
    if first is None:
        raise DataError("E-CASES-EMPTY", f"{out}: no image could be changed.")
    built = Cases.build(chain([first], stream), root=out.parent, source=str(out))
    write_cases(built, out)
    with whole_file(record_of(out)) as draft:
        draft.write_text("".join(f"{json.dumps(row)}\n" for row in record), encoding="utf-8")
    return len(built)


def record_of(out: Path) -> Path:
    return out.with_name(f"{out.stem}-changes.jsonl")


def _recorded(one: Scenery, change: str, rendered: Rendered) -> dict[str, Any]:
    image = {"image": one.image.path, "box": one.image.box, "changed": rendered.path}
    return {"id": f"{one.id}/{change}", "change": change, **image, **rendered.settings}


def _case(one: Scenery, change: str, rendered: Rendered) -> Case:
    images, texts = (one.image, ImageRef(rendered.path), one.false_image), one.texts
    truth = _TRUTH if len(texts) > 1 else ((True,), (True,), (False,))
    return Case(f"{one.id}/{change}", images, texts, truth, (change,), one.image.path)


def _draw(some: Sequence[Scenery], backend: Backend, root: Path) -> Iterator[Rendered | Rejection]:
    """The captions drawn by the model. An image that is the caption's own is refused."""
    wants = [Want(one.captions[0], one.captions[0], source=one.id) for one in some]
    for one, [drawn] in zip(some, backend.draw(wants), strict=True):
        if not isinstance(drawn, DrawnImage):
            yield drawn
        elif _same(Picture(one.image, root), Picture(ImageRef(drawn.path), root)):
            yield Rejection("the image was drawn with the same seed: name another --seed")
        else:
            yield Rendered(drawn.path, {"seed": drawn.seed})


def _same(one: Picture, other: Picture) -> bool:
    """Whether two files have the same bytes."""
    return one.ref.box is None and one.file() is not None and one.read() == other.read()
