"""The page in a real browser: what readers see, press and save."""

import pytest

import obygaze_models as om
from tests.kit.world2 import make_world2
from tests.report.conftest import Page, axe, make_example

WIDTH = "document.documentElement.scrollWidth"
HOSTILE = "'\"}}{{ 7 * 7 }}<script>hit()</script><img src=x onerror=hit()>"
FILM = "film " + HOSTILE.replace("/", "|")


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


def film(tab, data, name):
    number = [each["id"] for each in data["films"]].index(name)
    tab.choose("choose-film", str(number))
    films = dict(zip(data["ids"], data["film"], strict=True))
    return [clip for clip in films if films[clip] == number]


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


def test_a_films_minutes_are_ranked_and_drawn(page, data):
    ids = film(page, data, "tt0467406")
    view = data["views"][data["view"]]
    rows = [data["ids"][row] for row in data["tested"][view["at"]]]
    p = dict(zip(rows, view["p"], strict=True))
    shown = listed(page)
    assert sorted(shown) == sorted(ids)
    tested = [p[clip] for clip in shown if clip in p]
    assert tested == sorted(tested, reverse=True)
    marks = page.texts("#lanes [role=img]", "children.length")
    assert marks == [len(ids), len(ids), len(tested)]
    page.choose("choose-order", "scene")
    assert listed(page) == ids
    levels = [own["level"] for own in data["annotators"]]
    pairs = dict(zip(data["ids"], zip(*levels, strict=True), strict=True))
    page.choose("choose-order", "differ")
    agreed = [len({*pairs[clip]}) == 1 for clip in listed(page)]
    assert agreed == sorted(agreed)
    page.choose("choose-concept", str(data["concepts"].index("Speech")))
    assert 0 < len(listed(page)) < len(ids)


def test_the_keyboard_opens_steps_and_returns(page, data):
    film(page, data, "tt0467406")
    first, second = listed(page)[:2]
    page.run("document.querySelector('#rows a').focus()")
    page.press("Enter")
    assert page.run("document.getElementById('clip').open")
    assert page.text("#clip-body .note") == first
    page.press("ArrowRight")
    assert page.text("#clip-body .note") == second
    assert axe(page) == []
    page.press("ArrowLeft", "Escape")
    assert not page.run("document.getElementById('clip').open")


def test_links_open_a_film_or_a_clip(tab, example):
    tab.open(example, fragment="#film=tt0120338")
    assert "Titanic" in tab.run("document.getElementById('choose-film').selectedOptions[0].text")
    tab.open(example, fragment="#clip=tt0467406-0014")
    assert tab.text("#clip-title") == "Juno (2007), 0:13:00"
    assert "annotator1" in tab.text("#clip-body")


def test_reasons_of_the_shown_model_are_listed(tab, pages2):
    tab.open(pages2["levels"])
    for number, view in enumerate(Page(pages2["levels"]).data["views"]):
        tab.choose("choose-view", str(number))
        tab.click("#rows a")
        assert view["why"]["of"] in tab.text("#clip-body")
        assert tab.texts("#clip-body li") in view["why"]["reasons"]
        tab.press("Escape")


def test_hostile_names_are_shown_verbatim(tab, run_world2, tmp_path):
    """In the names of this run, everything is code."""
    levels = {"a": f"low {HOSTILE}", "b": "middle", "c": "__proto__", "d": f"high {HOSTILE}"}
    world = make_world2(tmp_path / "world", films=(FILM, "=1+1"), levels=levels)
    options = {"positives": ("d",), "train_negatives": ("b",), "name": HOSTILE}
    options["estimators"] = ({"name": "logistic", "as": "x<y>"},)
    places = {"manifest": world.manifest, "store": world.store}
    run = run_world2(tmp_path / "run", **places, **options)
    tab.prefer()
    tab.open(om.report(run, tmp_path / "hostile.html"))
    for text in (FILM, f"high {HOSTILE}", HOSTILE, "x<y>"):
        assert text in tab.text("main"), text
    assert tab.texts("main img, iframe, main script:not([type])") == []
    assert tab.logged == []


def test_print_shows_all_tables_and_no_controls(page):
    page.prefer("print")
    page.run("dispatchEvent(new Event('beforeprint')); 0")
    for part, is_shown in (("form", False), ("#films", True), (".terms", True)):
        assert page.run(f"document.querySelector('{part}').checkVisibility()") == is_shown, part
    page.prefer()
