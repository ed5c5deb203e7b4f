"""Read and write run folders, except for ``run.json``, which is in `record.py`.

======================  ==================================================================
``run.json``            experiment, data and their digests, join, fits, scores, versions
``predictions.csv``     a row for each clip of each test set, model and fit
``clips.csv``           the annotated clips, and why the run did not use some
``fits.csv``            a row for each fit of each model: its clips, its folder, its choices
``reasons.csv``         each test clip's concept scores and their contributions
``annotators.csv``      the labels of the test clips by each of several annotators
``models/``             a folder for each saved fit of each model, for `load_model`
======================  ==================================================================

``run.json`` has the digests of the CSV files, which are checked before the files are read.
`Run.check` recomputes the scores from the predictions.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pandas as pd
from numpy.typing import NDArray

from obygaze_features.common.files import require_readable, sha256_of
from obygaze_features.common.tables import format_table, read_table
from obygaze_features.common.text import for_shell, join_some, redact_url, unknown_name
from obygaze_features.errors import ExperimentError
from obygaze_features.items.films import film_titles
from obygaze_features.manifests import Items, LabelSet, Manifest
from obygaze_features.store import Store
from obygaze_features.store.files import is_url
from obygaze_models.data.stores import StoreLike, open_stores
from obygaze_models.data.warnings import RunWarning, unique_warnings
from obygaze_models.experiments.annotators import ANNOTATORS, Votes, read_votes
from obygaze_models.experiments.predictions import read_predictions, split_by
from obygaze_models.experiments.record import MAKE, RECORD, RunRecord, read_record
from obygaze_models.experiments.tables import read_fits, read_reasons
from obygaze_models.saved.about import convert

if TYPE_CHECKING:
    from obygaze_models.explain.moments import Moments
    from obygaze_models.saved.inference import FramePredictions

Array = NDArray[Any]

FILES = ("predictions.csv", "clips.csv", "fits.csv", "reasons.csv")
"""The tables of every run. Their digests are in ``run.json``."""
EARLIER = ("explanations.jsonl", "history.jsonl", "models.jsonl")
"""Files of runs in earlier formats."""
RUN_FILES = (RECORD, *FILES, ANNOTATORS)
"""The files of a run folder, outside ``models``. `ANNOTATORS` exists only for merged labels."""
Unused = Literal["", "no-features", "no-fold", "not-in-task", "not-in-labels"]
"""The reason why a run did not use a clip; empty if it did."""
_NUMBER = re.compile(r"(?<!\d)(\d++)$")


@dataclass(frozen=True)
class Clip:
    """An annotated clip.

    Parameters
    ----------
    id, film, media
        The id, the film and the media file, as in the manifest.
    title
        The film's title, or its id.
    start, end
        Seconds in the film; None if the clip has its own file.
    level, concepts
        The annotated level and concepts.
    fold
        The clip's fold in the run's fold column, or None.
    used
        The reason why the run did not use the clip: ``no-features``, ``no-fold``, ``not-in-task``
        or, on a page of a larger label set, ``not-in-labels``; empty if the run used it.
    group
        The clip's group: its film, unless the run groups clips by another column.
    leaked
        True if a fit that tested the clip has also used it.
    """

    id: str
    film: str
    title: str
    media: str
    start: float | None
    end: float | None
    level: str
    concepts: tuple[str, ...]
    fold: int | None
    used: Unused
    group: str = ""
    leaked: bool = False

    @property
    def number(self) -> int | None:
        """The scene's number at the end of the id, or None."""
        match = _NUMBER.search(self.id)
        return int(match[1]) if match else None


class Tables(NamedTuple):
    """A run's tables; see the methods of `Run`."""

    predictions: pd.DataFrame
    clips: pd.DataFrame
    reasons: pd.DataFrame


