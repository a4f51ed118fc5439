"""Opens training data by its kind; each kind is imported only when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from counterpoint._util.errors import DataError
from counterpoint._util.progress import Progress, Quiet
from counterpoint.training.data.base import DataConfig, Preprocess, TrainingData
from counterpoint.world import Tokenize

if TYPE_CHECKING:
    import torch

    from counterpoint.training.data.loading import See


def open_data(
    config: DataConfig,
    preprocess: Preprocess,
    tokenize: Tokenize,
    *,
    batch: int,
    seed: int,
    rank: int = 0,
    world_size: int = 1,
    device: torch.device | str = "cpu",
    pad: int = 0,
    cut: bool = True,
    whole: bool = False,
    progress: Progress | None = None,
    see: See | None = None,
) -> TrainingData:
    """Open what the recipe names.

    `batch` is the whole batch of all ranks. `preprocess` and `tokenize` are the model's;
    `preprocess` may augment: the random state is seeded for every image. If it is a torchvision
    `Compose`, its end runs on the GPU, and batches are a quarter as large on their way. `pad` is
    the tokenizer's padding: all texts of a batch are cut after the longest of them, unless `cut`
    is False. The last, incomplete batch of an epoch is dropped (in other epochs it holds other
    samples), unless the data is to be seen as a `whole`. `see` looks at all images now: batches
    then hold what a locked trunk makes of them, and no image is opened later.
    """
    if batch < 1 or batch % world_size:
        raise DataError(
            "E-BATCH-INDIVISIBLE",
            f"a batch of {batch} cannot be shared by {world_size} processes evenly.",
        )
    if config.kind != "world" and not config.paths:
        raise DataError(
            "E-DATA-MISSING", f"data of kind {config.kind!r} needs a file: give data.path=FILE."
        )
    from counterpoint.training.data.loading import Setting

    setting = Setting(
        config,
        preprocess,
        tokenize,
        batch,
        seed,
        rank,
        world_size,
        device,
        pad,
        cut,
        progress or Quiet(),
        whole,
        see,
    )
    if config.kind == "world":
        from counterpoint.training.data.world import open_world

        return open_world(setting)
    if config.kind == "pairs":
        from counterpoint.training.data.pairs import open_pairs

        return open_pairs(setting)
    from counterpoint.training.data.shards import open_shards

    return open_shards(setting)
