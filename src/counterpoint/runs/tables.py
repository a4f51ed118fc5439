"""Numbers as tables: for a program (polars, pandas), a terminal (rich) and a notebook (HTML)."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from html import escape
from typing import TYPE_CHECKING, Any, TypeVar, overload

import polars as pl

from counterpoint._util.errors import CounterpointError
from counterpoint.cases import NO_NEGATIVE, SURPLUS, gallery_rows
from counterpoint.metrics import (
    ALL,
    LEVEL,
    METRICS,
    TIES_MARK,
    TIES_NOTE,
    WHOLE,
    depends_on_ties,
    heading,
    in_order,
    interval_text,
    intervals_note,
    p_value,
    ties_matter,
)
from counterpoint.runs.comparison import Difference
from counterpoint.runs.part import Part
from counterpoint.runs.results import Row
from counterpoint.runs.sheets import Sheet

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

T = TypeVar("T")
_WIDTH = 100


class NumberTable(Sequence[T]):
    """Rows of numbers. It is a sequence of rows, and shows itself as tables with notes under them.

    `notes` are what to know before the numbers are read: units, ties, cases that were left out.
    """

    def __init__(
        self,
        rows: Sequence[T],
        sheets: Sequence[Sheet],
        unit: str,
        marked: bool,
        more: Sequence[str],
    ) -> None:
        self.rows, self.sheets = tuple(rows), tuple(sheets)
        ties = [f"{TIES_MARK} {TIES_NOTE}"] if marked else []
        self.notes = [unit, *ties, *more]

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)

    def to_dicts(self) -> list[dict[str, Any]]:
        """One dictionary per row."""
        return [
            {field.name: getattr(row, field.name) for field in fields(row)}  # type: ignore[arg-type]
            for row in self.rows
        ]

    def to_polars(self) -> pl.DataFrame:
        """A polars data frame, one row per number, with every column."""
        return pl.DataFrame(self.to_dicts(), infer_schema_length=None)

    def to_pandas(self) -> pd.DataFrame:
        """The same as a pandas data frame; pandas must be installed."""
        try:
            import pandas as pd
        except ModuleNotFoundError:
            raise CounterpointError(
                "E-EXTRA-MISSING", "to_pandas needs pandas: pip install pandas."
            ) from None
        return pd.DataFrame(self.to_dicts())

    def __rich_console__(self, *_: object) -> Iterator[RenderableType]:
        from rich.text import Text

        yield from self.sheets
        for note in self.notes:
            yield Text(note, style="dim")

    def __repr__(self) -> str:
        from rich.console import Console

        screen = Console(file=io.StringIO(), width=_WIDTH, color_system=None)
        screen.print(self)
        written: str = screen.file.getvalue()  # type: ignore[attr-defined]
        return written.rstrip()

    def _repr_html_(self) -> str:
        """For a notebook. Names and captions are escaped."""
        notes = (f"<p><small>{escape(note)}</small></p>" for note in self.notes)
        return "".join([*(sheet.html() for sheet in self.sheets), *notes])


class Results(NumberTable[Row]):
    """The numbers of some runs: every metric of every benchmark, with its interval."""

    def __init__(
        self,
        rows: Sequence[Row],
        notes: Sequence[str] = (),
        sizes: Mapping[tuple[str, str], str] | None = None,
    ) -> None:
        main = main_rows(rows, groups=True)
        sheets = [
            results_table(
                [row for row in rows if row.benchmark == benchmark], groups=True, sizes=sizes
            )
            for benchmark in dict.fromkeys(row.benchmark for row in rows)
        ]
        unit = intervals_note(row.metric for row in main)
        super().__init__(rows, sheets, unit, any(map(depends_on_ties, main)), notes)


class Comparison(NumberTable[Difference]):
    """Two runs, paired case by case: A - B, its interval, and the verdict."""

    def __init__(
        self, rows: Sequence[Difference], a: str, b: str, notes: Sequence[str] = ()
    ) -> None:
        shown = main_differences(rows, groups=False)
        sheets = difference_sheets(shown, f": A = {a}, B = {b}")
        super().__init__(rows, sheets, differences_note(shown), ties_marked(shown), notes)
        self.a, self.b = a, b


def main_differences(found: Sequence[Difference], *, groups: bool) -> list[Difference]:
    """Those that tables show: of main metrics, of whole benchmarks unless groups are wanted too."""
    return [d for d in found if METRICS[d.metric].main and (groups or d.group in WHOLE)]


def ties_marked(shown: Sequence[Difference]) -> bool:
    """Whether a side of a difference has the mark of ties."""
    return any(ties_matter(ties, d.n, d.reach) for d in shown for ties in (d.ties_a, d.ties_b))


def part_size(part: Part, options: Mapping[str, Any]) -> str:
    """How much of the whole benchmark was scored, "731 of 7,511"; empty if all of it was.

    Of galleries images are counted. "300 (part)" where it is not known how much the whole has.
    `options` are those of the run.
    """
    images = int(part.cases.image_counts[gallery_rows(part.cases)].sum())
    scored, whole, limit = images or len(part.cases), part.whole, options.get("limit")
    lacking = [one for one in part.absent if one.reason != NO_NEGATIVE and one.cases != 0]
    left_out = len(part.left_out) + len(part.left_out_images)
    if not lacking and not left_out and not (limit if whole is None else scored != whole):
        return ""
    if whole is None and not images and not limit:  # as in the first runs
        absent = [one.cases for one in lacking if one.reason != SURPLUS]
        whole = None if None in absent else scored + left_out + sum(filter(None, absent))
    unit = " images" if images else ""
    if whole is None or scored == whole:
        return f"{scored:,}{unit} (part)"
    return f"{scored:,} {'of' if scored < whole else 'instead of'} {whole:,}{unit}"


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def results_table(
    rows: Sequence[Row],
    *,
    groups: bool = False,
    sizes: Mapping[tuple[str, str], str] | None = None,
) -> Sheet:
    """Models by main metrics, one section per benchmark, chance last.

    `sizes` says by model and benchmark how many cases there are, where these are not all.
    """
    shown = main_rows(rows, groups=groups)
    metrics = in_order(row.metric for row in shown)
    intervals = {row: _interval(row) for row in shown}
    # Padded, so that the values of a column stand under each other.
    widths = {
        name: max(len(text) for row, text in intervals.items() if row.metric == name)
        for name in metrics
    }
    sheet = Sheet(
        {
            "benchmark": "name",
            "model": "name",
            "cases": "number",
            **dict.fromkeys(map(heading, metrics), "number"),
        }
    )
    for benchmark, label in dict.fromkeys((row.benchmark, row.group) for row in shown):
        mine = [row for row in shown if (row.benchmark, row.group) == (benchmark, label)]
        title = benchmark if label == ALL else f"  {label}"
        for model in dict.fromkeys(row.model for row in mine):
            cells = {row.metric: row for row in mine if row.model == model}
            size = f"{max(row.n for row in cells.values()):,}"
            if label == ALL and sizes:
                size = sizes.get((model, benchmark), size)
            values = [_cell(cells.get(name), intervals, width) for name, width in widths.items()]
            sheet.add(title, model, size, *values)
            title = ""
        chances = {row.metric: row.chance for row in mine}
        levels = [_level(chances.get(name), width) for name, width in widths.items()]
        sheet.add("", "chance", "", *levels, style="dim", last=True)
    return sheet


def main_rows(rows: Sequence[Row], *, groups: bool) -> list[Row]:
    """The rows of a table: main metrics, of whole benchmarks unless groups are wanted too."""
    return [row for row in rows if METRICS[row.metric].main and (groups or row.group in WHOLE)]


def _interval(row: Row) -> str:
    """The interval, a mark if the value depends on ties, and the deviation over seeds."""
    mark = TIES_MARK if depends_on_ties(row) else ""
    spread = "" if row.sd is None else f" sd {percent(row.sd)}"
    return f"{interval_text(row.value, row.ci_low, row.ci_high, percent)}{mark}{spread}"


def _cell(row: Row | None, intervals: Mapping[Row, str], width: int) -> str:
    return "" if row is None else f"{percent(row.value)} {intervals[row]:<{width}}"


def _level(chance: float | None, width: int) -> str:
    return "" if chance is None else f"{percent(chance)} {'':<{width}}"


def differences_note(found: Sequence[Difference]) -> str:
    """What the columns of differences are: which are corrected, and what a verdict follows from."""
    margin = next((d.margin for d in found if d.margin is not None), None)
    tied = f" tied: the whole interval lies within ±{margin:g} points." if margin else ""
    return (
        f"A - B in points with its {LEVEL:.0%} interval. p is that of a randomisation test over "
        "source images and decides the verdict; of groups it is Holm-corrected over the groups, "
        "and the intervals are not. McNemar's exact test takes cases as independent, is not "
        f"corrected and decides nothing.{tied}"
    )


def difference_sheets(shown: Sequence[Difference], about: str = "") -> list[Sheet]:
    """One table per benchmark or group: narrow enough for any terminal."""
    sheets = []
    for benchmark, label in dict.fromkeys((d.benchmark, d.group) for d in shown):
        mine = [d for d in shown if (d.benchmark, d.group) == (benchmark, label)]
        where = benchmark if label == ALL else f"{benchmark}, {label}"
        sheets.append(differences_table(f"{where} ({mine[0].n:,} cases in both){about}", mine))
    return sheets


def differences_table(title: str, found: Sequence[Difference]) -> Sheet:
    """Two runs on one benchmark or group: one row per metric."""
    p = "p" if all(d.group == ALL for d in found) else "p (Holm)"
    numbers = dict.fromkeys(("A", "B", "A - B", p, "McNemar"), "number")
    sheet = Sheet({"metric": "name", **numbers, "verdict": "word"}, title, "tight")
    for d in found:
        style = {"A is better": "green", "B is better": "magenta"}.get(d.verdict, "")
        sheet.add(
            heading(d.metric),
            _marked(d.a, d.ties_a, d),
            _marked(d.b, d.ties_b, d),
            f"{100 * d.difference:+.1f} [{100 * d.ci_low:+.1f}, {100 * d.ci_high:+.1f}]",
            p_value(d.p_holm),
            "" if d.p_mcnemar is None else p_value(d.p_mcnemar),
            d.verdict,
            style=style,
        )
    return sheet


def _marked(value: float, ties: int, d: Difference) -> str:
    return percent(value) + (TIES_MARK if ties_matter(ties, d.n, d.reach) else " ")
