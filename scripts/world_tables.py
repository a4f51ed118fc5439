"""Tables and plots of a study in the world (`world_study.py`), as docs/results.md shows them.

    python scripts/world_tables.py FOLDER [--plots docs/figures]

Reads FOLDER/values. Writes FOLDER/table.csv (every number) and FOLDER/table.md (the tables).
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from world_study import BASE, BENCHMARKS, GROUPS, ROWS

from counterpoint.metrics.statistics import ALL, LEVEL, Averaging, estimate

AGAINST: Final = ("hp-hn", "clip-ft")
RESAMPLES: Final = 2000
# Student's t for a 95 % interval of a mean of so many seeds.
STUDENT: Final = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78}


@dataclass(frozen=True, slots=True)
class Number:
    """One metric of one row: the mean over its seeds, and how sure it is.

    `case_low`, `case_high`: bootstrap over cases of the mean over seeds. `seed_low`, `seed_high`:
    Student's interval over seeds. `verdicts`: against other rows, paired by case and seed; not
    "tied" if the bootstrap over cases says so and every seed has the same sign.
    """

    row: str
    benchmark: str
    group: str
    metric: str
    value: float
    case_low: float
    case_high: float
    seed_low: float | None
    seed_high: float | None
    seeds: str
    differences: str = ""
    verdicts: str = ""


# --- tables ------------------------------------------------------------------------------------


def numbers(folder: Path) -> list[Number]:
    """Every metric of every row that has values, over its seeds."""
    files: dict[str, dict[int, Path]] = {}
    for path in sorted(folder.glob("[!.]*.npz")):
        row, _, seed = path.stem.rpartition("-")
        files.setdefault(row, {})[int(seed)] = path
    loaded = {row: {s: dict(np.load(p)) for s, p in of.items()} for row, of in files.items()}
    rows = [row for row in (BASE, *ROWS) if row in loaded]
    return [
        number
        for row in rows
        for benchmark in BENCHMARKS
        for group in GROUPS
        for number in _numbers(loaded, row, benchmark, group)
    ]


def _numbers(
    loaded: dict[str, dict[int, dict[str, np.ndarray]]], row: str, benchmark: str, group: str
) -> list[Number]:
    mine = loaded[row]
    one = next(iter(mine.values()))
    if (members := one.get(f"{benchmark}/in/{group}")) is None:
        return []
    clusters, metrics = one[f"{benchmark}/clusters"], one[f"{benchmark}/metrics"].tolist()
    table = {s: of[f"{benchmark}/values"].astype(float)[members] for s, of in mine.items()}
    levels = _estimates(np.mean(list(table.values()), axis=0), clusters[members])
    means = np.array([np.nanmean(values, axis=0) for values in table.values()])
    told = {name: ([""] * len(metrics), [""] * len(metrics)) for name in AGAINST}
    for other in AGAINST:
        if other in loaded and other != row and row != BASE:
            theirs = {s: of[f"{benchmark}/values"][members] for s, of in loaded[other].items()}
            told[other] = _against(table, theirs, clusters[members])
    found = []
    for j, metric in enumerate(metrics):
        low, high = _over_seeds(means[:, j])
        found.append(
            Number(
                row,
                benchmark,
                group,
                metric,
                levels[j][0],
                levels[j][1],
                levels[j][2],
                low,
                high,
                " ".join(f"{value:.4f}" for value in means[:, j]),
                "; ".join(f"{o}: {told[o][0][j]}" for o in AGAINST if told[o][0][j]),
                "; ".join(f"{o}: {told[o][1][j]}" for o in AGAINST if told[o][1][j]),
            )
        )
    return found


def _against(
    mine: dict[int, np.ndarray], theirs: dict[int, np.ndarray], clusters: np.ndarray
) -> tuple[list[str], list[str]]:
    """The difference with its interval, and in words: paired by seed and case."""
    seeds = sorted(set(mine) & set(theirs))
    gaps = [mine[seed] - theirs[seed] for seed in seeds]
    found = _estimates(np.mean(gaps, axis=0), clusters)
    signs = np.sign([np.nanmean(gap, axis=0) for gap in gaps])
    agree = (np.abs(signs.sum(axis=0)) == len(seeds)).tolist()
    shown = [f"{value:+.4f} [{low:+.4f}, {high:+.4f}]" for value, low, high, _ in found]
    words = [
        ("higher" if value > 0 else "lower") if p < 1 - LEVEL and same else "tied"
        for (value, _, _, p), same in zip(found, agree, strict=True)
    ]
    return shown, words


def _estimates(values: np.ndarray, clusters: np.ndarray) -> list[tuple[float, float, float, float]]:
    members = {ALL: np.arange(len(values))}
    numbered = np.unique(clusters, return_inverse=True)[1].reshape(-1)
    found = estimate(values, numbered, members, Averaging(()), resamples=RESAMPLES)[ALL]
    return [(e.value, e.low, e.high, e.p) for e in found]


def _over_seeds(means: np.ndarray) -> tuple[float | None, float | None]:
    if len(means) not in STUDENT:
        return None, None
    half = STUDENT[len(means)] * means.std(ddof=1) / len(means) ** 0.5
    return float(means.mean() - half), float(means.mean() + half)


# --- the tables of docs/results.md -------------------------------------------------------------

Key = tuple[str, str, str]  # benchmark, group, metric
By = dict[tuple[str, str, str, str], Number]  # with the row in front
_REPLACE, _SWAP, _BI, _RETRIEVAL, _CLASSES = BENCHMARKS
_SAID: Final = {
    "original_accuracy": "orig.",
    "augmented_accuracy": "aug.",
    "brittleness": "brittle",
    "mean_score_original": "c",
    "mean_score_negative": "n",
    "mean_score_positive": "p",
    "image_to_text": "I2T",
    "text_to_image": "T2I",
    "image_to_text_recall@1": "I2T R@1",
    "text_to_image_recall@1": "T2I R@1",
    "accuracy@1": "top-1",
}
_THREE: Final = ("original_accuracy", "augmented_accuracy", "brittleness")
_SCORES: Final = ("mean_score_original", "mean_score_negative", "mean_score_positive")
_BOTH: Final = (_REPLACE, _SWAP)
_MAIN: Final = ("clip-ft", "hn", "hn-swap", "hn-replace", "hp", "hp-hn", "hp-hn-swap",
                "hp-hn-replace", "counterpoint")  # fmt: skip
_WEIGHTS: Final = ("hp", "hp-hn-0.25", "hp-hn-0.5", "hp-hn-0.75", "hp-hn", "hn")
_PARTS: Final = tuple(row for row in ROWS if row.startswith("counterpoint"))
_PAIRS: Final = tuple((b, ALL, m) for b in _BOTH for m in _THREE)
_TWO: Final = (
    *((_BI, ALL, m) for m in ("image_to_text", "text_to_image", "group")),
    *((_RETRIEVAL, ALL, f"{m}_recall@1") for m in ("image_to_text", "text_to_image")),
    (_CLASSES, ALL, "accuracy@1"),
)
SECTIONS: Final[dict[str, tuple[tuple[str, ...], tuple[Key, ...]]]] = {
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


def markdown(by: By) -> str:
    lines = []
    for title, (rows, columns) in SECTIONS.items():
        heads = [_head(*key, alone=len({b for b, *_ in columns}) == 1) for key in columns]
        lines += ["", f"## {title}", "", f"| row | {' | '.join(heads)} |"]
        lines.append("|---" * (len(heads) + 1) + "|")
        lines += [
            f"| {row} | {' | '.join(_cell(by.get((row, *key))) for key in columns)} |"
            for row in rows
            if (row, *columns[0]) in by
        ]
    return "\n".join(lines).strip() + "\n"


def _head(benchmark: str, group: str, metric: str, *, alone: bool) -> str:
    part = {"attributes": "att.", "relations": "rel."}.get(group, "")
    about = "" if alone else benchmark.removeprefix("world-")
    return " ".join(filter(None, (about, part, _SAID.get(metric, metric))))


def _cell(number: Number | None) -> str:
    """The mean, half of the interval over seeds, and the verdicts: against hp-hn / clip-ft."""
    if number is None:
        return "-"
    share = "score" not in number.metric
    one, digits = (100, 1) if share else (1, 3)
    low, high = number.seed_low, number.seed_high
    spread = "" if low is None or high is None else f" ±{one * (high - low) / 2:.{digits}f}"
    signs = {"higher": "↑", "lower": "↓", "tied": "="}
    told = dict(part.split(": ") for part in number.verdicts.split("; ") if part)
    marks = "/".join(signs[told[name]] if name in told else "·" for name in AGAINST)
    return f"{one * number.value:.{digits}f}{spread}" + (f" {marks}" if told else "")


# --- plots -------------------------------------------------------------------------------------

_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73")  # Okabe and Ito's
_STYLE: Final[Any] = {"svg.hashsalt": "counterpoint", "svg.fonttype": "none", "font.size": 9}


def plot(by: By, folder: Path) -> None:
    """Three pictures: the drop of each row, the weight of the negatives, the parts of ours."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(_STYLE):
        for name, draw, size in (
            ("drop", _drop, (8.0, 3.6)),
            ("weight", _weight, (8.0, 3.0)),
            ("parts", _parts, (8.0, 3.6)),
        ):
            figure = Figure(figsize=size, layout="constrained")
            for axes, benchmark in zip(figure.subplots(1, 2, sharey=True), _BOTH, strict=True):
                draw(axes, by, benchmark)
                axes.spines[["top", "right"]].set_visible(False)
            handles, said = figure.axes[0].get_legend_handles_labels()
            figure.legend(handles, said, loc="outside lower center", ncols=3, frameon=False)
            figure.savefig(folder / f"world-{name}.svg", metadata={"Date": None})


