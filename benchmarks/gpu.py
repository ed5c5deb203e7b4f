"""GPU benchmarks: ``python -m benchmarks.gpu --out FOLDER SECTION...`` runs some sections.

Each section has a budget of seconds. Each figure is printed and written as soon as it is measured,
for machines that are available only for minutes. With OBYGAZE_BENCH_SMALL=1, networks and clips are
tiny, and a CPU is enough.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import importlib
import os
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import av
import torch
import transformers

from benchmarks.gpu_device import Bench
from benchmarks.hour import SECTIONS, SMALL
from benchmarks.result import Result
from obygaze_features.backbones.devices import choose_device
from obygaze_features.common.files import to_json, write_text

HANG_FACTOR = 2
"""The multiple of its budget after which a hanging section is ended, with a traceback."""


def measure() -> Iterator[Result]:
    """Measure all sections if there is a GPU."""
    with tempfile.TemporaryDirectory() as folder:
        if bench := _bench(Path(folder)):
            for name in SECTIONS:
                yield from _section(name, bench)


def section(name: str) -> Callable[[Bench], Iterator[Result]]:
    """Return the function that measures a section."""
    module = importlib.import_module(f"benchmarks.gpu_{SECTIONS[name].module}")
    measure_section: Callable[[Bench], Iterator[Result]] = getattr(module, name)
    return measure_section


def main(arguments: list[str]) -> None:
    """Measure some sections; the exit status is 1 if one of them fails or misses a target."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--out", type=Path, help="the folder for gpu-SECTION.json")
    parser.add_argument("--work", type=Path, help="a folder to keep films and networks in")
    parser.add_argument("--seconds", type=float, help="the budget of each section")
    options = parser.parse_args(arguments)
    names = options.sections or list(SECTIONS)
    if unknown := [name for name in names if name not in SECTIONS]:
        parser.error(f"no section {unknown[0]!r}; choose from {', '.join(SECTIONS)}")
    with contextlib.ExitStack() as stack:
        work = options.work or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        bench = _bench(work)
        reports = [_report(name, bench, options.out, options.seconds) for name in names if bench]
    sys.exit(not all(reports))


def _bench(folder: Path) -> Bench | None:
    small = os.environ.get(SMALL) == "1"
    if not torch.cuda.is_available() and not small:
        print(f"no GPU: nothing is measured (set {SMALL}=1 to try it on a CPU)")
        return None
    device = choose_device("cuda" if torch.cuda.is_available() else "cpu")
    folder.mkdir(parents=True, exist_ok=True)
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else "CPU"
    print(
        f"{name}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"torch {torch.__version__}, transformers {transformers.__version__}, av {av.__version__}",
        flush=True,
    )
    return Bench(device, folder, small)


def _section(name: str, bench: Bench, budget: float | None = None) -> Iterator[Result]:
    """Yield the results of a section until its time is up; films are generated beforehand."""
    seconds = budget or SECTIONS[name].seconds
    for kind in SECTIONS[name].films:
        bench.clips(kind, 1)
    faulthandler.dump_traceback_later(
        HANG_FACTOR * seconds + 60, exit=True, file=sys.__stderr__ or sys.stderr
    )
    try:
        yield from section(name)(replace(bench, deadline=time.monotonic() + seconds))
    finally:
        faulthandler.cancel_dump_traceback_later()


def _report(name: str, bench: Bench, out: Path | None, budget: float | None) -> bool:
    """Print and write results as they come; return True if all targets are met."""
    begin, rows = time.monotonic(), []
    holds = True
    print(f"\n{name}", flush=True)
    try:
        for result in _section(name, bench, budget):
            holds &= result.holds
            rows.append({**asdict(result), "holds": result.holds})
            print(_line(result), flush=True)
            if out:
                out.mkdir(parents=True, exist_ok=True)
                write_text(out / f"gpu-{name}.json", to_json(rows))
    except Exception:  # the other sections may still be informative
        traceback.print_exc()
        holds = False
    print(f"{name}: {time.monotonic() - begin:.0f} s", flush=True)
    return holds


def _line(result: Result) -> str:
    target = "" if result.target is None else f"  {'holds' if result.holds else 'does not hold'}"
    return (
        f"  {result.name}: {result.value:.3g} {result.unit} ({result.peer:.3g}), "
        f"{result.ratio:.3f}{target}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
