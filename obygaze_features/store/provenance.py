"""How imported features were made, as far as somebody says."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from obygaze_features.common.text import unknown_name
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store.format import ArraySpec, Recipe

UNKNOWN = "unknown"
_KEYS = ("backbone", "preprocessing", "precision")
_BACKBONE_KEYS = ("name", "family", "revision", "weights_sha256", "config")
_PREPROCESSING_KEYS = (
    "sampling", "mode", "shortest_edge", "filter", "crop", "scale", "mean", "std", "offset",
    "squash", "middle",
)  # fmt: skip
_SHA256 = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class Provenance:
    """A store's recipe without its name and arrays."""

    backbone: Mapping[str, Any]
    preprocessing: Mapping[str, Any]
    precision: str

    def recipe(self, name: str, arrays: tuple[ArraySpec, ...]) -> Recipe:
        """The recipe of a store of these arrays."""
        return Recipe(name, self.backbone, self.preprocessing, self.precision, arrays)


def unknown_parts(attributes: Mapping[str, Any]) -> list[str]:
    """What a store's attributes do not say of how its features were made."""
    backbone = attributes["backbone"]
    parts = {
        "backbone": backbone["name"],
        "weights": None if _is_sha256(backbone["weights_sha256"]) else UNKNOWN,
        "preprocessing": attributes["preprocessing"].get("mode"),
        "precision": attributes["precision"],
    }
    return [part for part, value in parts.items() if value == UNKNOWN]


def stated(
    backbone: str | None = None, preprocessing: str | None = None, precision: str | None = None
) -> Provenance:
    """Provenance from a few words; the rest is recorded as unknown."""
    return _provenance(
        {"name": backbone} if backbone else {},
        {"mode": preprocessing} if preprocessing else {},
        precision,
    )


def read_provenance(path: Path) -> Provenance:
    """Provenance from a TOML or JSON file; the rest is recorded as unknown.

    Its keys are those of a store's attributes: ``precision``, and the tables ``backbone`` (name,
    revision, weights_sha256, config) and ``preprocessing``.
    """
    try:
        text = path.read_text(encoding="utf-8")
        is_json = path.suffix.lower() == ".json"
        plain = plain_json(text if is_json else json.dumps(tomllib.loads(text)))
    except OSError as problem:
        raise UsageError(f"{path} cannot be read: {problem.strerror}") from None
    except (ValueError, TypeError, RecursionError) as problem:  # TypeError: TOML has dates
        raise StoreError(f"{path} is not valid TOML, or JSON if so named: {problem}") from None
    if not isinstance(plain, dict):
        raise StoreError(f"{path} is not a table with {', '.join(_KEYS)}")
    backbone, preprocessing = plain.get("backbone", {}), plain.get("preprocessing", {})
    precision = plain.get("precision")
    if not (
        isinstance(backbone, dict)
        and isinstance(preprocessing, dict)
        and isinstance(precision, str | None)
    ):
        raise StoreError(f"{path}: backbone and preprocessing must be tables, and precision text")
    for noun, table, keys in (
        ("key", plain, _KEYS),
        ("key of backbone", backbone, _BACKBONE_KEYS),
        ("key of preprocessing", preprocessing, _PREPROCESSING_KEYS),
    ):
        for key in table:
            if key not in keys:
                raise StoreError(f"{path}: {unknown_name(noun, key, keys)}")
    if odd := [key for key in ("name", "family") if not isinstance(backbone.get(key), str | None)]:
        raise StoreError(f"{path}: the backbone's {odd[0]} must be text")
    if not isinstance(backbone.get("config"), dict | None):
        raise StoreError(f"{path}: the backbone's config must be a table")
    if "weights_sha256" in backbone and not _is_sha256(backbone["weights_sha256"]):
        raise StoreError(f"{path}: weights_sha256 must be 64 hexadecimal digits, in lower case")
    return _provenance(backbone, preprocessing, precision)


def plain_json(text: str) -> Any:
    """The value of a JSON text; `ValueError` if it has what JSON does not allow.

    Python reads and writes NaN, infinity and halves of characters.
    """
    value = json.loads(text)
    json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    return value


def _provenance(
    backbone: Mapping[str, Any], preprocessing: Mapping[str, Any], precision: str | None
) -> Provenance:
    name = backbone.get("name", UNKNOWN)
    return Provenance(
        backbone={
            "name": name,
            "revision": None,
            # With the name, so that rows of two backbones are told apart though nobody knows
            # the weights of either.
            "weights_sha256": f"{UNKNOWN}:{name}",
            "config": {},
            **backbone,
        },
        preprocessing={"mode": UNKNOWN, **preprocessing},
        precision=precision or UNKNOWN,
    )


def _is_sha256(value: object) -> bool:
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None
