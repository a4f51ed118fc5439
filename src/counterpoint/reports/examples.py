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
from counterpoint.cases import PROMPTS, Case, Cases, ImageRef, gallery_rows
from counterpoint.images import Picture
from counterpoint.metrics import ALL, GALLERY_METRICS, changed_words, is_baseline
from counterpoint.models.blind import SCORERS, BagOfWords
from counterpoint.reports.case_outcomes import ExampleKind, Outcomes, blind_right, outcomes, telling
from counterpoint.reports.data import ReportData, ScoredPart, without_folders
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


class LetteredCaption(NamedTuple):
    """A caption under its letter, and what it is of this case.

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
class CaseExample:
    """One case: what there is to see, and for each model its outcome and its scores.

    `pictures` have a text for each image that says what is true of it. `places` names the scores,
    each with its truth. `blind` are the baselines that are right.
    """

    id: str
    pictures: list[tuple[Thumbnail, str]]
    captions: list[LetteredCaption]
    more_captions: int
    places: list[tuple[str, bool]]
    models: list[ModelAnswer]
    baselines: list[ModelAnswer]
    blind: list[str]


@dataclass(frozen=True, slots=True)
class QueryExample:
    """One image of a gallery, what is true of it, and what each model answers."""

    id: str
    picture: Thumbnail
    captions: list[str]
    answers: list[ModelAnswer]
    baselines: list[ModelAnswer]
    blind: list[str]


@dataclass(frozen=True, slots=True)
class ReportExample:
    kind: str
    title: str
    case: CaseExample | QueryExample

    @property
    def is_query(self) -> bool:
        return isinstance(self.case, QueryExample)


@dataclass(frozen=True, slots=True)
class GroupExamples:
    group: str
    cases: int
    examples: list[ReportExample]
    unit: str = "cases"


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


class _Gallery(NamedTuple):
    """A case whose truth stays sparse: as a table it would have a hundred million cells."""

    images: list[ImageRef]
    captions: list[str]
    true: dict[int, list[int]]  # by image
    group: str


def gallery_examples(
    several: list[ScoredPart], album: Album, count: int
) -> tuple[list[GroupExamples], list[str]]:
    """Images on which the models disagree, and images that all of them fail."""
    same = _most_alike(several)
    cases = same[0].part.cases
    metric = next((m for m in GALLERY_METRICS if same[0].metric(m) is not None), None)
    rows = np.flatnonzero(gallery_rows(cases)).tolist()
    if metric is None or not rows:
        return [], []
    others = [run.label for run in several if run not in same]
    said = [f"Not in the examples, for other images: {', '.join(others)}."] if others else []
    if len(rows) > _CASES:
        said.append(f"{len(rows) - _CASES} more galleries are not shown.")
    made = [_of_gallery(same, row, metric, album, count) for row in rows[:_CASES]]
    return [group for group in made if group.examples], said


def _most_alike(several: list[ScoredPart]) -> list[ScoredPart]:
    """The runs of the same images that hold the most models, baselines counted last."""
    rivals = competing(several)
    families: dict[int, list[ScoredPart]] = {}
    for run in several:
        families.setdefault(id(run.part.cases), []).append(run)
    return max(families.values(), key=lambda f: (sum(run.label in rivals for run in f), len(f)))


def _of_gallery(
    runs: list[ScoredPart], row: int, metric: str, album: Album, count: int
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
            found.append(ReportExample(kind, title, asked))
    return GroupExamples(case.group, len(case.images), found, "images")


def _gallery(cases: Cases, row: int) -> _Gallery:
    values = cases.frame.row(row, named=True)
    width = len(values["captions"])
    true: dict[int, list[int]] = {}
    for cell in values["truth"]:
        true.setdefault(cell // width, []).append(cell % width)
    images = [ImageRef(i["path"], i["box"] and tuple(i["box"])) for i in values["images"]]
    return _Gallery(images, values["captions"], true, (values["groups"] or [ALL])[0])


def _image_values(run: ScoredPart, row: int, metric: str, images: int) -> np.ndarray:
    """The metric of each image of a gallery: they stand before its captions."""
    column = run.metric(metric)
    assert column is not None
    start = int(np.searchsorted(run.columns.cases, row))
    return run.columns.values[start : start + images, column]


def _asked(
    runs: Sequence[ScoredPart],
    row: int,
    case: _Gallery,
    image: int,
    value: np.ndarray,
    album: Album,
    blind: dict[str, int | None],
) -> QueryExample:
    true = case.true.get(image, [])
    answers = []
    for run, mine in zip(runs, value.tolist(), strict=True):
        start, width = int(run.part.cases.pair_offsets[row]), len(case.captions)
        line = run.part.scores[start + image * width : start + (image + 1) * width]
        top = int(np.argmax(line))
        outcome = {1.0: "right", 0.0: "wrong"}.get(mine, "not scored")
        shown = [caption_text(case.captions[top]), score(line[top])]
        answers.append(ModelAnswer(run.label, outcome, shown))
    models, baselines = apart(answers, runs)
    return QueryExample(
        without_folders(case.images[image].path),
        album.picture(case.images[image], runs[0].part.cases.root),
        [caption_text(case.captions[number]) for number in true[:_GALLERY_CAPTIONS]],
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


COUNT: Final = 2  # examples of a kind and group
_GROUPS: Final = 12  # of a benchmark
_CAPTIONS: Final = 8  # of a case
_IMAGES: Final = 4

Chooser = Callable[[Outcomes, int], tuple[list[ExampleKind], list[str]]]


@dataclass(frozen=True, slots=True)
class BenchmarkExamples:
    benchmark: str
    groups: list[GroupExamples]
    said: list[str]  # what there is none of, and why


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
        groups, said = _of_benchmark(several, album, count, chooser or _telling)
        made.append(BenchmarkExamples(benchmark, groups, said))
        advance(1)
    return made


def _telling(found: Outcomes, count: int) -> tuple[list[ExampleKind], list[str]]:
    rivals = competing(found.runs)
    judged = [number for number, run in enumerate(found.runs) if run.label in rivals]
    return telling(found, judged, count)


def _of_benchmark(
    several: list[ScoredPart], album: Album, count: int, chooser: Chooser
) -> tuple[list[GroupExamples], list[str]]:
    groups, said = gallery_examples(several, album, count)
    found = outcomes(several)
    if found is None:
        return groups, said
    choices, missing = chooser(found, count)
    blind = blind_right(found.cases, several[0].protocol, found.metric)
    labels = found.cases.frame["groups"].list.first().fill_null(ALL)
    sizes = labels.value_counts()
    large = dict(zip(*(sizes[name].to_list() for name in ("groups", "count")), strict=True))
    names = sorted({group for choice in choices for group in choice.found})
    shown = sorted(sorted(names, key=lambda name: -large[name])[:_GROUPS])
    for group in shown:
        mine = [
            ReportExample(choice.kind, choice.title, _shown(found, case, album, blind))
            for choice in choices
            for case in choice.found.get(group, [])
        ]
        groups.append(GroupExamples(group, large[group], mine))
    if len(names) > len(shown):
        missing = [*missing, f"{len(names) - len(shown)} smaller groups are not shown."]
    return groups, [*said, *missing]


def _shown(found: Outcomes, number: int, album: Album, blind: dict[str, np.ndarray]) -> CaseExample:
    case = found.cases.case(number)
    images = range(min(len(case.images), _IMAGES))
    captions = range(min(len(case.captions), _CAPTIONS))
    scores = [
        ModelAnswer(
            run.label, found.said(number, place), _scores(found, number, place, images, captions)
        )
        for place, run in enumerate(found.runs)
    ]
    models, baselines = apart(scores, found.runs)
    return CaseExample(
        without_folders(case.id),
        [(album.picture(case.images[i], found.cases.root), _alternative(case, i)) for i in images],
        [LetteredCaption(_letter(j), _pieces(case, j), _role(case, j)) for j in captions],
        len(case.captions) - len(captions),
        [_place(case, i, j) for i in images for j in captions],
        models,
        baselines,
        [name for name, right in blind.items() if right[number]],
    )


def _original(case: Case) -> int:
    """The first caption that is true of the first image."""
    return next((j for j, cell in enumerate(case.truth[0]) if cell), 0)


def _pieces(case: Case, caption: int) -> list[tuple[str, bool]]:
    original, text = (caption_text(case.captions[j]) for j in (_original(case), caption))
    return changed_words(original, text)


def _alternative(case: Case, image: int) -> str:
    """What to read out for an image: the first caption that is true of it."""
    true = [
        caption_text(c) for c, cell in zip(case.captions, case.truth[image], strict=True) if cell
    ]
    return f"Image: {true[0]}" if true else "An image of which no caption is true"


def _letter(number: int) -> str:
    return chr(ord("A") + number)


def _place(case: Case, image: int, caption: int) -> tuple[str, bool]:
    """What a score is of, and whether the caption is true of the image."""
    name = _letter(caption) if len(case.images) == 1 else f"{image + 1}{_letter(caption)}"
    return name, case.truth[image][caption]


def _role(case: Case, caption: int) -> str:
    """Original, positive or negative; with several images, of which it is true."""
    truth = [line[caption] for line in case.truth]
    if len(case.images) > 1:
        true = [str(i + 1) for i, cell in enumerate(truth) if cell]
        return f"true of {', '.join(true)}" if true else "negative"
    if not truth[0]:
        return "negative"
    return "positive" if any(case.truth[0][:caption]) else "original"


def _scores(
    found: Outcomes, number: int, place: int, images: Sequence[int], captions: Sequence[int]
) -> list[str]:
    run, row = found.runs[place], int(found.rows[number, place])
    if row < 0:
        return ["" for _ in images for _ in captions]
    start = int(run.part.cases.pair_offsets[row]) if row else 0
    width = len(found.cases.frame["captions"][number])
    return [score(float(run.part.scores[start + i * width + j])) for i in images for j in captions]
