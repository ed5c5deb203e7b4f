"""Labels as people have them: tables with names of files, put on folders of videos."""

import json
import shlex
from pathlib import Path

import pytest

from obygaze_features.errors import ManifestError, UnknownItem, UsageError, VideoError
from obygaze_features.manifests import Manifest
from obygaze_features.manifests.importers.csv_table import read_labels
from obygaze_features.manifests.media import MediaFolder, locate

FILES = ["S1/ep 1.mp4", "S1/extra/ep 1.mkv", "S2/ep 1.mp4", "alone.mov"]


@pytest.fixture
def films(tmp_path):
    for name in FILES:
        (tmp_path / "films" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "films" / name).write_bytes(b"")
    return tmp_path / "films"


def write(path, *rows, end="\n", encoding="utf-8"):
    path.write_bytes(("\n".join(rows) + end).encode(encoding))
    return path


def found_files(manifest, films):
    result = locate(manifest, films)
    assert (result.missing, result.ambiguous) == ([], {})
    return {i: path.relative_to(films).as_posix() for i, path in result.found.items()}


@pytest.mark.parametrize(
    "header", ["video,label", "file_name,label", "Filename,Level", "PATH,LABEL"]
)
def test_tables_of_file_names_find_their_files(films, tmp_path, header):
    rows = [f"{name},{level}" for name, level in zip(FILES, ["low", "high"] * 2, strict=True)]
    manifest = Manifest.from_csv(
        write(tmp_path / "labels.csv", header, *rows), levels=["low", "high"]
    )
    assert found_files(manifest, films) == dict(zip(manifest.ids, FILES, strict=True))
    assert manifest.ids == ["S1-ep_1", "S1-extra-ep_1", "S2-ep_1", "alone"]
    assert manifest.labels().levels == ["low", "high", "low", "high"]
    # The same items as those of the folder: a store of one fits the other.
    assert set(Manifest.from_folder(films)) == set(manifest)


@pytest.mark.parametrize("columns", [["id=video"], ["id=video", "media=video"], ["media=video"]])
def test_one_column_is_both_id_and_media(films, tmp_path, obygaze, columns):
    source = write(tmp_path / "t.csv", "video,label", *(f"{name},S" for name in FILES))
    options = [word for column in columns for word in ("--column", column)]
    timelines = obygaze("manifests", "import", "csv", source, *options, "-o", tmp_path / "m")
    assert timelines.exit_code == 0, timelines.output
    assert "ids: ep 1.mp4 is S1-ep_1" in timelines.output
    located = obygaze("manifests", "locate", tmp_path / "m", "--videos", films)
    assert (located.exit_code, located.stdout.splitlines()[0]) == (0, "found      4")


def test_plain_ids_find_files_of_their_names(films, tmp_path):
    manifest = Manifest.from_csv(write(tmp_path / "t.csv", "id,label", "alone,S", "my clip 1,EN"))
    (films / "my clip 1.avi").write_bytes(b"")
    assert found_files(manifest, films) == {"alone": "alone.mov", "my_clip_1": "my clip 1.avi"}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_what_spreadsheets_save_is_read(tmp_path, encoding, end):
    rows = ("ID;Level;Start;End", "é;S;0:01:00;00:01:01,5", "b;EN;1:15;75,5")
    with pytest.raises(ManifestError, match="does not exist"):
        Manifest.from_csv(tmp_path / "t.csv")
    manifest = Manifest.from_csv(write(tmp_path / "t.csv", *rows, end=end, encoding=encoding))
    assert [(item.start, item.end) for item in manifest] == [(60, 61.5), (75, 75.5)]
    assert manifest.labels().levels == ["S", "EN"]
    assert Manifest.from_csv(write(tmp_path / "t.csv", "id", "last", end="")).ids == ["last"]


def test_spans_of_one_file_are_numbered(tmp_path):
    rows = ("video,start,end,label", "a.mp4,0:00,1:00,S", "a.mp4,1:00,2:00,EN", "b.mp4,0,9,S")
    manifest = Manifest.from_csv(write(tmp_path / "t.csv", *rows))
    assert manifest.ids == ["a-001", "a-002", "b-001"]
    assert [item.media for item in manifest] == ["a.mp4", "a.mp4", "b.mp4"]


