"""The best weights of a run, by a metric on a file that is not trained on.

    validation.json    every value, and which was the best
    best/              the model of that step, as a folder like `model/`

A checkpoint is made before every validation. So a run that was stopped goes on at or before the
validation that it was in, and does it then.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from counterpoint._util.errors import RunError
from counterpoint._util.progress import Progress, Quiet
from counterpoint._util.untrusted import parse_json
from counterpoint._util.writing import whole_folder, write_json
from counterpoint.training.batches import Batch, only
from counterpoint.training.checkpoints import refuse_other_data
from counterpoint.training.data import open_data
from counterpoint.training.data.loading import Setting
from counterpoint.training.locking import looking, recipe_start
from counterpoint.training.losses import terms as losses
from counterpoint.training.losses.counterpoint import true_texts
from counterpoint.training.losses.masks import own_scores
from counterpoint.training.losses.terms import Features
from counterpoint.training.recipe import DataConfig, Recipe
from counterpoint.training.steps import TrainingRun, encode, tokens_read
from counterpoint.training.towers import towers_of

BEST: Final = "best"
RECORD: Final = "validation.json"
_LOWER: Final = ("loss",)  # of these metrics the lowest value is the best
_BLOCK: Final = 1024  # rows of scores at once


@dataclass(frozen=True, slots=True)
class Validated:
    """A validation: after how many steps, and what was found."""

    step: int
    value: float
    metric: str


def validates(run: TrainingRun, after: int) -> bool:
    """Whether there is a validation after so many steps."""
    asked = run.recipe.validation
    if asked is None or not after:
        return False
    if after == run.steps:
        return True
    if asked.every:
        return after % asked.every == 0
    epoch, count = run.data.steps_per_epoch, run.recipe.accumulate
    return after * count // epoch > (after - 1) * count // epoch


def validated(folder: Path, step: int) -> bool:
    """Whether the validation after `step` steps was finished."""
    return any(one.step == step for one in read_record(folder))


def read_record(folder: Path) -> list[Validated]:
    """All validations of a run, in the order of steps; none where there were none."""
    path = folder / RECORD
    if not path.is_file():
        return []
    said = parse_json(path.read_bytes(), path, RunError)
    try:
        metric = str(said["metric"])
        # JSON has no word for what is no number
        values = {int(one["step"]): one["value"] for one in said["values"]}
        return [
            Validated(step, math.nan if values[step] is None else float(values[step]), metric)
            for step in sorted(values)
        ]
    except (KeyError, TypeError, ValueError, OverflowError):
        raise RunError(
            "E-RUN-DAMAGED", f"{path}: not the validations of a run; remove it."
        ) from None


def best_of(found: list[Validated]) -> Validated | None:
    """The best; of equal ones the first. What is no number is never the best."""
    finite = [one for one in found if math.isfinite(one.value)]
    return max(
        finite, key=lambda one: -one.value if one.metric in _LOWER else one.value, default=None
    )


def copy_best(folder: Path, target: Path) -> None:
    """The best model as the finished one."""
    with whole_folder(target, RunError) as draft:
        shutil.copytree(folder / BEST, draft, dirs_exist_ok=True)


class Validator:
    """Measures weights on the validation file. Only the first rank has one."""

    def __init__(self, run: TrainingRun, progress: Progress | None) -> None:
        recipe, device = run.recipe, run.ranks.device
        assert recipe.validation is not None
        self.metric, self.folder, self.device = recipe.validation.metric, recipe.folder, device
        self.loss, self.part = run.loss, recipe.cached_batch
        self.network, trunk = recipe_start(recipe, device.type), run.trunk
        self.towers = towers_of(self.network, trunk=trunk).eval().requires_grad_(False)
        if self.metric == "loss":
            self.towers.tokens = tokens_read(self.loss.terms)
        self.data: Any = open_data(
            Setting(
                _config(recipe),
                self.network.transform,
                self.network.tokenizer,
                recipe.batch,
                seed=0,  # the same texts and batches for all seeds of a recipe
                device=device,
                pad=self.towers.pad,
                cut=self.network.cuts_padding,
                whole=True,
                progress=progress or Quiet(),
                see=None if trunk is None else looking(trunk, recipe.data, device, progress),
            )
        )
        self._found = read_record(self.folder)
        if self._found:
            said: Any = parse_json((self.folder / RECORD).read_bytes(), RECORD, RunError)
            refuse_other_data(self.folder, said.get("data"), self.data.contents, "validation")

    @property
    def best(self) -> Validated | None:
        return best_of(self._found)

    def improves(self, step: int, value: float) -> bool:
        one = Validated(step, value, self.metric)
        return best_of([*self._found, one]) is one

    def record(self, step: int, value: float) -> None:
        others = [one for one in self._found if one.step < step]
        self._found = [*others, Validated(step, value, self.metric)]
        values = [
            {"step": one.step, "value": one.value if math.isfinite(one.value) else None}
            for one in self._found
        ]
        best = next(
            (value for value in values if self.best and value["step"] == self.best.step), None
        )
        said = {"metric": self.metric, "values": values, "best": best, "data": self.data.contents}
        write_json(self.folder / RECORD, said, RunError)

    def in_words(self, step: int, value: float) -> str:
        best = self.best
        so_far = f"; the best is that of step {best.step:,}" if best and best.step != step else ""
        return f"validation after step {step:,}: {self.metric} {value:.4f}{so_far}"

    @torch.no_grad()
    def value(self, state: Mapping[str, Tensor]) -> float:
        self.network.model.load_state_dict(dict(state))
        batches = self._encoded()
        if self.metric == "recall":
            return _recall(batches, self.data.source.image_name)
        sums = torch.zeros(2, dtype=torch.float64)
        for batch, features in batches:
            if self.metric == "loss":
                count = len(batch.images)
                terms, complete = self.loss.terms, self.loss.complete(batch, features, alone=True)
                right = count * float(losses.total(losses.loss(complete, terms), terms))
            else:
                right, count = _MEASURES[self.metric](features)
            sums += torch.tensor((right, count), dtype=torch.float64)
        return float(sums[0] / sums[1]) if sums[1] else math.nan

    def _encoded(self) -> Iterator[tuple[Batch, Features]]:
        towers, cast = self.towers, self.loss.autocast
        for batch in self.data.stream(0, self.data.steps_per_epoch):
            given = batch.to(self.device)
            if self.metric == "loss":
                given = only(given, self.loss.fields)
            yield given, encode(towers, given, self.part, towers.pad, cast)


def _config(recipe: Recipe) -> DataConfig:
    """What is read of the validation file: what the recipe's loss reads of its data, or what the
    metric is of, and no more."""
    asked, data = recipe.validation, recipe.data
    assert asked is not None
    if asked.metric == "loss" or (data.joined and asked.metric == "batch_accuracy"):
        return data.of_file(asked.path, asked.images or data.images)
    of_negatives = asked.metric in ("accuracy", "augmented_accuracy")
    in_batch = asked.metric == "batch_accuracy"
    changes = {
        "joined": False,
        "positives": asked.metric == "augmented_accuracy",
        "negatives": max(data.negatives, of_negatives) if of_negatives or in_batch else 0,
        "negative_images": data.negative_images and in_batch,
        "hard_images": 0,
        "dense": 0,
        "phrases": False,
    }
    return data.of_file(asked.path, asked.images or data.images, **changes)


# --- the metrics: how many are right, and of how many -------------------------------------------


def _accuracy(f: Features) -> tuple[float, int]:
    """Captions above all of their own negatives; a tie is wrong."""
    return _above_negatives(f, f.captions[:, None], f.mask()[:, None])


def _augmented(f: Features) -> tuple[float, int]:
    """Captions and positives above all of their own negatives."""
    return _above_negatives(f, *true_texts(f))


def _above_negatives(f: Features, texts: Tensor, there: Tensor) -> tuple[float, int]:
    against = f.mask("negatives")
    worst = own_scores(f.images, texts).masked_fill(~there, math.inf).amin(1)
    hardest = own_scores(f.images, f.negatives).masked_fill(~against, -math.inf).amax(1)
    rows = against.any(1)
    return float(((worst > hardest) & rows).sum()), int(rows.sum())


def _in_batch(f: Features) -> tuple[float, int]:
    """Images that find their text and texts that find their image among those of the batch.

    Negatives are further texts, and images of negatives are images whose text is the first one.
    """
    size = len(f.images)
    images, texts = f.images, f.captions
    shown, said = f.mask(), f.mask()
    own = torch.arange(size, device=images.device)  # the text of each image
    if f.negatives is not None:
        count = f.negatives.shape[1]
        texts = torch.cat((texts, f.negatives.flatten(0, 1)))
        said = torch.cat((said, f.mask("negatives").flatten()))
        if f.negative_images is not None:
            images = torch.cat((images, f.negative_images))
            twins = f.mask("negative_images") & f.mask("negatives")[:, 0]
            shown, own = torch.cat((shown, twins)), torch.cat((own, size + own * count))
    scores = images @ texts.T
    to_texts = _found(scores, own, said)[shown]
    to_images = _found(scores.T[own], torch.arange(len(own), device=own.device), shown)[shown]
    return float(to_texts.sum() + to_images.sum()), 2 * int(shown.sum())


def _found(scores: Tensor, own: Tensor, there: Tensor) -> Tensor:
    """Which rows have their own column above all others that are there."""
    right = scores.gather(1, own[:, None])
    others = scores.masked_fill(~there[None], -math.inf).scatter(1, own[:, None], -math.inf)
    return (right > others.amax(1, keepdim=True))[:, 0]


_MEASURES: Final = {
    "accuracy": _accuracy,
    "augmented_accuracy": _augmented,
    "batch_accuracy": _in_batch,
}


def _recall(batches: Iterator[tuple[Batch, Features]], name: Any) -> float:
    """Recall@1 over the whole file, the mean of both ways. All captions of an image are right."""
    first: dict[str, int] = {}
    images: list[Tensor] = []
    captions, own = [], []
    for batch, features in batches:
        captions.append(features.captions.float().cpu())
        for row, number in enumerate(batch.samples):
            image = first.setdefault(name(number), len(first))
            own.append(image)
            if image == len(images):
                images.append(features.images[row].float().cpu())
    shown, said, whose = torch.stack(images), torch.cat(captions), torch.tensor(own)
    if len(shown) < 2:
        return math.nan
    to_images, to_texts = 0.0, 0.0
    for start in range(0, len(said), _BLOCK):
        rows = slice(start, start + _BLOCK)
        every = torch.ones(len(shown), dtype=torch.bool)
        to_images += float(_found(said[rows] @ shown.T, whose[rows], every).sum())
    for start in range(0, len(shown), _BLOCK):
        scores = shown[start : start + _BLOCK] @ said.T
        mine = torch.arange(start, start + len(scores))[:, None] == whose[None]
        right, wrong = (scores.masked_fill(~m, -math.inf).amax(1) for m in (mine, ~mine))
        to_texts += float((right > wrong).sum())
    return (to_images / len(said) + to_texts / len(shown)) / 2
