"""Images of the world: offline, and right by construction, for texts that are its captions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from counterpoint.generate.images.backends import (
    WORLD,
    Drawn,
    Made,
    Settings,
    Want,
    seed_of,
)
from counterpoint.generate.images.world_scenes import entails, scenes
from counterpoint.generate.methods import Refusal
from counterpoint.progress import Progress
from counterpoint.scoring.pictures import WORLD as REFERENCE
from counterpoint.world.draw import PIXELS, VERSION
from counterpoint.world.grammar import GrammarError, Statement, read
from counterpoint.world.scene import Scene, SceneCodeError, read_scene

NOT_A_TEXT: Final = Refusal("the text is not a caption of the world")
NOT_A_CAPTION: Final = Refusal("the caption is not one of the world, so it cannot be made false")
ENTAILED: Final = Refusal("the caption is true wherever the text is")


class WorldBackend:
    """Draws scenes: the caption's own, changed as little as may be, or new ones."""

    def __init__(self, settings: Settings, progress: Progress) -> None:
        self.settings, self.progress = settings, progress
        self.fingerprint = f"{WORLD}-{VERSION}-{PIXELS}"
        self.drawn = 0

    def draw(self, wants: Sequence[Want]) -> list[list[Drawn]]:
        advance = self.progress.start("scenes", len(wants))
        found: dict[Want, list[Drawn]] = {}
        for want in wants:
            if want not in found:
                found[want] = self._candidates(want)
            advance(1)
        return [found[want] for want in wants]

    def describe(self) -> Mapping[str, Any]:
        how = {"candidates": self.settings.candidates, "seed": self.settings.seed}
        return {
            "model": WORLD,
            "fingerprint": self.fingerprint,
            "settings": how,
            "drawn": self.drawn,
        }

    def _candidates(self, want: Want) -> list[Drawn]:
        number = self.settings.candidates
        text, caption = _read(want.text), _read(want.caption)
        if text is None:
            return [NOT_A_TEXT] * number
        if caption is None:
            return [NOT_A_CAPTION] * number
        if entails(text, caption):
            return [ENTAILED] * number
        start = _scene(want.image)
        made: dict[str, Drawn] = {}
        for candidate in range(number):
            seed = seed_of(self.settings.seed, want.text, candidate)
            stream = scenes(text, caption, start, np.random.default_rng(seed))
            code = next(code for scene in stream if (code := scene.code()) not in made)
            made[code] = Made(f"{REFERENCE}{code}", seed)
        self.drawn += number
        return list(made.values())


def _read(text: str) -> Statement | None:
    """The statement of a caption, which may begin in upper case and end in a full stop."""
    said = text.strip().removesuffix(".")
    try:
        return read(said[:1].lower() + said[1:])
    except GrammarError:
        return None


def _scene(image: str | None) -> Scene | None:
    """The scene of a reference; nothing to start from if it is of another kind."""
    if image is None or not image.startswith(REFERENCE):
        return None
    try:
        return read_scene(image.removeprefix(REFERENCE))
    except SceneCodeError:
        return None
