"""Train a detector of synthetic images and captions: two linear heads on a frozen encoder.

As Miranda et al. 2024 did for BiVLC: heads on the towers' vectors as they are (not of unit
length), binary cross-entropy, Adam, batches of 400 pairs (800 examples), ten epochs for captions
and one for images, the epoch with the best validation accuracy kept. Their paper says a learning
rate of 1e-6, their code has 1e-3, which made the published numbers: with the former hardly
anything is learnt. Unlike theirs, the weights start at 0, an item is on one side of the split only,
and the accuracy that is reported is that of items which have not chosen the epoch either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl
import torch

from counterpoint._util.errors import DataError, ModelError
from counterpoint._util.progress import Advance, Progress
from counterpoint._util.tables import read_table
from counterpoint.cases import ImageRef
from counterpoint.images import Picture
from counterpoint.models.detector.adapter import DetectorHeads, LinearHead, SavedDetector, save
from counterpoint.models.registry import LoadOptions, load_model
from counterpoint.scoring import DualEncoder, Work, encode_captions, encode_images, stored

LABELS: Final = {"natural": 0, "synthetic": 1, "0": 0, "1": 1}
_LEAST: Final = 10  # items of each label that a head needs
_FEW_STEPS: Final = 100
_COLUMNS: Final = {name: pl.String() for name in ("image", "caption", "label")}


@dataclass(frozen=True, slots=True)
class DetectorSettings:
    """How heads are trained. Half of what is held out chooses the epoch, half is the test."""

    image_epochs: int = 1
    caption_epochs: int = 10
    learning_rate: float = 1e-3
    batch: int = 800  # examples, half of them natural
    held_out: float = 0.2
    seed: int = 0


@dataclass(frozen=True, slots=True)
class HeadResult:
    """A head, and how well it does on `test` items that it has never seen."""

    name: str
    accuracy: float
    majority: float  # the accuracy of always answering the more frequent label
    train: int
    validation: int
    test: int
    epoch: int  # the one that was kept
    steps: int
    left_out: tuple[str, ...] = ()

    @property
    def notes(self) -> list[str]:
        found = []
        if self.steps < _FEW_STEPS:
            few = f"the {self.name} head was trained for {self.steps} steps only"
            found.append(f"{few}; more --{self.name}-epochs may do better.")
        if self.left_out:
            more = len(self.left_out) - 1
            found.append(self.left_out[0] + (f" ({more:,} more like it)" if more else ""))
        return found


class LabelledItems(NamedTuple):
    """The training data: items and their labels, 0 natural and 1 synthetic.

    An item that is there n times counts n times: an image with three negatives stays as frequent as
    they are, and the labels in balance.
    """

    images: list[tuple[Picture, int]]
    captions: list[tuple[str, int]]


class Examples(NamedTuple):
    """The examples of one side. Those of one item have one key and one row of `vectors`."""

    name: str
    keys: list[bytes]
    vectors: np.ndarray  # (items, d) float32
    rows: np.ndarray  # (n,) of vectors
    labels: np.ndarray  # (n,) 0 or 1
    left_out: tuple[str, ...] = ()


def train(
    encoder_id: str,
    items: LabelledItems,
    out: Path,
    work: Work,
    *,
    source: Path,
    settings: DetectorSettings,
    options: LoadOptions | None = None,
) -> list[HeadResult]:
    """Train on items, and save the detector in `out`. `source`: the file that errors name."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ModelError(
            "E-OUTPUT-EXISTS", f"{out} exists already; choose a new folder for the detector."
        )
    encoder = load_model(encoder_id, replace(options or LoadOptions(), unit=False))
    if not isinstance(encoder, DualEncoder):
        raise ModelError(
            "E-ENCODER-UNSUITABLE",
            f"{encoder_id} is not a dual encoder; a detector needs vectors of images and captions.",
        )
    pictures = list(dict.fromkeys(picture for picture, _ in items.images))
    encoded, failures = encode_images(encoder, pictures, work)
    texts = list(dict.fromkeys(text for text, _ in items.captions))
    read = encode_captions(encoder, texts, np.asarray(encoder.count_tokens(texts)), work).tolist()
    known_images = dict(zip(pictures, encoded, strict=True))
    known_texts = dict(zip(texts, read, strict=True))
    sides = (
        _examples("image", items.images, known_images, work, tuple(failures.values())),
        _examples("caption", items.captions, known_texts, work),
    )
    for side in sides:
        _refuse_too_few(side, source)
    trained = [_train_head(side, settings, work.progress) for side in sides]
    results = [result for _, result in trained]
    info = {
        "settings": asdict(settings),
        "heads": [asdict(result) for result in results],
        "versions": {name: version(name) for name in ("counterpoint", "torch", "numpy")},
    }
    heads = DetectorHeads(*(head for head, _ in trained))
    save(out, SavedDetector(heads, encoder_id, encoder.fingerprint, info))
    return results


