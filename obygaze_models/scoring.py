"""What a saved model says of the clips of a store, and how well that fits annotations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.tables import format_table
from obygaze_features.common.text import find_closest_id
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Manifest
from obygaze_features.store import Status, Store
from obygaze_models.dataset import ClipDataset
from obygaze_models.estimators.baselines import baselines
from obygaze_models.experiments.official import official_measure
from obygaze_models.fitting import features_of
from obygaze_models.leaks import overlapping
from obygaze_models.metrics import TREC, Scores, average_precision, score, trec_ranks
from obygaze_models.persistence import load_model
from obygaze_models.tasks import task_from
from obygaze_models.warnings import RunWarning, synthetic_warnings

__all__ = ["RENAMED", "UNSURE", "Part", "Predictions", "Score", "predict", "score_model"]

UNSURE = "unsure"
"""What is said of clips whose probability lies in the band of abstention."""
RENAMED = "under another id"
"""Of clips that show seconds of a file that the model has seen under other ids."""


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
        Whether the model has seen the clip in training: ``yes``, `RENAMED` or ``no``.
    warnings
        What must be said beside it.
    """

    about: dict[str, Any]
    ids: list[str]
    probabilities: NDArray[Any]
    said: list[str]
    seen: list[str]
    warnings: list[RunWarning]

    def to_csv(self) -> str:
        """A row a clip: what is said, each class's probability, and whether it was trained on."""
        columns: dict[str, Sequence[str]] = {"id": self.ids, "said": self.said}
        for name, of in zip(self.about["classes"], self.probabilities.T.tolist(), strict=True):
            columns[f"probability_{name}"] = [f"{value:.6f}" for value in of]
        columns["seen_in_training"] = self.seen
        return format_table({**columns})


@dataclass(frozen=True)
class Part:
    """How well a model does on some clips.

    Parameters
    ----------
    clips, positives
        Clips that were scored, and how many of them are of the last class.
    classes
        Of how many classes they are; of one alone there is nothing to tell apart.
    scores
        On them; None where a score is undefined.
    baselines
        What guessing scores at this share of positives; empty for more than two classes, or one.
    """

    clips: int
    positives: int
    classes: int
    scores: Scores
    baselines: dict[str, Scores]


@dataclass(frozen=True)
class Score:
    """How well a model does on annotated clips.

    Parameters
    ----------
    task
        What it tells apart.
    every
        On all of them.
    unseen
        On those that the model has not seen in training: the others test nothing.
    measure
        The task's official measure, if it has one; it is among the scores.
    seen
        Which the others are.
    missing
        Annotated clips that the store lacks.
    warnings
        What must be said beside it.
    """

    task: str
    every: Part
    unseen: Part
    seen: list[str]
    missing: list[str]
    warnings: list[RunWarning]
    measure: str | None


def predict(
    model: Path,
    store: Store,
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
        more = f" (and {len(lost) - 1} more that it lacks)" if len(lost) > 1 else ""
        near = find_closest_id(lost[0], store.ids)
        hint = f"did you mean {near}?" if near else f"it has clips such as {store.ids[0]}"
        raise ExperimentError(f"{store.where} has no clip {lost[0]}{more}; {hint}")
    found, features = features_of(about, store, ids)
    table = np.zeros((len(found), len(about["classes"])))
    if len(found):
        table[:, estimator.classes_] = estimator.predict_proba(features)
    said = [about["classes"][place] for place in table.argmax(axis=1).tolist()]
    if band is not None:
        unsure = (band[0] <= table[:, 1]) & (table[:, 1] <= band[1])
        said = [UNSURE if no else one for no, one in zip(unsure.tolist(), said, strict=True)]
    items = store.items
    again = overlapping(about, items, found).tolist()
    known = frozenset(about["seen"])
    seen = [
        "yes" if one in known else RENAMED if renamed else "no"
        for one, renamed in zip(found, again, strict=True)
    ]
    earlier = [RunWarning(**one) for one in about.get("warnings", ())]
    warnings = synthetic_warnings(items, store.attributes["backbone"], earlier)
    return Predictions(about, found, table, said, seen, warnings)


def score_model(
    model: Path, store: Store, manifest: Manifest, *, labels: str | None = None
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
    names = manifest.label_scheme(labels).concept_names
    known = ClipDataset(
        ids=list(truth.ids),
        levels=list(truth.levels),
        concepts=np.array([[name in of for name in names] for of in truth.concepts], bool).reshape(
            len(truth.ids), len(names)
        ),
        concept_names=names,
        groups=np.array([manifest[one].film for one in truth.ids]),
        folds=np.full(len(truth.ids), -1),
        X=np.empty((len(truth.ids), 0), np.float32),
    )
    task = task_from(about["learns"])
    measure = official_measure(truth, manifest.label_scheme(labels), [task])
    codes = task.labels(known)
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
    seen = np.array(said.seen) != "no"
    ranks = trec_ranks(said.ids, said.probabilities[:, 1]) if measure == TREC else None
    return Score(
        task=about["task"],
        every=_score(right, said.probabilities, ranks),
        unseen=_score(
            right[~seen], said.probabilities[~seen], None if ranks is None else ranks[~seen]
        ),
        seen=[one for one, was in zip(said.ids, seen.tolist(), strict=True) if was],
        missing=sorted(set(label_of) - set(said.ids)),
        warnings=said.warnings,
        measure=measure,
    )


def _score(labels: NDArray[Any], probabilities: NDArray[Any], trec: NDArray[Any] | None) -> Part:
    classes = probabilities.shape[1]
    clips, positives = len(labels), int((labels == classes - 1).sum())
    two = classes == 2
    scores = score(labels, probabilities[:, 1] if two else probabilities)
    if trec is not None:
        scores[TREC] = average_precision(labels, trec)
    return Part(
        clips=clips,
        positives=positives,
        classes=len(np.unique(labels)),
        scores=scores,
        baselines=baselines(positives / clips) if two and 0 < positives < clips else {},
    )
