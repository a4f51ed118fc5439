"""Files of scores from elsewhere, for a few cases."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from counterpoint.runs import Run

Rows = list[dict[str, Any]]
IDS = ("007", "7", "a/0", "x")


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("COUNTERPOINT_DATA", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def mine(tmp_path: Path) -> str:
    """A case of one image, and three of two; no image is there."""
    square = [[True, False], [False, True]]
    cases = [
        {"id": "007", "images": ["0.jpg"], "captions": ["a", "b", "c"], "truth": [[1, 1, 0]]},
        *(
            {"id": id, "images": ["1.jpg", "2.jpg"], "captions": ["a", "b"], "truth": square}
            for id in IDS[1:]
        ),
    ]
    (tmp_path / "mine.jsonl").write_text("\n".join(json.dumps(case) for case in cases))
    return "mine.jsonl"


def all_rows(first: float = 0.0) -> Rows:
    """A score for every pair of `mine`, which counts up."""
    shapes = {"007": (1, 3), "7": (2, 2), "a/0": (2, 2), "x": (2, 2)}
    pairs = [(id, i, c) for id, (k, m) in shapes.items() for i in range(k) for c in range(m)]
    return [
        {"case_id": id, "image": i, "caption": c, "score": first + n / 8}
        for n, (id, i, c) in enumerate(pairs)
    ]


def in_csv(found: Rows, separator: str = ",") -> str:
    lines = [separator.join(found[0])]
    lines += [separator.join("" if v is None else str(v) for v in row.values()) for row in found]
    return "\n".join(lines) + "\n"


WRITERS: dict[str, Callable[[Path, Rows], object]] = {
    "csv": lambda path, found: path.write_text(in_csv(found)),
    "tsv": lambda path, found: path.write_text(in_csv(found, "\t")),
    "jsonl": lambda path, found: path.write_text("\n".join(map(json.dumps, found))),
    "parquet": lambda path, found: pl.DataFrame(found).write_parquet(path),
}


def write(found: Rows, ending: str = "csv") -> Path:
    path = Path(f"scores.{ending}")
    WRITERS[ending](path, found)
    return path


def scores_of(run: Run) -> list[float]:
    [part] = run.parts.values()
    return part.scores.tolist()


def changed(number: int, **changes: Any) -> Rows:
    found = all_rows()
    found[number] |= changes
    return found
