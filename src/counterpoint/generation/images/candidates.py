"""From a pairs file to one with images: every negative gets candidates, and perhaps a chosen one.

The score of a candidate is s(image, text). Its margin is s(image, text) - s(image, caption).
Without a minimum margin the best score wins, however low it is. With one, only candidates with a
margin above it can be chosen, and there may be none.

First the interface of what draws and the folder of drawn images: an image that is complete there is
not drawn again. Then the choice, and the pairs file.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np
import polars as pl

from counterpoint._util.errors import DataError, ModelError
from counterpoint._util.store import digest
from counterpoint._util.writing import whole_file
from counterpoint.cases import Case, Cases, ImageRef
from counterpoint.generation.pairs import (
    SCHEMA,
    read_about,
    read_pairs,
    rebased,
    require_parquet,
    write_pairs,
)
from counterpoint.generation.registry import Rejection
from counterpoint.models import LoadOptions, load_model
from counterpoint.scoring import DualEncoder, PairScorer, Work, score

if TYPE_CHECKING:
    from PIL import Image


WORLD: Final = "world"
DEFAULT: Final = "sdxl-dpo"
SUFFIX: Final = ", high resolution, professional, 4k, highly detailed"  # as in BiVLC
MOST: Final = 4  # candidates per text
_SEED_BYTES: Final = 4  # other programs accept no larger seeds
_START: Final = b"\x89PNG\r\n\x1a\n"
_END: Final = b"\0\0\0\0IEND\xaeB`\x82"
MARGIN: Final = "image_margin"  # among a pair's scores: s(image, text) - s(image, caption)
NOT_SHOWN: Final = Rejection("no image shows the text")
_NAME: Final = "images"


@dataclass(frozen=True, slots=True)
class DrawSettings:
    """How images are drawn. `steps`: None means the default of the pipeline."""

    candidates: int = 1
    seed: int = 0
    steps: int | None = None
    guidance: float = 5.0
    side: int = 512
    suffix: str = SUFFIX


class Want(NamedTuple):
    """A text to draw, the caption that should be false of the image, and the caption's image."""

    text: str
    caption: str
    image: str | None = None


class DrawnImage(NamedTuple):
    """An image: a path below the folder of the pairs file, or a reference like `world:CODE`."""

    path: str
    seed: int


Drawn = DrawnImage | Rejection


class Backend(Protocol):
    """Something that draws. The same wants give the same images, whatever was drawn before."""

    fingerprint: str

    def draw(self, wants: Sequence[Want]) -> list[list[Drawn]]:
        """The candidates of every want, in order; a rejection for each that cannot be drawn."""

    def describe(self) -> Mapping[str, Any]:
        """What is recorded: model, settings, versions, counts of what was drawn and cut."""


def seed_of(seed: int, text: str, candidate: int) -> int:
    """The seed of one image. It does not depend on what else is drawn."""
    found = digest("image seed", str(seed), text, str(candidate))
    return int.from_bytes(found[:_SEED_BYTES], "little")


class ImageFolder:
    """PNG files by name. Paths are relative to `root`, so that it can be moved as a whole."""

    def __init__(self, folder: Path, root: Path) -> None:
        # Links are not resolved: large folders are often links to another disk.
        below = Path(os.path.relpath(folder, root))
        if ".." in below.parts or below.is_absolute():
            raise DataError(
                "E-PATH-OUTSIDE",
                f"{folder}: images must lie below {root}, the folder of the result.",
                path=folder,
                root=root,
            )
        self.folder, self.prefix = folder, below.as_posix()

    def find(self, name: str) -> str | Rejection | None:
        """The reference of a complete image, or why it was rejected, or None."""
        rejected = self._place(name, ".refused")
        if rejected.is_file():
            return Rejection(rejected.read_text(encoding="utf-8"))
        return self._reference(name) if _is_whole(self._place(name, ".png")) else None

    def keep(self, name: str, image: Image.Image) -> str:
        with whole_file(self._place(name, ".png")) as draft:
            image.save(draft, format="PNG")
        return self._reference(name)

    def reject(self, name: str, rejection: Rejection) -> Rejection:
        """Remember a rejection, so that a second run does not draw the image again."""
        with whole_file(self._place(name, ".refused")) as draft:
            draft.write_text(rejection.reason, encoding="utf-8")
        return rejection

    def _place(self, name: str, suffix: str) -> Path:
        return self.folder / name[:2] / f"{name}{suffix}"

    def _reference(self, name: str) -> str:
        parts = [] if self.prefix == "." else [self.prefix]
        return "/".join([*parts, name[:2], f"{name}.png"])