@dataclass(frozen=True)
class Run:
    """A run, as returned by `run_experiment` and `load_run`.

    Parameters
    ----------
    folder
        The run folder.
    record
        The content of its ``run.json``.
    tables
        The tables, if they are in memory. Otherwise they are read when needed.
    """

    folder: Path
    record: RunRecord
    tables: Tables | None = field(default=None, compare=False, repr=False)

    def scores(self) -> list[dict[str, Any]]:
        """Return a row for each model, test set and metric, for `pandas.DataFrame`.

        ``mean`` is the mean over films or other groups, and ``films`` is the number of groups.
        ``low`` and ``high`` are the limits of the 95% interval. Undefined scores are None.
        """
        rows = []
        for scores in self.record.scores:
            for metric, mean in scores.mean.items():
                low, high = scores.interval.get(metric) or (None, None)
                row = {"model": scores.model, "test": scores.test, "metric": metric, "mean": mean}
                rows.append(row | {"low": low, "high": high, "films": scores.films})
        return rows

    @property
    def warnings(self) -> list[RunWarning]:
        """The warnings that limit the conclusions from the run."""
        return self.record.warnings

    def predictions(self) -> pd.DataFrame:
        """Return the predictions of each fit of each model on each test set."""
        return self._tables.predictions

    def clips(self) -> pd.DataFrame:
        """Return all annotated clips, including clips that the run did not use."""
        return self._tables.clips

    def reasons(self) -> pd.DataFrame:
        """Return the concept scores of each test clip, and their contributions to the prediction.

        The table has a row for each model, fit, clip and concept, and for each question of a tree.
        """
        return self._tables.reasons

    def annotations(self) -> Votes:
        """Return the class or level from each annotator, by test set, clip and annotator.

        Return {} if the labels were not merged from several annotators.
        """
        if ANNOTATORS not in self.record.files:
            return {}
        _check_digest(self, ANNOTATORS)
        return read_votes(self.folder / ANNOTATORS, self.record)

    def check(self) -> list[str]:
        """Recompute the scores from the predictions; describe each difference from ``run.json``."""
        from obygaze_models.experiments.predictions import differing_scores

        return differing_scores(self)

    def fits(self) -> pd.DataFrame:
        """Return a table with a row for each fit: its clips, its folder, and its choices."""
        _check_digest(self, "fits.csv")
        return read_fits(self.folder / "fits.csv")

    def models(self) -> list[dict[str, Any]]:
        """Return a row for each saved model, with its ``folder`` for `load_model`."""
        fits = self.fits()
        saved: list[Any] = fits[fits["folder"] != ""].to_dict("records")
        return [row | {"folder": self.folder / row["folder"]} for row in saved]

    def frames(
        self, model: str | None = None, *, task: str | None = None, store: StoreLike | None = None
    ) -> FramePredictions:
        """Predict each frame of the test clips with the models that were tested on them.

        Parameters
        ----------
        model, task
            The model's name in the experiment, and its task, if several models read frames.
        store
            The store; by default the experiment's.
        """
        from obygaze_models.explain.frame_scores import average_frames
        from obygaze_models.saved.inference import predict_frames

        saved = [line for line in self.models() if line["reads"] == "frames"]
        for kind, name in (("model", model), ("task", task)):
            names = list(dict.fromkeys(line[kind] for line in saved))
            if not names:
                raise ExperimentError(
                    f"{self.folder}: no saved model reads frames. Add frame-mil to the "
                    "experiment's estimators, and run it again"
                )
            if name is None and len(names) > 1:
                option = "--estimator" if kind == "model" else "--task"
                raise ExperimentError(
                    f"{self.folder}: choose from {', '.join(names)} with "
                    f"{kind}= or {option}, such as {option} {for_shell(names[0])}"
                )
            if name is not None and name not in names:
                raise ExperimentError(f"{self.folder}: {unknown_name(kind, name, names)}")
            saved = [line for line in saved if line[kind] == (name or names[0])]
        opened, table = self._open_stores(store), self.predictions()
        parts = []
        for line in saved:
            tests = [t for t in self.record.tests if self.record.trained_on(t) == line["task"]]
            own = table[(table["model"] == line["model"]) & (table["fit"] == line["fit"])]
            tested = own.loc[own["test"].isin(tests), "id"].unique().tolist()
            if present := [clip for clip in tested if clip in opened]:
                parts.append(predict_frames(line["folder"], opened, present))
        if not parts:
            raise ExperimentError(
                f"{opened.where} has none of the run's test clips, and a run predicts only these. "
                "Train a model with obygaze models train, and pass it instead of the run"
            )
        averaged = average_frames(parts)
        warnings = [*averaged.warnings, *_untested_clips(opened.items, averaged.ids)]
        return replace(averaged, warnings=unique_warnings(warnings))

    def moments(
        self,
        model: str | None = None,
        *,
        task: str | None = None,
        store: StoreLike | None = None,
        **options: Any,
    ) -> Moments:
        """Find the moments in the test clips; the options are passed to `find_moments`."""
        from obygaze_models.explain.moments import find_moments

        opened = self._open_stores(store)
        return find_moments(self.frames(model, task=task, store=opened), opened.items, **options)

    def _open_stores(self, store: StoreLike | None) -> Store:
        """Open the stores, by default the run's stores if these are local."""
        recorded = self.record.experiment.stores
        if store is None and (remote := [address for address in recorded if is_remote(address)]):
            raise ExperimentError(
                f"{self.folder}: the features are at {redact_url(remote[0])}. For safety, remote "
                "stores named in a run are not opened. If you trust this one, pass store=ADDRESS"
            )
        return open_stores([*recorded] if store is None else store)

    @cached_property
    def _tables(self) -> Tables:
        return self.tables or _read_tables(self)

    def __repr__(self) -> str:
        scored = {scores.model for scores in self.record.scores}
        models = [name if name in scored else f"{name} (no scores)" for name in self.record.models]
        text = f"Run({str(self.folder)!r}, {self.record.goal}; {', '.join(models)}"
        join = self.record.join
        if join.used < join.labelled:
            text += f"; uses {join.used:,} of {join.labelled:,} labelled clips"
        if note := self.record.films.note:
            text += f"; {note}"
        return f"{text})"

    def _repr_html_(self) -> str:
        rows = [{"model": row.model, "test": row.test} | row.mean for row in self.record.scores]
        table = pd.DataFrame(rows).to_html(index=False, na_rep="", float_format="{:.2f}".format)
        notes = "".join(f"<li>{escape(str(warning))}</li>" for warning in self.warnings)
        return f"<p>{escape(self.record.goal)}</p>{table}<ul>{notes}</ul>"


