"""Files of captions as rows, one after another, however long the file is.

| ending            | form |
|-------------------|------|
| .csv, .tsv        | a table with a header |
| .jsonl, .ndjson   | an object a line |
| .parquet          | a table; a column of images (`{bytes, path}`) is referred to, not read |
| .json             | COCO's captions, Karpathy's splits, objects in a list or by their ids |
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from counterpoint.errors import DataError
from counterpoint.generate.caption_json import json_rows
from counterpoint.generate.sources import (
    BOX,
    CAPTION_NAMES,
    ID_NAMES,
    IMAGE_NAMES,
    SPLIT,
    CaptionOptions,
    Row,
    name_of,
)
from counterpoint.untrusted import shortened, shown

_FIELD: Final = 1 << 24  # characters; Python's own limit is too low for lists of negatives
_BATCH: Final = 4096

Rows = Callable[[Path, CaptionOptions], Iterator[Row]]


def _tsv(path: Path, options: CaptionOptions) -> Iterator[Row]:
    return _delimited(path, options, "\t")


def _csv(path: Path, options: CaptionOptions) -> Iterator[Row]:
    return _delimited(path, options, ",")


def _delimited(path: Path, options: CaptionOptions, separator: str) -> Iterator[Row]:
    csv.field_size_limit(_FIELD)
    line = 0
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=separator)
            header = next(reader, [])
            check_columns(path, header, options)
            for values in reader:
                line = reader.line_num
                if not values:
                    continue  # an empty line
                if len(values) != len(header):
                    raise DataError(
                        f"{path}: line {line}: has {len(values)} fields, "
                        f"the header has {len(header)}."
                    )
                yield Row(f"{path}: line {line}", dict(zip(header, values, strict=True)))
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(
            f"{path}: after line {line}: not a readable table: {shortened(error)}."
        ) from None


def _jsonl(path: Path, options: CaptionOptions) -> Iterator[Row]:
    first = True
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            where = f"{path}: line {number}"
            try:
                row = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
            except RecursionError:
                raise DataError(f"{where}: it is nested too deeply.") from None
            except ValueError as error:
                raise DataError(f"{where}: not valid JSON: {shortened(error)}.") from None
            if not isinstance(row, dict):
                raise DataError(f"{where}: should be an object, it is {shown(row)}.")
            if first:
                check_columns(path, list(row), options)
                first = False
            yield Row(where, row)


def _json(path: Path, options: CaptionOptions) -> Iterator[Row]:
    first = True
    for row in json_rows(path):
        if first:
            check_columns(path, list(row.fields), options)
            first = False
        yield row


def _parquet(path: Path, options: CaptionOptions) -> Iterator[Row]:
    import pyarrow as pa  # slow to import
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            names = check_columns(path, file.schema_arrow.names, options)
            images = [name for name in names if _holds_images(file.schema_arrow.field(name).type)]
            wanted = [name for name in names if name not in images]
            for batch in file.iter_batches(_BATCH, columns=wanted):
                for row in batch.to_pylist():
                    cells = {name: f"parquet:{path.name}#{name}/{number}" for name in images}
                    yield Row(f"{path}: row {number}", {**row, **cells})
                    number += 1
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        why = shortened(str(error).partition("\n")[0]).rstrip(".") or type(error).__name__
        raise DataError(f"{path}: row {number}: not a readable Parquet file: {why}.") from None


def _holds_images(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return bool(kind.get_field_index("bytes") >= 0)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def check_columns(path: Path, names: list[str], options: CaptionOptions) -> list[str]:
    """The columns to read; an error if there are no captions, or not those that were asked for."""
    listed = shortened(", ".join(names))
    asked = {"caption": options.caption, "image": options.image, "id": options.id}
    for kind, name in asked.items():
        if name is not None and name not in names:
            raise DataError(
                f"{path}: there is no column {shown(name)} for the {kind}, only {listed}."
            )
    caption = name_of(options.caption, CAPTION_NAMES, names)
    image = name_of(options.image, IMAGE_NAMES, names)
    id = name_of(options.id, ID_NAMES, names)
    if caption is None:
        raise DataError(
            f"{path}: which column holds the captions? None is called "
            f"{', '.join(CAPTION_NAMES[:-1])} or {CAPTION_NAMES[-1]}, but {listed}; "
            "name it with --caption-column."
        )
    if options.split is not None and SPLIT not in names:
        raise DataError(f"{path}: has no {SPLIT!r}; leave out the choice of a split.")
    return [name for name in (caption, image, id, BOX, SPLIT) if name in names]


READERS: Final[dict[str, Rows]] = {
    ".csv": _csv,
    ".tsv": _tsv,
    ".jsonl": _jsonl,
    ".ndjson": _jsonl,
    ".json": _json,
    ".parquet": _parquet,
}
