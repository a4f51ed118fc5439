"""How quickly the studio finds its way in 100,000 cases, against a scan in plain Python.

    PYTHONPATH=src python bench/browsing.py

Two runs of the same cases are written, and pages are asked of the studio as a browser would. The
naive scan goes over the rows of the run, which is already in memory, one by one. Beside it, what an
FTS5 table of SQLite would take: the studio has none, because it would not pay.
"""

from __future__ import annotations

import argparse
import re
import sqlite3
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from cases import write

LIMIT = 0.1  # seconds for a page of 100,000 cases
QUERIES: dict[str, dict[str, str]] = {
    "first page": {},
    "last page": {"page": "5000"},
    "one outcome": {"outcome": "brittle"},
    "a group and an outcome": {"group": "replace/3", "outcome": "right"},
    "a word of every case": {"q": "striped"},
    "a rare word": {"q": "99999"},
    "a phrase": {"q": '"number 9"'},
    "two models disagree": {"other": "B"},
    "all of it": {"group": "replace/3", "outcome": "right", "q": "cone 77", "other": "B"},
}


def write_runs(root: Path, count: int) -> None:
    from counterpoint.cases.files import read_cases
    from counterpoint.metrics.protocols import PROTOCOLS
    from counterpoint.runs import Part, Run, save_run

    write(root / "cases.parquet", count)
    cases = read_cases(root / "cases.parquet")
    for seed, model in enumerate(("first", "second")):
        scores = np.random.default_rng(seed).random(3 * count, dtype=np.float32)
        part = Part("bench", cases, scores, PROTOCOLS["strict"])
        save_run(Run(model, {"bench": part}, {}), root / "runs" / model)


def timed(action: Callable[[], Any], times: int = 5) -> float:
    """The median of some times, in seconds."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        action()
        found.append(time.perf_counter() - start)
    return sorted(found)[len(found) // 2]


def naive(index: Any, other: Any, query: dict[str, str]) -> list[int]:
    """The rows that pass, by looking at every case in turn."""
    from counterpoint.studio.browse.library import split

    def outcome(of: Any, row: int) -> str:
        original, positive, negative = of.part.scores[3 * row : 3 * row + 3].tolist()
        if original > negative and positive > negative:
            return "right"
        if negative in (original, positive):
            return "tied"
        return "brittle" if original > negative or positive > negative else "wrong"

    found = []
    words = [
        re.compile(rf"\b{re.escape(word)}" if word.isalnum() else re.escape(word))
        for word in split(query.get("q", ""))
    ]
    for row, case in enumerate(index.part.cases.frame.iter_rows(named=True)):
        said = "\n".join(case["captions"]).lower()
        if (
            all(word.search(said) for word in words)
            and query.get("group", "") in ("", *case["groups"])
            and query.get("outcome", "") in ("", outcome(index, row))
            and (
                "other" not in query
                or (outcome(index, row) == "right") != (outcome(other, row) == "right")
            )
        ):
            found.append(row)
    return found


def measure(root: Path, count: int) -> None:
    from counterpoint.studio.browse.library import Library

    library = Library(root / "runs")
    runs = library.runs()
    start = time.perf_counter()
    first, second = (library.index(run, "bench") for run in runs)
    print(f"{count:,} cases, two runs")
    print(f"{'read and indexed, a run':28}{(time.perf_counter() - start) / 2:8.2f} s")
    client = browser(root / "runs")
    client.get("/browse", params={"other": runs[1].key})  # reads both
    print(f"\n{'':28}{'page':>10}{'its filter':>12}{'naive scan':>12}{'ratio':>8}")
    slowest = 0.0
    for name, query in QUERIES.items():
        asked = {**query, **({"other": runs[1].key} if "other" in query else {})}
        page = timed(partial(client.get, "/browse", params=asked))
        quick = timed(partial(filtered, first, second, query))
        slow = timed(partial(naive, first, second, query), 1)
        assert filtered(first, second, query) == naive(first, second, query), name
        slowest = max(slowest, page)
        times = f"{1e3 * page:7.1f} ms{1e3 * quick:9.1f} ms{1e3 * slow:9.0f} ms"
        print(f"{name:28}{times}{slow / page:7.0f}x")
    print(f"{'slowest page':28}{1e3 * slowest:7.1f} ms")
    if count == 100_000:
        print(f"target of {1e3 * LIMIT:.0f} ms: {'met' if slowest < LIMIT else 'MISSED'}")
    compare_full_text(first)


def browser(runs: Path) -> Any:
    """The studio, asked as the admin's browser asks it."""
    from fastapi.testclient import TestClient

    from counterpoint.studio.app import create_app
    from counterpoint.studio.security import Guard

    app = create_app(runs, guard=Guard("token"))
    client = TestClient(app, base_url="http://127.0.0.1")
    client.get("/", params={"token": "token"}).raise_for_status()
    return client


def filtered(index: Any, other: Any, query: dict[str, str]) -> list[int]:
    """The rows that pass, as the studio finds them."""
    from counterpoint.studio.browse.pages import chosen_rows, read_filter, with_outcome

    wanted = read_filter(query)
    rows = chosen_rows(wanted, index, other if "other" in query else None)
    return [int(row) for row in with_outcome(rows, index, wanted.outcome)]


def compare_full_text(index: Any) -> None:
    """What an FTS5 table of the same captions takes."""
    start = time.perf_counter()
    table = sqlite3.connect(":memory:")
    table.execute("create virtual table said using fts5(text, content='')")
    table.executemany(
        "insert into said(rowid, text) values (?, ?)", enumerate(index.text.to_list())
    )
    print(f"\n{'FTS5: build':28}{time.perf_counter() - start:8.2f} s")
    for word in ("striped", "99999"):
        there = timed(partial(_ask, table, word))
        here = timed(partial(index.matching, word))
        print(f"{'FTS5: ' + word:28}{1e3 * there:7.1f} ms  (here {1e3 * here:.1f} ms)")


def _ask(table: sqlite3.Connection, word: str) -> list[Any]:
    question = "select rowid from said where said match ?"
    return table.execute(question, (f'"{word}"',)).fetchall()


def main() -> None:
    parser = argparse.ArgumentParser(description="Milliseconds of pages over many cases")
    parser.add_argument("--cases", type=int, default=100_000)
    count = parser.parse_args().cases
    with tempfile.TemporaryDirectory() as folder:
        write_runs(Path(folder), count)
        measure(Path(folder), count)


if __name__ == "__main__":
    main()
