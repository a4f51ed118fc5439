"""`counterpoint demo`: an evaluation that needs only the package, with example cases."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.columns import Columns
from rich.panel import Panel
from rich.style import Style
from rich.text import Text

from counterpoint.cli.console import (
    command,
    errors,
    output,
    progress_bars,
    say,
)

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

    from counterpoint.cases import Case
    from counterpoint.runs import Part, Row, Run


# --- example cases ------------------------------------------------------------------------------


_WIDTH: Final = 28  # characters; a character shows two pixels, one above the other


def print_examples(run: Run, benchmark: str) -> None:
    """A case that the model gets right, a brittle one and a wrong one, as far as there are."""
    part = run.parts[benchmark]
    output.print(f"Three cases of {benchmark}, scored by {run.model}", style="bold")
    for outcome, row in choose(part).items():
        start, end = part.cases.pair_offsets[row : row + 2]
        _print_case(outcome, part.cases.case(row), part.scores[start:end], part)


def choose(part: Part) -> dict[str, int]:
    import numpy as np

    from counterpoint.runs import case_outcomes

    outcomes, scores = case_outcomes(part), part.scores.reshape(len(part.cases), 3)
    kinds = {
        "right: both true captions above the false one": outcomes == "right",
        "brittle: the reworded caption falls below the false one": (
            (outcomes == "brittle") & (scores[:, 0] > scores[:, 2])
        ),
        "wrong: the false caption above both": outcomes == "wrong",
    }
    gaps = abs(scores[:, :2] - scores[:, 2:]).min(axis=1)
    # The one whose scores lie as far apart as is usual for its kind.
    found = {name: np.flatnonzero(rows) for name, rows in kinds.items() if rows.any()}
    return {name: int(rows[np.argsort(gaps[rows])[len(rows) // 2]]) for name, rows in found.items()}


def _print_case(outcome: str, case: Case, scores: np.ndarray, part: Part) -> None:
    lines = Text(f"{outcome}\n\n", style="bold")
    kinds = ["original", "positive", "negative"]
    for kind, caption, score in zip(kinds, case.captions, scores, strict=True):
        colour = "red" if kind == "negative" else "green"
        lines.append(f"{score:.5f}  ", style="bold cyan")
        lines.append(f"{kind}  ", style=colour)
        lines.append(f"{caption}\n", style="default")
    if output.color_system in ("256", "truecolor"):
        from counterpoint.images import Picture

        picture = _blocks(Picture(case.images[0], part.cases.root).open())
        output.print(Columns([picture, Panel(lines, width=64)]))
    else:
        output.print(Panel(lines, width=96))


def _blocks(image: Image.Image) -> Text:
    """A picture out of half-block characters: the upper pixel in front, the lower one behind."""
    import numpy as np
    from PIL import Image

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


OVERSENSITIVE = "world:hn"
TUNED = ("world:base", OVERSENSITIVE, "world:hp-hn", "world:counterpoint")
MODELS = (*TUNED, "blind:length", "blind:format", "blind:bow", "random")
BENCHMARKS = ("world-replace", "world-swap", "world-bi")
_FIRST: Final = 300  # cases, of which the numbers are there while the rest is computed


def demo(
    out: Annotated[Path, typer.Option(help="Folder of the runs.")] = Path("runs/demo"),
    size: Annotated[int, typer.Option(min=1, help="Number of cases per benchmark.")] = 1000,
) -> None:
    """Evaluate the bundled models and the blind baselines on the synthetic world.

    The models are a base and what three recipes made of it: hard negatives only (hn), hard
    negatives and positives (hp-hn), and counterpoint. Needs no network, no weights and no data set.

    Example:

    counterpoint demo --size 500
    """
    from counterpoint.cli.tables import left_out_lines, print_results
    from counterpoint.evaluation import evaluate
    from counterpoint.runs import part_sizes, results_table

    benchmarks = [f"{name}:size={size}" for name in BENCHMARKS]
    if size > _FIRST:
        with TemporaryDirectory() as first, progress_bars() as bars:
            # Its vectors are kept in the store: what follows does not compute them again.
            runs = evaluate([*MODELS], benchmarks[:1], out=first, limit=_FIRST, progress=bars)
        output.print(f"A first look, at {_FIRST} cases; all tables follow.", style="bold")
        output.print(results_table(_numbers(runs), sizes=part_sizes(runs)))
    with progress_bars() as bars:
        runs = evaluate([*MODELS], benchmarks, out=out, overwrite=True, progress=bars)
    rows = _numbers(runs)
    print_results(runs, rows)
    for line in left_out_lines(runs):
        errors.print(line, style="yellow")
    print_examples(runs[MODELS.index(OVERSENSITIVE)], benchmarks[0])
    output.print("What to learn:", style="bold")
    for line in _lessons(rows, benchmarks[0]):
        say(f"  {line}")
    output.print(f"Saved in {out}: one folder per model, with every raw score.")
    output.print("Try next:", style="bold")
    runs_folder = shlex.quote(str(out))
    for words in (
        f"compare {runs_folder}/world-counterpoint {runs_folder}/world-hp-hn",
        f"report {runs_folder} -o report.html",
        f"rescore {runs_folder}/world-base --groups --averages",
        "eval -m world:base -b world-swap:size=500,seed=7",
        "ls",
    ):
        say(f"  {command(words)}")


def _numbers(runs: Sequence[Run]) -> list[Row]:
    from counterpoint.runs import rows

    with errors.status("resampling"):
        return [row for run in runs for row in rows(run, groups=False, main=True)]


def _lessons(rows: Sequence[Row], benchmark: str) -> tuple[str, str, str]:
    """What the numbers of one benchmark show, whichever they are."""
    from counterpoint.metrics import TIES_MARK, join_words

    known = {(r.model, r.metric): 100 * r.value for r in rows if r.benchmark == benchmark}

    def accuracies(model: str) -> tuple[float, float]:
        return known[model, "original_accuracy"], known[model, "augmented_accuracy"]

    def loss(model: str) -> str:
        original, augmented = accuracies(model)
        return f"{original - augmented:.1f}"

    base, _, *with_positives = TUNED
    original, augmented = accuracies(OVERSENSITIVE)
    return (
        f"{OVERSENSITIVE} was tuned on hard negatives only. On {benchmark} it is right for "
        f"{original:.1f}% of the original captions and for {augmented:.1f}% when the reworded ones "
        f"must be right too: {loss(OVERSENSITIVE)} points less, against {loss(base)} of {base}.",
        f"{join_words(with_positives)} were tuned on hard positives too: "
        f"{join_words([loss(model) for model in with_positives])} points less.",
        f"The blind baselines see no image. Their 0.0 with {TIES_MARK} means equal scores, which "
        "the protocol counts as wrong, and not guesses worse than chance.",
    )
