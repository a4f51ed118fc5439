"""Texts that were made elsewhere, as a pairs file: of a file, or the negatives of a benchmark.

A file has one JSON string per line, one line per caption. This is how the authors of the hard
positives write what their language model answered (`hard_positives_ft`): line n is the answer for
caption n, and `None` where nothing was asked. Only the first line of an answer that has words is
taken, because the raw answers go on after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby, zip_longest
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from counterpoint._util.errors import DataError
from counterpoint._util.progress import Progress, Quiet
from counterpoint._util.untrusted import open_regular, parse_json, shown
from counterpoint.benchmarks import load_benchmark
from counterpoint.cases import PROMPTS
from counterpoint.generation.drafts import Counts, TextSettings, readable
from counterpoint.generation.inputs.captions import Captions, SourceCaption
from counterpoint.generation.pairs import KINDS, SUBTYPES, TYPES, Draft, Kind, Rejection, Type
from counterpoint.generation.run import Generated, Offer, write_offers

NO_TEXT: Final = "the file has no text"
SEVERAL: Final = "a case of several images"
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

    def rows() -> Iterator[ImportRow]:
        for source, text in _aligned(captions, texts):
            draft = Draft(text, type, subtype) if text else Rejection(NO_TEXT)
            yield source, settings.kind, [draft]

    about = {"fingerprint": captions.fingerprint, "texts": texts.name}
    method, place = f"imported/{texts.stem}", (captions.name, captions.root, captions.total)
    return _write(rows(), out, method, place, about, settings, progress)


def import_cases(
    name: str,
    data: Path | None,
    settings: TextSettings,
    out: Path,
    *,
    images: Path | None = None,
    kinds: Sequence[Kind] = KINDS,
    type: Type = "replace",
    subtype: str = "",
    progress: Progress | None = None,
) -> Generated:
    """Write the pairs file `out` of a benchmark's own negatives and positives.

    The caption is the first true one of a case of one image. A group such as `swap/att` says what
    was changed; where it does not, `type` and `subtype` do.
    """
    _, cases = load_benchmark(name, data)

    def rows() -> Iterator[ImportRow]:
        for case in map(cases.case, range(len(cases))):
            label = next(filter(None, map(_label, case.groups)), (type, subtype))
            texts = [text.split(PROMPTS)[0] for text in case.captions]
            true = [text for text, fits in zip(texts, case.truth[0], strict=True) if fits]
            false = [text for text, fits in zip(texts, case.truth[0], strict=True) if not fits]
            image = case.images[0] if case.images[0].text is None else None
            source = SourceCaption(case.id, image, true[0] if true else "")
            if len(case.images) > 1:
                yield source, kinds[0], [Rejection(SEVERAL)]
                continue
            for kind in kinds:
                mine = true[1:] if kind == "positive" else false
                yield source, kind, [Draft(text, *label) for text in mine]

    about = {"fingerprint": cases.content_hash()}
    place = (name, images or cases.root, len(cases))
    return _write(rows(), out, f"imported/{name}", place, about, settings, progress)


def _label(group: str) -> tuple[Type, str] | None:
    """The type and subtype that a group names, as those of SugarCrepe do."""
    name, _, subtype = group.partition("/")
    known = next((type for type in TYPES if type == name), None)
    return (known, subtype) if known and subtype in SUBTYPES else None


ImportRow = tuple[SourceCaption, Kind, Sequence[Draft | Rejection]]


def _write(
    rows: Iterator[ImportRow],
    out: Path,
    method: str,
    place: tuple[str, Path | None, int | None],
    about: dict[str, Any],
    settings: TextSettings,
    progress: Progress | None,
) -> Generated:
    name, root, count = place
    advance = (progress or Quiet()).start("captions", count)
    about = {
        "input": name,
        "root": str(root.absolute()) if root else None,
        "seed": settings.seed,
        "checks": settings.checks,
        "form": settings.form,
        "methods": [method],
        **about,
    }
    counts: Counts = Counter()

    def offers() -> Iterator[Offer]:
        """Captions are counted once each, although a case has texts of two kinds."""
        for source, of_one in groupby(rows, itemgetter(0)):
            advance(1)
            offered = [Offer(*row, method, "1") for row in of_one]
            yield from offered if readable([source], counts) else ()

    return write_offers(offers(), settings, out, about, counts)


def _aligned(captions: Captions, texts: Path) -> Iterator[tuple[SourceCaption, str]]:
    for source, text in zip_longest(captions, _lines(texts)):
        if source is None or text is None:
            lines = sum(1 for _ in _lines(texts))
            there = sum(1 for _ in captions)
            raise DataError(
                "E-ROWS-UNEQUAL",
                f"{texts}: has {lines:,} lines and {captions.name} {there:,} captions; "
                "line n should be the text of caption n.",
            )
        yield source, text


def _lines(path: Path) -> Iterator[str]:
    """The text of every line; empty where there is none."""
    try:
        file = open_regular(path)
    except OSError:
        raise DataError("E-FILE-MISSING", f"{path}: no such file.") from None
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
        what = shown(value)
        if isinstance(value, dict):
            what = f"an object with the keys {', '.join(map(shown, value))}"
        raise DataError(
            "E-ROW-MALFORMED",
            f"{path}: line {number}: expected one text in quotation marks, found {what}.",
        )
    lines = (" ".join(line.split()) for line in value.splitlines())
    text = next((line for line in lines if line), "")
    return "" if text.lower() in _NONE else text
