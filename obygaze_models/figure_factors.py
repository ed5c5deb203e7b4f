"""What goes with errors, as the paper draws it: a small panel a film, a row a factor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from obygaze_features.common.figures import PAPER, SERIES, SOFT, tip
from obygaze_features.common.text import counted
from obygaze_models.figure_layout import SMALL, TEXT, WIDTH, Sheet, dot_style, text_width, wrap
from obygaze_models.figure_marks import (
    draw_interval,
    format_number,
    interval_of,
    is_defined,
    write_centred,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from obygaze_models.explain.error_factors import Factor, FilmFactors

__all__ = ["error_factors"]


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
    reach = max(
        (
            abs(v)
            for film in films
            for f in film.factors
            for v in (f.coefficient, f.low, f.high)
            if is_defined(v)
        ),
        default=1.0,
    )
    columns = min(2, len(films)) or 1
    names = min(max((text_width(name, SMALL) for name in factors), default=40.0), 130.0)
    gap, row = 14.0, 13.5
    panel = (WIDTH - names - 8 - gap * (columns - 1)) / columns
    labels = ["All films" if f.film is None else titles.get(f.film, f.film) for f in films]
    wrapped = [wrap(label, panel, TEXT, lines=3, bold=True) for label in labels]
    head = 20 + 11.5 * max(map(len, wrapped), default=1)
    body = row * max(len(factors), 4)
    bands = math.ceil(len(films) / columns)
    sheet = Sheet(title, description)
    sheet.dots([(False, "interval includes 0"), (True, "interval excludes 0")])
    top = sheet.y
    sheet.reserve(bands * (head + body + 22) + 4)
    for number, film in enumerate(films):
        left = names + 8 + (number % columns) * (panel + gap)
        y = top + (number // columns) * (head + body + 22) + head
        axes = sheet.place(left, left + panel, y, body)
        name = labels[number]
        for index, line in enumerate(reversed(wrapped[number])):
            sheet.write(left, y - 20 - 11.5 * index, line, weight="bold")
        sheet.write(left, y - 8, f"{film.wrong:,}/{film.clips:,} wrong", size=SMALL, color=SOFT)
        if number % columns == 0:
            for index, label in enumerate(factors):
                (text,) = wrap(label, names, SMALL, lines=1)
                sheet.write(names, y + row * (index + 0.5), text, size=SMALL, ha="right")
        if film.too_few:
            for index, line in enumerate(wrap(film.too_few, panel, SMALL, lines=5)):
                sheet.write(left, y + 10 + 11 * index, line, size=SMALL, color=SOFT)
            axes.set_axis_off()
            continue
        axes.set_xlim(-1.05 * reach, 1.05 * reach)
        axes.locator_params(axis="x", nbins=4)
        axes.xaxis.set_major_formatter(lambda v, _: format_number(v, digits=0 if v % 1 == 0 else 1))
        axes.grid(axis="x")
        axes.axvline(0, color=SOFT, linewidth=1.0, zorder=1)
        for index, factor in enumerate(film.factors):
            _draw_factor(axes, factor, name, row * (index + 0.5))
    sheet.write(names + 8, sheet.height - 5, "← more often right", size=SMALL, color=SOFT)
    sheet.write(WIDTH, sheet.height - 5, "more often wrong →", size=SMALL, color=SOFT, ha="right")
    return sheet.figure


def _draw_factor(axes: Axes, factor: Factor, film: str, y: float) -> None:
    if factor.coefficient is None:
        text = "no clip" if factor.clips == 0 else "every clip"
        write_centred(axes, 0, y, text, SOFT, SMALL, background=PAPER)
        return
    ends = interval_of(factor.low, factor.high)
    excludes_zero = ends is not None and (ends[0] > 0 or ends[1] < 0)
    text = format_number(factor.coefficient, signed=True)
    if ends:
        text += f" ({format_number(ends[0])} to {format_number(ends[1])})"
    clips = counted(factor.clips, "clip")
    draw_interval(axes, ends, y, SERIES[0])
    axes.plot(
        [factor.coefficient], [y], linestyle="none", zorder=5, clip_on=False,
        gid=tip(f"{film}, {factor.name}: {text}, {clips} with it"), **dot_style(excludes_zero),
    )  # fmt: skip
