"""Every odd kind of image: what a model gets of it, or why it is refused."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from errors import raises
from PIL import Image

from counterpoint.cases import ImageRef
from counterpoint.images import MAX_RATIO, Picture
from counterpoint.models.registry import LoadOptions, load_model

RGB = np.random.default_rng(0).integers(0, 256, (24, 32, 3), dtype=np.uint8)
GREY = RGB[..., 0]


def plain() -> Image.Image:
    return Image.fromarray(RGB)


def with_alpha() -> Image.Image:
    image = plain()
    image.putalpha(Image.fromarray(np.full((24, 32), 7, dtype=np.uint8)))
    return image


def in_palette() -> Image.Image:
    return plain().quantize(256)


def sixteen_bit() -> Image.Image:
    return Image.fromarray(GREY.astype(np.uint16) * 257)


def rotated() -> Image.Image:
    image = plain()
    image.getexif()[0x0112] = 6  # "turn a quarter to the right to see it upright"
    return image


HANDLED: dict[str, tuple[Callable[[], Image.Image], str, Callable[[], np.ndarray]]] = {
    "plain": (plain, "png", lambda: RGB),
    # Colours under a transparent pixel are as they are stored, as PIL's conversion has it.
    "alpha": (with_alpha, "png", lambda: RGB),
    "grey": (lambda: Image.fromarray(GREY), "png", lambda: np.repeat(GREY[..., None], 3, 2)),
    "grey and alpha": (
        lambda: Image.fromarray(GREY).convert("LA"),
        "png",
        lambda: np.repeat(GREY[..., None], 3, 2),
    ),
    "black and white": (
        lambda: plain().convert("1"),
        "png",
        lambda: np.repeat(np.asarray(plain().convert("1"))[..., None] * np.uint8(255), 3, 2),
    ),
    "palette": (in_palette, "png", lambda: np.asarray(in_palette().convert("RGB"))),
    "CMYK": (
        lambda: plain().convert("CMYK"),
        "tiff",
        lambda: np.asarray(plain().convert("CMYK").convert("RGB")),
    ),
    # Scaled, where PIL alone would cut everything above 255 to white.
    "16 bits": (sixteen_bit, "png", lambda: np.repeat(GREY[..., None], 3, 2)),
    # Pixels as they are stored: crops of the published benchmarks count in these, and their
    # authors' code does not turn images either.
    "EXIF rotation": (rotated, "png", lambda: RGB),
}


def saved(folder: Path, image: Image.Image, ending: str) -> Picture:
    exif = image.getexif()
    image.save(folder / f"odd.{ending}", **({"exif": exif} if len(exif) else {}))
    return Picture(ImageRef(f"odd.{ending}"), folder)


@pytest.mark.parametrize("kind", HANDLED)
def test_it_is_handled(kind: str, tmp_path: Path) -> None:
    make, ending, expected = HANDLED[kind]
    image = saved(tmp_path, make(), ending).open()
    assert image.mode == "RGB"
    np.testing.assert_array_equal(np.asarray(image), expected())


def bomb(folder: Path) -> None:
    header = io.BytesIO()
    Image.new("1", (8, 8)).save(header, "png")
    data = bytearray(header.getvalue())
    data[16:24] = (60_000).to_bytes(4, "big") * 2
    data[29:33] = zlib.crc32(data[12:29]).to_bytes(4, "big")
    (folder / "odd.png").write_bytes(data)


def cut_short(folder: Path) -> None:
    saved(folder, plain(), "jpg")
    data = (folder / "odd.jpg").read_bytes()
    (folder / "odd.png").write_bytes(data[: len(data) // 2])


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "one pixel high": (lambda f: saved(f, Image.new("RGB", (500, 1)), "png"), "E-IMAGE-NARROW"),
    "one pixel wide": (lambda f: saved(f, Image.new("RGB", (1, 500)), "png"), "E-IMAGE-NARROW"),
    "a bomb": (bomb, "E-IMAGE-BROKEN"),
    "cut short": (cut_short, "E-IMAGE-BROKEN"),
    "a text": (lambda f: (f / "odd.png").write_text("hello"), "E-IMAGE-BROKEN"),
    "empty": (lambda f: (f / "odd.png").write_bytes(b""), "E-IMAGE-BROKEN"),
    "nothing": (lambda f: None, "E-IMAGE-MISSING"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_it_is_refused(kind: str, tmp_path: Path) -> None:
    make, code = REFUSED[kind]
    make(tmp_path)
    with raises(code) as error:
        Picture(ImageRef("odd.png"), tmp_path).open()
    assert "odd.png" in str(error.value) and str(error.value).endswith(".")


def test_a_narrow_crop_is_refused_and_a_long_picture_is_not(tmp_path: Path) -> None:
    saved(tmp_path, Image.new("RGB", (600, 60)), "png")
    with raises("E-IMAGE-NARROW", "odd.png"):
        Picture(ImageRef("odd.png", (0, 0, 600, 1)), tmp_path).open()
    long = Picture(ImageRef("odd.png", (0, 0, 600, 600 // MAX_RATIO)), tmp_path)
    assert long.open().size == (600, 6)


@pytest.mark.slow
def test_a_model_takes_what_is_handled(tmp_path: Path) -> None:
    """Its own preprocessing gets RGB of any size, down to a line that may still be scaled."""
    model = load_model("world:base", LoadOptions("cpu"))
    pictures = [saved(tmp_path, make(), ending).open() for make, ending, _ in HANDLED.values()]
    pictures += [Image.new("RGB", size) for size in ((1, 1), (100, 1), (3, 250))]
    vectors = model.encode_images([model.preprocess(picture) for picture in pictures])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
