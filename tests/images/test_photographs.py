"""A photograph is decoded once for its crops: the same pixels and the same errors as alone."""

from __future__ import annotations

import pickle
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from errors import raises
from hypothesis import given, strategies as st
from image_support import nothing_held
from models_for_tests import noise
from PIL import Image
from support import FEW

from counterpoint._util.errors import ImageError
from counterpoint.cases import ImageRef
from counterpoint.images import Photographs, Picture, schemes

__all__ = ["nothing_held"]  # a fixture

SIZE = (40, 30)
ROTATED = 0x0112  # EXIF's orientation
BOXES = [
    (0, 0, 40, 30),
    (3, 4, 9, 7),
    (-5, -5, 20, 20),  # black where it leaves the image
    (30, 20, 100, 100),
    (40, 0, 5, 5),  # outside
    (0, 0, 30_000, 30_000),  # too large
    (0, 0, 400, 2),  # too narrow
    None,
]
MODES = {
    "rgb": "RGB",
    "grey": "L",
    "alpha": "RGBA",
    "print": "CMYK",
    "palette": "P",
    "deep": "I;16",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of every mode; a JPEG with EXIF's rotation; the same in a tar file and in a table."""
    folder = tmp_path_factory.mktemp("images")
    for name, mode in MODES.items():
        image = noise(1, SIZE)
        if mode == "I;16":
            image = Image.fromarray(np.arange(1200, dtype=np.uint16).reshape(30, 40) * 50)
        else:
            image = image.convert(mode)
        image.save(folder / f"{name}.tiff")
    exif = Image.Exif()
    exif[ROTATED] = 6
    noise(2, SIZE).save(folder / "turned.jpg", exif=exif)
    data = (folder / "turned.jpg").read_bytes()
    (folder / "cut.jpg").write_bytes(data[: len(data) // 2])
    (folder / "none.jpg").write_bytes(b"no image")
    with tarfile.open(folder / "t.tar", "w") as tar:
        for name in ("turned.jpg", "none.jpg"):
            tar.add(folder / name, name)
    cells = pa.array([{"bytes": data, "path": "a.jpg"}, {"bytes": b"no image", "path": "b.jpg"}])
    pq.write_table(pa.table({"image": cells}), folder / "t.parquet")
    return folder


REFERENCES = [
    *(f"{name}.tiff" for name in MODES),
    *("turned.jpg", "cut.jpg", "none.jpg", "missing.jpg", "../a.jpg"),
    *("tar:t.tar#turned.jpg", "tar:t.tar#none.jpg", "tar:t.tar#missing.jpg", "tar:no.tar#a"),
    *("parquet:t.parquet#image/0", "parquet:t.parquet#image/1", "parquet:t.parquet#image/9"),
    *("world:0.5;small,red,solid,circle,0.1,0.1", "world:nothing", "text:a caption"),
    *("shuffle-rows:1:turned.jpg", "shuffle-rows:1:none.jpg", "shuffle-patches:2:tar:t.tar#a"),
]


def outcome(picture: Picture) -> tuple[object, ...]:
    """The pixels, or the error."""
    try:
        image = picture.open()
    except ImageError as error:
        return error.code, str(error)
    return image.mode, image.size, image.tobytes()


@pytest.mark.parametrize("most", [0, 10_000, 1 << 26])
def test_the_same_pixels_and_errors_as_alone(root: Path, most: int) -> None:
    for reference in REFERENCES:
        photographs = Photographs(most)
        for box in (*BOXES, *reversed(BOXES)):
            alone = Picture(ImageRef(reference, box), root)
            assert outcome(alone.sharing(photographs)) == outcome(alone)


def decodes(monkeypatch: pytest.MonkeyPatch, meet: Barrier | None = None) -> list[str]:
    """The names of what is decoded from now on."""
    real, seen = schemes.decode, list[str]()

    def counted(data: bytes, name: Path | str) -> Image.Image:
        seen.append(Path(name).name)
        if meet is not None:
            meet.wait(10)
        return real(data, name)

    monkeypatch.setattr(schemes, "decode", counted)
    return seen


def crops(root: Path, name: str, count: int) -> list[Picture]:
    return [Picture(ImageRef(name, (n, n, 8, 8)), root) for n in range(count)]


def test_a_photograph_is_decoded_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, photographs = decodes(monkeypatch), Photographs()
    for name in ("rgb.tiff", "turned.jpg", "tar:t.tar#turned.jpg", "parquet:t.parquet#image/0"):
        for picture in (*crops(root, name, 4), Picture(ImageRef(name), root)):
            picture.sharing(photographs).open()
    assert seen == ["rgb.tiff", "turned.jpg", "tar:t.tar#turned.jpg", "0"]


def test_of_threads_that_want_a_photograph_one_decodes_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two photographs are decoded at the same time: neither waits for the other."""
    seen, photographs = decodes(monkeypatch, Barrier(2)), Photographs()
    wanted = [*crops(root, "rgb.tiff", 8), *crops(root, "grey.tiff", 8)]
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda p: outcome(p.sharing(photographs)), wanted))
    assert sorted(seen) == ["grey.tiff", "rgb.tiff"]
    monkeypatch.undo()
    assert found == [outcome(picture) for picture in wanted]


def test_whole_images_are_not_held(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, photographs = decodes(monkeypatch), Photographs()
    whole = Picture(ImageRef("rgb.tiff"), root).sharing(photographs)
    whole.open()
    assert not photographs._held
    whole.open()
    assert seen == ["rgb.tiff"] * 2


def test_what_is_opened_is_not_shared(root: Path) -> None:
    photographs = Photographs()
    [crop, _] = [p.sharing(photographs) for p in crops(root, "rgb.tiff", 2)]
    crop.open().paste("red", (0, 0, 8, 8))
    whole = Picture(ImageRef("rgb.tiff"), root).sharing(photographs)
    whole.open().paste("red", (0, 0, 8, 8))
    for picture in (crop, whole):
        assert outcome(picture) == outcome(Picture(picture.ref, root))


@FEW
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2)), max_size=40), st.integers(0, 4))
def test_no_more_is_held_than_allowed(root: Path, asked: list[tuple[int, int]], room: int) -> None:
    size = SIZE[0] * SIZE[1] * 4
    photographs = Photographs(room * size)
    names = [f"{name}.tiff" for name in MODES]
    for name, place in asked:
        crops(root, names[name], 3)[place].sharing(photographs).open()
        held = [one.result() for one in photographs._held.values()]
        assert 1 <= len(held) <= max(1, room)  # the last one stays, however large
    last = list(dict.fromkeys(names[name] for name, _ in reversed(asked)))[: max(1, room)]
    assert [path for path, _ in photographs._held] == last[::-1]


def test_a_file_that_is_mended_is_decoded(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"no image")
    photographs = Photographs()
    picture = Picture(ImageRef("a.png", (0, 0, 4, 4)), tmp_path).sharing(photographs)
    for _ in range(2):
        with raises("E-IMAGE-BROKEN"):
            picture.open()
    noise(0).save(tmp_path / "a.png")
    assert picture.open().size == (4, 4)


def test_pictures_that_travel_together_share_photographs_there(root: Path) -> None:
    photographs = Photographs()
    pictures = [picture.sharing(photographs) for picture in crops(root, "rgb.tiff", 3)]
    pictures[0].open()
    first, *others = found = pickle.loads(pickle.dumps(pictures))
    assert found == pictures and not first.photographs._held
    assert all(other.photographs is first.photographs for other in others)