def _drop(axes: Any, by: By, benchmark: str) -> None:
    rows = [row for row in (BASE, *_MAIN) if (row, benchmark, "usual", _THREE[0]) in by]
    for place, row in enumerate(rows[::-1]):
        original, augmented = (100 * by[row, benchmark, "usual", m].value for m in _THREE[:2])
        axes.plot([augmented, original], [place, place], color="#999999", lw=4, zorder=1)
        for value, colour, mark, said in (
            (original, _COLOURS[0], "o", "original accuracy"),
            (augmented, _COLOURS[1], "s", "augmented accuracy"),
        ):
            axes.plot(value, place, mark, color=colour, label=said if place == 0 else None)
    axes.set(yticks=range(len(rows)), xlabel="per cent", title=benchmark, xlim=(50, 92))
    axes.set_yticklabels(rows[::-1])


def _weight(axes: Any, by: By, benchmark: str) -> None:
    rows = dict(zip((0, 0.25, 0.5, 0.75, 1), _WEIGHTS, strict=False))
    for metric, colour, mark in zip(_THREE, _COLOURS, "osD", strict=True):
        found = [by[row, benchmark, ALL, metric] for row in rows.values()]
        values = [100 * n.value for n in found]
        spread = [50 * ((n.seed_high or n.value) - (n.seed_low or n.value)) for n in found]
        said = metric.replace("_", " ")
        axes.errorbar(list(rows), values, spread, color=colour, marker=mark, capsize=3, label=said)
    axes.set(xticks=list(rows), xlabel="weight of the negatives", title=benchmark, ylim=(0, 100))


