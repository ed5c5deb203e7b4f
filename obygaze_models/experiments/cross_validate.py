"""Cross-validation of models on a dataset: the loop of every run.

With a folder, each model is saved as soon as it is fitted, and test clips are predicted with the
saved model (or the fitted one, if it cannot be saved). So a run that was killed resumes with the
models that are there, and writes the same bytes as if it had never been interrupted, except for
``started`` and ``seconds``.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

import joblib
import msgspec
import numpy as np
import pandas as pd
from sklearn.utils import check_consistent_length
from threadpoolctl import threadpool_limits

from obygaze_features.common.arrays import Array
from obygaze_features.common.files import (
    new_folder,
    publish_folder,
    read_bytes,
    write_text,
)
from obygaze_features.common.formatting import counted
from obygaze_features.common.plugins import one_line
from obygaze_features.common.progress import progress
from obygaze_features.common.resume import is_resumable, only_process
from obygaze_features.errors import ExperimentError, OutputExists, StoreUnreadable
from obygaze_features.manifests.splits import overlapping
from obygaze_models.data.dataset import ClipDataset
from obygaze_models.data.folds import Fold
from obygaze_models.data.run_warning import RunWarning
from obygaze_models.data.splitters import PROTOCOLS, AnySplitter, LeaveFilmOut, Splitter
from obygaze_models.data.tasks import Task, official_measure
from obygaze_models.estimators.registry import ESTIMATORS
from obygaze_models.experiments.fit import fit_fold, predict_rows, read_input, rows_of
from obygaze_models.experiments.learner import Learner
from obygaze_models.experiments.plan import Plan, PlannedFit
from obygaze_models.experiments.warnings import run_warnings
from obygaze_models.explain.attributions import attribute, bank_of
from obygaze_models.results.reasons import join_reasons, tabulate_reasons
from obygaze_models.results.run import (
    FITS,
    OURS,
    Header,
    ManifestRecord,
    Run,
    Skipped,
    StoreRecord,
    check_output,
    format_csv,
    load_run,
    write_run,
)
from obygaze_models.saved.model import ARRAYS, Model, load_model, write_model
from obygaze_models.saved.model import HEADER as MODEL

IDENTITY = "identity.txt"
"""The file with the digest of what the fits depend on; see `Plan.identity`."""


@dataclass(frozen=True, eq=False)
class TestedFit:
    """What a tested fit adds to a run. `model` is None if the run has a folder."""

    row: dict[str, Any]
    predictions: list[pd.DataFrame]
    reasons: list[pd.DataFrame]
    leaked: list[str]
    also_trained: list[str]
    notes: list[RunWarning]
    model: Model | None


def cross_validate(
    models: Mapping[str, Any] | Any,
    data: ClipDataset,
    *,
    cv: Any = None,
    tests: Mapping[str, Array] | None = None,
    seeds: Sequence[int] = (),
    name: str = "run",
    output: str | Path | None = None,
    overwrite: bool = False,
    n_jobs: int = 1,
) -> Run:
    """Fit each model on each fold of each task, and predict the clips that each fold tests.

    Parameters
    ----------
    models
        An estimator, or several by name: classifiers, regressors, pipelines or searches. A
        `Learner` says more about how an estimator is used.
    data
        The clips, from `load_dataset` or `dataset`.
    cv
        A splitter of obygaze or of scikit-learn, or a number of folds. The default is
        `LeaveFilmOut`. Splitters of scikit-learn leave no clips for validation.
    tests
        The labels of test sets by name, for a single task: class numbers as in ``data.y``, and -1
        for clips that are left out. By default, the clips of the task itself are tested.
    seeds
        The seeds of repeated cross-validation, by default the splitter's.
    name
        The name of the run.
    output
        A folder for the run and its models. If it is interrupted, the same call resumes it.
    overwrite
        Replace an earlier run at `output`.
    n_jobs
        The number of processes, as in scikit-learn.

    Examples
    --------
    >>> import numpy as np, obygaze_models as om
    >>> from sklearn.linear_model import LogisticRegression
    >>> y = np.tile(["calm", "tense"], 60)
    >>> X = np.random.default_rng(0).normal(size=(120, 4)) + (y == "tense")[:, None]
    >>> films = np.repeat(["a", "b", "c", "d", "e", "f"], 20)
    >>> run = cross_validate(LogisticRegression(), om.dataset(X, y, films))
    >>> aurocs = run.scores().query("metric == 'auroc' and group == '' and over == 'within'")
    >>> round(aurocs["mean"].item(), 1)
    0.8
    """
    if not isinstance(data, ClipDataset):
        raise ExperimentError("data is not a dataset. Pass om.dataset(X, y, groups)")
    if not isinstance(models, Mapping):
        models = {"": models}
    learners = {}
    for model, learner in models.items():
        if not isinstance(learner, Learner):
            learner = Learner(learner)
        learners[model or type(learner.estimator).__name__] = learner
    if not isinstance(cv, Splitter):
        cv = LeaveFilmOut() if cv is None else AnySplitter(cv=cv)
    if not data.labels:
        raise ExperimentError(
            "the dataset has no task. Pass positives and negatives, levels or a concept to "
            "om.load_dataset"
        )
    tasks = {task: [task] for task in data.labels}
    if tests:
        labels = _label_tests(data, tests)
        tasks = {task: [*labels] for task in data.labels}
        data = replace(data, labels={**data.labels, **labels})
    protocols = {splitter_class: key for key, splitter_class in PROTOCOLS.items()}
    plan = Plan(
        name=name,
        models=learners,
        data=data,
        tasks=tasks,
        cv=cv,
        protocol=protocols.get(type(cv), repr(cv)),
        seeds=seeds,
        fold_of=dict(zip(data.ids, data.folds.tolist(), strict=True)),
        options={"cv": repr(cv)},
    )
    if output is None:
        return compute_run(plan, n_jobs=n_jobs)
    return keep_run(plan, output, overwrite=overwrite, n_jobs=n_jobs)


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _label_tests(data: ClipDataset, tests: Mapping[str, Array]) -> dict[Task, Array]:
    """Return the labels of the test sets of a dataset's only task."""
    [task] = data.labels
    if task.key in tests:
        raise ExperimentError(f"a test set is called {task.key}, like the task. Rename it")
    labels = {}
    for key, codes in tests.items():
        check_consistent_length(codes, data.ids)
        labels[msgspec.structs.replace(task, key=key, title=key)] = np.asarray(codes)
    return labels


