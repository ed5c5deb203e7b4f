"""A film's time axis in a real browser, against the numbers that its files were made of."""

import csv
import json
import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from click.testing import CliRunner

import cli
from obygaze_features.annotations.timelines import Segment, Timelines
from obygaze_features.errors import ExperimentError, UsageError
from obygaze_models.report.film_timelines import film_timelines
from obygaze_models.report.page import render_report
from tests.report.made import grown
from tests.report.test_report_browser import axe

FRAMES = 8
FILM, BARE = "tt0000001", "tt0000002"
"""The film that is looked at, and one without frames."""
HOSTILE = "<img src=x onerror=hit()>"
SEGMENTS = [
    Segment(FILM, "anna", 3.0, 21.5, "S", ("Look",)),
    Segment(FILM, "anna", 40.0, 44.0, "HN"),
    Segment(FILM, "bert", 60.25, 120.0, "EN"),
]
TRACKS = ".film:not([hidden]) .tracks"


def write_frames(folder, clips, *, in_film=True, frames=FRAMES):
    """Frames of clips, and a moment in each sure clip; as tables, and as rows."""
    chance = np.random.default_rng(5)
    rows, moments = [], []
    for clip in clips:
        start, end = (clip.start, clip.end) if in_film else (0.0, 10.0)
        edges = np.linspace(start, end, frames + 1)
        about = {"film": clip.film, "time_in": "film" if in_film else "clip"}
        for low, high in pairwise(edges):
            row = {"id": clip.id, "start": low, "end": high, "probability": chance.random()}
            rows.append(about | row | {"seen_in_training": "no"})
        if clip.level == "S":
            row = {"start": start + 1, "end": end - 2, "score": 0.75, "clips": clip.id}
            moments.append(about | row | {"seen_in_training": "no"})
    for name, table in (("frames", rows), ("moments", moments)):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, table[0])
            writer.writeheader()
            writer.writerows(table)
    return rows, moments


def tables(folder):
    return {name: folder / f"{name}.csv" for name in ("frames", "moments")}


@pytest.fixture(scope="module")
def short_run(results):
    """Twelve films of four clips, on their films' time axis."""
    return grown(results["first"], clips=48, timed=True)


@pytest.fixture(scope="module")
def files(short_run, tmp_path_factory):
    """The report's files: frames and moments, as rows too, and their folder."""
    folder = tmp_path_factory.mktemp("timeline")
    clips = [clip for clip in short_run.clips.values() if clip.film != BARE]
    clips[4] = replace(clips[4], level="S")  # so that the film has a moment
    rows, moments = write_frames(folder, clips)
    Timelines.of("two", SEGMENTS, names={"anna": HOSTILE}).save(folder / "timelines")
    (folder / "pictures").mkdir()
    for clip in short_run.clips:
        (folder / "pictures" / f"{clip}.jpg").write_bytes(b"\xff\xd8\xff and so on")
    in_film = [[row for row in table if row["film"] == FILM] for table in (rows, moments)]
    return folder, *in_film


@pytest.fixture(scope="module")
def options(files):
    folder = files[0]
    return tables(folder) | {"timelines": folder / "timelines"}


@pytest.fixture(scope="module")
def html(short_run, files, options):
    return render_report([short_run], **options, thumbnails=files[0] / "pictures")


@pytest.fixture
def page(tab, html, page_of):
    tab.prefer()
    tab.open(page_of(html, "timeline.html"))
    tab.choose("choose-film", "1")
    return tab


def test_files_without_a_film_have_a_time_axis(short_run, tmp_path):
    """Frames of spans without a film's name are on the axis of their file."""
    clips = [replace(clip, film="", media=f"{clip.film}.mkv") for clip in short_run.clips.values()]
    write_frames(tmp_path, [replace(clip, film=clip.media[:-4]) for clip in clips])
    lanes = film_timelines(clips, tmp_path / "frames.csv")["films"]
    films = [clip.media[:-4] for clip in clips]
    assert list(lanes) == list(dict.fromkeys(films))
    assert len(lanes[FILM]["clips"]) == films.count(FILM)
    run = replace(short_run, clips={clip.id: clip for clip in clips})
    page = render_report([run], frames=tmp_path / "frames.csv")
    assert f'"id":"{FILM}"' in page


def view_boxes(tab):
    """The part of the film that each lane shows, in seconds."""
    boxes = tab.run(
        f"[...document.querySelectorAll('{TRACKS} svg')].map(svg => svg.getAttribute('viewBox'))"
    )
    return [(float(start), float(long)) for start, _, long, _ in map(str.split, boxes)]


def shown_range(tab):
    [box] = set(view_boxes(tab))
    return box


