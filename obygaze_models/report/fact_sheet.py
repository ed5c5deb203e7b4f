"""A one-page sheet about a film, for a class or a talk: annotators' marks and a model's scores."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from obygaze_features.annotations.film_shares import FilmShares, MarkedFilms
from obygaze_features.common.figures import (
    INK,
    LIGHT,
    LINE,
    SERIES,
    SOFT,
    check_figure_path,
    describe,
    draw_level_bars,
    figure_style,
    level_keys,
    paper,
    plain,
    save_figure,
    show_time,
    text_width,
    wrap,
)
from obygaze_features.common.text import counted, format_number
from obygaze_features.errors import ExperimentError
from obygaze_features.items.films import find_film
from obygaze_models.data.warnings import synthetic_note
from obygaze_models.experiments.predictions import probabilities_of
from obygaze_models.experiments.run_folder import Clip
from obygaze_models.report.annotators import load_annotators, marked_films
from obygaze_models.report.explorer import in_scene_order
from obygaze_models.report.film_timelines import by_film, is_timed
from obygaze_models.report.glossary import citation, perceived
from obygaze_models.report.headline import Headline, headline
from obygaze_models.report.page import Origin, open_sources
from obygaze_models.report.runs import default_run, score_tables
from obygaze_models.scoring.metrics import METRICS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Shape = Literal["a5", "16:9"]
SHAPES: dict[str, tuple[float, float]] = {"a5": (210 / 25.4, 148 / 25.4), "16:9": (40 / 3, 7.5)}
"""The width and height of each shape in inches: a landscape page, and a slide."""
HEIGHT = 420.0
"""The height of every sheet in units. A unit is one point on A5, and larger on larger sheets."""
MARGIN, LANE_NAMES, CONCEPT_NAMES = 26.0, 92.0, 116.0
"""The margin and the widths of the columns of names, in units."""
LANES, LANES_TOP, PANELS_TOP = 92.0, 112.0, 280.0
"""The total height of the lanes, and the y positions of lanes and panels, in units."""
MAX_LANES, MAX_CONCEPTS = 6, 5
MAX_NAMED = 3
"""The maximum number of annotators that a sentence lists. For more, the sentence gives a range."""


def fact_sheet(
    sources: Origin | Sequence[Origin],
    film: str | Collection[str],
    output: str | Path,
    *,
    shape: Shape = "a5",
    overwrite: bool = False,
) -> Path:
    """Draw a one-page sheet about a film, and return its path.

    The sheet shows each annotator's levels over time. Below, it compares the share that each
    annotator marked, and the shares of concepts, with the means over all films. If the sources are
    runs, it also shows the probabilities of the model on the report's first screen.

    Parameters
    ----------
    sources
        See `report`.
    film
        The film's id or title, or a pattern that matches only this film.
    output
        The path of a PDF, SVG or PNG file.
    shape
        ``"a5"``, a landscape page, or ``"16:9"``, a slide.
    overwrite
        Replace an existing file.
    """
    check_figure_path(Path(output), overwrite=overwrite)
    runs, annotation = open_sources(sources)
    source = annotation or default_run(runs)
    head = headline(score_tables(runs), source, load_annotators(source))
    titles = {clip.film: clip.title for clip in source.clips.values() if clip.film}
    if not titles:
        raise ExperimentError(f"{source.about.name}: no clip has a film. Add films to the manifest")
    content = FilmFacts(head, find_film(film, titles))
    save_figure(draw_sheet(content, shape), output, overwrite=overwrite)
    return Path(output)


@dataclass(frozen=True, eq=False)
class FilmFacts:
    """The content of a sheet: one film, with the data of a report's first screen."""

    head: Headline
    film: str

    @cached_property
    def clips(self) -> list[Clip]:
        """The film's clips, in scene order."""
        return by_film(in_scene_order(self.head.source.clips))[self.film]

    @cached_property
    def marked(self) -> MarkedFilms:
        """The shares of marked clips in all films."""
        return marked_films(self.head.source, self.head.annotators)

    @cached_property
    def shares(self) -> FilmShares | None:
        """The shares of marked clips in this film; None if its annotators share no clip."""
        return next((film for film in self.marked.films if film.film == self.film), None)

    @cached_property
    def lanes(self) -> dict[str, dict[str, str]]:
        """Each annotator's levels by clip; the page's labels if no annotators are known."""
        ids = [clip.id for clip in self.clips]
        lanes = {
            name: {clip: levels[clip] for clip in ids if clip in levels}
            for name, levels in self.head.levels_by_annotator.items()
        }
        lanes = {name: levels for name, levels in lanes.items() if levels}
        return lanes or {"annotators": {clip.id: clip.level for clip in self.clips}}

    @cached_property
    def differ(self) -> list[str]:
        """The clips on which annotators differ."""
        annotators = self.head.annotators
        return [c.id for c in self.clips if annotators and annotators.differ.get(c.id)]

    @cached_property
    def spans(self) -> dict[str, tuple[float, float]]:
        """The start and end of each clip, in seconds if known, else counted in clips."""
        if is_timed(self.clips):
            return {clip.id: (clip.start or 0.0, clip.end or 0.0) for clip in self.clips}
        return {clip.id: (at, at + 1.0) for at, clip in enumerate(self.clips)}

    @cached_property
    def probabilities(self) -> dict[str, float]:
        """The probability of the positive class for each clip; empty if there is no model."""
        if not self.head.rows or self.head.run.kind == "concepts":
            return {}
        means = self.head.row.results.predictions
        values = probabilities_of(means)
        values = values[:, -1] if values.ndim == 2 else values
        of_clip = dict(zip(means["id"], values.tolist(), strict=True))
        return {clip: of_clip[clip] for clip in self.spans if clip in of_clip}

    @property
    def title(self) -> str:
        """The film's title."""
        return plain(self.clips[0].title or self.film)

    @property
    def sentence(self) -> str:
        """A sentence on how many clips each annotator marked, and how many all of them marked."""
        noun, levels = self.head.source.noun, self.head.source.positives
        total = len(self.clips)
        counts = {
            name: sum(level in levels for level in level_of.values())
            for name, level_of in self.lanes.items()
        }
        start = f"Of {total:,} {noun if total != 1 else noun.removesuffix('s')}"
        if len(counts) == 1:
            [(name, number)] = counts.items()
            by = "" if name == "annotators" else f" to {name}"
            return f"{start}, {number:,} {'is' if number == 1 else 'are'} {self.marked.level}{by}."
        (first, number), *others = counts.items()
        parts = [f"{first} marks {number:,} as {self.marked.level}"]
        parts += [f"{name} {number:,}" for name, number in others]
        who = f"{', '.join(parts[:-1])} and {parts[-1]}"
        if len(counts) > MAX_NAMED:
            ends = f"{min(counts.values()):,} to {max(counts.values()):,}"
            who = f"{len(counts)} annotators mark {ends} each as {self.marked.level}"
        lanes = self.lanes.values()
        shared = [c.id for c in self.clips if all(c.id in level_of for level_of in lanes)]
        agreed = sum(all(level_of[clip] in levels for level_of in lanes) for clip in shared)
        everyone = "both" if len(counts) == 2 else f"all {len(counts)}"
        shared_marks = f"{agreed:,} are" if agreed > 1 else ("1 is" if agreed else "none is")
        return f"{start}, {who}; {shared_marks} {self.marked.level} to {everyone}."

    @property
    def of_model(self) -> str:
        """An explanation of the model's lane, with the film's score; "" if there is no model."""
        if not self.head.rows or self.head.run.kind == "concepts":
            return ""
        row, metric = self.head.row, self.head.metric
        if not self.probabilities:
            return "The model was not tested on this film."
        clip, positive = row.run.clip_noun, row.task.classes[-1].words
        source = f"from the {perceived(row.run)} alone"
        lane = f"Grey: how likely each {clip} is to be {positive}, {source}."
        if len(self.probabilities) < len(self.clips):
            lane += " No bar: not tested."
        if note := synthetic_note(row.run.record.warnings):
            return f"{lane} {note}"
        score, mean = row.entry.groups.get(self.film, {}).get(metric), row.entry.mean[metric]
        if score is None or mean is None:
            return lane
        films = counted(row.entry.films, row.run.group_noun)
        if metric != "auroc" or not row.task.is_binary:
            average = f"{format_number(mean)} on average over {films}"
            return f"{lane} {METRICS[metric].title} is {format_number(score)} ({average})."
        negative = row.task.classes[0].words
        return (
            f"{lane} Given one {positive} and one {negative} {clip}, the model rates the "
            f"{positive} one higher {score:.0%} of the time ({mean:.0%} on average over {films})."
        )

    @property
    def source(self) -> str:
        """The citation of the data and of obygaze."""
        return f"Source: {plain(citation([self.head.source]))}"


