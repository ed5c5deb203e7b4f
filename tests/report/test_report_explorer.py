"""The page in a real browser: what users see, press, play and save."""

import csv
import io
import re
from collections import Counter
from importlib.resources import files

import numpy as np
import pytest

from tests.kit.floats import close
from tests.kit.predicted import clips_of, fits_of
from tests.kit.run import FILMS, LEVELS, SCENES
from tests.report.conftest import FORMULAS, explorer_of, grown, render_report, with_tables

CAPTURE = (
    "window.copied = []; navigator.clipboard.writeText = "
    "text => { copied.push(text); return Promise.resolve() };"
    "window.saved = []; URL.createObjectURL = blob => { saved.push(blob); return '#' };0"
)


@pytest.fixture(scope="module")
def data(whole_html):
    return explorer_of(whole_html)


@pytest.fixture(scope="module")
def clips(data):
    return data["clips"][0]


@pytest.fixture
def page(tab, whole_html, page_of):
    tab.prefer()
    tab.open(page_of(whole_html))
    tab.choose("choose-film", "")
    tab.run(CAPTURE)
    return tab


def text_of(tab, name):
    return tab.text(f"#{name}")


def listed(tab, unfold=True):
    """Return the clips of the list by their positions, in order."""
    if unfold and not tab.run("document.getElementById('show-all').hidden"):
        tab.run("document.getElementById('show-all').click()")
    return [int(clip) for clip in tab.texts("#clips-body .open", "dataset.clip")]


def choose_model(tab, data, run, model):
    number = [entry["name"] for entry in data["runs"]].index(run)
    tab.choose("choose-run", str(number))
    views = [entry["run"] == number and entry["model"] == model for entry in data["views"]]
    tab.choose("choose-model", str(views.index(True)))
    return data["views"][views.index(True)]


def chosen_view(tab, data):
    return data["views"][int(tab.run("document.getElementById('choose-model').value"))]


def probabilities(view):
    """Return the probability of the positive class by clip."""
    column = view["p"][-1]
    return dict(zip(view["at"], np.multiply(column["of"], column["unit"]), strict=True))


def differing(view):
    rows = zip(view["at"], view["label"], view["called"], strict=True)
    return {clip for clip, label, called in rows if label != called}


def amount(reason):
    return float(reason.split()[-1].replace("−", "-"))


