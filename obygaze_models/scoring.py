"""What a saved model says of the clips of a store, and how well that fits annotations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.tables import format_table
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Manifest
from obygaze_features.store import FeatureStore, Status
from obygaze_models.estimators.baselines import baselines
from obygaze_models.experiments.known import Known
from obygaze_models.experiments.metrics import Scores, score, score_classes
from obygaze_models.experiments.task import task_from
from obygaze_models.fitting import features_of
from obygaze_models.persistence import load_model

__all__ = ["UNSURE", "Predictions", "Score", "predict", "score_model"]

UNSURE = "unsure"
"""What is said of clips whose probability lies in the band of abstention."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a model says of clips.

    Parameters
    ----------
    about
        What was kept with the model.
    ids
        The clips.
    probabilities
        ``[n, classes]``.
    said
        A class for each clip, or `UNSURE`.
    seen
        Whether the model has seen the clip in training.
    """

    about: dict[str, Any]
    ids: list[str]
    probabilities: NDArray[Any]
    said: list[str]
    seen: NDArray[np.bool_]

    def to_csv(self) -> str:
        """A row a clip: what is said, each class's probability, and whether it was trained on."""
        columns: dict[str, Sequence[str]] = {"id": self.ids, "said": self.said}
        for name, of in zip(self.about["classes"], self.probabilities.T.tolist(), strict=True):
            columns[f"probability_{name}"] = [f"{value:.6f}" for value in of]
        columns["seen_in_training"] = ["yes" if one else "no" for one in self.seen.tolist()]
        return format_table({**columns})


@dataclass(frozen=True)
class Score:
    """How well a model does on annotated clips.

    Parameters
    ----------
    task
        What it tells apart.
    clips, positives
        Clips that were scored, and how many of them are of the last class.
    seen
        Those of them that the model has seen in training: then this is no test.
    scores
        On all of them.
    unseen
        On those that it has not seen; None where these are too few.
    baselines
        What guessing scores at this share of positives; empty for more than two classes.
    missing
        Annotated clips that the store lacks.
    """

    task: str
    clips: int
    positives: int
    seen: list[str]
    scores: Scores
    unseen: Scores | None
    baselines: dict[str, Scores]
    missing: list[str]


def predict(
    model: Path,
    store: FeatureStore,
    *,
    ids: Sequence[str] | None = None,
    band: tuple[float, float] | None = None,
) -> Predictions:
    """Ask a saved model about clips of a store.

    Parameters
    ----------
    model
        Its folder.
    store
        Of the features that it was trained on; others are refused.
    ids
        Which clips; by default all that are done.
    band
        Where the probability of the most probable class's rival is too close to tell: of two
        classes, a probability of the second from the first number to the second is `UNSURE`.
    """
    estimator, about = load_model(model)
    if band is not None and not (0 <= band[0] <= band[1] <= 1 and len(about["classes"]) == 2):
        raise ExperimentError(
            f"a band is two probabilities in order, for a model of two classes, not {band}"
        )
    if ids is None:
        ids = [store.ids[row] for row in np.flatnonzero(store.status == Status.DONE).tolist()]
    if lost := [one for one in ids if one not in store]:
        raise ExperimentError(
            f"{store.where} has no clip {lost[0]}"
            + (f", nor {len(lost) - 1} more" * (len(lost) > 1))
        )
    found, features = features_of(about, store, ids)
    table = np.zeros((len(found), len(about["classes"])))
    if len(found):
        table[:, estimator.classes_] = estimator.predict_proba(features)
    said = [about["classes"][place] for place in table.argmax(axis=1).tolist()]
    if band is not None:
        unsure = (band[0] <= table[:, 1]) & (table[:, 1] <= band[1])
        said = [UNSURE if no else one for no, one in zip(unsure.tolist(), said, strict=True)]
    return Predictions(about, found, table, said, np.isin(found, about["seen"]))


def score_model(
    model: Path, store: FeatureStore, manifest: Manifest, *, labels: str | None = None
) -> Score:
    """Score a saved model on the annotated clips of a manifest.

    Parameters
    ----------
    model, store
        As in `predict`.
    manifest
        Whose labels are the truth; clips of other levels take no part.
    labels
        Which of its label sets; by default its default one.
    """
    _, about = load_model(model)
    truth = manifest.labels(labels)
    names = manifest.scheme.concept_names
    known = Known(
        ids=list(truth.ids),
        levels=list(truth.levels),
        concepts=np.array([[name in of for name in names] for of in truth.concepts], bool).reshape(
            len(truth.ids), len(names)
        ),
        concept_names=names,
        films=[manifest[one].film for one in truth.ids],
        folds=np.full(len(truth.ids), -1),
        features=np.empty((len(truth.ids), 0), np.float32),
    )
    codes = task_from(about["learns"]).labels(known)
    label_of = {one: code for one, code in zip(known.ids, codes.tolist(), strict=True) if code >= 0}
    if not label_of:
        raise ExperimentError(f"no clip of {manifest.name} takes part in {about['task']}")
    said = predict(model, store, ids=[one for one in label_of if one in store])
    if not said.ids:
        raise ExperimentError(
            f"none of the {len(label_of)} clips of {manifest.name} that take part in "
            f"{about['task']} is in {store.where}"
        )
    right = np.array([label_of[one] for one in said.ids])
    two = len(about["classes"]) == 2

    def scored(rows: NDArray[np.bool_]) -> Scores:
        if two:
            return score(right[rows], said.probabilities[rows, 1])
        return score_classes(right[rows], said.probabilities[rows])

    share = float((right == 1).mean())
    return Score(
        task=about["task"],
        clips=len(right),
        positives=int((right == len(about["classes"]) - 1).sum()),
        seen=[one for one, was in zip(said.ids, said.seen.tolist(), strict=True) if was],
        scores=scored(np.ones(len(right), bool)),
        unseen=scored(~said.seen) if len(np.unique(right[~said.seen])) > 1 else None,
        baselines=baselines(share) if two and 0 < share < 1 else {},
        missing=sorted(set(label_of) - set(said.ids)),
    )
