"""Images that nobody means well with: each costs its case, and never the run."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest
from engine_support import build
from errors import raises
from models_for_tests import Towers, choice, is_sentence, noise, run_engine, write_images
from PIL import Image, features

from counterpoint._util.errors import ImageError
from counterpoint._util.store import Store
from counterpoint.cases import ImageRef
from counterpoint.images import Picture, decode, files

LONG = 1_000_000


def refused(root: Path, reference: str) -> ImageError:
    """Why an image can be neither opened nor named by its content."""
    picture, errors = Picture(ImageRef(reference), root), []
    with Store(root / "store") as store:
        for use in (picture.open, lambda: picture.key(store)):
            with pytest.raises(ImageError) as error:
                use()
            assert is_sentence(error.value) and len(str(error.value)) < 1000
            errors.append(error.value)
    return errors[0]


def saved(format: str) -> bytes:
    file = io.BytesIO()
    noise(1, (32, 24)).save(file, format)
    return file.getvalue()


# --- broken files ------------------------------------------------------------------------------


def broken_dds() -> bytes:
    data = bytearray(saved("DDS"))
    data[80:88] = b"\x04\0\0\0ABCD"  # a kind of compression that there is not
    return bytes(data)


def broken_avif() -> bytes:
    data = saved("AVIF")
    place = data.index(b"iloc")  # where the image's data are said to be
    return data[: place + 8] + bytes(8) + data[place + 16 :]


BROKEN = {"dds": broken_dds}
if features.check("avif"):
    BROKEN["avif"] = broken_avif


@pytest.mark.parametrize("ending", BROKEN)
def test_a_broken_image_of_any_format_costs_its_case(ending: str, tmp_path: Path) -> None:
    write_images(tmp_path, "a.png")
    (tmp_path / f"b.{ending}").write_bytes(BROKEN[ending]())
    cases = build(
        choice("0", "a.png", "yes", "no"), choice("1", f"b.{ending}", "yes", "no"), root=tmp_path
    )
    found = run_engine(Towers(), {"bench": cases}, tmp_path / "store")["bench"]
    assert list(found.left_out) == [1] and is_sentence(found.left_out[1])
    assert np.isfinite(found.scores[:2]).all()


@pytest.mark.parametrize("error", [RuntimeError, NotImplementedError, KeyError, IndexError])
def test_whatever_a_decoder_raises_is_an_image_error(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(image: Image.Image) -> Image.Image:
        raise error("x" * LONG)

    monkeypatch.setattr(files, "_to_rgb", fail)
    with raises("E-IMAGE-BROKEN", "a.png") as told:
        decode(saved("PNG"), "a.png")
    assert is_sentence(told.value) and len(str(told.value)) < 1000


def test_a_lack_of_memory_is_not_a_broken_image(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(image: Image.Image) -> Image.Image:
        raise MemoryError

    monkeypatch.setattr(files, "_to_rgb", fail)
    with pytest.raises(MemoryError):
        decode(saved("PNG"), "a.png")


def test_postscript_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow hands it to Ghostscript, another program."""
    from PIL import EpsImagePlugin

    def ghostscript(*_: object, **__: object) -> None:
        raise AssertionError("it was run")

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", ghostscript)
    with raises("E-IMAGE-BROKEN", "a.eps"):
        decode(saved("EPS"), "a.eps")


# --- what is no file ---------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/tty", "/proc/self/pagemap"])
def test_a_device_is_not_read(device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_BYTES", 1000)
    if not Path(device).exists():
        pytest.skip(f"no {device} here")
    refused(tmp_path, device)


@pytest.mark.parametrize("reference", ["pipe", "parquet:pipe#image/0", "shuffle-rows:1:pipe"])
def test_a_pipe_is_not_waited_for(reference: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refused(tmp_path, reference).code == "E-IMAGE-UNREADABLE"


def test_a_file_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "large.png").open("wb") as file:
        file.truncate(files.MAX_BYTES + 1)
    monkeypatch.setattr(files, "MAX_BYTES", 1 << 20)
    write_images(tmp_path, "a.png")
    with raises("E-IMAGE-TOO-LARGE"):
        Picture(ImageRef("large.png"), tmp_path).open()
    assert Picture(ImageRef("a.png"), tmp_path).open().size == (9, 7)


# --- references --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reference",
    [
        "x" * LONG,
        "a/" * 5000 + "b.png",
        "world:" + "x" * LONG,
        "world:0.5" + ";small,red,solid,circle,0.1,0.1" * 100_000,
        "world:" + "9" * 5000 + ";small,red,solid,circle,0.1,0.1",
        "shuffle-rows:1:" * 100_000 + "a.png",
        "shuffle-rows:1:" * 11 + "a.png",
        "shuffle-rows:" + "1" * 5000 + ":a.png",
        "parquet:t.parquet#image/" + "1" * 5000,
        "parquet:" + "t" * LONG + "#image/1",
        "parquet:t.parquet#" + "c" * LONG + "/1",
        "../" * 5000,
        "a\0b.png",
        "\x1b[31mred.png",
        "text:" + "x" * LONG,
    ],
    ids=range(15),
)
def test_a_reference_of_any_length_is_refused_in_a_short_sentence(
    reference: str, tmp_path: Path
) -> None:
    write_images(tmp_path, "a.png")
    if reference.startswith("world:"):  # its key is that of the text; nothing is drawn for it
        with raises("E-IMAGE-REFERENCE") as error:
            Picture(ImageRef(reference), tmp_path).open()
        told = str(error.value)
        assert is_sentence(told) and len(told) < 1000
    else:
        told = str(refused(tmp_path, reference))
    assert told.isprintable()


def test_a_scene_has_as_many_objects_as_its_grid_has_cells(tmp_path: Path) -> None:
    thing = ";small,red,solid,circle,0.1,0.1"
    assert Picture(ImageRef("world:0.5" + 9 * thing)).open().size == (64, 64)
    with raises("E-IMAGE-REFERENCE"):
        Picture(ImageRef("world:0.5" + 10 * thing)).open()
