"""What an open_clip id means, and whether its checkpoint fits the architecture asked for.

CLIP checkpoints do not carry their activation function. Weights trained with QuickGELU (all of
OpenAI's, and what was finetuned from them) load without complaint into an architecture with GELU
and lose points: the most common wrong number of this field. So everything that says which
one it was is read, and a mismatch is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import open_clip

from counterpoint._util.errors import ModelError, reason
from counterpoint._util.registry import read_options
from counterpoint._util.untrusted import parse_json, shortened, shown
from counterpoint.models.openclip.names import FOLDER, HUB, SCRATCH, check, refuse_architecture
from counterpoint.models.registry import LoadOptions, records_in
from counterpoint.models.weights import is_torchscript, torch_load

_CONFIG: Final = "open_clip_config.json"
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
        known = open_clip.get_pretrained_cfg(self.name, self.pretrained or "") or {}
        return str(known.get("hf_hub", "")).rpartition("/")[0] or None


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
    if pretrained in open_clip.list_pretrained_tags_by_model(name):
        return OpenClipSource(rest, name, pretrained)
    path = Path(pretrained).expanduser()
    return OpenClipSource(rest, name, str(path), notes=unknown_activation(name, path))


def parse_scratch(rest: str) -> tuple[str, int]:
    """Architecture and seed of `NAME?seed=N`."""
    name, _, text = rest.partition("?")
    refuse_architecture(name)
    return name, int(read_options("scratch", text, SCRATCH)["seed"])


def refuse_tokenizer_options(id: str, name: str, options: LoadOptions) -> None:
    """open_clip hands `tokenizer_kwargs` of a model's own config to the tokenizer as they are."""
    config = open_clip.get_model_config(name)
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
    config = open_clip.get_model_config(name)
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
        _check_folder(source)
    elif source.pretrained is not None:
        _check_named(source)


def _check_folder(source: OpenClipSource) -> None:
    """A folder that also holds a transformers config says there which activation it was."""
    assert source.folder is not None
    model = _read_json(source.folder / _CONFIG).get("model_cfg")
    if not isinstance(model, dict):
        raise ModelError("E-CONFIG-INVALID", f"open_clip:{source.id}: {_CONFIG} has no model_cfg.")
    built = bool(model.get("quick_gelu", False))
    acts = _activations(source.folder / "config.json")
    if acts and acts <= {"quick_gelu", "gelu"} and acts != {"quick_gelu" if built else "gelu"}:
        wanted = "true" if "quick_gelu" in acts else "false"
        raise ModelError(
            "E-ACTIVATION-MISMATCH",
            f"open_clip:{source.id}: config.json says the weights were trained with "
            f"{' and '.join(sorted(acts))}, {_CONFIG} builds "
            f'{"quick_gelu" if built else "gelu"}; set "quick_gelu": {wanted} in its model_cfg.',
        )


def _check_named(source: OpenClipSource) -> None:
    assert source.pretrained is not None
    built = builds_quick_gelu(source.name)
    known = open_clip.get_pretrained_cfg(source.name, source.pretrained)
    trained = bool(known.get("quick_gelu", False)) if known else file_says(Path(source.pretrained))
    if trained is None or trained == built:
        return
    fitting = with_activation(source.name, trained)
    if fitting is None:
        return  # the only architecture of its kind: open_clip's table of tags is incomplete
    kinds = {True: "QuickGELU", False: "GELU"}
    raise ModelError(
        "E-ACTIVATION-MISMATCH",
        f"open_clip:{source.id}: the weights were trained with {kinds[trained]} and {source.name} "
        f"computes {kinds[built]}, which changes every score; "
        f"use open_clip:{fitting}/{source.pretrained}.",
    )


def with_activation(name: str, quick: bool) -> str | None:
    """The architecture like this one that computes the other GELU, if there is one."""
    plain = name.removesuffix("-quickgelu")
    fitting = f"{plain}-quickgelu" if quick else plain
    return fitting if fitting in open_clip.list_models() and fitting != name else None


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
    return bool((open_clip.get_model_config(name) or {}).get("quick_gelu", False))


def unknown_activation(name: str, path: Path) -> tuple[str, ...]:
    if f"{name.removesuffix('-quickgelu')}-quickgelu" not in open_clip.list_models():
        return ()
    if file_says(path) is not None:
        return ()
    kind = "QuickGELU" if builds_quick_gelu(name) else "GELU"
    return (
        f"{path.name} does not say which activation it was trained with; {name} computes {kind}. "
        "Weights that come from OpenAI's want the -quickgelu architecture.",
    )


def file_says(path: Path) -> bool | None:
    """Whether a weights file was trained with QuickGELU; None if it does not say.

    A safetensors header may carry `quick_gelu` or `architecture`; open_clip's trainer writes a run
    name with the architecture in it; OpenAI's own files are TorchScript archives.
    """
    if path.suffix == ".safetensors":
        metadata = _safetensors_metadata(path)
        if "quick_gelu" in metadata:
            return metadata["quick_gelu"].lower() == "true"
        return _named(metadata.get("architecture", ""))
    if is_torchscript(path):
        return True
    return _named(_checkpoint_name(path))


def _named(name: str) -> bool | None:
    if "quickgelu" in name.lower() or "openai" in name.lower():
        return True
    return None


def _safetensors_metadata(path: Path) -> dict[str, str]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            return dict(file.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise ModelError(
            "E-WEIGHTS-BROKEN", f"{path} is not a readable safetensors file: {shortened(error)}."
        ) from None


def _checkpoint_name(path: Path) -> str:
    try:
        checkpoint = torch_load(path)
    except Exception:
        return ""  # loading it for good will say what is wrong
    return str(checkpoint.get("name", "")) if isinstance(checkpoint, dict) else ""


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = parse_json(path.read_bytes(), path, ModelError)
    except OSError as error:
        raise ModelError("E-FILE-UNREADABLE", f"{path}: cannot be read: {reason(error)}.") from None
    if not isinstance(values, dict):
        raise ModelError("E-CONFIG-INVALID", f"{path} is not a JSON object.")
    return values