def _parts(axes: Any, by: By, benchmark: str) -> None:
    rows = [row for row in ("hp-hn", *_PARTS) if (row, benchmark, ALL, _THREE[0]) in by]
    for metric, colour, mark in zip(_THREE[1:], _COLOURS[1:], "sD", strict=True):
        found = [by[row, benchmark, ALL, metric] for row in rows[::-1]]
        spread = [50 * ((n.seed_high or n.value) - (n.seed_low or n.value)) for n in found]
        values = [100 * n.value for n in found]
        said = metric.replace("_", " ")
        axes.errorbar(values, range(len(rows)), xerr=spread, fmt=mark, color=colour, label=said)
    axes.set(yticks=range(len(rows)), xlabel="per cent", title=benchmark, xlim=(0, 100))
    axes.set_yticklabels(rows[::-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="the study")
    parser.add_argument("--plots", type=Path, help="where pictures go; else into the study")
    arguments = parser.parse_args()
    out = arguments.folder
    found = numbers(out / "values")
    by = {(n.row, n.benchmark, n.group, n.metric): n for n in found}
    table = pl.DataFrame([asdict(number) for number in found], infer_schema_length=None)
    table.write_csv(out / "table.csv")
    (out / "table.md").write_text(markdown(by), encoding="utf-8")
    plot(by, arguments.plots or out)
    print(f"{len(found):,} numbers: {out / 'table.csv'}, {out / 'table.md'}")


if __name__ == "__main__":
    main()
