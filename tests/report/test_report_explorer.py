"""What a reader of the film explorer uses: links, tables, films of their own, annotators' lanes."""

import csv
import io
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from obygaze_features.manifests import LabelSet, Manifest
from obygaze_features.video.synthetic import write_pictures
from obygaze_models.report.page import render_report
from tests.report.conftest import with_record
from tests.report.made import grown, renamed
from tests.report.test_report_browser import explorer, listed, probability, shown_view, status

LEVELS = ("EN", "HN", "NS", "S")
CAPTURE = (
    "window.copied = []; navigator.clipboard.writeText = "
    "text => { copied.push(text); return Promise.resolve() };"
    "window.saved = []; URL.createObjectURL = blob => { saved.push(blob); return '#' };0"
)


@pytest.fixture(scope="module")
def two_annotators(marked, results, tmp_path_factory):
    """A run whose manifest has two annotators beside the labels that were learnt."""
    manifest = Manifest.load(marked.manifest)
    chance = np.random.default_rng(4)
    sets = [
        LabelSet(
            name,
            marked.ids[:size],
            chance.choice(LEVELS, size).tolist(),
            [("Look",) if chance.random() < 0.3 else () for _ in range(size)],
            about={"annotator": name},
        )
        for name, size in (("anna", 200), ("bert", 120))
    ]
    folder = tmp_path_factory.mktemp("two") / "manifest"
    manifest.with_parts(labels=sets).save(folder)
    experiment = dict(results["first"].run.record.experiment) | {"manifest": str(folder)}
    return with_record(results["first"], experiment=experiment), sets


@pytest.fixture(scope="module")
def html(two_annotators):
    return render_report([two_annotators[0]])


@pytest.fixture
def page(tab, html, page_of):
    tab.prefer()
    tab.open(page_of(html, "explorer.html"))
    tab.choose("choose-film", "")
    tab.run(CAPTURE)
    return tab


def test_the_most_probable_clips_come_first(page, html):
    view = shown_view(page, explorer(html))
    tested = [clip for clip in listed(page) if clip in view["at"]]
    chances = [probability(view, clip) for clip in tested]
    assert chances == sorted(chances, reverse=True)
    assert page.run("document.getElementById('choose-order').value") == "most"


def test_films_with_the_most_sure_clips_come_first(page, marked):
    sure = Counter(
        clip.split("-")[0] for clip, s in zip(marked.ids, marked.levels, strict=True) if s == "S"
    )
    films = page.run("[...document.querySelectorAll('.film h4')].map(h => h.textContent)")
    counts = [sure[film] for film in films]
    assert counts == sorted(counts, reverse=True)
    lines = page.run("[...document.querySelectorAll('.film .counts')].map(h => h.textContent)")
    for line, number in zip(lines, counts, strict=True):
        assert line.startswith(f"S (Sure): {number} of 50 clips ({2 * number}%). ")


def test_concepts_are_joined_by_and_or_or(page, html):
    clips = explorer(html)["clips"][0]
    for concept in (0, 2):
        page.click(f"#concept-chips input[value='{concept}']")
    page.click("#show-all") if page.run("!document.getElementById('show-all').hidden") else None
    all_ticked = {at for at, drawn in enumerate(clips["shows"]) if {0, 2} <= set(drawn)}
    assert set(listed(page)) == all_ticked
    page.choose("choose-match", "any")
    page.click("#show-all")
    any_ticked = {at for at, drawn in enumerate(clips["shows"]) if {0, 2} & set(drawn)}
    assert set(listed(page)) == any_ticked
    assert all_ticked < any_ticked
    page.click("#choose-reset")
    assert "of 200 clips that match" in status(page)


def blocks(tab, selector):
    """The rectangles of shapes of one colour, as (left, right, top, bottom)."""
    paths = tab.run(f"[...document.querySelectorAll(`{selector}`)].map(p => p.getAttribute('d'))")
    corners = []
    for path in paths:
        for part in filter(None, path.split("z")):
            left, rest = part.removeprefix("M").split(" ")
            top, rest = rest.split("H", 1)
            right, rest = rest.split("v")
            corners.append(
                (float(left), float(right), float(top), float(top) + float(rest.split("H")[0]))
            )
    return corners


