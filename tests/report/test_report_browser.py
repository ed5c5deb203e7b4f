"""The page in a real browser: what readers see, press and save."""

import csv
import io

import pytest

import obygaze_models as om
from tests.kit.world2 import make_world2
from tests.report.conftest import Page, axe, make_example

SAVED = "window.saved = []; URL.createObjectURL = blob => { saved.push(blob); return '#' }; 0"
WIDTH = "document.documentElement.scrollWidth"
HOSTILE = "'\"}}{{ 7 * 7 }}<script>hit()</script><img src=x onerror=hit()>"
FILM = "film " + HOSTILE.replace("/", "|")
FORMULAS = ("=1+1", "@a", "+1", "-1+2")


@pytest.fixture
def page(tab, example):
    tab.prefer()
    tab.open(example)
    return tab


@pytest.fixture(scope="module")
def data(example):
    return Page(example).data


def listed(tab):
    """Return the ids of the listed clips, in order, after showing all of them."""
    while not tab.run("document.getElementById('show-more').hidden"):
        tab.run("document.getElementById('show-more').click()")
    return [link.partition("clip=")[2] for link in tab.texts("#rows a", "href")]


def by_id(data, values):
    return dict(zip(data["ids"], values, strict=True))


def film(tab, data, name):
    number = [each["id"] for each in data["films"]].index(name)
    tab.choose("choose-film", str(number))
    return [clip for clip, own in zip(data["ids"], data["film"], strict=True) if own == number]


def test_the_page_is_quiet_and_accessible(tab, example, pages2):
    for path in (example, *pages2.values()):
        for scheme in ("light", "dark"):
            tab.prefer(prefers_color_scheme=scheme)
            tab.open(path)
            assert axe(tab) == []
        assert tab.logged == []
        assert [url.split("/")[-1] for url in tab.requested] == [path.name]
        for width in (1000, 700, 390):
            tab.open(path, width=width)
            assert tab.run(WIDTH) <= width
        assert axe(tab) == []


def test_the_page_is_as_short_as_its_design(tab, tmp_path):
    example = make_example(tmp_path, None, 3)
    height = "document.documentElement.scrollHeight"
    for width, most in ((1280, 4125), (390, 7335)):  # of 4200 and 7500 with six concepts
        tab.open(example, width=width)
        assert tab.run(height) <= most
    assert example.stat().st_size <= 550_000


def test_a_films_minutes_are_ranked_and_filtered(page, data):
    ids = film(page, data, "tt0467406")
    view = data["views"][data["view"]]
    rows = [data["ids"][row] for row in data["tested"][view["at"]]]
    p = dict(zip(rows, view["p"][0], strict=True))
    wrong = {
        clip
        for clip, *pair in zip(rows, view["called"], view["label"], strict=True)
        if pair[0] != pair[1]
    }
    shown = listed(page)
    assert sorted(shown) == sorted(ids)
    tested = [p[clip] for clip in shown if clip in p]
    assert tested == sorted(tested, reverse=True)
    page.choose("choose-order", "scene")
    assert listed(page) == ids
    page.click("#more")
    page.choose("choose-which", "wrong")
    assert listed(page) == [clip for clip in ids if clip in wrong]
    page.choose("choose-which", "differ")
    first, second = (by_id(data, own["level"]) for own in data["annotators"])
    assert listed(page) == [clip for clip in ids if first[clip] != second[clip]]
    page.choose("choose-which", "")
    page.choose("choose-level", "3")
    level = by_id(data, data["level"])
    assert listed(page) == [clip for clip in ids if level[clip] == 3]


def test_lanes_have_a_mark_for_each_minute(page, data):
    ids = film(page, data, "tt0120338")
    marks = page.texts("#lanes svg[role=img]", "querySelectorAll('rect').length")
    view = data["views"][data["view"]]
    tested = {data["ids"][row] for row in data["tested"][view["at"]]}
    assert marks == [len(ids), len(ids), len(tested & {*ids})]


def test_the_keyboard_opens_steps_and_returns(page, data):
    film(page, data, "tt0467406")
    first, second = listed(page)[:2]
    page.run("document.querySelector('#rows a').focus()")
    page.press("Enter")
    assert page.run("document.getElementById('clip').open")
    assert f"clip={first}" in page.run("location.hash")
    page.press("ArrowRight")
    assert f"clip={second}" in page.run("location.hash")
    assert axe(page) == []
    page.press("ArrowLeft", "Escape")
    assert not page.run("document.getElementById('clip').open")
    assert page.run("location.hash") == "#film=tt0467406"


def test_links_open_a_film_or_a_clip(tab, example):
    tab.open(example, fragment="#film=tt0120338")
    assert tab.run("document.getElementById('choose-film').selectedOptions[0].text").startswith(
        "Titanic"
    )
    tab.open(example, fragment="#clip=tt0467406-0014")
    assert tab.text("#clip-title") == "Juno (2007), 0:13:00"
    assert "annotator1" in tab.text("#clip-body")


def test_reasons_add_up(tab, pages2):
    tab.open(pages2["levels"])
    data = Page(pages2["levels"]).data
    view = data["views"][data["view"]]
    tab.click("#rows a")
    parts = [float(text.split()[-1].replace("−", "-")) for text in tab.texts("#clip-body li")]
    clip = tab.text("#clip-body p.note")
    row = data["tested"][view["at"]].index(data["ids"].index(clip))
    assert sum(parts) == pytest.approx(sum(part for _, part in view["why"]["parts"][row]), abs=0.05)
    tree = next(n for n, own in enumerate(data["views"]) if "steps" in own.get("why", {}))
    tab.press("Escape")
    tab.choose("choose-view", str(tree))
    tab.click("#rows a")
    assert "one of the trees" in tab.text("#clip-body")


def test_hostile_names_are_shown_verbatim_and_saved_as_text(tab, run_world2, tmp_path):
    """In the names of this run, everything is code or a formula."""
    levels = {"a": f"low {HOSTILE}", "b": "middle", "c": "__proto__", "d": f"high {HOSTILE}"}
    films = (*FORMULAS, FILM)
    world = make_world2(tmp_path / "world", films=films, levels=levels)
    options = {"positives": ("d",), "train_negatives": ("b",), "name": HOSTILE}
    options["estimators"] = ({"name": "logistic", "as": "x<y>"},)
    places = {"manifest": world.manifest, "store": world.store}
    run = run_world2(tmp_path / "run", **places, **options)
    page = om.report(run, tmp_path / "hostile.html")
    tab.prefer()
    tab.open(page)
    for text in (FILM, f"high {HOSTILE}", HOSTILE, "x<y>"):
        assert text in tab.text("main"), text
    assert tab.texts("main img, iframe, main script:not([type])") == []
    titles = set()
    for number in range(5):
        tab.choose("choose-film", str(number))
        tab.run(SAVED)
        tab.click("#save")
        rows = [*csv.DictReader(io.StringIO(tab.run("saved[0].text()")))]
        titles |= {row["title"] for row in rows}
        assert len(rows) == len(listed(tab))
    assert titles == {FILM, *(f"'{name}" for name in FORMULAS)}
    assert tab.logged == []


def test_print_shows_all_tables_and_no_controls(page):
    page.prefer("print")
    page.run("dispatchEvent(new Event('beforeprint')); 0")
    for part, is_shown in (("nav", False), ("form", False), ("#films", True)):
        assert page.run(f"document.querySelector('{part}').checkVisibility()") == is_shown, part
    assert page.run("document.querySelector('details[data-print]').open")
    page.prefer()
