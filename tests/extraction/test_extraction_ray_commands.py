"""`obygaze features extract --engine ray`: its clusters, its signals, its errors."""

from __future__ import annotations

import contextlib
import http.server
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from tests.extraction.test_extraction_pipeline import contents

from obygaze_features.extraction import extract
from obygaze_features.extraction.ray_cluster import make_private_token
from tests.extraction.ray_clusters import below, children, finish_locally, named

pytest.importorskip("ray")
pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="looks for processes as Linux has them"
)
SIGNALS = [("SIGINT", 130, "Interrupted."), ("SIGTERM", 143, "Terminated.")]
LOOPBACK = {"0100007F", f"{'0' * 24}01000000", "0000000000000000FFFF00000100007F"}
"""127.0.0.1, ::1 and ::ffff:127.0.0.1 in Linux's tables of sockets."""
COMMAND = """
import obygaze_features.backbones
from tests.extraction import ray_loads
obygaze_features.backbones.load_backbone = ray_loads.slow
from cli import main
main()
"""
CONNECTED = """
import sys
from obygaze_features.extraction.ray_cluster import connect
with connect(None, resources={"CPU": 1, "GPU": 0}, memory=100 * 2**20):
    sys.__stdout__.write("up\\n")
    sys.__stdout__.flush()
    sys.stdin.read()
"""


