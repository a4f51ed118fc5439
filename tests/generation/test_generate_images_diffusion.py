"""Images by diffusion: seeds that are used, batches that do not show, files that survive a kill."""

from __future__ import annotations

import inspect
import json
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import typer
from diffusion_models import SETTINGS, SIDE, change, models, store, unet, xl_unet
from errors import raises
from PIL import Image
from processes import ended, start
from typer.testing import CliRunner

from counterpoint._util.progress import Quiet
from counterpoint._util.store import Store
from counterpoint.cases.files import read_cases
from counterpoint.cases.table import ImageRef
from counterpoint.cli import generate_images
from counterpoint.cli.console import plainly
from counterpoint.generation.images import diffusion as opening
from counterpoint.generation.images.backends import (
    DrawnImage,
    DrawSettings,
    ImageFolder,
    Want,
    seed_of,
)
from counterpoint.generation.images.candidates import open_backend
from counterpoint.generation.images.diffusion import BLACK, EMPTY, UNSAFE, Diffusion, LoadedPipeline
from counterpoint.generation.pairs import Pair, read_about, read_pairs, tabulate, write_pairs
from counterpoint.models.registry import LoadOptions
from counterpoint.models.torch_models import Runtime
from counterpoint.scoring.kinds import Work

__all__ = ["models", "store"]  # fixtures

pytestmark = pytest.mark.slow

TEXTS = ("a red circle.", "a dog & a cat", "heart")


Open = Callable[..., Diffusion]


@pytest.fixture
def backend(tmp_path: Path, store: Store) -> Open:
    """A backend that draws into a folder of that name below tmp_path."""

    def opened(
        model: Path | str, name: str, batch: int = 3, settings: DrawSettings = SETTINGS
    ) -> Diffusion:
        root = tmp_path / name
        found = open_backend(
            str(model), settings, folder=root / "im", root=root, work=Work(store, batch, Quiet()),
            device="cpu",
        )  # fmt: skip
        assert isinstance(found, Diffusion)
        return found

    return opened


def wants(*texts: str) -> list[Want]:
    return [Want(text, "a caption") for text in texts or TEXTS]


def pixels(root: Path, drawn: list[list[Any]]) -> np.ndarray:
    paths = [root / made.path for candidates in drawn for made in candidates]
    return np.stack([np.asarray(Image.open(path)).astype(int) for path in paths])


# --- diffusion ---------------------------------------------------------------------------------


def test_seeds_belong_to_what_is_drawn() -> None:
    assert seed_of(0, "a dog", 0) == 1970849582  # files of earlier versions are found again
    asked = [(seed, text, n) for seed in (0, 1) for text in ("a", "b") for n in range(4)]
    assert len({seed_of(*each) for each in asked}) == len(asked)


@pytest.mark.parametrize("name", ["sd", "xl"])
def test_images_do_not_depend_on_their_batch(
    name: str, models: dict[str, Path], backend: Open, tmp_path: Path
) -> None:
    three, one = backend(models[name], "3").draw(wants()), backend(models[name], "1", 1)
    alone = one.draw(wants(TEXTS[1]))
    assert three == one.draw(wants()) and alone == three[1:2]
    found = pixels(tmp_path / "3", three)
    assert found.shape == (6, SIDE, SIDE, 3) and found.std() > 10
    assert np.abs(found - pixels(tmp_path / "1", three)).max() <= 1  # a rounding
    assert len(np.unique(found.reshape(6, -1), axis=0)) == 6


def test_the_recorded_seed_draws_the_image_again(
    models: dict[str, Path], backend: Open, tmp_path: Path
) -> None:
    """By diffusers alone, from what the pairs file says."""
    import diffusers

    made = backend(models["xl"], "here")
    [[_, second]] = made.draw(wants("a red circle."))
    assert (
        isinstance(second, DrawnImage) and second.path.startswith("im/") and ".." not in second.path
    )
    told = made.describe()["settings"]
    pipeline = diffusers.StableDiffusionXLPipeline.from_pretrained(models["xl"])
    pipeline.set_progress_bar_config(disable=True)
    drawn = pipeline(
        "a red circle, high resolution, professional, 4k, highly detailed",
        generator=torch.Generator().manual_seed(second.seed),
        guidance_scale=5,
        num_inference_steps=told["num_inference_steps"],
        height=SIDE,
        width=SIDE,
    ).images[0]
    assert np.abs(np.asarray(drawn).astype(int) - pixels(tmp_path / "here", [[second]])).max() <= 1


