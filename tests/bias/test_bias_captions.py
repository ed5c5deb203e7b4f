"""Emotion words in captions, counted by hand."""

import json

import pytest

from tests.kit.files import refused, write
from tests.kit.floats import close


@pytest.fixture
def rates(obygaze, tmp_path):
    """Write captions by file name; return what the command measures."""

    def measure(captions, minimum=1):
        for name, lines in captions.items():
            write(tmp_path / "captions" / name, *lines)
        words = ("bias", "captions", tmp_path / "captions", "--minimum", minimum, "--json")
        return json.loads(obygaze(*words).stdout)

    return measure


def test_words_are_counted_exactly(rates):
    """Only full stops and commas are dropped; a byte order mark is not in the first word."""
    captions = [
        "\ufeffSmiling, smiling. SMILING",
        "smiling! smiling-eyed smilings",
        "smi.ling  smiling",
    ]
    [row] = rates({"ann_HA1_O_1.txt": captions})["rows"]
    assert (row["condition"], row["emotion"], row["intensity"]) == ("objectified", "happy", "1")
    assert (row["count"], row["captions"]) == (5, 3)
    assert row["rate"] == close(5000 / 3)


def test_words_below_the_minimum_in_all_captions_are_left_out(rates):
    rare = ["smile"] * 99
    captions = {
        "ann_HA1_O_1.txt": ["happy"] * 60 + rare,
        "ann_AN1_O_1.txt": ["happy"] * 40,
    }
    printed = rates(captions, minimum=100)
    assert printed["left_out"] == [{"left_out_of": "happy", "word": "smile", "count": 99}]


def test_in_neutral_captions_the_words_of_each_emotion_are_counted(rates):
    captions = {
        "1_AN1_NO_1.txt": ["scowl frown", "a dog"],
        "1_NE_O_1.txt": ["smile", " ", "a scowl"],
        "2_NE_O_1.txt": ["smile, smile"],
    }
    printed = rates(captions)
    assert (printed["images"], printed["captions"]) == (3, 5)
    counts = [(row["emotion"], row["words"], row["count"]) for row in printed["rows"]]
    neutral = [("neutral", "angry", 1), ("neutral", "sad", 0), ("neutral", "happy", 3)]
    assert sorted(counts) == sorted([("angry", "angry", 2), *neutral])


def test_the_interval_resamples_images(rates):
    captions = {}
    for number in range(12):
        captions[f"ann_HA1_O_{number}.txt"] = ["smile", "grey"] * 20
        word = "smile" if number % 2 else "grey"
        captions[f"ann_HA1_NO_{number}.txt"] = [word] * 40
    captions["ann_SA1_O_1.txt"] = ["upset"]
    single, apart, alike = rates(captions)["rows"]
    assert (alike["rate"], alike["low"], alike["high"]) == (500, 500, 500)
    # Of 12 draws with chance 1/2, the middle 95% are 3 to 9.
    assert (apart["rate"], apart["low"], apart["high"]) == (500, 250, 750)
    assert (single["low"], single["high"], single["images"]) == (None, None, 1)


OWN = {
    "format": "obygaze-lexicon",
    "format_version": 1,
    "name": "beach",
    "words": {"beach": ["sand", "sea"]},
    "groups": {"condition": {"women": ["f"], "men": []}, "emotion": {"beach": []}},
}


def test_custom_words_and_groups_are_counted(tmp_path, obygaze):
    lexicon = write(tmp_path / "own.json", json.dumps(OWN))
    lines = ("image_id,condition,emotion,caption", "1,F,beach,sea and sand", "2,men,beach,sea")
    words = ("bias", "captions", write(tmp_path / "c.csv", *lines), "--lexicon", lexicon)
    counted = obygaze(*words, "--minimum", 1, "--json")
    women, men = json.loads(counted.stdout)["rows"]
    assert (women["condition"], women["rate"]) == ("women", 2000)
    assert (men["condition"], men["rate"]) == ("men", 1000)
    assert "rates of beach mean nothing" in obygaze(*words, code=0).stderr
    for key, value, fact in (
        ("groups", {}, "line 2: unknown condition"),
        ("format", "x", "`$.format`"),
        ("words", {"a": ["blue sea"]}, "'blue sea' is not a single token"),
    ):
        write(lexicon, json.dumps(OWN | {key: value}))
        refused(obygaze(*words), fact)
