"""Exports of predictions, of a model or held out in a run: a table, and an ELAN document per film.

Held-out predictions of a clip come from fits that were not trained on it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from obygaze_features.annotations.grid import number_stretches
from obygaze_features.common.printer import align
from obygaze_features.common.tables import format_rows
from obygaze_features.common.text import (
    counted,
    format_signed,
    format_time,
    group_by,
    unknown_name,
)
from obygaze_features.errors import ExperimentError
from obygaze_features.items.films import film_titles
from obygaze_features.manifests import Items
from obygaze_features.manifests.labels import format_concepts
from obygaze_models.data.targets import PROBABILITY, Target
from obygaze_models.data.tasks import Class
from obygaze_models.data.warnings import RunWarning
from obygaze_models.experiments.annotators import LABEL_OF
from obygaze_models.experiments.elan_documents import Row, annotate, elan_documents
from obygaze_models.experiments.predictions import average_over_fits, probabilities_of, split_by
from obygaze_models.experiments.run_folder import Clip, Run, clips_by_id
from obygaze_models.explain.parts import mean_parts, name_log_odds
from obygaze_models.saved.inference import Predictions
from obygaze_models.scoring.values import NUMBER

HELD_OUT = "held-out prediction"
"""The ELAN linguistic type of a run's tiers."""
PARTS = "parts in the "
"""The prefix of the column name for the concepts' contributions to the log-odds."""
MAX_PARTS_SHOWN = 3
MAX_ROWS_SHOWN = 20


@dataclass(frozen=True)
class Outputs:
    """The files to write predictions to.

    Parameters
    ----------
    table
        A CSV file for all predictions.
    elan
        A folder for ELAN documents.
    """

    table: Path | None = None
    elan: Path | None = None

    @property
    def max_rows(self) -> int:
        """The maximum number of rows to print, which is 0 if there are files."""
        return 0 if self.table or self.elan else MAX_ROWS_SHOWN


def model_rows(predictions: Predictions, items: Items) -> list[Row]:
    """Return a model's predictions as rows, in the order of the items."""
    tier = f"{predictions.about.description.estimator}: {predictions.about.description.task}"
    titles = film_titles(items)
    task = predictions.about.description.learns
    words = []
    if task and not task.target.is_numeric:
        words = [kind.words for kind in task.classes]
    codes = predictions.probabilities.argmax(axis=1).tolist()
    names = [f"probability of {name}" for name in predictions.classes]
    if predictions.about.is_numeric:
        names = predictions.columns
    rows = []
    for row in np.argsort([items.row(clip) for clip in predictions.ids]).tolist():
        item = items[items.row(predictions.ids[row])]
        predicted, seen = predictions.predicted[row], predictions.seen[row]
        shares = dict(zip(names, predictions.probabilities[row].tolist(), strict=True))
        cells = {
            "clip": item.id,
            "film": item.film,
            "file": item.media,
            **_seconds(item.start, item.end),
            "prediction": predicted,
            **shares,
            "seen in training": seen,
        }
        # With two classes, the probability of the second is enough.
        listed = names[1:] if len(names) == 2 else names
        details = {name: f"{shares[name]:.3f}" for name in listed}
        if seen != "no":
            details["seen in training"] = seen
        value = words[codes[row]] if words else predicted
        note = annotate(item.start, item.end, value, {"clip": item.id, **details})
        rows.append(Row(item.film, item.media, cells, tier, note, titles.get(item.film, "")))
    return rows


