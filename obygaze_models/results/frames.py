"""The predictions of each frame of a run's test clips."""

from __future__ import annotations

from obygaze_features.errors import ExperimentError
from obygaze_models.data.stores import Stores, open_stores
from obygaze_models.explain.moments import average_frames
from obygaze_models.results.run import Run
from obygaze_models.saved.predict import FramePredictions, predict_frames


def run_frames(
    run: Run,
    store: Stores,
    *,
    model: str = "",
) -> FramePredictions:
    """Predict each frame of a run's test clips with the models that were tested on them.

    Parameters
    ----------
    run, store
        A run on disk, and the store with the frames.
    model
        The model's name in the run, if several models read frames.
    """
    fits = run.fits[(run.fits["reads"] == "frames") & (run.fits["folder"] != "")]
    if model:
        fits = fits[fits["model"] == model]
    if len(fits[["model", "task"]].drop_duplicates()) != 1 or run.folder is None:
        raise ExperimentError(
            f"{run.place} needs exactly one saved model that reads frames, such as frame-mil, for "
            "one task. Pass the folder of one such model instead"
        )
    opened = open_stores(store)
    predictions = run.predictions.assign(task=run.predictions["test"].map(run.trained_on))
    tested = fits.merge(predictions, on=["model", "task", "fit"])
    by_fit = []
    for folder, clips in tested.groupby("folder", sort=False)["id"]:
        present = [clip for clip in clips.unique() if clip in opened]
        if present:
            by_fit.append(predict_frames(run.folder / str(folder), opened, present))
    if not by_fit:
        raise ExperimentError(
            f"{opened.where} has none of the run's test clips, the only ones that a run predicts. "
            "Train a model with obygaze models train, and pass it instead of the run"
        )
    return average_frames(by_fit)
