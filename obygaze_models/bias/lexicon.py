"""Lists of words by what they speak of, and the names that groups go by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard

from obygaze_features.common.files import check_format, read_json
from obygaze_features.common.package import reference_json
from obygaze_features.common.text import shorten, unknown_name
from obygaze_features.errors import BiasError

__all__ = ["Lexicon", "read_lexicon", "shipped_lexicon", "tokens"]

FORMAT, FORMAT_VERSION = "obygaze-lexicon", 1


def tokens(text: str) -> list[str]:
    """The words of a caption: in lower case, without . and , and cut at single spaces.

    Examples
    --------
    >>> tokens("A woman, smiling. It's  raining!")
    ['a', 'woman', 'smiling', "it's", '', 'raining!']
    """
    return text.lower().replace(".", "").replace(",", "").split(" ")


@dataclass(frozen=True)
class Lexicon:
    """Lists of words, and for each column of groups their names with those they also go by."""

    name: str
    words: Mapping[str, tuple[str, ...]]
    groups: Mapping[str, Mapping[str, tuple[str, ...]]]

    @cached_property
    def every_word(self) -> frozenset[str]:
        """The words of all lists."""
        return frozenset(word for words in self.words.values() for word in words)

    @cached_property
    def _known(self) -> dict[str, dict[str, str]]:
        return {
            column: {one.casefold(): name for name, also in names.items() for one in (name, *also)}
            for column, names in self.groups.items()
        }

    def group(self, column: str, said: str) -> str:
        """A group's name from what a file says: the name, or what it also goes by, in any case."""
        found = self._known[column].get(said.casefold())
        if found is None:
            raise BiasError(unknown_name(column, said, self.groups[column]))
        return found

    def count(self, text: str) -> Counter[str]:
        """How often each word of any list is a token of a text."""
        return Counter(filter(self.every_word.__contains__, tokens(text)))


def shipped_lexicon(name: str) -> Lexicon:
    """A lexicon that obygaze ships: ``emotions`` or ``genders``."""
    return _parsed(reference_json(f"lexicons/{name}.json"), f"lexicons/{name}.json")


def read_lexicon(path: Path) -> Lexicon:
    """A lexicon of a user's own, in the form of manifests/lexicons/emotions.json."""
    return _parsed(read_json(path, BiasError), path)


def _parsed(content: Any, where: object) -> Lexicon:
    content = check_format(content, where, FORMAT, FORMAT_VERSION, BiasError)
    name, words, groups = (content.get(key) for key in ("name", "words", "groups"))
    if not isinstance(name, str) or not _lists(words):
        raise BiasError(f'{where}: "name" is a text, and "words" are lists of words by name')
    if not (isinstance(groups, dict) and all(map(_lists, groups.values()))):
        raise BiasError(
            f'{where}: "groups" are, for each column, lists of other names by the groups\' names'
        )
    for said, of in words.items():
        for word in of:
            if tokens(word) != [word]:
                raise BiasError(
                    f"{where}: {said} has {shorten(word)}, which no token is; give words in lower "
                    "case, without spaces, . or ,"
                )
    return Lexicon(name, _tuples(words), {column: _tuples(of) for column, of in groups.items()})


def _lists(value: Any) -> TypeGuard[dict[str, list[str]]]:
    """Whether it is lists of words by their names."""
    return (
        isinstance(value, dict)
        and bool(value)
        and all(
            isinstance(of, list) and all(isinstance(w, str) for w in of) for of in value.values()
        )
    )


def _tuples(lists: Mapping[str, list[str]]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(dict.fromkeys(of)) for name, of in lists.items()}
