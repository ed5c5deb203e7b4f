"""Colours that can be told apart, text that is neither cut nor on other text."""

import re
from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from sklearn.tree import DecisionTreeClassifier

from obygaze_features.common.figures import (
    DARK,
    INK,
    LIGHT,
    SERIES,
    ink_on,
    inline_svg,
    level_colours,
)
from obygaze_models.estimators.trees import as_tree
from obygaze_models.explain.error_factors import error_factors as factors_of
from obygaze_models.figures.bars import Share, count_visits, stacked_shares, tree_outline
from obygaze_models.figures.dots import (
    Line,
    Panel,
    Point,
    dot_plot,
    error_factors,
    grouped_dots,
    level_series,
    panel_plot,
)
from obygaze_models.figures.sheet import Dot, Series
from tests.kit.page import find_chromium, open_tab

CONCEPTS = [
    "Type of shot", "Look", "Body", "Posture", "Clothing", "Appearance", "Expression of emotion",
    "Activity",
]  # fmt: skip
FILMS = ["Sleepless in Seattle", "Marley & Me", "Crazy, Stupid, Love", "Silver Linings Playbook"]
LEVELS = level_series({"EN": "Easy Negative", "HN": "Hard Negative", "NS": "Not Sure", "S": "Sure"})
TEXT = {"title": "Positive-class F1 of all models on the very same test clips of all films",
        "axis": "difference in positive-class F1 (above 0: the first is ahead)",
        "description": "Words."}  # fmt: skip


