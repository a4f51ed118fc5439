"""One case: its images, its captions, and the scores of every run that has it."""

from __future__ import annotations

from typing import Any

import numpy as np

from counterpoint.studio.browse.filters import Filter, with_outcome
from counterpoint.studio.browse.index import Index
from counterpoint.studio.browse.library import Library, Listed
from counterpoint.studio.browse.list_page import fitted, found_rows
from counterpoint.studio.browse.outcomes import name_of
from counterpoint.studio.browse.views import (
    Matrix,
    caption_views,
    counts,
    gallery_query,
    image_views,
    is_large,
    matrix,
)
from counterpoint.studio.security import Refused
from counterpoint.studio.web import whole_number


def case_context(library: Library, asked: Filter, case_id: str, image: str) -> dict[str, Any]:
    """What the template shows of a case; `image` is the number of a gallery's image, from 1."""
    filter, run, index = fitted(library, asked)
    row = index.row_of(case_id)
    if row is None:
        raise Refused("This run has no such case.", 404)
    context = {
        "filter": filter,
        "run": run,
        "case_id": case_id,
        "row": row,
        "outcome": name_of(index.outcomes[row]),
        **_neighbours(library, filter, index, row),
    }
    if is_large(index, row):
        number = whole_number(image, counts(index, row)[0], 1) or 1
        query = gallery_query(run, index, row, number - 1)
        groups = tuple(index.part.cases.frame["groups"][row])
        return {**context, "query": query, "groups": groups, "captions": counts(index, row)[1]}
    case = index.part.cases.case(row)
    matrices, failures = _every_run(library, filter.benchmark, index, row)
    return {
        **context,
        "query": None,
        "groups": case.groups,
        "images": image_views(run, index, row, case),
        "captions": caption_views(case),
        "matrices": matrices,
        "failures": failures,
    }


def _neighbours(library: Library, filter: Filter, index: Index, row: int) -> dict[str, Any]:
    """The ids of the cases before and after this one in the list it was found in."""
    rows = with_outcome(found_rows(library, filter, index), index, filter.outcome)
    place = int(np.searchsorted(rows, row))
    inside = place < len(rows) and rows[place] == row
    before = rows[place - 1] if place > 0 else None
    after = rows[place + inside] if place + inside < len(rows) else None
    ids = index.part.cases.ids
    return {
        "before": None if before is None else ids[int(before)],
        "after": None if after is None else ids[int(after)],
        "place": place + 1 if inside else None,
        "found": len(rows),
    }


def _every_run(
    library: Library, benchmark: str, index: Index, row: int
) -> tuple[list[Matrix], list[tuple[Listed, str]]]:
    """The scores of each run that has the very same case, and the runs that cannot be read."""
    matrices: list[Matrix] = []
    failures: list[tuple[Listed, str]] = []
    for listed in library.having(benchmark):
        try:
            theirs = library.index(listed, benchmark)
        except Refused as error:
            failures.append((listed, str(error)))
            continue
        same = np.flatnonzero(theirs.contents == index.contents[row])
        if len(same):
            matrices.append(matrix(listed, theirs, int(same[0])))
    return matrices, failures