def compute_run(
    plan: Plan,
    folder: Path | None = None,
    *,
    n_jobs: int = 1,
) -> Run:
    """Make the fits of a plan and test them; return the run in memory.

    Models are saved in the folder, or kept in memory if there is none.
    """
    clock = time.monotonic()
    started = datetime.now(UTC).isoformat(timespec="seconds")
    total = plan.check_fits()
    make = joblib.delayed(partial(make_fit, plan, folder))
    work = joblib.Parallel(n_jobs=n_jobs, return_as="generator")(map(make, plan.fits()))
    tested = []
    skipped = []
    for fits, skips in progress(work, "train", unit="fit", total=total):
        tested += fits
        skipped += skips
    predictions = [*_joined(tested, "predictions"), *plan.outside(plan)]
    if not predictions:
        reason = "no fold can be tested"
        if skipped:
            reason = f"{skipped[-1].what}: {skipped[-1].why}"
        raise ExperimentError(f"no model could be trained and tested: {reason}")

    leaked = plan.clips["id"].isin(_joined(tested, "leaked"))
    tables = {
        "clips": plan.clips.assign(leaked=leaked),
        "fits": pd.DataFrame([*map(attrgetter("row"), tested)], columns=[*FITS]),
        "predictions": pd.concat(predictions, ignore_index=True),
    }
    reasons = _joined(tested, "reasons")
    if reasons:
        tables["reasons"] = join_reasons(reasons)
    facts = _facts(plan, tables, tested, skipped)
    seconds = round(time.monotonic() - clock, 1)
    texts = {f"{name}.csv": format_csv(table) for name, table in tables.items()}
    files = dict.fromkeys(texts, "")  # digests are for files
    header = Header(**facts, started=started, seconds=seconds, files=files)
    models = {fit.row["folder"]: fit.model for fit in tested if fit.model is not None}
    return Run(None, header, texts, models)


def _joined(tested: Sequence[TestedFit], name: str) -> list[Any]:
    """Return what all tested fits add to a part of a run."""
    return [*chain.from_iterable(map(attrgetter(name), tested))]


