"""Models by id, `FAMILY:REST`. Adding one is a file with `load(rest, options)` and a line here."""

from __future__ import annotations

import importlib
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from counterpoint._util.errors import NotFoundError
from counterpoint._util.registry import Option, Registry, did_you_mean
from counterpoint._util.untrusted import shortened, shown

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
        "ensemble": f"{_HOME}.combined:load_ensemble",
        "flava-itm": f"{_HOME}.hf.matching:load_flava",
        "hf": f"{_HOME}.hf.dual:load",
        "lm": f"{_HOME}.hf.generative:load_lm",
        "onnx": f"{_HOME}.onnx:load",
        "open_clip": f"{_HOME}.openclip.adapter:load",
        "random": f"{_HOME}.blind.baselines:load_random",
        "rerank": f"{_HOME}.combined:load_rerank",
        "scratch": f"{_HOME}.openclip.adapter:load_scratch",
        "vectors": f"{_HOME}.vectors:load",
        "vqa": f"{_HOME}.hf.generative:load",
        "world": f"{_HOME}.onnx:load_world",
        "xvlm": f"{_HOME}.xvlm:load",
    },
)


# What refuses a name without loading the model, where that can be done without its library.
_CHECKS: Final = {
    "blind": f"{_HOME}.blind.baselines:check",
    "ensemble": f"{_HOME}.combined:check_ensemble",
    "open_clip": f"{_HOME}.openclip.ids:check",
    "random": f"{_HOME}.blind.baselines:check_random",
    "rerank": f"{_HOME}.combined:check_rerank",
    "scratch": f"{_HOME}.openclip.ids:check_scratch",
    "vectors": f"{_HOME}.vectors:check",
    "world": f"{_HOME}.registry:world_folder",
}


# The option of the families that can score as the authors of ARO do.
ARO: Final = {"score": Option("", ("aro",))}


class Example(NamedTuple):
    """What an id of a family is, and which extra it needs beyond the package itself."""

    what: str
    extra: str = ""


_FILE: Final = Path(__file__).with_name("examples.toml")
EXAMPLES: Final = {
    id: Example(**row) for id, row in tomllib.loads(_FILE.read_text(encoding="utf-8")).items()
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
    torch: bool = False  # a model of torch: its weights are to be changed

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

    check_family(id)
    family, _, rest = id.partition(":")
    model: Model = FAMILIES.get(family)(rest, options or LoadOptions())
    check_kind(model)
    return model


def check_model(id: str) -> None:
    """Refuse an id that cannot be loaded, as far as that is known without loading anything."""
    check_family(id)
    family, _, rest = id.partition(":")
    if family in _CHECKS:
        module, _, name = _CHECKS[family].partition(":")
        getattr(importlib.import_module(module), name)(rest)


# What a folder of a family of models has in it.
_SIGNS: Final = {
    "open_clip_config.json": "open_clip:local-dir:{}",
    "vision_model.onnx": "onnx:{}",
    "onnx": "onnx:{}",
    "config.json": "hf:{}",
}
_WEIGHTS: Final = (".pt", ".pth", ".bin", ".ckpt", ".safetensors")


def check_family(id: str) -> None:
    """Raise unless an id begins with a family; it says which, where a path or a name shows it."""
    family = id.partition(":")[0]
    if family in FAMILIES.names():
        return
    path = Path(id).expanduser()
    meant = ""
    if path.is_dir():
        signs = (form for sign, form in _SIGNS.items() if (path / sign).exists())
        meant = next(signs, "")
    elif path.suffix in _WEIGHTS:
        meant = "checkpoint:{}@ARCHITECTURE"
    elif re.fullmatch(r"[\w.-]+/[\w.-]+", id):
        meant = "hf:{}"
    elif re.fullmatch(r"(ViT|RN|convnext|EVA|coca|xlm)[\w-]*", id):
        meant = "open_clip:{}/TAG"
    if not meant:
        FAMILIES.get(family)  # raises
    raise NotFoundError(
        "E-MODEL-UNKNOWN",
        f"{shown(id)} does not begin with a family of models; use {meant.format(shortened(id))} "
        "(`counterpoint ls models` has all families).",
    )


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