def held_out(
    run: Run, *, model: str | None = None, ids: Collection[str] | None = None
) -> list[Row]:
    """Return a run's held-out predictions, sorted by model, test, film and time.

    The cells include each annotator's class. The probability is averaged over the fits. With two
    classes, it is the probability of the second class; with more, of the predicted class. The cells
    also have the concepts' contributions, for models whose contributions sum to the log-odds.
    """
    if model is not None and model not in run.record.models:
        raise ExperimentError(f"{run.folder}: {unknown_name('model', model, run.record.models)}")
    clips = clips_by_id(run.clips())
    if unknown := [clip for clip in ids or () if clip not in clips]:
        raise ExperimentError(f"{run.folder} has no clip {unknown[0]!r}")
    predictions = run.predictions()
    if model is not None:
        predictions = predictions[predictions["model"] == model]
    votes, levels = run.annotations(), run.record.manifest.levels
    annotators = dict.fromkeys(who for c in run.record.annotators.values() for who in c.annotators)
    rows = []
    for (name, test), fits in split_by(predictions, "model", "test").items():
        mean = average_over_fits(fits)
        means_of, tested = probabilities_of(mean), mean["id"].tolist()
        counts = mean["fits"].tolist()
        classes, titles = run.record.task(test).classes, run.record.task(test).titles(levels)
        trained, called = run.record.trained_on(test), mean["called"].tolist()
        model_title = run.record.title_of(name)
        explained = run.reasons()
        own = explained[(explained["model"] == name) & (explained["task"] == trained)]
        parts = mean_parts(own, tested).listed()
        target = run.record.task(test).target
        chosen = [row for row, clip in enumerate(tested) if ids is None or clip in ids]
        for row in sorted(chosen, key=lambda row: _order(clips[tested[row]])):
            clip, code = clips[tested[row]], called[row]
            if target.key == NUMBER:
                clip = replace(clip, level=f"{mean['label'][row]:.6g}")
            text = _describe_prediction(target, classes, means_of[row], code)
            reasons = tuple(f"{concept} {format_signed(amount)}" for concept, amount in parts[row])
            odds = name_log_odds([kind.title for kind in classes])
            named = {f"{PARTS}{odds}": format_concepts(reasons)}
            named = named if reasons else {}
            cells = {
                **_clip_cells(clip, "merged" if annotators else "label"),
                **{
                    f"{LABEL_OF}{who}": titles[labels[who]] if who in labels else ""
                    for who in annotators
                    for labels in [votes.get(test, {}).get(clip.id, {})]
                },
                "model": model_title,
                "test": test,
                "prediction": text.title,
                **text.cells,
                "fits": str(counts[row]),
                **named,
            }
            details = {"clip": clip.id, **text.details, **named}
            note = annotate(clip.start, clip.end, text.words, details)
            tier = f"{model_title}: {test}"
            source = clip.film, clip.media
            rows.append(Row(*source, cells, tier, note, clip.title, reasons))
    return rows


class _PredictionText(NamedTuple):
    """A predicted class or number as text, with its cells for tables and its details for ELAN."""

    title: str
    words: str
    cells: dict[str, str]
    details: dict[str, str]


def _describe_prediction(
    target: Target, classes: Sequence[Class], value: Any, called: Any
) -> _PredictionText:
    """Describe a prediction: probabilities, or a number."""
    if target.is_numeric:
        [column] = target.columns([])
        cells, details = {column: f"{value:.6f}"}, {column: f"{value:.3f}"}
        return _PredictionText(f"{value:.4g}", f"{value:.4g}", cells, details)
    kind = classes[called]
    is_two = np.ndim(value) == 0
    share = value if is_two else value[called]
    title = (classes[1] if is_two else kind).title
    cells = {PROBABILITY: f"{share:.6f}", f"{PROBABILITY} of": title}
    details = {f"{PROBABILITY} of {title}": f"{share:.3f}"}
    return _PredictionText(kind.title, kind.words, cells, details)


