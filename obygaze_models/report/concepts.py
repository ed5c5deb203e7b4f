"""Figures and tables of concepts: annotators' marks, detection by models, and models' errors."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import get_args

import numpy as np

from obygaze_features.common.figures import INK, SERIES, inline_svg
from obygaze_features.common.text import counted, join_some
from obygaze_features.manifests.labels import Sense
from obygaze_features.page.html import Html, html, number
from obygaze_models.experiments.annotators import differing_clips
from obygaze_models.explain.error_factors import DIFFER, factors_of_clips
from obygaze_models.explain.parts import ConceptQuality, concept_quality
from obygaze_models.figures.dots import (
    CLEARNESS,
    Panel,
    level_series,
    panel_plot,
    round_up,
    start_of_axis,
)
from obygaze_models.figures.sheet import Dot, Series
from obygaze_models.report.annotators import Annotators
from obygaze_models.report.headline import Headline
from obygaze_models.report.runs import ReportRun, default_run


@dataclass(frozen=True)
class ConceptTables:
    """A run's table of concepts, and a table of each concept's AUROC in other runs.

    Each of `rows` has a concept, the number of clips with and without the concept, and AUROC and AP
    for each of `models`. Each of `others` has a run and model, and a cell for each concept in
    `names`.
    """

    run: str
    models: tuple[str, ...]
    rows: tuple[tuple[Html, ...], ...]
    names: tuple[str, ...]
    others: tuple[tuple[Html, ...], ...]


def concept_figures(head: Headline, runs: Sequence[ReportRun] = ()) -> list[tuple[Html, Html]]:
    """Return figures and captions on concepts: marks, detection, agreement and errors.

    Concepts are grouped by the sense that perceives them, and sorted by the difference between
    their shares at the highest and the lowest level. The list is empty if no concept is marked. The
    detection figure includes all `runs` that learn concepts.
    """
    source, levels = head.source, head.source.about.levels
    clips = list(source.clips.values())
    concepts = sorted({name for clip in clips for name in clip.concepts})
    by_level = {code: [clip.concepts for clip in clips if clip.level == code] for code in levels}
    marked = [code for code, marks in by_level.items() if any(marks)]
    if not concepts or not marked:
        return []
    shares = {
        name: [sum(name in marks for marks in by_level[code]) / len(by_level[code])
               for code in marked]
        for name in concepts
    }  # fmt: skip
    senses, senses_in_order = source.about.senses, get_args(Sense)
    has_senses = len({senses.get(name, "") for name in concepts}) > 1
    concepts.sort(
        key=lambda name: (
            senses_in_order.index(senses.get(name, "")),
            shares[name][0] - shares[name][-1],
        )
    )
    series = dict(zip(levels, level_series(levels), strict=True))
    panel = Panel(
        [[Dot(share) for share in shares[name]] for name in concepts],
        [series[code] for code in marked],
        "share of the level’s clips",
        limits=(0.0, round_up(max(map(max, shares.values())))),
        percent=True,
    )

    def by_sense(names: Sequence[str]) -> list[list[str]]:
        """Return the concepts' names with their senses, in groups by sense."""
        return [
            [f"{name} ({sense})" if has_senses and sense else name for name in same]
            for sense, same in groupby(names, key=lambda name: senses.get(name, ""))
        ]

    caption = html(
        "The share of clips with each concept, by level{}.{}",
        "" if source.counts_all else ", in the clips used here",
        " The sense that perceives a concept is shown beside it." if has_senses else "",
    )
    figures = [_figure(by_sense(concepts), panel, "Marked in the labels", caption)]
    if head.rows and (detected := _detected_figure(head, runs, concepts, by_sense)):
        figures.append(detected)
    if head.annotators is not None:
        figures.append(_agreed_figure(head.annotators, concepts, by_sense))
    errors = _errors(head, concepts) if head.rows else None
    return [*figures, errors] if errors else figures


def _agreed_figure(
    annotators: Annotators,
    concepts: Sequence[str],
    by_sense: Callable[[Sequence[str]], list[list[str]]],
) -> tuple[Html, Html]:
    """Draw the annotators' agreement on each concept."""
    rare = [name for name in concepts if annotators.few_clips(name)]
    kappa_intervals = annotators.kappa_intervals
    intervals = {name: ends for name, ends in kappa_intervals.items() if name not in rare}
    kappas = annotators.kappas
    dots = [Dot(kappas.get(name), *intervals.get(name, (None, None))) for name in concepts]
    limits = start_of_axis(dots, 0.0), 1.0
    series = [Series("kappa", INK)]
    panel = Panel([[dot] for dot in dots], series, "Cohen’s kappa", limits, 0.0)
    caption = html(
        "The agreement of annotators on each concept. 0 is chance. Concepts without a dot were "
        "marked by only one annotator.{}{}",
        " Lines show 95% intervals, by the jackknife over films." if intervals else "",
        f" Marked in too few films or clips to judge: {join_some(rare)}." if rare else "",
    )
    return _figure(by_sense(concepts), panel, "Agreed on by annotators", caption)


