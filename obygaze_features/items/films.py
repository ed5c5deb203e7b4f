"""Look up films by id, title or pattern (as the option ``--film`` does), and find titles."""

from __future__ import annotations

import fnmatch
import glob
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.formatting import join_some, shorten
from obygaze_features.common.names import as_list, caseless, unknown_name
from obygaze_features.common.package import reference_file
from obygaze_features.common.tables import read_table
from obygaze_features.errors import UsageError
from obygaze_features.items.items import Items

TITLE_COLUMN = "movie_title"
"""The column of ``items.csv`` that has a film's title, if the source gave one."""
_YEAR = re.compile(r"\s*\([0-9]{4}\)$")


def film_titles(items: Items) -> dict[str, str]:
    """Return each film's title: the known one, the source's, or else its id."""
    known = known_titles()
    titles: dict[str, str] = {}
    columns = zip(items.films, items.extra.get(TITLE_COLUMN) or items.films, strict=True)
    for film, title in columns:
        titles[film] = known.get(film) or title or titles.get(film, film)
    return titles


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
    rows = read_table(reference_file("films.csv")).rows()
    return {row["film"]: f"{row['title']} ({row['year']})" for row in rows}


def select_rows(
    items: Items,
    *,
    films: Iterable[str] | None,
    ids: Iterable[str] | None = None,
) -> NDArray[np.intp]:
    """Return the rows of the items that have these ids and are of these films (see `find_films`).

    Every id and film must exist. None means all of them, and an empty list means none.
    """
    rows = np.arange(len(items))
    if ids is not None:
        rows = np.unique(items.find(as_list(ids)))
    if films is not None:
        wanted = find_films(films, film_titles(items))
        rows = rows[[items.films[row] in wanted for row in rows]]
    return rows


def find_films(names: Iterable[str], titles: Mapping[str, str]) -> set[str]:
    """Return the ids of the films with these ids or titles.

    A name that is no id or title may be several names separated by commas. In a name, * matches any
    characters. A name that begins with ! excludes its films. If all names begin with !, the other
    films are returned.

    Examples
    --------
    >>> titles = {"tt1": "Juno (2007)", "tt2": "Girl, Interrupted", "tt3": "Titanic (1997)"}
    >>> sorted(find_films(["juno, tt3", "girl, interrupted"], titles)), find_films("*ni*", titles)
    (['tt1', 'tt2', 'tt3'], {'tt3'})
    >>> sorted(find_films("!juno", titles)), find_films([], titles)
    (['tt2', 'tt3'], set())
    """
    chosen: set[str] = set()
    left_out: set[str] = set()
    for name in as_list(names):
        patterns = [name]
        if not _films_called(name.removeprefix("!"), titles):
            patterns = [part.strip() for part in name.split(",")]
        for part in patterns:
            wish = part.removeprefix("!")
            films = match_films(wish, titles)
            if part == wish:
                chosen.update(films)
            else:
                left_out.update(films)
    if left_out and not chosen:
        chosen.update(titles)
    return chosen - left_out


def match_films(name: str, titles: Mapping[str, str]) -> list[str]:
    """Return the films with this id, title or pattern, ignoring case and extra spaces.

    A title's year may be left out. Raise `UsageError` if no film matches or, unless the name is a
    pattern, if more than one does.

    Examples
    --------
    >>> match_films("juno", {"tt0467406": "Juno (2007)", "tt0120338": "Titanic (1997)"})
    ['tt0467406']
    """
    films = _films_called(name, titles)
    if not films:
        known = [_YEAR.sub("", title) for title in titles.values()]
        raise UsageError(unknown_name("film", name, filter(None, known)))
    if len(films) > 1 and "*" not in name:
        raise UsageError(f"{shorten(name)} matches several films; use an id: {join_some(films)}")
    return films


def _films_called(name: str, titles: Mapping[str, str]) -> list[str]:
    """Return the films with this id, title or pattern."""
    if name in titles:
        return [name]
    wish = glob.escape(_title_key(name)).replace("[*]", "*")  # nothing else is special
    films = []
    for film, title in titles.items():
        texts = (film, title, _YEAR.sub("", title))
        if fnmatch.filter(map(_title_key, texts), wish):
            films.append(film)
    return films


def _title_key(title: str) -> str:
    return " ".join(caseless(title).split())
