"""Run an experiment and write its folder (see `run_folder`), or train a model on all its clips.

The same experiment writes the same bytes on the same machine, even if it was interrupted and
resumed. Only ``started`` and ``seconds`` in ``run.json`` differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from obygaze_features.common.files import (
    check_new_folder,
    new_folder,
    sha256_of,
    write_text,
)
from obygaze_features.common.plugins import one_line
from obygaze_features.common.progress import meter
from obygaze_features.common.resume import only_process
from obygaze_features.common.text import counted, unknown_name
from obygaze_features.errors import ExperimentError, OutputExists
from obygaze_models.data.dataset import Join
from obygaze_models.data.folds import N_FOLDS, Fold, balanced, draw_folds
from obygaze_models.data.protocols import find_protocol
from obygaze_models.data.tasks import Problem
from obygaze_models.data.warnings import RunWarning, origin_warnings
from obygaze_models.experiments.annotators import ANNOTATORS, format_votes
from obygaze_models.experiments.experiment import Experiment, load_experiment
from obygaze_models.experiments.fit import FitMemo, PlannedFit
from obygaze_models.experiments.messages import plan_notes, run_warnings
from obygaze_models.experiments.outcome import (
    FITS,
    HEADER,
    FinishedFits,
    Outcome,
    about_model,
    tidy,
)
from obygaze_models.experiments.plan import Plan, make_plan, plan_clips
from obygaze_models.experiments.predictions import format_predictions
from obygaze_models.experiments.record import RECORD, write_record
from obygaze_models.experiments.run_folder import (
    EARLIER,
    RUN_FILES,
    Run,
    Tables,
    clips_frame,
    format_clips,
    load_run,
)
from obygaze_models.experiments.tables import explain_models, format_fits, format_frame


def run_experiment(
    experiment: Experiment | str | Path,
    output: str | Path,
    *,
    overwrite: bool = False,
    log: Callable[[str], None] = lambda _: None,
    memo: FitMemo | None = None,
) -> Run:
    """Train and test the models of an experiment, and write a run folder.

    Finished fits are kept in ``OUTPUT.partial``, so the same call resumes a run that was
    interrupted or killed. If the experiment, its data or a library has changed, the run starts
    again.

    Parameters
    ----------
    experiment
        An `Experiment`, or the path of its TOML file.
    output
        The run folder. It appears only when it is complete.
    overwrite
        Replace an earlier run at `output`, and discard the fits of an interrupted one.
    log
        A function that is called with lines about progress and about resuming.
    memo
        A cache to share fitted concept banks with other runs.
    """
    output = Path(output)
    started, clock = datetime.now(UTC), time.monotonic()
    _keep_foreign_files(output)
    absent = [folder for folder in output.absolute().parents if not folder.exists()]
    busy = f"another process is writing {output}. Wait for it, or choose another output"
    try:
        with only_process(output.with_name(f".{output.name}.partial.lock"), OutputExists(busy)):
            if not overwrite and tidy(output, lambda: make_plan(experiment).identity()):
                log(f"{output} was already complete.")
                return load_run(output)
            check_new_folder(output, overwrite=overwrite, marker=RECORD)
            plan = make_plan(experiment)
            finished = FinishedFits(output, plan.identity(), log, restart=overwrite)
            for note in plan_notes(plan):
                log(f"{plan.experiment.name}: {note}")
            with threadpool_limits(1):  # small fits are slower on several threads
                outcome = _compute(plan, finished, log, memo or FitMemo())
            clips = plan.clips(leaked=outcome.leaked).values()
            reasons = explain_models(plan.data, outcome.explained)
            finished.begin()
            tables = {
                "predictions.csv": format_predictions(plan.tests, outcome.predictions),
                "clips.csv": format_clips(clips),
                "fits.csv": format_fits(outcome.fits),
                "reasons.csv": format_frame(reasons),
            }
            if plan.data.annotators:
                tables[ANNOTATORS] = format_votes(plan, outcome.predictions)
            for name, text in tables.items():
                write_text(finished.folder / name, text)
            files = {name: sha256_of(finished.folder / name) for name in tables}
            begin, seconds = started.isoformat(timespec="seconds"), time.monotonic() - clock
            notes = run_warnings(outcome)
            record = outcome.record(notes, files=files, started=begin, seconds=round(seconds, 1))
            record = write_record(finished.folder, record)
            run = Run(output, record, Tables(outcome.predictions, clips_frame(clips), reasons))
            finished.become(output, outcome.saved, overwrite=overwrite)
    except BaseException:
        for parent in absent:
            with suppress(OSError):  # not empty: it has the finished fits
                parent.rmdir()
        raise
    return run


def _keep_foreign_files(output: Path) -> None:
    """Raise `OutputExists` if an earlier run's folder has other files, which would be lost."""
    names = {path.name for path in output.glob("*")} if (output / RECORD).is_file() else set()
    if foreign := sorted(names - {*RUN_FILES, *EARLIER, "models", "report.html", FITS, HEADER}):
        raise OutputExists(
            f"{output} has {foreign[0]}, which is not part of a run. Move it elsewhere, or choose "
            "another output"
        )


