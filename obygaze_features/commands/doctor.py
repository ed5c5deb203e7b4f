"""``obygaze doctor``: what is installed, which devices there are, and what is missing for what."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Any

import click
from packaging.requirements import Requirement

from obygaze_features.backbones.devices import MAX_WORKERS, default_workers, try_device
from obygaze_features.common.cli import emit, exit_if, json_option
from obygaze_features.common.package import usable_cores
from obygaze_features.common.tables import align
from obygaze_features.common.text import counted, first_line, join_some

#: Extra of the package -> what it is for. The empty one is the core, which is always installed.
EXTRAS = {
    "": "manifests, annotations, stores",
    "models": "training models",
    "extract": "features from films",
    "language": "embeddings and scores of texts",
    "report": "report pages and figures",
    "views": "stores as pandas and xarray",
    "remote": "stores over networks",
    "ray": "extraction driven by Ray",
    "onnx": "models as ONNX files",
    "umap": "maps of clips by UMAP",
    "timm": "networks of timm and torchvision",
}
MAX_PACKAGES_SHOWN = 4


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """What is installed, and what is missing for which job.

    Ends with exit code 1 if a package that every job needs is missing.

    \b
    Example:
      obygaze doctor
    """
    jobs = [check_extra(extra) for extra in EXTRAS]
    facts = {
        "version": metadata.version("obygaze"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "jobs": jobs,
        "devices": dict(_devices()),
    }
    emit(facts, as_json, _describe)
    exit_if(not jobs[0]["ready"], 1)


def check_extra(extra: str) -> dict[str, Any]:
    """Compare an extra's requirements with the installed packages."""
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
    return {
        "extra": extra,
        "title": EXTRAS[extra],
        "installed": installed,
        "missing": missing,
        "ready": not missing,
        "remedy": f"pip install 'obygaze[{extra}]'" if extra else "pip install obygaze",
    }


def _requirements(extra: str) -> Iterator[Requirement]:
    """The requirements of an extra; of the empty one, those of the core."""
    for requirement in map(Requirement, metadata.requires("obygaze") or ()):
        marker = requirement.marker
        is_core = marker is None or marker.evaluate({"extra": ""})
        if is_core != bool(extra) and (marker is None or marker.evaluate({"extra": extra})):
            yield requirement


def _describe(facts: Mapping[str, Any]) -> str:
    rows = []
    for job in facts["jobs"]:
        packages = job["missing"] or [f"{name} {v}" for name, v in job["installed"].items()]
        remedy = "" if job["ready"] else f" -> {job['remedy']}"
        status = "ready" if job["ready"] else "MISSING"
        rows.append([job["title"], status, f"{join_some(packages, MAX_PACKAGES_SHOWN)}{remedy}"])
    jobs = align(["job", "", "what is installed, or missing"], rows, left=3)
    devices = align(["device", ""], facts["devices"].items(), left=2)
    about = "obygaze {version}, Python {python}, {system}".format(**facts)
    return f"{about}\n\n{jobs}\n\n{devices}"


def _devices() -> Iterator[tuple[str, str]]:
    """The devices, whether torch can use them, and how many processes decode for one of them."""
    cores = usable_cores()
    yield "cpu", f"{cores} of {os.cpu_count()} cores may be used"
    try:
        import torch
    except (ImportError, OSError) as problem:  # not installed, or a library of CUDA is missing
        yield "gpu", f"unknown: {first_line(problem)}"
        return
    gpus = torch.cuda.device_count()
    for number in range(gpus):
        yield f"cuda:{number}", _describe_gpu(number)
    if torch.backends.mps.is_available():
        yield "mps", try_device("mps") or "Apple GPU"
    elif not gpus:
        yield "gpu", "none that torch can use; extraction will be slow, training not"
    build = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
    yield "torch", f"{torch.__version__}, {build}"
    share = f" for each of {gpus} GPUs" if gpus > 1 else ""
    workers = default_workers("cuda" if gpus else "cpu")
    decoders = counted(workers, "process decodes", "processes decode")
    yield "workers", f"{decoders} by default: all cores{share} but one, {MAX_WORKERS} at most"


def _describe_gpu(number: int) -> str:
    import torch

    if reason := try_device(f"cuda:{number}"):
        return f"CANNOT be used: {reason}"
    properties = torch.cuda.get_device_properties(number)
    formats = "tf32 and bfloat16 are fast" if properties.major >= 8 else "only float16 is fast"
    return f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB, {formats}"
