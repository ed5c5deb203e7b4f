import pytest

from obygaze_models.explain.error_factors import Factor, FilmFactors
from obygaze_models.figures.factors import factors
from tests.figures.drawn import SVG, Drawn, ends_of

FILMS = [
    FilmFactors(
        None,
        300,
        40,
        (
            Factor("Look", 0.5, 0.2, 0.9, 30),
            Factor("Body", -1.0, -2.0, 0.1, 20),
            Factor("S", 0.0, None, None, 5),
        ),
    ),
    FilmFactors("tt1", 40, 0, (), "no wrong clip to compare with"),
    FilmFactors(
        "tt2",
        50,
        9,
        (
            Factor("Look", None, None, None, 0),
            Factor("Body", None, None, None, 50),
            Factor("S", 2.5, 0.5, 3.7, 5),
        ),
    ),
]


@pytest.fixture(scope="module")
def figure():
    return Drawn(
        factors(FILMS, {"tt1": "Gone <Girl>"}, title="Errors", description="Panels.", key="f")
    )


def test_every_number_can_be_read_back(figure):
    assert figure.values == {
        "f/all/Look": 0.5,
        "f/all/Body": -1.0,
        "f/all/S": 0.0,
        "f/tt2/S": 2.5,
    }
    ends = figure.by_key("data-low")
    assert {
        key: (float(o.get("data-low")), float(o.get("data-high"))) for key, o in ends.items()
    } == {
        "f/all/Look": (0.2, 0.9),
        "f/all/Body": (-2.0, 0.1),
        "f/tt2/S": (0.5, 3.7),
    }


def test_points_stand_in_proportion_on_one_axis(figure):
    points = {key: float(one.get("cx")) for key, one in figure.by_key().items()}
    zero = points["f/all/S"]
    unit = (points["f/all/Look"] - zero) / 0.5
    assert points["f/all/Body"] == pytest.approx(zero - unit, abs=0.05)
    low, high = ends_of(figure.by_key("data-low")["f/all/Body"])
    assert (low, high) == (
        pytest.approx(zero - 2 * unit, abs=0.1),
        pytest.approx(zero + 0.1 * unit, abs=0.1),
    )
    # The third panel's own zero is the line that was drawn there; the scale is the same.
    zeros = sorted(float(one.get("x1")) for one in figure.all("line"))
    assert zeros[0] == zero
    assert points["f/tt2/S"] == pytest.approx(zeros[1] + 2.5 * unit, abs=0.1)
    assert ends_of(figure.by_key("data-low")["f/tt2/S"])[1] <= 480


def test_a_factors_row_is_the_same_in_all_panels(figure):
    heights = {key: one.get("cy") for key, one in figure.by_key().items()}
    assert heights["f/all/S"] == heights["f/tt2/S"]


def test_says_how_many_clips_and_where_there_is_nothing_to_say(figure):
    words = figure.words
    assert {"40/300 wrong", "0/40 wrong", "9/50 wrong", "All films", "tt2"} <= set(words)
    assert "no wrong clip to compare with" in " ".join(words)
    assert {"no clip", "every clip"} <= set(words)
    assert "<Girl>" in " ".join(words)


def test_intervals_that_hold_0_are_told_apart_without_colour(figure):
    """A hollow point has a second one of the paper's colour upon it."""
    places = [(one.get("cx"), one.get("cy")) for one in figure.all("circle")]
    hollow = {
        key
        for key, one in figure.by_key().items()
        if places.count((one.get("cx"), one.get("cy"))) == 2
    }
    assert hollow == {"f/all/Body", "f/all/S"}
    assert "interval holds 0" in figure.words


def test_only_films_without_errors():
    figure = Drawn(factors(FILMS[1:2], {}, title="Errors", description="None."))
    assert figure.marked() == []
    assert figure.all(SVG + "circle") == []
