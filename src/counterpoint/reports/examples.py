"""Examples of a report: images, captions, scores, and the answers of blind baselines.

Cases with few images are shown with all their scores; galleries (retrieval, classification) with
what each model ranks first.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from PIL import Image

from counterpoint._util.errors import ImageError
from counterpoint._util.progress import Progress, Quiet
from counterpoint.cases import PROMPTS, Case, ImageRef, gallery_rows
from counterpoint.images import Picture
from counterpoint.metrics import ALL, GALLERY_METRICS, changed_words, is_baseline
from counterpoint.models.blind import SCORERS, BagOfWords
from counterpoint.reports.case_outcomes import ExampleKind, Outcomes, blind_right, outcomes, telling
from counterpoint.reports.data import ReportData, ScoredPart, without_folders
from counterpoint.reports.provenance import Notice
from counterpoint.reports.ranking import competing, score

# --- small copies of images ---------------------------------------------------------------------


_SIDE: Final = 288  # pixels of the longer side
SMALL: Final = 128  # pixels up to which a picture is shown larger, with its pixels sharp
BUDGET: Final = 6_000_000  # bytes of all pictures of a page


@dataclass(frozen=True, slots=True)
class Thumbnail:
    """A picture as a data address; else a text in its place, or why there is none."""

    uri: str = ""
    width: int = 0
    height: int = 0
    text: str = ""
    why: str = ""

    @property
    def small(self) -> bool:
        return max(self.width, self.height) <= SMALL


@dataclass(slots=True)
class Album:
    """The pictures of one page. Each is made once; `lost` counts those that could not be read."""

    left: int = BUDGET
    lost: int = 0
    full: int = 0
    _made: dict[tuple[ImageRef, str], Thumbnail] = field(default_factory=dict)

    @property
    def notices(self) -> list[Notice]:
        found = []
        if self.lost:
            found.append(
                f"Images of examples that could not be read: {self.lost:,}; each says why."
            )
        if self.full:
            found.append(f"Images of examples left out to keep the page small: {self.full:,}.")
        return [Notice(text) for text in found]

    def picture(self, ref: ImageRef, root: Path | None) -> Thumbnail:
        if ref.text is not None:
            return Thumbnail(text=ref.text)
        key = (ref, str(root))
        if key not in self._made:
            self._made[key] = self._make(ref, root)
        elif self._made[key].uri:
            self.left -= len(self._made[key].uri)  # it is in the page once more
        return self._made[key]

    def _make(self, ref: ImageRef, root: Path | None) -> Thumbnail:
        if self.left <= 0:
            self.full += 1
            return Thumbnail(why="left out: the page has no room for more pictures")
        try:
            image = Picture(ref, root).open()
        except ImageError as error:
            self.lost += 1
            return Thumbnail(why=without_folders(str(error)))
        image.thumbnail((_SIDE, _SIDE), Image.Resampling.LANCZOS)
        uri = _encoded(image)
        self.left -= len(uri)
        return Thumbnail(uri, *image.size)


def _encoded(image: Image.Image) -> str:
    """As JPEG or PNG, whichever is smaller: photographs or drawings. No metadata goes along."""
    kinds: list[tuple[str, dict[str, Any]]] = [("png", {"optimize": True})]
    if max(image.size) > SMALL:  # a small one is drawn larger, and would show what JPEG loses
        kinds.append(("jpeg", {"quality": 80}))
    found = []
    for kind, options in kinds:
        data = io.BytesIO()
        image.save(data, kind, **options)
        found.append((len(data.getvalue()), kind, data.getvalue()))
    _, kind, content = min(found)
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


# --- what the page shows ------------------------------------------------------------------------


class LetteredCaption(NamedTuple):
    """A caption under its letter, and what it is of this case; a true one of a gallery has none.

    `pieces` make up its text, each with whether its words differ from those of the original.
    """

    letter: str
    pieces: list[tuple[str, bool]]
    role: str


class ModelAnswer(NamedTuple):
    """The outcome and the scores of a model; of a gallery, what it puts first and its score."""

    model: str
    outcome: str
    shown: list[str]


@dataclass(frozen=True, slots=True)
class ReportExample:
    """A case, or an image of a gallery: what there is to see, and what each model says of it.

    `pictures` have a text for each image that says what is true of it. `places` names the scores,
    each with its truth; a gallery's image has none. `blind` are the baselines that are right.
    """

    kind: str
    title: str
    id: str
    pictures: list[tuple[Thumbnail, str]]
    captions: list[LetteredCaption]
    models: list[ModelAnswer]
    baselines: list[ModelAnswer]
    blind: list[str]
    places: list[tuple[str, bool]] = field(default_factory=list)
    more_captions: int = 0


@dataclass(frozen=True, slots=True)
class GroupExamples:
    group: str
    cases: int
    examples: list[ReportExample]
    unit: str = "cases"


@dataclass(frozen=True, slots=True)
class BenchmarkExamples:
    benchmark: str
    groups: list[GroupExamples]
    told: list[str]  # what there is none of, and why


COUNT: Final = 2  # examples of a kind and group
_GROUPS: Final = 12  # of a benchmark
_CAPTIONS: Final = 8  # of a case
_IMAGES: Final = 4

Chooser = Callable[[Outcomes, int], tuple[list[ExampleKind], list[str]]]


def examples(
    material: ReportData,
    album: Album,
    *,
    count: int = COUNT,
    chooser: Chooser | None = None,
    progress: Progress | None = None,
) -> list[BenchmarkExamples]:
    """Of every benchmark and group; `chooser` says which kinds, else `telling` does."""
    advance = (progress or Quiet()).start("choosing examples", len(material.benchmarks))
    made = []
    for benchmark, several in material.benchmarks.items() if count else ():
        galleries, notes = gallery_examples(several, album, count)
        groups, missing = _of_cases(several, album, count, chooser or _telling)
        made.append(BenchmarkExamples(benchmark, [*galleries, *groups], [*notes, *missing]))
        advance(1)
    return made


def _telling(found: Outcomes, count: int) -> tuple[list[ExampleKind], list[str]]:
    rivals = competing(found.runs)
    return telling(found, [n for n, run in enumerate(found.runs) if run.label in rivals], count)


def apart(
    answers: Sequence[ModelAnswer], runs: Sequence[ScoredPart]
) -> tuple[list[ModelAnswer], list[ModelAnswer]]:
    """The answers of models, and those of baselines; baselines alone are shown as models are."""
    blind = {run.label for run in runs if is_baseline(run.run.model)}
    if len(blind) == len(runs):
        return list(answers), []
    models = [answer for answer in answers if answer.model not in blind]
    return models, [answer for answer in answers if answer.model in blind]


def caption_text(caption: str) -> str:
    """A class stands for its prompts: the first is shown."""
    return caption.split(PROMPTS)[0]


# --- galleries ----------------------------------------------------------------------------------


_GALLERY_CAPTIONS: Final = 5
_CASES: Final = 4  # galleries of a benchmark


def gallery_examples(
    several: list[ScoredPart], album: Album, count: int
) -> tuple[list[GroupExamples], list[str]]:
    """Images on which the models disagree, and images that all of them fail.

    They are of the runs of the same images that hold the most models, baselines counted last.
    """
    rivals = competing(several)
    families: dict[int, list[ScoredPart]] = {}
    for run in several:
        families.setdefault(id(run.part.cases), []).append(run)
    same = max(families.values(), key=lambda f: (sum(run.label in rivals for run in f), len(f)))
    metric = next((m for m in GALLERY_METRICS if same[0].metric(m) is not None), None)
    rows = np.flatnonzero(gallery_rows(same[0].part.cases)).tolist()
    if metric is None or not rows:
        return [], []
    others = [run.label for run in several if run not in same]
    notes = [f"Not in the examples, for other images: {', '.join(others)}."] if others else []
    if len(rows) > _CASES:
        notes.append(f"{len(rows) - _CASES} more galleries are not shown.")
    groups = [_of_gallery(same, row, metric, album, count) for row in rows[:_CASES]]
    return [group for group in groups if group.examples], notes


class _Gallery(NamedTuple):
    """A case whose truth stays sparse: as a table it would have a hundred million cells."""

    row: int
    images: list[ImageRef]
    captions: list[str]
    true: dict[int, list[int]]  # by image
    blind: dict[str, int]  # what a baseline that sees no image answers to all of them


def _of_gallery(
    runs: list[ScoredPart], row: int, metric: str, album: Album, count: int
) -> GroupExamples:
    frame = runs[0].part.cases.frame.row(row, named=True)
    width = len(frame["captions"])
    true: dict[int, list[int]] = {}
    for cell in frame["truth"]:
        true.setdefault(cell // width, []).append(cell % width)
    images = [ImageRef(i["path"], i["box"] and tuple(i["box"])) for i in frame["images"]]
    case = _Gallery(row, images, frame["captions"], true, _blind_answers(frame["captions"]))
    columns = []
    for run in runs:  # the values of images stand before those of captions
        start = int(np.searchsorted(run.columns.cases, row))
        columns.append(run.columns.values[start : start + len(images), run.metric(metric)])
    value = np.column_stack(columns)
    rivals = competing(runs)
    judged = value[:, [run.label in rivals for run in runs]]
    right, wrong = judged == 1, judged == 0
    chance = np.random.default_rng(0).permutation(len(judged))
    kinds = (
        ("disagree", "The models disagree", right.any(1) & wrong.any(1)),
        ("failed", "Every model fails", wrong.all(1)),
    )
    found = []
    for kind, title, mask in kinds:
        chosen = np.flatnonzero(mask)
        for image in chosen[np.argsort(chance[chosen])][:count].tolist():
            found.append(_of_image(kind, title, runs, case, image, value[image], album))
    return GroupExamples((frame["groups"] or [ALL])[0], len(images), found, "images")


def _of_image(
    kind: str,
    title: str,
    runs: Sequence[ScoredPart],
    case: _Gallery,
    image: int,
    values: np.ndarray,
    album: Album,
) -> ReportExample:
    true = case.true.get(image, [])
    captions = [caption_text(case.captions[number]) for number in true[:_GALLERY_CAPTIONS]]
    answers = []
    for run, value in zip(runs, values.tolist(), strict=True):
        start, width = int(run.part.cases.pair_offsets[case.row]), len(case.captions)
        line = run.part.scores[start + image * width : start + (image + 1) * width]
        top = int(np.argmax(line))
        outcome = {1.0: "right", 0.0: "wrong"}.get(value, "not scored")
        shown = [caption_text(case.captions[top]), score(line[top])]
        answers.append(ModelAnswer(run.label, outcome, shown))
    alternative = f"Image: {captions[0]}" if captions else "An image without a true caption"
    return ReportExample(
        kind,
        title,
        without_folders(case.images[image].path),
        [(album.picture(case.images[image], runs[0].part.cases.root), alternative)],
        [LetteredCaption("", [(caption, False)], "true") for caption in captions],
        *apart(answers, runs),
        [name for name, top in case.blind.items() if top in true],
    )


def _blind_answers(captions: list[str]) -> dict[str, int]:
    """By baseline; none of those for which captions tie.

    A bag of words has nothing to learn from: every caption of a gallery is true of some image.
    """
    found: dict[str, int] = {}
    for name, scorer in SCORERS.items():
        made = scorer()
        if not isinstance(made, BagOfWords):
            scores = made.score_captions(captions)
            top = np.flatnonzero(scores == scores.max())
            if len(top) == 1:
                found[f"blind:{name}"] = int(top[0])
    return found


# --- cases of few images ------------------------------------------------------------------------


def _of_cases(
    several: list[ScoredPart], album: Album, count: int, chooser: Chooser
) -> tuple[list[GroupExamples], list[str]]:
    found = outcomes(several)
    if found is None:
        return [], []
    choices, missing = chooser(found, count)
    blind = blind_right(found.cases, several[0].protocol, found.metric)
    labels = found.cases.frame["groups"].list.first().fill_null(ALL)
    sizes = dict(labels.value_counts().iter_rows())
    names = sorted({group for choice in choices for group in choice.found})
    shown = sorted(sorted(names, key=lambda name: -sizes[name])[:_GROUPS])
    groups = []
    for group in shown:
        mine = [
            _of_case(choice.kind, choice.title, found, number, album, blind)
            for choice in choices
            for number in choice.found.get(group, [])
        ]
        groups.append(GroupExamples(group, sizes[group], mine))
    if len(names) > len(shown):
        missing = [*missing, f"{len(names) - len(shown)} smaller groups are not shown."]
    return groups, missing


def _of_case(
    kind: str, title: str, found: Outcomes, number: int, album: Album, blind: dict[str, np.ndarray]
) -> ReportExample:
    case = found.cases.case(number)
    images = range(min(len(case.images), _IMAGES))
    captions = range(min(len(case.captions), _CAPTIONS))
    cells = [(i, j) for i in images for j in captions]
    answers = []
    for place, run in enumerate(found.runs):
        row, shown = int(found.rows[number, place]), ["" for _ in cells]
        if row >= 0:
            start = int(run.part.cases.pair_offsets[row])
            flat = run.part.scores[start:]
            shown = [score(float(flat[i * len(case.captions) + j])) for i, j in cells]
        answers.append(ModelAnswer(run.label, found.outcome(number, place), shown))
    several = len(case.images) > 1
    return ReportExample(
        kind,
        title,
        without_folders(case.id),
        [(album.picture(case.images[i], found.cases.root), _alternative(case, i)) for i in images],
        [_lettered(case, j) for j in captions],
        *apart(answers, found.runs),
        [name for name, right in blind.items() if right[number]],
        [(f"{i + 1 if several else ''}{_letter(j)}", case.truth[i][j]) for i, j in cells],
        len(case.captions) - len(captions),
    )


def _alternative(case: Case, image: int) -> str:
    """What to read out for an image: the first caption that is true of it."""
    cells = zip(case.captions, case.truth[image], strict=True)
    true = [caption_text(caption) for caption, cell in cells if cell]
    return f"Image: {true[0]}" if true else "An image of which no caption is true"


def _letter(number: int) -> str:
    return chr(ord("A") + number)


def _lettered(case: Case, caption: int) -> LetteredCaption:
    """Original, positive or negative; with several images, of which it is true."""
    true = [str(i + 1) for i, line in enumerate(case.truth) if line[caption]]
    original = next((j for j, cell in enumerate(case.truth[0]) if cell), 0)
    role = "negative"
    if true and len(case.images) > 1:
        role = f"true of {', '.join(true)}"
    elif true:
        role = "original" if caption == original else "positive"
    texts = (caption_text(case.captions[j]) for j in (original, caption))
    return LetteredCaption(_letter(caption), changed_words(*texts), role)
