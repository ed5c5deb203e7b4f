"""Looking after manifests on disk: check, diff, and locating the videos."""

import json

from obygaze_features.manifests import Manifest
from obygaze_features.manifests.check import check
from obygaze_features.manifests.media import locate


def test_a_sound_manifest(manifest, obygaze):
    assert check(manifest) == []
    result = obygaze("manifests", "check", manifest)
    assert (result.exit_code, result.stdout) == (0, f"{manifest} is sound\n")


def test_every_problem_in_one_pass_with_its_line(manifest, obygaze):
    labels = (manifest / "labels" / "paper.csv").read_text()
    labels = labels.replace("tt0108160-003,NS", "tt0108160-003,Maybe")
    labels = labels.replace("tt0110912-001,S,Body", "tt0108160-001,S,Bodi")
    (manifest / "labels" / "paper.csv").write_text(labels + "nobody,EN,,1.00,,\n")
    (manifest / "splits").mkdir()
    (manifest / "splits" / "mine.csv").write_text("id,fold\ntt0108160-001,-1\ntt0108160-002,2\n")
    (manifest / "splits" / "short.csv").write_text("id,fold\ntt0108160-001")
    (manifest / "runs").mkdir()
    (manifest / "runs" / "mine.csv").write_text("run,role,id\n0,trian,tt0108160-001\n")
    problems = [problem.replace(f"{manifest}/", "") for problem in check(manifest)]
    assert problems == [
        "labels/paper.csv, line 4: unknown label 'Maybe'; known are Easy Negative, Hard Negative, "
        "Not Sure, Sure",
        "labels/paper.csv, line 7: duplicate id 'tt0108160-001'",
        "labels/paper.csv, line 7: unknown concept 'Bodi'; did you mean Body?",
        "labels/paper.csv, line 8: id 'nobody' is not in items.csv",
        "runs/mine.csv, line 2: unknown role 'trian' (known: train, validation)",
        "splits/mine.csv, line 2: fold '-1' is not a whole number from 0 to 999999",
        "splits/short.csv, line 2: 1 cells where the header has 2",
    ]
    result = obygaze("manifests", "check", manifest, "--json")
    assert (result.exit_code, len(json.loads(result.stdout))) == (1, 7)


def test_problems_of_items_and_of_the_header(manifest):
    path = manifest / "items.csv"
    items = path.read_text()
    path.write_text(items.replace("tt0108160-002,clip", "tt0108160-001,clop"))
    assert [problem.partition(", ")[2] for problem in check(manifest)][:2] == [
        "line 3: duplicate id 'tt0108160-001'",
        "line 3: unknown kind 'clop' (known: clip, image, text)",
    ]
    path.write_text(items.replace("scene_1.avi", "scene_7.avi"))
    [problem] = check(manifest)
    assert "the digest is of other items" in problem
    path.write_text(items.replace("scene_1.avi", "scene_1.mp4"))
    assert check(manifest) == []  # another extension, the same item


def test_unreadable_files_hide_no_other_problem(manifest):
    (manifest / "items.csv").write_text("id,start,end\na,x,y\nb/c,1,\na,1,2\n")
    (manifest / "splits").mkdir()
    (manifest / "splits" / "mine.csv").write_text("id,fold\na,one\n")
    (manifest / "labels" / "raw.csv").write_text("id,level\na\n")
    result = [problem.replace(f"{manifest}/", "") for problem in check(manifest)]
    assert [problem for problem in result if problem.startswith("items.csv")] == [
        "items.csv, line 2: end 'y' is not a number of seconds",
        "items.csv, line 2: start 'x' is not a number of seconds",
        "items.csv, line 3: a span needs both start and end",
        "items.csv, line 3: id 'b/c' is not allowed: letters, digits and . _ + - without '..', "
        "starting with a letter or digit",
        "items.csv, line 4: duplicate id 'a'",
    ]
    assert "labels/raw.csv, line 2: 1 cells where the header has 2" in result
    assert "splits/mine.csv, line 2: fold 'one' is not a whole number from 0 to 999999" in result


def test_a_header_of_wrong_types(manifest, obygaze):
    path = manifest / "manifest.json"
    right = json.loads(path.read_text())
    levels = right["label_scheme"]["levels"]
    for change, message in [
        ({"default_labels": ["a"]}, "default_labels must be a text (got ['a'])"),
        ({"name": 5}, "name must be a text (got 5)"),
        ({"label_scheme": "x"}, "the label scheme is malformed"),
        ({"label_scheme": {"name": "x", "levels": [{"code": 5, "name": "n"}]}}, "5 is not a text"),
        ({"label_scheme": {"name": "x", "levels": [*levels, levels[0]]}}, "two levels are called"),
        ({"label_scheme": {"name": "x", "levels": []}}, "has no levels"),
        ({"format_version": "1"}, "has format version '1'"),
    ]:
        path.write_text(json.dumps({**right, **change}))
        result = obygaze("manifests", "stats", manifest)
        assert (result.exit_code, result.stderr.count("\n")) == (1, 1), change
        assert message in result.stderr
        assert message in " ".join(check(manifest))
    path.write_text("[" * 100_000)
    assert obygaze("manifests", "stats", manifest).stderr.count("\n") == 1


