"""`+hp`: any benchmark with hard positives added, so that rewording is measured on it too.

The positives are in a file keyed by case id: the one named by the option `positives`, or
`positives/NAME.jsonl` (or .csv, .parquet) under the data root, `/` in a name written as `-`, or the
one that is shipped (`shipped/`, made by rules and checked, for benchmarks whose licence allows it).
Columns: case_id, text, and two that may be left out: `caption`, where a case has several true
captions, is the number of the one that is reworded (0 if left out); `doubt` says why a positive may
be false ("narrower": crimson for red). A case may have several positives, or none.

A pairs file of `counterpoint generate positives NAME` can be used too: one positive of each caption
is taken, so that all cases have one shape.

Doubtful positives are used only if the option `doubtful` is 1. A positive that is a negative of its
own case, apart from case, blanks, marks and a/an, is never used. Both are counted and logged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

import polars as pl

from counterpoint._util.errors import DataError
from counterpoint._util.tables import parquet_columns, read_table
from counterpoint.benchmarks.benchmark import WITH_POSITIVES, Benchmark, Options
from counterpoint.cases import Case, Cases, normal

_COLUMNS: Final = {"case_id": pl.String(), "text": pl.String()}
_PAIRS: Final = ("source", "caption", "text", "kind", "refused")  # of a pairs file
_SUFFIXES: Final = (".jsonl", ".parquet", ".csv")
SHIPPED: Final = Path(__file__).with_name("shipped")

_log = logging.getLogger(__name__)


class Positive(NamedTuple):
    """A rewording of a true caption, which is given by its number or as it is written."""

    caption: int | str
    text: str
    doubt: str = ""


# By case id. Of several in a row, best first, one is used.
_Given = dict[str, list[list[Positive]]]


def with_positives(benchmark: Benchmark) -> Benchmark:
    """The benchmark whose cases have the positives of a file."""

    def cases(options: Options) -> Cases:
        path = _file(benchmark.id, options)
        doubtful = bool(options.number("doubtful"))
        plain = benchmark.cases(options)
        extended = add_positives(plain, path, doubtful=doubtful)
        return Cases(extended.frame, extended.root, plain.absent)

    return replace(
        benchmark,
        id=benchmark.id + WITH_POSITIVES,
        summary=f"{benchmark.summary}; with your positives",
        shape=f"{benchmark.shape} + positives",
        cases=cases,
        defaults={**benchmark.defaults, "positives": "", "doubtful": 0},
    )


def _file(benchmark: str, options: Options) -> Path:
    if given := options.text("positives"):
        return Path(given)
    name = benchmark.replace("/", "-")
    stem = options.data / "positives" / name
    files = [stem.with_name(stem.name + ending) for ending in _SUFFIXES]
    found = [path for path in (*files, SHIPPED / f"{name}.parquet") if path.is_file()]
    if not found:
        raise DataError(
            "E-POSITIVES-MISSING",
            f"{benchmark}{WITH_POSITIVES} needs a file of positives, {stem}.jsonl or "
            f"{benchmark}{WITH_POSITIVES}:positives=FILE, with columns case_id and text; "
            f"`counterpoint generate positives {benchmark} -o {stem}.parquet` makes one.",
        )
    return found[0]


def add_positives(cases: Cases, path: Path, *, doubtful: bool = False) -> Cases:
    """The cases with the positives of a file, each behind the true captions of its case."""
    found = accepted_positives(cases, path, doubtful=doubtful)
    rows = (_extended(cases.case(row), found) for row in range(len(cases)))
    return Cases.build(rows, root=cases.root, source=str(path))


def accepted_positives(
    cases: Cases, path: Path, *, doubtful: bool = False
) -> dict[str, list[Positive]]:
    """The positives of a file that can be used, by case id, each with its caption's number."""
    numbers = {id: row for row, id in enumerate(cases.ids.to_list())}
    given = _read(path, set(numbers))
    shipped = path.parent == SHIPPED
    unknown = sorted(set(given) - set(numbers))
    if unknown and not shipped:  # which is of the whole benchmark: you may have a part
        raise DataError(
            "E-CASE-UNKNOWN",
            f"{path}: {len(unknown):,} of {len(given):,} case ids are not in the benchmark, "
            f"the first is {unknown[0]!r}.",
        )
    found: dict[str, list[Positive]] = {}
    negatives = doubts = 0
    for id, of_case in given.items():
        if id not in numbers:
            continue
        sure = [[p for p in choice if doubtful or not p.doubt] for choice in of_case]
        usable = [choice for choice in sure if choice]
        doubts += len(of_case) - len(usable)
        found[id] = list(_accepted(cases.case(numbers[id]), usable, path))
        negatives += len(usable) - len(found[id])
    if negatives:
        said = "%s: %d of its positives left out: a negative of the case has the same words."
        _log.warning(said, path, negatives)
    if doubts and not shipped:
        said = "%s: %d of its positives left out as doubtful; the option doubtful=1 adds them."
        _log.warning(said, path, doubts)
    return found


