"""Manifests of texts: each stimulus in each template."""

import json

import pytest

import obygaze_features as of
from obygaze_features.errors import ManifestError, UsageError
from tests.kit.files import csv_rows, write


def texts_of(tmp_path, stimuli, *templates, **options):
    table = write(tmp_path / "stimuli.csv", "stimulus", *stimuli)
    return of.Manifest.from_prompts(table, templates, **options).items.texts


def test_the_article_follows_the_first_letter(tmp_path):
    stimuli = ["engineer", "'old' man", "Umbrella", "hour", "8-year-old"]
    expected = ["an engineer", "an 'old' man", "an Umbrella", "a hour", "a 8-year-old"]
    for article in ("a", "an"):
        assert texts_of(tmp_path, stimuli, f"{article} {{}}") == expected
    # An article that is not right before the stimulus is not changed.
    templates = ("A {}", "the {} of a hour")
    assert texts_of(tmp_path, ["engineer"], *templates) == ["An engineer", "the engineer of a hour"]
    with pytest.raises(UsageError, match="letter, always-a"):
        texts_of(tmp_path, ["engineer"], "a {}", article="the")


PEOPLE = ("person", "woman", "human", "human being", "individual", "adult")


def test_every_stimulus_fills_every_template(tmp_path, obygaze):
    """Wolfe et al. have six prompts with the emotion, and six without."""
    emotions = ("angry", "sad", "happy")
    rows = []
    for emotion in emotions:
        rows += [f"{emotion},{emotion} {person},yes" for person in PEOPLE]
        rows += [f"{emotion}-not,{person},no" for person in PEOPLE]
    source = write(tmp_path / "emotions.csv", "set,stimulus,named", *rows)
    command = ("manifests", "import", "prompts", source, "-o", tmp_path / "m")
    assert "180 items" in obygaze(*command, code=0).stdout
    rows = csv_rows(tmp_path / "m/items.csv")
    angry = [row for row in rows if row["set"] == "angry"]
    assert len(angry) == 30  # a side of the published test
    forms = ("{}", "an {}", "a photo of an {}", "an image of an {}", "a picture of an {}")
    texts = [form.format("angry person") for form in forms]
    assert [row["text"] for row in angry[:5]] == texts
    assert angry[2]["id"] == "angry-a_photo_of_an_angry_person"
    # The published prompts.
    obygaze(*command, "--article", "always-a", "--template", "a {}", "--overwrite", code=0)
    assert of.Manifest.load(tmp_path / "m").items.texts[0] == "a angry person"


def test_ids_are_safe_and_distinct(tmp_path):
    long = "very " * 40
    rows = ("set;stimulus", "wörk/1;naïve café?", f"x;{long}tall", f"x;{long}small", "ukр;жінка")
    items = of.Manifest.from_prompts(write(tmp_path / "odd.csv", *rows), ["a {}"]).items
    assert items.ids[0] == "work_1-a_naive_cafe"
    assert len(set(items.ids)) == 4
    assert max(map(len, items.ids)) == 128
    assert items.texts[3] == "a жінка"


MISTAKES = [
    ('{"format": "obygaze-battery", "sets": {"x": ["a", "b"]}}', "has no set with stimuli"),
    # Letters of a word are not templates.
    ('{"sets": {"x": {"stimulus": ["abc"]}}, "templates": "a {}"}', "is not a battery"),
]


def test_batteries_and_custom_prompts_are_imported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "professions").mkdir()  # such as the manifest of another day
    items = of.Manifest.from_prompts("professions").items
    assert items.extra["set"].count("science") == 30
    assert "an image of an engineer" in items.texts
    path = tmp_path / "own.json"
    for text, fact in MISTAKES:
        with pytest.raises(ManifestError, match=fact):
            of.Manifest.from_prompts(write(path, text))
    # A text alone is one stimulus.
    sets = {"x": {"stimulus": "nude"}, "y": {"stimulus": ["dressed"]}}
    write(path, json.dumps({"sets": sets, "templates": ["{}", "a {}"]}))
    texts = of.Manifest.from_prompts(path).items.texts
    assert texts == ["nude", "a nude", "dressed", "a dressed"]
