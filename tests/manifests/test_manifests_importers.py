"""The importers of MObyGaze, of folders and of any table."""

import csv

import pytest

from obygaze_features.errors import ManifestError, UsageError
from obygaze_features.manifests import Manifest
from obygaze_features.manifests.importers.reading import parse_list
from obygaze_features.manifests.media import id_from_file, stem_from_id

MOBYGAZE_HEADER = (
    ";clip_index;movie_id;annotator;label;concepts;comment;start_frame;end_frame;imdb_key;"
    "movie_title;framerate;subtitle;start_clip;end_clip"
)


def segment(annotator, label, concepts, first, last, rate=25):
    return (
        f"0;id_0;48;{annotator};{label};{concepts};['why'];{first};{last};tt0097576;A Film;{rate};"
        '"words; ""quoted""";0;1'
    )


def mobygaze(tmp_path, *rows):
    path = tmp_path / "mobygaze.csv"
    path.write_text("\n".join([MOBYGAZE_HEADER, *rows, ""]))
    return path


def test_mobygaze_frames_become_seconds_by_the_rows_own_rate(tmp_path):
    source = mobygaze(
        tmp_path,
        segment("annotator1", "Easy Negative", "[]", 0, 49),
        segment("annotator1", "Sure", "['Clothing', 'Exp of emotion']", 50, 74),
        segment("annotator2", "Not sure", "['Clothes']", 0, 47, 23.976),
    )
    manifest = Manifest.from_mobygaze(source)
    assert manifest.ids == [
        "tt0097576-annotator1-0001", "tt0097576-annotator1-0002", "tt0097576-annotator2-0001",
    ]  # fmt: skip
    spans = [(item.start, item.end) for item in manifest]
    assert spans == [(0, 2), (2, 3), (0, 2.002002)]
    assert {item.media for item in manifest} == {"tt0097576"}
    labels = manifest.labels()
    assert labels.levels == ["EN", "S", "NS"]
    assert labels.concepts == [(), ("Clothing", "Expression of emotion"), ("Clothing",)]
    assert labels.extra["subtitle"][0] == 'words; "quoted"'
    assert "subtitle" not in manifest.items.extra
    assert manifest.items.extra["clip_index"] == ["id_0"] * 3
    assert manifest.notes == []


def test_mobygaze_keeps_concepts_that_it_does_not_list(tmp_path, obygaze):
    source = mobygaze(tmp_path, segment("a", "Sure", "['Lighting', 'Body']", 0, 1))
    result = obygaze("manifests", "import", "mobygaze", source, "-o", tmp_path / "m")
    assert "concepts that its thesaurus does not list, kept: Lighting" in result.output
    manifest = Manifest.load(tmp_path / "m")
    assert manifest.labels().concepts == [("Body", "Lighting")]
    assert manifest.scheme is not None
    assert "Lighting" not in manifest.scheme.visual_concepts


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (segment("a", "Sure", "[]", 0, 9, 0), "line 2: framerate '0' is not above 0"),
        (segment("a", "Sure", "[]", 0, 9, ""), "line 2: framerate '' is not a number"),
        (segment("a", "Sure", "[]", 9, 3), "ends (frame 3) before it starts (9)"),
        (segment("a", "Maybe", "[]", 0, 9), "unknown label 'Maybe'"),
        (segment("a b", "Sure", "[]", 0, 9), "line 2: id 'tt0097576-a b-0001' is not allowed"),
        (segment("a", "Sure", "[]", "nan", 9), "line 2: start_frame 'nan' is not a number"),
        (segment("a", "Sure", "['Body|Look']", 0, 9), "'Body|Look' cannot name a concept"),
    ],
)
def test_mobygaze_names_the_row(tmp_path, row, message):
    with pytest.raises(ManifestError) as caught:
        Manifest.from_mobygaze(mobygaze(tmp_path, row))
    assert message in str(caught.value)


def test_mobygaze_sample(authors):
    path = authors / "mobygaze" / "sample_120_rows.csv"
    manifest = Manifest.from_mobygaze(path)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter=";"))
    assert len(manifest) == len(rows) == 120
    names = {"Easy Negative": "EN", "Hard Negative": "HN", "Sure": "S"}
    assert manifest.labels().levels == [names[row["label"]] for row in rows]
    for item, row in zip(manifest, rows, strict=True):
        assert item.start == pytest.approx(int(row["start_frame"]) / 23.976, abs=1e-6)
        assert item.end == pytest.approx((int(row["end_frame"]) + 1) / 23.976, abs=1e-6)


