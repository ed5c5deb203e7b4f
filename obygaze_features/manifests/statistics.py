"""Counts of a manifest's levels and concepts, as in the paper's figure 2."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from obygaze_features.common.figures import (
    INK,
    PAPER,
    SOFT,
    add_heading,
    add_number,
    caption,
    describe,
    figure_style,
    figure_width,
    ink_on,
    level_colours,
    level_keys,
    name_rows,
)
from obygaze_features.common.text import counted
from obygaze_features.items.films import film_titles
from obygaze_features.manifests.labels import LabelScheme
from obygaze_features.manifests.manifest import Manifest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW_IN = 0.3
"""The height of a row of the figure, in inches."""
USUAL_IN = 8.5
"""The usual width of the figure, in inches."""
MIN_SHARE = 60
"""The smallest share that is written inside a bar, in percent of an inch of the figure's width."""


@dataclass(frozen=True)
class Counts:
    """The number of clips of each level, and of each level and concept."""

    levels: Counter[str] = field(default_factory=Counter)
    concepts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def share(self, level: str) -> float:
        """Return the share of labelled clips that have a level."""
        return self.levels[level] / (self.levels.total() or 1)

    def concepts_per_item(self, level: str) -> float:
        """Return the mean number of concepts per clip of a level."""
        counts = [count for (own, _), count in self.concepts.items() if own == level]
        return sum(counts) / (self.levels[level] or 1)

    def concept_rate(self, level: str, concept: str) -> float:
        """Return the share of a level's clips that have a concept."""
        return self.concepts[level, concept] / (self.levels[level] or 1)


@dataclass(frozen=True)
class Statistics:
    """The counts of a label set, for all clips and by film."""

    manifest: str
    labels: str
    scheme: LabelScheme
    all: Counts
    films: Mapping[str, Counts]

    @property
    def concepts(self) -> list[str]:
        """The concepts that at least one clip has, in the scheme's order."""
        return list(self.scheme.in_order(name for _, name in self.all.concepts))


def statistics(manifest: Manifest, labels: str | None = None) -> Statistics:
    """Count the levels and concepts of a label set."""
    label_set = manifest.labels(labels)
    film_of = dict(zip(manifest.ids, manifest.items.films, strict=True))
    total = Counts()
    films: dict[str, Counts] = {}
    for identifier, level in label_set.level_of.items():
        of_film = films.setdefault(film_of[identifier], Counts())
        for counts in (total, of_film):
            counts.levels[level] += 1
            for name in label_set.concepts_of[identifier]:
                counts.concepts[level, name] += 1
    scheme = manifest.label_scheme(labels)
    return Statistics(manifest.name, label_set.name, scheme, total, dict(sorted(films.items())))


def manifest_facts(
    manifest: Manifest, labels: str | None = None, *, by_film: bool = False
) -> dict[str, Any]:
    """Return what a manifest contains, and tables of the levels and concepts of a label set."""
    facts = manifest.header()
    del facts["label_scheme"]
    facts |= {
        "kinds": sorted(set(manifest.items.kinds)),
        "films": sorted(set(manifest.items.films) - {""}),
        "without_media": manifest.items.media.count(""),
        "label_sets": manifest.label_names,
        "splits": manifest.split_names,
        "runs": manifest.run_names,
        "extra_columns": list(manifest.items.extra),
    }
    if not (labels or manifest.default_labels or len(manifest.label_names) == 1):
        return facts

    stats = statistics(manifest, labels)
    facts["counted_labels"] = stats.labels
    counts = stats.all
    facts["levels"] = []
    for code, name in stats.scheme.name_of.items():
        row = {
            "level": code,
            "name": name,
            "clips": counts.levels[code],
            "share": counts.share(code),
            "concepts_per_clip": counts.concepts_per_item(code),
        }
        facts["levels"].append(row)
    facts["concepts"] = []
    for concept in stats.concepts:
        rates = {code: counts.concept_rate(code, concept) for code in stats.scheme.codes}
        facts["concepts"].append({"concept": concept, **rates})
    if by_film:
        titles = film_titles(manifest.items)
        facts["by_film"] = []
        for film, own in stats.films.items():
            row = {"film": film, "title": titles.get(film, ""), "clips": own.levels.total()}
            row |= {code: own.levels[code] for code in stats.scheme.codes}
            facts["by_film"].append(row)
    return facts


