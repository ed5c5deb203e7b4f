"""How far the stores of a folder are: what is done, who is at work, and how long it will take."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from obygaze_features.common.files import require_folder
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store import format as fmt
from obygaze_features.store.claims import Claims
from obygaze_features.store.format import Status
from obygaze_features.store.reader import Store, open_store

RECENT_S = 3600.0
"""The blocks by which the speed is measured were written in this time before the last one."""


@dataclass(frozen=True)
class StoreProgress:
    """How far a store is.

    Parameters
    ----------
    path, state
        The store, and ``open``, ``final`` or ``unreadable``.
    rows, done, failed, to_do
        How many rows it has, and how many of each.
    running
        Machine -> the blocks that its processes compute now.
    rows_per_second
        While somebody is at work, by the blocks of the last hour; else of the last extraction.
    seconds_left
        Until all rows are done at this speed; None where that is not known.
    problem
        Why the store cannot be read.
    """

    path: str
    state: str
    rows: int = 0
    done: int = 0
    failed: int = 0
    to_do: int = 0
    running: Mapping[str, int] = field(default_factory=dict)
    rows_per_second: float | None = None
    seconds_left: float | None = None
    problem: str = ""


def report_progress(folder: Path | str) -> list[StoreProgress]:
    """How far each store in a folder is, by name; a folder that is a store is the only one."""
    folder = Path(folder)
    require_folder(folder, "a folder of stores", UsageError)
    is_store = (folder / "zarr.json").exists()
    paths = [folder] if is_store else sorted(path.parent for path in folder.glob("*/zarr.json"))
    if not paths:
        raise UsageError(f"{folder} has no stores; give the folder that they are in")
    return [_report(path) for path in paths]


def _report(path: Path) -> StoreProgress:
    try:
        store = open_store(path)
        status = store.status
    except StoreError as problem:
        return StoreProgress(str(path), "unreadable", problem=str(problem))
    counts = np.bincount(status, minlength=len(Status)).tolist()
    to_do, done = counts[Status.TODO], counts[Status.DONE]
    running = Claims(path / fmt.CLAIMS).active_hosts()
    speed = None if store.is_final else _recent_speed(store) if running else _logged_speed(path)
    return StoreProgress(
        str(path),
        store.attributes["state"],
        rows=len(store),
        done=done,
        failed=len(store) - done - to_do,
        to_do=to_do,
        running=running,
        rows_per_second=speed,
        seconds_left=to_do / speed if speed else None,
    )


def _recent_speed(store: Store) -> float | None:
    """Rows a second, by the times at which the last blocks were written."""
    names = [fmt.record_name(record.block) for record in store.records]
    times = np.array([(store.path / name).stat().st_mtime for name in names])
    times = np.sort(times[times > times.max(initial=0) - RECENT_S])
    if len(times) < 2 or times[0] == times[-1]:
        return None
    return float(store.block_rows * (len(times) - 1) / (times[-1] - times[0]))


def _logged_speed(path: Path) -> float | None:
    """Clips a second of the last extraction that the store's log tells of."""
    lines: list[str] = []
    with contextlib.suppress(OSError, UnicodeDecodeError):
        lines = (path / fmt.LOG).read_text(encoding="utf-8").splitlines()
    for line in reversed(lines):
        with contextlib.suppress(ValueError, TypeError, KeyError, ZeroDivisionError):
            event = json.loads(line)
            if event["event"] == "extracted" and event["clips"]:
                return float(event["clips"] / event["seconds"])
    return None
