"""The gender score against the authors' example, and against plain arithmetic."""

import json

import numpy as np
import pytest

from tests.kit.files import write
from tests.kit.floats import close

#: Probability and similarity in the authors' example, the object's confidence, and the scores.
MAN = (0.12759140133857727, 0.5452305674552917)
WOMAN = (0.11249390989542007, 0.5037289261817932)
SURE = 0.2183
SCORE_MAN = 0.45320714150193153
SCORE_WOMAN = 0.39912252800731546


@pytest.fixture
def measure(tmp_path, obygaze):
    """Return the printed JSON, and (man, woman, to man) of each object and measure."""

    def measure(*lines):
        table = write(tmp_path / "scores.csv", *lines)
        printed = json.loads(obygaze("bias", "gender-score", table, "--json").stdout)
        leanings = {}
        for row in printed["rows"]:
            numbers = (row["man"], row["woman"], row["to_man"])
            leanings[row["object"], row["measure"]] = numbers
        return printed, leanings

    return measure


def test_the_score_equals_its_formula(measure):
    chance = np.random.default_rng(0)
    p, confidence = chance.random((2, 50))
    similarity = chance.uniform(-0.99, 1, 50)
    p[:2] = confidence[2:4] = (0, 1)
    similarity[4:6] = (1, 1 + 5e-7)  # as 32 bits round it
    rows = zip(p, similarity, confidence, strict=True)
    lines = [",".join(map(str, row)) for row in rows]
    named = [f"{n},man,{line}" for n, line in enumerate(lines)]
    printed, _ = measure("id,group,probability,similarity,confidence", *named)
    sim = np.minimum(similarity, 1)
    expected = p ** (((1 - sim) / (1 + sim)) ** (1 - confidence))
    assert [row["score"] for row in printed["captions"]] == close(expected.tolist())


def test_both_variants_are_scored(measure):
    printed, leanings = measure(
        "object,confidence,probability_man,similarity_man,probability_woman,similarity_woman",
        f"scooter,{SURE},{MAN[0]},{MAN[1]},{WOMAN[0]},{WOMAN[1]}",
        "scooter,.5,.2,0,.2,0",
        "lipstick,.5,.2,0,.3,0",
    )
    first, *_ = printed["captions"]
    assert (first["score_man"], first["score_woman"]) == close((SCORE_MAN, SCORE_WOMAN))
    man = (SCORE_MAN + 0.2) / 2
    woman = (SCORE_WOMAN + 0.2) / 2
    share = man / (man + woman)
    assert leanings["scooter", "filled"] == close((man, woman, share))
    assert leanings["scooter", "assigned"] == (1, 0, 1), "one is a tie"
    assert leanings["all objects", "assigned"] == (1, 1, 0.5)


def test_captions_are_scored_as_they_are(measure):
    _, leanings = measure(
        "object;group;probability;similarity;confidence",
        f"scooter;m;{MAN[0]};{MAN[1]};{SURE}",
        f"scooter;Man;.3;0;{SURE}",
        f"scooter;female;{WOMAN[0]};{WOMAN[1]};{SURE}",
        "lipstick;woman;.4;0;.5",
    )
    man = (SCORE_MAN + 0.3) / 2
    share = man / (man + SCORE_WOMAN)
    assert leanings["scooter", "said"] == close((man, SCORE_WOMAN, share))
    assert leanings["scooter", "cooccurrence"] == (2, 1, 2 / 3)
    assert leanings["lipstick", "said"] == (None, 0.4, None)
    assert next(iter(leanings)) == ("scooter", "said")  # the most frequent object
    assert ("lipstick", "filled") not in leanings


def test_without_groups_the_words_of_captions_decide(measure):
    captions = {
        "A man on it.": "man",
        "two girls": "woman",
        '"a man, a woman"': "both",
        "a dog": "neither",
        "manhole": "neither",
        "the womanly art": "neither",
        "a [MASK]": "neither",
        "two boys and his bus": "man",
    }
    printed, leanings = measure("caption", *captions)
    assert [caption["group"] for caption in printed["captions"]] == [*captions.values()]
    assert leanings["all objects", "cooccurrence"] == (2, 1, 2 / 3)
