"""From a pairs file to one with images: every negative gets candidates, and perhaps a chosen one.

The score of a candidate is s(image, text). Its margin is s(image, text) - s(image, caption).
Without a minimum margin the best score wins, however low it is. With one, only candidates with a
margin above it can be chosen, and there may be none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from counterpoint._util.errors import ModelError
from counterpoint.cases import Case, Cases, ImageRef
from counterpoint.generation.images.backends import (
    WORLD,
    Backend,
    DrawnImage,
    DrawSettings,
    ImageFolder,
    Want,
)
from counterpoint.generation.pairs import (
    SCHEMA,
    Rejection,
    read_about,
    read_pairs,
    rebased,
    require_parquet,
    write_pairs,
)
from counterpoint.models import LoadOptions, load_model
from counterpoint.scoring import DualEncoder, PairScorer, Work, score

MARGIN: Final = "image_margin"  # among a pair's scores: s(image, text) - s(image, caption)
NOT_SHOWN: Final = Rejection("no image shows the text")
_NAME: Final = "images"


class Judged(NamedTuple):
    """The score of one candidate; None if it could not be scored."""

    score: float | None
    margin: float | None = None


Item = tuple[Want, DrawnImage]


def pick(judged: Sequence[Judged], least: float | None) -> int | None:
    """The candidate with the best score and a margin above `least`; the first of a tie."""
    able = [
        (each.score, -number)
        for number, each in enumerate(judged)
        if each.score is not None
        and (least is None or (each.margin is not None and each.margin > least))
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

    def judge(self, items: Sequence[Item]) -> tuple[dict[Item, Judged], dict[Item, str]]:
        """The scores of each image with its text and caption, and why some have none."""
        able = [item for item in items if item[0].caption.strip()]
        failures = dict.fromkeys(items, "the pair has no caption to compare with")
        for item in able:
            del failures[item]
        if not able:
            return {}, failures
        cases = [
            Case(str(n), (ImageRef(made.path),), (want.text, want.caption), ((True, False),))
            for n, (want, made) in enumerate(able)
        ]
        table = Cases.build(cases, root=self.root, source="candidates")
        part = score(self.model, {_NAME: table}, {_NAME: "leave out"}, self.work)[_NAME]
        failures |= {able[row]: why for row, why in part.left_out.items()}
        judged = {
            item: Judged(text, text - caption)
            for item, (text, caption) in zip(able, part.scores.reshape(-1, 2).tolist(), strict=True)
            if not np.isnan(text)
        }
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


def make_images(
    pairs: Path, out: Path, backend: Backend, chooser: ImageChooser | None
) -> ImageCounts:
    """Give every negative of `pairs` its candidates and write `out`; other rows are copied.

    Images are stored as they are drawn. The same call again draws only what is missing.
    """
    require_parquet(out)
    about, counts = read_about(pairs), ImageCounts()
    table = rebased(read_pairs(pairs, rejected=True), pairs, out)
    drawn = _with_images(table, backend, chooser, counts)

    record = {**backend.describe(), "counts": counts.as_json()}
    if chooser is not None:
        record["choose"] = chooser.describe()
    write_pairs(out, [drawn], {**about, "images": record})
    return counts


def _with_images(
    frame: pl.DataFrame, backend: Backend, chooser: ImageChooser | None, counts: ImageCounts
) -> pl.DataFrame:
    checked = frame["refused"] == ""
    chosen = (checked & (frame["kind"] == "negative")).arg_true().to_list()
    counts.negatives += len(chosen)
    counts.positives += int((checked & (frame["kind"] == "positive")).sum())
    counts.refused_pairs += int((~checked).sum())
    asked = frame.select("text", "caption", "image", "box", "source")[chosen]
    wants = [
        Want(text, caption, image, None if box is None else tuple(box), source)
        for text, caption, image, box, source in asked.iter_rows()
    ]
    drawn = backend.draw(wants)
    images = [[each for each in row if isinstance(each, DrawnImage)] for row in drawn]
    items = dict.fromkeys((w, each) for w, row in zip(wants, images, strict=True) for each in row)
    judged, failures = chooser.judge(list(items)) if chooser else ({}, {})
    columns = {name: frame[name].to_list() for name in ("text_images", "text_image", "scores")}
    for number, want, candidates, mine in zip(chosen, wants, drawn, images, strict=True):
        scores = [judged.get((want, each), Judged(None)) for each in mine]
        counts.refused.update(each.reason for each in candidates if isinstance(each, Rejection))
        counts.unscored.update(failures[want, e] for e in mine if (want, e) in failures)
        place, margin = _choice(scores, len(candidates), chooser)
        counts.with_images += bool(mine)
        counts.chosen += place is not None
        if place is None and any(each.score is not None for each in scores):
            counts.refused[NOT_SHOWN.reason] += 1
        columns["text_images"][number] = [
            {"path": each.path, "seed": each.seed, "score": its.score}
            for each, its in zip(mine, scores, strict=True)
        ]
        columns["text_image"][number] = None if place is None else mine[place].path
        if margin is not None:
            others = [s for s in columns["scores"][number] or [] if s["name"] != MARGIN]
            columns["scores"][number] = [*others, {"name": MARGIN, "value": margin}]
    return frame.with_columns(
        pl.Series(name, values, dtype=SCHEMA[name]) for name, values in columns.items()
    )


def _choice(
    scores: Sequence[Judged], asked: int, chooser: ImageChooser | None
) -> tuple[int | None, float | None]:
    """The chosen image, and the margin of that or of the best one.

    A single candidate is taken without a choice, unless there is a chooser.
    """
    if chooser is None:
        return (0 if scores and asked == 1 else None), None
    place = pick(scores, chooser.least)
    best = pick(scores, None) if place is None else place
    return place, None if best is None else scores[best].margin


def open_backend(
    model: str,
    settings: DrawSettings,
    *,
    folder: Path,
    root: Path,
    work: Work,
    device: str = "auto",
    precision: str = "auto",
    masks: Path | None = None,
    photos: Path | None = None,
) -> Backend:
    """The backend: `world`, or a diffusion model by name, hub id or folder.

    A diffusion model writes into `folder`, which lies below `root`, the folder of the pairs file.
    With `masks` it draws into the images of the captions, which are found below `photos`.
    """
    if model == WORLD:
        from counterpoint.generation.images.world import WorldBackend

        return WorldBackend(settings, work.progress)
    from counterpoint.generation.images.diffusion import Diffusion, open_pipeline

    images = ImageFolder(folder, root)  # errors before a model is loaded
    if masks is not None:
        from counterpoint.generation.images.inpainting import Inpainting, Masks

        known = Masks(masks)
        opened = open_pipeline(model, device, precision, inpaint=True)
        return Inpainting(opened, settings, images, work, masks=known, photos=photos or root)
    return Diffusion(open_pipeline(model, device, precision), settings, images, work)
