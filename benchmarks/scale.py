"""Growth of costs: each command at three sizes, compared with a peer that does less.

A figure is the CPU time and peak memory of a separate process on one thread. The process first does
the same work on a few rows, to load the libraries. For quick work, the best of three is used. With
OBYGAZE_BENCH_SMALL=1, sizes are tiny and everything runs in this process, to test the benchmark
itself.
"""

from __future__ import annotations

import json
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.result import Result
from benchmarks.scale_inputs import films, run, segments, store, table

PICTURE = Path(__file__).parents[1] / "docs/scale.svg"
SMALL = "OBYGAZE_BENCH_SMALL"
LINEAR, FLAT, ROW_KIB = 1.15, 1.5, 1.0
"""The maximum exponent of a linear cost, the maximum growth of constant memory, and the maximum KiB
per clip for commands that hold the ids, films and labels of all clips."""
ENOUGH_S, MOST_RUNS = 1.0, 3
THOUSANDS, CLIPS, FILMS = (1_000, 10_000, 100_000), (1_500, 15_000, 100_000), (2, 8, 32)


@dataclass(frozen=True)
class Work:
    """A measured task: `ours` and `peer` read a folder of inputs and write to another.

    Parameters
    ----------
    make
        A function that fills the folder of inputs for a size.
    beside, target
        A description of the peer, and the limit for the ratio of our CPU time to the peer's.
    exponent
        The largest exponent that we promise; None if the work grows faster than its size.
    limit_s
        The limit for CPU seconds at the largest size.
    memory
        The limit for memory at the largest size, relative to the second; None for no promise.
    row_kib
        The limit for memory per additional clip or film, in KiB.
    prepare
        A function that fills the output folder before the time is measured.
    """

    name: str
    unit: str
    sizes: tuple[int, ...]
    make: Callable[[Path, int], None]
    ours: Callable[[Path, Path], object]
    peer: Callable[[Path, Path], object] | None = None
    beside: str = ""
    target: float | None = None
    exponent: float | None = LINEAR
    limit_s: float | None = None
    memory: float | None = None
    row_kib: float | None = None
    prepare: Callable[[Path, Path], object] | None = None


def measure(only: str = "") -> Iterator[Result]:
    """Measure the tasks whose names contain `only`; draw a figure if all are measured."""
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as name:
        for work in WORKS:
            if only in work.name:
                of_work = list(_results(work, Path(name)))
                results += of_work
                yield from of_work
    if not only and not os.environ.get(SMALL):
        draw_picture([result for result in results if result.curve])


def draw_picture(results: Sequence[Result]) -> None:
    """Draw CPU time and memory of each task by size, relative to the largest size."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams["svg.hashsalt"] = "scale"  # an unchanged picture gives an unchanged file
    figure = Figure(figsize=(9.6, 4.4), layout="constrained")
    time_axes, memory_axes = figure.subplots(1, 2)
    for number, result in enumerate(results):
        sizes, seconds, mib = zip(*result.curve, strict=True)
        shares = [size / sizes[-1] for size in sizes]
        style = {"color": f"C{number % 10}", "marker": "os^"[number // 10], "markersize": 4}
        time_axes.plot(shares, seconds, label=result.name.partition(" (")[0], **style)
        memory_axes.plot(shares, mib, **style)
    time_axes.plot([0.01, 1], [0.1, 10], color="0.6", linestyle=":", label="linear")
    for axes, title in ((time_axes, "CPU seconds"), (memory_axes, "peak memory, MiB")):
        axes.set(xscale="log", yscale="log", title=title, xlabel="share of the largest size")
    figure.legend(loc="outside right upper", fontsize=7, frameon=False)
    figure.savefig(PICTURE, metadata={"Date": None})


def _results(work: Work, folder: Path) -> Iterator[Result]:
    tiny, sizes = _inputs(work, folder, _tiny_sizes(work)[0]), work.sizes
    if os.environ.get(SMALL):
        sizes = _tiny_sizes(work)
    curve = []
    for size in sizes:
        inputs = _inputs(work, folder, size)
        curve.append((size, *_spend(work, "ours", inputs, tiny)))
    seconds, mib = zip(*((s, m) for _, s, m in curve), strict=True)
    peer, beside = seconds[1], f"{sizes[1]:,}"
    if work.peer:
        peer, beside = _spend(work, "peer", inputs, tiny)[0], work.beside
    label = f"{work.name}, {sizes[-1]:,} {work.unit}"
    name = f"{label} ({beside})"
    yield Result(name, seconds[-1], "s", peer, seconds[-1] / peer, work.target, tuple(curve))
    exponent = math.log(seconds[-1] / seconds[1]) / math.log(sizes[-1] / sizes[1])
    yield Result(f"{work.name}: exponent (linear)", exponent, "", 1, exponent, work.exponent)
    growth = mib[-1] / mib[1]
    name = f"{work.name}: memory ({sizes[1]:,})"
    yield Result(name, mib[-1], "MiB", mib[1], growth, work.memory)
    if work.row_kib:
        a_row = 1024 * (mib[-1] - mib[1]) / (sizes[-1] - sizes[1])
        name = f"{work.name}: memory per additional {work.unit.removesuffix('s')} (limit)"
        yield Result(name, a_row, "KiB", work.row_kib, a_row / work.row_kib, 1)
    if work.limit_s:
        share = seconds[-1] / work.limit_s
        yield Result(f"{work.name}: time (limit)", seconds[-1], "s", work.limit_s, share, 1)


def _tiny_sizes(work: Work) -> tuple[int, ...]:
    return (40, 60, 80) if work.unit == "clips" else (3, 4, 5)


def _inputs(work: Work, folder: Path, size: int) -> Path:
    """Return the inputs of a size, which several tasks share."""
    inputs = folder / f"{work.make.__name__}-{size}"
    if not inputs.exists():
        inputs.mkdir()
        work.make(inputs, size)
    return inputs


def _spend(work: Work, side: str, inputs: Path, tiny: Path) -> tuple[float, float]:
    """Return the CPU seconds and MiB of a separate process."""
    if os.environ.get(SMALL):
        return _once(work, side, inputs), _peak_mib()
    command = [sys.executable, "-m", "benchmarks.scale", work.name, side, str(inputs), str(tiny)]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=os.environ | threads)
    if result.returncode:
        sys.exit(f"Error: {work.name} failed, {side} at {inputs}")
    seconds, mib = json.loads(result.stdout.splitlines()[-1])
    return seconds, mib


def _measured(work: Work, side: str, inputs: Path, tiny: Path) -> tuple[float, float]:
    _once(work, side, tiny)
    spent: list[float] = []
    while sum(spent) < ENOUGH_S and len(spent) < MOST_RUNS:
        spent.append(_once(work, side, inputs))
    return min(spent), _peak_mib()


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


def _peak_mib() -> float:
    """Return the peak memory since this program began; `resource` would include the parent's."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


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


