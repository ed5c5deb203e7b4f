"""Run an experiment: fit its estimators on its folds, and write the tables of the run.

Each model is saved as soon as it is fitted, and test clips are predicted with the saved model (or
the fitted one, if it cannot be saved). So a run that was killed resumes with the models that are
there, and writes the same bytes as if it had never been interrupted, except for ``started`` and
``seconds``.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from obygaze_features.common.files import (
    check_new_folder,
    new_folder,
    publish_folder,
    read_bytes,
    write_text,
)
from obygaze_features.common.plugins import one_line
from obygaze_features.common.progress import progress
from obygaze_features.common.resume import is_resumable, only_process
from obygaze_features.common.text import counted, redact_url
from obygaze_features.errors import ExperimentError, OutputExists, StoreUnreadable, translate
from obygaze_features.manifests.splits import overlapping
from obygaze_models.data.run_warning import RunWarning
from obygaze_models.data.stores import fingerprint
from obygaze_models.data.tasks import official_measure
from obygaze_models.estimators.registry import ESTIMATORS
from obygaze_models.experiments.experiment import Experiment
from obygaze_models.experiments.fit import (
    Fit,
    FitMemo,
    about_model,
    fit_planned,
    rows_of,
    tabulate_tests,
)
from obygaze_models.experiments.plan import Plan, PlannedFit, make_plan
from obygaze_models.experiments.reasons import join_reasons, tabulate_reasons
from obygaze_models.experiments.scores import split_by
from obygaze_models.experiments.tables import (
    FITS,
    HEADER,
    ManifestRecord,
    Run,
    Skipped,
    StoreRecord,
    load_run,
    write_run,
)
from obygaze_models.experiments.warnings import run_warnings
from obygaze_models.explain.attributions import attribute, bank_of
from obygaze_models.saved.model import ARRAYS, load_model, model_files
from obygaze_models.saved.model import HEADER as MODEL
from obygaze_models.scoring.metrics import Array

IDENTITY = "identity.txt"
"""The file with the digest of what the fits depend on; see `Plan.identity`."""
OURS = re.compile(
    r"(run\.json|identity\.txt|report\.html|(clips|fits|predictions|reasons|scores)\.csv)"
    r"|(models/[^/]+/)?[^/]+/model\.(json|safetensors)|\..*\.partial"
)
"""A pattern for the files of a run, and for those that a killed process leaves."""
OUTSIDE = {"id": "str", "model": "str", "task": "str", "fit": "Int64"}
"""The types of columns in tables of predictions of models from elsewhere."""
Log = Callable[[str], None]


class Results(msgspec.Struct):
    """The rows of the tables of a run, as they are computed."""

    predictions: list[pd.DataFrame] = []
    fits: list[dict[str, Any]] = []
    reasons: list[pd.DataFrame] = []
    skipped: list[Skipped] = []
    notes: list[RunWarning] = []
    leaked: set[str] = set()
    also_trained: set[str] = set()


def run_experiment(
    experiment: Experiment | str | Path,
    output: str | Path,
    *,
    overwrite: bool = False,
    log: Log = lambda _: None,
    memo: FitMemo | None = None,
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
    log
        A function that is called with lines about resuming.
    memo
        A cache to share fitted concept banks with other runs.
    """
    output = Path(output)
    clock = time.monotonic()
    started = datetime.now(UTC).isoformat(timespec="seconds")
    folder = output.with_name(f"{output.name}.partial")
    busy = OutputExists(f"another process is writing {output}. Wait, or choose another output")
    with only_process(output.with_name(f".{folder.name}.lock"), busy), threadpool_limits(1):
        check_new_folder(output, overwrite=overwrite, marker=HEADER)
        is_resumable(output, HEADER, OURS.fullmatch)  # raises if it has other files
        plan = make_plan(experiment)
        _begin(folder, plan.identity(), log, restart=overwrite)
        try:
            results = _compute(plan, folder, memo or FitMemo())
        except KeyboardInterrupt:
            log(f"Fits are kept in {folder}. To resume, delete any old run and do not overwrite.")
            raise
        tables = {
            "clips": plan.clips.assign(leaked=plan.clips["id"].isin(results.leaked)),
            "fits": pd.DataFrame(results.fits, columns=[*FITS]),
            "predictions": pd.concat(results.predictions, ignore_index=True),
        }
        if results.reasons:
            tables["reasons"] = join_reasons(results.reasons)
        header = _header(plan, results, tables)
        seconds = round(time.monotonic() - clock, 1)
        write_run(folder, tables, header | {"started": started, "seconds": seconds})
        if output.exists():
            with new_folder(output, overwrite=True, marker=HEADER, allow_missing=True) as new:
                new.rmdir()
                folder.rename(new)
        else:
            publish_folder(folder, output)
    return load_run(output)


