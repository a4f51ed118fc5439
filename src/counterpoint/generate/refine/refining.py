"""Refine a pairs file: score, select, balance, report, write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.errors import DataError
from counterpoint.generate.outputs import refuse_ending
from counterpoint.generate.pairs import read_about, rebased, write_pairs
from counterpoint.generate.refine.adversarial import BINS, ZERO_BINS, balanced
from counterpoint.generate.refine.blind_scores import (
    COLUMN,
    Asked,
    ModelScores,
    Scores,
    asked,
    load_blind,
)
from counterpoint.generate.refine.negatives import (
    BY,
    Negatives,
    changed,
    gather,
    kept_pairs,
    pieces,
)
from counterpoint.generate.refine.report import Row, Use, rows
from counterpoint.generate.refine.scaling import Scale, is_probability, scaled
from counterpoint.generate.refine.score_tables import (
    ColumnScores,
    Tables,
    read_scores,
    table_scores,
)
from counterpoint.generate.refine.selection import top
from counterpoint.models import LoadOptions
from counterpoint.scoring.work import Work


@dataclass(frozen=True, slots=True)
class Settings:
    """What is asked of a refinement. Blind models are named as in `blind_scores`."""

    blind: tuple[str, ...]  # balanced against
    watch: tuple[str, ...] = ()  # only reported
    select: tuple[str, ...] = ()  # used for `top`; else the blind ones
    top: float | None = None
    balance: bool = True
    bins: int = BINS
    zero_bins: int = ZERO_BINS
    scale: Scale = "max"  # of gaps that are not of probabilities
    by: tuple[str, ...] = BY
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Refined:
    """What a refinement did. Counts are of negatives, except for the two last."""

    before: int
    selected: int
    after: int
    positives: int  # passed on as they were
    refused: int  # left out: the checks had refused them
    scales: dict[str, str]  # of each balanced model's gaps: probability, max or rank
    rows: list[Row]


def refine(
    pairs: Path,
    out: Path,
    settings: Settings,
    work: Work,
    *,
    tables: Sequence[Path] = (),
    options: LoadOptions | None = None,
) -> Refined:
    """Write to `out` the negatives of `pairs` that are kept, with their scores, and all positives.

    What models compute is kept in the store: a run that was killed goes on where it was. `tables`
    hold scores for `column:NAME`; a name that is in none of them is one of the file's own.
    """
    refuse_ending(out)
    if out.exists() and pairs.exists() and out.samefile(pairs):
        raise DataError(f"{out} is the file to refine, of which much would be lost; name another.")
    wanted = _wanted(settings)
    about, brought = read_about(pairs), read_scores(tables)
    negatives = gather(pairs, settings.by, settings.seed)
    scores = {}
    for one in wanted:
        source = _source(one, brought, options or LoadOptions(), work, len(negatives))
        scores[one.name] = _scored(pairs, source, len(negatives))
        del source  # a large model makes room for the next
    gaps = {name: found[:, 0].astype(float) - found[:, 1] for name, found in scores.items()}
    selected, selecting = _selected(negatives, scores, settings)
    kept, scales = _balanced(negatives, gaps, scores, selected, settings)
    uses = {one.name: _use(one.name, scales, selecting) for one in wanted}
    found = Refined(
        before=len(negatives),
        selected=int(selected.sum()),
        after=int(kept.sum()),
        positives=negatives.positives,
        refused=negatives.refused,
        scales=scales,
        rows=rows(gaps, uses, negatives.groups, negatives.names, kept),
    )
    about["refined"] = [*about.get("refined", []), record(settings, wanted, found)]
    frames = (rebased(frame, pairs, out) for frame in kept_pairs(pairs, kept, scores))
    write_pairs(out, frames, about)
    return found


def record(settings: Settings, wanted: Sequence[Asked], found: Refined) -> dict[str, Any]:
    """What the file's metadata says of a refinement."""
    ids = {one.name: one.id for one in wanted}
    return {"settings": asdict(settings), "models": ids, **asdict(found)}


def _wanted(settings: Settings) -> list[Asked]:
    """Every model once; no two under one name."""
    specs = (*settings.blind, *settings.select, *settings.watch)
    wanted = list(dict.fromkeys(asked(spec) for spec in specs))
    names = [one.name for one in wanted]
    for one in wanted:
        if names.count(one.name) > 1:
            raise DataError(
                f"two blind models are called {one.name!r}; give one another name: NAME={one.id}."
            )
    return wanted


def _source(wanted: Asked, tables: Tables, options: LoadOptions, work: Work, total: int) -> Scores:
    family, _, column = wanted.id.partition(":")
    if family != COLUMN:
        return ModelScores(wanted.name, load_blind(wanted, options), work, total)
    return table_scores(column, tables) if column in tables else ColumnScores(column)


def _scored(pairs: Path, source: Scores, total: int) -> np.ndarray:
    """Scores (n, 2) of all negatives, as precise as the file will hold them."""
    found = np.full((total, 2), np.nan, dtype=np.float32)
    start = 0
    for piece in pieces(pairs):
        end = start + len(piece)
        if end > total:
            raise changed(pairs)
        with np.errstate(over="ignore"):  # refused below
            found[start:end] = source.of(piece)
        start = end
    if start != total:
        raise changed(pairs)
    bad = int((~np.isfinite(found)).any(axis=1).sum())
    if bad:
        raise DataError(
            f"{pairs}: {bad:,} of {total:,} negatives have no finite score {source.name!r} for the "
            "caption or the text; score them, or leave these scores out."
        )
    return found


def _selected(
    negatives: Negatives, scores: Mapping[str, np.ndarray], settings: Settings
) -> tuple[np.ndarray, list[str]]:
    """Which negatives are among the best, and by whose scores."""
    everything = np.ones(len(negatives), dtype=bool)
    if settings.top is None:
        return everything, []
    names = [asked(spec).name for spec in settings.select or settings.blind]
    values = np.column_stack([scores[name][:, 1] for name in names])
    return top(values, negatives.groups, settings.top), names


def _balanced(
    negatives: Negatives,
    gaps: Mapping[str, np.ndarray],
    scores: Mapping[str, np.ndarray],
    selected: np.ndarray,
    settings: Settings,
) -> tuple[np.ndarray, dict[str, str]]:
    """Which of the selected negatives are kept, and how each balanced model's gaps were scaled."""
    names = list(dict.fromkeys(asked(spec).name for spec in settings.blind))
    if not settings.balance or not names:
        return selected, {}
    groups, columns, scales = negatives.groups[selected], [], {}
    for name in names:
        if is_probability(scores[name]):
            columns.append(gaps[name][selected])
            scales[name] = "probability"
        else:
            columns.append(scaled(gaps[name][selected], groups, settings.scale))
            scales[name] = settings.scale
    kept = selected.copy()
    kept[selected] = balanced(
        np.column_stack(columns),
        negatives.keys[selected],
        groups,
        bins=settings.bins,
        zero_bins=settings.zero_bins,
    )
    return kept, scales


def _use(name: str, balanced_names: Mapping[str, str], selecting: Sequence[str]) -> Use:
    if name in balanced_names:
        return "balanced"
    return "selected" if name in selecting else "watched"
