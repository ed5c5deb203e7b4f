"""Costs of large data: each command, compared with a peer that does less.

A figure is the CPU time of a separate process on one thread. The process first does
the same work on a few rows, to load the libraries. Quick work is done up to three
times, and the best time is used. With OBYGAZE_BENCH_SMALL=1, sizes are tiny and everything runs in
this process, to test the benchmark itself.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.result import Result
from benchmarks.scale_inputs import films, store, table

SMALL = "OBYGAZE_BENCH_SMALL"
ENOUGH_S, MOST_RUNS = 1.0, 3
TINY = {"clips": 60, "films of 40 clips": 4}
"""The sizes of the first, unmeasured work."""


@dataclass(frozen=True)
class Work:
    """A measured task: `ours` and `peer` read a folder of inputs and write to another.

    Parameters
    ----------
    make
        A function that fills the folder of inputs for a size.
    beside, target
        A description of the peer, and the limit for the ratio of our CPU time to the peer's.
    limit_s
        The limit for our CPU time, in seconds.
    prepare
        A function that fills the output folder before the time is measured.
    """

    name: str
    unit: str
    size: int
    make: Callable[[Path, int], None]
    ours: Callable[[Path, Path], object]
    peer: Callable[[Path, Path], object]
    beside: str
    target: float | None = None
    limit_s: float | None = None
    prepare: Callable[[Path, Path], object] | None = None


def measure() -> Iterator[Result]:
    """Measure all tasks."""
    with tempfile.TemporaryDirectory() as name:
        for work in WORKS:
            yield from _results(work, Path(name))


def _results(work: Work, folder: Path) -> Iterator[Result]:
    tiny = _inputs(work, folder, TINY[work.unit])
    inputs = tiny if os.environ.get(SMALL) else _inputs(work, folder, work.size)
    ours = _spend(work, "ours", inputs, tiny)
    peer = _spend(work, "peer", inputs, tiny)
    name = f"{work.name}, {work.size:,} {work.unit}"
    yield Result(f"{name} ({work.beside})", ours, "s", peer, ours / peer, work.target)
    if work.limit_s is not None:
        yield Result(f"{name} (limit)", ours, "s", work.limit_s, ours / work.limit_s, 1)


def _inputs(work: Work, folder: Path, size: int) -> Path:
    """Return the inputs of a size, which several tasks share."""
    inputs = folder / f"{work.make.__name__}-{size}"
    if not inputs.exists():
        inputs.mkdir()
        work.make(inputs, size)
    return inputs


def _spend(work: Work, side: str, inputs: Path, tiny: Path) -> float:
    """Return the CPU seconds of a separate process."""
    if os.environ.get(SMALL):
        return _once(work, side, inputs)
    command = [sys.executable, "-m", "benchmarks.scale", work.name, side, str(inputs), str(tiny)]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=os.environ | threads)
    if result.returncode:
        sys.exit(f"Error: {work.name} failed, {side} at {inputs}")
    return float(result.stdout.splitlines()[-1])


def _measured(work: Work, side: str, inputs: Path, tiny: Path) -> float:
    _once(work, side, tiny)
    spent: list[float] = []
    while sum(spent) < ENOUGH_S and len(spent) < MOST_RUNS:
        spent.append(_once(work, side, inputs))
    return min(spent)


def _once(work: Work, side: str, inputs: Path) -> float:
    """Return the CPU seconds, or the seconds that the task itself measured."""
    with tempfile.TemporaryDirectory(dir=inputs.parent) as name:
        output = Path(name)
        if work.prepare:
            work.prepare(inputs, output)
        begin = _cpu_s()
        own = getattr(work, side)(inputs, output)
        return own if isinstance(own, float) else _cpu_s() - begin


def _cpu_s() -> float:
    """Return the CPU seconds of this process and its children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _obygaze(*words: object) -> None:
    """Run an obygaze command."""
    from click.testing import CliRunner

    from obygaze_models.commands.main import main

    result = CliRunner().invoke(main, [*map(str, words)], catch_exceptions=False)
    if result.exit_code:
        raise SystemExit(result.output)


