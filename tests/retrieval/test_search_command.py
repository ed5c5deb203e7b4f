"""`obygaze stores search`, and the page that it writes."""

from __future__ import annotations

import base64
import csv
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

import obygaze_features as of
from obygaze_features.retrieval.page import matches_page
from obygaze_features.store.nearest import Match
from tests.retrieval.conftest import TOY, make_search_store

JPEG = b"\xff\xd8\xff\xe0 not much of a picture"


class Page(HTMLParser):
    """Collects a page's elements and text."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


@pytest.fixture
def thumbnails(source, tmp_path):
    folder = tmp_path / "thumbs"
    folder.mkdir()
    for item_id in source.ids[:20]:
        (folder / f"{item_id}.jpg").write_bytes(JPEG)
    (folder / "NOT-TO-BE-SHARED.txt").write_text("Share <neither> of these.\n")
    return folder


def test_the_command_gives_what_python_finds(obygaze, source, tmp_path):
    result = obygaze("stores", "search", source.path, "--like", "tt1-003", "--top", 3)
    assert result.exit_code == 0, result.output
    matches = of.search(source.path, like="tt1-003", top=3)
    lines = result.stdout.splitlines()
    assert [line.split()[1] for line in lines[2:5]] == [match.id for match in matches]
    assert lines[5] == f"next: obygaze stores search {source.path} --like {matches[0].id}"

    np.save(tmp_path / "q.npy", np.ones(32))
    matches = of.search(source.path, vector=np.ones(32), films=["tt1", "tt3"], frames=True, top=4)
    search = ["stores", "search", source.path, "--vector", tmp_path / "q.npy", "--films",
              "tt1,tt3", "--frames", "--top", 4]  # fmt: skip
    rows = json.loads(obygaze(*search, "--json").stdout)
    assert [(row["id"], row["time"]) for row in rows] == [(m.id, m.time) for m in matches]
    obygaze(*search, "-o", tmp_path / "m.csv")
    with (tmp_path / "m.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == [match.id for match in matches]
    assert rows[0]["cosine"] == f"{matches[0].cosine:.6f}"
    again = obygaze(*search, "-o", tmp_path / "m.csv")
    assert (again.exit_code, "--overwrite" in again.output) == (1, True)


def test_page_shows_thumbnails_and_asks_nobody(obygaze, source, thumbnails, tmp_path):
    output = tmp_path / "page.html"
    result = obygaze(
        "stores", "search", source.path, "--like", "tt1-003", "--top", 40, "-o", output,
        "--thumbnails", thumbnails,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    page = Page(output.read_text())
    pictures = [attributes["src"] for tag, attributes in page.elements if tag == "img"]
    matches = of.search(source.path, like="tt1-003", top=40)
    shown = {"tt1-003", *(match.id for match in matches)} & {*source.ids[:20]}
    assert pictures == [f"data:image/jpeg;base64,{base64.b64encode(JPEG).decode()}"] * len(shown)
    assert "Share <neither> of these." in page.text
    first, nearest = re.findall("<li>.*?</li>", output.read_text(), re.S)[:2]
    assert "tt1-003" in first
    assert "<img" in first
    assert f"cosine {matches[0].cosine:.4f}" in nearest
    policy = next(a["content"] for _, a in page.elements if "http-equiv" in a)
    assert "default-src 'none'" in policy
    assert not re.findall(r"https?://|url\(", output.read_text())


@pytest.mark.parametrize("command", ["search", "map"])
def test_random_weights_give_one_warning(obygaze, tmp_path, command):
    note = "random weights, trained on nothing"
    backbone = {**TOY, "config": {"synthetic": note}}
    path = make_search_store(tmp_path / "s.zarr", backbone=backbone).path
    ask = {"search": ["--like", "tt1-003"], "map": ["-o", tmp_path / "map.html"]}[command]
    result = obygaze("stores", command, path, *ask)
    assert result.exit_code == 0, result.output
    assert result.stderr == f"WARNING: the cosines mean nothing: {path} has {note}\n"


def test_page_escapes_what_it_shows():
    nasty = "<script>alert('&')</script>"
    page = Page(matches_page(nasty, [Match("a", nasty, "s", 0.5, 1, 61.5)]))
    assert "script" not in {tag for tag, _ in page.elements}
    assert page.text.count(nasty) == 3
    assert "0:01:01.5" in page.text


LIKE = ["--like", "tt1-000"]
SLIPS = [
    ([*LIKE, "-o", "x.txt"], "x.txt: matches are saved as .csv, .html, .json"),
    ([*LIKE, "--thumbnails", "t"], "-o PAGE.html"),
    ([*LIKE, "-o", "x.csv", "--thumbnails", "t"], "give a name in .html"),
    ([*LIKE, "-o", "x.html", "--thumbnails", "t"], "t is not a folder"),
    ([], "one of the three"),
    (["--text", "x", "--like", "y"], "one of the three"),
]


def test_bad_options_are_one_line(obygaze, source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for options, facts in SLIPS:
        result = obygaze("stores", "search", source.path, *options)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
        assert facts in result.stderr
    (tmp_path / "a.jpg").write_bytes(b"GIF89a")
    for clip, facts in (("a", r"a\.jpg is not a JPEG"), ("b", "no picture of any match")):
        with pytest.raises(of.ObygazeError, match=facts):
            matches_page("t", [Match(clip, "", "s", 0.5)], tmp_path)
