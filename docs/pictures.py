"""The site's pictures and live pages, made by following the steps of the pages.

``python -m docs.pictures`` makes the committed pictures: ``docs/pictures``, small enough for a
checkout; ``docs/report.png``, the picture in the README; and, if ``OBYGAZE_TEST_DATA`` names the
authors' files, ``docs/obygaze12.png``. With ``--live``, it makes only the site's live pages and
their pictures, in ``docs/_build/made``.
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
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from click.testing import CliRunner
from joblib.externals.loky import get_reusable_executor
from PIL import Image, ImageOps

from docs.blocks import blocks
from obygaze_features.common.figures import save_figure
from obygaze_features.manifests import Manifest
from obygaze_models.commands.main import main
from obygaze_models.studies.reproduce.concepts import levels_figure

ROOT = Path(__file__).parents[1]
README_PICTURE = ROOT / "docs/report.png"
SHIPPED, MADE = ROOT / "docs/pictures", ROOT / "docs/_build/made"
#: The size limit of a committed picture, and the widths to try.
MAX_BYTES, WIDTHS = 90_000, (900, 800, 700, 600)
#: Numbers of colours to try, the largest allowed change of a large area's colour, and the size of a
#: large area. The limit ensures that no level gets another level's colour.
COLOURS, MAX_CHANGE, AREA = (64, 128, 256), 10, 150
#: Products of a page that the site shows: figures, folders of stills, and reports, which the site
#: includes next to their pictures.
PRODUCTS = {
    "tutorials/real": ("report.html",),
    "tutorials/videos": ("mine/thumbnails", "mine/report.html"),
    "tutorials/notebook": ("mine/notebook.html",),
    "tutorials/senses": ("senses/report.html",),
    "tutorials/scholars": (
        "way/nine.html", "way/films.html", "way/report.html",
    ),
    "how-to/bias": (
        "eat/professions.svg", "captions/rates.svg", "gender/leanings.svg",
        "saliency/maps/groups/O.png",
    ),
}  # fmt: skip
#: Pages that continue in the same folder.
COURSES = (("tutorials/real",), ("tutorials/videos", "tutorials/notebook"),
           ("tutorials/senses",), ("tutorials/scholars",), ("how-to/bias",))  # fmt: skip
#: Pictures of a report: width, height, the end of the address, the omitted parts, and the
#: numbered parts. `FIRST_SCREEN` applies to each report.
REST = "section[aria-labelledby=people] ~ *"
FIRST_SCREEN = (1200, 900, "", "section[aria-labelledby=explorer]", [])
SHOTS: dict[str, tuple[int, int, str, str, list[str]]] = {
    "readme": (1200, 1100, "", "section[aria-labelledby=explorer]", []),
    "real-report-beside": (
        1200, 330, "",
        "main > :not(section[aria-labelledby=differ])", [],
    ),
    "scholars-report-top": (
        1200, 760, "", REST,
        ["h1", ".cells", ".results", "section[aria-labelledby=people]"],
    ),
    "scholars-report-explorer": (
        1200, 700, "#film=Night_Bus",
        "main > :not(section[aria-labelledby=explorer])",
        ["#choose", "#lanes", "#rows"],
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


def run_command(line: str) -> None:
    """Run an obygaze command; print its output only if it fails."""
    result = CliRunner().invoke(main, shlex.split(line))
    if result.exit_code:
        raise RuntimeError(f"obygaze {line}\n{result.output}")


def follow(pages: Sequence[str], pictures: Path) -> None:
    """Follow the steps of pages until all shown products exist, and put them into a folder."""
    with tempfile.TemporaryDirectory() as work, contextlib.chdir(work):
        shutil.copytree(ROOT / "examples/pictures", "examples/pictures")
        sys.path.insert(0, work)
        for page in pages:
            names: dict[str, object] = {"__name__": page}
            for kind, name, content in blocks((ROOT / f"docs/{page}.md").read_text()):
                if all(Path(product).exists() for product in PRODUCTS[page]):
                    break
                if kind == "file":
                    Path(name).parent.mkdir(parents=True, exist_ok=True)
                    Path(name).write_text(content)
                elif kind == "python":
                    with contextlib.redirect_stdout(io.StringIO()):
                        exec(compile(content, page, "exec"), names)  # noqa: S102
                elif kind == "console":
                    for line in re.findall(r"^\$ obygaze (.*)", content, re.MULTILINE):
                        run_command(line)
            for product in PRODUCTS[page]:
                show(Path(work, product), pictures, Path(page).name)
    get_reusable_executor().shutdown()  # otherwise this process ends when they time out


def show(product: Path, pictures: Path, page: str) -> None:
    """Put a figure, adjacent stills, or a report with pictures of it into a folder."""
    picture = (
        pictures / f"{page}-{product.stem}{product.suffix if product.suffix == '.svg' else '.png'}"
    )
    if product.is_dir():
        paths = sorted(product.glob("*.jpg"))
        spread = paths[:: len(paths) // 4][:4]
        stills = [np.asarray(ImageOps.fit(Image.open(path), (160, 90))) for path in spread]
        Image.fromarray(np.hstack(stills)).save(picture)
    elif product.suffix == ".html":
        shutil.copy(product, picture.with_suffix(".html"))
        take_shot(product, picture, FIRST_SCREEN)
        for name in (name for name in SHOTS if name.startswith(picture.stem)):
            take_shot(product, pictures / f"{name}.png", SHOTS[name])
    elif product.parent.name == "groups":  # saliency of a small network, which sees 32 pixels
        with Image.open(product) as image:
            image.resize((224, 224), Image.Resampling.NEAREST).save(picture)
    else:
        shutil.copy(product, picture)


def take_shot(page: Path, output: Path, shot: tuple[int, int, str, str, list[str]]) -> None:
    """Take a picture of a part of a page in a browser, and number the parts that `shot` lists."""
    if not (browser := shutil.which("chromium")):
        shutil.copy(README_PICTURE, output)
        return
    width, height, address, removed, targets = shot
    text = re.sub(r"<meta http-equiv=.Content-Security-Policy.[^>]*>", "", page.read_text())
    script = NUMBERS % json.dumps([removed, targets])
    copy = page.with_name(f"{output.stem}.html")
    copy.write_text(text.replace("</body>", f"<script>{script}</script></body>"))
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    options += [f"--window-size={width},{height}", "--virtual-time-budget=3000"]
    options += [f"--screenshot={output}", f"file://{copy}{address}"]
    subprocess.run([browser, *options], check=True, capture_output=True, timeout=60)
    with Image.open(output) as image:
        image.convert("RGB").quantize(COLOURS[-1]).save(output, optimize=True)


def shrink(picture: Path) -> bytes:
    """Return a small PNG, as large as fits; an SVG is returned unchanged."""
    if picture.suffix == ".svg":
        return picture.read_bytes()
    with Image.open(picture) as image:
        original = image.convert("RGB")
    content = b""
    for width in (original.width, *(width for width in WIDTHS if width < original.width)):
        size = width, round(original.height * width / original.width)
        small = original.resize(size, Image.Resampling.LANCZOS)
        file = io.BytesIO()
        reduce_colours(small).save(file, "PNG", optimize=True)
        content = file.getvalue()
        if len(content) < MAX_BYTES:
            return content
    return content


def reduce_colours(image: Image.Image) -> Image.Image:
    """Return an image with few colours, in which areas keep nearly the same colours."""
    pixels = np.asarray(image).reshape(-1, 3)
    _, kinds, counts = np.unique(pixels, axis=0, return_inverse=True, return_counts=True)
    in_area = counts[kinds] > AREA
    for colours in COLOURS:
        reduced = image.quantize(colours)
        new = np.asarray(reduced.convert("RGB")).reshape(-1, 3)
        change = np.abs(new[in_area].astype(int) - pixels[in_area]).max(initial=0)
        if change <= MAX_CHANGE:
            break
    return reduced


def ship(pictures: Path, shipped: Path) -> None:
    """Replace the committed pictures with new ones."""
    shutil.rmtree(shipped, ignore_errors=True)
    shipped.mkdir()
    for picture in sorted([*pictures.glob("*.png"), *pictures.glob("*.svg")]):
        (shipped / picture.name).write_bytes(shrink(picture))


def write_pictures(folder: Path) -> None:
    """Write pictures and live pages, unless existing ones have the same sources."""
    sources = [*(f"docs/{page}.md" for page in PRODUCTS), "docs/pictures.py"]
    # A page can show the results of any module.
    sources += [f"obygaze_*/**/*.{kind}" for kind in ("py", "html", "css", "js", "json", "toml")]
    files = [path for names in sources for path in sorted(ROOT.glob(names))]
    source = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    mark = folder / "made-by.txt"
    if mark.exists() and mark.read_text() == source:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # A forked process could not use joblib's processes, of which it would have a copy.
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        jobs = [pool.submit(follow, pages, folder.resolve()) for pages in COURSES]
    for job in jobs:
        job.result()
    if shutil.which("chromium"):
        mark.write_text(source)
    else:
        print("chromium is not installed, so the README's picture replaces the pictures of reports")


if __name__ == "__main__":
    write_pictures(MADE)
    if sys.argv[1:] == ["--live"]:
        sys.exit()
    ship(MADE, SHIPPED)
    FIRST_SCREEN = SHOTS["readme"]
    with tempfile.TemporaryDirectory() as work:
        follow(["tutorials/scholars"], Path(work))
        shutil.copy(Path(work, "scholars-films.png"), README_PICTURE)
        if data := os.environ.get("OBYGAZE_TEST_DATA"):
            labels = f"{data}/obygaze12/ObyGaze12_thresh_02.csv -o {work}/paper"
            run_command(f"manifests import obygaze12 {labels}")
            paper = Manifest.load(Path(work, "paper"))
            figure = levels_figure(paper, "Levels of objectification")
            save_figure(figure, ROOT / "docs/obygaze12.png", overwrite=True)
