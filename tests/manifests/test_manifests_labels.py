"""Labels as users have them: tables of file names for folders of videos."""

from pathlib import Path

import pytest

import obygaze_features as of

# Which file is found for each clip, which commands only count.
from obygaze_features.items.media import locate
from tests.kit.files import refused, touch, write

FILES = ["S1/ep 1.mp4", "S1/extra/ep 1.mkv", "S2/ep 2.mp4", "alone.mov"]


@pytest.fixture
def films(tmp_path):
    return touch(tmp_path / "films", *FILES)


def from_rows(tmp_path, *rows, **options):
    return of.Manifest.from_csv(write(tmp_path / "t.csv", *rows), **options)


def located(manifest, films):
    result = locate(manifest, films)
    assert (result.missing, result.ambiguous) == ([], {})
    return {i: path.relative_to(films).as_posix() for i, path in result.found.items()}


@pytest.mark.parametrize("header", ["video,label", "Filename,Level", "PATH,LABEL"])
def test_tables_of_file_names_find_their_files(films, tmp_path, header):
    rows = map("{},{}".format, FILES, ["low", "high"] * 2)
    manifest = from_rows(tmp_path, header, *rows, levels=["low", "high"])
    assert located(manifest, films) == dict(zip(manifest.ids, FILES, strict=True))
    assert manifest.ids == ["S1-ep_1", "S1-extra-ep_1", "S2-ep_2", "alone"]
    assert manifest.labels().levels == ["low", "high", "low", "high"]
    # The items are the same as in the folder, so a store for one fits the other.
    assert set(of.Manifest.from_folder(films)) == set(manifest)


def test_names_of_files_become_ids(films, tmp_path):
    manifest = from_rows(tmp_path, "id,label", "alone,S", "my clip 1,EN")
    touch(films, "my clip 1.avi")
    assert located(manifest, films) == {"alone": "alone.mov", "my_clip_1": "my clip 1.avi"}
    # Paths of other machines are names.
    paths = ("C:\\clips\\a.mp4", "/data/b.mp4", "sub\\c.mp4", "./d.mp4", "tt0000001_scene_2.avi")
    manifest = from_rows(tmp_path, "path", *paths)
    assert [item.film for item in manifest] == ["", "", "sub", "", "tt0000001"]
    assert [i.media for i in manifest] == ["a.mp4", "b.mp4", "c.mp4", "d.mp4", paths[-1]]
    assert manifest.ids[-1] == "tt0000001-002"
    manifest = from_rows(tmp_path, "id,name,label", "1,a,S", "2,b,EN", columns={"id": "name"})
    assert manifest.ids == ["a", "b"]
    assert manifest.items.extra == {"id (not used)": ["1", "2"]}
    made = from_rows(tmp_path, "film,start,end", "a.1,0,4", "a.2,0,4", columns={"media": "film"})
    assert made.items.films == made.items.media == ["a.1", "a.2"]
    names = ["ep.1", "Dr. No"]  # with points, and no extension
    manifest = from_rows(tmp_path, "video", *names)
    assert manifest.ids == ["ep.1", "Dr._No"]
    videos = [f"{name}.mp4" for name in names]
    points = touch(tmp_path / "points", *videos)
    assert list(located(manifest, points).values()) == videos
    manifest = from_rows(tmp_path, "file_name,label", "cats/a.png,S")
    assert (manifest.items.kinds, manifest.items.films) == (["image"], ["cats"])


def test_folders_are_imported_however_deep(films):
    (films / "S1/extra/back").symlink_to(films)
    touch(films, "S1/.hidden/no.mp4")
    manifest = of.Manifest.from_folder(films)
    assert manifest.ids == ["alone", "S1-ep_1", "S1-extra-ep_1", "S2-ep_2"]
    assert manifest.items.films == ["", "S1", "S1", "S2"]
    assert manifest.items.media == ["alone.mov", "ep 1.mp4", "extra/ep 1.mkv", "ep 2.mp4"]
    assert sorted(located(manifest, films).values()) == sorted(FILES)


@pytest.fixture
def folder(films, tmp_path):
    of.Manifest.from_folder(films).save(tmp_path / "m")
    return tmp_path / "m"


