"""Manifests: the 1,914 rows of ObyGaze12, the memory of a million rows, and the startup."""

from __future__ import annotations

import ast
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.result import Result, side_by_side
from obygaze_features.common.files import to_json
from obygaze_features.manifests import Manifest

MILLION = 1_000_000
MEMORY_LIMIT = 1.5e9


def measure() -> Iterator[Result]:
    """Measure the promised speed and memory of manifests."""
    with tempfile.TemporaryDirectory() as folder:
        # Memory first: on Linux, a new process inherits the peak of its parent.
        yield _memory(_synthetic(Path(folder, "million")))
        yield from _obygaze12(Path(folder))
    yield _start()


def _obygaze12(folder: Path) -> Iterator[Result]:
    import pandas

    source = _annotations(folder / "annotations.csv")

    def peer() -> None:
        table = pandas.read_csv(source, sep=";")
        table = table[table["id"].notna()]
        table["concepts"] = table["concepts"].map(ast.literal_eval)

    yield side_by_side(
        "import 1,914 rows (pandas: read the file, parse the lists)",
        lambda: Manifest.from_obygaze12(source),
        peer,
        target=5,
    )


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


def _annotations(path: Path) -> Path:
    """Write a file of the same size and format as the authors', which we cannot ship."""
    chance = random.Random(12)
    names = ["Speech", " Activities", " Clothes", " Body", " Exp of  emotion", " Type of plan"]
    rows = [
        "idx;util;clip;label;overlap_ratio;concepts;id;movie;srt_name;video_name;graph_number",
        ";" * 10,
    ]
    for number in range(1914):
        film, scene = f"tt{number // 160:07d}", number % 160 + 1
        label = chance.choice(["Easy Neg", "Hard Neg", "Not Sure", "Sure"])
        concepts = [""] if label == "Easy Neg" else chance.sample(names, chance.randint(1, 4))
        clip = f"scene-{scene:03d}.ss-{scene:04d}.es-{scene:04d}"
        rows.append(
            f"{number};1;{film}{clip};{label};1.00;{concepts};{film}-{scene:03d};{film};"
            f"{clip}.srt;{film}_scene_{scene}.avi;{number}"
        )
    path.write_bytes("".join(f"{row}\r\n" for row in rows).encode())
    return path


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
