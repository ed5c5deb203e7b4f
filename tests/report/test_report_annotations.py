"""The page without a model: what annotators said, against the shipped labels themselves."""

import re
import sys
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

import obygaze_models as om
from obygaze_features import obygaze_scheme
from obygaze_features.annotations.merge import merge_labels
from obygaze_features.annotations.timelines import Film, Segment, Timelines
from obygaze_features.common.text import format_time
from obygaze_features.errors import ExperimentError, UsageError
from obygaze_features.manifests import Concept, Item, Items, LabelScheme, LabelSet, Level, Manifest
from obygaze_models.data.example import example_path
from tests.conftest import run_obygaze
from tests.kit.files import refused
from tests.report.conftest import Page, explorer_of
from tests.report.test_report_explorer import CAPTURE, axe, listed, shown, table_of

OWN = LabelScheme("mine", (Level("c", "calm"), Level("u", "uneasy")), (Concept("Door"),))
JUNO = "tt0467406"
SMALLEST = """Math.min(...[...document.querySelectorAll('main *')].filter(e =>
  e.checkVisibility() && [...e.childNodes].some(part => part.nodeType === 3 && part.data.trim()))
  .map(e => parseFloat(getComputedStyle(e).fontSize)
  * (e.closest('figure svg') ? e.getScreenCTM().a : 1)))"""


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    path = tmp_path_factory.mktemp("films") / "films.html"
    assert run_obygaze("report", example_path("minutes"), "-o", path).exit_code == 0
    return path


@pytest.fixture(scope="module")
def labels():
    return om.load_example()


def test_twenty_films_are_a_small_page_that_says_what_was_marked(films, labels):
    assert films.stat().st_size < 600_000
    page, (first, second) = Page(films.read_text(encoding="utf-8")), labels.y.values()
    sure, equal = np.array([first == "S", second == "S"]), first == second
    marks, names = [*labels.concepts.values()], labels.concept_names
    kappas = {name: cohen_kappa_score(*(m[:, at] for m in marks)) for at, name in enumerate(names)}
    worst, best = (pick(kappas, key=kappas.__getitem__) for pick in (min, max))
    for words in (
        f"{sure.any(0).sum()} of 2,567 minutes of 20 films are Sure to at least one annotator, "
        f"{sure.all(0).sum()} to both. Both gave the same level to {equal.mean():.0%} of the "
        "minutes that they share. By gamma (1 is always the same level, 0 as in a random order) "
        "they agree most on Indiana Jones and the Last Crusade (1989) (0.64), least on Silver "
        "Linings Playbook (2012) (0.11).",
        f"by kappa (1 is always, 0 as by chance), they agree most on {best} ({kappas[best]:.2f}), "
        f"least on {worst} (",
    ):
        assert words in page.text
    assert "kappaCohen’s kappa: how much more often two agree" in page.text
    row = next(row for row in page.rows if row[0] == "Juno (2007)" and len(row) == len(names) + 1)
    for at, cell in enumerate(row[1:]):
        first, second = (of[labels.groups == JUNO, at] for of in marks)
        kappa = f"{cohen_kappa_score(first, second):.2f}".replace("-0.00", "0.00")
        assert cell.replace("−", "-") == (kappa if first.any() and second.any() else "–")
    assert 'title="1 clip with it" class="few"><data value="1">1.00' in page.html
    assert 'title="annotator2: Easy Negative for 47.0 minutes' in page.html  # beside Juno
    heads = ["Film", "Clips", "Sure to at least one", "Same level", "Gamma"]
    assert heads in page.rows
    assert page.row("The Ugly Truth (2009)")[1] == "70%"
    assert "Juno (2007), 0:13:00" in page.text.partition("Where they differ longest")[2]
    assert not re.search(r"\bmodel\b", page.text.partition("Film explorer")[0])
    clips = explorer_of(page.html)["clips"][0]
    for own in clips["sets"]:
        for at, given in enumerate(own["shows"]):
            marked = labels.concepts[own["name"]][labels.ids.index(clips["ids"][at])]
            assert {clips["concepts"][place] for place in given} == {*np.array(names)[marked]}


