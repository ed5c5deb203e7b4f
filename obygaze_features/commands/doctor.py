"""The command ``obygaze doctor``, which shows versions, devices and missing packages."""

from __future__ import annotations

import platform
from importlib import metadata

import click
from packaging.requirements import Requirement

from obygaze_features.backbones.devices import try_device
from obygaze_features.common.cli import exit_if, show
from obygaze_features.common.package import usable_cores
from obygaze_features.errors import first_line

#: The purpose of each extra. The empty name stands for the core, which is always installed.
EXTRAS = {
    "": "manifests, annotations, stores",
    "models": "training models",
    "extract": "features from films",
    "language": "embeddings and scores of texts",
    "report": "report pages and figures",
    "remote": "stores over networks",
    "ray": "extraction on Ray clusters",
    "timm": "networks from timm",
    "small": "small learnt networks without the Hub",
}


@click.command()
def doctor() -> None:
    """Show versions and devices, and which packages each job still needs.

    `pip check` finds installed packages that do not fit together. Exits with code 1 if a package
    that every job needs is missing or too old.

    \b
    Example:
      obygaze doctor
    """
    jobs = []
    for extra, title in EXTRAS.items():
        missing = missing_packages(extra)
        jobs.append({"extra": extra, "job": title, "missing": missing})

    facts = {
        "obygaze": metadata.version("obygaze"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": usable_cores(),
    }
    show({**facts, **_describe_torch(), "jobs": jobs})
    exit_if(jobs[0]["missing"], 1)


def missing_packages(extra: str) -> list[str]:
    """Return the requirements of an extra, or of the core, that are missing or too old."""
    missing = []
    for requirement in map(Requirement, metadata.requires("obygaze") or ()):
        marker = requirement.marker
        is_core = marker is None or marker.evaluate({"extra": ""})
        is_needed = marker is None or marker.evaluate({"extra": extra})
        if not is_needed or is_core == bool(extra):
            continue

        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            version = ""
        if not version or not requirement.specifier.contains(version, prereleases=True):
            missing.append(f"{requirement.name}{requirement.specifier}")
    return missing


def _describe_torch() -> dict[str, object]:
    """Return torch's version, and the state of each GPU."""
    try:
        import torch
    except (ImportError, OSError) as problem:  # not installed, or a CUDA library is missing
        return {"torch": first_line(problem)}

    devices = {}
    for number in range(torch.cuda.device_count()):
        name = torch.cuda.get_device_name(number)
        devices[f"cuda:{number}"] = try_device(f"cuda:{number}") or name
    if torch.backends.mps.is_available():
        devices["mps"] = try_device("mps") or "Apple GPU"
    return {"torch": torch.__version__, "devices": devices or "cpu only"}
