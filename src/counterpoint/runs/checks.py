"""What makes a run folder malformed although its files are those that it describes.

Runs are sent from one person to another and are not trusted: every field must have the type that
the rest of the program expects, and counts must agree with the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, get_args

import polars as pl

from counterpoint._util.errors import CaseError, RunError
from counterpoint._util.untrusted import shortened, shown
from counterpoint.cases import (
    CAPTION_FORMATS,
    EMPTY_CAPTION,
    Cases,
    columns_in,
    refuse_malformed,
    refuse_repeated_ids,
)
from counterpoint.metrics import AVERAGES, Overlong, Tie
from counterpoint.runs.part import TrainedOn

# A shape is a type, a tuple of values, a list of one shape, or an object: shapes by name ("?" marks
# a field that may be missing), and under `...` the shape of fields of any other name.
_ANYTHING: Final = {...: object}
_REASONS: Final = [{"case_id": str, "reason": str}]
_PROTOCOL: Final = {
    "name": str,
    "summary": str,
    "tie": get_args(Tie),
    "average": tuple(AVERAGES),
    "averages": [tuple(AVERAGES)],
    "caption_format": tuple(CAPTION_FORMATS),
    "exclude": [str],
    "?skip": [str],  # not in the first runs
    "min_count": int,
    "overlong": get_args(Overlong),
}
_BENCHMARK: Final = {
    "protocol": _PROTOCOL,
    "cases": int,
    "scored": int,
    "pairs": int,
    "cut_captions": int,
    "left_out": _REASONS,
    "?lost_images": _REASONS,  # not in the first runs
    "?absent": [{"what": str, "reason": str, "cases": int | None}],  # not in the first runs
    "?trained_on": dict.fromkeys(TrainedOn._fields, int),
    "?whole": int | None,  # not in the first runs
    "data_hash": str,
    "root": str | None,
    ...: object,
}
_RUN: Final = {
    "format": int,
    "model": str,
    "files": {...: str},
    "benchmarks": {...: _BENCHMARK},
    "?created": str,
    "?command": [str],
    "?options": _ANYTHING,
    "?fingerprint": str,
    "?model_info": {"?notes": [str], ...: object},
    "?versions": {...: str},
    "?platform": str,
    ...: object,
}


def refuse_manifest(manifest: Any, where: object) -> None:
    """Raise a RunError that names the first field that is missing or of another type."""
    wrong = _misfit(manifest, _RUN, "")
    if wrong is not None:
        raise RunError("E-RUN-DAMAGED", f"{where} is damaged ({wrong}); run the evaluation again.")


def _misfit(value: Any, shape: Any, name: str) -> str | None:
    """What does not fit; None if all does."""
    if isinstance(shape, Mapping):
        return _misfit_object(value, shape, name)
    if isinstance(shape, list) and isinstance(value, list):
        found = (_misfit(item, shape[0], f"an item of {name}") for item in value)
        return next((wrong for wrong in found if wrong is not None), None)
    if isinstance(shape, list):
        fits = False
    elif isinstance(shape, tuple):
        fits = isinstance(value, str) and value in shape
    else:
        fits = isinstance(value, shape)
        if isinstance(value, int) and shape is not object:  # a count, which true is not
            fits = fits and type(value) is int and 0 <= value < 2**63
    return None if fits else f"{name or 'it'} is {shown(value)}"


def _misfit_object(value: Any, shape: Mapping[Any, Any], name: str) -> str | None:
    if not isinstance(value, dict):
        return f"{name or 'it'} is {shown(value)}"
    named = {key.removeprefix("?"): key for key in shape if key is not ...}
    missing = [key for key, said in named.items() if key == said and key not in value]
    if missing:
        return f"{missing[0]} is missing" + (f" from {name}" if name else "")
    for key, item in value.items():
        if key not in named and ... not in shape:
            return f"{name} has an unknown field {shown(key)}"
        wrong = _misfit(item, shape[named.get(key, ...)], key if key in named else shown(key))
        if wrong is not None:
            return wrong
    return None


def refuse_table(table: pl.DataFrame, described: Mapping[str, Any], where: object) -> None:
    """Raise unless the table has the columns of a run's cases, and no other benchmarks."""
    expected = pl.Schema({"benchmark": pl.String(), **columns_in(table.columns)})
    if table.schema != expected:
        raise RunError(
            "E-RUN-DAMAGED",
            f"{where}: should have the columns {', '.join(expected)} of their types.",
        )
    if table["benchmark"].null_count() or set(table["benchmark"].unique()) - set(described):
        raise RunError(
            "E-RUN-DAMAGED", f"{where}: has cases of a benchmark that the run does not name."
        )


def refuse_cases(cases: Cases, name: str, about: Mapping[str, Any], path: Path) -> None:
    """Raise unless the cases of a benchmark are well-formed, and as many as the run says."""
    where = f"{path}: {shortened(name)}"
    try:
        # A protocol that rewrites captions may leave nothing of one.
        refuse_malformed(cases.frame, 0, where, allowed=EMPTY_CAPTION)
        refuse_repeated_ids(cases.ids, where)
    except CaseError as error:
        raise RunError("E-RUN-DAMAGED", str(error)) from None
    pairs = int(cases.pair_offsets[-1])
    found = {"scored": len(cases), "cases": len(cases) + len(about["left_out"]), "pairs": pairs}
    for field, count in found.items():
        if about[field] != count:
            raise RunError(
                "E-RUN-DAMAGED",
                f"{where}: the run says {field!r} is {about[field]:,}, its tables have {count:,}.",
            )