def ticks(tab):
    return tab.run(f"[...document.querySelectorAll('{TRACKS} .ticks span')].map(s => s.innerText)")


def test_lanes_have_as_many_marks_as_the_data(page, files):
    _, rows, moments = files
    marks = "[...document.querySelectorAll('" + TRACKS + " {}')].map(m => {})"
    box = "[+m.getAttribute('x'), +m.getAttribute('width')]"
    spans = [[segment.start, segment.end - segment.start] for segment in SEGMENTS]
    assert page.run(marks.format(".segment", box)) == pytest.approx(np.array(spans))
    spans = [[row["start"], row["end"] - row["start"]] for row in moments]
    assert spans
    assert page.run(marks.format(".moment", box)) == pytest.approx(np.array(spans), abs=0.01)
    assert len(page.run(marks.format("g[role=option]", "m.id"))) == 4
    paths = page.run(marks.format("path", "m.getAttribute('d')"))
    heights = [float(y) for path in paths for y in re.findall(r"V([\d.]+)H", path)]
    chances = [1 - height / 56 for height in heights]
    assert chances == pytest.approx([row["probability"] for row in rows], abs=0.002)
    names = page.run(marks.format(".lane-name", "m.innerText"))
    assert names[1:3] == [HOSTILE, "bert"]
    assert len(page.run(marks.format(".pictures img", "m.dataset.clip"))) == 4
    assert page.logged == []
    assert page.run("document.querySelectorAll('.film img[onerror]').length") == 0


def test_a_pointer_is_told_the_frame_and_the_segment(page, files):
    _, rows, _ = files
    length = max(row["end"] for row in rows)
    anna = f"{HOSTILE}: "
    segments = {
        4.1: f"{anna}Sure, Look",
        42.0: f"{anna}Hard Negative",
        100.3: "bert: Easy Negative",
    }
    for seconds, segment in segments.items():
        x, y = page.point_in(f"{TRACKS} .ticks", seconds / length)
        page.mouse("mouseMoved", x, y - 60, buttons=0)
        frames = [row for row in rows if row["start"] <= seconds < row["end"]]
        text = page.run("document.querySelector('.film:not([hidden]) .readout').textContent")
        assert f"frame {frames[0]['probability']:.2f}" in text
        assert segment in text
        assert text.count(": ") == 1


def test_buttons_wheel_and_drag_change_the_axis(page):
    start, length = shown_range(page)
    assert (start, length) == (0, 124.5)
    before = ticks(page)
    assert before[:3] == ["0:00", "0:10", "0:20"]
    page.click(".film:not([hidden]) .zoom button[aria-label='Zoom in']")
    assert shown_range(page) == pytest.approx((length / 4, length / 2))
    assert ticks(page) != before
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
    assert shown_range(page) == pytest.approx((start - 60 / width * long, long), rel=0.01)
    assert not page.run("document.getElementById('clip').open")
    for clicks in (1, 2):
        page.mouse("mousePressed", x, y - 60, clicks=clicks)
        page.mouse("mouseReleased", x, y - 60, clicks=clicks)
    assert shown_range(page) == (0, length)
    page.run("new Promise(after => setTimeout(after, 400))")
    assert not page.run("document.getElementById('clip').open")


def test_a_click_opens_the_clip_under_it(page, html):
    clips = json.loads(re.search(r'id="explorer-data">(.*?)</script>', html, re.S)[1])["clips"][0]
    third = clips["ids"].index(f"{FILM}-003")
    page.click(f"{TRACKS} g[data-clip='{third}'] .hit")
    assert f"{FILM}-003" in page.run("document.getElementById('clip-body').innerText")
    page.press("Escape")
    page.click(".film:not([hidden]) .zoom button[aria-label='Zoom in']")
    page.click(f"{TRACKS} .pictures img:last-child")
    clip = page.run(
        "new Promise(after => setTimeout(after, 400))"
        f".then(() => +document.querySelector('{TRACKS} .pictures img:last-child').dataset.clip)"
    )
    assert clips["ids"][clip] in page.run("document.getElementById('clip-body').innerText")


def test_the_keyboard_walks_zooms_and_opens(page):
    page.run(f"document.querySelector('{TRACKS} [role=listbox]').focus()")
    page.press("ArrowRight", "+", "+")
    start, long = shown_range(page)
    assert long == pytest.approx(124.5 / 1.6**2)
    assert start < 31.5 < start + long  # the second clip
    page.press("End")
    start, long = shown_range(page)
    assert start <= 94.5
    assert start + long == pytest.approx(124.5)
    readout = page.run("document.querySelector('.film:not([hidden]) .readout').textContent")
    assert re.search(r"scene 4; .*frames 0\.\d\d to 0\.\d\d, highest at 1:\d\d", readout)
    page.press("0")
    assert shown_range(page) == (0, 124.5)
    page.press("Enter")
    assert f"{FILM}-004" in page.run("document.getElementById('clip-body').innerText")