NAMES = ["{id}", "{stem}", "{path}", "/other/{path}", "C:\\films\\{windows}"]


@pytest.mark.parametrize("name", NAMES)
def test_labels_are_added_by_id_file_or_stem(tmp_path, obygaze, name):
    films = touch(tmp_path / "films", "S1/ep 1.mp4", "S1/extra/ep 2.mkv", "alone.mov")
    manifest = of.Manifest.from_folder(films)
    manifest.save(tmp_path / "m")
    rows = []
    for item in manifest:
        path = f"{item.film}/{item.media}".lstrip("/")
        windows = path.replace("/", "\\")
        words = {"id": item.id, "path": path, "stem": Path(path).stem, "windows": windows}
        rows.append(f"{name.format(**words)},low,x|y,ann")
    source = write(tmp_path / "marks.csv", "Video,Label,concepts,who", *rows)
    command = ("manifests", "label", tmp_path / "m", source, "--levels", "low,high")
    assert "3 of 3 items labelled" in obygaze(*command, code=0).stdout
    labels = of.Manifest.load(tmp_path / "m").labels()
    assert labels.ids == manifest.ids
    assert labels.levels == ["low"] * 3
    assert labels.extra == {"who": ["ann"] * 3}
    refused(obygaze(*command), "--overwrite")


def test_labels_name_clips_missing_on_either_side(folder, tmp_path, obygaze):
    rows = ("clip,how", "S1/ep 1.mp4,S", "S3/ep 1.mp4,S", "alone,", "gone.mp4,S")
    source = write(tmp_path / "marks.csv", *rows)
    options = ("--column", "id=clip", "--column", "label=how", "--name", "mine")
    result = obygaze("manifests", "label", folder, source, *options, code=3)
    assert "1 of 4 items labelled" in result.stdout
    assert "rows without an item: S3/ep 1.mp4, gone.mp4" in result.stderr
    assert of.Manifest.load(folder).labels("mine").level_of == {"S1-ep_1": "S"}
    # With a second label set, as a file, there is no default.
    write(folder / "labels/other.csv", "id,level", "alone,Sure")
    refused(obygaze("report", folder), "(it has mine, other)", code=2)
    obygaze("manifests", "split", folder, "--by", "media", code=0)


MISTAKES = [
    (["video,label", "ep 1.mp4,S"], "line 2: 'ep 1.mp4' matches S1-ep_1, S1-extra-ep_1;"),
    (["video,label", "alone,S", "alone.mov,S"], "line 3: duplicate id 'alone'"),
    (["video,label", "alone,tense", "S1/ep 1,calm"], "(to use your own levels"),
    (["video,label", "x.mp4,S"], "no row with a level names an item, such as alone"),
    (["clip,label", "alone,S"], "no column 'id'; the columns are clip, label"),
]


@pytest.mark.parametrize(("rows", "fact"), MISTAKES)
def test_labels_that_do_not_fit_are_refused(folder, tmp_path, obygaze, rows, fact):
    table = write(tmp_path / "t.csv", *rows)
    refused(obygaze("manifests", "label", folder, table), fact)


def test_missing_videos_are_named_with_the_names_searched(films, tmp_path, obygaze):
    folder = tmp_path / "m"
    from_rows(tmp_path, "video,film", "a.mp4,Juno", "b.mp4,Juno").save(folder)
    hint = f"searched for Juno/a.* in {films}"
    assert hint in obygaze("manifests", "check", folder, "--videos", films, code=3).stdout
    command = ["features", "extract", folder, "--backbone", "tiny-xclip", "-o", tmp_path]
    refused(obygaze(*command, "--videos", films), f"has no files of t (missing: 2): {hint}")
    # One file cannot belong to clips of two films either.
    films = touch(tmp_path / "two", "A/s1/1.mp4", "B/s1/1.mp4")
    of.Manifest.from_folder(films).save(folder, overwrite=True)
    result = obygaze("manifests", "check", folder, "--videos", films / "A")
    refused(result, f"{films}/A/s1/1.mp4 matches A-s1-1 and B-s1-1")