def test_images_are_drawn_at_the_pipelines_own_size_and_resized(
    models: dict[str, Path], backend: Open, tmp_path: Path
) -> None:
    """As BiVLC's authors did: SDXL draws 1024 x 1024 pixels, of which 512 x 512 were saved."""
    whole = backend(models["xl"], "whole", settings=DrawSettings(steps=2))
    half = backend(models["xl"], "half", settings=DrawSettings(steps=2, saved=SIDE // 2))
    [[drawn]], [[small]] = whole.draw(wants("a red circle")), half.draw(wants("a red circle"))
    assert isinstance(drawn, DrawnImage) and isinstance(small, DrawnImage)
    with Image.open(tmp_path / "whole" / drawn.path) as image:
        assert image.size == (SIDE, SIDE)  # the pipeline's own; a smaller one is not enlarged
        expected = image.resize((SIDE // 2, SIDE // 2), Image.Resampling.BICUBIC)
    assert (np.asarray(expected) == pixels(tmp_path / "half", [[small]])[0]).all()
    told = half.describe()["settings"]
    assert (told["height"], told["width"]) == (SIDE, SIDE)
    assert (told["saved"], told["resampling"]) == (SIDE // 2, "bicubic")
    assert small.path != drawn.path and small.seed == drawn.seed


def test_what_is_there_is_not_drawn_again(
    models: dict[str, Path], backend: Open, tmp_path: Path
) -> None:
    first = backend(models["sd"], "here")
    drawn = first.draw([*wants(), *wants(TEXTS[0])])  # one text twice
    assert drawn[0] == drawn[3] and (first.drawn, first.found) == (6, 0)
    assert first.draw(wants("", " "))[1] == [EMPTY, EMPTY]
    again = backend(models["sd"], "here")
    change(again, lambda **_: pytest.fail("it was drawn again"))
    assert again.draw(wants()) == drawn[:3] and (again.drawn, again.found) == (0, 6)
    broken = tmp_path / "here" / drawn[1][0].path  # type: ignore[union-attr]
    whole = broken.read_bytes()
    broken.write_bytes(whole[:-5])
    mended = backend(models["sd"], "here")
    assert mended.draw(wants()) == drawn[:3] and mended.drawn == 1
    assert broken.read_bytes() == whole


def test_what_the_safety_checker_holds_back_is_refused_once(
    models: dict[str, Path], backend: Open, tmp_path: Path
) -> None:
    made = backend(models["prude"], "here")
    assert made.draw(wants("heart")) == [[UNSAFE, UNSAFE]]
    assert list((tmp_path / "here").rglob("*.png")) == []
    change(made, lambda **_: pytest.fail("it was drawn again"))
    assert made.draw(wants("heart")) == [[UNSAFE, UNSAFE]]


def test_memory_that_runs_out_halves_the_batch(
    models: dict[str, Path], backend: Open, tmp_path: Path
) -> None:
    made, sizes, room = backend(models["sd"], "here", 6), [], 2

    def tight(prompt: list[str], **_: Any) -> Any:
        sizes.append(len(prompt))
        if len(prompt) > room:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return SimpleNamespace(images=[Image.new("RGB", (8, 8), "red")] * len(prompt))

    change(made, tight)
    assert all(isinstance(each, DrawnImage) for row in made.draw(wants()) for each in row)
    assert sizes == [6, 3, 1, 1, 1, 1, 1, 1]
    room = 0
    with raises("E-OUT-OF-MEMORY"):
        made.draw(wants("zebra"))
    room = 9
    change(made, lambda prompt, **_: SimpleNamespace(images=[Image.new("RGB", (8, 8))]))
    assert made.draw(wants("two"))[0][0] == BLACK


def test_the_default_is_a_pipeline_with_another_unet(
    models: dict[str, Path], backend: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert opening.MODELS["sdxl-dpo"].unet == "mhdang/dpo-sdxl-text2image-v1"
    recipe = opening.PipelineParts(str(models["xl"]), str(models["dpo"]))
    monkeypatch.setitem(opening.MODELS, "sdxl-dpo", recipe)
    plain, mixed = backend(models["xl"], "plain"), backend("sdxl-dpo", "mixed")
    assert plain.fingerprint != mixed.fingerprint
    weights = xl_unet(seed=9).state_dict()
    found = mixed.opened.pipeline.unet.state_dict()
    assert all(torch.equal(found[name], value) for name, value in weights.items())
    there = [pixels(tmp_path / m, made.draw(wants())) for m, made in
             (("plain", plain), ("mixed", mixed))]  # fmt: skip
    assert (there[0] != there[1]).any()


def test_a_model_is_the_same_wherever_it_lies(models: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(models["sd"], tmp_path / "moved")
    prints = {opening.open_pipeline(str(f), "cpu").fingerprint for f in
              (models["sd"], tmp_path / "moved")}  # fmt: skip
    assert len(prints) == 1
    config = tmp_path / "moved" / "scheduler" / "scheduler_config.json"
    config.write_text(config.read_text().replace('"linear"', '"scaled_linear"', 1))
    assert opening.open_pipeline(str(tmp_path / "moved"), "cpu").fingerprint not in prints
    assert opening.open_pipeline(str(models["sd"]), "cpu", "bf16").fingerprint not in prints


def test_pickles_and_code_are_refused(models: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(models["sd"], tmp_path / "m")
    weights = tmp_path / "m" / "unet" / "diffusion_pytorch_model.safetensors"
    torch.save(unet(cross_attention_dim=16).state_dict(), weights.with_suffix(".bin"))
    weights.unlink()
    with raises("E-MODEL-FAILED"):
        opening.open_pipeline(str(tmp_path / "m"), "cpu")
    index = tmp_path / "m" / "model_index.json"
    said = json.loads(index.read_text())
    (tmp_path / "m" / "unet" / "evil.py").write_text("raise SystemExit('it was run')")
    index.write_text(json.dumps({**said, "unet": ["evil", "Net"]}))
    with raises("E-CODE-REFUSED", "unet"):
        opening.open_pipeline(str(tmp_path / "m"), "cpu")
    index.write_text(json.dumps({**said, "_class_name": ["evil", "Pipeline"]}))
    with raises("E-CODE-REFUSED"):
        opening.open_pipeline(str(tmp_path / "m"), "cpu")


def test_models_that_are_not_there_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with raises("E-MODEL-UNKNOWN", "sdxl-dop"):
        opening.open_pipeline("sdxl-dop", "cpu")
    with raises("E-MODEL-BROKEN", str(tmp_path)):
        opening.open_pipeline(str(tmp_path), "cpu")
    with raises("E-PRECISION-UNKNOWN", "fp61"):
        opening.open_pipeline(str(tmp_path), "cpu", "fp61")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with raises("E-MODEL-FAILED") as error:
        opening.open_pipeline("nobody/nothing", "cpu")
    assert "\n" not in str(error.value)
    with raises("E-PATH-OUTSIDE", tmp_path):
        open_backend("x/y", SETTINGS, folder=tmp_path.parent, root=tmp_path, work=None)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "diffusers", None)
    monkeypatch.delitem(sys.modules, opening.__name__)
    with raises("E-EXTRA-MISSING", "generate"):
        open_backend("x/y", SETTINGS, folder=tmp_path, root=tmp_path, work=None)  # type: ignore[arg-type]


def test_a_pipeline_that_mends_images_is_made_to_draw(
    models: dict[str, Path], backend: Open, tmp_path: Path
) -> None:
    import diffusers

    shutil.copytree(models["sd"], tmp_path / "mends")
    index = tmp_path / "mends" / "model_index.json"
    index.write_text(index.read_text().replace("DiffusionPipeline", "DiffusionImg2ImgPipeline"))
    made = backend(tmp_path / "mends", "here")
    assert type(made.opened.pipeline) is diffusers.StableDiffusionPipeline
    assert made.fingerprint == backend(models["sd"], "there").fingerprint
    net = diffusers.UNet2DModel(
        block_out_channels=(8, 8),
        norm_num_groups=4,
        down_block_types=("DownBlock2D",) * 2,
        up_block_types=("UpBlock2D",) * 2,
    )
    diffusers.DDPMPipeline(net, diffusers.DDPMScheduler()).save_pretrained(tmp_path / "blind")
    with raises("E-MODEL-UNSUITABLE"):
        opening.open_pipeline(str(tmp_path / "blind"), "cpu")


def test_the_command_line_draws_into_a_folder_beside_the_result(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path / "cache"))
    end = ("replace", "obj", "rule", "1", 0)
    negatives = [
        Pair(str(n), None, "a dog", text, "negative", *end) for n, text in enumerate(TEXTS * 2)
    ]
    (tmp_path / "a").mkdir()
    pairs, out = tmp_path / "pairs.parquet", tmp_path / "a" / "drawn.parquet"
    write_pairs(pairs, [tabulate(negatives)], {})
    app = typer.Typer()
    app.command("images")(plainly(generate_images.images))
    asked = [str(pairs), "-o", str(out), "-m", str(models["sd"]), "--steps", "2"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert "6 negatives: 6 with images, 6 with a chosen one" in done.output
    assert "3 prompts longer than the model reads" in " ".join(done.output.split())
    assert len(list((tmp_path / "a" / "drawn-images").rglob("*.png"))) == 3
    (tmp_path / "a").rename(tmp_path / "b")  # paths go with the folder
    table = read_pairs(tmp_path / "b" / "drawn.parquet")
    for path, images in table.select("text_image", "text_images").iter_rows():
        with Image.open(tmp_path / "b" / path) as image:
            assert image.size == (SIDE, SIDE) and images[0]["path"] == path
    made = read_about(tmp_path / "b" / "drawn.parquet")["images"]
    assert (made["drawn"], made["cut"], made["settings"]["guidance_scale"]) == (3, 3, 5.0)


def test_a_caption_is_drawn_again_with_another_seed(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caption's own image and the negative's were drawn with seed 0; the cases are 3 x 3."""
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path / "cache"))
    how = ["-m", str(models["sd"]), "--side", "16", "--steps", "2", "--device", "cpu"]
    app = typer.Typer()
    app.command("images")(plainly(generate_images.images))
    app.command("renderings")(plainly(generate_images.renderings))
    end = ("replace", "obj", "rule", "1", 0)

    def run(verb: str, pairs: Path, out: Path, *more: str) -> None:
        done = CliRunner().invoke(app, [verb, str(pairs), "-o", str(out), *how, *more])
        assert done.exit_code == 0, done.output

    first = Pair("1", None, "a cat", "a dog", "negative", *end)  # draws the caption: "a dog"
    write_pairs(tmp_path / "first.parquet", [tabulate([first])], {})
    run("images", tmp_path / "first.parquet", tmp_path / "own.parquet")
    table = read_pairs(tmp_path / "own.parquet")
    own = ImageRef(table["text_image"][0])
    rows = [
        Pair("1", own, "a dog", "a cat", "negative", *end),
        Pair("1", own, "a dog", "a hound", "positive", *end),
    ]
    write_pairs(tmp_path / "pairs.parquet", [tabulate(rows)], {})
    run("images", tmp_path / "pairs.parquet", tmp_path / "drawn.parquet")
    run("renderings", tmp_path / "drawn.parquet", tmp_path / "cases.parquet")
    cases = read_cases(tmp_path / "cases.parquet")
    case = cases.case(0)
    assert len(cases) == 1 and case.groups == ("drawn",)
    assert case.captions == ("a dog", "a hound", "a cat")
    assert case.truth == ((True, True, False), (True, True, False), (False, False, True))
    original, again, other = (np.asarray(Image.open(tmp_path / i.path)) for i in case.images)
    assert not np.array_equal(original, again) and not np.array_equal(again, other)
    [row] = (tmp_path / "cases-changes.jsonl").read_text().splitlines()
    assert json.loads(row)["seed"] == seed_of(1, "a dog", 0)
    words = ["renderings", str(tmp_path / "drawn.parquet"), "-o", str(tmp_path / "same.parquet")]
    same = CliRunner().invoke(app, [*words, *how, "--seed", "0"])
    assert same.exit_code == 1 and "no image could be changed" in same.output


# --- killed ------------------------------------------------------------------------------------


def draw_slowly(root: Path, count: int, pause: float) -> tuple[Diffusion, list[str]]:
    def noise(
        prompt: Any, generator: Any, output_type: Any, num_inference_steps: int = 1
    ) -> SimpleNamespace:
        time.sleep(pause)
        numbers = [torch.randint(256, (64, 64, 3), generator=g).byte().numpy() for g in generator]
        return SimpleNamespace(images=[Image.fromarray(each) for each in numbers])

    takes = inspect.signature(noise).parameters
    opened = LoadedPipeline("noise", noise, Runtime(LoadOptions("cpu")), "fp32", takes, "noise")
    with Store(root / "store") as store:
        work = Work(store, 2, Quiet())
        made = Diffusion(opened, DrawSettings(), ImageFolder(root / "im", root), work)
        return made, made.draw([Want(str(number), "") for number in range(count)])


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    root = tmp_path / "killed"
    child = start(draw_slowly, root, 1000, 0.02)
    limit = time.monotonic() + 60
    try:
        while len(list(root.glob("im/*/[!.]*.png"))) < 7:
            assert child.is_alive() and time.monotonic() < limit
            time.sleep(0.001)
    finally:
        child.kill()
    assert ended(child) == -signal.SIGKILL
    before = {path: path.stat().st_mtime_ns for path in root.glob("im/*/[!.]*.png")}
    assert 7 <= len(before) < 1000
    made, drawn = draw_slowly(root, len(before) + 9, 0)
    assert (made.found, made.drawn) == (len(before), 9)
    assert all(path.stat().st_mtime_ns == then for path, then in before.items())
    _, undisturbed = draw_slowly(tmp_path / "whole", len(before) + 9, 0)
    assert drawn == undisturbed
    assert (pixels(root, drawn) == pixels(tmp_path / "whole", drawn)).all()
    # Killed between an image and the end of its lock, a run leaves the lock, and nothing else.
    left = [path.suffix for path in root.glob("im/*/*") if path.suffix != ".png"]
    assert left in ([], [".lock"])
