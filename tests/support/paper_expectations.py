"""What a command of the papers may be expected to have written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from campaigns import answer_all, rightly
from paper_commands import Done, Expected

from counterpoint.runs import load_run
from counterpoint.studio.database import Item, open_database


def equal(found: object, wanted: object) -> None:
    assert found == wanted, f"{found} is not {wanted}"


def scored(cases: Mapping[str, int], models: int = 1, shows: str = "original") -> Expected:
    """A run for each model, with so many cases of each benchmark and scores of all of them.

    The table shows this metric.
    """

    def check(done: Done) -> None:
        assert shows in done.out, f"{shows} is not shown"
        assert len(done.runs) == models, done.runs
        for folder in done.runs:
            parts = load_run(folder).parts
            equal({name: len(part.cases) for name, part in parts.items()}, dict(cases))
            for part in parts.values():
                assert np.isfinite(part.scores).all() and np.ptp(part.scores) > 0

    return check


def says(*texts: str) -> Expected:
    """It prints these."""

    def check(done: Done) -> None:
        printed = " ".join(done.out.split())
        equal([text for text in texts if text not in printed], [])

    return check


def page(name: str, *texts: str) -> Expected:
    """A page with these texts."""

    def check(_: Done) -> None:
        written = Path(name).read_text(encoding="utf-8")
        equal([text for text in texts if text not in written], [])

    return check


def table(name: str, least: int, fits: Callable[[dict[str, Any]], object]) -> Expected:
    """A Parquet file with at least so many rows, all of which fit."""

    def check(_: Done) -> None:
        rows = pl.read_parquet(name).to_dicts()
        assert len(rows) >= least, f"{len(rows)} rows"
        equal([row for row in rows if not fits(row)], [])

    return check


def trained(recipe: str, *terms: str, **data: object) -> Expected:
    """A finished model of this recipe and data: its loss has these terms, its weights moved."""

    def check(_: Done) -> None:
        written = max(Path().rglob("recipe.json"), key=lambda file: file.stat().st_mtime_ns)
        done = json.loads(written.read_text())
        equal((done["name"], {key: done["data"][key] for key in data}), (recipe, data))
        lines = map(json.loads, (written.parent / "log.jsonl").read_text().splitlines())
        steps = [line for line in lines if line["event"] == "step"]
        equal([set(step["terms"]) for step in steps], [set(terms)] * 2)
        assert np.isfinite([step["loss"] for step in steps]).all(), steps
        assert min(step["grad_norm"] for step in steps) > 0, steps
        assert (written.parent / "model/open_clip_model.safetensors").is_file(), written

    return check


def swept(folder: str, cells: int, metric: str) -> Expected:
    """So many cells, each with a value of the validation's metric, and one is the best."""

    def check(_: Done) -> None:
        found = json.loads((Path(folder) / "sweep.json").read_text())["cells"]
        assert len({str(cell["values"]) for cell in found}) == cells, found
        for cell in found:
            assert cell["best"]["metric"] == metric and 0 <= cell["best"]["value"] <= 1, cell
        equal(sum(cell["is_best"] for cell in found), 1)

    return check


def page_of_studio(*texts: str) -> Expected:
    """The studio's first page has these texts."""
    return says("<html", *texts)


def sweep_of(models: int, cases: Mapping[str, int]) -> Expected:
    """So many models on these benchmarks, whose scores differ from model to model."""

    def check(done: Done) -> None:
        found = [load_run(folder) for folder in done.runs]
        equal(len({run.model for run in found}), models)
        for run in found:
            equal({name: len(part.cases) for name, part in run.parts.items()}, dict(cases))
        first = next(iter(cases))
        equal(len({run.parts[first].scores.tobytes() for run in found}), models)

    return check


def columns(name: str, *wanted: str) -> Expected:
    """A CSV with rows, and these columns."""

    def check(_: Done) -> None:
        found = pl.read_csv(name)
        assert found.height and set(wanted) <= set(found.columns), found

    return check


def _rightly(person: int, item: Item) -> str:
    """The known answer, or the first option where none is known."""
    known = rightly(person, item)
    return "0" if known == "none" else known


def asked(campaign: str, items: int | None = None) -> Expected:
    """A campaign of so many items, or of any, which its annotators then answer."""

    def check(done: Done) -> None:
        [count] = re.findall(rf"{campaign}: (\d+) items", done.out)
        assert int(count) and items in (None, int(count)), f"{count} items"
        database = open_database("studio.db")
        answer_all(database, _rightly, campaign)
        database.close()

    return check


def answered(cases: Mapping[str, int]) -> Expected:
    """Agreement of the annotators, and their run."""

    def check(done: Done) -> None:
        assert "kappa" in done.out, "no agreement"
        run = done.run()
        equal((run.model, {n: len(part.cases) for n, part in run.parts.items()}), ("human", cases))

    return check
