"""`counterpoint generate replace`: REPLACE of the Hard Positives paper, from VL-CheckList."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from counterpoint.cli.console import (
    AsJson,
    DataFolder,
    command,
    counted,
    errors,
    output,
    print_json,
)

if TYPE_CHECKING:
    from counterpoint.generation import ReplaceCounts


def replace(
    out: Annotated[Path, typer.Option("-o", "--out", help="The case file (.parquet).")],
    words: Annotated[
        Path | None,
        typer.Option(
            help="Synonyms of your own: a table (.csv, .tsv, .jsonl, .parquet) with the columns "
            "part (relations/spatial), word and synonym (empty: left out); default: the paper's."
        ),
    ] = None,
    most_common: Annotated[
        int, typer.Option(min=1, help="Words of each part that are looked at, the commonest first.")
    ] = 10,
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """Make REPLACE of the Hard Positives paper from VL-CheckList: a case file of 1 x 3.

    Examples:

    counterpoint generate replace -o replace.parquet --data data

    counterpoint generate replace -o mine.parquet --words synonyms.csv --most-common 20

    Of each part of VL-CheckList's Visual Genome files, the most common words are counted; those
    with a synonym get a positive, and VL-CheckList's own negative stays.
    """
    from counterpoint.data import data_root
    from counterpoint.generation import make_replace, require_parquet, reserved

    require_parquet(out, "cases")
    with reserved(out):
        counts = make_replace(data_root(data), out, words=words, most_common=most_common)
    if as_json:
        words_made = [word._asdict() for word in counts.words]
        print_json([{"words": words_made, "left_out": dict(counts.left_out)}])
    else:
        _show(counts, out)


def _show(counts: ReplaceCounts, out: Path) -> None:
    table = Table(header_style="bold")
    for name in ("part", "word", "rows", "synonym", "cases"):
        table.add_column(name, justify="right" if name in ("rows", "cases") else "left")
    for word in counts.words:
        made = (word.synonym, f"{word.cases:,}") if word.synonym else ("-", "")
        table.add_row(word.part, word.word, f"{word.rows:,}", *made)
    output.print(table)
    total = counted(sum(word.cases for word in counts.words), "case")
    output.print(f"saved {out}: {total}", soft_wrap=True)
    output.print(f"score a model on it: {command(f'eval -m MODEL -b {out}')}", soft_wrap=True)
    for reason, number in counts.left_out.most_common():
        errors.print(f"left out: {number:,} {reason}", style="yellow", soft_wrap=True)
