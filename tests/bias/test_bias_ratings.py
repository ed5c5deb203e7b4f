"""Labels of raters: shares, pairs, and alpha against its definition."""

import json
from fractions import Fraction
from statistics import variance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from obygaze_models.studies.bias.ratings import cronbach_alpha
from tests.kit.files import csv_rows, tips, write
from tests.kit.floats import close


def by_definition(rows):
    exact = [[Fraction(label) for label in row] for row in rows]
    total = variance([sum(row) for row in exact])
    if not total:
        return None
    separate = sum(map(variance, zip(*exact, strict=True)))
    raters = len(exact[0])
    return float(Fraction(raters, raters - 1) * (1 - separate / total))


@given(st.lists(st.tuples(*[st.integers(0, 1)] * 4), min_size=2), st.integers(2, 4))
def test_alpha_equals_its_definition(rows, raters):
    rows = [row[:raters] for row in rows]
    expected = by_definition(rows)
    alpha = cronbach_alpha(rows)
    if expected is None:
        assert alpha is None
    else:
        assert alpha == pytest.approx(expected, abs=1e-9)


LABELS = (
    "image_id,group,r1,r2,cnn",
    *("0,women,1,1,1", "1,women,1,1,1", "2,women,1,1,0", "3,women,1,0,0"),
    *("4,men,0,0,0", "5,men,0,1,0", "6,men,0,0,0", "7,men,1,1,1"),
)


def test_the_command_writes_and_draws_what_it_prints(tmp_path, obygaze):
    table = write(tmp_path / "labels.csv", *LABELS)
    csv = tmp_path / "shares.csv"
    svg = tmp_path / "shares.svg"
    # An output that is named twice is written once.
    result = obygaze("bias", "ratings", table, "--json", "-o", csv, "-o", svg, "-o", csv)
    content = json.loads(result.stdout)
    assert content["alpha"] == close(15 / 19)
    agreements = {pair["raters"]: pair["agreement"] for pair in content["pairs"]}
    assert agreements == {"r1, r2": 6 / 8, "r1, cnn": 6 / 8, "r2, cnn": 6 / 8}
    drawn = tips(svg)
    for row, written in zip(content["rows"], csv_rows(csv), strict=True):
        assert {name: str(value) for name, value in row.items()} == written
        shown = drawn[f"{row['group']}, {row['rater']}"]
        assert shown.startswith(f"{row['share']:.2f}")


def test_raters_are_chosen_by_name(tmp_path, obygaze):
    table = write(tmp_path / "labels.csv", *LABELS)
    words = ("--rater", "r1", "--rater", "cnn", "--json")
    [pair] = json.loads(obygaze("bias", "ratings", table, *words).stdout)["pairs"]
    assert pair["raters"] == "r1, cnn"


@pytest.mark.parametrize(
    ("rater", "rows", "positive"),
    [
        (
            "drawings,hentai,neutral,porn,sexy",
            [".6,.1,.1,.1,.1", ".1,.6,0,.1,.1", "0,0,.6,.1,.1", "0,0,0,1,0", "0,0,0,0,.1"],
            [0, 1, 0, 1, 1],
        ),
        (
            "classifier",
            ["Porn", "sexy", " hentai", "neutral", "drawings", "1", "0", "yes", "No"],
            [1, 1, 1, 0, 0, 1, 0, 1, 0],
        ),
    ],
)
def test_labels_are_the_most_probable_class_or_marks(tmp_path, obygaze, rater, rows, positive):
    lines = [f"{number},image{number},{row}" for number, row in enumerate(rows)]
    table = write(tmp_path / "labels.csv", f"image_id,group,{rater}", *lines)
    shares = json.loads(obygaze("bias", "ratings", table, "--json").stdout)["rows"]
    assert {row["rater"] for row in shares} == {"classifier"}
    assert [row["count"] for row in shares] == positive
