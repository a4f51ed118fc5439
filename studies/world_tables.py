"""Tables and plots of a study in the world (`world_study.py`), as docs/results.md shows them.

    python studies/world_tables.py FOLDER [--plots docs/figures]

Reads FOLDER/values. Writes FOLDER/table.csv (every number) and FOLDER/table.md (the tables).
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any, Final

from study import BASE
from study_tables import COLOURS, By, Sections, draw_drop, save_plot, write_tables
from world_study import BENCHMARKS, ROWS, WORLD

from counterpoint.metrics.statistics import ALL

# --- the tables of docs/results.md -------------------------------------------------------------

_REPLACE, _SWAP, _BI, _RETRIEVAL, _CLASSES = BENCHMARKS
_THREE: Final = ("original_accuracy", "augmented_accuracy", "brittleness")
_SCORES: Final = ("mean_score_original", "mean_score_negative", "mean_score_positive")
_BOTH: Final = (_REPLACE, _SWAP)
_MAIN: Final = ("clip-ft", "hn", "hn-swap", "hn-replace", "hp", "hp-hn", "hp-hn-swap",
                "hp-hn-replace", "counterpoint")  # fmt: skip
_WEIGHTS: Final = ("hp", "hp-hn-0.25", "hp-hn-0.5", "hp-hn-0.75", "hp-hn", "hn")
# Recipes by the paper, besides those of `_MAIN`: what is trained, not what is left out of it.
_PUBLISHED: Final = ("clip-ft", "c2lip", "hn", "hp", "hp-hn", "svlc", "svlc-pos", "dac",
                     "trohn-text", "trohn-img", "ce-clip", "tripletclip", "fsc-clip", "degla",
                     "read-clip", "clic", "counterpoint", "counterpoint-twins")  # fmt: skip
_PARTS: Final = tuple(row for row in ROWS if row.startswith("counterpoint"))
_PAIRS: Final = tuple((b, ALL, m) for b in _BOTH for m in _THREE)
_TWO: Final = (
    *((_BI, ALL, m) for m in ("image_to_text", "text_to_image", "group")),
    *((_RETRIEVAL, ALL, f"{m}_recall@1") for m in ("image_to_text", "text_to_image")),
    (_CLASSES, ALL, "accuracy@1"),
)
_ALL: Final = (
    *_PAIRS,
    *((_BI, ALL, m) for m in ("group", "group_matching")),
    *((_RETRIEVAL, ALL, f"{m}_recall@1") for m in ("image_to_text", "text_to_image")),
    (_CLASSES, ALL, "accuracy@1"),
)
SECTIONS: Final[Sections] = {
    "All recipes": ((BASE, *_PUBLISHED), _ALL),
    "Table 1, originals worded as usual": (
        (BASE, *_MAIN),
        tuple((b, "usual", m) for b in _BOTH for m in _THREE),
    ),
    "Table 1, all originals": ((BASE, *_MAIN), _PAIRS),
    "By group, world-replace": (
        (BASE, *_MAIN),
        tuple((_REPLACE, g, m) for g in ("attributes", "relations") for m in _THREE),
    ),
    "By group, world-swap": (
        (BASE, *_MAIN),
        tuple((_SWAP, g, m) for g in ("attributes", "relations") for m in _THREE),
    ),
    "Table 2": ((BASE, *_MAIN), tuple((b, ALL, m) for b in _BOTH for m in _SCORES)),
    "Table 3": (_WEIGHTS, _PAIRS),
    "Two images, and retrieval": ((BASE, *_MAIN), _TWO),
    "Ablation": (("hp-hn", *_PARTS, "hp-hn-disguised"), _PAIRS),
    "Ablation, two images and retrieval": (("hp-hn", *_PARTS, "hp-hn-disguised"), _TWO),
}


# --- plots -------------------------------------------------------------------------------------


def plot(by: By, folder: Path) -> None:
    """Three pictures: the drop of each row, the weight of the negatives, the parts of ours."""
    rows = (BASE, *_MAIN)
    drops = [partial(draw_drop, by, rows, (b, "usual"), b, (50, 92)) for b in _BOTH]
    save_plot(folder / "world-drop.svg", (8.0, 3.6), drops)
    save_plot(folder / "world-weight.svg", (8.0, 3.0), [partial(_weight, by, b) for b in _BOTH])
    save_plot(folder / "world-parts.svg", (8.0, 3.6), [partial(_parts, by, b) for b in _BOTH])


def _weight(by: By, benchmark: str, axes: Any) -> None:
    weights = zip((0, 0.25, 0.5, 0.75, 1), _WEIGHTS, strict=False)
    rows = {weight: row for weight, row in weights if (row, benchmark, ALL, _THREE[0]) in by}
    for metric, colour, mark in zip(_THREE, COLOURS, "osD", strict=True):
        found = [by[row, benchmark, ALL, metric] for row in rows.values()]
        values = [100 * n.value for n in found]
        spread = [50 * ((n.seed_high or n.value) - (n.seed_low or n.value)) for n in found]
        said = metric.replace("_", " ")
        axes.errorbar(list(rows), values, spread, color=colour, marker=mark, capsize=3, label=said)
    axes.set(xticks=list(rows), xlabel="weight of the negatives", title=benchmark, ylim=(0, 100))


def _parts(by: By, benchmark: str, axes: Any) -> None:
    rows = [row for row in ("hp-hn", *_PARTS) if (row, benchmark, ALL, _THREE[0]) in by]
    for metric, colour, mark in zip(_THREE[1:], COLOURS[1:], "sD", strict=True):
        found = [by[row, benchmark, ALL, metric] for row in rows[::-1]]
        spread = [50 * ((n.seed_high or n.value) - (n.seed_low or n.value)) for n in found]
        values = [100 * n.value for n in found]
        said = metric.replace("_", " ")
        axes.errorbar(values, range(len(rows)), xerr=spread, fmt=mark, color=colour, label=said)
    axes.set(yticks=range(len(rows)), xlabel="per cent", title=benchmark, xlim=(0, 100))
    axes.set_yticklabels(rows[::-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="the study")
    parser.add_argument("--plots", type=Path, help="where pictures go; else into the study")
    arguments = parser.parse_args()
    short = {name: name.removeprefix("world-") for name in BENCHMARKS}
    by = write_tables(arguments.folder, WORLD, SECTIONS, short)
    plot(by, arguments.plots or arguments.folder)


if __name__ == "__main__":
    main()
