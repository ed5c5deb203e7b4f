"""Colours that can be told apart, text that is neither cut nor on other text."""

import html
import json
import re
import shutil
import subprocess
from itertools import combinations

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from obygaze_features.common.figures import DARK, INK, LIGHT, SERIES, ink_on, level_colours
from obygaze_models.estimators.trees import as_tree
from obygaze_models.explain.error_factors import error_factors as factors_of
from obygaze_models.figure_bars import Share, count_visits, stacked_shares, tree_outline
from obygaze_models.figure_factors import error_factors
from obygaze_models.figures import (
    Dot,
    Line,
    Panel,
    Point,
    Series,
    dot_plot,
    grouped_dots,
    inline_svg,
    level_series,
    panel_plot,
    save_figure,
)

CONCEPTS = [
    "Type of shot", "Look", "Body", "Posture", "Clothing", "Appearance", "Expression of emotion",
    "Activity",
]  # fmt: skip
FILMS = [
    "Sleepless in Seattle", "Pulp Fiction", "As Good as It Gets", "Meet the Parents", "Juno",
    "Marley & Me", "The Ugly Truth", "Up in the Air", "The Help", "Crazy, Stupid, Love",
    "Silver Linings Playbook", "Gone Girl",
]  # fmt: skip
LEVELS = level_series({"EN": "Easy Negative", "HN": "Hard Negative", "NS": "Not Sure", "S": "Sure"})

#: What the colour-blind see (Machado and others, 2009, at full strength), in linear light.
SEEN = {
    "all": np.eye(3),
    "protan": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deutan": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritan": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}