def draw_sheet(facts: FilmFacts, shape: Shape = "a5") -> Figure:
    """Draw the sheet of a film, with lanes over time above the shares of marked clips."""
    with figure_style():
        sheet = _Sheet(SHAPES[shape])
        room = sheet.width - 2 * MARGIN
        fitting = 19 * min(1.0, room / (1.14 * text_width(facts.title, 19)))
        lines = 1 if fitting > 11 else 2
        sheet.write(MARGIN, facts.title, max(11.0, fitting), weight="bold", lines=lines)
        sheet.write(MARGIN + 31, facts.sentence, 10.5, lines=2)
        _draw_lanes(sheet, facts)
        sheet.write(LANES_TOP + LANES + 20, facts.of_model, 8, lines=2, color=SOFT)
        shares = facts.shares
        if shares is not None:
            half = (room - 24) / 2
            _draw_levels(sheet, facts, shares, half if shares.concepts else room)
            if shares.concepts:
                _draw_concepts(sheet, facts, shares, MARGIN + half + 24, half)
        sheet.write(HEIGHT - 33, facts.source, 7, lines=2, color=SOFT)
        describe(sheet.figure, facts.title, _in_words(facts))
    return sheet.figure


class _Sheet:
    """A figure whose parts have positions in units from the upper left corner."""

    def __init__(self, size: tuple[float, float]) -> None:
        from matplotlib.figure import Figure

        self.figure = Figure(figsize=size)
        self.unit = 72 * size[1] / HEIGHT
        self.width = 72 * size[0] / self.unit

    def write(
        self, y: float, text: str, size: float, *, x: float = MARGIN, lines: int = 1, **style: Any
    ) -> None:
        """Write text below `y`. Text that exceeds `lines` lines ends in an ellipsis."""
        room, bold = self.width - x - MARGIN, 1.12 if "weight" in style else 1.0
        content = "\n".join(wrap(text, room, bold * size, lines))
        at = x / self.width, 1 - y / HEIGHT
        if lines == 1:  # align baselines, whether or not letters have descenders
            at = at[0], at[1] - 0.8 * size / HEIGHT
        style = {"va": "baseline" if lines == 1 else "top", "linespacing": 1.35} | style
        self.figure.text(*at, content, fontsize=size * self.unit, **style)

    def add_axes(self, x: float, y: float, width: float, height: float) -> Axes:
        """Add axes without labels, at a distance `y` from the upper edge."""
        bottom = 1 - (y + height) / HEIGHT
        box = x / self.width, bottom, width / self.width, height / HEIGHT
        axes = self.figure.add_axes(box)
        axes.tick_params(labelsize=8 * self.unit, length=0)
        for side in ("left", "bottom"):
            axes.spines[side].set_visible(False)
        return axes

    def add_names(
        self, axes: Axes, names: Iterable[str], colours: Iterable[str], room: float
    ) -> None:
        """Label the rows at y = 0, -1, -2, ..., each in its colour."""
        texts = ["".join(wrap(name, room, 9, 1)) for name in names]
        axes.set_yticks([-row for row in range(len(texts))], texts, fontsize=9 * self.unit)
        for label, colour in zip(axes.get_yticklabels(), colours, strict=True):
            label.set_color(colour)