def test_each_annotator_has_a_lane_above_the_model(page, two_annotators, marked):
    _, sets = two_annotators
    for order, code in enumerate(LEVELS):
        drawn = blocks(page, f".film .strip path.segment:nth-of-type(4n + {order + 2})")
        expected = sum(labels.levels.count(code) for labels in sets)
        assert len(drawn) == expected, code
    names = "[...document.querySelector('.film .scale').children].map(s => s.textContent)"
    assert page.run(names)[:2] == ["anna", "bert"]
    page.choose("choose-film", "2")
    names = page.run(
        "[...document.querySelectorAll('.film:not([hidden]) .lane-name')].map(n => n.innerText)"
    )
    assert names[:4] == ["anna", "bert", "Labels of clips", "Model, by clip"]
    for labels in sets:
        drawn = blocks(page, f".film:not([hidden]) svg[data-lane='{labels.name}'] path")
        own = {
            clip: level
            for clip, level in zip(labels.ids, labels.levels, strict=True)
            if clip.startswith("tt2-")
        }
        assert {(int(left), LEVELS[round((18 - top) / 4.5) - 1]) for left, _, top, _ in drawn} == {
            (int(clip.split("-")[1]), level) for clip, level in own.items()
        }


def test_each_concept_has_a_lane(page, html):
    clips = explorer(html)["clips"][0]
    page.choose("choose-film", "1")
    for concept, name in enumerate(clips["concepts"]):
        drawn = blocks(page, f".film:not([hidden]) svg[data-lane='{name}'] path")
        expected = [at for at in range(50) if concept in clips["shows"][50 + at]]
        assert [int(left) for left, *_ in drawn] == expected


def test_the_panel_names_each_annotators_level(page, two_annotators):
    page.click("#clips-body .open")
    clip = page.run("document.getElementById('clip-body').innerText").split()[0]
    facts = page.run("document.querySelector('#clip dl').innerText")
    for labels in two_annotators[1]:
        if clip in labels.ids:
            assert f"{labels.name}\n{labels.level_of[clip]} " in facts


def test_without_its_manifest_a_run_has_no_such_lanes(results, marked, tmp_path):
    for manifest in (tmp_path / "none", marked.folder):
        experiment = dict(results["first"].run.record.experiment) | {"manifest": str(manifest)}
        html = render_report([with_record(results["first"], experiment=experiment)])
        assert explorer(html)["clips"][0]["sets"] == []


def test_a_link_brings_back_what_was_chosen(tab, page, page_of, html):
    data = explorer(html)
    other = [view["model"] for view in data["views"]].index("pcbm-tree")
    assert other != data["runs"][0]["view"]
    page.choose("choose-model", str(other))
    page.choose("choose-film", "1")
    page.choose("choose-level", "3")
    page.click("#concept-chips input[value='1']")
    page.choose("choose-match", "any")
    page.choose("choose-order", "scene")
    expected = listed(page), status(page)
    assert expected[0]
    page.click("#clips-body tr:nth-child(2) .open")
    title = page.run("document.getElementById('clip-title').textContent")
    fragment = page.run("location.hash")
    assert "film=tt1" in fragment
    assert "model=pcbm-tree" in fragment
    tab.open(page_of(html, "explorer.html"), fragment=fragment)
    assert (listed(tab), status(tab)) == expected
    assert tab.run("document.getElementById('clip-title').textContent") == title
    assert (
        tab.run("document.getElementById('clip-place').textContent") == f"2 of {len(expected[0])}"
    )
    tab.press("Escape")
    assert "clip=" not in tab.run("location.hash")
    tab.click("#choose-reset")
    tab.choose("choose-model", str(explorer(html)["runs"][0]["view"]))
    assert tab.run("location.hash") == "#film="
    everything = status(tab)
    tab.open(page_of(html, "explorer.html"), fragment="#film=")
    assert (status(tab), tab.run("document.getElementById('address-note').textContent")) == (
        everything,
        "",
    )
    assert tab.logged == []


