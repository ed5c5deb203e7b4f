"""Manifests on disk: round trip, digest, check, figures, and locating the videos."""

import hashlib
import json
import sys
from dataclasses import replace

import pytest

import obygaze_features as of
from obygaze_features.errors import ManifestError
from obygaze_features.items.media import locate
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.manifests.manifest import check
from tests.kit.files import refused, touch, write
from tests.kit.floats import close


def test_check_lists_the_first_problem_of_each_file(manifest, obygaze):
    assert check(manifest) == []
    assert obygaze("manifests", "check", manifest).exit_code == 0
    labels = (manifest / "labels/paper.csv").read_text()
    write(manifest / "labels/paper.csv", *labels.splitlines(), "nobody,EN,,1.00,,")
    write(manifest / "labels/raw.csv", "id,level", "tt0108160-001,S", "tt0108160-001,S")
    write(manifest / "labels/released.csv", labels.replace("-003,NS", "-003,Maybe"), end="")
    write(manifest / "splits/large.csv", "id,fold", "tt0108160-001,1000000")
    write(manifest / "splits/mine.csv", "id,fold", "tt0108160-001,0", "tt0108160-002,-1")
    write(manifest / "splits/short.csv", "id,fold", "tt0108160-001")
    write(manifest / "splits/twice.csv", "id,fold", "tt0108160-001,0", "tt0108160-001,1")
    write(manifest / "runs/mine.csv", "run,role,id", "0,trian,tt0108160-001")
    write(manifest / "runs/twice.csv", "run,role,id", *["0,train,tt0108160-001"] * 2)
    facts = [
        "labels/paper.csv, line 8: unknown id 'nobody'",
        "labels/raw.csv, line 3: duplicate id 'tt0108160-001'",
        "labels/released.csv, line 4: unknown level 'Maybe'",
        "splits/large.csv, line 2: fold '1000000'",
        "splits/mine.csv, line 3: fold '-1'",
        "splits/short.csv, line 2: ",
        "splits/twice.csv, line 3: duplicate id",
        "runs/mine.csv, line 2: unknown role 'trian'",
        "runs/twice.csv, line 3: duplicate id",
    ]
    problems = check(manifest)
    for fact, problem in zip(facts, problems, strict=True):
        assert problem.startswith(f"{manifest}/{fact}")
    result = obygaze("manifests", "check", manifest, "--json", code=1)
    assert json.loads(result.stdout)["problems"] == len(facts)


def test_other_items_than_the_header_says_are_a_problem(manifest):
    path = manifest / "items.csv"
    items = path.read_text()
    path.write_text(items.replace("scene_1.avi", "scene_7.avi"))
    [problem] = check(manifest)
    assert "digest" in problem
    path.write_text(items.replace("scene_1.avi", "scene_1.mp4"))
    assert check(manifest) == []  # another extension, the same item
    path.write_text("".join(items.splitlines(keepends=True)[:-1]))
    assert "digest" in check(manifest)[0]
    for rows, fact in (
        (["a,x,2"], "line 2: start 'x' is not a number"),
        (["a,1,"], "line 2: a span must end"),
        (["a,0,1", "A,0,1"], "line 3: duplicate id 'A'"),
    ):
        write(path, "id,start,end", *rows)
        [problem] = check(manifest)
        assert f"items.csv, {fact}" in problem
    (manifest / "manifest.json").write_text("{}")
    [problem] = check(manifest)
    assert "format" in problem


def test_importing_again_keeps_added_splits(source, manifest, obygaze):
    obygaze("manifests", "split", manifest, "--by", "clips", "--folds", 2)
    again = ("manifests", "import", "obygaze12", source, "-o", manifest)
    refused(obygaze(*again), "--overwrite")
    again = (*again, "--overwrite")
    assert obygaze(*again).exit_code == 0
    assert of.Manifest.load(manifest).split_names == ["leak-free"]
    source.write_text("".join(source.read_text().splitlines(keepends=True)[:-1]))
    refused(obygaze(*again), "splits/leak-free.csv and 1 more, which the new folder lacks")
    assert of.Manifest.load(manifest).split_names == ["leak-free"]


