"""How tests compare numbers that are computed twice.

Another processor computes other last bits, so a tolerance must never depend on how near to zero a
single number is. Counts and ids are compared by ``==``, printed digits by `round`, and statistics
by bounds whose chance of failure is below one in a million.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

FLOAT32 = 2**-20
"""The tolerance for numbers that are computed in float32 from end to end."""


def close(expected: Any, eps: float = FLOAT32) -> Any:
    """Return what equals numbers within a share of the largest expected number, or of 1.

    Examples
    --------
    >>> [1000.0005, 1e-9] == close([1000, 0])
    True
    """
    numbers = expected
    if isinstance(expected, Mapping):
        numbers = [value for value in expected.values() if not isinstance(value, str)]
    values = np.asarray(numbers, dtype=float)
    largest = np.abs(values[np.isfinite(values)]).max(initial=1.0)
    return pytest.approx(expected, abs=eps * largest, nan_ok=True)
