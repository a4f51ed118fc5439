"""The files of a board.

index.html               one sortable table of all models, and augmented accuracy x brittleness
models/NAME.html         one model: its numbers by group, its runs, what papers say of it
benchmarks/NAME.html     one benchmark: the models over the same cases, and published values
numbers.csv              every number, ours and published
runs/NAME/               a copy of each run, and results.json: what `board check` computes again
board.json               what is in the folder
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from counterpoint._util.errors import CounterpointError
from counterpoint._util.progress import Progress, Quiet
from counterpoint._util.writing import refuse_foreign, whole_folder
from counterpoint.benchmarks import find_benchmark
from counterpoint.evaluation import write_results
from counterpoint.metrics import RESAMPLES, heading
from counterpoint.reports.board.data import BoardData, BoardRun, PaperValue, gather_board
from counterpoint.reports.board.tables import (
    Links,
    all_numbers,
    benchmark_tables,
    brittle_figure,
    index_sheet,
    model_sheets,
    paper_sheets,
)
from counterpoint.reports.findings import meanings
from counterpoint.reports.page import environment
from counterpoint.reports.provenance import Fact, Provenance, facts_of, page_facts, told_of
from counterpoint.reports.publishing import names_apart, safe_name
from counterpoint.reports.table import besides
from counterpoint.runs import Run, save_run

_MANIFEST: Final = "board.json"
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class BoardOptions:
    """`called` says what papers call a run's model."""

    title: str = "Compositionality board"
    called: Mapping[str, str] = field(default_factory=dict)
    resamples: int = RESAMPLES
    made: Provenance = field(default_factory=Provenance)
    progress: Progress = field(default_factory=Quiet)


def make_board(runs: Sequence[Run], folder: Path, options: BoardOptions) -> BoardData:
    """Write the site. Without runs it has the published values."""
    refuse_foreign(folder, _MANIFEST, "board")  # before hours of work
    data = gather_board(runs, options.called, options.resamples, options.progress)
    with whole_folder(folder) as draft:
        refuse_foreign(folder, _MANIFEST, "board")  # it is locked now
        _Site(draft, data, options).write()
    return data


