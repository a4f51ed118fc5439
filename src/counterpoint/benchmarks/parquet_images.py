"""Parquet files from the hub: texts are read, images stay where they are.

There an image column is a struct `{bytes, path}`. Of that, `path` alone is read: a Parquet file
keeps the two apart, and the bytes of a few thousand images are half a gigabyte.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from counterpoint.cases import ImageRef
from counterpoint.errors import DataError
from counterpoint.untrusted import open_regular, shortened


def parquet_image(file: str, column: str, row: int) -> ImageRef:
    """An image inside a Parquet file, which is named by its path under the data root."""
    return ImageRef(f"parquet:{file}#{column}/{row}")


def parquet_rows(
    path: Path, texts: Sequence[str], images: Sequence[str], optional: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """The rows of a file, once all columns are known to be there; of an image, its name or None."""
    import pyarrow as pa  # slow to import
    import pyarrow.parquet as pq

    try:
        open_regular(path).close()
        schema = pq.read_schema(path)
        _check(path, schema, texts, images)
        named = [name for name in images if _has_field(schema.field(name).type, "path")]
        wanted = [*texts, *(name for name in optional if name in schema.names)]
        table = pq.ParquetFile(path).read([*wanted, *(f"{name}.path" for name in named)])
    except (pa.ArrowException, OSError) as error:
        why = shortened(error).rstrip(". ")
        raise DataError(f"{path}: not a readable Parquet file: {why}.") from None
    for row in table.to_pylist():
        names = {name: (row.get(name) or {}).get("path") for name in named}
        yield {**row, **dict.fromkeys(images), **names}


def _check(path: Path, schema: Any, texts: Sequence[str], images: Sequence[str]) -> None:
    import pyarrow as pa

    missing = [name for name in (*texts, *images) if name not in schema.names]
    if missing:
        raise DataError(
            f"{path}: has no column {missing[0]!r}, only {shortened(', '.join(schema.names))}."
        )
    for name in images:
        kind = schema.field(name).type
        binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
        if not binary and not _has_field(kind, "bytes"):
            raise DataError(f"{path}: column {name!r} should hold images, it is {shortened(kind)}.")


def _has_field(kind: Any, name: str) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_struct(kind)) and kind.get_field_index(name) >= 0
