"""Functions of the front door that take runs as objects or as folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from obygaze_models.experiments.run_folder import Results, Run, read_results

if TYPE_CHECKING:
    from obygaze_models.experiments.comparisons import Comparisons

__all__ = ["compare", "report"]

AnyRun = Run | Results | str | Path


def compare(*runs: AnyRun, models: Sequence[str] = ()) -> Comparisons:
    """Compare models on the clips that both were tested on.

    Parameters
    ----------
    runs
        Runs or their folders. Of several, each model is compared with that of the same name in
        the others; of one, its models with one another.
    models
        Compare only these models, each with each other.
    """
    from obygaze_models.experiments.compare import compare_runs

    return compare_runs([_results(run) for run in runs], models=models)


def report(
    runs: AnyRun | Sequence[AnyRun],
    output: str | Path,
    *,
    title: str | None = None,
    thumbnails: str | Path | None = None,
    analyses: Sequence[str | Path] = (),
    nearest: str | Path | None = None,
    frames: str | Path | None = None,
    moments: str | Path | None = None,
    timelines: str | Path | None = None,
    overwrite: bool = False,
) -> Path:
    """Write the results of runs as one HTML page, and return its path.

    Parameters
    ----------
    runs
        A run or several, or their folders.
    output
        The page.
    title
        By default the name of the run.
    thumbnails
        A folder of pictures ID.jpg to hold inside the page; do not share such a page.
    analyses
        JSON files of ``obygaze models explain``, shown as tests of the models' concepts.
    frames, moments
        CSV files of ``obygaze models moments``, shown on the time axis of each film.
    timelines
        A folder of annotators' segments, shown above these.
    nearest
        A store, by whose vectors the five clips nearest to each clip are found.
    overwrite
        Replace an existing page.
    """
    from obygaze_models.report.page import write_report

    several = [runs] if isinstance(runs, Run | Results | str | Path) else runs
    return write_report(
        [_results(run) for run in several],
        Path(output),
        title=title,
        thumbnails=None if thumbnails is None else Path(thumbnails),
        analyses=[Path(path) for path in analyses],
        nearest=nearest,
        frames=None if frames is None else Path(frames),
        moments=None if moments is None else Path(moments),
        timelines=None if timelines is None else Path(timelines),
        overwrite=overwrite,
    )


def _results(run: AnyRun) -> Results:
    match run:
        case Results():
            return run
        case Run():
            return read_results(run.folder)
    return read_results(Path(run))
