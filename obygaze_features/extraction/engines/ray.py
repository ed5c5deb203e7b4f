"""The same blocks as work of a Ray cluster, joined or started here: `ray_run` says how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from obygaze_features.errors import UsageError
from obygaze_features.extraction.decoders import default_workers
from obygaze_features.extraction.engines.job import Job
from obygaze_features.extraction.engines.ray_actors import Load
from obygaze_features.extraction.engines.ray_blocks import BLOCKS
from obygaze_features.extraction.engines.ray_cluster import joined
from obygaze_features.extraction.engines.ray_plan import Plan, planned
from obygaze_features.extraction.engines.ray_run import Run
from obygaze_features.store.format import BLOCK_ROWS

__all__ = ["RayEngine"]

SMALLEST = 100 * 2**20
"""Bytes that Ray wants for its object store at least."""


@dataclass(frozen=True)
class RayEngine:
    """An engine for `extract` that has a Ray cluster do the work.

    Parameters
    ----------
    loads
        For each backbone of the extraction what loads it on a device: `load_backbone` with all but
        the device filled in.
    address
        ``HOST:PORT`` of the cluster's head, or ``auto``; by default a cluster is started here.
    device
        On which each process computes; by default a GPU if the cluster has any.
    forwards
        Processes that compute; by default as many as there are GPUs for, or else one.
    cpus, gpus
        What each of them takes, parts allowed: of less than one GPU it takes as much less memory.
        By default one CPU, and one GPU where it computes on such.
    """

    loads: Sequence[Load]
    address: str | None = None
    device: str | None = None
    forwards: int | None = None
    cpus: float = 1.0
    gpus: float | None = None

    def __call__(self, job: Job) -> None:
        """Do a job."""
        here = {"CPU": default_workers() + 1, "GPU": torch.cuda.device_count()}
        plan_for = partial(
            planned,
            forwards=self.forwards,
            workers=job.workers,
            cpus=self.cpus,
            gpus=self.gpus,
            device=self.device,
        )
        plan = plan_for(here)
        if not self.address and (needed := plan.forwards * plan.gpus) > here["GPU"]:
            raise UsageError(
                f"{plan.forwards} x {plan.gpus:g} GPU are {needed:g}, and this machine has "
                f"{here['GPU']}; {'leave out --ray-gpus' if self.gpus else 'give --device cpu'}, "
                "or give the --ray-address of a cluster that has them"
            )
        needed_cpus = int(plan.forwards * plan.cpus) + plan.workers
        own = {**here, "CPU": max(needed_cpus, here["CPU"])}
        with joined(self.address, resources=own, memory=_memory_for(job, plan)) as cluster:
            if self.address:
                plan = plan_for({what: cluster.count(what) for what in here})
            Run(job, plan, self.loads, cluster).work()


def _memory_for(job: Job, plan: Plan) -> int:
    """Bytes that a cluster's store needs for the frames that are on their way."""
    clip = sum(
        one.sampling.frames * 3 * one.preprocessing.crop[0] * one.preprocessing.crop[1]
        for one in job.backbones
    )
    return SMALLEST + int(1.25 * clip * BLOCK_ROWS * BLOCKS * plan.forwards)
