"""Save and load models as safetensors and JSON. Nothing is ever unpickled.

A model is a folder. ``model.json`` has the estimator with all its parameters, a description, and
the SHA-256 of ``model.safetensors``, which has the arrays. Files can only name classes in
`obygaze_models.estimators.safe_classes`, and classes with an entry point of an installed package.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from sklearn.utils.validation import check_is_fitted

from obygaze_features.common.files import new_folder, read_bytes, read_format, write_bytes
from obygaze_features.common.text import first_line
from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.registry import (
    best_of,
    class_path,
    load_class,
    modules_of,
    plugin_errors,
    trusted_classes,
)
from obygaze_models.estimators.safe_classes import SAFE, check_part
from obygaze_models.estimators.trees import as_tree
from obygaze_models.saved.about import About

FORMAT = "obygaze-model"
FORMAT_VERSION = 3
HEADER = "model.json"
ARRAYS = "model.safetensors"
MAKE = "obygaze models train"
REMEDY = f"train the model again ({MAKE})"
MAX_CHARACTERS = 2**24
"""The maximum size of an array of strings, each of which takes as much memory as the longest."""
MAX_NESTING = 7
"""The maximum depth of nested parts. Each nested pipeline doubles the time to predict."""
NOT_SAVED = {"facts_", "warnings_", "_metadata_request"}
NEIGHBOURS = "sklearn.neighbors:KNeighborsClassifier"
ROWS = ("_fit_X", "_y", "classes_")
"""The saved state of nearest neighbours, which are fitted again: the clips and their classes."""
Arrays = dict[str, "np.ndarray[Any, Any]"]


class ModelFile(msgspec.Struct):
    """The content of ``model.json``. `files` has the digest of the arrays."""

    format_version: Literal[3]
    about: About
    model: dict[str, Any]
    files: dict[str, str]


def save_model(
    model: Any,
    path: str | Path,
    about: About | None = None,
    *,
    card: str = "",
    overwrite: bool = False,
) -> None:
    """Save a fitted estimator, or the best estimator of a search, to a folder.

    `card` is the text of the ``README.md``. Raise `ExperimentError` if the estimator has parts that
    cannot be loaded safely, such as a forest.
    """
    files = model_files(model, about or About())
    if card:
        files["README.md"] = card.encode()
    with new_folder(Path(path), overwrite=overwrite, marker=HEADER, allow_missing=True) as folder:
        for name, data in files.items():
            write_bytes(folder / name, data)


def model_files(model: Any, about: About) -> dict[str, bytes]:
    """Return the files of a saved model by name."""
    from safetensors.numpy import save

    model = best_of(model)
    if hasattr(model, "__sklearn_tags__"):  # trees from a file have no tags
        check_is_fitted(model)
    arrays: Arrays = {}
    tree = _encode(model, "model", arrays)
    data = save(arrays)
    header = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "about": msgspec.to_builtins(about),
        "model": tree,
        "files": {ARRAYS: hashlib.sha256(data).hexdigest()},
    }
    header["sha256"] = _digest(header)
    try:
        text = json.dumps(header, ensure_ascii=False, allow_nan=False)
    except ValueError as problem:
        raise ExperimentError(f"the model cannot be saved: {first_line(problem)}") from None
    return {ARRAYS: data, HEADER: msgspec.json.format(text.encode(), indent=2) + b"\n"}


def load_model(path: str | Path) -> tuple[Any, About]:
    """Load a model that `save_model` wrote, and its description."""
    from safetensors.numpy import load

    path = Path(path)
    header = read_header(path)
    data = read_bytes(path / ARRAYS, ExperimentError)
    try:
        if hashlib.sha256(data).hexdigest() != header.files[ARRAYS]:
            raise ExperimentError("the checksum of its arrays does not match")
        arrays = load(data)
        if not all(np.isfinite(array).all() for array in arrays.values()):
            raise ExperimentError("the model has numbers that are not finite")
        model = _decode(header.model, arrays)
    except MemoryError:
        raise
    except Exception as problem:  # edited files can cause any error, but run no code
        raise _damaged(path, first_line(problem)) from None
    return model, header.about


@contextmanager
def prediction_errors(path: str | Path, model: Any) -> Iterator[None]:
    """Convert errors of a loaded model, whose arrays may be forged, to `ExperimentError`."""
    try:
        with plugin_errors(modules_of(model)):
            yield
    except (ExperimentError, MemoryError):
        raise
    except Exception as problem:
        raise ExperimentError(
            f"{path} cannot predict these clips ({first_line(problem)}); {REMEDY}"
        ) from None


def read_header(path: Path) -> ModelFile:
    """Read the description of a model without its arrays."""
    file = path / HEADER
    content = read_format(file, FORMAT, FORMAT_VERSION, ExperimentError, "a model")
    try:
        if content.pop("sha256", None) != _digest(content):
            raise ExperimentError("its checksum does not match")
        return msgspec.convert(content, ModelFile)
    except (ExperimentError, msgspec.MsgspecError, RecursionError) as problem:
        raise _damaged(file, problem) from None


def read_models(folder: Path) -> dict[str, About]:
    """Read the descriptions of all models in a folder, by relative path."""
    models = {
        path.parent.relative_to(folder).as_posix(): read_header(path.parent).about
        for path in sorted(folder.rglob(HEADER))
    }
    if not models:
        raise ExperimentError(f"{folder} has no models. Train one: {MAKE}")
    return models


def _damaged(where: Path, reason: object) -> ExperimentError:
    return ExperimentError(
        f"{where} cannot be loaded ({reason}). If it is damaged, edited or older, {REMEDY}"
    )


def _digest(header: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()


def _encode(value: Any, name: str, arrays: Arrays) -> Any:
    """Convert a value to JSON, and add its arrays to `arrays` under descriptive names."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "biuf":
            kind = "array"
            if value.flags.fnc:
                kind = "columns"  # sums depend on the order
                value = value.T
            arrays[name] = np.ascontiguousarray(value)
            return {kind: name}
        if value.dtype.kind in "UO" and value.ndim == 1:
            return {"texts": list(map(str, value))}
    if isinstance(value, list | tuple):
        items = [_encode(item, f"{name}.{index}", arrays) for index, item in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, Mapping):  # pairs, because classes may be numbers
        pairs = []
        for key, item in value.items():
            pairs.append([_encode(key, name, arrays), _encode(item, f"{name}.{key}", arrays)])
        return {"mapping": pairs}
    return _encode_object(value, name, arrays)


