"""The results of a plan's fits, saved one by one so that an interrupted run can resume.

A run is written to ``OUTPUT.partial``, which is renamed when it is complete. Each fit's model is
saved to its final path in ``models``. Then the rest of the fit, with the digests of the model's
files, is written to a file in ``fits``. This file is flushed to disk and then renamed to its final
name, so a fit without it is repeated. ``partial.json`` records what the fits depend on: the
experiment, the data, the folds and the versions. If any of these changes, the run starts again.
Files that no run writes are never used or removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from obygaze_features.common.files import (
    check_format,
    new_folder,
    parse_json,
    prefix,
    publish_folder,
    sha256_of,
    write_bytes,
    write_text,
)
from obygaze_features.common.resume import is_resumable
from obygaze_features.common.text import counted, join_some
from obygaze_features.errors import ExperimentError, OutputExists, StoreUnreadable
from obygaze_features.manifests.splits import overlapping
from obygaze_features.store.files import Folder, sha256_at
from obygaze_models.data.dataset import ClipDataset
from obygaze_models.data.folds import Leak, find_leaks
from obygaze_models.data.protocols import PROTOCOLS
from obygaze_models.data.stores import store_fingerprint
from obygaze_models.data.tasks import uses_external_data
from obygaze_models.data.warnings import RunWarning, origin_warnings
from obygaze_models.estimators.outputs import Facts, check_outputs
from obygaze_models.estimators.registry import ESTIMATORS
from obygaze_models.experiments.annotators import compare_models
from obygaze_models.experiments.fit import Fit, FitResult, PlannedFit, test_predictions
from obygaze_models.experiments.plan import Plan
from obygaze_models.experiments.predictions import (
    join_tables,
    most_fits_per_clip,
    score_models,
    score_test_sets,
)
from obygaze_models.experiments.record import (
    RECORD,
    Features,
    LeakCount,
    Machine,
    ManifestRecord,
    ModelRecord,
    Official,
    RunRecord,
    Skipped,
    StoreRecord,
)
from obygaze_models.experiments.run_folder import EARLIER, RUN_FILES
from obygaze_models.saved.about import footage_of

Array = NDArray[Any]
FORMAT, FORMAT_VERSION = "obygaze-partial-run", 2
HEADER, FITS, MODELS = "partial.json", "fits", "models"
_READS = ("features", "frames", "groups")
_OWN = re.compile(
    rf"{HEADER}|{FITS}/[^/]+/[^/]+\.json|{MODELS}/[^/]+/[^/]+/model[^/\\]*"
    rf"|{'|'.join(map(re.escape, (*RUN_FILES, *EARLIER)))}"
    r"|(?:[^/]+/)*\.[^/]+\.[0-9a-f]{8}_\d+_\w+\.partial"
    r"|[^/]+/[^/]+/(?:fit\.json|arrays\.npz|model/model[^/\\]*)"
)
"""The files that a run writes, including temporary files, and the files of earlier versions."""


class _FitFile(msgspec.Struct):
    """A finished fit without its model, and the digests of the model's files (if it was saved)."""

    key: tuple[str, str, int]
    fit: Fit
    table: Array
    not_saved: str
    files: dict[Annotated[str, msgspec.Meta(pattern=r"^model[^/\\]*\Z")], str]


