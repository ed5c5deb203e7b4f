"""Kill a command, or fail it, at each system call that changes a file: nothing is half done.

After each, the output is the old one or a whole new one, and the same command goes on.
"""

import contextlib
import ctypes
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import obygaze_features as of
from obygaze_features.errors import StoreError

# The name of the processes that must not be left.
from obygaze_features.extraction.decoder import WORKER
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.store import Store
from obygaze_models.commands.main import main
from tests.conftest import run_obygaze
from tests.golden.workspace import copy_data, draw_photos
from tests.kit import store as toys
from tests.kit.counts import keep_counts
from tests.kit.servers import serve

SOURCE = Path(__file__).with_name("failing.c")
#: Of a reproduction: they say how long it took.
TIMED = ("report.html", "reproduction.json")
MODES = {"killed": 1, "EIO": 2, "ENOSPC": 3, "done but EIO": 4, "half a write": 5, "Ctrl-C": 6}
CODES = {"killed": (-signal.SIGKILL,), "Ctrl-C": (0, 130)}
"""How a command may end in a mode; in another one with 0, 1 or the scenario's own code."""
MAX_INTERRUPTED_S = 2.0
FILMS = ("tt1", "tt2", "tt3")


@dataclass(frozen=True)
class Scenario:
    """A command that changes ``{out}``."""

    command: str
    #: The name in ``{out}`` that is compared before and after.
    output: str
    #: The initial state: a copy of this, from ``{data}``.
    start: str = ""
    #: Whether an output between the old and the new state loses nothing.
    is_sound: Callable[[Path], bool] = lambda path: False
    code: int = 0
    #: Whether a fault is tried at every call.
    at_every_call: bool = False


def has_right_rows(path: Path) -> bool:
    """An open store whose finished rows are correct."""
    try:
        store = of.open_store(path)
    except StoreError:
        return not (path / "zarr.json").exists() and not list(path.glob("blocks/*"))
    expected = of.open_store(path.parents[1] / "data" / "extracted.zarr")
    return not of.verify(path) and have_same_rows(store, expected, store.done_ids())


def have_same_rows(store: Store, expected: Store, ids: Sequence[str]) -> bool:
    for name in store.arrays:
        rows = store.read(name, ids)
        if not np.array_equal(rows, expected.read(name, ids), equal_nan=True):  # padding
            return False
    return True


def is_readable(path: Path) -> bool:
    """An open store that is either complete or does not exist yet."""
    return not (path / "zarr.json").exists() or not of.verify(path)


def keeps_intact_rows(path: Path) -> bool:
    """A store that still has all rows but the first, which may be damaged."""
    expected = of.open_store(path.parents[1] / "data" / "open.zarr")
    return have_same_rows(of.open_store(path), expected, expected.ids[1:])


def is_split_without_origin(path: Path) -> bool:
    """A complete table, old or new, without a false description."""
    split = Manifest.load(path).split("leak-free")
    return len(split) > 0 and not split.about


def is_gone(path: Path) -> bool:
    return not path.exists()


