"""Scores in the playground: of captions, and of positives and negatives made from them.

Models are loaded at their first request. Each scores one request at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any, Final

import numpy as np

from counterpoint._util.errors import CounterpointError, ModelError
from counterpoint.cases import Cases, ImageRef, caption_case
from counterpoint.generation import KINDS, RULES, Kind, Rule, TextSettings, make_by_rules
from counterpoint.generation.inputs import SourceCaption
from counterpoint.metrics import changed_words
from counterpoint.models import load_model
from counterpoint.scoring import BlindScorer, DualEncoder, Model, PairScorer, TableScorer
from counterpoint.studio.browse.index import outcome_of_one
from counterpoint.studio.browse.views import HeatCell, digits_for, shades_of, written
from counterpoint.studio.playground.uploads import AnyPicture
from counterpoint.studio.security import StudioError

# --- models -------------------------------------------------------------------------------------


_BATCH: Final = 64


class Models:
    """Models by id. `asked` are those that have been loaded, or could not be."""

    def __init__(self, ids: Sequence[str]) -> None:
        self.ids = tuple(dict.fromkeys(ids))
        self._locks = {id: Lock() for id in self.ids}
        self._loaded: dict[str, Model] = {}
        self.asked: set[str] = set()

    def scores(self, id: str, picture: AnyPicture, captions: Sequence[str]) -> np.ndarray:
        """The model's score of each caption with the picture; a CounterpointError if it cannot."""
        with self._locks[id]:
            if id not in self._loaded:
                try:
                    self._loaded[id] = load_model(id)
                finally:
                    self.asked.add(id)
            try:
                found = _scores(self._loaded[id], picture, captions)
            except MemoryError:
                raise ModelError(
                    "E-OUT-OF-MEMORY", f"{id}: there is not enough memory for this.", model=id
                ) from None
        if found.shape != (len(captions),) or not np.isfinite(found).all():
            raise ModelError(
                "E-SCORE-NON-FINITE",
                f"{id} did not return one finite score for each caption.",
                model=id,
            )
        return found


def _scores(model: Model, picture: Any, captions: Sequence[str]) -> np.ndarray:
    """By what the model is; see `scoring.kinds`."""
    if isinstance(model, DualEncoder):
        [image] = model.encode_images([model.preprocess(picture.open())])
        parts = [captions[i : i + _BATCH] for i in range(0, len(captions), _BATCH)]
        return np.concatenate([model.encode_captions(part) for part in parts]) @ image
    if isinstance(model, PairScorer):
        return np.asarray(model.score_pairs([picture] * len(captions), captions))
    if isinstance(model, BlindScorer):
        return np.asarray(model.score_captions(captions))
    if isinstance(model, TableScorer):
        case = caption_case("tried", ImageRef(picture.ref.path), captions[:1], captions[1:])
        return np.asarray(model.score_cases(Cases.build([case], source="this page")))
    raise ModelError("E-MODEL-UNSUITABLE", "this model scores whole benchmarks, no single image.")


# --- positives and negatives of a caption -------------------------------------------------------


MAX_CAPTIONS: Final = 10
_LONGEST: Final = 300  # characters of a caption
_EACH: Final = 6  # texts of a kind that are shown
_LOCK: Final = Lock()  # spaCy's pipeline is shared


@dataclass(frozen=True, slots=True)
class MadeText:
    """A text with what made it; `pieces` make it up, each with whether its words are new."""

    text: str
    kind: Kind
    method: str
    pieces: list[tuple[str, bool]]


@dataclass(frozen=True, slots=True)
class Family:
    """A caption and the texts made from it."""

    caption: str
    made: tuple[MadeText, ...]

    @property
    def texts(self) -> list[str]:
        return [self.caption, *(made.text for made in self.made)]