def read_labelled(path: Path, images: Path | None = None) -> LabelledItems:
    """A table with the columns image, caption, label.

    An image is a path below `images` (else the table's folder), or any other reference that a
    benchmark may use. Image or caption may be empty; the label is that of both.
    """
    found, root = LabelledItems([], []), path.parent if images is None else images
    rows = read_table(path, _COLUMNS).select(*_COLUMNS).iter_rows()
    for number, (image, caption, label) in enumerate(rows, start=1):
        kind = LABELS.get((label or "").strip().lower())
        if kind is None:
            raise DataError(
                "E-ROW-MALFORMED",
                f"{path}: row {number}: the label must be natural or synthetic, not {label!r}.",
            )
        there = [name is not None and bool(name.strip()) for name in (image, caption)]
        if not any(there):
            raise DataError(
                "E-ROW-MALFORMED", f"{path}: row {number} has neither an image nor a caption."
            )
        if there[0]:
            found.images.append((Picture(ImageRef(image), root), kind))
        if there[1]:
            found.captions.append((caption, kind))
    return found


def _examples(
    name: str,
    items: Sequence[tuple[Any, int]],
    known: Mapping[Any, bytes],
    work: Work,
    left_out: tuple[str, ...] = (),
) -> Examples:
    """Two files may hold one picture: it is one item. What could not be read has no key."""
    usable = [(known[item], label) for item, label in items if known[item]]
    keys = [key for key, _ in usable]
    row_of = {key: row for row, key in enumerate(dict.fromkeys(keys))}
    vectors = stored(list(row_of), work.store) if keys else np.empty((0, 0), dtype=np.float32)
    rows, labels = np.array([row_of[key] for key in keys]), np.array([n for _, n in usable])
    return Examples(name, keys, vectors, rows, labels, left_out)


def _refuse_too_few(side: Examples, path: Path) -> None:
    for label, kind in enumerate(("natural", "synthetic")):
        count = int((side.labels == label).sum())
        if count < _LEAST:
            why = f" ({side.left_out[0].rstrip('.')})" if side.left_out else ""
            raise DataError(
                "E-EXAMPLES-FEW",
                f"{path}: has {count} {kind} {side.name}s that can be used{why}; the "
                f"{side.name} head needs at least {_LEAST}.",
            )


def _train_head(
    side: Examples, settings: DetectorSettings, progress: Progress
) -> tuple[LinearHead, HeadResult]:
    parts = split(side, settings.held_out, settings.seed)
    epochs = settings.image_epochs if side.name == "image" else settings.caption_epochs
    advance = progress.start(f"{side.name} head", epochs)
    head, epoch = fit(side, parts, epochs, settings, advance)
    test = side.labels[parts.test]
    steps = epochs * -(-len(parts.train) // settings.batch)
    return head, HeadResult(
        side.name,
        accuracy(head, side, parts.test),
        max(float(test.mean()), 1 - float(test.mean())),
        len(parts.train),
        len(parts.validation),
        len(parts.test),
        epoch,
        steps,
        side.left_out,
    )


class Split(NamedTuple):
    """Numbers of examples."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def split(side: Examples, held_out: float, seed: int) -> Split:
    """At random, the same share of each label; an item with both labels is on one side."""
    rng = np.random.default_rng(seed)
    firsts = dict(zip(reversed(side.keys), reversed(side.labels.tolist()), strict=True))
    part: dict[bytes, int] = {}
    for label in (0, 1):
        keys = sorted(key for key, first in firsts.items() if first == label)
        half = max(1, round(held_out / 2 * len(keys)))
        order = rng.permutation(len(keys)).tolist()
        part |= {
            keys[i]: 1 if rank < half else 2 * (rank < 2 * half) for rank, i in enumerate(order)
        }
    parts = np.array([part[key] for key in side.keys])
    return Split(*(np.flatnonzero(parts == number) for number in range(3)))


def fit(
    side: Examples, parts: Split, epochs: int, settings: DetectorSettings, advance: Advance
) -> tuple[LinearHead, int]:
    """The head after the epoch that did best on the validation part, and which that was."""
    vectors, rows = torch.from_numpy(side.vectors), torch.from_numpy(side.rows)
    labels = torch.from_numpy(side.labels).float()
    chosen = torch.from_numpy(parts.train)
    weight = torch.zeros(vectors.shape[1], requires_grad=True)
    bias = torch.zeros(1, requires_grad=True)
    optimiser = torch.optim.Adam([weight, bias], lr=settings.learning_rate)
    shuffle = torch.Generator().manual_seed(settings.seed)
    best: tuple[float, LinearHead, int] | None = None
    for epoch in range(1, epochs + 1):
        order = chosen[torch.randperm(len(chosen), generator=shuffle)]
        for batch in torch.split(order, settings.batch):
            optimiser.zero_grad()
            logits = vectors[rows[batch]] @ weight + bias
            torch.nn.functional.binary_cross_entropy_with_logits(logits, labels[batch]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        head = LinearHead(weight.detach().numpy().copy(), bias.detach().numpy().copy())
        right = accuracy(head, side, parts.validation)
        if best is None or right > best[0]:
            best = right, head, epoch
        advance(1)
    if best is None:
        raise ModelError("E-OPTION-INVALID", f"the {side.name} head needs at least one epoch.")
    return best[1], best[2]


def accuracy(head: LinearHead, side: Examples, part: np.ndarray) -> float:
    """How many of some examples are on the right side of 1/2, which itself is natural."""
    synthetic = head.probabilities(side.vectors[side.rows[part]]) > 0.5
    return float((synthetic == (side.labels[part] == 1)).mean())
