"""Text and numbers of the page: whatever comes from data is escaped, every number can be traced."""

from __future__ import annotations

from html import escape
from urllib.parse import quote

__all__ = ["Html", "html", "joined", "key_of", "number"]


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


def joined(parts: list[Html] | list[str], between: str = ", ") -> Html:
    """Parts in a row, escaped where they are not `Html`."""
    return Html(between.join(_escaped(part) for part in parts))


def number(value: float | None, *key: object, digits: int = 2, form: str = "") -> Html:
    """A number as people read it, with what it is (`key`) and its value for whoever checks it.

    Parameters
    ----------
    value
        None is shown as a dash, never as a zero.
    key
        What the number is: parts of a path, such as ``"score", 0, "mlp", "EN vs S", "f1", "mean"``.
    digits
        How many are shown after the point.
    form
        ``"+"`` shows the sign of a difference too, ``"%"`` a share, ``","`` a count.
    """
    if value is None:
        return Html('<abbr title="undefined">–</abbr>')
    if form == "%":
        text = f"{value:.0%}"
    elif form == ",":
        text = f"{value:,.0f}"
    else:
        text = f"{value:{form}.{digits}f}".replace("-", "−")
        if not text.strip("+−0."):
            text = text.lstrip("+−")
    return html('<data value="{}" data-key="{}">{}</data>', f"{value:.7g}", key_of(*key), text)


def key_of(*parts: object) -> str:
    """What a number is, as a path.

    Examples
    --------
    >>> key_of("score", 0, "EN/HN vs S")
    'score/0/EN%2FHN vs S'
    """
    return "/".join(quote(str(part), safe=" +(),.:") for part in parts)


def _escaped(part: object) -> str:
    return str(part) if isinstance(part, Html) else escape(str(part))
