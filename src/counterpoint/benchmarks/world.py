"""The benchmarks of the synthetic world: no data needed, the truth known by construction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice, product
from typing import Final

import numpy as np

from counterpoint._util.errors import CaseError
from counterpoint.benchmarks.benchmark import Options
from counterpoint.cases import PROMPTS, Case, Cases, ImageRef, caption_case
from counterpoint.images import world_reference
from counterpoint.world import (
    ATTRIBUTES,
    CHANGES,
    KINDS,
    SHAPES,
    Edit,
    Scene,
    holds,
    read,
    replacements,
    rerender,
    sample_caption,
    sample_scene,
    swaps,
)

# Other seeds than the one-image benchmarks', so that no two share a scene.
_BI_SEED: Final = 1_000_000
_IMAGES_SEED: Final = 2_000_000
_KINDS_OF_EDIT: Final = 8  # four of `replacements`, four of `swaps`
_FEW: Final = 100  # objects of 576 classes: with fewer, no two may share one, as in a retrieval


def _image(scene: Scene) -> ImageRef:
    return ImageRef(world_reference(scene))


def replace(options: Options) -> Cases:
    return _one_image(replacements, options)


def swap(options: Options) -> Cases:
    return _one_image(swaps, options)


def _one_image(edits: Callable[[int], Iterator[Edit]], options: Options) -> Cases:
    rows = (
        caption_case(str(n), _image(e.scene), (e.original, e.positive), (e.negative,), _groups(e))
        for n, e in enumerate(islice(edits(options.number("seed")), _size(options)))
    )
    return Cases.build(rows, source="world")


def _groups(edit: Edit) -> tuple[str, ...]:
    """Averages are over the first; the second tells whether the original is worded as usual."""
    return (edit.group,) if edit.usual is None else (edit.group, ("unusual", "usual")[edit.usual])


def _both_kinds(seed: int) -> Iterator[tuple[str, Edit]]:
    """Edits that replace a word and edits that swap two, in turn."""
    for two in zip(replacements(seed), swaps(seed), strict=False):
        yield from zip(("replace", "swap"), two, strict=True)


def two_images(options: Options) -> Cases:
    """Original and negative, each with its own picture: half replaced, half swapped."""
    size, seed = _size(options), options.number("seed")
    edits = _both_kinds(seed + _BI_SEED)
    rows = (
        Case(
            str(n),
            (_image(e.scene), _image(e.negative_scene)),
            (e.original, e.negative),
            ((True, False), (False, True)),
            (f"{kind}/{e.group}",),
        )
        for n, (kind, e) in enumerate(islice(edits, size))
    )
    return Cases.build(rows, source="world")


def three_images(options: Options) -> Cases:
    """As in `world-bi`, with a rewording of the caption and a re-rendering of its picture."""
    size, seed = _size(options), options.number("seed")
    rng = np.random.default_rng((seed, 4))
    edits = enumerate(islice(_both_kinds(seed + _IMAGES_SEED), size))
    rows = (_rendered(str(n), *edit, n // _KINDS_OF_EDIT, rng) for n, edit in edits)
    return Cases.build(rows, source="world")


def _rendered(id: str, kind: str, e: Edit, turn: int, rng: np.random.Generator) -> Case:
    """All kinds of edit have one change, and then the next."""
    name = list(CHANGES)[turn % len(CHANGES)]
    changed = rerender(e, CHANGES[name], rng)
    return Case(
        id,
        (_image(e.scene), _image(changed), _image(e.negative_scene)),
        (e.original, e.positive, e.negative),
        ((True, True, False), (True, True, False), (False, False, True)),
        (name, f"{kind}/{e.group}"),
    )


def scenes_and_sentences(options: Options) -> Cases:
    """Scenes with a sentence each; a pair is true wherever the sentence holds of the scene."""
    rng = np.random.default_rng((options.number("seed"), 2))
    scenes = [sample_scene(rng) for _ in range(_size(options))]
    captions = list(dict.fromkeys(sample_caption(scene, rng) for scene in scenes))
    statements = [read(caption) for caption in captions]
    truth = tuple(tuple(holds(one, scene) for one in statements) for scene in scenes)
    images = tuple(_image(scene) for scene in scenes)
    return Cases.build([Case("0", images, tuple(captions), truth)], source="world")


def single_objects(options: Options) -> Cases:
    """Scenes of one object; a class is a size, colour, texture and shape, said in three ways."""
    rng, size = np.random.default_rng((options.number("seed"), 3)), _size(options)
    if size < _FEW:
        raise CaseError(
            "E-OPTION-INVALID", f"world-classification needs a size of at least {_FEW}."
        )
    scenes = [sample_scene(rng, objects=1) for _ in range(size)]
    classes = list(map(" ".join, product(*ATTRIBUTES.values(), SHAPES)))
    captions = [PROMPTS.join((f"the {name}", f"a {name}", name)) for name in classes]
    shown = [" ".join((*map(one.value, KINDS), one.shape)) for [one] in (s.things for s in scenes)]
    truth = tuple(tuple(name == one for name in classes) for one in shown)
    images = tuple(_image(scene) for scene in scenes)
    return Cases.build([Case("0", images, tuple(captions), truth)], source="world")


def _size(options: Options) -> int:
    size = options.number("size")
    if size < 1:
        raise CaseError("E-OPTION-INVALID", "a world benchmark needs a size of at least 1.")
    return size
