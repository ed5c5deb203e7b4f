"""The processes of a Ray cluster: some read clips, others compute.

`Reader` and `Computer` are plain classes; `ray` makes actors of them. A process whose machine
differs from the one that runs the command raises an error that ends the run, because its results
would differ too.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from obygaze_features.backbones import Backbone
from obygaze_features.backbones.devices import limit_gpu_share
from obygaze_features.common.text import first_line
from obygaze_features.errors import (
    BackboneError,
    BrokenBackbone,
    ClusterError,
    ObygazeError,
    UsageError,
    VideoError,
)
from obygaze_features.extraction.decode_pool import Decoder
from obygaze_features.extraction.forward import Forward
from obygaze_features.extraction.plan import recipe_of
from obygaze_features.extraction.readers import ItemReader, ReadItem, upload
from obygaze_features.extraction.run import Load, Options
from obygaze_features.manifests import Item
from obygaze_features.store import Failed
from obygaze_features.store.writer import recipe_differences

SMALLEST_SHARE = 0.001
"""The smallest share of a CPU or GPU that a process may take."""

Pixels = Mapping[str, NDArray[Any]]
"""A clip's frames, resized, for each backbone that lacks them."""


@dataclass(frozen=True)
class Computed:
    """The results of a block: for each backbone a row of arrays a clip, or why it is broken."""

    rows: dict[str, list[dict[str, NDArray[Any]]]]
    batches: dict[str, int]
    seconds: float
    broken: dict[str, str] = field(default_factory=dict)


class Reader:
    """Reads clips; frames are resized on the CPU before they travel."""

    def __init__(
        self, videos: Path, backbones: Sequence[Backbone], stall_timeout: float, cache: Path | None
    ) -> None:
        self._videos, self._decoder = videos, Decoder(stall_timeout)
        self._reader = ItemReader(videos, backbones, cache)

    def start(self, software: str) -> None:
        """Raise if this machine cannot read what the others do."""
        _check_software(software)
        if not self._videos.is_dir():
            raise VideoError(
                f"the machine {platform.node()} has no folder {self._videos}; every machine of "
                "the cluster has to see the films under the same path"
            )

    def read(self, item: Item, names: Sequence[str]) -> tuple[ReadItem | Failed, Pixels | None]:
        """A clip without its pixels, and these apart: they go to a computer alone."""
        clip = self._reader.read(self._decoder, item, names)
        if isinstance(clip, Failed):
            return clip, None
        pixels = {
            name: frames.numpy()
            for name, frames in clip.inputs.items()
            if isinstance(frames, torch.Tensor)
        }
        return replace(clip, inputs={}), pixels


class Computer:
    """Holds the backbones on a device; `recipes` describe those of the command."""

    def __init__(
        self,
        loads: Sequence[Load],
        plan: WorkerPlan,
        recipes: Mapping[str, Mapping[str, Any]],
        batch: int | None,
        folder: Path,
    ) -> None:
        self._loads, self._plan, self._recipes = loads, plan, recipes
        self._batch, self._folder = batch, folder

    def start(self, software: str) -> dict[str, str]:
        """Load the backbones; return the device of each."""
        _check_software(software)
        # Checkpoints may be relative to the folder of the command.
        with contextlib.suppress(OSError):
            os.chdir(self._folder)
        loaded = [load(self._plan.device) for load in self._loads]
        backbones = [backbone for backbone in loaded if backbone.name in self._recipes]
        if self._plan.device.startswith("cuda") and self._plan.gpus < 1:
            for device in {backbone.device for backbone in backbones}:
                limit_gpu_share(device, self._plan.gpus)
        for backbone in backbones:
            if changed := recipe_differences(self._recipes[backbone.name], comparable(backbone)):
                raise BackboneError(
                    f"the machine {platform.node()} has another {backbone.name}: with other "
                    f"{' and other '.join(changed)}"
                )
        self._forwards = {backbone.name: Forward(backbone, self._batch) for backbone in backbones}
        return {backbone.name: backbone.device for backbone in backbones}

    def compute(self, references: Mapping[str, Sequence[Any]]) -> Computed:
        """Run the backbones over a block's clips, given references to their pixels in order."""
        import ray

        rows, broken, before = {}, {}, self._seconds()
        for name, clips in references.items():
            pixels = [torch.tensor(clip[name]) for clip in ray.get(list(clips))]
            forward = self._forwards[name]
            try:
                rows[name] = forward(upload(forward.backbone.device, pixels))
            except BrokenBackbone as problem:
                broken[name] = str(problem)
        batches = {name: forward.batch for name, forward in self._forwards.items()}
        return Computed(rows, batches, self._seconds() - before, broken)

    def _seconds(self) -> float:
        return sum(forward.seconds for forward in self._forwards.values())


