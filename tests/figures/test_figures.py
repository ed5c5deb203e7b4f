"""Figures: the artists' data against the input numbers, files, colours and legible text."""

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib import rc_context
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from sklearn.tree import DecisionTreeClassifier, export_text

import obygaze_features as of
from obygaze_features.common import figures as common

# A tree's questions are compared with scikit-learn's; a command draws them with their shares.
from obygaze_models.estimators.trees import as_tree

# The artists of a figure, of which commands write only the drawing.
from obygaze_models.figures import dots as plots
from obygaze_models.figures.dots import Dot, Series
from obygaze_models.studies.reproduce.concepts import LEVELS, first_questions
from tests.kit.files import texts, title
from tests.kit.floats import close

CLASSES = plots.level_series({"EN": "Easy Negative", "S": "Sure"})
LONG = "Expression of emotion"
TEXT = {
    "title": "Positive-class F1 of all models on the very same test clips of all films",
    "description": "Words.",
}
AXIS = "difference in positive-class F1 (above 0: the first is ahead)"


def dots() -> Figure:
    sides = [Series("against Easy Negatives"), Series("against all clips without it", hollow=True)]
    look = [Dot(0.4, 0.3, 0.55), Dot(0.2)]
    emotion = [Dot(0.05, -0.1, 0.2), Dot(None)]
    rows = [("Concepts of the films", []), ("Look", look), (LONG, emotion)]
    return plots.dot_plot(rows, sides, axis=AXIS, lines={"guess": 0.3}, **TEXT)


SHORT = ["Shot", "Look", "Body", "Voice"]


def test_dots_are_at_their_values_with_their_numbers() -> None:
    figure = dots()
    assert figure.axes[0].yaxis_inverted()  # the first row is on top
    values = []
    ends = []
    for point, _, bars in (container.lines for container in figure.axes[0].containers):
        values += point.get_xdata().tolist()
        for bar in bars:
            ends += bar.get_segments()[0][:, 0].tolist()
    assert sorted(values) == [0.05, 0.2, 0.4]
    assert sorted(ends) == close([-0.1, 0.2, 0.3, 0.55])
    shown = {text.get_text() for text in figure.findobj(Text)}
    assert {"0.40", "0.20", "0.05", "Concepts of the films", "Look", "guess"} <= shown


def test_a_trees_first_questions_equal_scikit_learns() -> None:
    chance = np.random.default_rng(3)
    Z = chance.normal(size=(400, 4))
    shot, look, body, _ = Z.T
    y = shot + look * body > 0.4
    tree = DecisionTreeClassifier(min_samples_leaf=6, random_state=42).fit(Z, y)
    listed = export_text(tree, feature_names=SHORT, max_depth=LEVELS - 1, decimals=12)
    asked = re.findall(r"((?:[|]   )*)[|]--- (\w+) <= +([-.\d]+)", listed)
    nodes, paths = zip(*first_questions(as_tree(tree), SHORT), strict=True)
    assert len(asked) > 3
    for node, path, (indent, name, threshold) in zip(nodes, paths, asked, strict=True):
        assert path.split(": ")[-1] == name
        assert path.count(": ") == len(indent) / 4
        assert tree.tree_.threshold[node] == close(float(threshold))
    root = tree.tree_.feature[0]
    assert paths[1].startswith(f"{SHORT[root]} not above: ")
    assert paths[-1].startswith(f"{SHORT[root]} above: ")


def test_an_svg_keeps_its_text_and_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    formula = [Dot(0.25, 0.1, 0.5)]
    rows = [("$x$ <b>&", formula), ("\x00 电影", [Dot(0.5)])]
    series = plots.numbered_series(['"mlp"'])
    figure = plots.dot_plot(rows, series, title="a & b", description="Words.", axis="F1")
    common.save_figure(figure, path)
    assert title(path) == "a & b"
    assert '$x$ <b>&, "mlp": 0.25' in title(path, "desc")
    assert {"$x$ <b>&", "\ufffd 电影", "F1", "0.25"} <= set(texts(path))


