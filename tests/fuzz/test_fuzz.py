"""Damaged and forged inputs: one line and an exit code, in bounded time and memory. Each input
follows from its kind and number: ``FUZZ="run 17" make fuzz`` makes one again."""

import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import sys
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

import obygaze_features as of

# Runs are planned, but nothing is trained.
from obygaze_models.experiments import cross_validate as running
from tests.conftest import run_obygaze
from tests.fuzz import kinds
from tests.fuzz.kinds import KINDS, Files, read_files, write_files
from tests.kit.counts import keep_counts

MAX_SECONDS = 20
MAX_BYTES = 2**30
CODES = {
    "stores diff {x} {data}/final.zarr": (0, 1),
    "stores search {x} --text mirror": (1,),  # its weights are made up
}
FORGED = (
    *("manifest", "model mlp", "timelines", "battery", "lexicon"),
    pytest.param("sealed open store", marks=pytest.mark.night),
    pytest.param("sealed final store", marks=pytest.mark.night),
    pytest.param("model pcbm-tree", marks=pytest.mark.night),
    pytest.param("run", marks=pytest.mark.fuzz),
)
"""Kinds with JSON that names something. An experiment is none of them: it is a program."""
FINALISE = "stores finalise {x} --allow-incomplete"
"""It writes the dataset's card; after it, the store is no longer open."""
AT_NIGHT = 4
"""`make night` makes so many inputs of each kind, `make test` one of each in `IN_TEST`."""
IN_TEST = (
    *("manifest", "open store", "final store", "packed store", "model mlp", "fused", "run"),
    *("partial run", "experiment", "timelines", "elan", "segments", "films", "table", "hdf5"),
    *("subtitles", "checkpoint", "sound", "battery", "lexicon"),
)
"""Kinds that have a reader of their own."""

pytestmark = pytest.mark.filterwarnings("ignore")


class Hang(BaseException):
    """A command took longer than `MAX_SECONDS`."""


class Planned(Exception):
    """An experiment was read and planned, and would be trained next."""


@pytest.fixture(scope="module")
def common_data(tmp_path_factory):
    return kinds.make_data(tmp_path_factory.mktemp("fuzz") / "data")


@pytest.fixture
def data(common_data, kind):
    if kind == "fused" and not (common_data / "fused").exists():
        kinds.save_fusions(common_data)
    return common_data


@pytest.fixture(autouse=True)
def no_training(data, monkeypatch):  # models of the data are trained before
    def plan_fit(*_, **__):
        raise Planned

    def load_fits(plan, folder, **_):
        for planned in plan.fits():
            with suppress(Planned):
                running.make_fit(plan, folder, planned)
        raise Planned

    monkeypatch.setattr(running, "fit_fold", plan_fit)
    monkeypatch.setattr(running, "compute_run", load_fits)


@pytest.fixture(autouse=True)
def asked(monkeypatch) -> list[object]:
    """Return the servers that were contacted; no file may choose one."""
    addresses: list[object] = []

    def connect(self, address):
        addresses.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *_, **__: connect(None, host))
    return addresses


def memory(key: str) -> int:
    status = Path("/proc/self/status").read_text()
    return int(re.search(rf"{key}:\s+(\d+) kB", status)[1]) * 1024


@contextmanager
def limits() -> Iterator[list[int]]:
    """Stop commands that take too long; yield the peak memory in bytes."""
    used: list[int] = []
    linux = sys.platform == "linux"
    if linux:
        Path("/proc/self/clear_refs").write_text("5")
        before = memory("VmRSS")
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (memory("VmSize") + 3 * MAX_BYTES, hard))

    def stop(number, frame):
        raise Hang

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, MAX_SECONDS)
    try:
        yield used
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        if linux:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
            used.append(memory("VmHWM") - before)


def problems_of(command: str, outcomes: Counter[str]) -> Iterator[str]:
    """Return forbidden behaviour of a command, and count how it ended."""
    with limits() as used:
        try:
            result = run_obygaze(*command.split())
        except Hang:
            yield f"took over {MAX_SECONDS} s"
            return
    error = result.exception
    is_refused = result.exit_code in (1, 2) and not isinstance(error, Planned)
    outcomes["refused" if is_refused else "accepted"] += 1
    if error is not None and not isinstance(error, SystemExit | Planned):
        lines = traceback.format_exception(error)
        yield "traceback: " + "".join(lines[-4:])
    elif result.exit_code not in (0, 1, 2, 3):
        yield f"exit code {result.exit_code}"
    message = result.stderr.partition("Error: ")[2].rstrip("\n")
    message = re.sub(r"\n.*\n[- ]+\n[^\0]*", "", message)  # a table below the line is fine
    if "\n" in message or len(message) > 2000:
        lines = len(message.splitlines())
        yield f"an error of {lines} lines, {len(message)} characters: {message:.150}"
    if error is None and result.exit_code == 1 and not result.output:
        yield "exit code 1 without a word"
    if used and used[0] > MAX_BYTES:
        yield f"took {used[0] / 2**30:.1f} GB"