def _detected_figure(
    head: Headline,
    runs: Sequence[ReportRun],
    concepts: Sequence[str],
    by_sense: Callable[[Sequence[str]], list[list[str]]],
) -> tuple[Html, Html] | None:
    """Draw the AUROC of each concept for each model; return None if no model detects concepts."""
    measured = _quality(head.run)
    models = _detected_by(measured, head.run, runs)
    if not models:
        return None
    drawn = dict([*models.items()][: len(SERIES)])
    names = [name for name in concepts if any(name in dots for dots in drawn.values())]
    missing = [name for name in concepts if not any(name in dots for dots in models.values())]
    panel = Panel(
        [[dots.get(name, Dot(None)) for dots in drawn.values()] for name in names],
        [Series(label, colour) for label, colour in zip(drawn, SERIES, strict=False)],
        "AUROC",
        limits=(start_of_axis((dot for dots in drawn.values() for dot in dots.values()), 0.5), 1.0),
        line=0.5,
    )
    notes = []
    if missing and measured:
        notes.append(f" No model measures {join_some(missing)}; “Methods” says why.")
    elif missing:
        notes.append(f" No model of this page was trained to detect {join_some(missing)}.")
    if left_out := len(models) - len(drawn):
        notes.append(f" “Methods” has {counted(left_out, 'more model')}.")
    kinds = [_measured_how(head)] if measured else []
    if len(models) > len(kinds):
        kinds.append(_learned_how(runs))
    text = (
        "How often each model rates a test clip with the concept above one without it.{} The "
        "vertical line is chance.{}"
    )
    caption = html(text, "".join(kinds), "".join(notes))
    return _figure(by_sense(names), panel, "Detected by a model", caption)


def _measured_how(head: Headline) -> str:
    """Describe the averages and clips behind a bottleneck's AUROC for a concept."""
    clips = "clips with the concept against all others"
    if head.source.about.is_obygaze:
        clips = "Hard Negative and Sure clips with the concept against all others except Not Sure"
    return (
        " For bottlenecks, which measure concepts before they decide, dots are means over fits "
        f"and lines are plus and minus one standard deviation ({clips})."
    )


def _learned_how(runs: Sequence[ReportRun]) -> str:
    """Describe the averages behind the AUROC of single-concept models."""
    learned = [run for run in runs if run.kind == "concepts"]
    nouns = " or ".join(dict.fromkeys(f"{run.group_noun}s" for run in learned))
    pooled = ""
    if any(scores.pooled for run in learned for scores in run.record.model_scores):
        pooled = ", or scores of all test clips together if fewer than two of these can be scored"
    return f" For single-concept models, dots are means over {nouns}, with a 95% interval{pooled}."


def _figure(
    groups: Sequence[Sequence[str]], panel: Panel, title: str, caption: Html
) -> tuple[Html, Html]:
    figure = panel_plot(groups, panel, title=title, description=f"{panel.axis}, a row per concept")
    return Html(inline_svg(figure)), caption


def _errors(head: Headline, concepts: Sequence[str]) -> tuple[Html, Html] | None:
    """Draw the factors of the headline model's errors; None if nothing can be compared."""
    row = head.row
    if row.run.kind == "concepts":
        return None
    predictions = row.results.predictions
    is_wrong = (predictions["called"] != predictions["label"]).to_numpy()
    wrong = int(is_wrong.sum())
    if not 0 < wrong < len(predictions):
        return None
    clips = [row.run.clips[clip] for clip in predictions["id"]]
    clips = [replace(clip, film=clip.group) for clip in clips]  # the unit of the intervals
    levels = row.run.record.header.manifest.levels
    differing = differing_clips(row.run.run, row.entry.test)
    (all_films,) = factors_of_clips(
        clips,
        is_wrong,
        list(levels),
        by_film=False,
        cross_validated=row.entry.cross_validated,
        differing=differing,
    )
    dots = {f.name: Dot(f.coefficient, f.low, f.high) for f in all_films.factors}
    tested = [code for code in levels if code in dots]
    has_intervals = any(dot.low is not None for dot in dots.values())  # not for a single film
    differ = [DIFFER] if DIFFER in dots else []
    rows = [[dots.get(name, Dot(None))] for name in [*concepts, *tested, *differ]]
    series = [Series("log-odds", SERIES[0])]
    if has_intervals:  # an interval on one side of 0 fills the dot
        rows = [[Dot(None), dot] if dot.is_clear else [dot, Dot(None)] for [dot] in rows]
        series = [*CLEARNESS]
    ends = [abs(end) for dot in dots.values() for end in (dot.value, dot.low, dot.high) if end]
    reach = max(ends, default=1.0)
    panel = Panel(
        rows,
        series,
        "more often right ← 0 → more often wrong",
        limits=(-math.ceil(reach), math.ceil(reach)),
        line=0.0,
    )
    at = np.array([clip.level for clip in clips])
    shares = [f"{is_wrong[at == code].mean():.0%} of {levels[code]}" for code in tested]
    caption = html(
        "{} is wrong on {} of {} test clips ({}). A dot to the right means that it is wrong more "
        "often on the row’s clips than on clips that are the same in all other rows{}. At 1, the "
        "odds of an error are multiplied by 2.7; at −1, they are divided by 2.7.",
        row.subject,
        number(wrong, form=","),
        number(len(clips), form=","),
        join_some(shares, len(shares)),
        f" (95% interval by the jackknife over {row.run.group_noun}s)" if has_intervals else "",
    )
    names = [*(f"{levels[code]} clips" for code in tested), *differ]
    return _figure([concepts, names], panel, f"When {row.who} is wrong", caption)


