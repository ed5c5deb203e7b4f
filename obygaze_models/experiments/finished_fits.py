"""Finished fits, kept in ``OUTPUT.partial`` until the run is complete, so that it can resume.

The folder, and in it each fit, appears by one rename and survives a loss of power: what was killed
before that is fitted again. ``partial.json`` says of which experiment, clips, folds and versions
the fits are; where one of them differs, the run starts anew. Nothing else is resumed or removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from obygaze_features.common.files import (
    check_format,
    is_resumable,
    new_folder,
    parse_json,
    remove_resumable,
    sha256_of,
    write_text,
)
from obygaze_features.common.text import counted
from obygaze_features.errors import ExperimentError, OutputExists, StoreUnreadable
from obygaze_features.store.location import Folder, sha256_at
from obygaze_models.data.dataset import ClipDataset
from obygaze_models.data.warnings import RunWarning
from obygaze_models.experiments.fit import Fit, FitResult, PlannedFit, check_probabilities
from obygaze_models.experiments.run_folder import Facts
from obygaze_models.saved.about import digest_of

FORMAT, FORMAT_VERSION = "obygaze-partial-run", 1
HEADER, FIT, ARRAYS, MODEL = "partial.json", "fit.json", "arrays.npz", "model"
MAX_HEADERS_BYTES = 2**12
"""Of two arrays in a file."""
_FIT_FILES = r"arrays\.npz|model/model[^/\\]*"
_FILES = rf"partial\.json|[^/]+/[^/]+/(?:fit\.json|{_FIT_FILES})"
_OWN = re.compile(rf"{_FILES}|(?:[^/]+/)*\.[\w.]+\.[0-9a-f]{{8}}_\d+_\w+\.partial")
"""The files that a run writes, and their temporary names."""


class _FitRecord(msgspec.Struct):
    """``fit.json``."""

    reads: Literal["features", "frames", "concepts", "groups"]
    facts: dict[str, Any]
    history: list[dict[str, Any]]
    warnings: list[RunWarning]
    not_saved: str
    files: dict[Annotated[str, msgspec.Meta(pattern=rf"^({_FIT_FILES})\Z")], str]

    def __post_init__(self) -> None:
        msgspec.convert(self.facts, Facts)


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
        header = {"format": FORMAT, "format_version": FORMAT_VERSION}
        self._identity: dict[str, Any] = json.loads(json.dumps(header | dict(identity)))
        self._log = log
        self._kept: dict[str, str] = {}
        if not is_resumable(self.folder, HEADER, _OWN.fullmatch):
            return
        changed = _differences(self._read_identity(), self._identity)
        if changed and not anew:
            log(f"{self.folder} is not resumed: {', '.join(changed)} changed. Starting anew.")
        if changed or anew:
            self.discard()
            return
        found = len(list(self.folder.glob(f"*/[!.]*/{FIT}")))
        finished = counted(found, "finished fit is", "finished fits are")
        log(f"Resuming: {finished} in {self.folder}.")

    @property
    def count(self) -> int:
        """How many fits are kept."""
        return len(self._kept)

    def load(self, planned: PlannedFit, data: ClipDataset) -> FitResult | None:
        """The result of a fit that is finished; None where it is not, or its files are damaged or
        do not fit the clips.

        `StoreUnreadable` where the system cannot read them now: the fit may be whole.
        """
        place = planned.place
        files = Folder(self.folder / place)
        if not files.exists(FIT):
            return None
        try:
            content = msgspec.json.decode(files.read(FIT))
            if content.pop("sha256") != digest_of(content):
                raise ValueError(f"the digest of {FIT} differs")
            record = msgspec.convert(content, _FitRecord)
            for name, digest in record.files.items():
                if sha256_at(files, name) != digest:
                    raise ValueError(f"the digest of {name} differs")
            fit, table = _read(files.path, record, planned, data)
        except StoreUnreadable:
            raise
        except Exception:  # whatever damage causes
            self._log(f"{files.where} is damaged; it is fitted again.")
            return None
        self._kept[place] = record.not_saved
        return FitResult(planned, fit, table)

    def keep(self, result: FitResult, about: Mapping[str, Any]) -> str:
        """Keep a result and its model, unless they are; gives why the model cannot be saved.

        One that failed is not kept: what was in its way may be gone when the run resumes.
        """
        place = result.planned.place
        if place not in self._kept:
            if not self.folder.exists():
                text = json.dumps(self._identity, indent=1) + "\n"
                # Another process may make it at the same time.
                with contextlib.suppress(OutputExists), new_folder(self.folder) as folder:
                    write_text(folder / HEADER, text)
            if self._read_identity() != self._identity:
                raise OutputExists(f"another run writes {self.folder}; choose another output")
            # One that is there is damaged, or of another process that does the same.
            with new_folder(self.folder / place, overwrite=True, allow_missing=True) as folder:
                self._kept[place] = self._write(folder, result, about)
        return self._kept[place]

    def link_models(self, places: Iterable[str], folder: Path) -> None:
        """Put saved models into the run folder: as links where the disk can, else as copies."""
        for place in places:
            target = folder / "models" / place
            shutil.copytree(self.folder / place / MODEL, target, copy_function=_link)

    def discard(self) -> None:
        """Remove all that a run wrote."""
        remove_resumable(self.folder, _OWN.fullmatch)

    def _read_identity(self) -> dict[str, Any]:
        path, data = self.folder / HEADER, Folder(self.folder).read(HEADER)
        try:
            identity = parse_json(data, path, OutputExists)
            return check_format(identity, path, FORMAT, FORMAT_VERSION, OutputExists)
        except OutputExists as problem:
            raise OutputExists(
                f"{problem}; move {self.folder} elsewhere, or choose another output"
            ) from None

    def _write(self, folder: Path, result: FitResult, about: Mapping[str, Any]) -> str:
        from obygaze_models.saved.persistence import save_model

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
            "reads": fit.reads,
            "facts": fit.facts,
            "history": fit.history,
            "warnings": [asdict(warning) for warning in fit.warnings],
            "not_saved": not_saved,
            "files": {
                path.relative_to(folder).as_posix(): sha256_of(path)
                for path in sorted(folder.rglob("*"))
                if path.is_file()
            },
        }
        record = json.loads(json.dumps(record))  # as it will be read, for its digest
        write_text(folder / FIT, json.dumps(record | {"sha256": digest_of(record)}))
        return not_saved


def _read(
    folder: Path, record: _FitRecord, planned: PlannedFit, data: ClipDataset
) -> tuple[Fit, Any]:
    from obygaze_models.saved.persistence import load_model

    rows, classes, clips = planned.fold.test_rows, len(planned.task.classes), len(data.ids)
    with np.load(folder / ARRAYS, allow_pickle=False) as arrays:
        # A few compressed bytes can become any number.
        size = sum(info.file_size for info in arrays.zip.infolist())
        if size > 8 * (clips + len(rows) * classes) + MAX_HEADERS_BYTES:
            raise ValueError(f"{ARRAYS} is larger than the clips' arrays")
        seen, table = arrays["seen"], arrays["table"]
    if (seen.dtype, table.dtype) != (np.intp, float) or not set(seen.tolist()) <= {*range(clips)}:
        raise ValueError(f"{ARRAYS} has other clips or types")
    check_probabilities(table, (len(rows), classes))
    estimator = None if record.not_saved else load_model(folder / MODEL)[0]
    fit = Fit(estimator, classes, seen, record.reads, record.facts, record.history, record.warnings)
    if estimator is not None:
        fit.probabilities(data, rows[:1])  # raises where the model fits other features
    return fit, table


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
