"""The importers of ObyGaze12, of folders and of any table."""

import sys

import pytest

import obygaze_features as of
from obygaze_features.errors import ManifestError, MissingExtra, UsageError
from tests.kit.files import touch, write
from tests.kit.floats import close


def test_obygaze12_is_read_in_three_ways_and_no_column_is_lost(source):
    manifest = of.Manifest.from_obygaze12(source)
    assert manifest.items.extra["graph_number"] == ["1", "2", "3", "4", "5", "1"]
    raw = manifest.labels("raw")
    assert raw.extra["raw_label"][3] == "Sure"
    assert raw.extra["raw_concepts"][2] == "['Activities', ' Exp of  emotion']"
    assert raw.ratio == ["1.00"] * 6
    assert raw.levels == ["EN", "HN", "NS", "S", "HN", "S"]
    assert raw.concepts[2] == ("Expression of emotion", "Activity")
    assert manifest.labels("paper").levels == ["EN", "EN", "NS", "S", "HN", "S"]
    first, _, *rest = manifest.ids
    assert manifest.labels("released").ids == [first, *rest]


def test_a_folder_gives_moviegraphs_items(tmp_path, source):
    """The same items as the annotations', though the files have other extensions."""
    annotated = of.Manifest.from_obygaze12(source)
    annotated = annotated.select(ids=[item.id for item in annotated if item.media])
    for item in annotated:
        scene = int(item.id[-3:])
        touch(tmp_path / "o", f"{item.film}/{item.film}_scene_{scene}.webm")
    assert of.Manifest.from_folder(tmp_path / "o").digest == annotated.digest


def test_a_recording_is_a_clip_without_a_video_of_its_name(tmp_path):
    heard = touch(tmp_path / "heard", "a/x.mp4", "a/x.wav", "b/song.MP3", "b/song.jpg")
    manifest = of.Manifest.from_folder(heard)
    assert (manifest.ids, {*manifest.items.kinds}) == (["a-x", "b-song"], {"clip"})
    photos = touch(tmp_path / "photos", "x.jpg", "y.mp3")
    assert of.Manifest.from_folder(photos).ids == ["x"]
    assert of.Manifest.from_folder(photos, kind="clip").ids == ["y"]


def test_csv_tables_are_imported_with_their_own_levels(tmp_path):
    table = write(tmp_path / "t.csv", "id,level,concepts", "a,calm,rain", 'b,tense,"Rain, dark"')
    mood = of.Manifest.from_csv(table, levels=["calm", "uneasy", "tense"])
    assert mood.scheme.codes == ("calm", "uneasy", "tense")
    assert mood.labels().concepts == [("rain",), ("rain", "dark")]
    # The same from a file, the manifest's folder or as a text; a file with concepts has these only.
    mood.save(tmp_path / "m")
    own = write(tmp_path / "set.toml", "levels = ['calm', {code = 'uneasy'}, {name = 'tense'}]")
    for levels in ("calm, uneasy,tense", own, tmp_path / "m", str(tmp_path / "m/manifest.json")):
        assert of.Manifest.from_csv(table, levels=levels).scheme == mood.scheme
    for text, fact in (
        ("levels = ['calm', 'tense']\nconcepts = ['rain']", "line 3: unknown concept 'dark'"),
        ("levels = [", "is not valid TOML: Invalid value"),
        ("concepts = []", "t.toml: the label scheme is malformed .*field `levels`"),
    ):
        with pytest.raises(ManifestError, match=fact):
            of.Manifest.from_csv(table, levels=write(own, text))
    with pytest.raises(ManifestError, match="has no label scheme"):
        of.Manifest.from_csv(table, levels=write(tmp_path / "t.json", "[1]"))


def read(tmp_path, *rows):
    return of.Manifest.from_csv(write(tmp_path / "t.csv", *rows))


def test_csv_tables_are_imported_with_and_without_labels(tmp_path):
    # Its own delimiter; blank rows left out; b has no level, and so no label.
    manifest = read(tmp_path, "id;level;note", ";;", "a;S;x, y", "b;;z")
    assert (manifest.ids, manifest.labels().level_of) == (["a", "b"], {"a": "S"})
    manifest = read(tmp_path, "id,concepts,ratio", "a,Body,0.5")
    assert manifest.items.extra == {"concepts": ["Body"], "ratio": ["0.5"]}
    manifest = read(tmp_path, "id,text,kind", "p1,a person,text")
    assert (manifest["p1"].text, manifest.label_names) == ("a person", [])
    with pytest.raises(ManifestError, match="line 3: duplicate id 'a'"):
        read(tmp_path, "file,from,label", "a.mp4,0,S", "a.mp4,9,S")
    # Spans without a film belong to the film named like their file; whole files to none.
    rows = ("a walk.mp4,0,9,,S", "a walk.mp4,9,18,tt1,S", "b.mp4,,,,S")
    manifest = read(tmp_path, "media,start,end,film,level", *rows)
    assert manifest.items.films == ["a walk", "tt1", ""]


