"""Save and load models as safetensors and JSON. Nothing is ever unpickled.

A model is a folder. ``model.json`` has the estimator with all its parameters, a description, and
the SHA-256 of ``model.safetensors``, which has the arrays. Files can only name classes in
`obygaze_models.estimators.safe_classes`, and classes with an entry point of an installed package.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from sklearn.utils.validation import check_is_fitted

from obygaze_features.common.files import new_folder, read_bytes, read_format
from obygaze_features.common.plugins import load_object
from obygaze_features.errors import ExperimentError, first_line
from obygaze_models.estimators.registry import (
    best_of,
    class_path,
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
MAX_CHARACTERS = 2**24
"""The maximum size of an array of strings, each of which takes as much memory as the longest."""
MAX_NESTING = 7
"""The maximum depth of nested parts. Each nested pipeline doubles the time to predict."""
NOT_SAVED = {"facts_", "warnings_", "_metadata_request"}
NEIGHBOURS = "sklearn.neighbors:KNeighborsClassifier"
ROWS = ("_fit_X", "_y", "classes_")
"""The saved state of nearest neighbours, which are fitted again: the clips and their classes."""
Arrays = dict[str, "np.ndarray[Any, Any]"]


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted estimator and its description.

    Parameters
    ----------
    estimator
        Any fitted estimator.
    about
        Its description; empty if the estimator does not come from an experiment.
    where
        The name of the model in messages: its folder, if it was loaded.
    counts
        The numbers of clips that `train_model` trained and validated on, and that it has seen.
    """

    estimator: Any
    about: About = field(default_factory=About)
    where: str = "the model"
    counts: Mapping[str, int] = field(default_factory=dict)


class ModelFile(msgspec.Struct):
    """The content of ``model.json``. `files` has the digest of the arrays."""

    format_version: Literal[3]
    about: About
    model: dict[str, Any]
    files: dict[str, str]


@dataclass(frozen=True)
class Archive:
    """The classes that a model may contain besides the safe ones, and its arrays by name."""

    trusted: Collection[str]
    arrays: Arrays = field(default_factory=dict)

    def may_contain(self, path: str) -> bool:
        """Return True if a class is safe, named by the caller, or has an entry point."""
        return path in SAFE or path in self.trusted or path in trusted_classes()

    def require_finite(self) -> None:
        """Raise if an array has NaN or infinity."""
        if not all(np.isfinite(array).all() for array in self.arrays.values()):
            raise ExperimentError("the model has numbers that are not finite")


def as_model(model: Any) -> Model:
    """Return a `Model` as it is, load one from a path, or wrap a bare estimator."""
    if isinstance(model, str | Path):
        return load_model(model)
    return model if isinstance(model, Model) else Model(model)


def save_model(
    model: Any,
    path: str | Path,
    *,
    card: str = "",
    overwrite: bool = False,
    trusted: Collection[str] = (),
) -> None:
    """Save a `Model` or a fitted estimator to a folder; of a search, save the best estimator.

    Parameters
    ----------
    model
        A `Model`, or an estimator, which is saved without a description.
    path
        The new folder.
    card
        The text of the ``README.md``.
    overwrite
        Replace an existing model.
    trusted
        More classes to allow, as in `load_model`. By default, parts that cannot be loaded safely,
        such as an SVC, raise `ExperimentError`.
    """
    with new_folder(Path(path), overwrite=overwrite, marker=HEADER, allow_missing=True) as folder:
        write_model(as_model(model), folder, trusted)
        if card:
            (folder / "README.md").write_bytes(card.encode())


def write_model(model: Model, folder: Path, trusted: Collection[str] = ()) -> None:
    """Write the files of a model, without flushing them to disk."""
    from safetensors.numpy import save

    estimator = best_of(model.estimator)
    archive = Archive(trusted)
    content = _encode(estimator, "model", archive)
    archive.require_finite()
    check_is_fitted(estimator)
    data = save(archive.arrays)
    header = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "about": msgspec.to_builtins(model.about),
        "model": content,
        "files": {ARRAYS: hashlib.sha256(data).hexdigest()},
    }
    header["sha256"] = _digest(header)
    try:
        text = json.dumps(header, ensure_ascii=False, allow_nan=False)
    except ValueError as problem:
        raise ExperimentError(f"the model cannot be saved: {first_line(problem)}") from None
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ARRAYS).write_bytes(data)
    (folder / HEADER).write_bytes(msgspec.json.format(text.encode(), indent=2) + b"\n")


def load_model(path: str | Path, *, trusted: Collection[str] = ()) -> Model:
    """Load a model that `save_model` wrote.

    Parameters
    ----------
    path
        The model's folder.
    trusted
        More classes that the model may contain, such as ``["sklearn.svm:SVR"]``. No code is
        loaded from the file, but a forged file can make compiled code of these classes crash.
    """
    from safetensors.numpy import load

    path = Path(path)
    header = read_header(path)
    data = read_bytes(path / ARRAYS, ExperimentError)
    try:
        if hashlib.sha256(data).hexdigest() != header.files[ARRAYS]:
            raise ExperimentError("the checksum of its arrays does not match")
        arrays = load(data)
        archive = Archive(trusted, arrays)
        archive.require_finite()
        estimator = _decode(header.model, archive)
    except MemoryError:
        raise
    except Exception as problem:  # edited files can cause any error, but run no code
        raise _damaged(path, first_line(problem)) from None
    return Model(estimator, header.about, str(path))