def test_paths_of_other_machines_are_names(tmp_path):
    rows = (
        "path",
        "C:\\clips\\a.mp4",
        "/data/b.mp4",
        "sub\\c.mp4",
        "./d.mp4",
        "tt0000001_scene_2.avi",
    )
    manifest = Manifest.from_csv(write(tmp_path / "t.csv", *rows))
    assert [(item.film, item.media) for item in manifest] == [
        ("", "a.mp4"), ("", "b.mp4"), ("sub", "c.mp4"), ("", "d.mp4"),
        ("tt0000001", "tt0000001_scene_2.avi"),
    ]  # fmt: skip
    assert manifest.ids[-1] == "tt0000001-002"
    with pytest.raises(ManifestError, match=r"line 2: media '\.\./x\.mp4' is not a file's name"):
        Manifest.from_csv(write(tmp_path / "t.csv", "path,film", "../x.mp4,f"))


def test_a_column_that_is_not_mapped_is_kept(tmp_path):
    source = write(tmp_path / "t.csv", "id,name,label", "1,a,S", "2,b,EN")
    manifest = Manifest.from_csv(source, {"id": "name"})
    assert (manifest.ids, manifest.items.extra) == (["a", "b"], {"id (not used)": ["1", "2"]})


def test_names_with_points_need_no_extension(tmp_path):
    names = ["ep.1", "ep.2", "Dr. No", "ep"]
    for name in names:
        (tmp_path / "films").mkdir(exist_ok=True)
        (tmp_path / f"films/{name}.mp4").touch()
    manifest = Manifest.from_csv(write(tmp_path / "t.csv", "video", *names))
    assert manifest.ids == ["ep.1", "ep.2", "Dr._No", "ep"]
    result = found_files(manifest, tmp_path / "films")
    assert list(result.values()) == [f"{name}.mp4" for name in names]


def test_pictures_are_images(tmp_path):
    manifest = Manifest.from_csv(write(tmp_path / "t.csv", "file_name,label", "cats/a.png,S"))
    assert (manifest.items.kinds, manifest.items.films) == (["image"], ["cats"])


def test_folders_are_imported_however_deep(films, tmp_path):
    (films / "S1/extra/back").symlink_to(films)
    (films / "S1/.hidden").mkdir()
    (films / "S1/.hidden/no.mp4").write_bytes(b"")
    manifest = Manifest.from_folder(films)
    assert [(item.id, item.film, item.media) for item in manifest] == [
        ("alone", "", "alone.mov"),
        ("S1-ep_1", "S1", "ep 1.mp4"),
        ("S1-extra-ep_1", "S1", "extra/ep 1.mkv"),
        ("S2-ep_1", "S2", "ep 1.mp4"),
    ]
    manifest.save(tmp_path / "m")
    again = Manifest.load(tmp_path / "m")
    assert again.digest == manifest.digest
    assert sorted(found_files(again, films).values()) == sorted(FILES)
    (films / "S1/extra/ep 1.mkv").unlink()
    with pytest.raises(VideoError, match=r"no video S1/extra/ep 1\.\* under"):
        MediaFolder(films).find(again["S1-extra-ep_1"])


@pytest.mark.parametrize(
    "name", ["{id}", "{path}", "{stem}", "/elsewhere/films/{path}", "C:\\films\\{windows}"]
)
def test_labels_are_added_by_id_file_or_stem(films, tmp_path, obygaze, name):
    (films / "S1/extra/ep 1.mkv").rename(films / "S1/extra/ep 3.mkv")
    (films / "S2/ep 1.mp4").rename(films / "S2/ep 2.mp4")
    folder = tmp_path / "m"
    assert obygaze("manifests", "import", "folder", films, "-o", folder).exit_code == 0
    items = list(Manifest.load(folder))
    rows = []
    for item, level in zip(items, ["low", "high", "low", "high"], strict=True):
        path = Path(item.film, item.media)
        words = {"id": item.id, "path": path.as_posix(), "stem": path.stem}
        words["windows"] = words["path"].replace("/", "\\")
        rows.append(f"{name.format(**words)},{level},x|y,ann")
    source = write(tmp_path / "marks.csv", "Video,Label,concepts,who", *rows, end="")
    done = obygaze("manifests", "label", folder, source, "--levels", "low,high")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(f"4 of 4 items labelled -> {folder}/labels/marks.csv\n")
    labels = Manifest.load(folder).labels()
    assert labels.ids == [item.id for item in items]
    assert (labels.levels, labels.extra) == (["low", "high", "low", "high"], {"who": ["ann"] * 4})
    assert "high         2  50.0%" in obygaze("manifests", "stats", folder).output
    again = obygaze("manifests", "label", folder, source, "--levels", "low,high")
    assert (again.exit_code, "--overwrite" in again.stderr) == (1, True)