def test_films_without_frames_have_an_axis_of_clips(page, short_run):
    page.choose("choose-film", "2")
    assert page.run("document.querySelectorAll('.film:not([hidden]) .plot').length") == 0
    lanes = page.run(f"[...document.querySelectorAll('{TRACKS} svg')].map(s => s.dataset.lane)")
    shown = {
        name for clip in short_run.clips.values() if clip.film == BARE for name in clip.concepts
    }
    assert lanes[:3] == ["Labels of clips", "Model, by clip", "Model differs"]
    assert set(lanes[3:]) == shown
    page.choose("choose-film", "")
    assert page.run("document.querySelectorAll('.film .plot').length") == 12
    assert page.run("document.querySelectorAll('.counts button').length") == 12
    page.click(".film:has(#film-1) .counts button")
    assert page.run("document.getElementById('choose-film').value") == "1"
    assert shown_range(page) == (0, 124.5)


def test_segments_need_no_frames(tab, short_run, options, page_of):
    tab.prefer()
    tab.open(page_of(render_report([short_run], timelines=options["timelines"]), "segments.html"))
    tab.choose("choose-film", "1")
    names = tab.run(f"[...document.querySelectorAll('{TRACKS} .lane-name')].map(n => n.innerText)")
    assert names[:4] == [
        HOSTILE,
        "bert",
        "Labels of clips",
        "Model, by clip",
    ]
    box = "[+m.getAttribute('x'), +m.getAttribute('width')]"
    marks = tab.run(f"[...document.querySelectorAll('{TRACKS} .segment')].map(m => {box})")
    spans = [[segment.start, segment.end - segment.start] for segment in SEGMENTS]
    assert marks == pytest.approx(np.array(spans))
    assert shown_range(tab) == (0, 124.5)


def test_clips_of_unknown_time_follow_each_other(tab, results, tmp_path, page_of):
    short_run = grown(results["first"], clips=36)
    clips = [clip for clip in short_run.clips.values() if not clip.id.endswith("002")]
    rows, _ = write_frames(tmp_path, clips, in_film=False)
    html = render_report(
        [short_run], frames=tmp_path / "frames.csv", moments=tmp_path / "moments.csv"
    )
    tab.prefer()
    tab.open(page_of(html, "pasted.html"), width=390)
    tab.choose("choose-film", "1")
    starts = tab.run(
        f"[...document.querySelectorAll('{TRACKS} .hit')].map(m => +m.getAttribute('x'))"
    )
    assert starts == [0, 10, 20]  # the second has no frames: as long as the others
    assert ticks(tab) == ["1", "2", "3"]
    assert tab.run("document.documentElement.scrollWidth") == 390
    chances = [row["probability"] for row in rows if row["id"] == f"{FILM}-003"]
    [label] = tab.run(
        f"[...document.querySelectorAll('{TRACKS} g:last-child')].map(g => g.ariaLabel)"
    )
    assert f"frames {min(chances):.2f} to {max(chances):.2f}" in label


def test_files_that_do_not_fit_are_refused(short_run, options, tmp_path):
    with pytest.raises(UsageError, match=r"--frames frames\.csv"):
        render_report([short_run], moments=options["moments"])
    strangers = [replace(clip, film="tt9") for clip in short_run.clips.values()]
    write_frames(tmp_path, strangers)
    with pytest.raises(ExperimentError, match=r"no film of these runs .*tt9"):
        render_report([short_run], frames=tmp_path / "frames.csv")


def test_the_command_takes_the_files(results, tmp_path):
    run = results["first"]
    clips = list(run.clips.values())[:8]
    write_frames(tmp_path, clips, in_film=False)
    result = CliRunner().invoke(
        cli.main,
        [
            "report", str(run.run.folder), "-o", str(tmp_path / "page.html"),
            "--frames", str(tmp_path / "frames.csv"), "--moments", str(tmp_path / "moments.csv"),
        ],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    html = (tmp_path / "page.html").read_text()
    assert f'"count":[{",".join(["8"] * 8 + ["0"] * 42)}]' in html


@pytest.mark.gate
def test_axe_finds_nothing_serious_on_a_timeline(page):
    assert axe(page) == []


@pytest.mark.gate
def test_2567_clips_of_32_frames_stay_under_5_megabytes(results, tmp_path):
    long_run = grown(results["first"], clips=2567, timed=True)
    write_frames(tmp_path, long_run.clips.values(), frames=32)
    html = render_report(
        [long_run], frames=tmp_path / "frames.csv", moments=tmp_path / "moments.csv"
    )
    assert len(html.encode()) < 5e6