def statistics_figure(
    stats: Statistics, titles: Mapping[str, str], *, by_film: bool = False, title: str = ""
) -> Figure:
    """Draw a label set as in the paper's figure 2; with `by_film`, also draw each film's levels."""
    heights = [1.2, max(1, len(stats.concepts))]
    if by_film:
        heights.append(len(stats.films))
    if not title:
        size = counted(stats.all.levels.total(), "clip")
        title = f"{stats.manifest}, labels “{stats.labels}”: {size}"
    top = stats.scheme.levels[-1]

    with figure_style():
        from matplotlib.figure import Figure

        height = ROW_IN * sum(heights) + 0.75 * len(heights) + 0.9
        figure = Figure(figsize=(figure_width(USUAL_IN), height), layout="constrained")
        panels = figure.subplots(
            len(heights), 1, gridspec_kw={"height_ratios": heights}, squeeze=False
        )[:, 0]
        caption(figure, title, keys=level_keys(stats.scheme.name_of))
        describe(figure, title, "Shares of the levels, and the concepts within each level.")
        _draw_shares(panels[0], {"all clips": stats.all}, stats, "Share of each level")
        _draw_concepts(panels[1], stats)
        if by_film:
            order = sorted(
                stats.films, key=lambda film: stats.films[film].share(top.code), reverse=True
            )
            rows = {titles.get(film, film) or "-": stats.films[film] for film in order}
            _draw_shares(panels[2], rows, stats, f"Films, by their share of {top.name}")
    return figure


def _draw_shares(axes: Axes, rows: Mapping[str, Counts], stats: Statistics, title: str) -> None:
    """Draw one bar per row, divided by level, with percentages inside and clip counts beside it."""
    colours = level_colours(stats.scheme.codes)
    name_rows(axes, list(rows))
    add_heading(axes, title)
    for row, (name, counts) in enumerate(rows.items()):
        left = 0.0
        for level, colour in zip(stats.scheme.levels, colours, strict=True):
            share = 100 * counts.share(level.code)
            axes.barh(-row, share, 0.72, left=left, color=colour, edgecolor=PAPER)
            clips = counted(counts.levels[level.code], "clip")
            concepts = f"{counts.concepts_per_item(level.code):.2f} concepts per clip"
            add_number(axes, f"{name}, {level.name}: {share:.1f}%, {clips}, {concepts}")
            if share >= MIN_SHARE / figure_width(USUAL_IN):
                axes.text(
                    left + share / 2,
                    -row,
                    f"{share:.0f}%",
                    ha="center",
                    va="center",
                    fontsize=8.5,
                    color=ink_on(colour),
                )
            left += share
        clips = counted(counts.levels.total(), "clip")
        axes.text(101, -row, clips, va="center", fontsize=8.5, color=SOFT)
    axes.set_xlim(0, 101)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)


def _draw_concepts(axes: Axes, stats: Statistics) -> None:
    """Draw one dot per concept and level; concepts typical of the top level come first."""
    marked = {level for level, _ in stats.all.concepts}
    codes = [code for code in stats.scheme.codes if code in marked]
    colours = dict(zip(stats.scheme.codes, level_colours(stats.scheme.codes), strict=True))
    rates_of = {}
    for name in stats.concepts:
        rates_of[name] = [100 * stats.all.concept_rate(code, name) for code in codes]

    def top_and_rest(name: str) -> float:
        *below, top = rates_of[name]
        return top - max(below, default=0.0)

    concepts = sorted(stats.concepts, key=top_and_rest, reverse=True)
    for row, name in enumerate(concepts):
        rates = rates_of[name]
        axes.plot([min(rates), max(rates)], [-row, -row], "-", color=SOFT, linewidth=1, zorder=1)
        for code, rate in zip(codes, rates, strict=True):
            axes.plot(
                rate,
                -row,
                "o",
                markerfacecolor=colours[code],
                markeredgecolor=INK,
                markersize=7,
                markeredgewidth=0.6,
            )
            add_number(axes, f"{name}, {stats.scheme.name_of[code]}: {rate:.1f}%")
    axes.set_xlim(-1, 1.02 * axes.get_xlim()[1])
    axes.grid(axis="x")
    name_rows(axes, concepts)
    add_heading(axes, "Clips of a level that have each concept", "% of the level’s clips")
