"""Shared by the tests of benchmark loaders: small files of the published forms."""

from __future__ import annotations

import csv
import io
import json
import os
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from PIL import Image

from counterpoint.benchmarks.registry import load_benchmark
from counterpoint.cases import Absent, Case, Cases
from counterpoint.images import expand_braces

REAL = os.environ.get("COUNTERPOINT_TEST_DATA")
needs_real_files = pytest.mark.skipif(not REAL, reason="COUNTERPOINT_TEST_DATA names no folder")
IDENTITY = ((True, False), (False, True))


def load(id: str, root: Path) -> list[Case]:
    cases = load_benchmark(id, root).cases
    return [cases.case(row) for row in range(len(cases))]


def absent(id: str, root: Path) -> tuple[Absent, ...]:
    """What the loader could not make a case of."""
    return load_benchmark(id, root).cases.absent


def real(id: str) -> Cases:
    """A benchmark from the authors' files, or a skip if these are not among those in hand."""
    folder = Path(REAL or "") / id.partition("/")[0].replace("-", "_")
    if not folder.exists():
        pytest.skip(f"no {folder}")
    return load_benchmark(id, Path(REAL or "")).cases


def group_counts(cases: Cases) -> Counter[str]:
    """How many cases have each first label."""
    return Counter(cases.frame["groups"].list.first().to_list())


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        content = content.encode()
    path.write_bytes(content)
    return path


def write_json(path: Path, content: Any) -> Path:
    return write(path, json.dumps(content))


def write_table(path: Path, rows: list[dict[str, Any]], separator: str = ",") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=separator)
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(rows).write_parquet(path)
    return path


def hub_image(name: str) -> dict[str, Any]:
    """As the hub stores an image; the bytes are none, so that decoding them would fail."""
    return {"bytes": b"not an image", "path": f"{name}.jpg"}


# --- published_rows.toml -------------------------------------------------------------------------


def _tables(name: str) -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name(name).read_text("utf-8"))


PUBLISHED, UNTRIED = _tables("published_rows.toml"), _tables("untried_rows.toml")
TABLES = PUBLISHED | UNTRIED


def files_of(id: str) -> dict[str, Any]:
    """The rows of each file, by its path."""
    files = TABLES[id]["files"]
    return {path: rows for pattern, rows in files.items() for path in expand_braces(pattern)}


def write_rows(path: Path, rows: Any) -> None:
    """As the suffix says. A row of a table that is a text is written as it is."""
    if path.suffix == ".parquet":
        write_parquet(path, [_with_images(row, place) for place, row in enumerate(rows)])
    elif path.suffix == ".jsonl":
        write(path, "\n".join(map(json.dumps, rows)))
    elif path.suffix in (".csv", ".tsv"):
        objects = [row for row in rows if isinstance(row, dict)]
        if path.suffix == ".csv":
            write_table(path, objects)
        else:  # as the authors write it: nothing is quoted
            lines = (map(str, cells) for cells in (objects[0], *(row.values() for row in objects)))
            write(path, "".join("\t".join(line) + "\n" for line in lines))
        with path.open("a") as file:
            file.writelines(f"{row}\n" for row in rows if isinstance(row, str))
    else:
        write(path, json.dumps(rows))


def _with_images(row: dict[str, Any], place: int) -> dict[str, Any]:
    image = {"bytes": pixels(place, "PNG"), "path": None}
    return {name: image | cell if isinstance(cell, dict) else cell for name, cell in row.items()}


def pixels(number: int, kind: str = "JPEG") -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (4, 4), (number * 37 % 256, number * 91 % 256, 90)).save(data, kind)
    return data.getvalue()


def write_benchmark(id: str, root: Path) -> None:
    """The files of a benchmark, and its images."""
    for path, rows in files_of(id).items():
        write_rows(root / path, rows)
    patterns = TABLES[id].get("pictures", [])
    pictures = [path for pattern in patterns for path in expand_braces(pattern)]
    for number, path in enumerate(pictures):
        write(root / path, pixels(number, "PNG" if path.endswith("png") else "JPEG"))