def read_captions(text: str) -> list[str]:
    """The captions of a text area, one per line; RequestError if they are too many or too long."""
    lines = (" ".join(line.replace("\0", "").split()) for line in text.splitlines())
    captions = list(dict.fromkeys(line for line in lines if line))
    if len(captions) > MAX_CAPTIONS:
        raise StudioError(
            "E-CAPTIONS-TOO-MANY", f"At most {MAX_CAPTIONS} captions can be tried at once.", 400
        )
    if any(len(caption) > _LONGEST for caption in captions):
        raise StudioError(
            "E-CAPTION-TOO-LONG", f"A caption may have at most {_LONGEST} characters.", 400
        )
    return captions


def families(captions: list[str]) -> list[Family]:
    """Each caption with its positives and negatives, always the same for the same caption."""
    sources = [SourceCaption(f"{i}", None, caption) for i, caption in enumerate(captions)]
    found: dict[str, dict[tuple[Kind, str], str]] = {caption: {} for caption in captions}
    for kind in KINDS:
        with _LOCK:
            pairs = make_by_rules(sources, TextSettings(kind, _methods(kind))).pairs
        for pair in pairs:
            found[pair.caption].setdefault((kind, pair.text), pair.method)
    return [Family(caption, _few(caption, texts)) for caption, texts in found.items()]


def _few(caption: str, texts: dict[tuple[Kind, str], str]) -> tuple[MadeText, ...]:
    made = [_made(caption, text, kind, method) for (kind, text), method in texts.items()]
    positives = [text for text in made if text.kind == "positive"]
    negatives = [text for text in made if text.kind == "negative"]
    return (*positives[:_EACH], *negatives[:_EACH])


def _made(caption: str, text: str, kind: Kind, method: str) -> MadeText:
    return MadeText(text, kind, method, changed_words(caption, text))


@cache
def _methods(kind: Kind) -> tuple[str, ...]:
    rules: list[tuple[str, Rule]] = [(name, RULES.get(name)) for name in RULES.names()]
    return tuple(name for name, rule in rules if rule.kind == kind)


@dataclass(frozen=True, slots=True)
class ScoredText:
    """A text, and its score by each model that could be asked."""

    made: MadeText | None  # None for the caption itself
    text: str
    cells: list[HeatCell]


@dataclass(frozen=True, slots=True)
class CaptionScores:
    """A caption with its texts; `outcomes` by model, empty where there is no negative."""

    caption: str
    lines: list[ScoredText]
    outcomes: list[str]


@dataclass(frozen=True, slots=True)
class Tried:
    """What the page shows: the models that answered, and why others did not."""

    models: list[str]
    blocks: list[CaptionScores]
    failures: list[tuple[str, str]]


def tried(models: Models, ids: list[str], picture: AnyPicture, found: list[Family]) -> Tried:
    """Every model's scores of every caption and text."""
    texts = [text for family in found for text in family.texts]
    scores: dict[str, np.ndarray] = {}
    failures = []
    for id in ids:
        try:
            scores[id] = models.scores(id, picture, texts)
        except CounterpointError as error:
            failures.append((id, str(error)))
    columns = {id: _cells(values) for id, values in scores.items()}
    blocks, start = [], 0
    for family in found:
        blocks.append(_block(family, columns, scores, start))
        start += len(family.texts)
    return Tried(list(scores), blocks, failures)


def _cells(scores: np.ndarray) -> list[HeatCell]:
    if not len(scores):
        return []
    shades, digits = shades_of(scores), digits_for(scores)
    return [
        HeatCell(written(score, digits), int(shade), False)
        for score, shade in zip(scores.tolist(), shades, strict=True)
    ]


def _block(
    family: Family, columns: dict[str, list[HeatCell]], scores: dict[str, np.ndarray], start: int
) -> CaptionScores:
    rows = [None, *family.made]
    lines = [
        ScoredText(made, text, [cells[start + number] for cells in columns.values()])
        for number, (made, text) in enumerate(zip(rows, family.texts, strict=True))
    ]
    truth = np.array([made is None or made.kind == "positive" for made in rows])
    mine = slice(start, start + len(rows))
    outcomes = [outcome_of_one(values[mine], truth) for values in scores.values()]
    return CaptionScores(family.caption, lines, outcomes)
