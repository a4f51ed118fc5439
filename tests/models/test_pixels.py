"""Images on their way to a tower: as bytes, as files that the device decodes, and mixed."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from errors import raises
from hypothesis import given, settings, strategies as st
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image

from counterpoint._util.errors import ImageError
from counterpoint.cases import ImageRef
from counterpoint.images import Picture
from counterpoint.models.registry import LoadOptions, load_model
from counterpoint.models.torch_models import TowerPixels

SIDE = 48


def transform(mode: str = "shortest"):
    return image_transform_v2(PreprocessCfg(size=SIDE, resize_mode=mode), is_train=False)


def smooth(width: int, height: int, seed: int = 0) -> Image.Image:
    small = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


def jpeg(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=95)
    return file.getvalue()


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data)).convert("RGB")


def finished(pixels: TowerPixels, items: list[torch.Tensor]) -> torch.Tensor:
    return pixels.finish(pixels.stage(items))


@pytest.mark.parametrize("mode", ["shortest", "squash"])
def test_files_of_many_sizes_come_out_in_order(mode: str) -> None:
    """The device's resizing works on tensors and rounds in another way: a level or two."""
    pixels = TowerPixels(transform(mode), "cpu", jpegs=True)
    sizes = [(90, 70), (64, 64), (90, 70), (60, 130), (64, 64)]
    files = [jpeg(smooth(w, h, n)) for n, (w, h) in enumerate(sizes)]
    items = [
        pixels.prepare(opened(data)) if n == 1 else np.frombuffer(bytearray(data), dtype=np.uint8)
        for n, data in enumerate(files)
    ]
    assert [item.ndim for item in items] == [1, 3, 1, 1, 1]
    expected = torch.stack([transform(mode)(opened(data)) for data in files])
    difference = (finished(pixels, items) - expected).abs().amax(dim=(1, 2, 3))
    assert difference[1] == 0 and 0 < difference.max() < 0.06


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 200),
    st.integers(1, 200),
    st.sampled_from(["shortest", "squash"]),
    st.sampled_from(["bicubic", "bilinear"]),
)
def test_reading_without_torch_gives_the_transforms_own_bytes(
    width: int, height: int, mode: str, how: str
) -> None:
    own = image_transform_v2(
        PreprocessCfg(size=SIDE, resize_mode=mode, interpolation=how), is_train=False
    )
    pixels = TowerPixels(own, "cpu")
    assert pixels.reader is not None
    image = smooth(width, height)
    assert torch.equal(finished(pixels, [pixels.reader.prepare(image)])[0], own(image))


def test_what_the_device_should_not_judge_goes_to_pillow(tmp_path: Path) -> None:
    reader = TowerPixels(transform(), "cpu", jpegs=True).reader
    good = jpeg(smooth(60, 50))
    png = io.BytesIO()
    smooth(60, 50).save(png, "PNG")
    files = {
        "good": good,
        "another format": png.getvalue(),
        "grey": jpeg(smooth(60, 50).convert("L")),
        "four inks": jpeg(smooth(60, 50).convert("CMYK")),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        found = reader(Picture(ImageRef(name), tmp_path))
        assert found.tobytes() == data if name == "good" else found.shape == (SIDE, SIDE, 3)
    assert reader(Picture(ImageRef("good", (0, 0, 30, 30)), tmp_path)).shape == (SIDE, SIDE, 3)
    for name, data in {"cut off": good[:-40], "a line": jpeg(smooth(700, 3))}.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ImageError):
            reader(Picture(ImageRef(name), tmp_path))
    assert TowerPixels(transform("longest"), "cpu", jpegs=True).reader is None  # it pads


def test_a_file_that_the_decoder_refuses_is_decoded_by_pillow(monkeypatch) -> None:
    def refuse(*arguments: object, **more: object) -> None:
        raise RuntimeError("nvJPEG: not supported")

    monkeypatch.setattr("counterpoint.models.torch_models.decode_jpeg", refuse)
    pixels = TowerPixels(transform(), "cpu", jpegs=True)
    data = jpeg(smooth(90, 70))
    found = finished(pixels, [np.frombuffer(bytearray(data), dtype=np.uint8)])
    assert (found - transform()(opened(data))[None]).abs().max() < 0.06


def test_a_transform_of_another_kind_is_used_as_it_is() -> None:
    pixels = TowerPixels(lambda image: torch.full((3, 2, 2), float(image.width)), "cpu")
    items = [pixels.prepare(smooth(width, 9)) for width in (10, 20)]
    assert finished(pixels, items)[:, 0, 0, 0].tolist() == [10, 20]


def test_decoding_on_a_gpu_needs_one() -> None:
    with raises("E-DECODER-UNUSABLE", "cpu"):
        load_model("world:base", LoadOptions("cpu", decode="gpu"))
    with raises("E-DECODER-UNKNOWN", "quick"):
        LoadOptions("cpu", decode="quick")
