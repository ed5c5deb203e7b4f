"""The documentation site in a browser, and its pictures."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from docs.extension import LIVE
from docs.pictures import MADE, MAX_BYTES, SHIPPED, SHOTS, ship, write_pictures
from tests.kit.page import open_tab

ROOT = Path(__file__).parents[1]


def build_site() -> Path:
    """Build the site as `make docs` does, without live pages, keeping unchanged pages."""
    folder = ROOT / "docs/_build"
    options = ["-q", "-W", "--keep-going", "-j", "auto", "-d", folder / "doctrees"]
    build = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, ROOT / "docs", folder / "html"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert build.returncode == 0, build.stdout + build.stderr
    return folder / "html"


@pytest.mark.night
def test_the_site_works_in_a_browser() -> None:
    """The first commands are on the first screen, tutorials fit a phone, and the search works."""
    with open_tab() as tab:
        site = build_site()
        for width, height in ((1280, 800), (390, 844)):
            tab.open(site / "index.html", width=width, height=height)
            first = "document.querySelector('article pre').getBoundingClientRect().bottom"
            assert tab.run(first) < height
        for page in (ROOT / "docs/tutorials").glob("*.md"):
            tab.open(site / f"tutorials/{page.stem}.html", width=390)
            widths = [tab.texts("article pre", f"{part}Width") for part in ("scroll", "client")]
            assert widths[0] == widths[1]
            assert all(tab.texts("article img", "naturalWidth") or [0]), page
        tab.open(site / "search.html", fragment="?q=prevalence")
        tab.run("new Promise((resolve) => setTimeout(resolve, 3000))")
        assert any("glossary.html" in link for link in tab.texts("#search-results a", "href"))


def test_pictures_of_pages_are_in_the_checkout_and_small() -> None:
    named = {
        name
        for page in [*ROOT.glob("docs/**/*.md"), ROOT / "README.md"]
        if "_build" not in page.parts
        for name in re.findall(r"!\[[^\]]+\]\([^)]*pictures/([^)]+)\)", page.read_text())
    }
    sizes = {path.name: path.stat().st_size for path in SHIPPED.iterdir() if path.suffix != ".html"}
    assert named == sizes.keys()
    assert max(sizes.values()) < MAX_BYTES
    assert sum(sizes.values()) < 1_000_000


@pytest.mark.night
def test_pictures_match_what_their_pages_make(tmp_path: Path) -> None:
    """Figures match pixel by pixel up to rounding, and pictures of pages approximately."""
    write_pictures(MADE)
    live = re.search(r'src="([^"]+)"', LIVE)
    assert live
    assert "20 films" in (MADE / live[1]).read_text()
    ship(MADE, tmp_path / "again")
    shots = {path.stem for path in MADE.glob("*.html")} | {*SHOTS}
    stale = []
    for picture in sorted((tmp_path / "again").iterdir()):
        shipped = SHIPPED / picture.name
        bound = 12.0 if picture.stem in shots else 2.0
        if not shipped.exists() or difference(picture, shipped) > bound:
            stale.append(picture.name)
    assert stale == [], "make picture"


def difference(first: Path, second: Path) -> float:
    """Return how much two pictures differ, in SVG text or in grey values."""
    if first.suffix == ".svg":
        texts = [re.findall("<text[^>]*>([^<]*)<", path.read_text()) for path in (first, second)]
        return 0.0 if texts[0] == texts[1] else math.inf
    with Image.open(first) as image_a, Image.open(second) as image_b:
        if abs(image_a.width / image_a.height - image_b.width / image_b.height) > 0.01:
            return math.inf
        size = min(image_a.size, image_b.size)
        greys = [np.asarray(image.convert("L").resize(size), float) for image in (image_a, image_b)]
    return float(np.abs(greys[0] - greys[1]).mean())
