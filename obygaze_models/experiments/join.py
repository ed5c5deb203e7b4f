"""Labels, folds and features brought together by id; what is missing is counted and named."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from obygaze_features.common.text import join_some
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Manifest, match_ids
from obygaze_features.store import Store
from obygaze_models.experiments.experiment import ALL, Experiment
from obygaze_models.experiments.features import read_features
from obygaze_models.experiments.known import Known
from obygaze_models.experiments.plan import Plan

__all__ = ["Join", "join"]


_MISSING = {
    "without_fold": "labelled clips have no fold in the split",
    "without_features": "labelled clips have no features in the store",
    "without_label": "clips of the store have no label that is used here",
}


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
        return [f"{len(ids)} {what}: {join_some(ids)}" for _, what, ids in self.missing()]

    def missing(self) -> list[tuple[str, str, list[str]]]:
        """The same in parts: which list, what it lacks, and its clips."""
        return [
            (which, what, ids) for which, what in _MISSING.items() if (ids := getattr(self, which))
        ]


def join(
    experiment: Experiment,
    manifest: Manifest,
    store: Store,
    plan: Plan,
    wanted: Collection[str],
) -> tuple[Known, Join]:
    """The clips that have all three, in the manifest's order whatever the files' orders.

    Parameters
    ----------
    wanted
        The levels that a task asks for: the join counts their clips.
    """
    labels = manifest.labels(experiment.labels)
    if absent := sorted(set(wanted) - set(labels.levels)):
        raise ExperimentError(
            f"no clip of {manifest.name} has level {absent[0]}; "
            f"there are {', '.join(sorted(set(labels.levels)))}"
        )
    labelled = [one for one in manifest.ids if labels.level_of.get(one) in wanted]
    # Clips of other levels come along: no task asks for them, but concepts are learnt from them.
    everything = [one for one in manifest.ids if one in labels.level_of]
    placed, pool = (
        [one for one in ids if plan.ids is None or one in plan.ids]
        for ids in (labelled, everything)
    )
    ids, features = read_features(store, pool, experiment.array, experiment.pooling)
    have = set(ids)
    used = [one for one in placed if one in have]
    if not used:
        raise ExperimentError(
            f"none of the {len(placed)} clips of {manifest.name} that have a label and a fold, "
            f"such as {join_some(placed, 2) or 'none'}, has features in {store.where}, "
            f"which is of clips such as {join_some(store.ids, 2)}; take the store of this manifest"
        )
    # What can be heard or told is not in the picture: it is learnt only where it is asked for.
    scheme = manifest.label_scheme(experiment.labels)
    asked = {scheme.concept(one) for one in experiment.concepts if one != ALL}
    seen = set(scheme.visual_concepts or scheme.concept_names) | asked
    names = tuple(name for name in scheme.concept_names if name in seen)
    known = Known(
        ids=ids,
        levels=[labels.level_of[one] for one in ids],
        concepts=np.array(
            [[name in labels.concepts_of[one] for name in names] for one in ids], dtype=bool
        ).reshape(len(ids), len(names)),
        concept_names=names,
        films=[manifest[one].film for one in ids],
        folds=np.array([plan.fold_of.get(one, -1) for one in ids], dtype=np.int64),
        features=features,
    )
    return known, Join(
        labelled=len(labelled),
        used=len(used),
        without_fold=match_ids(labelled, placed).missing_left,
        without_features=match_ids(placed, used).missing_left,
        without_label=match_ids(labelled, store.ids).missing_right,
    )
