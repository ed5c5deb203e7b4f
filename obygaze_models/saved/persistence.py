"""Save and load models as safetensors and JSON. Nothing is ever unpickled.

A model is a folder. ``model.json`` has the estimator with all its parameters, a description, and
the SHA-256 digests of the other files. ``model.safetensors`` has the arrays. Third-party
estimators, or parts of them, are saved as ``.skops`` files. A pipeline is saved step by step. Files
can only name classes in `obygaze_models.estimators.safe_classes`, and classes with an entry point.
Everything that is loaded is checked against these lists before it is used.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import importlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from obygaze_features.common.files import new_folder, read_bytes
from obygaze_features.common.text import first_line, join_some
from obygaze_features.errors import ExperimentError, ObygazeError
from obygaze_models.estimators.classes import keywords, reads_frames
from obygaze_models.estimators.registry import (
    ENTRY_POINT_GROUP,
    best_of,
    plugin_errors,
    trusted_classes,
)
from obygaze_models.estimators.safe_classes import (
    MAX_CLIP_NUMBERS,
    OWN,
    SAFE,
    check_fitted,
    class_path,
    refit_neighbours,
    unsafe_classes,
)
from obygaze_models.estimators.trees import as_tree
from obygaze_models.saved.about import (
    FORMAT,
    FORMAT_VERSION,
    HEADER,
    About,
    damaged,
    digest_of,
    read_header,
)

ARRAYS = "model.safetensors"
Arrays = dict[str, np.ndarray[Any, Any]]

# Attributes that are not saved: results of `fit` (these are in ``about``) and metadata requests.
_NOT_SAVED = ("facts_", "warnings_", "_metadata_request")
_NEIGHBOURS = "sklearn.neighbors:KNeighborsClassifier"
# The saved state of nearest neighbours, which are fitted again: the clips and their class codes.
_ROWS = ("_fit_X", "_y", "classes_")
# The saved parameters of a pipeline. Its memory is only for the process that fitted it.
_PIPELINE = ("steps", "transform_input", "verbose")
# The methods that `_try_out` calls, if the model has them.
_METHODS = (
    "predict_proba", "predict", "decision_function", "transform", "predict_frames",
)  # fmt: skip
# Each string in an array takes as much memory as the longest string.
_MAX_TEXTS_BYTES = 2**26


@dataclass
class _Parts:
    """A model's arrays and skops files by name, and the packages that it requires by class."""

    arrays: Arrays = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    requires: dict[str, str] = field(default_factory=dict)


def save_model(
    model: Any, path: str | Path, about: Mapping[str, Any] | None = None, *, durable: bool = True
) -> None:
    """Save a fitted estimator to a new folder.

    Raise `ExperimentError` if the estimator cannot be saved safely, because its class is not in
    `obygaze_models.estimators.safe_classes` (forests and kernel machines, for example), or if it
    could not be loaded again.

    Parameters
    ----------
    model
        An estimator of this package or of scikit-learn, a `Pipeline`, or an estimator of an
        installed package that has an entry point for it. For a search, the best estimator is saved.
    path
        The folder to create. It appears only when it is complete.
    about
        A description as JSON values, such as the features (backbone and array) and the task.
    durable
        Flush the files to disk. Pass False within a folder from `new_folder`, which flushes all
        files itself.
    """
    import msgspec
    from safetensors.numpy import save

    path, model = Path(path), best_of(model)
    parts = _Parts()
    tree = _encode(model, "model", parts)
    try:
        if hasattr(model, "__sklearn_tags__"):  # trees from a file have no tags
            check_is_fitted(model)
    except NotFittedError:
        kind = type(model).__name__
        raise ExperimentError(f"the {kind} is not fitted. Call fit first") from None
    _read_back(model, tree, parts, about or {})
    files = {ARRAYS: save(parts.arrays), **parts.files}
    header = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "about": dict(about or {}),
        "model": tree,
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
    } | ({"requires": parts.requires} if parts.requires else {})
    if not durable:
        path.mkdir(parents=True)
    with new_folder(path) if durable else contextlib.nullcontext(path) as folder:
        for name, data in files.items():
            (folder / name).write_bytes(data)
        text = json.dumps(
            header | {"sha256": digest_of(header)}, ensure_ascii=False, allow_nan=False
        )
        # The same bytes as `to_json`, but faster, because models list thousands of clips.
        (folder / HEADER).write_bytes(msgspec.json.format(text.encode(), indent=2) + b"\n")


