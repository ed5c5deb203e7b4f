import pytest

from obygaze_models.drawing.marks import Series
from obygaze_models.drawing.svg import WIDTH, text_width
from obygaze_models.figures.bars import Bar, grouped_bars
from tests.figures.drawn import NUMBER, SVG, Drawn, ends_of, place_of

SERIES = [Series("against Easy Negatives", 1), Series("against all without it", 1, hatched=True)]
GROUPS = {
    "Look": [Bar(0.4, 0.3, 0.55, 0.5, "look/a"), Bar(0.2, key="look/b")],
    "Expression of emotion": [Bar(0.05, -0.1, 0.2, key="emotion/a"), Bar(None, key="emotion/b")],
    "Body": [Bar(0.0, key="body/a"), Bar(0.9, key="body/b")],
}


def draw(groups=GROUPS, **more):
    words = {"title": "Concepts", "axis": "F1", "description": "Bars."}
    return Drawn(grouped_bars(groups, SERIES, **{**words, **more}))


def span(bar):
    x = float(bar.get("x"))
    return x, x + float(bar.get("width"))


def test_every_number_can_be_read_back():
    assert draw().values == {
        "look/a": 0.4,
        "look/a/reference": 0.5,
        "look/b": 0.2,
        "emotion/a": 0.05,
        "body/a": 0.0,
        "body/b": 0.9,
    }
    assert set(draw().by_key("data-low")) == {"look/a", "emotion/a"}


@pytest.mark.parametrize(("limits", "percent"), [(None, False), ((0, 1), False), ((0, 1), True)])
def test_bars_reach_from_zero_to_their_values(limits, percent):
    figure = draw(limits=limits, percent=percent)
    read = figure.axis(percent=percent)
    for one in figure.marked():
        if one.tag == SVG + "rect":
            zero, end = span(one)
            assert read(zero) == pytest.approx(0, abs=1e-3)
            assert read(end) == pytest.approx(float(one.get("data-value")), abs=1e-3)
        else:
            assert read(place_of(one)) == pytest.approx(0.5, abs=1e-3)
    low, high = map(read, ends_of(figure.by_key("data-low")["emotion/a"]))
    assert low == pytest.approx(0 if limits else -0.1, abs=1e-3)
    assert high == pytest.approx(0.2, abs=1e-3)


def test_bars_below_zero_go_the_other_way():
    figure = draw({"Look": [Bar(-0.5, key="down"), Bar(0.25, key="up")]})
    down, up = (span(figure.by_key()[key]) for key in ("down", "up"))
    assert down[1] == pytest.approx(up[0], abs=0.02)
    assert down[1] - down[0] == pytest.approx(2 * (up[1] - up[0]), abs=0.05)


def test_hatched_bars_are_lines_within_the_bar_and_others_are_filled():
    figure = draw()
    body = figure.root.find(f"{SVG}g")
    after = dict(zip(body, list(body)[1:], strict=False))
    for key, bar in figure.by_key().items():
        if not key.endswith("/b"):
            continue
        hatches = after[bar]
        assert bar.get("fill") != bar.get("stroke") == hatches.get("stroke")
        numbers = list(map(float, NUMBER.findall(hatches.get("d"))))
        left, right = span(bar)
        top = float(bar.get("y"))
        assert left - 0.01 <= min(numbers[::2]) <= max(numbers[::2]) <= right + 0.01
        bottom = top + float(bar.get("height"))
        assert top - 0.01 <= min(numbers[1::2]) <= max(numbers[1::2]) <= bottom + 0.01
        for x, y, to_x, to_y in zip(*(iter(numbers),) * 4, strict=True):
            assert to_x - x == pytest.approx(y - to_y, abs=0.02)
        # So dense that no bar of some length looks empty.
        assert len(numbers) / 4 >= (right - left) / 5
    solid = figure.by_key()["look/a"]
    assert solid.get("stroke") is None
    assert solid.get("fill") == figure.by_key()["look/b"].get("stroke")


def test_numbers_are_printed_and_undefined_ones_are_no_zeros():
    words = draw().words
    assert [words.count(said) for said in ("0.40", "0.90", "undefined")] == [1, 1, 1]
    assert "40%" in draw(percent=True).words


def test_a_name_is_cut_only_where_there_is_no_room_for_it():
    long = "hair drier, hand blower, blow dryer of a hotel"
    figure = draw({long: [Bar(0.5), Bar(1234567.0)]})
    assert not [one for one in figure.words if one and one.endswith("…")]
    assert "extraordinarily" in draw({"extraordinarily": [Bar(0.5), Bar(0.5)]}).words
    number = next(one for one in figure.all("text") if one.text == "1234567.00")
    assert float(number.get("x")) + text_width(number.text, 12) <= WIDTH


def test_series_and_groups_are_named():
    words = draw().words
    assert words.index(SERIES[0].label) < words.index(SERIES[1].label) < words.index("Look")
    assert "published" in words
    assert "published" not in draw({"Body": GROUPS["Body"]}).words


def test_hostile_names_are_words():
    attack = '</text><script>alert("gaze")</script>\x00'
    figure = Drawn(
        grouped_bars(
            {attack: [Bar(0.5, key=attack.strip("\x00"))]},
            [Series(attack, 6)],
            title=attack,
            axis=attack,
            description=attack,
        )
    )
    assert not figure.all("script")
    assert figure.values == {attack.strip("\x00"): 0.5}
    assert figure.root[0].text == attack.replace("\x00", "\ufffd")
