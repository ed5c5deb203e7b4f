"""Times and concepts as people write them into cells, and as we write them for people."""

from __future__ import annotations

import re
from collections.abc import Sequence

from obygaze_features.annotations.timelines import seconds
from obygaze_features.common.text import shorten
from obygaze_features.errors import AnnotationError
from obygaze_features.manifests.importers.reading import clock_seconds, decimal_point
from obygaze_features.manifests.labels import SEPARATOR

__all__ = ["clock", "concept_cell", "concept_names", "guarded", "moment", "unguarded"]

_SECONDS = re.compile(r"\d{1,10}(?:\.\d*)?|\.\d+", re.ASCII)
_COMMAS = re.compile(r"[,;]")
#: What a spreadsheet would compute, and what `guarded` made of such.
_FORMULA = re.compile(r"'*[=+\-@\t\r]")


def moment(text: str, what: str, delimiter: str = ",") -> float:
    """A time in seconds from a cell that says seconds, m:ss or h:mm:ss.

    Examples
    --------
    >>> moment("75.5", "start"), moment("1:15.5", "start"), moment("01:00:00.040", "start")
    (75.5, 75.5, 3600.04)
    """
    plain = decimal_point(text, delimiter)
    if (found := clock_seconds(plain)) is not None:
        return found
    if _SECONDS.fullmatch(plain):
        return seconds(plain, what)
    raise AnnotationError(f"{what} {shorten(text.strip())} is no time; write seconds or h:mm:ss")


def clock(value: float) -> str:
    """Seconds as people read them, to the millisecond.

    Examples
    --------
    >>> clock(75.5), clock(3600), clock(0.0004)
    ('0:01:15.5', '1:00:00', '0:00:00')
    """
    whole, rest = divmod(round(value * 1000), 1000)
    text = f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
    return f"{text}.{rest:03d}".rstrip("0") if rest else text


def concept_names(text: str) -> tuple[str, ...]:
    """The concepts of a cell: bars part them, and where there is no bar, commas do.

    Examples
    --------
    >>> concept_names("Body, Look"), concept_names("Body|Sex, drugs"), concept_names("Sex, drugs|")
    (('Body', 'Look'), ('Body', 'Sex, drugs'), ('Sex, drugs',))
    """
    parts = text.split(SEPARATOR) if SEPARATOR in text else _COMMAS.split(text)
    return tuple(name for part in parts if (name := " ".join(part.split())))


def concept_cell(names: Sequence[str]) -> str:
    """What `concept_names` reads: commas, and bars where a name has a comma itself.

    Examples
    --------
    >>> concept_cell(["Body", "Look"]), concept_cell(["Sex, drugs"])
    ('Body, Look', 'Sex, drugs|')
    """
    if any(map(_COMMAS.search, names)):
        return SEPARATOR.join(names) + (SEPARATOR if len(names) == 1 else "")
    return ", ".join(names)


def guarded(text: str) -> str:
    """A text that no spreadsheet takes for a formula; `unguarded` gives it back.

    Examples
    --------
    >>> guarded("=1+1"), unguarded(guarded("=1+1"))
    ("'=1+1", '=1+1')
    """
    return f"'{text}" if _FORMULA.match(text) else text


def unguarded(text: str) -> str:
    """A text as it was before `guarded`."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text
