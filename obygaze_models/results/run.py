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

import io
import json
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import msgspec
import pandas as pd

from obygaze_features.common.files import (
    check_new_folder,
    new_folder,
    read_format,
    require_readable,
    sha256_of,
    to_json,
    write_text,
)
from obygaze_features.common.formatting import join_some
from obygaze_features.common.names import unknown_name
from obygaze_features.common.plugins import one_line
from obygaze_features.common.resume import is_resumable
from obygaze_features.errors import ExperimentError
from obygaze_features.items.films import film_titles
from obygaze_features.items.items import group_noun
from obygaze_features.manifests import Items, LabelSet, Manifest
from obygaze_features.manifests.labels import SEPARATOR
from obygaze_features.store.files import is_url
from obygaze_models.data.features import Features
from obygaze_models.data.run_warning import RunWarning, unique_warnings
from obygaze_models.data.tasks import Task
from obygaze_models.results.reasons import COLUMNS as REASONS
from obygaze_models.results.scores import (
    ModelScores,
    TestSet,
    read_labels,
    score_models,
    scores_table,
    split_by,
)
from obygaze_models.saved.model import Model, write_model
from obygaze_models.scoring.intervals import ACROSS, WITHIN, mean_scores
from obygaze_models.scoring.metrics import Scores