def test_each_row_is_a_link_to_its_clip(tab, page, page_of, html):
    page.choose("choose-film", "2")
    page.choose("choose-order", "scene")
    links = "[...document.querySelectorAll('#clips-body a')].map(a => a.getAttribute('href'))"
    fragment, title = (
        page.run(links)[3],
        page.run("document.querySelectorAll('#clips-body a')[3].textContent"),
    )
    tab.open(page_of(html, "explorer.html"), fragment=fragment)
    assert tab.run("document.getElementById('clip-title').textContent") == title
    assert tab.run("document.getElementById('choose-film').selectedOptions[0].text") == "tt2"
    assert tab.run("document.getElementById('clip-place').textContent") == "4 of 50"


def test_a_film_has_a_lane_of_where_the_model_differs(page, html):
    view = shown_view(page, explorer(html))
    page.choose("choose-film", "1")
    wrong = [
        clip - 50
        for clip, label, called in zip(view["at"], view["label"], view["called"], strict=True)
        if 50 <= clip < 100 and label != called
    ]
    drawn = blocks(page, ".film:not([hidden]) svg[data-lane='Model differs'] path")
    assert sorted(int(left) for left, *_ in drawn) == sorted(wrong)
    assert page.run("document.querySelectorAll('.bar.wrong').length") == 0


def test_a_link_to_what_is_not_there_says_so(tab, page_of, html):
    hostile = "<img src=x onerror=hit()>"
    tab.prefer()
    tab.open(page_of(html, "explorer.html"), fragment=f"#film=tt9&clip={hostile}&order=__proto__")
    note = tab.run("document.getElementById('address-note').textContent")
    assert "film tt9" in note
    assert hostile in note
    assert "order __proto__" in note
    assert "of 200 clips that match" in status(tab)
    assert tab.run("document.querySelectorAll('#explorer-app img').length") == 0
    assert tab.logged == []


def test_a_clip_can_be_cited_and_linked(page, html):
    clips = explorer(html)["clips"][0]
    first = listed(page)[0]
    page.click("#clips-body .open")
    for button in (1, 2):
        page.click(f"#clip .more button:nth-child({button})")
    link, citation = page.run("copied")
    assert link == page.run("location.href")
    assert f"clip={clips['ids'][first]}" in link
    film = clips["films"][clips["film"][first]]["title"]
    level = clips["levels"][clips["level"][first]]["name"]
    concepts = ", ".join(clips["concepts"][at] for at in clips["shows"][first]) or "none"
    number = clips["number"][first]
    assert citation.startswith(
        f"{film}, scene {number} [{clips['ids'][first]}]. Annotators: all: {level}; anna: "
    )
    assert f"Concepts: {concepts}. Model: " in citation
    chance = page.run("document.querySelector('#clip data').textContent")
    assert f"gives S (Sure) a probability of {chance}, in run first (xclip native, " in citation
    assert re.search(r"Cite: toy, .*; .*CVPR 2024; obygaze [\w.]+\.$", citation)


def table(tab):
    tab.run("saved.length = 0")
    tab.click("#save-table")
    return list(csv.DictReader(io.StringIO(tab.run("saved[0].text()"))))


def test_the_listed_clips_are_saved_as_a_table(page, html, results):
    clips = results["first"].clips
    page.choose("choose-film", "1")
    page.choose("choose-level", "3")
    rows = table(page)
    page.run("document.getElementById('show-all').click()")
    ids = explorer(html)["clips"][0]["ids"]
    assert [row["id"] for row in rows] == [ids[at] for at in listed(page)]
    view = shown_view(page, explorer(html))
    for row in rows:
        clip = clips[row["id"]]
        assert (row["level"], row["level name"], row["film"]) == ("S", "Sure", clip.film)
        assert set(filter(None, row["concepts"].split("|"))) == set(clip.concepts)
        assert row["level of anna"] in LEVELS
        if row["probability"]:
            expected = probability(view, ids.index(row["id"]))
            assert float(row["probability"]) == pytest.approx(expected)
        else:
            assert row["no prediction because"]


