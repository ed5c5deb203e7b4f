"""Looking after manifests on disk: check, diff, and locating the videos."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from click.testing import Result

from obygaze_features.manifests import Manifest
from obygaze_features.manifests.check import check
from obygaze_features.manifests.locate import locate

Run = Callable[..., Result]


def test_a_sound_manifest(manifest: Path, obygaze: Run) -> None:
    assert check(manifest) == []
    result = obygaze("manifests", "check", manifest)
    assert (result.exit_code, result.stdout) == (0, f"{manifest} is sound\n")


def test_every_problem_in_one_pass_with_its_line(manifest: Path, obygaze: Run) -> None:
    labels = (manifest / "labels" / "paper.csv").read_text()
    labels = labels.replace("tt0108160-003,NS", "tt0108160-003,Maybe")
    labels = labels.replace("tt0110912-001,S,Body", "tt0108160-001,S,Bodi")
    (manifest / "labels" / "paper.csv").write_text(labels + "nobody,EN,,1.00,,\n")
    (manifest / "splits").mkdir()
    (manifest / "splits" / "mine.csv").write_text("id,fold\ntt0108160-001,-1\ntt0108160-002,2\n")
    (manifest / "splits" / "short.csv").write_text("id,fold\ntt0108160-001,1")
    (manifest / "runs").mkdir()
    (manifest / "runs" / "mine.csv").write_text("run,role,id\n0,trian,tt0108160-001\n")
    problems = [problem.replace(f"{manifest}/", "") for problem in check(manifest)]
    assert problems == [
        "labels/paper.csv, line 4: unknown label 'Maybe'; known: Easy Negative, Hard Negative, "
        "Not Sure, Sure",
        "labels/paper.csv, line 7: duplicate id 'tt0108160-001'",
        "labels/paper.csv, line 7: unknown concept 'Bodi'; did you mean 'Body'?",
        "labels/paper.csv, line 8: id 'nobody' is not in items.csv",
        "runs/mine.csv, line 2: unknown role 'trian' (known: train, validation)",
        "splits/mine.csv, line 2: fold '-1' is not a whole number from 0",
        "splits/short.csv: the last line has no line end, the file seems to be cut short; "
        "fetch it again, or end the line if it is whole",
    ]
    result = obygaze("manifests", "check", manifest, "--json")
    assert (result.exit_code, len(json.loads(result.stdout))) == (1, 7)


def test_problems_of_items_and_of_the_header(manifest: Path) -> None:
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


def test_line_numbers_count_lines_within_quotes(manifest: Path) -> None:
    path = manifest / "labels" / "paper.csv"
    path.write_text('id,level,note\ntt0108160-001,S,"two\nlines"\ntt0108160-002,X,\n')
    [problem] = check(manifest)
    assert "line 4: unknown label 'X'" in problem


def test_diff(manifest: Path, source: Path, tmp_path: Path, obygaze: Run) -> None:
    other = tmp_path / "other"
    lines = source.read_text().splitlines(keepends=True)
    changed = "".join(lines[:-1]).replace("Easy Neg", "Sure").replace("scene_3.avi", "scene_33.avi")
    source.write_text(changed.replace("[''];tt", "['Body'];tt"))
    obygaze("manifests", "import", "obygaze12", source, "-o", other)
    result = obygaze("manifests", "diff", manifest, other)
    assert result.exit_code == 1
    assert f"1 items only in {manifest}: tt0110912-001" in result.output
    assert "1 items differ in media: tt0108160-003" in result.output
    assert "labels 'paper': 2 items differ" in result.output
    assert "tt0108160-001: EN | S Body" in result.output
    same = obygaze("manifests", "diff", manifest, manifest)
    assert (same.exit_code, same.output.startswith("No difference")) == (0, True)
    facts = json.loads(obygaze("manifests", "diff", manifest, other, "--json").stdout)
    assert facts["only_left"] == ["tt0110912-001"]
    assert facts["same_order"] is True


def test_locate(manifest: Path, tmp_path: Path, obygaze: Run) -> None:
    videos = tmp_path / "videos"
    names = [
        "tt0108160/tt0108160_scene_1.mp4",  # another extension
        "tt0108160/TT0108160_Scene_2.AVI",  # another case
        "tt0108160_scene_3.avi",  # not in its film's folder
        "tt0108160/tt0108160_scene_4.webm",
        "tt0108160/tt0108160_scene_4.mov",  # which of the two?
        "tt0108160/tt0108160_scene_5.mkv",  # the manifest names no file; MovieGraphs would
    ]
    for name in names:
        (videos / name).parent.mkdir(parents=True, exist_ok=True)
        (videos / name).touch()
    found = locate(Manifest.load(manifest), videos)
    assert {i: str(path.relative_to(videos)) for i, path in found.found.items()} == {
        "tt0108160-001": names[0],
        "tt0108160-002": names[1],
        "tt0108160-003": names[2],
        "tt0108160-005": names[5],
    }
    assert found.missing == ["tt0110912-001"]
    assert list(found.ambiguous) == ["tt0108160-004"]
    result = obygaze("manifests", "locate", manifest, "--videos", videos)
    assert result.exit_code == 3
    assert "missing: tt0110912-001" in result.output
    assert "ambiguous: tt0108160-004 could be tt0108160/tt0108160_scene_4.mov or" in result.output
    (videos / "tt0108160" / "tt0108160_scene_4.mkv").touch()  # the very name that is listed
    assert locate(Manifest.load(manifest), videos).ambiguous == {}
