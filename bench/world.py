"""How fast the world is, on one core: scenes drawn per second, and edits made per second.

    PYTHONPATH=src python bench/world.py

Speeds are per second of processor time, which other work on the machine does not change much; the
wall clock's are printed beside them. The drawing is compared with a naive renderer, which paints
every object of every scene over the whole canvas; the two must agree where objects do not touch.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import numpy as np

from counterpoint.world import Scenes, drawing
from counterpoint.world.edits import Edit, replacements, swaps
from counterpoint.world.scenes import SHAPES, SIZES, Scene, sample_scene

TARGET = 2000  # scenes of 64 x 64 per second


def naive(scene: Scene, pixels: int) -> np.ndarray:
    """The picture of one scene, each object blended over the full canvas."""
    canvas = np.full((pixels, pixels, 3), scene.ground, dtype=np.float32)
    middles = np.arange(pixels) + 0.5
    for row in Scenes.of([scene]).table()[0]:
        _, shape, size, colour, texture, x, y = row
        dx, dy = middles[None, :] - x * pixels, middles[:, None] - y * pixels
        radius = size * pixels
        u, v = np.broadcast_arrays(dx / radius, dy / radius)
        distance = drawing._OUTLINES[SHAPES[int(shape)]](u, v, np)
        alpha = np.clip(0.5 - distance * radius, 0, 1)[..., None]
        kind, hue = np.array([int(texture)]), np.array([int(colour)])
        tone = drawing._patterns(kind, dx[None], dy[None], np)
        canvas = canvas * (1 - alpha) + drawing._colours(hue, tone, row, np)[0] * alpha
    return (canvas * 255 + 0.5).astype(np.uint8)


def rates(work: Callable[[], int], seconds: float) -> tuple[float, float]:
    """Items per second of processor time and of the wall clock, over at least `seconds`."""
    work()  # once for the caches
    count, wall, processor = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - wall < seconds:
        count += work()
    return count / (time.process_time() - processor), count / (time.perf_counter() - wall)


def drawer(scenes: Sequence[Scene], pixels: int) -> Callable[[], int]:
    return lambda: len(drawing.draw(scenes, pixels))


def naive_drawer(scenes: Sequence[Scene], pixels: int) -> Callable[[], int]:
    return lambda: len([naive(scene, pixels) for scene in scenes])


def editor(edits: Iterator[Edit], count: int = 100) -> Callable[[], int]:
    return lambda: len(list(islice(edits, count)))


def check(scenes: Sequence[Scene], pixels: int) -> None:
    """Refuse to compare speeds of renderers that draw different pictures."""
    small = [
        Scene(tuple(t.with_value("size", min(SIZES, key=SIZES.__getitem__)) for t in s.things), 0.5)
        for s in scenes
    ]
    slow = np.stack([naive(scene, pixels) for scene in small]).astype(int)
    if abs(slow - drawing.draw(small, pixels)).max() > 1:
        raise SystemExit("the naive renderer draws other pictures: the ratio would mean nothing")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Scenes drawn and edits made per second, one core")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each measurement")
    parser.add_argument("--scenes", type=int, default=1024, help="drawn in each round")
    parser.add_argument("--pixels", type=int, default=drawing.PIXELS, help="width of a picture")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    if hasattr(os, "sched_setaffinity"):  # one core, whatever NumPy was built with
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rng = np.random.default_rng(args.seed)
    scenes = [sample_scene(rng) for _ in range(args.scenes)]
    check(scenes[:32], args.pixels)
    work = {
        "scenes drawn": drawer(scenes, args.pixels),
        "scenes drawn, naively": naive_drawer(scenes[:64], args.pixels),
        "replacements": editor(replacements(args.seed)),
        "swaps": editor(swaps(args.seed)),
    }
    found = {}
    for name, step in work.items():
        found[name], wall = rates(step, args.seconds)
        print(f"{name:24}{found[name]:10,.0f} /s of one core{wall:10,.0f} /s of the clock")
    ratio = found["scenes drawn"] / found["scenes drawn, naively"]
    print(f"{'ratio to naive':24}{ratio:10.1f}")
    if args.pixels == drawing.PIXELS:
        verdict = "met" if found["scenes drawn"] >= TARGET else "MISSED"
        print(f"target of {TARGET:,} scenes per second: {verdict}")


if __name__ == "__main__":
    main()
