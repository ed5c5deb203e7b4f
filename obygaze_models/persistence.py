"""Models as files: safetensors and JSON; nothing is ever unpickled.

A model is a folder. ``model.json`` says what it is, with every parameter, what it was fitted to,
and the SHA-256 of both files; ``model.safetensors`` holds the arrays. What is read is checked
before it is used: the digests, the kinds of objects (a fixed list), the bounds of a tree's
nodes, and that the model predicts a clip of zeros.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from obygaze_features.common.files import new_folder, read_format, to_json
from obygaze_features.common.text import is_folder_of
from obygaze_features.errors import ExperimentError, ObygazeError

__all__ = ["FORMAT_VERSION", "load_model", "read_about", "save_model"]

FORMAT = "obygaze-model"
FORMAT_VERSION = 1
HEADER, ARRAYS = "model.json", "model.safetensors"
MAKE = "obygaze models train"

#: Everything that a file can make: the estimators, and the values they are made of.
_KINDS = {
    "MLPClassifier": "obygaze_models.estimators.mlp",
    "LinearSVMClassifier": "obygaze_models.estimators.svm",
    "ConceptBank": "obygaze_models.estimators.concepts",
    "RandomDirections": "obygaze_models.estimators.directions",
    "PCBMClassifier": "obygaze_models.estimators.pcbm",
    "PCBMHybrid": "obygaze_models.estimators.pcbm",
    "OracleBottleneck": "obygaze_models.estimators.pcbm",
    "TreeHead": "obygaze_models.estimators.heads",
    "LinearHead": "obygaze_models.estimators.heads",
    "LogisticClassifier": "obygaze_models.estimators.simple",
    "NearestClips": "obygaze_models.estimators.simple",
    "MajorityClassifier": "obygaze_models.estimators.simple",
    "FilmPrior": "obygaze_models.estimators.simple",
}


def save_model(model: Any, path: Path, about: Mapping[str, Any], *, durable: bool = True) -> None:
    """Write a fitted estimator as a new folder.

    Parameters
    ----------
    model
        Any estimator of `obygaze_models.estimators`.
    path
        The folder; it appears complete or not at all, and an existing one is left alone.
    about
        What a user must know, as JSON: the features it fits (backbone, weights, array,
        pooling), the run it is from.
    durable
        False within a folder that is itself being made by `new_folder`, which flushes all that
        is in it to disk, and which nobody sees before.
    """
    from safetensors.numpy import save

    arrays: dict[str, np.ndarray[Any, Any]] = {}
    tree = _encode(model, "model", arrays)
    data = save(arrays)
    header = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "about": dict(about),
        "model": tree,
        "arrays_sha256": hashlib.sha256(data).hexdigest(),
    }
    with new_folder(path) if durable else _within(path) as folder:
        (folder / ARRAYS).write_bytes(data)
        text = to_json(header | {"sha256": _digest(header)})
        (folder / HEADER).write_bytes(text.encode())
        # safetensors once wrote arrays that are not contiguous wrongly and said nothing.
        again: dict[str, np.ndarray[Any, Any]] = {}
        _encode(load_model(folder)[0], "model", again)
        for name, array in arrays.items():
            if again[name].dtype != array.dtype or again[name].tobytes() != array.tobytes():
                raise ExperimentError(f"{path}: {name} is not what was written; nothing is kept")


def load_model(path: Path) -> tuple[Any, dict[str, Any]]:
    """Read what `save_model` wrote: the estimator, and what was said about it."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    header = _read_header(path)
    try:
        data = (path / ARRAYS).read_bytes()
    except OSError as problem:
        raise ExperimentError(f"{path / ARRAYS} cannot be read: {problem.strerror}") from None
    if hashlib.sha256(data).hexdigest() != header.get("arrays_sha256"):
        raise _damaged(path / ARRAYS, "its digest is another")
    try:
        model = _decode(header["model"], load(data))
        _try_out(model)
        return model, dict(header["about"])
    except ObygazeError as problem:
        raise _damaged(path, str(problem)) from None
    # Whoever edits both files and their digests can make any of these; no code of theirs runs.
    except (
        ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RecursionError,
        TypeError, ValueError, SafetensorError,
    ) as problem:  # fmt: skip
        raise _damaged(path, f"{type(problem).__name__}: {problem}") from None


def read_about(path: Path) -> dict[str, Any]:
    """What was said about a model when it was saved, without loading it."""
    return dict(_read_header(path)["about"])