def _begin(folder: Path, identity: str, log: Log, *, restart: bool) -> None:
    """Keep the models of an interrupted run with the same identity; otherwise start again."""
    if is_resumable(folder, IDENTITY, OURS.fullmatch):
        if (folder / IDENTITY).read_text() == identity and not restart:
            fits = len([*folder.glob(f"models/*/*/{MODEL}")])
            log(f"Resuming: {counted(fits, 'finished fit')} in {folder}.")
            return
        log(f"Starting again: {folder} has other settings, data or versions, or is overwritten.")
    with new_folder(folder, overwrite=True, marker=IDENTITY, allow_missing=True) as new:
        write_text(new / IDENTITY, identity)


def _compute(plan: Plan, folder: Path, memo: FitMemo) -> Results:
    """Compute or load the fits and test them; record why some are skipped."""
    results = Results()
    total = sum(1 for _ in plan.fits())
    for planned in progress(plan.fits(), "train", unit="fit", total=total):
        fold = planned.fold
        lacks = list(planned.skips)
        if fold.tests:
            try:
                fit, not_saved = _fit(plan, planned, folder / planned.place, memo)
                outputs = fit.predict(plan.data, fold.test_rows)
            except (ExperimentError, ValueError) as reason:  # scikit-learn raises ValueError
                lacks.append(one_line(reason))
            else:
                _add_rows(plan, planned, fit, not_saved, outputs, results)
        what = f"{planned.model} ({fold.name})"
        for why in lacks:
            results.skipped.append(Skipped(planned.task.key, fold.index, what, why))

    for path in plan.experiment.predictions:
        results.predictions += _outside(plan, Path(path))
    if not results.predictions:
        shutil.rmtree(folder)
        skip = results.skipped[-1]
        raise ExperimentError(f"no model could be trained and tested: {skip.what}: {skip.why}")
    return results


def _add_rows(
    plan: Plan,
    planned: PlannedFit,
    fit: Fit,
    not_saved: str,
    outputs: Array,
    results: Results,
) -> None:
    """Add the rows of a tested fit to the results."""
    task = planned.task
    fold = planned.fold
    learner = planned.learner
    data = plan.data
    about = fit.about
    ids = data.ids_at(fold.test_rows)
    results.predictions += tabulate_tests(plan, planned.problem, planned.model, fold, outputs)
    X = data.X[fold.test_rows]
    if bank_of(fit.estimator) is not None:
        attribution = attribute(fit.estimator, X, classes=task.class_keys, cut=about.cut)
        if attribution is not None:
            labels = np.where(X.any(axis=1), attribution.labels, "").tolist()
            reasons = tabulate_reasons(ids, labels, attribution)
            named = reasons.assign(model=planned.model, task=task.key, fit=fold.index)
            results.reasons.append(named)

    used = np.union1d(rows_of(plan, planned).seen, fold.validation)
    leaked = overlapping(plan.manifest.items, ids, data.ids_at(used))
    results.leaked.update(leaked)
    shared = np.intersect1d(data.groups[fold.test_rows], data.groups[fold.train])
    results.also_trained.update(shared.tolist())
    for note in about.notes:
        if learner.name not in ESTIMATORS:  # built-in estimators have their notes in facts
            text = f"{planned.model}: {note.text}"
            results.notes.append(RunWarning(note.code, planned.model, text))
    classes = plan.labels_of[task]
    trained = task.target.count(task, classes[fold.train])
    validated = task.target.count(task, classes[fold.validation])
    results.fits.append(
        {
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
            "estimator": learner.name,
            "reads": about.reads,
            "folder": "" if not_saved else planned.place,
            "not_saved": not_saved,
            "cut": about.cut if learner.threshold else None,
            "facts": json.dumps(about.facts),
        }
    )


