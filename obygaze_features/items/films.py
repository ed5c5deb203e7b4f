"""Films of items: their titles, and how to find a film by its id or title."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import cache

from obygaze_features.common.package import reference_file
from obygaze_features.common.tables import read_table
from obygaze_features.common.text import join_some, shorten, unknown_name
from obygaze_features.errors import UsageError
from obygaze_features.items.items import Items

TITLE_COLUMN = "movie_title"
"""The column of ``items.csv`` for a film's title, if the source gave it."""
_YEAR = re.compile(r"\s*\([0-9]{4}\)$")


def film_titles(items: Items) -> dict[str, str]:
    """Return the title of each film, with its year if we know it, else as the source has it."""
    of_source = zip(items.films, items.extra.get(TITLE_COLUMN, []), strict=False)
    return {film: title for film, title in of_source if title} | known_titles()


def distinct_titles(titles: Mapping[str, str]) -> dict[str, str]:
    """Make titles distinct: films that share a title get their ids behind it.

    Examples
    --------
    >>> distinct_titles({"a": "Carrie", "b": "Carrie", "c": "Juno"})
    {'a': 'Carrie [a]', 'b': 'Carrie [b]', 'c': 'Juno'}
    """
    times = Counter(titles.values())
    return {f: title if times[title] < 2 else f"{title} [{f}]" for f, title in titles.items()}


@cache
def known_titles() -> dict[str, str]:
    """Return title and year by film id, of ObyGaze12's and MObyGaze's films."""
    table = read_table(reference_file("films.csv"))
    return {
        film: f"{title} ({year})"
        for film, title, year in zip(table["film"], table["title"], table["year"], strict=True)
    }


def match_film(name: str, titles: Mapping[str, str]) -> str:
    """Return the id of a film from its id or title, with or without the year, in any case.

    Examples
    --------
    >>> match_film("juno", {"tt0467406": "Juno (2007)", "tt0120338": "Titanic (1997)"})
    'tt0467406'
    """
    if name in titles:
        return name
    key = _title_key(name)
    matches = [
        film
        for film, title in titles.items()
        if key in (film.lower(), _title_key(title), _title_key(without_year(title)))
    ]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UsageError(f"{shorten(name)} is the title of several films: {join_some(matches)}")
    raise UsageError(
        unknown_name("film", name, [without_year(title) or film for film, title in titles.items()])
    )


def without_year(title: str) -> str:
    """Return a title without its year.

    Examples
    --------
    >>> without_year("Juno (2007)")
    'Juno'
    """
    return _YEAR.sub("", title)


def _title_key(title: str) -> str:
    return " ".join(title.split()).casefold()
