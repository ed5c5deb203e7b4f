"""``OUTPUT.partial``: the run folder while it is written, and the fits that are finished there.

A fit's model is where the run will have it, in ``models``; all else of it is a file in ``fits``,
which appears by one rename after the model, survives a loss of power, and has their digests: what
was killed before that is fitted again. ``partial.json`` says of which experiment, clips, folds and
versions the fits are; where one of them differs, the run starts anew. Nothing else is resumed or
removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Collection, Mapping
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
    write_bytes,
    write_text,
)
from obygaze_features.common.text import counted
from obygaze_features.errors import ExperimentError, OutputExists, StoreUnreadable
from obygaze_features.store.location import Folder, sha256_at
from obygaze_models.data.dataset import ClipDataset
from obygaze_models.data.warnings import RunWarning
from obygaze_models.experiments.fit import Fit, FitResult, PlannedFit, check_probabilities
from obygaze_models.experiments.run_folder import RUN_FILES, Facts

FORMAT, FORMAT_VERSION = "obygaze-partial-run", 2
HEADER, FITS, MODELS = "partial.json", "fits", "models"
_OWN = re.compile(
    rf"{HEADER}|{FITS}/[^/]+/[^/]+\.json|{MODELS}/[^/]+/[^/]+/model[^/\\]*"
    rf"|{'|'.join(map(re.escape, RUN_FILES))}"
    r"|(?:[^/]+/)*\.[^/]+\.[0-9a-f]{8}_\d+_\w+\.partial"
)
"""The files that a run writes, and their temporary names."""


class _FitFile(msgspec.Struct):
    """A finished fit; `files` has the digests of its model's files, none if it was not saved."""

    reads: Literal["features", "frames", "concepts", "groups"]
    facts: dict[str, Any]
    history: list[dict[str, Any]]
    warnings: list[RunWarning]
    not_saved: str
    files: dict[Annotated[str, msgspec.Meta(pattern=r"^model[^/\\]*\Z")], str]
    seen: list[Annotated[int, msgspec.Meta(ge=0)]]
    table: list[list[float]]

    def __post_init__(self) -> None:
        msgspec.convert(self.facts, Facts)


class FinishedFits:
    """The fits of an interrupted run, and those of this one.

    Parameters
    ----------
    output
        The run folder; the fits are in a folder beside it until it is complete.
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
        earlier, now = self._read_identity(), self._identity
        keys = dict.fromkeys([*now, *earlier])
        changed = [key for key in keys if earlier.get(key) != now.get(key)]
        if changed and not anew:
            log(f"{self.folder} is not resumed: {', '.join(changed)} changed. Starting anew.")
        if changed or anew:
            self.discard()
            return
        found = len(list(self.folder.glob(f"{FITS}/*/[!.]*")))
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
        files, name = Folder(self.folder), f"{FITS}/{planned.place}.json"
        if not files.exists(name):
            return None
        try:
            content, _, digest = files.read(name).rpartition(b"\n")
            if _digest(content) != digest:
                raise ValueError(f"the digest of {name} differs")
            record = msgspec.json.decode(content, type=_FitFile)
            for part, digest_of_part in record.files.items():
                if sha256_at(files, f"{MODELS}/{planned.place}/{part}") != digest_of_part:
                    raise ValueError(f"the digest of {part} differs")
            result = self._result(record, planned, data)
        except StoreUnreadable:
            raise
        except Exception:  # whatever damage causes
            self._log(f"{self.folder / name} is damaged; it is fitted again.")
            return None
        self._kept[planned.place] = record.not_saved
        return result

    def _result(self, record: _FitFile, planned: PlannedFit, data: ClipDataset) -> FitResult:
        from obygaze_models.saved.persistence import load_model

        rows, classes = planned.fold.test_rows, len(planned.task.classes)
        seen, table = np.array(record.seen, dtype=np.intp), np.array(record.table, dtype=float)
        if seen.max() >= len(data):
            raise ValueError("it has seen clips that are not there")
        check_probabilities(table, (len(rows), classes))
        path = self.folder / MODELS / planned.place
        model = None if record.not_saved else load_model(path)[0]
        fit = Fit(model, classes, seen, record.reads, record.facts, record.history, record.warnings)
        if model is not None:
            fit.probabilities(data, rows[:1])  # raises where the model fits other features
        return FitResult(planned, fit, table)

    def keep(self, result: FitResult, about: Mapping[str, Any]) -> str:
        """Keep a result and its model, unless they are; gives why the model cannot be saved.

        One that failed is not kept: what was in its way may be gone when the run resumes.
        """
        from obygaze_models.saved.persistence import save_model

        place, fit = result.planned.place, result.fit
        assert fit is not None
        assert result.table is not None
        if place in self._kept:
            return self._kept[place]
        self.begin()
        model, not_saved = self.folder / MODELS / place, ""
        shutil.rmtree(model, ignore_errors=True)  # of a fit that is damaged or was not finished
        try:
            save_model(fit.model, model, about)
        except ExperimentError as problem:  # its scores stay
            not_saved = str(problem)
        record = _FitFile(
            reads=fit.reads,
            facts=fit.facts,
            history=fit.history,
            warnings=fit.warnings,
            not_saved=not_saved,
            files={path.name: sha256_of(path) for path in sorted(model.glob("*"))},
            seen=fit.seen.tolist(),
            table=result.table.tolist(),
        )
        content = msgspec.json.encode(record)
        write_bytes(self.folder / FITS / f"{place}.json", content + b"\n" + _digest(content))
        self._kept[place] = not_saved
        return not_saved

    def begin(self) -> None:
        """Make the folder, unless it is there; `OutputExists` where another run writes it."""
        if not self.folder.exists():
            # Another process may make it at the same time.
            with contextlib.suppress(OutputExists), new_folder(self.folder) as folder:
                write_text(folder / HEADER, json.dumps(self._identity, indent=1) + "\n")
        if self._read_identity() != self._identity:
            raise OutputExists(f"another run writes {self.folder}; choose another output")

    def become(self, folder: Path, models: Collection[str]) -> None:
        """Make the folder, whose tables are written, `folder`, which is empty; with these models.

        What killed processes left is of no fit.
        """
        folder.rmdir()
        self.folder.rename(folder)
        kept = {folder / MODELS / place for place in models}
        for path in (*folder.glob("*"), *folder.glob(f"{MODELS}/*/*")):
            if path.is_dir() and path not in kept and path.name != MODELS:
                shutil.rmtree(path)
            elif path.is_file() and path.name not in RUN_FILES:
                path.unlink()

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


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()
