"""What the processes of a Ray cluster are started with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

from obygaze_features.extraction.engines.job import Job
from obygaze_features.extraction.engines.ray_actors import Computing, Load, Reading, comparable
from obygaze_features.extraction.engines.ray_plan import Plan
from obygaze_features.extraction.engines.ray_pool import Actor, Reference

__all__ = ["Start", "starts_computing", "starts_reading"]

Start = Callable[[], tuple[Actor, Reference]]
"""Starts a process, and gives the reference that tells when it is ready."""


def starts_reading(ray: ModuleType, job: Job) -> Start:
    """What starts one that reads."""
    kind = ray.remote(num_cpus=1)(Reading)
    eyes = [one.without_network() for one in job.backbones]
    cache = job.cache.absolute() if job.cache else None

    def start() -> tuple[Actor, Reference]:
        actor = kind.remote(job.videos.absolute(), eyes, job.patience, cache)
        return actor, actor.begin.remote(version("obygaze"))

    return start


def starts_computing(ray: ModuleType, job: Job, plan: Plan, loads: Sequence[Load]) -> Start:
    """What starts one that computes."""
    kind = ray.remote(num_cpus=plan.cpus, num_gpus=plan.gpus)(Computing)
    recipes = {one.name: comparable(one) for one in job.backbones}

    def start() -> tuple[Actor, Reference]:
        actor = kind.remote(loads, plan.device, plan.gpus, job.batch, Path.cwd())
        return actor, actor.begin.remote(version("obygaze"), recipes)

    return start
