"""Images inside tables and images in pieces, and how a test reads them."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from models_for_tests import is_sentence, noise
from PIL import Image

from counterpoint._util.errors import ImageError
from counterpoint._util.store import Store
from counterpoint.cases.table import ImageRef
from counterpoint.images import PIECES, Picture, files

Box = tuple[int, int, int, int]
HOW = list(PIECES)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store") as opened:
        yield opened


@pytest.fixture(autouse=True)
def nothing_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test has read from a table is not what the next one reads."""
    monkeypatch.setattr(files, "_GROUPS", files._Latest(files._GROUPS_HELD))


def encoded(image: Image.Image, format: str = "PNG") -> bytes:
    data = io.BytesIO()
    image.save(data, format)
    return data.getvalue()


def write_table(
    path: Path, seeds: Sequence[int | None], group: int = 3, column: str = "image"
) -> Path:
    """A table as the hub publishes it: a picture a seed, row groups of `group` rows."""
    cells = [
        None if seed is None else {"bytes": encoded(noise(seed)), "path": f"{seed}.png"}
        for seed in seeds
    ]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    table = pa.table({"id": list(range(len(seeds))), column: pa.array(cells, kind)})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=group)
    return path


def picture(root: Path | None, path: str, box: Box | None = None) -> Picture:
    return Picture(ImageRef(path, box), root)


def shown(root: Path | None, path: str, box: Box | None = None) -> np.ndarray:
    image = picture(root, path, box).open()
    assert image.mode == "RGB"
    return np.asarray(image)


def same(found: np.ndarray, image: Image.Image) -> bool:
    return found.shape == np.asarray(image).shape and bool((found == np.asarray(image)).all())


def refused(root: Path | None, path: str, box: Box | None = None) -> str:
    """The code of the error; the message must name the image."""
    with pytest.raises(ImageError) as error:
        picture(root, path, box).open()
    assert is_sentence(error.value) and path in str(error.value)
    return error.value.code


def refusal(root: Path, path: str, store: Store, *, key: bool = True) -> str:
    """The code of the error; `key` says whether its key is refused for the same reason."""
    with pytest.raises(ImageError) as error:
        picture(root, path).open()
    assert is_sentence(error.value), str(error.value)
    if key:
        with pytest.raises(ImageError) as no_key:
            picture(root, path).key(store)
        assert str(no_key.value) == str(error.value)
    return error.value.code
