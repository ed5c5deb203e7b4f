"""A run's held-out predictions clip by clip, for spreadsheets and beside the annotators in ELAN.

Each clip is predicted by the fits that tested it, none of which was trained on it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from obygaze_features.common.elan import Annotation, Document, Tier, add_tiers, milliseconds, to_eaf
from obygaze_features.common.tables import align, format_rows
from obygaze_features.common.text import (
    counted,
    format_signed,
    format_time,
    join_some,
    unknown_name,
)
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests.items import media_stem, safe_id
from obygaze_features.manifests.statistics import without_year
from obygaze_models.experiments.exports import NO_FILM, tables_by_film, unique_names
from obygaze_models.experiments.predictions import FitPredictions, average_over_fits
from obygaze_models.experiments.run_folder import Clip, Run
from obygaze_models.explain.parts import average_parts, name_log_odds

MAX_PARTS_SHOWN = 3
KIND = "held-out prediction"


@dataclass(frozen=True)
class HeldOut:
    """What the fits of a model that tested a clip predict, on the average.

    `probability` is that of `target`, the second of two classes, else the predicted
    one. `parts` are those of the concepts in the log-odds of `target`, whichever class is
    predicted, the largest first; none where they do not add up. `parts_of` names the log-odds.
    """

    clip: Clip
    model: str
    test: str
    predicted: str
    target: str
    probability: float
    fits: int
    parts: tuple[tuple[str, float], ...]
    parts_of: str

    def row(self) -> dict[str, str]:
        """The row of a table."""
        clip = self.clip
        return {
            "title": clip.title,
            "film": clip.film,
            "clip": clip.id,
            "file": clip.media,
            "from": "" if clip.start is None else format_time(clip.start),
            "to": "" if clip.end is None else format_time(clip.end),
            "start": "" if clip.start is None else f"{clip.start:.3f}",
            "end": "" if clip.end is None else f"{clip.end:.3f}",
            "annotators": clip.level,
            "concepts": ", ".join(clip.concepts),
            "model": self.model,
            "test": self.test,
            "prediction": self.predicted,
            "probability": f"{self.probability:.6f}",
            "probability of": self.target,
            "fits": str(self.fits),
        } | self.describe_parts()

    def describe_parts(self, limit: int | None = None) -> dict[str, str]:
        """Such as "parts in the log-odds of S": "Body +1.20, Look -0.31"; empty without parts."""
        parts = [f"{name} {format_signed(amount)}" for name, amount in self.parts[:limit]]
        return {f"parts in the {self.parts_of}": ", ".join(parts)} if parts else {}


def held_out(
    run: Run, *, model: str | None = None, ids: Collection[str] | None = None
) -> list[HeldOut]:
    """The held-out predictions of a run, by model and test, then film by film in time."""
    if model is not None and model not in run.record.models:
        raise ExperimentError(f"{run.folder}: {unknown_name('model', model, run.record.models)}")
    clips = run.clips()
    if unknown := [clip for clip in ids or () if clip not in clips]:
        raise ExperimentError(f"{run.folder} has no clip {unknown[0]!r}")
    fits_of: dict[tuple[str, str], list[FitPredictions]] = {}
    for fit in run.predictions():
        if model in (None, fit.model):
            fits_of.setdefault((fit.model, fit.test), []).append(fit)
    predictions = []
    for (name, test), fits in fits_of.items():
        mean = average_over_fits(fits)
        classes = list(run.record.tests[test].classes)
        task, name_of_sum = run.record.trained_on(test), name_log_odds(classes)
        explained = [e for e in run.explanations() if (e.model, e.task) == (name, task)]
        parts = average_parts(explained, classes, mean.ids)
        rows, called = [], mean.called
        for row, identifier in enumerate(mean.ids):
            if ids is not None and identifier not in ids:
                continue
            code = int(called[row])
            two = mean.probabilities.ndim == 1
            probability = mean.probabilities[row] if two else mean.probabilities[row, code]
            target = classes[1] if two else classes[code]
            rows.append(
                HeldOut(
                    clips[identifier], name, test, classes[code], target, float(probability),
                    int(mean.fits[row]), parts.of_clip(row), name_of_sum,
                )
            )  # fmt: skip
        predictions += sorted(rows, key=lambda row: _order(row.clip))
    return predictions


def held_out_table(predictions: Iterable[HeldOut]) -> str:
    """A row for each clip and model."""
    return format_rows(prediction.row() for prediction in predictions)


def held_out_tables(predictions: Sequence[HeldOut]) -> dict[str, str]:
    """A table a film for spreadsheets: file name -> text."""
    return tables_by_film((row.clip.film, row.row()) for row in predictions)


def held_out_elan(
    predictions: Sequence[HeldOut], annotations: Path | None = None
) -> tuple[dict[str, str], list[str]]:
    """An ELAN document a film: file name -> text; and the films without a file of annotators.

    Parameters
    ----------
    predictions
        Those of clips without a start and an end are left out.
    annotations
        A folder with the annotators' ``.eaf`` files, named by film, title or media file; perhaps
        a folder for each annotator. Each is copied, and gets the models' tiers.
    """
    films: dict[tuple[str, str], dict[tuple[str, str], list[Annotation]]] = {}
    titles: dict[str, str] = {}
    for prediction in predictions:
        clip = prediction.clip
        if clip.start is None or clip.end is None:
            continue
        titles[clip.film] = clip.title
        fields = {
            "clip": clip.id,
            f"probability of {prediction.target}": f"{prediction.probability:.3f}",
            **prediction.describe_parts(),
        }
        note = Annotation(*milliseconds(clip.start, clip.end), prediction.predicted, fields)
        of_film = films.setdefault((clip.film, clip.media), {})
        of_film.setdefault((prediction.model, prediction.test), []).append(note)
    if not films:
        raise ExperimentError(
            "none of the run's clips has a start and an end in its film, so ELAN has no place for "
            "them; --csv writes them for spreadsheets"
        )
    files_of = _files_by_film(annotations)
    files: dict[str, str] = {}
    alone: list[str] = []
    stems = unique_names((film or media_stem(media) or NO_FILM for film, media in films), ".eaf")
    for ((film, media), tiers_of), stem in zip(films.items(), stems, strict=True):
        tiers = [Tier(f"{model}: {test}", KIND, notes) for (model, test), notes in tiers_of.items()]
        names = (film, media_stem(media), titles[film], without_year(titles[film]))
        keys = [safe_id(name).casefold() for name in names if name]
        paths = next((files_of[key] for key in keys if key in files_of), [])
        if annotations is None or not paths:
            alone.append(titles[film] or film)
            files[stem] = to_eaf(Document(tiers, media))
            continue
        for path in paths:
            name = path.relative_to(annotations).as_posix()
            files[name] = add_tiers(path, tiers, ExperimentError)
    return files, alone


def held_out_files(
    predictions: Sequence[HeldOut],
    table: Path | None = None,
    tables: Path | None = None,
    elan: Path | None = None,
    annotations: Path | None = None,
) -> tuple[dict[Path, str], list[str]]:
    """The files that are asked for: path -> text; and a line about each kind.

    Parameters
    ----------
    predictions
        What is written.
    table, tables, elan
        A CSV file; the folder of a table a film; the folder of ELAN's documents.
    annotations
        As in `held_out_elan`.
    """
    files: dict[Path, str] = {}
    lines = []
    if table:
        files[table] = held_out_table(predictions)
        lines.append(f"a row a clip and model -> {table}")
    if tables:
        texts = held_out_tables(predictions)
        files |= {tables / name: text for name, text in texts.items()}
        lines.append(f"{counted(len(texts), 'table')}, one a film -> {tables}")
    if elan:
        if annotations and elan.resolve().is_relative_to(annotations.resolve()):
            raise ExperimentError(f"{elan} is in {annotations}; choose a folder outside it")
        texts, alone = held_out_elan(predictions, annotations)
        files |= {elan / name: text for name, text in texts.items()}
        lines.append(f"{counted(len(texts), 'file')} for ELAN -> {elan}")
        if annotations and alone:
            films = f"{counted(len(alone), 'film')}: {join_some(alone)}"
            lines.append(f"no file in {annotations} of {films} (the models' tiers alone)")
    return files, lines


def describe_held_out(predictions: Sequence[HeldOut], limit: int) -> Iterator[str]:
    """How many clips of which films, and the first rows."""
    clips = counted(len({row.clip.id for row in predictions}), "clip")
    films = counted(len({row.clip.film for row in predictions}), "film")
    models = counted(len({row.model for row in predictions}), "model")
    yield f"{clips} of {films}; {models}, each clip predicted by the fits that tested it"
    if limit:
        columns = ["title", "from", "annotators", "model", "prediction", "probability"]
        shown = [row.row() | row.describe_parts(MAX_PARTS_SHOWN) for row in predictions[:limit]]
        columns += {name: None for row in shown for name in row if name.startswith("parts in the ")}
        cells = [[row.get(name, "") for name in columns] for row in shown]
        yield align(columns, cells, left=len(columns))
        if (more := len(predictions) - limit) > 0:
            yield f"and {counted(more, 'more row')}; -o writes all to a file"


def _files_by_film(folder: Path | None) -> dict[str, list[Path]]:
    """The ``.eaf`` files in a folder and in its folders, which may be one an annotator."""
    files: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*.eaf")) if folder else ():
        files.setdefault(safe_id(path.stem).casefold(), []).append(path)
    if folder and not files:
        raise ExperimentError(f"{folder} has no .eaf files; give the folder of the annotators'")
    return files


def _order(clip: Clip) -> tuple[Any, ...]:
    start = float("inf") if clip.start is None else clip.start
    return clip.title, clip.film, start, clip.number or 0, clip.id
