"""Training data: pairs files, WebDataset shards, and the world drawn on the fly."""

from __future__ import annotations

from counterpoint._util.errors import DataError
from counterpoint.training.data.loading import Setting, TrainingData


def open_data(setting: Setting) -> TrainingData:
    """Open what a recipe names. Each kind is imported only when it is used."""
    config, batch, ranks = setting.config, setting.batch, setting.world_size
    if batch < 1 or batch % ranks:
        raise DataError(
            "E-BATCH-INDIVISIBLE",
            f"a batch of {batch} cannot be shared by {ranks} processes evenly.",
        )
    if config.kind == "world":
        from counterpoint.training.data.world import WorldData

        return WorldData(setting)
    if not config.paths:
        raise DataError(
            "E-DATA-MISSING",
            f"data of kind {config.kind!r} needs a file: give data.path=FILE.",
        )
    if config.kind == "pairs":
        from counterpoint.training.data.pairs import open_pairs

        return open_pairs(setting)
    from counterpoint.training.data.shards import open_shards

    return open_shards(setting)