def _colour(row: int) -> str:
    return SERIES[row % len(SERIES)]


def _draw_lanes(sheet: _Sheet, facts: FilmFacts) -> None:
    """Draw each annotator's marks over time, their differences, and the model's probabilities."""
    lanes = dict(islice(facts.lanes.items(), MAX_LANES))
    levels = facts.head.source.about.levels
    names, colours = [*lanes], [*map(_colour, range(len(lanes)))]
    if len(lanes) > 1:
        names, colours = [*names, "they differ"], [*colours, LIGHT["differs"]]
    if facts.probabilities:
        names, colours = [*names, "model"], [*colours, SOFT]
    left = MARGIN + LANE_NAMES
    height = LANES if facts.of_model else LANES + 24
    axes = sheet.add_axes(left, LANES_TOP, sheet.width - left - MARGIN, height)
    axes.set_ylim(0.5 - len(names), 0.5)
    end = max(end for _, end in facts.spans.values())
    if is_timed(facts.clips):
        show_time(axes, end)
    else:
        axes.set_xlim(0, end)
        axes.set_xticks([])
    order = [*levels]
    for row, level_of in enumerate(lanes.values()):
        bars = [(*facts.spans[clip], order.index(level)) for clip, level in level_of.items()]
        draw_level_bars(axes, -row, bars, levels)
    for clip in facts.differ:
        start, end = facts.spans[clip]
        axes.fill_between([start, end], -0.15 - len(lanes), 0.15 - len(lanes),
                          color=LIGHT["differs"], linewidth=0)  # fmt: skip
    for clip, value in facts.probabilities.items():
        foot = 0.6 - len(names)
        axes.fill_between(facts.spans[clip], foot, foot + 0.8 * value, color=SOFT, linewidth=0)
    sheet.add_names(axes, names, colours, LANE_NAMES)
    _write_keys(sheet, facts, 1 + 9 / height)


