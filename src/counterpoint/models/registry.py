"""Models by id, `FAMILY:REST`. Adding one is a file with `load(rest, options)` and a line here."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from counterpoint._util.errors import NotFoundError
from counterpoint._util.registry import Option, Registry, did_you_mean
from counterpoint._util.untrusted import shown

if TYPE_CHECKING:
    from counterpoint.scoring import Model

_HOME: Final = "counterpoint.models"

FAMILIES: Final = Registry(
    "model",
    _HOME,
    {
        "api": f"{_HOME}.api.adapter:load",
        "blind": f"{_HOME}.blind.baselines:load",
        "blip-itc": f"{_HOME}.hf.matching:load_itc",
        "blip-itm": f"{_HOME}.hf.matching:load_itm",
        "checkpoint": f"{_HOME}.openclip.checkpoints:load",
        "detector": f"{_HOME}.detector.adapter:load",
        "ensemble": f"{_HOME}.ensemble:load",
        "flava-itm": f"{_HOME}.hf.matching:load_flava",
        "hf": f"{_HOME}.hf.dual:load",
        "lm": f"{_HOME}.vqa.adapter:load_lm",
        "open_clip": f"{_HOME}.openclip.adapter:load",
        "random": f"{_HOME}.blind.baselines:load_random",
        "rerank": f"{_HOME}.rerank:load",
        "scratch": f"{_HOME}.openclip.adapter:load_scratch",
        "vectors": f"{_HOME}.vectors:load",
        "vqa": f"{_HOME}.vqa.adapter:load",
        "world": f"{_HOME}.openclip.adapter:load_world",
        "xvlm": f"{_HOME}.xvlm:load",
    },
)


# What refuses a name without loading the model, where that can be done without its library.
_CHECKS: Final = {
    "blind": f"{_HOME}.blind.baselines:check",
    "ensemble": f"{_HOME}.ensemble:members",
    "open_clip": f"{_HOME}.openclip.names:check",
    "random": f"{_HOME}.blind.baselines:check_random",
    "rerank": f"{_HOME}.rerank:read_id",
    "scratch": f"{_HOME}.openclip.names:check_scratch",
    "vectors": f"{_HOME}.vectors:check",
    "world": f"{_HOME}.registry:world_folder",
}


# The option of the families that can score as the authors of ARO do.
ARO: Final = {"score": Option("", ("aro",))}


class Example(NamedTuple):
    """What an id of a family is, and which extra it needs beyond the package itself."""

    what: str
    extra: str = ""


_VLM: Final = "vlm"
EXAMPLES: Final[dict[str, Example]] = {
    "world:base": Example("the bundled base model of the synthetic world"),
    "world:counterpoint": Example("the base tuned by our recipe; so are world:hn and world:hp-hn"),
    "open_clip:ViT-B-32-quickgelu/openai": Example(
        "open_clip architecture with a tag or a weights file; cosine"
    ),
    "open_clip:local-dir:PATH": Example(
        "an open_clip model folder (open_clip_config.json and weights)"
    ),
    "open_clip:hf-hub:ORG/REPO": Example("an open_clip model of the hub"),
    "scratch:RN50": Example(
        "an open_clip architecture with random weights (?seed=3 for others): a start of training"
    ),
    "checkpoint:PATH@ViT-B-32-quickgelu": Example(
        "a finetuned CLIP state dict (NegCLIP, CE-CLIP, SVLC, DAC ...) in an architecture"
    ),
    "hf:ORG/REPO": Example(
        "transformers dual encoders, by hub id or folder: CLIP, SigLIP, ALIGN, FLAVA ...", _VLM
    ),
    "blip-itm:ORG/REPO": Example(
        "BLIP or BLIP-2, matching head: a probability; ?score=aro: BLIP as ARO scores it", _VLM
    ),
    "blip-itc:ORG/REPO": Example("BLIP or BLIP-2, contrastive head: a cosine", _VLM),
    "flava-itm:ORG/REPO": Example("FLAVA's matching head: a probability", _VLM),
    "xvlm:FILE": Example(
        "X-VLM from its authors' checkpoint, matching head: a logit; ?score=aro: as ARO scores it",
        _VLM,
    ),
    "vqa:ORG/REPO": Example(
        "generative models (LLaVA, Qwen-VL, PaliGemma ...): P(yes) to a question, or with "
        "?templates=FILE the mean over several",
        _VLM,
    ),
    "lm:ORG/REPO": Example("the same models: mean log-likelihood of the caption", _VLM),
    "api:MODEL": Example(
        "any OpenAI-compatible endpoint (vLLM ...): P(yes), or a forced choice; ?parallel=N "
        "requests at a time",
        _VLM,
    ),
    "blind:length": Example("the shorter caption wins; sees no image"),
    "blind:format": Example("the caption that looks less edited wins; sees no image"),
    "blind:bow": Example(
        "a bag of words fitted to the benchmark itself, cross-validated; sees no image"
    ),
    "blind:ngram": Example(
        "a logistic regression on words and pairs of neighbours, cross-fitted; sees no image"
    ),
    "blind:chars": Example(
        "the same on strings of one to four characters, and the length; sees no image"
    ),
    "blind:grammar": Example("a CoLA classifier: the more grammatical caption wins", _VLM),
    "blind:plausible": Example("Vera: the more plausible caption wins", _VLM),
    "blind:lm:PATH": Example("a language model: the likelier caption wins", _VLM),
    "detector:FOLDER": Example(
        "tells natural from synthetic and answers BiVLC with that alone (`detector train`)"
    ),
    "ensemble:world:base+blind:length": Example(
        "the mean of several models' scores, standardised over each benchmark"
    ),
    "rerank:blip-itc:ORG/REPO+blip-itm:ORG/REPO?k=128": Example(
        "a pair scorer puts the k best answers of a dual encoder in order: retrieval", _VLM
    ),
    "vectors:FOLDER": Example(
        "vectors that were computed elsewhere; needs neither model nor images (`vectors export`)"
    ),
    "random": Example("random scores: the printed chance levels"),
}

PRECISIONS: Final = ("fp32", "tf32", "bf16", "fp16")
DECODERS: Final = ("exact", "gpu", "auto")
DEVICES: Final = "auto, cpu, cuda, cuda:N or mps"
_DEVICE: Final = re.compile(r"auto|cpu|mps|cuda(:\d{1,3})?")


def is_device(name: str) -> bool:
    """Whether it is the name of a device. Whether the device exists is checked when it is used."""
    return _DEVICE.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What a family needs to know to load a model."""

    device: str = "auto"
    precision: str = "fp32"
    trust_remote_code: bool = False  # run Python code that comes with the model
    decode: str = "exact"  # or "gpu": JPEGs are decoded faster, with slightly other values
    unit: bool = True  # vectors of length 1, of which the products are cosines

    def __post_init__(self) -> None:
        if not is_device(self.device):
            raise NotFoundError(
                "E-DEVICE-UNKNOWN", f"no device is called {shown(self.device)}; use {DEVICES}."
            )
        if self.decode not in DECODERS:
            raise NotFoundError("E-DECODER-UNKNOWN", did_you_mean("decoder", self.decode, DECODERS))


