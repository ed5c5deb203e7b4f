"""A run: a folder with a header and tables, from which everything else follows.

==================  ==================================================================
``run.json``        the experiment, the data and their digests, versions and warnings
``clips.csv``       the annotated clips, why the run did not use some, and annotators' labels
``fits.csv``        a row for each fit of each model: its clips, its folder and its choices
``predictions.csv`` a row for each clip of each test set, model and fit
``reasons.csv``     each test clip's concept scores and their contributions, if there are any
``scores.csv``      the scores, for other programs; never read back
``models/``         a folder for each saved fit of each model, for `load_model`
==================  ==================================================================

``run.json`` has the digests of the tables, which are checked before the tables are read. Scores are
computed from the predictions when they are needed.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec
import pandas as pd

from obygaze_features.common.files import (
    read_format,
    require_readable,
    sha256_of,
    to_json,
    write_text,
)
from obygaze_features.common.plugins import one_line
from obygaze_features.common.text import as_list, join_some, redact_url, unknown_name
from obygaze_features.errors import ExperimentError
from obygaze_features.items.films import film_titles
from obygaze_features.items.items import group_noun
from obygaze_features.manifests import Items, LabelSet, Manifest
from obygaze_features.manifests.labels import SEPARATOR
from obygaze_features.store.files import is_url
from obygaze_models.data.run_warning import RunWarning
from obygaze_models.data.stores import Stores, open_stores
from obygaze_models.data.tasks import Task
from obygaze_models.experiments.experiment import Experiment
from obygaze_models.experiments.reasons import COLUMNS as REASONS
from obygaze_models.experiments.scores import (
    ModelScores,
    TestSet,
    read_labels,
    score_models,
    scores_table,
    split_by,
)
from obygaze_models.explain.moments import average_frames
from obygaze_models.saved.about import Features
from obygaze_models.saved.predict import FramePredictions, predict_frames
from obygaze_models.scoring.intervals import mean_scores

FORMAT = "obygaze-run"
FORMAT_VERSION = 8
HEADER = "run.json"
MAKE = "obygaze models run EXPERIMENT.toml"
LABEL_OF = "label of "
CONCEPTS_OF = "concepts of "
"""The prefixes of the columns of ``clips.csv`` that have an annotator's levels and concepts."""
CLIPS = {
    "id": "str", "film": "str", "title": "str", "media": "str", "start": "float64",
    "end": "float64", "level": "str", "concepts": "str", "fold": "Int64", "used": "str",
    "group": "str", "leaked": "bool", "blank": "bool",
}  # fmt: skip
FITS = {
    "model": "str", "task": "str", "fit": "int64", "name": "str", "seed": "int64",
    "trained": "int64", "validated": "int64", "drawn_from": "int64", "leaked": "int64",
    "train_classes": "str", "validation_classes": "str", "estimator": "str", "reads": "str",
    "folder": "str", "not_saved": "str", "cut": "float64", "facts": "str",
}  # fmt: skip
JSON = ("train_classes", "validation_classes", "facts")
"""The columns of ``fits.csv`` whose cells are JSON objects."""


class ManifestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The labelled items, and their label scheme.

    `levels` maps level codes to names, lowest level first. `senses` maps concepts to how they are
    perceived. It is empty if the senses are unknown.
    """

    name: str
    version: str
    digest: str
    labels: str
    levels: dict[str, str]
    senses: dict[str, str]
    licence: str
    citation: str

    @property
    def label_key(self) -> tuple[str, str]:
        """A key for comparing runs: the digest of the items, and the name of the label set."""
        return self.digest, self.labels


class StoreRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The feature store, and a digest of its content."""

    name: str
    fingerprint: str


