"""Emotion words in captions, counted by hand; labels, and alpha against its definition."""

import json
from fractions import Fraction
from statistics import variance

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from obygaze_models.studies.bias.captions import emotion_rates, read_captions
from obygaze_models.studies.bias.inputs import shipped_lexicon
from obygaze_models.studies.bias.ratings import CLASSIFIER, cronbach_alpha, ratings, read_labels
from tests.kit.files import csv_rows, refused, tips, write
from tests.kit.floats import close

EMOTIONS = shipped_lexicon("emotions")


def write_captions(folder, files):
    for name, captions in files.items():
        write(folder / name, *captions)
    return folder


NUMBERS = ("count", "captions", "rate")


def pick(row, names):
    return [row[name] for name in names]


def rates_of(folder, minimum):
    rates = emotion_rates(read_captions(folder, EMOTIONS), EMOTIONS, minimum=minimum).rows
    short = {"objectified": "O", "non-objectified": "NO"}
    return {
        (row["emotion"], row["intensity"], short[row["condition"]]): pick(row, NUMBERS)
        for row in rates
        if row["emotion"] == row["words"]
    }


def test_words_are_counted_exactly(tmp_path):
    # Only full stops and commas are dropped; a byte order mark is not in the first word.
    captions = ["Smiling, smiling. SMILING", "smiling! smiling-eyed smilings", "smi.ling  smiling"]
    write(tmp_path / "f/ann_HA1_O_1.txt", *captions, encoding="utf-8-sig")
    assert rates_of(tmp_path / "f", 1) == {("happy", "1", "O"): [5, 3, close(5000 / 3)]}
    files = {
        "ann_HA1_O_1.txt": ["happy"] * 60 + ["smile"] * 99,
        "ann_AN1_O_1.txt": ["happy"] * 40 + ["a serious man"] * 160,
    }
    rates = emotion_rates(read_captions(write_captions(tmp_path / "g", files), EMOTIONS), EMOTIONS)
    assert rates.about["minimum"] == 100
    assert {"left_out_of": "happy", "word": "smile", "count": 99} in rates.about["left_out"]
    assert "happy" not in [row["word"] for row in rates.about["left_out"]]


def test_neutral_captions_are_a_group(tmp_path, obygaze):
    files = {
        "1_AN1_NO_1.txt": ["scowl frown", "a dog"],
        "1_NE_O_1.txt": ["smile", "a scowl"],
        "2_NE_O_1.txt": ["smile, smile"],
        "2_HA1_O_1.txt": ["a smile"],
    }
    folder = write_captions(tmp_path / "f", files)
    expected = {("angry", "1", "NO"): [1, 2, 500], ("happy", "1", "O"): [1, 1, 1000]}
    assert rates_of(folder, 2) == expected
    content = json.loads(obygaze("bias", "captions", folder, "--minimum", 2, "--json").stdout)
    assert (content["images"], content["captions"]) == (4, 6)
    rows = [rate for rate in content["rows"] if rate["emotion"] == "neutral"]
    counts = [(rate["condition"], rate["words"], rate["count"]) for rate in rows]
    neutral = [("angry", 1), ("sad", 0), ("happy", 3)]
    assert sorted(counts) == sorted(("objectified", *row) for row in neutral)


def test_the_interval_resamples_images(tmp_path):
    alike = {f"ann_HA1_O_{n}.txt": ["smile", "grey"] * 20 for n in range(12)}
    apart = {f"ann_HA1_NO_{n}.txt": ["smile" if n % 2 else "grey"] * 40 for n in range(12)}
    folder = write_captions(tmp_path / "f", alike | apart)
    rest, same = emotion_rates(read_captions(folder, EMOTIONS), EMOTIONS).rows
    columns = ("condition", "rate", "low", "high")
    assert pick(same, columns) == ["objectified", 500, 500, 500]
    # Of 12 draws with chance 1/2, the middle 95% are 3 to 9.
    assert pick(rest, columns[1:]) == [500, 250, 750]
    single = write_captions(tmp_path / "g", {"ann_HA1_O_1.txt": ["smile"]})
    [rate] = emotion_rates(read_captions(single, EMOTIONS), EMOTIONS, minimum=1).rows
    assert (rate["low"], rate["high"], rate["images"]) == (None, None, 1)


TABLE = (
    "image_id,condition,emotion,intensity,caption",
    'a,objectified,Angry,high,"A woman, frowning."',
    'a,O,anger,high,"a scowl, a frown"',
    'b,NO,SA,low,"she said ""upset""\nand upset"',
)


def test_a_table_counts_like_a_folder(tmp_path, obygaze):
    path = write(tmp_path / "captions.csv", *TABLE)
    outputs = [word for kind in ("csv", "svg") for word in ("-o", tmp_path / f"r.{kind}")]
    obygaze("bias", "captions", path, "--minimum", 1, *outputs, code=0)
    assert [list(row.values())[:7] for row in csv_rows(tmp_path / "r.csv")] == [
        ["objectified", "angry", "high", "angry", "3", "2", "1500.0"],
        # A line break is not a space: "\\nand" is a token, and "upset" occurs once.
        ["non-objectified", "sad", "low", "sad", "1", "1", "1000.0"],
    ]
    drawn = {"angry high, objectified": "1500.00", "sad low, non-objectified": "1000.00"}
    assert tips(tmp_path / "r.svg") == drawn