def comparable(backbone: Backbone) -> dict[str, Any]:
    """The attributes of a backbone that `recipe_differences` compares."""
    return recipe_of(backbone).attributes() | {"items_digest": "", "block_rows": 0}


def _check_software(expected: str) -> None:
    if (installed := version("obygaze")) != expected:
        raise ClusterError(
            f"the machine {platform.node()} has obygaze {installed}, and the command runs "
            f"{expected}; install the same version on every machine of the cluster"
        )


@dataclass(frozen=True)
class WorkerPlan:
    """How many processes compute and how many read, and what each that computes takes."""

    forwards: int
    workers: int
    cpus: float
    gpus: float
    device: str

    def __str__(self) -> str:
        return (
            f"{self.forwards} x ({self.cpus:g} CPU, {self.gpus:g} GPU) to compute and "
            f"{self.workers} x 1 CPU to read"
        )


def plan_workers(available: Mapping[str, float], options: Options) -> WorkerPlan:
    """Choose what the options leave open, by the available ``CPU`` and ``GPU``."""
    gpus, device, cpus = options.ray_gpus, options.device, options.ray_cpus or 1.0
    kind, _, number = (device or "").partition(":")
    if number not in ("", "0"):
        raise UsageError(f"--device {device}: Ray chooses the GPUs. Give --device cuda")
    if gpus is None:
        gpus = float(bool(available["GPU"]) if device is None else kind == "cuda")
    if gpus > 1 or 0 < gpus < SMALLEST_SHARE:
        raise UsageError(
            f"--ray-gpus must be 0, 1 or a share such as 0.5 (got {gpus:g}): a process computes "
            "on one GPU; --ray-forwards says how many processes"
        )
    if kind == "cuda" and not gpus:
        raise UsageError(
            f"--device {device} and --ray-gpus {gpus:g} contradict each other. Leave one of them "
            "out"
        )
    if options.ray_forwards is not None:
        forwards = options.ray_forwards
    elif not gpus:
        forwards = 1
    else:
        # No process takes shares of two GPUs. Rounded: a tenth fits ten times.
        forwards = max(1, int(available["GPU"]) * int(1 / gpus + 1e-9))
    workers = options.workers or max(1, int(available["CPU"] - forwards * cpus))
    return WorkerPlan(forwards, workers, cpus, gpus, device or ("cuda" if gpus else "cpu"))


_MISSING_MODULE = re.compile(r"(?:ModuleNotFoundError|ImportError): (.+)")
_MISSING_ATTRIBUTE = re.compile(r"AttributeError: (Can't get attribute .+)")


def describe_actor_failure(problem: Exception) -> str:
    """Why a process was lost, in one line; raises errors that would recur on every process."""
    cause = getattr(problem, "cause", None)
    if isinstance(cause, ObygazeError):
        raise cause from None
    text = str(problem)
    if missing := _MISSING_MODULE.findall(text) or _MISSING_ATTRIBUTE.findall(text):
        address = re.search(r"\bip=([0-9a-fA-F.:]+)", text)
        raise ClusterError(
            f"a machine of the cluster{f' ({address[1]})' if address else ''} cannot run obygaze "
            f"({missing[-1].strip()}); install the same on every machine: "
            "pip install 'obygaze[extract,ray]'"
        ) from None
    if isinstance(cause, Exception):
        return f"{type(cause).__name__}: {first_line(cause)}"
    if "node has died" in text or "node was terminated" in text:
        return "its machine is gone"
    if "creation task" in text:  # the error is at the end of its traceback
        return text.strip().splitlines()[-1]
    return first_line(problem)
