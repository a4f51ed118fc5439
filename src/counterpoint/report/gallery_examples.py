"""Examples of galleries: images of a retrieval or classification, and what models put first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from counterpoint.cases import Cases, ImageRef
from counterpoint.galleries import gallery_rows
from counterpoint.models.blind import SCORERS, BagOfWords
from counterpoint.report.gathering import Scored
from counterpoint.report.numbers import competing
from counterpoint.report.sharing import without_folders
from counterpoint.report.showing import (
    Answer,
    Asked,
    Example,
    GroupExamples,
    apart,
    caption_text,
)
from counterpoint.report.thumbnails import Album
from counterpoint.report.wording import score
from counterpoint.statistics import ALL
from counterpoint.wording import GALLERY

_CAPTIONS: Final = 5
_CASES: Final = 4  # galleries of a benchmark


class _Gallery(NamedTuple):
    """A case whose truth stays sparse: as a table it would have a hundred million cells."""

    images: list[ImageRef]
    captions: list[str]
    true: dict[int, list[int]]  # by image
    group: str


def gallery_examples(
    several: list[Scored], album: Album, count: int
) -> tuple[list[GroupExamples], list[str]]:
    """Images on which the models disagree, and images that all of them fail."""
    same = _most_alike(several)
    cases = same[0].part.cases
    metric = next((m for m in GALLERY if same[0].metric(m) is not None), None)
    rows = np.flatnonzero(gallery_rows(cases)).tolist()
    if metric is None or not rows:
        return [], []
    others = [run.label for run in several if run not in same]
    said = [f"Not in the examples, for other images: {', '.join(others)}."] if others else []
    if len(rows) > _CASES:
        said.append(f"{len(rows) - _CASES} more galleries are not shown.")
    made = [_of_gallery(same, row, metric, album, count) for row in rows[:_CASES]]
    return [group for group in made if group.examples], said


def _most_alike(several: list[Scored]) -> list[Scored]:
    """The runs of the same images that hold the most models, baselines counted last."""
    rivals = competing(several)
    families: dict[int, list[Scored]] = {}
    for run in several:
        families.setdefault(id(run.part.cases), []).append(run)
    return max(families.values(), key=lambda f: (sum(run.label in rivals for run in f), len(f)))


def _of_gallery(
    runs: list[Scored], row: int, metric: str, album: Album, count: int
) -> GroupExamples:
    case = _gallery(runs[0].part.cases, row)
    value = np.column_stack([_image_values(run, row, metric, len(case.images)) for run in runs])
    rivals = competing(runs)
    judged = value[:, [run.label in rivals for run in runs]]
    right, wrong = judged == 1, judged == 0
    chance = np.random.default_rng(0).permutation(len(judged))
    kinds = (
        ("disagree", "The models disagree", right.any(1) & wrong.any(1)),
        ("failed", "Every model fails", wrong.all(1)),
    )
    blind = _blind_answers(case)
    found = []
    for kind, title, mask in kinds:
        images = np.flatnonzero(mask)
        for image in images[np.argsort(chance[images])][:count].tolist():
            asked = _asked(runs, row, case, image, value[image], album, blind)
            found.append(Example(kind, title, asked))
    return GroupExamples(case.group, len(case.images), found, "images")


def _gallery(cases: Cases, row: int) -> _Gallery:
    values = cases.frame.row(row, named=True)
    width = len(values["captions"])
    true: dict[int, list[int]] = {}
    for cell in values["truth"]:
        true.setdefault(cell // width, []).append(cell % width)
    images = [ImageRef(i["path"], i["box"] and tuple(i["box"])) for i in values["images"]]
    return _Gallery(images, values["captions"], true, (values["groups"] or [ALL])[0])


def _image_values(run: Scored, row: int, metric: str, images: int) -> np.ndarray:
    """The metric of each image of a gallery: they stand before its captions."""
    column = run.metric(metric)
    assert column is not None
    start = int(np.searchsorted(run.columns.cases, row))
    return run.columns.values[start : start + images, column]


def _asked(
    runs: Sequence[Scored],
    row: int,
    case: _Gallery,
    image: int,
    value: np.ndarray,
    album: Album,
    blind: dict[str, int | None],
) -> Asked:
    true = case.true.get(image, [])
    answers = []
    for run, mine in zip(runs, value.tolist(), strict=True):
        start, width = int(run.part.cases.pair_offsets[row]), len(case.captions)
        line = run.part.scores[start + image * width : start + (image + 1) * width]
        top = int(np.argmax(line))
        outcome = {1.0: "right", 0.0: "wrong"}.get(mine, "not scored")
        answers.append(
            Answer(run.label, outcome, caption_text(case.captions[top]), score(line[top]))
        )
    models, baselines = apart(answers, runs)
    return Asked(
        without_folders(case.images[image].path),
        album.picture(case.images[image], runs[0].part.cases.root),
        [caption_text(case.captions[number]) for number in true[:_CAPTIONS]],
        models,
        baselines,
        [name for name, top in blind.items() if top is not None and top in true],
    )


def _blind_answers(case: _Gallery) -> dict[str, int | None]:
    """What a baseline that sees no image answers to all of them; None if captions tie for it.

    A bag of words has nothing to learn from: every caption of a gallery is true of some image.
    """
    found: dict[str, int | None] = {}
    for name, scorer in SCORERS.items():
        made = scorer()
        if isinstance(made, BagOfWords):
            continue
        scores = made.score_captions(case.captions)
        top = np.flatnonzero(scores == scores.max())
        found[f"blind:{name}"] = int(top[0]) if len(top) == 1 else None
    return found
