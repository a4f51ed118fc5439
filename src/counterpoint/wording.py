"""What metrics and reasons are called, wherever people read them: terminal, figures, pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

# Of columns, in the order in which they stand.
HEADINGS: Final = {
    "original_accuracy": "original",
    "augmented_accuracy": "augmented",
    "brittleness": "brittleness",
    "image_to_text": "I2T",
    "text_to_image": "T2I",
    "group": "group",
    "text_only_accuracy": "text-only",
    "image_to_text_recall@1": "I2T R@1",
    "image_to_text_recall@5": "I2T R@5",
    "text_to_image_recall@1": "T2I R@1",
    "text_to_image_recall@5": "T2I R@5",
    "accuracy@1": "top-1",
    "accuracy@5": "top-5",
}
# Of axes.
SAID: Final = {
    "augmented_accuracy": "augmented accuracy",
    "original_accuracy": "original accuracy",
    "text_only_accuracy": "text-only accuracy",
    "group": "group score",
    "image_to_text_recall@1": "image-to-text R@1",
    "accuracy@1": "top-1 accuracy",
}
# The metric that says most of a benchmark is the first of these that it has.
COMPOSITION: Final = ("augmented_accuracy", "group", "text_only_accuracy", "original_accuracy")
GALLERY: Final = ("image_to_text_recall@1", "accuracy@1")
_BASELINES: Final = ("blind", "random")  # families of models that see no image
_REASONS: Final = {
    "caption too long": "caption too long",
    "no such file": "image missing",
    "no image": "image missing",
}


def heading(metric: str) -> str:
    return HEADINGS.get(metric, metric.replace("_", " "))


def headline(metrics: Iterable[str]) -> str | None:
    """The metric that says most of a benchmark."""
    known = set(metrics)
    return next((metric for metric in (*COMPOSITION, *GALLERY) if metric in known), None)


def is_baseline(model: str) -> bool:
    return model.partition(":")[0] in _BASELINES


def p_value(p: float) -> str:
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def reasons(left_out: Sequence[tuple[str, str]]) -> str:
    """How often each kind of reason occurs, of (case id, reason)."""
    counts = Counter(
        next((kind for sign, kind in _REASONS.items() if sign in why), "image cannot be read")
        for _, why in left_out
    )
    return ", ".join(f"{kind}: {count:,}" for kind, count in counts.most_common())
