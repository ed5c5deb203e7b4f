"""Run folders: the content of their files, written and read back. `run.json` is in `record.py`.

======================  ==================================================================
``run.json``            experiment, data and their digests, join, fits, scores, versions
``predictions.csv``     a row for each clip of each test set, model and fit
``clips.csv``           the annotated clips, and why some took no part
``fits.csv``            a row for each fit of each model: its clips, its folder, its choices
``reasons.csv``         each test clip's concept scores and their parts
``annotators.csv``      each annotator's labels of the test clips, if there are several
``models/``             a folder for each model, which `load_model` reads
======================  ==================================================================

`run.json` has the digests of the files behind the scores, which are checked before anything
is read. `Run.check` compares its scores with the predictions.
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
from obygaze_features.store.location import is_url
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
"""The files whose digests ``run.json`` keeps: its scores and its page come from these only."""
EARLIER = ("explanations.jsonl", "history.jsonl", "models.jsonl")
"""Files that runs of earlier formats have instead of some of these."""
RUN_FILES = (RECORD, *FILES, ANNOTATORS)
"""All files of a run folder; the last only if the labels were merged from several annotators."""
Unused = Literal["", "no-features", "no-fold", "not-in-task", "not-in-labels"]
"""The reason why a clip took no part in a run."""
_NUMBER = re.compile(r"(?<!\d)(\d++)$")


@dataclass(frozen=True)
class Clip:
    """An annotated clip.

    Parameters
    ----------
    id, film, media
        As in the manifest.
    title
        The film's title, or its id.
    start, end
        Seconds in the film; None if the clip has its own file.
    level, concepts
        As annotated.
    fold
        In the fold column that the run trained by, if it has a place there.
    used
        Why it took no part: ``no-features``, ``no-fold``, ``not-in-task`` or, on a page of a larger
        label set, ``not-in-labels``; empty if it took part.
    group
        The group that the run kept together: the film, unless it named another column.
    leaked
        Whether a fit that tested it has used it, too.
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
        """The scene's number from the end of the id, or None."""
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
        Where it is.
    record
        What its ``run.json`` says.
    tables
        Its tables, if they are in memory; otherwise they are read when needed.
    """

    folder: Path
    record: RunRecord
    tables: Tables | None = field(default=None, compare=False, repr=False)

    def scores(self) -> list[dict[str, Any]]:
        """Return a row for each model, test set and metric, for `pandas.DataFrame`.

        ``mean`` is over films or other groups, of which ``films`` count. ``low`` and ``high`` are
        the ends of its 95% interval. An undefined score is None.
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
        """The limits of the conclusions."""
        return self.record.warnings

    def predictions(self) -> pd.DataFrame:
        """Return the predictions of each fit of each model on each test set."""
        return self._tables.predictions

    def clips(self) -> pd.DataFrame:
        """Return the annotated clips, also those that took no part."""
        return self._tables.clips

    def reasons(self) -> pd.DataFrame:
        """Return the concept scores of each test clip, and their parts in the prediction.

        There is a row for each model, fit, clip and concept, and for each question of a tree.
        """
        return self._tables.reasons

    def annotations(self) -> Votes:
        """Return test -> clip -> annotator -> class or level; {} for a single annotator."""
        if ANNOTATORS not in self.record.files:
            return {}
        _check_digest(self, ANNOTATORS)
        return read_votes(self.folder / ANNOTATORS, self.record)

    def check(self) -> list[str]:
        """Score the predictions again, and describe each difference to ``run.json``."""
        from obygaze_models.experiments.predictions import differing_scores

        return differing_scores(self)

    def fits(self) -> pd.DataFrame:
        """Return a row for each fit of each model: its clips, its folder, and its choices."""
        _check_digest(self, "fits.csv")
        return read_fits(self.folder / "fits.csv")

    def models(self) -> list[dict[str, Any]]:
        """Return a row for each saved model, whose ``folder`` is a path for `load_model`."""
        fits = self.fits()
        saved: list[Any] = fits[fits["folder"] != ""].to_dict("records")
        return [row | {"folder": self.folder / row["folder"]} for row in saved]

    def frames(
        self, model: str | None = None, *, task: str | None = None, store: StoreLike | None = None
    ) -> FramePredictions:
        """Return the probability of each frame of the test clips, by the models that tested them.

        Parameters
        ----------
        model, task
            The saved models, if several read frames: the name in the experiment, and the task.
        store
            The store; by default the experiment's, as named there.
        """
        from obygaze_models.explain.frame_scores import average_frames
        from obygaze_models.saved.inference import predict_frames

        saved = [line for line in self.models() if line["reads"] == "frames"]
        for kind, name in (("model", model), ("task", task)):
            names = list(dict.fromkeys(line[kind] for line in saved))
            if not names:
                raise ExperimentError(
                    f"{self.folder}: no saved model reads frames. Add attention-probe or "
                    "frame-mil to the estimators of its experiment"
                )
            if name is None and len(names) > 1:
                option = "--estimator" if kind == "model" else "--task"
                raise ExperimentError(
                    f"{self.folder} has several: {', '.join(names)}. Choose with {kind}=, or "
                    f"{option}, such as {option} {for_shell(names[0])}"
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
                f"{opened.where} has no clip that the run tested, and a run predicts no others. "
                "Train a model for them, and pass it instead of the run: obygaze models train"
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
        """Return the moments of films in the test clips, with the options of `find_moments`."""
        from obygaze_models.explain.moments import find_moments

        opened = self._open_stores(store)
        return find_moments(self.frames(model, task=task, store=opened), opened.items, **options)

    def _open_stores(self, store: StoreLike | None) -> Store:
        """Open these stores, or else those that the run names, if they are on this machine."""
        recorded = self.record.experiment.stores
        if store is None and (remote := [address for address in recorded if is_remote(address)]):
            raise ExperimentError(
                f"{self.folder}: its features are at {redact_url(remote[0])}. For safety, a run "
                "file cannot choose a remote store. If you trust it, pass store="
            )
        return open_stores([*recorded] if store is None else store)

    @cached_property
    def _tables(self) -> Tables:
        return self.tables or _read_tables(self)

    def __repr__(self) -> str:
        models = ", ".join(self.record.models)
        return f"Run({str(self.folder)!r}, {self.record.goal}; {models})"

    def _repr_html_(self) -> str:
        rows = [{"model": row.model, "test": row.test} | row.mean for row in self.record.scores]
        table = pd.DataFrame(rows).to_html(index=False, na_rep="", float_format="{:.2f}".format)
        notes = "".join(f"<li>{escape(str(warning))}</li>" for warning in self.warnings)
        return f"<p>{escape(self.record.goal)}</p>{table}<ul>{notes}</ul>"


def _untested_clips(items: Items, tested: Collection[str]) -> list[RunWarning]:
    """Return a warning with the share of each film's clips that was tested, if not all."""
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
    """Return True if an address leads to another machine: a URL, or ``//HOST/...``."""
    return is_url(address) or bool(re.match(r"[\\/]{2}", address))


AnyRun = Run | str | Path


def load_run(folder: str | Path) -> Run:
    """Read a run folder that `run_experiment` wrote."""
    return Run(Path(folder), read_record(Path(folder)))


def as_run(run: AnyRun) -> Run:
    """Return a run, or the run in a folder."""
    return run if isinstance(run, Run) else load_run(run)


def _read_tables(run: Run) -> Tables:
    """Return the tables of a run; raise `ExperimentError` if one is missing or was changed."""
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
                f"{run.folder}: the tables name other models or clips than run.json and clips.csv. "
                f"One was edited or is damaged. Run the experiment again: {MAKE}"
            )
    parts = split_by(predictions, "model", "test").items()
    fits_of = {key: own["fit"].unique().tolist() for key, own in parts}
    for scores in run.record.scores:
        fits = fits_of.get((scores.model, scores.test), [])
        if scores.fits != fits or len(scores.by_fit) != len(fits):
            raise ExperimentError(
                f"{run.folder}: the scores of {scores.model} on {scores.test} are of other fits "
                f"than those predicted. Run the experiment again: {MAKE}"
            )
    return Tables(predictions, clips, reasons)