def test_rare_words_are_named_and_blank_captions_left_out(tmp_path, obygaze):
    folder = write_captions(tmp_path / "f", {"ann_HA1_O_1.txt": ["happy"]})
    result = obygaze("bias", "captions", folder)
    assert "rates of happy mean nothing: no word reaches the minimum (100)" in result.stderr
    assert "happy        happy      1" in result.stdout
    assert "angry" not in result.output
    write(folder / "ann_HA1_O_1.txt", "a smile", "", "  ", "a dog")
    rows = ("image_id;condition;emotion;caption", "a;O;HA;a smile", "a;O;HA;", "b;O;HA; ")
    for captions in (folder, write(tmp_path / "c.csv", *rows, "a;O;HA;a dog")):
        result = obygaze("bias", "captions", captions, "--minimum", 1, "--json")
        content = json.loads(result.stdout)
        assert (content["images"], content["captions"]) == (1, 2)
        assert content["rows"][0]["rate"] == 500


def test_custom_words_and_groups_are_counted(tmp_path, obygaze):
    own = {
        "format": "obygaze-lexicon",
        "format_version": 1,
        "name": "beach",
        "words": {"beach": ["sand", "sea"]},
        "groups": {"condition": {"women": ["f"], "men": []}, "emotion": {"beach": []}},
    }
    lexicon = write(tmp_path / "own.json", json.dumps(own))
    rows = ("image_id,condition,emotion,caption", "1,F,beach,sea and sand", "2,men,beach,sea")
    table = write(tmp_path / "c.csv", *rows)
    result = obygaze("bias", "captions", table, "--minimum", 1, "--lexicon", lexicon, "--json")
    rates = json.loads(result.stdout)["rows"]
    assert [(rate["condition"], rate["rate"]) for rate in rates] == [("women", 2000), ("men", 1000)]
    write(lexicon, json.dumps(own | {"groups": {}}))
    refused(obygaze("bias", "captions", table, "--lexicon", lexicon), "line 2: unknown condition")


WORKED = ["111", "111", "110", "100", "000", "010", "000", "111"]
CLASSES = ["drawings", "hentai", "neutral", "porn", "sexy"]


def by_definition(rows):
    rows = [list(map(Fraction, row)) for row in rows]
    k, total = len(rows[0]), variance([sum(row) for row in rows])
    if not total:
        return None
    return Fraction(k, k - 1) * (1 - sum(map(variance, map(list, zip(*rows, strict=True)))) / total)


BITS = st.integers(0, 1)


@given(
    st.integers(2, 5).flatmap(
        lambda k: st.lists(st.lists(BITS, min_size=k, max_size=k), min_size=2)
    )
)
def test_alpha_equals_its_definition(rows):
    expected, actual = by_definition(rows), cronbach_alpha(rows)
    assert (actual is None) == (expected is None)
    assert actual is None or actual == pytest.approx(float(expected), abs=1e-9)


def test_the_command_writes_what_it_prints(tmp_path, obygaze):
    rows = [f"{n},{'women' if n < 4 else 'men'},{','.join(row)}" for n, row in enumerate(WORKED)]
    table = write(tmp_path / "labels.csv", "image_id,group,r1,r2,cnn", *rows)
    csv, svg = tmp_path / "shares.csv", tmp_path / "shares.svg"
    # If the same output is named twice, it is written once.
    result = obygaze("bias", "ratings", table, "--json", "-o", csv, "-o", svg, "-o", csv)
    content = json.loads(result.stdout)
    assert content["alpha"] == close(15 / 19)
    as_text = [{name: str(value) for name, value in row.items()} for row in content["rows"]]
    assert as_text == csv_rows(csv)
    drawn = {name: text.split(" (")[0] for name, text in tips(svg).items()}
    assert drawn == {f"{row['group']}, {row['rater']}": f"{row['share']:.2f}"
                     for row in content["rows"]}  # fmt: skip
    pairs = {row["raters"]: row["agreement"] for row in content["pairs"]}
    assert pairs == {"r1, r2": 6 / 8, "r1, cnn": 6 / 8, "r2, cnn": 6 / 8}
    assert "r2" not in obygaze("bias", "ratings", table, "--rater", "r1", "--rater", "cnn").stdout
    unnamed = obygaze("bias", "ratings", table, "-o", tmp_path / "shares.txt")
    assert (unnamed.exit_code, ".csv or .pdf" in unnamed.stderr) == (2, True)
    assert not (tmp_path / "shares.txt").exists()


def test_ratings_are_the_most_probable_class_or_marks(tmp_path):
    rows = (np.eye(5) * 0.5 + 0.1).tolist()
    rows = [f"{n},all,{','.join(map(str, row))},0" for n, row in enumerate(rows)]
    header = f"image_id,group,{','.join(CLASSES)}"
    table = write(tmp_path / "p.csv", f"{header},ann", *rows)
    labels = read_labels(table)
    assert list(labels) == ["ann", CLASSIFIER]
    assert labels[CLASSIFIER].tolist() == [item in (1, 3, 4) for item in range(5)]
    [share] = ratings(table, [CLASSIFIER]).rows
    assert pick(share, ("rater", "count", "images", "share")) == [CLASSIFIER, 3, 5, 0.6]
    labels = ["Porn", "sexy", " hentai", "neutral", "drawings", "1", "0", "yes", "No"]
    rows = [f"{number},all,{label}" for number, label in enumerate(labels)]
    marks = read_labels(write(table, "image_id,group,classifier", *rows))
    assert marks["classifier"].tolist() == [1, 1, 1, 0, 0, 1, 0, 1, 0]
