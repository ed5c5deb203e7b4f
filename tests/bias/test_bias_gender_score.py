"""The gender score against the golden numbers, and against plain arithmetic."""

import json
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from obygaze_features.errors import BiasError
from obygaze_models.bias.gender_score import (
    all_objects,
    by_object,
    gender_of,
    gender_score,
    read_scored_captions,
    truncate,
)
from obygaze_models.bias.inputs import shipped_lexicon
from tests.kit.files import csv_rows, texts, tips, title, write
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
    # Ratios are truncated, not rounded.
    cut = float(truncate(probability))
    assert cut <= probability < cut + 0.01 + 1e-12


@pytest.mark.parametrize(("scores", "fact"), [
    ((0.5, -1, 0.5), "similarity must be above -1, .*got -1"),
    ((0.5, 0, -0.5), "confidence must be between 0 and 1 \\(got -0.5\\)"),
    ((math.nan, 0, 0.5), "probability must be between 0 and 1 \\(got nan\\)"),
    ((np.array([0.1, 7]), 0, 0.5), "probability must be .* \\(got 7\\)"),
])  # fmt: skip
def test_invalid_scores_are_refused(scores, fact):
    with pytest.raises(BiasError, match=fact):
        gender_score(*scores)


def test_both_variants_are_scored(tmp_path, obygaze):
    scores = ",".join(map(str, (*MAN, *WOMAN)))
    table = write(
        tmp_path / "s.csv",
        f"id,caption,object,P(c),{VARIANTS}",
        f"a,a [MASK] riding a motorcycle on a road,motor scooter,{SURE},{scores}",
        "b,a [MASK] on a scooter,motor scooter,.5,.2,.3,.2,.3",
        "c,a [MASK] with lipstick,lipstick,.5,.2,.3,.2,.4",
    )
    outputs = [word for kind in ("csv", "svg", "json") for word in ("-o", tmp_path / f"by.{kind}")]
    obygaze("bias", "gender-score", table, *outputs, code=0)
    rows = csv_rows(tmp_path / "by.csv")
    assert [row["leans_to"] for row in rows] == ["man", "tie", "woman"]
    assert [float(rows[0][name]) for name in ("score_man", "score_woman")] == close(GOLDEN)
    assert 100 * float(rows[0]["to_man"]) == pytest.approx(53.17275, abs=5e-6)
    content = json.loads((tmp_path / "by.json").read_text())
    scooter, lipstick = content["objects"]
    means = [np.mean([float(row[f"score_{who}"]) for row in rows[:2]]) for who in ("man", "woman")]
    assert scooter["filled_to_man"] == close(means[0] / sum(means))
    assert (scooter["assigned_to_man"], content["all"]["assigned_to_man"]) == (1, 0.5)
    drawn = tips(tmp_path / "by.svg")
    assert drawn["motor scooter, assigned by the score"] == "1.00"
    filled = truncate(lipstick["filled_to_man"])
    assert drawn["lipstick, gender score with either filled in"] == filled


def test_short_column_names_and_cooccurrence_are_read(tmp_path):
    rows = (
        "object;gender;P;sim;P(c)",
        f"scooter;m;{MAN[0]};{MAN[1]};{SURE}",
        f"scooter;Man;.3;0;{SURE}",
        f"scooter;female;{WOMAN[0]};{WOMAN[1]};{SURE}",
        f"lipstick;woman;.4;0;{SURE}",
    )
    scooter, lipstick = by_object(read_scored_captions(write(tmp_path / "s.csv", *rows)))
    man, woman = (GOLDEN[0] + 0.3) / 2, GOLDEN[1]
    assert (scooter["said_man"], scooter["said_woman"]) == close((man, woman))
    assert scooter["said_to_man"] == close(man / (man + woman))
    counts = [scooter[f"cooccurrence_{name}"] for name in ("man", "woman", "neither")]
    assert counts == [2, 1, 0]
    nothing = lipstick["said_man"], lipstick["said_to_man"], "filled_man" in lipstick
    assert nothing == (None, None, False)
    # Without groups, the captions decide; without objects, there is one line.
    rows = ("caption,P,sim,P(c)", "a man,.5,0,.5", "two girls,.25,0,.5", "a dog,.125,0,.5")
    table = write(tmp_path / "t.csv", *rows)
    row = all_objects(read_scored_captions(table))
    assert (row["said_man"], row["said_woman"]) == (0.5, 0.25)


@pytest.mark.parametrize(("gender", "captions"), [
    ("neither", ["a human", "manhole", "the womanly art", "a [MASK]"]),
    ("both", ["a man, a woman"]),
    ("man", ["A man on it.", "two boys and his bus"]),
])  # fmt: skip
def test_the_words_of_a_caption_give_its_gender(gender, captions):
    genders = shipped_lexicon("genders")
    assert {gender_of(caption, genders) for caption in captions} == {gender}


def test_figures_show_the_tables_numbers(tmp_path, obygaze):
    captions = {"car": ["a man"] * 616 + ["a woman"] * 217, "cat": ["a woman"],
                "hat": ["a thing"], "tie": ["a man", "a woman"]}  # fmt: skip
    lines = [f"{name},{item}" for name, items in captions.items() for item in items]
    table, svg = write(tmp_path / "c.csv", "object,caption", *lines), tmp_path / "o.svg"
    printed = obygaze("bias", "gender-score", table, "--cooccurrence", "-o", svg)
    cells = {line.split()[0]: line.split()[-1] for line in printed.stdout.splitlines()[2:6]}
    drawn = texts(svg)
    assert cells == {"car": ".73", "cat": ".00", "hat": "-", "tie": ".50"}
    for name, text in cells.items():
        assert drawn.count("undefined" if text == "-" else text) == 1, name
    assert "hat, co-occurrence" not in tips(svg)
    assert {"← woman", "man →"} <= set(drawn)
    write(table, "object,group", *(f"o{number:02d},man" for number in range(35)))
    outputs = ["-o", tmp_path / "all.json", "-o", tmp_path / "all.svg"]
    result = obygaze("bias", "gender-score", table, "--cooccurrence", *outputs)
    assert "and 15 more objects" in result.stdout
    assert len(json.loads((tmp_path / "all.json").read_text())["objects"]) == 35
    assert list(tips(tmp_path / "all.svg")) == [f"o{n:02d}, co-occurrence" for n in range(20)]
    assert "the 20 most frequent of 35 objects" in title(tmp_path / "all.svg")