def _is_whole(path: Path) -> bool:
    """Whether a PNG is complete: after a power cut a renamed file may be empty."""
    try:
        with path.open("rb") as file:
            if file.read(len(_START)) != _START:
                return False
            file.seek(-len(_END), os.SEEK_END)
            return file.read() == _END
    except OSError:
        return False


class Judged(NamedTuple):
    """The score of one candidate; None if it could not be scored."""

    score: float | None
    margin: float | None = None


def pick(judged: Sequence[Judged], least: float | None) -> int | None:
    """The candidate with the best score and a margin above `least`; the first of a tie."""
    able = [
        (found.score, -number)
        for number, found in enumerate(judged)
        if found.score is not None
        and (least is None or (found.margin is not None and found.margin > least))
    ]
    return -max(able)[1] if able else None


@dataclass(frozen=True, slots=True)
class ImageChooser:
    """A scorer that chooses images. Paths of candidates start at `root`."""

    id: str
    model: DualEncoder | PairScorer
    least: float | None
    root: Path
    work: Work

    def judge(
        self, items: Sequence[tuple[Want, DrawnImage]]
    ) -> tuple[list[Judged], dict[int, str]]:
        """The scores of each image with its text and caption, and why some have none."""
        able = [n for n, (want, _) in enumerate(items) if want.caption.strip()]
        failures = dict.fromkeys(range(len(items)), "the pair has no caption to compare with")
        judged = [Judged(None)] * len(items)
        if not able:
            return judged, failures
        cases = [
            Case(str(n), (ImageRef(made.path),), (want.text, want.caption), ((True, False),))
            for n, (want, made) in ((n, items[n]) for n in able)
        ]
        table = Cases.build(cases, root=self.root, source="candidates")
        found = score(self.model, {_NAME: table}, {_NAME: "leave out"}, self.work)[_NAME]
        failures = {n: why for n, why in failures.items() if n not in set(able)}
        failures |= {able[row]: why for row, why in found.left_out.items()}
        for n, (text, caption) in zip(able, found.scores.reshape(-1, 2).tolist(), strict=True):
            if not np.isnan(text):
                judged[n] = Judged(text, text - caption)
        return judged, failures

    def describe(self) -> Mapping[str, Any]:
        return {"model": self.id, "fingerprint": self.model.fingerprint, "margin": self.least}


def open_chooser(
    id: str, least: float | None, root: Path, work: Work, options: LoadOptions | None = None
) -> ImageChooser:
    model = load_model(id, options)
    if not isinstance(model, DualEncoder | PairScorer):
        raise ModelError(
            "E-MODEL-UNSUITABLE",
            f"{id} does not score one image with one text, so it cannot choose images.",
            model=id,
        )
    return ImageChooser(id, model, least, root, work)


@dataclass(slots=True)
class ImageCounts:
    """Counts of the rows of the file, and of the reasons for missing candidates."""

    negatives: int = 0
    positives: int = 0
    refused_pairs: int = 0  # rejected by a check: copied unchanged
    with_images: int = 0
    chosen: int = 0
    refused: Counter[str] = field(default_factory=Counter)  # candidates, counted per row
    unscored: Counter[str] = field(default_factory=Counter)

    def as_json(self) -> dict[str, Any]:
        names = ("negatives", "positives", "refused_pairs", "with_images", "chosen")
        tallies = {"refused": dict(self.refused), "unscored": dict(self.unscored)}
        return {**{name: getattr(self, name) for name in names}, **tallies}


@dataclass(frozen=True, slots=True)
class _ImageColumns:
    """The new values of one row."""

    images: list[dict[str, Any]]
    chosen: str | None
    margin: float | None


def make_images(
    pairs: Path, out: Path, backend: Backend, chooser: ImageChooser | None
) -> ImageCounts:
    """Give every negative of `pairs` its candidates and write `out`; other rows are copied.

    Images are stored as they are drawn. The same call again draws only what is missing.
    """
    about, counts = check(pairs, out), ImageCounts()

    def said() -> dict[str, Any]:
        made = {**backend.describe(), "counts": counts.as_json()}
        if chooser is not None:
            made["choose"] = chooser.describe()
        return {**about, "images": made}

    frames = (rebased(frame, pairs, out) for frame in read_pairs(pairs, rejected=True))
    write_pairs(out, (_with_images(frame, backend, chooser, counts) for frame in frames), said)
    return counts