def test_ids_of_spans_do_not_depend_on_other_rows(tmp_path):
    rows = ["a.mp4,0:10,0:20,S", "a.mp4,0,10,EN", "b c.mp4,1:00:00,1:00:10.5,S"]
    manifest = read(tmp_path, "file,start,end,level", *rows)
    assert manifest.ids == ["a-10s", "a-0s", "b_c-3600s"]
    again = read(tmp_path, "file,start,end,level", "a.mp4,5,6,", *sorted(rows))
    assert set(manifest) < set(again)
    assert again.labels().level_of == manifest.labels().level_of
    # Ids of the table are kept.
    own = read(tmp_path, "id,file,start,end", "x,a.mp4,0,10", "y,a.mp4,10,20")
    assert own.ids == ["x", "y"]


def test_films_are_cut_into_spans(tmp_path, monkeypatch):
    pytest.importorskip("av")
    from tests.kit.films import write

    (tmp_path / "Juno").mkdir()
    film = tmp_path / "Juno/x264.mp4"
    short = of.Manifest.from_folder(write(film, seconds=4).parents[1], every=1.5)
    long = of.Manifest.from_folder(write(film, seconds=6).parents[1], every=1.5)
    assert short.ids == ["Juno-x264-0s", "Juno-x264-1.5s", "Juno-x264-3s"]
    assert long.ids == [*short.ids, "Juno-x264-4.5s"]
    assert set(long.items.films) == {"Juno"}
    assert long.items.starts.tolist() == [0, 1.5, 3, 4.5]
    assert short.items.ends.tolist() == close([1.5, 3, 4], 0.1)
    assert of.Manifest.from_folder(tmp_path).ids == ["Juno-x264"]
    with pytest.raises(UsageError, match=r"span is 0.1 s"):
        of.Manifest.from_folder(tmp_path, every=0)
    monkeypatch.setattr("obygaze_features.manifests.importers.folder.MAX_SPANS", 2)
    with pytest.raises(ManifestError, match="use longer spans"):
        of.Manifest.from_folder(tmp_path, every=1)
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(MissingExtra, match="extract"):
        of.Manifest.from_folder(tmp_path, every=1)


def pictures_of(path, span):
    """Count the pictures that a plain decoder shows in a span."""
    import av

    with av.open(path) as container:
        begin = (container.start_time or 0) / 1e6 * (container.format.name != "avi")
        times = [frame.time - begin for frame in container.decode(video=0)]
    return sum(span.start - 1e-6 <= time < span.end - 1e-6 for time in times)


def cut(path, every):
    """Cut the only film of a folder."""
    return [*of.Manifest.from_folder(path.parent, every=every)]


FILMS = ["x264.mp4", "x264.mkv", "x264.avi", "x264.ts", "x264.flv", "vp8.webm", "open.mkv"]
FILMS += ["mpeg2.mpg", "variable.mp4"]  # longer, or with inexact times


@pytest.mark.parametrize("name", FILMS)
def test_the_last_span_of_a_film_has_pictures(tmp_path, name):
    pytest.importorskip("av")
    from tests.kit.films import write

    path = write(tmp_path / name, seconds=49 / 24)
    for every in (0.5, 1, 2):
        assert pictures_of(path, cut(path, every)[-1]) > 6 * every


def test_a_film_ends_with_its_last_picture(tmp_path):
    pytest.importorskip("av")
    import numpy as np

    from tests.kit.films import write_pictures, write_sound

    path = write_sound(tmp_path / "film.mp4", "aac", np.zeros(48_000 * 7), pictures=4)
    first, second = cut(path, 2)
    assert (first.start, first.end) == (0, 2)
    assert (second.start, second.end) == (2, 4)
    [whole] = cut(path, 9)
    assert (whole.start, whole.end) == (0, 4)
    path.unlink()
    path = write_sound(tmp_path / "film.wav", "pcm_s16le", np.zeros(48_000 * 7))
    assert [span.end for span in cut(path, 3)] == [3, 6, 7]
    path.unlink()
    # No picture begins in its last half second.
    black = np.zeros((3, 48, 64, 3), np.uint8)
    write_pictures(path.with_suffix(".mkv"), black, rate=1, b_frames=0)
    assert [span.start for span in cut(path, 0.5)] == [0, 0.5, 1, 1.5, 2]


def test_a_dataframe_is_read_like_its_csv(tmp_path):
    pd = pytest.importorskip("pandas")
    rows = [
        ["a", "x", 1, 0, 1, "S", ["Body", "Look"]],
        ["b", None, None, 1.5, 2.25, "EN", []],
        ["c", "é, y", 3, None, None, None, None],
        ["d", "-", 4, "1:00", "1:01.5", "HN", "Body|Speech"],
    ]
    columns = ["clip", "film", "take", "start", "end", "label", "concepts"]
    frame = pd.DataFrame(rows, columns=columns).set_index("clip")
    made = of.Manifest.from_pandas(frame, {"id": "clip"}, annotator="Ann")
    assert (made.name, made.annotators) == ("frame", ["Ann"])
    assert made.labels().concepts == [("Body", "Look"), (), ("Body", "Speech")]
    text = frame.assign(concepts=["Body|Look", "", "", "Body|Speech"], take=["1", "", "3", "4"])
    text.to_csv(tmp_path / "frame.csv")
    table = of.Manifest.from_csv(tmp_path / "frame.csv", {"id": "clip"}, annotator="Ann")
    assert (made.items.to_csv(), made.scheme) == (table.items.to_csv(), table.scheme)
    assert made.labels().to_csv() == table.labels().to_csv()
    with pytest.raises(ManifestError, match="frame, line 2: start 'soon' is not a time"):
        of.Manifest.from_pandas(frame.assign(start="soon"), {"id": "clip"})
