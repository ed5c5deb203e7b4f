"""The page without a model, against the shipped labels, and a film's time axis in a browser."""

import json
import re
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t
from sklearn.metrics import cohen_kappa_score

import obygaze_models as om
from obygaze_features import obygaze_scheme
from obygaze_features.annotations.merge import merge_labels
from obygaze_features.annotations.timelines import Film, Segment, Timelines
from obygaze_features.common.text import format_time
from obygaze_features.errors import ExperimentError, UsageError
from obygaze_features.manifests import Concept, Item, Items, LabelScheme, LabelSet, Level, Manifest
from obygaze_models.data.example import example_path
from obygaze_models.report.film_timelines import film_timelines
from tests.conftest import run_obygaze
from tests.kit.authors import SIX_CLIPS, clip_table
from tests.kit.files import refused
from tests.kit.floats import close
from tests.kit.predicted import clips_of
from tests.kit.run import LEVELS
from tests.report.conftest import Page, explorer_of, grown, plain, render_report
from tests.report.test_report_explorer import CAPTURE, axe, listed, table_of, text_of

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


def kappa_over_films(first, second, films):
    """Return scikit-learn's kappa of all minutes, and its jackknife interval over films."""
    kappa = cohen_kappa_score(first, second)
    names = np.unique(films)
    without = np.array([cohen_kappa_score(first[films != f], second[films != f]) for f in names])
    count = len(names)
    error = ((count - 1) / count * ((without - without.mean()) ** 2).sum()) ** 0.5
    half = t.ppf(0.975, count - 1) * error
    return kappa, kappa - half, kappa + half


def test_twenty_films_make_a_small_page(films, labels):
    assert films.stat().st_size < 600_000
    page, (first, second) = Page(films.read_text(encoding="utf-8")), labels.y.values()
    sure, equal = np.array([first == "S", second == "S"]), first == second
    marks, names = [*labels.concepts.values()], labels.concept_names
    kappas = {name: cohen_kappa_score(*(m[:, at] for m in marks)) for at, name in enumerate(names)}
    worst, best = (pick(kappas, key=kappas.__getitem__) for pick in (min, max))
    kappa, low, high = kappa_over_films(first, second, labels.groups)
    shares = [np.mean(own[:, None] == np.unique(first), axis=0) for own in (first, second)]
    for words in (
        f"one in three of the minutes that either finds objectifying ({sure.all(0).sum()} of "
        f"{sure.any(0).sum()}).",
        f"{sure.any(0).sum()} of 2,567 minutes of 20 films are Sure according to at least one ann",
        f"same level to {equal.mean():.0%} of the minutes",
        f"chance would be {shares[0] @ shares[1]:.0%}",
        f"kappa of {kappa:.2f} over all films (95% interval {low:.2f} to {high:.2f})",
        "most on Indiana Jones and the Last Crusade (1989) (gamma 0.64)",
        "least on Silver Linings Playbook (2012) (0.11)",
        f"most on {best} (kappa {kappas[best]:.2f}; ",
        f"least on {worst} (",
    ):
        assert words in page.text
    assert "kappaCohen’s kappa: how much more often two annotators agree" in page.text
    of_kappas = Page(page.html.partition("agree on each concept (kappa)")[2])
    heads = next(row for row in of_kappas.rows if row[0] == "Film")
    for concept, cell in zip(heads[1:], of_kappas.row("Juno (2007)"), strict=True):
        at = names.index(concept)
        first, second = (array[labels.groups == JUNO, at] for array in marks)
        kappa = f"{cohen_kappa_score(first, second):.2f}".replace("-0.00", "0.00")
        assert cell.replace("−", "-") == (kappa if first.any() and second.any() else "–")
    assert 'title="1 clip with the concept" class="few"><data value="1">1.00' in page.html
    heads = ["Film", "Clips", "Sure, each annotator", "Sure to at least one", "Same level", "Gamma"]
    assert heads in page.rows
    assert page.row("The Ugly Truth (2009)")[2] == "70%"
    assert "Juno (2007), 0:13:00" in page.text.partition("Longest disagreements")[2]
    assert not re.search(r"\bmodel\b", page.text.partition("Film explorer")[0])
    clips = explorer_of(page.html)["clips"][0]
    for own in clips["sets"]:
        for at, marks_of in enumerate(own["shows"]):
            marked = labels.concepts[own["name"]][labels.ids.index(clips["ids"][at])]
            assert {clips["concepts"][index] for index in marks_of} == {*np.array(names)[marked]}


