"""The list of cases: what passes the filter, a page at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from counterpoint.studio.browse.filters import (
    DIFFER,
    PER_PAGE,
    Filter,
    by_outcome,
    chosen_rows,
    with_outcome,
)
from counterpoint.studio.browse.index import Index
from counterpoint.studio.browse.library import Library, Listed
from counterpoint.studio.browse.views import case_view
from counterpoint.studio.security import Refused
from counterpoint.wording import heading


def fitted(library: Library, asked: Filter) -> tuple[Filter, Listed, Index]:
    """The filter with run and benchmark filled in, without what no longer fits these.

    Somebody who chooses another benchmark still has the old one's group in the form.
    """
    run = library.run(asked.run) if asked.run else None
    if run is None or (asked.benchmark and asked.benchmark not in run.benchmarks):
        run = _first(library, asked.benchmark)
    benchmark = asked.benchmark or run.benchmarks[0]
    index = library.index(run, benchmark)
    others = {listed.key for listed in library.having(benchmark)} - {run.key}
    other = asked.other if asked.other in others else ""
    found = replace(
        asked,
        run=run.key,
        benchmark=benchmark,
        group=asked.group if asked.group in index.members else "",
        metric=asked.metric if asked.metric in index.counted else "",
        other=other,
        differ=asked.differ if other else "",
    )
    return found, run, index


def _first(library: Library, benchmark: str) -> Listed:
    """The first run that has the benchmark and can be shown."""
    refused = Refused("No run has such a benchmark.", 404)
    for run in library.having(benchmark) if benchmark else library.runs():
        try:
            library.index(run, benchmark or run.benchmarks[0])
        except Refused as error:
            refused = error
        else:
            return run
    raise refused


def found_rows(library: Library, filter: Filter, index: Index) -> np.ndarray:
    """The rows that pass, whatever their outcome."""
    other = None
    if filter.other:
        other = library.index(library.run(filter.other), filter.benchmark)
    return chosen_rows(filter, index, other)


def list_context(library: Library, asked: Filter) -> dict[str, Any]:
    """What the template shows; without any run, only that."""
    runs = library.runs()
    if not runs:
        return {"run": None, "refused": library.refused()}
    filter, run, index = fitted(library, asked)
    passing = found_rows(library, filter, index)
    rows = with_outcome(passing, index, filter.outcome)
    pages = max(1, -(-len(rows) // PER_PAGE))
    filter = replace(filter, page=min(filter.page, pages))
    first = (filter.page - 1) * PER_PAGE
    shown = rows[first : first + PER_PAGE].tolist()
    return {
        "filter": filter,
        "run": run,
        "other": library.run(filter.other) if filter.other else None,
        "runs": library.having(filter.benchmark),
        "benchmarks": sorted({name for listed in runs for name in listed.benchmarks}),
        "groups": {label: len(members) for label, members in index.members.items()},
        "metrics": {name: heading(name) for name in index.counted},
        "differ": DIFFER,
        "outcomes": by_outcome(passing, index),
        "passing": len(passing),
        "found": len(rows),
        "first": first,
        "pages": pages,
        "cases": [case_view(run, index, row) for row in shown],
    }
