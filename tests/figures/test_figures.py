"""Numbers in, the artists' data out; and a file of each kind is drawn."""

import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from sklearn.tree import DecisionTreeClassifier, export_text

from obygaze_features.common.figures import SERIES, inline_svg, save_figure
from obygaze_features.errors import OutputExists, UsageError
from obygaze_models.estimators.trees import as_tree
from obygaze_models.explain.error_factors import Factor, FilmFactors
from obygaze_models.figures.bars import Share, count_visits, stacked_shares, tree_outline
from obygaze_models.figures.dots import (
    Line,
    Panel,
    Point,
    dot_plot,
    error_factors,
    grouped_dots,
    level_series,
    numbered_series,
    panel_plot,
)
from obygaze_models.figures.sheet import Dot, Series
from tests.kit.files import texts, tips, title

CLASSES = level_series({"EN": "Easy Negative", "S": "Sure"})
SIDES = [Series("against EN", SERIES[0]), Series("against all", SERIES[0], hatched=True)]
GROUPS = {
    "Look": [Dot(0.4, 0.3, 0.55, guess=0.5), Dot(0.2)],
    "Emotion": [Dot(0.05, -0.1, 0.2), Dot(None)],
}


def marks(figure: Figure) -> dict[str, list[tuple[float, float]]]:
    """A mark's or a line's name -> its points."""
    lines = [line for axes in figure.axes for line in axes.lines]
    return {str(line.get_label()): line.get_xydata().tolist() for line in lines
            if not str(line.get_label()).startswith("_")}  # fmt: skip