def export_files(
    rows: Sequence[Row],
    kind: str,
    outputs: Outputs,
    *,
    warnings: Sequence[RunWarning],
    levels: Mapping[str, str],
    concepts: Iterable[str],
    run: Run | None = None,
) -> tuple[dict[Path, str], list[str]]:
    """Return the requested files (text by path), and a line about each kind of file.

    Parameters
    ----------
    rows
        The rows to write.
    outputs
        The output paths.
    kind, warnings
        See `elan_documents`.
    levels, concepts
        The entries of ELAN's pick-lists: the level names by code, and the concepts.
    run
        The run, if `rows` are all its predictions. Its clips without predictions are then marked
        in ELAN's tiers.
    """
    elan = outputs.elan
    files: dict[Path, str] = {}
    lines: list[str] = []
    if outputs.table:
        files[outputs.table] = format_rows(row.cells for row in rows)
        lines.append(f"one row per clip, model and test -> {outputs.table}")
    if elan:
        if run:
            rows = [*rows, *_without_prediction(run, rows)]
        lists = {"levels": levels.values(), "concepts": concepts}
        vocabularies = {name: dict.fromkeys(texts, "") for name, texts in lists.items()}
        documents = elan_documents(rows, kind, warnings, vocabularies)
        files |= {elan / name: text for name, text in documents.items()}
        lines.append(f"{counted(len(documents), 'file')} for ELAN -> {elan}")
        if untimed := len({row.cells["clip"] for row in rows if row.note is None}):
            lines.append(
                f"{counted(untimed, 'clip')} left out for ELAN: start and end in the film are "
                "unknown"
            )
    return files, lines


def _without_prediction(run: Run, rows: Sequence[Row]) -> Iterator[Row]:
    """Yield ELAN rows for time spans without a prediction, with the annotated level."""
    names = run.record.manifest.levels
    by_film = group_by(clips_by_id(run.clips()).values(), lambda clip: clip.film)
    for (tier, film), own in group_by(rows, lambda row: (row.tier, row.film)).items():
        ids = {row.cells["clip"] for row in own}
        clips = sorted(by_film[film], key=_order)
        stretches = number_stretches([c.start for c in clips], [c.end for c in clips])
        spans = [
            (c.media, c.title, None if c.id in ids else names.get(c.level, c.level), stretch)
            for c, stretch in zip(clips, stretches, strict=True)
        ]
        for span, members in groupby(zip(spans, clips, strict=True), itemgetter(0)):
            (media, title, level, _), same = span, [clip for _, clip in members]
            end = max((clip.end for clip in same if clip.end is not None), default=None)
            note = annotate(same[0].start, end, f"no prediction: {level}", {})
            if level is not None and note is not None:
                yield Row(film, media, {}, tier, note, title)


def describe_held_out(rows: Sequence[Row], limit: int) -> Iterator[str]:
    """Yield lines of text with the numbers of clips, films and models, and the first rows."""
    clips = counted(len({row.cells["clip"] for row in rows}), "clip")
    films = counted(len({row.film for row in rows}), "film")
    models = counted(len({row.cells["model"] for row in rows}), "model")
    yield f"{clips} of {films}; {models}; each clip is predicted by the fits that tested it"
    if limit:
        names = [*rows[0].cells] if rows else ["merged", "prediction", PROBABILITY]
        labels = "merged" if "merged" in names else "label"
        columns = ["title", "from", labels, "model", "prediction"]
        columns.append(names[names.index("prediction") + 1])
        named = {name: None for row in rows[:limit] for name in row.cells if name.startswith(PARTS)}
        table = []
        for row in rows[:limit]:
            parts = ", ".join(row.reasons[:MAX_PARTS_SHOWN])
            largest = [parts if name in row.cells else "" for name in named]
            table.append([row.cells[name] for name in columns] + largest)
        columns += named
        yield align(columns, table, left=len(columns))
        if (more := len(rows) - limit) > 0:
            yield f"and {counted(more, 'more row')}; -o writes all to a file"


def _seconds(start: float | None, end: float | None) -> dict[str, str]:
    times = {"start": start, "end": end}
    return {name: "" if time is None else f"{time:.3f}" for name, time in times.items()}


def _clip_cells(clip: Clip, labels: str) -> dict[str, str]:
    """Return the cells with a clip's location and annotations; its level is named `labels`."""
    return {
        "title": clip.title,
        "film": clip.film,
        "clip": clip.id,
        "file": clip.media,
        "from": "" if clip.start is None else format_time(clip.start),
        "to": "" if clip.end is None else format_time(clip.end),
        **_seconds(clip.start, clip.end),
        labels: clip.level,
        "concepts": format_concepts(clip.concepts),
    }


def _order(clip: Clip) -> tuple[Any, ...]:
    start = float("inf") if clip.start is None else clip.start
    return clip.title, clip.film, start, clip.number or 0, clip.id