def start(
    manifest, films, weights, output: Path, *more: str, until: str = "tiny.zarr/blocks/000000.json"
) -> subprocess.Popen[str]:
    """The command itself, with a backbone that takes its time; it is through the first block."""
    if not output.with_name("manifest").exists():
        manifest.save(output.with_name("manifest"))
    command = [sys.executable, "-c", COMMAND, "features", "extract", output.with_name("manifest")]
    command += ["--videos", films, "--backbone", f"tiny={weights}", "-o", output]
    process = subprocess.Popen(
        [*map(str, command), "--engine", "ray", "--device", "cpu", *more],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        # A shell starts what runs in its background with Ctrl-C ignored, and children inherit it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    end = time.monotonic() + 300  # Ray takes minutes to start on a busy machine
    while not (output / until).exists() and process.poll() is None:
        if time.monotonic() > end:
            os.killpg(process.pid, signal.SIGKILL)
            pytest.fail(f"no block after 300 s: {process.communicate()[1]}")
        time.sleep(0.01)
    return process


@pytest.mark.faults
@pytest.mark.parametrize("then", ["local", "ray"])
def test_a_killed_cluster_is_one_line_and_the_run_resumes(
    manifest, films, weights, tiny, whole_store, tmp_path, then
):
    with start(manifest, films, weights, tmp_path / "stores") as process:
        processes = named(children(process.pid))
        for name in ("gcs_server", "raylet"):
            os.kill(processes[name], signal.SIGKILL)
        out, stderr = process.communicate(timeout=600)
    assert process.returncode == 1
    assert out == ""
    assert "Extracting 70 clips" in stderr.splitlines()[0]
    assert stderr.splitlines()[1:] == [
        f"Error: the Ray cluster ({stderr.partition('cluster (')[2].partition(')')[0]}) no longer "
        "answers; what was computed is kept, and the same command resumes"
    ]
    if then == "ray":
        with start(manifest, films, weights, tmp_path / "stores", until="never") as process:
            process.communicate()
        assert process.returncode == 0
        assert contents(tmp_path / "stores/tiny.zarr") == contents(whole_store)
    else:
        finish_locally(manifest, films, tiny, tmp_path / "stores", whole_store)


@pytest.mark.faults
def test_ctrl_c_stops_cleanly_and_soon(
    manifest, films, weights, tiny, whole_store, cluster, tmp_path
):
    address = ("--ray-address", cluster.address)
    with start(manifest, films, weights, tmp_path / "stores", *address) as process:
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does it
        assert_stopped(process, 130, "Interrupted.")
    finish_locally(manifest, films, tiny, tmp_path / "stores", whole_store)


def assert_stopped(process: subprocess.Popen[str], code: int, word: str) -> None:
    _, stderr = process.communicate(timeout=600)
    assert process.returncode == code
    assert stderr.splitlines()[1:] == [
        "What was computed is kept; the same command resumes.",
        word,
    ]


@pytest.mark.faults
@pytest.mark.parametrize("whom", [os.kill, os.killpg])
def test_sigterm_stops_cleanly_and_takes_its_cluster_with_it(
    manifest, films, weights, tiny, whole_store, tmp_path, whom
):
    with start(manifest, films, weights, tmp_path / "stores") as process:
        processes = below(process.pid)
        whom(process.pid, signal.SIGTERM)
        assert_stopped(process, 143, "Terminated.")
    assert [pid for pid in processes if Path(f"/proc/{pid}").exists()] == []
    assert ray_processes(process.pid) == []
    finish_locally(manifest, films, tiny, tmp_path / "stores", whole_store)


@pytest.mark.faults
def test_cluster_of_one_machine_listens_on_loopback_only(manifest, films, weights, tmp_path):
    with start(manifest, films, weights, tmp_path / "stores") as process:
        addresses = listening(below(process.pid))
        process.terminate()
        _, stderr = process.communicate(timeout=600)
    assert addresses.keys() >= {"gcs_server", "raylet"}, stderr
    assert set().union(*addresses.values()) <= LOOPBACK, addresses


@pytest.mark.faults
@pytest.mark.parametrize("imports_first", [False, True])
def test_ray_reads_where_it_listens_when_it_is_imported(imports_first):
    script = ("import ray\n" if imports_first else "") + CONNECTED
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"up\n"
        addresses = listening(below(process.pid))
        process.communicate(timeout=60)
    assert addresses.keys() >= {"gcs_server", "raylet"}
    assert (set().union(*addresses.values()) <= LOOPBACK) is not imports_first, addresses


def listening(processes: set[int]) -> dict[str, set[str]]:
    """The addresses on which processes listen, as Linux writes them, by the processes' names."""
    address_of = {}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            cells = line.split()
            if cells[3] == "0A":
                address_of[f"socket:[{cells[9]}]"] = cells[1].partition(":")[0]
    addresses: dict[str, set[str]] = {}
    for pid in processes:
        for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
            with contextlib.suppress(OSError, KeyError):  # closed since, or no such socket
                address = address_of[str(descriptor.readlink())]
                name = Path(f"/proc/{pid}/comm").read_text().strip()
                addresses.setdefault(name, set()).add(address)
    return addresses


@pytest.mark.faults
@pytest.mark.parametrize(("name", "code", "word"), SIGNALS)
@pytest.mark.parametrize("seconds", [0, 1, 2])
def test_a_signal_while_ray_starts_leaves_nothing_behind(
    manifest, films, weights, tmp_path, name, code, word, seconds
):
    with start(manifest, films, weights, tmp_path / "stores", until="../manifest") as process:
        while "gcs_server" not in named(below(process.pid)):
            time.sleep(0.01)
        time.sleep(seconds)
        processes = below(process.pid)
        process.send_signal(getattr(signal, name))
        _, stderr = process.communicate(timeout=600)
    assert process.returncode == code
    assert stderr.splitlines()[-1] == word
    assert [pid for pid in processes if Path(f"/proc/{pid}").exists()] == []
    assert ray_processes(process.pid) == []


def ray_processes(session: int) -> list[str]:
    """What is left of a command's session: what was started is in it, whoever is its parent now."""
    names = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[3]) == session:
                names.append((stat.parent / "comm").read_text().strip())
    return names


