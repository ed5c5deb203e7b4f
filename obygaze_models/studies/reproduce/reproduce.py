"""Reproduce the paper's tables and figures from stores, and write them to a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed

from obygaze_features.common.figures import save_figure
from obygaze_features.common.files import new_folder, to_json, write_text
from obygaze_features.common.names import as_list, unknown_name
from obygaze_features.common.package import need, obygaze_version, reference_json, usable_cores
from obygaze_features.errors import ExperimentError
from obygaze_models.data.run_warning import RunWarning, origin_warnings, unique_warnings
from obygaze_models.experiments.experiment import Experiment
from obygaze_models.experiments.run import run_experiment
from obygaze_models.results.run import Run, load_run
from obygaze_models.studies.reproduce.concepts import (
    make_figure2,
    make_figure3,
    make_figure5,
    plan_trees,
    plan_vectors,
)
from obygaze_models.studies.reproduce.context import (
    BACKBONES,
    PROTOCOL_NAMES,
    Needs,
    ReproductionContext,
    Target,
    made_easy,
)
from obygaze_models.studies.reproduce.films import make_figure6, make_table4, plan_films
from obygaze_models.studies.reproduce.render import Artifacts, Table, to_csv, to_text
from obygaze_models.studies.reproduce.table2 import make_table, plan_table

MARKER = "reproduction.json"
MAX_PROCESSES = 4
"""The maximum number of worker processes. Each has torch and features in memory."""

TARGETS = {
    "fig2": Target("levels and concepts", make_figure2, by_protocol=False),
    "table2": Target(
        "from a backbone's features to objectification",
        partial(make_table, name="table2"),
        partial(plan_table, name="table2"),
    ),
    "table5": Target(
        "X-CLIP retrained on LSMDC",
        partial(make_table, name="table5"),
        partial(plan_table, name="table5"),
    ),
    "fig3": Target(
        "concept activation vectors, F1 of the positive class", make_figure3, plan_vectors
    ),
    "fig5": Target("decision trees on concepts, the first levels", make_figure5, plan_trees),
    "table4": Target(
        "each film left out in turn, X-CLIP, HN-S/ENHN-S",
        make_table4,
        plan_films,
        by_protocol=False,
    ),
    "fig6": Target(
        "the factors of the network's errors (X-CLIP, native), by film",
        make_figure6,
        plan_films,
        by_protocol=False,
    ),
}
"""The tables and figures of the paper, by name."""


@dataclass(frozen=True)
class Reproduction:
    """A folder of reproduced tables and figures.

    Parameters
    ----------
    folder
        The folder of all files.
    tables
        All tables, with their notes.
    missing
        The missing parts of the tables, by what they need.
    """

    folder: Path
    tables: Sequence[Table]
    missing: Mapping[str, Sequence[str]]

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
    protocols: Sequence[str] = (),
    overwrite: bool = False,
    log: Callable[[str], None] = lambda _: None,
) -> Reproduction:
    """Make the paper's tables (as text and CSV) and figures (as SVG and PDF).

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
        The protocols to use, from `PROTOCOL_NAMES` (default: all). Tables without a part for each
        protocol are made in their own way; raise if only such tables are named.
    overwrite
        Replace an earlier reproduction at `output`.
    log
        A function that is called with the name of each run or target before it is made.
    """
    names = list(dict.fromkeys(as_list(targets)))
    if "all" in names:
        names = list(TARGETS)
    for noun, chosen, known in (
        ("table or figure", names, TARGETS),
        ("protocol", protocols, PROTOCOL_NAMES),
    ):
        for name in chosen:
            if name not in known:
                raise ExperimentError(unknown_name(noun, name, known))
    if protocols and not any(TARGETS[name].by_protocol for name in names):
        raise ExperimentError(
            f"{', '.join(names)}: protocols apply only to table2, table5, fig3 and fig5. Leave "
            "the protocols out"
        )
    protocols = protocols or PROTOCOL_NAMES
    for module in ("jinja2", "matplotlib"):
        need(module, extra="report")  # before the long runs
    context = ReproductionContext(manifest, stores, protocols=protocols)
    needs = {}
    experiments: dict[str, Experiment] = {}
    missing: dict[str, list[str]] = {}
    for name in names:
        needs[name] = context.needs(TARGETS[name])
        experiments |= needs[name].experiments
        for lack, lacking in needs[name].missing.items():
            missing.setdefault(lack, []).append(f"{name}: {', '.join(lacking)}")
    processes = min(usable_cores(), MAX_PROCESSES) if len(names) > 1 else 1
    output = Path(output)
    with new_folder(output, overwrite=overwrite, marker=MARKER, allow_missing=True) as folder:
        runs = _train(experiments, folder / "runs", processes, log)
        tables = []
        for name in names:
            log(name)
            tables += _make(name, context, needs[name], runs, folder)
        about = {"what": names, "protocols": list(protocols), "obygaze": obygaze_version()}
        write_text(folder / MARKER, to_json(about))
    return Reproduction(output, tables, missing)


def _train(
    experiments: dict[str, Experiment],
    folder: Path,
    processes: int,
    log: Callable[[str], None],
) -> dict[str, Run]:
    """Run each experiment, and load the runs.

    The last experiment starts first: if all targets are made, it leaves out each film in turn, and
    takes the longest.
    """

    def jobs() -> Iterator[Any]:
        for name, experiment in reversed(experiments.items()):
            log(f"run: {experiment.name}")
            yield delayed(make_run)(experiment, folder / name)

    try:
        Parallel(n_jobs=processes)(jobs())
    except BrokenProcessPool:
        raise ExperimentError(
            "a worker process was killed. If memory is low, free some memory, or "
            "reproduce one table or figure at a time, which uses a single process"
        ) from None
    return {name: load_run(folder / name) for name in experiments}


def make_run(experiment: Experiment, folder: Path) -> None:
    """Run an experiment in a worker; the run is read from its folder, not sent back."""
    run_experiment(experiment, folder)


def _make(
    name: str,
    context: ReproductionContext,
    needs: Needs,
    all_runs: Mapping[str, Run],
    folder: Path,
) -> list[Table]:
    """Make and write a target's tables and figures, and return the tables with their notes."""
    target = TARGETS[name]
    runs = {key: all_runs[key] for key in needs.experiments}
    artifacts = Artifacts([Table()])
    if runs or not needs.missing:
        artifacts = target.make(context, runs)
    warnings = origin_warnings(context.manifest.items)
    for run in runs.values():
        # Table 2 says more about the leaks in released splits.
        is_released = run.header.protocol == "released"
        warnings += [note for note in run.warnings if note.code != "leak" or not is_released]

    tables = []
    for table in artifacts.tables:
        table = replace(table, name=name + table.name, title=target.title)
        notes = [*_notes(table, context, needs, artifacts.facts), *table.notes, *warnings]
        table = replace(table, notes=unique_warnings(notes))
        write_text(folder / f"{table.name}.txt", to_text(table))
        write_text(folder / f"{table.name}.csv", to_csv(table))
        tables.append(table)
    for key, figure in artifacts.figures.items():
        for suffix in ("svg", "pdf"):
            save_figure(figure, folder / f"{key}.{suffix}")
    return tables


def _notes(
    table: Table,
    context: ReproductionContext,
    needs: Needs,
    facts: Mapping[str, object],
) -> list[RunWarning]:
    """Return the notes of a table, one for each line of the template."""
    from jinja2 import StrictUndefined, Template

    text = (files("obygaze_models.studies.reproduce") / "notes.txt").read_text(encoding="utf-8")
    sources = {experiment.store for experiment in needs.experiments.values()}
    slots = [slot for slot, store in context.stores.items() if store.where in sources]
    rendered = Template(text, trim_blocks=True, undefined=StrictUndefined).render(
        facts,
        table=table,
        context=context,
        made_easy=made_easy(context.manifest),
        stores={BACKBONES[slot].title: slot for slot in slots},
        published=reference_json("published.json"),
        missing=needs.missing,
    )
    return [RunWarning("note", "", line) for line in rendered.splitlines() if line]
