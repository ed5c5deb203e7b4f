"""Clips that a page plays from local films, in a real browser."""

import time
from collections.abc import Callable

import numpy as np
import pytest

import obygaze_models as om
from obygaze_features.errors import VideoError
from tests.kit.films import write_pictures
from tests.report.conftest import Page

NOW = "document.querySelector('dialog video').currentTime"
PLAYS_S = 30.0


def write_film(path, *, seconds=260, codec="libx264"):
    """Write a film of plain grey, a little lighter each second."""
    greys = (60 + second % 190 for second in range(seconds))
    pictures = (np.full((48, 64, 3), grey, np.uint8) for grey in greys)
    write_pictures(path, pictures, rate=1, b_frames=0, codec=codec)


def wait_for(check: Callable[[], bool], failure: str) -> None:
    until = time.monotonic() + PLAYS_S
    while not check():
        assert time.monotonic() < until, failure
        time.sleep(0.05)


def test_a_clip_plays_at_its_time_until_the_dialog_closes(tab, run2, tmp_path):
    write_film(tmp_path / "reel 0.mp4")
    write_film(tmp_path / "reel 1.avi", codec="mpeg4")
    page = om.report(run2, tmp_path / "page.html", videos=tmp_path)
    assert "=x" in Page(page).data["videos"]["missing"]
    tab.prefer()
    tab.open(page, fragment="#clip=s0-02")
    tab.run("document.querySelector('dialog video').play(); 0")
    wait_for(lambda: tab.run(NOW) >= 20, "the clip plays")
    assert 20 <= tab.run(NOW) < 30
    tab.press("Escape")
    wait_for(lambda: tab.run("document.querySelectorAll('video').length") == 0, "it stops")
    tab.open(page, fragment="#clip=s1-02")
    wait_for(lambda: "cannot play" in tab.text("#clip-body"), "an unknown codec is named")
    assert {url.split(":")[0] for url in tab.requested} <= {"file", "data", "about"}


def test_a_folder_has_films_of_the_page(run2, tmp_path):
    assert "media-src" not in run2.with_suffix(".html").read_text(encoding="utf-8")
    (tmp_path / "Another film.mp4").write_bytes(b"")
    with pytest.raises(VideoError, match="2001"):
        om.report(run2, tmp_path / "page.html", videos=tmp_path)
    assert not (tmp_path / "page.html").exists()
    (tmp_path / "reel 0.mp4").write_bytes(b"")
    page = Page(om.report(run2, tmp_path / "page.html", videos=tmp_path))
    assert {*page.data["videos"]["of"].values()} == {"./reel%200.mp4"}
    assert "media-src file:;" in page.html