FORMAT = "obygaze-run"
FORMAT_VERSION = 9
HEADER = "run.json"
MAKE = "obygaze models run EXPERIMENT.toml"
LABEL_OF = "label of "
CONCEPTS_OF = "concepts of "
"""The prefixes of the columns of ``clips.csv`` that have an annotator's levels and concepts."""
OURS = re.compile(
    r"(run\.json|identity\.txt|report\.html|(clips|fits|predictions|reasons|scores)\.csv)"
    r"|(models/[^/]+/)?[^/]+/model\.(json|safetensors)|\..*\.partial"
)
"""A pattern for the files of a run, and for those that a killed process leaves."""
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
    perceived. It is empty if the senses are unknown. `people` maps annotators' label sets to their
    names as written.
    """

    name: str
    version: str
    digest: str
    labels: str
    levels: dict[str, str]
    senses: dict[str, str]
    people: dict[str, str] = {}
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
    model: str
    what: str
    why: str


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``run.json``: the settings of a run, its data and its warnings.

    Parameters
    ----------
    name, models, grouped_by, score
        The names of the run and of its models, the column by which clips are grouped, and the score
        that ranks models, or "" for the default.
    settings
        All settings of the experiment, if there is one. URLs of stores have no secrets.
    protocol, options, split, balance
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
    name: str
    models: list[str]
    grouped_by: str
    score: str
    settings: dict[str, Any]
    manifest: ManifestRecord
    store: StoreRecord
    features: Features
    protocol: str
    options: dict[str, Any]
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
        keys = {*map(attrgetter("key"), self.tasks)}
        if not self.learned or not {*self.learned} <= keys:
            raise ValueError("a learned task is unknown")
        if "name" not in self.features.backbone:
            raise ValueError("the backbone has no name")


@dataclass(frozen=True, eq=False)
class Run:
    """The results of `cross_validate` or `run_experiment`, in a folder or in memory.

    In memory, `texts` has the files of the tables, and `fitted` the models by the path that each
    will have in a folder.
    """

    folder: Path | None
    header: Header
    texts: Mapping[str, str] = field(default_factory=dict)
    fitted: Mapping[str, Model] = field(default_factory=dict)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Run:
        """Write a run in memory, with the models that can be saved; return the run on disk."""
        if self.folder is not None:
            raise ExperimentError(f"{self.folder} is on disk already. Copy the folder")
        folder = Path(folder)
        check_output(folder, overwrite=overwrite)
        fits = self._read("fits", FITS)
        warnings = [*self.warnings]
        with new_folder(folder, overwrite=overwrite, marker=HEADER, allow_missing=True) as new:
            for row, place in enumerate(fits["folder"].tolist()):
                model = self.fitted[place]
                try:
                    write_model(model, new / place)
                except ExperimentError as reason:
                    fits.loc[row, ["folder", "not_saved"]] = ["", str(reason)]
                    warnings.append(not_saved(model.about.model, str(reason)))
            texts = {**self.texts, "fits.csv": format_csv(fits)}
            write_run(
                new, msgspec.structs.replace(self.header, warnings=unique_warnings(warnings)), texts
            )
        return load_run(folder)

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.header.name

    @property
    def place(self) -> str:
        """The name of the run's folder or, in memory, of the run."""
        return self.folder.name if self.folder else self.name

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
        """The size of each test set, and the scores of guesses on it, for both questions.

        Across groups, guesses are scored on all clips. Within groups, they are scored in each group
        that the first model is scored in, with the share of positives there (for numbers, with
        means), and then averaged over groups. For three or more classes, there are none.
        """
        sets = {}
        for test, predictions in split_by(self.predictions, "test").items():
            task = self.task(test)
            labels = predictions.drop_duplicates("id").set_index("id")["label"]
            counts = task.count(labels.to_numpy())
            guesses: dict[str, dict[str, Scores]] = {WITHIN: {}, ACROSS: {}}
            if counts.positives is not None or task.target.is_numeric:
                by_group = dict(iter(labels.groupby(labels.index.map(self.group_of))))
                first = next(scores for scores in self.model_scores if scores.test == test)
                labels_of = {WITHIN: [by_group[group] for group in first.groups], ACROSS: [labels]}
                for over, groups_of in labels_of.items():
                    forms = []
                    for part in groups_of:
                        others = labels.drop(part.index)
                        forms.append(task.target.guesses(part.to_numpy(), others.to_numpy()))
                    for name in forms[0] if forms else ():
                        guesses[over][name] = mean_scores([form[name] for form in forms])
            sets[test] = TestSet(*counts, guesses)
        return sets

    def scores(self) -> pd.DataFrame:
        """Return the scores as a table.

        The columns are ``model``, ``test``, ``metric``, ``group``, ``mean``, ``low``, ``high``,
        ``clips``, ``films``, ``over`` and ``effective``; see `scores_table`.
        """
        return scores_table(self.model_scores)

    @property
    def models(self) -> list[str]:
        """The models that have predictions: the experiment's, in its order, and then others."""
        scored = self.predictions["model"].unique()
        known = dict.fromkeys([*self.header.models, *scored])
        return [name for name in known if name in scored]

    @property
    def by(self) -> str:
        """The column by which clips are grouped, such as "film"."""
        return self.header.grouped_by

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
        """A sentence saying that scores are not about new films; "" if tested films are new."""
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
        header = self.header
        return header.measure or header.score or header.tasks[-1].default_score()

    @property
    def saved(self) -> list[dict[str, Any]]:
        """A row of `fits` for each saved model, with its ``folder`` for `load_model`."""
        if self.folder is None:
            raise ExperimentError("the run is in memory. Use run.save(FOLDER), or run.fitted")
        rows: list[Any] = self.fits[self.fits["folder"] != ""].to_dict("records")
        return [row | {"folder": self.folder / row["folder"]} for row in rows]

    def __repr__(self) -> str:
        where = str(self.folder) if self.folder else "in memory"
        tasks = ", ".join(self.header.learned)
        return f"{self.limit} Run({where!r}, {tasks}: {', '.join(self.header.models)})".lstrip()

    def _read(self, name: str, types: dict[str, str], check: Any = None) -> pd.DataFrame:
        """Read a table; raise `ExperimentError` if it is missing, was changed, or is invalid."""
        path = f"{name}.csv"
        source: Any = io.StringIO(self.texts.get(path))
        if self.folder is not None:
            source = self.folder / path
            require_readable(source, ExperimentError)
            if not source.is_file() or sha256_of(source) != self.header.files.get(path):
                raise ExperimentError(
                    f"{source} is missing, or was changed after the run. Run the experiment "
                    f"again: {MAKE}"
                )
        try:
            table = read_csv(source, types)
            if check is not None:
                table = check(table)
            if name in ("predictions", "reasons") and not {*table["id"]} <= {*self.clips["id"]}:
                raise ValueError("it has clips that are not in clips.csv")
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as problem:
            raise ExperimentError(
                f"{source} is damaged ({one_line(problem)}). Run the experiment again: {MAKE}"
            ) from None
        return table

    def _check_predictions(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return a table of predictions with encoded labels; raise for invalid values."""
        target = self.header.tasks[-1].target
        codes = read_labels(table, self.header.tasks)
        values = table[target.columns_in(table.columns)].to_numpy()
        is_valid = target.takes_part(codes).all() and target.allows(values).all()
        if table.empty or not is_valid:
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
    table["level"] = table["id"].map(labels.level_of)
    table = table[table["level"].notna()].reset_index(drop=True)
    table["title"] = table["film"].map(film_titles(items))
    table["concepts"] = table["id"].map(labels.concepts_of).str.join(SEPARATOR)
    return table.reindex(columns=[*CLIPS, *extra])


def describe_unused(clips: pd.DataFrame) -> dict[str, str]:
    """Return how many clips lack a fold or features, or were not selected, with examples."""
    lacking = {}
    for reason in ("no-fold", "no-features", "not-selected"):
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


def not_saved(model: str, reason: str) -> RunWarning:
    """Return a warning that a model was not saved."""
    return RunWarning("not-saved", model, f"{model} was not saved: {reason}.")


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


def check_output(folder: Path, *, overwrite: bool) -> None:
    """Raise `OutputExists` unless a run can be written here. Only files of a run are replaced."""
    check_new_folder(folder, overwrite=overwrite, marker=HEADER)
    is_resumable(folder, HEADER, OURS.fullmatch)


def write_run(folder: Path, header: Header, texts: Mapping[str, str]) -> None:
    """Write the tables of a run, its scores, and then its header."""
    files = {}
    for name, text in texts.items():
        write_text(folder / name, text)
        files[name] = sha256_of(folder / name)
    header = msgspec.structs.replace(header, files=files)
    scores = Run(folder, header).scores()
    write_text(folder / "scores.csv", format_csv(scores))
    write_text(folder / HEADER, to_json(msgspec.to_builtins(header)))


def format_csv(table: pd.DataFrame) -> str:
    """Format a table as CSV, with missing values as empty cells."""
    return table.to_csv(index=False, lineterminator="\n")


def read_csv(source: Any, types: dict[str, str]) -> pd.DataFrame:
    """Read a table with columns of these types; other columns are strings."""
    texts = [name for name, dtype in types.items() if dtype in ("str", "category")]
    numbers = [*types.keys() - texts]
    table = pd.read_csv(
        source,
        dtype=defaultdict(lambda: "str", types | dict.fromkeys(texts, "str")),
        keep_default_na=False,
        na_values=dict.fromkeys(numbers, ""),
        lineterminator="\n",  # a carriage return is a part of a text
    )
    if table.drop(columns=numbers).isna().any(axis=None):
        raise ValueError("a row is too short")
    return table.astype(types)