def _quality(run: ReportRun) -> dict[str, dict[str, ConceptQuality]]:
    """Return the quality of each concept, for each bottleneck of a run."""
    several = len(run.record.header.learned) > 1
    by_model: dict[str, dict[str, ConceptQuality]] = {}
    reasons, is_obygaze = run.run.reasons, run.about.is_obygaze
    for entry in concept_quality(reasons, run.clips, is_obygaze=is_obygaze):
        title = entry.model
        name = f"{title}, {entry.task}" if several else title
        by_model.setdefault(name, {})[entry.concept] = entry
    return by_model


def _detected_by(
    measured: Mapping[str, Mapping[str, ConceptQuality]], run: ReportRun, runs: Sequence[ReportRun]
) -> dict[str, dict[str, Dot]]:
    """Return the AUROC of each concept for each model.

    For the first bottleneck of `run`, lines reach one standard deviation over fits to each side.
    For single-concept models, they are 95% intervals.
    """
    detected: dict[str, dict[str, Dot]] = {}
    for model, by_concept in [*measured.items()][:1]:
        detected[f"measured by {model}"] = {
            name: Dot(entry.auroc, *_deviation(entry)) for name, entry in by_concept.items()
        }
    labels = run.about.label_key
    same = [own for own in runs if own.kind == "concepts" and own.about.label_key == labels]
    names = Counter(detector.reads for detector in same)
    models = {scores.model for detector in same for scores in detector.record.model_scores}
    for detector in same:
        title_of_run = detector.reads if names[detector.reads] == 1 else detector.name
        for scores in detector.record.model_scores:
            ends = scores.interval.get("auroc") or (None, None)
            title = scores.model
            alone = len(models) == 1 and title == scores.model
            dots = detected.setdefault(title_of_run if alone else f"{title}, {title_of_run}", {})
            dots[detector.record.task(scores.test).concept] = Dot(scores.mean["auroc"], *ends)
    return detected


def _deviation(entry: ConceptQuality) -> tuple[float | None, float | None]:
    if entry.auroc is None or entry.auroc_std is None or entry.runs < 2:
        return None, None
    return max(0.0, entry.auroc - entry.auroc_std), min(1.0, entry.auroc + entry.auroc_std)


def concept_tables(runs: Sequence[ReportRun]) -> ConceptTables | None:
    """Return the tables of concepts, or None if no model of the runs measures concepts."""
    by_run = {run.number: quality for run in runs if (quality := _quality(run))}
    if not by_run:
        return None
    main = default_run(runs)
    if main.number not in by_run:
        main = next(run for run in runs if run.number in by_run)
    models = by_run[main.number]
    rows = []
    for name in dict.fromkeys(concept for quality in models.values() for concept in quality):
        first = next(quality[name] for quality in models.values() if name in quality)
        clips = (first.positives, first.clips - first.positives)
        cells = [
            _cell(quality.get(name), metric)
            for quality in models.values()
            for metric in ("auroc", "average_precision")
        ]
        rows.append((html("{}", name), *(number(count, form=",") for count in clips), *cells))
    names = dict.fromkeys(c for own in by_run.values() for quality in own.values() for c in quality)
    others = [
        (
            html("{}<small>{}, {}</small>", run.name, model, run.feature),
            *(_cell(quality.get(name), "auroc") for name in names),
        )
        for run in runs
        if run is not main
        for model, quality in by_run.get(run.number, {}).items()
    ]
    return ConceptTables(main.name, tuple(models), tuple(rows), tuple(names), tuple(others))


def _cell(entry: ConceptQuality | None, metric: str) -> Html:
    """Format a mean and its standard deviation over the fits."""
    if entry is None or (mean := getattr(entry, metric)) is None:
        return number(None)
    return html("{} <small>({})</small>", number(mean), number(getattr(entry, f"{metric}_std")))