def _compute(
    plan: Plan, finished: FinishedFits, log: Callable[[str], None], memo: FitMemo
) -> Outcome:
    """Compute all fits of a plan, reusing finished fits of an interrupted run.

    The remaining time is estimated from newly computed fits only.
    """
    todo, outcome = plan.fits(), Outcome(plan, [*plan.skipped])
    try:
        earlier = [finished.load(planned, plan.data) for planned in todo]
        with meter(earlier.count(None), "train", unit="fit") as advance:
            for number, planned in enumerate(todo):
                result, earlier[number] = earlier[number], None
                outcome.add(result or planned.compute(plan.data, memo), finished)
                advance(result is None)
        outcome.parts.extend(plan.outside_predictions)
        if not outcome.parts:
            failed = outcome.skipped[-1]
            raise ExperimentError(f"no model could be trained: {failed.what}: {failed.why}")
    except ExperimentError:  # it would fail again when resumed
        finished.discard()
        raise
    except BaseException:
        if finished.count:
            state = f"{finished.count} of {counted(len(todo), 'fit')} are kept in {finished.folder}"
            log(f"{state}. Run the same command to resume.")
        raise
    return outcome


@dataclass(frozen=True)
class TrainedModel:
    """A model trained on all clips, and the numbers of clips that were used.

    Parameters
    ----------
    path
        The model's folder.
    task
        The task that it learned.
    trained, validated
        The numbers of training and validation clips.
    drawn_away
        The number of clips that were left out to balance the classes.
    seen
        The number of clips that the model has seen, including clips used only to learn concepts.
    join
        The numbers of labelled and used clips, and the clips that lack a label, a fold or features.
    facts
        The choices that the estimator made.
    warnings
        Warnings to show wherever the model is used.
    """

    path: Path
    task: str
    trained: int
    validated: int
    drawn_away: int
    seen: int
    join: Join
    facts: dict[str, Any]
    warnings: list[RunWarning]


