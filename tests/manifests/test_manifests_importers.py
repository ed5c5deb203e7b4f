"""The importers of ObyGaze12, of folders and of any table; and downloads."""

import ast
import csv
import hashlib
import shutil
import sys

import pytest

import obygaze_features as of
from obygaze_features.common.package import reference_json
from obygaze_features.errors import ManifestError, MissingExtra, UsageError
from obygaze_features.items.media import id_from_file, stem_from_id
from obygaze_features.manifests.importers.reading import download_pinned, parse_list
from tests.kit.files import refused, touch, write
from tests.kit.floats import close
from tests.kit.servers import serve


def test_no_column_of_the_source_is_lost(source, tmp_path):
    manifest = of.Manifest.from_obygaze12(source, rule="released")
    assert manifest.items.extra["graph_number"] == ["1", "2", "3", "4", "5", "1"]
    raw = manifest.labels("raw")
    assert raw.extra["raw_label"][3] == "Sure"
    assert raw.extra["raw_concepts"][2] == "['Activities', ' Exp of  emotion']"
    assert raw.ratio == ["1.00"] * 6
    manifest.save(tmp_path / "m")
    assert of.Manifest.load(tmp_path / "m").labels().levels == ["EN", "NS", "S", "HN", "S"]


def test_obygaze12_equals_a_plain_reading(released, small_authors):
    names = {
        "Type of plan": "Type of shot", "Clothes": "Clothing", "Activities": "Activity",
        "Exp of emotion": "Expression of emotion",
    }  # fmt: skip
    with (small_authors / "obygaze12/ObyGaze12_thresh_02.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file, delimiter=";") if row["id"]]
    assert released.ids == [row["id"] for row in rows]
    codes = {"Easy Neg": "EN", "Hard Neg": "HN", "Not Sure": "NS", "Sure": "S"}
    raw, visual = released.labels("raw"), set(released.scheme.visual_concepts)
    paper, released_levels = released.labels("paper").level_of, released.labels("released").level_of
    for row, level, concepts in zip(rows, raw.levels, raw.concepts, strict=True):
        parsed = {" ".join(text.split()) for text in ast.literal_eval(row["concepts"])} - {""}
        assert set(concepts) == {names.get(name, name) for name in parsed}
        seen = bool(visual & set(concepts))
        assert (level, paper[row["id"]]) == (codes[row["label"]], level if seen else "EN")
        assert released_levels.get(row["id"]) == (level if seen or level == "EN" else None)
    assert sum(not name for name in released.items.media) == 8


def test_folder_gives_moviegraphs_ids_in_scene_order(tmp_path, source):
    films = touch(
        tmp_path / "films", "tt0108160/tt0108160_scene_10.avi", "tt0108160/TT0108160_Scene_2.MKV",
        "tt0108160/notes.txt", "tt0108160/.tt0108160_scene_3.avi", "tt0110912_scene_1.mp4",
    )  # fmt: skip
    manifest = of.Manifest.from_folder(films)
    assert manifest.ids == ["tt0108160-002", "tt0108160-010", "tt0110912-001"]
    assert set(manifest.items.films) == {"tt0108160", "tt0110912"}
    # The same items as the annotations', though the files have other extensions.
    annotated = of.Manifest.from_obygaze12(source)
    annotated = annotated.select(ids=[item.id for item in annotated if item.media])
    names = [f"{i.film}/{i.film}_scene_{int(i.id[-3:])}.webm" for i in annotated]
    assert of.Manifest.from_folder(touch(tmp_path / "o", *names)).digest == annotated.digest
    # A recording is a clip if there is no video of its name, and photos stay photos.
    touch(films, "tt0110912_scene_1.wav", "b/song.MP3", "b/song.jpg")
    heard = of.Manifest.from_folder(films).ids
    assert {*heard} - {*manifest.ids} == {"b-song"}
    heard = of.Manifest.from_folder(touch(tmp_path / "h", "a/x.wav", "a/y.flac"))
    assert (heard.ids, heard.items.kinds[0]) == (["a-x", "a-y"], "clip")
    photos = touch(tmp_path / "p", "x.jpg", "y.mp3")
    assert [of.Manifest.from_folder(photos, kind=k).ids for k in (None, "clip")] == [["x"], ["y"]]
    for scene in (1, 99, 100, 1234):
        [identifier, *_] = id_from_file(f"tt0108160_scene_{scene}.avi")
        assert stem_from_id(identifier) == f"tt0108160_scene_{scene}"
    assert id_from_file("tt0108160_scene_x.avi") is None
    assert stem_from_id("anything-else") == "anything-else"


def test_csv_tables_are_imported_with_and_without_labels(tmp_path):
    path = tmp_path / "t.csv"
    mood = of.Manifest.from_csv(
        write(path, "id,level,concepts", "a,calm,rain", 'b,tense,"Rain, dark"'),
        levels=["calm", "uneasy", "tense"],
    )
    assert mood.scheme.codes == ("calm", "uneasy", "tense")
    assert mood.labels().concepts == [("rain",), ("rain", "dark")]
    # The same from a file, the manifest's folder or as a text; a file with concepts has these only.
    mood.save(tmp_path / "m")
    own = write(tmp_path / "set.toml", "levels = ['calm', {code = 'uneasy'}, {name = 'tense'}]")
    for levels in ("calm, uneasy,tense", own, tmp_path / "m", str(tmp_path / "m/manifest.json")):
        assert of.Manifest.from_csv(path, levels=levels).scheme == mood.scheme
    for text, fact in (
        ("levels = ['calm', 'tense']\nconcepts = ['rain']", "line 3: unknown concept 'dark'"),
        ("levels = [", "is not valid TOML: Invalid value"),
        ("concepts = []", "t.toml: the label scheme is malformed .*field `levels`"),
    ):
        with pytest.raises(ManifestError, match=fact):
            of.Manifest.from_csv(path, levels=write(own, text))
    with pytest.raises(ManifestError, match="has no label scheme"):
        of.Manifest.from_csv(path, levels=write(tmp_path / "t.json", "[1]"))
    # Its own delimiter; blank rows left out; b has no level, and so no label.
    manifest = of.Manifest.from_csv(write(path, "id;level;note", ";;", "a;S;x, y", "b;;z"))
    assert (manifest.ids, manifest.labels().level_of) == (["a", "b"], {"a": "S"})
    manifest = of.Manifest.from_csv(write(path, "id,concepts,ratio", "a,Body,0.5"))
    assert manifest.items.extra == {"concepts": ["Body"], "ratio": ["0.5"]}
    manifest = of.Manifest.from_csv(write(path, "id,text,kind", "p1,a person,text"))
    assert (manifest["p1"].text, manifest.label_names) == ("a person", [])
    with pytest.raises(ManifestError, match="line 3: duplicate id 'a'"):
        of.Manifest.from_csv(write(path, "file,from,label", "a.mp4,0,S", "a.mp4,9,S"))
    # Spans without a film belong to the film named like their file; whole files to none.
    rows = ("a walk.mp4,0,9,,S", "a walk.mp4,9,18,tt1,S", "b.mp4,,,,S")
    manifest = of.Manifest.from_csv(write(path, "media,start,end,film,level", *rows))
    assert manifest.items.films == ["a walk", "tt1", ""]


def test_ids_of_spans_do_not_depend_on_other_rows(tmp_path):
    rows = ["a.mp4,0:10,0:20,S", "a.mp4,0,10,EN", "b c.mp4,1:00:00,1:00:10.5,S"]
    path = tmp_path / "t.csv"
    manifest = of.Manifest.from_csv(write(path, "file,start,end,level", *rows))
    assert manifest.ids == ["a-10s", "a-0s", "b_c-3600s"]
    again = of.Manifest.from_csv(write(path, "file,start,end,level", "a.mp4,5,6,", *sorted(rows)))
    assert set(manifest) < set(again)
    assert again.labels().level_of == manifest.labels().level_of
    # Ids of the table are kept.
    own = write(path, "id,file,start,end", "x,a.mp4,0,10", "y,a.mp4,10,20")
    assert of.Manifest.from_csv(own).ids == ["x", "y"]
    with pytest.raises(ManifestError, match="line 3: duplicate id 'a-0s'"):
        of.Manifest.from_csv(write(path, "file,start,end", "a.mp4,0,10", "a.mp4,0,9"))


def test_films_are_cut_into_spans(tmp_path, obygaze, monkeypatch):
    pytest.importorskip("av")
    from obygaze_features.video.synthetic import write_synthetic_dataset

    made = write_synthetic_dataset(tmp_path / "short", scenes=2, titles=["Juno"])
    longer = write_synthetic_dataset(tmp_path / "long", scenes=3, titles=["Juno"])
    for name in ("short", "long"):
        folder = ("import", "folder", tmp_path / name / "videos", "--every", 1.5)
        obygaze("manifests", *folder, "-o", tmp_path / f"m-{name}", code=0)
    short, long = (of.Manifest.load(tmp_path / f"m-{name}") for name in ("short", "long"))
    assert short.ids == ["Juno-0s", "Juno-1.5s", "Juno-3s"]
    assert long.ids == [*short.ids, "Juno-4.5s"]
    assert set(long.items.films) == {"Juno"}
    assert long.items.starts.tolist() == [0, 1.5, 3, 4.5]
    assert short.items.ends.tolist() == close([1.5, 3, 4], 0.1)
    assert long.items.ends.tolist() == close([1.5, 3, 4.5, 6], 0.1)
    assert of.Manifest.from_folder(longer.parent / "videos").ids == ["Juno"]
    with pytest.raises(UsageError, match=r"span is 0.1 s"):
        of.Manifest.from_folder(made.parent / "videos", every=0)
    monkeypatch.setattr("obygaze_features.manifests.importers.folder.MAX_SPANS", 2)
    with pytest.raises(ManifestError, match="use longer spans"):
        of.Manifest.from_folder(made.parent / "videos", every=1)
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(MissingExtra, match="extract"):
        of.Manifest.from_folder(made.parent / "videos", every=1)


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


@pytest.mark.parametrize("name", [
    "x264.mp4", "x264.mkv", "x264.avi", "x264.ts", "x264.flv", "mpeg2.mpg", "vp8.webm",
    "variable.mp4", "open.mkv",
])  # fmt: skip
def test_the_last_span_of_a_film_has_pictures(tmp_path, name):
    pytest.importorskip("av")
    from tests.kit.films import write

    path = write(tmp_path / name, seconds=49 / 24)
    for every in (0.5, 1, 2):
        spans = cut(path, every)
        if name not in {"variable.mp4", "mpeg2.mpg"}:  # longer; its times are not exact
            assert [span.start for span in spans] == [n * every for n in range(round(2 / every))]
            assert spans[-1].end == close(2, 0.1)
        assert pictures_of(path, spans[-1]) > 6 * every


def test_a_film_ends_with_its_last_picture(tmp_path):
    pytest.importorskip("av")
    import numpy as np

    from tests.kit.films import write_pictures, write_sound

    (tmp_path / "loud").mkdir()
    path = write_sound(tmp_path / "loud/film.mp4", "aac", np.zeros(48_000 * 7), pictures=4)
    assert [(span.start, span.end) for span in cut(path, 2)] == [(0, 2), (2, 4)]
    assert [(span.start, span.end) for span in cut(path, 9)] == [(0, 4)]
    path = write_sound(path.with_suffix(".wav"), "pcm_s16le", np.zeros(48_000 * 7))
    (tmp_path / "loud/film.mp4").unlink()
    assert [span.end for span in cut(path, 3)] == [3, 6, 7]

    slides = tmp_path / "slides/film.mkv"  # a picture every four seconds
    slides.parent.mkdir()
    pictures = [np.full((48, 64, 3), shade, np.uint8) for shade in (0, 90, 180)]
    write_pictures(tmp_path / "fast.mkv", pictures, rate=1, b_frames=0)
    slow_down(tmp_path / "fast.mkv", slides, 4)
    spans = cut(slides, 3)
    assert [span.start for span in spans] == [0, 3, 6]
    assert [pictures_of(slides, span) for span in spans] == [1, 1, 1]


def slow_down(source, target, times):
    """Show each picture of a film longer."""
    import av

    with av.open(source) as film, av.open(target, "w") as slow:
        stream = slow.add_stream_from_template(film.streams.video[0])
        for packet in film.demux(video=0):
            if packet.dts is not None:
                packet.pts, packet.dts = packet.pts * times, packet.dts * times
                packet.duration *= times
                packet.stream = stream
                slow.mux(packet)


def test_lists_are_parsed_and_never_evaluated():
    assert parse_list("""['a', "it's", 'don\\'t']""") == ["a", "it's", "don\\'t"]
    for text in ("", "['a' 'b']", "['a']*99", "[open('x')]", "['a', ['b']]"):
        with pytest.raises(ManifestError, match="is not a list such as"):
            parse_list(text)


@pytest.fixture
def address(tmp_path_factory, small_authors):
    folder = tmp_path_factory.mktemp("served")
    shutil.copy(small_authors / "obygaze12/ObyGaze12_thresh_02.csv", folder / "file.csv")
    with serve(folder) as served:
        yield served.url


@pytest.mark.parametrize(("url", "fact"), [
    ("{}/file.csv", "is not the expected file"),
    ("{}/missing.csv", "Not Found"),
    ("file:///etc/passwd", "is not an http address"),
    ("http://127.0.0.1:1/x", "pass its path as SOURCE"),
])  # fmt: skip
def test_unknown_files_are_refused(address, url, fact):
    with pytest.raises(ManifestError, match=fact):
        download_pinned(url.format(address), sha256="0" * 64)


def test_only_the_pinned_file_is_imported(address, tmp_path, monkeypatch, obygaze, small_authors):
    importer = ("manifests", "import", "obygaze12")
    command = (*importer, "-o", tmp_path / "m")
    pinned = reference_json("sources.json")["obygaze12"]
    monkeypatch.setitem(pinned, "url", f"{address}/file.csv")
    refused(obygaze(*command), pinned["sha256"])
    assert not list(tmp_path.iterdir())
    content = (small_authors / "obygaze12/ObyGaze12_thresh_02.csv").read_bytes()
    monkeypatch.setitem(pinned, "sha256", hashlib.sha256(content).hexdigest())
    result = obygaze(*command)
    assert "192 items" in result.output, result.output


def test_a_dataframe_is_read_like_its_csv(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({
        "clip": ["a", "b", "c", "d"], "film": ["x", None, "é, y", "-"], "take": [1, None, 3, 4],
        "start": [0, 1.5, None, "1:00"], "end": [1, 2.25, None, "1:01.5"],
        "label": ["S", "EN", None, "HN"], "concepts": [["Body", "Look"], [], None, "Body|Speech"],
    })  # fmt: skip
    read = of.Manifest.from_pandas(frame, {"id": "clip"}, annotator="Ann", name="mine")
    assert (read.name, read.ids, read.annotators) == ("mine", ["a", "b", "c", "d"], ["Ann"])
    assert read.items.films == ["x", "", "é, y", "-"]
    assert read.items.starts[[0, 1, 3]].tolist() == [0, 1.5, 60]
    assert read.items.extra == {"take": ["1", "", "3", "4"]}
    assert read.labels().level_of == {"a": "S", "b": "EN", "d": "HN"}
    assert read.labels().concepts == [("Body", "Look"), (), ("Body", "Speech")]
    text = frame.assign(concepts=["Body|Look", "", "", "Body|Speech"], take=["1", "", "3", "4"])
    text.to_csv(tmp_path / "mine.csv", index=False)
    table = of.Manifest.from_csv(tmp_path / "mine.csv", {"id": "clip"}, annotator="Ann")
    indexed = of.Manifest.from_pandas(frame.set_index("clip"), {"id": "clip"})
    for manifest in (read, indexed):
        assert (manifest.digest, manifest.items.extra) == (table.digest, table.items.extra)
        assert manifest.labels().level_of == table.labels().level_of
        assert manifest.labels().concepts == table.labels().concepts
    # The checks are the same, too.
    for change, fact in (
        ({"clip": "a"}, "mine, line 3: duplicate id 'a'"),
        ({"start": "soon"}, "mine, line 2: start 'soon' is not a time"),
        ({"label": "?"}, "mine, line 2: .*'?'"),
    ):
        with pytest.raises(ManifestError, match=fact):
            of.Manifest.from_pandas(frame.assign(**change), {"id": "clip"}, name="mine")
    with pytest.raises(ManifestError, match="no column 'id'; the columns are film"):
        of.Manifest.from_pandas(frame[["film"]])
