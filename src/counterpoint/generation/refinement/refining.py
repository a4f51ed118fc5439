"""Refine a pairs file: score, select, balance, write, and report.

Against blind models that are fitted to the pairs themselves, balancing goes in rounds. A model is
fitted to the negatives that are left, cross-fitted by image, and its gaps are balanced with those
of the other models. What a model finds afterwards is asked of a fresh one, whose folds no round has
used. Rounds go on until it is at its goal in every group, or nothing more changes.

The report has one row per blind model and group of pairs, before and after.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, Literal

import numpy as np
import polars as pl

from counterpoint._util.errors import DataError, ModelError
from counterpoint._util.progress import Progress
from counterpoint._util.untrusted import shown
from counterpoint.generation.pairs import (
    read_about,
    read_pairs,
    rebased,
    require_parquet,
    write_pairs,
)
from counterpoint.generation.refinement.negatives import (
    BINS,
    BY,
    SIDES,
    ZERO_BINS,
    Negatives,
    Scale,
    balanced,
    is_probability,
    kept_pairs,
    scaled,
    sentences,
    top,
    unique,
)
from counterpoint.generation.refinement.scores import (
    BlindModel,
    FittedScores,
    parse_blind_model,
    read_scores,
    scores_of,
)
from counterpoint.metrics import ALL
from counterpoint.models import LoadOptions
from counterpoint.models.blind import FITTED
from counterpoint.scoring import Work

TARGET: Final = 0.5
WITHIN: Final = 0.01  # of the target: reached
GOAL: Final = 0.55  # of models that are fitted to the pairs
ROUNDS: Final = 20
FEWEST: Final = 0.1  # of a group's pairs: if fewer are left, the group cannot be balanced
_WORDS: Final = 2  # that are named as giving a group away
_TELLING: Final = 0.1  # of the pairs at least
Use = Literal["balanced", "selected", "watched"]


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
    goal: float = GOAL  # the most that a fresh fit of a fitted model may find, in every group


@dataclass(frozen=True, slots=True)
class Round:
    """What models that were fitted anew say of the negatives that were left by then."""

    pairs: int
    accuracy: dict[str, float | None]  # by model, over all groups
    above: tuple[str, ...]  # the groups in which one of them is above the goal


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
    whole = read_pairs(pairs, rejected=True)
    checked = whole.filter(pl.col("refused") == "")
    rejected = len(whole) - len(checked)
    del whole
    negatives = Negatives.of(checked, settings.by, settings.seed)
    scores, fitted = {}, {}
    for one in wanted:
        if one.fitted:
            fitted[one.name] = FittedScores(one.id, negatives)
        else:
            both = scores_of(one, negatives.pairs, brought, options or LoadOptions(), work)
            scores[one.name] = _finite(both, one.name, pairs)
    gaps = {name: both[:, 0].astype(float) - both[:, 1] for name, both in scores.items()}
    selected, selecting = _selected(negatives, scores, settings)
    clean = selected
    if settings.sentences:
        clean = clean & sentences(negatives.pairs)
    if settings.unique:
        clean = unique(negatives.pairs["text"], checked["caption"], clean, negatives.keys)
    balance = _balanced(negatives, gaps, scores, fitted, clean, settings, work.progress)
    kept, after = balance.kept, balance.gaps
    everything = np.ones(len(negatives), dtype=bool)
    for name, model in fitted.items():
        gaps[name] = model.gaps(everything, settings.seed)
        if name not in after:
            after[name] = model.gaps(kept, settings.seed)
    uses: dict[str, Use] = {
        one.name: "balanced"
        if one.name in balance.scales
        else "selected"
        if one.name in selecting
        else "watched"
        for one in wanted
    }
    ordered = {name: gaps[name] for name in uses}
    refined = Refined(
        before=len(negatives),
        selected=int(selected.sum()),
        after=int(kept.sum()),
        positives=len(checked) - len(negatives),
        refused=rejected,
        scales=balance.scales,
        rows=rows(ordered, uses, negatives, kept, after, settings.goal),
        cleaned=int(selected.sum() - clean.sum()),
        rounds=balance.rounds,
        stuck=stuck_groups(negatives, balance) if balance.scales else {},
    )
    ids = {one.name: one.id for one in wanted}
    record = {"settings": asdict(settings), "models": ids, **asdict(refined)}
    about["refined"] = [*about.get("refined", []), record]
    frames = (rebased(frame, pairs, out) for frame in kept_pairs(checked, kept, scores))
    write_pairs(out, frames, about)
    return refined


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


def _finite(scores: np.ndarray, name: str, path: Path) -> np.ndarray:
    """The scores in the precision of the file. Raises if some are missing."""
    with np.errstate(over="ignore"):  # an error below
        rounded = scores.astype(np.float32)
    bad = int((~np.isfinite(rounded)).any(axis=1).sum())
    if bad:
        raise DataError(
            "E-SCORE-MISSING",
            f"{path}: {bad:,} of {len(scores):,} negatives have no finite score {name!r} for the "
            "caption or the text; score them, or do not use these scores.",
        )
    return rounded


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


# --- balancing -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Balanced:
    """Which negatives are kept, and how each balanced model's gaps were scaled.

    With fitted models, also what each round found, and their gaps in the last, fresh fit.
    """

    kept: np.ndarray
    scales: dict[str, str] = field(default_factory=dict)
    rounds: list[Round] = field(default_factory=list)
    gaps: dict[str, np.ndarray] = field(default_factory=dict)


def _balanced(
    negatives: Negatives,
    gaps: Mapping[str, np.ndarray],
    scores: Mapping[str, np.ndarray],
    fitted: Mapping[str, FittedScores],
    selected: np.ndarray,
    settings: RefineSettings,
    progress: Progress,
) -> Balanced:
    names = list(dict.fromkeys(parse_blind_model(spec).name for spec in settings.blind))
    if not settings.balance or not names:
        return Balanced(selected)
    columns, scales = [], {}
    for name in names:
        scales[name] = str(settings.scale)
        if name in fitted:
            continue
        column = np.zeros(len(selected))
        column[selected] = gaps[name][selected]
        if is_probability(scores[name]):
            scales[name] = "probability"
        else:
            column[selected] = scaled(column[selected], negatives.groups[selected], settings.scale)
        columns.append(column)
    static = np.column_stack(columns) if columns else np.zeros((len(selected), 0))
    if not fitted.keys() & scales.keys():
        kept = selected.copy()
        kept[kept] = _stay(static[kept], negatives, kept, settings)
        return Balanced(kept, scales)
    models = {name: model for name, model in fitted.items() if name in scales}
    in_rounds = refine_in_rounds(models, static, selected, negatives, settings, progress)
    return Balanced(in_rounds[0], scales, *in_rounds[1:])


def refine_in_rounds(
    models: Mapping[str, FittedScores],
    static: np.ndarray,
    candidates: np.ndarray,
    negatives: Negatives,
    settings: RefineSettings,
    progress: Progress,
) -> tuple[np.ndarray, list[Round], dict[str, np.ndarray]]:
    """Which candidates are kept, what each round found, and the gaps of the last, fresh fit.

    `static` has the scaled gaps (n, D) of the models that are not fitted. Where every fitted model
    is at its goal, the first round balances these alone, and later rounds leave the group as it is.
    """
    kept, rounds = candidates.copy(), []
    advance = progress.start("rounds", ROUNDS + 1)
    for number in range(ROUNDS + 1):
        gaps = {name: model.gaps(kept, settings.seed + number) for name, model in models.items()}
        groups = negatives.groups[kept]
        above = _above(gaps, kept, groups, len(negatives.names), settings.goal)
        rounds.append(
            Round(
                int(kept.sum()),
                {name: accuracy(mine[kept]) for name, mine in gaps.items()},
                tuple(name for name, high in zip(negatives.names, above, strict=True) if high),
            )
        )
        advance(1)
        if number == ROUNDS:
            break
        columns = [
            np.where(above[groups], scaled(mine[kept], groups, settings.scale), 0)
            for mine in gaps.values()
        ]
        stay = _stay(np.column_stack([static[kept], *columns]), negatives, kept, settings)
        if number:
            stay |= ~above[groups]
        if stay.all():
            break
        kept[kept] = stay
    advance(ROUNDS + 1 - len(rounds))
    return kept, rounds, gaps


def _stay(
    gaps: np.ndarray, negatives: Negatives, kept: np.ndarray, settings: RefineSettings
) -> np.ndarray:
    """Which of the kept negatives are left when their scaled gaps are balanced."""
    keys, groups = negatives.keys[kept], negatives.groups[kept]
    return balanced(gaps, keys, groups, bins=settings.bins, zero_bins=settings.zero_bins)


def _above(
    gaps: Mapping[str, np.ndarray], kept: np.ndarray, groups: np.ndarray, count: int, goal: float
) -> np.ndarray:
    """Which groups have a model above the goal."""
    above = np.zeros(count, dtype=bool)
    sizes = np.bincount(groups, minlength=count)
    for mine in gaps.values():
        right = np.bincount(groups, np.sign(mine[kept]) / 2 + 0.5, minlength=count)
        above |= right > goal * sizes + 1e-9
    return above


# --- the report ----------------------------------------------------------------------------------


def accuracy(gaps: np.ndarray) -> float | None:
    """The share of gaps above 0, with half of those that are 0."""
    return float((np.sign(gaps) / 2 + 0.5).mean()) if len(gaps) else None


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


def stuck_groups(negatives: Negatives, balance: Balanced) -> dict[str, str]:
    """The groups that refinement cannot balance, each with a sentence that says why."""
    before = np.bincount(negatives.groups, minlength=len(negatives.names))
    after = np.bincount(negatives.groups[balance.kept], minlength=len(negatives.names))
    above = balance.rounds[-1].above if balance.rounds else ()
    reasons = {}
    for number, name in enumerate(negatives.names):
        few = after[number] < FEWEST * before[number]
        if few or name in above:
            left = f"{after[number]:,} of {before[number]:,} pairs are left"
            what = left if few else f"{left}, and a fresh fit is still above the goal"
            words = _telling(negatives.pairs.filter(negatives.groups == number))
            reasons[name] = f"{what}; refinement cannot balance this group{words}."
    return reasons


def _telling(pairs: pl.DataFrame) -> str:
    """The words that the fewest captions and the most texts have, or the other way round."""
    counts = [
        Counter(word for text in pairs[side] for word in set(re.findall(r"[\w']+", text.lower())))
        for side in SIDES
    ]
    total = len(pairs)
    words = sorted(
        counts[0].keys() | counts[1].keys(), key=lambda w: (-abs(counts[1][w] - counts[0][w]), w)
    )
    named = [
        f"{shown(word)} is in {counts[1][word] / total:.0%} of its texts and "
        f"{counts[0][word] / total:.0%} of its captions"
        for word in words[:_WORDS]
        if abs(counts[1][word] - counts[0][word]) >= _TELLING * total
    ]
    return f": {', '.join(named)}" if named else ""
