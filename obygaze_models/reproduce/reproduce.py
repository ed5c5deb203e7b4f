"""Reproduce the paper's tables and figures from stores, and write them to a folder."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed

from obygaze_features.common.figures import save_figure
from obygaze_features.common.files import new_folder, read_json, to_json, write_text
from obygaze_features.common.package import need, usable_cores
from obygaze_features.common.text import group_by, unknown_name
from obygaze_features.errors import ExperimentError
from obygaze_models.data.stores import store_fingerprint
from obygaze_models.data.warnings import RunWarning, unique_warnings
from obygaze_models.experiments.experiment import Experiment
from obygaze_models.experiments.fit import FitMemo
from obygaze_models.experiments.run import run_experiment
from obygaze_models.experiments.tables import Run, load_run
from obygaze_models.reproduce import annotation, concepts, films  # noqa: F401
from obygaze_models.reproduce.context import LEVELS, PROTOCOLS, TARGETS, Needs, ReproductionContext
from obygaze_models.reproduce.render import FORMS, Artifacts, Table

MARKER = "reproduction.json"
MAX_PROCESSES = 4
"""The maximum number of worker processes. Each has torch and features in memory."""
_MEMO = FitMemo()
"""The concept banks that a process keeps between runs."""


@dataclass(frozen=True)
class Reproduction:
    """A folder of reproduced tables and figures.

    Parameters
    ----------
    folder
        The folder of all files.
    artifacts
        The tables and figures by name.
    reports
        A page of runs for each label set; empty if the page's packages are not installed.
    seconds
        The duration of the reproduction.
    """

    folder: Path
    artifacts: Mapping[str, Artifacts]
    reports: Sequence[Path]
    seconds: float

    @property
    def tables(self) -> list[Table]:
        """All tables."""
        return [table for artifacts in self.artifacts.values() for table in artifacts.tables]

    @property
    def needs(self) -> dict[str, dict[str, list[str]]]:
        """The missing parts of each table, by what they need."""
        needs: dict[str, dict[str, list[str]]] = {}
        for table in self.tables:
            for missing in table.missing:
                parts = needs.setdefault(missing.need, {}).setdefault(table.name, [])
                parts.append(missing.part)
        return needs

    @property
    def warnings(self) -> list[RunWarning]:
        """The warnings that make numbers meaningless, without duplicates."""
        return unique_warnings([note for table in self.tables for note in table.alarms])

    @property
    def empty(self) -> list[str]:
        """The names of the tables that have no computed numbers."""
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
    """Make the paper's tables (as text, CSV and LaTeX) and figures (as SVG and PDF).

    Parameters
    ----------
    targets
        One or several names of `TARGETS`, or ``"all"``.
    manifest
        The folder of ObyGaze12's manifest. The released protocol needs the authors' splits.
    stores
        The folders of features, by the backbone's name in ``obygaze features extract`` or in the
        store. Rows whose store is missing are left out and listed.
    output
        The folder to write. It is written completely or not at all.
    protocols
        The protocols to use, from `PROTOCOLS`.
    seed
        The seed of all experiments.
    overwrite
        Replace an earlier reproduction at `output`. A reproduction that has no computed
        numbers, only the paper's, is always replaced.
    log
        A function that is called with the name of each run, target or page before it is made.
    """
    names = _chosen_names([targets] if isinstance(targets, str) else targets, protocols)
    if any(TARGETS[name].draws for name in names):
        need("matplotlib", extra="report")  # before the long runs
    manifest, output = Path(manifest), Path(output)
    if not overwrite and (earlier := output / MARKER).is_file():
        overwrite = not read_json(earlier, ExperimentError).get("results", True)
    began, clock = datetime.now(UTC), time.monotonic()
    paths = {name: Path(store) for name, store in stores.items()}
    context = ReproductionContext(manifest, paths, protocols=protocols, seed=seed)
    needs = {name: list_needs(context) for name in names if (list_needs := TARGETS[name].needs)}
    levels = set(context.manifest.labels().levels)
    if needs and not levels.issuperset(LEVELS):
        raise ExperimentError(
            f"{manifest} has clips of levels {', '.join(sorted(levels))}, but the paper's tables "
            f"need {', '.join(LEVELS)}"
        )
    planned = [plan for need in needs.values() for plan in need.experiments.values()]
    experiments = {plan.folder: plan.experiment for plan in planned}
    processes = 1
    if len(names) > 1:
        processes = min(usable_cores(), MAX_PROCESSES)
    with new_folder(output, overwrite=overwrite, marker=MARKER, allow_missing=True) as folder:
        runs = _train(experiments, folder / "runs", processes, log)
        artifacts = {}
        for name in names:
            log(name)
            artifacts[name] = TARGETS[name].make(context, needs.get(name, Needs()), runs)
            _write(artifacts[name], folder)
        pages = []
        if find_spec("jinja2"):
            pages = _write_pages(runs.values(), folder, _title(artifacts), log)
        reports = [output / name for name in pages]
        done = Reproduction(output, artifacts, reports, round(time.monotonic() - clock, 1))
        about = _about(context, done, list(runs)) | {"started": began.isoformat(timespec="seconds")}
        write_text(folder / MARKER, to_json(about))
    return done


def _chosen_names(targets: Sequence[str], protocols: Sequence[str]) -> list[str]:
    """Return the targets' names without duplicates; raise `ExperimentError` for unknown names."""
    names = list(TARGETS) if "all" in targets else list(dict.fromkeys(targets))
    for kind, chosen, options in (
        ("table or figure", names, TARGETS),
        ("protocol", protocols, PROTOCOLS),
    ):
        for name in chosen:
            if name not in options:
                raise ExperimentError(unknown_name(kind, name, options))
    return names