def train_model(
    experiment: Experiment | str | Path,
    output: str | Path,
    *,
    estimator: str | None = None,
    concept: str | None = None,
    overwrite: bool = False,
    log: Callable[[str], None] = lambda _: None,
) -> TrainedModel:
    """Train one of an experiment's estimators on all labelled clips, balanced as in a run.

    No clips are left to test the model. Use `run_experiment` to measure how well such a model
    performs. If the estimator uses validation clips, these are the clips of the last fold that has
    every class (or of the last few folds, if no single fold does). Otherwise, it is trained on all
    clips. With the official protocol, the test set is left out, so the model is the same as in a
    run.

    Parameters
    ----------
    experiment
        An `Experiment`, or the path of its TOML file.
    output
        The model's folder.
    estimator
        The estimator to train; by default the first.
    concept
        The concept to learn if there are several; by default the first.
    overwrite
        Replace an existing model.
    log
        A function that is called with a line about the split that was chosen.
    """
    from obygaze_models.saved.about import CARD, model_card
    from obygaze_models.saved.persistence import check_savable, save_model

    if not isinstance(experiment, Experiment):
        experiment = load_experiment(experiment, only=estimator or 0)
    output, name = Path(output), estimator or next(iter(experiment.learners))
    if name not in experiment.learners:
        unknown = unknown_name("estimator", name, experiment.learners)
        raise ExperimentError(f"{experiment.name!r}: {unknown}")
    plan = plan_clips(replace(experiment, test_negatives=()))
    problems = {p.train.concept: p for p in plan.problems}
    learned = concept or next(iter(problems))
    if plan.scheme.has_concept(learned):  # it may be an alias
        learned = plan.scheme.concept(learned)
    if learned not in problems:
        names = [name for name in problems if name]
        raise ExperimentError(f"{experiment.name!r}: {unknown_name('concept', learned, names)}")
    if plan.division.note:
        log(f"{experiment.name}: {plan.division.note}")
    problem, spec = problems[learned], experiment.learners[name]
    fold = _fold_of_all(plan, problem, validate=spec.uses_validation)
    planned = PlannedFit(name, spec, problem, fold, experiment.balance)
    labels = problem.train.labels(plan.data)
    parts = {"training": fold.train}
    if spec.uses_validation:
        parts["validation"] = fold.validation
    for part, rows in parts.items():
        if problem.train.target.missing(problem.train, labels[rows]):
            raise ExperimentError(
                f"the {part} clips of {problem.train.key} lack some classes. Label at least "
                "two clips of each class, in different folds or films"
            )
    try:
        check_savable(spec.estimator)
        with threadpool_limits(1):
            fit = planned.fit(plan.data)
    except (ExperimentError, ValueError) as reason:  # scikit-learn raises ValueError
        raise ExperimentError(f"{name} cannot be trained: {one_line(reason)}") from reason
    about, trained = about_model(plan, planned, fit), len(fold.train)
    validated = len(fold.validation) if spec.uses_validation else 0
    drawn_away = max(fold.drawn_from - trained, 0)
    with new_folder(output, overwrite=overwrite, marker="model.json", allow_missing=True) as folder:
        folder.rmdir()
        save_model(fit.estimator, folder, about)
        card = model_card(output.name, about, plan.manifest, trained=trained, validated=validated)
        write_text(folder / CARD, card)
    return TrainedModel(
        output, problem.train.key, trained, validated, drawn_away, len(fit.seen), plan.join,
        fit.facts,
        origin_warnings(plan.manifest.items, plan.store.attributes),
    )  # fmt: skip


def _fold_of_all(plan: Plan, problem: Problem, *, validate: bool) -> Fold:
    """Return a fold for training on all clips.

    If `validate` is True, the last fold (or several) is held out for validation. With official
    sets, return their own fold, so that the official test set is not used.
    """
    data, seed = plan.data, plan.experiment.seed
    if plan.division.protocol == "official":  # the test set is not even used for validation
        [fold] = plan.division.folds(data, problem, seed=seed)
        return fold
    labels = problem.train.strata(data)
    # Some protocols use no fold column.
    folds, last = data.folds, plan.division.last
    if not plan.division.fold_of:
        folds, last = draw_folds(labels, seed), N_FOLDS - 1
    rows = np.flatnonzero((labels >= 0) & (folds >= 0))
    classes = len({*labels[rows].tolist()})
    held = np.zeros(len(rows), bool)
    if validate:
        held = _held_out(folds[rows], labels[rows], last, classes)
    pool = rows[~held]
    kind = find_protocol(plan.division.protocol)
    balance = plan.experiment.balance or kind.default_balance or "none"
    train = balanced(pool, labels, seed, balance)
    name = "all but one fold" if validate else "all clips"
    return Fold(0, name, seed, train, rows[held], {}, drawn_from=len(pool))


def _held_out(folds: NDArray[Any], labels: NDArray[Any], last: int, classes: int) -> NDArray[Any]:
    """Return a mask of the validation clips: the last fold (or folds) with all classes."""
    last_first = range(last, -1, -1)
    for fold in last_first:
        held: NDArray[Any] = folds == fold
        if len({*labels[held].tolist()}) == len({*labels[~held].tolist()}) == classes:
            return held
    held = np.zeros(len(folds), bool)
    for fold in last_first:  # add folds that have a new class
        if {*labels[folds == fold].tolist()} - {*labels[held].tolist()}:
            held |= folds == fold
    return held
