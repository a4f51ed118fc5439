"""How far annotators agree beyond chance. Pure functions of what each said of each item."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

Judgements = Mapping[int, Mapping[int, Hashable]]  # annotator -> item -> what was said


def cohen(a: Sequence[Hashable], b: Sequence[Hashable]) -> float:
    """Cohen's kappa (1960) of two annotators over the same items, nominal.

    kappa = (p_o - p_e) / (1 - p_e). NaN if there is nothing to agree on: no items, or one
    category in all of them.
    """
    if not a or len(a) != len(b):
        return math.nan
    observed = sum(x == y for x, y in zip(a, b, strict=True)) / len(a)
    left, right = Counter(a), Counter(b)
    expected = sum(left[value] * right[value] for value in left) / len(a) ** 2
    return math.nan if expected == 1 else (observed - expected) / (1 - expected)


def fleiss(counts: np.ndarray) -> float:
    """Fleiss' kappa (1971): a row per item, a column per category, each row the same sum.

    NaN if there are no items, fewer than two annotators to an item, or one category in all.
    """
    if counts.size == 0:
        return math.nan
    totals = counts.sum(axis=1)
    raters = int(totals[0])
    if (totals != raters).any():
        raise ValueError("Fleiss' kappa needs equally many judgements of every item")
    if raters < 2:
        return math.nan
    agreeing = ((counts * (counts - 1)).sum(axis=1) / (raters * (raters - 1))).mean()
    expected = float(((counts.sum(axis=0) / counts.sum()) ** 2).sum())
    return math.nan if expected == 1 else float((agreeing - expected) / (1 - expected))


def fleiss_of(judgements: Judgements, raters: int) -> tuple[float, int]:
    """Fleiss' kappa over the items that exactly `raters` people judged, and how many they are."""
    said = by_item(judgements)
    rows = [values for values in said.values() if len(values) == raters]
    columns = {value: n for n, value in enumerate({v: None for row in rows for v in row})}
    counts = np.zeros((len(rows), len(columns)), dtype=np.int64)
    for number, row in enumerate(rows):
        for value in row:
            counts[number, columns[value]] += 1
    return fleiss(counts), len(rows)


def krippendorff_alpha(judgements: Judgements) -> float:
    """Krippendorff's alpha, nominal; items may be judged by any number of annotators."""
    said = by_item(judgements)
    shared = {item for item, values in said.items() if len(values) > 1}
    values = {value: n for n, value in enumerate({v: None for i in shared for v in said[i]})}
    if len(values) < 2:
        return math.nan
    import krippendorff

    items = sorted(shared)
    table = np.full((len(judgements), len(items)), np.nan)
    for row, own in enumerate(judgements.values()):
        for column, item in enumerate(items):
            if item in own:
                table[row, column] = values[own[item]]
    return float(krippendorff.alpha(table, level_of_measurement="nominal"))


def by_item(judgements: Judgements) -> dict[int, list[Hashable]]:
    """What was said of each item, whoever said it."""
    said: dict[int, list[Hashable]] = {}
    for own in judgements.values():
        for item, value in own.items():
            said.setdefault(item, []).append(value)
    return said


@dataclass(frozen=True, slots=True)
class PairAgreement:
    """Two annotators over the items that both judged."""

    a: int
    b: int
    items: int
    same: float
    kappa: float


def pairwise(judgements: Judgements) -> list[PairAgreement]:
    """Every two annotators who share an item."""
    found = []
    for a, b in combinations(sorted(judgements), 2):
        shared = sorted(judgements[a].keys() & judgements[b].keys())
        if shared:
            left = [judgements[a][item] for item in shared]
            right = [judgements[b][item] for item in shared]
            same = sum(x == y for x, y in zip(left, right, strict=True)) / len(shared)
            found.append(PairAgreement(a, b, len(shared), same, cohen(left, right)))
    return found


def mean_kappa(pairs: Sequence[PairAgreement]) -> float:
    """The plain mean over pairs, as in BiVLC's Table 7; pairs without a kappa are left out."""
    known = [pair.kappa for pair in pairs if not math.isnan(pair.kappa)]
    return sum(known) / len(known) if known else math.nan
