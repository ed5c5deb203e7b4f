"""Marks of figures: dots on their intervals, guesses, numbers, and the axis that they are on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

from obygaze_features.common.figures import PAPER, SOFT, figure_style, plain, tip
from obygaze_models.figure_layout import GUESS, SMALL, TEXT, WIDTH

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "Dot",
    "draw_dot",
    "draw_guess",
    "draw_interval",
    "format_number",
    "interval_of",
    "is_defined",
    "scale_x",
    "write_centred",
]


@dataclass(frozen=True)
class Dot:
    """A value, None where it is undefined, its interval, and what guessing reaches."""

    value: float | None
    low: float | None = None
    high: float | None = None
    guess: float | None = None


def format_number(
    value: float, *, digits: int = 2, percent: bool = False, signed: bool = False
) -> str:
    """A number as figures print it.

    Examples
    --------
    >>> format_number(0.789), format_number(0.524, percent=True), format_number(-0.031)
    ('0.79', '52%', '−0.03')
    """
    text = f"{100 * value:.0f}%" if percent else f"{value:.{digits}f}"
    if not text.strip("-0.%"):
        return text.lstrip("-")
    return ("+" if signed and value > 0 else "") + text.replace("-", "−")


def is_defined(value: float | None) -> TypeGuard[float]:
    """Whether there is a number to draw."""
    return value is not None and math.isfinite(value)


def interval_of(low: float | None, high: float | None) -> tuple[float, float] | None:
    """The ends of an interval; None where either is undefined."""
    if low is None or high is None or not math.isfinite(low + high):
        return None
    return float(low), float(high)


#: Axes below this width have few ticks, so that their numbers stay apart.
NARROW = 110.0


def scale_x(
    axes: Axes,
    values: Sequence[float],
    limits: tuple[float, float] | None,
    *,
    percent: bool = False,
    grid: bool = True,
) -> None:
    """An axis that holds all values: `limits`, or wider; without limits, round ends."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    narrow = axes.get_position().width * WIDTH < NARROW
    locator = MaxNLocator(2 if narrow else 5, steps=[1, 2, 5, 10])
    given = [*values, *(limits or ())] or [0.0, 1.0]
    low, high = min(given), max(given)
    if low == high:
        low, high = low - 0.5, high + 0.5
    ticks = locator.tick_values(low, high)
    if limits is None or low < limits[0]:
        low = max((t for t in ticks if t <= low + 1e-9), default=low)
    if limits is None or high > limits[1]:
        high = min((t for t in ticks if t >= high - 1e-9), default=high)
    axes.set_xlim(low, high)
    ticks = [t for t in ticks if low - 1e-9 <= t <= high + 1e-9]
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 0.01
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    axes.set_xticks(ticks)
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda v, _: format_number(v, digits=digits, percent=percent))
    )
    axes.tick_params(axis="x", pad=3)
    if grid:
        axes.grid(axis="x")


def draw_interval(axes: Axes, ends: tuple[float, float] | None, y: float, colour: str) -> None:
    """A whisker on a rim of paper; what is outside the axis is cut."""
    if ends is None:
        return
    low, high = axes.get_xlim()
    left, right = (min(max(end, low), high) for end in ends)
    for width, paint in ((3.2, PAPER), (1.3, colour)):
        axes.plot(
            [left, right], [y, y], color=paint, linewidth=width, marker="|", markersize=5,
            markeredgewidth=width, clip_on=False, zorder=4, solid_capstyle="butt",
        )  # fmt: skip


def draw_dot(
    axes: Axes,
    dot: Dot,
    y: float,
    style: Mapping[str, Any],
    name: str,
    to_text: Callable[[float], str],
) -> None:
    """A dot on its interval; a value that is undefined is said in words."""
    if not is_defined(dot.value):
        low, _ = axes.get_xlim()
        box = {"facecolor": PAPER, "edgecolor": "none", "pad": 1}
        _beside(axes, low, y, "undefined", 3, color=SOFT, size=SMALL, bbox=box)
        return
    ends = interval_of(dot.low, dot.high)
    more = " ({} to {})".format(*map(to_text, ends)) if ends else ""
    draw_interval(axes, ends, y, style["markeredgecolor"])
    axes.plot(
        [dot.value], [y], linestyle="none", zorder=5, clip_on=False,
        gid=tip(f"{name}: {to_text(dot.value)}{more}"), **style,
    )  # fmt: skip


def draw_guess(
    axes: Axes, value: float, y: float, name: str, to_text: Callable[[float], str]
) -> None:
    """The tick of what guessing reaches."""
    axes.plot([value], [y], **GUESS, zorder=3, clip_on=False, gid=tip(f"{name}: {to_text(value)}"))


def _beside(axes: Axes, x: float, y: float, text: str, points: float, **options: Any) -> None:
    """Text some points beside a value: to its right, or to its left where negative."""
    with figure_style():
        axes.annotate(
            plain(text), (x, y), (points, 0), textcoords="offset points", zorder=6,
            va="center_baseline", ha="right" if points < 0 else "left",
            **{"size": TEXT - 0.5, **options},
        )  # fmt: skip


def write_centred(
    axes: Axes, x: float, y: float, text: str, colour: str, size: float, *, background: str | None
) -> None:
    """Text around a point of the axes."""
    box = {"facecolor": background, "edgecolor": "none", "pad": 1} if background else None
    with figure_style():
        axes.text(
            x, y, text, color=colour, size=size, ha="center", va="center_baseline", bbox=box,
            zorder=6,
        )  # fmt: skip
