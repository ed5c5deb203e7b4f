"""``model.json``: what is kept with a saved model, checked before anything uses it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from obygaze_features.common.files import read_format
from obygaze_features.common.text import is_folder_of
from obygaze_features.errors import ExperimentError
from obygaze_models.data.warnings import RunWarning
from obygaze_models.saved.decoding import convert

FORMAT = "obygaze-model"
FORMAT_VERSION = 2
HEADER = "model.json"
MAKE = "obygaze models train"
REMEDY = f"train the model again ({MAKE})"


class _Backbone(msgspec.Struct, frozen=True):
    name: str = ""
    weights_sha256: str = ""
    config: dict[str, Any] = {}


class _Features(msgspec.Struct, frozen=True):
    backbone: _Backbone = _Backbone()
    preprocessing: dict[str, Any] = {}
    array: str = ""
    shape: list[int] = []
    pooling: str | None = None


class _About(msgspec.Struct):
    """The keys that obygaze reads; others are anybody's."""

    model: str = ""
    estimator: str = ""
    options: dict[str, Any] = {}
    reads: str = ""
    task: str = ""
    learns: dict[str, str | list[str]] = {}
    classes: list[str] = []
    facts: dict[str, Any] = {}
    features: _Features = _Features()
    seen: list[str] = []
    footage: dict[str, list[tuple[float, float] | None]] = {}
    warnings: list[RunWarning] = []


class _Header(msgspec.Struct):
    about: dict[str, Any]
    model: dict[str, Any]
    files: dict[Annotated[str, msgspec.Meta(pattern=r"^model[^/\\\0]*\Z")], str] = {}
    arrays_sha256: str = ""
    requires: dict[str, str] = {}


class About(dict[str, Any]):
    """What is kept with a model. To read a key that it lacks is a clear error."""

    def __init__(self, values: Mapping[str, Any], where: object) -> None:
        super().__init__(values)
        self._where = where
        for key in ("features", "backbone"):
            if isinstance(part := values.get(key), dict):
                self[key] = About(part, where)

    def check(self) -> None:
        """Raise on what is of another type than a run writes."""
        convert(dict(self), _About, f"{self._where}/{HEADER} (about)", REMEDY)

    def __missing__(self, key: str) -> Any:
        raise ExperimentError(f"{self._where} does not say its {key}; {REMEDY}")


def read_about(path: Path) -> About:
    """A model's description, without loading it."""
    about: About = read_header(Path(path))["about"]
    about.check()
    return about


def read_header(path: Path) -> dict[str, Any]:
    """The content of a model's header, all of it of the right types."""
    if not (path / HEADER).is_file():
        # A folder of models, or a run, which keeps them two folders further down.
        for pattern in ("*", "models/*/*"):
            if inside := sorted(path.glob(f"{pattern}/{HEADER}")):
                raise ExperimentError(
                    f"{is_folder_of(path, 'model', inside[0].parent)} "
                    f"(all of them: obygaze models list {path})"
                )
    header = read_format(path / HEADER, FORMAT, FORMAT_VERSION, ExperimentError, make=MAKE)
    if header["format_version"] < FORMAT_VERSION:
        raise ExperimentError(f"{path} was saved by an earlier obygaze (0.1); {REMEDY}")
    if header.pop("sha256", None) != digest_of(header):
        raise damaged(path / HEADER, "its digest differs")
    convert(header, _Header, path / HEADER, REMEDY)
    return {**header, "about": About(header["about"], path)}


def digest_of(header: Mapping[str, Any]) -> str:
    """Of the header's content, so that spaces and line ends do not matter."""
    return hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()


def damaged(path: Path, reason: str) -> ExperimentError:
    """The error for a model that cannot be used."""
    return ExperimentError(f"{path} is damaged, or was edited ({reason}); {REMEDY}")
