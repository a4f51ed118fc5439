"""The page: one self-contained HTML file of some runs, or of two side by side."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from counterpoint._util.errors import RunError
from counterpoint._util.progress import Progress, Quiet
from counterpoint.evaluation import slug
from counterpoint.metrics import (
    PART_MARK,
    PART_NOTE,
    RESAMPLES,
    TIES_MARK,
    TIES_NOTE,
    Protocol,
    intervals_note,
    is_baseline,
)
from counterpoint.reports.case_outcomes import opposed
from counterpoint.reports.data import ReportData, Shared, gather, shared
from counterpoint.reports.examples import BUDGET, COUNT, Album, examples
from counterpoint.reports.figures.curves import line
from counterpoint.reports.figures.drawing import Drawn, Made, Omitted
from counterpoint.reports.figures.intervals import difference_rows, drop, forest, gaps, shuffles
from counterpoint.reports.figures.scatter import brittle, radar, tradeoff
from counterpoint.reports.figures.scores import densities, samples
from counterpoint.reports.findings import findings, meanings
from counterpoint.reports.formats import (
    as_csv,
    as_latex,
    as_markdown,
    csv_text,
    sheet_parts,
    ties_notes,
)
from counterpoint.reports.provenance import Provenance, facts_of, notices, page_facts
from counterpoint.reports.ranking import RankedRow, beside_papers, numbers_of
from counterpoint.reports.table import Tables, besides, sides, tables
from counterpoint.runs import Run, compare, differences_note

if TYPE_CHECKING:
    from jinja2 import Environment

    from counterpoint.runs import Difference


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """What a report may be told. `called` says what papers call a run's model."""

    protocol: Protocol | None = None
    title: str = ""
    all_metrics: bool = False
    examples: int = COUNT
    image_bytes: int = BUDGET
    resamples: int = RESAMPLES
    called: Mapping[str, str] = field(default_factory=dict)
    made: Provenance = field(default_factory=Provenance)
    progress: Progress = field(default_factory=Quiet)


def report_tables(runs: Sequence[Run], options: ReportOptions | None = None) -> Tables:
    """The table alone, for `formats`."""
    return _numbers(_shared(runs), options or ReportOptions())[1]


def report_page(runs: Sequence[Run], options: ReportOptions) -> str:
    """The HTML of a report."""
    material, made = _numbers(_shared(runs), options)
    several, benchmarks = len(material.runs), len(material.benchmarks)
    title = "1 model" if several == 1 else f"{several} models"
    title += f" on {'1 benchmark' if benchmarks == 1 else f'{benchmarks} benchmarks'}"
    return _render(material, made, options, options.title or title)


def report_text(runs: Sequence[Run], ending: str, options: ReportOptions) -> str:
    """A report in the format of a file's ending: .html, .md, .tex or .csv."""
    write = {".md": as_markdown, ".tex": as_latex, ".csv": as_csv}
    if ending == ".html":
        return report_page(runs, options)
    if ending not in write:
        raise RunError(
            "E-OUTPUT-ENDING", f"a report ends in .html, {', '.join(write)}, not in {ending!r}."
        )
    return write[ending](report_tables(runs, options))


def compare_page(
    a: Run, b: Run, options: ReportOptions, found: Sequence[Difference] | None = None
) -> str:
    """The HTML of two runs side by side: their paired differences, then what a report has.

    `found` is what `compare` says of them, if that is known already.
    """
    if found is None:
        advance = options.progress.start("comparing", 1)
        found = compare(a, b, options.protocol, resamples=options.resamples)
        advance(1)
    both = shared([a, b])
    material, made = _numbers(both, options)
    title = options.title or " and ".join(material.labels)
    return _render(material, made, options, title, both.differences(found))


def _shared(runs: Sequence[Run]) -> Shared:
    return shared(sorted(runs, key=lambda run: is_baseline(run.model)))  # baselines last


def _numbers(given: Shared, options: ReportOptions) -> tuple[ReportData, Tables]:
    material = gather(given.runs, options.protocol, options.progress)
    numbers = numbers_of(
        material,
        every=options.all_metrics,
        resamples=options.resamples,
        progress=options.progress,
    )
    called = {given.models.get(name, name): theirs for name, theirs in options.called.items()}
    papers = beside_papers(material, numbers, called, options.progress)
    return material, tables(material, numbers, papers)


def _render(
    material: ReportData,
    made: Tables,
    options: ReportOptions,
    title: str,
    found: Sequence[Difference] | None = None,
) -> str:
    """`found` are the differences of two runs."""
    album = Album(options.image_bytes)
    drawn, omitted = figures(material, made.numbers, album, options.progress)
    chooser = None
    compared: dict[str, Any] = {"sides": [], "differences_note": "", "sides_csv": ""}
    if found is not None:
        a, b = material.labels
        chooser = partial(opposed, names=(a, b))
        rows = difference_rows(found)
        compared = {
            "sides": sides(found, every=options.all_metrics),
            "differences_note": differences_note(found),
            "sides_csv": csv_text(list(rows[0]) if rows else (), rows),
        }
        drawn = [*gaps(found, (a, b)), *drawn]
    shown = examples(
        material, album, count=options.examples, chooser=chooser, progress=options.progress
    )
    page = environment().get_template("report.html")
    return page.render(
        title=title,
        material=material,
        notices=[*notices(material), *album.notices],
        findings=findings(material, made.numbers, found),
        meanings=meanings(made.metrics),
        part_notes=sheet_parts(made.whole),
        ties_notes=ties_notes(made.whole),
        tables=made,
        table_csv=as_csv(made),
        beside=besides(made.papers),
        figures=drawn,
        omitted=omitted,
        examples=shown,
        page_facts=page_facts(options.made),
        run_facts={label: facts_of(run) for label, run in material.runs.items()},
        **compared,
    )


def figures(
    material: ReportData,
    numbers: Sequence[RankedRow],
    album: Album,
    progress: Progress | None = None,
) -> tuple[list[Drawn], list[Omitted]]:
    """All figures that the runs allow, and the reasons why the others are missing."""
    makers = (drop, brittle, forest, radar, densities, line, tradeoff, shuffles)
    advance = (progress or Quiet()).start("drawing figures", len(makers) + 1)
    made: list[Made] = []
    for maker in makers:
        made += maker(material, numbers)
        advance(1)
    made += samples(material, album)
    advance(1)
    drawn = [figure for figure in made if isinstance(figure, Drawn)]
    return drawn, [figure for figure in made if isinstance(figure, Omitted)]


@cache
def environment() -> Environment:
    """Jinja2 with everything escaped and nothing undefined."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("counterpoint.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {
        "intervals_note": intervals_note,
        "ties_mark": TIES_MARK,
        "ties_meaning": TIES_NOTE,
        "part_mark": PART_MARK,
        "part_meaning": PART_NOTE,
    }
    made.filters["csv_uri"] = csv_uri
    made.filters["file_name"] = slug
    return made


def csv_uri(text: str) -> str:
    """A CSV file as an address: the page holds it, a click saves it."""
    return f"data:text/csv;charset=utf-8;base64,{base64.b64encode(text.encode()).decode()}"