def load_model(path: str | Path) -> tuple[Any, About]:
    """Load a model that `save_model` wrote, and its description."""
    from safetensors.numpy import load

    path = Path(path)
    header, about = read_header(path)
    for kind in header.requires.keys() - (trusted_classes().keys() if header.requires else ()):
        raise ExperimentError(
            f"{path} needs the estimator {kind} from {header.requires[kind]}, which is not "
            "installed or cannot be loaded. See: obygaze models list"
        )
    files = {}
    for name, digest in header.files.items():
        if not (path / name).exists():
            raise damaged(path, f"the file {name!r} is missing")
        files[name] = read_bytes(path / name, ExperimentError)
        if hashlib.sha256(files[name]).hexdigest() != digest:
            raise damaged(path / name, "its checksum does not match")
    try:
        parts = _Parts(load(files.pop(ARRAYS)), files)
        model = _decode(header.model, parts)
        check_fitted(model, trusted_classes() if files else ())
        _try_out(model, about)
        if "classes" in about and not (about.is_numeric and is_regressor(model)):
            _check_classes(model, about["classes"])
        return model, about
    except ObygazeError as problem:
        raise damaged(path, str(problem)) from None
    except MemoryError:
        raise
    except Exception as problem:  # edited files can cause any error, but run no code
        raise damaged(path, f"{type(problem).__name__}: {first_line(problem)}") from None


def check_savable(model: Any) -> None:
    """Raise `ExperimentError` if an unfitted estimator has classes that cannot be saved."""
    _encode(best_of(model), "model", _Parts())


def _encode(value: Any, name: str, parts: _Parts) -> Any:
    """Convert a value to JSON, and add its arrays to `parts` under descriptive names."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        # Convert the array first, because safetensors ignores byte order and strides.
        parts.arrays[name] = np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("="))
        return {"array": name}
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "UO":
        return {"texts": [_text(text, name) for text in value.tolist()]}
    if isinstance(value, np.generic):
        return _encode(value.item(), name, parts)
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list | tuple):
        items = [_encode(item, f"{name}.{index}", parts) for index, item in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, Mapping):
        # Write pairs, because keys of JSON objects must be strings, but classes may be numbers.
        pairs = [
            [_encode(key, name, parts), _encode(item, f"{name}.{key}", parts)]
            for key, item in value.items()
        ]
        return {"mapping": pairs}
    return _encode_object(value, name, parts)


def _encode_object(value: Any, name: str, parts: _Parts) -> Any:
    path = _path_of(type(value))
    if isinstance(value, FrozenEstimator):
        return {"frozen": _encode(value.estimator, name, parts)}
    if type(value) is Pipeline:
        settings = {key: getattr(value, key) for key in _PIPELINE}
        return {"pipeline": _encode_all(settings, name, parts)}
    if hasattr(value, "tree_"):
        value = as_tree(value) or value  # as arrays, which are checked when loaded
        path = _path_of(type(value))
    if path is None:
        return {"skops": _encode_foreign(value, name, parts)}
    if is_dataclass(value) and not hasattr(value, "get_params"):
        groups = {"fields": {item.name: getattr(value, item.name) for item in fields(value)}}
    else:
        parameters = value.get_params(deep=False)
        groups = {
            # The memory is only for the process that fitted the model.
            "parameters": {**parameters, **({"memory": None} if "memory" in parameters else {})},
            "fitted": {
                key: item
                for key, item in vars(value).items()
                if key not in parameters
                and key not in _NOT_SAVED
                and not key.startswith("__")
                and (path != _NEIGHBOURS or key in _ROWS)
            },
        }
    return {"class": path} | {
        group: _encode_all(items, name, parts) for group, items in groups.items()
    }


def _encode_all(items: Mapping[str, Any], name: str, parts: _Parts) -> dict[str, Any]:
    return {key: _encode(item, f"{name}.{key}", parts) for key, item in items.items()}


def _decode(value: Any, parts: _Parts) -> Any:
    """Decode a value from `_encode`, creating only plain values and allowed classes."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list):
        return [_decode(item, parts) for item in value]
    if set(value) == {"class", "fields"}:
        return _find_class(value["class"])(**_decode_all(value["fields"], parts))
    if set(value) == {"class", "parameters", "fitted"}:
        return _decode_fitted(value, parts)
    kind = next(iter(value), "")
    if len(value) != 1 or kind not in _DECODERS:
        raise ExperimentError(f"not a valid part of a model (got {str(value)[:60]!r})")
    return _DECODERS[kind](value[kind], parts)


