"""The site's pictures and live pages: what its tutorials make, and a report of made-up annotations.

``python -m docs.pictures`` makes those that are committed: ``docs/report.png``, the picture in
README, and, where ``OBYGAZE_TEST_DATA`` names the authors' files, ``docs/obygaze12.png``.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from click.testing import CliRunner
from PIL import Image

import obygaze_features as of
from cli import main
from docs.blocks import blocks

FILMS = {"film1": "The Swimmer", "film2": "A Room", "film3": "Two Rivers", "film4": "Night Bus"}
MINUTES, GRID_S, FRAMES, WIDTH = 40, 30, 8, 24
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
ROOT = Path(__file__).parents[1]
README_PICTURE = ROOT / "docs/report.png"
#: What a tutorial makes and its page shows: pictures, folders of pictures, and reports, which the
#: site has beside their pictures.
MADE = {
    "real": {
        "agreement": "agreement.png", "difference": "difference.png", "report": "report.html",
    },
    "videos": {"clips": "mine/thumbnails", "report": "mine/report.html"},
    "notebook": {"report": "mine/notebook.html"},
    "scholars": {
        "mobygaze": "way/mobygaze.png", "agreement": "way/agreement.png",
        "film": "way/night-bus.png", "report": "way/report.html", "explorer": "way/report.html",
    },
}  # fmt: skip
#: Tutorials that go on in one folder.
COURSES = (("real",), ("videos", "notebook"), ("scholars",))
#: Pictures of the report: width, height, what its address ends with, parts that are left out, and
#: parts that get a number.
SHOTS: dict[str, tuple[int, int, str, str, list[str]]] = {
    "report": (1080, 1000, "", ".explorer", []),
    "scholars-explorer": (
        1080, 1240, "#film=Night_Bus&model=pcbm-logistic",
        "header, nav, main > section:not(.explorer)", [],
    ),
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


def run_commands(lines: str) -> None:
    """Run commands of obygaze; what they print is shown only where one fails."""
    for line in lines.strip().replace("\n    ", " ").splitlines():
        result = CliRunner().invoke(main, shlex.split(line))
        if result.exit_code:
            raise RuntimeError(f"obygaze {line}\n{result.output}")


def follow_course(pages: Sequence[str], pictures: Path) -> None:
    """Do what tutorials say, up to the last that they show, and picture that in the folder."""
    with tempfile.TemporaryDirectory() as work, contextlib.chdir(work):
        sys.path.insert(0, work)
        for page in pages:
            names: dict[str, object] = {"__name__": page}
            made = {name: Path(file).absolute() for name, file in MADE[page].items()}
            for kind, name, content in blocks((ROOT / f"docs/tutorials/{page}.md").read_text()):
                if all(path.exists() for path in made.values()):
                    break
                if kind == "file":
                    Path(name).parent.mkdir(parents=True, exist_ok=True)
                    Path(name).write_text(content)
                elif kind == "python":
                    with contextlib.redirect_stdout(io.StringIO()):
                        exec(compile(content, page, "exec"), names)  # noqa: S102
                elif kind == "console":
                    run_commands("\n".join(re.findall(r"^\$ obygaze (.*)", content, re.MULTILINE)))
            for name, path in made.items():
                show(path, pictures / f"{page}-{name}.png")


def show(made: Path, output: Path) -> None:
    """Make a picture for the site of a picture, a folder of pictures or a report."""
    if made.is_dir():
        row = np.hstack([np.asarray(Image.open(path)) for path in sorted(made.glob("*.jpg"))[:4]])
        Image.fromarray(row).save(output)
    elif made.suffix == ".html":
        shutil.copy(made, output.with_name(f"{output.stem.partition('-')[0]}.html"))
        take_shot(made, output, output.stem)
    else:
        shutil.copy(made, output)


def make_report(pictures: Path) -> None:
    """Make the report of made-up films, and the figures that commands draw of them."""
    with tempfile.TemporaryDirectory() as work, contextlib.chdir(work):
        write_annotations(Path(work))
        run_commands(COMMANDS)
        write_features(Path(work))
        Path("sure.toml").write_text(EXPERIMENT)
        run_commands(MORE)
        for name in ("agreement", "moments"):
            shutil.copy(f"{name}.png", pictures)
        for name in ("report-top", "report-explorer"):
            take_shot(Path(work, "report.html"), pictures / f"{name}.png", name)


def take_shot(page: Path, output: Path, name: str) -> None:
    """Take a picture of a part of a page in a browser, its parts numbered if there are several."""
    if not (browser := shutil.which("chromium")):
        shutil.copy(README_PICTURE, output)
        return
    width, height, address, removed, targets = SHOTS.get(name, SHOTS["report"])
    text = re.sub(r"<meta http-equiv=.Content-Security-Policy.[^>]*>", "", page.read_text())
    script = NUMBERS % json.dumps([removed, targets])
    copy = page.with_name(f"{name}.html")
    copy.write_text(text.replace("</body>", f"<script>{script}</script></body>"))
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    options += [f"--window-size={width},{height}", "--virtual-time-budget=3000"]
    options += [f"--screenshot={output}", f"file://{copy}{address}"]
    subprocess.run([browser, *options], check=True, capture_output=True, timeout=60)
    with Image.open(output) as image:
        image.convert("RGB").quantize(192).save(output, optimize=True)


def write_pictures(folder: Path) -> None:
    """Write the site's pictures and live pages, unless they are there and of these sources."""
    sources = ("docs/*.py", "docs/tutorials/*.md", "obygaze_*/page/*", "obygaze_*/report/**/*")
    files = [path for names in sources for path in sorted(ROOT.glob(names)) if path.is_file()]
    source = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    mark = folder / "made-by.txt"
    if mark.exists() and mark.read_text() == source:
        return
    folder.mkdir(parents=True, exist_ok=True)
    if not (browser := shutil.which("chromium")) and os.environ.get("CI"):
        raise RuntimeError("the site's pictures need chromium, which is not installed")
    with ProcessPoolExecutor(2) as pool:
        jobs = [pool.submit(follow_course, pages, folder.resolve()) for pages in COURSES]
        jobs.append(pool.submit(make_report, folder.resolve()))
    for job in jobs:
        job.result()
    if browser:
        mark.write_text(source)
    else:
        print("No chromium here: README's picture stands for those of the reports")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as work:
        SHOTS["real-report"] = SHOTS["readme"]
        follow_course(["real"], Path(work))
        shutil.copy(Path(work, "real-report.png"), README_PICTURE)
        if data := os.environ.get("OBYGAZE_TEST_DATA"):
            annotations = Path(data, "obygaze12/ObyGaze12_thresh_02.csv")
            levels = f"manifests stats {work}/paper -o {ROOT}/docs/obygaze12.png --overwrite"
            run_commands(f"manifests import obygaze12 {annotations} -o {work}/paper\n{levels}")
