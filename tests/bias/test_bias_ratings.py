"""Shares against SciPy's interval, alpha against its definition in fractions."""

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from obygaze_features.errors import BiasError
from obygaze_models.bias.ratings import (
    CLASSIFIER,
    cronbach_alpha,
    group_shares,
    read_ratings,
)
from tests.kit.files import csv_rows, tips, write

WORKED = ["111", "111", "110", "100", "000", "010", "000", "111"]
CLASSES = ["drawings", "hentai", "neutral", "porn", "sexy"]


def by_definition(rows):
    def variance(values):
        mean = Fraction(sum(values), len(values))
        return sum(((value - mean) ** 2 for value in values), Fraction(0)) / (len(values) - 1)

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
def test_alpha_is_its_definition(rows):
    expected, actual = by_definition(rows), cronbach_alpha(rows)
    assert (actual is None) == (expected is None)
    assert actual is None or actual == pytest.approx(float(expected), abs=1e-9)


@pytest.mark.parametrize("ratings", [[[1], [0]], [], [1, 0], [[1, np.nan], [0, 1]]])
def test_alpha_of_what_it_cannot_take(ratings):
    with pytest.raises(BiasError):
        cronbach_alpha(ratings)


def test_the_command_writes_what_it_prints(tmp_path, obygaze):
    rows = [f"{n},{'women' if n < 4 else 'men'},{','.join(row)}" for n, row in enumerate(WORKED)]
    table = write(tmp_path / "labels.csv", "image_id,group,r1,r2,cnn", *rows)
    csv, svg = tmp_path / "shares.csv", tmp_path / "shares.svg"
    # The same output twice is written once.
    result = obygaze("bias", "ratings", table, "--json", "-o", csv, "-o", svg, "-o", csv)
    content = json.loads(result.stdout)
    assert content["alpha"] == pytest.approx(15 / 19)
    as_text = [{name: str(value) for name, value in row.items()} for row in content["shares"]]
    assert as_text == csv_rows(csv)
    drawn = {name: text.split(" (")[0] for name, text in tips(svg).items()}
    assert drawn == {f"{row['group']}, {row['rater']}": f"{row['share']:.0%}"
                     for row in content["shares"]}  # fmt: skip
    assert "r2" not in obygaze("bias", "ratings", table, "--rater", "r1", "--rater", "cnn").stdout
    unnamed = obygaze("bias", "ratings", table, "-o", tmp_path / "shares.txt")
    assert (unnamed.exit_code, ".csv, .json, .svg" in unnamed.stderr) == (2, True)


def test_labels_are_the_most_probable_class_or_marks(tmp_path, obygaze):
    rows = (np.eye(5) * 0.5 + 0.1).tolist()
    rows = [f"{n},all,{','.join(map(str, row))},0" for n, row in enumerate(rows)]
    header = f"image_id,group,{','.join(CLASSES)}"
    table = write(tmp_path / "p.csv", f"{header},ann", *rows)
    ratings = read_ratings(table)
    assert ratings.raters == ("ann", CLASSIFIER)
    assert ratings.sexualised.tolist() == [[False, item in (1, 3, 4)] for item in range(5)]
    [share] = group_shares(read_ratings(table, [CLASSIFIER]))
    assert (share.rater, share.count, share.images, share.share) == (CLASSIFIER, 3, 5, 0.6)
    # Probabilities that do not sum to about one are counted.
    rows = ["a;x;.2;.2;.2;.2;.2", "b;x;.333;.333;.333;0;0", "c;x;.9;0;.9;0;0", "d;x;0;0;.3;0;0"]
    result = obygaze("bias", "ratings", write(table, header.replace(",", ";"), *rows))
    assert "NOTE: the probabilities of 2 images do not sum to about 1" in result.stderr
    labels = ["Porn", "sexy", " hentai", "neutral", "drawings", "1", "0", "yes", "No"]
    rows = [f"{number},all,{label}" for number, label in enumerate(labels)]
    ratings = read_ratings(write(table, "image_id,group,classifier", *rows))
    assert ratings.sexualised[:, 0].tolist() == [1, 1, 1, 0, 0, 1, 0, 1, 0]