def _untested_clips(items: Items, tested: Collection[str]) -> list[RunWarning]:
    """Return a warning that counts each film's tested clips, or [] if all clips were tested."""
    films = dict(zip(items.ids, items.films, strict=True))
    counts, tests = Counter(films.values()), Counter(films[clip] for clip in tested)
    if tests == counts:
        return []
    shares = [
        f"{film or 'without a film'}: {tests[film]:,} of {clips:,}"
        for film, clips in counts.items()
        if tests[film] < clips
    ]
    text = (
        f"the run tested {len(tested):,} of the store's {len(items):,} clips "
        f"({join_some(shares)}); the rest have no frame probabilities and no moments."
    )
    return [RunWarning("untested", "", text)]


def is_remote(address: str) -> bool:
    """Return True if an address is on another machine: a URL, or ``//HOST/...``."""
    return is_url(address) or bool(re.match(r"[\\/]{2}", address))


AnyRun = Run | str | Path


def load_run(folder: str | Path) -> Run:
    """Load a run from its folder."""
    return Run(Path(folder), read_record(Path(folder)))


def as_run(run: AnyRun) -> Run:
    """Return a run, loading it if `run` is a folder."""
    return run if isinstance(run, Run) else load_run(run)


def _read_tables(run: Run) -> Tables:
    """Read the tables of a run; raise `ExperimentError` if any is missing or was changed."""
    for name in (*FILES, ANNOTATORS):
        if name != ANNOTATORS or name in run.record.files:
            _check_digest(run, name)
    clips = _read_clips(run.folder / "clips.csv")
    known_ids = {*clips["id"]}
    predictions = read_predictions(run.folder / "predictions.csv", run.record)
    reasons = read_reasons(run.folder / "reasons.csv")
    for table in (predictions, reasons):
        models, ids = {*table["model"].unique()}, {*table["id"].unique()}
        if not models <= {*run.record.models} or not ids <= known_ids:
            raise ExperimentError(
                f"{run.folder}: the models or clips in the tables do not match run.json and "
                f"clips.csv, so a file was edited or is damaged. Run the experiment again: {MAKE}"
            )
    parts = split_by(predictions, "model", "test").items()
    fits_of = {key: own["fit"].unique().tolist() for key, own in parts}
    for scores in run.record.scores:
        fits = fits_of.get((scores.model, scores.test), [])
        if scores.fits != fits or len(scores.by_fit) != len(fits):
            raise ExperimentError(
                f"{run.folder}: the scores of {scores.model} on {scores.test} are not from the "
                f"same fits as the predictions. Run the experiment again: {MAKE}"
            )
    return Tables(predictions, clips, reasons)