def test_the_explorer_and_the_strips_need_no_model(tab, films, labels):
    tab.prefer()
    for width in (1280, 390):
        tab.open(films, width=width)
        assert tab.run("document.documentElement.scrollWidth") == width
        tab.run("for (const part of document.querySelectorAll('details')) part.open = true")
        assert tab.run(SMALLEST) >= 11
    fade = "getComputedStyle(document.querySelector('.scroll:has(.small)')).getPropertyValue"
    assert float(tab.run(f"{fade}('--fade')").removesuffix("px")) > 20  # there is more to the right
    wide = tab.texts(".scroll:has(table:not(.heat))", "scrollWidth > e.clientWidth")
    assert {*wide} == {False}  # rows are cards
    tab.prefer("print")
    tab.open(films, width=688)
    assert tab.run(SMALLEST) >= 9.33  # 7 points, on a sheet of A4
    tab.prefer()
    tab.open(films, width=1280)
    assert tab.run("document.querySelector('#films-table svg').getBoundingClientRect().top") < 900
    ready = tab.run("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd")
    sys.stdout.write(f"the page of 20 films is ready after {ready:.0f} ms\n")
    assert 0 < ready < 5000
    tab.run(CAPTURE)
    assert (tab.logged, axe(tab)) == ([], [])
    for first in (".film:not([hidden]) h4", "#films-table a"):
        assert tab.text(first) == "The Ugly Truth (2009)"
    lanes = {*tab.texts(".film:not([hidden]) svg[data-lane]", "dataset.lane")}
    assert lanes == {*labels.y, "Labels of clips", *labels.concept_names}
    x, y = tab.point_in(f"svg[data-film={JUNO}]", 13.5 / 95.5)
    tab.mouse("mouseMoved", x, y, buttons=0)
    assert shown(tab, "strip-tip").startswith("0:13:00–0:14:00; annotators: ")
    tab.click("#films-table th:last-child button")
    shares = [float(share) for share in tab.texts("#films-table td:last-child data", "value")]
    assert shares == sorted(shares, reverse=True)
    tab.click("#films-table th:first-child button")
    assert tab.texts("#films-table a:not(.remark)") == sorted(labels.titles.values(), key=str.lower)
    tab.choose("choose-film", "")
    first, second = labels.y.values()
    one = (first == "S") ^ (second == "S")
    for which, expected in (("divided", first != second), ("single", one)):
        tab.choose("choose-which", which)
        rows = table_of(tab)
        assert {row["id"] for row in rows} == {*np.array(labels.ids)[expected]}
        assert rows[0]["to"] == format_time(float(rows[0]["end"]))
    assert "no prediction" not in tab.text("#explorer-app")
    # Another page links to a clip by its id alone; a link of all films warns of nothing.
    tab.open(films, fragment=f"#clip={JUNO}-0014")
    assert shown(tab, "clip-title") == "Juno (2007), 0:13:00–0:14:00"
    assert tab.text(".film:not([hidden]) h4") == "Juno (2007)"
    assert len(listed(tab)) == 96
    tab.open(films, fragment="#film=")
    assert shown(tab, "address-note") == ""
    assert len(tab.texts(".film:not([hidden]) h4")) == 20


