"""Refine a pairs file: score, select, balance, write, and report.

The report has one row per blind model and group of pairs, before and after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from counterpoint._util.errors import DataError
from counterpoint.generation.pairs import read_about, rebased, require_parquet, write_pairs
from counterpoint.generation.refinement.negatives import (
    BINS,
    BY,
    ZERO_BINS,
    Negatives,
    Scale,
    balanced,
    changed,
    gather,
    is_probability,
    kept_pairs,
    pieces,
    scaled,
    sentences,
    top,
    unique,
)
from counterpoint.generation.refinement.scores import (
    COLUMN,
    BlindModel,
    ColumnScores,
    ModelScores,
    ScoreSource,
    Tables,
    load_blind,
    parse_blind_model,
    read_scores,
    table_scores,
)
from counterpoint.metrics import ALL
from counterpoint.models import LoadOptions
from counterpoint.scoring import Work

TARGET: Final = 0.5
WITHIN: Final = 0.01  # of the target: reached
Use = Literal["balanced", "selected", "watched"]


@dataclass(frozen=True, slots=True)
class BlindResult:
    """One blind model on one group of negatives, before and after.

    Its accuracy is the share of pairs whose caption scores above the text; a tie counts half, so
    0.5 is chance. None if there are no pairs.
    """

    group: str
    model: str
    use: Use  # what its scores were used for; `watched`: only reported
    before: int
    after: int
    accuracy_before: float | None
    accuracy_after: float | None
    ties_before: int
    ties_after: int
    reached: bool | None  # whether the accuracy after is 50 +- 1 per cent


def accuracy(gaps: np.ndarray) -> float | None:
    """The share of gaps above 0, with half of those that are 0."""
    return float((np.sign(gaps) / 2 + 0.5).mean()) if len(gaps) else None


def rows(
    gaps: Mapping[str, np.ndarray],
    uses: Mapping[str, Use],
    groups: np.ndarray,
    names: Sequence[str],
    kept: np.ndarray,
) -> list[BlindResult]:
    """One row per model on all pairs together, then one row per group and model.

    `groups` are numbers into `names`; `gaps` are each model's, unscaled.
    """
    parts = [(ALL, np.ones(len(kept), dtype=bool))]
    if len(names) > 1:
        parts += [(name, groups == number) for number, name in enumerate(names)]
    return [
        _row(group, model, uses[model], found[part], kept[part])
        for group, part in parts
        for model, found in gaps.items()
    ]


def _row(group: str, model: str, use: Use, gaps: np.ndarray, kept: np.ndarray) -> BlindResult:
    left = gaps[kept]
    after = accuracy(left)
    return BlindResult(
        group=group,
        model=model,
        use=use,
        before=len(gaps),
        after=len(left),
        accuracy_before=accuracy(gaps),
        accuracy_after=after,
        ties_before=int((gaps == 0).sum()),
        ties_after=int((left == 0).sum()),
        reached=None if after is None else abs(after - TARGET) <= WITHIN + 1e-12,
    )


@dataclass(frozen=True, slots=True)
class RefineSettings:
    """How to refine. Blind models are named as in scores.py."""

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
    unique: bool = False  # every text once, and none that is a caption of the file
    sentences: bool = False  # no question, and no text without a final mark


@dataclass(frozen=True, slots=True)
class Refined:
    """What a refinement did. Counts are of negatives, except for the last two."""

    before: int
    selected: int
    after: int
    positives: int  # passed on as they were
    refused: int  # left out: rejected by the checks
    scales: dict[str, str]  # of each balanced model's gaps: probability, max or rank
    rows: list[BlindResult]
    cleaned: int = 0  # negatives that `sentences` and `unique` removed from the selected ones


def refine(
    pairs: Path,
    out: Path,
    settings: RefineSettings,
    work: Work,
    *,
    tables: Sequence[Path] = (),
    options: LoadOptions | None = None,
) -> Refined:
    """Write to `out` the negatives of `pairs` that are kept, with their scores, and all positives.

    Scores of models are kept in the store, so a killed run resumes. `tables` hold scores for
    `column:NAME`; a name that is in none of them is a score of the file itself.
    """
    require_parquet(out)
    if out.exists() and pairs.exists() and out.samefile(pairs):
        raise DataError(
            "E-OUTPUT-IS-INPUT", f"{out} is the file to refine; name another -o.", path=out
        )
    wanted = _wanted(settings)
    about, brought = read_about(pairs), read_scores(tables)
    negatives = gather(pairs, settings.by, settings.seed)
    scores = {}
    for one in wanted:
        source = _source(one, brought, options or LoadOptions(), work, len(negatives))
        scores[one.name] = _scored(pairs, source, len(negatives))
        del source  # free a large model before the next one is loaded
    gaps = {name: found[:, 0].astype(float) - found[:, 1] for name, found in scores.items()}
    selected, selecting = _selected(negatives, scores, settings)
    clean = selected & sentences(pairs) if settings.sentences else selected
    clean = unique(pairs, clean, negatives.keys) if settings.unique else clean
    kept, scales = _balanced(negatives, gaps, scores, clean, settings)
    uses = {one.name: _use(one.name, scales, selecting) for one in wanted}
    found = Refined(
        before=len(negatives),
        selected=int(selected.sum()),
        after=int(kept.sum()),
        positives=negatives.positives,
        refused=negatives.rejected,
        scales=scales,
        rows=rows(gaps, uses, negatives.groups, negatives.names, kept),
        cleaned=int(selected.sum() - clean.sum()),
    )
    about["refined"] = [*about.get("refined", []), record(settings, wanted, found)]
    frames = (rebased(frame, pairs, out) for frame in kept_pairs(pairs, kept, scores))
    write_pairs(out, frames, about)
    return found


def record(
    settings: RefineSettings, wanted: Sequence[BlindModel], found: Refined
) -> dict[str, Any]:
    """The record of a refinement in the file's metadata."""
    ids = {one.name: one.id for one in wanted}
    return {"settings": asdict(settings), "models": ids, **asdict(found)}


