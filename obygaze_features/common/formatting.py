"""Format numbers, times and lists for people."""

from __future__ import annotations

from collections.abc import Sequence

MAX_QUOTED = 60
"""The number of letters of a name or a quoted text that a message shows."""
MAX_TIME_S = 1e9
"""The longest time that can be read, in seconds."""


def counted(number: int, noun: str, nouns: str | None = None) -> str:
    """Format a number with its noun.

    Examples
    --------
    >>> counted(1, "clip"), counted(1914, "clip")
    ('1 clip', '1,914 clips')
    """
    if number != 1:
        noun = nouns or f"{noun}s"
    return f"{number:,} {noun}"


def format_number(value: float, form: str = ".2f") -> str:
    """Format a number, rounded to two decimals, for figures and pages.

    A percentage is that of the rounded number. A number that rounds to zero has no sign.

    Examples
    --------
    >>> format_number(0.789), format_number(0.524, "+.0%"), format_number(-0.031)
    ('0.79', '+52%', '−0.03')
    >>> format_number(-0.004, "+.2f")
    '0.00'
    """
    text = format(round(value, 2), form)
    if not text.strip("+-0.%"):
        text = text.lstrip("+-")
    return text.replace("-", "−")


def format_signed(value: float) -> str:
    """Format a difference for the terminal and files.

    Examples
    --------
    >>> format_signed(0.254), format_signed(-0.254), format_signed(-0.004)
    ('+0.25', '-0.25', '0.00')
    """
    return format_number(value, "+.2f").replace("−", "-")


def format_time(seconds: float) -> str:
    """Format seconds as h:mm:ss with up to three decimals.

    Examples
    --------
    >>> format_time(75.5), format_time(3600), format_time(0.0004)
    ('0:01:15.5', '1:00:00', '0:00:00')
    """
    total, milliseconds = divmod(round(seconds * 1000), 1000)
    text = f"{total // 3600}:{total // 60 % 60:02d}:{total % 60:02d}.{milliseconds:03d}"
    return text.rstrip("0").rstrip(".") if milliseconds else text[:-4]


def format_size(count: int) -> str:
    """Format a number of bytes in a suitable unit.

    Examples
    --------
    >>> format_size(512), format_size(75_000), format_size(3_200_000_000)
    ('512 B', '75 kB', '3.2 GB')
    """
    if count < 1000:
        return f"{count} B"
    size = count / 1000
    units = ["kB", "MB", "GB", "TB"]
    while size >= 1000 and len(units) > 1:
        size /= 1000
        del units[0]
    return f"{size:,.{int(size < 10)}f} {units[0]}"


def join_some(names: Sequence[str], limit: int = 5) -> str:
    """Join the first few names and count the rest.

    Examples
    --------
    >>> join_some(["a", "b", "c"], limit=2)
    'a, b and 1 more'
    """
    text = ", ".join(names[:limit])
    if len(names) > limit:
        text += f" and {len(names) - limit:,} more"
    return text


def elide(name: str) -> str:
    """Shorten a name if it is long, but keep both its ends.

    Examples
    --------
    >>> elide(f"night 1 of {'a very ' * 20}long series, part 3")
    'night 1 of a very a very a ver...ery a very long series, part 3'
    """
    if len(name) > MAX_QUOTED:
        return f"{name[:30]}...{name[-30:]}"
    return name


def shorten(text: str) -> str:
    """Quote a text for an error message, shortening it if it is long."""
    return repr(elide(text))