def _decode_texts(value: Any, parts: _Parts) -> Any:
    texts = [_text(text, "a list of strings") for text in value]
    if 4 * len(texts) * max(map(len, texts), default=0) > _MAX_TEXTS_BYTES:
        raise ExperimentError("a list of strings is too long")
    return np.array(texts)


_DECODERS: dict[str, Callable[[Any, _Parts], Any]] = {
    "array": lambda value, parts: parts.arrays[value],
    "texts": _decode_texts,
    "tuple": lambda value, parts: tuple(_decode(item, parts) for item in value),
    "mapping": lambda value, parts: {
        _decode(key, parts): _decode(item, parts) for key, item in value
    },
    "frozen": lambda value, parts: FrozenEstimator(_decode(value, parts)),
    "pipeline": lambda value, parts: Pipeline(
        **{key: _decode(value[key], parts) for key in _PIPELINE}
    ),
    "skops": lambda value, parts: _decode_foreign(parts.files[value]),
}
"""The decoders, by the key that names the kind of value."""


def _decode_fitted(value: Mapping[str, Any], parts: _Parts) -> Any:
    """Create an estimator from its parameters, and set its fitted attributes."""
    model = _find_class(value["class"])(**_decode_all(value["parameters"], parts))
    names, fitted = model.get_params(deep=False), _decode_all(value["fitted"], parts)
    if fitted and value["class"] == _NEIGHBOURS:  # compiled code would trust its arrays
        clips, codes, classes = (fitted[key] for key in _ROWS)
        return model.fit(clips, classes[codes])
    for key, item in fitted.items():
        if key in names or key.startswith("__") or hasattr(type(model), key):
            raise ExperimentError(f"{value['class']} has no fitted attribute {key!r}")
        setattr(model, key, item)
    return model


def _decode_all(items: Mapping[str, Any], parts: _Parts) -> dict[str, Any]:
    return {key: _decode(item, parts) for key, item in items.items()}


def _path_of(kind: type) -> str | None:
    """Return the path of a class that is saved as JSON and arrays, or None for other classes."""
    path = class_path(f"{kind.__module__}.{kind.__qualname__}")
    return path if path in OWN else None


