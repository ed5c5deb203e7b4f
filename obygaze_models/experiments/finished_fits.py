"""Finished fits, kept in ``OUTPUT.partial`` until the run is complete, so that it can resume.

Each fit is a folder that appears by one rename: what was killed before that is fitted again.
``partial.json`` says of which experiment, clips, folds and versions the fits are; where one of
them differs, the run starts anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from obygaze_features.common.files import write_text
from obygaze_features.common.text import counted
from obygaze_features.errors import ExperimentError
from obygaze_models.dataset import ClipDataset
from obygaze_models.experiments.evaluate import FitResult
from obygaze_models.experiments.experiment import folder_name
from obygaze_models.experiments.fit import Fit
from obygaze_models.protocols import Fold
from obygaze_models.tasks import Task
from obygaze_models.warnings import RunWarning

__all__ = ["FinishedFits", "digest_of_clips"]

HEADER, FIT, ARRAYS, MODEL = "partial.json", "fit.json", "arrays.npz", "model"


class FinishedFits:
    """The fits of an interrupted run, and those of this one.

    Parameters
    ----------
    output
        The run folder; the fits are in a folder beside it.
    identity
        What the fits depend on, as JSON values.
    log
        Called with a line for people.
    anew
        Drop the fits of an interrupted run.
    """

    def __init__(
        self,
        output: Path,
        identity: Mapping[str, Any],
        log: Callable[[str], None],
        *,
        anew: bool = False,
    ) -> None:
        self.folder = output.with_name(f"{output.name}.partial")
        self._identity: dict[str, Any] = json.loads(json.dumps(identity))
        self.count = 0
        if anew:
            self.discard()
        if not self.folder.is_dir():
            return
        with contextlib.suppress(OSError, ValueError):
            earlier = json.loads((self.folder / HEADER).read_text(encoding="utf-8"))
            if changed := _differences(earlier, self._identity):
                log(f"{self.folder} is not resumed: {', '.join(changed)} changed. Starting anew.")
                self.discard()
                return
            found = len(list(self.folder.glob(f"*/*/{FIT}")))
            finished = counted(found, "finished fit is", "finished fits are")
            log(f"Resuming: {finished} in {self.folder}.")
            return
        self.discard()

    def load(self, model: str, task: Task, fold: Fold) -> FitResult | None:
        """The result of a fit that is finished; None where it is not, or its files are damaged."""
        folder = self.folder / model_folder(model, task, fold)
        if not (folder / FIT).is_file():
            return None
        try:
            result = self._read(folder, model, task, fold)
        except (OSError, ValueError, KeyError, TypeError, ExperimentError):
            shutil.rmtree(folder)
            return None
        self.count += 1
        return result

    def keep(self, place: str, result: FitResult, about: Mapping[str, Any]) -> str:
        """Keep a result and its model, unless they are; gives why the model cannot be saved.

        One that failed is not kept: what was in its way may be gone when the run resumes.
        """
        final = self.folder / place
        if (final / FIT).is_file():
            record = json.loads((final / FIT).read_text(encoding="utf-8"))
            return str(record.get("not_saved", ""))
        final.parent.mkdir(parents=True, exist_ok=True)
        if not (self.folder / HEADER).is_file():
            write_text(self.folder / HEADER, json.dumps(self._identity, indent=1) + "\n")
        unfinished = final.with_name(f".{final.name}.{os.getpid()}")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        record = self._write(unfinished, result, about)
        shutil.rmtree(final, ignore_errors=True)  # a damaged one
        os.rename(unfinished, final)
        self.count += 1
        return str(record.get("not_saved", ""))

    def copy_models(self, names: Iterable[str], folder: Path) -> None:
        """Put saved models into the run folder: as links where the disk can, else as copies."""
        for name in names:
            shutil.copytree(
                self.folder / Path(name).relative_to("models") / MODEL,
                folder / name,
                copy_function=_link,
            )

    def discard(self) -> None:
        """Remove all."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _write(self, folder: Path, result: FitResult, about: Mapping[str, Any]) -> dict[str, Any]:
        from obygaze_models.persistence import save_model

        fit, not_saved = result.fit, ""
        assert fit is not None
        assert result.table is not None
        try:
            save_model(fit.model, folder / MODEL, about, durable=False)
        except ExperimentError as problem:  # its scores stay
            not_saved = str(problem)
            shutil.rmtree(folder / MODEL, ignore_errors=True)
        np.savez(folder / ARRAYS, seen=fit.seen, table=result.table)
        record = {
            "classes": fit.classes,
            "reads": fit.reads,
            "facts": fit.facts,
            "history": fit.history,
            "warnings": [asdict(warning) for warning in fit.warnings],
            "not_saved": not_saved,
        }
        (folder / FIT).write_text(json.dumps(record), encoding="utf-8")
        return record

    def _read(self, folder: Path, model: str, task: Task, fold: Fold) -> FitResult:
        from obygaze_models.persistence import load_model

        record = json.loads((folder / FIT).read_text(encoding="utf-8"))
        with np.load(folder / ARRAYS, allow_pickle=False) as arrays:
            seen, table = arrays["seen"], arrays["table"]
        estimator = None if record["not_saved"] else load_model(folder / MODEL)[0]
        fit = Fit(
            estimator,
            record["classes"],
            seen,
            record["reads"],
            record["facts"],
            record["history"],
            [RunWarning(**warning) for warning in record["warnings"]],
        )
        return FitResult(model, task, fold, fit, table)


def model_folder(model: str, task: Task, fold: Fold) -> str:
    """``mlp/HN-vs-S-0``: letters, digits and a few signs, on any file system."""
    return f"{folder_name(model)}/{folder_name(task.name)}-{fold.index}"


def digest_of_clips(data: ClipDataset, folds: Iterable[Fold]) -> dict[str, str]:
    """Digests of the clips with their labels and features, and of the folds."""
    labels = [data.ids, data.levels, list(data.concept_names), data.groups.tolist()]
    clips = hashlib.sha256(json.dumps(labels).encode())
    for array in (data.concepts, data.folds):
        clips.update(np.ascontiguousarray(array).tobytes())
    rows = hashlib.sha256()
    for fold in folds:
        rows.update(json.dumps([fold.index, fold.name, fold.seed, list(fold.tests)]).encode())
        for part in (fold.train, fold.validation, *fold.tests.values()):
            rows.update(part.tobytes())
    features = hashlib.sha256(np.ascontiguousarray(data.X).tobytes())
    if data.frames is not None:
        features.update(data.frames.data)
    return {
        "labels": clips.hexdigest(),
        "features": features.hexdigest(),
        "folds": rows.hexdigest(),
    }


def _differences(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The names of what differs; of the experiment its keys."""
    changed = []
    for key in sorted({*earlier, *now}):
        before, after = earlier.get(key), now.get(key)
        if before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            changed += [
                name for name in sorted({*before, *after}) if before.get(name) != after.get(name)
            ]
        else:
            changed.append(key)
    return changed


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
