"""Clips that a page plays from local films, in a real browser."""

import re
import time
from collections.abc import Callable

import numpy as np
import pytest

from obygaze_features.errors import VideoError
from obygaze_models.report.page import report as write_report
from tests.conftest import run_obygaze
from tests.kit.films import write_pictures
from tests.report.conftest import explorer_of, grown, with_tables
from tests.report.test_report_explorer import axe

MP4, WEBM, AVI, NONE = (f"tt{number:07}" for number in range(4))
NOTE = ".play ~ [role=status]"
ADDRESS = "document.querySelector('dialog source').src"
NOW = "document.querySelector('dialog video').currentTime"
PLAYS_S = 30.0


def write_film(path, *, seconds=320, **settings):
    """Write a film of plain grey, a little lighter each second."""
    pictures = (np.full((48, 64, 3), 60 + second % 190, np.uint8) for second in range(seconds))
    write_pictures(path, pictures, rate=1, b_frames=0, **settings)


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    folder = tmp_path_factory.mktemp("films & more")
    write_film(folder / "Film number 1.mp4", codec="libx264")
    write_film(folder / f"{WEBM}.webm", codec="libvpx")
    write_film(folder / f"{AVI}.avi", codec="mpeg4")
    return folder


@pytest.fixture(scope="module")
def run(results):
    run = grown(results["first"], clips=40, timed=True, films=4)
    return with_tables(run, reasons=run.reasons[:0])


@pytest.fixture(scope="module")
def page(run, films, tmp_path_factory):
    output = tmp_path_factory.mktemp("played") / "page.html"
    return write_report([run], output, videos=films)


def wait_for(check: Callable[[], bool], failure: str) -> None:
    until = time.monotonic() + PLAYS_S
    while not check():
        assert time.monotonic() < until, failure
        time.sleep(0.05)


def test_clips_play_at_their_time_and_arrow_keys_advance(tab, page, run):
    tab.prefer()
    tab.open(page)
    tab.choose("choose-film", "")
    tab.choose("choose-which", "differ")
    tab.choose("choose-order", "scene")
    clips = run.clips.set_index("id")
    listed = [re.search("clip=([^&]*)", link)[1] for link in tab.texts("#clips-body a", "href")]
    with_file = [clip for clip in listed if clips.loc[clip, "film"] != NONE]
    assert {clips.loc[clip, "film"] for clip in with_file} == {MP4, WEBM, AVI}
    assert len(listed) < len(clips)
    tab.click("#play-list")
    for index, clip in enumerate(with_file):
        film, start, end = clips.loc[clip, ["film", "start", "end"]]
        wait_for(lambda end=end: tab.run(ADDRESS).endswith(f",{end:g}"), "the clip's time")
        assert tab.text("#clip-place") == f"{index + 1} of {len(with_file)}"
        if film == AVI:
            wait_for(lambda: "cannot play" in tab.text(NOTE), tab.text(NOTE))
            assert f"{AVI}.avi" in tab.text(NOTE)
            assert "ffmpeg" in tab.text(NOTE)
        else:
            wait_for(lambda start=start: tab.run(NOW) > start, f"{film} plays: {tab.text(NOTE)}")
            assert start <= tab.run(NOW) < end
            assert "Playing " in tab.text(NOTE)
        tab.press("ArrowRight")
    tab.press("ArrowLeft")
    wait_for(lambda: tab.text("#clip-place").startswith(f"{len(with_file) - 1} of"), "one back")
    tab.press("Escape")
    wait_for(lambda: tab.run("document.querySelectorAll('video').length") == 0, "nothing plays on")
    assert {url.split(":")[0] for url in tab.requested} <= {"file", "data", "about"}


def test_a_clip_opened_alone_waits_for_play(tab, page):
    tab.open(page, width=390, fragment=f"#clip={WEBM}-002")
    assert tab.run("document.querySelectorAll('dialog video').length") == 0
    tab.click(".play button")
    wait_for(lambda: f"Playing {WEBM}.webm." in tab.text(NOTE), tab.text(NOTE))
    for scheme in ("light", "dark"):
        tab.prefer(prefers_color_scheme=scheme)
        assert axe(tab) == []
    assert tab.run("document.documentElement.scrollWidth") <= 390
    tab.prefer()
    tab.open(page, fragment=f"#clip={NONE}-001")
    assert tab.run("document.querySelectorAll('.play input').length") == 1  # type another folder


def test_a_page_beside_its_films_can_be_moved(run, films, page, tmp_path):
    linked = explorer_of(page.read_text(encoding="utf-8"))["videos"]
    assert linked["of"][MP4] == (films / "Film number 1.mp4").as_uri()
    assert "folder of films has no file for Film number 4 (1993)." in page.read_text()
    inside = tmp_path / "inside"
    inside.mkdir()
    write_film(inside / f"{MP4}.mp4", seconds=1)
    write_film(inside / f"{MP4}.avi", seconds=1, codec="mpeg4")
    beside = write_report([run], tmp_path / "page.html", videos=inside)
    linked = explorer_of(beside.read_text(encoding="utf-8"))["videos"]
    assert linked["of"] == {MP4: f"./inside/{MP4}.mp4"}


def test_files_of_clips_are_linked_one_by_one(results, tmp_path):
    run = grown(results["first"], clips=4, films=2)
    names = {clip: f"{clip}.mp4" for clip in run.clips["id"][:3]}
    for name in names.values():
        write_film(tmp_path / name, seconds=1)
    page = write_report([run], tmp_path / "page.html", videos=tmp_path)
    linked = explorer_of(page.read_text(encoding="utf-8"))["videos"]["of"]
    assert linked == {clip: f"./{name}" for clip, name in names.items()}


def test_a_folder_without_these_films_is_refused(run, tmp_path):
    (tmp_path / "Another film.mp4").write_bytes(b"")
    with pytest.raises(VideoError, match=r"Film number 1\.\*"):
        write_report([run], tmp_path / "page.html", videos=tmp_path)
    assert not (tmp_path / "page.html").exists()


def test_the_command_says_that_films_stay_local(films, results, tmp_path):
    result = run_obygaze("report", results["films"].folder, "--videos", tmp_path / "absent")
    assert result.exit_code == 1
    assert "absent" in result.output