SHEETS = common.COLOURS + (Path(of.__file__).parent / "page/style.css").read_text()
COLOURS = re.findall(r"--(\w+): (#\w+)", SHEETS)
#: The first definition of a colour is for light pages, the second for dark ones.
THEMES = [dict(reversed(COLOURS)), dict(COLOURS)]
SERIES = [f"s{number}" for number in range(1, 7)]
#: What stands in the legend of the page's films: levels, the model, differences and annotators.
LEGEND = ["l1", "l3", "l4", "l5", "model", "ink", "one", "two", "three"]
TO_XYZ = np.array([[0.4125, 0.3576, 0.1804], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]])
"""From linear sRGB. The second row is the luminance."""


def xyz(colour):
    parts = np.array(to_rgb(colour))
    curve = ((parts + 0.055) / 1.055) ** 2.4
    return TO_XYZ @ np.where(parts <= 0.04045, parts / 12.92, curve)


def contrast(first, second):
    """Return the contrast from 1 to 21, as WCAG defines it."""
    low, high = sorted(xyz(colour)[1] for colour in (first, second))
    return (high + 0.05) / (low + 0.05)


def lab(colour):
    """Return L*, a* and b*; L* survives photocopying and colour blindness."""
    x, y, z = np.cbrt(xyz(colour) / TO_XYZ.sum(axis=1))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("theme", THEMES, ids=["light", "dark"])
def test_colours_contrast_with_the_background(theme):
    for name in [*SERIES, "ink", "soft", "differs"]:
        assert contrast(theme[name], theme["paper"]) >= 4.5
    levels = [theme[f"l{number}"] for number in range(1, 7)]
    ramp = [contrast(level, theme["paper"]) for level in levels]
    assert ramp == sorted(ramp)  # higher levels stand out more, also in dark mode
    assert ramp[0] >= 1.5  # the lowest level on a beamer
    for scheme in (["EN", "HN", "NS", "S"], "abc", "abcd"):
        names = [*common.level_colour_names(list(scheme)), "differs"]
        light = sorted(lab(theme[name])[0] for name in names)
        assert np.diff(light).min() >= 15, names


@pytest.mark.parametrize("theme", THEMES, ids=["light", "dark"])
@pytest.mark.parametrize("legend", [SERIES, LEGEND])
def test_colours_of_one_legend_differ(theme, legend):
    """By CIE76: the closest pairs of today have 20.0, which is 16.7 by CIEDE2000."""
    for first, second in combinations(legend, 2):
        difference = lab(theme[first]) - lab(theme[second])
        assert np.linalg.norm(difference) >= 19.5, (first, second)


def test_a_level_has_one_colour():
    lowest, _, highest = common.level_colours(["EN", "HN", "S"])
    assert common.level_colours(["S", "EN+HN"]) == [highest, lowest]


@pytest.mark.parametrize("width", [3.3, 6.5, 11.0])
def test_no_text_is_cut_off_or_overlaps(width, monkeypatch) -> None:
    paths = ["all clips", f"Type of shot > 0.25, then {LONG} ≤ −1.5", f"1.2.2 {LONG} > 1e+04"]
    rows = [(path, [Dot(0.5)]) for path in paths]
    with rc_context({"figure.figsize": (width, 4)}):
        figures = [dots(), plots.dot_plot(rows, CLASSES[1:], axis="share", **TEXT)]
    drawn: list[Text] = []
    monkeypatch.setattr(Text, "draw", lambda text, _: drawn.append(text))
    for figure in figures:
        assert figure.get_figwidth() == width
        drawn.clear()
        figure.draw_without_rendering()
        inner = figure.bbox.padded(1 - 6 / 72 * figure.dpi)  # 8 px of a page
        seen = [text for text in drawn if text.get_visible() and text.get_text().strip()]
        boxes = [(text.get_text(), text.get_window_extent()) for text in seen]
        assert min(text.get_fontsize() for text in seen) >= 7
        for word, box in boxes:
            assert all(inner.contains(*corner) for corner in box.corners()), word
        for (word, first), (neighbour, second) in combinations(boxes, 2):
            both = Bbox.intersection(first, second)
            lower = min(first.height, second.height)
            apart = both is None or both.width < 1 or both.height < 0.3 * lower
            assert apart, (word, neighbour)