def test_labels_dropped_into_a_manifest_without_any(tmp_path, obygaze):
    (tmp_path / "films").mkdir()
    for number in (1, 2):
        (tmp_path / "films" / f"tt0000001_scene_{number}.mp4").touch()
    folder = tmp_path / "m"
    assert obygaze("manifests", "import", "folder", tmp_path / "films", "-o", folder).exit_code == 0
    refused = obygaze("manifests", "stats", folder)
    assert "has no labels; add them: obygaze manifests label MANIFEST" in refused.stderr
    (folder / "labels").mkdir()
    (folder / "labels" / "mine.csv").write_text("id,level\ntt0000001-001,Sure\n")
    assert "Sure               1  100.0%" in obygaze("manifests", "stats", folder).output


def test_importing_again_keeps_what_others_added(source, manifest, obygaze):
    obygaze("manifests", "split", manifest, "--folds", 2)
    again = ("manifests", "import", "obygaze12", source, "-o", manifest, "--overwrite")
    assert obygaze(*again).exit_code == 0
    assert Manifest.load(manifest).split_names == ["leak-free"]
    source.write_text("".join(source.read_text().splitlines(keepends=True)[:-1]))
    result = obygaze(*again)
    assert result.exit_code == 1
    assert "holds splits/leak-free.csv and 1 more, which the new one does not" in result.stderr
    assert Manifest.load(manifest).split_names == ["leak-free"]


def test_line_numbers_count_lines_within_quotes(manifest):
    path = manifest / "labels" / "paper.csv"
    path.write_text('id,level,note\ntt0108160-001,S,"two\nlines"\ntt0108160-002,X,\n')
    [problem] = check(manifest)
    assert "line 4: unknown label 'X'" in problem


def test_diff(manifest, source, tmp_path, obygaze):
    second = tmp_path / "other"
    lines = source.read_text().splitlines(keepends=True)
    changed = "".join(lines[:-1]).replace("Easy Neg", "Sure").replace("scene_3.avi", "scene_33.avi")
    source.write_text(changed.replace("[''];tt", "['Body'];tt"))
    obygaze("manifests", "import", "obygaze12", source, "-o", second)
    result = obygaze("manifests", "diff", manifest, second)
    assert result.exit_code == 1
    assert f"1 item only in {manifest}: tt0110912-001" in result.output
    assert "1 item with another media: tt0108160-003" in result.output
    assert "labels 'paper': 2 items changed" in result.output
    assert "tt0108160-001: EN | S Body" in result.output
    same = obygaze("manifests", "diff", manifest, manifest)
    assert (same.exit_code, same.output.startswith("No difference")) == (0, True)
    (second / "labels" / "ours.csv").write_text("id,level\ntt0108160-001,S\n")
    one_sided = obygaze("manifests", "diff", manifest, second).output
    assert "labels 'ours': 1 item changed\n  tt0108160-001: none | S" in one_sided
    facts = json.loads(obygaze("manifests", "diff", manifest, second, "--json").stdout)
    assert facts["only_left"] == ["tt0110912-001"]
    assert facts["same_order"] is True


def test_locate(manifest, tmp_path, obygaze):
    videos = tmp_path / "videos"
    names = [
        "tt0108160/tt0108160_scene_1.mp4",  # another extension
        "tt0108160/TT0108160_Scene_2.AVI",  # another case
        "tt0108160_scene_3.avi",  # not in its film's folder
        "tt0108160/tt0108160_scene_4.webm",
        "tt0108160/tt0108160_scene_4.mov",  # which of the two?
        "tt0108160/tt0108160_scene_5.mkv",  # the manifest names no file; MovieGraphs would
    ]
    (videos / "TT0110912" / "tt0110912_scene_1.mp4").mkdir(parents=True)  # a folder, no video
    (videos / "TT0110912" / "tt0110912_scene_1.avi").symlink_to("nowhere")
    for name in names:
        (videos / name).parent.mkdir(parents=True, exist_ok=True)
        (videos / name).touch()
    outcome = locate(Manifest.load(manifest), videos)
    assert {i: str(path.relative_to(videos)) for i, path in outcome.found.items()} == {
        "tt0108160-001": names[0],
        "tt0108160-002": names[1],
        "tt0108160-003": names[2],
        "tt0108160-005": names[5],
    }
    assert outcome.missing == ["tt0110912-001"]
    assert list(outcome.ambiguous) == ["tt0108160-004"]
    result = obygaze("manifests", "locate", manifest, "--videos", videos)
    assert result.exit_code == 3
    assert "missing: tt0110912-001" in result.output
    assert "ambiguous: tt0108160-004 could be tt0108160/tt0108160_scene_4.mov or" in result.output
    (videos / "TT0110912" / "tt0110912_scene_1.webm").touch()  # in a folder of another case
    assert locate(Manifest.load(manifest), videos).missing == []
    (videos / "tt0108160" / "tt0108160_scene_4.mkv").touch()  # the very name that is listed
    assert locate(Manifest.load(manifest), videos).ambiguous == {}
