"""Annotators as a model: the answers of a campaign are the scores of a run named `human`.

An answer gives each option a score, and a score is the mean over those who judged the item:

| answer        | scores |
|---------------|--------|
| an option     | 1 for it, 0 for the others |
| `both`        | 1 for both: a tie |
| `none`        | 0 for all |
| ranks         | minus the rank |

So two annotators who disagree on a choice make a tie, which strict protocols count as wrong.

A question about one image becomes a row of its case's scores, one about a caption a column. Where
both were asked (`both-ways`), four scores are found in the order that the answers give. Some
patterns of answers are circular, and no four scores have their order: then each direction, image to
text and text to image, is still right or wrong as its own answers say. Where only one direction
was asked of a case with several images and captions, every question becomes a case of its own,
under the benchmark's name followed by the direction: the other direction was not measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from counterpoint._util.errors import DataError
from counterpoint._util.untrusted import recorded_command
from counterpoint.cases import Case, Cases, ImageRef
from counterpoint.metrics import get_protocol
from counterpoint.runs import Part, Run
from counterpoint.studio.annotate.assignment import Judgement
from counterpoint.studio.annotate.questions import BOTH, NONE, SAME, Ask, JudgedCase, ranks_of
from counterpoint.studio.annotate.results import CampaignResults, votes

MODEL: Final = "human"
UNANSWERED: Final = "not all that was asked of it was answered"


class _Scored(NamedTuple):
    case: Case
    roots: tuple[str | None, ...]
    scores: np.ndarray


def option_scores(said: Sequence[Judgement]) -> np.ndarray:
    """A score for each option of an item: the mean over its answers."""
    return np.mean([_one(answer) for answer in said], axis=0)


def _one(answer: Judgement) -> list[float]:
    if answer.ask.ranked:
        return [-float(rank) for rank in ranks_of(answer.value)]
    options = answer.question.options(answer.ask)
    if answer.value in (BOTH, NONE):
        return [float(answer.value == BOTH)] * options
    return [float(option == int(answer.value)) for option in range(options)]


def human_run(outcome: CampaignResults) -> Run:
    """The answers as a run, which is not saved yet; cases that lack an answer are left out."""
    if SAME in outcome.kind.asks:
        raise _no_truth(outcome.campaign.name)
    said = votes(outcome.kept)
    whole = len(outcome.kind.asks) > 1 or all(
        len(subject.case.images) == 1 for subject in outcome.subjects.values()
    )
    scored: list[_Scored] = []
    left_out: list[tuple[str, str]] = []
    circles = 0
    for number, subject in outcome.subjects.items():
        answers = [said.get(item, []) for item in outcome.wanted[number]]
        if not whole:
            for made in _single(subject, answers, outcome.kind.asks[0]):
                if made.scores.size:
                    scored.append(made)
                else:
                    left_out.append((made.case.id, UNANSWERED))
        elif all(answers):
            scores, circular = _whole(subject, answers)
            circles += circular
            scored.append(_Scored(subject.case, subject.roots, scores))
        else:
            left_out.append((subject.case.id, UNANSWERED))
    return _run(outcome, scored, left_out, whole, circles)


def _run(
    outcome: CampaignResults,
    scored: list[_Scored],
    left_out: list[tuple[str, str]],
    whole: bool,
    circles: int,
) -> Run:
    about, name = outcome.campaign.source, outcome.campaign.name
    if not scored:
        raise DataError(
            "E-CAMPAIGN-UNANSWERED", f"campaign {name!r}: no case has all its answers yet."
        )
    truths = [{cell for line in one.case.truth for cell in line} for one in scored]
    if all(len(cells) < 2 for cells in truths):
        raise _no_truth(name)
    benchmark = about["benchmark"]
    benchmark = benchmark if whole else f"{benchmark}/{outcome.kind.name}"
    cases = _cases(scored, benchmark)
    flat = np.concatenate([one.scores.reshape(-1) for one in scored]).astype(np.float32)
    protocol = get_protocol(about["protocol"])
    known = about["data_hash"] if whole else ""
    part = Part(benchmark, cases, flat, protocol, tuple(left_out), data_hash=known)
    return Run(MODEL, {benchmark: part}, _manifest(outcome, circles))


def _no_truth(name: str) -> DataError:
    return DataError(
        "E-CAMPAIGN-NO-TRUTH",
        f"campaign {name!r}: its source does not say which option is right, "
        "so there is no accuracy to measure.",
    )


def _whole(subject: JudgedCase, answers: list[list[Judgement]]) -> tuple[np.ndarray, bool]:
    case = subject.case
    rows = [option_scores(said) for said in answers if said[0].ask.options == "captions"]
    columns = [option_scores(said) for said in answers if said[0].ask.options == "images"]
    if not columns:
        return np.stack(rows), False
    shape = (len(case.images), len(case.captions))
    if shape != (2, 2):
        raise DataError(
            "E-CASE-LAYOUT",
            f"case {case.id!r}: both ways are asked of two images and two captions.",
        )
    wanted = tuple(int(np.sign(pair[0] - pair[1])) for pair in (*rows, *columns))
    found = both_ways(wanted)
    scores = direction_by_direction(wanted, case.truth) if found is None else found
    return np.array(scores).reshape(shape), found is None


@cache
def both_ways(wanted: tuple[int, ...]) -> tuple[float, ...] | None:
    """Four scores (row by row) with the signs of these differences, the smallest there are:

    s00 - s01, s10 - s11, s00 - s10, s01 - s11. None if the signs run in a circle.
    """
    return next((scores for scores in _small_scores() if _signs(scores) == wanted), None)


@cache
def direction_by_direction(
    wanted: tuple[int, ...], truth: tuple[tuple[bool, ...], ...]
) -> tuple[float, ...]:
    """Four scores for signs that run in a circle, with as many of the signs as can be.

    Image to text, and text to image, are each right or wrong as the signs have it; one or two of
    the four single comparisons are not.
    """
    verdict = _directions(wanted, truth)
    alike = (s for s in _small_scores() if _directions(_signs(s), truth) == verdict)
    return max(alike, key=lambda s: sum(map(int.__eq__, _signs(s), wanted)))


@cache
def _small_scores() -> list[tuple[float, ...]]:
    """All four scores from 0 to 3, the smallest first."""
    found = sorted(product(range(4), repeat=4), key=lambda s: (sum(s), s))
    return [tuple(map(float, scores)) for scores in found]


def _signs(scores: tuple[float, ...]) -> tuple[int, ...]:
    s00, s01, s10, s11 = scores
    return tuple(int(np.sign(gap)) for gap in (s00 - s01, s10 - s11, s00 - s10, s01 - s11))


def _directions(signs: tuple[int, ...], truth: tuple[tuple[bool, ...], ...]) -> list[bool]:
    """Whether all captions are right, and whether all images are; a tie is wrong."""
    lines = (truth, tuple(zip(*truth, strict=True)))
    return [
        all(sign == int(a) - int(b) for sign, (a, b) in zip(half, pairs, strict=True) if a != b)
        for half, pairs in zip((signs[:2], signs[2:]), lines, strict=True)
    ]


def _single(subject: JudgedCase, answers: list[list[Judgement]], ask: Ask) -> Iterator[_Scored]:
    """A case for each question, without scores if it was not answered."""
    case = subject.case
    for place, said in enumerate(answers):
        scores = option_scores(said) if said else np.empty(0)
        if ask.options == "captions":
            made = replace(
                case,
                id=f"{case.id} image {place}",
                images=(case.images[place],),
                truth=(case.truth[place],),
            )
            yield _Scored(made, (subject.roots[place],), scores[None, :])
        else:
            made = replace(
                case,
                id=f"{case.id} caption {place}",
                captions=(case.captions[place],),
                truth=tuple((line[place],) for line in case.truth),
            )
            yield _Scored(made, subject.roots, scores[:, None])


def _cases(scored: Sequence[_Scored], source: str) -> Cases:
    """As one table; if images start from several folders, their paths are written in full."""
    roots = {root for one in scored for root in one.roots}
    if len(roots) != 1:
        return Cases.build((in_full(one.case, one.roots) for one in scored), source=source)
    [root] = roots
    folder = None if root is None else Path(root)
    return Cases.build((one.case for one in scored), root=folder, source=source)


def in_full(case: Case, roots: Sequence[str | None], out: str = "\0") -> Case:
    """A case whose image paths start from the folder `out`, or else from nowhere."""
    from counterpoint.generation.export import ImagePaths

    images = tuple(
        ImageRef(ImagePaths(root or ".", root or ".", out).image(image.path), image.box)
        for image, root in zip(case.images, roots, strict=True)
    )
    return replace(case, images=images)


def _manifest(outcome: CampaignResults, circles: int) -> dict[str, Any]:
    campaign = outcome.campaign
    counted = [person for person in outcome.people if not person.excluded]
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": recorded_command(),
        "options": {},
        "fingerprint": f"campaign {campaign.name}",
        "model_info": {
            "campaign": campaign.name,
            "kind": campaign.kind,
            "annotators": len(counted),
            "excluded": len(outcome.people) - len(counted),
            "answers": len(outcome.kept),
            "settings": dict(campaign.settings),
            "circular_cases": circles,
        },
        "versions": {"counterpoint": version("counterpoint")},
    }
