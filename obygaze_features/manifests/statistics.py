"""Counts of a manifest's levels and concepts, as in the paper's figure 2."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
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
    """The number of items of each level, and of each concept within each level."""

    levels: dict[str, int]
    concepts: dict[str, Counter[str]]

    @property
    def total(self) -> int:
        """The number of labelled items."""
        return sum(self.levels.values())

    def share(self, level: str) -> float:
        """Return the share of labelled items that have a level."""
        return self.levels[level] / (self.total or 1)

    def concepts_per_item(self, level: str) -> float:
        """Return the mean number of concepts per item of a level."""
        return sum(self.concepts[level].values()) / (self.levels[level] or 1)

    def concept_rate(self, level: str, concept: str) -> float:
        """Return the share of a level's items that have a concept."""
        return self.concepts[level][concept] / (self.levels[level] or 1)


@dataclass(frozen=True)
class Statistics:
    """The counts of a label set, for all items and by film."""

    manifest: str
    labels: str
    split: str | None
    scheme: LabelScheme
    all: Counts
    films: Mapping[str, Counts]

    @property
    def concepts(self) -> list[str]:
        """The concepts that at least one item has, in the scheme's order."""
        seen = {name for counts in self.all.concepts.values() for name in counts}
        return [name for name in self.scheme.concept_names if name in seen]


def statistics(
    manifest: Manifest, labels: str | None = None, *, split: str | None = None
) -> Statistics:
    """Count the levels and concepts of a label set, optionally only for the items in a split."""
    label_set = manifest.labels(labels)
    if split is not None:
        label_set = label_set.where(manifest.split(split).fold_of.__contains__)
    scheme = manifest.label_scheme(labels)
    film_of = dict(zip(manifest.ids, manifest.items.films, strict=True))

    def no_counts() -> Counts:
        return Counts(dict.fromkeys(scheme.codes, 0), {code: Counter() for code in scheme.codes})

    total = no_counts()
    films = {film: no_counts() for film in sorted({film_of[i] for i in label_set.ids})}
    for identifier, level in label_set.level_of.items():
        for counts in (total, films[film_of[identifier]]):
            counts.levels[level] += 1
            counts.concepts[level].update(label_set.concepts_of[identifier])
    return Statistics(manifest.name, label_set.name, split, scheme, total, films)


def manifest_facts(
    manifest: Manifest, labels: str | None = None, *, by_film: bool = False
) -> dict[str, Any]:
    """Return what a manifest contains, and tables of the levels and concepts of a label set."""
    facts: dict[str, Any] = {
        "name": manifest.name,
        "version": manifest.version,
        "items": len(manifest),
        "kinds": sorted(set(manifest.items.kinds)),
        "films": sorted(set(manifest.items.films) - {""}),
        "without_media": sum(not name for name in manifest.items.media),
        "label_sets": manifest.label_names,
        "default_labels": manifest.default_labels,
        "splits": manifest.split_names,
        "runs": manifest.run_names,
        "extra_columns": [*manifest.items.extra],
        "digest": manifest.digest,
        "source": manifest.source,
        "licence": manifest.licence,
        "citation": manifest.citation,
    }
    if not (labels or manifest.default_labels or len(manifest.label_names) == 1):
        return facts

    stats = statistics(manifest, labels)
    facts["counted_labels"] = stats.labels
    facts["levels"] = [
        {
            "level": level.code,
            "name": level.name,
            "clips": stats.all.levels[level.code],
            "share": stats.all.share(level.code),
            "concepts_per_clip": stats.all.concepts_per_item(level.code),
        }
        for level in stats.scheme.levels
    ]
    facts["concepts"] = [
        {"concept": name, **{code: stats.all.concept_rate(code, name) for code in stats.all.levels}}
        for name in stats.concepts
    ]
    if by_film:
        titles = film_titles(manifest.items)
        facts["by_film"] = [
            {"film": film, "title": titles.get(film, ""), "clips": own.total, **own.levels}
            for film, own in stats.films.items()
        ]
    return facts


