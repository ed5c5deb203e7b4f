"""Commands run in a process that lacks what Windows lacks.

`make lint` also checks both packages with Python's types for Windows.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRETEND = """
import importlib, json, mmap, os, shutil, signal, stat, sys
for name in ("joblib", "matplotlib.pyplot", "pandas", "scipy.stats", "sklearn.linear_model",
             "subprocess", "torch", "zarr"):  # others' code, made for this system
    importlib.import_module(name)
from click.testing import CliRunner

for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for name in ("fork", "killpg", "memfd_create", "sched_getaffinity", "sysconf", "O_DIRECTORY"):
    delattr(os, name)
for name in ("SIGALRM", "SIGHUP", "SIGKILL"):
    delattr(signal, name)
del mmap.MADV_DONTNEED
posix_open, posix_replace, posix_unlink = os.open, os.replace, os.unlink

def refuse_read_only(path):
    if not isinstance(path, int) and os.path.isfile(path):
        if not os.stat(path).st_mode & stat.S_IWUSR:
            raise PermissionError(13, "Access is denied", str(path))

def open_file(path, flags, *rest, **options):
    if os.path.isdir(path):
        raise PermissionError(13, "Permission denied", str(path))
    return posix_open(path, flags, *rest, **options)

def replace(source, target):
    refuse_read_only(target)
    posix_replace(source, target)

def unlink(path, **options):
    refuse_read_only(path)
    posix_unlink(path, **options)

def kill(process, number):
    raise AssertionError("os.kill ends the process on Windows, whatever the signal")

os.open, os.replace, os.kill = open_file, replace, kill
os.unlink = os.remove = unlink
shutil._use_fd_functions = False
sys.platform = "win32"

from obygaze_models.commands.main import main
for line in sys.stdin:
    result = CliRunner().invoke(main, line.split())
    print(json.dumps([result.exit_code, result.output]))
"""
WORKS = (
    "models example lab",
    "stores subset lab/words.zarr --film tt0097576 -o part.zarr",
    "stores set part.zarr --licence CC0-1.0",
    "stores finalise part.zarr",
    "stores set part.zarr --name part",
    "stores push part.zarr part.zip",
    "stores pull part.zip -o again.zarr",
    "stores set again.zarr --licence MIT",
    "stores verify again.zarr",
    "annotations agreement lab/minutes -o agreement",
    "models run lab/level.toml -o runs/level",
    "models run lab/level.toml -o runs/level --overwrite",
    "report runs/level -o page.html",
    "features demo clips --count 2",
    "manifests import csv clips/annotations.csv -o clips/manifest",
    "manifests split clips/manifest --folds 2",
)
REFUSED = "features thumbnails clips/manifest --videos clips/videos -o thumbs"


@pytest.mark.night
def test_commands_call_nothing_that_windows_lacks(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", PRETEND],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        input="\n".join([*WORKS, REFUSED]),
        capture_output=True,
        text=True,
        check=True,
    )
    *answers, (code, text) = map(json.loads, result.stdout.splitlines())
    for line, answer in zip(WORKS, answers, strict=True):
        assert answer[0] == 0, (line, answer)
    assert code == 1
    assert "clips cannot be decoded on Windows" in text