def load_model(id: str, options: LoadOptions | None = None) -> Model:
    """Load a model by its id, for instance `open_clip:ViT-B-32-quickgelu/openai`."""
    from counterpoint.scoring import check_kind  # not at the top: a list of models needs no NumPy

    family, _, rest = id.partition(":")
    model: Model = FAMILIES.get(family)(rest, options or LoadOptions())
    check_kind(model)
    return model


def check_model(id: str) -> None:
    """Refuse an id that cannot be loaded, as far as that is known without loading anything."""
    family, _, rest = id.partition(":")
    if family not in FAMILIES.names():
        FAMILIES.get(family)  # raises
    if family in _CHECKS:
        module, _, name = _CHECKS[family].partition(":")
        getattr(importlib.import_module(module), name)(rest)


def world_folder(name: str) -> Path:
    """The checkpoint of `world:NAME`, which is in the package."""
    folder = Path(__file__).parents[1] / "world" / "checkpoints"
    names = [path.name for path in folder.iterdir() if path.is_dir()]
    if name not in names:
        raise NotFoundError("E-MODEL-UNKNOWN", did_you_mean("world model", name, names))
    return folder / name


def list_models() -> dict[str, str]:
    """An example id of every family of models, and what it is."""
    return {id: example.what for id, example in EXAMPLES.items()}


TRAINED_ON: Final = "trained-on.parquet"


def records_in(folder: Path | str | None) -> tuple[str, ...]:
    """The file in a model's folder that says what it was trained on; none if there is none."""
    if folder is None or not (path := Path(folder).expanduser() / TRAINED_ON).is_file():
        return ()
    return (str(path),)
