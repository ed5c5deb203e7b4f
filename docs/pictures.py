"""The site's pictures, drawn through the commands: of made-up annotations, and of the example.

``python -m docs.pictures`` makes ``docs/report.png``, the picture in README.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from click.testing import CliRunner
from PIL import Image

import obygaze_features as of
from cli import main

FILMS = {"film1": "The Swimmer", "film2": "A Room", "film3": "Two Rivers", "film4": "Night Bus"}
MINUTES, GRID_S, FRAMES, WIDTH = 40, 30, 16, 24
DRAWN = "made up to show this page"
CONCEPTS = ("Look", "Body", "Posture", "Clothing", "Type of shot")
EXPERIMENT = """
name = "Sure against the others"
manifest = "manifest"
store = "features.zarr"
protocol = "leave-film-out"
positives = ["S"]
train_negatives = ["EN", "HN"]
estimators = ["logistic", {name = "pcbm-logistic", negatives = "b"},
  {name = "frame-mil", class_weight = "balanced"}, "film-prior"]
"""
TEMPLATES = Path(__file__).parents[1] / "obygaze_models/report/templates"
REAL_PAGE = "real.html"
README_PICTURE = Path(__file__).with_name("report.png")
#: Pictures of the report: width, height, what its address ends with, parts that are left out, and
#: parts that get a number.
SHOTS: dict[str, tuple[int, int, str, str, list[str]]] = {
    "readme": (1200, 1340, "", ".explorer, nav, .terms", []),
    "report-top": (
        1080, 1240, "", ".explorer",
        ["h1", ".alarm", ".findings", "p.limits", ".found figure", "table.strips"],
    ),
    "report-explorer": (
        1080, 1500, "#film=film2&model=pcbm-logistic", "header, nav, main > section:not(.explorer)",
        ["#choose", "#strips", "#save-table", "#clips-table"],
    ),
}  # fmt: skip
NUMBERS = """
const [hidden, targets] = %s;
document.querySelectorAll(hidden).forEach((part) => (part.style.display = "none"));
scrollTo(0, 0);
setTimeout(() => targets.forEach((target, at) => {
  const box = document.querySelector(target).getBoundingClientRect();
  const badge = document.createElement("b");
  badge.textContent = at + 1;
  badge.style = `position:absolute;left:${Math.max(2, box.left + scrollX - 36)}px;` +
    `top:${box.top + scrollY}px;width:28px;height:28px;border-radius:14px;background:#b3003c;` +
    "color:#fff;font:700 17px/28px sans-serif;text-align:center;z-index:9";
  document.body.append(badge);
}), 300);
"""


def write_annotations(folder: Path) -> None:
    """Write two annotators' segments of four films, and their clips."""
    chance = np.random.default_rng(7)
    rows = ["film,annotator,start,end,level,concepts"]
    for film in FILMS:
        start = 30.0
        while start < MINUTES * 60 - 90:
            end = start + chance.uniform(20, 90)
            level = chance.choice(["S", "HN", "NS"], p=[0.5, 0.35, 0.15])
            count = chance.integers(1, 4) if level == "S" else 1
            concepts = chance.choice(CONCEPTS, size=count, replace=False)
            for annotator, share in (("ann", 1.0), ("ben", 0.8)):
                if chance.random() < share:
                    early, late = chance.uniform(-4, 4, size=2)
                    seen = "|".join(sorted(concepts[: max(1, round(count * share))]))
                    rows.append(
                        f"{film},{annotator},{start + early:.1f},{end + late:.1f},{level},{seen}"
                    )
            start = end + chance.uniform(40, 180)
    (folder / "segments.csv").write_text("\n".join(rows) + "\n")
    titles = [f"{film},{title},{MINUTES * 60}" for film, title in FILMS.items()]
    spans = [
        f"{film},{start},{start + GRID_S},{DRAWN}"
        for film in FILMS
        for start in range(0, MINUTES * 60, GRID_S)
    ]
    (folder / "grid.csv").write_text("\n".join(["film,start,end,synthetic", *spans]) + "\n")
    (folder / "films.csv").write_text("\n".join(["film,title,end", *titles]) + "\n")