def axe(tab):
    """Return the serious findings of axe-core, each with its rule and location."""
    source = (files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
    tab.run(f"{source};0")
    violations = tab.run(
        "axe.run(document, {resultTypes: ['violations']}).then(r => r.violations.map("
        "v => [v.id, v.impact, v.nodes.map(n => n.html.slice(0, 120))]))"
    )
    return [entry for entry in violations if entry[1] in {"serious", "critical"}]


def test_the_explorer_opens_on_the_best_model(tab, whole_html, page_of, data, clips, results):
    tab.prefer()
    tab.open(page_of(whole_html))
    assert tab.logged == []
    assert [url.split("/")[-1] for url in tab.requested] == ["page.html"]
    scores = {entry.model: entry.mean["f1"] for entry in results["films"].model_scores}
    assert scores["mlp"] > scores["pcbm-logistic"]  # it gives no reasons
    view = chosen_view(tab, data)
    assert (data["runs"][view["run"]]["name"], view["model"]) == ("films", "pcbm-logistic")
    sure = Counter(film for film, level in zip(clips["film"], clips["level"], strict=True)
                   if level == 3)  # fmt: skip
    order = sorted(range(FILMS), key=lambda film: -sure[film])
    assert tab.texts(".film h4") == [f"tt{film}" for film in order]
    areas = tab.texts("#films-table td:last-child data", "value")
    assert (tab.text("#films-table [aria-sort]"), areas) == ("AUROC", sorted(areas, reverse=True))
    sizes = "getBoundingClientRect()"
    assert min(tab.texts("#films-table svg[data-film]", f"{sizes}.width")) > 900
    assert min(tab.texts("#films-table .names span", f"{sizes}.height")) > 14
    assert tab.texts(".film:not([hidden]) h4") == [f"tt{order[0]}"]
    assert text_of(tab, "clips-status") == f"Showing 10 of {SCENES} matching clips (200 in all)."
    assert tab.run("location.hash") == ""
    tab.choose("choose-film", "1")
    tab.choose("choose-run", "0")
    assert tab.texts(".film:not([hidden]) h4") == ["tt1"]
    tab.run("for (const part of document.querySelectorAll('details')) part.open = true")
    assert axe(tab) == []


def test_the_list_has_the_matching_clips_in_order(page, data, clips):
    for concept in (0, 2):
        page.click(f"#concept-chips input[value='{concept}']")
    page.choose("choose-film", "1")
    page.choose("choose-level", "3")
    for match, joined in (("all", set.issuperset), ("any", set.intersection)):
        page.choose("choose-match", match)
        expected = {
            at
            for at in range(200)
            if (clips["film"][at], clips["level"][at]) == (1, 3)
            and joined(set(clips["shows"][at]), {0, 2})
        }
        assert set(listed(page)) == expected
        assert expected
        assert len(page.texts(".film:not([hidden]) .dim")) == SCENES - len(expected)
    page.click("#choose-reset")
    assert text_of(page, "clips-status") == "Showing 10 of 200 matching clips (200 in all)."
    page.run("document.getElementById('show-more').focus()")
    page.press("Enter")
    assert text_of(page, "clips-status") == "Showing 60 of 200 matching clips (200 in all)."
    position = "[...document.querySelectorAll('#clips-body .open')].indexOf(document.activeElement)"
    assert page.run(position) == 10

    assert page.texts("#clips-table thead th")[1:4] == ["Clip", "Label", "Each annotator"]
    cells = page.texts("#clips-body [data-title='Each annotator']", "innerText")
    for clip, cell in zip(listed(page, unfold=False), cells, strict=True):
        annotators_of = {own["name"] for own in clips["sets"] if own["level"][clip] is not None}
        assert {*re.findall("anna|bert", cell)} == annotators_of
    view = chosen_view(page, data)
    p, label = probabilities(view), dict(zip(view["at"], view["label"], strict=True))
    page.choose("choose-order", "differ")
    assert set(listed(page)[: len(p)]) == set(p)  # what has no prediction comes last
    page.choose("choose-which", "differ")
    assert set(listed(page)) == differing(view)
    page.choose("choose-which", "tested")
    for order, key in (
        ("differ", lambda clip: -abs(label[clip] - p[clip])),
        ("most", lambda clip: -p[clip]),
        ("least", lambda clip: p[clip]),
        ("unsure", lambda clip: abs(p[clip] - 0.5)),
        ("scene", lambda clip: clip),
    ):
        page.choose("choose-order", order)
        keys = [key(clip) for clip in listed(page)]
        assert keys == close(sorted(keys)), order
    page.choose("choose-which", "gap")
    assert set(listed(page)) == {*range(200)} - {*p}
    row = page.texts("#clips-body tr", "innerText")[0]
    assert "no prediction: of a level that the task leaves out" in row
    assert f"{200 - len(p)} of a level that the task leaves out" in text_of(page, "about-run")
    page.choose("choose-run", str([run["name"] for run in data["runs"]].index("classes")))
    page.choose("choose-which", "tested")
    before = page.texts("#clips-body data", "value")
    page.choose("choose-shown-class", "0")
    assert page.texts("#clips-body data", "value") != before


def test_a_clip_gives_its_reasons(page, data, clips, annotators):
    choose_model(page, data, "second", "pcbm-elastic-net")
    page.choose("choose-which", "tested")
    page.click("#clips-body .open")
    parts = page.texts("#clip .why tbody tr:not(.sum) td:nth-child(3)")
    total = page.text("#clip .why .sum td:nth-child(3)")
    assert len(parts) == 3 + 1  # concepts and the intercept
    amounts = [float(part.replace("−", "-")) for part in parts]
    assert sum(amounts) == pytest.approx(float(total.replace("−", "-")), abs=0.011)
    first = listed(page, unfold=False)[0]
    for labels in annotators[1]:
        if level := labels.level_of.get(clips["ids"][first]):
            assert f"{labels.name}\n{level} " in page.texts("#clip", "innerText")[0]
    page.press("Escape")
    choose_model(page, data, "first", "pcbm-tree")
    page.click("#clips-body .open")
    words = r"(Look|Body|Posture) −?[\d.]+ [>≤] −?[\d.]+"
    assert re.search(words, page.texts("#clip", "innerText")[0])
    page.press("Escape")
    choose_model(page, data, "second", "mlp")
    assert page.texts("#clips-body [data-title=Why]") == []
    assert page.run("document.getElementById('why-head').hidden")


def test_reasons_add_up_and_begin_with_those_for_the_verdict(page, data, clips, results):
    view = choose_model(page, data, "films", "pcbm-logistic")
    fits = [fit for fit in fits_of(results["films"]) if fit.model == "pcbm-logistic"]
    logits = {}
    for fit in fits:
        for name, p in zip(fit.ids, fit.probabilities, strict=True):
            logits.setdefault(name, []).append(np.log(p / (1 - p)))
    page.choose("choose-which", "tested")
    for clip, cell in zip(listed(page), page.texts("#clips-body [data-title=Why]"), strict=True):
        *parts, together = cell.split(" · ")
        assert "at rest " in cell
        assert sum(map(amount, parts)) == pytest.approx(amount(together), abs=0.03)
        mean = np.mean(logits[clips["ids"][clip]])  # not the sum of parts that are rounded
        assert abs(amount(together) - mean) < 0.0051
        toward = 1 if view["called"][view["at"].index(clip)] else -1
        against = ["against: " in part for part in parts]
        assert against == sorted(against)
        assert against == [amount(part) * toward < 0 for part in parts]


def test_the_keyboard_alone_opens_browses_and_returns(page):
    page.run("document.querySelector('a[href=\"#ranked\"]').focus()")
    page.press("Tab", "Tab")  # the button next to the first film, then its strip
    role = "document.activeElement.getAttribute('role')"
    assert page.run(role) == "listbox"
    film = page.text(".film h4")
    first = SCENES * int(film.removeprefix("tt"))
    active = "document.activeElement.getAttribute('aria-activedescendant')"
    assert page.run(active) == f"mark-{first}"
    page.press("ArrowRight", "ArrowRight", "ArrowLeft")
    assert page.run(active) == f"mark-{first + 1}"
    page.press("End")
    assert page.run(active) == f"mark-{first + SCENES - 1}"
    page.press("Home", "Enter")
    assert page.run("document.activeElement.textContent") == f"{film}, scene 0"
    page.press("ArrowRight")
    assert text_of(page, "clip-title") == f"{film}, scene 1"
    assert "scene 1" in text_of(page, "clip-said")
    page.press("Escape")
    assert page.run(role) == "listbox"


def blocks(tab, selector):
    """Return the left ends of shapes of one colour."""
    return [int(left) for path in tab.texts(selector, "getAttribute('d')")
            for left in re.findall(r"M(\d+)", path)]  # fmt: skip


def test_a_film_has_a_lane_for_every_mark(page, data, clips):
    page.choose("choose-film", "1")
    lanes = ".film:not([hidden]) svg[data-lane='{}'] path"
    names = page.texts(".film:not([hidden]) .lane-name", "innerText")
    assert names[:5] == ["anna", "bert", "Labels of clips", "Model, by clip", "Model differs"]
    of_film = range(SCENES, 2 * SCENES)
    wrong = sorted(differing(chosen_view(page, data)) & {*of_film})
    assert blocks(page, lanes.format("Model differs")) == [clip - SCENES for clip in wrong]
    for annotator in clips["sets"]:
        marked = [clip - SCENES for clip in of_film if annotator["level"][clip] is not None]
        assert sorted(blocks(page, lanes.format(annotator["name"]))) == marked
    for concept, name in enumerate(clips["concepts"]):
        marked = [clip - SCENES for clip in of_film if concept in clips["shows"][clip]]
        assert blocks(page, lanes.format(name)) == marked


def test_a_link_restores_the_selection(tab, page, whole_html, page_of, data):
    choose_model(page, data, "first", "pcbm-tree")
    page.choose("choose-film", "1")
    page.choose("choose-level", "3")
    for concept in (1, 2):
        page.click(f"#concept-chips input[value='{concept}']")
    page.choose("choose-match", "any")
    page.choose("choose-order", "scene")
    row = page.texts("#clips-body a", "getAttribute('href')")[1]
    expected = listed(page), text_of(page, "clips-status")
    page.click("#clips-body tr:nth-child(2) .open")
    title, fragment = text_of(page, "clip-title"), page.run("location.hash")
    for part in ("film=tt1", "model=pcbm-tree", "run=first"):
        assert part in fragment
    for link in (fragment, row):
        tab.open(page_of(whole_html), fragment=link)
        assert (listed(tab, unfold=False), text_of(tab, "clips-status")) == expected
        assert text_of(tab, "clip-title") == title
        assert text_of(tab, "clip-place") == f"2 of {len(expected[0])}"
    tab.press("Escape")
    tab.run("document.querySelector('a[href=\"#methods\"]').click()")
    assert tab.run("[location.hash.includes('film=tt1'), document.activeElement.id]") == [
        True, "methods",
    ]  # fmt: skip
    after = "new Promise(after => setTimeout(() => after(location.hash), 200))"  # it tells later
    assert "clip=" not in tab.run(after)
    titled = re.sub(r'("title": ?)"tt1"', r'\1"Juno (2007)"', whole_html)
    tab.open(page_of(titled), fragment="#film=Juno (2007)")
    assert tab.run("document.getElementById('choose-film').value") == "1"
    hostile = "<img src=x onerror=hit()>"
    tab.open(page_of(whole_html), fragment=f"#film=tt9&clip={hostile}&order=__proto__")
    for part in ("film tt9", hostile, "order __proto__"):
        assert part in text_of(tab, "address-note")
    assert tab.texts("#explorer-app img") == []
    assert tab.logged == []


def table_of(tab):
    tab.run("saved.length = 0")
    tab.run("document.getElementById('save-table').click()")
    return list(csv.DictReader(io.StringIO(tab.run("saved[0].text()"))))


def test_clips_without_measured_concepts_have_no_reasons(tab, results, page_of):
    run, silent = results["films"], "tt2-007"
    reasons = run.reasons
    classes = reasons["class"].astype(str).where(reasons["id"] != silent, "")
    reasons = reasons.assign(**{"class": classes})
    run = with_tables(run, reasons=reasons)
    tab.open(page_of(render_report([run])), fragment=f"#film=tt2&model=pcbm-logistic&clip={silent}")
    tab.run(CAPTURE)
    assert "all zero" in tab.text("#clip")
    rows = {
        row["id"]: (row["parts in the log-odds of S"], row["log-odds of S"])
        for row in table_of(tab)
    }
    assert rows.pop(silent) == ("", "")
    assert any(all(cells) for cells in rows.values())


def test_clips_can_be_cited_linked_and_saved_as_a_table(page, data, clips, results):
    first = listed(page, unfold=False)[0]
    page.click("#clips-body .open")
    for button in (1, 2):
        page.click(f"#clip .more button:nth-child({button})")
    link, citation = page.run("copied")
    assert link == page.run("location.href")
    assert f"clip={clips['ids'][first]}" in link
    clip = clips_of(results["films"])[clips["ids"][first]]
    for part in (
        f"{clip.film}, scene {clip.number} [{clip.id}]. Labels: all: {LEVELS[clip.level]}; ",
        f"Concepts: {', '.join(sorted(clip.concepts)) or 'none'}. Model: ",
        f"gives S (Sure) a probability of {page.text('#clip data')}, in run films (xclip native, ",
        "Cite: toy, whose manifest has no citation; Tores et al.",
    ):
        assert part in citation
    page.press("Escape")
    page.choose("choose-film", "1")
    page.choose("choose-level", "3")
    rows, p = table_of(page), probabilities(chosen_view(page, data))
    at = listed(page)
    assert [row["id"] for row in rows] == [clips["ids"][number] for number in at]
    for number, row in zip(at, rows, strict=True):
        clip = clips_of(results["films"])[row["id"]]
        assert (row["level"], row["level name"], row["film"]) == ("S", "Sure", clip.film)
        assert set(filter(None, row["concepts"].split("|"))) == set(clip.concepts)
        assert float(row["probability"]) == close(p[number])
        parts = row["parts in the log-odds of S"].split("; ")
        assert parts[-1].startswith("at rest (intercept) ")
        log_odds = float(row["log-odds of S"])  # the mean over fits
        assert sum(map(amount, parts)) == pytest.approx(log_odds, abs=0.03)
        assert log_odds == pytest.approx(np.log(p[number] / (1 - p[number])), abs=0.1)
        level = clips["sets"][0]["level"][number]
        assert row["level of anna"] == clips["levels"][level]["code"]


def test_print_and_dark_mode_are_legible(page):
    page.choose("choose-film", "2")
    paper = "getComputedStyle(document.body).backgroundColor"
    page.prefer(prefers_color_scheme="dark", prefers_reduced_motion="reduce")
    dark = page.run(paper)
    assert page.run("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
    page.click("#theme")
    light = page.run(paper)
    assert page.run("document.getElementById('theme').getAttribute('aria-pressed')") == "false"
    page.prefer(prefers_color_scheme="light")
    assert (page.run(paper), dark != light) == (light, True)
    series = "getComputedStyle(document.documentElement).getPropertyValue('--s1')"
    light_series = page.run(series)
    page.run("document.documentElement.dataset.theme = 'dark'")
    page.prefer("print")
    assert (page.run(paper), page.run(series)) == ("rgb(255, 255, 255)", light_series)
    for part, count in (("nav", 0), ("#choose", 0), (".over", 0), ("#clips-table", 1)):
        assert page.run(f"document.querySelector('{part}').checkVisibility()") == count, part
    # Chromium repeats no buttons on the next page.
    assert {*page.texts("thead button", "nodeType && getComputedStyle(e).display")} == {"contents"}
    order = "['#methods', '.terms', 'footer'].map((part) => document.querySelector(part).offsetTop)"
    assert (tops := page.run(order)) == sorted(tops)  # the glossary is last


def test_hostile_names_are_shown_and_saved_verbatim(tab, hostile_run, page_of):
    run, texts = hostile_run
    tab.prefer()
    tab.open(page_of(render_report([run]), "hostile.html"))
    tab.run(CAPTURE)
    assert [url.split("/")[-1] for url in tab.requested] == ["hostile.html"]
    tab.choose("choose-film", "")
    tab.choose("choose-order", "scene")
    titles = {row["title"] for row in table_of(tab)}
    assert titles == {texts["film"], *(f"'{name}" for name in FORMULAS.values())}
    tab.click("#clips-body .open")
    for field in ("clip", "film", "name", "concept", "model", "run"):
        assert texts[field] in tab.text("body"), field
    assert tab.texts("#choose-model option")[1:] == ["constructor", "__proto__"]
    for number in range(3):
        tab.choose("choose-model", str(number))
    assert tab.texts("img, iframe, main script") == []
    assert tab.logged == []


FOLDERS = {
    "/home/me/my films": "file:///home/me/my%20films/",
    "C:\\films\\": "file:///C:/films/",
    '/a"b#c?d%': "file:///a%22b%23c%3Fd%25/",
    "javascript:hit()": None,
    "https://example.org/films": None,
    "\\\\example.org\\films": None,
    "films": None,
}


def test_films_play_only_from_the_chosen_folder(tab, results, page_of):
    run = grown(results["first"], clips=200, timed=True, films=2)
    scenes = run.clips["id"].str[-3:].astype(float)
    clips = run.clips.assign(start=60 * scenes, end=60 * scenes + 60)
    minutes = render_report([with_tables(run, clips=clips, reasons=run.reasons[:0])])
    tab.prefer()
    tab.open(page_of(minutes, "minutes.html"))
    tab.choose("choose-film", "0")
    tab.choose("choose-order", "scene")
    row = tab.text("#clips-body .open")
    assert row == "0:01:00–0:02:00"  # minutes are called by their time; the film is chosen
    tab.click("#clips-body .open")
    for folder, address in FOLDERS.items():
        tab.run(f"document.querySelector('.play input').value = {folder!r};0")
        tab.run("document.querySelector('.play').requestSubmit()")
        sources = tab.texts("#clip source", "src")
        if address is None:
            assert sources == []
            assert "Type the full path" in tab.text(".play ~ [role=status]")
        else:
            assert sources[0] == f"{address}tt0000000.mp4#t=60,120"
            assert all(source.startswith(address) for source in sources)
    # The player's own signs are data.
    assert {url.split(":")[0] for url in tab.requested} <= {"file", "data"}
