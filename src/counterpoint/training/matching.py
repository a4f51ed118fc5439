"""Test-time matching (Zhu et al. 2025, arXiv 2510.07632): a model learns from its own matchings.

Of a case of two images and two captions only two matchings are possible, and one of them is true.
A model that finds it (`group_matching`) may still fail the stricter group score. In each iteration

1. the model scores the benchmark; each case gets the matching with the highest sum of scores, and
   the cases with the largest margins over the other one are kept: pseudo-labels, no truth is read;
2. the model is finetuned on them, both pairs of a case in one batch (CLIP's or SigLIP's own loss);
3. the next iteration keeps more cases, and the last one all.

Numbers: the authors' code, besides which cases are kept. They keep margins above a threshold that
falls as a cosine and is set for each data set, in logits; here the share of cases rises as a
cosine, so that it means the same for every model. Their learning rate falls to a tenth in an
iteration, ours to 0. Their global matching and cases of other shapes are left out.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np

from counterpoint._util.errors import DataError
from counterpoint._util.progress import Progress
from counterpoint._util.writing import whole_file, write_json
from counterpoint.evaluation import evaluate
from counterpoint.models import pick_device
from counterpoint.runs import Part, rows
from counterpoint.training.loop import train
from counterpoint.training.reading import FOLDER, check, merged
from counterpoint.training.towers import open_start

METRICS: Final = ("image_to_text", "text_to_image", "group", "group_matching")
RECORD: Final = "matching.json"
_PAIRS: Final = "pairs.jsonl"


@dataclass(frozen=True, slots=True)
class MatchingSettings:
    """Of the authors, but for `first`, the share of cases that the first iteration keeps."""

    iterations: int = 10
    epochs: int = 20
    batch: int = 50  # cases, of two pairs each
    lr: float = 4e-5
    restart: float = 0.95  # of the learning rate, from one iteration to the next
    weight_decay: float = 0.05
    first: float = 0.5
    seed: int = 42


@dataclass(frozen=True, slots=True)
class Matched:
    """A model before an iteration, and what it was then trained on: `right` of the `kept` cases
    have the true matching, which is counted and never used."""

    iteration: int
    model: str
    values: dict[str, tuple[float, float, float]]  # with the ends of the interval
    kept: int = 0
    right: int = 0


@dataclass(frozen=True, slots=True)
class Matchings:
    """Of each case: the captions of its images in the likelier order, and by how much."""

    rows: np.ndarray
    turned: np.ndarray  # whether image 0 gets caption 1
    margins: np.ndarray
    right: np.ndarray


def match_at_test_time(
    model: str,
    benchmark: str,
    out: Path,
    settings: MatchingSettings | None = None,
    *,
    data: str | Path | None = None,
    limit: int | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> list[Matched]:
    """One entry per iteration, and one for the model at the end; `out`/matching.json has them.

    Each iteration has a folder: its scores as a run, its pairs, and its training. What is finished
    is not done again.
    """
    settings = settings or MatchingSettings()
    network = open_start(model, pick_device(device).type).model
    biased = getattr(network, "logit_bias", None) is not None
    del network  # its memory
    term = "siglip-trohn-img" if biased else "trohn-img"
    found: list[Matched] = []
    for iteration in range(settings.iterations + 1):
        folder = out / f"iteration-{iteration:02d}"
        run = evaluate(
            model, benchmark, data=data, out=folder / "scores", limit=limit, device=device,
            progress=progress,
        )  # fmt: skip
        (part,) = run.parts.values()
        matchings = matchings_of(part)
        values = {
            row.metric: (row.value, row.ci_low, row.ci_high)
            for row in rows(run, groups=False, main=False)
            if row.metric in METRICS
        }
        if iteration == settings.iterations:
            found.append(Matched(iteration, model, values))
            break
        keep = most_certain(matchings, share_kept(iteration, settings))
        right = int(matchings.right[keep].sum())
        found.append(Matched(iteration, model, values, len(keep), right))
        _write_pairs(folder / _PAIRS, part, matchings, keep)
        recipe = merged(str(FOLDER / "_match.yaml"))
        recipe |= {
            "model": model,
            "loss": [{"term": term}],
            "epochs": settings.epochs,
            "batch": min(settings.batch, len(keep)),
            "lr": settings.lr * settings.restart**iteration,
            "weight_decay": settings.weight_decay,
            "device": device,
            "seed": settings.seed + iteration,
            "out": folder / "training",
        }
        recipe["data"] |= {"path": folder / _PAIRS, "images": part.cases.root}
        trained = train(check("test-time matching", recipe), progress=progress)
        assert trained is not None  # there is one process
        model = trained.model
    told = {"settings": asdict(settings), "iterations": [asdict(one) for one in found]}
    write_json(out / RECORD, told)
    return found


def share_kept(iteration: int, settings: MatchingSettings) -> float:
    """From `first` to 1 in the last iteration, as a cosine."""
    done = iteration / max(1, settings.iterations - 1)
    return 1 - (1 - settings.first) * (1 + math.cos(math.pi * done)) / 2


def matchings_of(part: Part) -> Matchings:
    """The likelier matching of every case of two images and two captions; others are refused."""
    (block, *others) = part.cases.blocks()
    square = block.truth.shape[1:] == (2, 2) and bool((block.truth.sum(axis=(1, 2)) == 2).all())
    if others or not square or not (block.truth.sum(axis=1) == 1).all():
        raise DataError(
            "E-BENCHMARK-UNSUITABLE",
            f"{part.benchmark}: test-time matching takes cases of two images and two captions, in "
            "which each belongs to one of the other; use world-bi, bivlc or winoground.",
        )
    scores = part.cases.scores_of(block, part.scores).astype(float)
    straight = scores[:, 0, 0] + scores[:, 1, 1]
    crossed = scores[:, 0, 1] + scores[:, 1, 0]
    turned = crossed > straight
    right = np.where(turned, block.truth[:, 0, 1], block.truth[:, 0, 0])
    return Matchings(block.rows, turned, np.abs(straight - crossed), right)


def most_certain(matchings: Matchings, share: float) -> np.ndarray:
    """Which to keep, in the order of the cases: the largest margins; the earlier of equal ones."""
    count = max(1, round(share * len(matchings.rows)))
    order = np.argsort(-matchings.margins, kind="stable")[:count]
    return np.sort(order)


def _write_pairs(path: Path, part: Part, matchings: Matchings, keep: np.ndarray) -> None:
    """A line per case: one pair, and the other one as a negative with an image of its own."""
    lines = []
    for number in keep.tolist():
        case = part.cases.case(int(matchings.rows[number]))
        if any(image.box is not None for image in case.images):
            raise DataError(
                "E-BENCHMARK-UNSUITABLE",
                f"{part.benchmark}: test-time matching takes whole images, and case {case.id} has "
                "a part of one; use another benchmark.",
            )
        captions = case.captions[::-1] if matchings.turned[number] else case.captions
        lines.append(
            {
                "image": case.images[0].path,
                "caption": captions[0],
                "negatives": [captions[1]],
                "negative_images": [case.images[1].path],
            }
        )
    with whole_file(path, DataError) as draft:
        draft.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
