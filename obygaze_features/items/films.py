"""Look up films by id, title or pattern (as the option ``--film`` does), and find titles."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from functools import cache

from obygaze_features.common.package import reference_file
from obygaze_features.common.tables import read_table
from obygaze_features.common.text import as_list, join_some, shorten, unknown_name
from obygaze_features.errors import UsageError
from obygaze_features.items.items import Items

TITLE_COLUMN = "movie_title"
"""The column of ``items.csv`` that has a film's title, if the source gave one."""
_YEAR = re.compile(r"\s*\([0-9]{4}\)$")


def film_titles(items: Items) -> dict[str, str]:
    """Return each film's title and year if known, or else the title in the source."""
    of_source = zip(items.films, items.extra.get(TITLE_COLUMN, []), strict=False)
    return {film: title for film, title in of_source if title} | known_titles()


def distinct_titles(titles: Mapping[str, str]) -> dict[str, str]:
    """Make titles distinct by appending the id to titles that several films share.

    Examples
    --------
    >>> distinct_titles({"a": "Carrie", "b": "Carrie", "c": "Juno"})
    {'a': 'Carrie [a]', 'b': 'Carrie [b]', 'c': 'Juno'}
    """
    times = Counter(titles.values())
    return {f: title if times[title] < 2 else f"{title} [{f}]" for f, title in titles.items()}


@cache
def known_titles() -> dict[str, str]:
    """Return the title and year of ObyGaze12's and MObyGaze's films, by film id."""
    table = read_table(reference_file("films.csv"))
    return {
        film: f"{title} ({year})"
        for film, title, year in zip(table["film"], table["title"], table["year"], strict=True)
    }


def match_film(name: str, titles: Mapping[str, str]) -> str:
    """Return the id of the film with this id or title (with or without the year), ignoring case.

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
        raise UsageError(f"{shorten(name)} matches several films; use an id: {join_some(matches)}")
    raise _unknown_film(name, titles)


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


def titles_in(items: Items) -> dict[str, str]:
    """Return the title of each film that items belong to; unknown titles are empty."""
    titles = film_titles(items)
    return {film: titles.get(film, "") for film in items.films if film}


def find_films(names: Collection[str] | str, titles: Mapping[str, str]) -> list[str]:
    """Return the ids of the films with these ids or titles.

    A name may be several names separated by commas, unless the whole text is a title. In a name, *
    matches any characters.

    Examples
    --------
    >>> titles = {"tt1": "Juno (2007)", "tt2": "Crazy, Stupid, Love", "tt3": "Titanic (1997)"}
    >>> find_films("Crazy, Stupid, Love", titles), find_films(["juno, tt3"], titles)
    (['tt2'], ['tt1', 'tt3'])
    >>> find_films("*t*", titles) == list(titles)
    True
    """
    films: list[str] = []
    for name in as_list(names):
        parts = [part.strip() for part in name.split(",")]
        try:
            films += _match(name, titles)
        except UsageError:
            if len(parts) == 1:
                raise
            for part in filter(None, parts):
                films += _match(part, titles)
    return list(dict.fromkeys(films))


def _match(name: str, titles: Mapping[str, str]) -> list[str]:
    """Return the films that match a name or a pattern."""
    if "*" not in name:
        return [match_film(name, titles)]
    pattern = re.compile(".*".join(map(re.escape, name.split("*"))), re.IGNORECASE)
    films = [
        film
        for film, title in titles.items()
        if any(map(pattern.fullmatch, (film, title, without_year(title))))
    ]
    if not films:
        raise _unknown_film(name, titles)
    return films


def _unknown_film(name: str, titles: Mapping[str, str]) -> UsageError:
    texts = [without_year(title) or film for film, title in titles.items()]
    return UsageError(unknown_name("film", name, texts))