def test_labels_say_what_is_missing_on_either_side(films, tmp_path, obygaze):
    folder = tmp_path / "m"
    obygaze("manifests", "import", "folder", films, "-o", folder)
    rows = ("clip,how", "S1/ep 1.mp4,S", "S3/ep 1.mp4,S", "alone,", "gone.mp4,S")
    source = write(tmp_path / "marks.csv", *rows)
    options = ("--column", "id=clip", "--column", "level=how", "--name", "mine")
    done = obygaze("manifests", "label", folder, source, *options)
    assert done.exit_code == 3
    assert "1 of 4 items labelled" in done.stdout
    assert "3 items without a label: alone, S1-extra-ep_1, S2-ep_1" in done.stdout
    assert "2 rows name no item of films: S3/ep 1.mp4, gone.mp4" in done.stdout
    assert Manifest.load(folder).labels("mine").level_of == {"S1-ep_1": "S"}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["video,label", "ep 1.mp4,S"], "line 2: 'ep 1.mp4' matches S1-ep_1, S1.*folders"),
        (["video,label", "alone,S", "alone.mov,S"], "line 3: duplicate id 'alone'$"),
        (["video,label", "alone,calm"], "unknown label 'calm'.*--levels LOW"),
        (["video,label", "alone,tense", "S1/ep 1,calm"], "LOW,...,HIGH; the table has calm, tense"),
        (["video,label", "x.mp4,S"], "no row names an item of films .got x.mp4; it has ids"),
        (["video,tension", "alone,S"], "no column 'level'; say which one is with --column level="),
        (
            ["clip,label", "alone,S"],
            "no column 'id'; say which one is with --column id=NAME .there are clip, label",
        ),
    ],
)
def test_labels_that_do_not_fit(films, tmp_path, rows, message):
    with pytest.raises(ManifestError, match=message):
        read_labels(write(tmp_path / "t.csv", *rows), Manifest.from_folder(films))


def test_locate_says_what_it_searched_for(films, tmp_path, obygaze):
    source = write(tmp_path / "t.csv", "video,film", "a.mp4,Juno", "b.mp4,Juno")
    obygaze("manifests", "import", "csv", source, "-o", tmp_path / "m")
    located = obygaze("manifests", "locate", tmp_path / "m", "--videos", films)
    hint = (
        f"searched for Juno/a.*; {films} has S1/ep 1.mp4, S1/extra/ep 1.mkv, S2/ep 1.mp4 and 1 more"
    )
    assert (located.exit_code, hint in located.stdout) == (3, True)
    facts = obygaze("manifests", "locate", tmp_path / "m", "--videos", films, "--json")
    assert json.loads(facts.stdout)["missing"] == ["Juno-a", "Juno-b"]
    for command in (("features", "probe"), ("features", "extract", "--backbone", "tiny-xclip")):
        result = obygaze(*command, tmp_path / "m", "--videos", films, "-o", tmp_path / "out")
        assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
        assert f"none of the 2 clips of t: {hint}" in result.stderr


def test_locate_refuses_one_file_for_clips_of_two_films(tmp_path, obygaze):
    for season in ("A/s1", "B/s1"):
        (tmp_path / "films" / season).mkdir(parents=True)
        (tmp_path / "films" / season / "1.mp4").write_bytes(b"")
    obygaze("manifests", "import", "folder", tmp_path / "films", "-o", tmp_path / "m")
    inside = tmp_path / "films" / "A"
    for command in (("manifests", "locate"), ("features", "probe")):
        result = obygaze(*command, tmp_path / "m", "--videos", inside)
        assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
        assert (
            f"{inside / 's1' / '1.mp4'} would be the file of A-s1-1 and of B-s1-1" in result.stderr
        )
    located = obygaze("manifests", "locate", tmp_path / "m", "--videos", tmp_path / "films")
    assert located.stdout.startswith("found      2")


