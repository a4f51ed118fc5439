"""Filters of the case list. They are part of the URL, so that a link can be shared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

from counterpoint.studio.browse.index import OUTCOMES, Index, code_of
from counterpoint.studio.security import StudioError
from counterpoint.studio.web import whole_number

PER_PAGE: Final = 20
_PAGES: Final = 10**8
_LONGEST: Final = 200  # characters of a search
DIFFER: Final = {
    "": "they disagree",
    "first": "only the first is right",
    "second": "only the second is right",
}


@dataclass(frozen=True, slots=True)
class Filter:
    """What an address asks for. `other` is a run to disagree with, `differ` in which way.

    `metric` asks for the cases that a number counts: that of the group, or of the whole benchmark.
    """

    run: str = ""
    benchmark: str = ""
    group: str = ""
    metric: str = ""
    outcome: str = ""
    other: str = ""
    differ: str = ""
    q: str = ""
    page: int = 1

    def query(self, **changes: str | int | None) -> dict[str, str | int | None]:
        """The address's query, with changes; what is empty is left out by `url`."""
        asked = {**asdict(self), **changes}
        if asked["page"] == 1:
            asked["page"] = None
        if not asked["other"]:
            asked["differ"] = None
        return asked


def read_filter(query: Mapping[str, str]) -> Filter:
    """The filter of an address; RequestError (404) for a word that means nothing."""
    named = {name: query.get(name, "") for name in ("run", "benchmark", "group", "metric", "other")}
    outcome, differ, page = query.get("outcome", ""), query.get("differ", ""), query.get("page", "")
    if outcome not in ("", *OUTCOMES):
        raise StudioError("E-FILTER-UNKNOWN", "There is no such outcome.", 404)
    if differ not in DIFFER:
        raise StudioError(
            "E-FILTER-UNKNOWN", "Two models can disagree, or one of them alone be right.", 404
        )
    text = query.get("q", "")[:_LONGEST].replace("\0", "").strip()
    number = whole_number(page, _PAGES, 1) or 1
    return Filter(**named, outcome=outcome, differ=differ, q=text, page=number)


def chosen_rows(filter: Filter, index: Index, other: Index | None) -> np.ndarray:
    """The rows that pass everything but the outcome, ascending."""
    mask = np.ones(len(index.outcomes), dtype=bool)
    if filter.group:
        mask &= _marked(index.members[filter.group], len(mask))
    if filter.metric:
        mask &= _marked(index.counted[filter.metric], len(mask))
        if not filter.group:
            mask &= _marked(index.whole, len(mask))
    if other is not None:
        mask &= disagreeing(index, other, filter.differ)
    if filter.q:
        mask &= index.matching(filter.q)
    return np.flatnonzero(mask)


def _marked(rows: np.ndarray, count: int) -> np.ndarray:
    mask = np.zeros(count, dtype=bool)
    mask[rows] = True
    return mask


def disagreeing(index: Index, other: Index, differ: str) -> np.ndarray:
    """The cases of both that one of the two gets right and the other does not."""
    rows = index.same_in(other)
    mine, theirs = index.right, other.right[rows]
    wanted = {"": mine != theirs, "first": mine & ~theirs, "second": theirs & ~mine}[differ]
    return np.asarray(wanted & (rows >= 0))


def by_outcome(rows: np.ndarray, index: Index) -> dict[str, int]:
    """How many of the rows have each outcome."""
    counts = np.bincount(index.outcomes[rows], minlength=len(OUTCOMES))
    return {name: int(counts[code_of(name)]) for name in OUTCOMES}


def with_outcome(rows: np.ndarray, index: Index, outcome: str) -> np.ndarray:
    return rows[index.outcomes[rows] == code_of(outcome)] if outcome else rows
