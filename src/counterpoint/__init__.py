"""Counterpoint: measure whether a vision-language model notices what matters and only that.

    import counterpoint

    [run] = counterpoint.evaluate("world:base", ["world-swap", "world-replace"])
    for row in counterpoint.rows(run):
        print(row.benchmark, row.group, row.metric, row.value, row.ci_low, row.ci_high)

Nothing heavy is imported until it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from counterpoint.benchmarks import load_benchmark
    from counterpoint.case_files import read_cases, write_cases
    from counterpoint.cases import Case, Cases, ImageRef, caption_case
    from counterpoint.comparison import compare
    from counterpoint.doctor import examine
    from counterpoint.errors import CounterpointError
    from counterpoint.evaluation import evaluate
    from counterpoint.importing import import_scores
    from counterpoint.published import verify
    from counterpoint.results import rows
    from counterpoint.runs import Run, load_run

_HOMES = {
    "Case": "cases",
    "Cases": "cases",
    "CounterpointError": "errors",
    "ImageRef": "cases",
    "Run": "runs",
    "caption_case": "cases",
    "compare": "comparison",
    "evaluate": "evaluation",
    "examine": "doctor",
    "import_scores": "importing",
    "load_benchmark": "benchmarks",
    "load_run": "runs",
    "read_cases": "case_files",
    "rows": "results",
    "verify": "published",
    "write_cases": "case_files",
}

__all__ = [
    "Case",
    "Cases",
    "CounterpointError",
    "ImageRef",
    "Run",
    "caption_case",
    "compare",
    "evaluate",
    "examine",
    "import_scores",
    "load_benchmark",
    "load_run",
    "read_cases",
    "rows",
    "verify",
    "write_cases",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'counterpoint' has no attribute {name!r}")
    return getattr(import_module(f"counterpoint.{_HOMES[name]}"), name)