def _wanted(settings: RefineSettings) -> list[BlindModel]:
    """Every model once. Two models with one name are an error."""
    specs = (*settings.blind, *settings.select, *settings.watch)
    wanted = list(dict.fromkeys(parse_blind_model(spec) for spec in specs))
    names = [one.name for one in wanted]
    for one in wanted:
        if names.count(one.name) > 1:
            raise DataError(
                "E-NAME-REPEATED",
                f"two blind models are called {one.name!r}; rename one of them: NAME={one.id}.",
                name=one.name,
            )
    return wanted


def _source(
    wanted: BlindModel, tables: Tables, options: LoadOptions, work: Work, total: int
) -> ScoreSource:
    family, _, column = wanted.id.partition(":")
    if family != COLUMN:
        return ModelScores(wanted.name, load_blind(wanted, options), work, total)
    return table_scores(column, tables) if column in tables else ColumnScores(column)


def _scored(pairs: Path, source: ScoreSource, total: int) -> np.ndarray:
    """Scores (n, 2) of all negatives, in the precision of the file."""
    found = np.full((total, 2), np.nan, dtype=np.float32)
    start = 0
    for piece in pieces(pairs):
        end = start + len(piece)
        if end > total:
            raise changed(pairs)
        with np.errstate(over="ignore"):  # an error below
            found[start:end] = source.of(piece)
        start = end
    if start != total:
        raise changed(pairs)
    bad = int((~np.isfinite(found)).any(axis=1).sum())
    if bad:
        raise DataError(
            "E-SCORE-MISSING",
            f"{pairs}: {bad:,} of {total:,} negatives have no finite score {source.name!r} for the "
            "caption or the text; score them, or do not use these scores.",
            path=pairs,
            name=source.name,
            count=bad,
        )
    return found


def _selected(
    negatives: Negatives, scores: Mapping[str, np.ndarray], settings: RefineSettings
) -> tuple[np.ndarray, list[str]]:
    """Which negatives are selected, and by which models."""
    everything = np.ones(len(negatives), dtype=bool)
    if settings.top is None:
        return everything, []
    names = [parse_blind_model(spec).name for spec in settings.select or settings.blind]
    values = np.column_stack([scores[name][:, 1] for name in names])
    return top(values, negatives.groups, settings.top), names


def _balanced(
    negatives: Negatives,
    gaps: Mapping[str, np.ndarray],
    scores: Mapping[str, np.ndarray],
    selected: np.ndarray,
    settings: RefineSettings,
) -> tuple[np.ndarray, dict[str, str]]:
    """Which of the selected negatives are kept, and how each balanced model's gaps were scaled."""
    names = list(dict.fromkeys(parse_blind_model(spec).name for spec in settings.blind))
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
