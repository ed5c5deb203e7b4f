"""Who marks more, what is marked in which film, and the certainty of agreement, on the page."""

import re
from collections import Counter

import numpy as np
import pytest
from scipy.stats import t
from sklearn.metrics import cohen_kappa_score

import obygaze_models as om
from obygaze_features.annotations.timelines import Film, Segment, Timelines
from obygaze_models.data.example import example_path
from obygaze_models.report.annotation import open_annotation
from obygaze_models.report.annotators import load_annotators
from tests.kit.floats import close
from tests.report.conftest import Page
from tests.report.test_report_explorer import axe

TITANIC, JUNO = "tt0120338", "tt0467406"


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    return om.report(example_path("minutes"), tmp_path_factory.mktemp("marked") / "films.html")


@pytest.fixture(scope="module")
def page(films):
    return Page(films.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def labels():
    return om.load_example()


def part(html, start, end):
    return html.partition(start)[2].partition(end)[0]


def test_each_film_has_a_dumbbell_and_a_row_of_shares(page, labels):
    heads, *rows = [row for row in page.rows if len(row) == 1 + len(labels.concept_names)]
    cells = {row[0]: row[1:] for row in rows[: len(labels.titles)]}
    total = sum(marks.sum(axis=0) for marks in labels.concepts.values())
    order = [labels.concept_names[at] for at in np.argsort(-total, kind="stable")]
    assert (heads, len(cells)) == (["Film", *order], 20)
    for film, title in labels.titles.items():
        own = labels.groups == film
        sure = {name: (codes[own] == "S").mean() for name, codes in labels.y.items()}
        words = ", ".join(f"{name} {share:.0%}" for name, share in sure.items())
        cell = f'<data value="{sure["annotator1"] - sure["annotator2"]:.4f}"><svg class="dumbbell"'
        assert f"<title>{words}</title>" in part(page.html, cell, "</svg>")
        shares = np.mean([marks[own].mean(axis=0) for marks in labels.concepts.values()], axis=0)
        by_name = dict(zip(labels.concept_names, shares, strict=True))
        for name, text in zip(order, cells[title], strict=True):
            assert abs(float(text.rstrip("%")) - 100 * by_name[name]) <= 0.5 + 1e-9
    assert "How well annotators agree on each concept (kappa)" in page.text


def test_the_overlap_adds_up_for_any_number_of_annotators(page, labels, tmp_path):
    first, second = (codes == "S" for codes in labels.y.values())
    bar = part(page.html, 'class="overlap"', "</figure>")
    expected = [(first & ~second).sum(), (first & second).sum(), (second & ~first).sum()]
    assert [int(n) for n in re.findall(r"flex-grow: (\d+)", bar)] == expected == [393, 277, 192]
    assert "393 only annotator1 277 both 192 only annotator2" in " ".join(Page(bar).text.split())
    levels = {"a": "SSSE", "b": "SSEE", "c": "SEES"}
    segments = [
        Segment(film, name, 60 * at, 60 * at + 60, "S" if level == "S" else "EN")
        for film in ("f1", "f2") for name, codes in levels.items() for at, level in enumerate(codes)
    ]  # fmt: skip
    timelines = Timelines.of(
        "three", segments, films={film: Film(film, 240) for film in ("f1", "f2")}
    )
    three = om.report(timelines, tmp_path / "three.html").read_text(encoding="utf-8")
    marks = Counter("".join(column).count("S") for column in zip(*levels.values(), strict=True))
    bar = Page(part(three, 'class="overlap"', "</figure>")).text
    for number in (3, 2, 1):
        assert f"{2 * marks[number]} by {number} of 3 annotators" in bar
    dots = part(three, '<svg class="dumbbell"', "</svg>")
    assert re.findall(r'class="(s\d)"', dots) == ["s1", "s2", "s3"]
    assert "a 75%, b 50%, c 50%" in dots


def test_strips_share_one_scale_and_the_phone_folds_the_films(tab, films, labels):
    minutes = Counter(labels.groups.tolist())
    ends = {film: max(int(clip[-4:]) for clip in labels.ids if clip.startswith(film))
            for film in minutes}  # fmt: skip
    tab.prefer()
    tab.open(films, width=1280)
    shape = "document.querySelector('svg[data-film={}] .tested').getBBox().width"
    widths = [tab.run(shape.format(film)) for film in (JUNO, TITANIC)]
    longest = max(ends.values())
    assert widths == pytest.approx([1000 * ends[f] / longest for f in (JUNO, TITANIC)], abs=6)
    assert tab.run("document.querySelector('#more-films').checkVisibility()") is False
    tab.click("#films-table th:nth-child(3) button")
    titles = tab.texts("#films-table tbody th a:not(.remark)")
    assert (titles[0], titles[-1]) == ("The Help (2011)", "Gone Girl (2014)")
    tab.choose("choose-film", "")
    boxes = "[...document.querySelectorAll('.film')].map(e => [e.querySelector('h4').textContent,"
    boxes += "e.querySelector('.plot .lane').getAttribute('width')])"
    drawn = {title: float(width) for title, width in tab.run(boxes)}
    expected = {labels.titles[film]: 1000 * end / longest for film, end in ends.items()}
    assert drawn == pytest.approx(expected, abs=6)
    tab.run("document.querySelector('#films-table tbody a').focus()")
    tab.press("Enter")
    tab.run("new Promise(done => setTimeout(done, 200))")
    assert tab.run("document.activeElement.id") == "explorer"
    for theme in ("light", "dark"):
        tab.prefer(prefers_color_scheme=theme)
        tab.open(films, width=390)
        assert (tab.logged, axe(tab)) == ([], [])
        rows = "[...document.querySelectorAll('#films-table tbody tr')]"
        rows += ".filter(e => e.checkVisibility())"
        assert tab.run(f"{rows}.length") == 5
        assert tab.run("document.documentElement.scrollHeight") < 12_700
        tab.click("#more-films")
        assert tab.run(f"{rows}.length") == 20
        assert tab.run("document.activeElement.closest('tr').rowIndex") == 6
    tab.prefer()


def test_the_sentence_and_the_figure_list_the_same_rare_concepts(tmp_path):
    """A concept that only one annotator marked has no kappa, but is rare all the same."""
    marks = {"a": ("Look", "Body", "Voice"), "b": ("Look", "Body")}
    segments = [
        Segment("f1", name, 60 * at, 60 * at + 60, "S", own if at < 2 else own[:1])
        for name, own in marks.items() for at in range(30)
    ]  # fmt: skip
    timelines = Timelines.of("rare", segments, films={"f1": Film("f1", 1800)})
    text = Page(om.report(timelines, tmp_path / "rare.html").read_text(encoding="utf-8")).text
    [listed] = re.findall(r"too few to judge agreement: (.*?)\.", text)
    [drawn] = re.findall(r"Marked in too few films or clips to judge: (.*?)\.", text)
    assert sorted(listed.split(", ")) == sorted(drawn.split(", ")) == ["Body", "Look", "Voice"]


def test_intervals_of_kappa_are_the_jackknife_over_films(labels):
    loaded = load_annotators(open_annotation(example_path("minutes")))
    films = np.unique(labels.groups)
    for name in ("Body", "Appearance"):
        at = labels.concept_names.index(name)
        first, second = (marks[:, at] for marks in labels.concepts.values())
        rest = [labels.groups != film for film in films]
        without = np.array([cohen_kappa_score(first[rows], second[rows]) for rows in rest])
        count, kappa = len(films), cohen_kappa_score(first, second)
        error = ((count - 1) / count * ((without - without.mean()) ** 2).sum()) ** 0.5
        half = t.ppf(0.975, count - 1) * error
        assert loaded.kappa_intervals[name] == close((kappa - half, kappa + half))
