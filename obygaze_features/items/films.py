"""Look up films by id, title or pattern (as the option ``--film`` does), and find titles."""

from __future__ import annotations

import fnmatch
import glob
import re
from collections import Counter
from collections.abc import Collection, Mapping
from functools import cache

from obygaze_features.common.package import reference_file
from obygaze_features.common.tables import read_table
from obygaze_features.common.text import as_list, caseless, join_some, shorten, unknown_name
from obygaze_features.errors import UsageError
from obygaze_features.items.items import Items

TITLE_COLUMN = "movie_title"
"""The column of ``items.csv`` that has a film's title, if the source gave one."""
_YEAR = re.compile(r"\s*\([0-9]{4}\)$")


def film_titles(items: Items) -> dict[str, str]:
    """Return the titles in the source and all `known_titles`, which take precedence, by film id."""
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
    rows = read_table(reference_file("films.csv")).rows()
    return {row["film"]: f"{row['title']} ({row['year']})" for row in rows}


def titles_in(items: Items) -> dict[str, str]:
    """Return the title of each film that items belong to; unknown titles are empty."""
    titles = film_titles(items)
    return {film: titles.get(film, "") for film in items.films}


def find_films(names: Collection[str] | str, titles: Mapping[str, str]) -> list[str]:
    """Return the ids of the films with these ids or titles.

    A name may be several names separated by commas. In a name, * matches any characters. A name
    that begins with ! excludes its films. If all names begin with !, the other films are returned.

    Examples
    --------
    >>> titles = {"tt1": "Juno (2007)", "tt2": "Carrie", "tt3": "Titanic (1997)"}
    >>> find_films(["juno, tt3"], titles), find_films("*ni*", titles)
    (['tt1', 'tt3'], ['tt3'])
    >>> find_films("!juno", titles)
    ['tt2', 'tt3']
    """
    chosen: list[str] = []
    left_out: list[str] = []
    parts = list(filter(None, map(str.strip, ",".join(as_list(names)).split(","))))
    if not parts:
        raise UsageError("no film is named; pass the id or title of a film")
    for name in parts:
        wish = name.removeprefix("!")
        films = match_films(wish, titles, several="*" in wish)
        if name == wish:
            chosen += films
        else:
            left_out += films

    remaining = [film for film in dict.fromkeys(chosen or titles) if film not in left_out]
    if not remaining:
        raise UsageError("no film is left; exclude fewer of them")
    return remaining


def match_films(name: str, titles: Mapping[str, str], *, several: bool = False) -> list[str]:
    """Return the films with this id, title or pattern, ignoring case and extra spaces.

    A title's year may be left out. Raise `UsageError` if no film matches or, without `several`, if
    more than one does.

    Examples
    --------
    >>> match_films("juno", {"tt0467406": "Juno (2007)", "tt0120338": "Titanic (1997)"})
    ['tt0467406']
    """
    if name in titles:
        return [name]
    wish = glob.escape(_title_key(name)).replace("[*]", "*")  # nothing else is special
    films = []
    for film, title in titles.items():
        texts = (film, title, _YEAR.sub("", title))
        if fnmatch.filter(map(_title_key, texts), wish):
            films.append(film)
    if not films:
        known = [_YEAR.sub("", title) or film for film, title in titles.items()]
        raise UsageError(unknown_name("film", name, filter(None, known)))
    if len(films) > 1 and not several:
        raise UsageError(f"{shorten(name)} matches several films; use an id: {join_some(films)}")
    return films


def _title_key(title: str) -> str:
    return " ".join(caseless(title).split())