def test_tables_stay_tables_on_a_phone(tab, films):
    """Their rows look like cards, but keep the roles of the elements."""
    tab.prefer()
    tab.open(films, width=1280)
    wide = tab.roles()
    tab.open(films, width=390)
    visible_tables = tab.texts("table:not([hidden] *, details:not([open]) *)")
    assert tab.roles()["table"] == wide["table"] == len(visible_tables)
    assert min(tab.roles()[role] for role in ("row", "cell", "rowheader", "columnheader")) > 20
    own = re.findall(r"<(\w+)[^>]*? role=\"(\w+)\"", films.read_text(encoding="utf-8"))
    assert {tag for tag, _ in own} <= {"div", "p", "span", "svg"}


def test_the_explorer_and_the_strips_need_no_model(tab, films, labels):
    tab.prefer()
    for width in (1280, 390):
        tab.open(films, width=width)
        assert tab.run("document.documentElement.scrollWidth") == width
        tab.run("for (const part of document.querySelectorAll('details')) part.open = true")
        assert tab.run(SMALLEST) >= 11
    ready = tab.run("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd")
    sys.stdout.write(f"the page of 20 films is ready after {ready:.0f} ms\n")
    assert 0 < ready < 5000  # on any machine; under 1000 on ours
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
    tab.run(CAPTURE)
    assert (tab.logged, axe(tab)) == ([], [])
    for first in (".film:not([hidden]) h4", "#films-table a"):
        assert tab.text(first) == "The Ugly Truth (2009)"
    lanes = {*tab.texts(".film:not([hidden]) svg[data-lane]", "dataset.lane")}
    assert lanes == {*labels.y, "Labels of clips", *labels.concept_names}
    longest = Manifest.load(example_path("minutes")).items.ends.max()  # strips share its scale
    x, y = tab.point_in(f"svg[data-film={JUNO}]", 13.5 * 60 / longest)
    tab.mouse("mouseMoved", x, y, buttons=0)
    assert text_of(tab, "strip-tip").startswith("0:13:00–0:14:00; level: ")
    tab.click("#films-table th:last-child button")
    shares = [float(share) for share in tab.texts("#films-table td:last-child data", "value")]
    assert shares == sorted(shares, reverse=True)
    tab.click("#films-table th:first-child button")
    assert tab.texts("#films-table a:not(.remark)") == sorted(labels.titles.values(), key=str.lower)
    tab.choose("choose-film", "")
    first, second = labels.y.values()
    single = (first == "S") ^ (second == "S")
    for name, expected in (("divided", first != second), ("single", single)):
        tab.choose("choose-which", name)
        rows = table_of(tab)
        assert {row["id"] for row in rows} == {*np.array(labels.ids)[expected]}
        assert rows[0]["to"] == format_time(float(rows[0]["end"]))
    assert "no prediction" not in tab.text("#explorer-app")
    # Another page links to a clip by its id alone; a link of all films warns of nothing.
    tab.open(films, fragment=f"#clip={JUNO}-0014")
    assert text_of(tab, "clip-title") == "Juno (2007), 0:13:00–0:14:00"
    assert tab.text(".film:not([hidden]) h4") == "Juno (2007)"
    assert len(listed(tab)) == 96
    tab.open(films, fragment="#film=")
    assert text_of(tab, "address-note") == ""
    assert len(tab.texts(".film:not([hidden]) h4")) == 20


