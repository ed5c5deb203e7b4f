"""Manifests of texts and of images."""

import csv
import json
from collections import Counter
from pathlib import Path

import pytest

from obygaze_features.errors import ManifestError, UsageError
from obygaze_features.manifests import Manifest
from obygaze_features.manifests.check import check
from obygaze_features.manifests.importers.prompts import with_article


@pytest.mark.parametrize(
    ("stimulus", "text"),
    [("engineer", "an engineer"), ("'old' man", "an 'old' man"), ("Umbrella", "an Umbrella"),
     ("person", "a person"), ("hour", "a hour"), ("8-year-old", "a 8-year-old")],
)  # fmt: skip
def test_the_article_follows_the_first_letter(stimulus, text):
    assert with_article("a photo of a {}", stimulus) == f"a photo of {text}"
    assert with_article("a photo of an {}", stimulus) == f"a photo of {text}"


def test_other_ways_to_write_articles():
    assert with_article("A {}", "engineer") == "An engineer"
    assert with_article("a photo of a {}", "engineer", "always-a") == "a photo of a engineer"
    # An article that is not right before the stimulus stays as it is.
    assert with_article("the {} of a hour", "engineer") == "the engineer of a hour"
    for template in ("a photo", "{} and {}"):
        with pytest.raises(UsageError, match="once"):
            with_article(template, "engineer")
    with pytest.raises(UsageError, match="letter, always-a"):
        with_article("a {}", "engineer", "the")


EMOTIONS = ("angry", "sad", "happy")
PEOPLE = ("person", "woman", "human", "human being", "individual", "adult")


@pytest.fixture
def stimuli(tmp_path):
    """The emotions' prompts of Wolfe et al.: six phrases with the emotion, and six without."""
    rows = [f"{e},{e} {p},yes" for e in EMOTIONS for p in PEOPLE]
    rows += [f"{e}-not,{p},no" for e in EMOTIONS for p in PEOPLE]
    path = tmp_path / "emotions.csv"
    path.write_text("\n".join(["set,stimulus,named", *rows]) + "\n")
    return path


def test_every_stimulus_in_every_template(stimuli, tmp_path, obygaze):
    result = obygaze("manifests", "import", "prompts", stimuli, "-o", tmp_path / "m")
    assert result.exit_code == 0
    assert "180 texts" in result.stdout
    assert "36 stimuli in 5 templates" in result.stdout
    assert check(tmp_path / "m") == []
    manifest = Manifest.load(tmp_path / "m")
    assert manifest.name == "emotions"
    with (tmp_path / "m/items.csv").open() as file:
        rows = list(csv.DictReader(file))
    angry = [row for row in rows if row["set"] == "angry"]
    assert len(angry) == 30  # a side of the published test
    assert [row["text"] for row in angry[:5]] == [
        "angry person",
        "an angry person",
        "a photo of an angry person",
        "an image of an angry person",
        "a picture of an angry person",
    ]
    assert {(row["kind"], row["named"], row["media"]) for row in angry} == {("text", "yes", "")}
    assert [row["template"] for row in angry[:2]] == ["{}", "a {}"]
    assert angry[2]["id"] == "angry-a_photo_of_an_angry_person"
    assert angry[2]["stimulus"] == "angry person"
    sad = [row["text"] for row in rows if row["set"] == "sad-not"]
    assert "a photo of an individual" in sad
    assert "a photo of a human being" in sad


def test_the_prompts_as_they_were_published(tmp_path, obygaze):
    (tmp_path / "science.csv").write_text("stimulus\nengineer\n")
    result = obygaze(
        "manifests", "import", "prompts", tmp_path / "science.csv", "-o", tmp_path / "m",
        "--article", "always-a", "--template", "a {}", "--template", "{}",
    )  # fmt: skip
    assert result.exit_code == 0
    items = Manifest.load(tmp_path / "m").items
    assert items.texts == ["a engineer", "engineer"]
    assert items.ids == ["a_engineer", "engineer"]


def test_ids_are_safe_and_distinct(tmp_path):
    long = "very " * 40
    path = tmp_path / "odd.csv"
    path.write_text(f"set;stimulus\nwörk/1;naïve café?\nx;{long}tall\nx;{long}small\nукр;жінка\n")
    items = Manifest.from_prompts(path, ["a {}"]).items
    assert items.ids[0] == "work_1-a_naive_cafe"
    assert len(set(items.ids)) == 4
    assert max(map(len, items.ids)) == 128
    assert items.texts[3] == "a жінка"