def _write_keys(sheet: _Sheet, facts: FilmFacts, top: float) -> None:
    """Write a heading and a key to the levels' colours above the lanes."""
    from matplotlib.patches import Patch

    noun = facts.head.source.noun.removesuffix("s")
    order = f"{noun.capitalize()} by {noun}" if is_timed(facts.clips) else "Clips in scene order"
    if len(facts.lanes) > MAX_LANES:
        order += f" ({MAX_LANES} of {len(facts.lanes):,} annotators)"
    sheet.write(LANES_TOP - 19, order, 9.5, weight="bold")
    keys = level_keys(facts.head.source.about.levels)
    patches = [Patch(facecolor=colour, label=name) for name, colour in keys.items()]
    sheet.figure.axes[0].legend(
        handles=patches, ncols=len(keys), loc="lower right", bbox_to_anchor=(1.0, top),
        borderaxespad=0, borderpad=0, fontsize=8 * sheet.unit, handlelength=1.0, handleheight=1.0,
    )  # fmt: skip


def _draw_levels(sheet: _Sheet, facts: FilmFacts, shares: FilmShares, width: float) -> None:
    """Draw each annotator's share in this film and, in a row below, the mean over all films."""
    marked, unit = facts.marked, sheet.unit
    rows = [("This film", shares.level, 9.0)]
    if len(marked.films) > 1:
        means = {
            name: fmean(film.level[name] for film in marked.films if name in film.level)
            for name in shares.level
        }
        rows.append((f"Mean of {len(marked.films):,} films", means, 6.0))
    sheet.write(PANELS_TOP - 20, f"Share marked {marked.level}", 9.5, weight="bold")
    axes = sheet.add_axes(MARGIN + LANE_NAMES, PANELS_TOP, width - LANE_NAMES, 72)
    names = marked.annotators
    for row, (_, shares_of, size) in enumerate(rows):
        low, high = min(shares_of.values()), max(shares_of.values())
        axes.plot([low, high], [-row, -row], color=LINE, linewidth=3 * unit, zorder=2)
        for name, share in shares_of.items():
            colour = _colour(names.index(name))
            axes.plot(share, -row, "o", color=colour, markersize=size * unit, zorder=3)
        ends = [(high, "left", 1)]
        if len(shares_of) > 1:
            ends.insert(0, (low, "right", -1))
        for share, side, sign in ends:
            offset: Any = {"xytext": (8 * sign * unit, 0), "textcoords": "offset points"}
            text = format_number(share, percent=True)
            weight = "normal" if row else "bold"
            behind: Any = {"bbox": {"facecolor": paper(), "edgecolor": "none", "pad": 1}}
            axes.annotate(text, (share, -row), ha=side, va="center", color=INK, weight=weight,
                          fontsize=9.5 * unit, **offset, **behind)  # fmt: skip
    highest = max(max(shares_of.values()) for _, shares_of, _ in rows) or 0.1
    axes.set_xlim(-0.3 * highest, 1.3 * highest)
    axes.set_ylim(0.6 - len(rows), 0.6)
    axes.set_xticks([0], ["0%"], color=SOFT)
    axes.axvline(0, color=LINE, linewidth=unit, zorder=0)
    colours = [INK, SOFT][: len(rows)]
    sheet.add_names(axes, [name for name, *_ in rows], colours, LANE_NAMES)


