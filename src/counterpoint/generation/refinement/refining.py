"""Refine a pairs file: score, select, balance, write, and report.

The report has one row per blind model and group of pairs, before and after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from counterpoint._util.errors import DataError, ModelError
from counterpoint._util.progress import Progress
from counterpoint.generation.pairs import read_about, rebased, require_parquet, write_pairs
from counterpoint.generation.refinement.negatives import (
    Negatives,
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
from counterpoint.generation.refinement.rounds import (
    FittedScores,
    RefineSettings,
    Round,
    accuracy,
    refine_in_rounds,
    stuck_groups,
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
from counterpoint.models.blind import FITTED
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
    reached: bool | None  # whether it is 50 +- 1 per cent after; at most the goal, if fitted
    fitted: bool = False  # to the pairs themselves: before to all, after to those that are kept


def rows(
    gaps: Mapping[str, np.ndarray],
    uses: Mapping[str, Use],
    negatives: Negatives,
    kept: np.ndarray,
    after: Mapping[str, np.ndarray],
    goal: float,
) -> list[BlindResult]:
    """One row per model on all pairs together, then one row per group and model.

    `gaps` are each model's, unscaled; `after` those of models that were fitted again.
    """
    parts = [(ALL, np.ones(len(kept), dtype=bool))]
    if len(negatives.names) > 1:
        parts += [(name, negatives.groups == n) for n, name in enumerate(negatives.names)]
    return [
        _row(group, model, uses[model], found[part], after.get(model, found)[part & kept], most)
        for group, part in parts
        for model, found in gaps.items()
        for most in (goal if model in after else None,)
    ]


def _row(
    group: str, model: str, use: Use, gaps: np.ndarray, left: np.ndarray, goal: float | None
) -> BlindResult:
    after, reached = accuracy(left), None
    if after is not None:
        reached = abs(after - TARGET) <= WITHIN + 1e-12 if goal is None else after <= goal + 1e-12
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
        reached=reached,
        fitted=goal is not None,
    )


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
    rounds: list[Round] = field(default_factory=list)  # if models were fitted; the last is fresh
    stuck: dict[str, str] = field(default_factory=dict)  # groups that cannot be balanced, and why


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
        raise DataError("E-OUTPUT-IS-INPUT", f"{out} is the file to refine; name another -o.")
    wanted = _wanted(settings)
    about, brought = read_about(pairs), read_scores(tables)
    negatives = gather(pairs, settings.by, settings.seed)
    scores, fitted = {}, {}
    for one in wanted:
        if one.fitted:
            fitted[one.name] = FittedScores(one.name, one.id, pairs, negatives)
            continue
        source = _source(one, brought, options or LoadOptions(), work, len(negatives))
        scores[one.name] = _scored(pairs, source, len(negatives))
        del source  # free a large model before the next one is loaded
    gaps = {name: found[:, 0].astype(float) - found[:, 1] for name, found in scores.items()}
    selected, selecting = _selected(negatives, scores, settings)
    clean = selected & sentences(pairs) if settings.sentences else selected
    clean = unique(pairs, clean, negatives.keys) if settings.unique else clean
    kept, scales, rounds, after = _balanced(
        negatives, gaps, scores, fitted, clean, settings, work.progress
    )
    everything = np.ones(len(negatives), dtype=bool)
    for name, model in fitted.items():
        gaps[name] = model.gaps(everything, settings.seed)
        if name not in after:
            after[name] = model.gaps(kept, settings.seed)
    uses = {one.name: _use(one.name, scales, selecting) for one in wanted}
    ordered = {name: gaps[name] for name in uses}
    found = Refined(
        before=len(negatives),
        selected=int(selected.sum()),
        after=int(kept.sum()),
        positives=negatives.positives,
        refused=negatives.rejected,
        scales=scales,
        rows=rows(ordered, uses, negatives, kept, after, settings.goal),
        cleaned=int(selected.sum() - clean.sum()),
        rounds=rounds,
        stuck=stuck_groups(pairs, negatives, kept, rounds) if scales else {},
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
    """Every model once. Two models with one name are an error.

    If a fitted model is balanced, those of other families are watched: they were not balanced, and
    show what is left.
    """
    specs = (*settings.blind, *settings.select, *settings.watch)
    wanted = list(dict.fromkeys(parse_blind_model(spec) for spec in specs))
    if settings.balance and any(parse_blind_model(spec).fitted for spec in settings.blind):
        ids = {one.id for one in wanted}
        others = (parse_blind_model(name) for name in FITTED)
        wanted += [one for one in others if one.id not in ids]
    names = [one.name for one in wanted]
    for one in wanted:
        if names.count(one.name) > 1:
            raise DataError(
                "E-NAME-REPEATED",
                f"two blind models are called {one.name!r}; rename one of them: NAME={one.id}.",
            )
    for spec in settings.select or (settings.blind if settings.top is not None else ()):
        alone = spec in settings.select or all(parse_blind_model(s).fitted for s in settings.blind)
        if parse_blind_model(spec).fitted and alone:
            raise ModelError(
                "E-MODEL-UNSUITABLE",
                f"{spec} is fitted to pairs and does not score a text by itself, as --top needs; "
                "select by another model, as in --select length.",
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
        )
    return found


def _selected(
    negatives: Negatives, scores: Mapping[str, np.ndarray], settings: RefineSettings
) -> tuple[np.ndarray, list[str]]:
    """Which negatives are selected, and by which models."""
    everything = np.ones(len(negatives), dtype=bool)
    if settings.top is None:
        return everything, []
    models = [parse_blind_model(spec) for spec in settings.select or settings.blind]
    names = [one.name for one in models if not one.fitted]
    values = np.column_stack([scores[name][:, 1] for name in names])
    return top(values, negatives.groups, settings.top), names


def _balanced(
    negatives: Negatives,
    gaps: Mapping[str, np.ndarray],
    scores: Mapping[str, np.ndarray],
    fitted: Mapping[str, FittedScores],
    selected: np.ndarray,
    settings: RefineSettings,
    progress: Progress,
) -> tuple[np.ndarray, dict[str, str], list[Round], dict[str, np.ndarray]]:
    """Which of the selected negatives are kept, and how each balanced model's gaps were scaled.

    With fitted models, also what each round found, and the gaps of the last one.
    """
    names = list(dict.fromkeys(parse_blind_model(spec).name for spec in settings.blind))
    if not settings.balance or not names:
        return selected, {}, [], {}
    groups, columns, scales = negatives.groups[selected], [], {}
    for name in names:
        if name in fitted:
            scales[name] = str(settings.scale)
        elif is_probability(scores[name]):
            columns.append(gaps[name][selected])
            scales[name] = "probability"
        else:
            columns.append(scaled(gaps[name][selected], groups, settings.scale))
            scales[name] = settings.scale
    static = np.zeros((len(selected), len(columns)))
    static[selected] = np.column_stack(columns) if columns else np.zeros((len(groups), 0))
    mine = [fitted[name] for name in names if name in fitted]
    if mine:
        kept, rounds, after = refine_in_rounds(
            mine, static, selected, negatives, settings, progress
        )
        return kept, scales, rounds, after
    kept = selected.copy()
    kept[selected] = balanced(
        static[selected],
        negatives.keys[selected],
        groups,
        bins=settings.bins,
        zero_bins=settings.zero_bins,
    )
    return kept, scales, [], {}


def _use(name: str, balanced_names: Mapping[str, str], selecting: Sequence[str]) -> Use:
    if name in balanced_names:
        return "balanced"
    return "selected" if name in selecting else "watched"