def test_locate_finds_files_by_name_in_any_folder(manifest, tmp_path, obygaze):
    names = [
        "tt0108160/tt0108160_scene_1.mp4",  # another extension
        "tt0108160/TT0108160_Scene_2.AVI",  # another case
        "tt0108160_scene_3.avi",  # not in its film's folder
        "tt0108160/tt0108160_scene_4.webm",
        "tt0108160/tt0108160_scene_4.mov",  # which of the two?
        "tt0108160/tt0108160_scene_5.mkv",  # the manifest names no file; MovieGraphs would
    ]
    videos = touch(tmp_path / "videos", *names)
    (videos / "TT0110912/tt0110912_scene_1.mp4").mkdir(parents=True)  # a folder, no video
    (videos / "TT0110912/tt0110912_scene_1.avi").symlink_to("nowhere")
    items = of.Manifest.load(manifest)
    outcome = locate(items, videos)
    paths = {i: str(path.relative_to(videos)) for i, path in outcome.found.items()}
    rows = {1: 0, 2: 1, 3: 2, 5: 5}
    assert paths == {f"tt0108160-00{scene}": names[row] for scene, row in rows.items()}
    assert outcome.missing == ["tt0110912-001"]
    assert list(outcome.ambiguous) == ["tt0108160-004"]
    result = obygaze("manifests", "check", manifest, "--videos", videos, "--json", code=3)
    found = json.loads(result.output)
    assert (found["found"], found["missing"]) == (4, ["tt0110912-001"])
    assert len(found["ambiguous"]["tt0108160-004"]) == 2
    # In a folder of another case; and the very name that is listed.
    touch(videos, "TT0110912/tt0110912_scene_1.webm", "tt0108160/tt0108160_scene_4.mkv")
    assert len(locate(items, videos).found) == 6


def check_files(obygaze, tmp_path, media, code=0):
    """Check a clip of this path; return the result of ``manifests check``."""
    table = write(tmp_path / "clips.csv", "id,media", f"a,{media}")
    folder = tmp_path / "m"
    obygaze("manifests", "import", "csv", table, "-o", folder, "--overwrite", code=0)
    return obygaze("manifests", "check", folder, "--videos", tmp_path / "videos", code=code)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems ignore case")
def test_folders_that_differ_only_in_case_are_not_confused(obygaze, tmp_path):
    touch(tmp_path / "videos", "JUNO/1.mp4", "Juno/2.mp4", "Juno/2/3.mp4")
    for media in ("JUNO/1.mp4", "Juno/2.mp4", "Juno/2/3.mp4"):
        check_files(obygaze, tmp_path, media)
    refused(check_files(obygaze, tmp_path, "juno/1.mp4", code=1), "JUNO and Juno", "'juno'")


def test_accents_match_however_they_are_encoded(obygaze, tmp_path):
    """A Mac stores a letter and its accent as two characters."""
    composed, separated = "Am\u00e9lie", "Ame\u0301lie"
    touch(tmp_path / "videos", f"{separated}/{composed}/{separated}.mp4")
    touch(tmp_path / "videos", f"{separated}/{composed}/{separated}.avi")
    check_files(obygaze, tmp_path, "/".join([composed] * 3) + ".mp4")


CLIPS = [Item("a-001", film="a", media="one.mp4"), Item("a-002", film="a", start=1.5, end=2.25)]


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


def test_the_digest_follows_the_specification(manifest):
    text = "obygaze-items-1\na-001\na-002\0clip\nclip\0one\n\0\n1500000\0\n2250000\0"
    assert Items.of(CLIPS).digest == sha256(text) == Items.of(iter(CLIPS)).digest
    word = sha256("a person")
    expected = sha256(f"obygaze-items-1\nt\0text\0{word}\0\0\0")
    assert Items.of([Item("t", kind="text", text="a person")]).digest == expected
    for change, same in [
        ({"media": "one.mkv"}, True),
        ({"media": "two.mp4"}, False),
        ({"start": 0.0, "end": 1.0}, False),
    ]:
        changed = [replace(CLIPS[0], **change), CLIPS[1]]
        assert (Items.of(changed).digest == Items.of(CLIPS).digest) is same
    # The order of items matters; labels do not.
    loaded = Manifest.load(manifest)
    assert loaded.items.take(range(len(loaded) - 1, -1, -1)).digest != loaded.digest
    write(manifest / "labels/paper.csv", "id,level", "tt0108160-001,S")
    assert Manifest.load(manifest).digest == loaded.digest
    with pytest.raises(ManifestError, match="item 3: duplicate id 'a'; item 2 is 'A'"):
        Items.of([Item(identifier) for identifier in "bAa"])


def test_show_counts_levels_and_concepts(manifest, obygaze):
    shown = json.loads(obygaze("manifests", "show", manifest, "--by-film", "--json").stdout)
    levels = {row["level"]: row for row in shown["levels"]}
    assert (levels["S"]["clips"], levels["S"]["share"]) == (2, close(1 / 3))
    rates = {row["concept"]: row["S"] for row in shown["concepts"]}
    assert rates["Body"] == 0.5
    assert "Sleepless in Seattle (1993)" in {row["title"] for row in shown["by_film"]}
    write(manifest / "labels/none.csv", "id,level")  # rates of zero, no division by it
    empty = json.loads(obygaze("manifests", "show", manifest, "--labels", "none", "--json").stdout)
    assert {row["clips"] for row in empty["levels"]} == {0}