class FinishedFits:
    """The finished fits of an interrupted run and of the current run, on disk.

    Parameters
    ----------
    output
        The run folder. Until it is complete, the fits are in a folder next to it.
    identity
        The data and settings that the fits depend on, as JSON values.
    log
        A function that is called with lines for the user.
    restart
        Discard the fits of an interrupted run.
    """

    def __init__(
        self,
        output: Path,
        identity: Mapping[str, Any],
        log: Callable[[str], None],
        *,
        restart: bool = False,
    ) -> None:
        self.folder = output.with_name(f"{output.name}.partial")
        self._identity = _with_header(identity)
        self._log = log
        self._kept: dict[str, str] = {}
        if not is_resumable(self.folder, HEADER, _OWN.fullmatch):
            return
        earlier, now = _read_identity(self.folder), self._identity
        keys = dict.fromkeys([*now, *earlier])
        changed = [
            key.removeprefix("version of ") for key in keys if earlier.get(key) != now.get(key)
        ]
        if changed and not restart:
            log(f"{self.folder} is not resumed: {join_some(changed)} changed. Starting again.")
        if changed or restart:
            self.discard()
            return
        fits = len(list(self.folder.glob(f"{FITS}/*/[!.]*")))
        finished = counted(fits, "finished fit is", "finished fits are")
        log(f"Resuming: {finished} in {self.folder}.")

    @property
    def count(self) -> int:
        """The number of fits that have been loaded or kept."""
        return len(self._kept)

    def load(self, planned: PlannedFit, data: ClipDataset) -> FitResult | None:
        """Return a finished fit's result; None if it is missing or damaged, or does not match.

        Raise `StoreUnreadable` if the files cannot be read at present, because they may be intact.
        """
        from obygaze_models.saved.persistence import load_model

        key, rows, classes = planned.place, planned.fold.test_rows, len(planned.task.classes)
        files, name = Folder(self.folder), f"{FITS}/{key}.json"
        if not files.exists(name):
            return None
        try:
            content, _, digest = files.read(name).rpartition(b"\n")
            saved = msgspec.json.decode(content, type=_FitFile, dec_hook=_as_array)
            model = f"{MODELS}/{key}"
            sums = {part: sha256_at(files, f"{model}/{part}") for part in saved.files}
            if _digest(content) != digest or sums != saved.files:
                raise ValueError("a digest differs")
            fit, table = saved.fit, saved.table
            kinds = fit.seen.dtype.kind, table.dtype.kind, fit.classes
            clips = {*fit.seen.tolist()} <= {*range(len(data))}
            if saved.key != planned.key:
                raise ValueError("it belongs to another fit")
            if kinds != ("i", "f", classes) or fit.reads not in _READS or not clips:
                raise ValueError("it has other clips, classes or types")
            target = planned.task.target
            width = 1 if target.is_numeric else classes
            check_outputs(table, (len(rows), width), target.key)
            msgspec.convert(fit.facts, Facts)
            if not saved.not_saved:
                fit = replace(fit, estimator=load_model(self.folder / model)[0])
                fit.probabilities(data, rows[:1])  # raises if the model needs other features
        except StoreUnreadable:
            raise
        except Exception:  # damage can cause any error
            self._log(f"{self.folder / name} is damaged. Repeating the fit.")
            return None
        self._kept[key] = saved.not_saved
        return FitResult(planned, fit, table)

    def keep(self, planned: PlannedFit, fit: Fit, table: Array, about: Mapping[str, Any]) -> str:
        """Save a fit and its model; return why the model cannot be saved, or "" if it was saved.

        Failed fits are not saved, because they may succeed when the run is resumed.
        """
        from obygaze_models.saved.persistence import save_model

        key, not_saved = planned.place, ""
        if key in self._kept:
            return self._kept[key]
        self.begin()
        model = self.folder / MODELS / key
        shutil.rmtree(model, ignore_errors=True)  # from a damaged or unfinished fit
        # `become` removes what killed processes leave. `new_folder` would scan all models.
        begun = model.with_name(f"{prefix(model)}model.partial")
        shutil.rmtree(begun, ignore_errors=True)
        try:
            save_model(fit.estimator, begun, about, durable=False)
            publish_folder(begun, model)
        except ExperimentError as problem:  # the scores are kept
            not_saved = str(problem)
        files = {path.name: sha256_of(path) for path in sorted(model.glob("*"))}
        record = _FitFile(planned.key, replace(fit, estimator=None), table, not_saved, files)
        content = msgspec.json.encode(record, enc_hook=np.ndarray.tolist)
        write_bytes(self.folder / FITS / f"{key}.json", content + b"\n" + _digest(content))
        self._kept[key] = not_saved
        return not_saved

    def begin(self) -> None:
        """Create the folder if needed; raise `OutputExists` if another run is writing to it."""
        if not self.folder.exists():
            # Another process may create it at the same time.
            with contextlib.suppress(OutputExists), new_folder(self.folder) as folder:
                write_text(folder / HEADER, json.dumps(self._identity, indent=1) + "\n")
        if _read_identity(self.folder) != self._identity:
            raise OutputExists(f"another run is writing to {self.folder}. Choose another output")

    def become(self, output: Path, models: Collection[str], *, overwrite: bool = False) -> None:
        """Rename the folder to `output`, keeping its tables and the given models.

        The fits are removed last, so that no fit is lost if the process is killed before that.
        """
        final = {self.folder / MODELS / place for place in models}
        for path in (*self.folder.glob("*"), *self.folder.glob(f"{MODELS}/*/*")):
            if path in final or path.name in (FITS, MODELS, HEADER, *RUN_FILES):
                continue
            _remove(path)  # left by killed processes
        if overwrite and output.exists():
            with new_folder(output, overwrite=True, marker=RECORD, allow_missing=True) as folder:
                folder.rmdir()
                self.folder.rename(folder)
        else:
            publish_folder(self.folder, output)
        _remove_fits(output)

    def discard(self) -> None:
        """Remove all files that a run has written to the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


def tidy(output: Path, identity: Callable[[], Mapping[str, Any]]) -> bool:
    """Remove the fits that are left in a run folder if the run was killed at the very end.

    Return False and remove nothing if there are no such fits, or if they are from another run.
    """
    names = RECORD, HEADER
    if not all((output / name).is_file() for name in names):
        return False
    if _read_identity(output) != _with_header(identity()):
        return False
    _remove_fits(output)
    return True


def _with_header(identity: Mapping[str, Any]) -> dict[str, Any]:
    header = {"format": FORMAT, "format_version": FORMAT_VERSION}
    values: dict[str, Any] = json.loads(json.dumps(header | dict(identity)))
    return values


def _read_identity(folder: Path) -> dict[str, Any]:
    path, data = folder / HEADER, Folder(folder).read(HEADER)
    try:
        identity = parse_json(data, path, OutputExists)
        return check_format(identity, path, FORMAT, FORMAT_VERSION, OutputExists)
    except OutputExists as problem:
        raise OutputExists(
            f"{problem}. Move {folder} elsewhere, or choose another output"
        ) from None


def _remove_fits(output: Path) -> None:
    for name in (FITS, HEADER):  # the header last, because it identifies the run
        _remove(output / name)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def _as_array(kind: type, value: Any) -> Array:
    return np.array(value)


@dataclass(frozen=True, eq=False)
class Outcome:
    """The results of training and testing.

    `fits` are the rows of ``fits.csv``, and `saved` the paths of the saved models. `explained` has
    the results to explain, for experiments with concepts. `seen` maps task and fold
    to the rows that models used besides training and validation rows. `warnings` has the warnings
    of estimators from other packages, and warnings about inner folds.
    """

    plan: Plan
    skipped: list[Skipped]
    parts: list[pd.DataFrame] = field(default_factory=list)
    fits: list[dict[str, Any]] = field(default_factory=list)
    saved: set[str] = field(default_factory=set)
    explained: list[FitResult] = field(default_factory=list)
    seen: dict[tuple[str, int], NDArray[Any]] = field(default_factory=dict)
    warnings: list[RunWarning] = field(default_factory=list)

    def add(self, result: FitResult, finished: FinishedFits) -> None:
        """Add the result of a fit, saving it to disk unless the fit failed."""
        planned, fit = result.planned, result.fit
        name, task, fold = planned.name, planned.task, planned.fold
        if fit is None or result.table is None:
            self.skipped.append(result.skipped)
            return
        about = about_model(self.plan, planned, fit) | {"fit": fold.index}
        not_saved = finished.keep(planned, fit, result.table, about)
        if not not_saved:
            self.saved.add(planned.place)
            self.explained.extend([result] if self._explains else [])
        labels = self.plan.labels_of(task)
        trained = task.target.count(task, labels[fold.train])
        validated = task.target.count(task, labels[fold.validation])
        self.fits.append({
            "model": name, "task": task.key, "fit": fold.index, "name": fold.name,
            "seed": fold.seed, "trained": trained.clips, "validated": validated.clips,
            "drawn_from": fold.drawn_from, "train_classes": trained.classes,
            "validation_classes": validated.classes, "estimator": planned.spec.name,
            "reads": fit.reads, "folder": "" if not_saved else f"models/{planned.place}",
            "not_saved": not_saved, "cut": fit.cut if planned.spec.threshold else None,
            "facts": fit.facts,
        })  # fmt: skip
        is_ours = planned.spec.name in ESTIMATORS  # their notes are in the report
        self.warnings.extend(
            RunWarning(note.code, name, f"{name}: {note.text}")
            for note in fit.warnings
            if not is_ours
        )
        others = np.setdiff1d(fit.seen, np.union1d(fold.train, fold.validation))
        if len(others):
            before = self.seen.get((task.key, fold.index), others)
            self.seen[task.key, fold.index] = np.union1d(before, others)
        data, problem = self.plan.data, planned.problem
        self.parts.extend(test_predictions(data, problem, name, fold, result.table))

    @cached_property
    def predictions(self) -> pd.DataFrame:
        """The predictions of all fits. Read them only after adding all fits."""
        return join_tables(self.parts)

    @cached_property
    def _explains(self) -> bool:
        """True if the run explains its models, which are then kept in memory."""
        learners = self.plan.experiment.learners.values()
        return any(spec.has_bank for spec in learners)

    @cached_property
    def leaked(self) -> set[str]:
        """The test clips that leak in any fit."""
        return {clip for _, leak in self.leaks for clip in leak.ids}

    @cached_property
    def leaks(self) -> list[tuple[str, Leak]]:
        """The leaks of all fits, each with the training task."""
        return [
            (task, leak)
            for task, folds in self.plan.folds.items()
            for leak in find_leaks(
                folds,
                self.plan.data.ids,
                seen={fit: rows for (name, fit), rows in self.seen.items() if name == task},
                meet=partial(overlapping, self.plan.manifest.items),
            )
        ]

    @property
    def leak_counts(self) -> list[LeakCount]:
        """The number of leaked clips in each test set of each fit."""
        return [
            LeakCount(task, leak.fold, leak.test, leak.clips, len(leak.train),
                      len(leak.validation), len(leak.otherwise))
            for task, leak in self.leaks
        ]  # fmt: skip

    def record(
        self, warnings: list[RunWarning], *, files: dict[str, str], started: str, seconds: float
    ) -> RunRecord:
        """Return the content of ``run.json``."""
        plan, data = self.plan, self.plan.data
        group_of = dict(zip(data.ids, data.groups.tolist(), strict=True))
        scores = score_models(self.predictions, group_of, measure=plan.measure or "")
        return RunRecord(
            **self.planned(warnings),
            annotators=compare_models(plan, self.predictions),
            cuts={
                name: [fit["cut"] for fit in self.fits if fit["model"] == name]
                for name, spec in plan.experiment.learners.items()
                if spec.threshold
            },
            tests=score_test_sets(self.predictions, plan.tests, scores, group_of),
            fits_per_clip=most_fits_per_clip(self.predictions),
            scores=scores,
            machine=Machine(system=platform.platform(), cores=os.cpu_count()),
            files=files,
            started=started,
            seconds=seconds,
        )

    def planned(self, warnings: list[RunWarning]) -> dict[str, Any]:
        """Return the fields of ``run.json`` that need no scores."""
        plan, experiment = self.plan, self.plan.experiment
        attributes = plan.store.attributes
        official = None
        if plan.measure:
            external = uses_external_data(attributes["backbone"])
            official = Official(measure=plan.measure, external_data=external)
        return {
            "experiment": experiment.without_secrets(),
            "goal": experiment.goal,
            "models": _about_models(plan),
            "protocol": plan.division.protocol,
            "split": plan.division.split,
            "warnings": warnings,
            "manifest": ManifestRecord.of(plan.manifest, plan.labels.name, plan.scheme),
            "official": official,
            "store": msgspec.convert(
                attributes | {"fingerprint": store_fingerprint(plan.store)}, StoreRecord
            ),
            "features": Features(**plan.about_features(), frames=experiment.frame_array),
            "join": plan.join.brief,
            "learned": [task for task, folds in plan.folds.items() if folds],
            "skipped": self.skipped,
            "leaked": len(self.leaked),
            "leaks": self.leak_counts,
            "films": plan.films,
            "versions": plan.versions,
            "balance": experiment.balance or PROTOCOLS[plan.division.protocol].default_balance,
            "tasks": [*dict.fromkeys(plan.tasks)],
            "blank": plan.blank,
        }


def _about_models(plan: Plan) -> dict[str, ModelRecord]:
    """Return the record of each model in a plan, by name."""
    experiment = plan.experiment
    models = {
        name: ModelRecord(
            title=experiment.title_of(name),
            estimator=spec.name,
            stores=[*(spec.use or experiment.store_names)],
        )
        for name, spec in experiment.learners.items()
    }
    outside = {
        model.name: ModelRecord(title=experiment.title_of(model.name)) for model in plan.outside
    }
    return models | outside


def about_model(plan: Plan, planned: PlannedFit, fit: Fit) -> dict[str, Any]:
    """Return the description to save with a model: its task, features and clips."""
    data, items = plan.data, plan.manifest.items
    seen = sorted(data.ids[row] for row in fit.seen.tolist())
    return {
        "model": planned.name,
        "estimator": planned.spec.name,
        "options": planned.spec.table,
        "reads": fit.reads,
        "task": planned.task.key,
        "learns": msgspec.to_builtins(planned.task),
        "classes": planned.task.class_titles,
        "levels": plan.scheme.name_of,
        "senses": plan.scheme.senses,
        "facts": fit.facts,
        **({"cut": fit.cut} if planned.spec.threshold else {}),
        "features": plan.about_features(frames=fit.reads == "frames"),
        # The clips that the model has seen, so that users know which clips test it. The footage
        # identifies them even under other ids, and the groups identify clips of the same films.
        "seen": seen,
        "footage": footage_of(items, seen),
        "seen_groups": {data.grouped_by: sorted({*data.groups[fit.seen].tolist()} - {""})},
        "warnings": [asdict(warning) for warning in origin_warnings(items, plan.store.attributes)],
    }