def test_a_table_has_no_formula(tab, results, page_of):
    names = {"tt0": "=HYPERLINK(0)", "tt1": '+1, "x"', "tt2": "@a\nb", "tt3": "'=1"}
    tab.prefer()
    tab.open(page_of(render_report([renamed(results["first"], names)]), "formula.html"))
    tab.choose("choose-film", "")
    tab.run(CAPTURE)
    titles = {row["title"] for row in table(tab)}
    assert titles == {f"'{name}" for name in names.values()}


@pytest.fixture(scope="module")
def minutes(results):
    """Two films whose clips are minutes; two of each film have no label."""
    run = grown(results["first"], clips=200, timed=True, films=2)
    clips = {
        clip.id: replace(clip, start=60.0 * (clip.number - 1), end=60.0 * clip.number)
        for clip in run.clips.values()
    }
    gone = {clip.id for clip in clips.values() if clip.number in (1, 28)}
    predictions = [
        replace(
            fit,
            ids=list(np.array(fit.ids)[keep]),
            labels=fit.labels[keep],
            probabilities=fit.probabilities[keep],
        )
        for fit in run.said
        for keep in [np.array([clip not in gone for clip in fit.ids])]
    ]
    labelled = {clip.id: clip for clip in clips.values() if clip.id not in gone}
    return replace(run, clips=labelled, said=predictions, explained=[])


def test_minutes_are_called_by_their_time_on_a_round_axis(tab, minutes, page_of):
    tab.prefer()
    tab.open(page_of(render_report([minutes]), "minutes.html"))
    tab.choose("choose-film", "")
    ticks = tab.run(
        "[...document.querySelector('.axis').children].map(s => [s.textContent, s.style.left])"
    )
    assert [text for text, _ in ticks] == [f"{m // 60}:{m % 60:02}:00" for m in range(0, 101, 20)]
    assert [float(left.removesuffix("%")) for _, left in ticks] == pytest.approx(
        [0, 20, 40, 60, 80, 100]
    )
    gaps = blocks(tab, ".film:first-child .absent")
    assert [(left, right) for left, right, *_ in gaps] == [(0, 10), (270, 280)]
    tab.choose("choose-order", "scene")
    assert tab.run("document.querySelector('#clips-body .open').textContent") == (
        "Film number 1 (1990), 0:01:00–0:02:00"
    )
    assert "scene" not in tab.run("document.querySelector('#clips-body').innerText")


FOLDERS = {
    "/home/me/my films": "file:///home/me/my%20films/",
    "C:\\films\\": "file:///C:/films/",
    "file:///C:/films": "file:///C:/films/",
    '/a"b#c?d%': "file:///a%22b%23c%3Fd%25/",
    "javascript:hit()": None,
    " javascript:hit()//": None,
    "https://example.org/films": None,
    "//example.org/films": None,
    "\\\\example.org\\films": None,
    "data:text/html,x": None,
    "films": None,
    "": None,
}


def play(tab, folder):
    tab.run(f"document.querySelector('.play input').value = {folder!r};0")
    tab.run("document.querySelector('.play').requestSubmit()")


def test_films_are_played_from_a_folder_and_nowhere_else(tab, minutes, page_of):
    tab.prefer()
    tab.open(page_of(render_report([minutes]), "minutes.html"))
    tab.choose("choose-film", "0")
    tab.choose("choose-order", "scene")
    tab.click("#clips-body .open")
    for folder, address in FOLDERS.items():
        play(tab, folder)
        sources = tab.run("[...document.querySelectorAll('#clip source')].map(s => s.src)")
        note = tab.run("document.querySelector('.play ~ [role=status]').textContent")
        if address is None:
            assert sources == []
            assert "Type the whole path" in note
        else:
            assert sources[0] == f"{address}tt0000000.mp4#t=60,120"
            assert all(source.startswith(address) for source in sources)
    # The player's own signs are data.
    assert {url.split(":")[0] for url in tab.requested} <= {"file", "data"}


