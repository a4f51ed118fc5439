"""How results are presented in tables, figures and pages: metrics, ties, reasons and texts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from difflib import SequenceMatcher
from itertools import groupby
from operator import itemgetter
from typing import Final, Protocol

# Headings of columns, in their order.
METRIC_HEADINGS: Final = {
    "original_accuracy": "original",
    "augmented_accuracy": "augmented",
    "brittleness": "brittleness",
    "image_to_text": "I2T",
    "text_to_image": "T2I",
    "group": "group",
    "original_group": "original group",
    "augmented_group": "augmented group",
    "image_brittleness": "image brittleness",
    "answer_accuracy": "Acc",
    "question_accuracy": "Q-Acc",
    "image_accuracy": "I-Acc",
    "all_answers": "G-Acc",
    "text_only_accuracy": "text-only",
    "image_to_text_recall@1": "I2T R@1",
    "image_to_text_recall@5": "I2T R@5",
    "text_to_image_recall@1": "T2I R@1",
    "text_to_image_recall@5": "T2I R@5",
    "image_to_text_map@R": "I2T mAP@R",
    "image_to_text_r_precision": "I2T R-P",
    "text_to_image_map@R": "T2I mAP@R",
    "text_to_image_r_precision": "T2I R-P",
    "rank_correlation": "correlation",
    "accuracy@1": "top-1",
    "accuracy@5": "top-5",
}
# Names on axes and in sentences.
AXIS_LABELS: Final = {
    "augmented_accuracy": "augmented accuracy",
    "original_accuracy": "original accuracy",
    "text_only_accuracy": "text-only accuracy",
    "group": "group score",
    "original_group": "original group score",
    "augmented_group": "augmented group score",
    "image_brittleness": "image brittleness",
    "all_answers": "all answers right",
    "image_to_text_recall@1": "image-to-text R@1",
    "image_to_text_map@R": "image-to-text mAP@R",
    "rank_correlation": "rank correlation with grades",
    "accuracy@1": "top-1 accuracy",
}
METRIC_MEANINGS: Final = {
    "original_accuracy": "the original caption scores above every negative (a caption that is "
    "false of the image)",
    "augmented_accuracy": "the original and every positive (a true caption in other words) score "
    "above every negative",
    "brittleness": "some true captions score above the best negative and others below it: the "
    "wording decides; lower is better",
    "image_to_text": "every image scores its own captions above all others",
    "text_to_image": "every caption scores its own images above all others",
    "group": "both I2T and T2I are right for the same case",
    "original_group": "the group score of original and negative with their images, without "
    "rewordings and re-renderings",
    "augmented_group": "the group score with every rewording and every re-rendering: all must be "
    "right",
    "image_brittleness": "some renderings of a caption score above the best false image and others "
    "below it: the rendering decides; lower is better",
    "answer_accuracy": "of the answers to a question about an image, the true one scores highest",
    "question_accuracy": "a question is answered right for all of its images",
    "image_accuracy": "all questions about an image are answered right",
    "all_answers": "all questions of a case are answered right for all of its images",
    "text_only_accuracy": "two texts of one meaning are closer to each other than to the negative; "
    "no image is used",
    "image_to_text_recall@1": "a true caption is the first that the image finds",
    "image_to_text_recall@5": "a true caption is among the first five that the image finds",
    "image_to_text_recall@10": "a true caption is among the first ten that the image finds",
    "text_to_image_recall@1": "a true image is the first that the caption finds",
    "text_to_image_recall@5": "a true image is among the first five that the caption finds",
    "text_to_image_recall@10": "a true image is among the first ten that the caption finds",
    "image_to_text_r_precision": "of an image with R true captions, the share of true ones among "
    "the first R that it finds",
    "text_to_image_r_precision": "of a caption with R true images, the share of true ones among "
    "the first R that it finds",
    "image_to_text_map@R": "as R-P, and true captions count more the earlier they are found",
    "text_to_image_map@R": "as R-P, and true images count more the earlier they are found",
    "rank_correlation": "Spearman's correlation of the scores with people's grades, each query "
    "counted once",
    "auroc": "a true pair scores above a false pair of any image (area under the ROC curve)",
    "calibration_error": "distance of probabilities, fitted to the scores of half of the images, "
    "from the share of true pairs in the other half; lower is better",
    "true_below_threshold": "true pairs below the single threshold that separates true and false "
    "pairs best; lower is better",
    "accuracy@1": "the class with the highest score is the true one",
    "accuracy@5": "the true class is among the five with the highest scores",
}
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
