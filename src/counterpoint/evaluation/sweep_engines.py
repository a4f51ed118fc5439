"""Where the cells of a sweep run: here, one process per device, on Ray, or as a Slurm array."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping, Sequence
from multiprocessing import connection, get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from counterpoint._util.errors import MissingExtraError
from counterpoint._util.processes import ENGINES, check_engine, ray_cluster, working_folder
from counterpoint._util.progress import Progress
from counterpoint._util.untrusted import shortened
from counterpoint.evaluation.devices import device_names
from counterpoint.evaluation.sweeping import (
    CellJob,
    EvalSweep,
    close_sweep,
    default_folder,
    jobs_of,
    open_sweep,
    read_plan,
    record_crash,
    run_cell,
)


def sweep_evaluations(
    path: Path,
    *,
    out: Path | None = None,
    devices: str = "",
    engine: str = "local",
    address: str = "local",
    slurm: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> EvalSweep:
    """Run the cells of a plan that are not done, and say what is done and what failed.

    `devices`: `0,1`, `all` or `cpu,cpu`, one process each. `engine`: local, ray (at `address`:
    local, auto or ray://...) or slurm, with `slurm` as parameters of submitit.
    """
    check_engine(engine, (*ENGINES, "slurm"))
    plan = read_plan(path)
    folder = out or default_folder(path, plan)
    named = device_names(devices or plan.devices)
    open_sweep(plan, folder)
    jobs = jobs_of(plan, folder)
    if engine == "ray":
        _on_ray(jobs, address, len(named) or None)
    elif engine == "slurm":
        _on_slurm(jobs, folder / "slurm", dict(slurm or {}))
    elif len(named) > 1:
        _on_devices(jobs, named)
    else:
        for job in jobs:
            run_cell(job, named[0] if named else "auto", progress)
    return close_sweep(plan, folder)


def _work(job: CellJob, device: str, here: str) -> None:
    """A cell in another process; paths in ids start from the folder of the command."""
    os.chdir(here)
    run_cell(job, device)


def _on_devices(jobs: Sequence[CellJob], devices: Sequence[str]) -> None:
    """A process per cell, as many at a time as there are devices.

    A process that is killed costs its cell, which is recorded, and not the others.
    """
    context, here = get_context("spawn"), working_folder()
    waiting, free = deque(jobs), deque(devices)
    running: dict[BaseProcess, tuple[CellJob, str]] = {}
    try:
        while waiting or running:
            while waiting and free:
                job, device = waiting.popleft(), free.popleft()
                process = context.Process(target=_work, args=(job, device, here))
                process.start()
                running[process] = job, device
            connection.wait([process.sentinel for process in running])
            for ended in [one for one in running if one.exitcode is not None]:
                job, device = running.pop(ended)
                ended.join()
                free.append(device)
                if status := ended.exitcode:
                    killed = f"by signal {-status}, probably out of memory"
                    how = killed if status < 0 else f"with status {status}"
                    record_crash(job, f"its process ended {how}.")
    finally:
        for left in running:
            left.terminate()
            left.join()


def _on_ray(jobs: Sequence[CellJob], address: str, workers: int | None) -> None:
    """One task per cell; a cell gets a GPU where the cluster has some."""
    with ray_cluster(address, workers) as ray:
        gpus = 1 if ray.cluster_resources().get("GPU") else 0
        task = ray.remote(_work).options(num_cpus=1, num_gpus=gpus, max_retries=2)
        asked = [(job, task.remote(job, "auto", working_folder())) for job in jobs]
        for job, answer in asked:
            try:
                ray.get(answer)
            except ray.exceptions.RayError as error:
                record_crash(job, f"its Ray task failed: {shortened(error)}")


def _on_slurm(jobs: Sequence[CellJob], logs: Path, settings: dict[str, Any]) -> None:
    """One job of an array per cell; its logs are in `slurm/` in the results folder."""
    try:
        import submitit
    except ImportError:
        raise MissingExtraError("the engine slurm", "slurm") from None
    executor = submitit.AutoExecutor(folder=logs.absolute(), cluster=settings.pop("cluster", None))
    executor.update_parameters(name="counterpoint-sweep", **settings)
    count, here = len(jobs), working_folder()
    found = executor.map_array(_work, jobs, ["auto"] * count, [here] * count)
    for job, answer in zip(jobs, found, strict=True):
        try:
            answer.result()
        except Exception as error:  # what the job raised, or that it was lost
            record_crash(job, f"its Slurm job failed: {shortened(error)}")