def _accepted(case: Case, given: list[list[Positive]], path: Path) -> Iterator[Positive]:
    """Of every choice the first that no caption of another truth equals."""
    columns = _columns(case)
    known = [*zip(map(normal, case.captions), columns, strict=True)]
    for choice in given:
        for positive in choice:
            number = _number(case, columns, positive.caption, path)
            words, truth = normal(positive.text), columns[number]
            if all(words != other or truth == its_truth for other, its_truth in known):
                known.append((words, truth))
                yield positive._replace(caption=number)
                break


def _read(path: Path, ids: set[str]) -> _Given:
    if path.suffix == ".parquet" and set(_PAIRS) <= set(parquet_columns(path)):
        return _read_pairs(path, ids)
    table = read_table(path, _COLUMNS)
    optional = {"caption": pl.Int64(), "doubt": pl.String()}
    there = {name: kind for name, kind in optional.items() if name in table.columns}
    table = read_table(path, {**_COLUMNS, **there}).with_columns(
        pl.lit(None, kind).alias(name) for name, kind in optional.items() if name not in there
    )
    found: _Given = {}
    for row, (case_id, text, caption, doubt) in enumerate(
        table.select(*_COLUMNS, *optional).iter_rows(), start=1
    ):
        if case_id is None or not (text or "").strip():
            raise DataError("E-ROW-MALFORMED", f"{path}: row {row} lacks a case_id or a text.")
        found.setdefault(case_id, []).append([Positive(caption or 0, text, doubt or "")])
    return found


def _read_pairs(path: Path, ids: set[str]) -> _Given:
    """A source is a case, or `CASE#0`, `CASE#1` for the images of one that has several.

    Sure positives come before doubtful ones, and then the one with the least digest: taken by
    chance, and always the same.
    """
    table = read_table(path, {name: pl.String() for name in _PAIRS})
    if "doubt" not in table.columns:  # of a file made before there was this column
        table = table.with_columns(doubt=pl.lit(""))
    kept = table.filter(kind="positive", refused="").select("source", "caption", "text", "doubt")
    by_source: dict[str, list[Positive]] = {}
    for source, caption, text, doubt in kept.iter_rows():
        by_source.setdefault(source, []).append(Positive(caption, text, doubt or ""))
    found: _Given = {}
    for source, positives in by_source.items():
        positives.sort(key=lambda positive: (positive.doubt != "", _digest(source, positive.text)))
        case = source if source in ids else source.rpartition("#")[0] or source
        found.setdefault(case, []).append(positives)
    return found


def _digest(source: str, text: str) -> bytes:
    return blake2b(f"{source}\0{text}".encode(), digest_size=8).digest()


def _columns(case: Case) -> list[tuple[bool, ...]]:
    """The truth of each caption: for which images it is true."""
    return [tuple(line[number] for line in case.truth) for number in range(len(case.captions))]


def _extended(case: Case, found: dict[str, list[Positive]]) -> Case:
    new = [(int(positive.caption), positive.text) for positive in found.get(case.id, [])]
    if not new:
        return case
    if case.grades:
        raise DataError(
            "E-POSITIVES-GRADED",
            f"case {case.id!r} is one graded pair, compared with no negative; {WITH_POSITIVES} has "
            "no meaning for its benchmark.",
        )
    if case.questions:
        raise DataError(
            "E-POSITIVES-QUESTIONS",
            f"the captions of case {case.id!r} are answers to questions; {WITH_POSITIVES} has no "
            "meaning for its benchmark.",
        )
    pairs = list(_merged(case.captions, _columns(case), new))
    truth = tuple(zip(*(column for _, column in pairs), strict=True))
    captions = tuple(text for text, _ in pairs)
    return replace(case, captions=captions, truth=truth)


def _number(case: Case, columns: list[tuple[bool, ...]], caption: int | str, path: Path) -> int:
    """Which of a case's captions is meant: by its number, or as it is written."""
    true = [number for number, column in enumerate(columns) if any(column)]
    if isinstance(caption, int):
        found = [caption] if caption in true else []
    else:
        found = [number for number in true if case.captions[number] == caption]
    if not found:
        what = f"number {caption}" if isinstance(caption, int) else repr(caption)
        raise DataError(
            "E-CAPTION-UNKNOWN", f"{path}: case {case.id!r} has no true caption {what}."
        )
    return found[0]


def _merged(captions: Any, columns: Any, new: list[tuple[int, str]]) -> Iterator[tuple[str, Any]]:
    """True captions, then positives, then the others: a line's original stays its first."""
    old = list(zip(captions, columns, strict=True))
    last = max(number for number, column in enumerate(columns) if any(column))
    yield from old[: last + 1]
    yield from ((text, columns[caption]) for caption, text in new)
    yield from old[last + 1 :]
