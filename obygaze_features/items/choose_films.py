"""Choose films by id, title or pattern, as the option ``--film`` names them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from obygaze_features.common.text import as_list, join_some, unknown_name
from obygaze_features.errors import UsageError
from obygaze_features.items.films import film_titles, match_film, without_year
from obygaze_features.items.items import Items


def titles_in(items: Items) -> dict[str, str]:
    """Map each film of items to its title; empty if it is not known."""
    titles = film_titles(items)
    return {film: titles.get(film, "") for film in items.films if film}


def find_films(names: Collection[str] | str, titles: Mapping[str, str]) -> list[str]:
    """Return the ids of the films that are named by id or title.

    Commas separate names, unless the whole is a title; * stands for any characters.

    Examples
    --------
    >>> titles = {"tt1": "Juno (2007)", "tt2": "Crazy, Stupid, Love", "tt3": "Titanic (1997)"}
    >>> find_films("Crazy, Stupid, Love", titles), find_films(["juno, tt3"], titles)
    (['tt2'], ['tt1', 'tt3'])
    >>> find_films("*t*", titles) == list(titles)
    True
    """
    found: list[str] = []
    for name in as_list(names):
        parts = [part.strip() for part in name.split(",")]
        try:
            found += _match(name, titles)
        except UsageError:
            if len(parts) == 1:
                raise
            for part in filter(None, parts):
                found += _match(part, titles)
    return list(dict.fromkeys(found))


def find_film(names: Collection[str] | str, titles: Mapping[str, str]) -> str:
    """Return the id of the one film that is named; see `find_films`."""
    films = find_films(names, titles)
    if len(films) != 1:
        raise UsageError(f"name one film here (got {join_some(films)})")
    return films[0]


def _match(name: str, titles: Mapping[str, str]) -> list[str]:
    """Return the film of a name, or all films of a pattern."""
    if "*" not in name:
        return [match_film(name, titles)]
    pattern = re.compile(".*".join(map(re.escape, name.split("*"))), re.IGNORECASE)
    films = [
        film
        for film, title in titles.items()
        if any(map(pattern.fullmatch, (film, title, without_year(title))))
    ]
    if not films:
        known = [without_year(title) or film for film, title in titles.items()]
        raise UsageError(unknown_name("film", name, known))
    return films
