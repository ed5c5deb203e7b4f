"""Run an experiment, and write its folder (see `run_folder`).

The same experiment on the same machine writes the same bytes, but for ``started`` and
``seconds`` in ``run.json``; also if it was interrupted and resumed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from obygaze_features.common.files import new_folder, sha256_of, write_text
from obygaze_features.common.text import counted
from obygaze_features.errors import ExperimentError, OutputExists
from obygaze_features.manifests import Manifest
from obygaze_models.data.dataset import ClipDataset
from obygaze_models.data.protocols import Fold
from obygaze_models.data.stores import open_stores
from obygaze_models.data.tasks import Task, levels_of
from obygaze_models.experiments.evaluate import FitResult, evaluate, usable_folds
from obygaze_models.experiments.experiment import Experiment, Problem, load_experiment
from obygaze_models.experiments.explanations import explain_models
from obygaze_models.experiments.finished_fits import FinishedFits, digest_of_clips, model_folder
from obygaze_models.experiments.fit import FitMemo
from obygaze_models.experiments.make_record import (
    about_features,
    about_model,
    describe_experiment,
    describe_films,
    library_versions,
    make_record,
)
from obygaze_models.experiments.outside import read_outside
from obygaze_models.experiments.plan import Plan, make_plan
from obygaze_models.experiments.predictions import format_predictions
from obygaze_models.experiments.record import RECORD, Films, write_record
from obygaze_models.experiments.run_folder import FILES, Run, format_clips, format_lines, load_run

__all__ = ["run_experiment"]

LINE_EVERY_S = 30.0
"""Where there is no bar, as in a batch job's log, progress is a line now and then."""
#: Of a saved model these are in its folder, not in ``models.jsonl``.
_LONG = ("features", "seen", "footage", "warnings")


def run_experiment(
    experiment: Experiment | str | Path,
    output: str | Path,
    *,
    overwrite: bool = False,
    log: Callable[[str], None] = lambda _: None,
    memo: FitMemo | None = None,
) -> Run:
    """Train and test what `experiment` says, and write the folder `output`.

    Finished fits are kept in ``OUTPUT.partial``. If the run is interrupted or killed, the same
    call resumes; a changed experiment or store starts anew.

    Parameters
    ----------
    experiment
        An `Experiment`, or the TOML file of one.
    output
        The run folder; it appears complete or not at all.
    overwrite
        Replace an earlier run at `output`, and start anew where one was interrupted.
    log
        Called with a line about progress, or about what is resumed.
    memo
        Shares fitted concept banks with other runs.
    """
    if not isinstance(experiment, Experiment):
        experiment = load_experiment(experiment)
    output = Path(output)
    started, clock = datetime.now(UTC), time.monotonic()
    _refuse_to_lose(output)
    with new_folder(output, overwrite=overwrite, marker=RECORD, allow_missing=True) as folder:
        manifest = Manifest.load(experiment.manifest)
        scheme = manifest.label_scheme(experiment.labels)
        experiment = experiment.in_codes(scheme)
        store = open_stores(experiment.store)
        problems = experiment.problems(scheme)
        outside = [model for path in experiment.predictions for model in read_outside(path)]
        _check_names(experiment, [model.name for model in outside])
        plan = make_plan(experiment, manifest, problems)
        if plan.note:
            log(f"{experiment.name}: {plan.note}")
        experiment = replace(experiment, protocol=plan.protocol)
        tasks = [task for problem in problems for task in (problem.train, *problem.tests)]
        wanted = levels_of(tasks, manifest.labels(experiment.labels))
        data, joined = plan.join(experiment, manifest, store, wanted)
        features = about_features(experiment, store)
        folds = {
            problem.train.name: _folds(experiment, plan, data, problem) for problem in problems
        }
        if note := _tested_films(data, folds, manifest, problems, plan).note:
            log(f"{experiment.name}: {note}")
        settings = describe_experiment(replace(experiment, predictions=()))
        versions = library_versions(experiment)
        identity = {
            "experiment": settings,
            "manifest": manifest.digest,
            "backbone": features,
            "versions": versions,
            **digest_of_clips(data, [fold for several in folds.values() for fold in several]),
        }
        fits = FinishedFits(output, identity, log, anew=overwrite)
        models: list[dict[str, Any]] = []
        results: list[FitResult] = []
        progress = _Progress(log)

        def load(model: str, task: Task, fold: Fold) -> FitResult | None:
            result = fits.load(model, task, fold, data)
            progress.resumed += result is not None
            return result

        def keep(result: FitResult, total: int) -> None:
            progress.advance(total)
            place = model_folder(result.model, result.task, result.fold)
            if result.fit is None:
                return
            about = about_model(
                result.model, experiment, result.task, result.fit, data, manifest, store
            )
            not_saved = fits.keep(place, result, {**about, "fit": result.fold.index})
            brief = {key: value for key, value in about.items() if key not in _LONG}
            line = {"folder": f"models/{place}", **brief, "fit": result.fold.index}
            line["seed"] = result.fold.seed
            models.append(line | ({"not_saved": not_saved} if not_saved else {}))
            if not not_saved:
                results.append(result)

        try:
            evaluation = evaluate(
                data,
                problems,
                lambda problem: folds[problem.train.name],
                experiment.learners,
                outside=outside,
                finished=load,
                on_result=keep,
                memo=memo,
                balance=experiment.balance,
            )
        except ExperimentError:  # it would fail again
            fits.discard()
            raise
        except BaseException:
            if fits.count:
                log(
                    f"{fits.count} of {counted(progress.total, 'fit')} are kept in {fits.folder}; "
                    "the same command resumes."
                )
            raise
        predictions = evaluation.predictions
        classes = problems[0].tests[0].classes
        labels = manifest.labels(experiment.labels)
        texts = {
            "predictions.csv": format_predictions(classes, predictions),
            "history.jsonl": format_lines(evaluation.history),
            "models.jsonl": format_lines(models),
            "clips.csv": format_clips(manifest, labels, plan.fold_of, joined, wanted),
            "explanations.jsonl": explain_models(data, results),
        }
        for name, text in texts.items():
            write_text(folder / name, text)
        fits.copy_models([m["folder"] for m in models if "not_saved" not in m], folder)
        record = make_record(
            experiment,
            manifest,
            store,
            plan,
            problems,
            joined,
            evaluation,
            models,
            outside=outside,
            versions=versions,
            files={name: sha256_of(folder / name) for name in FILES},
            started=started.isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - clock, 1),
        )
        write_record(folder, record)
    fits.discard()
    return load_run(output)


