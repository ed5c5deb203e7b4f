"""The films on one screen: a strip each, sorted by how much of it annotators were sure of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from obygaze_features.common.figures import level_colour_names
from obygaze_features.page.html import Html, html, number
from obygaze_models.experiments.published import published_film
from obygaze_models.experiments.run_folder import Clip
from obygaze_models.report.film_timelines import by_film
from obygaze_models.report.findings import Headline
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
    films = by_film(run.clips[clip.id] for clip in ordered if clip.id in run.clips and clip.film)
    if not films or run.kind == "concepts":
        return None
    means, names = row.results.predictions, run.record.manifest.levels
    colours = level_colour_names(list(names))
    counted = list(run.record.experiment["positives"]) or [list(names)[-1]]
    metric = "f1" if run.kind == "levels" else "f1_weighted"
    train = run.record.trained_on(row.entry.test)
    annotators = head.annotators
    label_sets = {"annotators": {clip.id: clip.level for clip in run.clips.values()}}
    if annotators is not None:
        label_sets = {name: dict(levels) for name, levels in annotators.levels.items()}
    colour_of = dict(zip(names, colours, strict=True))
    called = means.called == len(row.results.classes) - 1
    lanes = [
        *(
            {clip: colour_of.get(level, "") for clip, level in levels.items()}
            for levels in label_sets.values()
        ),
        {clip: "model" for clip, is_called in zip(means.ids, called, strict=True) if is_called},
        {clip: "differs" for clip, wrong in zip(means.ids, means.wrong, strict=True) if wrong},
    ]
    timed = all(None not in (clip.start, clip.end) for same in films.values() for clip in same)
    spans = {
        film: [
            (clip.start or 0.0, clip.end or 0.0) if timed else (float(place), place + 1.0)
            for place, clip in enumerate(clips)
        ]
        for film, clips in films.items()
    }
    scale = WIDTH / max(end for same in spans.values() for _, end in same)
    shares = {
        film: sum(clip.level in counted for clip in clips) / len(clips)
        for film, clips in films.items()
    }
    strips = []
    for film in sorted(films, key=lambda film: -shares[film]):
        ids = [clip.id for clip in films[film]]
        tested = np.isin(means.ids, ids)
        # By mean probabilities, as drawn; where no clip is positive, nothing could be found.
        labels = means.labels[tested]
        scores = score(labels, means.probabilities[tested]) if labels.any() else {}
        paper = published_film(run.record, row.model, train, row.entry.test, film)
        strips.append(
            FilmStrip(
                film,
                films[film][0].title or film,
                number(shares[film], form="%"),
                html("{} of {}", number(tested.sum(), form=","), number(len(ids), form=",")),
                _draw_lanes(dict(zip(ids, spans[film], strict=True)), lanes, scale),
                None if annotators is None else number(annotators.equal_levels(ids), form="%"),
                number(scores.get(metric)),
                number(paper.mean) if paper else None,
            )
        )
    return FilmStrips(
        tuple(strips),
        (*label_sets, row.model),
        tuple(zip(colours, names.values(), strict=True)),
        " or ".join(names.get(code, code) for code in counted),
        row.model,
        METRICS[metric].title,
    )


def _draw_lanes(
    spans: Mapping[str, tuple[float, float]], lanes: Sequence[Mapping[str, str]], scale: float
) -> Html:
    """The clips of each lane in their colours; those of one colour that touch are one shape."""
    paths = []
    for place, lane in enumerate(lanes):
        shapes: dict[str, list[tuple[float, float]]] = {}
        for clip, (start, end) in spans.items():
            if colour := lane.get(clip):
                boxes = shapes.setdefault(colour, [])
                touches = bool(boxes) and start <= boxes[-1][1] + 0.05
                boxes.append((boxes.pop()[0] if touches else start, end))
        y = place * (LANE + GAP)
        for colour, boxes in shapes.items():
            shape = "".join(
                f"M{start * scale:.0f} {y}H{max(end * scale, start * scale + 1):.0f}v{LANE}"
                f"H{start * scale:.0f}z"
                for start, end in boxes
            )
            paths.append(html('<path class="{}" d="{}"/>', colour, shape))
    height = len(lanes) * (LANE + GAP)
    end = max(end for _, end in spans.values()) * scale
    return html(
        '<svg viewBox="0 0 {} {}" preserveAspectRatio="none" style="height: {}px" '
        'aria-hidden="true"><path class="tested" d="M0 0H{}V{}H0z"/>{}</svg>',
        WIDTH, height, height, f"{end:.0f}", height - GAP, Html("".join(paths)),
    )  # fmt: skip