def test_other_labels_have_a_page_too(tmp_path):
    items = Items.of(Item(f"i{row}", kind="image", media=f"{row}.jpg") for row in range(4))
    bare = Manifest("doors", items, OWN)
    given = {"anna": "ucuc", "bert": "uucc"}
    sets = [LabelSet(name, items.ids, [*levels], [("Door",), (), (), ()])
            for name, levels in given.items()]  # fmt: skip
    other = {"label_scheme": obygaze_scheme().to_json()}
    mood = LabelSet("mood", items.ids, ["S"] * 4, [()] * 4, about=other)
    for count, said in ((1, "2 of 4 clips are uneasy."), (2, "at least one annotator, 1 to")):
        manifest = bare.with_parts(labels=[*sets[:count], mood])
        page = Page(om.report(manifest, tmp_path / f"{count}.html").read_text(encoding="utf-8"))
        assert said in page.text
        names = {attributes.get("id") for tag, attributes in page.tags if tag == "h2"}
        assert names - {"agreement"} == {"found", "explorer", "concepts", "methods", "clip-title"}
        assert ("agreement" in names) == (count == 2)
    segments = [Segment("f1", "anna", 0, 70, "S", ("Look",)), Segment("f1", "bert", 0, 200, "HN"),
                Segment("f2", "bert", 0, 30, "HN")]  # fmt: skip
    timelines = Timelines.of("two", segments)
    data = explorer_of(om.report(timelines, tmp_path / "t.html").read_text(encoding="utf-8"))
    assert len(data["clips"][0]["ids"]) == 5
    text = Page((tmp_path / "t.html").read_text(encoding="utf-8")).text
    assert "f2, bert: no second annotator (left out)" in text.partition("The annotators gave")[2]
    lanes = data["timelines"]["films"]["f1"]["lanes"]
    assert [lane["length"] for lane in lanes] == [[7000], [20000]]
    assert "“uneasy”: what one annotator marked in a part of a clip" in page.text
    assert "objectif" not in page.text.partition("Found")[2]
    one = Timelines.of("one", [Segment("f1", name, 0, 30, "S") for name in ("anna", "bert")])
    text = Page(om.report(one, tmp_path / "one.html").read_text(encoding="utf-8")).text
    assert "1 of 1 clip is Sure" in text
    for wrong, error, remedy in (
        ([manifest, timelines], ExperimentError, "one manifest"),
        (bare, UsageError, "manifests label"),
    ):
        with pytest.raises(error, match=remedy):
            om.report(wrong, tmp_path / "x.html")
    example = example_path("minutes").parent
    refused(run_obygaze("report", example, "-o", tmp_path / "x.html"), f"{example / 'minutes'}?")
    manifest.save(tmp_path / "mine")
    header = tmp_path / "mine/manifest.json"
    assert str(header.with_name("report.html")) in run_obygaze("report", header).stdout
    refused(run_obygaze("report", header, header.parent), "a folder is named twice", code=2)


def test_three_annotators_of_two_films_of_a_title(tmp_path):
    """Two of three agree always: no minute has one level; of two that were merged all have."""
    given = {"a": "EN", "b": "EN", "c": "S"}
    segments = [Segment(film, name, 0, 175, level)
                for film in ("f1", "f2") for name, level in given.items()]  # fmt: skip
    titled = {film: Film("Carrie", 175) for film in ("f1", "f2")}
    timelines = Timelines.of("three", segments, films=titled)
    manifest = timelines.project(60).manifest
    of_two = merge_labels([manifest.labels("a"), manifest.labels("b")], manifest, "ab").labels
    of_two = replace(manifest.with_parts(labels=[of_two]), default_labels="ab")
    for source, words in (
        (timelines, "0% of the minutes that two or more annotated have one level"),
        (of_two, "to both. Both gave the same level to 100% of the minutes that they share"),
    ):
        path = om.report(source, tmp_path / "x.html", overwrite=True)
        page = Page(path.read_text(encoding="utf-8"))
        for part in ("minutes of 2 films are Sure", words, "gammahow far two annotators agree"):
            assert part in page.text
        titles = [film["title"] for film in explorer_of(page.html)["clips"][0]["films"]]
        assert titles == ["Carrie [f1]", "Carrie [f2]"]
        assert all("0:002:55" in page.row(title)[0] for title in titles)
