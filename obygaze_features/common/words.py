"""Small words for people: plurals, and cells quoted in messages."""

from __future__ import annotations

__all__ = ["counted", "quote"]


def counted(number: int, noun: str) -> str:
    """A number with its noun.

    Examples
    --------
    >>> counted(1, "clip"), counted(1914, "clip")
    ('1 clip', '1,914 clips')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def quote(text: str, most: int = 60) -> str:
    """A cell for an error message: quoted, and cut where it is long."""
    return repr(text if len(text) <= most else f"{text[:most]}...")