class _Site:
    def __init__(self, folder: Path, data: BoardData, options: BoardOptions) -> None:
        self.folder, self.data, self.options = folder, data, options
        labels, papers = list(data.material.runs), data.published_models
        names = [safe_name(label) for label in labels]
        names += [f"published-{safe_name(name)}" for name in papers]
        pages = list(names_apart(names))
        benchmarks = names_apart([safe_name(name) for name in data.benchmarks])
        self.top = Links(
            dict(zip(labels, pages, strict=False)),
            dict(zip(papers, pages[len(labels) :], strict=True)),
            dict(zip(data.benchmarks, benchmarks, strict=True)),
        )
        self.links = replace(self.top, up="../")

    def write(self) -> None:
        for name in ("models", "benchmarks", "runs"):
            (self.folder / name).mkdir()
        work: list[Callable[[], None]] = [partial(self._save, one) for one in self.data.runs]
        work.append(self._index)
        work += [partial(self._model, label) for label in self.top.models]
        work += [partial(self._paper, name) for name in self.top.papers]
        work += [partial(self._benchmark, name) for name in self.top.benchmarks]
        advance = self.options.progress.start("writing pages", len(work))
        for step in work:
            step()
            advance(1)
        (self.folder / "numbers.csv").write_text(all_numbers(self.data), encoding="utf-8")
        about = {
            "format": _FORMAT,
            "counterpoint": version("counterpoint"),
            "runs": {one.name: one.run.model for one in self.data.runs},
            "published": len(self.data.every_value),
        }
        text = json.dumps(about, indent=2, ensure_ascii=False)
        (self.folder / _MANIFEST).write_text(text + "\n", encoding="utf-8")

    def _save(self, one: BoardRun) -> None:
        """A run that can be sent: without the folders of the machine that made it."""
        place = self.folder / "runs" / one.name
        save_run(one.run, place)
        numbers = [
            n
            for several in self.data.same_cases.values()
            for same in several
            for n in same.numbers
            if n.model == one.label and n.benchmark in one.run.parts
        ]
        write_results([replace(n, model=one.run.model) for n in numbers], place)

    # --- pages -----------------------------------------------------------------------------------

    def _page(self, path: str, kind: str, title: str, **values: Any) -> None:
        script, policy = _script()
        text = (
            environment()
            .get_template("board.html")
            .render(
                kind=kind,
                title=title,
                board=self.options.title,
                script=script,
                policy=policy,
                links=self.top if kind == "index" else self.links,
                **values,
            )
        )
        (self.folder / path).write_text(text, encoding="utf-8")

    def _index(self) -> None:
        data, sheet = self.data, index_sheet(self.data, self.top)
        self._page(
            "index.html",
            "index",
            self.options.title,
            sheet=sheet,
            families=list(dict.fromkeys(head.family for head in sheet.heads)),
            figures=[f for f in [brittle_figure(data)] if f],
            meanings=meanings(list(dict.fromkeys(sheet.metrics))),
            apart=any(cell.apart for line in sheet.lines for cell in line.cells),
            ours=len(data.runs),
            values=len(data.every_value),
            benchmarks=[self._benchmark_line(name) for name in data.benchmarks],
            papers=data.published_models,
            page_facts=page_facts(self.options.made),
        )

    def _benchmark_line(self, name: str) -> dict[str, Any]:
        values = self.data.values.get(name, [])
        return {
            "name": name,
            "summary": _known(name).get("what it is", ""),
            "ours": len(self.data.material.benchmarks.get(name, [])),
            "published": len(values),
            "models": len({value.model for value in values}),
        }

    def _model(self, label: str) -> None:
        runs = [one for one in self.data.runs if one.label == label]
        sheets = model_sheets(self.data, label, self.links)
        self._page(
            f"models/{self.top.models[label]}.html",
            "model",
            label,
            sheets=sheets,
            metrics=[metric for sheet in sheets.values() for metric in sheet.metrics],
            apart=any(head.part for sheet in sheets.values() for head in sheet.heads),
            beside=besides(self.data.papers, label),
            runs=[self._run(one) for one in runs],
        )

    def _run(self, one: BoardRun) -> dict[str, Any]:
        folder = self.folder / "runs" / one.name
        return {
            "name": one.name,
            "files": [(f.name, _size(f.stat().st_size)) for f in sorted(folder.iterdir())],
            "facts": facts_of(one.run),
            "notices": [told.text for part in one.run.parts.values() for told in told_of(part)],
        }

    def _paper(self, name: str) -> None:
        values = [value for value in self.data.every_value if value.model == name]
        self._page(
            f"models/{self.top.papers[name]}.html",
            "paper",
            name,
            id=next((v.id for v in values if v.id), ""),
            values=[_line(value, self.links.benchmark(value.benchmark)) for value in values],
            ours=[
                (label, self.links.model(label))
                for label, run in self.data.material.runs.items()
                if run.model in {v.id for v in values} or self._called(label, run) == name
            ],
        )

    def _called(self, label: str, run: Run) -> str:
        given = self.options.called
        return given.get(label, given.get(run.model, ""))

    def _benchmark(self, name: str) -> None:
        same = self.data.same_cases.get(name, [])
        values = self.data.values.get(name, [])
        figure = brittle_figure(self.data, name)
        self._page(
            f"benchmarks/{self.top.benchmarks[name]}.html",
            "benchmark",
            name,
            facts=[Fact(*one) for one in _known(name).items()],
            sections=[(one, benchmark_tables(self.data, one, self.links)) for one in same],
            figures=[figure] if figure else [],
            paper_sheets=paper_sheets(self.data, name, self.links),
            values=[_line(value, self.links.paper(value.model)) for value in values],
        )


def _known(benchmark: str) -> dict[str, str]:
    """What the catalogue of benchmarks says."""
    try:
        found = find_benchmark(benchmark)
    except CounterpointError:
        return {}
    facts = {
        "what it is": found.summary,
        "images x captions": found.shape,
        "paper": found.paper,
        "licence": found.licence,
        "official protocol": found.protocol,
        "note": found.note,
    }
    return {what: text for what, text in facts.items() if text}


def _line(value: PaperValue, link: str) -> dict[str, str]:
    return {**value._asdict(), "metric": heading(value.metric), "link": link, "source": value.cited}


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"


@cache
def _script() -> tuple[str, str]:
    """The script of the pages, and what their policy calls it: nothing else may run."""
    source, _, _ = environment().loader.get_source(environment(), "board.js")  # type: ignore[union-attr]
    digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
    return source, f"'sha256-{digest}'"
