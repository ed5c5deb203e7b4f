"""Spans in time, such as a film's levels: rows above one another, in bands of a length each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from obygaze_features.drawing.marks import Scale, Series, legend, swatch
from obygaze_features.drawing.svg import element, frame, label, short, text, text_width, wrap
from obygaze_features.drawing.theme import INK, LINE, SOFT

__all__ = ["Row", "Span", "bands", "clock"]

#: Wider than other figures: a film has hours.
WIDTH = 960.0
#: Room for names, as they need it, and for half of the last tick's.
LEFT, MOST_LEFT, RIGHT = 104.0, 220.0, 26.0
SIZE, SMALL = 12.5, 11.5
TALL, LOW, NEAR, GAP = 17.0, 3.0, 2.0, 16.0
#: Minutes of a band, and between the ticks of one; the first bands that are few enough are taken.
LENGTHS = ((1, 0.25), (2, 0.5), (5, 1), (10, 2), (20, 5), (30, 5), (60, 10), (120, 20))
MOST = 5


@dataclass(frozen=True)
class Span:
    """From `start` to `end`, in seconds, at the `level` of that place in the series."""

    start: float
    end: float
    level: int
    tip: str = ""


@dataclass(frozen=True)
class Row:
    """Spans beside a name. `key` names what is drawn for who reads it back: ``key/number``.

    A row that `follows` belongs to the one above and stands closer to it; a `strong` one is what
    the others lead to.
    """

    label: str
    spans: Sequence[Span]
    key: str = ""
    follows: bool = False
    strong: bool = False


def bands(
    rows: Sequence[Row], levels: Sequence[Series], end: float, *, title: str, description: str
) -> str:
    """Draw rows of spans from 0 to `end` seconds; the higher a span's level, the taller it is.

    The description stands below the title; the legend has the levels that any row has.
    """
    band, step = next(
        ((60.0 * long, 60.0 * tick) for long, tick in LENGTHS if end <= MOST * 60 * long),
        (60.0 * LENGTHS[-1][0], 60.0 * LENGTHS[-1][1]),
    )
    drawn, y = [], 0.0
    for line in wrap(description, WIDTH, 12, lines=2) if description else []:
        drawn.append(text(0, y + 10, line, size=12, fill=SOFT))
        y += 16
    occur = {span.level for row in rows for span in row.spans}
    shown = [one for place, one in enumerate(levels) if place in occur or not occur]
    heading, y = legend(shown, y + 4, width=WIDTH)
    drawn.append(heading)
    y += 4
    widest = max((text_width(one.label, SIZE, bold=one.strong) for one in rows), default=0.0)
    left = min(max(LEFT, widest + 12), MOST_LEFT)
    for number in range(max(1, math.ceil(end / band - 1e-9))):
        scale = Scale(number * band, (number + 1) * band, left, WIDTH - RIGHT)
        piece, y = _band(rows, levels, scale, min(end, scale.high), y, step)
        drawn.append(piece)
    return frame(title, description, y - 8, "".join(drawn), width=WIDTH)


def clock(seconds: float) -> str:
    """A time in a film.

    Examples
    --------
    >>> clock(75), clock(3725.4)
    ('1:15', '1:02:05')
    """
    whole = math.floor(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


def _band(
    rows: Sequence[Row], levels: Sequence[Series], scale: Scale, end: float, y: float, step: float
) -> tuple[str, float]:
    top, drawn = y, []
    for place, row in enumerate(rows):
        if place:
            y += NEAR if row.follows else GAP
            if not row.follows:
                between = f"M0 {short(y - GAP / 2)}H{short(scale.at(end))}"
                drawn.append(element("path", d=between, stroke=LINE, stroke_width=1))
        fill, size = (SOFT, SMALL) if row.follows else (INK, SIZE)
        weight = "600" if row.strong else None
        name = label(
            0, y + TALL / 2, row.label, scale.left - 8, size=size, lines=1, fill=fill, weight=weight
        )
        drawn.append(name)
        floor = f"M{short(scale.left)} {short(y + TALL)}H{short(scale.at(end))}"
        drawn.append(element("path", d=floor, stroke=LINE, stroke_width=1))
        drawn.extend(_spans(row, levels, scale, y))
        y += TALL
    lines, words = [], []
    ticks = math.floor((end - scale.low) / step + 1e-9)
    for tick in range(ticks + 1):
        at = scale.at(scale.low + tick * step)
        lines.append(f"M{short(at)} {short(top)}V{short(y + 4)}")
        said = clock(scale.low + tick * step)
        words.append(text(at, y + 16, said, size=11, fill=SOFT, anchor="middle"))
    behind = element("path", d="".join(lines), stroke=LINE, stroke_width=1)
    return behind + "".join(drawn) + "".join(words), y + 34


def _spans(row: Row, levels: Sequence[Series], scale: Scale, y: float) -> Iterator[str]:
    """The spans that begin in a band or reach into it, higher levels upon lower ones."""
    numbered = sorted(enumerate(row.spans), key=lambda pair: pair[1].level)
    for number, span in numbered:
        start, end = max(span.start, scale.low), min(span.end, scale.high)
        if not start < end:
            continue
        height = LOW + (TALL - LOW) * span.level / max(1, len(levels) - 1)
        # A seam of paper between two spans, unless it would leave nothing of them.
        left, right = scale.at(start), scale.at(end)
        width = max(right - left - 0.7, 0.6 * (right - left))
        cut = "" if span.start >= scale.low else "/again"
        yield swatch(
            left,
            y + TALL - height,
            width,
            height,
            levels[span.level],
            value=float(span.level),
            key=f"{row.key}/{number}{cut}" if row.key else "",
            tip=span.tip,
        )