def item_facts(manifest: Manifest, identifier: str) -> dict[str, Any]:
    """Return an item's fields, labels, concepts, folds and extra columns."""
    row = manifest.items.row(identifier)
    facts: dict[str, Any] = {**vars(manifest[identifier])}
    facts["title"] = film_titles(manifest.items).get(facts["film"], "")
    for name in manifest.label_names:
        labels = manifest.labels(name)
        if identifier in labels.level_of:
            concepts = labels.concepts_of[identifier]
            facts[f"labels_{name}"] = " ".join([labels.level_of[identifier], *concepts])
    for name in manifest.split_names:
        facts[f"fold_in_{name}"] = manifest.split(name).fold_of.get(identifier)
    return facts | {name: values[row] for name, values in manifest.items.extra.items()}


def statistics_figure(
    stats: Statistics, titles: Mapping[str, str], *, by_film: bool = False, title: str = ""
) -> Figure:
    """Draw a label set as in the paper's figure 2; with `by_film`, also draw each film's levels."""
    with figure_style():
        from matplotlib.figure import Figure

        rows = [1.2, max(1, len(stats.concepts)), *([len(stats.films)] if by_film else [])]
        size = figure_width(USUAL_IN), ROW_IN * sum(rows) + 0.75 * len(rows) + 0.9
        figure = Figure(figsize=size, layout="constrained")
        title = title or (
            f"{stats.manifest}, labels “{stats.labels}”: "
            f"{counted(stats.all.total, 'clip')} of {counted(len(stats.films), 'film')}"
        )
        levels, concepts, *films = figure.subplots(
            len(rows), 1, gridspec_kw={"height_ratios": rows}, squeeze=False
        )[:, 0]
        caption(figure, title, keys=level_keys(stats.scheme.name_of))
        describe(figure, title, "Shares of the levels, and the concepts within each level.")
        _draw_shares(levels, {"all clips": stats.all}, stats, "Share of each level")
        _draw_concepts(concepts, stats)
        for axes in films:
            order = sorted(stats.films, key=lambda film: _sure_share(stats, film), reverse=True)
            names = {titles.get(film, film) or "-": stats.films[film] for film in order}
            top = stats.scheme.levels[-1].name
            _draw_shares(axes, names, stats, f"Films, by their share of {top}")
    return figure


def _sure_share(stats: Statistics, film: str) -> float:
    return stats.films[film].share(stats.scheme.codes[-1])


def _draw_shares(axes: Axes, rows: Mapping[str, Counts], stats: Statistics, title: str) -> None:
    """Draw one bar per row, divided by level, with percentages inside and clip counts beside it."""
    colours = level_colours(stats.scheme.codes)
    counts_of = {name: counted(counts.total, "clip") for name, counts in rows.items()}
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
            text = f"{share:.0f}%"
            if share >= MIN_SHARE / figure_width(USUAL_IN):
                centre: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8.5}
                axes.text(left + share / 2, -row, text, color=ink_on(colour), **centre)
            left += share
        axes.text(101, -row, counts_of[name], va="center", fontsize=8.5, color=SOFT)
    axes.set_xlim(0, 101)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)


def _draw_concepts(axes: Axes, stats: Statistics) -> None:
    """Draw one dot per concept and level; concepts typical of the top level come first."""
    codes = [code for code in stats.scheme.codes if any(stats.all.concepts[code].values())]
    colours = dict(zip(stats.scheme.codes, level_colours(stats.scheme.codes), strict=True))

    def tells(name: str) -> float:
        *below, top = [stats.all.concept_rate(code, name) for code in codes]
        return top - max(below, default=0.0)

    concepts = sorted(stats.concepts, key=tells, reverse=True)
    for row, name in enumerate(concepts):
        rates = [100 * stats.all.concept_rate(code, name) for code in codes]
        axes.plot([min(rates), max(rates)], [-row, -row], "-", color=SOFT, linewidth=1, zorder=1)
        for code, rate in zip(codes, rates, strict=True):
            style: dict[str, Any] = {
                "markerfacecolor": colours[code],
                "markeredgecolor": INK,
                "markersize": 7,
            }
            axes.plot(rate, -row, "o", markeredgewidth=0.6, **style)
            add_number(axes, f"{name}, {stats.scheme.name_of[code]}: {rate:.1f}%")
    axes.set_xlim(-1, 1.02 * axes.get_xlim()[1])
    axes.grid(axis="x")
    title, about = "Clips of a level that have each concept", "% of the level’s clips"
    name_rows(axes, concepts)
    add_heading(axes, title, about)
