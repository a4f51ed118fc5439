"""The table as text: CSV with every number, Markdown, and LaTeX (booktabs) for a paper."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from counterpoint.metrics import PART_MARK, TIES_MARK, TIES_NOTE, depends_on_ties, intervals_note
from counterpoint.reports.data import part_notes
from counterpoint.reports.ranking import RankedRow, one_line
from counterpoint.reports.table import ColumnHead, ModelTable, TableCell, Tables

_COLUMNS: Final = (
    *("model", "benchmark", "group", "metric", "value", "ci_low", "ci_high", "n", "part"),
    *("ties", "hangs_on_ties", "chance", "human", "published", "standing", "p", "sd"),
)


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows under a heading; what is not known is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_csv(tables: Tables) -> str:
    """Every number of every group, as fractions, with its chance, human and published values."""
    parts = {place: size for sheet in tables.whole for place, size in sheet.parts.items()}

    def row(number: RankedRow) -> dict[str, Any]:
        human = tables.papers.human.get((number.benchmark, number.group, number.metric))
        beside = tables.papers.main(number)
        return {
            **asdict(number),
            "part": parts.get((number.model, number.benchmark)),
            "hangs_on_ties": "yes" if depends_on_ties(number) else "no",
            "human": None if human is None else human.published,
            "published": None if beside is None else beside.published,
        }

    return csv_text(_COLUMNS, map(row, tables.numbers))


# --- Markdown ----------------------------------------------------------------------------------


def as_markdown(tables: Tables) -> str:
    parts = [_markdown_sheet(sheet) for sheet in tables.whole]
    notes = [f"{mark}: {markdown_text(text)}" for mark, text in tables.footnotes.items()]
    ties = [markdown_text(note) for note in (*sheet_parts(tables.whole), *ties_notes(tables.whole))]
    legend = _legend(tables.metrics, "**bold**", "_italic_")
    return "\n\n".join([*parts, legend, *ties, *notes]) + "\n"


def _markdown_sheet(sheet: ModelTable) -> str:
    over = [head for head in sheet.heads for _ in head.metrics]
    heads = [
        f"{markdown_text(head.title)} {column}{_size(head)}<sup>{head.footnote}</sup>"
        for head, column in zip(over, sheet.columns, strict=True)
    ]
    lines = [["model", *heads], ["---", *("---:" for _ in heads)]]
    for line in sheet.lines:
        lines.append([markdown_text(line.name), *(_markdown_cell(cell) for cell in line.cells)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _markdown_cell(cell: TableCell) -> str:
    marks = {"best": "**", "not separated": "_"}.get(cell.standing, "")
    reach = f" {cell.reach}{TIES_MARK if cell.ties else ''}" if cell.reach else ""
    paper = f" ({cell.published})" if cell.published else ""
    part = PART_MARK if cell.apart else ""
    return f"{marks}{cell.value}{marks}{part}{reach}{paper}" if cell.value else ""


def _size(head: ColumnHead) -> str:
    """How much was counted, where that is not the whole for every row."""
    return f" ({head.cases}{PART_MARK})" if head.part else ""


def markdown_text(text: str) -> str:
    """A name as text: data must not become markup, or a new column."""
    text = one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{c}" if c in "\\`*_[]|#~" else c for c in text)


# --- LaTeX -------------------------------------------------------------------------------------

_LATEX: Final = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    TIES_MARK: r"$^{\dagger}$",
    PART_MARK: r"$^{\ddagger}$",
    "±": r"$\pm$",
    '"': r"\textquotedbl{}",
    **{c: f"\\{c}" for c in "&%$#_{}"},
}


def as_latex(tables: Tables) -> str:
    """A table for each sheet; needs booktabs, and T1 fonts for quotation marks in names."""
    sheets = "\n\n".join(_latex_sheet(sheet, tables.footnotes) for sheet in tables.whole)
    return f"% \\usepackage[T1]{{fontenc}} \\usepackage{{booktabs}}\n{sheets}\n"


def _latex_sheet(sheet: ModelTable, footnotes: dict[str, str]) -> str:
    spans, rules, start = [], [], 2
    for head in sheet.heads:
        width = len(head.metrics)
        title = f"{_latex(head.title + _size(head))}$^{{{head.footnote}}}$"
        spans.append(f"\\multicolumn{{{width}}}{{c}}{{{title}}}")
        rules.append(f"\\cmidrule(lr){{{start}-{start + width - 1}}}")
        start += width
    arrows = (r" $\downarrow$" if lower else "" for lower in sheet.lower)
    names = [f"{_latex(c)}{arrow}" for c, arrow in zip(sheet.columns, arrows, strict=True)]
    lines = []
    for line in sheet.lines:
        if line.kind in ("chance", "published human") and r"\midrule" not in lines:
            lines.append(r"\midrule")
        lines.append(f"{_latex(line.name)} & {' & '.join(map(_latex_cell, line.cells))} \\\\")
    legend = _legend(sheet.metrics, r"\textbf{bold}", r"\underline{underlined}")
    legend = legend.replace("95%", r"95\%").replace("±", r"$\pm$")
    table = [
        r"\begin{table}",
        r"\centering",
        rf"\begin{{tabular}}{{l{'r' * len(sheet.columns)}}}",
        r"\toprule",
        f" & {' & '.join(spans)} \\\\",
        " ".join(rules),
        f"Model & {' & '.join(names)} \\\\",
        r"\midrule",
        *lines,
        r"\bottomrule",
        r"\end{tabular}",
        rf"\caption{{{' '.join([legend, *_latex_notes(sheet, footnotes)])}}}",
        r"\end{table}",
        *(f"% {one_line(note)}" for note in ties_notes([sheet])[1:]),
    ]
    return "\n".join(table)


def _latex_notes(sheet: ModelTable, footnotes: dict[str, str]) -> list[str]:
    used = dict.fromkeys(mark for head in sheet.heads for mark in head.footnote.split(", "))
    protocols = [f"${{}}^{{{mark}}}$ {_latex(footnotes[mark])}." for mark in used]
    notes = [*sheet_parts([sheet]), *ties_notes([sheet])[:1]]  # numbers of ties are comments
    return [*map(_latex, notes), *protocols]


def _latex_cell(cell: TableCell) -> str:
    if not cell.value:
        return "--"
    shown = {"best": r"\textbf{%s}", "not separated": r"\underline{%s}"}.get(cell.standing, "%s")
    reach = rf" {{\scriptsize {_latex(cell.reach)}}}" if cell.reach else ""
    ties = _latex(TIES_MARK) if cell.ties else ""
    paper = rf" {{\scriptsize ({cell.published})}}" if cell.published else ""
    part = _latex(PART_MARK) if cell.apart else ""
    return f"{shown % cell.value}{part}{reach}{ties}{paper}"


def _latex(text: str) -> str:
    return "".join(_LATEX.get(c, c) for c in one_line(text))


def sheet_parts(sheets: Sequence[ModelTable]) -> list[str]:
    """What was counted, where a number of the sheets is not over the whole benchmark."""
    return part_notes({place: said for sheet in sheets for place, said in sheet.parts.items()})


def ties_notes(sheets: Sequence[ModelTable]) -> list[str]:
    """What the mark means, and how many ties there are, if a number of the sheets is marked."""
    marked = [sheet for sheet in sheets if sheet.marked]
    counts: dict[str, list[str]] = {}
    for sheet in marked:
        for model, found in sheet.ties.items():
            counts.setdefault(model, []).append(found)
    notes = [f"Ties of {model}: {'; '.join(found)}." for model, found in counts.items()]
    return [f"{TIES_MARK} {TIES_NOTE}", *notes] if marked else []


def _legend(metrics: Iterable[str], best: str, near: str) -> str:
    return (
        f"{intervals_note(metrics)} The best of a column is {best}; what the test, which holds "
        f"over all models of the column, cannot tell from it is {near}. "
        "Published values are in brackets."
    )
