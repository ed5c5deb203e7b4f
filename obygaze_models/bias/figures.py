"""Rates, shares and leanings as bars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from obygaze_features.common.text import counted
from obygaze_models.bias.captions import Rate, Rates
from obygaze_models.bias.cooccurrence import truncated
from obygaze_models.bias.gender_table import ObjectScores
from obygaze_models.bias.ratings import Share
from obygaze_models.figures import Bar, format_number, grouped_bars, numbered_series

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["MOST", "leanings_figure", "rates_figure", "shares_figure"]

MOST = 20
"""Objects that are drawn, and printed, those with most captions first."""


def rates_figure(rates: Rates) -> Figure:
    """Emotion words per 1000 captions: a bar a condition, for each emotion and intensity."""
    conditions = list(dict.fromkeys(rate.condition for rate in rates.rates))
    several = any(rate.words != rate.emotion for rate in rates.rates)
    groups: dict[str, dict[str, Rate]] = {}
    for rate in rates.rates:
        name = f"{rate.emotion} {rate.intensity}".strip()
        if several:
            name += f": {rate.words} words"
        groups.setdefault(name, {})[rate.condition] = rate
    empty = [name for name, of in groups.items() if not any(rate.count for rate in of.values())]
    if several and len(empty) < len(groups):
        groups = {name: of for name, of in groups.items() if name not in empty}
    else:
        empty = []
    bars = {
        name: [
            Bar(of[condition].rate, of[condition].low, of[condition].high)
            if condition in of
            else Bar(None)
            for condition in conditions
        ]
        for name, of in groups.items()
    }
    return grouped_bars(
        bars,
        numbered_series(conditions),
        title=f"Emotion words in {counted(_captions(rates), 'caption')}",
        axis="emotion words per 1000 captions"
        + ("; lines: 95% over draws of images" if _spreads(bars) else "")
        + (f"; {counted(len(empty), 'group')} without such words not drawn" if empty else ""),
        description=_said(bars, conditions),
        number_format=lambda rate: format_number(rate, digits=1),
    )


def shares_figure(shares: Sequence[Share]) -> Figure:
    """Shares of images labelled as sexualised: a bar a rater, for each group."""
    raters = list(dict.fromkeys(share.rater for share in shares))
    images = sum({share.group: share.images for share in shares}.values())
    bars: dict[str, list[Bar]] = {}
    for one in shares:
        bar = Bar(one.share, one.low, one.high)
        bars.setdefault(one.group, []).append(bar)
    return grouped_bars(
        bars,
        numbered_series(raters),
        title=f"Images labelled as sexualised, of {images:,}",
        axis="share of the group's images; lines: Wilson's 95%",
        description=_said(bars, raters),
        limits=(0, 1),
        percent=True,
    )


def leanings_figure(objects: Sequence[ObjectScores]) -> Figure:
    """How far each object leans to woman or to man, by each measure: .5 is neither."""
    names = {
        "said": "gender score of what is said",
        "filled": "gender score with either filled in",
        "assigned": "assigned by the score",
        "cooccurrence": "co-occurrence",
    }
    measures = [name for name in names if any(getattr(one, name) for one in objects)]
    bars = {
        one.object: [Bar(getattr(getattr(one, name), "to_man", None)) for name in measures]
        for one in objects[:MOST]
    }
    series = [names[name] for name in measures]
    drawn = f"Objects and gender, {counted(sum(one.captions for one in objects), 'caption')}"
    if len(objects) > MOST:
        drawn += f": the {MOST} of {len(objects):,} objects that have most"
    return grouped_bars(
        bars,
        numbered_series(series),
        title=drawn,
        axis="man / (man + woman), cut to two decimals; .5 is neither",
        description=_said(bars, series, truncated),
        limits=(0, 1),
        number_format=truncated,
        origin=0.5,
        ends=("woman", "man"),
    )


def _captions(rates: Rates) -> int:
    """Of all groups: each is counted with several lists of words, and is the same captions."""
    groups = {(one.condition, one.emotion, one.intensity): one.captions for one in rates.rates}
    return sum(groups.values())


def _spreads(bars: dict[str, list[Bar]]) -> bool:
    return any(bar.low is not None for of in bars.values() for bar in of)


def _said(
    bars: dict[str, list[Bar]],
    series: Sequence[str],
    printed: Callable[[float], str] = format_number,
) -> str:
    return "; ".join(
        f"{group}, {name}: {printed(bar.value)}"
        for group, of in bars.items()
        for name, bar in zip(series, of, strict=True)
        if bar.value is not None
    )
