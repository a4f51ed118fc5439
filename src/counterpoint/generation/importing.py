"""Texts that were made elsewhere, as a pairs file: one JSON string per line, one line per caption.

This is how the authors of the hard positives write what their language model answered
(`hard_positives_ft`): line n is the answer for caption n, and `None` where nothing was asked. Only
the first line of an answer that has words is taken, because the raw answers go on after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, Final

import polars as pl

from counterpoint._util.errors import DataError
from counterpoint._util.progress import Progress, Quiet
from counterpoint._util.untrusted import open_regular, parse_json, shown
from counterpoint.generation.inputs.captions import Captions
from counterpoint.generation.inputs.source import SourceCaption
from counterpoint.generation.making import DraftChecker, TextSettings, readable
from counterpoint.generation.pairs import (
    Pair,
    Type,
    require_parquet,
    reserved,
    tabulate,
    write_pairs,
)
from counterpoint.generation.registry import Draft, Rejection
from counterpoint.generation.run import PIECE, Generated, with_counts

NO_TEXT: Final = "the file has no text"
_NONE: Final = ("", "none", "null")
_LONGEST: Final = 1 << 20  # bytes of a line


def import_texts(
    captions: Captions,
    texts: Path,
    settings: TextSettings,
    out: Path,
    *,
    type: Type,
    subtype: str = "",
    progress: Progress | None = None,
) -> Generated:
    """Write the pairs file `out`. The captions and the lines must be equally many."""
    require_parquet(out)
    counts: Counter[tuple[str, str]] = Counter()
    method = f"imported/{texts.stem}"
    advance = (progress or Quiet()).start("captions", captions.total)
    about = {
        "input": captions.name,
        "fingerprint": captions.fingerprint,
        "root": str(captions.root.absolute()) if captions.root else None,
        "texts": texts.name,
        "methods": [method],
        "seed": settings.seed,
        "checks": settings.checks,
    }
    wordnet = settings.vocabulary().wordnet if settings.checks else None
    total = 0

    def frames() -> Iterator[pl.DataFrame]:
        nonlocal total
        rows = _aligned(captions, texts)
        while piece := list(islice(rows, PIECE)):
            total += len(piece)
            drafts = {source.id: text for source, text in piece}
            pairs: list[Pair] = []
            for source in readable([source for source, _ in piece], counts):
                checker = DraftChecker(source, settings, counts, wordnet)
                text = drafts[source.id]
                draft = Draft(text, type, subtype) if text else Rejection(NO_TEXT)
                pairs += checker.accepted(iter([draft]), method, "1")
            advance(len(piece))
            yield tabulate(pairs)

    with reserved(out):
        written = write_pairs(out, frames(), lambda: with_counts(about, counts))
    return Generated(written, total, counts)


def _aligned(captions: Captions, texts: Path) -> Iterator[tuple[SourceCaption, str]]:
    for source, text in zip_longest(captions, _lines(texts)):
        if source is None or text is None:
            lines = sum(1 for _ in _lines(texts))
            there = sum(1 for _ in captions)
            raise DataError(
                "E-ROWS-UNEQUAL",
                f"{texts}: has {lines:,} lines and {captions.name} {there:,} captions; "
                "line n should be the text of caption n.",
                path=texts,
                lines=lines,
                captions=there,
            )
        yield source, text


def _lines(path: Path) -> Iterator[str]:
    """The text of every line; empty where there is none."""
    try:
        file = open_regular(path)
    except OSError:
        raise DataError("E-FILE-MISSING", f"{path}: no such file.", path=path) from None
    with file:
        number = 0
        while line := file.readline(_LONGEST):
            number += 1
            if line.strip():
                yield _text(parse_json(line, f"{path}: line {number}"), path, number)


def _text(value: Any, path: Path, number: int) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        found = shown(value)
        if isinstance(value, dict):
            found = f"an object with the keys {', '.join(map(shown, value))}"
        raise DataError(
            "E-ROW-MALFORMED",
            f"{path}: line {number}: expected one text in quotation marks, found {found}.",
            path=path,
            row=number,
        )
    lines = (" ".join(line.split()) for line in value.splitlines())
    text = next((line for line in lines if line), "")
    return "" if text.lower() in _NONE else text
