"""Run an experiment, and write its folder (see `run_folder`).

The same experiment on the same machine writes the same bytes, but for ``started`` and
``seconds`` in ``run.json``; also if it was interrupted and resumed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from threadpoolctl import threadpool_limits

from obygaze_features.common.files import new_folder, sha256_of, write_text
from obygaze_features.common.progress import progress
from obygaze_features.common.text import counted
from obygaze_features.errors import ExperimentError, OutputExists
from obygaze_models.experiments.experiment import Experiment
from obygaze_models.experiments.explanations import explain_models, parse_explanations
from obygaze_models.experiments.finished_fits import FinishedFits
from obygaze_models.experiments.fit import FitMemo
from obygaze_models.experiments.outcome import Outcome
from obygaze_models.experiments.plan import Plan, make_plan
from obygaze_models.experiments.predictions import format_predictions
from obygaze_models.experiments.record import RECORD, write_record
from obygaze_models.experiments.run_folder import (
    FILES,
    RUN_FILES,
    Run,
    Tables,
    format_clips,
    format_lines,
)
from obygaze_models.experiments.run_warnings import warnings_of_run

LINE_EVERY_S = 30.0
"""Where there is no bar, as in a batch job's log, progress is a line now and then."""


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
    output = Path(output)
    started, clock = datetime.now(UTC), time.monotonic()
    _refuse_to_lose(output)
    absent = [folder for folder in output.absolute().parents if not folder.exists()]
    try:
        with new_folder(output, overwrite=overwrite, marker=RECORD, allow_missing=True) as folder:
            plan = make_plan(experiment)
            for note in plan.notes:
                log(f"{plan.experiment.name}: {note}")
            finished = FinishedFits(output, plan.identity, log, anew=overwrite)
            with threadpool_limits(1):  # steps this small are slower on several threads
                outcome = _compute(plan, finished, log, memo or FitMemo())
            clips, classes = plan.clips(), plan.problems[0].tests[0].classes
            explained = explain_models(plan.data, outcome.saved)
            finished.begin()
            for name, text in {
                "predictions.csv": format_predictions(classes, outcome.predictions),
                "history.jsonl": format_lines(outcome.history),
                "models.jsonl": format_lines(outcome.models),
                "clips.csv": format_clips(clips.values()),
                "explanations.jsonl": explained,
            }.items():
                write_text(finished.folder / name, text)
            official = plan.measure is not None
            record = outcome.record(
                warnings_of_run(plan, outcome, outcome.leaks, official=official),
                files={name: sha256_of(finished.folder / name) for name in FILES},
                started=started.isoformat(timespec="seconds"),
                seconds=round(time.monotonic() - clock, 1),
            )
            record = write_record(finished.folder, record)
            finished.become(folder, {result.planned.place for result in outcome.saved})
    except BaseException:
        for parent in absent:
            with suppress(OSError):  # it holds the finished fits
                parent.rmdir()
        raise
    return Run(output, record, Tables(outcome.predictions, clips, parse_explanations(explained)))


def _compute(
    plan: Plan, finished: FinishedFits, log: Callable[[str], None], memo: FitMemo
) -> Outcome:
    """Every fit of a plan, or what an interrupted run had of it."""
    todo, outcome = plan.fits(), Outcome(plan, [*plan.skipped])
    meter = _Progress(log, len(todo))
    try:
        for planned in progress(todo, "train", unit="fit"):
            earlier = finished.load(planned, plan.data)
            result = earlier or planned.compute(plan.data, memo)
            meter.advance(resumed=earlier is not None)
            outcome.add(result, finished)
        outcome.add_outside()
        if not outcome.predictions:
            last = outcome.skipped[-1]
            raise ExperimentError(f"nothing could be learnt: {last.what}: {last.why}")
    except ExperimentError:  # it would fail again
        finished.discard()
        raise
    except BaseException:
        if finished.count:
            kept = f"{finished.count} of {counted(len(todo), 'fit')} are kept in {finished.folder}"
            log(f"{kept}; the same command resumes.")
        raise
    return outcome


class _Progress:
    """Lines about the fits done and the time left, where no bar is shown.

    Those of an interrupted run took no time in this one.
    """

    def __init__(self, log: Callable[[str], None], total: int) -> None:
        self._log, self._total = log, total
        self._begin = self._last = time.monotonic()
        self._done = self._resumed = 0

    def advance(self, *, resumed: bool) -> None:
        self._resumed += resumed
        self._done, now = self._done + 1, time.monotonic()
        if self._done == self._resumed:
            self._begin = now
            return
        if sys.stderr.isatty() or now - self._last < LINE_EVERY_S or self._done == self._total:
            return
        self._last = now
        left = (now - self._begin) / (self._done - self._resumed) * (self._total - self._done)
        self._log(f"{self._done} of {self._total} fits, about {_minutes(left)} left")


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _refuse_to_lose(output: Path) -> None:
    """Models replace those of an earlier run; foreign files in the folder are never lost."""
    own = {*RUN_FILES, "models", "report.html"}
    if (output / RECORD).is_file() and (
        foreign := sorted({path.name for path in output.iterdir()} - own)
    ):
        raise OutputExists(
            f"{output} holds {foreign[0]}, which is not of a run; move it elsewhere, or choose "
            "another name"
        )
