"""The schema of a recipe: one YAML file, checked as a whole before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from counterpoint._util.errors import MissingExtraError
from counterpoint._util.untrusted import shown
from counterpoint.models import DEVICES, is_device
from counterpoint.training.losses import terms

try:
    from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
except ImportError:
    raise MissingExtraError("training", "train") from None


Share = Annotated[float, Field(ge=0, lt=1)]
# What may differ between a run and its continuation: it changes no weight.
FREE: Final = frozenset(
    ("save_every", "keep", "log_every", "eval_every", "benchmarks", "tensorboard", "wandb", "out")
)


Kind = Literal["world", "pairs", "webdataset"]
Only = Literal["replace", "swap", "add", "negate", "shuffle", "paraphrase"]

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


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class DataConfig(_Section):
    """The section `data` of a recipe.

    `negatives`, `positives`, `negative_images`, `hard_images` and `dense` say what a batch holds:
    what is not asked for is neither read nor tokenised. A sample that has none is kept, and masked.
    """

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


class TermConfig(_Section):
    """A term of the loss: its name in `losses`, its weight, and that function's options."""

    term: str
    weight: float = Field(1.0, ge=0)
    options: dict[str, Any] = {}


def terms_of(loss: Iterable[TermConfig]) -> list[terms.Term]:
    return [terms.Term(one.term, one.weight, one.options) for one in loss]


class Lora(_Section):
    """Factors of low rank beside frozen weights (Hu et al. 2022): W + alpha / rank * B A."""

    rank: int = Field(4, ge=1)
    alpha: float = Field(1.0, gt=0)
    targets: list[Literal["attention", "mlp", "conv", "projection"]] = ["attention", "mlp", "conv"]


class Lock(_Section):
    """Locked-image tuning (Zhai et al. 2022, LiT): the trunk of the image tower stays as it is.

    What it makes of every image is computed once and stored; no image is opened while training.
    `pool`: what looks at the tokens of its patches, and trains (`mean`, `attention`). `center`: the
    mean of the tokens over the training images is subtracted first. `noise`: normal noise that is
    added to the stored outputs in every step, in the place of augmented images.
    """

    tower: Literal["image"] = "image"
    pool: Literal["none", "mean", "attention"] = "none"
    heads: int = Field(4, ge=1, description="of pool=attention")
    center: bool = Field(False, description="of a new pool: tokens minus their mean")
    noise: float = Field(0.0, ge=0, description="in standard deviations over the training images")

    @model_validator(mode="after")
    def _fits(self) -> Lock:
        if self.center and self.pool == "none":
            raise ValueError("lock.center is of a pool: add pool=mean or pool=attention to lock")
        return self

    @property
    def entry(self) -> dict[str, Any]:
        """The pool, as the configuration of a model names it."""
        found = {"kind": self.pool, "heads": self.heads}
        return {**found, "center": True} if self.center else found


class Validation(_Section):
    """The best weights of a run are kept, by a metric on a file that is not trained on.

    `accuracy`: captions above all of their negatives; `augmented_accuracy`: captions and positives
    above them; `batch_accuracy`: images and texts that find each other in a batch, hard ones among
    them; `recall`: recall@1 over the whole file, both ways; `loss`: the recipe's (lowest is best).
    """

    path: Path = Field(description="a training file, as export --validation writes it")
    images: Path | None = Field(None, description="where image paths start; else data.images")
    metric: Literal["accuracy", "augmented_accuracy", "batch_accuracy", "recall", "loss"] = (
        "accuracy"
    )
    every: int = Field(0, ge=0, description="steps; 0: at the end of every epoch")


