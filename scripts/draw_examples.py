"""Draw the README's picture: a right, a brittle and a wrong case of world-swap, with their scores.

counterpoint demo
python scripts/draw_examples.py runs/demo/world-base docs/examples.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from counterpoint.cli.examples import choose
from counterpoint.runs import Part, load_run
from counterpoint.scoring.pictures import Picture

SIDE, GAP, WIDTH = 224, 24, 1180
INK, PALE, GREEN, RED = "#1d2433", "#6b7280", "#1a7f4b", "#c0392b"


def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def draw_case(pen: ImageDraw.ImageDraw, top: int, outcome: str, part: Part, row: int) -> None:
    """The words of a case: what happened, then each caption with its score as a bar."""
    start, end = part.cases.pair_offsets[row : row + 2]
    scores, captions = part.scores[start:end], part.cases.case(row).captions
    left = SIDE + 2 * GAP
    pen.text((left, top), outcome, INK, font(26))
    low, high = float(scores.min()), float(scores.max())
    for i, (kind, caption) in enumerate(
        zip(("original", "positive", "negative"), captions, strict=True)
    ):
        y = top + 54 + 56 * i
        colour = RED if kind == "negative" else GREEN
        # Scores of one case differ in the third digit: the bars show the differences, not zero.
        share = 0.15 + 0.85 * (float(scores[i]) - low) / max(high - low, 1e-6)
        pen.rectangle((left, y + 28, left + int(560 * share), y + 38), colour)
        pen.text((left, y), kind, colour, font(22))
        pen.text((left + 110, y), caption, INK, font(22))
        pen.text((WIDTH - 110, y), f"{scores[i]:.4f}", PALE, font(22))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    run = load_run(arguments.run)
    part = run.parts["world-swap"]
    chosen = choose(part)
    height = GAP + (SIDE + GAP) * len(chosen)
    sheet = Image.new("RGB", (WIDTH, height), "white")
    pen = ImageDraw.Draw(sheet)
    for i, (outcome, row) in enumerate(chosen.items()):
        top = GAP + (SIDE + GAP) * i
        picture = Picture(part.cases.case(row).images[0]).open()
        sheet.paste(picture.resize((SIDE, SIDE), Image.Resampling.LANCZOS), (GAP, top))
        draw_case(pen, top, outcome, part, row)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(arguments.out, optimize=True)
    print(f"wrote {arguments.out}, {np.round(arguments.out.stat().st_size / 1024)} KiB")


if __name__ == "__main__":
    main()
