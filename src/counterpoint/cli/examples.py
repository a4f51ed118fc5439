"""Example cases in the terminal: the picture, the captions, the scores, the outcome."""

from __future__ import annotations

from typing import Final

import numpy as np
from PIL import Image
from rich.columns import Columns
from rich.panel import Panel
from rich.style import Style
from rich.text import Text

from counterpoint import metrics
from counterpoint.cases import Case
from counterpoint.cli.console import output
from counterpoint.runs import Part, Run
from counterpoint.scoring.pictures import Picture

_WIDTH: Final = 28  # characters; a character shows two pixels, one above the other


def print_examples(run: Run, benchmark: str) -> None:
    """A case that the model gets right, a brittle one and a wrong one, as far as there are."""
    part = run.parts[benchmark]
    output.print(f"Three cases of {benchmark}, scored by {run.model}", style="bold")
    for outcome, row in choose(part).items():
        start, end = part.cases.pair_offsets[row : row + 2]
        _print_case(outcome, part.cases.case(row), part.scores[start:end], part)


def choose(part: Part) -> dict[str, int]:
    [block] = part.cases.blocks()
    scores = part.scores.reshape(block.truth.shape)
    outcomes = {
        "right: both true captions above the false one": metrics.augmented_accuracy,
        "brittle: the reworded caption falls below the false one": metrics.brittle_original_above,
        "wrong: the false caption above both": metrics.negative_above_both,
    }
    found = {name: np.flatnonzero(f(scores, block.truth, "wrong")) for name, f in outcomes.items()}
    gaps = abs(scores[:, 0, :2] - scores[:, 0, 2:]).min(axis=1)
    # The one whose scores lie as far apart as is usual for its kind.
    middle = {name: rows[np.argsort(gaps[rows])[len(rows) // 2 :]] for name, rows in found.items()}
    return {name: int(rows[0]) for name, rows in middle.items() if len(rows)}


def _print_case(outcome: str, case: Case, scores: np.ndarray, part: Part) -> None:
    lines = Text(f"{outcome}\n\n", style="bold")
    kinds = ["original", "positive", "negative"]
    for kind, caption, score in zip(kinds, case.captions, scores, strict=True):
        colour = "red" if kind == "negative" else "green"
        lines.append(f"{score:.5f}  ", style="bold cyan")
        lines.append(f"{kind}  ", style=colour)
        lines.append(f"{caption}\n", style="default")
    if output.color_system in ("256", "truecolor"):
        picture = _blocks(Picture(case.images[0], part.cases.root).open())
        output.print(Columns([picture, Panel(lines, width=64)]))
    else:
        output.print(Panel(lines, width=96))


def _blocks(image: Image.Image) -> Text:
    """A picture out of half-block characters: the upper pixel in front, the lower one behind."""
    pixels = np.asarray(image.resize((_WIDTH, _WIDTH), Image.Resampling.LANCZOS))
    text = Text()
    for upper, lower in zip(pixels[::2], pixels[1::2], strict=True):
        for front, back in zip(upper.tolist(), lower.tolist(), strict=True):
            style = Style(
                color="rgb({},{},{})".format(*front), bgcolor="rgb({},{},{})".format(*back)
            )
            text.append("▀", style=style)
        text.append("\n")
    return text
