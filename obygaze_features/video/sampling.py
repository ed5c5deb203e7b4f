"""Which frames of a clip a backbone sees."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["uniform_indices"]


def uniform_indices(n: int, count: int) -> NDArray[np.int32]:
    """Spread `count` indices evenly over `n` frames: ``int(i * n / count)``.

    A clip with fewer frames than that shows some of them more than once.

    >>> uniform_indices(100, 4).tolist()
    [0, 25, 50, 75]
    >>> uniform_indices(2, 4).tolist()
    [0, 0, 1, 1]
    """
    return (np.arange(count, dtype=np.int64) * n // count).astype(np.int32)