def light(colour):
    """Linear red, green and blue."""
    parts = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    low, high = sorted(light(colour) @ [0.2126, 0.7152, 0.0722] for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def lab(rgb):
    to_xyz = [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.072175],
        [0.0193339, 0.119192, 0.9503041],
    ]
    x, y, z = np.array(to_xyz) @ np.clip(rgb, 0, 1) / [0.95047, 1, 1.08883]
    x, y, z = (np.cbrt(v) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_colours_stand_out_from_the_paper_and_from_one_another(theme):
    series = [theme[f"s{number}"] for number in range(1, 7)]
    for colour in [*series, theme["ink"], theme["soft"]]:
        assert contrast(colour, theme["paper"]) >= 4.5
    for matrix in SEEN.values():
        for one, other in combinations(series, 2):
            assert np.linalg.norm(lab(matrix @ light(one)) - lab(matrix @ light(other))) > 15


def some_figures():
    chance = np.random.default_rng(0)
    groups = ("EN-S / EN-S", "HN-S / EN+HN-S")
    points = [
        Point(name, value, value - 0.1, value + 0.05, value - 0.04, group)
        for group in groups
        for name, value in zip(
            ("X-CLIP native", "ViViT-B/16x2, max over tokens"), chance.random(2), strict=True
        )
    ]
    lines = [
        Line(at, name, group)
        for group in groups
        for at, name in ((0.37, "random"), (0.38, "all positive"))
    ]
    words = {"description": "Words."}
    yield (
        "forest",
        dot_plot(
            points,
            title="Positive-class F1 of all models on the very same test clips of all films",
            axis="positive-class F1",
            lines=lines,
            limits=(0, 1),
            interval="95% interval over draws of films",
            **words,
        ),
    )
    yield (
        "differences",
        dot_plot(
            [Point(film, chance.normal() / 9, -0.3, 0.2) for film in FILMS],
            title="Difference",
            axis="difference in positive-class F1 (above 0: the first is ahead)",
            lines=[Line(0, "no difference")],
            signed=True,
            value="difference",
            interval="95% interval",
            **words,
        ),
    )
    yield (
        "concepts",
        grouped_dots(
            {c: [Dot(v, v - 0.1, v + 0.1, v + 0.1) for v in chance.random(2)] for c in CONCEPTS},
            [
                Series("against Easy Negatives", SERIES[0]),
                Series("against all clips without it", SERIES[0], hatched=True),
            ],
            title="Concepts",
            axis="F1",
            **words,
        ),
    )
    yield (
        "levels",
        panel_plot(
            [CONCEPTS],
            Panel(
                [[Dot(v) for v in chance.random(4)] for _ in CONCEPTS],
                LEVELS,
                "share",
                percent=True,
            ),
            title="Concepts of levels",
            **words,
        ),
    )
    yield (
        "shares",
        stacked_shares(
            [Share(f, chance.dirichlet([5, 2, 1, 1]).tolist(), 160) for f in FILMS],
            LEVELS,
            title="Levels",
            axis="% of clips",
            **words,
        ),
    )
    Z = chance.normal(size=(400, 8))
    grown = DecisionTreeClassifier(max_depth=8, min_samples_leaf=5, random_state=0)
    head = as_tree(grown.fit(Z, Z[:, 0] + Z[:, 6] * Z[:, 2] + chance.normal(size=400) > 0.5))
    yield (
        "tree",
        tree_outline(
            head,
            CONCEPTS,
            level_series({"EN+HN": "EN, HN", "S": "Sure"}),
            title="Tree",
            counts=count_visits(head, Z),
            count="test clips",
            **words,
        ),
    )
    marks = np.column_stack([chance.random((900, 8)) < 0.2, np.eye(3)[chance.integers(0, 3, 900)]])
    found = factors_of(
        chance.random(900) < 0.2,
        marks,
        [*CONCEPTS, "Sure", "Hard Negative", "Easy Negative"],
        [FILMS[at] for at in chance.integers(0, 12, 900)],
        draws=40,
    )
    yield "factors", error_factors(found, {}, title="Errors", **words)


@pytest.fixture(scope="module")
def figures():
    return dict(some_figures())


def test_a_file_turns_dark_by_its_style(figures, tmp_path):
    for name, figure in figures.items():
        save_figure(figure, tmp_path / f"{name}.svg")
        text = (tmp_path / f"{name}.svg").read_text(encoding="utf-8")
        assert "var(" not in text
        dark = text.split("prefers-color-scheme: dark")[1].split("@media print")[0]
        used = set(re.findall(r'(?:fill|stroke)(?:: |=")(#\w+)', text.split("</style>")[1]))
        for colour in used:
            (name_of,) = [key for key, value in LIGHT.items() if value == colour]
            assert f'[style*="fill: {colour}"]' in dark
            assert DARK[name_of] in dark


def test_a_page_gives_its_colours_to_its_figures(figures):
    svg = "".join(map(inline_svg, figures.values()))
    rest = re.sub(r"var\(--(\w+), (#\w+)\)", lambda m: "" if LIGHT[m[1]] == m[2] else m[0], svg)
    assert not re.search(r"#[0-9a-f]{6}\b", rest)


def test_a_level_has_one_colour():
    assert level_colours(["S", "EN+HN"]) == level_colours(["EN", "HN", "S"])[::-2]
    assert len(set(level_colours([str(number) for number in range(6)]))) == 6


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_levels_are_a_ramp_and_not_sure_is_apart(theme):
    ramp = [contrast(theme[f"l{number}"], theme["paper"]) for number in range(1, 7)]
    assert ramp == sorted(ramp)  # the higher, the more it stands out, in the dark too
    levels = [theme[name] for name in ("l1", "l3", "l5", "unsure")]
    for matrix in SEEN.values():
        seen = [lab(matrix @ light(colour)) for colour in levels]
        for one, other in combinations(seen, 2):
            assert np.linalg.norm(one - other) > 15
        differs = lab(matrix @ light(theme["differs"]))
        assert all(np.linalg.norm(differs - other) > 15 for other in seen)
    for number in range(1, 7):
        ink = "ink" if ink_on(LIGHT[f"l{number}"]) == INK else "paper"
        assert contrast(theme[f"l{number}"], theme[ink]) >= 3
    assert contrast(theme["unsure"], theme["paper"]) >= 3


def test_text_is_ten_pixels_on_a_phone(figures):
    """On a page of 390 px with 16 px at each side."""
    for name, figure in figures.items():
        svg = inline_svg(figure)
        width = float(re.search(r'viewBox="\S+ \S+ (\S+)', svg)[1])
        sizes = [float(size) for size in re.findall(r"font-size: ([\d.]+)px", svg)]
        sizes += [float(size) for size in re.findall(r"font: (?:\w+ )*([\d.]+)px", svg)]
        assert sizes
        assert min(sizes) * (390 - 32) / width >= 10, name


LOOK = """
<script>
const found = [];
for (const svg of document.querySelectorAll("svg")) {
  const frame = svg.getBoundingClientRect(), name = svg.parentElement.id;
  const words = [...svg.querySelectorAll("text")].map(
    t => [t.textContent, t.getBoundingClientRect()]);
  words.forEach(([said, a], i) => {
    if (a.left < frame.left - 1 || a.right > frame.right + 1 || a.bottom > frame.bottom + 1)
      found.push([name, said, "is cut off"]);
    words.slice(i + 1).forEach(([other, b]) => {
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const tall = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 1 && tall > 5) found.push([name, said, other]);
    });
  });
}
document.body.innerHTML = "<pre id=found></pre>";
document.getElementById("found").textContent = JSON.stringify(found);
</script>
"""


@pytest.mark.parametrize("font", ["DejaVu Sans", "Liberation Sans"])
def test_no_words_are_cut_off_or_lie_upon_others(figures, tmp_path, font):
    """As a real browser sets them."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("install chromium to see figures as it draws them")
    page = "".join(
        f'<figure id="{name}">{inline_svg(figure)}</figure>' for name, figure in figures.items()
    )
    path = tmp_path / "page.html"
    path.write_text(
        f'<!doctype html><meta charset="utf-8"><body style="font-family: {font}">{page}{LOOK}'
    )
    seen = subprocess.run(
        [
            chromium,
            *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
            *(f"--user-data-dir={tmp_path}/profile", "--window-size=800,900"),
            *("--dump-dom", path.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=900,
        check=True,
    ).stdout
    found = re.search('<pre id="found">(.*?)</pre>', seen, re.DOTALL)
    assert json.loads(html.unescape(found[1])) == []