def make_fit(
    plan: Plan,
    folder: Path | None,
    planned: PlannedFit,
) -> tuple[list[TestedFit], list[Skipped]]:
    """Compute or load a fit and test it; also return what was skipped, and why."""
    fold = planned.fold
    what = f"{planned.model} ({fold.name})"
    reasons = [*planned.skips]
    tested = []
    if fold.tests:
        try:
            with threadpool_limits(1):
                model, not_saved = _keep(plan, planned, folder)
                tested = [_test(plan, planned, model, not_saved, kept=folder is None)]
        except (ExperimentError, ValueError) as reason:  # scikit-learn raises ValueError
            reasons.append(one_line(reason))
            if not plan.settings:  # estimator objects
                raise ExperimentError(f"{what} cannot be trained: {reasons[-1]}") from None
    skip = partial(Skipped, planned.task.key, fold.index, planned.model, what)
    return tested, [*map(skip, reasons)]


def _keep(plan: Plan, planned: PlannedFit, folder: Path | None) -> tuple[Model, str]:
    """Load a fit or compute and save it; also return why it was not saved, or ""."""
    arguments = plan.data, planned.task, planned.learner, planned.fold
    fit = partial(fit_fold, *arguments, name=planned.model)
    if folder is None:
        return fit(), ""
    place = folder / planned.place
    if (place / MODEL).is_file():
        for name in (MODEL, ARRAYS):
            read_bytes(place / name, StoreUnreadable)  # a failing disk is no damage
        try:
            return load_model(place), ""
        except ExperimentError:
            shutil.rmtree(place)  # it is damaged, so the fit is repeated
    model = fit()
    beside = place.with_name(f".{place.name}.partial")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        write_model(model, beside)
        beside.rename(place)  # the finished run is flushed as a whole
        return load_model(place), ""
    except ExperimentError as reason:
        shutil.rmtree(place, ignore_errors=True)
        return model, str(reason)


def _test(
    plan: Plan,
    planned: PlannedFit,
    model: Model,
    not_saved: str,
    *,
    kept: bool,
) -> TestedFit:
    """Predict the test clips of a fit; return its rows of the run's tables."""
    data = plan.data
    task = planned.task
    fold = planned.fold
    about = model.about
    outputs = predict_rows(model, data, fold.test_rows)
    ids = data.ids_at(fold.test_rows)
    reasons = []
    if bank_of(model.estimator) is not None:
        X = read_input(data, about.reads, fold.test_rows)
        attribution = attribute(model, X, classes=task.class_keys)
        if attribution is not None:
            labels = np.where(X.any(axis=1), attribution.labels, "").tolist()
            table = tabulate_reasons(ids, labels, attribution)
            reasons.append(table.assign(model=planned.model, task=task.key, fit=fold.index))

    rows = rows_of(data, task, planned.learner, fold)
    used = np.union1d(rows.seen, fold.validation)
    leaked = overlapping(data.record.manifest.items, ids, data.ids_at(used))
    shared = np.intersect1d(data.groups[fold.test_rows], data.groups[fold.train])
    notes = []
    for note in about.notes:
        # Built-in estimators have their other notes in facts.
        if note.code == "loss" or planned.learner.name not in ESTIMATORS:
            notes.append(RunWarning(note.code, planned.model, f"{planned.model}: {note.text}"))
    classes = data.labels[task]
    trained = task.count(classes[fold.train])
    validated = task.count(classes[fold.validation])
    row = {
        "model": planned.model,
        "task": task.key,
        "fit": fold.index,
        "name": fold.name,
        "seed": fold.seed,
        "trained": trained.clips,
        "validated": validated.clips,
        "drawn_from": fold.drawn_from,
        "leaked": len(leaked),
        "train_classes": json.dumps(trained.classes),
        "validation_classes": json.dumps(validated.classes),
        "estimator": planned.learner.name,
        "reads": about.reads,
        "folder": "" if not_saved else planned.place,
        "not_saved": not_saved,
        "cut": about.cut if planned.learner.threshold else None,
        "facts": json.dumps(about.facts),
    }
    tables = tabulate_tests(data, plan.tasks[task], planned.model, fold, outputs)
    return TestedFit(row, tables, reasons, leaked, shared.tolist(), notes, model if kept else None)


