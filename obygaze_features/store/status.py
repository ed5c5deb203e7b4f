"""Report the progress of the stores in a folder: rows done, active machines, and time left."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from obygaze_features.common.files import require_folder
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store import format as fmt
from obygaze_features.store.claims import Claims
from obygaze_features.store.format import Status
from obygaze_features.store.reader import Store, open_store

RECENT_S = 3600.0
"""The period, in seconds before the last written block, over which speed is measured."""


def report_progress(folder: Path | str) -> list[dict[str, Any]]:
    """Return the progress of each store in a folder, ordered by name, or of a single store.

    Each report has these keys:

    - ``path`` and ``state`` (``open``, ``final``, or ``unreadable`` with only a ``problem``);
    - the numbers of ``rows``, ``done``, ``failed`` and ``to_do``;
    - ``running``, the number of blocks that each active machine has claimed;
    - ``rows_per_second``, measured over the blocks of the last hour while a machine is active,
      otherwise the speed of the last extraction; None if the store is final or its speed unknown;
    - ``seconds_left`` at this speed; None if there is no speed.
    """
    folder = Path(folder)
    require_folder(folder, "a folder of stores", UsageError)
    is_store = (folder / "zarr.json").exists()
    paths = (
        [folder] if is_store else sorted(path.parent for path in folder.glob("*.zarr/zarr.json"))
    )
    if not paths:
        raise UsageError(f"{folder} has no stores; pass the folder that contains them")
    return [_report(path) for path in paths]


def _report(path: Path) -> dict[str, Any]:
    try:
        store = open_store(path)
        counts = np.bincount(store.status, minlength=len(Status)).tolist()
    except StoreError as problem:
        return {"path": str(path), "state": "unreadable", "problem": str(problem)}
    to_do, done = counts[Status.TODO], counts[Status.DONE]
    running = Claims(path / fmt.CLAIMS).active_hosts()
    runs = (run["clips_a_second"] for run in read_runs(path / fmt.LOG))
    speed = None if store.is_final else _recent_speed(store) if running else next(runs, None)
    rows = {"rows": len(store), "done": done, "failed": len(store) - done - to_do, "to_do": to_do}
    times = {"rows_per_second": speed, "seconds_left": to_do / speed if speed else None}
    state = store.attributes["state"]
    return {"path": str(path), "state": state, **rows, "running": running, **times}


def _recent_speed(store: Store) -> float | None:
    """Return the rows per second, from the times at which recent blocks were written."""
    names = [fmt.record_name(record.block) for record in store.records]
    times = np.array([(store.path / name).stat().st_mtime for name in names])
    times = times[times > times.max(initial=0) - RECENT_S]
    seconds = float(np.ptp(times)) if times.size else 0
    return store.block_rows * (len(times) - 1) / seconds if seconds else None


def read_runs(log: Path) -> Iterator[dict[str, Any]]:
    """Yield the extractions in a log, latest first, with their ``clips_a_second``."""
    for line in reversed(log.read_text(encoding="utf-8").splitlines() if log.is_file() else []):
        # The line was cut by a kill, or describes another event.
        with contextlib.suppress(ValueError, LookupError, TypeError, ZeroDivisionError):
            run = json.loads(line)
            if run["event"] == "extracted" and run["clips"]:
                seconds = run["seconds"] * (1 - run.get("shares", {}).get("start", 0))
                yield run | {"clips_a_second": run["clips"] / seconds}
