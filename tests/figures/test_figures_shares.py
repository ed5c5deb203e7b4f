import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from obygaze_models.drawing.marks import Series
from obygaze_models.figures.shares import Share, shares
from tests.figures.drawn import SVG, Drawn

LEVELS = [Series("EN", 4), Series("HN", 1), Series("NS", 2), Series("S", 3)]
ROWS = [
    Share("All films", (0.524, 0.161, 0.153, 0.162), 1914, "all", overall=True),
    Share("Juno", (1.0, 0.0, 0.0, 0.0), 3, "juno"),
    Share("Gone Girl", (0.3, 0.3, 0.39, 0.01), 120, "gone"),
]


def draw(rows=ROWS):
    return Drawn(shares(rows, LEVELS, title="Levels", axis="% of clips", description="Bars."))


def test_every_number_can_be_read_back():
    expected = {f"{row.key}/n": row.count for row in ROWS} | {
        f"{row.key}/{level.label}": share
        for row in ROWS
        for level, share in zip(LEVELS, row.parts, strict=True)
    }
    assert draw().values == expected


def test_parts_follow_one_another_along_the_axis():
    figure = draw()
    read, found = figure.axis(percent=True), figure.by_key()
    for row in ROWS:
        ends = np.cumsum(row.parts)
        for level, end in zip(LEVELS, ends, strict=True):
            bar = found[f"{row.key}/{level.label}"]
            assert bar.tag == f"{SVG}rect"
            x, width = float(bar.get("x")), float(bar.get("width"))
            assert read(x + width) == pytest.approx(end, abs=1e-3)
            share = float(bar.get("data-value"))
            assert read(x) == pytest.approx(end - share, abs=1e-3)


def test_parts_say_their_share_where_there_is_room_and_the_rest_when_pointed_at():
    figure = draw()
    assert {"52%", "100%", "39%", "1,914", "120"} <= set(figure.words)
    assert "1%" not in figure.words
    tips = [one.text for one in figure.all("title")]
    assert "Gone Girl, S: 1%" in tips


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=4, max_size=4), st.text(max_size=40))
def test_any_shares_of_any_film(parts, name):
    whole = sum(parts) or 1
    row = Share(name, [part / whole for part in parts], 7, "k")
    assert list(draw([row]).values.values()) == [*row.parts, 7]
