"""Text and numbers of the page; whatever comes from data is escaped."""

from __future__ import annotations

from html import escape

from obygaze_models.figures.sheet import format_number


class Html(str):
    """Text that is HTML already; templates leave it as it is."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


def html(template: str, *parts: object) -> Html:
    """Fill a template; parts that are not `Html` are escaped.

    Examples
    --------
    >>> html("<b>{}</b>", "a < b")
    '<b>a &lt; b</b>'
    """
    return Html(template.format(*(_escaped(part) for part in parts)))


def joined(parts: list[Html]) -> Html:
    """Parts in a row."""
    return Html(", ".join(parts))


def number(value: float | None, *, form: str = "") -> Html:
    """A number as people read it, with its full value for programs.

    Parameters
    ----------
    value
        None becomes a dash, never a zero.
    form
        ``"+"`` prints the sign of a difference too, ``"%"`` a share, ``","`` a count.
    """
    if value is None:
        return Html('<abbr title="undefined">–</abbr>')
    text = format_number(value, percent=form == "%", signed=form == "+")
    if form == ",":
        text = f"{value:,.0f}"
    return html('<data value="{}">{}</data>', f"{value:.7g}", text)


def _escaped(part: object) -> str:
    return str(part) if isinstance(part, Html) else escape(str(part))
