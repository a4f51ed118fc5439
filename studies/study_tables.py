"""The numbers of a study (`study.py`), over its seeds, with verdicts; and tables of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from study import BASE, Study

from counterpoint.metrics.paired import differences
from counterpoint.metrics.statistics import ALL, LEVEL, estimate

AGAINST: Final = ("hp-hn", "clip-ft")
NONE: Final = "no difference shown"
RESAMPLES: Final = 2000
# Student's t for a 95 % interval of a mean of so many seeds.
STUDENT: Final = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78}


@dataclass(frozen=True, slots=True)
class Number:
    """One metric of one row: the mean over its seeds, and how sure it is.

    `case_low`, `case_high`: bootstrap over cases of the mean over seeds. `seed_low`, `seed_high`:
    Student's interval over seeds. `verdicts`: against other rows, paired by case and seed; not
    "no difference shown" if the test over cases shows one and every seed has the same sign.
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


def numbers(folder: Path, study: Study) -> list[Number]:
    """Every metric of every row that has values, over its seeds."""
    files: dict[str, dict[int, Path]] = {}
    for path in sorted(folder.glob("[!.]*.npz")):
        row, _, seed = path.stem.rpartition("-")
        files.setdefault(row, {})[int(seed)] = path
    loaded = {row: {s: dict(np.load(p)) for s, p in of.items()} for row, of in files.items()}
    rows = [row for row in dict.fromkeys((BASE, *study.rows)) if row in loaded]
    return [
        number
        for row in rows
        for benchmark in study.benchmarks
        for group in study.groups
        for number in _numbers(loaded, row, _rivals(study, row, loaded), benchmark, group)
    ]


def _rivals(study: Study, row: str, loaded: Iterable[str]) -> list[str]:
    """The rows that a row is compared with: those of `AGAINST` that have the same start."""
    same = [o for o in AGAINST if o in study.rows and study.starts.get(o) == study.starts.get(row)]
    return [other for other in same if other in loaded and row in study.rows and other != row]


def _numbers(
    loaded: dict[str, dict[int, dict[str, np.ndarray]]],
    row: str,
    rivals: Sequence[str],
    benchmark: str,
    group: str,
) -> list[Number]:
    mine = loaded[row]
    one = next(iter(mine.values()))
    if (members := one.get(f"{benchmark}/in/{group}")) is None:
        return []
    clusters, metrics = one[f"{benchmark}/clusters"], one[f"{benchmark}/metrics"].tolist()
    table = {s: of[f"{benchmark}/values"].astype(float)[members] for s, of in mine.items()}
    levels = [
        one[:3]
        for one in _found(estimate, np.mean(list(table.values()), axis=0), clusters[members])
    ]
    means = np.array([np.nanmean(values, axis=0) for values in table.values()])
    told = {name: ([""] * len(metrics), [""] * len(metrics)) for name in AGAINST}
    for other in rivals:
        theirs = {s: of[f"{benchmark}/values"][members] for s, of in loaded[other].items()}
        told[other] = against(table, theirs, clusters[members])
    for j in np.flatnonzero(one[f"{benchmark}/pooled"]).tolist():
        # Of all pairs at once: no value of a case, so only seeds say how sure it is.
        mine_by_seed = _pooled(mine, benchmark, group, j)
        means[:, j] = list(mine_by_seed.values())
        levels[j] = (float(means[:, j].mean()), math.nan, math.nan)
        for other in AGAINST:
            if told[other][0][j]:
                theirs_by_seed = _pooled(loaded[other], benchmark, group, j)
                told[other][0][j], told[other][1][j] = _pooled_against(mine_by_seed, theirs_by_seed)
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


def against(
    mine: dict[int, np.ndarray], theirs: dict[int, np.ndarray], clusters: np.ndarray
) -> tuple[list[str], list[str]]:
    """The difference with its interval, and in words: paired by seed and case.

    Blank where the two have no seed in common, because a training failed.
    """
    seeds = sorted(set(mine) & set(theirs))
    if not seeds:
        blank = [""] * next(iter(mine.values())).shape[1]
        return blank, [*blank]
    gaps = [mine[seed] - theirs[seed] for seed in seeds]
    found = _found(differences, np.mean(gaps, axis=0), clusters)
    signs = np.sign([np.nanmean(gap, axis=0) for gap in gaps])
    agree = (np.abs(signs.sum(axis=0)) == len(seeds)).tolist()
    shown = [f"{value:+.4f} [{low:+.4f}, {high:+.4f}]" for value, low, high, *_ in found]
    words = [
        ("higher" if value > 0 else "lower") if p < 1 - LEVEL and same else NONE
        for (value, *_, p), same in zip(found, agree, strict=True)
    ]
    return shown, words


def _pooled(
    of: dict[int, dict[str, np.ndarray]], benchmark: str, group: str, column: int
) -> dict[int, float]:
    return {seed: float(one[f"{benchmark}/numbers/{group}"][column]) for seed, one in of.items()}


def _pooled_against(mine: dict[int, float], theirs: dict[int, float]) -> tuple[str, str]:
    """The difference over seeds with Student's interval, and in words."""
    gaps = np.array([mine[seed] - theirs[seed] for seed in sorted(set(mine) & set(theirs))])
    low, high = _over_seeds(gaps)
    if low is None or high is None:
        return f"{gaps.mean():+.4f}", NONE
    words = "higher" if low > 0 else "lower" if high < 0 else NONE
    return f"{gaps.mean():+.4f} [{low:+.4f}, {high:+.4f}]", words


