"""Whether a run holds the whole published benchmark: all files, all their rows, all images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from counterpoint._util.errors import CounterpointError, NotFoundError
from counterpoint.benchmarks.registry import base_id, published_files
from counterpoint.cases import Absent, Cases, gallery_rows
from counterpoint.metrics import ALL, NO_IMAGE, Protocol, members_of

if TYPE_CHECKING:
    from counterpoint.runs import Part

FILE_MISSING: Final = "file missing"
ROWS_MISSING: Final = "rows missing"
ROWS_REPLACED: Final = "rows without an image, replaced by the next ones"
NO_NEGATIVE: Final = "no negative caption"  # in the published file, so that it cannot be scored


def counted(cases: Cases, protocol: Protocol) -> Cases:
    """The cases that a protocol scores."""
    if not protocol.skip:
        return cases

    def scored(piece: Cases) -> Cases:
        rows = members_of(piece.frame["groups"], protocol.skip)[ALL]
        return Cases(piece.frame[rows], piece.root, piece.absent)

    return cases.each(scored)


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
    files = published_files(id)
    weights = _weights(cases) if files else np.zeros(0)  # a case file may be large
    for file, count in files.items():
        begin = f"{file}/" if file else ""
        found = int(weights[cases.ids.str.starts_with(begin).to_numpy()].sum())
        unusable = [one for one in (*cases.absent, *replaced) if f"{one.what}/".startswith(begin)]
        expected = protocol.most_of(count)
        replaced_here = sum(one.cases or 0 for one in unusable if one.reason != NO_NEGATIVE)
        lacking = (expected or 0) - found - replaced_here
        if not found and not unusable:
            yield Absent(file or base_id(id), FILE_MISSING, expected)
        elif lacking > 0:
            yield Absent(file or base_id(id), ROWS_MISSING, lacking)


def _weights(cases: Cases) -> np.ndarray:
    """A case counts once, a gallery as often as it has images."""
    return np.where(gallery_rows(cases), cases.image_counts, 1)


def published_count(id: str, protocol: Protocol) -> int | None:
    """How many cases the whole benchmark has under a protocol; None where that is unknown."""
    try:
        counts = [protocol.most_of(count) for count in published_files(id).values()]
    except NotFoundError:  # of a plug-in that is not installed here
        return None
    known = [count for count in counts if count is not None]
    return sum(known) if counts and len(known) == len(counts) else None


def unexplained(part: Part, protocol: Protocol) -> int:
    """How many cases of the whole benchmark a run has not scored and does not say it lacks."""
    expected = published_count(part.benchmark, protocol)
    if expected is None or not len(part.cases) or any(one.cases is None for one in part.absent):
        return 0
    said = sum(one.cases or 0 for one in part.absent if one.reason != NO_NEGATIVE)
    said += len(part.left_out) + len(part.left_out_images)
    return max(0, expected - int(_weights(counted(part.cases, protocol)).sum()) - said)


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
    parts = [f"{known:,} cases"] if known else []
    parts += [f"{unknown:,} files of unknown size"] if unknown else []
    return " and ".join(parts) or f"in {len(found):,} cases"


def part_size(part: Part, protocol: Protocol, options: dict[str, Any]) -> str:
    """How many cases of the whole benchmark a run has, "731 of 7,511"; empty if it has them all.

    "300 (part)" where the whole has an unknown number, and of galleries, which count queries.
    """
    try:
        if not why_incomplete(part, protocol, options):
            return ""
        expected = published_count(part.benchmark, protocol)
    except CounterpointError:  # an id or an option that is unknown here
        return ""
    scored = counted(part.cases, protocol)
    if expected is None or gallery_rows(scored).any() or len(scored) >= expected:
        return f"{len(scored):,} (part)"
    return f"{len(scored):,} of {expected:,}"


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
    scored = int(_weights(counted(part.cases, protocol)).sum())
    expected = published_count(part.benchmark, protocol)
    if expected is not None and scored != expected:
        return f"{scored:,} cases scored, the whole benchmark has {expected:,}"
    limit = options.get("limit")
    if expected is None and isinstance(limit, int) and limit:
        return f"limited to {limit:,} cases"
    return ""
