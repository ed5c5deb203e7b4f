"""Reproduce the paper's tables and figures from stores, into one folder."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from obygaze_features.common.cores import usable_cores
from obygaze_features.common.figures import save_figure
from obygaze_features.common.files import new_folder, to_json, write_text
from obygaze_features.common.package import need
from obygaze_features.common.text import unknown_name
from obygaze_features.errors import ExperimentError
from obygaze_models.reproduce.context import LEVELS, PROTOCOLS, ReproductionContext
from obygaze_models.reproduce.fig2 import fig2
from obygaze_models.reproduce.fig3 import fig3
from obygaze_models.reproduce.fig5 import fig5
from obygaze_models.reproduce.fig6 import fig6
from obygaze_models.reproduce.render import (
    Artifacts,
    Table,
    to_csv,
    to_json_data,
    to_latex,
    to_text,
)
from obygaze_models.reproduce.table2 import table2, table5
from obygaze_models.reproduce.table4 import table4
from obygaze_models.stores import store_fingerprint
from obygaze_models.warnings import RunWarning, unique_warnings

__all__ = ["TARGETS", "Reproduction", "reproduce"]

TARGETS: dict[str, Callable[[ReproductionContext], Artifacts]] = {
    "table2": table2,
    "table4": table4,
    "table5": table5,
    "fig2": fig2,
    "fig3": fig3,
    "fig5": fig5,
    "fig6": fig6,
}
"""The tables and figures of the paper -> the function that makes each."""
MARKER = "reproduction.json"
_WITHOUT_TRAINING = ("fig2",)
_SECOND = """
import sys
from obygaze_models.reproduce.reproduce import make_runs
make_runs(*sys.argv[1:])
"""


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
    def missing(self) -> list[str]:
        """What is not in the tables, and what it needs."""
        return [f"{table.name}: {item}" for table in self.tables for item in table.missing]

    @property
    def needs(self) -> dict[str, dict[str, list[str]]]:
        """The same by what is needed: the rows that it would give, by table."""
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
        Replace an earlier reproduction at `output`.
    log
        Called with the name of what is made next.
    """
    targets = [targets] if isinstance(targets, str) else targets
    names = list(TARGETS) if "all" in targets else list(dict.fromkeys(targets))
    for kind, chosen, names_of_kind in (
        ("table or figure", names, TARGETS),
        ("protocol", protocols, PROTOCOLS),
    ):
        for name in chosen:
            if name not in names_of_kind:
                raise ExperimentError(unknown_name(kind, name, names_of_kind))
    if any(name.startswith("fig") for name in names):
        need("matplotlib", extra="report")  # before the runs, which take long
    manifest, output = Path(manifest), Path(output)
    began, clock = datetime.now(UTC), time.monotonic()
    paths = {name: Path(store) for name, store in stores.items()}
    with (
        new_folder(output, overwrite=overwrite, marker=MARKER, allow_missing=True) as folder,
        contextlib.ExitStack() as stack,
    ):
        context = ReproductionContext(
            manifest, paths, folder / "runs", protocols=protocols, seed=seed, log=log
        )
        levels = set(context.manifest.labels().levels)
        if not set(names).issubset(_WITHOUT_TRAINING) and not levels.issuperset(LEVELS):
            raise ExperimentError(
                f"{manifest} has clips of {', '.join(sorted(levels))}; the paper's tables need "
                f"{', '.join(LEVELS)}"
            )
        if len(names) > 1 and usable_cores() > 1:
            context.is_shared = stack.enter_context(_second_process(context, paths, names))
        artifacts = {}
        for name in names:
            log(name)
            artifacts[name] = TARGETS[name](context)
            _write(artifacts[name], folder)
        has_report = bool(context.runs) and all(map(find_spec, ("jinja2", "matplotlib")))
        if has_report:
            from obygaze_models.report.page import write_report

            log("report")
            runs = list(context.runs.values())
            write_report(runs, folder / "report.html", title=_title(artifacts))
        seconds = round(time.monotonic() - clock, 1)
        about = {
            "what": names,
            "manifest": {"name": context.manifest.name, "digest": context.manifest.digest},
            "stores": {slot: store_fingerprint(store) for slot, store in context.stores.items()},
            "protocols": list(protocols),
            "seed": seed,
            "runs": list(context.runs),
            "versions": {name: version(name) for name in ("obygaze", "scikit-learn", "torch")},
            "machine": platform.platform(),
            "started": began.isoformat(timespec="seconds"),
            "seconds": seconds,
        }
        write_text(folder / MARKER, to_json(about))
    return Reproduction(output, artifacts, output / "report.html" if has_report else None, seconds)


def _title(artifacts: Mapping[str, Artifacts]) -> str:
    """The page's: whether all of the paper is there, and of which part nothing is missing."""
    complete = [
        name
        for name, artifact in artifacts.items()
        if all(table.has_results and not table.missing for table in artifact.tables)
    ]
    if len(complete) == len(TARGETS):
        return "The paper, reproduced"
    return f"The paper, reproduced in part: {len(complete)} of {len(TARGETS)} tables and figures"


@contextlib.contextmanager
def _second_process(
    context: ReproductionContext, stores: Mapping[str, Path], names: Sequence[str]
) -> Iterator[Callable[[], bool]]:
    """A process that makes the same runs from the last on; gives whether it is at work."""
    settings = {
        "manifest": str(context.manifest_folder),
        "stores": {name: str(store) for name, store in stores.items()},
        "folder": str(context.folder),
        "protocols": list(context.protocols),
        "seed": context.seed,
    }
    with subprocess.Popen(  # noqa: S603  # it is this very interpreter
        [sys.executable, "-c", _SECOND, json.dumps(settings), *reversed(names)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield lambda: process.poll() is None
        finally:
            process.kill()


def make_runs(settings: str, *names: str) -> None:
    """Make the runs of tables and figures; what cannot be made is the first process's to tell."""

    def follow() -> None:
        sys.stdin.read()  # ends with the first process
        os._exit(0)

    threading.Thread(target=follow, daemon=True).start()
    given = json.loads(settings)
    stores = {name: Path(store) for name, store in given["stores"].items()}
    context = ReproductionContext(
        Path(given["manifest"]),
        stores,
        Path(given["folder"]),
        protocols=given["protocols"],
        seed=given["seed"],
        is_shared=lambda: True,
    )
    for name in names:
        with contextlib.suppress(ExperimentError):
            TARGETS[name](context)


def _write(artifacts: Artifacts, folder: Path) -> None:
    for table in artifacts.tables:
        write_text(folder / f"{table.name}.txt", to_text(table))
        write_text(folder / f"{table.name}.csv", to_csv(table))
        write_text(folder / f"{table.name}.tex", to_latex(table))
        write_text(folder / f"{table.name}.json", to_json(to_json_data(table)))
    for name, figure in artifacts.figures.items():
        for suffix in ("svg", "pdf"):
            save_figure(figure, folder / f"{name}.{suffix}")
