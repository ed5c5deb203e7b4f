"""Figures of the four measures: effect sizes, rates, shares, and balances of gender."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from obygaze_features.common.text import counted
from obygaze_models.bias.captions import Rates
from obygaze_models.bias.gender_score import ObjectScores, truncate
from obygaze_models.bias.ratings import Share
from obygaze_models.bias.run_battery import SIGNIFICANT, BatteryResults
from obygaze_models.figures.dots import Line, Point, dot_plot, grouped_dots, numbered_series
from obygaze_models.figures.sheet import Dot, format_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MAX_OBJECTS = 20
"""Objects that are drawn and printed, those with most captions first."""


def battery_figure(results: BatteryResults) -> Figure:
    """The effect sizes with their intervals, beside the published ones."""
    points = [
        Point(
            row.item or row.test,
            row.association.d,
            row.association.low,
            row.association.high,
            row.published.d if row.published else None,
            group=row.test if row.item else "",
            mark="*" if row.significant else "",
            reference_mark="*" if row.published and row.published.significant else "",
            note=format_p(row.association.p),
        )
        for row in results.rows
    ]
    title = f"{counted(len(results.rows), 'association test')}: {results.battery}"
    if any(row.published for row in results.rows):
        title += f" (published: {results.model})"
    return dot_plot(
        points,
        title=title,
        axis="effect size d",
        ends=("X nearer to B", "X nearer to A"),
        description="; ".join(
            f"{row.name}: {row.association.d:+.2f}, p {row.association.p:.3g}"
            for row in results.rows
        ),
        lines=[Line(0.0, "no association")],
        interval="95% interval over draws of items",
        value="here",
        signed=True,
        note="p",
        footnote=f"* p < {SIGNIFICANT}, one-sided. {_methods(results)}",
    )


def format_p(p: float) -> str:
    """A p as tables and figures print it.

    Examples
    --------
    >>> format_p(0.0142857), format_p(0.00002)
    ('0.0143', '2.0e-05')
    """
    return f"{p:.4f}" if p >= 0.0001 else f"{p:.1e}"


def _methods(results: BatteryResults) -> str:
    """How p and the interval were computed; they differ."""
    methods = {
        "exact": "from all partitions",
        "sampled": "from random partitions",
        "normal": "from a normal distribution",
    }
    used = dict.fromkeys(methods[row.association.p_is] for row in results.rows)
    text = f"p is {' or '.join(used)}"
    if all(row.association.low is None for row in results.rows):
        return f"{text}."
    return f"{text}, the interval from draws of items with replacement."


def rates_figure(rates: Rates) -> Figure:
    """Emotion words per 1000 captions: a bar a condition, for each emotion and intensity."""
    conditions = list(dict.fromkeys(rate.condition for rate in rates.rates))
    dots: dict[str, dict[str, Dot]] = {}
    for rate in rates.rates:
        name = f"{rate.emotion} {rate.intensity}".strip()
        if rates.several_lists:
            name += f": {rate.words} words"
        dots.setdefault(name, {})[rate.condition] = Dot(rate.rate, rate.low, rate.high)
    every = {name: [of.get(which, Dot(None)) for which in conditions] for name, of in dots.items()}
    bars = {name: row for name, row in every.items() if any(bar.value for bar in row)}
    if not rates.several_lists or not bars:
        bars = every
    empty = len(every) - len(bars)
    has_intervals = any(bar.low is not None for row in bars.values() for bar in row)
    return grouped_dots(
        bars,
        numbered_series(conditions),
        title=f"Emotion words in {counted(rates.captions, 'caption')}",
        axis="emotion words per 1000 captions"
        + ("; lines: 95% over draws of images" if has_intervals else "")
        + (f"; {counted(empty, 'group')} without such words not drawn" if empty else ""),
        description=_description(bars, conditions),
        number_format=lambda rate: format_number(rate, digits=1),
    )


def shares_figure(shares: Sequence[Share]) -> Figure:
    """Shares of images labelled as sexualised: a bar a rater, for each group."""
    raters = list(dict.fromkeys(share.rater for share in shares))
    images = sum({share.group: share.images for share in shares}.values())
    bars: dict[str, list[Dot]] = {}
    for share in shares:
        bars.setdefault(share.group, []).append(Dot(share.share, share.low, share.high))
    return grouped_dots(
        bars,
        numbered_series(raters),
        title=f"Images labelled as sexualised, of {images:,}",
        axis="share of the group's images; lines: Wilson's 95%",
        description=_description(bars, raters),
        limits=(0, 1),
        percent=True,
    )


def balance_figure(objects: Sequence[ObjectScores]) -> Figure:
    """How far each object leans to woman or to man, by each measure: .5 is neither."""
    titles = {
        "said": "gender score of the caption",
        "filled": "gender score with either filled in",
        "assigned": "assigned by the score",
        "cooccurrence": "co-occurrence",
    }
    measures = [name for name in titles if any(getattr(scores, name) for scores in objects)]
    bars = {
        scores.object: [Dot(getattr(getattr(scores, name), "man_share", None)) for name in measures]
        for scores in objects[:MAX_OBJECTS]
    }
    series = [titles[name] for name in measures]
    captions = sum(scores.captions for scores in objects)
    title = f"Objects and gender, {counted(captions, 'caption')}"
    if len(objects) > MAX_OBJECTS:
        title += f": the {MAX_OBJECTS} of {len(objects):,} objects that have most"
    return grouped_dots(
        bars,
        numbered_series(series),
        title=title,
        axis="man / (man + woman), cut to two decimals; .5 is neither",
        description=_description(bars, series, truncate),
        limits=(0, 1),
        number_format=truncate,
        origin=0.5,
        ends=("woman", "man"),
    )


def _description(
    bars: Mapping[str, Sequence[Dot]],
    series: Sequence[str],
    to_text: Callable[[float], str] = format_number,
) -> str:
    return "; ".join(
        f"{group}, {name}: {to_text(bar.value)}"
        for group, row in bars.items()
        for name, bar in zip(series, row, strict=True)
        if bar.value is not None
    )
