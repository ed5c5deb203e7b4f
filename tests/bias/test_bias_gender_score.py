"""The gender score against the golden numbers, and against plain arithmetic."""

import json
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from obygaze_features.errors import BiasError
from obygaze_models.studies.bias.gender_score import gender_of, gender_score, gender_scores
from obygaze_models.studies.bias.inputs import shipped_lexicon
from tests.kit.files import csv_rows, tips, write
from tests.kit.floats import close

MAN = 0.12759140133857727, 0.5452305674552917
WOMAN = 0.11249390989542007, 0.5037289261817932
SURE = 0.2183
GOLDEN = 0.45320714150193153, 0.39912252800731546
VARIANTS = "probability_man,similarity_man,probability_woman,similarity_woman"


share = st.floats(0, 1)


@given(share, st.floats(-0.99, 1), share)
@example(0.3, 1 + 5e-7, 0.5)  # as 32 bits round it
def test_the_score_equals_its_formula(probability, similarity, confidence):
    alpha = (max(0, 1 - similarity) / (1 + similarity)) ** (1 - confidence)
    actual = float(gender_score(probability, similarity, confidence))
    assert actual == pytest.approx(probability**alpha, abs=1e-12)


@pytest.mark.parametrize("scores", [
    (0.5, -1, 0.5), (0.5, 1.1, 0.5), (0.5, 0, -1), (math.nan, 0, 0.5), (np.array([0.1, 7]), 0, 0),
])  # fmt: skip
def test_invalid_scores_are_refused(scores):
    with pytest.raises(BiasError, match="similarity above -1"):
        gender_score(*scores)


def rows_of(measured):
    """Return the man, woman and to_man of each object and measure."""
    return {
        (row["object"], row["measure"]): (row["man"], row["woman"], row["to_man"])
        for row in measured.rows
    }


def test_both_variants_are_scored(tmp_path, obygaze):
    scores = ",".join(map(str, (*MAN, *WOMAN)))
    table = write(
        tmp_path / "s.csv",
        f"id,caption,object,confidence,{VARIANTS}",
        f"a,a [MASK] riding a motorcycle on a road,motor scooter,{SURE},{scores}",
        "b,a [MASK] on a scooter,motor scooter,.5,.2,.3,.2,.3",
        "c,a [MASK] with lipstick,lipstick,.5,.2,.3,.2,.4",
    )
    outputs = [word for kind in ("csv", "svg") for word in ("-o", tmp_path / f"by.{kind}")]
    content = json.loads(obygaze("bias", "gender-score", table, *outputs, "--json", code=0).stdout)
    captions = content["captions"]
    assert [(row["id"], row["object"]) for row in captions[1:]] == [
        ("b", "motor scooter"), ("c", "lipstick"),
    ]  # fmt: skip
    assert [captions[0][name] for name in ("score_man", "score_woman")] == close(GOLDEN)

    rows = csv_rows(tmp_path / "by.csv")
    assert [(row["object"], row["measure"], row["captions"]) for row in rows] == [
        (name, measure, count)
        for name, count in (("motor scooter", "2"), ("lipstick", "1"), ("all objects", "3"))
        for measure in ("filled", "assigned")
    ]
    scooter, assigned, lipstick, _, _, together = content["rows"]
    means = [np.mean([row[f"score_{who}"] for row in captions[:2]]) for who in ("man", "woman")]
    assert [scooter["man"], scooter["woman"]] == close(means)
    assert scooter["to_man"] == close(means[0] / sum(means))
    assert (assigned["man"], assigned["woman"]) == (1, 0)  # and a tie
    assert (together["man"], together["woman"], together["to_man"]) == (1, 1, 0.5)
    drawn = tips(tmp_path / "by.svg")
    assert drawn["motor scooter, assigned"] == "1.00"
    assert drawn["lipstick, filled"] == f"{lipstick['to_man']:.2f}"


def test_original_captions_and_cooccurrence_are_scored(tmp_path):
    rows = (
        "object;group;probability;similarity;confidence",
        f"scooter;m;{MAN[0]};{MAN[1]};{SURE}",
        f"scooter;Man;.3;0;{SURE}",
        f"scooter;female;{WOMAN[0]};{WOMAN[1]};{SURE}",
        f"lipstick;woman;.4;0;{SURE}",
    )
    measured = rows_of(gender_scores(write(tmp_path / "s.csv", *rows)))
    man, woman = (GOLDEN[0] + 0.3) / 2, GOLDEN[1]
    assert measured["scooter", "said"] == close((man, woman, man / (man + woman)))
    assert measured["scooter", "cooccurrence"] == (2, 1, 2 / 3)
    assert measured["lipstick", "said"] == (None, 0.4, None)
    assert ("lipstick", "filled") not in measured
    # Without groups, the captions decide; without objects, there is one line.
    header = "caption,probability,similarity,confidence"
    rows = (header, "a man,.5,0,.5", "two girls,.25,0,.5", "a dog,.125,0,.5")
    measured = rows_of(gender_scores(write(tmp_path / "t.csv", *rows)))
    assert measured["all objects", "said"][:2] == (0.5, 0.25)
    assert measured["all objects", "cooccurrence"] == (1, 1, 0.5)
    # The shares of the published example.
    captions = ["object,caption", *["car,a man"] * 616, *["car,a woman"] * 217, "hat,a thing"]
    measured = rows_of(gender_scores(write(tmp_path / "c.csv", *captions)))
    assert measured["car", "cooccurrence"] == (616, 217, 616 / 833)
    assert measured["hat", "cooccurrence"] == (0, 0, None)


@pytest.mark.parametrize(("gender", "captions"), [
    ("neither", ["a human", "manhole", "the womanly art", "a [MASK]"]),
    ("both", ["a man, a woman"]),
    ("man", ["A man on it.", "two boys and his bus"]),
])  # fmt: skip
def test_the_words_of_a_caption_give_its_gender(gender, captions):
    genders = shipped_lexicon("genders")
    assert {gender_of(caption, genders) for caption in captions} == {gender}