def _predict(inputs: Path, output: Path) -> None:
    _obygaze(
        "models", "predict", inputs.with_name("model"), inputs / "s.zarr",
        "-o", output / "p.csv",
    )  # fmt: skip


def _explain(inputs: Path, output: Path) -> None:
    model = inputs.with_name("model")
    _obygaze("models", "explain", model, "tt0000000-0001", "--store", inputs / "s.zarr")


def _report(inputs: Path, output: Path) -> None:
    _obygaze("report", inputs / "run", "-o", output / "r.html")


def _strips(inputs: Path, output: Path) -> float:
    """Render the part of a page with the clips, strip and lanes of a film."""
    from obygaze_models.report import page

    spent = []

    def timed(make: Callable[..., object], *arguments: Any) -> object:
        begin = _cpu_s()
        made = make(*arguments)
        spent.append(_cpu_s() - begin)
        return made

    names = ("films_of", "explorer_data")
    whole = {name: getattr(page, name) for name in names}
    for name in names:
        setattr(page, name, partial(timed, whole[name]))
    try:
        _report(inputs, output)
    finally:
        for name in names:
            setattr(page, name, whole[name])
    return sum(spent)


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


def _figures(inputs: Path, output: Path) -> None:
    from obygaze_features import Manifest, Timelines
    from obygaze_features.annotations.figures import film_figure
    from obygaze_features.common.figures import save_figure

    timelines = Timelines.load(inputs / "timelines")
    manifest = Manifest.load(inputs / "grid")
    for film in timelines.by_film:
        save_figure(film_figure(timelines, manifest, film), output / f"{film}.svg")


def _export(inputs: Path, output: Path) -> None:
    _obygaze("annotations", "export", inputs / "timelines", "-o", output / "elan")


def _import_segments(inputs: Path, output: Path) -> None:
    source = inputs / "timelines" / "segments.csv"
    _obygaze("annotations", "import", "csv", source, "-o", output / "t")


def _agreement(inputs: Path, output: Path) -> None:
    _obygaze("annotations", "agreement", inputs / "grid")


FILM_KIB = 200 * 600 / 1024
"""The memory of a film of 600 segments, at 200 bytes a segment."""
SEGMENT_FILMS = (20, 60, 200)
"""The numbers of films. Each has 300 segments from each of two annotators."""
WORKS = (
    Work("manifests import csv", "clips", (10_000, 100_000, 1_000_000), table, _import_table,
         _pandas_table, "pandas: read, group, write", 4),
    Work("load a manifest", "clips", (10_000, 100_000, 1_000_000), table, _load,
         _pandas_load, "pandas: read the tables", limit_s=2),
    Work("stores import npy", "clips", THOUSANDS, store, _import_npy,
         _write_zarr, "Zarr's own write", 3),
    Work("stores finalise", "clips", THOUSANDS, store, _finalise,
         _copy_again, "a copy", 5, prepare=_copy_store),
    Work("stores subset, half", "clips", THOUSANDS, store, _subset, _half_a_copy, "half a copy", 5),
    Work("models predict", "clips", THOUSANDS, store, _predict, row_kib=ROW_KIB),
    Work("models explain, one clip", "clips", THOUSANDS, store, _explain, row_kib=ROW_KIB),
    Work("report of a run", "clips", CLIPS, run, _report),
    Work("its strips and explorer", "clips", CLIPS, run, _strips, limit_s=1),
    Work("leave-film-out, logistic", "films of 40 clips", (6, 25, 100), films, _leave_film_out,
         _plain_fits, "scikit-learn: one fit per film", exponent=None, limit_s=60),
    Work("annotations figure", "films", FILMS, segments, _figures, memory=FLAT),
    Work("annotations export", "films", SEGMENT_FILMS, segments, _export, memory=FLAT),
    Work("annotations import csv", "films", SEGMENT_FILMS, segments, _import_segments,
         row_kib=FILM_KIB),
    Work("annotations agreement", "films", SEGMENT_FILMS, segments, _agreement, row_kib=FILM_KIB),
)  # fmt: skip


def main(name: str, side: str, inputs: str, tiny: str) -> None:
    """Measure one side of a task, in this process."""
    work = next(work for work in WORKS if work.name == name)
    print(json.dumps(_measured(work, side, Path(inputs), Path(tiny))))


if __name__ == "__main__":
    main(*sys.argv[1:])
