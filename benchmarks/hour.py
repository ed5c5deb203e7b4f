"""An hour on a lent GPU: ``python -m benchmarks.hour`` runs all sections of `benchmarks.gpu`.

The machine needs this checkout, torch, transformers and, in ``build/gpu-wheels``, the wheels of
``benchmarks/gpu-wheels.txt``, which `make gpu-wheels` downloads. It needs no network. Each section
is a process with a time limit, so that a section that hangs affects only itself. The most
informative sections come first, in case the hour ends early.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
WHEELS = ROOT / "build/gpu-wheels"
SMALL = "OBYGAZE_BENCH_SMALL"
GRACE_S = 180
"""The extra time that a section may take to start, and to write films and networks."""


class Section(NamedTuple):
    """A section: the module ``benchmarks.gpu_...``, its time budget, and the films that it needs.

    A part that has begun within the budget is measured to its end.
    """

    module: str
    seconds: int
    films: tuple[str, ...] = ()


SECTIONS = {
    "machine": Section("device", 30),
    "batches": Section("device", 240),
    "stages": Section("device", 120),
    "passes": Section("passes", 480, ("scenes", "shots")),
    "sound": Section("loads", 120),
    "long": Section("loads", 180, ("long",)),
    "together": Section("loads", 120, ("shots",)),
    "bits": Section("passes", 180, ("scenes",)),
    "memory": Section("passes", 150, ("scenes",)),
    "parity": Section("device", 240),
    "nvdec": Section("passes", 60, ("scenes",)),
}
"""The sections, most informative first."""


def main(arguments: list[str]) -> None:
    """Run the sections one by one; the exit status is 1 if one fails or misses a target."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hour", description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--minutes", type=float, default=60, help="start no section later")
    parser.add_argument("--out", type=Path, help="folder for results  [benchmarks/results]")
    parser.add_argument("--work", type=Path, default=ROOT / "build/gpu-work",
                        help="a folder for films, networks and unpacked wheels")  # fmt: skip
    options = parser.parse_args(arguments)
    names = [name for name in SECTIONS if name in options.sections or not options.sections]
    if unknown := sorted(set(options.sections) - set(names)):
        parser.error(f"no section {unknown[0]!r}; choose from {', '.join(SECTIONS)}")
    is_small = os.environ.get(SMALL) == "1"
    out = options.out or ROOT / ("build/gpu-small" if is_small else "benchmarks/results")
    search_path = os.pathsep.join(map(str, [ROOT, *unpack(WHEELS, options.work / "packages")]))
    environment = {**os.environ, "PYTHONPATH": search_path, "HF_HUB_OFFLINE": "1"}
    end, ended = time.monotonic() + 60 * options.minutes, {}
    for name in names:
        if (left := end - time.monotonic()) <= 0:
            ended[name] = "left out: the time is up"
            continue
        command = [sys.executable, "-m", "benchmarks.gpu", "--out", out, "--work", options.work]
        limit = min(left, SECTIONS[name].seconds + GRACE_S)
        begin = time.monotonic()
        try:
            run = subprocess.run([*command, name], cwd=ROOT, env=environment, timeout=limit)
            ended[name] = f"exit code {run.returncode}"
        except subprocess.TimeoutExpired:
            ended[name] = "cut short"
        ended[name] += f" after {time.monotonic() - begin:.0f} s"
    print("\n" + "\n".join(f"{name:10}{how}" for name, how in ended.items()))
    print(f"results -> {out}")
    sys.exit(not all(how.startswith("exit code 0") for how in ended.values()))


def unpack(wheels: Path, folder: Path) -> list[Path]:
    """Unpack the wheels that were copied, if any; return the folders to import from."""
    paths = sorted(wheels.glob("*.whl"))
    for path in paths:
        with zipfile.ZipFile(path) as wheel:
            wheel.extractall(folder)
    return [folder] if paths else []


if __name__ == "__main__":
    main(sys.argv[1:])