def mutated(kind_name: str, numbers: range, data: Path) -> Iterator[tuple[str, Files]]:
    kind = KINDS[kind_name]
    fixed = read_files(data / kind.name)
    names = sorted(name for name in fixed if name.startswith(kind.only))
    changing = {name: fixed.pop(name) for name in names}
    for number in numbers:
        dice = random.Random(f"{kind_name} {number}")
        yield f"{number}", fixed | kinds.mutate(changing, dice)


def fuzz(
    kind_name: str, inputs: Iterable[tuple[str, Files]], data: Path, folder: Path, asked: list
) -> tuple[Counter[str], list[str]]:
    """Run the commands of a kind on each input; return how they ended and what failed."""
    kind = KINDS[kind_name]
    outcomes = Counter[str]()
    failures = []
    for label, files in inputs:
        kind.seal(files)
        trial = folder / "trial"
        x = trial / Path(kind.name).name
        if x.suffix == ".toml":  # its paths are relative to it
            x = data / f"fuzzed-{label}.toml"
        write_files(x, files)
        for row, command in enumerate(kind.commands):
            out = trial / f"out{row}"
            out.mkdir(parents=True)
            line = command.format(x=x, data=data, out=out)
            problems = [*problems_of(line, outcomes)]
            for header in out.glob("*/manifest.json"):
                of.Manifest.load(header.parent)  # what is written can be read
            if asked:
                problems.append(f"asked {asked}")
                asked.clear()
            if sys.modules.pop("lab_code", None):
                problems.append("ran a program that the file names")
            failures += [f"{kind_name} {label}: {line}: {problem}" for problem in problems]
        shutil.rmtree(trial)
    return outcomes, failures


ONE = [(kind, 1) for kind in IN_TEST]
SOME = [pytest.param(kind, AT_NIGHT, marks=pytest.mark.night) for kind in KINDS]
ALL = [pytest.param(kind, KINDS[kind].inputs, marks=pytest.mark.fuzz) for kind in KINDS]


@pytest.mark.parametrize(("kind", "count"), [*ONE, *SOME, *ALL])
def test_damaged_inputs_end_in_a_line_and_sound_ones_pass(kind, count, data, tmp_path, asked):
    for command in KINDS[kind].commands if "sealed" not in kind else ():
        x = data / KINDS[kind].name
        result = run_obygaze(*command.format(x=x, data=data, out=tmp_path).split())
        planned = isinstance(result.exception, Planned)
        assert planned or result.exit_code in CODES.get(command, (0, 3)), result.output
    asked.clear()
    inputs = KINDS[kind].inputs
    numbers = range(0, inputs, -(-inputs // count))
    if "FUZZ" in os.environ:
        name, _, number = os.environ["FUZZ"].rpartition(" ")
        numbers = range(int(number), int(number) + 1) if name == kind else range(0)
    outcomes, failures = fuzz(kind, mutated(kind, numbers, data), data, tmp_path, asked)
    if len(numbers) == inputs:
        ended = {"refused": outcomes["refused"], "accepted": outcomes["accepted"]}
        counts = {"inputs": inputs, "commands": outcomes.total(), **ended}
        keep_counts("fuzz", kind, **counts, failures=len(failures))
    assert not failures, "\n".join(failures)


#: Keys of JSON under which a file names something.
NAMING = {
    *("array", "backbone", "class", "estimator", "family", "folder", "frozen", "kind", "manifest"),
    *("model", "models", "name", "package", "path", "protocol", "revision", "scheme", "source"),
    *("split", "store", "task"),
}


def forged(kind_name: str, data: Path) -> Iterator[tuple[str, Files]]:
    """Yield inputs in which one JSON field with a name contains the name of a program."""
    original = read_files(data / KINDS[kind_name].name)
    seen = set[tuple[str, ...]]()
    for file, text in original.items():
        if file and not file.endswith((".json", ".jsonl")):
            continue
        is_lines = re.search(rb"\n(\{|[0-9a-f]{64}\Z)", text)  # or one, and its digest
        first, mark, rest = text.partition(b"\n") if is_lines else (text, b"", b"")
        for path in kinds.paths_in(kinds.parse_json(first)):
            place = tuple(key for key in path if isinstance(key, str))
            if path[-1] in NAMING and place not in seen:
                seen.add(place)
                content = kinds.with_value(json.loads(first), path, "lab_code:Model")
                changed = json.dumps(content).encode() + mark + rest
                yield f"{file} {path}", original | {file: changed}
    assert seen


@pytest.mark.parametrize("kind", FORGED)
def test_a_file_names_no_code(kind, data, tmp_path, monkeypatch, asked):
    (tmp_path / "lab_code.py").write_text("class Model: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    if "open store" in kind:
        finalised = replace(KINDS[kind], commands=(*KINDS[kind].commands, FINALISE))
        monkeypatch.setitem(KINDS, kind, finalised)
    _, failures = fuzz(kind, forged(kind, data), data, tmp_path, asked)
    assert not failures, "\n".join(failures)