def check(pairs: Path, out: Path) -> dict[str, Any]:
    """How `pairs` was made. Errors are raised here, before a model is loaded."""
    require_parquet(out)
    return read_about(pairs)


def _with_images(
    frame: pl.DataFrame, backend: Backend, chooser: ImageChooser | None, counts: ImageCounts
) -> pl.DataFrame:
    checked = frame["refused"] == ""
    chosen = (checked & (frame["kind"] == "negative")).arg_true().to_list()
    counts.negatives += len(chosen)
    counts.positives += int((checked & (frame["kind"] == "positive")).sum())
    counts.refused_pairs += int((~checked).sum())
    wants = [
        Want(text, caption, image)
        for text, caption, image in frame.select("text", "caption", "image")[chosen].iter_rows()
    ]
    drawn = backend.draw(wants)
    rows = _rows(wants, drawn, chooser, counts)
    columns = {n: frame[n].to_list() for n in ("text_images", "text_image", "scores")}
    for number, row in zip(chosen, rows, strict=True):
        columns["text_images"][number], columns["text_image"][number] = row.images, row.chosen
        if row.margin is not None:
            others = [s for s in columns["scores"][number] or [] if s["name"] != MARGIN]
            columns["scores"][number] = [*others, {"name": MARGIN, "value": row.margin}]
    return frame.with_columns(
        pl.Series(name, values, dtype=SCHEMA[name]) for name, values in columns.items()
    )


def _rows(
    wants: list[Want], drawn: list[list[Drawn]], chooser: ImageChooser | None, counts: ImageCounts
) -> Iterator[_ImageColumns]:
    items = list(
        dict.fromkeys(
            (want, made)
            for want, candidates in zip(wants, drawn, strict=True)
            for made in candidates
            if isinstance(made, DrawnImage)
        )
    )
    judged, failures = chooser.judge(items) if chooser else ([Judged(None)] * len(items), {})
    said = dict(zip(items, judged, strict=True))
    reasons = {items[number]: why for number, why in failures.items()}
    for want, candidates in zip(wants, drawn, strict=True):
        made = [each for each in candidates if isinstance(each, DrawnImage)]
        counts.refused.update(each.reason for each in candidates if isinstance(each, Rejection))
        counts.unscored.update(reasons[want, each] for each in made if (want, each) in reasons)
        row = _row(made, [said[want, each] for each in made], len(candidates), chooser)
        counts.with_images += bool(made)
        counts.chosen += row.chosen is not None
        if row.chosen is None and any(said[want, each].score is not None for each in made):
            counts.refused[NOT_SHOWN.reason] += 1
        yield row


def _row(
    made: list[DrawnImage], judged: list[Judged], asked: int, chooser: ImageChooser | None
) -> _ImageColumns:
    """A single candidate is taken without a choice, unless there is a chooser."""
    images = [
        {"path": each.path, "seed": each.seed, "score": said.score}
        for each, said in zip(made, judged, strict=True)
    ]
    if chooser is None:
        return _ImageColumns(images, made[0].path if made and asked == 1 else None, None)
    best, least = pick(judged, None), pick(judged, chooser.least)
    told = best if least is None else least
    margin = None if told is None else judged[told].margin
    return _ImageColumns(images, None if least is None else made[least].path, margin)


def open_backend(
    model: str,
    settings: DrawSettings,
    *,
    folder: Path,
    root: Path,
    work: Work,
    device: str = "auto",
    precision: str = "auto",
) -> Backend:
    """The backend: `world`, or a diffusion model by name, hub id or folder.

    A diffusion model writes into `folder`, which lies below `root`, the folder of the pairs file.
    """
    if model == WORLD:
        from counterpoint.generation.images.world import WorldBackend

        return WorldBackend(settings, work.progress)
    from counterpoint.generation.images.diffusion import Diffusion, open_pipeline

    images = ImageFolder(folder, root)  # errors before a model is loaded
    return Diffusion(open_pipeline(model, device, precision), settings, images, work)
