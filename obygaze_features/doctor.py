"""What is installed, which devices there are, what is missing for which job and how to get it."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from packaging.requirements import Requirement

from obygaze_features.common.tables import align
from obygaze_features.common.text import join_some

__all__ = ["JOBS", "Diagnosis", "Job", "describe_diagnosis", "diagnose"]

#: Extra of the package -> what one does with it. The empty one is what is always there.
JOBS = {
    "": "manifests, annotations, stores",
    "models": "training models",
    "extract": "features from films",
    "language": "embeddings and scores of texts",
    "report": "report pages and figures",
    "views": "stores as pandas and xarray",
    "remote": "stores over networks",
    "ray": "extraction driven by Ray",
    "onnx": "models as ONNX files",
    "agreement": "gamma on free segments",
}
SHOWN = 4
"""Packages that a line names."""


@dataclass(frozen=True)
class Job:
    """A job, the packages that it needs, and those that are missing or too old."""

    extra: str
    title: str
    installed: dict[str, str]
    missing: list[str]

    @property
    def ready(self) -> bool:
        """Whether everything is there."""
        return not self.missing

    @property
    def remedy(self) -> str:
        """The command that brings what is missing."""
        return f"pip install 'obygaze[{self.extra}]'" if self.extra else "pip install obygaze"


@dataclass(frozen=True)
class Diagnosis:
    """The state of an installation."""

    version: str
    python: str
    system: str
    jobs: list[Job]
    devices: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The diagnosis as JSON."""
        jobs = [{**vars(job), "ready": job.ready, "remedy": job.remedy} for job in self.jobs]
        return {**vars(self), "jobs": jobs}


def diagnose() -> Diagnosis:
    """Look at the installed packages, and ask torch for devices."""
    return Diagnosis(
        version=metadata.version("obygaze"),
        python=platform.python_version(),
        system=platform.platform(),
        jobs=[_job(extra, title) for extra, title in JOBS.items()],
        devices=dict(_devices()),
    )


def describe_diagnosis(found: Diagnosis) -> str:
    """The diagnosis for a terminal."""
    jobs = align(
        ["job", "", "what is there, or missing"],
        [
            [
                job.title,
                "ready" if job.ready else "MISSING",
                join_some([f"{name} {version}" for name, version in job.installed.items()], SHOWN)
                if job.ready
                else f"{join_some(job.missing, SHOWN)} -> {job.remedy}",
            ]
            for job in found.jobs
        ],
        left=3,
    )
    devices = align(["device", ""], found.devices.items(), left=2)
    head = f"obygaze {found.version}, Python {found.python}, {found.system}"
    return f"{head}\n\n{jobs}\n\n{devices}"


def _job(extra: str, title: str) -> Job:
    installed: dict[str, str] = {}
    missing = []
    for requirement in _requirements(extra):
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            missing.append(requirement.name)
            continue
        if requirement.specifier.contains(version, prereleases=True):
            installed[requirement.name] = version
        else:
            missing.append(f"{requirement.name}{requirement.specifier} (you have {version})")
    return Job(extra, title, installed, missing)


def _requirements(extra: str) -> Iterator[Requirement]:
    """The packages that an extra brings, or with no extra those that are always there."""
    for requirement in map(Requirement, metadata.requires("obygaze") or ()):
        marker = requirement.marker
        of_extra = "" if marker is None else re.sub(r'.*extra == "(.*?)".*', r"\1", str(marker))
        if of_extra == extra:
            yield requirement


def _devices() -> Iterator[tuple[str, str]]:
    yield "cpu", f"{os.cpu_count()} cores{_memory()}"
    try:
        import torch
    except ImportError:
        yield "gpu", "unknown: torch is not installed"
        return
    for number in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(number)
        yield f"cuda:{number}", f"{about.name}, {about.total_memory / 2**30:.0f} GiB"
    if torch.backends.mps.is_available():
        yield "mps", "Apple GPU"
    elif not torch.cuda.is_available():
        built = (
            "this torch is built for it" if torch.version.cuda else "this torch is built for CPU"
        )
        yield (
            "gpu",
            f"none that torch can use ({built}); extraction will be slow, training will not",
        )


def _memory() -> str:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return ""  # Windows does not say it this way
    return f", {total / 2**30:.0f} GiB memory"