def _tested_films(
    data: ClipDataset,
    folds: Mapping[str, Sequence[Fold]],
    manifest: Manifest,
    problems: Sequence[Problem],
    plan: Plan,
) -> Films:
    """Which films will be tested, known before anything is trained."""
    usable = [
        fold
        for problem in problems
        for fold in usable_folds(data, problem, folds[problem.train.name])[0]
    ]
    return describe_films(usable, data, manifest, problems, plan)


class _Progress:
    """Lines about the fits done and the time left, where no bar is shown.

    `resumed` counts those of an interrupted run, which took no time in this one.
    """

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._begin = self._last = time.monotonic()
        self.done = self.total = self.resumed = 0

    def advance(self, total: int) -> None:
        self.done, self.total, now = self.done + 1, total, time.monotonic()
        if self.done == self.resumed:
            self._begin = now
            return
        if sys.stderr.isatty() or now - self._last < LINE_EVERY_S or self.done == total:
            return
        self._last = now
        left = (now - self._begin) / (self.done - self.resumed) * (total - self.done)
        self._log(f"{self.done} of {total} fits, about {_minutes(left)} left")


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _folds(experiment: Experiment, plan: Plan, data: ClipDataset, problem: Problem) -> list[Fold]:
    """The protocol's folds, once for each seed, numbered through."""
    seeds = experiment.seeds or (experiment.seed,)
    folds = [
        replace(fold, name=f"{fold.name}, seed {seed}") if len(seeds) > 1 else fold
        for seed in seeds
        for fold in plan.folds(data, problem, seed=seed, balance=experiment.balance)
    ]
    return [replace(fold, index=index) for index, fold in enumerate(folds)]


def _check_names(experiment: Experiment, outside: Sequence[str]) -> None:
    names = [*experiment.learners, *outside]
    if not names:
        raise ExperimentError(
            f"{experiment.name!r}: estimators is empty; name one, or give --predictions FILE"
        )
    if double := [name for name in outside if names.count(name) > 1]:
        raise ExperimentError(
            f"{experiment.name!r}: two models are called {double[0]!r}; give the predictions "
            "another name, in their column model or as the name of their file"
        )


def _refuse_to_lose(output: Path) -> None:
    """Models replace those of an earlier run; foreign files in the folder are never lost."""
    own = {
        RECORD, "predictions.csv", "history.jsonl", "models.jsonl", "clips.csv",
        "explanations.jsonl", "models", "report.html",
    }  # fmt: skip
    if (output / RECORD).is_file() and (
        foreign := sorted({path.name for path in output.iterdir()} - own)
    ):
        raise OutputExists(
            f"{output} holds {foreign[0]}, which is not of a run; move it elsewhere, or choose "
            "another name"
        )