def tabulate_tests(
    data: ClipDataset,
    tests: Sequence[Task],
    model: str,
    fold: Fold,
    outputs: Array,
) -> list[pd.DataFrame]:
    """Return a table of predictions for each test set that can be scored.

    `outputs` are class probabilities [test rows, classes], or numbers [test rows, 1]. Labels are as
    in ``predictions.csv``. `read_labels` converts them to numbers.
    """
    tables = []
    for test in tests:
        if test.key in fold.tests:
            rows = fold.tests[test.key]
            target = test.target
            columns = {
                "id": data.ids_at(rows),
                "model": model,
                "fit": fold.index,
                "test": test.key,
                "label": test.format_labels(data.labels[test][rows]),
            }
            shares = target.to_columns(outputs[np.searchsorted(fold.test_rows, rows)])
            columns |= zip(target.columns(test.class_keys), shares.T, strict=True)
            tables.append(pd.DataFrame(columns))
    return tables


def _facts(
    plan: Plan,
    tables: Mapping[str, pd.DataFrame],
    tested: Sequence[TestedFit],
    skipped: list[Skipped],
) -> dict[str, Any]:
    """Return the content of ``run.json``, without its times and the tables' digests."""
    record = plan.data.record
    manifest = record.manifest
    scheme = plan.data.scheme
    scored = {*tables["predictions"]["test"]}
    learned = []
    for task, tests in plan.tasks.items():
        if scored & {test.key for test in tests}:
            learned.append(task.key)
    source = ManifestRecord(
        name=manifest.name,
        version=manifest.version,
        digest=manifest.digest,
        labels=record.label_set.name,
        levels=scheme.name_of,
        senses=scheme.senses,
        people={labels.name: labels.display_name for labels in record.annotators},
        licence=manifest.licence,
        citation=manifest.citation,
    )
    also_trained = {*_joined(tested, "also_trained")} - {""}
    return {
        "name": plan.name,
        "models": [*plan.models],
        "grouped_by": plan.data.grouped_by,
        "options": plan.options,
        "settings": plan.settings,
        "score": plan.score,
        "manifest": source,
        "store": StoreRecord(name=record.attributes["name"], fingerprint=record.fingerprint()),
        "features": record.features(),
        "protocol": plan.protocol,
        "split": plan.split,
        "balance": plan.balance,
        "measure": official_measure(record.label_set, scheme, plan.tests) or "",
        "tasks": [*plan.data.labels],
        "learned": learned,
        "also_trained": len(also_trained),
        "skipped": skipped,
        "warnings": run_warnings(plan, tables, skipped, _joined(tested, "notes")),
        "versions": plan.versions(),
    }


def keep_run(
    plan: Plan,
    output: str | Path,
    *,
    overwrite: bool,
    n_jobs: int = 1,
) -> Run:
    """Make the fits of a plan, and write a run folder; resume if it was interrupted."""
    output = Path(output)
    folder = output.with_name(f"{output.name}.partial")
    busy = OutputExists(f"another process is writing {output}. Wait, or choose another output")
    with only_process(output.with_name(f".{folder.name}.lock"), busy):
        check_output(output, overwrite=overwrite)
        _begin(folder, plan.identity(), restart=overwrite)
        try:
            run = compute_run(plan, folder, n_jobs=n_jobs)
        except KeyboardInterrupt:
            _tell(
                f"Finished fits are kept in {folder}. To resume, run this again without "
                f"overwrite (delete {output} first, if it exists)."
            )
            raise
        except ExperimentError:
            if not [*folder.glob(f"models/*/*/{MODEL}")]:
                shutil.rmtree(folder)
            raise
        write_run(folder, run.header, run.texts)
        publish_folder(folder, output, overwrite=overwrite)
    return load_run(output)


def _begin(folder: Path, identity: str, *, restart: bool) -> None:
    """Keep the models of an interrupted run with the same identity; otherwise start again."""
    if is_resumable(folder, IDENTITY, OURS.fullmatch):
        if (folder / IDENTITY).read_text() == identity and not restart:
            fits = len([*folder.glob(f"models/*/*/{MODEL}")])
            _tell(f"Resuming: {counted(fits, 'finished fit')} in {folder}.")
            return
        _tell(f"Starting again: {folder} has other settings, data or versions, or is overwritten.")
    with new_folder(folder, overwrite=True, marker=IDENTITY, allow_missing=True) as new:
        write_text(new / IDENTITY, identity)