def _check_digest(run: Run, name: str) -> None:
    """Raise `ExperimentError` if a file is missing, or if its digest differs from the record."""
    path = run.folder / name
    require_readable(path, ExperimentError)
    if not path.is_file():
        raise ExperimentError(
            f"{run.folder} is incomplete: {name} is missing. Run the experiment again: {MAKE}"
        )
    if sha256_of(path) != run.record.files.get(name):
        raise ExperimentError(
            f"{path} was changed after the run (its checksum does not match), but the scores in "
            f"run.json are from the original. Run the experiment again: {MAKE}"
        )


def annotated_clips(manifest: Manifest, labels: LabelSet, groups: str = "film") -> dict[str, Clip]:
    """Return all clips of a label set by id, in the manifest's order, without a run's folds."""
    titles, group_of = film_titles(manifest.items), manifest.items.column(groups)
    return {
        item.id: Clip(
            id=item.id,
            film=item.film,
            title=titles.get(item.film, item.film),
            media=item.media,
            start=item.start,
            end=item.end,
            level=labels.level_of[item.id],
            concepts=labels.concepts_of[item.id],
            fold=None,
            used="",
            group=group,
        )
        for item, group in zip(manifest, group_of, strict=True)
        if item.id in labels.level_of
    }


def clips_frame(clips: Iterable[Clip]) -> pd.DataFrame:
    """Convert clips to a frame, for `Run.clips`."""
    frame = pd.DataFrame(map(vars, clips), columns=[field.name for field in fields(Clip)])
    return frame.astype({"start": "float64", "end": "float64", "fold": "Int64", "leaked": "bool"})


def clips_by_id(clips: pd.DataFrame) -> dict[str, Clip]:
    """Convert a frame to clips by id, in the frame's order."""
    cells: Any = clips.astype(object).where(clips.notna(), None).to_dict("records")
    return {row["id"]: Clip(**row) for row in cells}


def format_clips(clips: Iterable[Clip]) -> str:
    """Format clips as ``clips.csv``."""
    rows = [
        vars(clip) | {"concepts": "|".join(clip.concepts), "leaked": "yes" if clip.leaked else ""}
        for clip in clips
    ]
    return format_table(
        {
            field.name: ["" if row[field.name] is None else str(row[field.name]) for row in rows]
            for field in fields(Clip)
        }
    )


def _read_clips(path: Path) -> pd.DataFrame:
    """Read ``clips.csv``."""
    rows = read_table(path, required=[field.name for field in fields(Clip)]).rows()
    content = [
        {key: None if key in ("start", "end", "fold") and not row[key] else row[key] for key in row}
        | {"concepts": [*filter(None, row["concepts"].split("|"))]}
        | {"leaked": row["leaked"] == "yes"}
        for row in rows
    ]
    clips = convert(content, list[Clip], path, f"run the experiment again: {MAKE}", strict=False)
    for clip in clips:
        if not (math.isfinite(clip.start or 0.0) and math.isfinite(clip.end or 0.0)):
            raise ExperimentError(
                f"{path}: the start or end of clip {clip.id} is not finite. Run the experiment "
                f"again: {MAKE}"
            )
    return clips_frame(clips)
