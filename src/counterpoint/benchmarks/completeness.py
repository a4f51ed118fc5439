"""Whether a run holds the whole published benchmark: all files, all their rows, all images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from counterpoint._util.errors import NotFoundError
from counterpoint.benchmarks.benchmark import Size
from counterpoint.benchmarks.registry import base_id, published_files
from counterpoint.cases import NO_NEGATIVE, SURPLUS, Absent, Cases, gallery_rows
from counterpoint.metrics import ALL, NO_IMAGE, Protocol, members_of

if TYPE_CHECKING:
    from counterpoint.runs import Part

FILE_MISSING: Final = "file missing"
ROWS_MISSING: Final = "rows missing"
ROWS_REPLACED: Final = "rows without an image, replaced by the next ones"
NO_VOTES: Final = "votes missing"  # so that a case is not counted, although it is scored
_MISSING: Final = {
    "cases": ROWS_MISSING,
    "images": ROWS_MISSING,
    "captions": "captions missing",
    "queries": "queries missing",
}
_UNCOUNTED: Final = (NO_NEGATIVE, NO_VOTES, SURPLUS)  # they take no case from the published ones


def counted(cases: Cases, protocol: Protocol) -> Cases:
    """The cases that a protocol scores."""
    if not protocol.skip:
        return cases
    rows = members_of(cases.frame["groups"], protocol.skip)[ALL]
    return Cases(cases.frame[rows], cases.root, cases.absent)


def absent_from(id: str, cases: Cases, protocol: Protocol) -> tuple[Absent, ...]:
    """What the published benchmark has and its data here lack, of what the protocol scores."""
    replaced = tuple(_replaced(cases)) if NO_IMAGE in protocol.skip else ()
    return (*_lacking(id, counted(cases, protocol), protocol, replaced), *replaced, *cases.absent)


def _replaced(cases: Cases) -> Iterator[Absent]:
    """By file: how many rows without an image come before the last one that the protocol scores."""
    gone = cases.ids.filter(cases.frame["groups"].list.contains(NO_IMAGE))
    files = gone.str.replace("/[^/]*$", "").value_counts(name="rows")
    yield from (Absent(file, ROWS_REPLACED, rows) for file, rows in sorted(files.iter_rows()))


def _lacking(
    id: str, cases: Cases, protocol: Protocol, replaced: Sequence[Absent]
) -> Iterator[Absent]:
    files = published_files(id, protocol.name)
    if not files:
        return
    held, named = _held(cases), np.zeros(len(cases), dtype=bool)
    for file, size in files.items():
        begin, what = (f"{file}/", file) if file else ("", base_id(id))
        inside = cases.ids.str.starts_with(begin).to_numpy()
        named |= inside
        lost, filled = (
            [one for one in some if f"{one.what}/".startswith(begin)]
            for some in (cases.absent, replaced)
        )
        expected = _expected(size, protocol)
        if not inside.any() and not lost and not filled:
            yield Absent(what, FILE_MISSING, expected.get("images", expected.get("cases")))
            continue
        for measure, count in expected.items():
            found = int(held[measure][inside].sum()) + (_said(lost) if measure == "cases" else 0)
            lacking = count - found - (_said(filled) if measure == "cases" else 0)
            if lacking > 0:
                yield Absent(what, _MISSING[measure], lacking)
            elif found > count:
                yield Absent(what, SURPLUS, found - count)
    others = cases.ids.filter(pl.Series(~named)).str.replace("/[^/]*$", "")
    unknown = others.value_counts(name="rows")
    yield from (Absent(file, SURPLUS, rows) for file, rows in sorted(unknown.iter_rows()))


def _held(cases: Cases) -> dict[str, np.ndarray]:
    """What each case counts for, by measure."""
    listed = np.zeros(len(cases), dtype=np.int64)
    if "queries" in cases.columns:
        listed = cases.frame["queries"].list.len().fill_null(0).to_numpy().astype(np.int64)
    ones = np.ones(len(cases), dtype=np.int64)
    counts = (ones, cases.image_counts, cases.caption_counts, listed)
    return dict(zip(Size._fields, counts, strict=True))


def _expected(size: Size, protocol: Protocol) -> dict[str, int]:
    """How much of a file a protocol scores, by measure, where that is known."""
    found = {**size._asdict(), "cases": protocol.most_of(size.cases)}
    return {measure: count for measure, count in found.items() if count is not None}


def _said(absent: Sequence[Absent]) -> int:
    """How many cases of the published benchmark are named as not being in the data."""
    return sum(one.cases or 0 for one in absent if one.reason not in _UNCOUNTED)


def published_counts(id: str, protocol: Protocol) -> dict[str, int]:
    """How much the whole benchmark has under a protocol, by measure; not what is unknown."""
    try:
        sizes = published_files(id, protocol.name).values()
    except NotFoundError:  # of a plug-in that is not installed here
        return {}
    expected = [_expected(size, protocol) for size in sizes]
    shared = [measure for measure in Size._fields if all(measure in one for one in expected)]
    return {measure: sum(one[measure] for one in expected) for measure in shared if expected}


def unexplained(part: Part, protocol: Protocol) -> int:
    """How many cases of the whole benchmark a run has not scored and does not say it lacks."""
    expected = published_counts(part.benchmark, protocol)
    if not expected or not len(part.cases) or any(one.cases is None for one in part.absent):
        return 0
    if part.left_out_images:  # and captions with them
        expected = {name: expected[name] for name in ("images",) if name in expected}
    held = _held(counted(part.cases, protocol))
    lacking = sum(max(0, count - int(held[name].sum())) for name, count in expected.items())
    return max(0, lacking - _said(part.absent) - len(part.left_out) - len(part.left_out_images))


def describe_absent(absent: Sequence[Absent]) -> str:
    """How much of the benchmark is not in the data, by reason, and the first of it."""
    counts: dict[str, list[Absent]] = {}
    for one in absent:
        kind = "blank negatives" if one.reason.endswith("negatives are blank") else one.reason
        counts.setdefault(kind, []).append(one)
    said = "; ".join(f"{reason}: {_amount(found)}" for reason, found in counts.items())
    return f"{said}; the first: {absent[0].what} ({absent[0].reason})"


def _amount(found: Sequence[Absent]) -> str:
    known = sum(one.cases or 0 for one in found)
    unknown = sum(one.cases is None for one in found)
    # What is missing is said by the reason; a surplus may be of several kinds.
    unit = found[0].reason.partition(" missing")[0]
    parts = [f"{known:,} {unit if unit in Size._fields else 'cases'}"] if known else []
    parts += [f"{unknown:,} files of unknown size"] if unknown else []
    return " and ".join(parts) or f"in {len(found):,} cases"


def whole_size(id: str, cases: Cases, protocol: Protocol, absent: Sequence[Absent]) -> int | None:
    """How many cases the whole benchmark has, or images if it is of galleries; None if unknown.

    `cases` are all that the data here have, and `absent` says what they lack.
    """
    known = published_counts(id, protocol)
    galleries = gallery_rows(cases)
    if found := known.get("images" if galleries.any() else "cases"):
        return found
    if any(one.cases is None for one in absent):
        return None
    scored = counted(cases, protocol)
    return int(scored.image_counts[gallery_rows(scored)].sum()) or len(scored) + _said(absent)


def why_incomplete(part: Part, protocol: Protocol, options: dict[str, Any]) -> str:
    """Why a part of a run is not the whole benchmark; empty if it is, as far as is known.

    `options` are those of the run. Rows without a negative are not cases.
    """
    absent = [one for one in part.absent if one.reason != NO_NEGATIVE and one.cases != 0]
    if absent:
        more = f" and {len(absent) - 1:,} more" if len(absent) > 1 else ""
        return f"{absent[0].what}: {absent[0].reason}{more}"
    if left := len(part.left_out) + len(part.left_out_images):
        return f"{left:,} of its cases or images left out"
    expected = published_counts(part.benchmark, protocol)
    held = _held(counted(part.cases, protocol)) if expected else {}
    for measure, count in expected.items():
        if (scored := int(held[measure].sum())) != count:
            return f"{scored:,} {measure} scored, the whole benchmark has {count:,}"
    limit = options.get("limit")
    if not expected and isinstance(limit, int) and limit:
        return f"limited to {limit:,} cases"
    return ""
