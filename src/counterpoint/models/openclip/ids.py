"""What an open_clip id means, and whether its weights fit the architecture asked for.

CLIP checkpoints do not carry their activation function. Weights trained with QuickGELU (all of
OpenAI's, and what was finetuned from them) load without complaint into an architecture with GELU
and lose points: the most common wrong number of this field. So everything that says which
one it was is read, and a mismatch is refused.

Names are checked without open_clip and torch, which take seconds to import.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from counterpoint._util.errors import ModelError, NotFoundError, reason
from counterpoint._util.registry import Option, did_you_mean, read_options
from counterpoint._util.untrusted import parse_json, shortened, shown
from counterpoint.models.registry import LoadOptions, records_in

HUB: Final = "hf-hub:"
FOLDER: Final = "local-dir:"
_CONFIG: Final = "open_clip_config.json"
_SEED: Final = {"seed": Option(0)}  # of random weights
_PARTS: Final = ("embed_dim", "vision_cfg", "text_cfg")  # of a config that is a model's
_ALONE: Final = "counterpoint_open_clip_names"  # a package of its own, which imports no torch
_SLOW: Final = "import safetensors.torch"  # which its table of tags does not need
_KINDS: Final = {True: "QuickGELU", False: "GELU"}
_MOST: Final = 10**12  # more weights than any model has
# What a config may say to a tokenizer: settings, and no names of files and repositories.
_SETTINGS: Final = frozenset(
    (
        *("clean", "strip_sep_token", "language", "additional_special_tokens", "reduction_mask"),
        *("add_bos_token", "add_eos_token", "do_lower_case", "padding_side", "use_fast"),
    )
)


@dataclass(frozen=True, slots=True)
class OpenClipSource:
    """Where a model comes from, as open_clip takes it."""

    id: str
    name: str
    pretrained: str | None
    folder: Path | None = None
    notes: tuple[str, ...] = ()
    records: tuple[str, ...] = ()  # of what it was trained on, if not in the folder of its weights

    @property
    def training_records(self) -> tuple[str, ...]:
        beside = Path(self.pretrained).parent if self.pretrained else None
        return self.records or records_in(self.folder or beside)

    @property
    def origin(self) -> Path | str | None:
        """Its folder, or its repository on the hub; none if open_clip itself has the config."""
        return self.folder or (self.name.removeprefix(HUB) if self.name.startswith(HUB) else None)

    @property
    def repository(self) -> str | None:
        """What is fetched from the hub: the repository of the model, or of a tag's weights."""
        if self.name.startswith(HUB):
            return self.name.removeprefix(HUB)
        known = _library().get_pretrained_cfg(self.name, self.pretrained or "") or {}
        return str(known.get("hf_hub", "")).rpartition("/")[0] or None


def _library() -> Any:
    return import_module("open_clip")


def parse(rest: str) -> OpenClipSource:
    if rest.startswith(FOLDER):
        folder = Path(rest.removeprefix(FOLDER)).expanduser()
        if not (folder / _CONFIG).is_file():
            raise ModelError(
                "E-CONFIG-MISSING",
                f"open_clip:{rest}: {folder} is not an open_clip folder: it has no {_CONFIG}.",
            )
        return OpenClipSource(rest, f"local-dir:{folder}", None, folder)
    if rest.startswith(HUB):
        return OpenClipSource(rest, rest, None)
    name, _, pretrained = rest.partition("/")
    check(rest)
    if pretrained in _library().list_pretrained_tags_by_model(name):
        return OpenClipSource(rest, name, pretrained)
    path = Path(pretrained).expanduser()
    return OpenClipSource(rest, name, str(path), notes=unknown_activation(name, path))


def parse_scratch(rest: str) -> tuple[str, int]:
    """Architecture and seed of `NAME?seed=N`."""
    name, _, text = rest.partition("?")
    refuse_architecture(name)
    return name, int(read_options("scratch", text, _SEED)["seed"])


def refuse_tokenizer_options(id: str, name: str, options: LoadOptions) -> None:
    """open_clip hands `tokenizer_kwargs` of a model's own config to the tokenizer as they are."""
    config = _library().get_model_config(name)
    text = config.get("text_cfg") if isinstance(config, dict) else None
    given = text.get("tokenizer_kwargs") if isinstance(text, dict) else None
    unknown = sorted(set(given) - _SETTINGS) if isinstance(given, dict) else []
    if unknown and not options.trust_remote_code:
        raise ModelError(
            "E-CODE-REFUSED",
            f"{id}: tokenizer_kwargs in {_CONFIG} has {shown(unknown[0])}, which is not a plain "
            "setting of a tokenizer; take it out, or let `counterpoint eval --trust-remote-code` "
            "use it if you trust the model's authors.",
        )