@pytest.mark.faults
def test_clusters_killed_at_random_give_the_same_store(
    manifest, films, weights, tiny, whole_store, tmp_path
):
    chance, ended = random.Random(7), []
    for number in range(5):
        output = tmp_path / f"{number}/stores"
        output.parent.mkdir()
        with start(manifest, films, weights, output, until="../manifest") as process:
            while "raylet" not in (processes := named(children(process.pid))):
                time.sleep(0.01)
            time.sleep(chance.uniform(0, 9))
            for pid in processes.values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            _, stderr = process.communicate(timeout=600)
        ended.append(process.returncode)
        assert process.returncode in (0, 1), stderr
        # One line: where it was only being started, Ray's own, which then ends the process.
        assert len(stderr.split("\n")) == 2 + process.returncode, stderr
        extract(manifest, films, [tiny], output)
        assert contents(output / "tiny.zarr") == contents(whole_store)
    assert ended.count(1) >= 3


class Quiet(http.server.BaseHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


def test_addresses_where_no_cluster_is_are_one_line_at_once(obygaze, manifest, films, tmp_path):
    manifest.save(tmp_path / "manifest")
    command = ["features", "extract", tmp_path / "manifest", "--videos", films]
    command += ["--backbone", "tiny-xclip", "-o", tmp_path / "stores"]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for address, code, words in [
            (f"127.0.0.1:{server.server_port}", 1, "no Ray cluster answers at 127.0.0.1:"),
            ("127.0.0.1:1", 1, "no Ray cluster answers at 127.0.0.1:1; check its address"),
            ("nowhere.invalid:6379", 1, "no Ray cluster answers at nowhere.invalid:6379"),
            ("ray://127.0.0.1:10001", 2, "--ray-address is HOST:PORT"),
            ("127.0.0.1", 2, "--ray-address is HOST:PORT"),
        ]:
            result = obygaze(*command, "--engine", "ray", "--ray-address", address)
            assert result.exit_code == code, address
            assert result.stderr.startswith(f"Error: {words}")
            assert len(result.stderr.splitlines()) == 1
        server.shutdown()
    assert not (tmp_path / "stores").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--ray-gpus", "0.5"], "--ray-gpus is for --engine ray"),
        (["--engine", "ray", "--ray-gpus", "2"], "such as 0.5 (got 2)"),
        (["--engine", "ray", "--ray-gpus", "0.00001"], "such as 0.5 (got 1e-05)"),
        (["--engine", "ray", "--ray-gpus", "0", "--device", "cuda"], "contradict each other"),
        (["--engine", "ray", "--ray-cpus", "0"], "0.0 is not in the range x>=0.001"),
        (
            ["--engine", "ray", "--ray-gpus", "1", "--ray-forwards", "99"],
            "has {gpus}; leave out --ray-gpus, or give the",
        ),
        (["--engine", "ray", "--max-gpu-memory", "2GB"], "give a part: --ray-gpus 0.5"),
    ],
)
def test_options_that_do_not_go_together(obygaze, manifest, films, tmp_path, options, words):
    manifest.save(tmp_path / "manifest")
    result = obygaze(
        "features", "extract", tmp_path / "manifest", "--videos", films,
        "--backbone", "tiny-xclip", "-o", tmp_path / "stores", *options,
    )  # fmt: skip
    assert result.exit_code == 2
    assert words.format(gpus=torch.cuda.device_count()) in result.stderr


def test_without_ray_it_is_said_what_to_install(obygaze, manifest, films, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    manifest.save(tmp_path / "manifest")
    result = obygaze(
        "features", "extract", tmp_path / "manifest", "--videos", films,
        "--backbone", "tiny-xclip", "-o", tmp_path / "stores", "--engine", "ray",
    )  # fmt: skip
    assert result.exit_code == 1
    [line] = result.stderr.splitlines()
    assert line.endswith("install it with: pip install 'obygaze[ray]'")
    assert not (tmp_path / "stores").exists()


def test_a_new_clusters_token_is_its_users_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    token = tmp_path / ".ray/auth_token"
    make_private_token()
    first = token.read_text()
    assert (len(first), token.stat().st_mode & 0o777) == (64, 0o600)
    token.chmod(0o644)  # as Ray writes it
    make_private_token()
    assert (token.read_text(), token.stat().st_mode & 0o777) == (first, 0o600)