def _draw_concepts(
    sheet: _Sheet, facts: FilmFacts, shares: FilmShares, x: float, width: float
) -> None:
    """Draw the most frequent concepts, with a line at the mean if there are several films."""
    films, unit = facts.marked.films, sheet.unit
    names = sorted(shares.concepts, key=lambda name: -shares.concepts[name])[:MAX_CONCEPTS]
    sheet.write(PANELS_TOP - 20, "Marked most often", 9.5, x=x, weight="bold")
    room, numbers = width - CONCEPT_NAMES, 62.0 if len(films) > 1 else 28.0
    axes = sheet.add_axes(x + CONCEPT_NAMES, PANELS_TOP, room - numbers, 17.0 * len(names))
    columns: dict[str, list[float]] = {"film": [shares.concepts[name] for name in names]}
    if len(films) > 1:
        columns["mean"] = [fmean(film.concepts.get(name, 0.0) for film in films) for name in names]
        for row, mean in enumerate(columns["mean"]):
            axes.plot([mean, mean], [-row - 0.4, 0.4 - row], color=INK, linewidth=2 * unit)
    for row, share in enumerate(columns["film"]):
        axes.barh(-row, share, height=0.62, color=SOFT)
    style: Any = {"ha": "right", "va": "center", "annotation_clip": False}
    style["xycoords"] = axes.get_yaxis_transform()
    for column, (head, values) in enumerate(columns.items(), 1):
        at = 1 + (numbers * column / len(columns)) / (room - numbers)
        look: Any = {"color": SOFT} if head == "mean" else {"weight": "bold"}
        axes.annotate(head, (at, 1), fontsize=8 * unit, **style, **look)
        for row, share in enumerate(values):
            axes.annotate(f"{share:.0%}", (at, -row), fontsize=9 * unit, **style, **look)
    axes.set_xlim(left=0)
    axes.set_xticks([])
    axes.set_ylim(0.5 - len(names), 0.5)
    sheet.add_names(axes, names, [INK] * len(names), CONCEPT_NAMES)
    if len(films) > 1:
        y = PANELS_TOP + 17.0 * len(names) + 5
        sheet.write(y, f"┃ mean of {len(films):,} films", 8, x=x + CONCEPT_NAMES, color=SOFT)


def _in_words(facts: FilmFacts) -> str:
    """Describe the content of the sheet, for readers who cannot see it."""
    parts, shares = [facts.sentence, facts.of_model], facts.shares
    if shares is not None:
        levels = [f"{name} {share:.0%}" for name, share in shares.level.items()]
        concepts = sorted(shares.concepts.items(), key=lambda pair: -pair[1])[:MAX_CONCEPTS]
        parts.append(f"{facts.marked.level}: {', '.join(levels)}.")
        parts += [f"{name}: {share:.0%}." for name, share in concepts]
    return " ".join(filter(None, parts))
