"""The command ``obygaze doctor``, which checks packages and devices for each job."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from typing import Any

import click
from packaging.requirements import Requirement

from obygaze_features.backbones.devices import MAX_WORKERS, default_workers, try_device
from obygaze_features.common.cli import emit, exit_if, json_option
from obygaze_features.common.package import usable_cores
from obygaze_features.common.printer import align
from obygaze_features.common.text import counted, first_line, join_some

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
}
MAX_PACKAGES_SHOWN = 4
WITH_TORCH = {"sentence-transformers", "timm", "torch", "transformers"}
"""The packages that load torch; a single process imports them all, to load torch only once."""
IMPORTED_AS = {
    "pillow": "PIL.Image",
    "scikit-learn": "sklearn",
    "sentence-transformers": "transformers.image_transforms",
    "transformers": "transformers.image_transforms",
}
"""The module to import for each package, if it is not the package's name.

Importing all of transformers and sentence-transformers takes many seconds. Their module here loads
only the compiled package that tends to fail: torchvision, if it is installed.
"""
_IMPORT_EACH = """
import importlib, json, sys
from obygaze_features.errors import import_failure
answers, sys.stdout = sys.stdout, sys.stderr
for module in sys.argv[1:]:
    problem = ""
    try:
        importlib.import_module(module)
    except BaseException as error:
        lines = str(error).strip().splitlines() or [""]
        problem = str(import_failure(error) or f"{type(error).__name__}: {lines[0]}")
    print(json.dumps([module, problem]), file=answers, flush=True)
"""


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Show what is installed, and what each job still needs.

    A job is ready if its packages are installed and can be imported. Imports are tried in separate
    processes. Exits with code 1 if a package that every job needs is missing or cannot be imported.

    \b
    Example:
      obygaze doctor
    """
    jobs = [check_extra(extra) for extra in EXTRAS]
    packages = {name for job in jobs for name in job["installed"]}
    others = sorted(packages - WITH_TORCH)
    with ThreadPoolExecutor() as pool:  # the imports take as long as loading torch in this process
        imported = pool.map(try_imports, (packages & WITH_TORCH, others[::2], others[1::2]))
        devices = dict(_devices())
    problems = {name: problem for part in imported for name, problem in part.items() if problem}
    for job in jobs:
        job["broken"] = {name: problems[name] for name in job["installed"] if name in problems}
        job["ready"] = not job["missing"] and not job["broken"]
    facts = {
        "version": metadata.version("obygaze"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "jobs": jobs,
        "devices": devices,
    }
    emit(facts, as_json, _describe)
    exit_if(not jobs[0]["ready"], 1)


def check_extra(extra: str) -> dict[str, Any]:
    """Return an extra's installed and missing requirements, and the command that installs it."""
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
        "remedy": f"pip install 'obygaze[{extra}]'" if extra else "pip install obygaze",
    }


def try_imports(packages: Collection[str]) -> dict[str, str]:
    """Import packages in another process; return each package's error message, or ""."""
    modules = {name: IMPORTED_AS.get(name, name.replace("-", "_")) for name in packages}
    problems: dict[str, str] = {}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    while left := sorted({*modules.values()} - problems.keys()):
        command = [sys.executable, "-P", "-c", _IMPORT_EACH, *left]
        run = subprocess.run(command, env=environment, capture_output=True, text=True)  # noqa: S603
        answers = dict(json.loads(line) for line in run.stdout.splitlines())
        problems |= answers
        if unanswered := [module for module in left if module not in answers]:
            problems[unanswered[0]] = f"importing it ended the process (exit code {run.returncode})"
    return {name: problems[module] for name, module in modules.items()}


def _requirements(extra: str) -> Iterator[Requirement]:
    """Yield the requirements of an extra, or of the core if the name is empty."""
    for requirement in map(Requirement, metadata.requires("obygaze") or ()):
        marker = requirement.marker
        is_core = marker is None or marker.evaluate({"extra": ""})
        if is_core != bool(extra) and (marker is None or marker.evaluate({"extra": extra})):
            yield requirement


def _describe(facts: Mapping[str, Any]) -> str:
    rows, problems = [], defaultdict[str, list[str]](list)
    for job in facts["jobs"]:
        if job["missing"]:
            status, packages = "MISSING", job["missing"]
        elif job["broken"]:
            status, packages = "BROKEN", [f"{name} cannot be imported" for name in job["broken"]]
        else:
            status, packages = "ready", [f"{name} {v}" for name, v in job["installed"].items()]
        remedy = f" -> {job['remedy']}" if job["missing"] else ""
        rows.append([job["title"], status, f"{join_some(packages, MAX_PACKAGES_SHOWN)}{remedy}"])
        for name, problem in job["broken"].items():
            problems[problem].append(name)
    jobs = align(["job", "", "what is installed, or missing"], rows, left=3)
    devices = align(["device", ""], facts["devices"].items(), left=2)
    about = "obygaze {version}, Python {python}, {system}".format(**facts)
    reasons = [f"{', '.join(dict.fromkeys(n))}: {problem}" for problem, n in problems.items()]
    return "\n\n".join([about, jobs, *reasons, devices])


def _devices() -> Iterator[tuple[str, str]]:
    """Yield each device with its state, and the default number of decoding processes."""
    cores = usable_cores()
    yield "cpu", f"{cores} of {os.cpu_count()} cores are available"
    try:
        import torch
    except (ImportError, OSError) as problem:  # not installed, or a CUDA library is missing
        yield "gpu", f"unknown: {first_line(problem)}"
        return
    gpus = torch.cuda.device_count()
    for number in range(gpus):
        yield f"cuda:{number}", _describe_gpu(number)
    if torch.backends.mps.is_available():
        yield "mps", try_device("mps") or "Apple GPU"
    elif not gpus:
        yield "gpu", "none that torch can use; extraction will be slow, but training will not"
    build = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
    yield "torch", f"{torch.__version__}, {build}"
    share = f" (for each of {gpus} GPUs, which share the cores)" if gpus > 1 else ""
    workers = default_workers("cuda" if gpus else "cpu")
    decoders = counted(workers, "process decodes", "processes decode")
    yield "workers", f"{decoders} by default{share}: all cores but one, {MAX_WORKERS} at most"


def _describe_gpu(number: int) -> str:
    import torch

    if reason := try_device(f"cuda:{number}"):
        return f"CANNOT be used: {reason}"
    properties = torch.cuda.get_device_properties(number)
    formats = "tf32 and bfloat16 are fast" if properties.major >= 8 else "only float16 is fast"
    return f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB, {formats}"