def _encode_object(value: Any, name: str, arrays: Arrays) -> dict[str, Any]:
    if hasattr(value, "tree_"):
        tree = as_tree(value)
        if tree is not None and np.array_equal(tree.classes_, value.classes_):
            value = tree  # arrays, which are checked when loaded
    path = _path_of(value, name)
    state = vars(value)
    groups = {"fields": state}  # of a tree
    if hasattr(value, "get_params"):
        parameters = dict(value.get_params(deep=False))
        if "memory" in parameters:
            parameters["memory"] = None  # only for the process that fitted the model
        own = ROWS if path == NEIGHBOURS else state.keys() - parameters.keys() - NOT_SAVED
        fitted = {key: state[key] for key in sorted(own) if key in state}
        groups = {"parameters": parameters, "fitted": fitted}
    encoded: dict[str, Any] = {"class": path}
    for group, items in groups.items():
        encoded[group] = {
            key: _encode(item, f"{name}.{key}", arrays) for key, item in items.items()
        }
    return encoded


def _path_of(value: Any, name: str) -> str:
    """Return the path of a class that a model may contain; raise for any other."""
    path = class_path(type(value))
    public = re.sub(r"\._\w+", "", path)  # without private modules
    if public in SAFE:
        return public
    if path in trusted_classes():
        return path
    raise ExperimentError(
        f"{name} cannot be saved: a {path} cannot be loaded safely (see docs/how-to/extend.md)"
    )


def _decode(value: Any, arrays: Arrays, depth: int = 0) -> Any:
    """Decode a value from `_encode` into plain values and objects of allowed classes.

    `depth` is the number of parts that the value is in.
    """
    if isinstance(value, list):
        return [_decode(item, arrays, depth) for item in value]
    if not isinstance(value, dict):
        return value
    if "class" in value:
        return _decode_object(value, arrays, depth + 1)
    [(kind, content)] = value.items()
    if kind == "array":
        return arrays[content]
    if kind == "columns":
        return arrays[content].T
    if kind == "mapping":
        return {_decode(key, arrays, depth): _decode(item, arrays, depth) for key, item in content}
    if kind == "texts":
        if len(content) * max(map(len, content), default=0) > MAX_CHARACTERS:
            raise ExperimentError("a list of strings is too long")
        return np.array(content, dtype=np.str_)
    if kind == "tuple":
        return tuple(_decode(item, arrays, depth) for item in content)
    raise ExperimentError(f"{kind[:60]!r} is not a part of a model")


def _decode_object(value: Mapping[str, Any], arrays: Arrays, depth: int) -> Any:
    path = value["class"]
    if path not in SAFE and path not in trusted_classes():
        raise ExperimentError(
            f"{path[:60]!r} is not a class that obygaze can load. Install its package if you "
            "trust it"
        )
    if depth > MAX_NESTING:
        raise ExperimentError("the model has parts that are nested too deeply")
    kind = load_class(path)
    groups = {}
    for group in value.keys() - {"class"}:
        items = value[group].items()
        groups[group] = {key: _decode(item, arrays, depth) for key, item in items}
    if "fields" in groups:
        return kind(**groups["fields"])
    model = kind(**groups["parameters"])
    fitted = groups["fitted"]
    for key, item in fitted.items():
        if key in groups["parameters"] or key.startswith("__") or hasattr(kind, key):
            raise ExperimentError(f"{path} has no fitted attribute {key!r}")
        setattr(model, key, item)
    if fitted and path == NEIGHBOURS:  # compiled code would trust its other arrays
        model.fit(model._fit_X, model.classes_[model._y])
    check_part(model)
    return model
