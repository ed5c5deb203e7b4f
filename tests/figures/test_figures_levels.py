from obygaze_models.drawing.levels import level_series


def colours(*codes):
    return [one.colour for one in level_series({code: code for code in codes})]


def test_a_level_has_one_colour_whatever_stands_beside_it():
    every = dict(zip(("EN", "HN", "NS", "S"), colours("EN", "HN", "NS", "S"), strict=True))
    assert len(set(every.values())) == 4
    assert colours("HN", "S") == [every["HN"], every["S"]]
    assert colours("EN+HN", "S") == [every["EN"], every["S"]]


def test_levels_of_others_have_colours_too():
    assert colours("calm", "S") == [1, 2]