@pytest.mark.gate
def test_a_film_plays_from_the_clips_start(tab, minutes, page_of, tmp_path):
    folder = tmp_path / "my films"
    folder.mkdir()
    write_pictures(folder / "tt0000000.mp4", [np.zeros((32, 32, 3), np.uint8)] * 400, rate=2)
    tab.prefer()
    page = page_of(render_report([minutes]), "minutes.html")
    tab.open(page, fragment="#clip=tt0000000-002")
    play(tab, str(folder))
    started = tab.run(
        "new Promise(done => { const v = document.querySelector('#clip video');"
        "v.addEventListener('loadeddata', () => done(v.currentTime));"
        "setTimeout(() => done(-1), 8000) })"
    )
    assert started == pytest.approx(60, abs=1)
    tab.open(page, fragment="#clip=tt0000000-003")
    assert tab.run("document.querySelector('.play input').value") == str(folder)
    tab.run("document.querySelector('.play input').value = ''; localStorage.clear()")


def test_each_concept_has_a_line_and_stills(tab, results, page_of, tmp_path):
    clips = results["first"].clips
    for clip in clips:
        (tmp_path / f"{clip}.jpg").write_bytes(b"\xff\xd8\xff and so on")
    html = render_report([results["first"]], thumbnails=tmp_path)
    tab.prefer()
    tab.open(page_of(html, "stills.html"))
    tab.click("#concept-glossary summary")
    tab.run("new Promise(after => setTimeout(after, 100))")  # an element tells later that it opened
    terms = "[...document.querySelectorAll('#concept-glossary dt')]"
    lines = dict(tab.run(f"{terms}.map(dt => [dt.textContent, dt.nextSibling.textContent])"))
    marked = Counter(name for clip in clips.values() for name in clip.concepts)
    for name, number in marked.items():
        assert lines[name].endswith(f" – marked in {number} clips")
    assert lines["Look"].startswith("characters' gaze: voyeurism; ")
    ids_of = "[...dt.nextSibling.querySelectorAll('img')].map(i => i.alt.split(', ').at(-1))"
    stills = f"{terms}.map(dt => {ids_of})"
    for name, ids in zip(lines, tab.run(stills), strict=True):
        assert len(ids) == 3
        assert all(name in clips[clip].concepts and clips[clip].level == "S" for clip in ids)


@pytest.fixture(scope="module")
def largest(results):
    return render_report([grown(results["first"], clips=7637, timed=True)])


@pytest.mark.gate
def test_7637_clips_scroll_at_30_frames_a_second(tab, largest, page_of):
    tab.prefer()
    tab.open(page_of(largest, "largest.html"))
    gaps = tab.run(
        "new Promise(done => { const gaps = []; let before = performance.now();"
        "document.documentElement.style.scrollBehavior = 'auto';"
        "document.getElementById('explorer').scrollIntoView();"
        "const step = () => { const now = performance.now(); gaps.push(now - before); before = now;"
        "scrollBy(0, 60); gaps.length < 120 ? requestAnimationFrame(step) : done(gaps) };"
        "requestAnimationFrame(step) })"
    )
    frames_a_second = 1000 / np.mean(gaps[5:])
    assert frames_a_second >= 30, f"longest gap {max(gaps[5:]):.0f} ms"


@pytest.mark.gate
def test_2567_clips_of_20_films_and_3_models_are_ready_in_2_seconds(tab, results, page_of):
    html = render_report([grown(results["first"], clips=2567, timed=True, films=20)])
    assert len(html.encode()) < 5e6
    tab.prefer()
    tab.open(page_of(html, "whole.html"))
    assert tab.run("document.querySelectorAll('.film').length") == 20
    assert tab.run("document.querySelectorAll('#choose-model option').length") == 3
    assert int(tab.run("document.documentElement.dataset.ready")) < 2000
