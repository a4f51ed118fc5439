"""Crops in a scattered order, and models that note every decoding, in whatever process it is."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from models_for_tests import Judge, Towers, choice, noise
from PIL import Image

from counterpoint.cases.table import Cases, ImageRef
from counterpoint.images import Picture, Reader, schemes

PHOTOGRAPHS, CROPS = 12, 5  # the last of the crops is the whole image
_DECODE = schemes.decode
_READER = Reader(8, (8, 8), Image.Resampling.BICUBIC)


@pytest.fixture
def decoder() -> Iterator[None]:
    """Puts the real decoder back into its place."""
    yield
    schemes.decode = _DECODE


def note_decodes(log: Path) -> None:
    """From now on, in this process."""

    def noted(data: bytes, name: Path | str) -> Image.Image:
        with log.open("a") as file:
            file.write(f"{Path(name).name}\n")
        return _DECODE(data, name)

    schemes.decode = noted  # type: ignore[assignment]


def noted(log: Path) -> list[str]:
    return sorted(log.read_text().split())


def write_photographs(folder: Path, form: str) -> list[str]:
    """References to photographs as files, in a tar file or in a table."""
    folder.mkdir(exist_ok=True)
    names = [f"{n:02}.png" for n in range(PHOTOGRAPHS)]
    for n, name in enumerate(names):
        noise(n, (32, 24)).save(folder / name)
    if form == "tar":
        with tarfile.open(folder / "t.tar", "w") as tar:
            for name in names:
                tar.add(folder / name, name)
        return [f"tar:t.tar#{name}" for name in names]
    if form == "parquet":
        cells = [{"bytes": (folder / name).read_bytes(), "path": name} for name in names]
        pq.write_table(pa.table({"image": cells}), folder / "t.parquet", row_group_size=5)
        return [f"parquet:t.parquet#image/{n}" for n in range(len(names))]
    return names


def scattered(folder: Path, form: str = "files") -> Cases:
    """The crops of a photograph are as far from each other as they can be."""
    references = write_photographs(folder, form)
    boxes = [(n, n, 9 + n, 8) for n in range(CROPS - 1)]
    rows = [
        choice(f"{n} {path}", ImageRef(path, box), f"caption {n} of {path}", "a caption")
        for n, box in enumerate([*boxes, None])
        for path in references
    ]
    return Cases.build(rows, root=folder, source="crops")


@dataclass(frozen=True)
class NotingReader:
    """A reader for processes of its own."""

    log: Path

    def __call__(self, picture: Picture) -> np.ndarray:
        note_decodes(self.log)
        return _READER(picture)


class NotingTowers(Towers):
    """As a model on a GPU, whose images are read by processes."""

    lanes, device = 2, "a device"

    def __init__(self, log: Path) -> None:
        super().__init__()
        self.reader = NotingReader(log)

    def preprocess(self, image: Image.Image) -> np.ndarray:
        return _READER.prepare(image)

    def encode_images(self, images: Sequence[np.ndarray]) -> np.ndarray:
        return self._encode([image.tobytes().hex() for image in images])


def load_noting(log: Path, kind: str = "dual") -> Towers | Judge:
    note_decodes(log)
    return Towers() if kind == "dual" else Judge()
