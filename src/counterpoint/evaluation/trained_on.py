"""What a model was trained on, and how much of it a benchmark holds.

Training writes a record beside the weights: digests of 64 bits of all texts and of the names of all
photographs that it was given. Texts are the same but for case, blanks, punctuation and a/an;
photographs if they have one path, or one number at COCO or Flickr.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from counterpoint._util.errors import ModelError
from counterpoint._util.tables import parquet_frames
from counterpoint.cases import PROMPTS, Cases, ImageRef, normal
from counterpoint.images import Picture, photograph_names
from counterpoint.models import TRAINED_ON
from counterpoint.runs import TrainedOn

RECORDS: Final = "training_records"  # in what a model says of itself: paths of records
_KINDS: Final = ("text", "photograph")
_COLUMNS: Final = {"kind": pl.String(), "digest": pl.UInt64()}


class TrainingRecord(NamedTuple):
    """Digests, in order and each once."""

    texts: np.ndarray
    photographs: np.ndarray

    @classmethod
    def of(cls, texts: Iterable[np.ndarray], photographs: Iterable[np.ndarray]) -> TrainingRecord:
        none = np.zeros(0, dtype=np.uint64)
        return cls(*(np.unique(np.concatenate([none, *some])) for some in (texts, photographs)))


def text_digests(texts: Iterable[str]) -> np.ndarray:
    return _digests(" ".join(normal(text)) for text in texts)


def photograph_digests(pictures: Iterable[Picture]) -> np.ndarray:
    """Of every name that the photographs have."""
    return _digests(name for picture in pictures for name in photograph_names(picture))


def _digests(texts: Iterable[str]) -> np.ndarray:
    found = b"".join(hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts)
    return np.frombuffer(found, dtype="<u8").astype(np.uint64)


# --- files ---------------------------------------------------------------------------------------


def write_record(path: Path, record: TrainingRecord) -> None:
    frames = [
        pl.DataFrame({"kind": [kind] * len(some), "digest": some}, schema=_COLUMNS)
        for kind, some in zip(_KINDS, record, strict=True)
    ]
    pl.concat(frames).write_parquet(path)


def read_records(paths: Sequence[str]) -> TrainingRecord | None:
    """All that these records hold; None if there are none."""
    if not paths:
        return None
    found: dict[str, list[np.ndarray]] = {kind: [] for kind in _KINDS}
    for path in dict.fromkeys(paths):
        for frame in parquet_frames(Path(path), ModelError):
            if dict(frame.schema) != _COLUMNS:
                raise ModelError(
                    "E-FILE-MALFORMED",
                    f"{path}: not a record of what a model was trained on; remove it.",
                )
            for kind, some in found.items():
                some.append(frame.filter(pl.col("kind") == kind)["digest"].drop_nulls().to_numpy())
    return TrainingRecord.of(*found.values())


def copy_records(paths: Sequence[str], folder: Path) -> None:
    """Let a model's folder say what these records say."""
    if (record := read_records(paths)) is not None:
        write_record(folder / TRAINED_ON, record)


def paths_of_records(said: Mapping[str, Any]) -> list[str]:
    """Of a model, and of the models that it is made of, from what it says of itself."""
    inner = [paths_of_records(member) for member in said.get("members", ())]
    return [*said.get(RECORDS, ()), *(path for paths in inner for path in paths)]


# --- benchmarks ----------------------------------------------------------------------------------


def pictures_and_texts(cases: Cases) -> tuple[list[Picture], list[str]]:
    """The different photographs and texts of a table; a picture of a text is a text."""
    flat = cases.frame["images"].explode().drop_nulls()
    references = flat.struct.field("path").unique(maintain_order=True).to_list()
    captions = cases.frame["captions"].explode().drop_nulls().unique(maintain_order=True)
    texts = [text for caption in captions.to_list() for text in caption.split(PROMPTS)]
    texts += [text for r in references if (text := ImageRef(r).text) is not None]
    pictures = [Picture(ImageRef(r), cases.root) for r in references if not ImageRef(r).text]
    return pictures, texts


def overlap(record: TrainingRecord, cases: Cases) -> TrainedOn | None:
    """How many of the different texts and photographs are in the record; None if none is."""
    pictures, texts = pictures_and_texts(cases)
    own = np.unique(text_digests(texts))
    said = int(_among(own, record.texts).sum())
    seen = sum(
        bool(_among(photograph_digests([picture]), record.photographs).any())
        for picture in pictures
    )
    return TrainedOn(said, len(own), seen, len(pictures)) if said or seen else None


def _among(values: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """Which values are there; numpy's own `isin` would sort millions of digests for each call."""
    places = np.searchsorted(ordered, values)
    there = places < len(ordered)
    there[there] = ordered[places[there]] == values[there]
    return there
