"""The factors of a network's errors, a small panel a film: figure 6."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from obygaze_features.common.figures import NAMES, SOFT, figure_style, wrap
from obygaze_models.figures.dots import CLEARNESS
from obygaze_models.figures.sheet import (
    ROW,
    SMALL,
    TEXT,
    Dot,
    draw_dot,
    fit,
    is_defined,
    key,
    new_figure,
    point,
    scale_x,
    sheet_width,
    write_in,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from obygaze_models.explain.error_factors import FilmFactors

SIDES = {"more often right": "<", "more often wrong": ">"}
"""What coefficients mean left and right of 0, and the marks that say so."""


def error_factors(
    films: Sequence[FilmFactors], titles: Mapping[str, str], *, title: str, description: str
) -> Figure:
    """Draw the factors of errors as the paper does: a small panel a film, a row a factor.

    Parameters
    ----------
    films
        As `obygaze_models.explain.error_factors` gives them.
    titles
        The films' titles.
    title, description
        The figure's title, and what is seen, for those who cannot see it.
    """
    factors = next(([f.name for f in film.factors] for film in films if film.factors), [])
    ends = [v for film in films for f in film.factors for v in (f.coefficient, f.low, f.high)]
    reach = 1.05 * max((abs(v) for v in ends if is_defined(v)), default=1.0)
    columns = min(max(1, int(sheet_width() / 150)), len(films)) or 1
    room = max(NAMES * sheet_width(), 122.0)
    panel = (sheet_width() - room) / columns
    labels = ["All films" if f.film is None else titles.get(f.film, f.film) for f in films]
    keys = [
        *(kind.key for kind in CLEARNESS),
        *(key(name, **point(shape, 5.0, SOFT, SOFT)) for name, shape in SIDES.items()),
    ]
    figure = new_figure(title, description, keys)
    with figure_style():
        shape = math.ceil(len(films) / columns) or 1, columns
        grid = figure.subplots(*shape, squeeze=False).ravel()
    small: Any = {"textcoords": "offset points", "size": SMALL, "color": SOFT}
    middles = [ROW * (index + 0.5) for index in range(len(factors))]
    height = ROW * max(len(factors), 4)
    for number, (axes, film, label) in enumerate(zip(grid, films, labels, strict=False)):
        axes.set_ylim(height, 0)
        shown = factors if number % columns == 0 else []
        names = ["\n".join(wrap(name, room, SMALL, 1)) for name in shown]
        axes.set_yticks(middles[: len(names)], names, size=SMALL)
        heading = "\n".join(wrap(label, panel, 1.15 * TEXT, 3))
        axes.set_title(heading, loc="left", size=TEXT, weight="bold", pad=17)
        wrong = f"{film.wrong:,}/{film.clips:,} wrong"
        axes.annotate(wrong, (0, 1), (0, 4), xycoords="axes fraction", **small)
        if film.too_few:
            axes.set_axis_off()
            lines = "\n".join(wrap(film.too_few, panel, SMALL, 5))
            axes.annotate(lines, (0, 1), (0, -12), xycoords="axes fraction", va="top", **small)
        else:
            _draw_factors(axes, film, label, reach)
    for axes in grid[len(films) or 1 :]:
        axes.remove()
    return fit(figure, grid[0], height, shape[0])


def _draw_factors(axes: Axes, film: FilmFactors, label: str, reach: float) -> None:
    """Draw a film's factors, a row each."""
    scale_x(axes, [], (-reach, reach))
    axes.axvline(0, color=SOFT, linewidth=1.0, zorder=1)
    for index, factor in enumerate(film.factors):
        middle = ROW * (index + 0.5)
        if factor.coefficient is None:
            write_in(axes, 0, middle, "every clip" if factor.clips else "no clip", SOFT)
            continue
        dot = Dot(factor.coefficient, factor.low, factor.high)
        draw_dot(axes, dot, middle, CLEARNESS[dot.is_clear].dot, f"{label}, {factor.name}")