def _check_digest(run: Run, name: str) -> None:
    """Raise if a file is missing, or has another digest than recorded."""
    path = run.folder / name
    require_readable(path, ExperimentError)
    if not path.is_file():
        raise ExperimentError(
            f"{run.folder} is not complete: it has no {name}. Run the experiment again: {MAKE}"
        )
    if sha256_of(path) != run.record.files.get(name):
        raise ExperimentError(
            f"{path} was changed since the run wrote it (its digest differs), but run.json has "
            f"scores of the original. Run the experiment again: {MAKE}"
        )


def annotated_clips(manifest: Manifest, labels: LabelSet, groups: str = "film") -> dict[str, Clip]:
    """Return all clips of `labels` by id, in the manifest's order, as if no run had used them."""
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
    """Return clips as a frame, for `Run.clips`."""
    frame = pd.DataFrame(map(vars, clips), columns=[field.name for field in fields(Clip)])
    return frame.astype({"start": "float64", "end": "float64", "fold": "Int64", "leaked": "bool"})


def clips_by_id(clips: pd.DataFrame) -> dict[str, Clip]:
    """Return the clips of a frame by id, in order."""
    cells: Any = clips.astype(object).where(clips.notna(), None).to_dict("records")
    return {row["id"]: Clip(**row) for row in cells}


def format_clips(clips: Iterable[Clip]) -> str:
    """Return the content of ``clips.csv``."""
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
            raise ExperimentError(f"{path}: the clip {clip.id} has a time that is not finite")
    return clips_frame(clips)
