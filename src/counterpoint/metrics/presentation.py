"""How results are presented in tables, figures and pages: metrics, ties, reasons and texts."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from difflib import SequenceMatcher
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final, Protocol

_TEXTS: Final[dict[str, dict[str, str]]] = tomllib.loads(
    Path(__file__).with_name("texts.toml").read_text(encoding="utf-8")
)


def _texts(what: str) -> dict[str, str]:
    return {name: texts[what] for name, texts in _TEXTS.items() if what in texts}


METRIC_HEADINGS: Final = _texts("heading")  # of columns, in their order
AXIS_LABELS: Final = _texts("label")  # on axes and in sentences
METRIC_MEANINGS: Final = _texts("meaning")
# The main metric of a benchmark is the first of these that it has.
COMPOSITION_METRICS: Final = (
    "augmented_accuracy",
    "augmented_group",
    "group",
    "all_answers",
    "text_only_accuracy",
    "original_accuracy",
    "text_to_image",
)
GALLERY_METRICS: Final = ("image_to_text_recall@1", "accuracy@1")
_BASELINES: Final = ("blind", "random")  # families of models that see no image
_REASONS: Final = {
    "caption too long": "caption too long",
    "no such file": "image missing",
    "no image": "image missing",
    "two images": "two images",
}


def in_order(metrics: Iterable[str]) -> list[str]:
    """Metrics in the order of tables: those with a heading first."""
    present = dict.fromkeys(metrics)
    known = [name for name in METRIC_HEADINGS if name in present]
    return known + [name for name in present if name not in METRIC_HEADINGS]


def heading(metric: str) -> str:
    """The name of a metric in tables."""
    return METRIC_HEADINGS.get(metric, metric.replace("_", " "))


def headline(metrics: Iterable[str]) -> str | None:
    """The main metric of a benchmark."""
    known = set(metrics)
    return next(
        (
            metric
            for metric in (*COMPOSITION_METRICS, *GALLERY_METRICS, "rank_correlation")
            if metric in known
        ),
        None,
    )


# --- Intervals ----------------------------------------------------------------------------------


_SKEWED: Final = 0.1  # of the larger half of an interval: the halves differ by more


def interval_text(value: float, low: float, high: float, write: Callable[[float], str]) -> str:
    """What stands behind a value: half of its interval, or both ends where that would mislead.

    `±2.7` is value - 2.7 to value + 2.7. An interval whose halves differ by more than a tenth is
    written as `[0.0, 16.8]`.
    """
    below, above = value - low, high - value
    if abs(above - below) > _SKEWED * max(above, below):
        return f"[{write(low)}, {write(high)}]"
    return f"±{write((high - low) / 2)}"


def intervals_note(metrics: Iterable[str] = (), unit: str = "Per cent") -> str:
    """What the numbers of a table are; of its metrics, those of which less is better."""
    from counterpoint.metrics.registry import METRICS
    from counterpoint.metrics.statistics import LEVEL

    lower = [heading(name) for name in in_order(metrics) if METRICS[name].better == "lower"]
    better = f" {join_words(lower).capitalize()}: lower is better." if lower else ""
    return (
        f"{unit}, ± half of the {LEVEL:.0%} interval, or both ends where its halves differ by more "
        f"than a tenth (bootstrap over source images).{better}"
    )


# --- What was counted ---------------------------------------------------------------------------


PART_MARK: Final = "‡"  # after a number of some of the cases
PART_NOTE: Final = (
    "not over the whole benchmark, or over other cases or under another protocol than the rest of "
    "its column: not to be compared with numbers of all cases."
)


def is_baseline(model: str) -> bool:
    return model.partition(":")[0] in _BASELINES


def p_value(p: float) -> str:
    return "<0.001" if p < 0.001 else f"{p:.3f}"


# --- Ties ---------------------------------------------------------------------------------------

TIES_MARK: Final = "†"  # after a number that depends on ties
TIES_NOTE: Final = (
    "depends on how ties are counted: counted in another way, they would move the value out of its "
    "interval, so it can be compared neither with chance nor with another model."
)


class NumberWithTies(Protocol):
    """A number with its interval, and how many of its values depend on a tie."""

    @property
    def model(self) -> str: ...
    @property
    def benchmark(self) -> str: ...
    @property
    def group(self) -> str: ...
    @property
    def metric(self) -> str: ...
    @property
    def value(self) -> float: ...
    @property
    def ci_low(self) -> float: ...
    @property
    def ci_high(self) -> float: ...
    @property
    def n(self) -> int: ...
    @property
    def ties(self) -> int: ...


def ties_matter(ties: int, n: int, reach: float) -> bool:
    """Whether ties, counted in another way, could move a value further than `reach`."""
    return ties > reach * n


def depends_on_ties(row: NumberWithTies) -> bool:
    return ties_matter(row.ties, row.n, max(row.ci_high - row.value, row.value - row.ci_low))


def ties_by_model(rows: Iterable[NumberWithTies]) -> dict[str, str]:
    """For each model with ties: how many values of which metrics depend on them.

    Metrics of one benchmark with the same count are named together. Each metric counts its own
    ties: if a case is wrong for every tie policy, its value does not depend on the tie.
    """
    from counterpoint.metrics.statistics import ALL

    counts: dict[str, dict[str, dict[tuple[int, int], list[str]]]] = {}
    for row in rows:
        if row.ties:
            where = row.benchmark if row.group == ALL else f"{row.benchmark}, {row.group}"
            mine = counts.setdefault(row.model, {}).setdefault(where, {})
            mine.setdefault((row.ties, row.n), []).append(heading(row.metric))
    return {
        model: "; ".join(
            f"{benchmark} "
            + ", ".join(
                f"{join_words(names)} {ties:,} of {n:,}" for (ties, n), names in found.items()
            )
            for benchmark, found in benchmarks.items()
        )
        for model, benchmarks in counts.items()
    }


def join_words(names: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


# --- Texts --------------------------------------------------------------------------------------


_WORDS: Final = re.compile(r"(?:\w+|[^\w\s])\s*|\s+")  # with the space behind them


def changed_words(original: str, text: str) -> list[tuple[str, bool]]:
    """The text in pieces, each with whether its words differ from those of the original."""
    words = _WORDS.findall(text)
    theirs = [word.strip() for word in _WORDS.findall(original)]
    ours = [word.strip() for word in words]
    pieces: list[tuple[str, bool]] = []
    for kind, _, _, start, end in SequenceMatcher(None, theirs, ours, False).get_opcodes():
        piece = "".join(words[start:end])
        words_only = piece.rstrip()
        pieces += [(words_only, kind != "equal"), (piece[len(words_only) :], False)]
    found = groupby((piece for piece in pieces if piece[0]), key=itemgetter(1))
    return [("".join(piece for piece, _ in several), changed) for changed, several in found]


def count_reasons(left_out: Sequence[tuple[str, str]]) -> str:
    """How often each kind of reason occurs, of (case id, reason)."""
    counts = Counter(
        next((kind for sign, kind in _REASONS.items() if sign in why), "image cannot be read")
        for _, why in left_out
    )
    return ", ".join(f"{kind}: {count:,}" for kind, count in counts.most_common())
