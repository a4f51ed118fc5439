"""Training data: its section of a recipe (`DataConfig`), and what the loop gets (`TrainingData`).

    data = open_data(Setting(config, preprocess, tokenize, batch=256, seed=0))
    for batch in data.stream(start=step):   # from that step on, epoch after epoch, without end
        ...

A step's batch is a pure function of the data, the seed and the step's number. So a run that was
stopped continues with `stream(start)`: there is no state of a sampler to keep. Ranks take
consecutive, disjoint parts of each batch: joined in the order of the ranks they are the batch of
one process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from counterpoint._util.errors import MissingExtraError
from counterpoint._util.progress import Progress, Quiet

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image
    from torch import Tensor

    from counterpoint.images import Picture
    from counterpoint.training.batches import Batch
    from counterpoint.world import Tokenize


# --- what the data had to leave out or replace ---------------------------------------------------
#
# Counted by kind, with a few examples of each. A data set of millions of samples may have as many
# broken ones, and every checkpoint holds these counts: they must not grow with the data.


UNREADABLE: Final = "samples that cannot be read: replaced by another sample"
NO_IMAGE: Final = "images of negatives that cannot be read: the negative has none"
_EXAMPLES: Final = 3


@dataclass(slots=True)
class Problems:
    """Counts, and the alphabetically first examples: so they are the same for any number of
    processes, and after a restart."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def add(self, kind: str, *examples: str, count: int = 1) -> None:
        self.counts[kind] += count
        if examples:
            kept = {*self.examples.get(kind, ()), *examples}
            self.examples[kind] = sorted(kept)[:_EXAMPLES]

    def update(self, other: Problems) -> None:
        for kind, count in other.counts.items():
            self.add(kind, *other.examples.get(kind, ()), count=count)

    def clear(self) -> None:
        self.counts.clear()
        self.examples.clear()

    def told(self) -> dict[str, int]:
        """How often each kind was met; the kind with its examples, as a line to print."""
        return {_line(kind, self.examples.get(kind, ())): n for kind, n in self.counts.items()}

    def as_json(self) -> dict[str, Any]:
        return {"counts": dict(self.counts), "examples": self.examples}

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> Problems:
        """From a checkpoint, as `as_json` gave them."""
        found = cls()
        for kind, count in saved["counts"].items():
            found.add(kind, *saved["examples"].get(kind, ()), count=count)
        return found


def _line(kind: str, examples: Iterable[str]) -> str:
    some = " ".join(examples)
    return f"{kind}, for instance: {some}" if some else kind


try:
    from pydantic import BaseModel, ConfigDict, Field, model_validator
except ImportError:
    raise MissingExtraError("training", "train") from None


Kind = Literal["world", "pairs", "webdataset"]
Only = Literal["replace", "swap", "add", "negate", "shuffle", "paraphrase"]
Preprocess = Callable[["Image"], "Tensor"]  # a picture to (3, H, W)

_COMMON: Final = {
    *("kind", "only", "negatives", "positives", "negative_images", "dense", "workers"),
    *("phrases", "joined"),
}
_FIELDS: Final[dict[str, set[str]]] = {
    "world": _COMMON | {"size", "plain", "grammar", "synonym", "disguised"},
    "pairs": _COMMON | {"path", "images", "hard_images", "vectors", "keep_out"},
    "webdataset": (_COMMON | {"path"}) - {"negative_images", "phrases", "joined"},
}
# Images side by side have texts of their own, and no others.
_NOT_JOINED: Final = (
    *("only", "negative_images", "hard_images", "dense", "vectors", "plain", "disguised"),
)


