"""What a page says first: its title by a rule, a page of numbers, and a page of many films."""

import re
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import r2_score

import obygaze_models as om
from obygaze_features.common.figures import COLOURS
from obygaze_features.manifests import Manifest
from obygaze_features.page.html import document
from tests.report.conftest import Page, predicted

TITLES = {
    "above": "the model tells Sure and Easy Negative clips apart better than a guess",
    "unclear": "the model does not clearly tell Sure and Easy Negative clips apart",
    "below": "the model tells Sure and Easy Negative clips apart worse than a guess",
    "few": "Too few films to say whether frames can tell Sure and Easy Negative clips apart",
}


@pytest.mark.parametrize(
    ("verdict", "films", "signal"),
    [("above", 6, 0.2), ("unclear", 6, 0.0), ("below", 6, -0.2), ("few", 4, 0.2)],
)
def test_the_title_says_what_was_found(tmp_path, verdict, films, signal):
    run = predicted(tmp_path, films=films, signal=signal)
    page = Page(om.report(run, tmp_path / "page.html"))
    title = re.search(r"<h1>(.*?)</h1>", page.html, re.S)[1]
    assert TITLES[verdict] in " ".join(title.split())
    assert ("no use yet" in page.text) == (signal <= 0)
    assert ("needs 5 films" in page.text) == (verdict == "few")
    assert page.html.count('class="point"') == (verdict == "above")


def test_every_model_has_a_row(pages2):
    page = Page(pages2["levels"])
    assert sum(row[:1] == ["frames"] for row in page.rows) == 2
    assert len(page.data["views"]) == 2


def test_a_page_of_numbers_has_the_numbers_of_its_table(tab, world2, run_world2, tmp_path):
    manifest = Manifest.load(world2.manifest)
    moods = [str(number % 7) for number in range(len(manifest))]
    items = replace(manifest.items, extra={"mood": moods})
    replace(manifest, items=items).save(tmp_path / "rated")
    options = {"manifest": tmp_path / "rated", "column": "mood", "estimators": ("ridge",)}
    run = run_world2(tmp_path / "run", protocol="leave-film-out", split="", **options)
    page = om.report(run, tmp_path / "page.html")
    table = run.predictions
    films = table["id"].map(run.column("title"))
    orders = []
    for film, own in table.groupby(films):
        orders.append(stats.spearmanr(own["label"], own["value"]).statistic)
        means = own["label"].mean(), own["value"].mean(), orders[-1]
        error = (own["value"] - own["label"]).abs().mean()
        of_mean = (own["label"] - own["label"].mean()).abs().mean()
        numbers = [f"{value:.2f}".replace("-", "−") for value in means]
        numbers.append(f"{r2_score(own['label'], own['value']):.2f}".replace("-", "−"))
        assert Page(page).row(film)[1:] == [*numbers, f"{error:.2f} vs {of_mean:.2f}"]
    order = f"Spearman {np.mean(orders):.2f} (".replace("-", "−")
    assert "How close are the predicted ratings?" in Page(page).text
    assert order in Page(page).text
    tab.prefer()
    tab.open(page)
    tab.choose("choose-order", "wrong")
    while not tab.run("document.getElementById('show-more').hidden"):
        tab.click("#show-more")
    differences = tab.texts("#rows td:last-child")
    distances = [abs(float(text.replace("−", "-"))) for text in differences]
    assert len(distances) == 24
    assert distances == sorted(distances, reverse=True)
    assert tab.logged == []


def test_many_films_are_sorted_and_shown_on_request(tab, tmp_path):
    run = predicted(tmp_path, films=40, signal=0.1)
    page = om.report(run, tmp_path / "page.html")
    tab.prefer()
    tab.open(page)
    shown = "document.querySelectorAll('.films tbody tr:not([hidden])').length"
    assert tab.run(shown) == 20
    assert len(tab.texts("svg.all circle")) == 40
    tab.click("#all-films")
    assert tab.run(shown) == 40
    heads = tab.texts(".films th > button")
    last = f".films thead tr:last-child th:nth-child({len(heads) + 1}) button"
    values = tab.texts(".films tbody td:last-child data", "value")
    assert values == sorted(values, key=float, reverse=True)
    tab.click(last)
    assert tab.texts(".films tbody td:last-child data", "value") == sorted(values, key=float)
    assert tab.run("document.querySelector('[aria-sort]').ariaSort") == "ascending"
    tab.click(".films thead .first button")
    names = tab.texts(".films tbody th")
    assert names == sorted(names)


#: What stands in one legend: the levels, the model, differences, and annotators.
LEGEND = ("l1", "l3", "l4", "l5", "model", "ink", "one", "two", "three")
TO_XYZ = np.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750],
                   [0.0193339, 0.1191920, 0.9503041]])  # fmt: skip
#: Deuteranopia, by Machado, Oliveira and Fernandes (2009).
SEEN = np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                 [-0.011820, 0.042940, 0.968881]])  # fmt: skip


def lab(colour, seen):
    parts = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ np.clip(seen @ linear, 0, 1) / [0.95047, 1, 1.08883]
    x, y, z = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def ciede2000(first, second):
    """Return the difference of two colours by Sharma, Wu and Dalal (2005)."""
    (l1, a1, b1), (l2, a2, b2) = first, second
    mean = (np.hypot(a1, b1) + np.hypot(a2, b2)) / 2
    grey = 1.5 - 0.5 * np.sqrt(mean**7 / (mean**7 + 25**7))
    c1, c2 = np.hypot(a1 * grey, b1), np.hypot(a2 * grey, b2)
    h1 = np.degrees(np.arctan2(b1, a1 * grey)) % 360
    h2 = np.degrees(np.arctan2(b2, a2 * grey)) % 360
    turn = (h2 - h1 + 180) % 360 - 180
    c, h, light = (c1 + c2) / 2, (h1 + turn / 2) % 360, ((l1 + l2) / 2 - 50) ** 2
    t = (1 - 0.17 * np.cos(np.radians(h - 30)) + 0.24 * np.cos(np.radians(2 * h))
         + 0.32 * np.cos(np.radians(3 * h + 6)) - 0.2 * np.cos(np.radians(4 * h - 63)))  # fmt: skip
    dl = (l2 - l1) / (1 + 0.015 * light / np.sqrt(20 + light))
    dc = (c2 - c1) / (1 + 0.045 * c)
    dh = 2 * np.sqrt(c1 * c2) * np.sin(np.radians(turn / 2)) / (1 + 0.015 * c * t)
    angle = np.radians(60 * np.exp(-(((h - 275) / 25) ** 2)))
    cross = -2 * np.sqrt(c**7 / (c**7 + 25**7)) * np.sin(angle) * dc * dh
    return np.sqrt(dl**2 + dc**2 + dh**2 + cross)


def test_colours_of_one_legend_differ():
    """By 15 and more, also for readers with deuteranopia; Sharma's pair 1 has 2.0425."""
    pair = (50, 2.6772, -79.7751), (50, 0, -82.7485)
    assert ciede2000(*pair) == pytest.approx(2.0425, abs=1e-4)
    sheets = COLOURS + document("", "")
    for theme in (0, 1):
        colours = {name: re.findall(rf"--{name}: (#\w+)", sheets)[theme] for name in LEGEND}
        for seen in (np.eye(3), SEEN):
            for first, second in combinations(LEGEND, 2):
                distance = ciede2000(lab(colours[first], seen), lab(colours[second], seen))
                assert distance >= 15, (theme, first, second)
