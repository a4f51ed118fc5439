"""Pairs written by hand to be hard to judge: the checks must not get worse on them.

Each row of hard_pairs.csv says whether the label of a pair is right, and for which reasons a wrong
one may be refused. The development half was read while the rules were written, the held-out half
was not.
"""

from __future__ import annotations

import csv
from hashlib import blake2b
from pathlib import Path

import pytest

from counterpoint.generation.checks.checking import CheckResult, check, normal

PAIRS = Path(__file__).with_name("hard_pairs.csv")


def rows(half: str = "") -> list[dict[str, str]]:
    with PAIRS.open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if half in ("", row["half"])]


def verdict(row: dict[str, str]) -> CheckResult:
    others = frozenset(normal(other) for other in row["others"].split("|") if other)
    return check(row["caption"], row["text"], row["kind"], row["type"], others=others)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("half", "recall", "precision", "right_reason"),
    [("development", 0.99, 0.99, 0.98), ("held-out", 0.96, 0.95, 0.94)],
)
def test_recall_and_precision(
    half: str, recall: float, precision: float, right_reason: float
) -> None:
    wrong, refused, right = 0, 0, 0
    found = 0
    for row in rows(half):
        fault = verdict(row).rejected
        wrong += row["label"] == "wrong"
        refused += bool(fault)
        if fault and row["label"] == "wrong":
            found += 1
            right += fault.partition(": ")[2] in row["reasons"].split(";")
    assert found / wrong >= recall
    assert found / refused >= precision
    assert right / found >= right_reason


def test_the_halves_are_drawn_by_the_caption() -> None:
    found = rows()
    assert len(found) > 300
    assert sum(row["label"] == "wrong" for row in found) > 150
    for row in found:
        drawn = blake2b(row["caption"].encode(), digest_size=1).digest()[0] % 2
        assert row["half"] == ("held-out" if drawn else "development")
        assert bool(row["reasons"]) == (row["label"] == "wrong")
