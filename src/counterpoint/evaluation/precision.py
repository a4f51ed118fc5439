"""What a lower precision changes: the same cases scored in it and in float32."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from counterpoint._util.progress import Progress, Quiet
from counterpoint._util.store import Store, default_store
from counterpoint.cases import Cases, smaller_galleries
from counterpoint.metrics import Protocol
from counterpoint.models import LoadOptions, load_model
from counterpoint.runs import Part, columns_of
from counterpoint.scoring import Work, score

SAMPLE = 500  # cases of each benchmark


@dataclass(frozen=True, slots=True)
class Flips:
    """How many verdicts of a sample another precision changes."""

    model: str
    benchmark: str
    precision: str
    verdicts: int
    flipped: int
    largest: float  # difference of two scores


def check_precision(
    model: str,
    tables: Mapping[str, tuple[Cases, Protocol]],
    options: LoadOptions,
    *,
    batch_size: int = 128,
    store: str | Path | None = None,
    progress: Progress | None = None,
) -> list[Flips]:
    """Score a sample of each table in `options.precision` and in fp32, and compare verdicts.

    A verdict is a metric of a case that is right or wrong.
    """
    tables = {
        name: (smaller_galleries(table.limit(SAMPLE), SAMPLE), protocol)
        for name, (table, protocol) in tables.items()
    }
    if not tables:
        return []
    cases = {name: table for name, (table, _) in tables.items()}
    overlong = {name: protocol.overlong for name, (_, protocol) in tables.items()}
    with Store(Path(store) if store else default_store()) as opened:
        work = Work(opened, batch_size, progress or Quiet())
        low, high = (
            score(load_model(model, replace(options, precision=precision)), cases, overlong, work)
            for precision in (options.precision, "fp32")
        )
    found = []
    for name, (table, protocol) in tables.items():
        kept = np.ones(len(table), dtype=bool)
        kept[[*low[name].left_out, *high[name].left_out]] = False
        pairs = np.repeat(kept, table.image_counts * table.caption_counts)
        one, two = (scored[name].scores[pairs] for scored in (low, high))
        values = [_verdicts(Part(name, table.keep(kept), s, protocol)) for s in (one, two)]
        found.append(
            Flips(
                model,
                name,
                options.precision,
                int(np.isfinite(values[0]).sum()),
                int((np.abs(values[0] - values[1]) > 0).sum()),
                float(np.abs(one - two).max(initial=0)),
            )
        )
    return found


def _verdicts(part: Part) -> np.ndarray:
    """The main metrics of every case, as far as they are shares."""
    if not len(part.cases):
        return np.zeros((0, 0))
    columns = columns_of(part, part.protocol.tie)
    chosen = [m.main and m.unit == "share" for m in columns.metrics]
    return columns.values[:, chosen]
