"""The page without a model: what annotators said, against the shipped labels themselves."""

import re

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

import obygaze_models as om
from obygaze_features.annotations.timelines import Segment, Timelines
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Concept, Item, Items, LabelScheme, LabelSet, Level, Manifest
from obygaze_models.data.example import example_path
from tests.conftest import run_obygaze
from tests.kit.files import refused
from tests.report.conftest import Page, explorer_of
from tests.report.test_report_explorer import CAPTURE, axe, listed, shown, table_of

OWN = LabelScheme("mine", (Level("c", "calm"), Level("u", "uneasy")), (Concept("Door"),))


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    path = tmp_path_factory.mktemp("films") / "films.html"
    made = run_obygaze("report", example_path("minutes"), "-o", path)
    assert made.exit_code == 0, made.output
    return path


@pytest.fixture(scope="module")
def labels():
    return om.load_example()


def test_twenty_films_are_a_small_page_that_says_what_was_marked(films, labels):
    assert films.stat().st_size < 600_000
    page, (first, second) = Page(films.read_text(encoding="utf-8")), labels.y.values()
    sure, equal = np.array([first == "S", second == "S"]), first == second
    by_film = {title: equal[labels.groups == film].mean() for film, title in labels.titles.items()}
    least, most = (pick(by_film, key=by_film.__getitem__) for pick in (min, max))
    for words in (
        f"{sure.any(0).sum()} of 2,567 minutes of 20 films are Sure to at least one annotator, "
        f"{sure.all(0).sum()} to both.",
        f"same level to {equal.mean():.0%} of the minutes",
        f"{by_film[most]:.0%} of {most}, {by_film[least]:.0%} of {least}.",
    ):
        assert words in page.text
    marks = list(labels.concepts.values())
    kappas = {
        name: cohen_kappa_score(*(of[:, at] for of in marks))
        for at, name in enumerate(labels.concept_names)
    }
    best, worst = (pick(kappas, key=kappas.__getitem__) for pick in (max, min))
    assert f"most on {best} (kappa {kappas[best]:.2f}; " in page.text
    assert f"least on {worst} (" in page.text
    heads = next(row for row in page.rows if row[:3] == ["Film", *labels.concept_names[:2]])
    assert heads[1:] == labels.concept_names
    film = labels.groups == "tt0467406"
    cells = next(row[1:] for row in page.rows if row[0] == "Juno (2007)" and len(row) == len(heads))
    for at, cell in enumerate(cells):
        first, second = (of[film, at] for of in marks)
        kappa = f"{cohen_kappa_score(first, second):.2f}".replace("-0.00", "0.00")
        assert cell.replace("−", "-") == (kappa if first.any() and second.any() else "–")
    assert "Juno (2007), 0:13:00" in page.text.partition("Where they differ longest")[2]
    assert not re.search(r"\bmodel\b", page.text.partition("Film explorer")[0])


def test_the_explorer_needs_no_model(tab, films, labels):
    tab.prefer()
    tab.open(films)
    tab.run(CAPTURE)
    assert tab.logged == []
    assert (
        tab.text(".film:not([hidden]) h4") == tab.text("#films-table a") == "The Ugly Truth (2009)"
    )
    lanes = tab.texts(".film:not([hidden]) svg[data-lane]", "dataset.lane")
    assert lanes[:3] == ["annotator1", "annotator2", "Labels of clips"]
    assert {*lanes[3:]} <= {*labels.concept_names}
    tab.choose("choose-film", "")
    first, second = labels.y.values()
    for which, expected in (
        ("divided", first != second),
        ("single", (first == "S") ^ (second == "S")),
    ):
        tab.choose("choose-which", which)
        assert {row["id"] for row in table_of(tab)} == {*np.array(labels.ids)[expected]}
    assert "no prediction" not in tab.text("#explorer-app")
    assert axe(tab) == []
    # Another page links to a clip by its id alone.
    tab.open(films, fragment="#clip=tt0467406-0014")
    assert shown(tab, "clip-title") == "Juno (2007), 0:13:00–0:14:00"
    assert tab.text(".film:not([hidden]) h4") == "Juno (2007)"
    assert len(listed(tab)) == 96
    tab.open(films, fragment="#film=")
    assert shown(tab, "address-note") == ""
    assert len(tab.texts(".film:not([hidden]) h4")) == 20


def test_strips_are_read_out_and_sorted(tab, films, labels):
    tab.prefer()
    tab.open(films)
    x, y = tab.point_in("svg[data-film=tt0467406]", 13.5 / 95.5)
    tab.mouse("mouseMoved", x, y, buttons=0)
    assert shown(tab, "strip-tip").startswith("0:13:00–0:14:00; annotators: ")
    tab.click("#films-table th:last-child button")
    shares = [float(v) for v in tab.texts("#films-table td:last-child data", "value")]
    assert shares == sorted(shares, reverse=True)
    tab.click("#films-table th:first-child button")
    titles = tab.texts("#films-table a")
    assert titles == sorted(labels.titles.values(), key=str.lower)
    tab.click("svg[data-film=tt0467406]")
    assert shown(tab, "clip-title").startswith("Juno (2007), 0:47:00")


def test_other_labels_have_a_page_too(tmp_path):
    """Own levels without films, of one annotator or two; and timelines, minute by minute."""
    items = Items.of(Item(f"i{row}", kind="image", media=f"{row}.jpg") for row in range(4))
    given = {"anna": "ucuc", "bert": "uucc"}
    sets = [LabelSet(name, items.ids, [*levels], [("Door",), (), (), ()])
            for name, levels in given.items()]  # fmt: skip
    for count, sentence in (
        (1, "2 of 4 clips are uneasy."),
        (2, "to at least one annotator, 1 to"),
    ):
        manifest = Manifest("doors", items, OWN).with_parts(labels=sets[:count])
        page = Page(om.report(manifest, tmp_path / f"{count}.html").read_text(encoding="utf-8"))
        assert sentence in page.text
        names = [a.get("id") for tag, a in page.tags if tag == "h2"]
        assert ("agreement" in names) == (count == 2)
        assert "films" not in names
    segments = [Segment("f1", "anna", 0, 70, "S", ("Look",)), Segment("f1", "bert", 0, 200, "HN")]
    timelines = Timelines.of("two", segments)
    data = explorer_of(om.report(timelines, tmp_path / "t.html").read_text(encoding="utf-8"))
    assert len(data["clips"][0]["ids"]) == 4
    assert [lane["length"] for lane in data["timelines"]["films"]["f1"]["lanes"]] == [
        [7000],
        [20000],
    ]
    with pytest.raises(ExperimentError, match="one manifest"):
        om.report([manifest, timelines], tmp_path / "x.html")
    example = example_path("minutes").parent
    refused(run_obygaze("report", example, "-o", tmp_path / "x.html"), f"{example / 'minutes'}?")
    bare = Manifest("doors", items, OWN)
    with pytest.raises(Exception, match="manifests label"):
        om.report(bare, tmp_path / "x.html")
