"""Subtitles: the words of each clip, from SRT and WebVTT."""

import codecs

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import obygaze_features as of
from obygaze_features.manifests import Item, Items

# A property draws subtitles, for which a folder and a command would take too long.
from obygaze_features.manifests.subtitles import with_subtitles
from tests.kit.files import write

JUNO = "tt0467406"
TITANIC = "tt0120338"
SRT = """1
00:00:01,000 --> 00:00:02,500
<i>Look</i> at
her!

2
00:00:58,000 --> 00:01:01,000
Mostly before the minute.

3
0:01:05.5 --> 0:01:06.0 align:start
{\\an8}Caf\u00e9 &amp; bar
"""
BROKEN = """
4
00:00:02,000 -> 00:00:05,000
LOST

5
00:00:30,000 --> 00:00:27,000
LOST

99999:00:01,000 --> 99999:00:02,000
LOST
"""
WORDS = ["Look at her! Mostly before the minute.", "Caf\u00e9 & bar", ""]


@pytest.fixture
def films():
    items = []
    for film in (JUNO, TITANIC):
        media = f"{film} d\u00edsc.mp4"
        for n in range(3):
            minute = Item(f"{film}-{n}", film=film, media=media, start=60 * n, end=60 * n + 60)
            items.append(minute)
    return of.Manifest("films", Items.of(items, {"movie_title": ["Junon"] * 6}))


FILES = [
    (f"{JUNO}.srt", SRT.encode()),
    (f"{JUNO} di\u0301sc.srt", SRT.encode()),  # as its video, from a Mac
    ("juno.en.srt", codecs.BOM_UTF8 + SRT.replace("\n", "\r\n").encode()),
    ("a/b/JUNO.srt", SRT.encode("utf-16")),
    ("juno.srt", SRT.encode("latin-1")),
    ("juno.srt", SRT.replace("\n\n", "\n").encode()),
    ("Juno (2007).VTT", b"WEBVTT\n\nNOTE no --> words\n\n" + SRT.encode()),
]


@pytest.mark.parametrize(("name", "data"), FILES)
def test_each_clip_gets_its_words(films, tmp_path, name, data):
    write(tmp_path / name).write_bytes(data)
    words = with_subtitles(films, tmp_path)
    assert words.ids == [clip for clip in films.ids if clip.startswith(JUNO)]
    assert set(words.items.kinds) == {"text"}
    assert words.items.texts == WORDS
    assert words.items.extra == {"movie_title": ["Junon"] * 3}
    [note] = words.notes
    assert note.startswith(f"{TITANIC}: no subtitles")
    later = with_subtitles(films, tmp_path, shift=60)
    assert later.items.texts[:3] == ["", *WORDS[:2]]


def test_the_windows_ellipsis_ends_no_row(films, tmp_path):
    line = b"1\r\n00:00:01,000 --> 00:00:02,000\r\nWait\x85\r\nJe t\x92aime\r\n"
    (tmp_path / "juno.srt").write_bytes(line)
    assert with_subtitles(films, tmp_path).items.texts[0] == "Wait\u2026 Je t\u2019aime"


def test_each_unusable_file_is_named_on_a_line(films, tmp_path, obygaze):
    folder = tmp_path / "srt"
    late = SRT.replace("0:01:05.5", "9:01:05.5").replace("0:01:06.0", "9:01:06.0")
    files = {
        "Juno.srt": late,
        "titanic.srt": "no lines at all",
        "alien.srt": SRT,
        "tt0467406.srt": SRT,
        "tt0120338 d\u00edsc.srt": SRT + BROKEN,
    }
    for name, text in files.items():
        write(folder / name, text)
    (folder / "tt0120338.vtt").write_bytes(b"\x00\x01--> " * 9)
    films.save(tmp_path / "films")
    command = ("manifests", "subtitles", tmp_path / "films", folder, "-o", tmp_path / "words")
    *files, late = sorted(obygaze(*command, code=3).stderr.splitlines())
    names = [line.partition(" is not used: ")[0] for line in files]
    assert names == ["alien.srt", "titanic.srt", f"{TITANIC}.vtt", f"{JUNO}.srt"]
    assert late.startswith(f"{JUNO}: subtitles in no clip: 1 of 3.")
    assert "--shift SECONDS" in late
    words = of.Manifest.load(tmp_path / "words")
    assert words.items.texts == [WORDS[0], "", "", *WORDS]


def clock(centiseconds):
    return f"00:00:{centiseconds // 100:02d},{centiseconds % 100:02d}0"


LINE = st.tuples(st.integers(0, 1500), st.integers(0, 400))


@given(
    st.lists(LINE, min_size=1, max_size=8), st.lists(st.integers(1, 500), min_size=1, max_size=6)
)
def test_a_subtitle_belongs_to_the_clip_with_most_of_it(tmp_path_factory, lines, lengths):
    """Compare with brute force over centiseconds, on consecutive clips."""
    items = []
    start = 0.0
    for n, end in enumerate(np.cumsum(lengths) / 100):
        items.append(Item(f"c{n}", film="f", media="f", start=start, end=float(end)))
        start = float(end)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    text = ""
    expected = [set() for _ in lengths]
    for number, (start, long) in enumerate(lines):
        text += f"{clock(start)} --> {clock(start + long)}\nword{number}\n\n"
        heard = owner[start : start + max(long, 1)]
        if heard.size:
            expected[np.bincount(heard).argmax()].add(f"word{number}")
    path = write(tmp_path_factory.mktemp("srt") / "f.srt", text)
    manifest = of.Manifest("f", Items.of(items))
    if not any(expected):
        with pytest.raises(of.ObygazeError, match=r"no clip of f.* has any words"):
            with_subtitles(manifest, path)
        return
    words = with_subtitles(manifest, path)
    assert [set(text.split()) for text in words.items.texts] == expected


def test_overlapping_clips_share_a_subtitle(tmp_path):
    spans = [("first", 0, 10), ("second", 1, 12), ("next", 12, 20)]
    items = [Item(i, film="f", media="f", start=a, end=b) for i, a, b in spans]
    path = write(tmp_path / "f.srt", "00:00:03,000 --> 00:00:04,000\nboth")
    words = with_subtitles(of.Manifest("f", Items.of(items)), path)
    assert words.items.texts == ["both", "both", ""]