def _read_header(path: Path) -> dict[str, Any]:
    if not (path / HEADER).is_file():
        # A folder of models, or a run, which keeps them two folders further down.
        for place in ("*", "models/*/*"):
            if inside := sorted(path.glob(f"{place}/{HEADER}")):
                raise ExperimentError(
                    f"{is_folder_of(path, 'model', inside[0].parent)} "
                    f"(all of them: obygaze models list {path})"
                )
    header = read_format(path / HEADER, FORMAT, FORMAT_VERSION, ExperimentError, make=MAKE)
    if header.pop("sha256", None) != _digest(header):
        raise _damaged(path / HEADER, "its digest is another")
    return header


@contextlib.contextmanager
def _within(path: Path) -> Iterator[Path]:
    path.mkdir(parents=True)
    yield path


def _encode(value: Any, name: str, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    """A value as JSON; its arrays go to `arrays` under names that say where they are from."""
    kind = type(value).__name__
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        # Kept in the file's byte order and without strides, which safetensors does not look at.
        arrays[name] = np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("="))
        return {"array": name}
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "UO":
        return {"texts": [_text(one, name) for one in value.tolist()]}
    if isinstance(value, np.generic):
        return _encode(value.item(), name, arrays)
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list | tuple):
        items = [_encode(one, f"{name}.{place}", arrays) for place, one in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, Mapping):
        # As pairs: the keys of JSON's own objects are texts only, and classes may be numbers.
        pairs = [
            [_encode(key, name, arrays), _encode(one, f"{name}.{key}", arrays)]
            for key, one in value.items()
        ]
        return {"mapping": pairs}
    if _KINDS.get(kind) != type(value).__module__:
        raise ExperimentError(f"{name} is a {kind}, which cannot be saved")
    if is_dataclass(value):
        state = {field.name: getattr(value, field.name) for field in fields(value)}
        parts = {"fields": state}
    else:
        fitted = {key: one for key, one in vars(value).items() if _is_learnt(key)}
        if not fitted:
            raise ExperimentError(f"the {kind} is not fitted; call its fit first")
        parts = {"parameters": value.get_params(deep=False), "fitted": fitted}
    return {"kind": kind} | {
        part: {key: _encode(one, f"{name}.{key}", arrays) for key, one in of.items()}
        for part, of in parts.items()
    }


def _decode(value: Any, arrays: Mapping[str, np.ndarray[Any, Any]]) -> Any:
    """What `_encode` was given; nothing is made but plain values and what `_KINDS` lists."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list):
        return [_decode(one, arrays) for one in value]
    if set(value) == {"array"}:
        return arrays[value["array"]]
    if set(value) == {"texts"}:
        return np.array([_text(one, "a list of texts") for one in value["texts"]])
    if set(value) == {"tuple"}:
        return tuple(_decode(one, arrays) for one in value["tuple"])
    if set(value) == {"mapping"}:
        return {_decode(key, arrays): _decode(one, arrays) for key, one in value["mapping"]}
    if set(value) == {"kind", "fields"}:
        return _class(value["kind"])(**_parts(value["fields"], arrays))
    if set(value) == {"kind", "parameters", "fitted"}:
        made = _class(value["kind"])(**_parts(value["parameters"], arrays))
        for key, one in _parts(value["fitted"], arrays).items():
            if not _is_learnt(key):
                raise ExperimentError(f"a {value['kind']} learns nothing of the name {key!r}")
            setattr(made, key, one)
        return made
    raise ExperimentError(f"{str(value)[:60]!r} is nothing that a model is made of")


def _parts(of: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
    return {key: _decode(one, arrays) for key, one in of.items()}


def _try_out(model: Any) -> None:
    """Let a model that was read say something of one clip, so that its parts are known to fit."""
    if type(model).__name__ == "FilmPrior":
        clip = np.array(["no film"])
    else:
        clip = np.full((1, getattr(model, "n_features_in_", 1)), 0.5, dtype=np.float32)
    if hasattr(model, "predict_proba"):
        said, width = model.predict_proba(clip), len(model.classes_)
    else:
        said, width = model.transform(clip), len(model.get_feature_names_out())
    if said.shape != (1, width) or not np.isfinite(said).all():
        raise ExperimentError("its parts do not fit each other")


def _class(kind: str) -> Any:
    if kind not in _KINDS:
        raise ExperimentError(f"it holds a {kind[:60]!r}, of which this obygaze knows nothing")
    return getattr(importlib.import_module(_KINDS[kind]), kind)


def _is_learnt(name: str) -> bool:
    """By scikit-learn's convention, what fit learns ends with an underscore."""
    return name.endswith("_") and not name.startswith("_")


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise ExperimentError(f"{name} has {value!r} where a text is meant")
    return value


def _digest(header: Mapping[str, Any]) -> str:
    """Of the header's content, so that spaces and line ends do not matter."""
    return hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()


def _damaged(path: Path, why: str) -> ExperimentError:
    return ExperimentError(
        f"{path} is damaged, or was edited ({why}); train the model again ({MAKE})"
    )
