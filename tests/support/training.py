"""Tiny runs in the world, for the tests of training."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch
from open_clip_models import CLIP, save_model
from processes import ended, start
from safetensors.torch import load_file
from torch import distributed
from train_data_support import rows_of, training_file

from counterpoint.training import Trained, load_recipe, loop, train
from counterpoint.training.processes import Ranks
from counterpoint.training.recipe import Recipe

CPU = Ranks(0, 1, torch.device("cpu"))
SMALL = (
    *("precision=fp32", "batch=8", "steps=6", "lr=1e-2", "warmup=2", "save_every=2", "log_every=1"),
    *("data.workers=0", "data.size=40", "benchmarks=[]", "save_as=fp32", "device=cpu"),
)


def tiny_start(folder: Path, model_cfg: dict = CLIP) -> str:
    """The id of a start that trains in no time."""
    return f"open_clip:local-dir:{save_model(folder, model_cfg)}"


def small_recipe(folder: Path, *changes: str, name: str = "hp-hn", out: str = "run") -> Recipe:
    """A recipe in the world with a tiny start in `folder`, ending in `folder/out`."""
    first = folder / "start"
    id = f"open_clip:local-dir:{first}" if first.is_dir() else tiny_start(first)
    return load_recipe(name, [*SMALL, f"model={id}", f"out={folder / out}", *changes], world=True)


def run_small(folder: Path, *changes: str, name: str = "hp-hn", out: str = "run") -> Trained:
    torch.set_num_threads(1)
    done = train(small_recipe(folder, *changes, name=name, out=out))
    assert done is not None
    return done


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """The finished model's."""
    return load_file(folder / "model" / "open_clip_model.safetensors")


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    """Bit for bit."""
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def held_out(folder: Path) -> str:
    """The change of a recipe that names a validation file of 12 images."""
    (folder / "held").mkdir(exist_ok=True)
    rows = rows_of()
    rows[3]["image"] = rows[2]["image"]  # two captions of one image
    return f"validation.path={training_file(folder / 'held', rows)}"


def last_checkpoint(folder: Path) -> Path:
    return max((folder / "checkpoints").glob("step-*"))


def written(recipe: Recipe) -> str:
    """The path of a file that holds the recipe."""
    values = recipe.model_dump(mode="json", by_alias=True, exclude_none=True)
    path = recipe.folder.with_suffix(".yaml")
    path.write_text(json.dumps(values), encoding="utf-8")
    return str(path)


class Killed(BaseException):
    """Nothing catches it, as nothing catches a kill."""


def broken_off(
    folder: Path, monkeypatch, at: int, *changes: str, out: str, name: str = "hp-hn"
) -> None:
    """A run that ends in the middle of a step: weights changed, nothing written."""
    inner = loop.update

    def killed(run, step):
        found = inner(run, step)
        if step == at:
            raise Killed
        return found

    with monkeypatch.context() as patch:
        patch.setattr(loop, "update", killed)
        with pytest.raises(Killed):
            run_small(folder, *changes, out=out, name=name)


def everything(folder: Path) -> dict[str, torch.Tensor]:
    """Weights, averages and the optimiser's state of the last checkpoint."""
    last = last_checkpoint(folder)
    return {
        f"{name}: {key}": value
        for name in ("weights", "optimiser")
        for key, value in load_file(last / f"{name}.safetensors").items()
    }


def train_in_two(meeting: str, rank: int, paths: list[str]) -> None:
    """Each run is broken off before its last step, and goes on."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    inner = loop.update

    def killed(run, step):
        if step == 3:
            raise SystemError
        return inner(run, step)

    for path in paths:
        loop.update = killed
        with pytest.raises(SystemError):
            loop.train(load_recipe(path))
        distributed.barrier()
        loop.update = inner
        loop.train(load_recipe(path))
    distributed.destroy_process_group()


def train_by_two(folder: Path, paths: list[str]) -> None:
    """These recipes by two processes that share each batch."""
    ranks = [{"RANK": str(rank), "WORLD_SIZE": "2"} for rank in range(2)]
    both = [
        start(train_in_two, f"file://{folder}/meeting", rank, paths, environment=environment)
        for rank, environment in enumerate(ranks)
    ]
    assert [ended(process) for process in both] == [0, 0]


def resumes_the_same(
    folder: Path, monkeypatch, steps: Iterable[int], *changes: str, name: str = "hp-hn"
) -> None:
    """A run that is broken off at any of these steps ends with the bytes of `folder/whole`."""
    run_small(folder, *changes, out="whole", name=name)
    for at in steps:
        broken_off(folder, monkeypatch, at, *changes, out=f"at{at}", name=name)
        assert not (folder / f"at{at}" / "model").exists()
        run_small(folder, *changes, out=f"at{at}", name=name)
        assert same(saved_weights(folder / f"at{at}"), saved_weights(folder / "whole"))
        assert same(everything(folder / f"at{at}"), everything(folder / "whole"))


def saved_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Of a model of open_clip or transformers."""
    [path] = (folder / "model").glob("*model.safetensors")
    return load_file(path)


def two_end_as_one(
    folder: Path, make: Callable[..., Recipe], *ways: str, atol: float, alike: str = ""
) -> None:
    """DDP and FSDP2 over gloo, each broken off once: two ranks with half of each batch. `make`
    gives the recipe of an output folder, with changes; `alike`: of which weights."""
    train(make(out="alone"))
    alone = {n: w for n, w in saved_weights(folder / "alone").items() if alike in n}
    recipes = [make(way, out=way) for way in ways]
    train_by_two(folder, [written(recipe) for recipe in recipes])
    assert alone
    for way in ways:
        found = saved_weights(folder / way)
        assert all(torch.allclose(alone[n], found[n], atol=atol) for n in alone), way


def tensors(path: Path) -> dict[str, torch.Tensor]:
    return load_file(path.with_suffix(".safetensors"))
