"""Words for women and men in captions, and captions that speak of the other instead."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["MASK", "Variants", "gender_of", "variants"]

MASK = "[MASK]"
"""Stands in a caption where its gender word was."""

_NOUNS: Mapping[tuple[str, str], str] = {
    ("man", "woman"): "man boy guy gentleman woman girl lady",
    ("men", "women"): "men boys guys gentlemen women girls ladies",
    ("male", "female"): "male female",
    ("males", "females"): "males females",
}
"""What is written for a man and for a woman, in place of any of some words."""
_WOMEN = frozenset(
    [
        "woman",
        "girl",
        "lady",
        "women",
        "girls",
        "ladies",
        "female",
        "females",
        "she",
        "her",
        "hers",
        "herself",
    ]
)
_PRONOUNS = frozenset(["he", "him", "his", "himself", "she", "her", "hers", "herself"])
_PAIRS = {word: pair for pair, words in _NOUNS.items() for word in words.split()}
_WORD = re.compile(rf"\b(?:{'|'.join([*_PAIRS, *_PRONOUNS])})\b", re.IGNORECASE)


@dataclass(frozen=True)
class Variants:
    """A caption as it speaks of a man, and as it speaks of a woman."""

    man: str
    woman: str


def gender_of(caption: str) -> str:
    """``man`` or ``woman``, where the words of a caption speak of one alone; else nothing.

    Examples
    --------
    >>> gender_of("A lady and her dog"), gender_of("a man and a woman"), gender_of("a [MASK]")
    ('woman', '', '')
    """
    found = {word.lower() in _WOMEN for word in _WORD.findall(caption)}
    return "" if len(found) != 1 else "woman" if found.pop() else "man"


def variants(caption: str) -> Variants | None:
    """Fill a caption with man and with woman.

    Where `MASK` stands, or else in place of its nouns for people of one gender. There are none of
    a caption that has no such word, words for both, or a pronoun, which would have to be changed
    with it: put `MASK` into such a caption yourself.

    Examples
    --------
    >>> variants("two boys on a road")
    Variants(man='two men on a road', woman='two women on a road')
    >>> variants("a [MASK] riding a motorcycle").woman
    'a woman riding a motorcycle'
    >>> variants("a girl with her dog") is None
    True
    """
    if MASK in caption:
        return Variants(caption.replace(MASK, "man"), caption.replace(MASK, "woman"))
    words = {word.lower() for word in _WORD.findall(caption)}
    if not gender_of(caption) or words & _PRONOUNS:
        return None

    def fill(place: int) -> str:
        return _WORD.sub(lambda found: _like(_PAIRS[found[0].lower()][place], found[0]), caption)

    return Variants(fill(0), fill(1))


def _like(word: str, other: str) -> str:
    return word.capitalize() if other[0].isupper() else word
