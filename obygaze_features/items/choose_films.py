"""Choose films by id, title or pattern, as the option ``--film`` names them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from obygaze_features.common.text import as_list, join_some, unknown_name
from obygaze_features.errors import UsageError
from obygaze_features.items.films import film_titles, match_film, without_year
from obygaze_features.items.items import Items


def titles_in(items: Items) -> dict[str, str]:
    """Map each film of items to its title; empty if the title is unknown."""
    titles = film_titles(items)
    return {film: titles.get(film, "") for film in items.films if film}


def find_films(names: Collection[str] | str, titles: Mapping[str, str]) -> list[str]:
    """Return the ids of films named by id or title.

    Commas separate names, unless the whole text is a title; * stands for any characters.

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


def find_film(names: Collection[str] | str, titles: Mapping[str, str]) -> str:
    """Return the id of the only film named; see `find_films`."""
    films = find_films(names, titles)
    if len(films) != 1:
        raise UsageError(f"name exactly one film (got {join_some(films)})")
    return films[0]


def _match(name: str, titles: Mapping[str, str]) -> list[str]:
    """Return the film with a name, or all films that match a pattern."""
    if "*" not in name:
        return [match_film(name, titles)]
    pattern = re.compile(".*".join(map(re.escape, name.split("*"))), re.IGNORECASE)
    films = [
        film
        for film, title in titles.items()
        if any(map(pattern.fullmatch, (film, title, without_year(title))))
    ]
    if not films:
        texts = [without_year(title) or film for film, title in titles.items()]
        raise UsageError(unknown_name("film", name, texts))
    return films
