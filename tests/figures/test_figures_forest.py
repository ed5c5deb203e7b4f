import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from obygaze_models.figures.forest import Line, Point, forest
from tests.figures.drawn import Drawn, ends_of, place_of

POINTS = [
    Point("X-CLIP native", 0.68, 0.6, 0.74, 0.79, "EN-S", "a/native"),
    Point("X-CLIP max", None, 0.1, 0.2, None, "EN-S", "a/max"),
    Point("ViViT", 0.61, None, None, 0.53, "EN-S", "a/vivit"),
    Point("PCBM-DT", 1 / 3, -0.02, 0.5, 0.44, "HN-S", "b/tree"),
    Point("PCBM-LR", float("nan"), 0.0, 0.0, 0.43, "HN-S", "b/linear"),
]
LINES = [Line(0.45, "random", "EN-S", "a/random"), Line(0.5, "even", key="even")]


def draw(points=POINTS, lines=LINES, **more):
    words = {"title": "Scores", "axis": "F1", "description": "Five scores."}
    return Drawn(forest(points, lines=lines, **{**words, **more}))


def test_every_number_can_be_read_back():
    assert draw().values == {
        "a/native": 0.68,
        "a/native/reference": 0.79,
        "a/vivit": 0.61,
        "a/vivit/reference": 0.53,
        "b/tree": 1 / 3,
        "b/tree/reference": 0.44,
        "b/linear/reference": 0.43,
        "a/random": 0.45,
        "even": 0.5,
    }
    ends = draw().by_key("data-low")
    assert {key: (one.get("data-low"), one.get("data-high")) for key, one in ends.items()} == {
        "a/native": ("0.6", "0.74"),
        "b/tree": ("-0.02", "0.5"),
    }


@pytest.mark.parametrize("limits", [None, (0, 1), (0.5, 0.6)])
def test_marks_stand_where_the_axis_says(limits):
    figure = draw(limits=limits)
    read = figure.axis()
    for one in figure.marked():
        assert read(place_of(one)) == pytest.approx(float(one.get("data-value")), abs=1e-3)
    low, high = ends_of(figure.by_key("data-low")["a/native"])
    assert read(low) == pytest.approx(0.6, abs=1e-3)
    assert read(high) == pytest.approx(0.74, abs=1e-3)


def test_an_interval_beyond_the_limits_is_cut_where_the_axis_ends():
    figure = draw(limits=(0, 1))
    low, high = ends_of(figure.by_key("data-low")["b/tree"])
    assert figure.axis()(low) == pytest.approx(0, abs=1e-3)
    assert figure.axis()(high) == pytest.approx(0.5, abs=1e-3)
    low, _ = ends_of(draw().by_key("data-low")["b/tree"])
    assert draw().axis()(low) == pytest.approx(-0.02, abs=1e-3)


def test_numbers_are_printed_too_and_undefined_ones_are_no_zeros():
    words = draw().words
    assert [words.count(said) for said in ("0.68", "0.79", "0.33", "–")] == [1, 1, 1, 2]
    assert "0.00" not in words
    signed = draw([Point("a", 0.051), Point("b", -0.2)], signed=True).words
    assert {"+0.05", "−0.20"} <= set(signed)


def test_groups_and_what_marks_mean_are_named():
    words = draw(interval="95% interval", reference="paper").words
    assert words.index("EN-S") < words.index("X-CLIP native") < words.index("HN-S")
    assert words.count("EN-S") == 1
    assert "ours, with 95% interval" in words
    assert words.count("paper") == 2
    assert "published" not in draw([Point("a", 0.5)]).words


def test_a_groups_line_crosses_its_rows_only():
    lines = draw().by_key()
    tops = {key: float(one.get("y1")) for key, one in lines.items() if one.get("y1")}
    ends = {key: float(one.get("y2")) for key, one in lines.items() if one.get("y2")}
    rows = {key: float(one.get("cy")) for key, one in lines.items() if one.get("cy")}
    assert tops["a/random"] < rows["a/native"] < rows["a/vivit"] < ends["a/random"]
    assert ends["a/random"] < rows["b/tree"] < ends["even"]


def test_lines_that_lie_close_have_names_at_different_heights():
    close = [Line(0.3 + place / 500, f"a guess of a kind {place}") for place in range(4)]
    figure = draw(lines=close)
    heights = [float(one.get("y")) for one in figure.all("text") if "a guess" in one.text]
    assert len(set(heights)) == 4
    assert all(abs(b - a) >= 12 for a, b in pairwise(sorted(heights)))


def test_it_is_one_picture_with_a_name_for_those_who_cannot_see_it():
    figure = draw()
    assert figure.root.get("role") == "img"
    assert [one.text for one in figure.root][:2] == ["Scores", "Five scores."]
    assert not [one for one in figure.root.iter() if one.get("id")]
    assert not {"script", "style", "image", "a"} & {
        one.tag.split("}")[1] for one in figure.root.iter()
    }


def test_a_long_name_is_cut_and_whole_where_the_pointer_rests():
    name = "a backbone whose name goes on and on until no two lines hold it any more"
    (cut,) = {
        one.find("{*}title").text
        for one in draw([Point(name, 0.5)]).all("text")
        if "…" in (one.text or "")
    }
    assert cut == name


@pytest.mark.parametrize("points", [[], [Point("one", 0.5)], [Point("none", None)]])
def test_little_or_nothing_is_drawn_as_well(points):
    assert len(draw(points, lines=()).marked()) == sum(one.value is not None for one in points)


anything = st.text(max_size=60)
numbers = st.floats(-1e6, 1e6) | st.none() | st.sampled_from([math.nan, math.inf, 0.0, 1e-9])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(anything, numbers, numbers, numbers, numbers), max_size=6), anything)
def test_whatever_comes_from_data_is_drawn_and_escaped(rows, words):
    points = [
        Point(f"<b>&\"'{label}", value, low, high, reference, key=f"k{place}")
        for place, (label, value, low, high, reference) in enumerate(rows)
    ]
    figure = draw(points, [Line(1.0, words)], title=words, axis=words, interval=words)
    expected = {None: 1.0}
    for point in points:
        for key, value in ((point.key, point.value), (f"{point.key}/reference", point.reference)):
            if value is not None and math.isfinite(value):
                expected[key] = value
    assert figure.values == expected
    assert not figure.all("b")
