"""One benchmark of one run, indexed so that its cases are found at once, and the list's filters.

Outcomes and groups are arrays of row numbers. Captions are searched by a scan in polars, which
takes a hundredth of a second for 100,000 cases and needs no index (see `bench/browsing.py`: an
FTS5 table takes seconds to build, and longer to list what a common word finds). Filters are part of
the URL, so that a link can be shared.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Final

import numpy as np
import polars as pl

from counterpoint.cases import is_gallery
from counterpoint.metrics import ALL, METRICS, Metric
from counterpoint.runs import OUTCOMES, Part, case_outcomes, members_in, same_rows
from counterpoint.studio.security import StudioError
from counterpoint.studio.web import whole_number

BETWEEN: Final = "\n"  # captions of one case in the searched text
_WORDS: Final = 12  # of a search


@dataclass(frozen=True)
class Index:
    """`members` are the rows of each group; `text` the captions of each case in lower case.

    `whole` are the rows that the numbers of the whole benchmark are made from.
    """

    model: str
    part: Part
    outcomes: np.ndarray
    members: dict[str, np.ndarray]
    whole: np.ndarray
    text: pl.Series

    @property
    def right(self) -> np.ndarray:
        return np.asarray(self.outcomes == "right")

    def bytes(self) -> int:
        frame = self.part.cases.frame.estimated_size() + self.text.estimated_size()
        return int(frame) + self.part.scores.nbytes

    def row_of(self, case_id: str) -> int | None:
        """The row of the case with that id."""
        return self.part.cases.ids.index_of(case_id)

    def scores(self, row: int) -> np.ndarray:
        """A case's scores, flat."""
        start, end = self._starts[row : row + 2]
        return self.part.scores[start:end]

    @cached_property
    def _starts(self) -> np.ndarray:
        return self.part.cases.pair_offsets

    @cached_property
    def counted(self) -> dict[str, np.ndarray]:
        """The rows that each main metric counts: its value is above 0, by the run's protocol."""
        main = [m for m in METRICS.values() if isinstance(m, Metric) and m.main]
        part, found = self.part, dict[str, list[np.ndarray]]()
        for block in part.cases.blocks():
            if is_gallery(*block.truth.shape[1:]):
                continue
            scores = part.cases.scores_of(block, part.scores)
            for metric in main:
                mask = metric.defined(block)
                if mask.any():
                    values = metric.values(scores[mask], block.truth[mask], part.protocol.tie)
                    found.setdefault(metric.name, []).append(block.rows[mask][values > 0])
        return {name: np.concatenate(rows) for name, rows in found.items()}

    def matching(self, words: str) -> np.ndarray:
        """Which cases hold every word (its beginning will do) and every "quoted phrase"."""
        found = pl.repeat(True, len(self.text), eager=True)
        for word in split(words):
            plain = word.isascii() and word.isalnum()
            found &= (
                self.text.str.contains(rf"\b{re.escape(word)}")
                if plain
                else self.text.str.contains(word, literal=True)
            )
        return found.to_numpy()


def make_index(model: str, part: Part) -> Index:
    text = part.cases.frame["captions"].list.join(BETWEEN)
    members = members_in(part.cases, part.protocol)
    groups = {label: rows for label, rows in members.items() if label != ALL}
    return Index(
        model,
        part,
        case_outcomes(part),
        groups,
        members[ALL],
        text.str.to_lowercase(),
    )


def split(words: str) -> list[str]:
    """The words and quoted phrases of a search, in lower case."""
    try:
        found = shlex.split(words.replace("'", "\\'").lower())
    except ValueError:  # a quotation mark that is not closed yet, while typing
        found = words.lower().replace('"', " ").split()
    return found[:_WORDS]


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
    rows = same_rows(index.part.cases, other.part.cases)
    shared = rows >= 0
    mine, theirs = index.right[shared], other.right[rows[shared]]
    shared[shared] = {"": mine != theirs, "first": mine & ~theirs, "second": theirs & ~mine}[differ]
    return shared


def by_outcome(rows: np.ndarray, index: Index) -> dict[str, int]:
    """How many of the rows have each outcome."""
    return {name: int((index.outcomes[rows] == name).sum()) for name in OUTCOMES}


def with_outcome(rows: np.ndarray, index: Index, outcome: str) -> np.ndarray:
    return rows[index.outcomes[rows] == outcome] if outcome else rows