def refuse_sizes(id: str, name: str, weights: Path | None) -> None:
    """A config must not build more than its weights can fill: memory would run out first.

    What is counted is less than what is built, and a weight takes a byte at least.
    """
    config = _library().get_model_config(name)
    room = weights.stat().st_size if weights else _MOST
    towers = config.values() if isinstance(config, dict) else ()
    least = sum(_least_weights(tower) for tower in towers if isinstance(tower, dict))
    if least > room:
        raise ModelError(
            "E-CONFIG-MISMATCH",
            f"{id}: {_CONFIG} describes {least:.1e} weights or more, and its weights are a file of "
            f"{room:.1e} bytes; it does not belong to them.",
        )


def _least_weights(tower: dict[str, Any]) -> float:
    """Of a tower of open_clip's own: attention and MLP of each layer, embeddings, names."""
    if tower.get("timm_model_name") or tower.get("hf_model_name"):
        return 0

    def size(key: str, default: int) -> float:
        value = tower.get(key, default)
        parts = value if isinstance(value, list) else [value]  # a ResNet has four stages
        return float(min(_MOST, sum(abs(p) for p in parts if isinstance(p, int | float))))

    width, layers = max(1.0, size("width", 1)), size("layers", 1)
    patch = max(1.0, size("patch_size", 16))
    rows = size("vocab_size", 0) + size("context_length", 0) + 3 * patch**2
    rows += (size("image_size", 0) // patch) ** 2
    return layers * width**2 * (4 + 2 * size("mlp_ratio", 0)) + width * rows + 600 * layers


def weights_of(folder: Path) -> Path | None:
    """The largest file of weights in a folder."""
    found = [path for path in folder.iterdir() if path.suffix in (".safetensors", ".bin", ".pth")]
    return max(found, key=lambda path: path.stat().st_size, default=None)


def refuse_wrong_activation(source: OpenClipSource) -> None:
    """Raise a ModelError that names the fix if the weights want another GELU."""
    if source.folder is not None:
        _check_folder(source.id, source.folder)
    if source.pretrained is None:
        return
    known = _library().get_pretrained_cfg(source.name, source.pretrained)
    trained = bool(known.get("quick_gelu", False)) if known else file_says(Path(source.pretrained))
    fitting = None if trained is None else with_activation(source.name, trained)
    # Without one it is the only architecture of its kind: the table of tags is incomplete.
    if trained is not None and fitting and trained != builds_quick_gelu(source.name):
        fix = f"; use open_clip:{fitting}/{source.pretrained}"
        raise other_activation(f"open_clip:{source.id}: the weights", source.name, trained, fix)


def other_activation(weights: str, name: str, trained: bool, fix: str) -> ModelError:
    return ModelError(
        "E-ACTIVATION-MISMATCH",
        f"{weights} were trained with {_KINDS[trained]} and {name} computes "
        f"{_KINDS[not trained]}, which changes every score{fix}.",
    )


def _check_folder(id: str, folder: Path) -> None:
    """A folder that also holds a transformers config says there which activation it was."""
    model = _read_json(folder / _CONFIG).get("model_cfg")
    if not isinstance(model, dict):
        raise ModelError("E-CONFIG-INVALID", f"open_clip:{id}: {_CONFIG} has no model_cfg.")
    built = "quick_gelu" if model.get("quick_gelu", False) else "gelu"
    acts = _activations(folder / "config.json")
    if acts and acts <= {"quick_gelu", "gelu"} and acts != {built}:
        wanted = "true" if "quick_gelu" in acts else "false"
        raise ModelError(
            "E-ACTIVATION-MISMATCH",
            f"open_clip:{id}: config.json says the weights were trained with "
            f"{' and '.join(sorted(acts))}, {_CONFIG} builds {built}; "
            f'set "quick_gelu": {wanted} in its model_cfg.',
        )


def with_activation(name: str, quick: bool) -> str | None:
    """The architecture like this one that computes the other GELU, if there is one."""
    plain = name.removesuffix("-quickgelu")
    fitting = f"{plain}-quickgelu" if quick else plain
    return fitting if fitting in _library().list_models() and fitting != name else None


def config_says(path: Path) -> bool | None:
    """Whether a transformers config of CLIP says QuickGELU; None if it does not say."""
    acts = _activations(path)
    return acts == {"quick_gelu"} if acts in ({"quick_gelu"}, {"gelu"}) else None


def _activations(path: Path) -> set[str]:
    """What a transformers config.json says of its two towers; nothing if there is none."""
    if not path.is_file():
        return set()
    config = _read_json(path)
    # transformers leaves out what is its default, which for its CLIP is quick_gelu
    default = "quick_gelu" if config.get("model_type") == "clip" else None
    towers = [config.get(name) or {} for name in ("text_config", "vision_config")]
    return {str(tower.get("hidden_act", default)) for tower in towers if isinstance(tower, dict)}


def builds_quick_gelu(name: str) -> bool:
    return bool((_library().get_model_config(name) or {}).get("quick_gelu", False))


def unknown_activation(name: str, path: Path) -> tuple[str, ...]:
    """A note, where the file does not say it and both architectures exist."""
    quick = f"{name.removesuffix('-quickgelu')}-quickgelu"
    if quick not in _library().list_models() or file_says(path) is not None:
        return ()
    return (
        f"{path.name} does not say which activation it was trained with; {name} computes "
        f"{_KINDS[builds_quick_gelu(name)]}. Weights that come from OpenAI's want the -quickgelu "
        "architecture.",
    )


def file_says(path: Path) -> bool | None:
    """Whether a weights file was trained with QuickGELU; None if it does not say.

    A safetensors header may carry `quick_gelu` or `architecture`; open_clip's trainer writes a run
    name with the architecture in it; OpenAI's own files are TorchScript archives.
    """
    from safetensors import SafetensorError, safe_open

    from counterpoint.models.weights import is_torchscript, torch_load

    if path.suffix == ".safetensors":
        try:
            with safe_open(path, framework="numpy") as file:
                metadata = dict(file.metadata() or {})
        except (SafetensorError, OSError) as error:
            what = f"{path} is not a readable safetensors file: {shortened(error)}."
            raise ModelError("E-WEIGHTS-BROKEN", what) from None
        if "quick_gelu" in metadata:
            return bool(metadata["quick_gelu"].lower() == "true")
        name = metadata.get("architecture", "")
    elif is_torchscript(path):
        return True
    else:
        try:
            checkpoint = torch_load(path)
        except Exception:
            return None  # loading it for good will say what is wrong
        name = str(checkpoint.get("name", "")) if isinstance(checkpoint, dict) else ""
    return True if "quickgelu" in name.lower() or "openai" in name.lower() else None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = parse_json(path.read_bytes(), path, ModelError)
    except OSError as error:
        raise ModelError("E-FILE-UNREADABLE", f"{path}: cannot be read: {reason(error)}.") from None
    if not isinstance(values, dict):
        raise ModelError("E-CONFIG-INVALID", f"{path} is not a JSON object.")
    return values


# --- names --------------------------------------------------------------------------------------


def check(rest: str) -> None:
    """Refuse `NAME/TAG` or `NAME/FILE` with an unknown name; without open_clip, nothing."""
    name, _, pretrained = rest.partition("/")
    if rest.startswith((FOLDER, HUB)) or (folder := package()) is None:
        return
    refuse_architecture(name)
    tags = tags_of(folder, name)
    if pretrained in tags or (pretrained and Path(pretrained).expanduser().is_file()):
        return
    if not pretrained:
        raise NotFoundError(
            "E-MODEL-ID-INVALID",
            f"open_clip:{name} needs weights: {name}/TAG with {', '.join(tags)}.",
        )
    what = did_you_mean(f"tag or weights file for {name}", pretrained, tags)
    raise NotFoundError("E-WEIGHTS-UNKNOWN", what)


def check_scratch(rest: str) -> None:
    """Refuse `NAME?seed=N` with an unknown name; without open_clip, nothing."""
    if package() is not None:
        name, _, text = rest.partition("?")
        refuse_architecture(name)
        read_options("scratch", text, _SEED)


def refuse_architecture(name: str) -> None:
    folder = package()
    known = [] if folder is None else architectures(folder)
    if name not in known:
        what = did_you_mean("open_clip architecture", name, known)
        raise NotFoundError("E-ARCHITECTURE-UNKNOWN", what)


def package() -> Path | None:
    spec = find_spec("open_clip")
    places = spec.submodule_search_locations if spec else None
    return Path(places[0]) if places else None


def architectures(folder: Path) -> list[str]:
    """Those of open_clip itself, if it was imported anyway: a program may have added some."""
    loaded = sys.modules.get("open_clip")
    return list(loaded.list_models()) if loaded else list(_configs(folder))


@cache
def _configs(folder: Path) -> tuple[str, ...]:
    files = sorted((folder / "model_configs").glob("*.json"))
    configs = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}
    return tuple(name for name, config in configs.items() if all(p in config for p in _PARTS))


def tags_of(folder: Path, name: str) -> Sequence[str]:
    table: Any = sys.modules.get("open_clip") or _pretrained(folder)
    found: Sequence[str] = table.list_pretrained_tags_by_model(name)
    return found


@cache
def _pretrained(folder: Path) -> ModuleType:
    """Its table of tags, run as a module of its own."""
    package, table = ModuleType(_ALONE), ModuleType(f"{_ALONE}.pretrained")
    package.__path__ = [str(folder)]
    sys.modules[_ALONE] = package
    table.__package__ = _ALONE
    path = folder / "pretrained.py"
    source = path.read_text(encoding="utf-8").replace(_SLOW, "raise ImportError")
    exec(compile(source, str(path), "exec"), vars(table))  # of an installed package
    return table