def test_the_next_command_is_quoted_for_the_shell(films, tmp_path, obygaze):
    timelines = obygaze("manifests", "import", "folder", films, "-o", tmp_path / "my films")
    _, _, command = timelines.stdout.splitlines()[-1].partition("obygaze ")
    assert shlex.split(command) == ["manifests", "label", str(tmp_path / "my films"), "LABELS.csv"]


def test_several_label_sets_say_how_to_name_one(films, tmp_path, obygaze):
    obygaze("manifests", "import", "folder", films, "-o", tmp_path / "m")
    for name in ("first", "second"):
        table = write(tmp_path / f"{name}.csv", "video,label", "alone,S")
        assert obygaze("manifests", "label", tmp_path / "m", table).exit_code == 0
    result = obygaze("manifests", "split", tmp_path / "m")
    assert (result.exit_code, "first, second; name one (--labels NAME" in result.stderr) == (
        2,
        True,
    )


def test_mistyped_folder_does_not_exist(films, tmp_path, obygaze):
    folder, near = tmp_path / "m", tmp_path / "film"
    obygaze("manifests", "import", "folder", films, "-o", folder)
    for words in (
        ("manifests", "import", "folder", near),
        ("manifests", "locate", folder, "--videos", near),
        ("features", "probe", folder, "--videos", near),
        ("features", "extract", folder, "--videos", near, "--backbone", "tiny-xclip", "-o", "s"),
    ):
        result = obygaze(*words)
        assert result.stderr == f"Error: {near} does not exist; did you mean {films}?\n", words
    table = write(tmp_path / "labels.csv", "video,label", "alone,S")
    result = obygaze("manifests", "label", folder, tmp_path / "lables.csv")
    assert result.stderr.endswith(f"lables.csv does not exist; did you mean {table}?\n")
    result = obygaze("manifests", "stats", tmp_path / "nothing")
    assert f"{tmp_path / 'nothing'} does not exist; give a manifest" in result.stderr
    result = obygaze("manifests", "locate", folder, "--videos", folder / "items.csv")
    assert "items.csv is not a folder; give a folder of videos" in result.stderr


def test_manifests_are_one_line_in_a_notebook(obygaze12):
    words = "Manifest('obygaze12', 1,914 clips of 12 films, 3 label sets, "
    assert repr(obygaze12).startswith(words)
    assert repr(obygaze12.labels()) == (
        "LabelSet('paper', 1,914 items: EN 1,003, HN 309, NS 292, S 310)"
    )
    split = obygaze12.split(obygaze12.split_names[0])
    assert repr(split) == f"Split({split.name!r}, {len(split):,} items in 10 folds)"
    assert (
        repr(obygaze12.items) == "Items(tt0108160-001, tt0108160-002, tt0108160-003 and 1,911 more)"
    )
    assert len(repr(obygaze12.runs(obygaze12.run_names[0]))) < 60
    page = obygaze12._repr_html_()
    assert "EN 1,003, HN 309, NS 292, S 310" in page
    assert len(page) < 3000
    evil = import_csv_named("<script>alert(1)</script>")
    assert "<script>" not in evil._repr_html_()


def import_csv_named(name):
    from obygaze_features.manifests import Item, Items

    return Manifest(name, Items.of([Item("a")]))


def test_select_takes_a_string_as_a_list_of_one(obygaze12):
    for key, value in {
        "levels": "EN", "films": "tt0108160", "concepts": "Look", "ids": "tt0108160-003",
    }.items():  # fmt: skip
        assert obygaze12.select(**{key: value}).ids == obygaze12.select(**{key: [value]}).ids != []
    with pytest.raises(UsageError, match="no item is of the film 'tt01'"):
        obygaze12.select(films="tt01")
    with pytest.raises(UsageError, match="'TT0108160'; did you mean tt0108160"):
        obygaze12.select(films="TT0108160")
    with pytest.raises(UnknownItem, match="did you mean tt0108160-003"):
        obygaze12.select(ids="tt0108160-03")
    with pytest.raises(UnknownItem, match="no item 'tt01'"):
        obygaze12.select(ids="tt01")
