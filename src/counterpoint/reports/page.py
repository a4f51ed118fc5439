"""The page: one self-contained HTML file of some runs, or of two side by side."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

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
from counterpoint.reports.data import ReportData, Shared, gather, shared
from counterpoint.reports.examples import BUDGET, COUNT, Album, examples
from counterpoint.reports.figures.curves import line
from counterpoint.reports.figures.drawing import Drawn, Made, Omitted
from counterpoint.reports.figures.intervals import difference_rows, drop, forest, gaps
from counterpoint.reports.figures.scatter import brittle, radar, tradeoff
from counterpoint.reports.figures.scores import densities, samples
from counterpoint.reports.figures.shuffles import shuffles
from counterpoint.reports.findings import findings, meanings
from counterpoint.reports.formats import (
    as_csv,
    as_latex,
    as_markdown,
    csv_text,
    sheet_parts,
    ties_notes,
)
from counterpoint.reports.papers import beside_papers
from counterpoint.reports.provenance import Notice, Provenance, notices, page_facts, run_facts
from counterpoint.reports.ranking import RankedRow, is_main, numbers_of
from counterpoint.reports.table import Tables, besides, sides as sides_of, tables
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
    return _numbers(shared(_baselines_last(runs)), options or ReportOptions())[1]


def report_page(runs: Sequence[Run], options: ReportOptions) -> str:
    """The HTML of a report."""
    material, made = _numbers(shared(_baselines_last(runs)), options)
    return _render(material, made, options, options.title or _title(material))


def report_text(runs: Sequence[Run], ending: str, options: ReportOptions) -> str:
    """A report in the format of a file's ending: .html, .md, .tex or .csv."""
    write = {".md": as_markdown, ".tex": as_latex, ".csv": as_csv}
    if ending == ".html":
        return report_page(runs, options)
    if ending not in write:
        raise RunError(
            "E-OUTPUT-ENDING",
            f"a report ends in .html, {', '.join(write)}, not in {ending!r}.",
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
    one, two = material.labels
    title = options.title or f"{one} and {two}"
    return _render(material, made, options, title, both.differences(found))


def _numbers(given: Shared, options: ReportOptions) -> tuple[ReportData, Tables]:
    material = gather(given.runs, options.protocol, options.progress)
    numbers = numbers_of(
        material,
        (lambda metric: True) if options.all_metrics else is_main,
        resamples=options.resamples,
        progress=options.progress,
    )
    called = {given.models.get(name, name): theirs for name, theirs in options.called.items()}
    papers = beside_papers(material, numbers, called, options.progress)
    return material, tables(material, numbers, papers)


def _baselines_last(runs: Sequence[Run]) -> list[Run]:
    return sorted(runs, key=lambda run: is_baseline(run.model))


def _title(material: ReportData) -> str:
    runs, benchmarks = len(material.runs), len(material.benchmarks)
    models = "1 model" if runs == 1 else f"{runs} models"
    return f"{models} on {'1 benchmark' if benchmarks == 1 else f'{benchmarks} benchmarks'}"


def _render(
    material: ReportData,
    made: Tables,
    options: ReportOptions,
    title: str,
    found: Sequence[Difference] | None = None,
) -> str:
    from counterpoint.reports.case_outcomes import opposed

    album = Album(options.image_bytes)
    drawn, omitted = figures(material, made.numbers, album, options.progress)
    names = material.labels
    shown = examples(
        material,
        album,
        count=options.examples,
        chooser=None
        if found is None
        else lambda outcomes, count: opposed(outcomes, (names[0], names[1]), count),
        progress=options.progress,
    )
    sides: list[Any] = []
    rows = difference_rows(found or ())
    if found is not None:
        sides = sides_of(found, every=options.all_metrics)
        drawn = [*gaps(found, (names[0], names[1])), *drawn]
    return (
        environment()
        .get_template("report.html")
        .render(
            title=title,
            material=material,
            notices=[*notices(material), *_picture_notices(album)],
            findings=findings(material, made.numbers, found),
            meanings=meanings(made.metrics),
            part_notes=sheet_parts(made.whole),
            ties_notes=ties_notes(made.whole),
            ties_mark=TIES_MARK,
            ties_meaning=TIES_NOTE,
            tables=made,
            table_csv=as_csv(made),
            beside=besides(made.papers),
            sides=sides,
            differences_note="" if found is None else differences_note(found),
            sides_csv=csv_text(list(rows[0]), rows) if rows else "",
            figures=drawn,
            omitted=omitted,
            examples=shown,
            page_facts=page_facts(options.made),
            run_facts=run_facts(material),
        )
    )


def figures(
    material: ReportData,
    numbers: Sequence[RankedRow],
    album: Album,
    progress: Progress | None = None,
) -> tuple[list[Drawn], list[Omitted]]:
    """All figures that the runs allow, and the reasons why the others are missing."""
    advance = (progress or Quiet()).start("drawing figures", len(_MAKERS) + 1)
    made: list[Made] = []
    for maker in _MAKERS:
        made += maker(material, numbers)
        advance(1)
    made += samples(material, album)
    advance(1)
    drawn = [figure for figure in made if isinstance(figure, Drawn)]
    return drawn, [figure for figure in made if isinstance(figure, Omitted)]


_MAKERS: Final[tuple[Callable[[ReportData, Sequence[RankedRow]], list[Made]], ...]] = (
    drop,
    brittle,
    forest,
    radar,
    densities,
    line,
    tradeoff,
    shuffles,
)


def _picture_notices(album: Album) -> list[Notice]:
    found = []
    if album.lost:
        found.append(f"Images of examples that could not be read: {album.lost:,}; each says why.")
    if album.full:
        found.append(f"Images of examples left out to keep the page small: {album.full:,}.")
    return [Notice(text) for text in found]


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
        "part_mark": PART_MARK,
        "part_meaning": PART_NOTE,
    }
    made.filters["csv_uri"] = csv_uri
    made.filters["file_name"] = slug
    return made


def csv_uri(text: str) -> str:
    """A CSV file as an address: the page holds it, a click saves it."""
    return f"data:text/csv;charset=utf-8;base64,{base64.b64encode(text.encode()).decode()}"