def words(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def dots(limits: tuple[float, float] | None = None) -> Figure:
    return grouped_dots(
        GROUPS, SIDES, title="Concepts", axis="F1", description="Dots.", limits=limits
    )


def at(figure: Figure) -> dict[str, float]:
    """A mark's name -> where it is along the axis."""
    return {name: points[0][0] for name, points in marks(figure).items()}


@pytest.mark.parametrize(("limits", "least"), [(None, -0.1), ((0.0, 1.0), 0.0)])
def test_dots_of_groups_stand_at_their_values(limits, least) -> None:
    figure = dots(limits)
    [axes] = figure.axes
    assert at(figure) == {
        "Look, against EN": 0.4, "Look, against all": 0.2, "Look, against EN, guess": 0.5,
        "Emotion, against EN": 0.05,
    }  # fmt: skip
    whiskers = [
        line.get_xdata().tolist()
        for line in axes.lines
        if line.get_marker() == "|" and len(line.get_xdata()) == 2
    ]
    assert [0.3, 0.55] in whiskers
    assert [least, 0.2] in whiskers
    assert {"undefined", "0.40", "0.20", "0.05", "guess"} <= set(words(figure))
    if limits:
        assert axes.get_xlim() == limits


def test_panels_beside_each_other_share_their_rows() -> None:
    groups = [["Look", "Body"], ["Sure clips"]]
    rows = [[Dot(0.1), Dot(0.4)], [Dot(0.2), Dot(0.3)], [Dot(0.7), Dot(None)]]
    shares = Panel(rows, CLASSES, "share", percent=True)
    kappas = Panel([[Dot(0.5)], [Dot(None)], [Dot(0.25)]], numbered_series(["k"]), "", line=0.0)
    drawn = [panel_plot(groups, panel, title="t", description="d") for panel in (shares, kappas)]
    assert at(drawn[0]) == {
        "Look, Easy Negative": 0.1, "Look, Sure": 0.4, "Body, Easy Negative": 0.2,
        "Body, Sure": 0.3, "Sure clips, Easy Negative": 0.7,
    }  # fmt: skip
    assert at(drawn[1]) == {"Look, k": 0.5, "Sure clips, k": 0.25}
    assert {"0.50", "0.25"} <= set(words(drawn[1]))  # a number a row, where it has one dot
    tops = []
    for figure in drawn:  # from the figure's upper edge, in points
        figure.canvas.draw()
        names = [text for text in figure.axes[0].texts if text.get_text() in ("Look", "Sure clips")]
        height = figure.get_size_inches()[1]
        middles = [text.get_window_extent().intervaly.mean() / figure.dpi for text in names]
        tops.append([72 * (height - middle) for middle in middles])
    assert tops[0] == pytest.approx(tops[1], abs=1)


def test_dots_stand_at_their_scores_beside_published_ones() -> None:
    points = [
        Point("mlp", 0.62, 0.5, 0.7, 0.67, "EN vs S", mark="*"),
        Point("svm", None, group="EN vs S"),
        Point("net", 0.5, group="HN vs S"),
    ]
    lines = [Line(0.4, "random", "EN vs S"), Line(0.3, "random", "HN vs S")]
    figure = dot_plot(points, title="F1", axis="F1", description="d", lines=lines, interval="95%")
    marked = marks(figure)
    assert marked["mlp, published"][0][0] == 0.67
    assert marked["random"][0][0] == 0.3
    (_, ours), (_, published) = marked["mlp, ours"][0], marked["mlp, published"][0]
    assert published - ours > 7  # below ours, so that neither hides the other
    assert {"0.62*", "0.67", "EN vs S", "HN vs S", "undefined", "ours, with 95%"} <= set(
        words(figure)
    )
    rows = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert [line.get_xdata()[0] for line in rows] == [0.62, 0.5]
    spans = [line.get_ydata() for line in figure.axes[0].lines if line.get_label() == "random"]
    assert spans[0][1] < spans[1][0]  # each only across the rows of its group
    assert spans[0][0] < rows[0].get_ydata()[0] < spans[0][1]


def test_shares_add_up_along_their_row() -> None:
    rows = [Share("All films", [0.75, 0.25], 400, overall=True), Share("Juno", [0.95, 0.05], 20)]
    figure = stacked_shares(rows, CLASSES, title="t", axis="a", description="d")
    spans = [(bar.get_x(), bar.get_width()) for bar in figure.axes[0].patches]
    assert np.allclose(spans, [(0, 0.75), (0.75, 0.25), (0, 0.95), (0.95, 0.05)])
    assert {"75%", "25%", "95%", "400", "20"} <= set(words(figure))
    assert "5%" not in words(figure)  # too narrow for its number


def test_factors_have_a_panel_a_film() -> None:
    look = Factor("Look", 1.25, 0.5, 2.0, 12)
    body = Factor("Body", None, None, None, 0)
    films = [
        FilmFactors(None, 900, 300, (look, body)),
        FilmFactors("tt1", 60, 20, (look, body)),
        FilmFactors("tt2", 9, 1, (), "one clip is wrong"),
    ]
    figure = error_factors(films, {"tt1": "Juno"}, title="t", description="d")
    assert len(figure.axes) == 3
    assert marks(figure).keys() == {"All films, Look", "Juno, Look"}
    assert marks(figure)["Juno, Look"][0][0] == 1.25
    assert {"no clip", "one clip is wrong", "300/900 wrong"} <= set(words(figure))


@pytest.fixture(scope="module")
def grown():
    """Our tree, and scikit-learn's own of the same clips."""
    chance = np.random.default_rng(3)
    Z = chance.normal(size=(400, 4))
    y = (Z[:, 0] + Z[:, 1] * Z[:, 2] + 0.5 * chance.normal(size=400) > 0.4).astype(int)
    sklearn_tree = DecisionTreeClassifier(max_depth=8, min_samples_leaf=6, random_state=42).fit(
        Z, y
    )
    return as_tree(sklearn_tree), sklearn_tree, Z


@pytest.mark.parametrize("depth", [2, 4])
def test_a_trees_first_levels_are_scikit_learns(grown, depth) -> None:
    head, sklearn_tree, Z = grown
    names = ["Shot", "Look", "Body", "Voice"]
    listed = export_text(sklearn_tree, feature_names=names, max_depth=depth - 2, decimals=12)
    expected = []
    for line in listed.splitlines():
        bare = line.lstrip("|- ")
        if " <= " in bare or " > " in bare:
            name, sign, at = bare.replace(" <= ", "~≤~").replace(" >  ", "~>~").split("~")
            expected.append(f"{name} {sign} {float(at):.3g}".replace("-", "−"))
    counts = count_visits(head, Z[:50])
    figure = tree_outline(
        head, names, CLASSES, title="t", description="d", depth=depth, counts=counts, count="clips"
    )
    assert [text for text in words(figure) if "≤" in text or ">" in text] == expected
    assert "50" in words(figure)
    assert counts[0] == 50 == counts[head.left[0]] + counts[head.right[0]]


def test_a_file_of_each_kind_with_the_same_bytes(tmp_path: Path) -> None:
    for suffix, start in ((".svg", b"<?xml"), (".pdf", b"%PDF"), (".png", b"\x89PNG")):
        first, second = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
        save_figure(dots(), first)
        save_figure(dots(), str(second))
        assert first.read_bytes().startswith(start)
        assert first.read_bytes() == second.read_bytes()
    svg = tmp_path / "a.svg"
    with pytest.raises(OutputExists, match="--overwrite"):
        save_figure(dots(), svg)
    save_figure(dots((0.0, 1.0)), svg, overwrite=True)
    assert svg.read_bytes() != (tmp_path / "b.svg").read_bytes()
    with pytest.raises(UsageError, match=r"a\.jpeg"):
        save_figure(dots(), tmp_path / "a.jpeg")


def test_an_svg_keeps_its_text_and_says_its_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    names = {"$x$ <b>&": [Dot(0.25, 0.1, 0.5)], "\x00 电影": [Dot(0.5)]}
    figure = grouped_dots(
        names, numbered_series(['"mlp"']), title="a & b", axis="F1", description=""
    )
    save_figure(figure, path)
    assert title(path) == "a & b"
    assert {"$x$ <b>&", "\ufffd 电影", "F1", "0.25"} <= set(texts(path))
    assert tips(path) == {'$x$ <b>&, "mlp"': "0.25 (0.10 to 0.50)", '\ufffd 电影, "mlp"': "0.50"}


def test_figures_of_one_page_share_no_ids() -> None:
    pages = [inline_svg(dots()), inline_svg(dots((0.0, 1.0)))]
    ids = [name for page in pages for name in re.findall(r' id="([^"]*)"', page)]
    assert ids
    assert len(ids) == len(set(ids))
    assert all("<style" not in page and 'role="img"' in page for page in pages)
