"""Inpainting: only what the mask covers is drawn again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from diffusion_models import SETTINGS, SIDE, change, models, store
from PIL import Image
from typer.testing import CliRunner

from counterpoint._util.progress import Quiet
from counterpoint._util.store import Store
from counterpoint.cases.table import ImageRef
from counterpoint.cli import generate_images
from counterpoint.cli.console import plainly
from counterpoint.generation.images.backends import (
    DrawnImage,
    Want,
)
from counterpoint.generation.images.candidates import open_backend
from counterpoint.generation.images.diffusion import EMPTY
from counterpoint.generation.images.inpainting import EMPTY_MASK, NO_IMAGE, NO_MASK, Inpainting
from counterpoint.generation.pairs import Pair, read_about, read_pairs, tabulate, write_pairs
from counterpoint.scoring.kinds import Work

__all__ = ["models", "store"]  # fixtures

pytestmark = pytest.mark.slow


def photographs(folder: Path) -> dict[str, np.ndarray]:
    """Two noisy photographs, one of them wide."""
    rng, made = np.random.default_rng(0), {}
    folder.mkdir()
    for name, shape in (("a.png", (24, 24, 3)), ("b.png", (20, 40, 3))):
        made[name] = rng.integers(0, 256, shape, dtype=np.uint8)
        Image.fromarray(made[name]).save(folder / name)
    return made


def size_of(path: Path) -> tuple[int, int]:
    with Image.open(path) as image:
        return image.size


def filler(tmp_path: Path, store: Store, model: Path, masks: Path) -> Inpainting:
    found = open_backend(
        str(model), SETTINGS, folder=tmp_path / "im", root=tmp_path, work=Work(store, 3, Quiet()),
        device="cpu", masks=masks, photos=tmp_path / "photos",
    )  # fmt: skip
    assert isinstance(found, Inpainting)
    return found


@pytest.mark.parametrize("name", ["inpaint", "sd"])  # nine channels; a sister with four
def test_only_what_the_mask_covers_is_drawn_again(
    name: str, models: dict[str, Path], store: Store, tmp_path: Path
) -> None:
    before = photographs(tmp_path / "photos")
    boxes = tmp_path / "boxes.csv"
    boxes.write_text("source,x,y,width,height\n1,4,6,10,8\n2,20,0,20,10\n3,50,50,5,5\n")
    asked = [
        Want("a red circle.", "a blue circle", "a.png", None, "1"),
        Want("a cat", "a dog", "b.png", None, "2"),
        Want("a cat", "a dog", "b.png", None, "3"),
        Want("a cat", "a dog", "b.png", None, "4"),
        Want("a cat", "a dog", "gone.png", None, "1"),
        Want(" ", "a dog", "a.png", None, "1"),
        Want("a red circle.", "another caption", "a.png", None, "1"),
    ]
    made = filler(tmp_path, store, models[name], boxes)
    drawn = made.draw(asked)
    reasons = [EMPTY_MASK, NO_MASK, NO_IMAGE, EMPTY]
    assert [row[0] for row in drawn[2:6]] == reasons and drawn[6] == drawn[0]
    assert made.drawn == 4
    inside = {"1": (slice(6, 14), slice(4, 14)), "2": (slice(0, 10), slice(20, 40))}
    for want, row in zip(asked[:2], drawn[:2], strict=True):
        original, (rows, columns) = before[want.image or ""], inside[want.source]
        masked = np.zeros(original.shape[:2], dtype=bool)
        masked[rows, columns] = True
        for candidate in row:
            assert isinstance(candidate, DrawnImage)
            after = np.asarray(Image.open(tmp_path / candidate.path))
            assert (after[~masked] == original[~masked]).all()
            assert (after[masked] != original[masked]).mean() > 0.5
    again = filler(tmp_path, store, models[name], boxes)
    change(again, lambda **_: pytest.fail("it was drawn again"))
    assert again.draw(asked) == drawn


def test_the_recorded_seed_inpaints_again(
    models: dict[str, Path], store: Store, tmp_path: Path
) -> None:
    """By diffusers alone: the same pixels inside the mask."""
    import diffusers

    photographs(tmp_path / "photos")
    (tmp_path / "masks").mkdir()
    mask = Image.new("L", (24, 24))
    mask.paste(200, (4, 4, 20, 12))
    mask.save(tmp_path / "masks" / "a.png")  # by the image; a file of the caption comes first
    made = filler(tmp_path, store, models["inpaint"], tmp_path / "masks")
    want = Want("a red circle", "a blue circle", "a.png", None, "1")
    [[first, _]] = made.draw([want])
    assert isinstance(first, DrawnImage)
    pipeline = diffusers.StableDiffusionInpaintPipeline.from_pretrained(models["inpaint"])
    pipeline.set_progress_bar_config(disable=True)
    image, size = Image.open(tmp_path / "photos" / "a.png"), (SIDE, SIDE)
    [expected] = pipeline(
        "a red circle, high resolution, professional, 4k, highly detailed",
        image=image.resize(size, Image.Resampling.LANCZOS),
        mask_image=mask.point(lambda v: 255 * (v > 99)).resize(size, Image.Resampling.NEAREST),
        generator=torch.Generator().manual_seed(first.seed),
        guidance_scale=5,
        num_inference_steps=2,
        height=SIDE,
        width=SIDE,
    ).images
    found = np.asarray(Image.open(tmp_path / first.path)).astype(int)
    wanted = np.asarray(expected.resize((24, 24), Image.Resampling.LANCZOS)).astype(int)
    assert np.abs(found[4:12, 4:20] - wanted[4:12, 4:20]).max() <= 2
    mask.paste(255, (0, 0, 24, 24))
    mask.save(tmp_path / "masks" / "1.png")
    assert made.draw([want])[0][0] != first
    cropped = want._replace(box=(2, 2, 10, 16))
    [[part, _]] = made.draw([cropped])
    assert isinstance(part, DrawnImage) and size_of(tmp_path / part.path) == (10, 16)


def test_inpainting_by_the_command(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path / "cache"))
    photographs(tmp_path / "photos")
    row = Pair("1", ImageRef("a.png"), "a dog", "a cat", "negative", "replace", "obj", "m", "1", 0)
    about = {"root": str(tmp_path / "photos")}
    write_pairs(tmp_path / "p.parquet", [tabulate([row])], about)
    (tmp_path / "boxes.csv").write_text("source,x,y,width,height\n1,4,6,10,8\n")
    app = typer.Typer()
    app.command()(plainly(generate_images.images))
    words = [str(tmp_path / "p.parquet"), "-o", str(tmp_path / "o.parquet"), "--steps", "1"]
    words += ["-m", str(models["inpaint"]), "--side", "16", "--device", "cpu"]
    result = CliRunner().invoke(app, [*words, "--masks", str(tmp_path / "boxes.csv")])
    assert result.exit_code == 0, result.output
    table = read_pairs(tmp_path / "o.parquet")
    assert size_of(tmp_path / table["text_image"][0]) == (24, 24)
    assert read_about(tmp_path / "o.parquet")["images"]["class"] == "StableDiffusionInpaintPipeline"
    assert CliRunner().invoke(app, [*words, "--images", "x"]).exit_code == 2
