"""Compare names, suggest existing ones, and turn names into file names."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable

from obygaze_features.common.formatting import join_some, shorten

_ZEROS = re.compile(r"(?<!\d)0+(?=\d)")
_NOT_IN_FILES = re.compile(r'[<>:"/\\|?*]+')
_KEPT_BY_WINDOWS = re.compile(r"(con|prn|aux|nul|(com|lpt)[1-9¹²³]) *(\.|$)", re.IGNORECASE)
_MAX_STEM_BYTES = 180
MAX_NAMES_COMPARED = 1000
"""The number of names above which a suggestion may differ only in case or leading zeros."""


def as_list(names: Iterable[str]) -> list[str]:
    """Return names, such as a column of a table, as a list; a single string is one name.

    Examples
    --------
    >>> as_list("native"), as_list(("native", "frames"))
    (['native'], ['native', 'frames'])
    """
    return [names] if isinstance(names, str) else list(map(str, names))


def composed(name: str) -> str:
    """Return a name with each letter and its accent in one character; a Mac separates them.

    Examples
    --------
    >>> len("e\\u0301t\\u00e9"), len(composed("e\\u0301t\\u00e9"))
    (4, 3)
    """
    return unicodedata.normalize("NFC", name)


def caseless(name: str) -> str:
    """Return a name for comparisons that ignore case and how accents are encoded."""
    return composed(name).casefold()


def find_closest(typed: str, names: Iterable[str]) -> str | None:
    """Return the name that the user probably meant to type, or None if none is close enough.

    Examples
    --------
    >>> find_closest("natve", ["native", "frames"]), find_closest("accuracy", ["balanced_accuracy"])
    ('native', None)
    >>> find_closest("clip-0017", ["clip-017", "clip-018"])
    'clip-017'
    """
    by_key = {_ZEROS.sub("", name.casefold()): name for name in names}
    key = _ZEROS.sub("", typed.casefold())
    near = [key]
    if key not in by_key and len(by_key) <= MAX_NAMES_COMPARED:
        near = difflib.get_close_matches(key, by_key, n=1, cutoff=0.66)
    return by_key.get("".join(near))


def unknown_name(noun: str, name: str, names: Iterable[str]) -> str:
    """Return the message that `name` does not exist, with the closest name or up to 30 names.

    Examples
    --------
    >>> unknown_name("array", "natve", ["native", "frames"])
    "unknown array 'natve'; did you mean native?"
    >>> unknown_name("array", "x", ["native", "frames"])
    "unknown array 'x'; choose from native, frames"
    """
    names = list(names)
    remedy = f"choose from {join_some(names, 30)}"
    near = find_closest(name, names)
    if near:
        remedy = f"did you mean {near}?"
    return f"unknown {noun} {shorten(name)}; {remedy}"


def file_names(names: Iterable[str], suffix: str) -> list[str]:
    """Return a file name for each name, safe on any file system and unique ignoring case.

    Examples
    --------
    >>> file_names(["Juno (2007)", "WALL·E / Up", "juno (2007)"], ".svg")
    ['Juno (2007).svg', 'WALL·E - Up.svg', 'juno (2007)-2.svg']
    """
    used: set[str] = set()
    files = []
    for name in names:
        text = _NOT_IN_FILES.sub("-", composed(name))
        stem = "".join(letter if letter.isprintable() else "-" for letter in text)
        stem = stem.encode()[:_MAX_STEM_BYTES].decode(errors="ignore").strip(" .") or "-"
        if _KEPT_BY_WINDOWS.match(stem):
            stem = "_" + stem

        file = stem + suffix
        number = 1
        while file.casefold() in used:
            number += 1
            file = f"{stem}-{number}{suffix}"
        used.add(file.casefold())
        files.append(file)
    return files
