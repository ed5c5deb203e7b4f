"""The description of the features that a model reads."""

from __future__ import annotations

from typing import Any

import msgspec


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """The features that a model reads."""

    backbone: dict[str, Any]
    preprocessing: dict[str, Any]
    array: str
    shape: list[int]