def _about(context: ReproductionContext, done: Reproduction, runs: list[str]) -> dict[str, Any]:
    """Describe the input of a reproduction, for its JSON file."""
    return {
        "what": list(done.artifacts),
        "manifest": {"name": context.manifest.name, "digest": context.manifest.digest},
        "stores": {slot: store_fingerprint(store) for slot, store in context.stores.items()},
        "protocols": list(context.protocols),
        "seed": context.seed,
        "results": [table.name for table in done.tables if table.has_results],
        "runs": runs,
        "versions": {name: version(name) for name in ("obygaze", "scikit-learn", "torch")},
        "machine": platform.platform(),
        "seconds": done.seconds,
    }


def _train(
    experiments: dict[str, Experiment],
    folder: Path,
    processes: int,
    log: Callable[[str], None],
) -> dict[str, Run]:
    """Run each experiment, and load the runs.

    The first is the last experiment, which leaves out each film in turn and takes the longest.
    """

    def jobs() -> Iterator[Any]:
        for name, experiment in reversed(experiments.items()):
            log(f"run: {experiment.name}")
            yield delayed(make_run)(experiment, folder / name)

    for name in experiments:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
    try:
        Parallel(n_jobs=processes)(jobs())
    except BrokenProcessPool:
        raise ExperimentError(
            "a worker process was killed. If memory is low, free some memory, or "
            "reproduce one table or figure at a time, which uses a single process"
        ) from None
    return {name: load_run(folder / name) for name in experiments}


def make_run(experiment: Experiment, folder: Path) -> None:
    """Run an experiment, perhaps in a worker process."""
    run_experiment(experiment, folder, memo=_MEMO)


def _write_pages(
    runs: Iterable[Run], folder: Path, title: str, log: Callable[[str], None]
) -> list[str]:
    """Write a page for each label set, and return the names of the pages."""
    from obygaze_models.report.page import report

    names = []
    for (_, labels), of_labels in group_by(runs, lambda run: run.header.manifest.label_key).items():
        name = f"report-{labels}.html"
        log(name)
        report(of_labels, folder / name, title=f"{title} (labels: {labels})")
        names.append(name)
    return names


def _title(artifacts: Mapping[str, Artifacts]) -> str:
    """Return the page's title, with the number of complete tables and figures."""
    complete = sum(
        all(table.has_results and not table.missing for table in artifact.tables)
        for artifact in artifacts.values()
    )
    if complete == len(TARGETS):
        return "The paper, reproduced"
    return f"The paper, reproduced in part: {complete} of {len(TARGETS)} tables and figures"


def _write(artifacts: Artifacts, folder: Path) -> None:
    for table in artifacts.tables:
        for suffix, to_form in FORMS.items():
            write_text(folder / f"{table.name}.{suffix}", to_form(table))
    for name, figure in artifacts.figures.items():
        for suffix in ("svg", "pdf"):
            save_figure(figure, folder / f"{name}.{suffix}")
