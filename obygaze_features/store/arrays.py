"""The table of arrays that stores can hold, shared by backbones and stores.

To add an array, add an entry to `ARRAYS`. If `POOLS` in `backbones.pools` has a function for it,
the families that call `pool_tokens` compute the array.
"""

from __future__ import annotations

from dataclasses import dataclass

VECTOR = ("feature",)
FRAMES = ("frame", "feature")
TOKENS = ("token", "feature")
FRAME_NUMBERS = ("frame",)


@dataclass(frozen=True)
class StoredArray:
    """An array that stores can hold, as listed in `ARRAYS`.

    Parameters
    ----------
    axes
        The axes of a row: `VECTOR`, `FRAMES`, `TOKENS`, `FRAME_NUMBERS`, or others.
    dtype
        The data type in which the array is stored.
    title
        The default meaning of the array, such as "maximum".
    on_request
        True if the array is large and is stored only when a user asks for it by name.
    """

    axes: tuple[str, ...]
    dtype: str
    title: str
    on_request: bool = False


ARRAYS: dict[str, StoredArray] = {
    "native": StoredArray(VECTOR, "float32", "the model's own embedding"),
    "cls": StoredArray(VECTOR, "float32", "class token"),
    "max": StoredArray(VECTOR, "float32", "maximum"),
    "mean": StoredArray(VECTOR, "float32", "mean"),
    "count": StoredArray(("number",), "float32", "the number of words"),
    "frame_index": StoredArray(FRAME_NUMBERS, "int32", "number of each frame"),
    "frame_time": StoredArray(FRAME_NUMBERS, "float64", "when each frame is shown"),
    "loudness": StoredArray(FRAME_NUMBERS, "float32", "level of each window of sound"),
    "frames": StoredArray(FRAMES, "float16", "one token per frame"),
    "frames_temporal": StoredArray(FRAMES, "float16", "`frames` after temporal mixing"),
    "tokens": StoredArray(TOKENS, "float16", "all patch tokens", on_request=True),
}
"""The arrays by name, vectors first. Backbones and imports can define others."""
