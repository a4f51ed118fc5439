"""Which candidate shows the text: a scorer's choice, and the margin by which it beats the caption.

A candidate's score is s(image, text); its margin is s(image, text) - s(image, caption). Without a
least margin the best score wins, however bad the best may be. With one, candidates that do not
show the text better than the caption by more than it are out, and there may be none left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from counterpoint.cases import Case, Cases, ImageRef
from counterpoint.errors import ModelError
from counterpoint.generate.images.backends import Made, Want
from counterpoint.generate.methods import Refusal
from counterpoint.models import LoadOptions, load_model
from counterpoint.scoring.engine import score
from counterpoint.scoring.kinds import DualEncoder, PairScorer
from counterpoint.scoring.work import Work

NOT_SHOWN: Final = Refusal("no image shows the text")
_NAME: Final = "images"


class Judged(NamedTuple):
    """What the scorer says of one candidate; None where it could not be asked."""

    score: float | None
    margin: float | None = None


def pick(judged: Sequence[Judged], least: float | None) -> int | None:
    """The candidate with the best score among those with a margin above `least`; the first of
    equals.
    """
    able = [
        (found.score, -number)
        for number, found in enumerate(judged)
        if found.score is not None
        and (least is None or (found.margin is not None and found.margin > least))
    ]
    return -max(able)[1] if able else None


@dataclass(frozen=True, slots=True)
class Chooser:
    """A scorer; `root` is where paths of candidates start."""

    id: str
    model: DualEncoder | PairScorer
    least: float | None
    root: Path
    work: Work

    def judge(self, items: Sequence[tuple[Want, Made]]) -> tuple[list[Judged], dict[int, str]]:
        """What the scorer says of each image for its text and caption, and why it cannot."""
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
) -> Chooser:
    model = load_model(id, options)
    if not isinstance(model, DualEncoder | PairScorer):
        raise ModelError(
            f"{id} does not score an image and a text by themselves, so it cannot choose images."
        )
    return Chooser(id, model, least, root, work)