@pytest.mark.parametrize(
    ("table", "templates", "why"),
    [
        ("stimulus\nx\nx\n", ["{}"], "line 3: 'x' and 'x' both get the id x; remove one of them"),
        ("stimulus\nb\na b\n", ["{}", "a {}"], "line 3: 'a b' and 'a b' both get the id a_b"),
        ("stimulus\nHer\nher\n", ["{}"], "line 3: 'her' and 'Her' both get the id her"),
        ("set,stimulus\na, \n", ["{}"], "line 2: an empty stimulus"),
        ("set,word\na,b\n", ["{}"], "'stimulus'"),
        ("stimulus,text\na,b\n", ["{}"], "line 1: the importer writes the column 'text'"),
        ("stimulus\na\n", ["{}", "{}"], "the template '{}' is there twice"),
        ("stimulus\na\n", ["a photo"], "the template 'a photo' needs"),
        ("set,stimulus\n", ["{}"], "has a header and no stimuli"),
    ],
)
def test_what_makes_no_prompts(tmp_path, table, templates, why):
    path = tmp_path / "bad.csv"
    path.write_text(table)
    with pytest.raises((ManifestError, UsageError)) as problem:
        Manifest.from_prompts(path, templates)
    assert why in str(problem.value)
    assert "\n" not in str(problem.value)


def touch(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def test_a_folder_of_images(tmp_path, obygaze):
    names = ["a.png", "a.JPG", "b.webp", "c.bmp", "d.tif", "e.jpeg", "f.txt", ".g.png"]
    folder = touch(
        tmp_path / "photos", *(f"yes/{name}" for name in names[1:]), "no/a.png", "top.png"
    )
    result = obygaze("manifests", "import", "folder", folder, "-o", tmp_path / "m")
    assert result.exit_code == 0
    assert "7 images of 2 groups" in result.stdout
    manifest = Manifest.load(tmp_path / "m")
    assert set(manifest.items.kinds) == {"image"}
    assert manifest.ids == ["top", "no-a", "yes-a", "yes-b", "yes-c", "yes-d", "yes-e"]
    assert manifest["yes-a"].media == "a.JPG"


def test_pictures_beside_videos_are_not_clips(tmp_path):
    folder = touch(tmp_path / "films", "1996/a.mp4", "1996/poster.jpg")
    assert Manifest.from_folder(folder).ids == ["1996-a"]
    images = Manifest.from_folder(folder, kind="image")
    assert [(item.id, item.kind) for item in images] == [("1996-poster", "image")]
    with pytest.raises(ManifestError, match=r"holds no images \(\.bmp"):
        Manifest.from_folder(touch(tmp_path / "other", "a.mp4"), kind="image")
    with pytest.raises(ManifestError, match="holds no videos or images"):
        Manifest.from_folder(touch(tmp_path / "texts", "a.txt"))
    with pytest.raises(ManifestError, match="would both be 'a'"):
        Manifest.from_folder(touch(tmp_path / "twice", "a.png", "a.jpg"))


def test_a_table_of_images_and_texts(tmp_path, obygaze):
    path = tmp_path / "mixed.csv"
    path.write_text("id,kind,media,text,group\none,image,one.png,,x\ntwo,text,,a photo,y\n")
    assert obygaze("manifests", "import", "csv", path, "-o", tmp_path / "m").exit_code == 0
    items = Manifest.load(tmp_path / "m").items
    assert (items.kinds, items.texts) == (["image", "text"], ["", "a photo"])
    assert items.extra["group"] == ["x", "y"]


@pytest.mark.parametrize(
    ("battery", "pairs"),
    [
        ("professions", [("objectifying", "science"), ("objectifying", "business")]),
        ("emotion", [("angry", "no emotion"), ("happy", "no emotion")]),
    ],
)
def test_a_battery_is_its_own_prompts(battery, pairs, tmp_path, obygaze, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(battery).mkdir()  # such as the manifest of another day
    result = obygaze("manifests", "import", "prompts", battery, "-o", tmp_path / "m")
    assert result.exit_code == 0, result.output
    manifest = Manifest.load(tmp_path / "m")
    sets = Counter(manifest.items.extra["set"])
    for pair in pairs:
        assert [sets[name] for name in pair] == [30, 30]
    every = set(zip(manifest.items.extra["set"], manifest.items.texts, strict=True))
    expected = {
        "professions": ("science", "an image of an engineer"),
        "emotion": ("angry", "a picture of an angry human being"),
    }
    assert expected[battery] in every


def test_a_battery_of_ids_has_no_prompts(tmp_path):
    path = tmp_path / "own.json"
    path.write_text('{"format": "obygaze-battery", "sets": {"x": ["a", "b"]}}')
    with pytest.raises(ManifestError, match="has no sets of stimuli"):
        Manifest.from_prompts(path)
    path.write_text('["sets"]')
    with pytest.raises(ManifestError, match="is not a battery"):
        Manifest.from_prompts(path)
    # Letters of a word are no templates.
    path.write_text(json.dumps({"sets": {"x": {"stimulus": ["abc"]}}, "templates": "a {}"}))
    with pytest.raises(ManifestError, match="is not a battery"):
        Manifest.from_prompts(path)


def test_a_text_alone_is_one_stimulus(tmp_path):
    sets = {"x": {"stimulus": "nude"}, "y": {"stimulus": ["dressed", "clothed"]}}
    path = tmp_path / "own.json"
    path.write_text(json.dumps({"sets": sets, "templates": ["{}", "a {}"]}))
    assert Manifest.from_prompts(path).items.texts == [
        "nude", "a nude", "dressed", "a dressed", "clothed", "a clothed",
    ]  # fmt: skip
