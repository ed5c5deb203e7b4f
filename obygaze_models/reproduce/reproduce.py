"""Reproduce the paper's tables and figures from stores, into one folder."""

from __future__ import annotations

import importlib
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from obygaze_features.common.files import new_folder, to_json, write_text
from obygaze_features.common.package import need
from obygaze_features.common.text import unknown_name
from obygaze_features.errors import ExperimentError
from obygaze_models.figures import save_figure
from obygaze_models.reproduce.bench import LEVELS, PROTOCOLS, Bench
from obygaze_models.reproduce.formats import as_csv, as_json, as_latex, as_text
from obygaze_models.reproduce.tables import Made
from obygaze_models.stores import store_fingerprint

__all__ = ["WHAT", "Reproduction", "reproduce"]

WHAT = {
    "table2": "obygaze_models.reproduce.table2:table2",
    "table4": "obygaze_models.reproduce.table4:table4",
    "table5": "obygaze_models.reproduce.table2:table5",
    "fig2": "obygaze_models.reproduce.fig2:fig2",
    "fig3": "obygaze_models.reproduce.fig3:fig3",
    "fig5": "obygaze_models.reproduce.fig5:fig5",
    "fig6": "obygaze_models.reproduce.fig6:fig6",
}
"""A table or figure, and the function that makes it of a `Bench`."""
MARK = "reproduction.json"


@dataclass(frozen=True)
class Reproduction:
    """A folder of reproduced tables and figures.

    Parameters
    ----------
    folder
        Where they lie.
    made
        What was made, by its name.
    report
        The page of all runs, if there were any and what it needs is installed.
    seconds
        How long it took.
    """

    folder: Path
    made: Mapping[str, Made]
    report: Path | None
    seconds: float

    @property
    def missing(self) -> list[str]:
        """What is not in the tables, and what it would take."""
        return [
            f"{table.name}: {one}"
            for made in self.made.values()
            for table in made.tables
            for one in table.missing
        ]

    @property
    def warnings(self) -> list[str]:
        """What must be known before any number."""
        notes = [
            note
            for made in self.made.values()
            for table in made.tables
            for note in table.notes
            if note.startswith("Not a real result")
        ]
        return list(dict.fromkeys(notes))

    @property
    def empty(self) -> list[str]:
        """The tables that have no number of ours."""
        return [
            table.name
            for made in self.made.values()
            for table in made.tables
            if not any(line.kind == "ours" for block in table.blocks for line in block.lines)
        ]


def reproduce(
    what: Sequence[str],
    manifest: Path,
    stores: Mapping[str, Path],
    output: Path,
    *,
    protocols: Sequence[str] = PROTOCOLS,
    seed: int = 0,
    overwrite: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Reproduction:
    """Make tables and figures: each as text, CSV, LaTeX and JSON, and figures as SVG and PDF.

    Parameters
    ----------
    what
        Names in `WHAT`.
    manifest
        The folder of ObyGaze12's manifest, with the authors' splits for the released protocol.
    stores
        The folders of features, by the name of the backbone: one that ``obygaze features
        extract`` takes, or the one that the store records. Rows whose store is not given are left
        out, and named.
    output
        The folder; it appears complete or not at all.
    protocols
        Which of the paper's readings, of `PROTOCOLS`.
    seed
        Of all draws.
    overwrite
        Replace what an earlier reproduction left there.
    say
        Told what is being done.
    """
    for kind, given, known in (
        ("table or figure", what, WHAT),
        ("protocol", protocols, PROTOCOLS),
    ):
        for name in given:
            if name not in known:
                raise ExperimentError(unknown_name(kind, name, known))
    from obygaze_models.report.page import write_report

    if any(name.startswith("fig") for name in what):
        need("matplotlib", extra="report")  # before the runs, which take long

    began, clock = datetime.now(UTC), time.monotonic()
    with new_folder(output, overwrite=overwrite, marker=MARK, allow_missing=True) as folder:
        bench = Bench(manifest, dict(stores), folder / "runs", protocols, seed, say)
        present = set(bench.read.labels().levels)
        if set(what) != {"fig2"} and not present.issuperset(LEVELS):
            raise ExperimentError(
                f"{manifest} has clips of {', '.join(sorted(present))}; the paper's tables are of "
                f"{', '.join(LEVELS)}"
            )
        made = {name: _make(name, bench) for name in dict.fromkeys(what)}
        for one in made.values():
            _write(one, folder)
        with_report = bool(bench.runs) and find_spec("jinja2") and find_spec("matplotlib")
        if with_report:
            say("report")
            title = f"The paper, reproduced{bench.mark}"
            write_report(list(bench.runs.values()), folder / "report.html", title=title)
        seconds = round(time.monotonic() - clock, 1)
        about = {
            "what": list(made),
            "manifest": {"name": bench.read.name, "digest": bench.read.digest},
            "stores": {name: store_fingerprint(of) for name, of in bench.open.items()},
            "protocols": list(protocols),
            "seed": seed,
            "runs": list(bench.runs),
            "versions": {name: version(name) for name in ("obygaze", "scikit-learn", "torch")},
            "machine": platform.platform(),
            "started": began.isoformat(timespec="seconds"),
            "seconds": seconds,
        }
        write_text(folder / MARK, to_json(about))
    return Reproduction(output, made, output / "report.html" if with_report else None, seconds)


def _make(name: str, bench: Bench) -> Made:
    bench.say(name)
    module, _, attribute = WHAT[name].partition(":")
    made: Made = getattr(importlib.import_module(module), attribute)(bench)
    return made


def _write(made: Made, folder: Path) -> None:
    for table in made.tables:
        write_text(folder / f"{table.name}.txt", as_text(table))
        write_text(folder / f"{table.name}.csv", as_csv(table))
        write_text(folder / f"{table.name}.tex", as_latex(table))
        write_text(folder / f"{table.name}.json", to_json(as_json(table)))
    for name, figure in made.figures.items():
        for suffix in ("svg", "pdf"):
            save_figure(figure, folder / f"{name}.{suffix}")
