"""The films on one screen: a strip each, sorted by how much of it annotators were sure of."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from obygaze_features.common.figures import level_colour_names
from obygaze_models.experiments.published import published_film
from obygaze_models.experiments.run_folder import Clip
from obygaze_models.report.film_timelines import film_of
from obygaze_models.report.findings import Headline
from obygaze_models.report.html import Html, html, number
from obygaze_models.report.runs import ModelResults
from obygaze_models.scoring.metrics import METRICS, score

WIDTH, LANE, GAP = 1000, 6, 2


@dataclass(frozen=True)
class FilmStrip:
    """A film: its link into the explorer, title, lanes as SVG, and numbers."""

    film: str
    title: str
    share: Html
    tested: Html
    lanes: Html
    agreement: Html | None
    score: Html
    paper: Html | None


@dataclass(frozen=True)
class FilmStrips:
    """All films, the names of their lanes, what is counted, and whose score by which metric."""

    films: tuple[FilmStrip, ...]
    lanes: tuple[str, ...]
    levels: tuple[tuple[str, str], ...]
    counted: str
    model: str
    metric: str
    agreement: bool
    paper: bool


def film_strips(head: Headline, ordered: Sequence[Clip]) -> FilmStrips | None:
    """The strips of the explorer's first run; None where no films are named.

    Parameters
    ----------
    head
        The scores of the first screen; its best model of that run has a lane.
    ordered
        All clips, film by film, in scene order.
    """
    row, run = head.best, head.best.run
    experiment = run.record.experiment
    films: dict[str, list[Clip]] = {}
    for clip in ordered:
        if clip.id in run.clips and clip.film:
            films.setdefault(film_of(clip), []).append(run.clips[clip.id])
    if not films or experiment["concepts"]:
        return None
    results = run.mean_predictions(row.model, row.entry.test)
    names = run.record.manifest.levels
    counted = list(experiment["positives"]) or [list(names)[-1]]
    metric = "f1" if run.kind == "levels" else "f1_weighted"
    annotators = head.annotators
    label_sets: Mapping[str, Mapping[str, str]] = (
        annotators.levels
        if annotators is not None
        else {"annotators": {clip.id: clip.level for clip in run.clips.values()}}
    )
    timed = all(None not in (clip.start, clip.end) for same in films.values() for clip in same)
    spans = {film: _spans(clips, timed=timed) for film, clips in films.items()}
    longest = max(end for same in spans.values() for _, end in same)
    strips = []
    for film, clips in films.items():
        ids = [clip.id for clip in clips]
        share = sum(clip.level in counted for clip in clips) / len(clips)
        scores = _scores(results, set(ids))
        tested = len(set(ids) & set(results.predictions.ids))
        paper = published_film(
            run.record, row.model, run.record.trained_on(row.entry.test), row.entry.test, film
        )
        equal = None if annotators is None else annotators.equal_levels(ids)
        strip = FilmStrip(
            film,
            clips[0].title or film,
            number(share, form="%"),
            html("{} of {}", number(tested, form=","), number(len(ids), form=",")),
            _lanes(clips, spans[film], label_sets, names, results, WIDTH / longest),
            None if annotators is None else number(equal, form="%"),
            number(scores.get(metric)),
            number(paper.mean) if paper else None,
        )
        strips.append((share, strip))
    strips.sort(key=lambda pair: -pair[0])
    colours = level_colour_names(list(names))
    return FilmStrips(
        tuple(strip for _, strip in strips),
        (*label_sets, row.model),
        tuple(zip(colours, names.values(), strict=True)),
        " or ".join(names.get(code, code) for code in counted),
        row.model,
        METRICS[metric].title,
        annotators is not None,
        any(strip.paper for _, strip in strips),
    )


def _scores(results: ModelResults, ids: Collection[str]) -> Mapping[str, float | None]:
    """The scores of a film's test clips by their mean probabilities, as the explorer draws them."""
    means = results.predictions
    rows = np.array([clip in ids for clip in means.ids], dtype=bool)
    # Where no clip is positive, nothing could have been found.
    if not means.labels[rows].any():
        return {}
    return score(means.labels[rows], means.probabilities[rows])


def _spans(clips: Sequence[Clip], *, timed: bool) -> list[tuple[float, float]]:
    """Each clip's start and end in seconds; where any has none, its place among its film's."""
    if timed:
        return [(clip.start or 0.0, clip.end or 0.0) for clip in clips]
    return [(float(place), float(place + 1)) for place in range(len(clips))]


def _lanes(
    clips: Sequence[Clip],
    spans: Sequence[tuple[float, float]],
    label_sets: Mapping[str, Mapping[str, str]],
    names: Mapping[str, str],
    results: ModelResults,
    scale: float,
) -> Html:
    """A lane an annotator, one of the clips that the model names, one where it differs."""
    last = len(results.classes) - 1
    means = results.predictions
    called = dict(zip(means.ids, (means.called == last).tolist(), strict=True))
    wrong = dict(zip(means.ids, means.wrong.tolist(), strict=True))
    rows: list[list[str]] = []
    colours = dict(zip(names, level_colour_names(list(names)), strict=True))
    for labels in label_sets.values():
        rows.append([colours.get(labels.get(clip.id, ""), "") for clip in clips])
    rows.append(["model" if called.get(clip.id) else "" for clip in clips])
    rows.append(["differs" if wrong.get(clip.id) else "" for clip in clips])
    paths = []
    for lane, row in enumerate(rows):
        y = lane * (LANE + GAP)
        for colour in filter(None, dict.fromkeys(row)):
            boxes = _joined_spans(spans, [name == colour for name in row])
            shape = "".join(
                f"M{start * scale:.0f} {y}H{max(end * scale, start * scale + 1):.0f}v{LANE}"
                f"H{start * scale:.0f}z"
                for start, end in boxes
            )
            paths.append(html('<path class="{}" d="{}"/>', colour, shape))
    height = len(rows) * (LANE + GAP)
    end = max(end for _, end in spans) * scale
    return html(
        '<svg viewBox="0 0 {} {}" preserveAspectRatio="none" style="height: {}px" '
        'aria-hidden="true"><path class="tested" d="M0 0H{}V{}H0z"/>{}</svg>',
        WIDTH, height, height, f"{end:.0f}", height - GAP, Html("".join(paths)),
    )  # fmt: skip


def _joined_spans(
    spans: Sequence[tuple[float, float]], chosen: Sequence[bool]
) -> list[tuple[float, float]]:
    """The chosen spans; those that touch are one."""
    boxes: list[tuple[float, float]] = []
    for (start, end), is_chosen in zip(spans, chosen, strict=True):
        if not is_chosen:
            continue
        if boxes and start <= boxes[-1][1] + 0.05:
            boxes[-1] = boxes[-1][0], end
        else:
            boxes.append((start, end))
    return boxes
