"""Run an experiment: read its files, divide its clips, and cross-validate its models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from obygaze_features.common.formatting import counted
from obygaze_features.common.names import unknown_name
from obygaze_features.common.plugins import one_line
from obygaze_features.common.redaction import redact_url
from obygaze_features.errors import ExperimentError, translate
from obygaze_features.items.items import group_noun
from obygaze_features.manifests import Manifest, Split, stratified
from obygaze_features.manifests.folds import whole_groups
from obygaze_features.manifests.splits import cut_files, describe_neighbours
from obygaze_models.data.dataset import join_clips, with_frames, with_numbers
from obygaze_models.data.splitters import Splitter
from obygaze_models.data.stores import open_stores
from obygaze_models.data.tasks import Task
from obygaze_models.estimators.classes import check_frames
from obygaze_models.experiments.cross_validate import keep_run, tabulate_tests
from obygaze_models.experiments.experiment import Experiment, find_protocol, load_experiment
from obygaze_models.experiments.plan import Plan, Tasks
from obygaze_models.results.run import Run
from obygaze_models.results.scores import split_by
from obygaze_models.scoring.metrics import METRICS, column_titles

CLIPS = "clips"
"""The value of `split` for new folds of clips, which mix films."""
N_FOLDS = 10
"""The number of new folds of clips."""
MIN_FOLDS = 3
"""One for each of training, validation and testing."""
OUTSIDE = {"id": "str", "model": "str", "task": "str", "fit": "Int64"}
"""The types of columns in tables of predictions of models from elsewhere."""


def run_experiment(
    experiment: Experiment | str | Path,
    output: str | Path,
    *,
    overwrite: bool = False,
) -> Run:
    """Train and test the models of an experiment, and write a run folder.

    Models are kept in ``OUTPUT.partial`` until the run is complete, so the same call without
    `overwrite` resumes a run that was killed. If the experiment, its data, or the version of
    Python, a main package or a plug-in has changed, the run starts again.

    Parameters
    ----------
    experiment
        An `Experiment`, or the path of its TOML file.
    output
        The run folder. It appears only when it is complete.
    overwrite
        Replace an earlier run at `output`, and discard the fits of an interrupted one.
    """
    plan = make_plan(experiment)
    return keep_run(plan, output, overwrite=overwrite)


def make_plan(experiment: Experiment | str | Path) -> Plan:
    """Read an experiment's manifest and stores; return the arguments of its run."""
    experiment = experiment if isinstance(experiment, Experiment) else load_experiment(experiment)
    manifest = Manifest.load(experiment.check().manifest)
    if experiment.column:
        manifest = with_numbers(manifest, experiment.column)
    tasks = experiment.tasks(manifest.label_scheme(experiment.labels))
    columns = column_titles(next(iter(tasks)).use)
    ranking = [key for key in columns if not METRICS[key].lower_is_better]
    if experiment.score and experiment.score not in ranking:
        raise ExperimentError(unknown_name("score", experiment.score, ranking))
    models = experiment.models()
    splitter_class = find_protocol(experiment.protocol_name)
    if hasattr(splitter_class, "divide"):
        division = splitter_class.divide(experiment.splitter, experiment.split, manifest, tasks)
    else:
        division = divide(experiment, manifest, tasks)
    stores = open_stores(experiment.store)
    data = join_clips(
        manifest,
        stores,
        dict.fromkeys(each for task, tests in tasks.items() for each in (task, *tests)),
        labels=experiment.labels,
        array=experiment.array,
        fold_of=division["fold_of"],
        among=division["among"],
        groups=experiment.groups or "film",
    )
    if any(learner.reads == "frames" for learner in models.values()):
        data = with_frames(data, stores, experiment.frames)
    if data.frames is not None:
        check_frames(data.frames, data.ids)
    store = experiment.store
    store = redact_url(store) if isinstance(store, str) else tuple(map(redact_url, store))
    return Plan(
        name=experiment.name,
        models=models,
        data=data,
        tasks=tasks,
        protocol=experiment.protocol_name,
        seeds=experiment.seeds,
        score=experiment.score or "",
        outside=partial(_outside, experiment.predictions),
        options=experiment.protocol_options,
        settings=msgspec.to_builtins(msgspec.structs.replace(experiment, store=store)),
        **division,
    )


def divide(experiment: Experiment, manifest: Manifest, tasks: Tasks) -> dict[str, Any]:
    """Return the splitter of an experiment, and the folds and the clips that it uses."""
    cv = experiment.splitter()
    if cv.divides == "groups":
        films = manifest.items.groups(experiment.groups or "film", manifest.ids)
        numbers = np.unique(films, return_inverse=True)[1]
        among = None
        if experiment.split:
            among = frozenset(manifest.split(experiment.split).ids)
        return {
            "cv": cv,
            "split": experiment.split or "",
            "fold_of": dict(zip(manifest.ids, numbers.tolist(), strict=True)),
            "among": among,
        }
    if cv.divides == "clips" and not experiment.split:
        return {"cv": cv, "fold_of": {}, "among": None}
    split = _find_split(experiment, manifest, cv)
    least = 2 if cv.own_sets else MIN_FOLDS
    if len(split.sizes) < least or 0 in split.sizes:
        sizes = ", ".join(map(str, split.sizes))
        raise ExperimentError(
            f"the protocol {experiment.protocol_name} needs {least} or more folds, all with clips, "
            f"but {split.name!r} has folds of {sizes} clips. Use another split (see obygaze "
            "manifests split)"
        )
    near = ""
    if split.name not in manifest.split_names and not experiment.gap:
        near = describe_neighbours(manifest.items, split)
    return {
        "cv": cv,
        "split": split.name,
        "fold_of": split.fold_of,
        "among": frozenset(split.ids),
        "neighbours": near,
    }


