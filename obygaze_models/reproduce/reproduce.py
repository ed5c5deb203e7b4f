"""Reproduce the paper's tables and figures from stores, into one folder."""

from __future__ import annotations

import contextlib
import contextvars
import multiprocessing
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from obygaze_features.common.figures import save_figure
from obygaze_features.common.files import new_folder, read_json, to_json, write_text
from obygaze_features.common.package import need, usable_cores
from obygaze_features.common.text import unknown_name
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Manifest
from obygaze_models.data.protocols import PROTOCOLS as KNOWN
from obygaze_models.data.stores import store_fingerprint
from obygaze_models.data.warnings import RunWarning, unique_warnings
from obygaze_models.experiments.run_folder import Run
from obygaze_models.reproduce import annotation, concepts, films  # noqa: F401
from obygaze_models.reproduce.context import LEVELS, PROTOCOLS, TARGETS, ReproductionContext
from obygaze_models.reproduce.render import FORMS, Artifacts, Table

MARKER = "reproduction.json"
MAX_PROCESSES = 4
"""Each holds torch and its features."""


@dataclass(frozen=True)
class Reproduction:
    """A folder of reproduced tables and figures.

    Parameters
    ----------
    folder
        Where the files are.
    artifacts
        What was made, by name.
    report
        The page of all runs; None if there were none, or if what it needs is not installed.
    seconds
        How long it took.
    """

    folder: Path
    artifacts: Mapping[str, Artifacts]
    report: Path | None
    seconds: float

    @property
    def tables(self) -> list[Table]:
        """All tables."""
        return [table for artifacts in self.artifacts.values() for table in artifacts.tables]

    @property
    def needs(self) -> dict[str, dict[str, list[str]]]:
        """What the missing rows need: the rows that it would give, by table."""
        needs: dict[str, dict[str, list[str]]] = {}
        for table in self.tables:
            for item in table.missing:
                row, _, need = item.partition(": ")
                needs.setdefault(need, {}).setdefault(table.name, []).append(row)
        return needs

    @property
    def warnings(self) -> list[RunWarning]:
        """What must be known before any number is read."""
        return unique_warnings([note for table in self.tables for note in table.alarms])

    @property
    def empty(self) -> list[str]:
        """The tables without a number of ours."""
        return [table.name for table in self.tables if not table.has_results]


def reproduce(
    targets: str | Sequence[str],
    manifest: str | Path,
    stores: Mapping[str, str | Path],
    output: str | Path,
    *,
    protocols: Sequence[str] = PROTOCOLS,
    seed: int = 0,
    overwrite: bool = False,
    log: Callable[[str], None] = lambda _: None,
) -> Reproduction:
    """Make tables and figures: each as text, CSV, LaTeX and JSON, and figures as SVG and PDF.

    Parameters
    ----------
    targets
        A name of `TARGETS`, several, or ``"all"``.
    manifest
        The folder of ObyGaze12's manifest, with the authors' splits for the released protocol.
    stores
        The folders of features, by the name of the backbone: one that ``obygaze features
        extract`` takes, or the one that the store records. Rows whose store is not given are left
        out, and named.
    output
        The folder; it appears complete or not at all.
    protocols
        Which of `PROTOCOLS`.
    seed
        Seed of all draws.
    overwrite
        Replace an earlier reproduction at `output`; one without any number of ours always is.
    log
        Called with the name of what is made next.
    """
    targets = [targets] if isinstance(targets, str) else targets
    names = list(TARGETS) if "all" in targets else list(dict.fromkeys(targets))
    _check_names(names, protocols)
    if any(TARGETS[name].draws for name in names):
        need("matplotlib", extra="report")  # before the runs, which take long
    manifest, output = Path(manifest), Path(output)
    if not overwrite and (earlier := output / MARKER).is_file():
        overwrite = not read_json(earlier, ExperimentError).get("results", True)
    began, clock = datetime.now(UTC), time.monotonic()
    paths = {name: Path(store) for name, store in stores.items()}
    training = [TARGETS[name] for name in names if TARGETS[name].trains]
    with (
        new_folder(output, overwrite=overwrite, marker=MARKER, allow_missing=True) as folder,
        _processes(_process_count() if training and len(names) > 1 else 1) as pool,
    ):
        context = ReproductionContext(
            manifest, paths, folder / "runs", protocols=protocols, seed=seed, log=log, pool=pool
        )
        if training:
            _check_levels(context.manifest, manifest)
        if pool:
            context.ask_for_runs(training)
        artifacts = {}
        for name in names:
            log(name)
            artifacts[name] = TARGETS[name].make(context)
            _write(artifacts[name], folder)
        runs = context.runs
        has_report = bool(runs) and all(map(find_spec, ("jinja2", "matplotlib")))
        if has_report:
            log("report")
            _write_report(list(runs.values()), folder / "report.html", _title(artifacts))
        seconds = round(time.monotonic() - clock, 1)
        about = {
            "what": names,
            "manifest": {"name": context.manifest.name, "digest": context.manifest.digest},
            "stores": {slot: store_fingerprint(store) for slot, store in context.stores.items()},
            "protocols": list(protocols),
            "seed": seed,
            "results": [t.name for a in artifacts.values() for t in a.tables if t.has_results],
            "runs": list(runs),
            "versions": {name: version(name) for name in ("obygaze", "scikit-learn", "torch")},
            "machine": platform.platform(),
            "started": began.isoformat(timespec="seconds"),
            "seconds": seconds,
        }
        write_text(folder / MARKER, to_json(about))
    return Reproduction(output, artifacts, output / "report.html" if has_report else None, seconds)