@contextmanager
def prediction_errors(model: Model) -> Iterator[None]:
    """Convert errors of a loaded model, whose arrays may be forged, to `ExperimentError`."""
    try:
        with plugin_errors(modules_of(model.estimator)):
            yield
    except (ExperimentError, MemoryError):
        raise
    except Exception as problem:
        raise ExperimentError(
            f"{model.where} cannot predict these clips: {first_line(problem)}"
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
        f"{where} cannot be loaded ({reason}). If it is damaged, edited or older, train the model "
        f"again ({MAKE})"
    )


def _digest(header: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()


def _encode(value: Any, name: str, archive: Archive) -> Any:
    """Convert a value to JSON, and add its arrays to `archive` under descriptive names."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "biuf":
            tag = "array"
            if value.flags.fnc:
                tag = "columns"  # sums depend on the order
                value = value.T
            archive.arrays[name] = np.ascontiguousarray(value)
            return {tag: name}
        if value.dtype.kind in "UO" and value.ndim == 1:
            return {"texts": list(map(str, value))}
    if isinstance(value, list | tuple):
        items = [_encode(item, f"{name}.{index}", archive) for index, item in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, Mapping):  # pairs, because classes may be numbers
        pairs = []
        for key, item in value.items():
            pairs.append([_encode(key, name, archive), _encode(item, f"{name}.{key}", archive)])
        return {"mapping": pairs}
    return _encode_object(value, name, archive)


def _encode_object(value: Any, name: str, archive: Archive) -> dict[str, Any]:
    tree = None if archive.trusted else as_tree(value)  # forests cannot predict with such trees
    if tree is not None:
        value = tree  # arrays, which are checked when loaded
    path = class_path(type(value))
    public = re.sub(r"\._\w+", "", path)  # without private modules
    if public in SAFE | {*archive.trusted}:
        path = public
    if not (hasattr(value, "get_params") and archive.may_contain(path)):
        raise ExperimentError(
            f"{name} cannot be saved: a {path} cannot be loaded safely (see docs/how-to/extend.md)"
        )
    state = vars(value)
    parameters = dict(value.get_params(deep=False))
    if "memory" in parameters:
        parameters["memory"] = None  # only for the process that fitted the model
    attributes = ROWS if path == NEIGHBOURS else state.keys() - parameters.keys() - NOT_SAVED
    fitted = {key: state[key] for key in sorted(attributes) if key in state}
    encoded: dict[str, Any] = {"class": path}
    for group, items in {"parameters": parameters, "fitted": fitted}.items():
        encoded[group] = {
            key: _encode(item, f"{name}.{key}", archive) for key, item in items.items()
        }
    return encoded


def _decode(value: Any, archive: Archive, depth: int = 0) -> Any:
    """Decode a value from `_encode` into plain values and objects of allowed classes.

    `depth` is the number of parts that the value is in.
    """
    if isinstance(value, list):
        return [_decode(item, archive, depth) for item in value]
    if not isinstance(value, dict):
        return value
    if "class" in value:
        return _decode_object(value, archive, depth + 1)
    [(tag, content)] = value.items()
    if tag == "array":
        return archive.arrays[content]
    if tag == "columns":
        return archive.arrays[content].T
    if tag == "mapping":
        return {
            _decode(key, archive, depth): _decode(item, archive, depth) for key, item in content
        }
    if tag == "texts":
        if len(content) * max(map(len, content), default=0) > MAX_CHARACTERS:
            raise ExperimentError("a list of strings is too long")
        return np.array(content, dtype=np.str_)
    if tag == "tuple":
        return tuple(_decode(item, archive, depth) for item in content)
    raise ExperimentError(f"{tag[:60]!r} is not a part of a model")


def _decode_object(value: Mapping[str, Any], archive: Archive, depth: int) -> Any:
    path = value["class"]
    if not archive.may_contain(path):
        raise ExperimentError(
            f"{path[:60]!r} is not a class that obygaze can load. If you trust it, install its "
            "package, or load the model in Python with `trusted`"
        )
    if depth > MAX_NESTING:
        raise ExperimentError("the model has parts that are nested too deeply")
    part_class = load_object(path, ExperimentError)
    groups: dict[str, dict[str, Any]] = {"fitted": {}}
    for group in value.keys() - {"class"}:
        items = value[group].items()
        groups[group] = {key: _decode(item, archive, depth) for key, item in items}
    parameters = groups.get("parameters") or groups.get("fields", {})  # of older trees
    model = part_class(**parameters)
    fitted = groups["fitted"]
    for key, item in fitted.items():
        if key in parameters or key.startswith("__") or hasattr(part_class, key):
            raise ExperimentError(f"{path} has no fitted attribute {key!r}")
        setattr(model, key, item)
    if fitted and path == NEIGHBOURS:  # compiled code would trust its other arrays
        model.fit(model._fit_X, model.classes_[model._y])
    check_part(model)
    return model