def _import_table(inputs: Path, output: Path) -> None:
    _obygaze("manifests", "import", "csv", inputs / "clips.csv", "-o", output / "m")


def _pandas_table(inputs: Path, output: Path) -> None:
    """Read the table, count, and write clips and labels, like an import."""
    import pandas

    table = pandas.read_csv(inputs / "clips.csv")
    table.groupby("film")["level"].value_counts()
    labels = ["level", "concepts"]
    table.drop(columns=labels).to_csv(output / "items.csv", index=False)
    table[["id", *labels]].to_csv(output / "labels.csv", index=False)


def _load(inputs: Path, output: Path) -> None:
    from obygaze_features.manifests import Manifest

    assert Manifest.load(inputs / "manifest").digest


def _pandas_load(inputs: Path, output: Path) -> None:
    import pandas

    for path in (inputs / "manifest").rglob("*.csv"):
        pandas.read_csv(path)


def _import_npy(inputs: Path, output: Path) -> None:
    _obygaze(
        "stores", "import", inputs / "x.npy", "--ids", inputs / "manifest/items.csv",
        "--manifest", inputs / "manifest", "-o", output / "s.zarr",
    )  # fmt: skip


def _write_zarr(inputs: Path, output: Path) -> None:
    import zarr

    values = np.load(inputs / "x.npy")
    zarr.create_array(str(output / "x.zarr"), data=values)


def _copy_store(inputs: Path, output: Path) -> None:
    shutil.copytree(inputs / "s.zarr", output / "s.zarr")


def _finalise(inputs: Path, output: Path) -> None:
    _obygaze("stores", "finalise", output / "s.zarr")


def _copy_again(inputs: Path, output: Path) -> None:
    shutil.copytree(output / "s.zarr", output / "copy.zarr")


def _subset(inputs: Path, output: Path) -> None:
    half = ",".join((inputs / "half.txt").read_text(encoding="utf-8").splitlines())
    _obygaze("stores", "subset", inputs / "s.zarr", "--ids", half, "-o", output / "half.zarr")


def _half_a_copy(inputs: Path, output: Path) -> float:
    begin = _cpu_s()
    _copy_store(inputs, output)
    return (_cpu_s() - begin) / 2


def _leave_film_out(inputs: Path, output: Path) -> None:
    _obygaze("models", "run", inputs / "films.toml", "-o", output / "run")


def _plain_fits(inputs: Path, output: Path) -> None:
    """Fit a model for each film on all others with scikit-learn alone."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    values, labels, groups = (np.load(inputs / f"{name}.npy") for name in ("x", "y", "films"))
    used = labels >= 0
    for film in np.unique(groups):
        train = used & (groups != film)
        scaler = StandardScaler().fit(values[train])
        LogisticRegression(max_iter=1000).fit(scaler.transform(values[train]), labels[train])


WORKS = (
    Work("manifests import csv", "clips", 1_000_000, table, _import_table,
         _pandas_table, "pandas: read, group, write", 4),
    Work("load a manifest", "clips", 1_000_000, table, _load,
         _pandas_load, "pandas: read the tables"),
    Work("stores import npy", "clips", 100_000, store, _import_npy,
         _write_zarr, "Zarr's own write", limit_s=5),
    Work("stores finalise", "clips", 100_000, store, _finalise,
         _copy_again, "a copy", limit_s=5, prepare=_copy_store),
    Work("stores subset, half", "clips", 100_000, store, _subset,
         _half_a_copy, "half a copy", limit_s=5),
    Work("leave-film-out, logistic", "films of 40 clips", 100, films, _leave_film_out,
         _plain_fits, "scikit-learn: one fit per film"),
)  # fmt: skip


def main(name: str, side: str, inputs: str, tiny: str) -> None:
    """Measure one side of a task, in this process."""
    work = next(work for work in WORKS if work.name == name)
    print(_measured(work, side, Path(inputs), Path(tiny)))


if __name__ == "__main__":
    main(*sys.argv[1:])
