"""How imported features were made, as far as somebody says: a recipe without name and arrays."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from obygaze_features.common.text import unknown_name
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store import format as fmt
from obygaze_features.store.format import Recipe
from obygaze_features.store.metadata import check_attributes

UNKNOWN = "unknown"
_TYPES = {"backbone": dict, "preprocessing": dict, "precision": str}
_BACKBONE_TYPES = {
    "name": str, "family": str, "revision": object, "weights_sha256": str, "config": dict,
}  # fmt: skip
_PREPROCESSING_TYPES = dict.fromkeys(
    ("sampling", "mode", "shortest_edge", "filter", "crop", "scale", "mean", "std", "offset",
     "squash", "middle"),
    object,
)  # fmt: skip
_SHA256 = re.compile("[0-9a-f]{64}")


def unknown_parts(attributes: Mapping[str, Any]) -> list[str]:
    """What a store's attributes do not say of how its features were made."""
    backbone = attributes["backbone"]
    has_weights = _SHA256.fullmatch(str(backbone["weights_sha256"]))
    parts = {
        "backbone": backbone["name"],
        "weights": None if has_weights else UNKNOWN,
        "preprocessing": attributes["preprocessing"].get("mode"),
        "precision": attributes["precision"],
    }
    return [part for part, value in parts.items() if value == UNKNOWN]


def stated_recipe(
    backbone: Mapping[str, Any], preprocessing: Mapping[str, Any], precision: str | None
) -> Recipe:
    """What somebody says of the features; the rest is recorded as unknown."""
    # The weights with the backbone's name, so that rows of two backbones are told apart though
    # nobody knows the weights of either.
    name = backbone.get("name", UNKNOWN)
    blank = {
        "name": name,
        "revision": None,
        "weights_sha256": f"{UNKNOWN}:{name}",
        "config": {},
    }
    return Recipe(
        "", {**blank, **backbone}, {"mode": UNKNOWN, **preprocessing}, precision or UNKNOWN, ()
    )


def read_recipe(path: Path) -> Recipe:
    """What a TOML or JSON file says; its keys are those of a store's attributes."""
    try:
        text = path.read_text(encoding="utf-8")
        is_json = path.suffix.lower() == ".json"
        table = plain_json(text if is_json else json.dumps(tomllib.loads(text)))
    except OSError as problem:
        raise UsageError(f"{path} cannot be read: {problem.strerror}") from None
    except (ValueError, TypeError, RecursionError) as problem:  # TypeError: TOML has dates
        raise StoreError(f"{path} is not valid TOML, or JSON if so named: {problem}") from None
    if not isinstance(table, dict):
        raise StoreError(f"{path} is not a table with {', '.join(_TYPES)}")
    _check_table(path, "key", table, _TYPES)
    backbone, preprocessing = table.get("backbone", {}), table.get("preprocessing", {})
    _check_table(path, "key of backbone", backbone, _BACKBONE_TYPES)
    _check_table(path, "key of preprocessing", preprocessing, _PREPROCESSING_TYPES)
    if not _SHA256.fullmatch(backbone.get("weights_sha256", "0" * 64)):
        raise StoreError(f"{path}: weights_sha256 must be 64 hexadecimal digits, in lower case")
    return stated_recipe(backbone, preprocessing, table.get("precision"))


def exported_recipe(name: str, text: str) -> Recipe:
    """How a store was made, from the attributes that `export` wrote as `name` in a file."""
    try:
        attributes = plain_json(text)
        if not isinstance(attributes, dict):
            raise ValueError("not an object")
    except (ValueError, TypeError, RecursionError) as problem:
        raise StoreError(f"its {name} cannot be read ({problem!s:.100})") from None
    check_attributes(name, attributes)
    return Recipe(
        attributes["name"],
        attributes["backbone"],
        attributes["preprocessing"],
        attributes["precision"],
        tuple(fmt.specs_of(attributes)),
    )


def plain_json(text: str) -> Any:
    """The value of a JSON text; `ValueError` if it has what JSON does not allow.

    Python reads and writes NaN, infinity and halves of characters.
    """
    value = json.loads(text)
    json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    return value


def _check_table(
    path: Path, noun: str, table: Mapping[str, Any], types: Mapping[str, type]
) -> None:
    for key, value in table.items():
        if key not in types:
            raise StoreError(f"{path}: {unknown_name(noun, key, types)}")
        if not isinstance(value, types[key]):
            expected = "a table" if types[key] is dict else "text"
            raise StoreError(f"{path}: the {noun} {key} must be {expected}")