class Recipe(_Section):
    """Everything that a run depends on. `batch` is the whole batch, of all processes together."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    source: str = Field("", alias="from", description="the paper")
    what: str = ""
    knobs: dict[str, str] = Field({}, description="short names for keys of this recipe")

    model: str
    decoder: str | None = Field(None, description="frozen: world, or hf:NAME of an encoder-decoder")
    data: DataConfig = Field(default_factory=lambda: DataConfig.model_validate({}))
    loss: list[TermConfig] = Field(min_length=1)

    epochs: float | None = Field(None, gt=0)
    steps: int | None = Field(None, ge=1, description="optimiser steps, instead of epochs")
    batch: int = Field(256, ge=1, description="samples that the loss sees at once, over all ranks")
    accumulate: int = Field(1, ge=1, description="batches whose gradients make one step")
    cached_batch: int = Field(0, ge=0, description="samples a rank's towers hold at once; 0: all")

    lr: float = Field(gt=0, lt=1)
    betas: tuple[Share, Share] = (0.9, 0.98)
    eps: float = Field(1e-6, gt=0)
    weight_decay: float = Field(0.1, ge=0)
    warmup: int = Field(0, ge=0, description="steps")
    schedule: Literal["cosine", "constant"] = "cosine"
    grad_clip: float | None = Field(None, gt=0)
    clamp_scale: float | None = Field(100.0, gt=0, description="largest scale; none: no clamp")

    precision: Literal["fp32", "bf16", "fp16"] = "bf16"
    lora: Lora | None = None
    freeze: Literal["none", "image", "text"] = "none"
    lock: Lock | None = Field(None, description="image: its trunk is locked, and its vectors kept")
    checkpoint_activations: bool = False
    compile: bool = Field(False, description="transformer blocks by torch.compile")
    ema: Share | None = Field(None, description="decay; the averaged weights are the result")
    ema_as: Literal["result", "teacher"] = Field(
        "result", description="teacher: the terms that read the start see the averaged weights"
    )
    wise: float = Field(1.0, gt=0, le=1, description="alpha: share of tuned weights in the result")
    sharded: bool = Field(False, description="FSDP2 instead of DDP, for models too large for a GPU")
    device: str = "auto"
    seed: int = Field(0, ge=0, lt=2**63)

    validation: Validation | None = None

    save_every: int = Field(1000, ge=0, description="steps; 0: only at the end")
    keep: int = Field(2, ge=1, description="checkpoints")
    log_every: int = Field(10, ge=1)
    eval_every: int = Field(0, ge=0, description="steps; 0: only at the end")
    benchmarks: list[str] = []
    save_as: Literal["fp32", "fp16"] = "fp32"
    tensorboard: bool = False
    wandb: bool = False
    out: Path | None = None

    @field_validator("loss")
    @classmethod
    def _known(cls, loss: list[TermConfig]) -> list[TermConfig]:
        if found := terms.faults(terms_of(loss)):
            raise ValueError(" ".join(found).removesuffix("."))
        return loss

    @field_validator("device")
    @classmethod
    def _device(cls, name: str) -> str:
        if not is_device(name):
            raise ValueError(f"should be {DEVICES}, not {shown(name)}")
        return name

    @field_validator("decoder")
    @classmethod
    def _decoder(cls, name: str | None) -> str | None:
        if name not in (None, "world") and not name.startswith("hf:"):
            raise ValueError("should be world or hf:NAME, such as hf:google/t5-v1_1-large")
        return name

    @field_validator(
        "clamp_scale", "grad_clip", "ema", "lora", "validation", "decoder", mode="before"
    )
    @classmethod
    def _none(cls, value: object) -> object:
        return None if value == "none" else value

    @field_validator("lock", mode="before")
    @classmethod
    def _tower(cls, value: object) -> object:
        return None if value == "none" else {"tower": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _fits(self) -> Recipe:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("give either epochs or steps")
        if self.lora is not None and self.sharded:
            raise ValueError("there is no LoRA with sharded=true; it needs little memory as it is")
        if self.ema_as == "teacher":
            if self.ema is None:
                raise ValueError("ema_as=teacher needs ema, the decay of its weights")
            if self.lora is not None or self.sharded:
                raise ValueError("ema_as=teacher goes with neither lora nor sharded=true")
            if not any(name.startswith("start_") for name in terms.uses(terms_of(self.loss))):
                raise ValueError("ema_as=teacher: no term of the loss reads a teacher")
        for term in terms_of(self.loss):
            if "reconstruction" in terms.uses([term]) and self.decoder is None:
                raise ValueError(terms.no_decoder(term.name).removesuffix("."))
        if self.decoder is not None:
            if "reconstruction" not in terms.uses(terms_of(self.loss)):
                raise ValueError("decoder: no term of the loss reads one")
            if self.sharded or self.ema_as == "teacher":
                raise ValueError("a decoder goes with neither sharded=true nor ema_as=teacher")
        if self.precision == "fp16" and self.sharded:
            raise ValueError("sharded=true goes with fp32 or bf16, not with fp16")
        if self.lock is not None and self.data.kind != "pairs":
            raise ValueError(
                f"lock=image takes data of kind 'pairs', whose images are known before the first "
                f"step, not {self.data.kind!r}"
            )
        if self.lock is not None and self.data.joined:
            raise ValueError("lock=image looks at each image once: there is no joined=true with it")
        if self.lock is None and self.data.vectors is not None:
            raise ValueError("data.vectors are outputs of an image trunk: they need lock=image")
        if not any(term.weight for term in self.loss):
            raise ValueError("every term of the loss has the weight 0")
        return self

    @property
    def start(self) -> str:
        """The id of the start: weights from scratch are drawn by the recipe's seed."""
        plain = self.model.startswith("scratch:") and "?" not in self.model
        return f"{self.model}?seed={self.seed}" if plain else self.model

    @property
    def folder(self) -> Path:
        """Where the run goes: the same place for the same recipe, other places for others."""
        return self.out or Path("runs") / f"train-{self.name}-{self.digest()}"

    def settled(self) -> dict[str, Any]:
        """What the weights depend on, as plain values."""
        # keep_out refuses a run, and changes none
        unread: Any = {"data": {"workers", "keep_out"}, **dict.fromkeys((*FREE, "knobs"), True)}
        return self.model_dump(mode="json", by_alias=True, exclude=unread)

    def digest(self) -> str:
        import hashlib
        import json

        text = json.dumps(self.settled(), sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