def _found(kind: Callable[..., Any], values: np.ndarray, clusters: np.ndarray) -> list[Any]:
    """Estimates, or differences, of the columns over all cases."""
    members = {ALL: np.arange(len(values))}
    numbered = np.unique(clusters, return_inverse=True)[1].reshape(-1)
    found: list[Any] = kind(values, numbered, members, resamples=RESAMPLES)[ALL]
    return found


def _over_seeds(means: np.ndarray) -> tuple[float | None, float | None]:
    if len(means) not in STUDENT:
        return None, None
    half = STUDENT[len(means)] * means.std(ddof=1) / len(means) ** 0.5
    return float(means.mean() - half), float(means.mean() + half)


# --- tables as Markdown ------------------------------------------------------------------------

Key = tuple[str, str, str]  # benchmark, group, metric
By = dict[tuple[str, str, str, str], Number]  # with the row in front
_SAID: Final = {
    "original_accuracy": "orig.",
    "augmented_accuracy": "aug.",
    "brittleness": "brittle",
    "mean_score_original": "c",
    "mean_score_negative": "n",
    "mean_score_positive": "p",
    "image_to_text": "I2T",
    "text_to_image": "T2I",
    "group_matching": "matching",
    "image_to_text_recall@1": "I2T R@1",
    "text_to_image_recall@1": "T2I R@1",
    "accuracy@1": "top-1",
}
Sections = Mapping[str, tuple[Sequence[str], Sequence[Key]]]  # by title: rows and columns


def markdown(by: By, sections: Sections, short: Mapping[str, str]) -> str:
    """Tables with a section each; `short` has names of benchmarks for their heads."""
    lines = []
    for title, (rows, columns) in sections.items():
        alone = len({benchmark for benchmark, *_ in columns}) == 1
        heads = [_head(key, "" if alone else short[key[0]]) for key in columns]
        lines += ["", f"## {title}", "", f"| row | {' | '.join(heads)} |"]
        lines.append("|---" * (len(heads) + 1) + "|")
        lines += [
            f"| {row} | {' | '.join(_cell(by.get((row, *key))) for key in columns)} |"
            for row in rows
            if (row, *columns[0]) in by
        ]
    return "\n".join(lines).strip() + "\n"


def _head(key: Key, benchmark: str) -> str:
    _, group, metric = key
    part = {"attributes": "att.", "relations": "rel."}.get(group, "")
    return " ".join(filter(None, (benchmark, part, _SAID.get(metric, metric))))


def _cell(number: Number | None) -> str:
    """The mean, half of the interval over seeds, and the verdicts: against hp-hn / clip-ft."""
    if number is None:
        return "-"
    share = "score" not in number.metric
    one, digits = (100, 1) if share else (1, 3)
    low, high = number.seed_low, number.seed_high
    spread = "" if low is None or high is None else f" ±{one * (high - low) / 2:.{digits}f}"
    signs = {"higher": "↑", "lower": "↓", NONE: "="}
    told = dict(part.split(": ") for part in number.verdicts.split("; ") if part)
    marks = "/".join(signs[told[name]] if name in told else "·" for name in AGAINST)
    return f"{one * number.value:.{digits}f}{spread}" + (f" {marks}" if told else "")


def write_tables(folder: Path, study: Study, sections: Sections, short: Mapping[str, str]) -> By:
    """FOLDER/table.csv (every number) and FOLDER/table.md, from FOLDER/values."""
    found = numbers(folder / "values", study)
    by = {(n.row, n.benchmark, n.group, n.metric): n for n in found}
    table = pl.DataFrame([asdict(number) for number in found], infer_schema_length=None)
    table.write_csv(folder / "table.csv")
    (folder / "table.md").write_text(markdown(by, sections, short), encoding="utf-8")
    print(f"{len(found):,} numbers: {folder / 'table.csv'}, {folder / 'table.md'}")
    return by


# --- plots -------------------------------------------------------------------------------------

COLOURS: Final = ("#0072B2", "#D55E00", "#009E73")  # Okabe and Ito's
_STYLE: Final[Any] = {"svg.hashsalt": "counterpoint", "svg.fonttype": "none", "font.size": 9}


Limits = tuple[int, int]


def save_plot(path: Path, size: tuple[float, float], panels: Sequence[Callable[..., None]]) -> None:
    """A picture of panels beside each other; each draws itself on its axes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        for axes, draw in zip(figure.subplots(1, len(panels), sharey=True), panels, strict=True):
            draw(axes)
            axes.spines[["top", "right"]].set_visible(False)
        handles, said = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, said, loc="outside lower center", ncols=3, frameon=False)
        figure.savefig(path, metadata={"Date": None})


def draw_drop(
    by: By, rows: Sequence[str], part: tuple[str, str], said: str, limits: Limits, axes: Any
) -> None:
    """Of each row the original and the augmented accuracy on a part: (benchmark, group)."""
    two = ("original_accuracy", "augmented_accuracy")
    rows = [row for row in rows if (row, *part, two[0]) in by][::-1]
    if not rows:  # the panels share their rows, and an empty one would take the names away
        axes.set(title=said)
        return
    for place, row in enumerate(rows):
        original, augmented = (100 * by[row, *part, metric].value for metric in two)
        axes.plot([augmented, original], [place, place], color="#999999", lw=4, zorder=1)
        for value, colour, mark, name in (
            (original, COLOURS[0], "o", "original accuracy"),
            (augmented, COLOURS[1], "s", "augmented accuracy"),
        ):
            axes.plot(value, place, mark, color=colour, label=name if place == 0 else None)
    axes.set(yticks=range(len(rows)), xlabel="per cent", title=said, xlim=limits)
    axes.set_yticklabels(rows)
