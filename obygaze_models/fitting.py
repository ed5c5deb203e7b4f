"""Whether a store's features are those that a model was trained on; and reading them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from obygaze_features.errors import ExperimentError
from obygaze_features.store import Store
from obygaze_models.stores import read_features

__all__ = ["check_features", "features_of"]

Array = NDArray[Any]

#: Estimators that read annotations in place of features, and what they read.
_ANNOTATED = {
    "oracle-tree": "annotated concepts",
    "oracle-logistic": "annotated concepts",
    "film-prior": "each clip's film",
}


def check_features(about: Mapping[str, Any], store: Store) -> None:
    """Raise if a store's features are not those that a model fits; one line says what differs.

    Parameters
    ----------
    about
        What `load_model` gave beside the model.
    store
        From `open_store`.
    """
    features = about.get("features")
    if not isinstance(features, Mapping) or "backbone" not in features:
        raise ExperimentError(
            "the model does not say which features it fits; train it again: obygaze models run"
        )
    if reads := _ANNOTATED.get(about.get("estimator", "")):
        raise ExperimentError(
            f"the model ({about['estimator']}) reads {reads}, not features; no store fits it"
        )
    if differences := _differences(features, store):
        raise ExperimentError(
            f"the model does not fit {store.where}: {'; '.join(differences)}; "
            "take the store it was trained on, or one made alike"
        )


def features_of(
    about: Mapping[str, Any], store: Store, ids: Sequence[str]
) -> tuple[list[str], Array]:
    """Which of the ids the store has, and for each the float32 vector that a model reads.

    Parameters
    ----------
    about
        What `load_model` gave beside the model; see `check_features`, which comes first.
    store
        From `open_store`.
    ids
        Which, in the order wanted; those that the store lacks are left out.
    """
    check_features(about, store)
    wanted = about["features"]
    return read_features(store, ids, wanted["array"], wanted["pooling"])


def _differences(wanted: Mapping[str, Any], store: Store) -> list[str]:
    theirs, ours = wanted["backbone"], store.attributes["backbone"]
    if theirs["weights_sha256"] != ours["weights_sha256"]:
        # All else differs then, too, and says nothing more.
        return [
            f"the model is for {theirs['name']} with weights {theirs['weights_sha256'][:12]}, "
            f"the store is of {ours['name']} with weights {ours['weights_sha256'][:12]}"
        ]
    before, now = wanted["preprocessing"], store.attributes["preprocessing"]
    found = [
        f"preprocessing {key} is {now.get(key)!r} in the store, {before.get(key)!r} for the model"
        for key in sorted({*before, *now})
        if before.get(key) != now.get(key)
    ]
    array, pooling, shape = wanted["array"], wanted["pooling"], wanted.get("shape")
    spec = next((one for one in store.specs if one.name == array), None)
    if spec is None:
        found.append(f"the store has no array {array!r}, only {', '.join(store.arrays)}")
    elif (pooling is None) != (len(spec.shape) == 1):
        said = f"pooled by {pooling}" if pooling else "as one vector a clip"
        found.append(f"the model reads {array!r} {said}, and it is {list(spec.shape)} a clip")
    elif shape is not None and list(shape) != list(spec.shape):
        found.append(f"{array!r} is {list(spec.shape)} a clip, {list(shape)} for the model")
    return found
