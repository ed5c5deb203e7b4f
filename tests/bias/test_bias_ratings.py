"""Shares against SciPy's interval, alpha against its definition in fractions."""

import csv
import io
import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from obygaze_features.errors import BiasError
from obygaze_models.bias.ratings import (
    CLASSIFIER,
    Ratings,
    cronbach_alpha,
    group_shares,
    rater_pairs,
    read_ratings,
    wilson_interval,
)
from tests.figures.drawn import tips

WORKED = ["111", "111", "110", "100", "000", "010", "000", "111"]
RATED = np.array([[int(item) for item in row] for row in WORKED])
CLASSES = ["drawings", "hentai", "neutral", "porn", "sexy"]


def by_definition(rows):
    def variance(values):
        mean = Fraction(sum(values), len(values))
        return sum(((value - mean) ** 2 for value in values), Fraction(0)) / (len(values) - 1)

    k, total = len(rows[0]), variance([sum(row) for row in rows])
    if not total:
        return None
    return Fraction(k, k - 1) * (1 - sum(map(variance, map(list, zip(*rows, strict=True)))) / total)


def test_the_worked_alpha():
    assert by_definition(RATED.tolist()) == Fraction(15, 19)
    assert cronbach_alpha(RATED) == pytest.approx(15 / 19, abs=1e-15)


def test_the_worked_pairs():
    """Alpha of each rater with the classifier, and the share of the same labels: both are .75."""
    actual = {
        (item.first, item.second): item
        for item in rater_pairs(Ratings((), (), ("r1", "r2", "cnn"), RATED))
    }
    for rater in ("r1", "r2"):
        item = actual[rater, "cnn"]
        assert (item.alpha, item.agreement) == (pytest.approx(0.75, abs=1e-15), 0.75)
    assert actual["r1", "r2"].alpha == pytest.approx(float(by_definition(RATED[:, :2].tolist())))


@given(
    st.integers(2, 5).flatmap(
        lambda k: st.lists(st.lists(st.integers(0, 1), min_size=k, max_size=k), min_size=2)
    )
)
def test_alpha_is_its_definition(rows):
    expected = by_definition(rows)
    actual = cronbach_alpha(rows)
    assert (
        actual is None if expected is None else actual == pytest.approx(float(expected), abs=1e-9)
    )


@pytest.mark.parametrize("ratings", [[[1], [0]], [], [1, 0], [[1, np.nan], [0, 1]]])
def test_alpha_of_what_it_cannot_take(ratings):
    with pytest.raises(BiasError):
        cronbach_alpha(ratings)


@pytest.mark.parametrize("total", [1, 2, 8, 100, 9931])
@pytest.mark.parametrize("part", [0, 0.2, 0.5, 0.99, 1])
def test_wilsons_interval_is_scipys(part, total):
    count = round(part * total)
    expected = binomtest(count, total).proportion_ci(0.95, method="wilson")
    assert wilson_interval(count, total) == pytest.approx(tuple(expected), abs=1e-12)


@pytest.mark.parametrize(("count", "total"), [(3, 2), (-1, 2), (0, 0)])
def test_what_is_no_share(count, total):
    with pytest.raises(ValueError):
        wilson_interval(count, total)


def write_worked(path):
    rows = [
        f"{number},{'women' if number < 4 else 'men'},{','.join(row)}"
        for number, row in enumerate(WORKED)
    ]
    path.write_text("image_id,group,r1,r2,cnn\n" + "\n".join(rows) + "\n")
    return path


def test_the_command_on_the_worked_table(tmp_path, obygaze):
    table = write_worked(tmp_path / "labels.csv")
    outputs = ["-o", tmp_path / "shares.csv", "-o", tmp_path / "shares.svg"]
    result = obygaze("bias", "ratings", table, "--json", *outputs)
    assert result.exit_code == 0, result.output
    actual = json.loads(result.stdout)
    assert actual["alpha"] == pytest.approx(15 / 19)
    shares = {(item["group"], item["rater"]): item for item in actual["shares"]}
    assert shares["women", "cnn"]["count"] == 2
    assert shares["men", "r2"]["share"] == 0.5
    written = list(csv.DictReader(io.StringIO((tmp_path / "shares.csv").read_text())))
    assert [{name: str(of) for name, of in item.items()} for item in actual["shares"]] == written
    drawn = tips(tmp_path / "shares.svg")
    assert {name: text.split(" (")[0] for name, text in drawn.items()} == {
        f"{group}, {rater}": f"{row['share']:.0%}" for (group, rater), row in shares.items()
    }
    assert all(" to " in text for text in drawn.values())
    plain = obygaze("bias", "ratings", table, "--rater", "r1", "--rater", "cnn").stdout
    assert "r2" not in plain
    assert "r1, cnn          0.750000       75.0%" in plain


def test_probabilities_are_the_most_probable_class(tmp_path):
    table = tmp_path / "p.csv"
    rows = np.eye(5) * 0.5 + 0.1
    text = [f"{at},all,{','.join(map(str, row))},0" for at, row in enumerate(rows.tolist())]
    table.write_text(f"image_id,group,{','.join(CLASSES)},ann\n" + "\n".join(text) + "\n")
    actual = read_ratings(table)
    assert actual.raters == ("ann", CLASSIFIER)
    assert actual.sexualised.tolist() == [[False, item in (1, 3, 4)] for item in range(5)]
    [share] = group_shares(read_ratings(table, [CLASSIFIER]))
    assert (share.rater, share.count, share.images, share.share) == (CLASSIFIER, 3, 5, 0.6)


def test_probabilities_that_do_not_sum_to_one_are_counted(tmp_path, obygaze):
    table = tmp_path / "p.csv"
    rows = ["a;x;.2;.2;.2;.2;.2", "b;x;.333;.333;.333;0;0", "c;x;.9;0;.9;0;0", "d;x;0;0;.3;0;0"]
    table.write_text("\n".join([f"image_id;group;{';'.join(CLASSES)}", *rows]) + "\n")
    result = obygaze("bias", "ratings", table)
    assert result.exit_code == 0
    assert "NOTE: the probabilities of 2 images do not sum to about 1" in result.stderr


def test_the_same_output_twice_is_written_once(tmp_path, obygaze):
    table, out = write_worked(tmp_path / "labels.csv"), tmp_path / "shares.csv"
    result = obygaze("bias", "ratings", table, "-o", out, "-o", out)
    assert (result.exit_code, result.stdout.count("Wrote")) == (0, 1), result.output


def test_labels_are_classes_or_marks(tmp_path):
    table = tmp_path / "l.csv"
    said = ["Porn", "sexy", " hentai", "neutral", "drawings", "1", "0", "yes", "No"]
    text = "".join(f"{at},all,{item}\n" for at, item in enumerate(said))
    table.write_text(f"image_id,group,classifier\n{text}")
    assert read_ratings(table).sexualised[:, 0].tolist() == [1, 1, 1, 0, 0, 1, 0, 1, 0]
