"""Names of open_clip's architectures and tags, without importing it: that takes seconds (torch)."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from counterpoint._util.errors import NotFoundError
from counterpoint._util.registry import Option, did_you_mean, read_options

HUB: Final = "hf-hub:"
FOLDER: Final = "local-dir:"
SCRATCH: Final = {"seed": Option(0)}  # of random weights
_PARTS: Final = ("embed_dim", "vision_cfg", "text_cfg")  # of a config that is a model's
_ALONE: Final = "counterpoint_open_clip_names"  # a package of its own, which imports no torch
_SLOW: Final = "import safetensors.torch"  # which its table of tags does not need


def check(rest: str) -> None:
    """Refuse `NAME/TAG` or `NAME/FILE` with an unknown name; without open_clip, nothing."""
    name, _, pretrained = rest.partition("/")
    if rest.startswith((FOLDER, HUB)) or (folder := _folder()) is None:
        return
    refuse_architecture(name)
    tags = _tags(folder, name)
    if pretrained in tags or (pretrained and Path(pretrained).expanduser().is_file()):
        return
    if not pretrained:
        raise NotFoundError(
            "E-MODEL-ID-INVALID",
            f"open_clip:{name} needs weights: {name}/TAG with {', '.join(tags)}.",
        )
    raise NotFoundError(
        "E-WEIGHTS-UNKNOWN", did_you_mean(f"tag or weights file for {name}", pretrained, tags)
    )


def check_scratch(rest: str) -> None:
    """Refuse `NAME?seed=N` with an unknown name; without open_clip, nothing."""
    if _folder() is not None:
        name, _, text = rest.partition("?")
        refuse_architecture(name)
        read_options("scratch", text, SCRATCH)


def refuse_architecture(name: str) -> None:
    folder = _folder()
    known = [] if folder is None else _architectures(folder)
    if name not in known:
        raise NotFoundError(
            "E-ARCHITECTURE-UNKNOWN", did_you_mean("open_clip architecture", name, known)
        )


def _folder() -> Path | None:
    spec = find_spec("open_clip")
    places = spec.submodule_search_locations if spec else None
    return Path(places[0]) if places else None


def _loaded() -> Any:
    """open_clip, if it was imported anyway: a program may have added models to it."""
    return sys.modules.get("open_clip")


def _architectures(folder: Path) -> list[str]:
    loaded = _loaded()
    return list(loaded.list_models()) if loaded else list(_configs(folder))


@cache
def _configs(folder: Path) -> tuple[str, ...]:
    files = sorted((folder / "model_configs").glob("*.json"))
    configs = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}
    return tuple(name for name, config in configs.items() if all(p in config for p in _PARTS))


def _tags(folder: Path, name: str) -> Sequence[str]:
    table = _loaded() or _pretrained(folder)
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
