"""The paper's figure of error factors: a small panel a film, a row a factor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from obygaze_features.common.text import counted
from obygaze_models.drawing.marks import (
    Scale,
    circle,
    ends_of,
    grid,
    scale_of,
    spread,
)
from obygaze_models.drawing.svg import (
    WIDTH,
    defined,
    element,
    frame,
    label,
    number,
    text,
    wrap,
)
from obygaze_models.drawing.theme import INK, PAPER, SERIES, SOFT
from obygaze_models.explain.error_factors import Factor, FilmFactors

__all__ = ["factors"]

LEFT = 156.0
COLUMNS = 3
GAP = 16.0
ROW = 17.0
HEAD = 68.0


def factors(
    films: Sequence[FilmFactors],
    titles: Mapping[str, str],
    *,
    title: str,
    description: str,
    key: str = "",
) -> str:
    """Draw each film's factors of errors, with intervals, on one axis.

    Parameters
    ----------
    films
        As `error_factors` gives them.
    titles
        The films'.
    title, description
        The figure's name, and what is seen, for those who cannot see it.
    key
        Names the numbers for who reads them back: ``key/film/factor``, where all films
        together are ``key/all/factor``.
    """
    names = next((tuple(one.name for one in of.factors) for of in films if of.factors), ())
    ends = [
        abs(end)
        for film in films
        for one in film.factors
        for end in (one.coefficient, one.low, one.high)
        if end is not None and defined(end)
    ]
    reach = max(ends, default=1.0)
    columns = min(COLUMNS, len(films))
    wide = (WIDTH - LEFT - GAP * (columns - 1)) / columns
    parts, y = [], 0.0
    for start in range(0, len(films), columns):
        parts.append(_names(names, y + HEAD))
        for column, film in enumerate(films[start : start + columns]):
            left = LEFT + column * (wide + GAP)
            scale = scale_of([-reach, reach], None, left, left + wide)
            named = "All films" if film.film is None else titles.get(film.film, film.film)
            prefix = f"{key}/{'all' if film.film is None else film.film}" if key else ""
            parts.append(_panel(film, named, scale, y, len(names), prefix))
        y += HEAD + ROW * max(len(names), 4) + 26
    return frame(title, description, y + 42, "".join(parts) + _legend(y))


def _names(names: Sequence[str], y: float) -> str:
    return "".join(
        label(LEFT - 10, y + ROW * (place + 0.5), name, LEFT - 10, size=12, anchor="end", lines=1)
        for place, name in enumerate(names)
    )


def _panel(film: FilmFactors, named: str, scale: Scale, y: float, rows: int, prefix: str) -> str:
    wide = scale.right - scale.left
    lines = wrap(named, wide, 12, lines=3, bold=True)
    tip = named if lines[-1].endswith("…") else ""
    top = y + HEAD
    parts = [
        text(scale.left, top - 24 - 14 * place, line, size=12, weight="600", tip=tip)
        for place, line in enumerate(reversed(lines))
    ]
    of = f"{film.wrong:,}/{film.clips:,} wrong"
    parts.append(text(scale.left, top - 9, of, size=11, fill=SOFT))
    if film.too_few:
        words = wrap(film.too_few, wide, 11.5, lines=5)
        return "".join(parts) + "".join(
            text(scale.left, top + 20 + 15 * place, line, size=11.5, fill=SOFT)
            for place, line in enumerate(words)
        )
    bottom = top + ROW * rows
    zero = scale.at(0)
    parts += [
        grid(scale, top, bottom, most=4),
        element("line", x1=zero, x2=zero, y1=top, y2=bottom, stroke=SOFT, stroke_width=1.2),
    ]
    parts += [
        text(
            scale.at(tick),
            bottom + 14,
            number(tick, digits=0 if tick == int(tick) else 1),
            size=11,
            fill=SOFT,
            anchor="middle",
        )
        for tick in scale.ticks(4)
        if scale.left < scale.at(tick) < scale.right
    ]
    for place, factor in enumerate(film.factors):
        of_factor = f"{prefix}/{factor.name}" if prefix else ""
        parts.append(_factor(factor, named, scale, top + ROW * (place + 0.5), of_factor))
    return "".join(parts)


def _factor(factor: Factor, named: str, scale: Scale, y: float, key: str) -> str:
    if factor.coefficient is None:
        why = "no clip" if factor.clips == 0 else "every clip"
        tip = f"{named}, {factor.name}: {why} has it"
        at = scale.at(0)
        return text(at, y + 4, why, size=11, fill=SOFT, anchor="middle", tip=tip, halo=True)
    said = number(factor.coefficient, signed=True)
    ends = ends_of(factor.low, factor.high)
    told = ends is not None and (ends[0] > 0 or ends[1] < 0)
    if ends:
        said += f" ({number(ends[0])} to {number(ends[1])})"
    tip = f"{named}, {factor.name}: {said}, {counted(factor.clips, 'clip')} with it"
    parts = [spread(scale, ends, y, key, SERIES[0])]
    at = scale.at(factor.coefficient)
    parts.append(circle(at, y, 4.2, SERIES[0], factor.coefficient, key, tip))
    if not told:
        parts.append(element("circle", cx=at, cy=y, r=2.6, fill=PAPER, pointer_events="none"))
    return "".join(parts)


def _legend(y: float) -> str:
    hollow = element("circle", cx=6, cy=y + 30, r=4.2, fill=SERIES[0])
    hollow += element("circle", cx=6, cy=y + 30, r=2.6, fill=PAPER)
    return (
        text(LEFT, y + 10, "← more often right", size=12, fill=SOFT)
        + text(WIDTH, y + 10, "more often wrong →", size=12, fill=SOFT, anchor="end")
        + hollow
        + text(16, y + 34, "interval holds 0", size=12, fill=INK)
        + element("circle", cx=LEFT + 46, cy=y + 30, r=4.2, fill=SERIES[0])
        + text(LEFT + 56, y + 34, "interval does not", size=12, fill=INK)
    )
