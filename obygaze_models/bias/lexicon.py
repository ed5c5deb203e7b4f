"""Lists of words by topic, and the names of groups with their aliases."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import msgspec

from obygaze_features.common.package import reference_file
from obygaze_features.common.text import shorten, unknown_name
from obygaze_features.errors import BiasError
from obygaze_models.bias.inputs import read_struct

FORMAT, FORMAT_VERSION = "obygaze-lexicon", 1
_Lists = Annotated[dict[str, tuple[str, ...]], msgspec.Meta(min_length=1)]


def tokens(text: str) -> list[str]:
    """The words of a caption: lower case, without . and , and split at single spaces.

    Examples
    --------
    >>> tokens("A woman, smiling. It's  raining!")
    ['a', 'woman', 'smiling', "it's", '', 'raining!']
    """
    return text.lower().replace(".", "").replace(",", "").split(" ")


class Lexicon(msgspec.Struct, frozen=True, dict=True):
    """Lists of words by name, and for each column of groups their names with aliases."""

    format: str
    format_version: int
    name: Annotated[str, msgspec.Meta(min_length=1)]
    words: _Lists
    groups: dict[str, _Lists]
    source: dict[str, Any] = {}

    @cached_property
    def all_words(self) -> frozenset[str]:
        """The words of all lists."""
        return frozenset(word for words in self.words.values() for word in words)

    @cached_property
    def _group_of(self) -> dict[str, dict[str, str]]:
        return {
            column: {
                alias.casefold(): name
                for name, aliases in names.items()
                for alias in (name, *aliases)
            }
            for column, names in self.groups.items()
        }

    def group(self, column: str, text: str) -> str:
        """The group that a file's text names, by its name or an alias, in any case."""
        group = self._group_of[column].get(text.casefold())
        if group is None:
            raise BiasError(unknown_name(column, text, self.groups[column]))
        return group

    def count(self, text: str) -> Counter[str]:
        """How often each word of any list is a token of a text."""
        return Counter(filter(self.all_words.__contains__, tokens(text)))


def shipped_lexicon(name: str) -> Lexicon:
    """A lexicon that obygaze ships: ``emotions`` or ``genders``."""
    return read_lexicon(reference_file(f"lexicons/{name}.json"))


def read_lexicon(path: str | Path) -> Lexicon:
    """A lexicon of your own, in the form of manifests/lexicons/emotions.json."""
    lexicon = read_struct(Path(path), Lexicon, FORMAT, FORMAT_VERSION)
    for name, words in lexicon.words.items():
        for word in words:
            if tokens(word) != [word]:
                raise BiasError(
                    f"{path}: words of {name}: {shorten(word)} is not one token; write words in "
                    "lower case, without spaces, . or ,"
                )
    return lexicon
