"""Parquet files with a damaged byte: every reader takes them, or says one sentence.

At some of them polars panics: it prints a report of its own and raises what is no Exception. So
nothing may be printed either.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from models_for_tests import choice

from counterpoint._util.errors import CounterpointError
from counterpoint._util.tables import parquet_frames
from counterpoint.benchmarks.classification import read_labels
from counterpoint.benchmarks.positives import accepted_positives
from counterpoint.benchmarks.reading import parquet_rows
from counterpoint.cases import Cases
from counterpoint.generation.inputs.captions import open_captions
from counterpoint.generation.pairs import SCHEMA, read_pairs
from counterpoint.generation.refinement.scores import read_scores
from counterpoint.studio.annotate.questions import KINDS
from counterpoint.studio.annotate.sources import SourceSelection, read_material
from counterpoint.training.data.table import _is_pairs, _read_training

CASES = Cases.build([choice("ab", "a.png", "b", "c", "d")], source="the test")
KIND = next(iter(KINDS.values()))
CAPTIONS = pa.table({"caption": ["ab"], "image": ["cd"]})
TEXTS = pa.table({"case_id": ["ab"], "text": ["cd"]})
HUB = pa.table({"text": ["ab"], "image": [b"cd"], "label": [1]})
PAIRS = pl.DataFrame(
    {"source": "a", "caption": "b", "text": "c", "kind": "negative", "type": "swap"}
    | dict.fromkeys(set(SCHEMA) - {"source", "caption", "text", "kind", "type"})
).to_arrow()
READERS: dict[str, tuple[pa.Table, Callable[[Path], object]]] = {
    "frames": (TEXTS, lambda path: list(parquet_frames(path))),
    "positives": (TEXTS, lambda path: accepted_positives(CASES, path)),
    "scores": (TEXTS, lambda path: read_scores([path])),
    "captions": (CAPTIONS, lambda path: list(open_captions(str(path)))),
    "training": (CAPTIONS, lambda path: _is_pairs(path) or _read_training(path).to_pylist()),
    "hub": (HUB, lambda path: list(parquet_rows(path, ["text"], ["image"]))),
    "labels": (HUB, read_labels),
    "pairs": (PAIRS, lambda path: read_pairs(path)),
    "campaign": (PAIRS, lambda path: read_material(str(path), KIND, SourceSelection())),
}


def written(table: pa.Table) -> bytes:
    file = io.BytesIO()
    form = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    with pq.ParquetWriter(file, table.schema, store_schema=False, **form) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({b"k": b"v"})
    return file.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("mask", [0x01, 0x80], ids=["numbers", "texts"])
def test_a_damaged_byte(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], reader: str, mask: int
) -> None:
    table, read = READERS[reader]
    whole = written(table)
    read_or_refused(whole, tmp_path / "t.parquet", read)
    places = range(len(whole) - 9, 4, -(len(whole) // 600 + 1))
    refused = 0
    for place in places:
        data = bytearray(whole)
        data[place] ^= mask
        refused += read_or_refused(bytes(data), tmp_path / "t.parquet", read)
    assert refused
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_is_cut(tmp_path: Path, reader: str) -> None:
    table, read = READERS[reader]
    whole = written(table)
    for size in range(0, len(whole), 50):
        assert read_or_refused(whole[:size], tmp_path / "t.parquet", read)


def read_or_refused(data: bytes, path: Path, read: Callable[[Path], object]) -> bool:
    """Whether it was refused, which takes one sentence."""
    path.write_bytes(data)
    try:
        read(path)
    except CounterpointError as error:
        assert "\n" not in str(error) and str(error).endswith(".") and len(str(error)) < 1000
        return True
    return False
