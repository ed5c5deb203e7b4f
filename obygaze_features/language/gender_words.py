"""Captions that speak of a man, or of a woman, where they spoke of the other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from obygaze_features.common.package import reference_json

__all__ = ["MASK", "Variants", "variants"]

MASK = "[MASK]"
"""Stands in a caption where its gender word was."""

_NOUNS: Mapping[tuple[str, str], str] = {
    ("man", "woman"): "man boy guy gentleman woman girl lady",
    ("men", "women"): "men boys guys gentlemen women girls ladies",
    ("male", "female"): "male female",
    ("males", "females"): "males females",
}
"""What is written for a man and for a woman, in place of any of some words."""
_PAIRS = {word: pair for pair, words in _NOUNS.items() for word in words.split()}


@dataclass(frozen=True)
class Variants:
    """A caption as it speaks of a man, and as it speaks of a woman."""

    man: str
    woman: str


def variants(caption: str) -> Variants | None:
    """Fill a caption with man and with woman.

    Where `MASK` stands, or else in place of its nouns for people of one gender. There are none of
    a caption without such a noun, with words for both, or with another word of gender, such as a
    pronoun, that would have to change with it: put `MASK` into such a caption yourself.

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
    gender_of = {
        word: gender
        for gender, words in reference_json("lexicons/genders.json")["words"].items()
        for word in words
    }
    known = re.compile(rf"\b(?:{'|'.join(gender_of)})\b", re.IGNORECASE)
    said = {word.lower() for word in known.findall(caption)}
    if not said <= set(_PAIRS) or len({gender_of[word] for word in said}) != 1:
        return None

    def fill(place: int) -> str:
        return known.sub(lambda found: _like(_PAIRS[found[0].lower()][place], found[0]), caption)

    return Variants(fill(0), fill(1))


def _like(word: str, other: str) -> str:
    if other.isupper():
        return word.upper()
    return word.capitalize() if other[0].isupper() else word