def test_any_label_scheme_has_a_page(tmp_path):
    items = Items.of(Item(f"i{row}", kind="image", media=f"{row}.jpg") for row in range(4))
    bare = Manifest("doors", items, OWN)
    marks = {"anna": "ucuc", "bert": "uucc"}
    sets = [LabelSet(name, items.ids, [*levels], [("Door",), (), (), ()],
                     about={"origin": "annotator"})
            for name, levels in marks.items()]  # fmt: skip
    scheme = {"label_scheme": obygaze_scheme().to_json()}
    mood = LabelSet("mood", items.ids, ["S"] * 4, [()] * 4, about=scheme)
    for count, sentence in (
        (1, "2 of 4 clips are uneasy."),
        (2, "agree on 1 of 3 of the clips that either calls uneasy"),
    ):
        manifest = bare.with_parts(labels=[*sets[:count], mood])
        page = Page(om.report(manifest, tmp_path / f"{count}.html").read_text(encoding="utf-8"))
        assert sentence in page.text
        names = {attributes.get("id") for tag, attributes in page.tags if tag == "h2"}
        assert names - {"agreement"} == {"found", "explorer", "concepts", "methods", "clip-title"}
        assert ("agreement" in names) == (count == 2)
    segments = [Segment("f1", "anna", 0, 70, "S", ("Look",)), Segment("f1", "bert", 0, 200, "HN"),
                Segment("f2", "bert", 0, 30, "HN")]  # fmt: skip
    timelines = Timelines.of("two", segments)
    data = explorer_of(om.report(timelines, tmp_path / "t.html").read_text(encoding="utf-8"))
    assert len(data["clips"][0]["ids"]) == 5
    text = Page((tmp_path / "t.html").read_text(encoding="utf-8")).text
    assert "f2, bert: no second annotator (left out)" in text.partition("gave the same level to")[2]
    lanes = data["timelines"]["films"]["f1"]["lanes"]
    assert [lane["length"] for lane in lanes] == [[7000], [20000]]
    assert "“uneasy”: if one annotator marks part of a clip, the whole clip counts" in page.text
    assert "objectif" not in page.text.partition("Findings")[2]
    one_level = Timelines.of("one", [Segment("f1", name, 0, 30, "S") for name in ("anna", "bert")])
    text = Page(om.report(one_level, tmp_path / "one.html").read_text(encoding="utf-8")).text
    assert "1 of 1 clip is Sure" in text
    for wrong, error, remedy in (
        ([manifest, timelines], ExperimentError, "one label source"),
        (bare, UsageError, "manifests label"),
    ):
        with pytest.raises(error, match=remedy):
            om.report(wrong, tmp_path / "x.html")
    example = example_path("minutes").parent
    refused(run_obygaze("report", example, "-o", tmp_path / "x.html"), f"{example / 'minutes'}?")
    manifest.save(tmp_path / "mine")
    assert str(tmp_path / "mine/report.html") in run_obygaze("report", tmp_path / "mine").stdout


def test_rules_over_one_label_set_are_not_annotators(tmp_path):
    (tmp_path / "clips.csv").write_bytes(clip_table(*SIX_CLIPS))
    manifest = Manifest.from_obygaze12(tmp_path / "clips.csv")
    manifest.save(tmp_path / "m")
    for path in (tmp_path / "m/labels").glob("*.json"):  # as earlier versions wrote it
        path.write_text(json.dumps({"rule": json.loads(path.read_text())["rule"]}))
    made_by = "labels: paper (a rule)"
    for source in (manifest, tmp_path / "m"):
        html = om.report(source, tmp_path / "x.html", overwrite=True).read_text(encoding="utf-8")
        page = Page(html)
        assert "2 of 6 clips of 2 films are Sure." in page.text
        assert not re.search("at least one|agree|annotators differ", page.text)
        names = {attributes.get("id") for tag, attributes in page.tags if tag == "h2"}
        assert "agreement" not in names
        assert explorer_of(html)["clips"][0]["sets"] == []
        assert "dumbbell" not in html.partition("</style>")[2]
        in_strips, in_heat = (
            [row[1:] for row in page.rows if "(199" in row[0] and (made_by in row) == strips]
            for strips in (True, False)
        )
        assert in_strips == [[made_by, "100%"], [made_by, "20%"]]
        [title] = re.findall("<h1>(.*?)</h1>", html)
        [line_above] = re.findall('<p class="kicker">(.*?)</p>', html)
        assert made_by in line_above
        assert "nnotators" not in title + page.text.partition("What the words mean")[0]
        assert len(in_heat) == 2


