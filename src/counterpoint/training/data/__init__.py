"""Training data: pairs files, WebDataset shards, and the world drawn on the fly."""

from __future__ import annotations

from collections import Counter

from counterpoint._util.errors import DataError
from counterpoint.training.data.loading import Setting, TrainingData


def open_data(setting: Setting) -> TrainingData:
    """Open what a recipe names. What draws the world needs no tables, and the other way round."""
    config, batch, ranks = setting.config, setting.batch, setting.world_size
    if batch < 1 or batch % ranks:
        raise DataError(
            "E-BATCH-INDIVISIBLE",
            f"a batch of {batch} cannot be shared by {ranks} processes evenly.",
        )
    if config.kind == "world":
        from counterpoint.training.data.world import WorldData

        return WorldData(setting)
    from counterpoint.training.data.samples import Samples
    from counterpoint.training.data.shards import read_shards
    from counterpoint.training.data.table import read_pairs

    problems = Counter[str]()
    read = read_pairs if config.kind == "pairs" else read_shards
    return Samples(setting, read(setting, problems), problems)
