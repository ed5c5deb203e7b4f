"""The page in a real browser: what a person sees, presses and hears."""

import json
import re
from importlib.resources import files

import numpy as np
import pytest
from msgspec import to_builtins

from obygaze_models.report.page import render_report
from tests.report.conftest import with_record
from tests.report.made import grown, renamed

SERIOUS = {"serious", "critical"}


@pytest.fixture(scope="module")
def html(results, marked):
    return render_report(list(results.values()), nearest=marked.store)


@pytest.fixture
def page(tab, html, page_of):
    tab.prefer()
    tab.open(page_of(html))
    tab.choose("choose-film", "")
    return tab


def explorer(html):
    return json.loads(re.search(r'id="explorer-data">(.*?)</script>', html, re.S)[1])


def status(tab):
    return tab.run("document.getElementById('clips-status').textContent")


def listed(tab):
    """The clips of the list by their places, in order."""
    return tab.run("[...document.querySelectorAll('#clips-body .open')].map(b => +b.dataset.clip)")


def shown_view(tab, data):
    return data["views"][int(tab.run("document.getElementById('choose-model').value"))]


def probability(view, clip):
    column = view["p"][0]
    row = view["at"].index(clip)
    return column["of"][row] * column["unit"]


def axe(tab):
    """What axe-core finds that is serious: its rule, and where."""
    source = (files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
    tab.run(f"{source};0")
    found = tab.run(
        "axe.run(document, {resultTypes: ['violations']}).then(r => r.violations.map("
        "v => [v.id, v.impact, v.nodes.map(n => n.html.slice(0, 120))]))"
    )
    return [one for one in found if one[1] in SERIOUS]


def test_asks_for_nothing_and_logs_nothing(page):
    assert page.logged == []
    assert [one.split("/")[-1] for one in page.requested] == ["page.html"]
    assert page.run("!document.getElementById('explorer-app').hidden")


@pytest.mark.parametrize(
    ("scheme", "width"), [("light", 1200), pytest.param("dark", 390, marks=pytest.mark.gate)]
)
def test_axe_finds_nothing_serious(tab, html, page_of, scheme, width):
    tab.prefer(prefers_color_scheme=scheme)
    tab.open(page_of(html), width=width)
    tab.run("for (const one of document.querySelectorAll('details')) one.open = true")
    assert axe(tab) == []
    tab.run("document.querySelector('#clips-body .open').click()")
    assert axe(tab) == []


@pytest.mark.gate
def test_nothing_is_wider_than_a_phone(tab, html, page_of):
    tab.prefer()
    tab.open(page_of(html), width=360)
    assert tab.run("document.documentElement.scrollWidth") == 360


def test_opens_on_the_first_screens_model_and_one_film(tab, html, page_of, results):
    """The best F1 of the run that tested most, and the film with the largest share of Sure."""
    best = max(results["films"].run.record.scores, key=lambda entry: entry.mean["f1"]).model
    tab.prefer()
    tab.open(page_of(html))
    view = shown_view(tab, explorer(html))
    names = [run["name"] for run in explorer(html)["runs"]]
    assert (names[view["run"]], view["model"]) == ("films", best)
    first = tab.run("document.querySelector('table.strips a').textContent")
    visible = "[...document.querySelectorAll('.film')].filter(f => f.checkVisibility())"
    assert tab.run(f"{visible}.map(f => f.querySelector('h4').textContent)") == [first]
    assert tab.run("document.getElementById('choose-film').selectedOptions[0].text") == first
    assert status(tab) == "Shows 10 of 50 clips that match, of 200."
    assert len(listed(tab)) == 10
    assert tab.run("location.hash") == ""
    tab.choose("choose-run", str(names.index("first")))
    assert tab.run("document.getElementById('choose-film').selectedOptions[0].text") == first


def test_filters_and_says_how_many(page, html):
    data = explorer(html)
    clips = data["clips"][0]
    assert status(page) == "Shows 10 of 200 clips that match, of 200."
    page.choose("choose-film", "1")
    assert status(page) == "Shows 10 of 50 clips that match, of 200."
    page.click("#show-all")
    assert {clips["film"][one] for one in listed(page)} == {1}
    visible = "[...document.querySelectorAll('.film')].filter(one => !one.hidden).length"
    assert page.run(visible) == 1
    page.choose("choose-level", "3")
    page.click("#concept-chips input[value='0']")
    wanted = {
        at
        for at in range(200)
        if clips["film"][at] == 1 and clips["level"][at] == 3 and 0 in clips["shows"][at]
    }
    assert wanted
    if len(wanted) > 10:
        page.click("#show-all")
    assert set(listed(page)) == wanted
    assert page.run("document.querySelectorAll('.film:not([hidden]) .dim').length") == 50 - len(
        wanted
    )
    page.click("#choose-reset")
    assert status(page) == "Shows 10 of 200 clips that match, of 200."


def test_the_orders_hold(page, html):
    data = explorer(html)
    view = shown_view(page, data)
    gap = {
        clip: abs(label - probability(view, clip))
        for clip, label in zip(view["at"], view["label"], strict=True)
    }
    page.choose("choose-order", "differ")
    page.click("#show-all")
    first = listed(page)
    assert len(first) == 200
    tested = [one for one in first if one in gap]
    assert first[: len(tested)] == tested  # what has no prediction comes last
    assert [gap[one] for one in tested] == pytest.approx(sorted(gap.values(), reverse=True))
    page.choose("choose-which", "differ")
    wrong = {c for c, a, b in zip(view["at"], view["label"], view["called"], strict=True) if a != b}
    assert wrong
    page.run("document.getElementById('show-all').click()")
    assert set(listed(page)) == wrong
    page.choose("choose-which", "tested")
    for order, key in (
        ("most", lambda one: -probability(view, one)),
        ("least", lambda one: probability(view, one)),
        ("unsure", lambda one: abs(probability(view, one) - 0.5)),
        ("scene", lambda one: one),
    ):
        page.choose("choose-order", order)
        keys = [key(one) for one in listed(page)]
        assert keys == pytest.approx(sorted(keys)), order


def test_clips_without_a_prediction_are_named_and_shown(page, html):
    data = explorer(html)
    view = shown_view(page, data)
    missing = 200 - len(view["at"])
    said = page.run("document.getElementById('about-run').textContent")
    assert f"{len(view['at'])} of 200 annotated clips tested" in said
    assert f"without a prediction: {missing} of a level that the task leaves out" in said
    assert page.run("document.querySelectorAll('.film .gap').length") == missing
    page.choose("choose-which", "gap")
    assert f"of {missing} clips that match" in status(page)
    text = page.run("document.querySelector('#clips-body tr').innerText")
    assert "no prediction: of a level that the task leaves out" in text


def test_another_run_and_model_can_be_chosen(page, html):
    data = explorer(html)
    names = [one["name"] for one in data["runs"]]
    page.choose("choose-run", str(names.index("first")))
    view = shown_view(page, data)
    assert view["run"] == names.index("first")
    said = page.run("document.getElementById('about-run').textContent")
    assert "135 not in a test set: trained or validated" in said
    models = page.run("[...document.querySelectorAll('#choose-model option')].map(o => o.text)")
    assert models == ["mlp", "pcbm-tree", "pcbm-logistic"]
    page.choose("choose-run", str(names.index("classes")))
    assert page.run("!document.getElementById('choose-shown-class').parentElement.hidden")
    before = page.run("document.querySelector('#clips-body data').value")
    page.choose("choose-shown-class", "0")
    assert page.run("document.querySelector('#clips-body data').value") != before
    page.choose("choose-run", str(names.index("concepts")))
    models = page.run("[...document.querySelectorAll('#choose-model option')].map(o => o.text)")
    assert models == ["logistic: Look vs EN", "logistic: Body vs EN"]


def test_a_clips_parts_add_up_to_its_log_odds(page, html):
    data = explorer(html)
    names = [one["name"] for one in data["runs"]]
    page.choose("choose-run", str(names.index("second")))
    number = next(
        place
        for place, one in enumerate(data["views"])
        if one["run"] == names.index("second") and one["model"] == "pcbm-hybrid"
    )
    page.choose("choose-model", str(number))
    page.choose("choose-which", "tested")
    page.click("#clips-body .open")
    parts = page.run(
        "[...document.querySelectorAll('#clip .why tbody tr:not(.sum) td:nth-child(3)')]"
        ".map(td => +td.textContent.replace('−', '-'))"
    )
    total = page.run("document.querySelector('#clip .why .sum td:nth-child(3)').textContent")
    assert len(parts) == 3 + 2  # concepts, what goes past them, the intercept
    assert sum(parts) == pytest.approx(float(total.replace("−", "-")), abs=0.011)


def test_a_trees_questions_are_told(page, html):
    data = explorer(html)
    names = [one["name"] for one in data["runs"]]
    page.choose("choose-run", str(names.index("first")))
    number = next(
        place
        for place, one in enumerate(data["views"])
        if one["run"] == names.index("first") and one["model"] == "pcbm-tree"
    )
    page.choose("choose-model", str(number))
    page.choose("choose-which", "tested")
    page.click("#clips-body .open")
    text = page.run("document.querySelector('#clip').innerText")
    words = r"(enough|not too much) (Look|Body|Posture)( marked)?: more of it than in \d+% of the"
    assert re.search(words, text)
    assert "One of 9 trees" in text


def choose_model(tab, data, run, model):
    """Choose a model of a run by their names."""
    number = [entry["name"] for entry in data["runs"]].index(run)
    tab.choose("choose-run", str(number))
    views = [entry["run"] == number and entry["model"] == model for entry in data["views"]]
    tab.choose("choose-model", str(views.index(True)))


def test_a_network_gives_no_reasons(page, html):
    choose_model(page, explorer(html), "second", "mlp")
    page.choose("choose-which", "tested")
    page.click("#clips-body .open")
    assert page.run("document.querySelector('#clip .why')") is None
    assert "This model gives no reasons." in page.run("document.querySelector('#clip').innerText")
    reasons = "[...document.querySelectorAll('#clips-body [data-title=Why]')].map(r => r.innerText)"
    assert set(page.run(reasons)) == {"gives no reasons"}


def test_keyboard_alone_opens_walks_and_comes_back(page):
    page.run("document.querySelector('a[href=\"#ranked\"]').focus()")
    page.press("Tab", "Tab")  # the button beside the first film, then its strip
    assert page.run("document.activeElement.getAttribute('role')") == "listbox"
    film = page.run("document.querySelector('.film h4').textContent")
    first = 50 * int(film.removeprefix("tt"))
    active = "document.activeElement.getAttribute('aria-activedescendant')"
    assert page.run(active) == f"mark-{first}"
    page.press("ArrowRight", "ArrowRight", "ArrowLeft")
    assert page.run(active) == f"mark-{first + 1}"
    page.press("End")
    assert page.run(active) == f"mark-{first + 49}"
    page.press("Home", "Enter")
    assert page.run("document.getElementById('clip').open")
    title = "document.activeElement.textContent"
    assert page.run(title) == f"{film}, scene 0"
    page.press("ArrowRight")
    assert page.run("document.getElementById('clip-title').textContent") == f"{film}, scene 1"
    assert "scene 1" in page.run("document.getElementById('clip-said').textContent")
    page.press("Escape")
    assert not page.run("document.getElementById('clip').open")
    assert page.run("document.activeElement.getAttribute('role')") == "listbox"
    page.run("document.querySelector('#clips-body .open').focus()")
    page.press("Enter")
    assert page.run("document.getElementById('clip').open")
    page.press("Escape")
    assert page.run("document.activeElement.className") == "open"


def test_the_nearest_clips_equal_brute_force_and_open(page, html, marked):
    vectors = marked.features / np.linalg.norm(marked.features, axis=1, keepdims=True)
    cosines = vectors @ vectors.T - 2 * np.eye(len(vectors))
    clips = explorer(html)["clips"][0]
    rows = [marked.ids.index(clip) for clip in clips["ids"]]
    nearest = np.argsort(-cosines, axis=1, kind="stable")[:, :5]
    assert [[rows[at] for at in of_clip] for of_clip in clips["near"]] == nearest[rows].tolist()
    given = np.sort(cosines[rows])[:, :-6:-1]
    assert np.array(clips["cosine"]) == pytest.approx(1000 * given, abs=0.51)
    page.click("#clips-body .open")
    title = page.run("document.getElementById('clip-title').textContent")
    near = "[...document.querySelectorAll('#clip .near button')].map(one => +one.dataset.clip)"
    assert page.run(near) == clips["near"][listed(page)[0]]
    page.click("#clip .near li:nth-child(3) button")
    third = clips["near"][listed(page)[0]][2]
    assert clips["ids"][third] in page.run("document.getElementById('clip-body').innerText")
    page.click("#clip-back")
    assert page.run("document.getElementById('clip-title').textContent") == title
    assert page.run("document.getElementById('clip-back').hidden")


def test_more_clips_take_the_focus_along(page):
    page.run("document.getElementById('show-more').focus()")
    page.press("Enter")
    assert status(page) == "Shows 60 of 200 clips that match, of 200."
    place = "[...document.querySelectorAll('#clips-body .open')].indexOf(document.activeElement)"
    assert page.run(place) == 10


def test_light_and_dark_by_the_system_and_by_choice(tab, html, page_of):
    paper = "getComputedStyle(document.body).backgroundColor"
    tab.prefer(prefers_color_scheme="dark")
    tab.open(page_of(html))
    dark = tab.run(paper)
    tab.click("#theme")
    light = tab.run(paper)
    assert tab.run("document.getElementById('theme').getAttribute('aria-pressed')") == "false"
    tab.prefer(prefers_color_scheme="light")
    tab.open(page_of(html))
    assert (tab.run(paper), dark != light) == (light, True)


def test_on_paper_it_is_white_without_controls(page):
    page.choose("choose-film", "2")
    page.run("document.documentElement.dataset.theme = 'dark'")
    page.prefer("print")
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    for selector in ("nav", "#choose", "#theme"):
        style = f"getComputedStyle(document.querySelector('{selector}')).display"
        assert page.run(style) == "none"
    assert "10 of 50 clips" in status(page)
    choice = "document.getElementById('clips-choice')"
    assert page.run(f"{choice}.innerText").startswith("mlp of films (")
    strips = "document.getElementById('strips')"
    assert page.run(f"{choice}.compareDocumentPosition({strips})") == 4  # they follow it
    assert page.run("document.querySelector('#clips-table').checkVisibility()")


def test_moves_nothing_for_who_asks_for_that(tab, html, page_of):
    tab.prefer(prefers_reduced_motion="reduce")
    tab.open(page_of(html))
    assert tab.run("getComputedStyle(document.documentElement).scrollBehavior") == "auto"


@pytest.fixture(scope="module")
def large(results):
    return render_report([grown(results["first"]), grown(results["films"], timed=True)])


@pytest.mark.gate
def test_1914_clips_are_ready_within_two_seconds_in_five_megabytes(tab, large, page_of):
    assert len(large.encode()) < 5e6
    tab.prefer()
    tab.open(page_of(large, "large.html"))
    ready = int(tab.run("document.documentElement.dataset.ready"))
    assert ready < 2000
    assert "clips that match, of 1,914" in status(tab)
    changed = tab.run(
        "(() => { const from = performance.now(); const s = document.getElementById('choose-run');"
        "s.selectedIndex = 1; s.dispatchEvent(new Event('change'));"
        "document.body.offsetHeight; return performance.now() - from })()"
    )
    assert changed < 2000
    assert tab.logged == []


def test_clips_with_times_stand_in_time(tab, large, page_of):
    tab.open(page_of(large, "large.html"))
    tab.choose_nth("choose-run", 1)
    tab.choose("choose-film", "")
    axis = tab.run("[...document.querySelectorAll('.film .axis')][0].innerText")
    assert axis.split() == [f"{minutes // 60}:{minutes % 60:02}:00" for minutes in range(0, 81, 20)]
    assert "0:00:31–0:01:01" in tab.run(
        "document.querySelector('#mark-1').getAttribute('aria-label')"
    )


def test_of_few_clips_each_has_one_word_under_its_bar(tab, results, page_of):
    tab.prefer()
    tab.open(page_of(render_report([grown(results["first"], clips=36)]), "few.html"))
    tab.choose("choose-film", "")
    words = tab.run(
        "[...document.querySelectorAll('.film:first-child .axis span')]"
        ".map(one => [one.textContent, one.style.left])"
    )
    assert [word for word, _ in words] == ["scene 1", "scene 2", "scene 3"]
    lefts = [float(left.removesuffix("%")) for _, left in words]
    assert lefts == pytest.approx([100 / 6, 50, 500 / 6], abs=0.01)


def test_says_in_words_what_is_probable(page):
    assert page.run("document.querySelector('.legend .spoken').textContent") == "S (Sure)"
    page.choose("choose-which", "tested")
    page.click("#clips-body .open")
    assert "the model’s probability of S (Sure) is" in page.run(
        "document.querySelector('#clip').innerText"
    )


def test_says_how_many_of_the_pages_clips_a_run_has(tab, results, page_of):
    few = grown(results["first"], clips=24)
    manifest = to_builtins(few.run.record.manifest) | {"labels": "small"}
    few = with_record(few, manifest=manifest)
    tab.prefer()
    tab.open(page_of(render_report([results["films"], few]), "two.html"))
    tab.choose_nth("choose-run", 1)
    said = tab.run("document.getElementById('about-run').textContent")
    assert "This run’s label set, small, has 24 of the page’s 224 clips." in said


HOSTILE = {
    "tt0-000": "<img src=x onerror=hit()>",
    "tt0": '"><svg onload=hit()>',
    "S": "</script><script>hit()</script>",
    "EN vs S": "<b onclick=hit()>EN</b> vs S",
    "EN+HN vs S": "javascript:hit()",
    "Sure": "Sure<!--<script>",
    "Look": "Look'\"><iframe srcdoc='<script>parent.hit()</script>'>",
    "Body": "\u2028{{ 7 * 7 }}${hit()}",
    "mlp": "__proto__",
    "pcbm-logistic": "constructor",
    "first": "<title>&amp;</title>]]>",
    "not in the task": "<i>why</i>",
}


def test_hostile_names_are_shown_as_they_are(tab, results, page_of):
    whole = renamed(results["first"], HOSTILE)
    html = render_report([whole, results["second"]])
    tab.prefer()
    tab.open(page_of(html, "hostile.html"))
    assert tab.logged == []
    assert [one.split("/")[-1] for one in tab.requested] == ["hostile.html"]
    tags = "img, iframe, b, i:not(.over i), main script, svg[onload]"
    assert tab.run(f"document.querySelectorAll('{tags}').length") == 0
    tab.choose("choose-order", "scene")
    tab.click("#clips-body .open")
    text = tab.run("document.body.innerText")
    for hostile in ("tt0-000", "tt0", "S", "Look", "mlp", "first"):
        shown = HOSTILE[hostile]
        assert shown in text or shown in tab.run("document.body.textContent"), shown
    assert tab.run("document.getElementById('clip').open")
    models = tab.run("[...document.querySelectorAll('#choose-model option')].map(o => o.text)")
    assert models[0] == "__proto__"
    for place in range(len(models)):
        tab.choose_nth("choose-model", place)
    assert tab.logged == []