class DataConfig(BaseModel):
    """The section `data` of a recipe.

    `negatives`, `positives`, `negative_images`, `hard_images` and `dense` say what a batch holds:
    what is not asked for is neither read nor tokenised. A sample that has none is kept, and masked.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    kind: Kind = "world"
    path: Path | list[Path] | None = Field(
        None, description="a training file, pairs files, or shards: a folder or a-{00..99}.tar"
    )
    images: Path | None = Field(None, description="where image paths start; else the file's folder")
    vectors: Path | None = Field(
        None, description="of images without a photograph: what the locked trunk makes of them"
    )
    keep_out: list[str] = Field(
        [], description="benchmarks and files: none of their images and captions may be trained on"
    )
    only: Only | None = Field(None, description="keep only the texts of this type")
    negatives: int = Field(1, ge=0, le=64, description="negatives per caption, drawn each epoch")
    positives: bool = Field(True, description="one positive per caption, drawn each epoch")
    negative_images: bool = Field(False, description="an image of which the first negative is true")
    hard_images: int = Field(
        0, ge=0, le=100, description="draw from this many nearest images; 0: no"
    )
    dense: int = Field(0, ge=0, le=64, description="dense captions per image, drawn each epoch")
    phrases: bool = Field(False, description="dense captions are the noun phrases of the caption")
    joined: bool = Field(
        False, description="every second batch: two images side by side, with texts of both"
    )
    size: int = Field(200_000, ge=1, description="world: samples per epoch")
    plain: float = Field(0.0, ge=0, le=1, description="world: share of plain captions, no edits")
    grammar: float = Field(0.1, ge=0, le=1, description="world: grammatical among plain captions")
    synonym: float = Field(
        0.01, ge=0, le=1, description="world: how often a caption is in rare words"
    )
    disguised: float = Field(0.0, ge=0, le=1, description="world: share of negatives that are true")
    workers: int = Field(4, ge=0, le=256, description="processes per rank that prepare batches")

    @property
    def paths(self) -> list[Path]:
        return self.path if isinstance(self.path, list) else [self.path] if self.path else []

    def of_file(self, path: Path, images: Path | None, **changes: Any) -> DataConfig:
        """The same of another file: all that is said of samples, but for these changes."""
        said = self.model_dump(include=_FIELDS["pairs"] & _FIELDS[self.kind], exclude={"keep_out"})
        values = {**said, "kind": "pairs", "path": path, "images": images, **changes}
        return DataConfig.model_validate(values)

    @model_validator(mode="after")
    def _fits(self) -> DataConfig:
        """What a kind of data does not know must not be set: it would be ignored in silence."""
        fields = type(self).model_fields
        strange = [
            name
            for name in sorted(self.model_fields_set - _FIELDS[self.kind])
            if getattr(self, name) != fields[name].default
        ]
        if strange:
            raise ValueError(f"data of kind {self.kind!r} has no {', '.join(strange)}")
        if self.kind == "world" and self.only not in (None, "replace", "swap"):
            raise ValueError("the world has only=replace and only=swap")
        if self.kind == "world" and self.negatives > 1:
            raise ValueError("the world has one negative per caption")
        if self.negative_images and self.disguised:
            raise ValueError("a disguised positive has no image of its own: no negative_images")
        if self.phrases and not self.dense:
            raise ValueError("phrases needs dense, the number of noun phrases per caption")
        if self.joined and not (self.positives and self.negatives == 1):
            raise ValueError(
                "joined makes one positive and one negative: positives=true negatives=1"
            )
        others = [n for n in _NOT_JOINED if getattr(self, n) != fields[n].default]
        if self.joined and others:
            raise ValueError(f"joined does not go with {', '.join(others)}")
        if self.negative_images and not self.negatives:
            raise ValueError("negative_images needs negatives: it is the image of the first")
        return self


class TrainingData(Protocol):
    """Batches by number. `problems` says what was left out or replaced, and how often; `contents`
    has a digest of each part of the data that is read (images are not)."""

    steps_per_epoch: int
    problems: Problems
    contents: dict[str, str]

    def all_texts(self) -> Iterator[list[str]]:
        """All texts that are trained on, some at a time; of drawn ones nothing is known."""

    def all_photographs(self) -> list[Picture]:
        """All images that are trained on, as far as they have names."""

    def batch(self, epoch: int, step: int) -> Batch:
        """This rank's part of a step's batch, made here and now. `step` counts from 0."""

    def stream(self, start: int = 0, stop: int | None = None) -> Iterator[Batch]:
        """The batches from step `start` (counted over all epochs) up to `stop`, made ahead.

        Worker processes prepare them; they come in order and equal `batch` bit for bit. Close the
        iterator, or drop it, to end the workers. If the device is a GPU, batches are on it already
        or in pinned memory.
        """


class SeenImages(Protocol):
    """What a locked trunk makes of images. `row` gives an image's number, or raises ImageError."""

    vectors: str  # digest of the stored ones; empty if there are none

    def row(self, picture: Picture) -> Tensor: ...

    def take(self, rows: Tensor) -> Tensor:
        """The features of these numbers (n, ...)."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How data are opened.

    `batch` is the whole batch of all ranks. `preprocess` and `tokenize` are the model's;
    `preprocess` may augment: the random state is seeded for every image. If it is a torchvision
    `Compose`, its end runs on the GPU, and batches are a quarter as large on their way. `pad` is
    the tokenizer's padding: all texts of a batch are cut after the longest of them, unless `cut`
    is False. The last, incomplete batch of an epoch is dropped (in other epochs it holds other
    samples), unless the data is to be seen as a `whole`. `see` looks at all images now: batches
    then hold what a locked trunk makes of them, and no image is opened later.
    """

    config: DataConfig
    preprocess: Preprocess
    tokenize: Tokenize
    batch: int
    seed: int
    rank: int = 0
    world_size: int = 1
    device: torch.device | str = "cpu"
    pad: int = 0
    cut: bool = True
    whole: bool = False
    progress: Progress = field(default_factory=Quiet)
    see: Callable[[Sequence[Picture]], SeenImages] | None = None

    def on_gpu(self) -> bool:
        return str(self.device).startswith("cuda")
