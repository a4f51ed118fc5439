"""A table of texts as data, and how a terminal and a notebook show it.

A file of its own: lists need it and no numbers (`ls models` imports neither NumPy nor polars).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from rich.table import Table

# Where there is no room, names and amounts are folded, ids, words and numbers stay whole.
_KINDS: Final[Mapping[str, dict[str, Any]]] = {
    "text": {},
    "name": {"overflow": "fold"},
    "id": {"overflow": "fold", "no_wrap": True},
    "word": {"no_wrap": True},
    "number": {"justify": "right", "no_wrap": True},
    "count": {"justify": "right"},
    "amount": {"justify": "right", "overflow": "fold"},
    "verdict": {"max_width": len("depends on ties")},
}


class SheetLine(NamedTuple):
    cells: Sequence[str]
    style: str
    last: bool  # of its section


@dataclass(slots=True)
class Sheet:
    """`columns` have a kind by their heading. An `open` sheet has no frame, a `tight` one no
    margins either."""

    columns: Mapping[str, str]
    title: str = ""
    look: Literal["framed", "open", "tight"] = "framed"
    lines: list[SheetLine] = field(default_factory=list)

    def add(self, *cells: str, style: str = "", last: bool = False) -> None:
        self.lines.append(SheetLine(cells, style, last))

    def __rich__(self) -> Table:
        """For a terminal."""
        from rich import box
        from rich.table import Table

        table = Table(title=self.title or None, title_justify="left", header_style="bold")
        if self.look != "framed":
            table.box = box.SIMPLE_HEAD
        if self.look == "tight":
            table.padding, table.pad_edge = (0, 1, 0, 0), False
        for heading, kind in self.columns.items():
            table.add_column(heading, **_KINDS[kind])
        for line in self.lines:
            table.add_row(*line.cells, style=line.style, end_section=line.last)
        return table

    def html(self) -> str:
        """For a notebook. Names and captions are escaped."""
        title = f"<caption>{escape(self.title)}</caption>" if self.title else ""
        names = "".join(f"<th>{escape(heading)}</th>" for heading in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line.cells) + "</tr>"
            for line in self.lines
        )
        return f"<table>{title}<thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"
