"""What goes with errors, as the paper draws it: a small panel a film, a row a factor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from obygaze_features.common.figures import SERIES, SOFT
from obygaze_models.figures.sheet import (
    SMALL,
    TEXT,
    WIDTH,
    Dot,
    Series,
    Sheet,
    draw_dot,
    format_number,
    is_defined,
    text_width,
    wrap,
    write_in,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from obygaze_models.explain.error_factors import FilmFactors

_UNSURE, _SURE = Series("interval includes 0", SERIES[0], True), Series("excludes 0", SERIES[0])


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
    numbers = [
        abs(v)
        for film in films
        for f in film.factors
        for v in (f.coefficient, f.low, f.high)
        if is_defined(v)
    ]
    reach = 1.05 * max(numbers, default=1.0)
    columns = min(2, len(films)) or 1
    names = min(max((text_width(name, SMALL) for name in factors), default=40.0), 118.0)
    gap, row = 14.0, 13.5
    panel = (WIDTH - names - 8 - gap * (columns - 1)) / columns
    labels = ["All films" if f.film is None else titles.get(f.film, f.film) for f in films]
    wrapped = [wrap(label, panel, TEXT, 3) for label in labels]
    head = 20 + 11.5 * max(map(len, wrapped), default=1)
    body = row * max(len(factors), 4)
    band = head + body + 22
    height = band * math.ceil(len(films) / columns) + 8
    keys = [_UNSURE.key(), _SURE.key()]
    sheet = Sheet(title, description, height, keys=keys)
    for number, film in enumerate(films):
        left = names + 8 + (number % columns) * (panel + gap)
        y = (number // columns) * band + head
        axes = sheet.axes(left, left + panel, y, body)
        for index, line in enumerate(reversed(wrapped[number])):
            sheet.text(left, y - 20 - 11.5 * index, line, weight="bold")
        sheet.text(left, y - 8, f"{film.wrong:,}/{film.clips:,} wrong", size=SMALL, color=SOFT)
        for index, label in enumerate(factors if number % columns == 0 else []):
            [text] = wrap(label, names, SMALL, 1)
            sheet.text(names, y + row * (index + 0.5), text, size=SMALL, ha="right")
        if film.too_few:
            for index, line in enumerate(wrap(film.too_few, panel, SMALL, 5)):
                sheet.text(left, y + 10 + 11 * index, line, size=SMALL, color=SOFT)
            axes.set_axis_off()
            continue
        axes.set_xlim(-reach, reach)
        axes.locator_params(axis="x", nbins=4)
        axes.xaxis.set_major_formatter(lambda v, _: format_number(v, digits=0 if v % 1 == 0 else 1))
        axes.grid(axis="x")
        axes.axvline(0, color=SOFT, linewidth=1.0, zorder=1)
        for index, factor in enumerate(film.factors):
            middle = row * (index + 0.5)
            if factor.coefficient is None:
                write_in(axes, 0, middle, "every clip" if factor.clips else "no clip", SOFT)
                continue
            dot = Dot(factor.coefficient, factor.low, factor.high)
            style = (_SURE if dot.is_clear else _UNSURE).dot
            draw_dot(axes, dot, middle, style, f"{labels[number]}, {factor.name}")
    sheet.text(names + 8, height - 4, "← more often right", size=SMALL, color=SOFT)
    sheet.text(WIDTH, height - 4, "more often wrong →", size=SMALL, color=SOFT, ha="right")
    return sheet.figure
