"""Images of the world for texts that are its captions: offline, and correct by construction.

A scene is searched in which the text holds and the caption does not, with the fewest changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any, Final

import numpy as np

from counterpoint._util.progress import Progress
from counterpoint.generation.images.backends import (
    WORLD,
    Drawn,
    DrawnImage,
    DrawSettings,
    Want,
    seed_of,
)
from counterpoint.generation.pairs import Rejection
from counterpoint.images import scene_of, world_reference
from counterpoint.world import (
    ATTRIBUTES,
    CONVERSE,
    KINDS,
    PIXELS,
    SHAPES,
    VERSION,
    GrammarError,
    Phrase,
    Scene,
    Statement,
    Thing,
    free_places,
    holds,
    read,
    related,
    sample_scene,
)

NOT_A_TEXT: Final = Rejection("the text is not a caption of the world")
NOT_A_CAPTION: Final = Rejection("the caption is not one of the world, so it cannot be made false")
ENTAILED: Final = Rejection("the caption is true wherever the text is")


def entails(text: Statement, caption: Statement) -> bool:
    """Whether the caption is true of every scene of which the text is true."""
    converse = None if text.relation is None else CONVERSE[text.relation]
    straight = _narrower(text.first, caption.first) and _narrower(text.second, caption.second)
    crossed = _narrower(text.first, caption.second) and _narrower(text.second, caption.first)
    return (straight and caption.relation in (None, text.relation)) or (
        crossed and caption.relation in (None, converse)
    )


def _narrower(phrase: Phrase, wider: Phrase) -> bool:
    """Whether everything that fits `phrase` also fits `wider`."""
    return phrase.shape == wider.shape and all(
        wider.value(kind) in (None, phrase.value(kind)) for kind in KINDS
    )


def scenes(
    text: Statement, caption: Statement, start: Scene | None, rng: np.random.Generator
) -> Iterator[Scene]:
    """Scenes of which the text is true and the caption false; endless, unless it entails it.

    First those with the fewest changes from `start`, then those with one more, then new ones.
    """
    if entails(text, caption):
        return

    def fits(scene: Scene) -> bool:
        return holds(text, scene) and not holds(caption, scene)

    if start is not None:
        near = _changed(start, text, rng)
        yield from filter(fits, near)
        # Another object may still make the caption true: one change more, anywhere.
        yield from filter(fits, (other for scene in near for other in _nudged(scene, rng)))
    while True:
        yield from filter(fits, _changed(sample_scene(rng), text, rng))


def _changed(start: Scene, text: Statement, rng: np.random.Generator) -> list[Scene]:
    """Scenes in which two objects fit the text, those with few changes first."""
    scenes = [
        scene
        for pair in permutations(range(len(start.things)), 2)
        for swap in (False, True)
        for scene in _settled(start, text, pair, rng, swap=swap)
    ]
    rng.shuffle(scenes)
    return sorted(scenes, key=lambda scene: _differences(start, scene))


def _differences(one: Scene, other: Scene) -> int:
    """How many shapes, attributes and places differ."""
    pairs = zip(one.things, other.things, strict=True)
    return sum(
        (a.shape != b.shape)
        + ((a.x, a.y) != (b.x, b.y))
        + sum(a.value(kind) != b.value(kind) for kind in KINDS)
        for a, b in pairs
    )


def _settled(
    scene: Scene,
    text: Statement,
    pair: tuple[int, int],
    rng: np.random.Generator,
    *,
    swap: bool,
) -> Iterator[Scene]:
    """Two objects changed to fit the text; `swap`: after exchanging the attributes it names."""
    a, b = (scene.things[i] for i in pair)
    named = [k for k in KINDS if text.first.value(k) or text.second.value(k)] if swap else []
    for kind in named:
        a, b = a.with_value(kind, b.value(kind)), b.with_value(kind, a.value(kind))
    first, second = _made(a, text.first), _made(b, text.second)
    settled = scene.replaced(pair[0], first).replaced(pair[1], second)
    if text.relation is None or related(first, text.relation, second):
        yield settled
        return
    for moved in _moved(settled, pair, rng):
        if related(moved.things[pair[0]], text.relation, moved.things[pair[1]]):
            yield moved


def _moved(scene: Scene, pair: tuple[int, int], rng: np.random.Generator) -> Iterator[Scene]:
    """The two exchange places, or one of them moves to a free place."""
    i, j = pair
    a, b = scene.things[i], scene.things[j]
    yield scene.replaced(i, a.at((b.x, b.y))).replaced(j, b.at((a.x, a.y)))
    for place in free_places(scene, rng):
        yield scene.replaced(i, a.at(place))
        yield scene.replaced(j, b.at(place))


def _nudged(scene: Scene, rng: np.random.Generator) -> Iterator[Scene]:
    """One more change: of a shape, of an attribute, of a place."""
    for i in rng.permutation(len(scene.things)).tolist():
        thing = scene.things[i]
        yield scene.replaced(i, replace(thing, shape=_other(SHAPES, thing.shape, rng)))
        for kind in KINDS:
            value = _other(ATTRIBUTES[kind], thing.value(kind), rng)
            yield scene.replaced(i, thing.with_value(kind, value))
        for place in free_places(scene, rng):
            yield scene.replaced(i, thing.at(place))


def _other(values: tuple[str, ...], value: str, rng: np.random.Generator) -> str:
    others = [each for each in values if each != value]
    return others[int(rng.integers(len(others)))]


def _made(thing: Thing, phrase: Phrase) -> Thing:
    changed = replace(thing, shape=phrase.shape)
    for kind in KINDS:
        value = phrase.value(kind)
        changed = changed if value is None else changed.with_value(kind, value)
    return changed


class WorldBackend:
    """Draws scenes: the caption's own with the fewest changes, or new ones."""

    def __init__(self, settings: DrawSettings, progress: Progress) -> None:
        self.settings, self.progress = settings, progress
        self.fingerprint = f"{WORLD}-{VERSION}-{PIXELS}"
        self.drawn = 0

    def draw(self, wants: Sequence[Want]) -> list[list[Drawn]]:
        advance = self.progress.start("scenes", len(wants))
        drawn: dict[Want, list[Drawn]] = {}
        for want in wants:
            if want not in drawn:
                drawn[want] = self._candidates(want)
            advance(1)
        return [drawn[want] for want in wants]

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
        start = None if want.image is None else scene_of(want.image)
        images: dict[str, Drawn] = {}
        for candidate in range(number):
            seed = seed_of(self.settings.seed, want.text, candidate)
            stream = scenes(text, caption, start, np.random.default_rng(seed))
            drawn = (world_reference(scene) for scene in stream)
            reference = next(one for one in drawn if one not in images)
            images[reference] = DrawnImage(reference, seed)
        self.drawn += number
        return list(images.values())


def _read(text: str) -> Statement | None:
    """The statement of a caption, which may begin in upper case and end in a full stop."""
    caption = text.strip().removesuffix(".")
    try:
        return read(caption[:1].lower() + caption[1:])
    except GrammarError:
        return None
