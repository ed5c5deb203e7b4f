"""Looking after manifests on disk: check, diff, and locating the videos."""

import json

import obygaze_features as of
from obygaze_features.manifests.check import check
from obygaze_features.manifests.media import locate
from tests.kit.files import refused, touch, write


def problems(manifest):
    return [problem.replace(f"{manifest}/", "") for problem in check(manifest)]


def test_every_problem_in_one_pass_with_its_line(manifest, obygaze):
    assert check(manifest) == []
    assert obygaze("manifests", "check", manifest).exit_code == 0
    labels = (manifest / "labels/paper.csv").read_text()
    labels = labels.replace("tt0108160-003,NS", "tt0108160-003,Maybe")
    labels = labels.replace("tt0110912-001,S,Body", "tt0108160-001,S,Bodi")
    (manifest / "labels/paper.csv").write_text(labels + "nobody,EN,,1.00,,\n")
    lines = ("id,level,note", 'tt0108160-001,S,"two', 'lines"', "tt0108160-002,X,")
    write(manifest / "labels/quoted.csv", *lines)
    write(manifest / "splits/mine.csv", "id,fold", "tt0108160-001,-1", "tt0108160-002,2")
    write(manifest / "splits/short.csv", "id,fold", "tt0108160-001")
    write(manifest / "runs/mine.csv", "run,role,id", "0,trian,tt0108160-001")
    known = "; known are Easy Negative, Hard Negative, Not Sure, Sure"
    assert problems(manifest) == [
        f"labels/paper.csv, line 4: unknown label 'Maybe'{known}",
        "labels/paper.csv, line 7: duplicate id 'tt0108160-001'",
        "labels/paper.csv, line 7: unknown concept 'Bodi'; did you mean Body?",
        "labels/paper.csv, line 8: id 'nobody' is not in items.csv",
        f"labels/quoted.csv, line 4: unknown label 'X'{known}",
        "runs/mine.csv, line 2: unknown role 'trian' (known: train, validation)",
        "splits/mine.csv, line 2: fold '-1' is not a whole number from 0 to 999999",
        "splits/short.csv, line 2: 1 cells where the header has 2",
    ]
    result = obygaze("manifests", "check", manifest, "--json")
    assert (result.exit_code, len(json.loads(result.stdout))) == (1, 8)


def test_problems_of_items_hide_no_others(manifest):
    path = manifest / "items.csv"
    items = path.read_text()
    path.write_text(items.replace("tt0108160-002,clip", "tt0108160-001,clop"))
    assert problems(manifest)[:2] == [
        "items.csv, line 3: duplicate id 'tt0108160-001'",
        "items.csv, line 3: unknown kind 'clop' (known: clip, image, text)",
    ]
    path.write_text(items.replace("scene_1.avi", "scene_7.avi"))
    [problem] = check(manifest)
    assert "the digest is of other items" in problem
    path.write_text(items.replace("scene_1.avi", "scene_1.mp4"))
    assert check(manifest) == []  # another extension, the same item
    write(path, "id,start,end", "a,x,y", "b/c,1,", "a,1,2")
    write(manifest / "splits/mine.csv", "id,fold", "a,one")
    write(manifest / "labels/raw.csv", "id,level", "a")
    result = problems(manifest)
    for number, line in enumerate((
        "items.csv, line 2: end 'y' is not a number of seconds",
        "items.csv, line 2: start 'x' is not a number of seconds",
        "items.csv, line 3: a span needs both start and end",
        "items.csv, line 3: id 'b/c' is not allowed",
        "items.csv, line 4: duplicate id 'a'",
    )):  # fmt: skip
        assert result[number].startswith(line)
    assert "labels/raw.csv, line 2: 1 cells where the header has 2" in result
    assert "splits/mine.csv, line 2: fold 'one' is not a whole number from 0 to 999999" in result


def test_importing_again_keeps_what_others_added(source, manifest, obygaze):
    obygaze("manifests", "split", manifest, "--folds", 2)
    again = ("manifests", "import", "obygaze12", source, "-o", manifest, "--overwrite")
    assert obygaze(*again).exit_code == 0
    assert of.Manifest.load(manifest).split_names == ["leak-free"]
    source.write_text("".join(source.read_text().splitlines(keepends=True)[:-1]))
    refused(obygaze(*again), "splits/leak-free.csv and 1 more, which the new one does not")
    assert of.Manifest.load(manifest).split_names == ["leak-free"]


def test_diff(manifest, source, tmp_path, obygaze):
    second = tmp_path / "other"
    lines = source.read_text().splitlines(keepends=True)
    changed = "".join(lines[:-1]).replace("Easy Neg", "Sure").replace("scene_3.avi", "scene_33.avi")
    source.write_text(changed.replace("[''];tt", "['Body'];tt"))
    obygaze("manifests", "import", "obygaze12", source, "-o", second)
    write(second / "labels/ours.csv", "id,level", "tt0108160-001,S")
    result = obygaze("manifests", "diff", manifest, second)
    assert result.exit_code == 1
    for fact in (
        f"1 item only in {manifest}: tt0110912-001",
        "1 item with another media: tt0108160-003",
        "labels 'paper': 2 items changed",
        "tt0108160-001: EN | S Body",
        "labels 'ours': 1 item changed\n  tt0108160-001: none | S",
    ):
        assert fact in result.output
    same = obygaze("manifests", "diff", manifest, manifest)
    assert (same.exit_code, same.output.startswith("No difference")) == (0, True)
    facts = json.loads(obygaze("manifests", "diff", manifest, second, "--json").stdout)
    assert (facts["only_left"], facts["same_order"]) == (["tt0110912-001"], True)


def test_locate(manifest, tmp_path, obygaze):
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
    result = obygaze("manifests", "locate", manifest, "--videos", videos)
    assert result.exit_code == 3
    assert "missing: tt0110912-001" in result.output
    assert "ambiguous: tt0108160-004 could be tt0108160/tt0108160_scene_4.mov or" in result.output
    # In a folder of another case; and the very name that is listed.
    touch(videos, "TT0110912/tt0110912_scene_1.webm", "tt0108160/tt0108160_scene_4.mkv")
    outcome = locate(items, videos)
    assert (outcome.missing, outcome.ambiguous) == ([], {})
