"""Rows of spans in time, read back by the times beneath them."""

from itertools import pairwise

import numpy as np
import pytest

from obygaze_features.drawing.bands import Row, Span, bands, clock
from obygaze_features.drawing.levels import level_series
from tests.figures.drawn import Drawn

LEVELS = level_series({"EN": "Easy Negative", "HN": "Hard Negative", "NS": "Not Sure", "S": "Sure"})


def seconds(said):
    """A time such as 1:02:05."""
    parts = [int(part) for part in said.split(":")]
    return sum(part * 60**place for place, part in enumerate(reversed(parts)))


def drawn(spans, end):
    row = Row("annotator1", spans, key="a")
    return Drawn(bands([row], LEVELS, end, title="A film", description=""))


def axes(figure):
    """For each band: from a place to a time, by the words beneath it; and where it stands."""
    ticks = {}
    for one in figure.all("text"):
        if one.get("text-anchor") == "middle":
            place = float(one.get("x")), seconds(one.text)
            ticks.setdefault(float(one.get("y")), []).append(place)
    x, times = np.array(ticks[min(ticks)]).T
    slope = np.polyfit(x, times, 1)[0]  # All bands are equally wide.
    return [(y, slope, said - slope * at) for y, ((at, said), *_) in sorted(ticks.items())]


def span_of(figure, one):
    """When a bar begins and ends."""
    y = float(one.get("y"))
    _, slope, offset = next(axis for axis in axes(figure) if axis[0] > y)
    left = float(one.get("x"))
    return slope * left + offset, slope * (left + float(one.get("width"))) + offset


@pytest.mark.parametrize("end", [250.0, 3000.0, 6900.0, 14000.0])
def test_a_span_stands_where_its_times_are(end):
    edges = np.linspace(0, end, 14)
    spans = [Span(start, stop, place % 4) for place, (start, stop) in enumerate(pairwise(edges))]
    figure = drawn(spans, end)
    for number, span in enumerate(spans):
        pieces = [one for key, one in figure.by_key().items() if key.split("/")[1] == str(number)]
        times = [span_of(figure, one) for one in pieces]
        assert min(start for start, _ in times) == pytest.approx(span.start, abs=end / 500)
        assert max(stop for _, stop in times) == pytest.approx(span.end, abs=end / 150)


def test_a_span_that_reaches_over_a_bands_end_goes_on_in_the_next():
    figure = drawn([Span(0, 6900, 3)], 6900)
    assert len(figure.marked()) == len(axes(figure)) == 4


def test_the_higher_the_level_the_taller_the_bar_and_the_nearer_to_the_eye():
    figure = drawn([Span(0, 20, 3), Span(10, 30, 0), Span(25, 45, 2), Span(40, 60, 1)], 60)
    heights = [float(one.get("height")) for one in figure.marked()]
    assert heights == sorted(heights)
    feet = {float(one.get("y")) + float(one.get("height")) for one in figure.marked()}
    assert len(feet) == 1


def test_words_stand_clear_of_each_other():
    figure = drawn([Span(0, 7200, 1)], 7200)
    for y in {one.get("y") for one in figure.all("text")}:
        row = sorted(float(o.get("x")) for o in figure.all("text") if o.get("y") == y)
        assert all(after - before > 40 for before, after in pairwise(row))


def test_a_short_film_has_one_band_and_a_row_without_spans_is_kept():
    figure = Drawn(bands([Row("nobody", [])], LEVELS, 42.0, title="", description=""))
    assert "nobody" in figure.words
    assert figure.words.count("0:00") == 1


def test_times_are_said_as_players_say_them():
    assert [clock(one) for one in (0, 59.9, 60, 3599, 3600, 36000)] == [
        "0:00", "0:59", "1:00", "59:59", "1:00:00", "10:00:00",
    ]  # fmt: skip


def test_names_of_24_letters_are_whole_and_people_stand_apart():
    name = "Annette-Louise_Bergmann2"
    rows = [
        Row(name, [Span(0, 60, 1)]),
        Row("on clips", [Span(0, 60, 1)], follows=True),
        Row("bob", [Span(0, 60, 3)], strong=True),
    ]
    figure = Drawn(bands(rows, LEVELS, 60.0, title="", description="by whom; threshold 0.2"))
    assert {name, "on clips", "bob", "by whom; threshold 0.2"} <= set(figure.words)
    first, clips, other = (
        next(float(one.get("y")) for one in figure.all("text") if one.text == said)
        for said in (name, "on clips", "bob")
    )
    assert other - clips > 1.5 * (clips - first)


def test_the_last_tick_is_labelled_and_the_legend_has_what_occurs():
    figure = drawn([Span(0, 30, 0), Span(30, 60, 3)], 60)
    assert "1:00" in figure.words
    names = {"Easy Negative", "Hard Negative", "Not Sure", "Sure"}
    assert names & set(figure.words) == {"Easy Negative", "Sure"}
    assert names <= set(drawn([], 60).words)