def _outside(plan: Plan, path: Path) -> Iterator[pd.DataFrame]:
    """Read predictions from a table; yield a table for each problem, model, fold and test set.

    ==================  =====================================================================
    ``id``              the clip
    ``probability``     of the positive class; for more classes, ``probability_KEY`` for each
    ``value``           for numbers, instead of probabilities
    ``fit``             the fold, numbered as in ``predictions.csv``; by default all folds
    ``model``           the name in the results; by default the file's name without .csv
    ``task``            as in ``run.json``; required if an experiment learns several tasks
    ==================  =====================================================================
    """
    with translate(ExperimentError, path, "cannot be read: {}", foreign=(OSError, ValueError)):
        outside = pd.read_csv(path, dtype=OUTSIDE, keep_default_na=False, na_values={"fit": [""]})
    outside = pd.DataFrame({"model": path.stem, **outside})
    if "task" not in outside and len(plan.problems) > 1:
        raise ExperimentError(f"{path} needs the column task: the experiment has several tasks")
    for problem, (model, table) in product(plan.problems, split_by(outside, "model").items()):
        if model in plan.experiment.learners:
            raise ExperimentError(f"{path}: an estimator is already named {model!r}. Rename one")
        task = problem.train
        if "task" in table:
            table = table[table["task"].isin([task.key, ""])]
        columns = task.target.columns(task.class_keys)
        by_fit = "fit" in table and table["fit"].notna().any()
        folds = list(plan.folds(problem, validate=False))
        if by_fit and table["fit"].nunique() > len(folds):
            folds = list(plan.folds(problem, validate=True))
        for fold in folds:
            fold, _ = plan.usable(problem, fold, validate=False)
            part = table[table["fit"] == fold.index] if by_fit else table
            ids = plan.data.ids_at(fold.test_rows)
            try:
                if part["id"].duplicated().any():
                    raise ValueError("an id is listed twice")
                values = part.set_index("id").loc[ids, columns].to_numpy(dtype=np.float64)
            except (KeyError, ValueError) as reason:
                raise ExperimentError(
                    f"{path}: {model} in fit {fold.index}: {one_line(reason)}. A table needs the "
                    f"columns id and {', '.join(columns)}, and a row for each test clip"
                ) from None
            if not task.target.allows(values).all():
                raise ExperimentError(
                    f"{path}: {model} has values that are not from 0 to 1 (for numbers: not finite)"
                )
            outputs = task.target.from_columns(values)
            yield from tabulate_tests(plan, problem, model, fold, outputs)


def _fit(plan: Plan, planned: PlannedFit, place: Path, memo: FitMemo) -> tuple[Fit, str]:
    """Load a fit or compute and save it; also return why it was not saved, or ""."""
    if (place / MODEL).is_file():
        for name in (MODEL, ARRAYS):
            read_bytes(place / name, StoreUnreadable)  # a failing disk is no damage
        try:
            return Fit(*load_model(place)), ""
        except ExperimentError:
            shutil.rmtree(place)  # it is damaged, so the fit is repeated
    fit = fit_planned(plan, planned, memo)
    beside = place.with_name(f".{place.name}.partial")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        files = model_files(fit.estimator, about_model(plan, planned, fit.about))
        beside.mkdir(parents=True)
        for name, data in files.items():
            (beside / name).write_bytes(data)
        beside.rename(place)  # the finished run is flushed as a whole
        return Fit(*load_model(place)), ""
    except ExperimentError as reason:
        shutil.rmtree(place, ignore_errors=True)
        return fit, str(reason)


def _header(plan: Plan, results: Results, tables: dict[str, pd.DataFrame]) -> dict[str, Any]:
    """Return the content of ``run.json``, without its times and the tables' digests."""
    manifest = plan.manifest
    store = plan.experiment.store
    redacted = redact_url(store) if isinstance(store, str) else tuple(map(redact_url, store))
    tested = {*tables["predictions"]["test"]}
    learned = []
    for problem in plan.problems:
        if tested & {test.key for test in problem.tests}:
            learned.append(problem.train.key)
    return {
        "experiment": msgspec.structs.replace(plan.experiment, store=redacted),
        "manifest": ManifestRecord(
            name=manifest.name,
            version=manifest.version,
            digest=manifest.digest,
            labels=plan.labels.name,
            levels=plan.scheme.name_of,
            senses=plan.scheme.senses,
            licence=manifest.licence,
            citation=manifest.citation,
        ),
        "store": StoreRecord(
            name=plan.store.attributes["name"],
            fingerprint=fingerprint(plan.store),
        ),
        "features": plan.features(),
        "protocol": plan.division.protocol,
        "split": plan.division.split,
        "balance": plan.balance,
        "measure": official_measure(plan.labels, plan.scheme, plan.tests) or "",
        "tasks": plan.tasks,
        "learned": learned,
        "also_trained": len(results.also_trained - {""}),
        "skipped": results.skipped,
        "warnings": run_warnings(plan, tables, results.skipped, results.notes),
        "versions": plan.versions(),
    }