def films(tmp_path, *names):
    root = tmp_path / "films"
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")
    return root


def test_folder_gives_moviegraphs_ids_in_scene_order(tmp_path):
    root = films(
        tmp_path,
        "tt0108160/tt0108160_scene_10.avi",
        "tt0108160/tt0108160_scene_2.MKV",
        "tt0108160/notes.txt",
        "tt0108160/.tt0108160_scene_3.avi",
        "tt0110912_scene_1.mp4",
    )
    manifest = Manifest.from_folder(root, ids="moviegraphs")
    assert manifest.ids == ["tt0108160-002", "tt0108160-010", "tt0110912-001"]
    assert manifest["tt0108160-002"].film == "tt0108160"
    assert Manifest.from_folder(root).digest == manifest.digest


def test_folder_ignores_case_and_keeps_other_scripts_apart(tmp_path):
    root = films(tmp_path, "TT0108160/TT0108160_Scene_2.AVI")
    assert Manifest.from_folder(root).ids == ["tt0108160-002"]
    manifest = Manifest.from_folder(
        films(tmp_path / "other", "кино 1.mp4", "фильм 1.mp4", "映画.mp4")
    )
    assert len(set(manifest.ids)) == 3
    assert all(identifier.isascii() for identifier in manifest.ids)


def test_folder_and_annotations_mean_the_same_items(source, tmp_path):
    """The same clips from the authors' file and from a folder of other extensions."""

    annotated = Manifest.from_obygaze12(source)
    annotated = annotated.select(ids=[item.id for item in annotated if item.media])
    names = [f"{i.film}/{i.film}_scene_{int(i.id[-3:])}.webm" for i in annotated]
    assert Manifest.from_folder(films(tmp_path, *names)).digest == annotated.digest


def test_folder_of_anybodys_films(tmp_path):
    root = films(tmp_path, "Ma vie/scène 1.mp4", "Ma vie/scène 2.mp4", "alone.mov")
    manifest = Manifest.from_folder(root)
    assert manifest.ids == ["alone", "Ma_vie-scene_1", "Ma_vie-scene_2"]
    assert manifest["Ma_vie-scene_1"].media == "scène 1.mp4"
    assert manifest["Ma_vie-scene_1"].film == "Ma vie"


@pytest.mark.parametrize(
    ("names", "ids", "message"),
    [
        (["a/x.mp4", "a/x.avi"], None, "would both be 'a-x'; keep one of them"),
        (["a/x.mp4"], "moviegraphs", "is not named as MovieGraphs names clips"),
        (["tt0000001/tt0000002_scene_1.mp4"], None, "a clip of tt0000002 in the folder of tt0000"),
        (["a/readme.txt"], None, "holds no videos"),
        (["a/tt0000001_scene_1.mp4"], None, "a clip of tt0000001 in the folder of a; use --ids"),
        (["tt0000001_scene_1.mp4", "trailer.mp4"], None, "1 of 2 files are named as MovieGraphs"),
    ],
)
def test_folder_says_what_is_wrong(tmp_path, names, ids, message):
    with pytest.raises(ManifestError) as caught:
        Manifest.from_folder(films(tmp_path, *names), ids=ids)
    assert message in str(caught.value)


def table(tmp_path, text):
    path = tmp_path / "table.csv"
    path.write_text(text)
    return path


def test_csv_with_a_mapping(tmp_path, obygaze):
    source = table(
        tmp_path,
        "clip;video;how sure;what;from;to;who\n"
        "c1;c1.mp4;Sure;Body|Look;0;1.5;ann\n"
        "c2;c2.mp4;Easy Negative;;1.5;4;bob\n",
    )
    arguments = [
        "id=clip",
        "media=video",
        "level=how sure",
        "concepts=what",
        "start=from",
        "end=to",
    ]
    columns = [part for argument in arguments for part in ("--column", argument)]
    result = obygaze(
        "manifests", "import", "csv", source, "--delimiter", ";", *columns, "-o", tmp_path / "m"
    )
    assert result.exit_code == 0, result.output
    manifest = Manifest.load(tmp_path / "m")
    assert [(i.id, i.media, i.start, i.end) for i in manifest] == [
        ("c1", "c1.mp4", 0, 1.5), ("c2", "c2.mp4", 1.5, 4),
    ]  # fmt: skip
    assert manifest.labels().level_of == {"c1": "S", "c2": "EN"}
    assert manifest.labels().concepts_of["c1"] == ("Body", "Look")
    assert manifest.items.extra == {"who": ["ann", "bob"]}


