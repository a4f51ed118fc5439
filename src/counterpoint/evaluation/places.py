"""Where a model computes: here, in one process per device, or on a cluster of Ray."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from counterpoint._util.cluster import check_engine, ray_cluster, working_folder
from counterpoint._util.errors import CounterpointError
from counterpoint._util.untrusted import shown
from counterpoint.models import LoadOptions, is_device, load_model, load_remembered
from counterpoint.scoring import Model, Processes, RayWorkers, Work, distributed


def device_names(text: str) -> list[str]:
    """`0,1` is cuda:0 and cuda:1; `all` is every GPU; a name may stand twice: `cpu,cpu`."""
    if text == "all":
        import torch

        return [f"cuda:{n}" for n in range(torch.cuda.device_count())] or ["cpu"]
    names = [f"cuda:{part}" if part.isdecimal() else part for part in text.split(",") if part]
    for name in names:
        if not is_device(name):
            raise CounterpointError(
                "E-OPTION-INVALID",
                f"devices: {shown(name)} is no device; as in 0,1 or all or cpu,cpu.",
            )
    return names


@dataclass(frozen=True, slots=True)
class Place:
    """Where models are loaded. Without devices and with the engine `local`, it is this process.

    On Ray, `workers` is the number of actors: by default one for each GPU, else one for each CPU.
    """

    devices: tuple[str, ...] = ()
    engine: str = "local"
    address: str = "local"
    workers: int | None = None

    def __post_init__(self) -> None:
        check_engine(self.engine)

    @contextmanager
    def cluster(self) -> Iterator[Any]:
        """The module `ray`, joined to the cluster; None if none is needed."""
        if self.engine != "ray":
            yield None
            return
        with ray_cluster(self.address, self.workers) as ray:
            yield ray

    @contextmanager
    def loaded(self, name: str, options: LoadOptions, work: Work, ray: Any) -> Iterator[Model]:
        """The model. One that has to be in one place is loaded here: a blind model that is fitted
        to a benchmark, an ensemble."""
        alone = replace(options, device=self.devices[0]) if self.devices else options
        if ray is None and len(self.devices) < 2:
            yield load_remembered(name, alone, work.store)
            return
        workers: Any
        if ray is not None:
            resources = ray.cluster_resources()
            gpus = int(resources.get("GPU", 0))
            count = self.workers or gpus or max(1, int(resources.get("CPU", 1)))
            load = partial(load_model, name, options)
            workers = RayWorkers(ray, load, count, int(gpus > 0), working_folder())
        else:
            placed = (replace(options, device=device) for device in self.devices)
            workers = Processes([partial(load_model, name, one) for one in placed])
        with closing(workers):
            model = distributed(workers)
            if model is None:
                workers.close()  # or it would be loaded twice
            yield model or load_model(name, alone)