def _check_names(targets: Sequence[str], protocols: Sequence[str]) -> None:
    """Raise if there is no target or protocol of a name."""
    for kind, chosen, names in (
        ("table or figure", targets, TARGETS),
        ("protocol", protocols, PROTOCOLS),
    ):
        for name in chosen:
            if name not in names:
                raise ExperimentError(unknown_name(kind, name, names))


def _check_levels(manifest: Manifest, folder: Path) -> None:
    """Raise if a manifest lacks clips of a level of the paper's."""
    levels = set(manifest.labels().levels)
    if not levels.issuperset(LEVELS):
        raise ExperimentError(
            f"{folder} has clips of {', '.join(sorted(levels))}; the paper's tables need "
            f"{', '.join(LEVELS)}"
        )


def _process_count() -> int:
    """Return how many processes make runs."""
    own = any(not kind.__module__.startswith("obygaze_models.") for kind in KNOWN.values())
    if own and not hasattr(sys.modules["__main__"], "__file__"):
        return 1  # other processes would not know what was defined in a notebook
    return min(usable_cores(), MAX_PROCESSES)


def _write_report(runs: Sequence[Run], page: Path, title: str) -> None:
    from obygaze_models.report.page import report

    # A page's figures have their usual width.
    contextvars.Context().run(report, runs, page, title=title)


def _title(artifacts: Mapping[str, Artifacts]) -> str:
    """The page's: whether all of the paper is there, and of which part nothing is missing."""
    complete = sum(
        all(table.has_results and not table.missing for table in artifact.tables)
        for artifact in artifacts.values()
    )
    if complete == len(TARGETS):
        return "The paper, reproduced"
    return f"The paper, reproduced in part: {complete} of {len(TARGETS)} tables and figures"


@contextlib.contextmanager
def _processes(count: int) -> Iterator[Executor | None]:
    """Processes that make runs; none where this one does as well alone."""
    if count < 2:
        yield None
        return
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, mp_context=spawn, initializer=_end_with_parent) as pool:
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """In a process of the pool: be silent, and end when the first process does, also if killed."""
    sys.stdout = sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115

    def follow() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(0)

    threading.Thread(target=follow, daemon=True).start()


def _write(artifacts: Artifacts, folder: Path) -> None:
    for table in artifacts.tables:
        for suffix, to_form in FORMS.items():
            write_text(folder / f"{table.name}.{suffix}", to_form(table))
    for name, figure in artifacts.figures.items():
        for suffix in ("svg", "pdf"):
            save_figure(figure, folder / f"{name}.{suffix}")