SET = "stores set {out}/x.zarr --licence CC-BY-4.0"
REPAIR = "stores repair {out}/x.zarr --yes"
UNPACK = "stores pull {data}/packed.zip -o {out}/x.zarr"
SCENARIOS = {
    "extract": Scenario(
        "features extract {data}/photos --images {data}/images --backbone {data}/tiny-clip "
        "--device cpu -o {out}",
        "tiny-clip.zarr",
        is_sound=has_right_rows,
    ),
    "finalise": Scenario("stores finalise {out}/x.zarr", "x.zarr", "open.zarr"),
    "set open": Scenario(SET, "x.zarr", "open.zarr", keeps_intact_rows),
    "set final": Scenario(SET, "x.zarr", "final.zarr", keeps_intact_rows),
    "pack": Scenario("stores push {data}/final.zarr {out}/x.zip", "x.zip"),
    "unpack": Scenario(UNPACK, "x.zarr"),
    "unpack over": Scenario(f"{UNPACK} --overwrite", "x.zarr", "other.zarr"),
    "copy": Scenario("stores pull {data}/final.zarr -o {out}/x.zarr", "x.zarr"),
    "merge": Scenario("stores merge {data}/open.zarr {data}/more.zarr -o {out}/x.zarr", "x.zarr"),
    "subset": Scenario("stores subset {data}/final.zarr --film tt1 -o {out}/x.zarr", "x.zarr"),
    # Between two renames it is gone, but beside it; the next repair puts it back.
    "repair open": Scenario(REPAIR, "x.zarr", "damaged-open.zarr", is_gone, 3, True),
    "repair final": Scenario(REPAIR, "x.zarr", "damaged-final.zarr", is_gone, 3, True),
    "split": Scenario(
        "manifests split {out}/manifest --name leak-free --folds 3 --overwrite",
        "manifest",
        "manifest",
        is_split_without_origin,
    ),
    "models run": Scenario("models run {data}/one.toml -o {out}/run", "run"),
}
LONG = {
    "extract films": Scenario(
        "features extract {data}/films --videos {data}/videos --backbone {data}/tiny-clap "
        "--backbone {data}/tiny-xclip --device cpu --workers 2 -o {out}",
        "tiny-xclip.zarr",
        is_sound=is_readable,
    ),
    "import": Scenario(
        "stores import {data}/theirs.h5 --manifest {data}/eight -o {out}/x.zarr", "x.zarr", code=3
    ),
    "import annotations": Scenario("annotations import csv {data}/segments.csv -o {out}/x", "x"),
    "pull": Scenario("stores pull {url}/final.zarr -o {out}/x.zarr", "x.zarr"),
    "models train": Scenario("models train {data}/three.toml -o {out}/x", "x"),
    "models run of three": Scenario("models run {data}/three.toml -o {out}/run", "run"),
    "report": Scenario(
        "report {data}/manifest --timelines {data}/timelines -o {out}/x.html", "x.html"
    ),
    "reproduce": Scenario(
        "reproduce table2 --manifest {data}/manifest --store xclip={data}/xclip.zarr "
        "--protocol released -o {out}/x",
        "x",
    ),
}
"""Commands that take seconds. Calls of these are not counted; they are interrupted at any time."""
ALL = SCENARIOS | LONG


MAX_SECONDS = 120
MOMENTS = 20
WARM = (
    "h5py",
    "zarr",
    "torch",
    "transformers",
    "sklearn.tree",
    "obygaze_features.commands.stores",
    "obygaze_features.commands.manifests",
    "obygaze_features.commands.extract",
    "obygaze_features.extraction.extract",
    "obygaze_features.extraction.loop",
    "obygaze_models.commands.models",
    "obygaze_models.experiments.run",
    "obygaze_models.estimators.registry",
    "obygaze_models.commands.report",
    "obygaze_models.studies.reproduce.commands",
    "obygaze_features.commands.annotations",
)
"""Modules that the process imports before it forks, without which each trial takes seconds."""