def brightness(colour):
    """As a black and white print, or an eye that sees no colours, has it: 0 to 1."""
    parts = np.array(to_rgb(colour))
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def contrast(first, second):
    """As the Web's guidelines for accessible content (WCAG) define it, 1 to 21."""
    low, high = sorted(map(brightness, (first, second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_colours_stand_out_from_the_paper(theme):
    series = [theme[f"s{number}"] for number in range(1, 7)]
    for colour in [*series, theme["ink"], theme["soft"]]:
        assert contrast(colour, theme["paper"]) >= 4.5
    for first, second in combinations(map(to_rgb, series), 2):
        assert np.abs(np.subtract(first, second)).max() > 0.15
    ramp = [contrast(theme[f"l{number}"], theme["paper"]) for number in range(1, 7)]
    assert ramp == sorted(ramp)  # the higher, the more it stands out, in the dark too
    greys = [theme[name] for name in ("l1", "l3", "l5")]
    assert all(contrast(first, second) > 1.4 for first, second in combinations(greys, 2))
    for number in range(1, 7):
        ink = "ink" if ink_on(LIGHT[f"l{number}"]) == INK else "paper"
        assert contrast(theme[f"l{number}"], theme[ink]) >= 3
    assert contrast(theme["unsure"], theme["paper"]) >= 3


def test_a_level_has_one_colour():
    assert level_colours(["S", "EN+HN"]) == level_colours(["EN", "HN", "S"])[::-2]
    assert len(set(level_colours([str(number) for number in range(6)]))) == 6


@pytest.fixture(scope="module")
def figures():
    """A figure of each kind, with long words."""
    chance = np.random.default_rng(0)
    groups = ("EN-S / EN-S", "HN-S / EN+HN-S")
    points = [
        Point(name, value, value - 0.1, value + 0.05, value - 0.04, group)
        for group in groups
        for name, value in (("X-CLIP native", 0.6), ("ViViT-B/16x2, max over tokens", 0.3))
    ]
    guesses = (0.37, "random"), (0.38, "all positive")
    lines = [Line(at, name, group) for group in groups for at, name in guesses]
    dots = {c: [Dot(v, v - 0.1, v + 0.1, v + 0.1) for v in chance.random(2)] for c in CONCEPTS}
    sides = [Series("against Easy Negatives", SERIES[0]),
             Series("against all clips without it", SERIES[0], hatched=True)]  # fmt: skip
    rows = [[Dot(v) for v in chance.random(4)] for _ in CONCEPTS]
    Z = chance.normal(size=(400, 8))
    y = Z[:, 0] + Z[:, 6] * Z[:, 2] + chance.normal(size=400) > 0.5
    head = as_tree(
        DecisionTreeClassifier(max_depth=8, min_samples_leaf=5, random_state=0).fit(Z, y)
    )
    marks = np.column_stack([chance.random((900, 8)) < 0.2, np.eye(3)[chance.integers(0, 3, 900)]])
    names = [*CONCEPTS, "Sure", "Hard Negative", "Easy Negative"]
    films = [FILMS[at] for at in chance.integers(0, 4, 900)]
    factors = factors_of(chance.random(900) < 0.2, marks, names, films, draws=20)
    no_axis = {key: TEXT[key] for key in ("title", "description")}
    return {
        "forest": dot_plot(
            points, lines=lines, limits=(0, 1), interval="95% interval over draws of films", **TEXT
        ),
        "differences": dot_plot(
            [Point(film, chance.normal() / 9, -0.3, 0.2) for film in FILMS],
            lines=[Line(0, "no difference")], signed=True, value="difference", **TEXT,
        ),
        "concepts": grouped_dots(dots, sides, **TEXT),
        "levels": panel_plot([CONCEPTS], Panel(rows, LEVELS, "share", percent=True), **no_axis),
        "shares": stacked_shares(
            [Share(f, chance.dirichlet([5, 2, 1, 1]).tolist(), 160) for f in FILMS], LEVELS, **TEXT
        ),
        "tree": tree_outline(
            head, CONCEPTS, level_series({"EN+HN": "EN, HN", "S": "Sure"}),
            counts=count_visits(head, Z), count="test clips", **no_axis,
        ),
        "factors": error_factors(factors, {}, **no_axis),
    }  # fmt: skip


@pytest.fixture(scope="module")
def drawn(figures):
    return {name: inline_svg(figure) for name, figure in figures.items()}


def test_a_page_gives_colours_and_sizes_to_its_figures(drawn):
    """Colours are the page's; text is ten pixels on a phone of 390, with 16 at each side."""
    for name, svg in drawn.items():
        rest = re.sub(r"var\(--(\w+), (#\w+)\)", lambda m: "" if LIGHT[m[1]] == m[2] else m[0], svg)
        assert not re.search(r"#[0-9a-f]{6}\b", rest)
        width = float(re.search(r'viewBox="\S+ \S+ (\S+)', svg)[1])
        sizes = re.findall(r"font(?:-size)?: (?:\w+ )*([\d.]+)px", svg)
        assert min(map(float, sizes)) * (390 - 32) / width >= 10, name


OVERLAPS = """
[...document.querySelectorAll("svg")].flatMap(svg => {
  const frame = svg.getBoundingClientRect(), bad = [];
  const words = [...svg.querySelectorAll("text")].map(
    t => [t.textContent, t.getBoundingClientRect()]);
  words.forEach(([text, a], i) => {
    if (a.left < frame.left - 1 || a.right > frame.right + 1 || a.bottom > frame.bottom + 1)
      bad.push([svg.parentElement.id, text, "is cut off"]);
    words.slice(i + 1).forEach(([other, b]) => {
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const tall = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 1 && tall > 5) bad.push([svg.parentElement.id, text, other]);
    });
  });
  return bad;
})
"""


@pytest.mark.gate
@pytest.mark.parametrize("font", ["DejaVu Sans", "Liberation Sans"])
def test_no_words_are_cut_off_or_on_others(drawn, tmp_path, font):
    """As a real browser sets them."""
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("install chromium to see figures as it draws them")
    page = "".join(f'<figure id="{name}">{svg}</figure>' for name, svg in drawn.items())
    head = f'<!doctype html><meta charset="utf-8"><body style="font-family: {font}">'
    (tmp_path / "page.html").write_text(head + page, encoding="utf-8")
    with open_tab(chromium) as tab:
        tab.open(tmp_path / "page.html", width=800)
        assert tab.run(OVERLAPS) == []
