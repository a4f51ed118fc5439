"""Models by id, `FAMILY:REST`. Adding one is a file with `load(rest, options)` and a line here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from counterpoint.registry import Registry
from counterpoint.scoring.kinds import Model

FAMILIES: Final = Registry(
    "model",
    "counterpoint.models",
    {
        "open_clip": "counterpoint.models.open_clip:load",
        "world": "counterpoint.models.open_clip:load_world",
        "blind": "counterpoint.models.blind:load",
        "random": "counterpoint.models.random:load",
    },
)

EXAMPLES: Final[dict[str, str]] = {
    "world:base": "the bundled base model of the synthetic world",
    "open_clip:ViT-B-32-quickgelu/openai": "open_clip architecture with a tag or a weights file",
    "open_clip:local-dir:PATH": "an open_clip model folder (open_clip_config.json and weights)",
    "blind:length": "the shorter caption wins; sees no image",
    "blind:format": "the caption that looks less edited wins; sees no image",
    "blind:bow": "a bag of words fitted to the benchmark itself, cross-validated; sees no image",
    "random": "random scores: the printed chance levels",
}


PRECISIONS: Final = ("fp32", "tf32", "bf16", "fp16")


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What a family needs to know to load a model."""

    device: str = "auto"
    precision: str = "fp32"


def load_model(id: str, options: LoadOptions | None = None) -> Model:
    """Load a model by its id, for instance `open_clip:ViT-B-32-quickgelu/openai`."""
    family, _, rest = id.partition(":")
    model: Model = FAMILIES.get(family)(rest, options or LoadOptions())
    return model