class Skipped(msgspec.Struct, frozen=True):
    """A fit or test that was skipped, and the reason."""

    task: str
    fit: int
    what: str
    why: str


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``run.json``: the settings of a run, its data and its warnings.

    Parameters
    ----------
    experiment
        All settings. URLs of stores are recorded without secrets.
    protocol, split, balance
        How clips are divided and balanced; `balance` is empty if the protocol fixes the clips.
    measure
        The benchmark's official measure, or "".
    tasks, learned
        The tasks that are learned or tested, and the keys of those that models are trained on.
    also_trained
        The number of films (or groups) with clips in both the training and the test set of a fit.
    files
        The digests of the run's tables.
    """

    format: str = FORMAT
    format_version: int = FORMAT_VERSION
    experiment: Experiment
    manifest: ManifestRecord
    store: StoreRecord
    features: Features
    protocol: str
    split: str
    balance: str
    measure: Literal["", "trec_average_precision", "accuracy"]
    tasks: list[Task]
    learned: list[str]
    also_trained: int
    skipped: list[Skipped]
    warnings: list[RunWarning]
    versions: dict[str, str]
    started: str
    seconds: float
    files: dict[str, str]

    def __post_init__(self) -> None:
        keys = [task.key for task in self.tasks]
        if not self.learned or not {*self.learned} <= {*keys}:
            raise ValueError("a learned task is unknown")
        if "name" not in self.features.backbone:
            raise ValueError("the backbone has no name")


@dataclass(frozen=True)
class Run:
    """A run, as returned by `run_experiment` and `load_run`. Its tables are read when needed."""

    folder: Path
    header: Header

    @property
    def experiment(self) -> Experiment:
        """The settings of the run."""
        return self.header.experiment

    @property
    def warnings(self) -> list[RunWarning]:
        """The warnings that limit the conclusions from the run."""
        return self.header.warnings

    @cached_property
    def clips(self) -> pd.DataFrame:
        """All annotated clips, including clips that the run did not use."""
        return self._read("clips", CLIPS)

    @cached_property
    def fits(self) -> pd.DataFrame:
        """A row for each fit of each model: its clips, its folder, and its choices."""
        return self._read("fits", FITS, _check_fits)

    @cached_property
    def predictions(self) -> pd.DataFrame:
        """The predictions of each fit of each model on each test set."""
        task = self.header.tasks[-1]
        types = {"id": "str", "model": "category", "fit": "int64", "test": "category"}
        types |= dict.fromkeys(task.target.columns(task.class_keys), "float64")
        types["label"] = "float64" if task.target.is_numeric else "str"
        return self._read("predictions", types, self._check_predictions)

    @cached_property
    def reasons(self) -> pd.DataFrame:
        """The concept scores of each test clip, and their contributions to the prediction.

        For each fit of a model with concepts, the table has a row for each clip and concept, each
        intercept, and each question of a tree.
        """
        if "reasons.csv" not in self.header.files:
            return pd.DataFrame(columns=[*REASONS]).astype(REASONS)
        return self._read("reasons", REASONS)

    @cached_property
    def group_of(self) -> dict[str, str]:
        """The film, or other group, of each clip."""
        return self.column("group")

    def column(self, name: str) -> dict[str, str]:
        """Return each clip's value in a column of `clips`, as text."""
        if name not in self.clips:
            raise ExperimentError(unknown_name("column", name, self.clips.columns))
        return dict(zip(self.clips["id"], self.clips[name].astype(str), strict=True))

    @cached_property
    def model_scores(self) -> list[ModelScores]:
        """The scores of each model on each test set, computed from the predictions."""
        return self.score(self.predictions)

    def score(self, table: pd.DataFrame) -> list[ModelScores]:
        """Score each model on each test set, in some rows of `predictions`."""
        measure = self.header.measure
        return score_models(table, self.group_of, measure, is_mixed=self.is_mixed)

    @cached_property
    def tests(self) -> dict[str, TestSet]:
        """The size of each test set, and the scores of guesses on it.

        Guesses are scored like the first model: in each scored group, with the group's share of
        positives (for numbers, with means), and then averaged over groups. For three or more
        classes, there are none.
        """
        sets = {}
        for test, own in split_by(self.predictions, "test").items():
            task = self.task(test)
            labels = own.drop_duplicates("id").set_index("id")["label"]
            counts = task.target.count(task, labels.to_numpy())
            guesses = {}
            if counts.positives is not None or task.target.is_numeric:
                by_group = dict(iter(labels.groupby(labels.index.map(self.group_of))))
                first = next(scores for scores in self.model_scores if scores.test == test)
                forms = []
                for part in [by_group[group] for group in first.groups] or [labels]:
                    others = labels.drop(part.index)
                    forms.append(task.target.guesses(part.to_numpy(), others.to_numpy()))
                guesses = {name: mean_scores([form[name] for form in forms]) for name in forms[0]}
            sets[test] = TestSet(*counts, guesses)
        return sets

    def scores(self, by: str | None = None) -> pd.DataFrame:
        """Return the scores as a table.

        The columns are ``model``, ``test``, ``metric``, ``group``, ``mean``, ``low``, ``high``,
        ``clips`` and ``films``. Rows without a group have the mean over films or other groups, its
        95% interval, and the number of clips and of films or other groups. If `by` is a column of
        `clips`, such as "film", the rows are these means on the clips of each value of that column,
        with the value in a further column, ``value``.
        """
        if by is None:
            return scores_table(self.model_scores)
        parts = []
        for value, own in self.predictions.groupby(self.predictions["id"].map(self.column(by))):
            scores = scores_table(self.score(own))
            parts.append(scores[scores["group"] == ""].assign(value=value))
        return pd.concat(parts, ignore_index=True)

    @property
    def models(self) -> list[str]:
        """The models that have predictions: the experiment's, in its order, and then others."""
        scored = self.predictions["model"].unique()
        known = dict.fromkeys([*self.experiment.learners, *scored])
        return [name for name in known if name in scored]

    @property
    def by(self) -> str:
        """The column by which clips are grouped, such as "film"."""
        return self.experiment.groups or "film"

    @property
    def noun(self) -> str:
        """The unit that scores are averaged over, or "clip" if no tested clip has a group."""
        return group_noun(self.by) if self.tested_groups else "clip"

    @property
    def is_mixed(self) -> bool:
        """True if a fit was trained on clips of a film (or other group) that it tests."""
        return self.header.also_trained > 0

    @property
    def limit(self) -> str:
        """The sentence that scores are not about new films; "" if tested films are new."""
        count = self.header.also_trained
        total = len(self.tested_groups)
        if not count:
            return ""
        tested = f"{count} of {total} tested {self.noun}s were"
        if count == total:
            tested = f"Each tested {self.noun} was"
        return f"{tested} also trained on: this says nothing about new {self.noun}s."

    @cached_property
    def tested_groups(self) -> list[str]:
        """The films, or other groups, that are tested."""
        tested = self.clips["id"].isin(self.predictions["id"])
        return sorted({*self.clips.loc[tested, "group"]} - {""})

    def task(self, key: str) -> Task:
        """Return a task that was learned or tested."""
        return next(task for task in self.header.tasks if task.key == key)

    def trained_on(self, test: str) -> str:
        """Return the key of the task that the models tested on `test` were trained on."""
        learned = self.header.learned
        return test if test in learned and len(learned) > 1 else learned[0]

    @property
    def main_model(self) -> str:
        """The first of `models`, whose scores are the result of the run."""
        return self.models[0]

    @property
    def main_metric(self) -> str:
        """The official measure, the experiment's score, or the default of the task's target."""
        task = self.header.tasks[-1]
        return self.header.measure or self.experiment.score or task.target.default_score(task)

    @property
    def saved(self) -> list[dict[str, Any]]:
        """A row of `fits` for each saved model, with its ``folder`` for `load_model`."""
        rows: list[Any] = self.fits[self.fits["folder"] != ""].to_dict("records")
        return [row | {"folder": self.folder / row["folder"]} for row in rows]

    def frames(
        self,
        model: str | None = None,
        *,
        task: str | None = None,
        store: Stores | None = None,
    ) -> FramePredictions:
        """Predict each frame of the test clips with the models that were tested on them.

        Parameters
        ----------
        model, task
            The model's name in the experiment, and its task, if several models read frames.
        store
            The store; by default the experiment's, if it is local.
        """
        fits = self.fits[(self.fits["reads"] == "frames") & (self.fits["folder"] != "")]
        for column, name in {"model": model, "task": task}.items():
            if name is not None:
                fits = fits[fits[column] == name]
        if len(fits[["model", "task"]].drop_duplicates()) != 1:
            raise ExperimentError(
                f"{self.folder}: frames need one task of one saved model that reads frames, such "
                "as frame-mil"
            )

        if store is None:
            store = self.experiment.store
            for address in filter(is_remote, as_list(store)):
                raise ExperimentError(
                    f"{self.folder}: the features are at {redact_url(address)}. For safety, a "
                    "run's remote stores are not opened. If you trust this one, pass store=ADDRESS"
                )
        opened = open_stores(store)
        predictions = self.predictions.assign(task=self.predictions["test"].map(self.trained_on))
        tested = fits.merge(predictions, on=["model", "task", "fit"])
        parts = []
        for folder, clips in tested.groupby("folder", sort=False)["id"]:
            present = [clip for clip in clips.unique() if clip in opened]
            if present:
                parts.append(predict_frames(self.folder / str(folder), opened, present))
        if not parts:
            raise ExperimentError(
                f"{opened.where} has none of the run's test clips, and a run predicts only these. "
                "Train a model with obygaze models train, and pass it instead of the run"
            )
        return average_frames(parts)

    def __repr__(self) -> str:
        tasks = ", ".join(self.header.learned)
        return f"Run({str(self.folder)!r}, {tasks}: {', '.join(self.experiment.learners)})"

    def _read(self, name: str, types: dict[str, str], check: Any = None) -> pd.DataFrame:
        """Read a table; raise `ExperimentError` if it is missing, was changed, or is invalid."""
        path = self.folder / f"{name}.csv"
        require_readable(path, ExperimentError)
        if not path.is_file() or sha256_of(path) != self.header.files.get(path.name):
            raise ExperimentError(
                f"{path} is missing, or was changed after the run. Run the experiment again: {MAKE}"
            )
        try:
            table = read_csv(path, types)
            if check is not None:
                table = check(table)
            if name in ("predictions", "reasons") and not {*table["id"]} <= {*self.clips["id"]}:
                raise ValueError("it has clips that are not in clips.csv")
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as problem:
            raise ExperimentError(
                f"{path} is damaged ({one_line(problem)}). Run the experiment again: {MAKE}"
            ) from None
        return table

    def _check_predictions(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return a table of predictions with encoded labels; raise for invalid values."""
        target = self.header.tasks[-1].target
        codes = read_labels(table, self.header.tasks)
        values = table[target.columns_in(table.columns)].to_numpy()
        if not (target.takes_part(codes).all() and target.allows(values).all()) or table.empty:
            raise ValueError("labels or predictions are invalid")
        return table.assign(label=codes)


def place_table(items: Items) -> pd.DataFrame:
    """Return the film, file, start and end of each item."""
    columns = {"id": items.ids, "film": items.films, "media": items.media}
    return pd.DataFrame(columns | {"start": items.starts, "end": items.ends})


def annotated_clips(manifest: Manifest, labels: LabelSet, groups: str = "film") -> pd.DataFrame:
    """Return all clips of a label set, in the manifest's order, in the form of `Run.clips`.

    The columns that a run fills (``fold``, ``used``, ``leaked`` and ``blank``) are empty.
    """
    items = manifest.items
    extra = {}
    for name, cells in items.extra.items():
        if name not in CLIPS and not name.startswith((LABEL_OF, CONCEPTS_OF)):
            extra[name] = cells
    table = place_table(items).assign(group=items.column(groups), **extra)
    table = table[table["id"].isin(labels.ids)].reset_index(drop=True)
    table["title"] = table["film"].map(film_titles(items)).fillna(table["film"])
    table["level"] = table["id"].map(labels.level_of)
    table["concepts"] = table["id"].map(labels.concepts_of).str.join(SEPARATOR)
    return table.reindex(columns=[*CLIPS, *extra])


def describe_unused(clips: pd.DataFrame) -> dict[str, str]:
    """Return how many clips lack a fold or features, and the first few, by reason."""
    lacking = {}
    for reason in ("no-fold", "no-features"):
        ids = clips.loc[clips["used"] == reason, "id"].tolist()
        if ids:
            lacking[reason] = f"{len(ids):,} ({join_some(ids)})"
    return lacking


def _check_fits(table: pd.DataFrame) -> pd.DataFrame:
    """Return the fits with decoded JSON; raise for folders outside the run."""
    if not table["folder"].str.fullmatch(r"(models/(?!\.+/)[^/\\]+/(?!\.+$)[^/\\]+)?").all():
        raise ValueError("a folder is not one of the run's models")
    for name in JSON:
        table[name] = table[name].map(json.loads)
    return table


def is_remote(address: str) -> bool:
    """Return True if an address is on another machine: a URL, or ``//HOST/...``."""
    return is_url(address) or bool(re.match(r"[\\/]{2}", address))


AnyRun = Run | str | Path


def load_run(folder: str | Path) -> Run:
    """Load a run from its folder."""
    path = Path(folder) / HEADER
    content = read_format(path, FORMAT, FORMAT_VERSION, ExperimentError, "a run")
    if content["format_version"] < FORMAT_VERSION:
        raise ExperimentError(
            f"{folder} is a run of an earlier version. Run the experiment again: {MAKE}"
        )
    try:
        return Run(Path(folder), msgspec.convert(content, Header))
    except (msgspec.MsgspecError, RecursionError, ExperimentError) as problem:
        raise ExperimentError(
            f"{path} is damaged ({problem}). Run the experiment again: {MAKE}"
        ) from None


def write_run(folder: Path, tables: Mapping[str, pd.DataFrame], header: dict[str, Any]) -> None:
    """Write the tables of a run, its scores, and then its header."""
    files = {}
    for name, table in tables.items():
        path = folder / f"{name}.csv"
        write_text(path, format_csv(table))
        files[path.name] = sha256_of(path)
    written = Header(**header, files=files)
    scores = Run(folder, written).scores()
    write_text(folder / "scores.csv", format_csv(scores))
    write_text(folder / HEADER, to_json(msgspec.to_builtins(written)))


def format_csv(table: pd.DataFrame) -> str:
    """Format a table as CSV, with missing values as empty cells."""
    return table.to_csv(index=False, lineterminator="\n")


def read_csv(path: Path, types: dict[str, str]) -> pd.DataFrame:
    """Read a table with columns of these types; other columns are texts."""
    texts = [name for name, kind in types.items() if kind in ("str", "category")]
    numbers = [*types.keys() - texts]
    table = pd.read_csv(
        path,
        dtype=defaultdict(lambda: "str", types | dict.fromkeys(texts, "str")),
        keep_default_na=False,
        na_values=dict.fromkeys(numbers, ""),
        lineterminator="\n",  # a carriage return is a part of a text
    )
    if table.drop(columns=numbers).isna().any(axis=None):
        raise ValueError("a row is too short")
    return table.astype(types)
