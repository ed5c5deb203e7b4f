"""The type of NumPy arrays whose elements a signature leaves open."""

from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
