"""Where `obygaze features extract` does its work: here, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from obygaze_features.errors import UsageError

if TYPE_CHECKING:
    from obygaze_features.backbones import Backbone
    from obygaze_features.extraction.engines import Engine

__all__ = ["engine_of", "which_engine"]

Command = TypeVar("Command", bound=Callable[..., Any])


def which_engine(command: Command) -> Command:
    """The options that say where the work is done."""
    for option in (
        click.option("--ray-gpus", type=click.FloatRange(0), metavar="G",
                     help="GPUs that each of these takes, such as 0.5.  [default: 1, if any]"),
        click.option("--ray-cpus", type=click.FloatRange(0.001), metavar="C",
                     help="CPUs that each of these takes.  [default: 1]"),
        click.option("--ray-forwards", type=click.IntRange(1), metavar="N",
                     help="Processes that compute.  [default: one a GPU, or one]"),
        click.option("--ray-address", metavar="HOST:PORT",
                     help="The head of a cluster, or auto.  [default: one is started here]"),
        click.option("--engine", type=click.Choice(["local", "ray"]), default="local",
                     show_default=True, help="Do the work here, or on a Ray cluster."),
    ):  # fmt: skip
        command = option(command)
    return command


def engine_of(
    name: str,
    loads: Sequence[Callable[[str], Backbone]],
    device: str | None,
    ray: Mapping[str, Any],
) -> Engine:
    """The engine of a name; `ray` are the options of this module that are about Ray."""
    if name == "local":
        if odd := [one for one, value in ray.items() if value is not None]:
            raise UsageError(f"--{odd[0].replace('_', '-')} is for --engine ray")
        from obygaze_features.extraction.engines.local import work_here

        return work_here
    from obygaze_features.common.package import need

    need("ray", extra="ray")
    from obygaze_features.extraction.engines.ray import RayEngine
    from obygaze_features.extraction.engines.ray_cluster import check_address

    if ray["ray_address"]:
        check_address(ray["ray_address"])  # before backbones are loaded
    return RayEngine(
        loads,
        address=ray["ray_address"],
        device=device,
        forwards=ray["ray_forwards"],
        cpus=ray["ray_cpus"] or 1.0,
        gpus=ray["ray_gpus"],
    )
