"""Manifests on disk: round trip, digest, check, counts, and locating the videos."""

import hashlib
import json
import sys
from dataclasses import replace

import pytest

import obygaze_features as of
from obygaze_features.errors import ManifestError
from obygaze_features.items.media import locate
from obygaze_features.manifests import Item, Items, Manifest
from tests.kit.files import refused, touch, write

FIRST = "tt0108160-001"
#: Tables with a mistake, by the place that is named.
DAMAGED = {
    "labels/mine.csv, line 2: unknown id 'nobody'": ["id,level", "nobody,EN"],
    "labels/named.csv, line 3: unknown level 'Maybe'": ["id,level", f"{FIRST},S", "b,Maybe"],
    "labels/twice.csv, line 3: duplicate id": ["id,level", f"{FIRST},S", f"{FIRST},S"],
    "splits/large.csv, line 2: fold '1000000'": ["id,fold", f"{FIRST},1000000"],
    "splits/mine.csv, line 3: fold '-1'": ["id,fold", f"{FIRST},0", "tt0108160-002,-1"],
    "splits/short.csv, line 2: ": ["id,fold", FIRST],
    "runs/mine.csv, line 2: unknown role 'trian'": ["run,role,id", f"0,trian,{FIRST}"],
    "runs/twice.csv, line 3: duplicate id": ["run,role,id", *[f"0,train,{FIRST}"] * 2],
}


@pytest.fixture
def problems(manifest, obygaze):
    """Return the problems that ``manifests check`` lists."""

    def problems():
        printed = json.loads(obygaze("manifests", "check", manifest, "--json").stdout)
        listed = [row["problem"] for row in printed["list"]]
        assert printed["problems"] == len(listed)
        return listed

    return problems


def test_check_lists_the_first_problem_of_each_file(manifest, problems, obygaze):
    obygaze("manifests", "check", manifest, code=0)
    for fact, lines in DAMAGED.items():
        lines = [line.replace("b,", "tt0108160-002,") for line in lines]
        write(manifest / fact.partition(",")[0], *lines)
    obygaze("manifests", "check", manifest, code=1)
    for fact, problem in zip(DAMAGED, problems(), strict=True):
        assert problem.startswith(f"{manifest}/{fact}")


def test_other_items_than_the_header_says_are_a_problem(manifest, problems):
    path = manifest / "items.csv"
    items = path.read_text()
    path.write_text(items.replace("scene_1.avi", "scene_7.avi"))
    [problem] = problems()
    assert "digest" in problem
    path.write_text(items.replace("scene_1.avi", "scene_1.mp4"))
    assert problems() == []  # another extension, the same item
    (manifest / "manifest.json").write_text("{}")
    [problem] = problems()
    assert "format" in problem


@pytest.mark.parametrize(
    ("rows", "fact"),
    [
        (["a,x,2"], "line 2: start 'x' is not a number"),
        (["a,1,"], "line 2: a span must end"),
        (["a,0,1", "A,0,1"], "line 3: duplicate id 'A'"),
    ],
)
def test_an_unusable_row_of_items_is_a_problem(manifest, problems, rows, fact):
    write(manifest / "items.csv", "id,start,end", *rows)
    [problem] = problems()
    assert f"items.csv, {fact}" in problem


def test_importing_again_keeps_added_splits(source, manifest, obygaze):
    obygaze("manifests", "split", manifest, "--by", "clips", "--folds", 2)
    again = ("manifests", "import", "obygaze12", source, "-o", manifest)
    refused(obygaze(*again), "--overwrite")
    again = (*again, "--overwrite")
    obygaze(*again, code=0)
    assert of.Manifest.load(manifest).split_names == ["leak-free"]
    lines = source.read_text().splitlines()
    write(source, *lines[:-1])
    refused(obygaze(*again), "splits/leak-free.csv and 1 more, which the new folder lacks")
    assert of.Manifest.load(manifest).split_names == ["leak-free"]


