"""Labels, folds and features brought together by id; what is missing is counted and named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Manifest, match_ids
from obygaze_features.store import FeatureStore
from obygaze_models.experiments.evaluate import Clips
from obygaze_models.experiments.experiment import Experiment

__all__ = ["Join", "join"]


@dataclass(frozen=True)
class Join:
    """What came together and what did not.

    ``labelled`` clips are those of a level that the experiment uses; ``used`` of them have a
    fold and features. The lists name the others, and the store's clips without such a label.
    """

    labelled: int
    used: int
    without_fold: list[str]
    without_features: list[str]
    without_label: list[str]

    def lines(self) -> list[str]:
        """What is missing on either side, for people to read."""
        return [
            f"{len(ids)} {what}: {_some(ids)}"
            for what, ids in [
                ("labelled clips have no fold in the split", self.without_fold),
                ("labelled clips have no features in the store", self.without_features),
                ("clips of the store have no label that is used here", self.without_label),
            ]
            if ids
        ]


def join(experiment: Experiment, manifest: Manifest, store: FeatureStore) -> tuple[Clips, Join]:
    """The clips that have all three, in the manifest's order whatever the files' orders."""
    labels = manifest.labels(experiment.labels)
    fold_of = manifest.split(experiment.split).fold_of
    wanted = experiment.train_task.levels.union(*(task.levels for task in experiment.test_tasks))
    if absent := sorted(wanted - set(labels.levels)):
        raise ExperimentError(
            f"no clip of {manifest.name} has level {absent[0]}; "
            f"there are {', '.join(sorted(set(labels.levels)))}"
        )
    labelled = [id_ for id_ in manifest.ids if labels.level_of.get(id_) in wanted]
    in_split = [id_ for id_ in labelled if id_ in fold_of]
    ids, features = store.read(in_split, experiment.array, missing="skip")
    if features.ndim != 2:
        raise ExperimentError(
            f"array {experiment.array!r} has {features.ndim - 1} axes a clip; "
            "take one with a vector a clip, such as native"
        )
    clips = Clips(
        ids=ids,
        levels=[labels.level_of[id_] for id_ in ids],
        folds=np.array([fold_of[id_] for id_ in ids], dtype=np.int64),
        features=features,
    )
    return clips, Join(
        labelled=len(labelled),
        used=len(ids),
        without_fold=match_ids(labelled, in_split).missing_left,
        without_features=match_ids(in_split, ids).missing_left,
        without_label=match_ids(labelled, store.ids).missing_right,
    )


def _some(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - 5} more" if len(ids) > 5 else ""
    return ", ".join(ids[:5]) + more