def run_in_fork(
    arguments: list[str], folder: Path, point: int, mode: int, log: Path, moment: float = 0
) -> None:
    """Ends with the command's exit code, or 99 after a traceback. It may be interrupted at a
    moment, in seconds after it began."""
    os.setpgid(0, 0)
    library = ctypes.CDLL(None)
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    code = 99
    signal.signal(signal.SIGINT, signal.default_int_handler)
    library.faults_interrupted.restype = ctypes.c_double
    library.faults_arm(os.fsencode(folder), ctypes.c_long(point), ctypes.c_long(mode))
    timer = threading.Timer(moment, library.faults_interrupt)
    timer.daemon = True
    if moment:
        timer.start()
    begin = time.monotonic()
    try:
        main(arguments, prog_name="obygaze")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    timer.cancel()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Path(f"{log}.seconds").write_text(str(time.monotonic() - begin))
    if interrupted := library.faults_interrupted():
        seconds = time.monotonic() - interrupted
        if seconds > MAX_INTERRUPTED_S:
            sys.stderr.write(f"ended {seconds:.1f} s after Ctrl-C\n")
            code = 99
    sys.stdout.flush()
    sys.stderr.flush()
    Path(f"{log}.count").write_text(str(library.faults_count()))
    os._exit(code)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., int | None]]:
    """Runs a command in a fork of a process that has imported all; gives its exit code."""
    compiler = shutil.which("cc")
    if sys.platform != "linux" or not compiler:
        pytest.skip("failing system calls takes Linux and a C compiler (cc)")
    folder = tmp_path_factory.mktemp("server")
    library = folder / "failing.so"
    build = [compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"]
    subprocess.run(build, check=True)
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload([__name__, *WARM])

    def run(*arguments: object) -> int | None:
        process = forks.Process(target=run_in_fork, args=arguments)
        process.start()
        process.join(MAX_SECONDS)
        if process.exitcode is None:
            os.killpg(process.pid, signal.SIGKILL)
        return process.exitcode

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_PRELOAD", str(library))
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("PYTHONWARNINGS", "ignore")
        forkserver.ensure_running()
    yield run
    forkserver._forkserver._stop()


RACES = {
    "split": "manifests split {out}/manifest --name raced --folds {n}",
    "split over": "manifests split {out}/manifest --name raced --folds {n} --overwrite",
    "pack": "stores push {data}/final.zarr {out}/x.zip",
    "export": "annotations export {data}/timelines -o {out}/elan",
}
"""Commands that write the same output at the same time; ``{n}`` differs."""


def at_night_or_in_faults(night: int, faults: int) -> list[Any]:
    return [
        pytest.param(night, marks=pytest.mark.night),
        pytest.param(faults, marks=pytest.mark.faults),
    ]


@pytest.mark.parametrize("rounds", at_night_or_in_faults(3, 20))
@pytest.mark.parametrize("name", RACES)
def test_of_writers_of_one_output_one_is_done(name, rounds, data, server, tmp_path):
    """The others say that it exists; with --overwrite, all finish and the last one wins."""
    out = tmp_path / "out"
    for _ in range(rounds):
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(data / "manifest", out / "manifest")
        commands = [RACES[name].format(data=data, out=out, n=n) for n in (2, 3, 4)]
        ended = run_together(server, commands, out, tmp_path)
        codes = [code for code, _ in ended]
        done = [0] * 3 if "--overwrite" in RACES[name] else [0, 1, 1]
        assert sorted(codes) == done, ended
        assert [text.count("Error: ") for _, text in ended] == codes
        assert not list(out.rglob(".*"))
        run_obygaze("manifests", "check", out / "manifest", code=0)
        if name == "split":
            folds = set(Manifest.load(out / "manifest").split("raced").folds)
            assert len(folds) == (2, 3, 4)[codes.index(0)]


def run_together(server, commands: list[str], out: Path, folder: Path) -> list[tuple[int, str]]:
    """Run commands at the same time; return the exit code and the output of each."""
    logs = [folder / f"log{number}" for number in range(len(commands))]
    with ThreadPoolExecutor(len(commands)) as pool:
        codes = pool.map(
            lambda command, log: server(command.split(), out, -1, 0, log), commands, logs
        )
    return [(code, log.read_text()) for code, log in zip(codes, logs, strict=True)]


@pytest.mark.parametrize("rounds", at_night_or_in_faults(2, 12))
def test_extractions_of_films_at_once_do_all_rows(rounds, data, server, tmp_path):
    """The films share a block."""
    command = (
        f"features extract {data}/texts --backbone {data}/tiny-clip --device cpu "
        f"-o {tmp_path}/stores --film "
    )
    for _ in range(rounds):
        shutil.rmtree(tmp_path / "stores", ignore_errors=True)
        ended = run_together(server, [command + film for film in FILMS], tmp_path, tmp_path)
        assert [code for code, _ in ended] == [0] * len(FILMS), ended
        store = of.open_store(tmp_path / "stores/tiny-clip.zarr")
        assert store.status.tolist() == [1] * len(store)
        assert of.verify(store) == []


@pytest.fixture(scope="module")
def data(
    tmp_path_factory: pytest.TempPathFactory, server: Callable[..., int | None]
) -> Iterator[Path]:
    from tests.kit.models import write_checkpoint

    folder = tmp_path_factory.mktemp("faults")
    golden = copy_data(folder / "golden")
    data = folder / "data"
    data.mkdir()
    toys.a_store(data / "open.zarr", 6)
    toys.a_store(data / "more.zarr", 5, film="tt2")
    for name, film in (("final", "tt1"), ("other", "tt3")):
        of.finalise(toys.a_store(data / f"{name}.zarr", 6, film=film))
    for state in ("open", "final"):
        damaged = data / f"damaged-{state}.zarr"
        shutil.copytree(data / f"{state}.zarr", damaged)
        toys.flip_bit(damaged / "native/c/0/0", 0)
    for name in ("manifest", "xclip.zarr", "timelines", "eight"):
        shutil.copytree(golden / name, data / name)
    experiment = (golden / "golden.toml").read_text().partition("estimators")[0]
    (data / "one.toml").write_text(experiment + 'estimators = ["film-prior"]\n')
    draw_photos(data)
    texts = [Item(f"{film}-{n}", "text", film, text=n) for film in FILMS for n in "1234"]
    Manifest("texts", Items.of(texts)).save(data / "texts")
    run_obygaze("manifests", "import", "csv", data / "images.csv", "-o", data / "photos", code=0)
    of.pack(data / "final.zarr", data / "packed.zip")
    for name in ("tiny-clip", "tiny-clap", "tiny-xclip"):
        write_checkpoint(name, data / name)
    shutil.copy(golden / "segments.csv", data)
    toys.write_hdf5(golden / "final.zarr", data / "theirs.h5")
    (data / "three.toml").write_text(experiment + 'estimators = ["mlp", "svm", "pcbm-tree"]\n')
    run_obygaze("features", "demo", data / "made", "--scenes", 6, "--seconds", 3, code=0)
    (data / "made/videos").rename(data / "videos")
    Manifest.from_csv(data / "made/annotations.csv").save(data / "films")
    with serve(data) as served:
        (data / "url").write_text(served.url)
        yield data


class Trial:
    """A scenario in its own folder, with its initial state and expected result."""

    def __init__(self, name: str, data: Path, folder: Path, run: Callable[..., int | None]) -> None:
        self.scenario = ALL[name]
        self.data = data
        self._run = run
        self.out = data.parent / "out"
        self.log = folder / "log"
        words = {"data": data, "out": self.out, "url": (data / "url").read_text()}
        self.arguments = self.scenario.command.format(**words).split()
        self.old = self._begin()
        assert self.run(-1, 0) == self.scenario.code, self.log.read_text()
        self.points = int(Path(f"{self.log}.count").read_text())
        self.seconds = float(Path(f"{self.log}.seconds").read_text())
        self.new = self.read()
        assert self.new not in (None, self.old)
        if name.startswith("extract") and name in SCENARIOS:
            output = self.out / self.scenario.output
            shutil.copytree(output, data / "extracted.zarr", dirs_exist_ok=True)

    def _begin(self) -> dict[str, bytes] | None:
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir()
        if start := self.scenario.start:
            shutil.copytree(self.data / start, self.out / self.scenario.output)
        return self.read()

    def run(self, point: int, mode: int, moment: float = 0) -> int | None:
        return self._run(self.arguments, self.out, point, mode, self.log, moment)

    def read(self) -> dict[str, bytes] | None:
        """Return the content to compare, without logs and times; None if there is none."""
        path = self.out / self.scenario.output
        if not path.is_dir():
            return {"": path.read_bytes()} if path.is_file() else None
        contents = {}
        for name, data in toys.contents(path).items():
            if name.endswith("run.json"):
                values = json.loads(data) | {"started": "", "seconds": 0}
                contents[name] = json.dumps(values).encode()
            elif name not in TIMED and "/." not in f"/{name}":
                contents[name] = data
        return contents

    def problem_at(self, point: int, mode: str, moment: float = 0) -> str:
        """Return the problem after a fault at a system call or moment, or an empty string."""
        self._begin()
        output = self.out / self.scenario.output
        code = self.run(point, 0 if moment else MODES[mode], moment)
        for aside in output.parent.glob(f".{output.name}.*.replaced"):
            if not output.exists():  # do what the message says
                aside.rename(output)
        text = self.log.read_text()
        codes = CODES.get(mode, (0, 1))
        if mode != "killed":
            codes += (self.scenario.code,)
        if code not in codes:
            return f"ended with {code}: {text[-600:]}"
        if left := decoding_processes(self.data.parents[1]):
            return f"leaves the processes {left}"
        if code == 1 and text.count("Error: ") != 1:
            return f"says {text[-600:]!r}"
        state = self.read()
        is_done = state == self.new
        if code in (0, self.scenario.code) and not is_done:
            return f"ended with {code}, and the output is not whole: {text[-300:]}"
        own_text = text.partition("Exception ignored in")[0]  # the rest is Python's own
        if code == 130 and own_text.splitlines()[-1] != "Interrupted.":
            return f"says {text[-600:]!r} when it is interrupted"
        if not is_done and state != self.old and not self.scenario.is_sound(output):
            return f"half an output ({differing(state, self.new)})"
        if not is_done:
            code = self.run(-1, 0)
            if code not in (0, self.scenario.code):
                return f"does not go on ({code}): {self.log.read_text()[-600:]}"
            if (state := self.read()) != self.new:
                return f"goes on to another output ({differing(state, self.new)})"
        if is_done:
            self.run(-1, 0)  # which may say that the output exists
            if left := self._leftovers():
                return f"is complete, and a repeated command leaves {left}"
        return ""

    def _leftovers(self) -> list[str]:
        """Return locks, and what an unfinished run or pull keeps for the next command."""
        kept = (".lock", ".pulling/", f"{self.scenario.output}.partial/")
        return [name for name in toys.contents(self.out) if any(part in name for part in kept)]


def decoding_processes(folder: Path) -> list[str]:
    """The decoders started by commands in a folder that are still running."""
    left = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if WORKER.encode() in (process / "cmdline").read_bytes():
                is_ours = os.fsencode(folder) in (process / "environ").read_bytes()
                left += [process.name] if is_ours else []
    return left


def differing(state: dict[str, bytes] | None, new: dict[str, bytes] | None) -> list[str]:
    changed = (state or {}).items() ^ (new or {}).items()
    return sorted({name for name, _ in changed})[:8]


ROWS = []
for name, scenario in SCENARIOS.items():
    most = 10**9 if scenario.at_every_call else 30
    ROWS.append(pytest.param(name, most, marks=pytest.mark.faults))
    if name not in ("extract", "models run"):
        ROWS.append(pytest.param(name, 3, marks=pytest.mark.night))


@pytest.mark.parametrize(("name", "most"), ROWS)
def test_a_fault_at_a_call_leaves_nothing_half_done(name, most, data, server, tmp_path, capsys):
    """Try each mode at up to `most` system calls, spread evenly over the command."""
    trial = Trial(name, data, tmp_path, server)
    count = min(most, trial.points)
    spread = np.linspace(1, trial.points, count).round().astype(int).tolist()
    problems = []
    for mode in MODES:
        for point in spread:
            if problem := trial.problem_at(point, mode):
                problems.append(f"{mode} at call {point}: {problem}")
    tried = {f"{mode} at": len(spread) for mode in MODES}
    with capsys.disabled():
        sys.stdout.write(
            f"\n{name}: {len(spread)} of {trial.points} calls, {len(problems)} wrong\n"
        )
    keep_counts("faults", name, **{"system calls": trial.points}, **tried, wrong=len(problems))
    assert not problems, "\n".join(problems)


@pytest.mark.faults
@pytest.mark.parametrize("name", ["extract", "models run", "copy", *LONG])
def test_a_long_command_can_be_interrupted_at_any_moment(name, data, server, tmp_path, capsys):
    trial = Trial(name, data, tmp_path, server)
    dice = random.Random(os.environ.get("FAULTS_SEED", "") + name)
    problems = []
    for _ in range(MOMENTS):
        moment = dice.uniform(0.02, trial.seconds)
        if problem := trial.problem_at(-1, "Ctrl-C", moment):
            problems.append(f"after {moment:.3f} s: {problem}")
    with capsys.disabled():
        sys.stdout.write(f"\n{name}: {MOMENTS} moments, {len(problems)} wrong\n")
    keep_counts("interrupts", name, moments=MOMENTS, wrong=len(problems))
    assert not problems, "\n".join(problems)