def test_locate_finds_files_by_name_in_any_folder(manifest, tmp_path, obygaze):
    names = [
        "tt0108160/tt0108160_scene_1.mp4",  # another extension
        "tt0108160/TT0108160_Scene_2.AVI",  # another case
        "tt0108160_scene_3.avi",  # not in its film's folder
        "tt0108160/tt0108160_scene_5.mkv",  # the manifest names no file; MovieGraphs would
        "tt0108160/tt0108160_scene_4.webm",
        "tt0108160/tt0108160_scene_4.mov",  # which of the two?
    ]
    videos = touch(tmp_path / "videos", *names)
    (videos / "TT0110912/tt0110912_scene_1.mp4").mkdir(parents=True)  # a folder, no video
    (videos / "TT0110912/tt0110912_scene_1.avi").symlink_to("nowhere")
    items = of.Manifest.load(manifest)
    found = locate(items, videos).found
    assert [f"tt0108160-00{scene}" for scene in (1, 2, 3, 5)] == [*found]
    assert [*found.values()] == [videos / name for name in names[:4]]
    result = obygaze("manifests", "check", manifest, "--videos", videos, "--json", code=3)
    printed = json.loads(result.output)
    assert (printed["found"], printed["missing"]) == (4, ["tt0110912-001"])
    assert len(printed["ambiguous"]["tt0108160-004"]) == 2
    # In a folder of another case; and the very name that is listed.
    touch(videos, "TT0110912/tt0110912_scene_1.webm", "tt0108160/tt0108160_scene_4.mkv")
    assert len(locate(items, videos).found) == 6


def find(tmp_path, media):
    return locate(Manifest("m", Items.of([Item("a", media=media)])), tmp_path).found


@pytest.mark.skipif(sys.platform != "linux", reason="other systems ignore case")
def test_folders_that_differ_only_in_case_are_not_confused(tmp_path):
    touch(tmp_path, "JUNO/1.mp4", "Juno/2.mp4", "Juno/2/3.mp4")
    for media in ("JUNO/1.mp4", "Juno/2.mp4", "Juno/2/3.mp4"):
        assert find(tmp_path, media)["a"] == tmp_path / media
    with pytest.raises(of.ObygazeError, match=r"JUNO and Juno.*'juno'"):
        find(tmp_path, "juno/1.mp4")


def test_accents_match_however_they_are_encoded(tmp_path):
    """A Mac stores a letter and its accent as two characters."""
    composed = "Am\u00e9lie"
    separated = "Ame\u0301lie"
    touch(tmp_path, f"{separated}/{composed}/{separated}.mp4")
    touch(tmp_path, f"{separated}/{composed}/{separated}.avi")
    assert find(tmp_path, f"{composed}/{composed}/{composed}.mp4")


CLIPS = [Item("a-001", film="a", media="one.mp4"), Item("a-002", film="a", start=1.5, end=2.25)]


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


def test_the_digest_follows_the_specification(manifest):
    text = "obygaze-items-1\na-001\na-002\0clip\nclip\0one\n\0\n1500000\0\n2250000\0"
    assert Items.of(CLIPS).digest == sha256(text)
    word = sha256("a person")
    expected = sha256(f"obygaze-items-1\nt\0text\0{word}\0\0\0")
    assert Items.of([Item("t", kind="text", text="a person")]).digest == expected
    # The order of items matters; labels and the extensions of files do not.
    renamed = replace(CLIPS[0], media="one.mkv")
    assert Items.of([renamed, CLIPS[1]]).digest == sha256(text)
    assert Items.of(CLIPS[::-1]).digest != sha256(text)
    loaded = Manifest.load(manifest)
    write(manifest / "labels/paper.csv", "id,level", f"{FIRST},S")
    assert Manifest.load(manifest).digest == loaded.digest
    with pytest.raises(ManifestError, match="item 3: duplicate id 'a'; item 2 is 'A'"):
        Items.of([Item(identifier) for identifier in "bAa"])