def test_three_annotators_of_films_with_the_same_title(tmp_path):
    levels_of = {"a": "EN", "b": "EN", "c": "S"}
    segments = [Segment(film, name, 0, 175, level)
                for film in ("f1", "f2") for name, level in levels_of.items()]  # fmt: skip
    titled = {film: Film("Carrie", 175) for film in ("f1", "f2")}
    timelines = Timelines.of("three", segments, films=titled)
    manifest = timelines.project(60).manifest
    of_two = merge_labels([manifest.labels("a"), manifest.labels("b")], manifest, "ab").labels
    of_two = replace(manifest.with_parts(labels=[of_two]), default_labels="ab")
    for source, words in (
        (
            timelines,
            "Everyone gave the same level to 0% of the minutes that two or more annotated",
        ),
        (of_two, "to both. Both gave the same level to 100% of the minutes that both annotated"),
    ):
        path = om.report(source, tmp_path / "x.html", overwrite=True)
        page = Page(path.read_text(encoding="utf-8"))
        for part in ("minutes of 2 films are Sure", words, "gammahow far two annotators agree"):
            assert part in page.text
        titles = [film["title"] for film in explorer_of(page.html)["clips"][0]["films"]]
        assert titles == ["Carrie [f1]", "Carrie [f2]"]
        assert all("0:002:55" in page.row(title)[0] for title in titles)


FILM, BARE = "tt0000001", "tt0000002"
"""The film that is looked at, and one without frames."""
HOSTILE = "<img src=x onerror=hit()>"
SEGMENTS = [
    Segment(FILM, "anna", 3.0, 21.5, "S", ("Look",), comment=HOSTILE),
    Segment(FILM, "anna", 40.0, 44.0, "HN"),
    Segment(FILM, "bert", 60.25, 120.0, "EN"),
]
TRACKS = ".film:not([hidden]) .tracks"


def write_frames(folder, clips, *, in_film=True, frames=8):
    chance = np.random.default_rng(5)
    rows, moments = [], []
    for clip in clips:
        start, end = (clip.start, clip.end) if in_film else (0.0, 10.0)
        about = {"film": clip.film, "time_in": "film" if in_film else "clip"}
        for low, high in pairwise(np.linspace(start, end, frames + 1)):
            row = {"id": clip.id, "start": low, "end": high, "probability": chance.random()}
            row["loudness"] = "" if len(rows) % 7 == 3 else -25 - 0.5 * len(rows)
            rows.append(about | row | {"seen_in_training": "no"})
        if clip.level == "S":
            row = {"start": start + 1, "end": end - 2, "score": 0.75, "clips": clip.id}
            moments.append(about | row | {"seen_in_training": "no"})
    for name, table in (("frames", rows), ("moments", moments)):
        pd.DataFrame(table).to_csv(folder / f"{name}.csv", index=False)
    return rows, moments


def tables(folder):
    return {name: folder / f"{name}.csv" for name in ("frames", "moments")}


@pytest.fixture(scope="module")
def short_run(results):
    return grown(results["first"], clips=48, timed=True)


