"""Labels of raters: shares, pairs, and alpha against its definition."""

import json
from fractions import Fraction
from statistics import variance

import numpy as np
import pytest
from scipy.stats import binomtest

from tests.kit.files import write
from tests.kit.floats import close


def by_definition(rows):
    exact = [[Fraction(label) for label in row] for row in rows]
    total = variance([sum(row) for row in exact])
    if not total:
        return None
    separate = sum(map(variance, zip(*exact, strict=True)))
    raters = len(exact[0])
    return float(Fraction(raters, raters - 1) * (1 - separate / total))


@pytest.fixture
def rate(tmp_path, obygaze):
    """Write a table, and return what the command measures."""

    def rate(*lines, options=()):
        table = write(tmp_path / "labels.csv", *lines)
        return json.loads(obygaze("bias", "ratings", table, *options, "--json", code=0).stdout)

    return rate


@pytest.mark.parametrize("raters", [2, 3, 4])
def test_alpha_equals_its_definition(rate, raters):
    chance = np.random.default_rng(raters)
    names = "abcd"[:raters]
    for images in (2, 2, 3, 5, 40):
        rows = chance.integers(0, 2, (images, raters)).tolist()
        labels = [",".join(map(str, row)) for row in rows]
        lines = [f"{n},x,{line}" for n, line in enumerate(labels)]
        measured = rate(f"image_id,group,{','.join(names)}", *lines)
        expected = by_definition(rows)
        assert measured["alpha"] == (expected if expected is None else close(expected))


LABELS = [
    "image_id,group,r1,r2,cnn",
    *("0,women,1,1,1", "1,women,1,1,1", "2,women,1,1,0", "3,women,1,0,0"),
    *("4,men,0,0,0", "5,men,0,1,0", "6,men,0,0,0", "7,men,1,1,1"),
]


def test_pairs_and_intervals_equal_scipys(rate):
    content = rate(*LABELS, options=("--rater", "r1", "--rater", "cnn"))
    [pair] = content["pairs"]
    assert (pair["raters"], pair["agreement"]) == ("r1, cnn", 6 / 8)
    first, *_ = content["rows"]
    interval = binomtest(4, 4).proportion_ci(method="wilson")
    assert (first["share"], first["low"]) == (1, close(interval.low))


PROBABLE = [".6,.1,.1,.1,.1", ".1,.6,0,.1,.1", "0,0,.6,.1,.1", "0,0,0,1,0", "0,0,0,0,.1"]
MARKED = ["Porn", "sexy", " hentai", "neutral", "drawings", "1", "0", "yes", "No"]
READ = [
    ("drawings,hentai,neutral,porn,sexy", PROBABLE, [0, 1, 0, 1, 1]),
    ("classifier", MARKED, [1, 1, 1, 0, 0, 1, 0, 1, 0]),
]


@pytest.mark.parametrize(("columns", "rows", "positive"), READ)
def test_labels_are_the_most_probable_class_or_marks(rate, columns, rows, positive):
    lines = [f"{number},image{number},{row}" for number, row in enumerate(rows)]
    shares = rate(f"image_id,group,{columns}", *lines)["rows"]
    assert {row["rater"] for row in shares} == {"classifier"}
    assert [row["count"] for row in shares] == positive
