"""Rates, shares and leanings as bars."""

from __future__ import annotations

from collections.abc import Sequence

from obygaze_features.drawing.marks import Series
from obygaze_features.drawing.svg import number
from obygaze_models.bias.captions import Rate, Rates
from obygaze_models.bias.gender_table import ObjectScores
from obygaze_models.bias.ratings import Share
from obygaze_models.figures.bars import Bar, grouped_bars

__all__ = ["leanings_figure", "rates_figure", "shares_figure"]

MOST = 30
"""Objects that are drawn, those with most captions first."""
_COLOURS = 6


def rates_figure(rates: Rates) -> str:
    """Emotion words per 1000 captions: a bar a condition, for each emotion and intensity."""
    conditions = list(dict.fromkeys(rate.condition for rate in rates.rates))
    several = any(rate.words != rate.emotion for rate in rates.rates)
    groups: dict[str, dict[str, Rate]] = {}
    for rate in rates.rates:
        name = f"{rate.emotion} {rate.intensity}".strip()
        if several:
            name += f": {rate.words} words"
        groups.setdefault(name, {})[rate.condition] = rate
    bars = {
        name: [
            Bar(
                of[condition].rate, of[condition].low, of[condition].high, key=f"{name}/{condition}"
            )
            if condition in of
            else Bar(None)
            for condition in conditions
        ]
        for name, of in groups.items()
    }
    return grouped_bars(
        bars,
        _series(conditions),
        title="Emotion words in captions",
        axis="emotion words per 1000 captions; lines: 95% over draws of images",
        description=_said(bars, conditions),
    )


def shares_figure(shares: Sequence[Share]) -> str:
    """Shares of images labelled as sexualised: a bar a rater, for each group."""
    raters = list(dict.fromkeys(share.rater for share in shares))
    bars: dict[str, list[Bar]] = {}
    for one in shares:
        bar = Bar(one.share, one.low, one.high, key=f"{one.group}/{one.rater}")
        bars.setdefault(one.group, []).append(bar)
    return grouped_bars(
        bars,
        _series(raters),
        title="Images labelled as sexualised",
        axis="share of the group's images; lines: Wilson's 95%",
        description=_said(bars, raters),
        limits=(0, 1),
        percent=True,
    )


def leanings_figure(objects: Sequence[ObjectScores]) -> str:
    """How far each object leans to man, by each measure."""
    names = {
        "said": "gender score of what is said",
        "filled": "gender score with either filled in",
        "assigned": "assigned by the score",
        "cooccurrence": "co-occurrence",
    }
    measures = [name for name in names if any(getattr(one, name) for one in objects)]
    bars = {
        one.object: [
            Bar(getattr(getattr(one, name), "to_man", None), key=f"{one.object}/{name}")
            for name in measures
        ]
        for one in objects[:MOST]
    }
    series = [names[name] for name in measures]
    return grouped_bars(
        bars,
        _series(series),
        title="Objects and gender",
        axis="leaning to man: man / (man + woman)",
        description=_said(bars, series),
        limits=(0, 1),
    )


def _series(names: Sequence[str]) -> list[Series]:
    """A colour each; after the last they come again, hatched."""
    return [
        Series(name, at % _COLOURS + 1, hatched=at >= _COLOURS) for at, name in enumerate(names)
    ]


def _said(bars: dict[str, list[Bar]], series: Sequence[str]) -> str:
    return "; ".join(
        f"{group}, {name}: {number(bar.value)}"
        for group, of in bars.items()
        for name, bar in zip(series, of, strict=True)
        if bar.value is not None
    )