def test_csv_with_levels_of_its_own(tmp_path):
    source = table(tmp_path, "id,level,concepts\na,calm,rain\nb,tense,rain|dark\n")
    with pytest.raises(
        ManifestError, match=r"line 2: unknown label 'calm'.*HIGH; the table has calm, tense"
    ):
        Manifest.from_csv(source)
    manifest = Manifest.from_csv(source, levels=["calm", "uneasy", "tense"])
    assert manifest.scheme.codes == ("calm", "uneasy", "tense")
    assert manifest.labels().concepts == [("rain",), ("rain", "dark")]
    with pytest.raises(ManifestError, match="two levels are called 'Calm'"):
        Manifest.from_csv(source, levels=["calm", "Calm"])


def test_csv_finds_its_delimiter_and_leaves_out_blank_rows(tmp_path):
    source = table(tmp_path, "id;level;note\n;;\na;S;x, y\nb;;z\n")
    manifest = Manifest.from_csv(source)
    assert manifest.ids == ["a", "b"]
    assert manifest.labels().level_of == {"a": "S"}  # b has no level, and so no label
    source.write_text("id;level\n;\na;S\nb;\nc;Q\n")
    with pytest.raises(ManifestError, match="line 5: unknown label 'Q'"):
        Manifest.from_csv(source)


def test_csv_without_levels_keeps_label_columns(tmp_path):
    manifest = Manifest.from_csv(table(tmp_path, "id,concepts,ratio\na,Body,0.5\n"))
    assert manifest.items.extra == {"concepts": ["Body"], "ratio": ["0.5"]}


def test_csv_without_labels(tmp_path):
    manifest = Manifest.from_csv(table(tmp_path, "id,text,kind\np1,a person,text\n"))
    assert manifest["p1"].text == "a person"
    assert manifest.label_names == []


@pytest.mark.parametrize(
    ("text", "mapping", "message"),
    [
        ("clip,x\na,1\n", {}, "no column 'id'; say which one is with --column id=NAME"),
        ("id,x\na,1\n", {"film": "movie"}, "no column 'movie'; there are id, x"),
        ("id,x\na,1\n", {"colour": "x"}, "unknown meaning 'colour'; known are id, kind"),
        ("id,start,end\na,1,0.5\n", {}, "line 2: a span from 1 to 0.5 seconds does not go forward"),
        ("id,start,end\na,1,\n", {}, "line 2: a span needs both start and end"),
        (
            "id,start,end\na,one,2\n",
            {},
            "line 2: start 'one' is not a time; write seconds or h:mm:ss",
        ),
        ("id,start,end\na,0:00:00,0:61:00\n", {}, "line 2: end '0:61:00' is not a time; write sec"),
        ("id,kind\na,song\n", {}, "line 2: unknown kind 'song'"),
        ("id,start,end\na,0,1e-9\n", {}, "does not go forward"),
        ("id,start,end\na,0,1e303\n", {}, "end '1e303' is not a time in a film"),
        ("id,start,end\na,nan,nan\n", {}, "start 'nan' is not a time"),
        ("\n\n", {}, "has no header, only empty lines"),
    ],
)
def test_csv_says_what_is_wrong(tmp_path, text, mapping, message):
    with pytest.raises((ManifestError, UsageError)) as caught:
        Manifest.from_csv(table(tmp_path, text), mapping)
    assert message in str(caught.value)


def test_names_of_moviegraphs():
    for scene in (1, 99, 100, 1234):
        result = id_from_file(f"tt0108160_scene_{scene}.avi")
        assert result is not None
        assert stem_from_id(result[0]) == f"tt0108160_scene_{scene}"
    assert id_from_file("tt0108160_scene_x.avi") is None
    assert stem_from_id("anything-else") is None


def test_lists_are_parsed_and_never_evaluated():
    assert parse_list("""['a', "it's", 'don\\'t']""") == ["a", "it's", "don\\'t"]
    for text in ("", "Body", "['a' 'b']", "[1]", "['a']*99", "[open('x')]", "['a', ['b']]"):
        with pytest.raises(ManifestError, match="is not a list such as"):
            parse_list(text)