def write_features(folder: Path) -> None:
    """Write a store in which each concept moves the frames that show it along one feature."""
    manifest, timelines = of.Manifest.load(folder / "manifest"), of.Timelines.load(folder / "lines")
    starts, ends = manifest.items.starts[:, None], manifest.items.ends[:, None]
    times = starts + (ends - starts) * (np.arange(FRAMES) + 0.5) / FRAMES
    frames = np.random.default_rng(2).normal(size=(*times.shape, WIDTH))
    films = np.array(manifest.items.films)[:, None]
    for segment in timelines.segments:
        inside = (segment.start <= times) & (times < segment.end) & (films == segment.film)
        for concept in segment.concepts:
            frames[inside, CONCEPTS.index(concept)] += 1.5
    arrays = {"native": frames.mean(axis=1), "frames": frames, "frame_time": times}
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", values)
    paths = {name: folder / f"{name}.npy" for name in arrays}
    of.import_features(
        paths, manifest, folder / "features.zarr", ids=manifest.ids, backbone="made-up"
    )


COMMANDS = """
annotations import csv segments.csv --films films.csv -o lines
annotations project lines --grid grid.csv -o manifest
annotations merge manifest
annotations agreement manifest -o agreement.png
"""
MORE = """
models run sure.toml -o run
models moments run features.zarr --estimator frame-mil --close-gaps 10 -o moments.csv
    --frames frames.csv -o moments.png --timelines lines --manifest manifest --film film2
report run -o report.html --timelines lines --moments moments.csv --frames frames.csv
"""


REAL = f"""
models example mobygaze
models run mobygaze/level.toml -o runs/level
models run mobygaze/length.toml -o runs/length
models run mobygaze/concepts.toml -o runs/concepts
report runs/level runs/length runs/concepts --title "What is said in 20 films" -o {REAL_PAGE}
"""
"""README's picture and the site's live page: the shipped example, which is real."""


def run_commands(lines: str) -> None:
    """Run commands of obygaze; what they print is shown only where one fails."""
    for line in lines.strip().replace("\n    ", " ").splitlines():
        result = CliRunner().invoke(main, shlex.split(line))
        if result.exit_code:
            raise RuntimeError(f"obygaze {line}\n{result.output}")


def make_report(folder: Path) -> None:
    """Make the report, and the figures that commands draw, from annotations to the page."""
    with contextlib.chdir(folder):
        write_annotations(folder)
        run_commands(COMMANDS)
        write_features(folder)
        Path("sure.toml").write_text(EXPERIMENT)
        run_commands(MORE)


def make_real_report(folder: Path) -> Path:
    """Make the page of the shipped example."""
    with contextlib.chdir(folder):
        run_commands(REAL)
    return folder / REAL_PAGE


def take_shot(page: Path, output: Path, name: str) -> None:
    """Take a picture of a part of a page in a browser, its parts numbered if there are several."""
    width, height, address, removed, targets = SHOTS[name]
    text = re.sub(r"<meta http-equiv=.Content-Security-Policy.[^>]*>", "", page.read_text())
    script = NUMBERS % json.dumps([removed, targets])
    copy = page.with_name(f"{name}.html")
    copy.write_text(text.replace("</body>", f"<script>{script}</script></body>"))
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    options += [f"--window-size={width},{height}", "--virtual-time-budget=3000"]
    options += [f"--screenshot={output}", f"file://{copy}{address}"]
    subprocess.run(["chromium", *options], check=True, capture_output=True, timeout=60)
    with Image.open(output) as image:
        image.convert("RGB").quantize(192).save(output, optimize=True)


def write_pictures(folder: Path) -> None:
    """Write the site's pictures into a folder, unless they are there and of this page."""
    files = [Path(__file__), *sorted(TEMPLATES.rglob("*.*"))]
    source = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    mark = folder / "made-by.txt"
    if mark.exists() and mark.read_text() == source:
        return
    folder.mkdir(parents=True, exist_ok=True)
    browser = shutil.which("chromium")
    if not browser and os.environ.get("CI"):
        raise RuntimeError("the site's pictures need chromium, which is not installed")
    with tempfile.TemporaryDirectory() as work:
        make_report(Path(work))
        shutil.copy(make_real_report(Path(work)), folder)
        for name in ("agreement", "moments"):
            shutil.copy(Path(work, f"{name}.png"), folder)
        for name in sorted(SHOTS.keys() - {"readme"}):
            if browser:
                take_shot(Path(work, "report.html"), folder / f"{name}.png", name)
            else:
                shutil.copy(README_PICTURE, folder / f"{name}.png")
    if browser:
        mark.write_text(source)
    else:
        print("No chromium here: README's picture stands for those of the report")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as work:
        take_shot(make_real_report(Path(work)), README_PICTURE, "readme")
    print(f"Wrote {README_PICTURE}")
