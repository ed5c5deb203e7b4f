"""The memory of a manifest of a million rows, and the time that a command takes to start."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.result import Result, side_by_side
from obygaze_features.common.files import to_json

MILLION = 1_000_000
MEMORY_LIMIT = 1.5e9


def measure() -> Iterator[Result]:
    """Measure the promised speed and memory of manifests."""
    with tempfile.TemporaryDirectory() as folder:
        yield _memory(_synthetic(Path(folder, "million")))
    yield _start()


def _memory(manifest: Path) -> Result:
    """Return the peak memory of a separate process; the limit is in place of the peer."""
    script = (
        "import resource, sys; from pathlib import Path; "
        "from obygaze_features.manifests import Manifest; "
        "Manifest.load(Path(sys.argv[1])).digest; "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, str(manifest)], capture_output=True, text=True, check=True
    )
    # Linux counts in kibibytes, macOS in bytes.
    used = int(run.stdout) * (1 if sys.platform == "darwin" else 1024)
    return Result(
        "memory of a million rows, loaded and digested (limit)",
        used / 1e9,
        "GB",
        MEMORY_LIMIT / 1e9,
        used / MEMORY_LIMIT,
        1,
    )


def _start() -> Result:
    obygaze = Path(sys.executable).with_name("obygaze")

    def run(*command: str) -> None:
        subprocess.run(command, check=True, capture_output=True)

    return side_by_side(
        "obygaze --help (python -c 'import click')",
        lambda: run(str(obygaze), "--help"),
        lambda: run(sys.executable, "-c", "import click"),
        target=3,
        runs=15,
    )


def _synthetic(folder: Path) -> Path:
    folder.mkdir()
    (folder / "manifest.json").write_text(
        to_json({"format": "obygaze-manifest", "format_version": 1, "name": "million"})
    )
    with (folder / "items.csv").open("w") as file:
        file.write("id,kind,film,media,text,start,end\n")
        for number in range(MILLION):
            film, scene = f"tt{number // 1000:07d}", number % 1000
            file.write(f"{film}-{scene:03d},clip,{film},{film}_scene_{scene}.mp4,,,\n")
    return folder