def _find_split(experiment: Experiment, manifest: Manifest, cv: Splitter) -> Split:
    """Return the experiment's split, the manifest's only split, or new folds.

    The only split counts if it keeps films (or other groups) whole. New folds are of whole groups
    or, without any, of clips or (with a gap) of stretches of files.
    """
    names = manifest.split_names
    name = experiment.split
    column = ""
    if name != CLIPS:
        column = _grouping(experiment, manifest)
    if name and (name != CLIPS or CLIPS in names):
        return manifest.split(name)
    if cv.own_sets and not name:
        raise ExperimentError(
            "the official protocol uses a benchmark's own sets. Name their split, such as "
            f'"official" (splits of {manifest.name}: {", ".join(names) or "none"})'
        )
    if name is None and len(names) > 1:
        raise ExperimentError(
            f"{manifest.name} has several splits: {', '.join(names)}. Name one in the experiment "
            '(split = "NAME"), or draw new folds (split = "")'
        )
    if name is None and names:
        only = manifest.split(names[0])
        groups = manifest.items.groups(column, only.ids) if column else only.ids
        if len({*zip(groups, only.folds, strict=True)}) == len({*groups}):
            return only

    labels = experiment.labels
    seed = experiment.seed
    if column:
        drawn = whole_groups(manifest, groups=column, labels=labels, seed=seed)
        count = len(drawn.sizes)
        if count < MIN_FOLDS:
            noun = group_noun(column)
            raise ExperimentError(
                f"{counted(count, noun)}: training, validation and testing need one {noun} each. "
                f'For folds of clips, which mix {noun}s, set split = "{CLIPS}"'
            )
        return replace(drawn, name=f"{count} folds by {column}, seed {seed}")

    gap = experiment.gap
    count = len({*cut_files(manifest.items, manifest.labels(labels).ids, gap)})
    folds = min(N_FOLDS, count)
    method = "stratified"
    if gap:  # two stretches per fold if possible: levels rarely change
        folds = min(folds, max(MIN_FOLDS, count // 2))
        method = "stretches of files"
    title = f"{method}, {folds} folds, seed {seed}"
    return stratified(manifest, folds=folds, seed=seed, name=title, labels=labels, gap=gap)


def _grouping(experiment: Experiment, manifest: Manifest) -> str:
    """Return the column of groups that drawn folds keep whole; "" if clips have no films."""
    if experiment.groups:
        return experiment.groups
    items = manifest.items
    labelled = manifest.labels(experiment.labels).ids
    has_films = any(items.films[row] for row in items.find(labelled))
    return "film" if has_films else ""


def _outside(paths: Sequence[str], plan: Plan) -> Iterator[pd.DataFrame]:
    """Read tables of predictions; yield a table for each task, model, fold and test set.

    ==================  =====================================================================
    ``id``              the clip
    ``probability``     of the positive class; for more classes, ``probability_KEY`` for each
    ``value``           for numbers, instead of probabilities
    ``fit``             the fold, numbered as in ``predictions.csv``; by default all folds
    ``model``           the name in the results; by default the file's name without .csv
    ``task``            as in ``run.json``; required if an experiment learns several tasks
    ==================  =====================================================================
    """
    for path in map(Path, paths):
        with translate(ExperimentError, path, "cannot be read: {}", foreign=(OSError, ValueError)):
            outside = pd.read_csv(
                path, dtype=OUTSIDE, keep_default_na=False, na_values={"fit": [""]}
            )
        if "task" not in outside and len(plan.tasks) > 1:
            raise ExperimentError(f"{path} needs the column task: the experiment has several tasks")
        outside = pd.DataFrame({"model": path.stem, "task": "", "fit": None, **outside})
        for model, table in split_by(outside, "model").items():
            if model in plan.models:
                raise ExperimentError(
                    f"{path}: an estimator is already named {model!r}. Rename one"
                )
            for task in plan.tasks:
                of_task = table[table["task"].isin([task.key, ""])]
                yield from _predicted(plan, task, f"{path}: {model}", model, of_task)


def _predicted(
    plan: Plan,
    task: Task,
    where: str,
    model: str,
    table: pd.DataFrame,
) -> Iterator[pd.DataFrame]:
    """Yield a table of the predictions of a model from elsewhere for each fold and test set."""
    columns = task.target.columns(task.class_keys)
    for fold in plan.folds(task, validate=False):
        fold, _ = plan.usable(task, fold, validate=False)
        part = table[table["fit"].isna() | (table["fit"] == fold.index)]
        ids = plan.data.ids_at(fold.test_rows)
        try:
            if part["id"].duplicated().any():
                raise ValueError("an id is listed twice")
            values = part.set_index("id").loc[ids, columns].to_numpy(dtype=np.float64)
        except (KeyError, ValueError) as reason:
            raise ExperimentError(
                f"{where} in fit {fold.index}: {one_line(reason)}. A table needs the columns id "
                f"and {', '.join(columns)}, and a row for each test clip"
            ) from None
        if not task.target.allows(values).all():
            raise ExperimentError(
                f"{where}: probabilities must be from 0 to 1, and numbers finite. Correct the table"
            )
        outputs = task.target.from_columns(values)
        yield from tabulate_tests(plan.data, plan.tasks[task], model, fold, outputs)
