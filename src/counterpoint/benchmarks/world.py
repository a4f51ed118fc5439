"""The benchmarks of the synthetic world: no data needed, the truth known by construction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice, product
from typing import Final

import numpy as np

from counterpoint._util.errors import CaseError
from counterpoint.benchmarks.benchmark import Benchmark, Options
from counterpoint.cases import PROMPTS, Case, Cases, ImageRef, caption_case
from counterpoint.images import world_reference
from counterpoint.world import (
    ATTRIBUTES,
    CHANGES,
    KINDS,
    SHAPES,
    CaptionStyle,
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

_DEFAULTS: Final = {"size": 2000, "seed": 1}
# Other seeds than the one-image benchmarks', so that no two share a scene.
_BI_SEED: Final = 1_000_000
_IMAGES_SEED: Final = 2_000_000
_KINDS_OF_EDIT: Final = 8  # four of `replacements`, four of `swaps`
_FEW: Final = 100  # objects of 576 classes: with fewer, no two may share one, as in a retrieval


def _image(scene: Scene) -> ImageRef:
    return ImageRef(world_reference(scene))


def _one_image(make: Callable[[int], Iterator[Edit]]) -> Callable[[Options], Cases]:
    def cases(options: Options) -> Cases:
        edits = islice(make(options.number("seed")), _size(options))
        rows = (
            caption_case(
                str(n), _image(e.scene), (e.original, e.positive), (e.negative,), _groups(e)
            )
            for n, e in enumerate(edits)
        )
        return Cases.build(rows, source="world")

    return cases


def _groups(edit: Edit) -> tuple[str, ...]:
    """Averages are over the first; the second tells whether the original is worded as usual."""
    return (edit.group,) if edit.usual is None else (edit.group, ("unusual", "usual")[edit.usual])


def _both_kinds(seed: int) -> Iterator[tuple[str, Edit]]:
    """Edits that replace a word and edits that swap two, in turn."""
    for two in zip(replacements(seed), swaps(seed), strict=False):
        yield from zip(("replace", "swap"), two, strict=True)


def _two_images(options: Options) -> Cases:
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


def _three_images(options: Options) -> Cases:
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


def _gallery(options: Options) -> Cases:
    """Scenes with a sentence each; a pair is true wherever the sentence holds of the scene."""
    rng = np.random.default_rng((options.number("seed"), 2))
    scenes = [sample_scene(rng) for _ in range(_size(options))]
    sentences = CaptionStyle(grammar=1.0, synonym=0.0)
    captions = list(dict.fromkeys(sample_caption(scene, sentences, rng) for scene in scenes))
    said = [read(caption) for caption in captions]
    truth = tuple(tuple(holds(one, scene) for one in said) for scene in scenes)
    images = tuple(_image(scene) for scene in scenes)
    return Cases.build([Case("0", images, tuple(captions), truth)], source="world")


def _classes(options: Options) -> Cases:
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


REPLACE: Final = Benchmark(
    "world-replace",
    "one word replaced (negative) or said by a synonym (positive), in drawn scenes",
    "1 x 3",
    "hard-positives",
    _one_image(replacements),
    defaults=_DEFAULTS,
)
SWAP: Final = Benchmark(
    "world-swap",
    "two words swapped (negative) or the conjuncts reversed (positive), in drawn scenes",
    "1 x 3",
    "hard-positives",
    _one_image(swaps),
    defaults=_DEFAULTS,
)
BI: Final = Benchmark(
    "world-bi",
    "a caption and its negative, each with its own drawn scene",
    "2 x 2",
    "bivlc",
    _two_images,
    defaults=_DEFAULTS,
)
IMAGES: Final = Benchmark(
    "world-images",
    "as world-bi, with the caption reworded and its scene re-rendered: six kinds of change",
    "3 x 3",
    "bivlc",
    _three_images,
    defaults={"size": 2400, "seed": 1},
)
RETRIEVAL: Final = Benchmark(
    "world-retrieval",
    "scenes and sentences, each to be found by the other",
    "N x M",
    "retrieval",
    _gallery,
    defaults={"size": 1000, "seed": 1},
)
CLASSIFICATION: Final = Benchmark(
    "world-classification",
    "zero-shot classification of single objects: size, colour, texture and shape",
    "images x classes",
    "classification",
    _classes,
    defaults={"size": 1000, "seed": 1},
)