@pytest.fixture(scope="module")
def film_page(short_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("timeline")
    clips = [clip for clip in clips_of(short_run).values() if clip.film != BARE]
    clips[4] = replace(clips[4], level="S")  # so that the film has a moment
    rows, moments = write_frames(folder, clips)
    Timelines.of("two", SEGMENTS, names={"anna": HOSTILE}).save(folder / "timelines")
    (folder / "pictures").mkdir()
    for clip in short_run.clips["id"]:
        (folder / "pictures" / f"{clip}.jpg").write_bytes(b"\xff\xd8\xff and so on")
    more = {"timelines": folder / "timelines", "thumbnails": folder / "pictures"}
    html = render_report([short_run], **tables(folder), **more)
    return html, *([row for row in table if row["film"] == FILM] for table in (rows, moments))


@pytest.fixture
def page(tab, film_page, page_of):
    tab.prefer()
    tab.open(page_of(film_page[0], "timeline.html"))
    tab.choose("choose-film", "1")
    return tab


def shown_range(tab):
    """Return start and length, in seconds, of the part of the film that all lanes show."""
    boxes = tab.texts(f"{TRACKS} svg", "getAttribute('viewBox')")
    [(start, length)] = {(float(box.split()[0]), float(box.split()[2])) for box in boxes}
    return start, length


def spans(tab, selector):
    ends = "['x', 'width'].map(name => Number(e.getAttribute(name)))"
    return tab.run(f"[...document.querySelectorAll('{TRACKS} {selector}')].map(e => {ends})")


def ticks(tab):
    return tab.texts(f"{TRACKS} .ticks span", "innerText")


def readout(tab):
    return tab.text(".film:not([hidden]) .readout")


def test_a_films_lanes_have_a_mark_for_each_row(page, film_page, short_run):
    _, rows, moments = film_page
    expected = [[segment.start, segment.end - segment.start] for segment in SEGMENTS]
    assert spans(page, ".segment") == expected
    expected = np.array([[row["start"], row["end"] - row["start"]] for row in moments])
    assert spans(page, ".moment") == pytest.approx(expected, abs=0.01)
    assert len(page.texts(f"{TRACKS} g[role=option]")) == 4
    chances = [row["probability"] for row in rows]
    heard = np.array([row["loudness"] or np.nan for row in rows])
    loud = np.nan_to_num(np.maximum(0, 1 + (heard - np.nanmax(heard)) / 60))
    for mark, height, shares, near in (("bar", 56, chances, 0.002), ("sound", 14, loud, 0.01)):
        drawn = [float(y) for path in page.texts(f"{TRACKS} path.{mark}", "getAttribute('d')")
                 for y in re.findall(r"V([\d.]+)H", path)]  # fmt: skip
        assert [1 - y / height for y in drawn] == pytest.approx(shares, abs=near)
    assert page.texts(f"{TRACKS} .lane-name", "innerText")[1:3] == [HOSTILE, "bert"]
    assert len(page.texts(f"{TRACKS} .pictures img")) == 4
    assert "Do not share this page It contains pictures of 48 of 48" in plain(film_page[0])
    assert page.texts(".film img[onerror]") == []
    anna = f"{HOSTILE}: "
    for seconds, segment in ((4.1, f"{anna}Sure, Look"), (42.0, f"{anna}Hard Negative"),
                             (100.3, "bert: Easy Negative")):  # fmt: skip
        x, y = page.point_in(f"{TRACKS} .ticks", seconds / max(row["end"] for row in rows))
        page.mouse("mouseMoved", x, y - 60, buttons=0)
        frame = next(row for row in rows if row["start"] <= seconds < row["end"])
        assert f"frame {frame['probability']:.2f}" in readout(page)
        assert segment in readout(page)
        assert readout(page).count(": ") == 1
    assert axe(page) == []
    page.choose("choose-film", "2")  # without frames: an axis of clips
    lanes = page.texts(f"{TRACKS} svg", "dataset.lane")
    concepts = {name for c in clips_of(short_run).values() if c.film == BARE for name in c.concepts}
    assert lanes[:3] == ["Labels of clips", "Model, by clip", "Model differs"]
    assert set(lanes[3:]) == concepts
    assert page.logged == []


def test_every_control_moves_along_the_axis(page):
    start, length = shown_range(page)
    assert (start, length) == (0, 124.5)
    assert ticks(page)[:3] == ["0:00", "0:10", "0:20"]
    page.click(".film:not([hidden]) .zoom button[aria-label='Zoom in']")
    assert shown_range(page) == close((length / 4, length / 2))
    assert ticks(page)[0] != "0:00"
    x, y = page.point_in(f"{TRACKS} .ticks", 0.25)
    page.mouse("mouseWheel", x, y - 60, deltaX=0, deltaY=-200)
    start, long = shown_range(page)
    assert long < length / 2
    assert start + long / 4 == pytest.approx(length * 3 / 8, abs=0.2)  # what is under it stays
    page.mouse("mousePressed", x, y - 60)
    for by in (20, 40, 60):
        page.mouse("mouseMoved", x + by, y - 60, buttons=1)
    page.mouse("mouseReleased", x + 60, y - 60)
    width = page.run(f"document.querySelector('{TRACKS} .ticks').clientWidth")
    assert shown_range(page) == close((start - 60 / width * long, long), eps=0.01)
    for clicks in (1, 2):
        page.mouse("mousePressed", x, y - 60, clicks=clicks)
        page.mouse("mouseReleased", x, y - 60, clicks=clicks)
    assert shown_range(page) == (0, length)
    page.run("new Promise(after => setTimeout(after, 400))")
    assert not page.run("document.getElementById('clip').open")
    page.run(f"document.querySelector('{TRACKS} [role=listbox]').focus()")
    page.press("ArrowRight", "+", "+")
    start, long = shown_range(page)
    assert long == close(length / 1.6**2)
    assert start < 31.5 < start + long  # the second clip
    page.press("End")
    assert sum(shown_range(page)) == close(length)
    words = r"scene 4; .*frames 0\.\d\d to 0\.\d\d, highest at 1:\d\d"
    assert re.search(words, readout(page))
    page.press("0", "Enter")
    assert shown_range(page) == (0, length)
    assert f"{FILM}-004" in page.text("#clip-body")
    page.press("Escape")
    page.click(f"{TRACKS} g[role=option]:nth-of-type(3) .hit")
    assert f"{FILM}-003" in page.text("#clip-body")
    assert HOSTILE not in page.text("#clip-body")
    page.press("ArrowLeft", "ArrowLeft")
    assert f"Note by {HOSTILE}{HOSTILE}" in page.text("#clip-body")
    page.press("Escape")
    page.click(f"{TRACKS} .pictures img:last-child")
    page.run("new Promise(after => setTimeout(after, 400))")
    assert f"{FILM}-004" in page.text("#clip-body")


def test_clips_without_times_follow_each_other(results, tmp_path):
    clips = list(clips_of(grown(results["first"], clips=36)).values())
    rows, moments = write_frames(
        tmp_path, [clip for clip in clips if not clip.id.endswith("002")], in_film=False
    )
    films = film_timelines(clips, *tables(tmp_path).values())["films"]
    for film, axis in films.items():
        assert axis["pasted"]
        assert (axis["start"], axis["end"]) == ([0, 1000, 2000], [1000, 2000, 3000])
        assert axis["frames"]["count"] == [8, 0, 8]
        expected = [1000 * row["probability"] for row in rows if row["film"] == film]
        assert axis["frames"]["p"] == pytest.approx(expected, abs=0.51)
        places = [1000 * int(m["clips"][-1]) - 900 for m in moments if m["film"] == film]
        starts, lengths = ([moment[at] for moment in axis["moments"]] for at in (0, 1))
        assert starts == places  # a second after its clip's start
        assert lengths == [700] * len(places)


def test_whole_files_without_a_film_follow_each_other(results, tmp_path):
    grown_clips = list(clips_of(grown(results["first"], clips=3)).values())
    clips = [replace(clip, film="", media=f"{clip.id}.mp4") for clip in grown_clips]
    scenes = [replace(c, film=c.id, start=0.0, end=10.0, level="S") for c in clips]
    write_frames(tmp_path, scenes)
    axis = film_timelines(clips, *tables(tmp_path).values())["films"][""]
    assert axis["pasted"]
    assert (axis["start"], axis["frames"]["count"]) == ([0, 1000, 2000], [8, 8, 8])
    assert [start for start, _, _ in axis["moments"]] == [100, 1100, 2100]


def test_files_without_a_film_have_a_time_axis(short_run, tmp_path):
    clips = [replace(c, film="", media=f"{c.film}.mkv") for c in clips_of(short_run).values()]
    write_frames(tmp_path, [replace(clip, film=clip.media[:-4]) for clip in clips])
    lanes = film_timelines(clips, tmp_path / "frames.csv")["films"]
    assert list(lanes) == list(dict.fromkeys(clip.media[:-4] for clip in clips))
    assert len(lanes[FILM]["clips"]) == 4
    kite = [replace(clip, film="Kite & Wind", media="a.mp4") for clip in clips[:2]]
    segments = Timelines.of("two", [Segment("Kite_Wind", "anna", 3, 4, "S")])  # as importers do
    assert film_timelines(kite, None, None, segments)["films"]["Kite & Wind"]["lanes"]
    write_frames(tmp_path, [replace(clip, film="tt9") for clip in clips])
    with pytest.raises(ExperimentError, match=r"none of the page's films .*tt9"):
        film_timelines(clips, tmp_path / "frames.csv")


@pytest.mark.gate
def test_clips_without_times_fit_a_dark_phone(tab, results, page_of, tmp_path):
    run = grown(results["first"], clips=36)
    clips = clips_of(run)
    write_frames(tmp_path, list(clips.values()), in_film=False)
    for clip in clips:
        (tmp_path / f"{clip}.jpg").write_bytes(b"\xff\xd8\xff and so on")
    html = render_report([run], thumbnails=tmp_path, **tables(tmp_path))
    tab.prefer(prefers_color_scheme="dark")
    tab.open(page_of(html, "phone.html"), width=390)
    tab.choose("choose-film", "1")
    assert ticks(tab) == ["1", "2", "3"]
    assert tab.run("document.documentElement.scrollWidth") == 390
    # Each concept has a line, and pictures of clips of the highest levels.
    tab.run("for (const part of document.querySelectorAll('details')) part.open = true")
    tab.run("new Promise(after => setTimeout(after, 300))")  # an element tells later that it opened
    terms, meanings = (tab.texts(f"#concept-glossary {kind}") for kind in ("dt", "dd"))
    stills = iter(tab.texts("#concept-glossary img", "alt"))
    for name, meaning in zip(terms, meanings, strict=True):
        marked = [clip for clip in clips.values() if name in clip.concepts]
        assert f" – marked in {len(marked)} clip" in meaning
        pictured = [clips[next(stills).split(", ")[-1]] for _ in marked[:3]]
        levels = [[*LEVELS].index(clip.level) for clip in marked]
        assert [[*LEVELS].index(clip.level) for clip in pictured] == sorted(levels)[:-4:-1]
        assert all(name in clip.concepts for clip in pictured)
    assert list(stills) == []


@pytest.mark.gate
def test_2567_clips_of_32_frames_stay_under_5_megabytes(results, tmp_path):
    long_run = grown(results["first"], clips=2567, timed=True)
    write_frames(tmp_path, clips_of(long_run).values(), frames=32)
    assert len(render_report([long_run], **tables(tmp_path)).encode()) < 5e6
