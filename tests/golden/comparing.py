"""How an output is compared with the golden one: volatile fields masked, new ones ignored."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Set
from typing import Any

#: Fields that differ from call to call, machine to machine or release to release, by command;
#: "" is for all. They need only be there.
VOLATILE = {
    "": {"seconds", "started", "versions", "machine", "software", "size", "bytes", "files"},
    "features-extract": {"clips_a_second", "frames_a_second", "shares", "bound_by", "slow"},
    "features-extract-plan": {"free"},
    "features-probe": {"decode_seconds", "slow"},
}
NUMBER = re.compile(r"\d+(?:\.\d+)?")
TOLERANCE = 1e-6


def differences(
    golden: Any, now: Any, *, volatile: Set[str] = frozenset(), at: str = "$"
) -> Iterator[str]:
    """Every golden value that is missing now, or not the same.

    Keys that were added are fine; lists keep their length. Numbers agree to `TOLERANCE`, whole
    ones exactly. Of a sentence (four words or more) only the numbers are compared, for wording
    may change.
    """
    if isinstance(golden, dict):
        if not isinstance(now, dict):
            yield f"{at}: {golden!r} became {now!r}"
            return
        for key, value in golden.items():
            if key not in now:
                yield f"{at}.{key} is missing"
            elif key not in volatile:
                yield from differences(value, now[key], volatile=volatile, at=f"{at}.{key}")
    elif isinstance(golden, list):
        if not isinstance(now, list) or len(golden) != len(now):
            yield f"{at}: {golden!r} became {now!r}"
            return
        for number, (value, new_value) in enumerate(zip(golden, now, strict=True)):
            yield from differences(value, new_value, volatile=volatile, at=f"{at}[{number}]")
    elif not _same(golden, now):
        yield f"{at}: {golden!r} became {now!r}"


def _same(golden: Any, now: Any) -> bool:
    if isinstance(golden, bool) or isinstance(now, bool) or golden is None:
        return golden is now
    if isinstance(golden, float):
        return isinstance(now, float | int) and math.isclose(
            golden, now, rel_tol=TOLERANCE, abs_tol=TOLERANCE
        )
    if isinstance(golden, str) and isinstance(now, str) and len(golden.split()) > 3:
        return NUMBER.findall(golden) == NUMBER.findall(now)
    return bool(golden == now)