def _find_class(path: Any) -> Any:
    if not (isinstance(path, str) and path in OWN):
        raise ExperimentError(f"{str(path)[:60]!r} is not a class that obygaze can load")
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def _encode_foreign(value: Any, name: str, parts: _Parts) -> str:
    """Add a third-party estimator to `parts` as a skops file, and return the file's name."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if not hasattr(value, "get_params"):
        raise ExperimentError(f"{name} cannot be saved (got a {kind})")
    trusted = trusted_classes()
    unsafe = unsafe_classes(value, trusted)
    if kind in unsafe and not kind.startswith("sklearn."):
        path = f"{type(value).__module__}:{type(value).__qualname__}"
        raise ExperimentError(
            f"{name} cannot be saved, because the class {kind} has no entry point. To save "
            "it, register it in the pyproject.toml of its package: "
            f'[project.entry-points."{ENTRY_POINT_GROUP}"] '
            f'{type(value).__name__.lower()} = "{path}"'
        )
    if not unsafe:
        import skops.io

        try:
            value = copy.copy(value)
            vars(value).pop("_metadata_request", None)  # skops cannot write it
            data = skops.io.dumps(value)
            types = {*skops.io.get_untrusted_types(data=data)}
        except Exception as problem:  # third-party code may raise anything
            raise ExperimentError(
                f"{name} ({kind}) cannot be saved: {first_line(problem)}"
            ) from None
        unsafe = sorted(types - _loadable(types))
    if unsafe:
        raise ExperimentError(
            f"{name} ({kind}) cannot be saved, because it contains {join_some(unsafe, 3)}, which "
            "cannot be loaded safely"
        )
    parts.files[f"{name}.skops"] = data
    parts.requires |= {kind: trusted[kind] for kind in types if kind in trusted}
    return f"{name}.skops"


def _decode_foreign(data: bytes) -> Any:
    import skops.io

    try:
        types = _loadable(skops.io.get_untrusted_types(data=data))
        return refit_neighbours(skops.io.loads(data, trusted=sorted(types)))
    except Exception as problem:  # skops raises many types
        raise ExperimentError(first_line(problem)) from None


def _loadable(types: Iterable[str]) -> set[str]:
    """Return the types in a skops file that are safe to load, beyond those that skops trusts."""
    trusted = trusted_classes()
    return {name for name in types if name in trusted or class_path(name) in SAFE - OWN}


def _read_back(model: Any, tree: Any, parts: _Parts, about: Mapping[str, Any]) -> None:
    """Raise `ExperimentError` if `load_model` could not load the model."""
    try:
        with plugin_errors([type(model).__module__]):
            decoded = _decode(tree, parts)
            check_fitted(decoded, trusted_classes() if parts.files else ())
            _try_out(decoded, about)
        if not np.array_equal(getattr(decoded, "classes_", ()), getattr(model, "classes_", ())):
            raise ExperimentError("the classes must be 0, 1, ...")
    except (ExperimentError, ValueError) as problem:
        names = ["n_features_in_"]
        if hasattr(model, "predict"):
            names.insert(0, "classes_")
        if hasattr(model, "__sklearn_tags__") and reads_frames(model):
            names.append("n_frames_in_")
        missing = [name for name in names if not hasattr(model, name)]
        reason = f"fit does not set {' and '.join(missing)}" if missing else first_line(problem)
        raise ExperimentError(
            f"the {type(model).__name__} could not be loaded again: {reason}"
        ) from None


def _try_out(model: Any, about: Mapping[str, Any]) -> None:
    """Predict a single clip with a loaded model; raise an error if its parts do not match."""
    steps = [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]
    features = about.get("features")
    trained = list(features.get("shape") or ()) if isinstance(features, Mapping) else []
    widths = [step.n_features_in_ for step in steps if hasattr(step, "n_features_in_")]
    frames = (model.n_frames_in_,) if hasattr(model, "n_frames_in_") else ()
    size = (1, *frames, (trained or widths[:1])[-1] if widths else 1)
    if math.prod(size) > MAX_CLIP_NUMBERS:
        raise ExperimentError(f"the model reads more than {MAX_CLIP_NUMBERS} numbers per clip")
    clip = np.full(size, 0.5, dtype=np.float32)
    for name in _METHODS:
        if not hasattr(model, name):
            continue
        method, arguments = getattr(model, name), {}
        if "groups" in keywords(getattr(steps[-1], name, method)):
            arguments = {"groups": getattr(steps[-1], "films_", np.array([""]))[-1:]}
        output = np.asarray(method(clip, **arguments))
        is_complete = name != "predict_proba" or output.shape[1:] == model.classes_.shape
        if len(output) != 1 or not is_complete:
            raise ExperimentError("the parts of the model do not match")
        if output.dtype.kind == "f" and not np.isfinite(output).all():
            raise ExperimentError(f"{name} returns values that are not finite")


def _check_classes(model: Any, names: Sequence[str]) -> None:
    """Raise `ExperimentError` if a loaded model's classes do not match their names."""
    codes = np.asarray(model.classes_)
    if codes.dtype.kind not in "iu" or not np.array_equal(codes, np.unique(codes)):
        raise ExperimentError("the classes are not sorted whole numbers")
    if codes.min() < 0 or codes.max() >= len(names):
        raise ExperimentError(f"the class codes do not match the names {', '.join(names)}")


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise ExperimentError(f"{name} has {value!r} instead of a string")
    return value
