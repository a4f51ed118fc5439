"""Cases with re-rendered images: (image, re-rendering, false image) x captions.

    captions + neighbours, or pairs with drawn images -> change or draw again -> case file

The false image comes with its caption: the most similar photograph (`generate neighbours`), or the
image that was drawn for a negative (`generate images`). Where a caption has no rewording, or the
false image no caption, the case is that of one caption. The group of a case is the change.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from counterpoint._util.errors import DataError
from counterpoint._util.progress import Progress
from counterpoint._util.tables import parquet_columns
from counterpoint._util.writing import whole_file
from counterpoint.cases import Case, Cases, ImageRef, normal, write_cases
from counterpoint.generation.export.groups import (
    ImagePaths,
    LeftOut,
    read_groups,
    read_neighbours,
)
from counterpoint.generation.images.backends import Backend, DrawnImage, Want
from counterpoint.generation.images.photographs import PhotoChanges, Rendered
from counterpoint.generation.inputs.captions import Captions
from counterpoint.generation.pairs import SCHEMA as PAIRS, require_parquet
from counterpoint.generation.registry import Rejection
from counterpoint.images import Picture

DRAWN: Final = "drawn"  # the change of an image that is drawn again from the caption
_BATCH: Final = 64
_TRUTH: Final = ((True, True, False), (True, True, False), (False, False, True))


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
    found: dict[str, tuple[str, ImageRef, list[str]]] = {}
    for source in captions:
        if source.image is None or not source.caption:
            left_out["captions without an image or a text"] += 1
            continue
        texts = found.setdefault(source.image.path, (source.id, source.image, []))[2]
        texts += [t for t in (source.caption, *source.others) if t not in texts]

    near = read_neighbours(neighbours, found, captions.name)

    def moved(image: ImageRef) -> ImageRef:
        return image._replace(path=moves.image(image.path))

    for path, (id, image, texts) in found.items():
        mine = {normal(text) for text in texts}
        able = (found[other] for other in near.get(path) or () if other in found)
        other = next((one for one in able if mine.isdisjoint(map(normal, one[2]))), None)
        if other is None:
            left_out["images without a neighbour that has other captions"] += 1
            continue
        yield Scenery(id, moved(image), tuple(texts[:2]), moved(other[1]), other[2][0])


def from_pairs(
    pairs: Sequence[Path], images: Path | None, out: Path, left_out: LeftOut
) -> Iterator[Scenery]:
    """One for every negative that has an image of its own."""
    moves = [ImagePaths.of(file, out.parent, images=images) for file in pairs]
    for group in read_groups(pairs, left_out, moves):
        drawn = [text for text in group.negatives if text.image is not None]
        if group.image is None or not drawn:
            left_out["captions without an image, or without one for a negative"] += 1
            continue
        true = (group.caption, *(text.text for text in group.positives))
        for number, negative in enumerate(drawn):
            id, false = f"{group.source}/{number}", ImageRef(negative.image or "")
            yield Scenery(id, group.image, true, false, negative.text)


def is_pairs(path: Path) -> bool:
    """Whether a file is one of pairs, and not of captions."""
    return path.suffix == ".parquet" and path.is_file() and set(PAIRS) <= set(parquet_columns(path))


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
                made = {c: photographs.render(c, picture, one.texts) for c in changes}
                for change, found in {**made, **({DRAWN: again} if again else {})}.items():
                    if isinstance(found, Rejection):
                        counts.refused[found.reason] += 1
                        continue
                    counts.cases[change] += 1
                    record.append(_recorded(one, change, found))
                    yield _case(one, change, found)
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


def _recorded(one: Scenery, change: str, found: Rendered) -> dict[str, Any]:
    image = {"image": one.image.path, "box": one.image.box, "changed": found.path}
    return {"id": f"{one.id}/{change}", "change": change, **image, **found.settings}


def _case(one: Scenery, change: str, found: Rendered) -> Case:
    images, texts = (one.image, ImageRef(found.path), one.false_image), one.texts
    truth = _TRUTH if len(texts) > 1 else ((True,), (True,), (False,))
    return Case(f"{one.id}/{change}", images, texts, truth, (change,), one.image.path)


def _draw(some: Sequence[Scenery], backend: Backend, root: Path) -> Iterator[Rendered | Rejection]:
    """The captions drawn by the model. An image that is the caption's own is refused."""
    wants = [Want(one.captions[0], one.captions[0], source=one.id) for one in some]
    for one, [made] in zip(some, backend.draw(wants), strict=True):
        if not isinstance(made, DrawnImage):
            yield made
        elif _same(Picture(one.image, root), Picture(ImageRef(made.path), root)):
            yield Rejection("the image was drawn with the same seed: name another --seed")
        else:
            yield Rendered(made.path, {"seed": made.seed})


def _same(one: Picture, other: Picture) -> bool:
    """Whether two files have the same bytes."""
    return one.ref.box is None and one.file() is not None and one.read() == other.read()
